package layers

import "math"

// upsampleClasses resample.
var upsampleClasses = func() Classes {
	c := Unary(upsampleForward)
	c.Defaults = map[string]any{"recompute_scale_factor": true} // what the function did before it had the flag
	return Classes{
		"torch.nn.modules.upsampling.Upsample":             c,
		"torch.nn.modules.upsampling.UpsamplingNearest2d":  c,
		"torch.nn.modules.upsampling.UpsamplingBilinear2d": c,
	}
}()

// upsampleOps are the ops of a mode, by the number of spatial dimensions; further says that they take align_corners.
var upsampleOps = map[string]struct {
	ops     map[int]string
	corners bool
}{
	"nearest": {map[int]string{1: "upsample_nearest1d", 2: "upsample_nearest2d", 3: "upsample_nearest3d"}, false},
	"nearest-exact": {map[int]string{
		1: "_upsample_nearest_exact1d", 2: "_upsample_nearest_exact2d", 3: "_upsample_nearest_exact3d",
	}, false},
	"linear":    {map[int]string{1: "upsample_linear1d"}, true},
	"bilinear":  {map[int]string{2: "upsample_bilinear2d"}, true},
	"trilinear": {map[int]string{3: "upsample_trilinear3d"}, true},
	"bicubic":   {map[int]string{2: "upsample_bicubic2d"}, true},
}

// upsampleForward is torch.nn.functional.interpolate with the module's attributes.
func upsampleForward(t *Trace, m *Module, x Tensor) Tensor {
	shape := x.Shape()
	n := len(shape) - 2
	if n < 1 || n > 3 {
		fail("takes a tensor of rank 3 to 5, not %v", shape)
	}
	mode := m.Text("mode")
	var size, scales any
	switch {
	case m.Attrs["size"] != nil:
		size = m.Ints("size", n)
	case m.Attrs["scale_factor"] != nil:
		factors := m.Floats("scale_factor", n)
		if !m.Bool("recompute_scale_factor") && mode != "area" {
			scales = factors
			break
		}
		sizes := make([]int, n)
		for i, f := range factors {
			product := float64(shape[i+2]) * f
			if !(math.Abs(product) < 1<<40) {
				fail("scale_factor %v of %v", f, shape)
			}
			sizes[i] = int(product)
		}
		size = sizes
	default:
		fail("neither size nor scale_factor is set")
	}
	if mode == "area" {
		return t.Op(dimensional("adaptive_avg_pool", n), x, size)
	}
	op, ok := upsampleOps[mode].ops[n]
	if !ok {
		fail("mode %q of a tensor %v", mode, shape)
	}
	if upsampleOps[mode].corners {
		return t.Op(op+".vec", x, size, m.Bool("align_corners"), scales)
	}
	return t.Op(op+".vec", x, size, scales)
}

// Upsample is torch.nn.Upsample by a factor; other attributes, "size" among them, are options.
func Upsample(scale float64, mode string, opts ...Option) *Module {
	return made("torch.nn.modules.upsampling.Upsample", map[string]any{
		"size": nil, "scale_factor": scale, "mode": mode, "align_corners": nil, "recompute_scale_factor": nil,
	}, opts)
}
