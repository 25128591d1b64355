package signals

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
)

// poolTargets are the ops that reduce windows of images.
var poolTargets = []call.Overload{
	call.Several("aten::max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], int[1] dilation=[1], "+
		"bool ceil_mode=False) -> Tensor", maxPool(1, false)),
	call.Several("aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, "+
		"bool ceil_mode=False) -> Tensor", maxPool(2, false)),
	call.Several("aten::max_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, "+
		"bool ceil_mode=False) -> Tensor", maxPool(3, false)),
	call.Several("aten::max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], "+
		"int[1] dilation=[1], bool ceil_mode=False) -> (Tensor, Tensor)", maxPool(1, true)),
	call.Several("aten::max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, "+
		"int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)", maxPool(2, true)),
	call.Several("aten::max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, "+
		"int[3] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)", maxPool(3, true)),

	call.Several("aten::avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], bool ceil_mode=False, "+
		"bool count_include_pad=True) -> Tensor", avgPool(1)),
	call.Several("aten::avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, "+
		"bool count_include_pad=True, int? divisor_override=None) -> Tensor", avgPool(2)),
	call.Several("aten::avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, "+
		"bool count_include_pad=True, int? divisor_override=None) -> Tensor", avgPool(3)),

	call.Several("aten::adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor",
		adaptivePool("adaptive_avg_pool", 1)),
	call.Several("aten::adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
		adaptivePool("adaptive_avg_pool", 2)),
	call.Several("aten::adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor",
		adaptivePool("adaptive_avg_pool", 3)),
	call.Several("aten::_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
		adaptivePool("adaptive_avg_pool", 2)),
	call.Several("aten::_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor",
		adaptivePool("adaptive_avg_pool", 3)),
	call.Several("aten::adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)",
		adaptivePool("adaptive_max_pool", 1)),
	call.Several("aten::adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)",
		adaptivePool("adaptive_max_pool", 2)),
	call.Several("aten::adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)",
		adaptivePool("adaptive_max_pool", 3)),

	call.Several("aten::max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor", maxUnpool(2)),
	call.Several("aten::max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride, int[3] padding) -> Tensor",
		maxUnpool(3)),
}

// giveImages emits an op over channels of images of the given rank. A tensor without a batch is a batch of one; the
// results lose it again.
func giveImages(c *call.Call, rank int, kind graph.Kind, attrs graph.Attrs, in ...*cells.Ref) error {
	if c.Err != nil {
		return c.Err
	}
	unbatched := in[0].Rank() == rank+1
	operands := make([]graph.Operand, len(in))
	for i, r := range in {
		if unbatched && r.Rank() == rank+1 {
			r = c.Unsqueeze(r, 0)
		}
		if r.Rank() != rank+2 {
			return fmt.Errorf("a tensor %v for images of %d dimensions", in[i].Shape(), rank)
		}
		operands[i] = c.Read(r)
	}
	out, err := c.Emit(kind, attrs, operands...)
	if err != nil {
		return err
	}
	for _, r := range out {
		if unbatched {
			r = c.SelectAt(r, 0, 0)
		}
		c.Results = append(c.Results, r)
	}
	return nil
}

// strideOr returns the stride of a pool, which is its kernel where the list is empty.
func strideOr(c *call.Call, kernel []int) []int {
	if len(c.Ints("stride")) == 0 {
		return slices.Clone(kernel)
	}
	return c.IntsOf("stride", len(kernel))
}

// maxPool builds the overloads of one rank.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func maxPool(rank int, indices bool) func(*call.Call) error {
	return func(c *call.Call) error {
		kernel := c.IntsOf("kernel_size", rank)
		return giveImages(c, rank, "max_pool", graph.Attrs{
			"kernel": kernel, "stride": strideOr(c, kernel), "padding": c.IntsOf("padding", rank),
			"dilation": c.IntsOf("dilation", rank), "ceil_mode": c.Bool("ceil_mode"), "indices": indices,
		}, c.Tensor("self"))
	}
}

func avgPool(rank int) func(*call.Call) error {
	return func(c *call.Call) error {
		kernel := c.IntsOf("kernel_size", rank)
		attrs := graph.Attrs{
			"kernel": kernel, "stride": strideOr(c, kernel), "padding": c.IntsOf("padding", rank),
			"ceil_mode": c.Bool("ceil_mode"), "count_include_pad": c.Bool("count_include_pad"),
		}
		if c.Has("divisor_override") {
			divisor := c.Int("divisor_override")
			if divisor == 0 {
				return fmt.Errorf("divisor_override 0")
			}
			attrs["divisor"] = divisor
		}
		return giveImages(c, rank, "avg_pool", attrs, c.Tensor("self"))
	}
}

func adaptivePool(kind graph.Kind, rank int) func(*call.Call) error {
	return func(c *call.Call) error {
		return giveImages(c, rank, kind, graph.Attrs{
			"size": c.IntsOf("output_size", rank), "indices": kind == "adaptive_max_pool",
		}, c.Tensor("self"))
	}
}

func maxUnpool(rank int) func(*call.Call) error {
	return func(c *call.Call) error {
		return giveImages(c, rank, "max_unpool", graph.Attrs{"size": c.IntsOf("output_size", rank)},
			c.Tensor("self"), c.Tensor("indices"))
	}
}
