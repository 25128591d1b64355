package signals

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
)

// resampleTargets are the ops that read images between their elements, move their elements or pad them.
var resampleTargets = slices.Concat(interpolateTargets, gridTargets, shuffleTargets, padTargets)

// interpolateTargets are those of torch.nn.functional.interpolate. The .vec forms, which exported programs hold, give a
// size or scale factors; the others a size and, perhaps, the factors that it was computed from.
var interpolateTargets = []call.Overload{
	call.Several("aten::upsample_nearest1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor",
		interpolate("nearest", "scales")),
	call.Several("aten::upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor",
		interpolate("nearest", "scales_h", "scales_w")),
	call.Several("aten::upsample_nearest3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, "+
		"float? scales_w=None) -> Tensor", interpolate("nearest", "scales_d", "scales_h", "scales_w")),
	call.Several("aten::_upsample_nearest_exact1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor",
		interpolate("nearest-exact", "scales")),
	call.Several("aten::_upsample_nearest_exact2d(Tensor self, SymInt[2] output_size, float? scales_h=None, "+
		"float? scales_w=None) -> Tensor", interpolate("nearest-exact", "scales_h", "scales_w")),
	call.Several("aten::_upsample_nearest_exact3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, "+
		"float? scales_w=None) -> Tensor", interpolate("nearest-exact", "scales_d", "scales_h", "scales_w")),
	call.Several("aten::upsample_linear1d(Tensor self, SymInt[1] output_size, bool align_corners, float? scales=None) -> Tensor",
		interpolate("linear", "scales")),
	call.Several("aten::upsample_bilinear2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, "+
		"float? scales_w=None) -> Tensor", interpolate("linear", "scales_h", "scales_w")),
	call.Several("aten::upsample_trilinear3d(Tensor self, SymInt[3] output_size, bool align_corners, float? scales_d=None, "+
		"float? scales_h=None, float? scales_w=None) -> Tensor", interpolate(
		"linear", "scales_d", "scales_h", "scales_w",
	)),
	call.Several("aten::upsample_bicubic2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, "+
		"float? scales_w=None) -> Tensor", interpolate("cubic", "scales_h", "scales_w")),
	call.Several("aten::_upsample_bilinear2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, "+
		"float? scales_w=None) -> Tensor", antialiased("linear", "scales_h", "scales_w")),
	call.Several("aten::_upsample_bicubic2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, "+
		"float? scales_w=None) -> Tensor", antialiased("cubic", "scales_h", "scales_w")),
	call.Several("aten::_upsample_lanczos2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, "+
		"float? scales_w=None) -> Tensor", antialiased("lanczos", "scales_h", "scales_w")),

	call.Several("aten::upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
		interpolateVec("nearest", 1, false)),
	call.Several("aten::upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
		interpolateVec("nearest", 2, false)),
	call.Several("aten::upsample_nearest3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
		interpolateVec("nearest", 3, false)),
	call.Several("aten::_upsample_nearest_exact1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
		interpolateVec("nearest-exact", 1, false)),
	call.Several("aten::_upsample_nearest_exact2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
		interpolateVec("nearest-exact", 2, false)),
	call.Several("aten::_upsample_nearest_exact3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
		interpolateVec("nearest-exact", 3, false)),
	call.Several("aten::upsample_linear1d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) "+
		"-> Tensor", interpolateVec("linear", 1, false)),
	call.Several("aten::upsample_bilinear2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) "+
		"-> Tensor", interpolateVec("linear", 2, false)),
	call.Several("aten::upsample_trilinear3d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) "+
		"-> Tensor", interpolateVec("linear", 3, false)),
	call.Several("aten::upsample_bicubic2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) "+
		"-> Tensor", interpolateVec("cubic", 2, false)),
	call.Several("aten::_upsample_bilinear2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, "+
		"float[]? scale_factors) -> Tensor", interpolateVec("linear", 2, true)),
	call.Several("aten::_upsample_bicubic2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, "+
		"float[]? scale_factors) -> Tensor", interpolateVec("cubic", 2, true)),
	call.Several("aten::_upsample_lanczos2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, "+
		"float[]? scale_factors) -> Tensor", interpolateVec("lanczos", 2, true)),
}

