package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
)

// resampleTargets are the ops that read images between their elements, move their elements or pad them.
var resampleTargets = slices.Concat(interpolateTargets, gridTargets, shuffleTargets, padTargets)

// interpolateTargets are those of torch.nn.functional.interpolate. The .vec forms, which exported programs hold, give a
// size or scale factors; the others a size and, perhaps, the factors that it was computed from.
var interpolateTargets = []atenOp{
	{"aten::upsample_nearest1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor",
		interpolate("nearest", "scales")},
	{"aten::upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor",
		interpolate("nearest", "scales_h", "scales_w")},
	{"aten::upsample_nearest3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, " +
		"float? scales_w=None) -> Tensor", interpolate("nearest", "scales_d", "scales_h", "scales_w")},
	{"aten::_upsample_nearest_exact1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor",
		interpolate("nearest-exact", "scales")},
	{"aten::_upsample_nearest_exact2d(Tensor self, SymInt[2] output_size, float? scales_h=None, " +
		"float? scales_w=None) -> Tensor", interpolate("nearest-exact", "scales_h", "scales_w")},
	{"aten::_upsample_nearest_exact3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, " +
		"float? scales_w=None) -> Tensor", interpolate("nearest-exact", "scales_d", "scales_h", "scales_w")},
	{"aten::upsample_linear1d(Tensor self, SymInt[1] output_size, bool align_corners, float? scales=None) -> Tensor",
		interpolate("linear", "scales")},
	{"aten::upsample_bilinear2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, " +
		"float? scales_w=None) -> Tensor", interpolate("linear", "scales_h", "scales_w")},
	{"aten::upsample_trilinear3d(Tensor self, SymInt[3] output_size, bool align_corners, float? scales_d=None, " +
		"float? scales_h=None, float? scales_w=None) -> Tensor", interpolate(
		"linear", "scales_d", "scales_h", "scales_w",
	)},
	{"aten::upsample_bicubic2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, " +
		"float? scales_w=None) -> Tensor", interpolate("cubic", "scales_h", "scales_w")},
	{"aten::_upsample_bilinear2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, " +
		"float? scales_w=None) -> Tensor", antialiased("linear", "scales_h", "scales_w")},
	{"aten::_upsample_bicubic2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, " +
		"float? scales_w=None) -> Tensor", antialiased("cubic", "scales_h", "scales_w")},
	{"aten::_upsample_lanczos2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, " +
		"float? scales_w=None) -> Tensor", antialiased("lanczos", "scales_h", "scales_w")},

	{"aten::upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
		interpolateVec("nearest", 1, false)},
	{"aten::upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
		interpolateVec("nearest", 2, false)},
	{"aten::upsample_nearest3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
		interpolateVec("nearest", 3, false)},
	{"aten::_upsample_nearest_exact1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
		interpolateVec("nearest-exact", 1, false)},
	{"aten::_upsample_nearest_exact2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
		interpolateVec("nearest-exact", 2, false)},
	{"aten::_upsample_nearest_exact3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
		interpolateVec("nearest-exact", 3, false)},
	{"aten::upsample_linear1d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) " +
		"-> Tensor", interpolateVec("linear", 1, false)},
	{"aten::upsample_bilinear2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) " +
		"-> Tensor", interpolateVec("linear", 2, false)},
	{"aten::upsample_trilinear3d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) " +
		"-> Tensor", interpolateVec("linear", 3, false)},
	{"aten::upsample_bicubic2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) " +
		"-> Tensor", interpolateVec("cubic", 2, false)},
	{"aten::_upsample_bilinear2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, " +
		"float[]? scale_factors) -> Tensor", interpolateVec("linear", 2, true)},
	{"aten::_upsample_bicubic2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, " +
		"float[]? scale_factors) -> Tensor", interpolateVec("cubic", 2, true)},
	{"aten::_upsample_lanczos2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, " +
		"float[]? scale_factors) -> Tensor", interpolateVec("lanczos", 2, true)},
}

// gridTargets sample at given points.
var gridTargets = []atenOp{
	{"aten::grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> " +
		"Tensor", gridSample},
	{"aten::grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) " +
		"-> Tensor", gridSample},
	{"aten::grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) " +
		"-> Tensor", gridSample},
	{"aten::affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor", func(c *call) error {
		return c.give("affine_grid", graph.Attrs{"size": c.ints("size"), "align_corners": c.bool("align_corners")},
			c.Read(c.tensor("theta")))
	}},
}

// interpolate builds the overloads with a size and one optional factor for each dimension.
func interpolate(mode string, scales ...string) func(*call) error {
	return func(c *call) error { return c.giveInterpolation(mode, scales, false) }
}

func antialiased(mode string, scales ...string) func(*call) error {
	return func(c *call) error { return c.giveInterpolation(mode, scales, true) }
}

func (c *call) giveInterpolation(mode string, scales []string, antialias bool) error {
	attrs := graph.Attrs{"mode": mode, "size": c.intsOf("output_size", len(scales)), "antialias": antialias}
	for d, name := range scales {
		attrs[scaleAttr(d)] = c.optFloat(name, 0)
	}
	return c.giveResized(attrs, c.tensor("self"))
}

