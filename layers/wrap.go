package layers

import "github.com/optimem/optimem/tensor"

// A Wrapper runs the module at a path in the place of its class's forward, which it may call: as often as it likes, and
// with other parameters ([Trace.Replaced]). It is how adapters change a model whose modules know nothing of them.
type Wrapper func(t *Trace, path string, m *Module, args []any, forward func() any) any

// Replaced runs something with other tensors in the place of parameters: their names in the checkpoint by the parameters'
// paths. Those that names does not have stay what they are.
func (t *Trace) Replaced(names map[string]string, run func() any) any {
	outer := t.replaced
	t.replaced = names
	result := run()
	t.replaced = outer
	return result
}

// Weight returns a tensor of the checkpoint that is no parameter of a module, by its name there, as float32.
func (t *Trace) Weight(name string) Tensor {
	x, err := t.recorder.Weight(name, tensor.Float32)
	if err != nil {
		panic(traceFailure{err})
	}
	return x
}
