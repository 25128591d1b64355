package layers

// activationClasses are the elementwise functions, and the softmax family.
var activationClasses = Classes{
	"torch.nn.modules.activation.ReLU":        overwriting("relu"),
	"torch.nn.modules.activation.SiLU":        overwriting("silu"),
	"torch.nn.modules.activation.Mish":        overwriting("mish"),
	"torch.nn.modules.activation.SELU":        overwriting("selu"),
	"torch.nn.modules.activation.Hardswish":   overwriting("hardswish"),
	"torch.nn.modules.activation.Hardsigmoid": overwriting("hardsigmoid"),
	"torch.nn.modules.activation.ELU":         overwriting("elu", "alpha"),
	"torch.nn.modules.activation.CELU":        overwriting("celu", "alpha"),
	"torch.nn.modules.activation.LeakyReLU":   overwriting("leaky_relu", "negative_slope"),
	"torch.nn.modules.activation.Hardtanh":    overwriting("hardtanh", "min_val", "max_val"),
	"torch.nn.modules.activation.ReLU6":       overwriting("hardtanh", "min_val", "max_val"),
	"torch.nn.modules.activation.Threshold":   overwriting("threshold", "threshold", "value"),
	"torch.nn.modules.activation.RReLU": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op(inPlace(m, "rrelu"), x, m.Float("lower"), m.Float("upper"), false)
	}),
	"torch.nn.modules.activation.Sigmoid":    function("sigmoid"),
	"torch.nn.modules.activation.Tanh":       function("tanh"),
	"torch.nn.modules.activation.LogSigmoid": function("log_sigmoid"),
	"torch.nn.modules.activation.Softplus":   function("softplus", "beta", "threshold"),
	"torch.nn.modules.activation.Softshrink": function("softshrink", "lambd"),
	"torch.nn.modules.activation.Hardshrink": function("hardshrink", "lambd"),
	"torch.nn.modules.activation.GLU": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op("glu", x, m.Int("dim"))
	}),
	"torch.nn.modules.activation.GELU": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		approximate := m.Text("approximate")
		if approximate == "" { // modules from before the attribute
			approximate = "none"
		}
		return t.Op("gelu", x, Named{"approximate": approximate})
	}),
	"torch.nn.modules.activation.PReLU": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op("prelu", x, t.Param(m, "weight"))
	}),
	"torch.nn.modules.activation.Softsign": Unary(func(t *Trace, _ *Module, x Tensor) Tensor {
		return t.Op("div.Tensor", x, t.Op("add.Tensor", t.Op("abs", x), 1))
	}),
	"torch.nn.modules.activation.Tanhshrink": Unary(func(t *Trace, _ *Module, x Tensor) Tensor {
		return t.Op("sub.Tensor", x, t.Op("tanh", x))
	}),
	"torch.nn.modules.activation.Softmax": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op("softmax.int", x, softmaxDim(m, x))
	}),
	"torch.nn.modules.activation.LogSoftmax": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op("log_softmax.int", x, softmaxDim(m, x))
	}),
	"torch.nn.modules.activation.Softmin": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op("softmax.int", t.Op("neg", x), softmaxDim(m, x))
	}),
	"torch.nn.modules.activation.Softmax2d": Unary(func(t *Trace, _ *Module, x Tensor) Tensor {
		if rank := len(x.Shape()); rank != 3 && rank != 4 {
			fail("takes a tensor of rank 3 or 4, not %v", x.Shape())
		}
		return t.Op("softmax.int", x, -3)
	}),
}

// function is the class that calls an op with numbers that are attributes of the module.
func function(op string, attrs ...string) Class {
	return Unary(func(t *Trace, m *Module, x Tensor) Tensor { return t.Op(op, numbers(m, x, attrs)...) })
}

// overwriting is [function] for classes that may overwrite their input.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func overwriting(op string, attrs ...string) Class {
	return Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op(inPlace(m, op), numbers(m, x, attrs)...)
	})
}

func numbers(m *Module, x Tensor, attrs []string) []any {
	args := []any{x}
	for _, name := range attrs {
		args = append(args, m.Float(name))
	}
	return args
}

// softmaxDim is the module's dimension, or the one that PyTorch guesses where there is none.
func softmaxDim(m *Module, x Tensor) int {
	if m.Attrs["dim"] != nil {
		return m.Int("dim")
	}
	switch len(x.Shape()) {
	case 0, 1, 3:
		return 0
	}
	return 1
}

// inPlace returns the name of an op, that of its in-place form where the module says so.
func inPlace(m *Module, op string) string {
	if m.Bool("inplace") {
		return op + "_"
	}
	return op
}

func activation(class string, defaults map[string]any, opts []Option) *Module {
	return made("torch.nn.modules.activation."+class, defaults, opts)
}

// ReLU is torch.nn.ReLU.
//
//go:noinline
func ReLU(opts ...Option) *Module { return activation("ReLU", map[string]any{"inplace": false}, opts) }

// ReLU6 is torch.nn.ReLU6.
func ReLU6(opts ...Option) *Module {
	return activation("ReLU6", map[string]any{"min_val": 0.0, "max_val": 6.0, "inplace": false}, opts)
}

// LeakyReLU is torch.nn.LeakyReLU.
func LeakyReLU(slope float64, opts ...Option) *Module {
	return activation("LeakyReLU", map[string]any{"negative_slope": slope, "inplace": false}, opts)
}

// ELU is torch.nn.ELU.
func ELU(alpha float64, opts ...Option) *Module {
	return activation("ELU", map[string]any{"alpha": alpha, "inplace": false}, opts)
}

// PReLU is torch.nn.PReLU with n slopes.
func PReLU(n int) *Module {
	return activation("PReLU", map[string]any{"num_parameters": n}, nil).Param("weight", n)
}

// GELU is torch.nn.GELU; approximate is "none" or "tanh".
func GELU(approximate string) *Module {
	return activation("GELU", map[string]any{"approximate": approximate}, nil)
}

// SiLU is torch.nn.SiLU.
func SiLU(opts ...Option) *Module { return activation("SiLU", map[string]any{"inplace": false}, opts) }

// Mish is torch.nn.Mish.
func Mish(opts ...Option) *Module { return activation("Mish", map[string]any{"inplace": false}, opts) }

// Hardswish is torch.nn.Hardswish.
func Hardswish(opts ...Option) *Module {
	return activation("Hardswish", map[string]any{"inplace": false}, opts)
}

// Hardsigmoid is torch.nn.Hardsigmoid.
func Hardsigmoid(opts ...Option) *Module {
	return activation("Hardsigmoid", map[string]any{"inplace": false}, opts)
}

// Sigmoid is torch.nn.Sigmoid.
func Sigmoid() *Module { return activation("Sigmoid", map[string]any{}, nil) }

// Tanh is torch.nn.Tanh.
func Tanh() *Module { return activation("Tanh", map[string]any{}, nil) }

// Softmax is torch.nn.Softmax.
func Softmax(dim int) *Module { return activation("Softmax", map[string]any{"dim": dim}, nil) }

// LogSoftmax is torch.nn.LogSoftmax.
func LogSoftmax(dim int) *Module { return activation("LogSoftmax", map[string]any{"dim": dim}, nil) }
