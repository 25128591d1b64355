package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// convTargets are the convolutions.
var convTargets = []atenOp{
	{"aten::conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], SymInt[1] padding=[0], " +
		"SymInt[1] dilation=[1], SymInt groups=1) -> Tensor", conv(1)},
	{"aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], SymInt[2] padding=[0, 0], " +
		"SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor", conv(2)},
	{"aten::conv3d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], " +
		"SymInt[3] padding=[0, 0, 0], SymInt[3] dilation=[1, 1, 1], SymInt groups=1) -> Tensor", conv(3)},
	{"aten::conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], " +
		"str padding=\"valid\", SymInt[1] dilation=[1], SymInt groups=1) -> Tensor", convNamedPadding(1)},
	{"aten::conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], " +
		"str padding=\"valid\", SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor", convNamedPadding(2)},
	{"aten::conv3d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], " +
		"str padding=\"valid\", SymInt[3] dilation=[1, 1, 1], SymInt groups=1) -> Tensor", convNamedPadding(3)},
	{"aten::conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], " +
		"SymInt[1] padding=[0], SymInt[1] output_padding=[0], SymInt groups=1, SymInt[1] dilation=[1]) -> Tensor",
		convTransposed(1)},
	{"aten::conv_transpose2d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], " +
		"SymInt[2] padding=[0, 0], SymInt[2] output_padding=[0, 0], SymInt groups=1, SymInt[2] dilation=[1, 1]) -> Tensor",
		convTransposed(2)},
	{"aten::conv_transpose3d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], " +
		"SymInt[3] padding=[0, 0, 0], SymInt[3] output_padding=[0, 0, 0], SymInt groups=1, " +
		"SymInt[3] dilation=[1, 1, 1]) -> Tensor", convTransposed(3)},
	{"aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, " +
		"SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor", convolution},
	{"aten::_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, " +
		"SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool benchmark, " +
		"bool deterministic, bool cudnn_enabled, bool allow_tf32) -> Tensor", convolution},
	{"aten::_convolution.deprecated(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, " +
		"SymInt[] dilation, bool transposed, int[] output_padding, SymInt groups, bool benchmark, " +
		"bool deterministic, bool cudnn_enabled) -> Tensor", convolution},
	{"aten::_convolution_mode(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, str padding, SymInt[] dilation, " +
		"SymInt groups) -> Tensor", convolutionMode},
	{"aten::conv_tbc(Tensor self, Tensor weight, Tensor bias, int pad=0) -> Tensor", convTBC},
}

// conv builds conv1d, conv2d and conv3d.
func conv(rank int) func(*call) error {
	return func(c *call) error {
		padding := c.intsOf("padding", rank)
		return c.giveConv(rank, graph.Attrs{
			"stride": c.intsOf("stride", rank), "padding": padding, "padding_end": padding,
			"dilation": c.intsOf("dilation", rank), "groups": c.int("groups"),
		})
	}
}

// convNamedPadding builds the overloads whose padding is "valid" or "same". Where "same" pads an odd number of
// elements, the end gets one more, as PyTorch has it.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func convNamedPadding(rank int) func(*call) error {
	return func(c *call) error {
		stride, dilation := c.intsOf("stride", rank), c.intsOf("dilation", rank)
		before, after := make([]int, rank), make([]int, rank)
		switch mode := c.str("padding"); mode {
		case "valid":
		case "same":
			kernel := c.tensor("weight").shape()
			if len(kernel) != rank+2 {
				return fmt.Errorf("weight %v of a convolution over %d dimensions", kernel, rank)
			}
			for d := range rank {
				if stride[d] != 1 {
					return fmt.Errorf("padding \"same\" with stride %v", stride)
				}
				total, ok := tensor.MulBytes(int64(max(dilation[d], 0)), int64(max(kernel[2+d]-1, 0)))
				if !ok {
					return fmt.Errorf("dilation %v of kernel %v", dilation, kernel)
				}
				before[d] = int(total / 2)
				after[d] = int(total) - before[d]
			}
		default:
			return fmt.Errorf("padding %q", mode)
		}
		return c.giveConv(rank, graph.Attrs{
			"stride": stride, "padding": before, "padding_end": after, "dilation": dilation, "groups": c.int("groups"),
		})
	}
}

// convTransposed builds conv_transpose1d, conv_transpose2d and conv_transpose3d.
func convTransposed(rank int) func(*call) error {
	return func(c *call) error {
		padding := c.intsOf("padding", rank)
		return c.giveConv(rank, graph.Attrs{
			"stride": c.intsOf("stride", rank), "padding": padding, "padding_end": padding,
			"dilation": c.intsOf("dilation", rank), "groups": c.int("groups"),
			"transposed": true, "output_padding": c.intsOf("output_padding", rank),
		})
	}
}

// convolution builds the op that all convolutions become when a program is decomposed.
func convolution(c *call) error {
	rank := c.tensor("weight").rank() - 2
	if rank < 1 {
		return fmt.Errorf("weight %v of a convolution", c.tensor("weight").shape())
	}
	padding := c.intsOf("padding", rank)
	attrs := graph.Attrs{
		"stride": c.intsOf("stride", rank), "padding": padding, "padding_end": padding,
		"dilation": c.intsOf("dilation", rank), "groups": c.int("groups"),
	}
	if c.bool("transposed") {
		attrs["transposed"], attrs["output_padding"] = true, c.intsOf("output_padding", rank)
	}
	return c.giveConv(rank, attrs)
}

// convolutionMode builds what traces have for convolutions whose padding has a name.
func convolutionMode(c *call) error {
	rank := c.tensor("weight").rank() - 2
	if rank < 1 {
		return fmt.Errorf("weight %v of a convolution", c.tensor("weight").shape())
	}
	return convNamedPadding(rank)(c)
}

// giveConv emits a convolution over the last dimensions. An input without a batch is a batch of one.
func (c *call) giveConv(rank int, attrs graph.Attrs) error {
	x := c.tensor("input")
	unbatched := x.rank() == rank+1
	if unbatched {
		x = c.unsqueeze(x, 0)
	}
	if c.err != nil {
		return c.err
	}
	out, err := c.Emit1("conv", attrs, c.Read(x), c.Read(c.tensor("weight")), c.Read(c.optTensor("bias")))
	if err != nil {
		return err
	}
	if unbatched {
		out = c.selectAt(out, 0, 0)
	}
	return c.giveRef(out, nil)
}

// convTBC builds the convolution over time × batch × channel, whose weight is kernel × inputs × outputs.
func convTBC(c *call) error {
	x, w, bias := c.tensor("self"), c.tensor("weight"), c.tensor("bias")
	if x.rank() != 3 || w.rank() != 3 {
		return fmt.Errorf("input %v and weight %v", x.shape(), w.shape())
	}
	pad := []int{c.int("pad")}
	if c.err != nil {
		return c.err
	}
	out, err := c.Emit1("conv", graph.Attrs{
		"stride": []int{1}, "padding": pad, "padding_end": slices.Clone(pad), "dilation": []int{1}, "groups": 1,
	}, c.Read(c.permute(x, 1, 2, 0)), c.Read(c.permute(w, 2, 1, 0)), c.Read(bias))
	if err != nil {
		return err
	}
	return c.giveRef(c.contiguous(c.permute(out, 2, 0, 1)))
}