// giveResized emits an interpolation; "align_corners" is the call's, false where it has none. Nearest elements of small
// images are found as PyTorch's kernel for images with channels last does it, which small ones are given to: where a size
// stays or doubles, a factor counts for nothing (nearest_idx of UpSample.h).
func (c *call) giveResized(attrs graph.Attrs, x *Ref) error {
	attrs["align_corners"] = c.bool("align_corners")
	size, mode := attrs.Ints("size"), attrs.String("mode")
	if c.err == nil && x.rank() == len(size)+2 && (mode == "nearest" || mode == "nearest-exact") && c.asSmall(x, size) {
		attrs["small"] = true
		for d, n := range x.shape()[2:] {
			if mode == "nearest" && (size[d] == n || size[d] == 2*n) {
				attrs[scaleAttr(d)] = 0.0
			}
		}
	}
	return c.give("interpolate", attrs, c.Read(x))
}

// asSmall is _use_vectorized_kernel_cond_2d and 3d of UpSampleKernel.cpp.
func (c *call) asSmall(x *Ref, size []int) bool {
	const most = 128
	if len(size) == 2 && size[0] <= most && size[1] <= most-size[0] {
		return true
	}
	l := x.layout
	if strides, ok := c.recordedStrides(x); ok {
		l.Strides = strides
	}
	return len(size) > 1 && x.shape()[1] > 3 && channelsLast(l)
}

func scaleAttr(d int) string { return fmt.Sprintf("scale%d", d) }

// interpolateVec builds the overloads with a list of sizes or of factors.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func interpolateVec(mode string, rank int, antialias bool) func(*call) error {
	return func(c *call) error {
		x := c.tensor("input")
		if c.err != nil {
			return c.err
		}
		if x.rank() != rank+2 {
			return fmt.Errorf("input %v for %d dimensions", x.shape(), rank)
		}
		attrs := graph.Attrs{"mode": mode, "antialias": antialias}
		factors := c.floats("scale_factors")
		switch {
		case c.has("output_size") == (factors != nil):
			return fmt.Errorf("a size and factors, or neither")
		case factors == nil:
			attrs["size"] = c.intsOf("output_size", rank)
		case len(factors) != rank:
			return fmt.Errorf("factors %v for %d dimensions", factors, rank)
		default:
			size := make([]int, rank)
			for d, f := range factors {
				size[d] = int(truncate(float64(x.shape()[2+d]) * f))
				attrs[scaleAttr(d)] = f
			}
			attrs["size"] = size
		}
		return c.giveResized(attrs, x)
	}
}

func gridSample(c *call) error {
	modes, paddings := []string{"linear", "nearest", "cubic"}, []string{"zeros", "border", "reflection"}
	mode, padding := c.int("interpolation_mode"), c.int("padding_mode")
	if mode < 0 || mode >= len(modes) || padding < 0 || padding >= len(paddings) {
		return fmt.Errorf("interpolation mode %d, padding mode %d", mode, padding)
	}
	return c.give("grid_sample", graph.Attrs{
		"mode": modes[mode], "padding_mode": paddings[padding], "align_corners": c.bool("align_corners"),
	}, c.Read(c.tensor("input")), c.Read(c.tensor("grid")))
}

// shuffleTargets move elements between channels and places.
var shuffleTargets = []atenOp{
	{"aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor", func(c *call) error {
		x, r := c.tensor("self"), c.int("upscale_factor")
		n := x.rank() - 3
		if n < 0 || r < 1 || r > maxShuffle || x.shape()[n]%(r*r) != 0 {
			return fmt.Errorf("factor %d of %v", r, x.shape())
		}
		s := x.shape()
		return c.rearrange(x, n, []int{s[n] / (r * r), r, r, s[n+1], s[n+2]}, []int{0, 3, 1, 4, 2},
			[]int{s[n] / (r * r), s[n+1] * r, s[n+2] * r})
	}},
	{"aten::pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor", func(c *call) error {
		x, r := c.tensor("self"), c.int("downscale_factor")
		n := x.rank() - 3
		if n < 0 || r < 1 || r > maxShuffle || x.shape()[n+1]%r != 0 || x.shape()[n+2]%r != 0 {
			return fmt.Errorf("factor %d of %v", r, x.shape())
		}
		s := x.shape()
		return c.rearrange(x, n, []int{s[n], s[n+1] / r, r, s[n+2] / r, r}, []int{0, 2, 4, 1, 3},
			[]int{s[n] * r * r, s[n+1] / r, s[n+2] / r})
	}},
	{"aten::channel_shuffle(Tensor self, SymInt groups) -> Tensor", channelShuffle},
	{"aten::native_channel_shuffle(Tensor self, SymInt groups) -> Tensor", channelShuffle},
	{"aten::im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
		func(c *call) error { return c.giveImages(2, "im2col", c.imageWindows(), c.tensor("self")) }},
	{"aten::col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, " +
		"int[2] stride) -> Tensor", func(c *call) error {
		attrs := c.imageWindows()
		attrs["size"] = c.intsOf("output_size", 2)
		return c.giveImages(1, "col2im", attrs, c.tensor("self"))
	}},
}

