package graph

import (
	"fmt"
	"maps"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// expertsOps are layers of which each row takes a few out of many.
var expertsOps = []OpDef{
	// experts: rows of In[0] [… H], each through the experts that In[1], int64 [… K], names, whose results are summed with the
	// weights In[2] [… K], in the order of the K. An expert is an MLP with a gate: act(x·gateᵀ) ⊙ (x·upᵀ) · downᵀ.
	//
	// From In[3] on there are three operands for each of the "experts": gate [I H], up [I H] and down [H I]; where the op is
	// "biased", there are six: their biases [I], [I] and [H] follow. They are views: of a tensor each, or of tensors that have all
	// experts, as the checkpoint has them. Weights and biases may be half floats beside In[0], which is float32.
	//
	// "act" is an activation as a linear's epilogue names it, or "clamped": (min(up, limit), no less than −limit, + 1) ⊙ g ⊙ σ(alpha·g)
	// with g = min(gate, limit). With "weigh_input" a row is multiplied with the weight before its expert, not after. An id of −1 names
	// no expert and adds nothing.
	//
	// With an attribute of [ExpertEncodings] the gates, ups or downs of all experts are uint8, [I bytes] and [H bytes]: the blocks
	// of their rows in that encoding. [KeepEncoded] makes that.
	//
	// With [LentAttr] the gates, ups and downs are not in memory while the op runs: whoever runs it lends it one expert
	// after the other, those that rows are sent to, in an order of his own.
	//
	// Only experts that are named are looked at. A row's result is the same bits whatever other rows there are.
	{Kind: "experts", Shape: expertsShape, FLOPs: expertsFLOPs, Bytes: expertsBytes, Axes: expertsAxes},
}

// ExpertsFirst is the first operand of an "experts" that is an expert's weight.
const ExpertsFirst = 3

// ExpertEncodings are the attributes that name the encodings of gates, ups and downs.
var ExpertEncodings = [3]string{"gate_encoding", "up_encoding", "down_encoding"}

// LentAttr is the attribute of an "experts" whose experts are lent to it while it runs. [Lend] sets it.
const LentAttr = "lent"

// LentOperands is how many operands of an expert are lent: its gate, up and down. Biases are not.
const LentOperands = 3

// Lent reports whether operand in of an op is lent to it while it runs.
func (op *Op) Lent(in int) bool {
	return op.Kind == "experts" && in >= ExpertsFirst && op.Attrs.Bool(LentAttr) &&
		(in-ExpertsFirst)%ExpertOperands(op.Attrs) < LentOperands
}

// Lend returns the graph in which the experts of some ops are lent to them, those for which which says so. The graph
// itself is not changed.
func Lend(g *Graph, which func(op int) bool) *Graph {
	lent := *g
	lent.Ops = slices.Clone(g.Ops)
	for i := range lent.Ops {
		if op := &lent.Ops[i]; op.Kind == "experts" && which(i) {
			op.Attrs = maps.Clone(op.Attrs)
			op.Attrs[LentAttr] = true
		}
	}
	return &lent
}

// ExpertOperands returns how many operands each expert of an "experts" has.
func ExpertOperands(a Attrs) int {
	if a.Bool("biased") {
		return 6
	}
	return 3
}

func expertsShape(in []Spec, a Attrs) ([]Spec, error) {
	n, each := a.Int("experts"), ExpertOperands(a)
	if n < 1 || len(in) != ExpertsFirst+n*each {
		return nil, fmt.Errorf("%d operands for %d experts", len(in), n)
	}
	x, ids, weights := in[0], in[1], in[2]
	rank := len(x.Shape)
	switch {
	case x.DType != tensor.Float32 || rank < 1:
		return nil, fmt.Errorf("%w: rows of %v %v", ErrDType, x.DType, x.Shape)
	case ids.DType != tensor.Int64 || len(ids.Shape) != rank || !ids.Shape[:rank-1].Equal(x.Shape[:rank-1]):
		return nil, fmt.Errorf("ids %v %v of rows %v", ids.DType, ids.Shape, x.Shape)
	case weights.DType != tensor.Float32 || !weights.Shape.Equal(ids.Shape):
		return nil, fmt.Errorf("weights %v %v of ids %v", weights.DType, weights.Shape, ids.Shape)
	case !isGate(a):
		return nil, fmt.Errorf("no activation %q", a.String("act"))
	}
	if len(in[ExpertsFirst].Shape) != 2 {
		return nil, fmt.Errorf("a gate of %v", in[ExpertsFirst].Shape)
	}
	hidden, inner := x.Shape[rank-1], in[ExpertsFirst].Shape[0]
	wanted := [6]tensor.Shape{{inner, hidden}, {inner, hidden}, {hidden, inner}, {inner}, {inner}, {hidden}}
	for i, s := range in[ExpertsFirst:] {
		want := wanted[i%each]
		if name := expertEncoding(a, i%each); name != "" {
			rows, err := encodedRows(s, Attrs{EncodingAttr: name})
			if err != nil {
				return nil, fmt.Errorf("expert %d: %w", i/each, err)
			}
			s = Spec{DType: tensor.Float32, Shape: rows}
		}
		if !s.Shape.Equal(want) || s.DType != tensor.Float32 && !s.DType.IsHalf() {
			return nil, fmt.Errorf("expert %d: %v %v where %v is wanted", i/each, s.DType, s.Shape, want)
		}
	}
	return []Spec{{DType: x.DType, Shape: x.Shape}}, nil
}

// expertEncoding returns the name of the encoding of an expert's operand, "" for numbers.
func expertEncoding(a Attrs, operand int) string {
	if operand >= len(ExpertEncodings) {
		return ""
	}
	return a.String(ExpertEncodings[operand])
}

// isGate reports whether the attribute "act" names what experts can do with their gate.
func isGate(a Attrs) bool {
	act := a.String("act")
	return act == "clamped" || activations[act] != nil
}

// expertsRouted is how often a row goes through an expert.
func expertsRouted(in []Spec) int64 { return Elements(in[1].Shape) }

func expertsFLOPs(in, _ []Spec, _ Attrs) int64 {
	hidden := in[0].Shape[len(in[0].Shape)-1]
	return product(expertsRouted(in), 6, int64(in[ExpertsFirst].Shape[0]), int64(hidden))
}

// expertsBytes counts as many experts as can be named.
func expertsBytes(in, out []Spec) int64 {
	all := movedBytes(in[ExpertsFirst:])
	gate := in[ExpertsFirst]
	each := product(3, Elements(gate.Shape), int64(gate.DType.Size()))
	return movedBytes(in[:ExpertsFirst]) + min(all, product(expertsRouted(in), each)) + movedBytes(out)
}

// expertsAxes: rows.
func expertsAxes(in, _ []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	for k := range ExpertsFirst {
		keep(axes[k], 0, len(axes[k])-1, 0)
	}
	return axes
}
