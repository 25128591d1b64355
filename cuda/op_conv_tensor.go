package cuda

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/cuda/internal/arrange"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// convBlocks are those of kernels/convolve.h: pixels × channels.
var convBlocks = []blocking{
	{"_128", 128, 128, 128, 1},
	{"_64", 64, 64, 128, 0.6},
	{"_32", 128, 32, 128, 0.4},
}

// Arrange returns the graph with values of its convolutions on tensor cores channels-last where that saves copies: see
// [arrange.Graph]. It is for GPUs from compute capability 8.0 on.
func Arrange(g *graph.Graph) *graph.Graph { return arrange.Graph(g, arranging, false) }

// Arrange returns the graph as [Arrange] does where the GPU has the kernels for it.
func (d *Device) Arrange(g *graph.Graph) *graph.Graph {
	if d.info.Capability < tensorCapability {
		return g
	}
	return Arrange(g)
}

// arranging says which kernels gain by channels that are last.
var arranging = arrange.Kernels{
	Gathers: func(in, out []graph.Spec, a graph.Attrs) bool { return tensorConv(in, out, a) != "" },
	Each:    eachChannel,
	Elementwise: func(kind graph.Kind) bool {
		_, ok := functionCodes[kind]
		return ok || kind == "chain" || kind == "cast" || kind == "copy"
	},
	Pools: isReal,
}

// tensorConv returns what the names of the kernels that compute a convolution on tensor cores have in them, "" where it
// is for others.
func tensorConv(in, out []graph.Spec, a graph.Attrs) string {
	count, m, n, k := convSizes(in, out, a)
	if a.Bool("transposed") || m < leastTensorChannels || n == 0 || k == 0 {
		return ""
	}
	for _, s := range [][]int{in[0].Shape[2:], in[1].Shape, out[0].Shape[1:], a.Ints("padding"), a.Ints("stride")} {
		for _, size := range s {
			if size > mostPlaces {
				return ""
			}
		}
	}
	p := paddedChannels(in[1])
	// Operands can be expanded, to more than any memory has.
	elements := float64(in[0].Shape[0]) * float64(p*count)
	for _, s := range in[0].Shape[2:] {
		elements *= float64(s)
	}
	if elements > mostElements || float64(count*m)*float64(n) > mostElements/mostParts {
		return ""
	}
	if p*count > mostPlaces || k/int64(in[1].Shape[1])*p > mostPlaces {
		return ""
	}
	for d, kernel := range in[1].Shape[2:] {
		if a.Ints("dilation")[d]*(kernel-1)+a.Ints("stride")[d]*out[0].Shape[2+d] > mostPlaces {
			return ""
		}
	}
	switch d := out[0].DType; {
	case d == tensor.Float16 || d == tensor.BFloat16:
		return suffix(d)
	case d == tensor.Float32 && rounds(a):
		return map[string]string{"bf16": "narrow", "tf32": "tf32"}[a.String("precision")]
	}
	return ""
}

// exactConv reports whether a convolution is not computed on tensor cores.
func exactConv(in, out []graph.Spec, a graph.Attrs) bool {
	return tensorConv(in, planarResult(out, a), a) == ""
}

// leastTensorChannels is the number of outputs of a group from which tensor cores pay.
var leastTensorChannels int64 = fewChannels

// mostPlaces bounds what kernels/convolve.h counts in an int, below its NOWHERE.
const mostPlaces = 1 << 29

// mostElements bounds what goes into scratch memory, so that its bytes can be counted.
const mostElements = 1 << 50

// paddedChannels is the inputs of a group, rounded up to sixteen bytes.
func paddedChannels(w graph.Spec) int64 {
	each := int64(16 / w.DType.Size())
	return ceilDiv(int64(w.Shape[1]), each) * each
}

// A tensorPlan is how a convolution on tensor cores is divided, and its scratch memory: what it reads and its weight, with
// their channels behind each other, and the sums of parts.
type tensorPlan struct {
	division
	padded                         int64
	xBytes, weightBytes, partBytes int64
}

// workBytes is all of it.
func (p *tensorPlan) workBytes() int64 { return p.xBytes + p.weightBytes + p.partBytes }

func tensorPlanOf(in, out []graph.Spec, a graph.Attrs) tensorPlan {
	count, m, n, k := convSizes(in, out, a)
	p := tensorPlan{padded: paddedChannels(in[1])}
	k = k / int64(in[1].Shape[1]) * p.padded
	p.division = divide(convBlocks, count, n, m, k)
	x := int64(in[0].Shape[0])
	for _, s := range in[0].Shape[2:] {
		x *= int64(s)
	}
	size, aligned := int64(out[0].DType.Size()), func(bytes int64) int64 { return ceilDiv(bytes, alignBytes) * alignBytes }
	if !a.Bool(arrange.ReadsLast) {
		p.xBytes = aligned(x * count * p.padded * size)
	}
	p.weightBytes = aligned(count * m * k * size)
	p.partBytes = p.partsBytes(count * m * n)
	return p
}

