package layers

// poolClasses are the poolings.
var poolClasses = Classes{
	"torch.nn.modules.pooling.MaxPool2d": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op("max_pool2d", x, m.Ints("kernel_size", 2), m.Ints("stride", 2), m.Ints("padding", 2),
			m.Ints("dilation", 2), m.Bool("ceil_mode"))
	}),
	"torch.nn.modules.pooling.AdaptiveAvgPool2d": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op("adaptive_avg_pool2d", x, m.Ints("output_size", 2))
	}),
}

// MaxPool2d is torch.nn.MaxPool2d, whose stride is its window unless an option sets it.
func MaxPool2d(kernel int, opts ...Option) *Module {
	return made("torch.nn.modules.pooling.MaxPool2d", map[string]any{
		"kernel_size": kernel, "stride": kernel, "padding": 0, "dilation": 1, "return_indices": false, "ceil_mode": false,
	}, opts)
}

// AdaptiveAvgPool2d is torch.nn.AdaptiveAvgPool2d for a square output.
func AdaptiveAvgPool2d(size int) *Module {
	return New("torch.nn.modules.pooling.AdaptiveAvgPool2d", map[string]any{"output_size": size})
}
