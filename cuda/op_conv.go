package cuda

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/cuda/internal/arrange"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// convKernels are the convolutions: kernels/convolve.h on tensor cores, kernels/conv_f32.cu for floats,
// kernels/conv_groups.cu for groups of few channels and for channels by themselves, kernels/conv.cu.
var convKernels = map[graph.Kind]kernel{
	"conv": {
		supports: supportsConv, work: convWork, launch: launchConv, narrows: true, exact: exactConv, label: convLabel,
		packs: convPacks, pack: packConv,
	},
}

func supportsConv(in, out []graph.Spec, a graph.Attrs) error {
	planar := planarResult(out, a)
	_, _, pixels, _ := convSizes(in, planar, a)
	if a.Bool(arrange.MakesLast) && pixels > 0 && tensorConv(in, planar, a) == "" && !eachChannel(in, planar, a) {
		return fmt.Errorf("there are no such convolutions of %v with their channels last", in[0].DType)
	}
	return onlyNumbers(in, out, a)
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

// A geometry is that of kernels/conv.h.
type geometry struct {
	batch, groups, inputs, outputs             int
	in, out, kernel, stride, padding, dilation [3]int
	x, w                                       [5]int
	transposed                                 bool
}

// geometry returns the geometry of a convolution.
func (l *launch) geometry() *geometry {
	x, w, out, a := l.in[0], l.in[1], l.out[0], l.attrs
	groups := a.Int("groups")
	g := &geometry{
		batch: x.shape()[0], groups: groups, inputs: x.shape()[1] / groups, outputs: out.shape()[1] / groups,
		in: threes(x.shape()[2:], 1), out: threes(out.shape()[2:], 1), kernel: threes(w.shape()[2:], 1),
		stride: threes(a.Ints("stride"), 1), padding: threes(a.Ints("padding"), 0), dilation: threes(a.Ints("dilation"), 1),
		transposed: a.Bool("transposed"),
	}
	g.x, g.w = fives(x), fives(w)
	return g
}

// fives returns the strides of image, channel and space.
func fives(o operand) (s [5]int) {
	space, sizes := threes(o.layout.Strides[2:], 0), threes(o.shape()[2:], 1)
	s[1] = o.layout.Strides[1]
	if o.shape()[0] > 1 {
		s[0] = o.layout.Strides[0]
	}
	for d, size := range sizes {
		if size > 1 { // else nobody goes there
			s[2+d] = space[d]
		}
	}
	return s
}

// geometry passes one.
func (c *call) geometry(g *geometry) *call {
	list := []int{g.batch, g.groups, g.inputs, g.outputs}
	for _, three := range [][3]int{g.in, g.out, g.kernel, g.stride, g.padding, g.dilation} {
		list = append(list, three[:]...)
	}
	list = append(append(append(list, g.x[:]...), g.w[:]...), flag(g.transposed))
	return c.ints(len(list), list...)
}

// launchConv computes convolutions of one to three dimensions, and transposed ones.
func launchConv(l *launch) error {
	if l.out[0].size() == 0 {
		return nil
	}
	if l.attrs.Bool(arrange.MakesLast) {
		l.out[0].layout = tensor.Contiguous(planar(l.out[0].shape())...)
	}
	x, w, bias, out, a := l.in[0], l.in[1], l.in[2], l.out[0], l.attrs
	biasStep := int64(0)
	if !bias.absent() {
		biasStep = int64(bias.layout.Strides[0])
	}
	g := l.geometry()
	if name := tensorConv(specs(l.in), specs(l.out), a); name != "" && onTensorCores(l.s.d.info.Capability, out.dtype) {
		return l.tensorConv(name, g, biasStep)
	}
	switch planar := specs(l.out); {
	case a.Bool(arrange.MakesLast) && eachChannel(specs(l.in), planar, a):
		return l.eachChannel(g, biasStep)
	case a.Bool(arrange.MakesLast):
		return fmt.Errorf("%w: a convolution to channels-last, which takes tensor cores", graph.ErrUnsupported)
	}
	if w, ok := winogradOf(specs(l.in), specs(l.out), a); ok && a.Bool(byWinograd) {
		return l.winograd(w, g, biasStep)
	}
	if w.packed {
		return fmt.Errorf("BUG: %s: a weight in a form of other kernels", l.kind)
	}
	if !isReal(out.dtype) {
		c := l.call("om_conv_direct_i").write(out).read(x).read(w).read(bias).i64(biasStep).i32(dtypeCodes[out.dtype])
		return c.geometry(g).i64(out.size()).over(out.size())
	}
	near := !g.transposed && out.dtype.Size() <= 4 && inTapOrder(x.layout, w.layout, a)
	switch {
	case near && g.outputs < fewChannels:
		return l.fewConv(g, biasStep)
	case near && out.dtype == tensor.Float32:
		return l.floatConv(g, biasStep)
	case g.transposed || g.outputs < fewChannels || out.dtype == tensor.Float32:
		c := l.call("om_conv_direct_" + suffix(out.dtype)).write(out).read(x).read(w).read(bias).i64(biasStep)
		return c.geometry(g).i64(out.size()).ending(l).over(out.size())
	}
	pixels := int64(g.batch)
	for _, d := range g.out {
		pixels *= int64(d)
	}
	c := l.call("om_conv_tiled_" + suffix(out.dtype)).write(out).read(x).read(w).read(bias).i64(biasStep)
	grid := dims{ceilDiv(pixels, productSide), ceilDiv(int64(g.outputs), productSide), int64(g.groups)}
	grid[1], grid[2] = min(grid[1], mostBlocksDown), min(grid[2], mostBlocksDown)
	return c.geometry(g).ending(l).grid(grid, dims{productThreads, productThreads, 1}, 0)
}

// planarResult returns the result of a convolution, wherever its channels are, as N×C×space.
func planarResult(out []graph.Spec, a graph.Attrs) []graph.Spec {
	if !a.Bool(arrange.MakesLast) {
		return out
	}
	return []graph.Spec{{DType: out[0].DType, Shape: planar(out[0].Shape)}}
}

// planar returns the shape N×C×space of one that is N×space×C.
func planar(s tensor.Shape) tensor.Shape {
	last := len(s) - 1
	return append(tensor.Shape{s[0], s[last]}, s[1:last]...)
}

// mostTaps is how many places of a kernel go into a block's shared memory, beside what tile.h needs.
const mostTaps = 768

// inTapOrder reports whether a weight's elements lie in the order of its dimensions, line by line, and what a window reads lies
// near its begin, as kernels/conv_f32.cu wants: from a term to the one that a thread copies next are at most two channels.
func inTapOrder(x, w tensor.Layout, a graph.Attrs) bool {
	taps, step := 1, 1
	for d := len(w.Shape) - 1; d > 0; d-- {
		if w.Shape[d] > 1 && w.Strides[d] != step {
			return false
		}
		step *= w.Shape[d]
	}
	far := 2 * max(x.Strides[1], -x.Strides[1])
	for d, k := range w.Shape[2:] {
		taps *= k
		far += k * a.Ints("dilation")[d] * max(x.Strides[2+d], -x.Strides[2+d])
	}
	return taps <= mostTaps && far < math.MaxInt32
}

// convSizes returns the product that a convolution is: for each of count groups a weight of m × k by windows of k × n.
func convSizes(in, out []graph.Spec, a graph.Attrs) (count, m, n, k int64) {
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

// convWork returns the scratch memory of a convolution, on GPUs with tensor cores and without.
func convWork(in, out []graph.Spec, a graph.Attrs) int64 {
	out = planarResult(out, a)
	var bytes int64
	if tensorConv(in, out, a) != "" {
		p := tensorPlanOf(in, out, a)
		bytes = p.workBytes()
	}
	if w, ok := winogradOf(in, out, a); ok && a.Bool(byWinograd) {
		return w.workBytes()
	}
	count, m, n, k := convSizes(in, out, a)
	if out[0].DType != tensor.Float32 || a.Bool("transposed") || m < fewChannels || n == 0 {
		return bytes
	}
	return max(bytes, divide(floatBlocks, count, m, n, k).partsBytes(count*m*n))
}

// fewConv computes a convolution of groups with few outputs.
func (l *launch) fewConv(g *geometry, biasStep int64) error {
	some, m := int64(1), int64(g.outputs)
	if m > 1 {
		some = 4
	}
	pixels := int64(g.out[0] * g.out[1] * g.out[2])
	threads := min(blockThreads, ceilDiv(pixels, 32)*32)
	chunks := ceilDiv(pixels, threads)
	c := l.call(fmt.Sprint("om_conv_few_", suffix(l.out[0].dtype), "_", some)).write(l.out[0]).read(l.in[0]).read(l.in[1])
	c.read(l.in[2]).i64(biasStep).geometry(g).ending(l).i32(int32(chunks))
	return c.grid(dims{int64(g.batch) * int64(g.groups) * ceilDiv(m, some) * chunks, 1, 1}, dims{threads, 1, 1}, 0)
}

// floatConv computes a convolution of floats.
func (l *launch) floatConv(g *geometry, biasStep int64) error {
	x, w, bias, out := l.in[0], l.in[1], l.in[2], l.out[0]
	count, m, n, k := convSizes(specs(l.in), specs(l.out), l.attrs)
	pixels := n / int64(g.batch)
	d := divide(floatBlocks, count, m, n, k)
	c := l.call("om_conv_f32" + d.suffix).write(out)
	c.scratch(l.work.slice(0, d.partsBytes(out.size())))
	c.read(x).read(w).read(bias).i64(biasStep).geometry(g).ending(l).i64(d.part)
	c.i32(int32(flag(pixels%4 == 0 && out.address%16 == 0)))
	taps := int64(g.kernel[0] * g.kernel[1] * g.kernel[2])
	if err := c.grid(dims{d.blocks, 1, 1}, dims{d.threads, 1, 1}, taps*tapBytes); err != nil || d.parts < 2 {
		return err
	}
	c = l.call("om_conv_sum_f32").write(out).scratch(l.work.slice(0, d.partsBytes(out.size()))).read(bias).i64(biasStep)
	return c.i64(pixels).i64(count * m).ending(l).i64(out.size()).i32(int32(d.parts)).over(out.size())
}

// tapBytes is the size of a tap of kernels/conv_f32.cu.
const tapBytes = 16

// ending passes what a convolution does after its bias: see [graph.HasEpilogue].
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
