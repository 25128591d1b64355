package arrange

import (
	"fmt"
	"maps"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/cpu/blocked"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// byUnitRows returns an arranged graph with the linears that may round their factors to bfloat16 as ops "linear32" over rows
// of bfloat16, and attention as "attention32". Rows are rounded once, however many of these read them: where they are made,
// if one of these makes them and nothing else reads them, else by an op "rows32". Residuals, and what other ops read, stay
// float32. A copy that only brings heads together, or apart, is left out.
//
// The values of the graph given keep their ids; those that nobody makes any longer are left out.
func byUnitRows(g *graph.Graph, set *simd.UnitSet) *graph.Graph {
	n := newRowNarrower(g, set)
	if len(n.linears)+len(n.attentions) == 0 {
		return g
	}
	for i := range g.Ops {
		n.op(i)
	}
	n.out.Modules = make(map[string]graph.Operand, len(g.Modules))
	for path, o := range g.Modules {
		if half, ok := n.rounded[o.Value]; ok {
			o = n.out.Whole(half)
		}
		n.out.Modules[path] = o
	}
	return rewrite.Prune(n.out)
}

// A rowNarrower is a graph being made.
type rowNarrower struct {
	g, out *graph.Graph
	set    *simd.UnitSet
	// linears are the ops that become linear32.
	linears map[int]*blocked.UnitConv
	// makers are the ops of g that compute values.
	makers map[graph.ValueID]*graph.Op
	// attentions are those that become attention32, dissolved the copies that they make needless.
	attentions map[int]*unitHeads
	dissolved  map[int]bool
	// narrow are values that exist as rows of bfloat16 only, rounded which these are; halves has the rows of operands.
	narrow  map[graph.ValueID]bool
	rounded map[graph.ValueID]graph.ValueID
	halves  map[string]graph.ValueID
	// readers are the ops of g that read a value, −1 for what is no op.
	readers map[graph.ValueID][]int
}

func newRowNarrower(g *graph.Graph, set *simd.UnitSet) *rowNarrower {
	out := *g
	out.Values, out.Ops = slices.Clone(g.Values), nil
	n := &rowNarrower{
		g: g, out: &out, set: set, linears: make(map[int]*blocked.UnitConv), makers: make(map[graph.ValueID]*graph.Op),
		attentions: make(map[int]*unitHeads), dissolved: make(map[int]bool),
		narrow:  make(map[graph.ValueID]bool),
		rounded: make(map[graph.ValueID]graph.ValueID), halves: make(map[string]graph.ValueID),
		readers: make(map[graph.ValueID][]int),
	}
	for i := range g.Ops {
		if conv := unitLinear(g, &g.Ops[i], set); conv != nil {
			n.linears[i] = conv
			if !hasResidual(&g.Ops[i]) {
				n.narrow[g.Ops[i].Out[0]] = true
			}
		}
		n.read(i, &g.Ops[i])
	}
	for _, o := range g.Outputs {
		n.readers[o.Operand.Value] = append(n.readers[o.Operand.Value], -1)
	}
	for _, u := range g.Updates {
		n.readers[u.Operand.Value] = append(n.readers[u.Operand.Value], -1)
	}
	n.findAttentions()
	for id := range n.narrow {
		for _, i := range n.readers[id] {
			if !n.takesRows(i, id) {
				delete(n.narrow, id)
			}
		}
	}
	return n
}

// read notes what an op reads and makes.
func (n *rowNarrower) read(i int, op *graph.Op) {
	for _, o := range op.In {
		n.readers[o.Value] = append(n.readers[o.Value], i)
	}
	for _, c := range op.Guard {
		n.readers[c.Predicate.Value] = append(n.readers[c.Predicate.Value], -1)
	}
	for _, id := range op.Out {
		n.makers[id] = op
	}
}

// takesRows reports whether an op reads a value as rows of bfloat16 only.
func (n *rowNarrower) takesRows(i int, id graph.ValueID) bool {
	if i < 0 {
		return false
	}
	factors := 0
	switch {
	case n.dissolved[i]:
		return true
	case n.linears[i] != nil:
		factors = 1
	case n.attentions[i] != nil:
		factors = 3
	}
	for k, o := range n.g.Ops[i].In {
		if o.Value == id && (k >= factors || factors == 1 && !wholeRows(n.g, o)) {
			return false
		}
	}
	return true
}

// unitLinear returns the convolution of pixels by themselves that a linear is, nil where it is no product for a unit.
func unitLinear(g *graph.Graph, op *graph.Op, set *simd.UnitSet) *blocked.UnitConv {
	if op.Kind != "linear" || !rounds(op.Attrs) {
		return nil
	}
	x, w := op.In[0], op.In[1]
	rank := len(x.Layout.Shape)
	rows, channels, outputs := volume(x.Layout.Shape[:rank-1]), w.Layout.Shape[1], w.Layout.Shape[0]
	const (
		least = 16
		// A unit's convolution holds all channels of the pixels at hand, where a product goes through them in pieces.
		mostChannels = 1 << 16
	)
	if rows < least || channels < least || outputs < least || channels > mostChannels {
		return nil
	}
	if d := g.Spec(w).DType; !cpu.RoundsRows(x.Layout) || d != tensor.Float32 && !d.IsHalf() {
		return nil
	}
	if hasResidual(op) {
		residual := op.In[3]
		if op.Attrs.String("act") != "" || g.Spec(residual).DType != tensor.Float32 || !residual.Layout.IsContiguous() {
			return nil
		}
	}
	if _, known := blocked.ActOf(op.Attrs.String("act")); !known {
		return nil
	}
	return blocked.NewUnit(blocked.Geometry{
		Batch: 1, In: channels, Out: outputs, Groups: 1, Height: 1, Width: rows, OutHeight: 1, OutWidth: rows,
		KernelH: 1, KernelW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1,
	}, set)
}

// hasResidual reports whether something is added to the result of a linear.
func hasResidual(op *graph.Op) bool { return len(op.In) > 3 && op.In[3].Value != graph.NoValue }

// wholeRows reports whether an operand shows all of a value in order, in rows as long as the value's.
func wholeRows(g *graph.Graph, o graph.Operand) bool {
	if o.Value == graph.NoValue {
		return false
	}
	shape := g.Values[o.Value].Shape
	return len(shape) > 0 && len(o.Layout.Shape) > 0 && o.Layout.Offset == 0 && o.Layout.IsContiguous() &&
		o.Layout.Shape[len(o.Layout.Shape)-1] == shape[len(shape)-1] && volume(o.Layout.Shape) == volume(shape)
}

// rowsKey names the rows that an operand shows.
func rowsKey(g *graph.Graph, o graph.Operand) string {
	if wholeRows(g, o) {
		return fmt.Sprint(o.Value)
	}
	return viewKey(o)
}

// op adds op i.
func (n *rowNarrower) op(i int) {
	op := n.g.Ops[i]
	conv := n.linears[i]
	switch {
	case n.dissolved[i]:
		return
	case n.attentions[i] != nil:
		n.attention(op, n.attentions[i])
		return
	case conv == nil:
		n.out.Ops = append(n.out.Ops, op)
		return
	}
	op.Kind, op.Attrs, op.In = "linear32", maps.Clone(op.Attrs), slices.Clone(op.In)
	op.Attrs["conv"], op.Attrs["set"] = conv, n.set
	op.In[0] = n.rows(op.In[0])
	if id := op.Out[0]; n.narrow[id] {
		half := n.value(conv.OutWidth, conv.Out)
		n.halves[rowsKey(n.g, n.g.Whole(id))], n.rounded[id] = half, half
		op.Out = []graph.ValueID{half}
	}
	n.out.Ops = append(n.out.Ops, op)
}

// value adds a value of rows of bfloat16.
func (n *rowNarrower) value(rows, channels int) graph.ValueID {
	n.out.Values = append(n.out.Values, graph.Value{
		DType: tensor.BFloat16, Shape: tensor.Shape{blocked.UnitBlocks(channels), rows, blocked.UnitLanes},
	})
	return graph.ValueID(len(n.out.Values) - 1)
}

// rows returns the rows that an operand shows, which it rounds if they are not there.
func (n *rowNarrower) rows(o graph.Operand) graph.Operand {
	key := rowsKey(n.g, o)
	id, ok := n.halves[key]
	if !ok {
		shape := o.Layout.Shape
		id = n.value(volume(shape[:len(shape)-1]), shape[len(shape)-1])
		n.halves[key] = id
		round := graph.Op{
			Kind: "rows32", Attrs: graph.Attrs{"set": n.set}, In: []graph.Operand{o}, Out: []graph.ValueID{id},
		}
		if maker := n.makers[o.Value]; maker != nil {
			round.Path, round.Source, round.Guard = maker.Path, maker.Source, maker.Guard
		}
		n.out.Ops = append(n.out.Ops, round)
	}
	return n.out.Whole(id)
}
