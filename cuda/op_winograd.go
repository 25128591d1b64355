package cuda

import (
	"maps"
	"slices"

	"github.com/optimem/optimem/cuda/internal/arrange"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// byWinograd is the attribute that [Winograd] gives to convolutions.
const byWinograd = "winograd"

// Winograd returns the graph with those convolutions of float32 by 3 × 3 windows to be computed by Winograd's algorithm, with a
// quarter of the multiplications, for which that pays: see [pays]. Their results round a few digits earlier than sums
// of products do.
func Winograd(g *graph.Graph) *graph.Graph {
	h := *g
	h.Ops = slices.Clone(g.Ops)
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Kind != "conv" {
			continue
		}
		in, out := g.Specs(op, nil, nil)
		if w, ok := winogradOf(in, out, op.Attrs); ok && w.pays() {
			op.Attrs = maps.Clone(op.Attrs)
			op.Attrs[byWinograd] = true
		}
	}
	return &h
}

// A winograd is a convolution by tiles of 4 × 4 results: kernels/winograd.cu.
type winograd struct {
	inputs, outputs, images    int64
	in, out                    [2]int64
	down, across, tiles, chunk int64
}

const (
	// winogradPoints is POINTS of kernels/winograd.cu, winogradSide the side of a tile of results.
	winogradPoints, winogradSide = 36, 4
	// winogradChunkBytes bounds the scratch memory of the points of tiles, so that they stay in the cache of a large GPU, and
	// winogradWeightBytes that of the points of weights.
	winogradChunkBytes, winogradWeightBytes = 32 << 20, 64 << 20
)

// winogradOf returns a convolution as a winograd; false where it is none.
func winogradOf(in, out []graph.Spec, a graph.Attrs) (w winograd, ok bool) {
	x, kernel, y := in[0].Shape, in[1].Shape, out[0].Shape
	if out[0].DType != tensor.Float32 || rounds(a) || a.Int("groups") != 1 || a.Bool("transposed") || a.Bool(arrange.MakesLast) ||
		a.Bool(arrange.ReadsLast) || len(x) != 4 || !slices.Equal(kernel[2:], []int{3, 3}) ||
		!slices.Equal(a.Ints("stride"), []int{1, 1}) || !slices.Equal(a.Ints("dilation"), []int{1, 1}) {
		return w, false
	}
	w = winograd{
		inputs: int64(x[1]), outputs: int64(y[1]), images: int64(y[0]), in: [2]int64{int64(x[2]), int64(x[3])},
		out: [2]int64{int64(y[2]), int64(y[3])},
	}
	w.down, w.across = ceilDiv(w.out[0], winogradSide), ceilDiv(w.out[1], winogradSide)
	w.tiles = w.images * w.down * w.across
	if w.tiles*w.inputs*w.outputs == 0 || w.weightBytes() > winogradWeightBytes {
		return w, false
	}
	const whole = 128 // blocks of products are as wide
	w.chunk = winogradChunkBytes / (4 * winogradPoints * (w.inputs + w.outputs)) / whole * whole
	w.chunk = min(max(w.chunk, whole), w.tiles)
	return w, true
}

// pays reports whether the algorithm is expected to take at most half as long as the sums of products do. The scratch
// memory is counted as if it were the GPU's, and the weights' points as they are: made in each pass. What a GPU computes
// while it moves a byte, and while it begins a launch, are guesses between those of today's; none was measured.
func (w *winograd) pays() bool {
	const perByte, perLaunch, gain = 20, 40e6, 2
	pixels := float64(w.images * w.out[0] * w.out[1])
	c, k, tiles := float64(w.inputs), float64(w.outputs), float64(w.tiles)
	direct := 2 * 9 * c * k * pixels
	moved := 4 * (c*float64(w.images*w.in[0]*w.in[1]) + 2*winogradPoints*(c+k)*tiles + k*pixels + (9+2*winogradPoints)*c*k)
	launches := float64(1 + 3*ceilDiv(w.tiles, w.chunk))
	return direct >= gain*(2*winogradPoints*c*k*tiles+perByte*moved+perLaunch*launches)
}

// convLabel tells convolutions by Winograd's algorithm from others.
func convLabel(in, out []graph.Spec, a graph.Attrs) string {
	if _, ok := winogradOf(in, out, a); ok && a.Bool(byWinograd) {
		return "conv_winograd"
	}
	return "conv"
}

