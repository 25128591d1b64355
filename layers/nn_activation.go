package layers

// activationClasses are the elementwise functions.
var activationClasses = Classes{
	"torch.nn.modules.activation.ReLU": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op(inPlace(m, "relu"), x)
	}),
}

// inPlace returns the name of an op, that of its in-place form where the module says so.
func inPlace(m *Module, op string) string {
	if m.Bool("inplace") {
		return op + "_"
	}
	return op
}

// ReLU is torch.nn.ReLU.
func ReLU(opts ...Option) *Module {
	return made("torch.nn.modules.activation.ReLU", map[string]any{"inplace": false}, opts)
}
