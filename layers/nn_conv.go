package layers

import "slices"

// convClasses are the convolutions.
var convClasses = Classes{
	"torch.nn.modules.conv.Conv1d":          convolves(convForward(1)),
	"torch.nn.modules.conv.Conv2d":          convolves(convForward(2)),
	"torch.nn.modules.conv.Conv3d":          convolves(convForward(3)),
	"torch.nn.modules.conv.ConvTranspose1d": convolves(convTransposeForward(1)),
	"torch.nn.modules.conv.ConvTranspose2d": convolves(convTransposeForward(2)),
	"torch.nn.modules.conv.ConvTranspose3d": convolves(convTransposeForward(3)),
}

func convolves(forward func(t *Trace, m *Module, x Tensor) Tensor) Class {
	c := Unary(forward)
	c.Defaults = map[string]any{"padding_mode": "zeros"}
	return c
}

// convForward is _ConvNd's forward for n dimensions.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func convForward(n int) func(t *Trace, m *Module, x Tensor) Tensor {
	op := dimensional("conv", n)
	return func(t *Trace, m *Module, x Tensor) Tensor {
		w, b := t.Param(m, "weight"), t.Param(m, "bias")
		stride, dilation, groups := m.Ints("stride", n), m.Ints("dilation", n), m.Int("groups")
		if mode := m.Text("padding_mode"); mode != "" && mode != "zeros" {
			x = t.Op("pad", x, bothEnds(m, n), mode)
			return t.Op(op, x, w, b, stride, slices.Repeat([]int{0}, n), dilation, groups)
		}
		if same, ok := m.Attrs["padding"].(string); ok {
			return t.Op(op+".padding", x, w, b, stride, same, dilation, groups)
		}
		return t.Op(op, x, w, b, stride, m.Ints("padding", n), dilation, groups)
	}
}

// bothEnds returns the padding of n dimensions as F.pad takes it: the last dimension first, its front and its end.
func bothEnds(m *Module, n int) []int {
	const attr = "_reversed_padding_repeated_twice" // what Python keeps; constructors do not
	if m.Attrs[attr] != nil {
		return m.Ints(attr, 2*n)
	}
	pads := make([]int, 2*n)
	switch m.Attrs["padding"] {
	case "valid":
		return pads
	case "same":
		kernel, dilation := m.Ints("kernel_size", n), m.Ints("dilation", n)
		for i := range n {
			total := dilation[n-1-i] * (kernel[n-1-i] - 1)
			pads[2*i], pads[2*i+1] = total/2, total-total/2
		}
		return pads
	}
	for i, p := range m.Ints("padding", n) {
		at := 2 * (n - 1 - i)
		pads[at], pads[at+1] = p, p
	}
	return pads
}

// convTransposeForward is the forward of transposed convolutions of n dimensions. The size of the output cannot be
// asked for: Sequential does not pass it on.
func convTransposeForward(n int) func(t *Trace, m *Module, x Tensor) Tensor {
	op := dimensional("conv_transpose", n)
	return func(t *Trace, m *Module, x Tensor) Tensor {
		if mode := m.Text("padding_mode"); mode != "" && mode != "zeros" {
			fail("padding_mode %q of a transposed convolution", mode)
		}
		return t.Op(op, x, t.Param(m, "weight"), t.Param(m, "bias"), m.Ints("stride", n), m.Ints("padding", n),
			m.Ints("output_padding", n), m.Int("groups"), m.Ints("dilation", n))
	}
}

// Conv1d is torch.nn.Conv1d.
func Conv1d(in, out, kernel int, opts ...Option) *Module {
	return convolution("Conv1d", 1, in, out, kernel, opts)
}

// Conv2d is torch.nn.Conv2d.
//
//go:noinline
func Conv2d(in, out, kernel int, opts ...Option) *Module {
	return convolution("Conv2d", 2, in, out, kernel, opts)
}

// Conv3d is torch.nn.Conv3d.
func Conv3d(in, out, kernel int, opts ...Option) *Module {
	return convolution("Conv3d", 3, in, out, kernel, opts)
}

// ConvTranspose1d is torch.nn.ConvTranspose1d.
func ConvTranspose1d(in, out, kernel int, opts ...Option) *Module {
	return convolution("ConvTranspose1d", 1, in, out, kernel, opts)
}

// ConvTranspose2d is torch.nn.ConvTranspose2d.
func ConvTranspose2d(in, out, kernel int, opts ...Option) *Module {
	return convolution("ConvTranspose2d", 2, in, out, kernel, opts)
}

// ConvTranspose3d is torch.nn.ConvTranspose3d.
func ConvTranspose3d(in, out, kernel int, opts ...Option) *Module {
	return convolution("ConvTranspose3d", 3, in, out, kernel, opts)
}

func convolution(class string, n, in, out, kernel int, opts []Option) *Module {
	transposed := class[:5] == "ConvT"
	defaults := map[string]any{
		"in_channels": in, "out_channels": out, "kernel_size": kernel, "stride": 1, "padding": 0,
		"dilation": 1, "groups": 1,
		"padding_mode": "zeros",
	}
	if transposed {
		defaults["output_padding"] = 0
	}
	m := made("torch.nn.modules.conv."+class, defaults, opts)
	groups := m.Int("groups")
	shape := []int{out, in / groups}
	if transposed {
		shape = []int{in, out / groups}
	}
	return m.Param("weight", append(shape, m.Ints("kernel_size", n)...)...).bias(out)
}
