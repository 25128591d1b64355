package graph

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// BatchedPair is [Batched] for a program whose batch may have any size. g and h are its graphs for two numbers of rows,
// both above one. It proves for both what Batched does, and that they do the same with a row: a dimension that happened
// to be as large as the batch, a number that is computed from the number of rows, or a part whose size it decides make
// it a [*NotBatchableError].
func BatchedPair(g, h *Graph, r *Registry, axes map[string]int) (map[string]int, error) {
	found, a, err := batched(g, r, axes)
	if err != nil {
		return nil, err
	}
	again, b, err := batched(h, r, axes)
	if err != nil {
		return nil, err
	}
	if len(g.Outputs) != len(h.Outputs) {
		return nil, &NotBatchableError{Msg: "the number of outputs depends on the number of rows"}
	}
	p := &pair{a, b}
	for i := range g.Ops {
		if i >= len(h.Ops) {
			break
		}
		if err := p.op(r, &g.Ops[i], &h.Ops[i]); err != nil {
			op := &g.Ops[i]
			return nil, &NotBatchableError{Path: op.Path, Kind: op.Kind, Source: op.Source,
				Msg: err.Error() + " depends on the number of rows"}
		}
	}
	if len(g.Ops) != len(h.Ops) {
		return nil, &NotBatchableError{Msg: "the number of ops depends on the number of rows"}
	}
	for i, o := range g.Outputs {
		q := h.Outputs[i]
		if found[o.Name] != again[q.Name] || o.Operand.Value != q.Operand.Value || !p.alike(o.Operand, q.Operand, nil) {
			return nil, &NotBatchableError{Name: o.Name,
				Msg: fmt.Sprintf("%v depends on the number of rows, apart from having them", o.Operand.Layout.Shape)}
		}
	}
	return found, nil
}

// A pair is two graphs of a program. They are compared op by op. What is shown of values without rows is that the
// elements at the same offset are equal, as far as both values reach; of values with rows, that the elements at the
// same offset in a row are.
type pair struct{ a, b *batching }

// sizeAttrs are the attributes that may follow the number of rows: what is made has more elements, and the first ones
// are the same.
var sizeAttrs = map[Kind][]string{"arange": {"size"}, "affine_grid": {"size"}}

// op compares two ops. The error says what is not the same.
func (p *pair) op(r *Registry, x, y *Op) error {
	if x.Kind != y.Kind || len(x.In) != len(y.In) || !slices.Equal(x.Out, y.Out) {
		return fmt.Errorf("which op is here, %s or %s,", x.Kind, y.Kind)
	}
	if x.Kind == "write_view" {
		if !p.alike(Operand{x.Out[0], writtenView(x)}, Operand{y.Out[0], writtenView(y)}, []int{-1}) {
			return fmt.Errorf("which part is written")
		}
	} else {
		for name, v := range x.Attrs {
			if !slices.Contains(sizeAttrs[x.Kind], name) && !sameAttr(v, y.Attrs[name]) {
				return fmt.Errorf("attribute %s, %v or %v,", name, v, y.Attrs[name])
			}
		}
	}
	def, _ := r.Lookup(x.Kind)
	axes, free, err := p.a.rule(def, x)
	if err != nil {
		axes, free = make([][]int, len(x.In)), make([]bool, len(x.In))
	}
	for k, o := range x.In {
		q := y.In[k]
		if o.Value != q.Value {
			return fmt.Errorf("what operand %d is", k)
		}
		if o.Value == NoValue {
			continue
		}
		v, w := p.a.graph.Values[o.Value], p.b.graph.Values[q.Value]
		if v.Role != w.Role || !bytes.Equal(v.Const, w.Const) {
			return fmt.Errorf("the constant that is operand %d", k)
		}
		var sized []int
		for d, e := range axes[k] {
			looked := x.Kind == "index" && k == 0 && d >= x.Attrs.Int("dim") && d-x.Attrs.Int("dim") < len(free)-1 &&
				free[1+d-x.Attrs.Int("dim")]
			if e >= 0 || looked {
				sized = append(sized, d)
			}
		}
		if x.Kind == "write_view" {
			sized = []int{0}
		}
		if !p.alike(o, q, sized) {
			return fmt.Errorf("operand %d, %v or %v,", k, o.Layout.Shape, q.Layout.Shape)
		}
	}
	for _, id := range x.Out {
		s, t := p.a.graph.Values[id].Shape, p.b.graph.Values[id].Shape
		first := slices.IndexFunc(s, func(n int) bool { return n != 1 })
		if !p.alike(p.a.graph.Whole(id), p.b.graph.Whole(id), []int{first}) {
			return fmt.Errorf("a result, %v or %v,", s, t)
		}
	}
	return nil
}

// alike reports whether two operands show the same elements of the same row, or of values without rows the same
// elements where both have any. The dimensions of sized may be larger in one of the latter.
func (p *pair) alike(o, q Operand, sized []int) bool {
	l, m := o.Layout, q.Layout
	if len(l.Shape) != len(m.Shape) || (p.a.facts[o.Value].rows == nil) != (p.b.facts[q.Value].rows == nil) {
		return false
	}
	if p.a.facts[o.Value].rows == nil {
		for d, n := range l.Shape {
			if n != m.Shape[d] && !slices.Contains(sized, d) || l.Strides[d] != m.Strides[d] && max(n, m.Shape[d]) > 1 {
				return false
			}
		}
		return l.Offset == m.Offset
	}
	g, h := *p.a.facts[o.Value].rows, *p.b.facts[q.Value].rows
	at, err := find(l, g)
	to, err2 := find(m, h)
	if err != nil || err2 != nil {
		return (err == nil) == (err2 == nil) && l.Shape.Equal(m.Shape) // nothing is read
	}
	if g.inner != h.inner || at != to {
		return false
	}
	return slices.Equal(inRow(l, g, at), inRow(m, h, to))
}

// inRow describes where the elements of one row are: the size of each dimension and how far it leads, in elements below
// the digit and in turns above it, and where they begin.
func inRow(l tensor.Layout, g digit, at place) []int {
	turn := g.inner * g.count
	where := []int{l.Offset / turn, l.Offset % turn}
	for d, n := range l.Shape {
		below, above := l.Strides[d], 0
		switch {
		case n <= 1:
			below = 0
		case below%turn == 0:
			below, above = 0, below/turn
		}
		if d == at.dim {
			n /= g.count
		}
		where = append(where, n, below, above)
	}
	return where
}

// sameAttr compares attributes; a number that is none is equal to itself.
func sameAttr(v, w any) bool {
	x, ok := v.(float64)
	y, ok2 := w.(float64)
	return ok && ok2 && math.IsNaN(x) && math.IsNaN(y) || reflect.DeepEqual(v, w)
}
