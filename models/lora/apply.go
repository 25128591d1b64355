package lora

import (
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// With returns an architecture that computes with an adapter.
func With(a *layers.Architecture, adapter *Adapter) *layers.Architecture {
	adapted := *a
	adapted.Wrap = one{adapter}
	return &adapted
}

// one is an adapter for everything that is computed.
type one struct{ *Adapter }

// Wrap implements layers.Wrapper.
func (a one) Wrap(t *layers.Trace, path string, m *layers.Module, args []any, forward func(args ...any) any) any {
	run := func() any { return forward(args...) }
	if path == "" { // everywhere: a module may read what is another's
		run = func() any { return t.Replaced(a.params, func() any { return forward(args...) }) }
	}
	c := a.changes[path]
	if c == nil {
		return run()
	}
	return c.add(t, m, args, run())
}

// Read implements layers.Wrapper.
func (a one) Read(path string) error {
	if a.changes[path] == nil {
		return nil
	}
	return a.unread(path)
}

// unread is the error of a module that does not run: another one computes with its parameters.
func (a *Adapter) unread(path string) error {
	return &UnsupportedError{a.Name, "target_modules", "names " + path + ", which is computed within another module"}
}

// A Choice returns, of two results of a module, with for the rows that are computed with an adapter, and without for others.
// Adapters are numbered from 0.
type Choice func(adapter int, with, without layers.Tensor) (layers.Tensor, error)

// Mixed returns an architecture that computes with several adapters, each for the rows that are its own. What a row gets is
// what [With] gives it: the others' results are computed for it and not taken.
func Mixed(a *layers.Architecture, list []*Adapter, choose Choice) *layers.Architecture {
	adapted := *a
	adapted.Wrap = several{list, choose}
	return &adapted
}

// several are adapters of which each is for some rows.
type several struct {
	list   []*Adapter
	choose Choice
}

// Wrap implements layers.Wrapper.
func (s several) Wrap(t *layers.Trace, path string, m *layers.Module, args []any, forward func(args ...any) any) any {
	changes := func(x *Adapter) bool { return x.changes[path] != nil || x.owners[path] }
	base := forward(args...)
	if !slices.ContainsFunc(s.list, changes) {
		return base
	}
	result, ok := base.(layers.Tensor)
	if !ok {
		t.Fail("an adapter for a module that gives a %T", base)
	}
	for i, x := range s.list {
		if !changes(x) {
			continue
		}
		with := t.Replaced(x.params, func() any {
			y := base
			if x.owners[path] {
				y = forward(s.apart(t, i, args)...)
			}
			if c := x.changes[path]; c != nil {
				y = c.add(t, m, args, y)
			}
			return y
		})
		var err error
		if result, err = s.choose(i, with.(layers.Tensor), result); err != nil {
			t.Fail("adapter %s: %w", x.Name, err)
		}
	}
	return result
}

// apart returns arguments with those rows alone that an adapter has, zeros for others. What a module computes of its arguments
// would else be computed once for both of its runs where the parameters do not count yet, and not as it is without adapters: a
// norm is one op where nothing else reads what lies between, and its last bits are its own.
func (s several) apart(t *layers.Trace, adapter int, args []any) []any {
	args = slices.Clone(args)
	for k, a := range args {
		x, ok := a.(layers.Tensor)
		if !ok || x == nil {
			continue
		}
		if own, err := s.choose(adapter, x, t.Op("zeros_like", x)); err == nil { // else it has no rows
			args[k] = own
		}
	}
	return args
}

// Read implements layers.Wrapper.
func (s several) Read(path string) error {
	for _, x := range s.list {
		if x.changes[path] != nil || x.owners[path] {
			return x.unread(path)
		}
	}
	return nil
}

// add returns the result y of a module with the change, as peft's lora.Linear and lora.Embedding compute it.
func (c *change) add(t *layers.Trace, m *layers.Module, args []any, result any) any {
	y, ok := result.(layers.Tensor)
	x, given := args[0].(layers.Tensor)
	if !ok || !given || len(args) != 1 {
		t.Fail("an adapter for a module that takes %d arguments and gives a %T", len(args), result)
	}
	var h, bias layers.Tensor
	if c.kind == embedding {
		h = c.rows(t, x)
	} else {
		h = t.Op("linear", x, t.Weight(c.down, tensor.Float32), nil)
	}
	if c.bias != "" {
		bias = t.Weight(c.bias, tensor.Float32)
	}
	up := t.Weight(c.up, tensor.Float32)
	if c.strength != "" {
		return c.stretched(t, m, y, t.Op("linear", h, up, bias))
	}
	// Scaled before it is as wide as the result, which can be added to in place then.
	if c.scale != 1 {
		if h = t.Op("mul.Tensor", h, c.scale); bias != nil {
			bias = t.Op("mul.Tensor", bias, c.scale)
		}
	}
	return t.Op("add.Tensor", y, t.Op("linear", h, up, bias))
}

// rows returns, in the place of the first product, what an embedding has: columns of [rank rows] that indices name.
func (c *change) rows(t *layers.Trace, ids layers.Tensor) layers.Tensor {
	n := 1
	for _, size := range ids.Shape() {
		n *= size
	}
	down := t.Weight(c.down, tensor.Invalid)
	taken := t.Op("to.dtype", t.Op("index_select", down, 1, t.Op("reshape", ids, []int{n})), tensor.Float32)
	return t.Op("view", t.Op("contiguous", t.Op("t", taken)), append(slices.Clone([]int(ids.Shape())), down.Shape()[0]))
}

// stretched is DoRA: the weight W + scale·B·A has rows of the lengths that the adapter says.
func (c *change) stretched(t *layers.Trace, m *layers.Module, y, d layers.Tensor) layers.Tensor {
	var stretch layers.Tensor
	if c.stretch != "" {
		stretch = t.Weight(c.stretch, tensor.Float32)
	} else {
		stretch = c.factors(t, m)
	}
	plain := y
	if bias := t.Param(m, "bias"); bias != nil {
		plain = t.Op("sub.Tensor", y, bias)
	}
	more := t.Op("mul.Tensor", plain, t.Op("sub.Tensor", stretch, 1))
	return t.Op("add.Tensor", t.Op("add.Tensor", y, more), t.Op("mul.Tensor", t.Op("mul.Tensor", d, stretch), c.scale))
}

// factors computes in the pass what the rows of W + scale·B·A are stretched by, for weights that do not lie as a matrix
// of floats does. The length of a row is found without computing it: its square is |W|² + 2·scale·W·(B·A) +
// scale²·|B·A|².
func (c *change) factors(t *layers.Trace, m *layers.Module) layers.Tensor {
	w, raw := t.Param(m, "weight"), t.Stored(m, "weight")
	down, up := t.Weight(c.down, tensor.Float32), t.Weight(c.up, tensor.Float32)
	if c.kind == turned {
		w, raw = t.Op("t", w), t.Op("t", raw)
	}
	// Of what is stored, which the sum widens: a copy would take as much as the weight.
	own := t.Op("linalg_vector_norm", raw, 2, []int{1}, false, layers.Named{"dtype": tensor.Float32})
	crossed := t.Op("t", t.Op("linear", down, w, nil)) // W·Aᵀ
	crossed = t.Op("sum.dim_IntList", t.Op("mul.Tensor", up, crossed), []int{1})
	added := t.Op("linear", up, t.Op("linear", down, down, nil), nil) // B·(A·Aᵀ)
	added = t.Op("sum.dim_IntList", t.Op("mul.Tensor", added, up), []int{1})
	square := t.Op("add.Tensor", t.Op("mul.Tensor", own, own), t.Op("mul.Tensor", crossed, 2*c.scale))
	square = t.Op("add.Tensor", square, t.Op("mul.Tensor", added, c.scale*c.scale))
	return t.Op("div.Tensor", t.Weight(c.strength, tensor.Float32), t.Op("sqrt", square))
}