// tensorConv computes a convolution on tensor cores; name is what [tensorConv] returned, g the geometry.
func (l *launch) tensorConv(name string, g *geometry, biasStep int64) error {
	x, w, bias, out := l.in[0], l.in[1], l.in[2], l.out[0]
	p := tensorPlanOf(specs(l.in), specs(l.out), l.attrs)
	hopper, err := l.hopperConv(&p)
	if err != nil {
		return err
	}
	xWork, rest := l.work.slice(0, p.xBytes), p.xBytes
	weightWork := l.work.slice(rest, p.weightBytes)
	parts := l.work.slice(rest+p.weightBytes, p.partBytes)
	padded := int(p.padded)
	first, firstW := x, w
	if !inChannels(x, g.x) || padded != g.inputs {
		if l.attrs.Bool(arrange.ReadsLast) {
			return fmt.Errorf("BUG: %s: what it reads does not have its channels last", l.kind)
		}
		from := turn{g.batch, g.groups, g.inputs, padded, g.in, g.x}
		first = operand{span: xWork, dtype: x.dtype}
		if err := l.channelsLast(first, x, from); err != nil {
			return err
		}
		g.x = from.strides()
	}
	from := turn{g.groups * g.outputs, 1, g.inputs, padded, g.kernel, g.w}
	switch {
	case w.packed:
		firstW, g.w = operand{span: w.span, dtype: w.dtype}, from.strides()
	case !inChannels(w, g.w) || padded != g.inputs || hopper != "" && !from.whole(g.w):
		firstW = operand{span: weightWork, dtype: w.dtype}
		if err := l.channelsLast(firstW, w, from); err != nil {
			return err
		}
		g.w = from.strides()
	}
	g.inputs = padded
	last, each := l.attrs.Bool(arrange.MakesLast), int64(g.outputs)
	if !last {
		each = int64(g.out[0]) * int64(g.out[1]) * int64(g.out[2])
	}
	kernel, shared := "om_conv_tensor_"+name+p.suffix, int64(0)
	if hopper != "" {
		kernel, shared = hopper, hopperSharedBytes(p.rows)
	}
	c := l.call(kernel).write(out)
	if p.parts > 1 {
		c.scratch(parts)
	} else {
		c.i64(0)
	}
	c.read(first).read(firstW).read(bias).i64(biasStep).geometry(g).ending(l).i64(p.part).i32(int32(flag(last)))
	c.i32(int32(flag(each%4 == 0 && out.address%16 == 0)))
	if hopper != "" {
		c.withMap(firstW, g, p.rows)
	}
	if err := c.grid(dims{p.blocks, 1, 1}, dims{p.threads, 1, 1}, shared); err != nil || p.parts < 2 {
		return err
	}
	c = l.call("om_conv_sum_" + suffix(out.dtype)).write(out).scratch(parts).read(bias).i64(biasStep)
	if last {
		each = 1
	}
	return c.i64(each).i64(int64(g.groups * g.outputs)).ending(l).i64(out.size()).i32(int32(p.parts)).over(out.size())
}

// inChannels reports whether sixteen bytes of channels at a time lie behind each other and are aligned; s is the strides of
// image, channel and space.
func inChannels(o operand, s [5]int) bool {
	return s[1] == 1 && vectors(o, 16/o.dtype.Size(), 1, s[0], s[2], s[3], s[4])
}

// A turn is the one of kernels/conv_turn.cu.
type turn struct {
	lines, groups, inputs, padded int
	in                            [3]int
	x                             [5]int
}

// strides are those of the result.
func (t turn) strides() [5]int {
	c := t.groups * t.padded
	return [5]int{c * t.in[2] * t.in[1] * t.in[0], 1, c * t.in[2] * t.in[1], c * t.in[2], c}
}

// whole reports whether strides are those of the result, but where nobody goes.
func (t turn) whole(s [5]int) bool {
	own := t.strides()
	for d, size := range [5]int{t.lines, 1, t.in[0], t.in[1], t.in[2]} {
		if size > 1 && s[d] != own[d] {
			return false
		}
	}
	return true
}

// channelsLast writes an operand with the channels of a place behind each other.
func (l *launch) channelsLast(to, from operand, t turn) error {
	const side, threads = 32, 256
	pixels, channels := int64(t.in[0])*int64(t.in[1])*int64(t.in[2]), int64(t.groups)*int64(t.padded)
	blocks := int64(t.lines) * ceilDiv(pixels, side) * ceilDiv(channels, side)
	if blocks > math.MaxInt32 {
		return fmt.Errorf("%w: a convolution of %d × %d elements", graph.ErrUnsupported, pixels, channels)
	}
	list := append([]int{t.lines, t.groups, t.inputs, t.padded}, t.in[:]...)
	list = append(list, t.x[:]...)
	c := l.call(fmt.Sprint("om_conv_last_", from.dtype.Size())).scratch(to.span).read(from).ints(len(list), list...)
	return c.grid(dims{blocks, 1, 1}, dims{threads, 1, 1}, 0)
}

// eachChannel reports whether a convolution is of channels by themselves that kernels/conv_groups.cu computes where they are
// the last dimension.
func eachChannel(in, out []graph.Spec, a graph.Attrs) bool {
	count, m, n, _ := convSizes(in, out, a)
	switch out[0].DType {
	case tensor.Float32, tensor.Float16, tensor.BFloat16:
		return !a.Bool("transposed") && m == 1 && in[1].Shape[1] == 1 && count%4 == 0 && n > 0
	}
	return false
}

// eachChannel computes channels by themselves, the last dimension of the operand and of the result.
func (l *launch) eachChannel(g *geometry, biasStep int64) error {
	const row = 4
	x, out := l.in[0], l.out[0]
	if g.x[1] != 1 || !vectors(x, 4, 1, g.x[0], g.x[2], g.x[3], g.x[4]) || !vectors(out, 4, 1) {
		return fmt.Errorf("BUG: %s: what it reads does not have its channels last", l.kind)
	}
	n := int64(g.batch) * int64(g.groups/4) * int64(g.out[0]*g.out[1]) * ceilDiv(int64(g.out[2]), row)
	c := l.call("om_conv_each_" + suffix(out.dtype)).write(out).read(x).read(l.in[1]).read(l.in[2]).i64(biasStep)
	return c.geometry(g).ending(l).i64(n).over(n)
}
