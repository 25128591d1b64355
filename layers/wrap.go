package layers

import "github.com/optimem/optimem/tensor"

// A Wrapper changes what modules compute that know nothing of it: it is how adapters change a model.
type Wrapper interface {
	// Wrap runs the module at a path in the place of its class's forward, which it may call: as often as it likes, and with
	// other parameters ([Trace.Replaced]).
	Wrap(t *Trace, path string, m *Module, args []any, forward func() any) any
	// Read is told that a module reads a parameter of another one, at a path, which does not run for that. An error ends the
	// trace.
	Read(path string) error
}

// Replaced runs something with other tensors in the place of parameters: their names in the checkpoint by the parameters'
// paths. Those that names does not have stay what they are.
func (t *Trace) Replaced(names map[string]string, run func() any) any {
	outer := t.replaced
	t.replaced = names
	result := run()
	t.replaced = outer
	return result
}

// Weight returns a tensor of the checkpoint that is no parameter of a module, by its name there, in a dtype;
// [tensor.Invalid] is that which it has.
func (t *Trace) Weight(name string, dtype tensor.DType) Tensor {
	x, err := t.recorder.Weight(name, dtype)
	if err != nil {
		panic(traceFailure{err})
	}
	return x
}

// Stored is [Trace.Param] in the dtype that the checkpoint has.
func (t *Trace) Stored(m *Module, name string) Tensor {
	p := m.param(name)
	if p == nil {
		fail("no parameter %s", name)
	}
	stored := *p
	stored.DType = tensor.Invalid
	x, err := t.param(Join(t.paths[m], name), stored)
	if err != nil {
		panic(traceFailure{err})
	}
	return x
}
