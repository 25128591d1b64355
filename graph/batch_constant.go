package graph

import (
	"slices"

	"github.com/optimem/optimem/tensor"
)

// varies reports whether an operand without rows may change while the digit at a place counts.
func (a *batching) varies(o Operand, at place, count int) bool {
	step := o.Layout.Strides[at.dim] * at.inner
	if step == 0 || o.Layout.Shape[at.dim] <= 1 || empty(o.Layout.Shape) {
		return false
	}
	if !a.alike(o.Value, digit{step, count}) {
		return true
	}
	found, err := find(o.Layout, digit{step, count})
	return err != nil || found != at
}

// alike reports whether a value without rows is known not to depend on a digit.
func (a *batching) alike(id ValueID, g digit) bool {
	return slices.ContainsFunc(a.facts[id].same, func(s digit) bool {
		return g.inner%s.inner == 0 && s.count%(g.inner/s.inner*g.count) == 0
	})
}

// constant learns about results that depend on no row: along which digits they are alike, and whether they number rows.
func (a *batching) constant(def OpDef, op *Op) {
	if a.rows == 1 {
		return
	}
	if op.Kind == "write_view" {
		a.constantWrite(op)
		return
	}
	a.counting(op)
	axes, free, err := a.rule(def, op)
	if err != nil {
		return
	}
	tried := make(map[place][]int)
	try := func(at place, count int) {
		if count == 0 || count%a.rows != 0 || slices.Contains(tried[at], count) {
			return
		}
		tried[at] = append(tried[at], count)
		if a.uneven(op, axes, free, at, count) >= 0 {
			return
		}
		for _, id := range op.Out {
			if s := a.graph.Values[id].Shape; s[at.dim]%(at.inner*count) == 0 {
				a.facts[id].same = append(a.facts[id].same, digitAt(s, at, count))
			}
		}
	}
	for k, o := range op.In {
		for d, e := range axes[k] {
			if e >= 0 {
				try(place{e, 1}, o.Layout.Shape[d])
			}
		}
		if o.Value == NoValue {
			continue
		}
		for _, s := range a.facts[o.Value].same {
			if at, err := find(o.Layout, s); err == nil && axes[k][at.dim] >= 0 {
				try(place{axes[k][at.dim], at.inner}, s.count)
			}
		}
	}
}

// constantWrite learns along which digits the result of a write without rows is alike.
func (a *batching) constantWrite(op *Op) {
	base, src := op.In[0], op.In[1]
	whole := tensor.Contiguous(base.Layout.Shape...)
	var candidates []digit
	for d, n := range whole.Shape {
		candidates = append(candidates, digit{whole.Strides[d], n})
	}
	for _, s := range slices.Concat(candidates, a.facts[base.Value].same) {
		flat, err := find(whole, s)
		if err != nil || s.count%a.rows != 0 || a.varies(base, flat, s.count) {
			continue
		}
		if to, err := find(writtenView(op), s); err == nil && !a.varies(src, to, s.count) {
			a.facts[op.Out[0]].same = append(a.facts[op.Out[0]].same, s)
		}
	}
}

// counting learns that a result numbers the rows: arange, and what moves its elements only.
func (a *batching) counting(op *Op) {
	switch op.Kind {
	case "arange":
		if op.Attrs.Int("size") == a.rows && op.Attrs["start"] == 0 && op.Attrs["step"] == 1 {
			a.facts[op.Out[0]].number = &digit{1, a.rows}
		}
	case "copy", "cast":
		o := op.In[0]
		number, out := a.facts[o.Value].number, a.graph.Values[op.Out[0]]
		if number == nil || !isIndex(out.DType) {
			return
		}
		if at, err := find(o.Layout, *number); err == nil {
			moved := digitAt(out.Shape, at, a.rows)
			a.facts[op.Out[0]].number = &moved
		}
	}
}

// numbered changes the rule of an index op that takes elements of each row by its number: x[arange(n), chosen]. It
// returns which operands need not be alike for all rows: an index tensor that numbers the rows of x, whose rows are
// then where that tensor has them, and one for a dimension along which x does not vary.
func (a *batching) numbered(op *Op, axes [][]int) (free []bool) {
	free = make([]bool, len(op.In))
	x, first := op.In[0], op.Attrs.Int("dim")
	if !a.hasRows(x) {
		for k := 1; k < len(op.In); k++ {
			d := first + k - 1
			free[k] = !a.varies(x, place{d, 1}, x.Layout.Shape[d])
		}
		return free
	}
	at, err := find(x.Layout, *a.facts[x.Value].rows)
	if err != nil || at.inner != 1 || axes[0][at.dim] >= 0 || x.Layout.Shape[at.dim] != a.rows {
		return free
	}
	k := 1 + at.dim - first
	o := op.In[k]
	if number := a.facts[o.Value].number; number != nil {
		if n, err := find(o.Layout, *number); err == nil && n.inner == 1 && o.Layout.Shape[n.dim] == a.rows {
			axes[0][at.dim] = axes[k][n.dim]
			free[k] = true
		}
	}
	return free
}