// gridTargets sample at given points.
var gridTargets = []call.Overload{
	call.Several("aten::grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> "+
		"Tensor", gridSample),
	call.Several("aten::grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) "+
		"-> Tensor", gridSample),
	call.Several("aten::grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) "+
		"-> Tensor", gridSample),
	call.Several("aten::affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor",
		func(c *call.Call) error {
			return c.Give("affine_grid", graph.Attrs{"size": c.Ints("size"), "align_corners": c.Bool("align_corners")},
				c.Read(c.Tensor("theta")))
		}),
}

// interpolate builds the overloads with a size and one optional factor for each dimension.
func interpolate(mode string, scales ...string) func(*call.Call) error {
	return func(c *call.Call) error { return giveInterpolation(c, mode, scales, false) }
}

func antialiased(mode string, scales ...string) func(*call.Call) error {
	return func(c *call.Call) error { return giveInterpolation(c, mode, scales, true) }
}

func giveInterpolation(c *call.Call, mode string, scales []string, antialias bool) error {
	attrs := graph.Attrs{"mode": mode, "size": c.IntsOf("output_size", len(scales)), "antialias": antialias}
	for d, name := range scales {
		attrs[scaleAttr(d)] = c.OptFloat(name, 0)
	}
	return giveResized(c, attrs, c.Tensor("self"))
}

// giveResized emits an interpolation; "align_corners" is the call's, false where it has none. Nearest elements of small
// images are found as PyTorch's kernel for images with channels last does it, which small ones are given to: where a
// size stays or doubles, a factor counts for nothing (nearest_idx of UpSample.h).
func giveResized(c *call.Call, attrs graph.Attrs, x *cells.Ref) error {
	attrs["align_corners"] = c.Bool("align_corners")
	size, mode := attrs.Ints("size"), attrs.String("mode")
	if c.Err == nil && x.Rank() == len(size)+2 && (mode == "nearest" || mode == "nearest-exact") &&
		asSmall(c, x, size) {
		attrs["small"] = true
		for d, n := range x.Shape()[2:] {
			if mode == "nearest" && (size[d] == n || size[d] == 2*n) {
				attrs[scaleAttr(d)] = 0.0
			}
		}
	}
	return c.Give("interpolate", attrs, c.Read(x))
}

// asSmall is _use_vectorized_kernel_cond_2d and 3d of UpSampleKernel.cpp.
func asSmall(c *call.Call, x *cells.Ref, size []int) bool {
	const most = 128
	if len(size) == 2 && size[0] <= most && size[1] <= most-size[0] {
		return true
	}
	l := x.Layout()
	if strides, ok := c.RecordedStrides(x); ok {
		l.Strides = strides
	}
	return len(size) > 1 && x.Shape()[1] > 3 && call.ChannelsLast(l)
}

func scaleAttr(d int) string { return fmt.Sprintf("scale%d", d) }

// interpolateVec builds the overloads with a list of sizes or of factors.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func interpolateVec(mode string, rank int, antialias bool) func(*call.Call) error {
	return func(c *call.Call) error {
		x := c.Tensor("input")
		if c.Err != nil {
			return c.Err
		}
		if x.Rank() != rank+2 {
			return fmt.Errorf("input %v for %d dimensions", x.Shape(), rank)
		}
		attrs := graph.Attrs{"mode": mode, "antialias": antialias}
		factors := c.Floats("scale_factors")
		switch {
		case c.Has("output_size") == (factors != nil):
			return fmt.Errorf("a size and factors, or neither")
		case factors == nil:
			attrs["size"] = c.IntsOf("output_size", rank)
		case len(factors) != rank:
			return fmt.Errorf("factors %v for %d dimensions", factors, rank)
		default:
			size := make([]int, rank)
			for d, f := range factors {
				size[d] = int(cells.Truncate(float64(x.Shape()[2+d]) * f))
				attrs[scaleAttr(d)] = f
			}
			attrs["size"] = size
		}
		return giveResized(c, attrs, x)
	}
}