// weightBytes is the scratch memory for the points of the weights.
func (w *winograd) weightBytes() int64 {
	return ceilDiv(4*winogradPoints*w.inputs*w.outputs, alignBytes) * alignBytes
}

// lines is how many tiles there is room for in a chunk: kernels read fours.
func (w *winograd) lines() int64 { return ceilDiv(w.chunk, 4) * 4 }

// parts are the sizes of the scratch memory: for the points of weights, of tiles, and of sums, and what the products need.
func (w *winograd) parts() [4]int64 {
	room := func(channels int64) int64 {
		return ceilDiv(4*winogradPoints*channels*w.lines(), alignBytes) * alignBytes
	}
	d := divide(floatBlocks, winogradPoints, w.outputs, w.lines(), w.inputs)
	return [4]int64{w.weightBytes(), room(w.inputs), room(w.outputs), d.partsBytes(winogradPoints * w.outputs * w.lines())}
}

// workBytes is all of the scratch memory.
func (w *winograd) workBytes() int64 {
	p := w.parts()
	return p[0] + p[1] + p[2] + p[3]
}

// winogradWeights writes the points of a weight.
func (l *launch) winogradWeights(to span, weight operand) error {
	n, s := weight.size(), fives(weight)
	inputs := int64(weight.shape()[1])
	n /= 9
	c := l.call("om_winograd_weights").scratch(to).read(weight).divisor(inputs, n)
	return c.i64(int64(s[0])).i64(int64(s[1])).i64(int64(s[3])).i64(int64(s[4])).i64(n).over(n)
}

// winograd computes a convolution by Winograd's algorithm, a chunk of tiles after the other.
func (l *launch) winograd(w winograd, g *geometry, biasStep int64) error {
	x, weight, bias, out := l.in[0], l.in[1], l.in[2], l.out[0]
	var space [4]span
	at := int64(0)
	for i, bytes := range w.parts() {
		space[i] = l.work.slice(at, bytes)
		at += bytes
	}
	if weight.packed {
		space[0] = weight.span
	} else if err := l.winogradWeights(space[0], weight); err != nil {
		return err
	}
	scratch := func(s span, layout tensor.Layout) operand {
		return operand{span: s, dtype: tensor.Float32, layout: layout}
	}
	lines, inputs, outputs := w.lines(), int(w.inputs), int(w.outputs)
	most := w.tiles + lines*max(w.inputs, w.outputs)
	fours := int32(flag(w.out[1]%4 == 0 && out.address%16 == 0))
	for first := int64(0); first < w.tiles; first += w.chunk {
		sizes := slices.Concat(
			l.s.divisorInts(w.across, most), l.s.divisorInts(w.down, most), l.s.divisorInts(lines, most),
			[]int{inputs, outputs, int(first), int(min(w.chunk, w.tiles-first)), int(w.in[0]), int(w.in[1]), int(w.out[0]),
				int(w.out[1]), g.padding[1], g.padding[2], g.x[0], g.x[1], g.x[3], g.x[4]},
		)
		n := w.inputs * lines
		if err := l.call("om_winograd_in").scratch(space[1]).read(x).ints(len(sizes), sizes...).i64(n).over(n); err != nil {
			return err
		}
		sums := *l
		sums.attrs, sums.blas, sums.work = nil, false, space[3]
		sums.out = []operand{scratch(space[2], tensor.Contiguous(winogradPoints, outputs, int(lines)))}
		points := scratch(space[1], tensor.Contiguous(winogradPoints, inputs, int(lines)))
		weights := scratch(space[0], tensor.Contiguous(winogradPoints, outputs, inputs))
		err := sums.blockProduct(product{
			left: weights, rows: weights.layout.Leading(1), leftStep: 1,
			right: points, batches: points.layout.Leading(2), line: 1, rightStep: int(lines),
			m: w.outputs, n: lines, k: w.inputs, alpha: 1,
		}, productFamilyOf(tensor.Float32, ""))
		if err != nil {
			return err
		}
		n = w.outputs * lines
		c := l.call("om_winograd_out").write(out).scratch(space[2]).read(bias).i64(biasStep).ints(len(sizes), sizes...)
		if err := c.ending(l).i32(fours).i64(n).over(n); err != nil {
			return err
		}
	}
	return nil
}
