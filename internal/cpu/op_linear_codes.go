package cpu

import (
	"fmt"
	"math"
	"sync"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// The precision int8 rounds each 32 inputs of a row to codes of 8 bits with a scale of their own, and multiplies them by the codes of
// the weight: sums of 32 products are exact integers, and only they are scaled and added in float32. A row's result depends on no
// other row, and is the same with every processor's kernels and on any number of threads ([simd.Set.DotCodes]).

// byCodes reports whether attributes of an op have it round its inputs to codes.
func byCodes(a graph.Attrs) bool { return a.String("precision") == "int8" }

// MultipliesCodes reports whether linears of a weight in an encoding can be computed in the precision int8.
func MultipliesCodes(encoding string) bool { return expansions[encoding] != nil }

// codesSupports returns why an op cannot be computed in the precision int8.
func codesSupports(in []graph.Spec, a graph.Attrs) error {
	if e := a.String(graph.EncodingAttr); in[0].DType != tensor.Float32 || !MultipliesCodes(e) {
		return fmt.Errorf("no products of %v and weights of the encoding %q in precision int8", in[0].DType, e)
	}
	return nil
}

// inputCodesBytes is what the codes of m rows of k inputs take: also their scales, and their sums' products with them.
func inputCodesBytes(m, k int) int64 {
	return scratchBytes(1, m*k) + scratchBytes(4, m*k/simd.CodeBlock, m*k/simd.CodeBlock)
}

// codesLaneBytes is what a lane takes: a line of the weight as codes, a row of inputs as float32, and a row of results.
func codesLaneBytes(n, k int) int64 { return inputCodesBytes(1, k) + scratchBytes(4, k, n) }

// codesWork returns the scratch of a product by codes.
func codesWork(threads, m, n, k int) int64 {
	return inputCodesBytes(m, k) + int64(min(threads, mostLanes))*codesLaneBytes(n, k)
}

// A codesCall is a linear by codes: m rows of k inputs, by n lines of blocks.
type codesCall struct {
	m, n, k int
	x       view
	lead    tensor.Layout
	w       view
	expand  expansion
	bias    []float32
	out     []float32
	set     *simd.Set
	inputs  simd.Codes
	lanes   []codesLane
	// finish does what the linear's ending says: it has the residual and the activation.
	finish *gemmCall[float32]
}

// A codesLane is the room of one of those who work side by side.
type codesLane struct {
	line simd.Codes
	row  []float32
	room []float32
}

var codesCalls = sync.Pool{New: func() any { return new(codesCall) }}

func takeCodes(work *scratch, m, k int) simd.Codes {
	bytes := roundUp(m*k, 8)
	c := simd.Codes{Codes: elements[int8](view{data: (*work)[:bytes]})[:m*k]}
	*work = (*work)[bytes:]
	c.Scales, c.Extra = takeReal[float32](work, m*k/simd.CodeBlock), takeReal[float32](work, m*k/simd.CodeBlock)
	return c
}

// linearByCodes is linear in the precision int8.
func linearByCodes(c *call) {
	x, w, out := c.in[0], c.in[1], c.out[0]
	g := codesCalls.Get().(*codesCall)
	g.n, g.k = w.shape()[0], x.shape()[len(x.shape())-1]
	g.m = volume(x.shape()[:len(x.shape())-1])
	work := scratch(c.work)
	if g.m > 0 && g.n > 0 {
		g.bias = rowIn(c.operand(2), takeReal[float32](&work, g.n))
		g.x, g.lead, g.w, g.set = x, x.layout.Leading(1), w, c.pool.set
		g.expand = expansions[c.attrs.String(graph.EncodingAttr)]
		g.out = elements[float32](out)[out.layout.Offset:]
		g.inputs = takeCodes(&work, g.m, g.k)
		lanes := max(1, min(c.pool.Threads(), mostLanes, int(int64(len(work))/codesLaneBytes(g.n, g.k))))
		for range lanes {
			lane := codesLane{line: takeCodes(&work, 1, g.k)}
			lane.row, lane.room = takeReal[float32](&work, g.k), takeReal[float32](&work, g.n)
			g.lanes = append(g.lanes, lane)
		}
		g.finish = takeGemm[float32]()
		g.finish.set = g.set
		g.finish.o.ending = ending[float32]{residual: c.operand(graph.LinearResidual), act: activationOf(c.attrs)}
		tasks.Do(c.pool, lanes, 1, codesInputs{g})
		tasks.Do(c.pool, lanes, 1, codesLines{g})
		if g.finish.o.ending.any() {
			tasks.Do(c.pool, lanes, 1, codesEndings{g})
		}
		g.finish.release()
	}
	*g = codesCall{lanes: g.lanes[:0]}
	codesCalls.Put(g)
}

// share returns the part of n that is a lane's.
func (g *codesCall) share(lane, n int) (from, to int) {
	return lane * n / len(g.lanes), (lane + 1) * n / len(g.lanes)
}

// codesInputs is the task that rounds inputs: a part is a lane.
type codesInputs struct{ *codesCall }

// Run implements Task.
func (g *codesInputs) Run(from, to int) {
	blocks := g.k / simd.CodeBlock
	for lane := from; lane < to; lane++ {
		first, end := g.share(lane, g.m)
		for r := first; r < end; r++ {
			row, at, step := g.lanes[lane].row, g.lead.OffsetOf(r), lastStride(g.x.layout)
			if step == 1 {
				row = elements[float32](g.x)[at:][:g.k]
			} else {
				loadReal(row, g.x, at, step)
			}
			roundCodes(row, &simd.Codes{
				Codes: g.inputs.Codes[r*g.k:][:g.k], Scales: g.inputs.Scales[r*blocks:][:blocks], Extra: g.inputs.Extra[r*blocks:][:blocks],
			})
		}
	}
}

// roundCodes rounds numbers to codes from −127 to 127, halves to even ones, with a scale for each 32, and the codes' sum times the
// scale. Where one of 32 is no finite number, the scale is none.
func roundCodes(x []float32, to *simd.Codes) {
	for b := range to.Scales {
		x, codes := x[b*simd.CodeBlock:][:simd.CodeBlock], to.Codes[b*simd.CodeBlock:][:simd.CodeBlock]
		most, bad := float32(0), false
		for _, v := range x {
			most = max(most, v, -v)
			bad = bad || v-v != 0
		}
		scale := most / 127
		inverse := 1 / scale
		if bad {
			scale = float32(math.NaN())
		}
		if bad || inverse > math.MaxFloat32 { // below the least normal numbers they are nothing
			clear(codes)
			to.Scales[b], to.Extra[b] = scale, scale
			if !bad {
				to.Scales[b], to.Extra[b] = 0, 0
			}
			continue
		}
		sum := int32(0)
		for i, v := range x {
			const magic = 3 << 22
			c := int32(float32(float32(v*inverse)+magic) - magic)
			codes[i] = int8(min(max(c, -127), 127))
			sum += int32(codes[i])
		}
		to.Scales[b], to.Extra[b] = scale, scale*float32(sum)
	}
}

// codesLines is the task that multiplies: a part is a lane, which has some lines of the weight.
type codesLines struct{ *codesCall }

// Run implements Task.
func (g *codesLines) Run(from, to int) {
	blocks, data := g.k/simd.CodeBlock, elements[byte](g.w)
	width := g.w.shape()[1]
	for lane := from; lane < to; lane++ {
		line := &g.lanes[lane].line
		first, end := g.share(lane, g.n)
		for j := first; j < end; j++ {
			g.expand(g.set, data[g.w.layout.Offset+j*g.w.layout.Strides[0]:][:width], line)
			for r := range g.m {
				x := simd.Codes{
					Codes: g.inputs.Codes[r*g.k:][:g.k], Scales: g.inputs.Scales[r*blocks:][:blocks], Extra: g.inputs.Extra[r*blocks:][:blocks],
				}
				sum := g.set.DotCodes(blocks, line, &x)
				if g.bias != nil {
					sum += g.bias[j]
				}
				g.out[r*g.n+j] = sum
			}
		}
	}
}

// codesEndings is the task that does what comes after the products: a part is a lane, which has some rows.
type codesEndings struct{ *codesCall }

// Run implements Task.
func (g *codesEndings) Run(from, to int) {
	for lane := from; lane < to; lane++ {
		first, end := g.share(lane, g.m)
		if first < end {
			g.finish.finish(lane, completeSums[float32]{row: first, rows: end - first, width: g.n, c: g.out[first*g.n:], ldc: g.n}, g.lanes[lane].room)
		}
	}
}
