package layers

import "github.com/optimem/optimem/tensor"

// poolClasses are the poolings.
var poolClasses = Classes{
	"torch.nn.modules.pooling.MaxPool1d":         maxPool(1),
	"torch.nn.modules.pooling.MaxPool2d":         maxPool(2),
	"torch.nn.modules.pooling.MaxPool3d":         maxPool(3),
	"torch.nn.modules.pooling.MaxUnpool1d":       maxUnpool(1),
	"torch.nn.modules.pooling.MaxUnpool2d":       maxUnpool(2),
	"torch.nn.modules.pooling.MaxUnpool3d":       maxUnpool(3),
	"torch.nn.modules.pooling.AvgPool1d":         avgPool(1),
	"torch.nn.modules.pooling.AvgPool2d":         avgPool(2),
	"torch.nn.modules.pooling.AvgPool3d":         avgPool(3),
	"torch.nn.modules.pooling.LPPool1d":          powerPool(1),
	"torch.nn.modules.pooling.LPPool2d":          powerPool(2),
	"torch.nn.modules.pooling.LPPool3d":          powerPool(3),
	"torch.nn.modules.pooling.AdaptiveAvgPool1d": adaptiveAvgPool(1),
	"torch.nn.modules.pooling.AdaptiveAvgPool2d": adaptiveAvgPool(2),
	"torch.nn.modules.pooling.AdaptiveAvgPool3d": adaptiveAvgPool(3),
	"torch.nn.modules.pooling.AdaptiveMaxPool1d": adaptiveMaxPool(1),
	"torch.nn.modules.pooling.AdaptiveMaxPool2d": adaptiveMaxPool(2),
	"torch.nn.modules.pooling.AdaptiveMaxPool3d": adaptiveMaxPool(3),
}

// dimensional returns the name of an op for n spatial dimensions.
func dimensional(op string, n int) string { return op + string(rune('0'+n)) + "d" }

// stride is the module's, its window where it has none.
func stride(m *Module, n int) []int {
	if m.Attrs["stride"] == nil {
		return m.Ints("kernel_size", n)
	}
	return m.Ints("stride", n)
}

func maxPool(n int) Class {
	c := oneTensor(func(t *Trace, m *Module, x Tensor) any {
		args := []any{
			x, m.Ints("kernel_size", n), stride(m, n), m.Ints("padding", n), m.Ints("dilation", n), m.Bool("ceil_mode"),
		}
		if m.Bool("return_indices") {
			return t.Ops(dimensional("max_pool", n)+"_with_indices", args...)
		}
		return t.Op(dimensional("max_pool", n), args...)
	})
	c.Defaults = map[string]any{"dilation": 1}
	return c
}

// maxUnpool puts the elements that a max pooling kept back where they were.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func maxUnpool(n int) Class {
	inputs := []Port{{Name: "input"}, {Name: "indices", DType: tensor.Int64}}
	return Class{Inputs: inputs, Forward: func(t *Trace, m *Module, args ...any) any {
		x, indices := two(m, args)
		shape := x.Shape()
		if len(shape) != n+1 && len(shape) != n+2 {
			fail("takes tensors of rank %d or %d, not %v", n+1, n+2, shape)
		}
		kernel, step, padding := m.Ints("kernel_size", n), stride(m, n), m.Ints("padding", n)
		var size []int
		for i, d := range shape[len(shape)-n:] {
			size = append(size, (d-1)*step[i]+kernel[i]-2*padding[i])
		}
		switch n {
		case 1:
			x, indices = t.Op("unsqueeze", x, -1), t.Op("unsqueeze", indices, -1)
			return t.Op("squeeze.dim", t.Op("max_unpool2d", x, indices, append(size, 1)), -1)
		case 2:
			return t.Op("max_unpool2d", x, indices, size)
		}
		return t.Op("max_unpool3d", x, indices, size, step, padding)
	}}
}

func avgPool(n int) Class {
	c := Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		args := []any{
			x, m.Ints("kernel_size", n), stride(m, n), m.Ints("padding", n), m.Bool("ceil_mode"),
			m.Bool("count_include_pad"),
		}
		if m.Attrs["divisor_override"] != nil && n > 1 {
			args = append(args, m.Int("divisor_override"))
		}
		return t.Op(dimensional("avg_pool", n), args...)
	})
	c.Defaults = map[string]any{"padding": 0, "count_include_pad": true}
	return c
}

// powerPool is the root of a sum of powers.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func powerPool(n int) Class {
	return Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		power, kernel := m.Float("norm_type"), m.Ints("kernel_size", n)
		elements := 1
		for _, k := range kernel {
			elements *= k
		}
		x = t.Op("avg_pool"+string(rune('0'+n))+"d", t.Op("pow.Tensor_Scalar", x, power), kernel, stride(m, n),
			0, m.Bool("ceil_mode"))
		x = t.Op("mul.Tensor", t.Op("sign", x), t.Op("relu", t.Op("abs", x)))
		return t.Op("pow.Tensor_Scalar", t.Op("mul.Tensor", x, elements), 1/power)
	})
}

