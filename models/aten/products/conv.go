package products

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/tensor"
)

// convTargets are the convolutions.
var convTargets = []call.Overload{
	call.Several("aten::conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], SymInt[1] padding=[0], "+
		"SymInt[1] dilation=[1], SymInt groups=1) -> Tensor", conv(1)),
	call.Several("aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], SymInt[2] padding=[0, 0], "+
		"SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor", conv(2)),
	call.Several("aten::conv3d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], "+
		"SymInt[3] padding=[0, 0, 0], SymInt[3] dilation=[1, 1, 1], SymInt groups=1) -> Tensor", conv(3)),
	call.Several("aten::conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], "+
		"str padding=\"valid\", SymInt[1] dilation=[1], SymInt groups=1) -> Tensor", convNamedPadding(1)),
	call.Several("aten::conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], "+
		"str padding=\"valid\", SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor", convNamedPadding(2)),
	call.Several("aten::conv3d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], "+
		"str padding=\"valid\", SymInt[3] dilation=[1, 1, 1], SymInt groups=1) -> Tensor", convNamedPadding(3)),
	call.Several("aten::conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], "+
		"SymInt[1] padding=[0], SymInt[1] output_padding=[0], SymInt groups=1, SymInt[1] dilation=[1]) -> Tensor",
		convTransposed(1)),
	call.Several("aten::conv_transpose2d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], "+
		"SymInt[2] padding=[0, 0], SymInt[2] output_padding=[0, 0], SymInt groups=1, SymInt[2] dilation=[1, 1]) -> Tensor",
		convTransposed(2)),
	call.Several("aten::conv_transpose3d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], "+
		"SymInt[3] padding=[0, 0, 0], SymInt[3] output_padding=[0, 0, 0], SymInt groups=1, "+
		"SymInt[3] dilation=[1, 1, 1]) -> Tensor", convTransposed(3)),
	call.Several("aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, "+
		"SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor", convolution),
	call.Several("aten::_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, "+
		"SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool benchmark, "+
		"bool deterministic, bool cudnn_enabled, bool allow_tf32) -> Tensor", convolution),
	call.Several("aten::_convolution.deprecated(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, "+
		"SymInt[] dilation, bool transposed, int[] output_padding, SymInt groups, bool benchmark, "+
		"bool deterministic, bool cudnn_enabled) -> Tensor", convolution),
	call.Several("aten::_convolution_mode(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, str padding, SymInt[] dilation, "+
		"SymInt groups) -> Tensor", convolutionMode),
	call.Several("aten::conv_tbc(Tensor self, Tensor weight, Tensor bias, int pad=0) -> Tensor", convTBC),
}

// conv builds conv1d, conv2d and conv3d.
func conv(rank int) func(*call.Call) error {
	return func(c *call.Call) error {
		padding := c.IntsOf("padding", rank)
		return giveConv(c, rank, graph.Attrs{
			"stride": c.IntsOf("stride", rank), "padding": padding, "padding_end": padding,
			"dilation": c.IntsOf("dilation", rank), "groups": c.Int("groups"),
		})
	}
}

// convNamedPadding builds the overloads whose padding is "valid" or "same". Where "same" pads an odd number of
// elements, the end gets one more, as PyTorch has it.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func convNamedPadding(rank int) func(*call.Call) error {
	return func(c *call.Call) error {
		stride, dilation := c.IntsOf("stride", rank), c.IntsOf("dilation", rank)
		before, after := make([]int, rank), make([]int, rank)
		switch mode := c.Text("padding"); mode {
		case "valid":
		case "same":
			kernel := c.Tensor("weight").Shape()
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
		return giveConv(c, rank, graph.Attrs{
			"stride": stride, "padding": before, "padding_end": after, "dilation": dilation, "groups": c.Int("groups"),
		})
	}
}

// convTransposed builds conv_transpose1d, conv_transpose2d and conv_transpose3d.
func convTransposed(rank int) func(*call.Call) error {
	return func(c *call.Call) error {
		padding := c.IntsOf("padding", rank)
		return giveConv(c, rank, graph.Attrs{
			"stride": c.IntsOf("stride", rank), "padding": padding, "padding_end": padding,
			"dilation": c.IntsOf("dilation", rank), "groups": c.Int("groups"),
			"transposed": true, "output_padding": c.IntsOf("output_padding", rank),
		})
	}
}

// convolution builds the op that all convolutions become when a program is decomposed.
func convolution(c *call.Call) error {
	rank := c.Tensor("weight").Rank() - 2
	if rank < 1 {
		return fmt.Errorf("weight %v of a convolution", c.Tensor("weight").Shape())
	}
	padding := c.IntsOf("padding", rank)
	attrs := graph.Attrs{
		"stride": c.IntsOf("stride", rank), "padding": padding, "padding_end": padding,
		"dilation": c.IntsOf("dilation", rank), "groups": c.Int("groups"),
	}
	if c.Bool("transposed") {
		attrs["transposed"], attrs["output_padding"] = true, c.IntsOf("output_padding", rank)
	}
	return giveConv(c, rank, attrs)
}

// convolutionMode builds what traces have for convolutions whose padding has a name.
func convolutionMode(c *call.Call) error {
	rank := c.Tensor("weight").Rank() - 2
	if rank < 1 {
		return fmt.Errorf("weight %v of a convolution", c.Tensor("weight").Shape())
	}
	return convNamedPadding(rank)(c)
}

// giveConv emits a convolution over the last dimensions. An input without a batch is a batch of one.
func giveConv(c *call.Call, rank int, attrs graph.Attrs) error {
	x := c.Tensor("input")
	unbatched := x.Rank() == rank+1
	if unbatched {
		x = c.Unsqueeze(x, 0)
	}
	if c.Err != nil {
		return c.Err
	}
	out, err := c.Emit1("conv", attrs, c.Read(x), c.Read(c.Tensor("weight")), c.Read(c.OptTensor("bias")))
	if err != nil {
		return err
	}
	if unbatched {
		out = c.SelectAt(out, 0, 0)
	}
	return c.GiveRef(out, nil)
}

// convTBC builds the convolution over time × batch × channel, whose weight is kernel × inputs × outputs.
func convTBC(c *call.Call) error {
	x, w, bias := c.Tensor("self"), c.Tensor("weight"), c.Tensor("bias")
	if x.Rank() != 3 || w.Rank() != 3 {
		return fmt.Errorf("input %v and weight %v", x.Shape(), w.Shape())
	}
	pad := []int{c.Int("pad")}
	if c.Err != nil {
		return c.Err
	}
	out, err := c.Emit1("conv", graph.Attrs{
		"stride": []int{1}, "padding": pad, "padding_end": slices.Clone(pad), "dilation": []int{1}, "groups": 1,
	}, c.Read(c.Permute(x, 1, 2, 0)), c.Read(c.Permute(w, 2, 1, 0)), c.Read(bias))
	if err != nil {
		return err
	}
	return c.GiveRef(c.Contiguous(c.Permute(out, 2, 0, 1)))
}
