package cuda

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// convKernels are the convolutions: kernels/conv_f32.cu for floats, kernels/conv.cu.
var convKernels = map[layers.Kind]kernel{
	"conv": {supports: onlyNumbers, work: convWork, launch: launchConv},
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
	if out.dtype == tensor.Float32 && transposed == 0 && inTapOrder(x.layout, w.layout, a) {
		return l.floatConv(g, biasStep)
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

// mostTaps is how many places of a kernel go into a block's shared memory, beside what tile.h needs.
const mostTaps = 768

// inTapOrder reports whether a weight's elements lie in the order of its dimensions, line by line, and what a window reads lies
// near its begin, as kernels/conv_f32.cu wants.
func inTapOrder(x, w tensor.Layout, a layers.Attrs) bool {
	taps, step := 1, 1
	for d := len(w.Shape) - 1; d > 0; d-- {
		if w.Shape[d] > 1 && w.Strides[d] != step {
			return false
		}
		step *= w.Shape[d]
	}
	far := 0
	for d, k := range w.Shape[2:] {
		taps *= k
		far += k * a.Ints("dilation")[d] * max(x.Strides[2+d], -x.Strides[2+d])
	}
	return taps <= mostTaps && far < math.MaxInt32
}

// convSizes returns the product that a convolution is: for each of count groups a weight of m × k by windows of k × n.
func convSizes(in, out []layers.Spec, a layers.Attrs) (count, m, n, k int64) {
	w, y := in[1].Shape, out[0].Shape
	count, k = int64(a.Int("groups")), 1
	for _, s := range w[1:] {
		k *= int64(s)
	}
	n = int64(y[0])
	for _, s := range y[2:] {
		n *= int64(s)
	}
	return count, int64(y[1]) / count, n, k
}

// convWork returns the scratch memory of a convolution.
func convWork(in, out []layers.Spec, a layers.Attrs) int64 {
	count, m, n, k := convSizes(in, out, a)
	if out[0].DType != tensor.Float32 || a.Bool("transposed") || m < fewChannels || n == 0 {
		return 0
	}
	return divide(floatBlocks, count, m, n, k).partsBytes(count * m * n)
}

// floatConv computes a convolution of floats; g is its geometry.
func (l *launch) floatConv(g []int, biasStep int64) error {
	x, w, bias, out := l.in[0], l.in[1], l.in[2], l.out[0]
	spec := func(o operand) layers.Spec { return layers.Spec{DType: o.dtype, Shape: o.shape()} }
	count, m, n, k := convSizes([]layers.Spec{spec(x), spec(w)}, []layers.Spec{spec(out)}, l.attrs)
	pixels := n / int64(x.shape()[0])
	if m < fewChannels {
		some := int64(1)
		if m > 1 {
			some = 4
		}
		threads := min(blockThreads, ceilDiv(pixels, 32)*32)
		chunks := ceilDiv(pixels, threads)
		c := l.call(fmt.Sprint("om_conv_few_f32_", some)).write(out).read(x).read(w).read(bias).i64(biasStep)
		c.ints(len(g), g...).ending(l).i32(int32(chunks))
		return c.grid(dims{int64(x.shape()[0]) * count * ceilDiv(m, some) * chunks, 1, 1}, dims{threads, 1, 1}, 0)
	}
	d := divide(floatBlocks, count, m, n, k)
	c := l.call("om_conv_f32" + d.suffix).write(out)
	if d.parts > 1 {
		c.scratch(l.work.slice(0, d.partsBytes(out.size())))
	} else {
		c.i64(0)
	}
	c.read(x).read(w).read(bias).i64(biasStep).ints(len(g), g...).ending(l).i64(d.part)
	c.i32(int32(flag(pixels%4 == 0 && out.address%16 == 0)))
	taps := 1
	for _, s := range w.shape()[2:] {
		taps *= s
	}
	if err := c.grid(dims{d.blocks, 1, 1}, dims{d.threads, 1, 1}, int64(taps)*tapBytes); err != nil || d.parts < 2 {
		return err
	}
	c = l.call("om_conv_sum_f32").write(out).scratch(l.work.slice(0, d.partsBytes(out.size()))).read(bias).i64(biasStep)
	return c.i64(pixels).i64(count * m).ending(l).i64(out.size()).i32(int32(d.parts)).over(out.size())
}

// tapBytes is the size of a tap of kernels/conv_f32.cu.
const tapBytes = 16

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