func gridSample(c *call.Call) error {
	modes, paddings := []string{"linear", "nearest", "cubic"}, []string{"zeros", "border", "reflection"}
	mode, padding := c.Int("interpolation_mode"), c.Int("padding_mode")
	if mode < 0 || mode >= len(modes) || padding < 0 || padding >= len(paddings) {
		return fmt.Errorf("interpolation mode %d, padding mode %d", mode, padding)
	}
	return c.Give("grid_sample", graph.Attrs{
		"mode": modes[mode], "padding_mode": paddings[padding], "align_corners": c.Bool("align_corners"),
	}, c.Read(c.Tensor("input")), c.Read(c.Tensor("grid")))
}

// shuffleTargets move elements between channels and places.
var shuffleTargets = []call.Overload{
	call.Several("aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor", func(c *call.Call) error {
		x, r := c.Tensor("self"), c.Int("upscale_factor")
		n := x.Rank() - 3
		if n < 0 || r < 1 || r > maxShuffle || x.Shape()[n]%(r*r) != 0 {
			return fmt.Errorf("factor %d of %v", r, x.Shape())
		}
		s := x.Shape()
		return rearrange(c, x, n, []int{s[n] / (r * r), r, r, s[n+1], s[n+2]}, []int{0, 3, 1, 4, 2},
			[]int{s[n] / (r * r), s[n+1] * r, s[n+2] * r})
	}),
	call.Several("aten::pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor", func(c *call.Call) error {
		x, r := c.Tensor("self"), c.Int("downscale_factor")
		n := x.Rank() - 3
		if n < 0 || r < 1 || r > maxShuffle || x.Shape()[n+1]%r != 0 || x.Shape()[n+2]%r != 0 {
			return fmt.Errorf("factor %d of %v", r, x.Shape())
		}
		s := x.Shape()
		return rearrange(c, x, n, []int{s[n], s[n+1] / r, r, s[n+2] / r, r}, []int{0, 2, 4, 1, 3},
			[]int{s[n] * r * r, s[n+1] / r, s[n+2] / r})
	}),
	call.Several("aten::channel_shuffle(Tensor self, SymInt groups) -> Tensor", channelShuffle),
	call.Several("aten::native_channel_shuffle(Tensor self, SymInt groups) -> Tensor", channelShuffle),
	call.Several("aten::im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
		func(c *call.Call) error { return giveImages(c, 2, "im2col", imageWindows(c), c.Tensor("self")) }),
	call.Several("aten::col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, "+
		"int[2] stride) -> Tensor", func(c *call.Call) error {
		attrs := imageWindows(c)
		attrs["size"] = c.IntsOf("output_size", 2)
		return giveImages(c, 1, "col2im", attrs, c.Tensor("self"))
	}),
}

func imageWindows(c *call.Call) graph.Attrs {
	return graph.Attrs{
		"kernel": c.IntsOf("kernel_size", 2), "dilation": c.IntsOf("dilation", 2), "padding": c.IntsOf("padding", 2),
		"stride": c.IntsOf("stride", 2),
	}
}

// maxShuffle bounds the factors of pixel shuffles, so that their squares do not overflow.
const maxShuffle = 1 << 16

// rearrange splits the dimensions of x from n on into the sizes split, puts those in another order and joins them to
// the sizes joined, in memory of their own.
func rearrange(c *call.Call, x *cells.Ref, n int, split, order, joined []int) error {
	if c.Err != nil {
		return c.Err
	}
	lead := x.Shape()[:n]
	parts, err := c.Reshape(x, slices.Concat(lead, split))
	if err != nil {
		return err
	}
	all := make([]int, n, n+len(order))
	for i := range all {
		all[i] = i
	}
	for _, d := range order {
		all = append(all, n+d)
	}
	moved, err := c.Copy(c.Permute(parts, all...))
	if err != nil {
		return err
	}
	return c.GiveRef(c.Reshape(moved, slices.Concat(lead, joined)))
}

