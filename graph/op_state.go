package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// What a row of [B T …] tokens finds in the first column of the operand "states" of an op that keeps some, where it is
// no place of the cache: nothing, so that the row is the first of its sequence; what the row before leaves; and that
// the row is no token.
const (
	StateNone   = -1
	StateBefore = -2
	StateAbsent = -3
)

// stateOps walk a sequence with a state of a fixed size, token after token in one order, so that a token's bits do not
// depend on how its sequence is cut.
//
// The first operand has a dimension of sequences and one of tokens, [B T …], and all is float32. Without a cache each
// of the B sequences begins with zeros. The last two operands are given together or not at all: a cache [S …] of S
// states, and "states", int64 [T 2], for B = 1. Row t then begins with the state in place states[t][0] of the cache, or
// as [StateNone], [StateBefore] and [StateAbsent] say, of which the last gives zeros; the state behind it is written to
// place states[t][1], where that is not negative. Rows are computed in order, so that a row finds what one before it
// wrote.
var stateOps = []OpDef{
	// causal_conv: In[0] x [B T C], In[1] weight [C K], In[2] bias [C], which may be absent, In[3] cache [S K−1 C],
	// In[4] states. y[t][c] = bias[c] + Σ_k weight[c][k]·x[t−K+1+k][c]. The state is the last K−1 rows.
	{Kind: "causal_conv", Shape: causalConvShape, FLOPs: causalConvFLOPs, Bytes: stateBytes, Axes: mixes},

	// selective_scan: In[0] x [B T H P], In[1] steps [B T H], In[2] a [H 1], or [H N] where P is 1, In[3] b and In[4] c
	// [B T G N], where G divides H and head h has those of group h÷(H÷G), In[5] cache [S H N P], In[6] states. For each
	// head h[n][p] = exp(step·a[n])·h[n][p] + b[n]·(step·x[p]), and y[p] = Σ_n c[n]·h[n][p]: Mamba.
	{Kind: "selective_scan", Shape: selectiveScanShape, FLOPs: selectiveScanFLOPs, Bytes: stateBytes, Axes: mixes},

	// delta_rule: In[0] queries and In[1] keys [B T G D], In[2] values [B T H E], where G divides H, In[3] decay [B T
	// H], or [B T H D] of each element of a key, and In[4] share [B T H], In[5] cache [S H D E], In[6] states. For each
	// head the state is s[d] = exp(decay[d])·s[d], then s[d] += key[d]·share·(value − Σ_d key[d]·s[d]), and y = Σ_d
	// query[d]·s[d]: the gated delta rule.
	{Kind: "delta_rule", Shape: deltaRuleShape, FLOPs: deltaRuleFLOPs, Bytes: stateBytes, Axes: mixes},
}

// StateOperand returns which operand of an op of a kind is its cache of states; the one behind it is "states". ok is
// false for kinds that keep none.
func (k Kind) StateOperand() (operand int, ok bool) {
	switch k {
	case "causal_conv":
		return 3, true
	case "selective_scan", "delta_rule":
		return 5, true
	}
	return 0, false
}

// StateShape returns the shape of one state of an op with the given operands, which are those before the cache.
func StateShape(k Kind, in []tensor.Shape) tensor.Shape {
	switch k {
	case "causal_conv":
		return tensor.Shape{in[1][1] - 1, in[1][0]}
	case "selective_scan":
		return tensor.Shape{in[0][2], in[3][3], in[0][3]}
	case "delta_rule":
		return tensor.Shape{in[2][2], in[1][3], in[2][3]}
	}
	return nil
}

// checkStates checks what all of these ops have, with an operand that has so many dimensions in front.
func checkStates(kind Kind, in []Spec, ranks ...int) error {
	cache, _ := kind.StateOperand()
	least := cache
	if kind == "causal_conv" {
		least = 2 // the bias may be absent
	}
	if err := wantOperands(in, least, cache+2); err != nil {
		return err
	}
	if len(in) < cache {
		in = append(in[:len(in):len(in)], Spec{})
	}
	shapes := make([]tensor.Shape, len(ranks))
	for i, rank := range ranks {
		absent := in[i].DType == tensor.Invalid && kind == "causal_conv" && i == 2
		if shapes[i] = in[i].Shape; !absent && (in[i].DType != tensor.Float32 || len(in[i].Shape) != rank) {
			return fmt.Errorf("operand %d is %v %v", i, in[i].DType, in[i].Shape)
		}
	}
	if !given(in, cache) && !given(in, cache+1) {
		return nil
	}
	x := in[0].Shape
	switch {
	case !given(in, cache) || !given(in, cache+1):
		return fmt.Errorf("a cache without states, or states without a cache")
	case x[0] != 1:
		return fmt.Errorf("states of %d sequences", x[0])
	case in[cache].DType != tensor.Float32 || len(in[cache].Shape) == 0 ||
		!in[cache].Shape[1:].Equal(StateShape(kind, shapes)):
		return fmt.Errorf(
			"a cache of %v %v for states of %v", in[cache].DType, in[cache].Shape, StateShape(kind, shapes),
		)
	case in[cache+1].DType != tensor.Int64 || !in[cache+1].Shape.Equal(tensor.Shape{x[1], 2}):
		return fmt.Errorf("states %v %v of %d rows", in[cache+1].DType, in[cache+1].Shape, x[1])
	}
	return nil
}

