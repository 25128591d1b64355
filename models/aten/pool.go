package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
)

// poolTargets are the ops that reduce windows of images.
var poolTargets = []atenOp{
	{"aten::max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], int[1] dilation=[1], " +
		"bool ceil_mode=False) -> Tensor", maxPool(1, false)},
	{"aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, " +
		"bool ceil_mode=False) -> Tensor", maxPool(2, false)},
	{"aten::max_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, " +
		"bool ceil_mode=False) -> Tensor", maxPool(3, false)},
	{"aten::max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], " +
		"int[1] dilation=[1], bool ceil_mode=False) -> (Tensor, Tensor)", maxPool(1, true)},
	{"aten::max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, " +
		"int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)", maxPool(2, true)},
	{"aten::max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, " +
		"int[3] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)", maxPool(3, true)},

	{"aten::avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], bool ceil_mode=False, " +
		"bool count_include_pad=True) -> Tensor", avgPool(1)},
	{"aten::avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, " +
		"bool count_include_pad=True, int? divisor_override=None) -> Tensor", avgPool(2)},
	{"aten::avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, " +
		"bool count_include_pad=True, int? divisor_override=None) -> Tensor", avgPool(3)},

	{"aten::adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor", adaptivePool("adaptive_avg_pool", 1)},
	{"aten::adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor", adaptivePool("adaptive_avg_pool", 2)},
	{"aten::adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor", adaptivePool("adaptive_avg_pool", 3)},
	{"aten::_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor", adaptivePool("adaptive_avg_pool", 2)},
	{"aten::_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor", adaptivePool("adaptive_avg_pool", 3)},
	{"aten::adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)",
		adaptivePool("adaptive_max_pool", 1)},
	{"aten::adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)",
		adaptivePool("adaptive_max_pool", 2)},
	{"aten::adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)",
		adaptivePool("adaptive_max_pool", 3)},

	{"aten::max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor", maxUnpool(2)},
	{"aten::max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride, int[3] padding) -> Tensor",
		maxUnpool(3)},
}

// giveImages emits an op over channels of images of the given rank. A tensor without a batch is a batch of one; the
// results lose it again.
func (c *call) giveImages(rank int, kind graph.Kind, attrs graph.Attrs, in ...*Ref) error {
	if c.err != nil {
		return c.err
	}
	unbatched := in[0].rank() == rank+1
	operands := make([]graph.Operand, len(in))
	for i, r := range in {
		if unbatched && r.rank() == rank+1 {
			r = c.unsqueeze(r, 0)
		}
		if r.rank() != rank+2 {
			return fmt.Errorf("a tensor %v for images of %d dimensions", in[i].shape(), rank)
		}
		operands[i] = c.Read(r)
	}
	out, err := c.Emit(kind, attrs, operands...)
	if err != nil {
		return err
	}
	for _, r := range out {
		if unbatched {
			r = c.selectAt(r, 0, 0)
		}
		c.results = append(c.results, r)
	}
	return nil
}

// strideOr returns the stride of a pool, which is its kernel where the list is empty.
func (c *call) strideOr(kernel []int) []int {
	if len(c.ints("stride")) == 0 {
		return slices.Clone(kernel)
	}
	return c.intsOf("stride", len(kernel))
}

// maxPool builds the overloads of one rank.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func maxPool(rank int, indices bool) func(*call) error {
	return func(c *call) error {
		kernel := c.intsOf("kernel_size", rank)
		return c.giveImages(rank, "max_pool", graph.Attrs{
			"kernel": kernel, "stride": c.strideOr(kernel), "padding": c.intsOf("padding", rank),
			"dilation": c.intsOf("dilation", rank), "ceil_mode": c.bool("ceil_mode"), "indices": indices,
		}, c.tensor("self"))
	}
}

func avgPool(rank int) func(*call) error {
	return func(c *call) error {
		kernel := c.intsOf("kernel_size", rank)
		attrs := graph.Attrs{
			"kernel": kernel, "stride": c.strideOr(kernel), "padding": c.intsOf("padding", rank),
			"ceil_mode": c.bool("ceil_mode"), "count_include_pad": c.bool("count_include_pad"),
		}
		if c.has("divisor_override") {
			divisor := c.int("divisor_override")
			if divisor == 0 {
				return fmt.Errorf("divisor_override 0")
			}
			attrs["divisor"] = divisor
		}
		return c.giveImages(rank, "avg_pool", attrs, c.tensor("self"))
	}
}

func adaptivePool(kind graph.Kind, rank int) func(*call) error {
	return func(c *call) error {
		return c.giveImages(rank, kind, graph.Attrs{
			"size": c.intsOf("output_size", rank), "indices": kind == "adaptive_max_pool",
		}, c.tensor("self"))
	}
}

func maxUnpool(rank int) func(*call) error {
	return func(c *call) error {
		return c.giveImages(rank, "max_unpool", graph.Attrs{"size": c.intsOf("output_size", rank)},
			c.tensor("self"), c.tensor("indices"))
	}
}
