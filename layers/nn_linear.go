package layers

// linearClasses are the fully connected ones.
var linearClasses = Classes{
	"torch.nn.modules.linear.Linear":                          Unary(linearForward),
	"torch.nn.modules.linear.NonDynamicallyQuantizableLinear": Unary(linearForward),
	"torch.nn.modules.linear._LinearWithBias":                 Unary(linearForward), // what attention had in 2020
	"torch.nn.modules.linear.Bilinear": {Forward: func(t *Trace, m *Module, args ...any) any {
		if len(args) != 2 {
			fail("takes two tensors, not %d arguments", len(args))
		}
		return t.Op("bilinear", args[0], args[1], t.Param(m, "weight"), t.Param(m, "bias"))
	}, Inputs: []Port{{Name: "input1"}, {Name: "input2"}}},
}

func linearForward(t *Trace, m *Module, x Tensor) Tensor {
	return t.Op("linear", x, t.Param(m, "weight"), t.Param(m, "bias"))
}

// Linear is torch.nn.Linear.
func Linear(in, out int, opts ...Option) *Module {
	m := made("torch.nn.modules.linear.Linear", map[string]any{"in_features": in, "out_features": out}, opts)
	return m.Param("weight", out, in).bias(out)
}

// Bilinear is torch.nn.Bilinear.
func Bilinear(in1, in2, out int, opts ...Option) *Module {
	m := made("torch.nn.modules.linear.Bilinear", map[string]any{
		"in1_features": in1, "in2_features": in2, "out_features": out,
	}, opts)
	return m.Param("weight", out, in1, in2).bias(out)
}

// bias appends the parameter "bias", None where an option said so.
func (m *Module) bias(shape ...int) *Module {
	m.Param("bias", shape...)
	m.Params[len(m.Params)-1].None = m.Attrs["bias"] == false
	delete(m.Attrs, "bias")
	return m
}