func (c *call) imageWindows() graph.Attrs {
	return graph.Attrs{
		"kernel": c.intsOf("kernel_size", 2), "dilation": c.intsOf("dilation", 2), "padding": c.intsOf("padding", 2),
		"stride": c.intsOf("stride", 2),
	}
}

// maxShuffle bounds the factors of pixel shuffles, so that their squares do not overflow.
const maxShuffle = 1 << 16

// rearrange splits the dimensions of x from n on into the sizes split, puts those in another order and joins them to
// the sizes joined, in memory of their own.
func (c *call) rearrange(x *Ref, n int, split, order, joined []int) error {
	if c.err != nil {
		return c.err
	}
	lead := x.shape()[:n]
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
	moved, err := c.copy(c.permute(parts, all...))
	if err != nil {
		return err
	}
	return c.giveRef(c.Reshape(moved, slices.Concat(lead, joined)))
}

func channelShuffle(c *call) error {
	x, groups := c.tensor("self"), c.int("groups")
	s := x.shape()
	if len(s) < 3 || groups < 1 || s[1]%groups != 0 {
		return fmt.Errorf("%d groups of %v", groups, s)
	}
	rest := s[2:]
	order := []int{1, 0}
	for d := range rest {
		order = append(order, 2+d)
	}
	return c.rearrange(x, 1, slices.Concat([]int{groups, s[1] / groups}, rest), order, s[1:])
}

// padTargets make tensors larger. Lists of amounts begin with the last dimension.
var padTargets = []atenOp{
	{"aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor", func(c *call) error {
		return c.givePad(c.ints("pad"), "constant", c.number("value"))
	}},
	{"aten::pad(Tensor self, SymInt[] pad, str mode=\"constant\", float? value=None) -> Tensor", func(c *call) error {
		return c.givePadLike(c.str("mode"))
	}},
	{"aten::_pad_enum(Tensor self, SymInt[] pad, int mode, float? value=None) -> Tensor", func(c *call) error {
		modes, mode := []string{"reflect", "replicate", "circular", "constant"}, c.int("mode")
		if mode < 0 || mode >= len(modes) {
			return fmt.Errorf("padding mode %d", mode)
		}
		return c.givePadLike(modes[mode])
	}},
	{"aten::_pad_circular(Tensor self, SymInt[] pad) -> Tensor", func(c *call) error {
		return c.givePad(c.ints("pad"), "circular", nil)
	}},
	{"aten::reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor", imagePad(1, "reflect")},
	{"aten::reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor", imagePad(2, "reflect")},
	{"aten::reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor", imagePad(3, "reflect")},
	{"aten::replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor", imagePad(1, "replicate")},
	{"aten::replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor", imagePad(2, "replicate")},
	{"aten::replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor", imagePad(3, "replicate")},
}

func (c *call) givePadLike(mode string) error {
	if mode != "constant" {
		if c.has("value") && c.float("value") != 0 {
			return fmt.Errorf("padding mode %s with a value", mode)
		}
		return c.givePad(c.ints("pad"), mode, nil)
	}
	value := number(0)
	if c.has("value") {
		value = c.number("value")
	}
	return c.givePad(c.ints("pad"), mode, value)
}

func imagePad(rank int, mode string) func(*call) error {
	return func(c *call) error { return c.givePad(c.intsOf("padding", 2*rank), mode, nil) }
}

// givePad emits a padding, or a copy where it pads by none of a constant. Circular padding of a tensor that is cut elsewhere wraps around what is left.
func (c *call) givePad(amounts []int, mode string, value number) error {
	x := c.tensor("self")
	if c.err != nil {
		return c.err
	}
	rank := x.rank()
	if len(amounts)%2 != 0 || len(amounts) > 2*rank {
		return fmt.Errorf("%d amounts to pad %v", len(amounts), x.shape())
	}
	if mode == "constant" && !slices.ContainsFunc(amounts, func(n int) bool { return n != 0 }) {
		return c.giveRef(c.copy(x))
	}
	before, after := make([]int, rank), make([]int, rank)
	for i := range len(amounts) / 2 {
		d := rank - 1 - i
		before[d], after[d] = amounts[2*i], amounts[2*i+1]
		if cut := max(-before[d], 0) + max(-after[d], 0); mode == "circular" && cut > 0 {
			if cut > x.shape()[d] || cut < 0 {
				return fmt.Errorf("%v cut by %v", x.shape(), amounts)
			}
			x = c.slice(x, d, max(-before[d], 0), x.shape()[d]-max(-after[d], 0), 1)
			before[d], after[d] = max(before[d], 0), max(after[d], 0)
		}
	}
	var filler *Ref
	if mode == "constant" {
		var err error
		if filler, err = c.Scalar(value, x.dtype); err != nil {
			return err
		}
	}
	return c.give("pad", graph.Attrs{"before": before, "after": after, "mode": mode}, c.Read(x), c.Read(filler))
}
