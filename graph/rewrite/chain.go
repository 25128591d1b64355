package rewrite

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// chainReach is how many ops may lie between an op and what it becomes part of: what it reads is alive until there.
const chainReach = 24

// chains puts elementwise ops of float32 together whose results are only read by each other, so that memory is passed
// over once. The bits stay the same.
func (w *rewriting) chains() {
	taken := make([]bool, len(w.g.Ops))
	for i := len(w.g.Ops) - 1; i >= 0; i-- {
		if w.gone[i] || taken[i] || !w.chainable(i) {
			continue
		}
		members := w.membersOf(i, taken)
		if len(members) < 2 {
			continue
		}
		slices.Sort(members)
		for _, k := range members {
			taken[k] = true
		}
		w.chain(members)
	}
}

// chainable reports whether an op may be in a chain.
func (w *rewriting) chainable(i int) bool {
	op := &w.g.Ops[i]
	if len(op.Out) != 1 || len(op.In) != graph.ChainOperands(op.Kind) || len(op.In) == 0 ||
		w.g.Values[op.Out[0]].DType != tensor.Float32 || graph.Elements(w.g.Values[op.Out[0]].Shape) == 0 {
		return false
	}
	for k, o := range op.In {
		want := tensor.Float32
		if op.Kind == "where" && k == 0 {
			want = tensor.Bool
		}
		if o.Value == graph.NoValue || w.g.Values[o.Value].DType != want {
			return false
		}
	}
	return true
}

// membersOf returns the ops that can be one with op i, which comes last: the makers of what members read, where members
// are the only ones to read it, as long as the program and its operands are within bounds.
func (w *rewriting) membersOf(i int, taken []bool) []int {
	shape := w.g.Values[w.g.Ops[i].Out[0]].Shape
	members := []int{i}
	for at := 0; at < len(members); at++ {
		for _, o := range w.g.Ops[members[at]].In {
			p, k := w.maker(o, w.g.Ops[i].Guard)
			if p == nil || k < i-chainReach || taken[k] || slices.Contains(members, k) || !w.chainable(k) ||
				len(members) == graph.MaxChainInstructions {
				continue
			}
			if w.usesIn(members, p.Out[0]) != w.uses[p.Out[0]] {
				continue
			}
			more := append(slices.Clone(members), k)
			if operands, ok := w.chainOperands(more, shape); ok && len(operands) <= graph.MaxChainOperands {
				members = more
			}
		}
	}
	return members
}

// usesIn counts how many operands of some ops show all of a value in order.
func (w *rewriting) usesIn(ops []int, id graph.ValueID) int {
	n := 0
	for _, k := range ops {
		for _, o := range w.g.Ops[k].In {
			if o.Value == id && w.whole(o) {
				n++
			}
		}
	}
	return n
}

// chainOperands lists what members read that none of them makes, as views of a shape; false where one cannot be such.
func (w *rewriting) chainOperands(members []int, shape tensor.Shape) ([]graph.Operand, bool) {
	var operands []graph.Operand
	for _, k := range members {
		for _, o := range w.g.Ops[k].In {
			if slices.Contains(members, w.from[o.Value]) {
				continue
			}
			o, ok := reshaped(o, shape)
			if !ok {
				return nil, false
			}
			if !slices.ContainsFunc(operands, func(q graph.Operand) bool { return sameOperand(q, o) }) {
				operands = append(operands, o)
			}
		}
	}
	return operands, true
}

// reshaped returns an operand with another shape over the same elements in the same order.
func reshaped(o graph.Operand, shape tensor.Shape) (graph.Operand, bool) {
	if o.Layout.Shape.Equal(shape) {
		return o, true
	}
	if graph.Elements(o.Layout.Shape) != graph.Elements(shape) {
		return o, false
	}
	l, ok := o.Layout.ViewAs(shape)
	return graph.Operand{Value: o.Value, Layout: l}, ok
}

// sameOperand reports whether two operands of one shape show the same elements.
func sameOperand(a, b graph.Operand) bool {
	return a.Value == b.Value && a.Layout.Offset == b.Layout.Offset && slices.Equal(a.Layout.Strides, b.Layout.Strides)
}

// chain makes one op of members, in the place of the last.
func (w *rewriting) chain(members []int) {
	last := members[len(members)-1]
	shape := w.g.Values[w.g.Ops[last].Out[0]].Shape
	operands, _ := w.chainOperands(members, shape)
	program := make(graph.Program, len(members))
	for n, k := range members {
		op := &w.g.Ops[k]
		program[n] = graph.Instruction{Kind: op.Kind, Attrs: op.Attrs}
		for _, o := range op.In {
			arg := len(operands) + slices.Index(members, w.from[o.Value])
			if arg < len(operands) {
				o, _ = reshaped(o, shape)
				arg = slices.IndexFunc(operands, func(q graph.Operand) bool { return sameOperand(q, o) })
			}
			program[n].Args = append(program[n].Args, arg)
		}
	}
	first := &w.g.Ops[members[0]]
	w.replace(last, graph.Op{
		Kind: "chain", Path: first.Path, Source: first.Source, In: operands, Attrs: graph.Attrs{"program": program},
	}, shape)
}