func channelShuffle(c *call.Call) error {
	x, groups := c.Tensor("self"), c.Int("groups")
	s := x.Shape()
	if len(s) < 3 || groups < 1 || s[1]%groups != 0 {
		return fmt.Errorf("%d groups of %v", groups, s)
	}
	rest := s[2:]
	order := []int{1, 0}
	for d := range rest {
		order = append(order, 2+d)
	}
	return rearrange(c, x, 1, slices.Concat([]int{groups, s[1] / groups}, rest), order, s[1:])
}

// padTargets make tensors larger. Lists of amounts begin with the last dimension.
var padTargets = []call.Overload{
	call.Several("aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor",
		func(c *call.Call) error {
			return givePad(c, c.Ints("pad"), "constant", c.Number("value"))
		}),
	call.Several("aten::pad(Tensor self, SymInt[] pad, str mode=\"constant\", float? value=None) -> Tensor",
		func(c *call.Call) error {
			return givePadLike(c, c.Text("mode"))
		}),
	call.Several("aten::_pad_enum(Tensor self, SymInt[] pad, int mode, float? value=None) -> Tensor",
		func(c *call.Call) error {
			modes, mode := []string{"reflect", "replicate", "circular", "constant"}, c.Int("mode")
			if mode < 0 || mode >= len(modes) {
				return fmt.Errorf("padding mode %d", mode)
			}
			return givePadLike(c, modes[mode])
		}),
	call.Several("aten::_pad_circular(Tensor self, SymInt[] pad) -> Tensor", func(c *call.Call) error {
		return givePad(c, c.Ints("pad"), "circular", nil)
	}),
	call.Several("aten::reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor", imagePad(1, "reflect")),
	call.Several("aten::reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor", imagePad(2, "reflect")),
	call.Several("aten::reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor", imagePad(3, "reflect")),
	call.Several("aten::replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor", imagePad(1, "replicate")),
	call.Several("aten::replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor", imagePad(2, "replicate")),
	call.Several("aten::replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor", imagePad(3, "replicate")),
}

func givePadLike(c *call.Call, mode string) error {
	if mode != "constant" {
		if c.Has("value") && c.Float("value") != 0 {
			return fmt.Errorf("padding mode %s with a value", mode)
		}
		return givePad(c, c.Ints("pad"), mode, nil)
	}
	value := cells.Number(0)
	if c.Has("value") {
		value = c.Number("value")
	}
	return givePad(c, c.Ints("pad"), mode, value)
}

func imagePad(rank int, mode string) func(*call.Call) error {
	return func(c *call.Call) error { return givePad(c, c.IntsOf("padding", 2*rank), mode, nil) }
}

// givePad emits a padding, or a copy where it pads by none of a constant. Circular padding of a tensor that is cut
// elsewhere wraps around what is left.
func givePad(c *call.Call, amounts []int, mode string, value cells.Number) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	rank := x.Rank()
	if len(amounts)%2 != 0 || len(amounts) > 2*rank {
		return fmt.Errorf("%d amounts to pad %v", len(amounts), x.Shape())
	}
	if mode == "constant" && !slices.ContainsFunc(amounts, func(n int) bool { return n != 0 }) {
		return c.GiveRef(c.Copy(x))
	}
	before, after := make([]int, rank), make([]int, rank)
	for i := range len(amounts) / 2 {
		d := rank - 1 - i
		before[d], after[d] = amounts[2*i], amounts[2*i+1]
		if cut := max(-before[d], 0) + max(-after[d], 0); mode == "circular" && cut > 0 {
			if cut > x.Shape()[d] || cut < 0 {
				return fmt.Errorf("%v cut by %v", x.Shape(), amounts)
			}
			x = c.Slice(x, d, max(-before[d], 0), x.Shape()[d]-max(-after[d], 0), 1)
			before[d], after[d] = max(before[d], 0), max(after[d], 0)
		}
	}
	var filler *cells.Ref
	if mode == "constant" {
		var err error
		if filler, err = c.Scalar(value, x.DType()); err != nil {
			return err
		}
	}
	return c.Give("pad", graph.Attrs{"before": before, "after": after, "mode": mode}, c.Read(x), c.Read(filler))
}
