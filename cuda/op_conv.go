package cuda

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// convKernels are the convolutions: kernels/conv.cu.
var convKernels = map[layers.Kind]kernel{
	"conv": {supports: onlyNumbers, launch: launchConv},
}

// fewChannels is the number of outputs of a group from which tiles of a product pay.
const fewChannels = 16

// threes returns the last entries of a list that has up to three, after ones: fill.
func threes(list []int, fill int) (out [3]int) {
	for i := range out {
		out[i] = fill
		if k := i - (3 - len(list)); k >= 0 {
			out[i] = list[k]
		}
	}
	return out
}

// launchConv computes convolutions of one to three dimensions, and transposed ones.
func launchConv(l *launch) error {
	x, w, bias, out, a := l.in[0], l.in[1], l.in[2], l.out[0], l.attrs
	if out.size() == 0 {
		return nil
	}
	groups, transposed := a.Int("groups"), 0
	if a.Bool("transposed") {
		transposed = 1
	}
	batch, inputs, outputs := x.shape()[0], x.shape()[1]/groups, out.shape()[1]/groups
	g := []int{batch, groups, inputs, outputs}
	pixels := int64(batch)
	for _, d := range out.shape()[2:] {
		pixels *= int64(d)
	}
	for _, list := range [][3]int{
		threes(x.shape()[2:], 1), threes(out.shape()[2:], 1), threes(w.shape()[2:], 1), threes(a.Ints("stride"), 1),
		threes(a.Ints("padding"), 0), threes(a.Ints("dilation"), 1),
	} {
		g = append(g, list[:]...)
	}
	for _, s := range [][]int{x.layout.Strides, w.layout.Strides} {
		space := threes(s[2:], 0)
		g = append(append(g, s[:2]...), space[:]...)
	}
	g = append(g, transposed)
	biasStep := int64(0)
	if !bias.absent() {
		biasStep = int64(bias.layout.Strides[0])
	}
	if !isReal(out.dtype) {
		c := l.call("om_conv_direct_i").write(out).read(x).read(w).read(bias).i64(biasStep).i32(dtypeCodes[out.dtype])
		return c.ints(len(g), g...).i64(out.size()).over(out.size())
	}
	if transposed == 1 || outputs < fewChannels {
		c := l.call("om_conv_direct_" + suffix(out.dtype)).write(out).read(x).read(w).read(bias).i64(biasStep)
		return c.ints(len(g), g...).i64(out.size()).ending(l).over(out.size())
	}
	c := l.call("om_conv_tiled_" + suffix(out.dtype)).write(out).read(x).read(w).read(bias).i64(biasStep)
	grid := dims{ceilDiv(pixels, productSide), ceilDiv(int64(outputs), productSide), int64(groups)}
	grid[1], grid[2] = min(grid[1], mostBlocksDown), min(grid[2], mostBlocksDown)
	return c.ints(len(g), g...).ending(l).grid(grid, dims{productThreads, productThreads, 1}, 0)
}

// ending passes what a convolution does after its bias: see [layers.HasEpilogue].
func (c *call) ending(l *launch) *call {
	dtype := l.out[0].dtype
	at := func(k int) operand {
		if k < len(l.in) {
			return l.in[k]
		}
		return operand{}
	}
	var steps []int
	for k := 3; k < 7; k++ {
		c.read(at(k))
		step := 0
		if o := at(k); !o.absent() {
			step = o.layout.Strides[0]
		}
		steps = append(steps, step)
	}
	added, view := at(7), tensor.Contiguous(1)
	if !added.absent() {
		view = added.layout
	}
	return c.ints(4, steps...).float(l.attrs.Float("eps"), dtype).read(added).layout(view).activation(l.attrs, dtype)
}