func adaptiveAvgPool(n int) Class {
	return Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op(dimensional("adaptive_avg_pool", n), x, outputSize(m, x, n))
	})
}

func adaptiveMaxPool(n int) Class {
	return oneTensor(func(t *Trace, m *Module, x Tensor) any {
		results := t.Ops(dimensional("adaptive_max_pool", n), x, outputSize(m, x, n))
		if m.Bool("return_indices") {
			return results
		}
		return results[0]
	})
}

// outputSize is the attribute of that name, in which None stands for the input's size.
func outputSize(m *Module, x Tensor, n int) []int {
	shape := x.Shape()
	if len(shape) != n+1 && len(shape) != n+2 {
		fail("takes a tensor of rank %d or %d, not %v", n+1, n+2, shape)
	}
	spatial := shape[len(shape)-n:]
	size := m.Attrs["output_size"]
	if size == nil {
		return spatial
	}
	list, ok := size.([]any)
	if !ok || len(list) != n {
		return m.Ints("output_size", n)
	}
	out := make([]int, n)
	for i, v := range list {
		switch v := v.(type) {
		case nil:
			out[i] = spatial[i]
		case int:
			out[i] = v
		default:
			m.lacks("output_size", "integers")
		}
	}
	return out
}

// MaxPool1d is torch.nn.MaxPool1d; MaxPool1d, [MaxPool2d] and [MaxPool3d] step by their window unless an option says
// otherwise.
func MaxPool1d(kernel int, opts ...Option) *Module { return newMaxPool("MaxPool1d", kernel, opts) }

// MaxPool2d is torch.nn.MaxPool2d.
func MaxPool2d(kernel int, opts ...Option) *Module { return newMaxPool("MaxPool2d", kernel, opts) }

// MaxPool3d is torch.nn.MaxPool3d.
func MaxPool3d(kernel int, opts ...Option) *Module { return newMaxPool("MaxPool3d", kernel, opts) }

func newMaxPool(class string, kernel int, opts []Option) *Module {
	return pooling(class, map[string]any{
		"kernel_size": kernel, "padding": 0, "dilation": 1, "return_indices": false, "ceil_mode": false,
	}, opts)
}

// pooling makes a module whose stride is its window unless an option sets it.
func pooling(class string, defaults map[string]any, opts []Option) *Module {
	m := made("torch.nn.modules.pooling."+class, defaults, opts)
	if m.Attrs["stride"] == nil {
		m.Attrs["stride"] = m.Attrs["kernel_size"]
	}
	return m
}

// AvgPool1d is torch.nn.AvgPool1d; AvgPool1d, [AvgPool2d] and [AvgPool3d] step by their window unless an option says
// otherwise.
func AvgPool1d(kernel int, opts ...Option) *Module { return newAvgPool("AvgPool1d", kernel, opts) }

// AvgPool2d is torch.nn.AvgPool2d.
func AvgPool2d(kernel int, opts ...Option) *Module { return newAvgPool("AvgPool2d", kernel, opts) }

// AvgPool3d is torch.nn.AvgPool3d.
func AvgPool3d(kernel int, opts ...Option) *Module { return newAvgPool("AvgPool3d", kernel, opts) }

func newAvgPool(class string, kernel int, opts []Option) *Module {
	return pooling(class, map[string]any{
		"kernel_size": kernel, "padding": 0, "ceil_mode": false, "count_include_pad": true,
	}, opts)
}

// AdaptiveAvgPool1d is torch.nn.AdaptiveAvgPool1d.
func AdaptiveAvgPool1d(size int) *Module { return adaptive("AdaptiveAvgPool1d", []int{size}) }

// AdaptiveAvgPool2d is torch.nn.AdaptiveAvgPool2d; one number stands for both dimensions.
func AdaptiveAvgPool2d(size ...int) *Module { return adaptive("AdaptiveAvgPool2d", size) }

// AdaptiveAvgPool3d is torch.nn.AdaptiveAvgPool3d; one number stands for all dimensions.
func AdaptiveAvgPool3d(size ...int) *Module { return adaptive("AdaptiveAvgPool3d", size) }

// AdaptiveMaxPool2d is torch.nn.AdaptiveMaxPool2d; one number stands for both dimensions.
func AdaptiveMaxPool2d(size ...int) *Module { return adaptive("AdaptiveMaxPool2d", size) }

func adaptive(class string, size []int) *Module {
	return made("torch.nn.modules.pooling."+class, map[string]any{}, []Option{sizeOption("output_size", size)})
}
