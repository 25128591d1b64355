package lora

import (
	"slices"

	"github.com/optimem/optimem/layers"
)

// With returns an architecture that computes with an adapter.
func With(a *layers.Architecture, adapter *Adapter) *layers.Architecture {
	adapted := *a
	adapted.Wrap = func(t *layers.Trace, path string, m *layers.Module, args []any, forward func() any) any {
		run := forward
		if path == "" { // everywhere: a module may read what is another's
			run = func() any { return t.Replaced(adapter.params, forward) }
		}
		c := adapter.changes[path]
		if c == nil {
			return run()
		}
		return c.add(t, m, args, run())
	}
	return &adapted
}

// A Choice returns, of two results of a module, with for the rows that are computed with an adapter, and without for others.
// Adapters are numbered from 0.
type Choice func(adapter int, with, without layers.Tensor) (layers.Tensor, error)

// Mixed returns an architecture that computes with several adapters, each for the rows that are its own. What a row gets is
// what [With] gives it: the others' results are computed for it and not taken.
func Mixed(a *layers.Architecture, list []*Adapter, choose Choice) *layers.Architecture {
	adapted := *a
	adapted.Wrap = func(t *layers.Trace, path string, m *layers.Module, args []any, forward func() any) any {
		changes := func(x *Adapter) bool { return x.changes[path] != nil || x.owners[path] }
		base := forward()
		if !slices.ContainsFunc(list, changes) {
			return base
		}
		result, ok := base.(layers.Tensor)
		if !ok {
			t.Fail("an adapter for a module that gives a %T", base)
		}
		for i, x := range list {
			if !changes(x) {
				continue
			}
			with := base
			add := func() any {
				if x.owners[path] {
					with = forward()
				}
				if c := x.changes[path]; c != nil {
					with = c.add(t, m, args, with)
				}
				return with
			}
			var err error
			if result, err = choose(i, t.Replaced(x.params, add).(layers.Tensor), result); err != nil {
				t.Fail("adapter %s: %w", x.Name, err)
			}
		}
		return result
	}
	return &adapted
}

// add returns the result y of a module with the change, as peft's lora.Linear and lora.Embedding compute it.
func (c *change) add(t *layers.Trace, m *layers.Module, args []any, result any) any {
	y, ok := result.(layers.Tensor)
	x, given := args[0].(layers.Tensor)
	if !ok || !given || len(args) != 1 {
		t.Fail("an adapter for a module that takes %d arguments and gives a %T", len(args), result)
	}
	var d layers.Tensor
	if c.kind == embedding {
		d = c.rows(t, x)
	} else {
		var bias layers.Tensor
		if c.bias != "" {
			bias = t.Weight(c.bias)
		}
		d = t.Op("linear", t.Op("linear", x, t.Weight(c.down), nil), t.Weight(c.up), bias)
	}
	if c.strength != "" {
		return c.stretch(t, m, y, d)
	}
	if c.scale != 1 {
		d = t.Op("mul.Tensor", d, c.scale)
	}
	return t.Op("add.Tensor", y, d)
}

// rows is the product for an embedding: columns of [rank rows] that indices name.
func (c *change) rows(t *layers.Trace, ids layers.Tensor) layers.Tensor {
	n := 1
	for _, size := range ids.Shape() {
		n *= size
	}
	down, up := t.Weight(c.down), t.Weight(c.up)
	taken := t.Op("index_select", down, 1, t.Op("reshape", ids, []int{n}))
	d := t.Op("linear", t.Op("contiguous", t.Op("t", taken)), up, nil)
	return t.Op("view", d, append(slices.Clone([]int(ids.Shape())), up.Shape()[0]))
}

// stretch is DoRA: the weight W + scale·B·A has rows of the lengths that the adapter says. The length of a row of W + scale·B·A
// is found without computing that: its square is |W|² + 2·scale·W·(B·A) + scale²·|B·A|².
func (c *change) stretch(t *layers.Trace, m *layers.Module, y, d layers.Tensor) layers.Tensor {
	w, down, up := t.Param(m, "weight"), t.Weight(c.down), t.Weight(c.up)
	if c.kind == turned {
		w = t.Op("t", w)
	}
	own := t.Op("linalg_vector_norm", w, 2, []int{1})
	crossed := t.Op("t", t.Op("linear", down, w, nil)) // W·Aᵀ
	crossed = t.Op("sum.dim_IntList", t.Op("mul.Tensor", up, crossed), []int{1})
	added := t.Op("linear", up, t.Op("linear", down, down, nil), nil) // B·(A·Aᵀ)
	added = t.Op("sum.dim_IntList", t.Op("mul.Tensor", added, up), []int{1})
	square := t.Op("add.Tensor", t.Op("mul.Tensor", own, own), t.Op("mul.Tensor", crossed, 2*c.scale))
	square = t.Op("add.Tensor", square, t.Op("mul.Tensor", added, c.scale*c.scale))
	stretch := t.Op("div.Tensor", t.Weight(c.strength), t.Op("sqrt", square))
	plain := y
	if bias := t.Param(m, "bias"); bias != nil {
		plain = t.Op("sub.Tensor", y, bias)
	}
	more := t.Op("mul.Tensor", plain, t.Op("sub.Tensor", stretch, 1))
	return t.Op("add.Tensor", t.Op("add.Tensor", y, more), t.Op("mul.Tensor", t.Op("mul.Tensor", d, stretch), c.scale))
}