func causalConvShape(in []Spec, _ Attrs) ([]Spec, error) {
	if err := checkStates("causal_conv", in, 3, 2, 1); err != nil {
		return nil, err
	}
	x, w, bias := in[0].Shape, in[1].Shape, tensor.Shape(nil)
	if given(in, 2) {
		bias = in[2].Shape
	}
	if w[0] != x[2] || w[1] < 2 || bias != nil && bias[0] != x[2] {
		return nil, fmt.Errorf("a weight of %v and a bias of %v for %v", w, bias, x)
	}
	return []Spec{{DType: tensor.Float32, Shape: x}}, nil
}

func selectiveScanShape(in []Spec, _ Attrs) ([]Spec, error) {
	if err := checkStates("selective_scan", in, 4, 3, 2, 4, 4); err != nil {
		return nil, err
	}
	x, steps, a, b, c := in[0].Shape, in[1].Shape, in[2].Shape, in[3].Shape, in[4].Shape
	switch {
	case !steps.Equal(x[:3]):
		return nil, fmt.Errorf("steps of %v for %v", steps, x)
	case !b.Equal(c) || !b[:2].Equal(x[:2]) || b[2] == 0 || x[2]%b[2] != 0:
		return nil, fmt.Errorf("groups of %v and %v for %v", b, c, x)
	case a[0] != x[2] || a[1] != 1 && (a[1] != b[3] || x[3] != 1):
		return nil, fmt.Errorf("rates of %v for %v and groups of %v", a, x, b)
	}
	return []Spec{{DType: tensor.Float32, Shape: x}}, nil
}

func deltaRuleShape(in []Spec, _ Attrs) ([]Spec, error) {
	decays := 3
	if len(in) > 3 && len(in[3].Shape) == 4 {
		decays = 4
	}
	if err := checkStates("delta_rule", in, 4, 4, 4, decays, 3); err != nil {
		return nil, err
	}
	q, k, v := in[0].Shape, in[1].Shape, in[2].Shape
	if !q.Equal(k) || !q[:2].Equal(v[:2]) || q[2] == 0 || v[2]%q[2] != 0 {
		return nil, fmt.Errorf("queries %v, keys %v and values %v", q, k, v)
	}
	each := tensor.Shape{v[0], v[1], v[2], q[3]}
	if !in[3].Shape.Equal(each[:decays]) || !in[4].Shape.Equal(v[:3]) {
		return nil, fmt.Errorf("decays %v and shares %v for values %v", in[3].Shape, in[4].Shape, v)
	}
	return []Spec{{DType: tensor.Float32, Shape: v}}, nil
}

func causalConvFLOPs(in, _ []Spec, _ Attrs) int64 {
	return product(2, Elements(in[0].Shape), int64(in[1].Shape[1]))
}

// Each number of a state is decayed, added to and read by a product.
func selectiveScanFLOPs(in, _ []Spec, _ Attrs) int64 {
	return product(6, Elements(in[0].Shape), int64(in[3].Shape[3]))
}

func deltaRuleFLOPs(in, _ []Spec, _ Attrs) int64 {
	return product(8, Elements(in[2].Shape), int64(in[1].Shape[3]))
}

// stateBytes counts of a cache what a pass of one sequence reads and writes, and at most what there is.
func stateBytes(in, out []Spec) int64 {
	last := len(in)
	moved := movedBytes(out)
	if n := len(in); n >= 2 && in[n-1].DType == tensor.Int64 {
		last = n - 2
		one := Elements(in[last].Shape[1:]) * 4
		moved += product(2, one, int64(min(in[n-1].Shape[0], in[last].Shape[0]))) + movedBytes(in[n-1:])
	}
	return moved + movedBytes(in[:last])
}
