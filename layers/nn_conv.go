package layers

import "slices"

// convClasses are the convolutions.
var convClasses = Classes{
	"torch.nn.modules.conv.Conv1d": Unary(convForward(1)),
	"torch.nn.modules.conv.Conv2d": Unary(convForward(2)),
	"torch.nn.modules.conv.Conv3d": Unary(convForward(3)),
}

// convForward is _ConvNd's forward for n dimensions.
func convForward(n int) func(t *Trace, m *Module, x Tensor) Tensor {
	op := []string{1: "conv1d", 2: "conv2d", 3: "conv3d"}[n]
	return func(t *Trace, m *Module, x Tensor) Tensor {
		w, b := t.Param(m, "weight"), t.Param(m, "bias")
		stride, dilation, groups := m.Ints("stride", n), m.Ints("dilation", n), m.Int("groups")
		if mode := m.Text("padding_mode"); mode != "" && mode != "zeros" {
			pads := m.Ints("_reversed_padding_repeated_twice", 2*n)
			x = t.Op("pad", x, pads, mode)
			return t.Op(op, x, w, b, stride, slices.Repeat([]int{0}, n), dilation, groups)
		}
		if same, ok := m.Attrs["padding"].(string); ok {
			return t.Op(op+".padding", x, w, b, stride, same, dilation, groups)
		}
		return t.Op(op, x, w, b, stride, m.Ints("padding", n), dilation, groups)
	}
}

// Conv1d is torch.nn.Conv1d.
func Conv1d(in, out, kernel int, opts ...Option) *Module {
	return convolution("Conv1d", 1, in, out, kernel, opts)
}

// Conv2d is torch.nn.Conv2d.
func Conv2d(in, out, kernel int, opts ...Option) *Module {
	return convolution("Conv2d", 2, in, out, kernel, opts)
}

// Conv3d is torch.nn.Conv3d.
func Conv3d(in, out, kernel int, opts ...Option) *Module {
	return convolution("Conv3d", 3, in, out, kernel, opts)
}

func convolution(class string, n, in, out, kernel int, opts []Option) *Module {
	m := made("torch.nn.modules.conv."+class, map[string]any{
		"in_channels": in, "out_channels": out, "kernel_size": kernel, "stride": 1, "padding": 0, "dilation": 1, "groups": 1,
		"padding_mode": "zeros",
	}, opts)
	return m.Param("weight", append([]int{out, in / m.Int("groups")}, m.Ints("kernel_size", n)...)...).bias(out)
}
