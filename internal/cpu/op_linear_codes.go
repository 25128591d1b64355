package cpu

import (
	"fmt"
	"sync"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/codes"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// The precision int8 rounds each 32 inputs of a row to codes of 8 bits with a scale of their own, and multiplies them
// by the codes of the weight: sums of 32 products are exact integers, and only they are scaled and added in float32. A
// row's result depends on no other row, and is the same with every processor's kernels and on any number of threads
// ([simd.Set.DotCodes]).

// byCodes reports whether attributes of an op have it round its inputs to codes.
func byCodes(a graph.Attrs) bool { return a.String("precision") == "int8" }

// MultipliesCodes reports whether linears of a weight in an encoding can be computed in the precision int8.
func MultipliesCodes(encoding string) bool { return codes.Of(encoding) != nil }

// codesSupports returns why an op cannot be computed in the precision int8.
func codesSupports(in []graph.Spec, a graph.Attrs) error {
	if e := a.String(graph.EncodingAttr); in[0].DType != tensor.Float32 || !MultipliesCodes(e) {
		return fmt.Errorf("no products of %v and weights of the encoding %q in precision int8", in[0].DType, e)
	}
	return nil
}

// inputCodesBytes is what the codes of m rows of k inputs take: also their scales, and their sums' products with them.
func inputCodesBytes(m, k int) int64 {
	return ops.ScratchBytes(1, m*k) + ops.ScratchBytes(4, m*k/simd.CodeBlock, m*k/simd.CodeBlock)
}

// codesLaneBytes is what a lane takes: a line of the weight as codes, a row of inputs as float32, and a row of results.
func codesLaneBytes(n, k int) int64 { return inputCodesBytes(1, k) + ops.ScratchBytes(4, k, n) }

// codesWork returns the scratch of a product by codes.
func codesWork(threads, m, n, k int) int64 {
	return inputCodesBytes(m, k) + int64(min(threads, mostLanes))*codesLaneBytes(n, k)
}

// A codesCall is a linear by codes: m rows of k inputs, by n lines of blocks.
type codesCall struct {
	m, n, k int
	x       ops.View
	lead    tensor.Layout
	w       ops.View
	expand  codes.Expansion
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

func takeCodes(work *ops.Scratch, m, k int) simd.Codes {
	bytes := ops.RoundUp(m*k, 8)
	c := simd.Codes{Codes: ops.Elements[int8](ops.View{Data: (*work)[:bytes]})[:m*k]}
	*work = (*work)[bytes:]
	c.Scales, c.Extra = ops.TakeReal[float32](work, m*k/simd.CodeBlock), ops.TakeReal[float32](work, m*k/simd.CodeBlock)
	return c
}

// linearByCodes is linear in the precision int8.
func linearByCodes(c *ops.Call) {
	x, w, out := c.In[0], c.In[1], c.Out[0]
	g := codesCalls.Get().(*codesCall)
	g.n, g.k = w.Shape()[0], x.Shape()[len(x.Shape())-1]
	g.m = ops.Volume(x.Shape()[:len(x.Shape())-1])
	work := ops.Scratch(c.Work)
	if g.m > 0 && g.n > 0 {
		g.bias = rowIn(c.Operand(2), ops.TakeReal[float32](&work, g.n))
		g.x, g.lead, g.w, g.set = x, x.Layout.Leading(1), w, c.Pool.Set
		g.expand = codes.Of(c.Attrs.String(graph.EncodingAttr))
		g.out = ops.Elements[float32](out)[out.Layout.Offset:]
		g.inputs = takeCodes(&work, g.m, g.k)
		lanes := max(1, min(c.Pool.Threads(), mostLanes, int(int64(len(work))/codesLaneBytes(g.n, g.k))))
		for range lanes {
			lane := codesLane{line: takeCodes(&work, 1, g.k)}
			lane.row, lane.room = ops.TakeReal[float32](&work, g.k), ops.TakeReal[float32](&work, g.n)
			g.lanes = append(g.lanes, lane)
		}
		g.finish = takeGemm[float32]()
		g.finish.set = g.set
		g.finish.o.ending = ending[float32]{residual: c.Operand(graph.LinearResidual), act: activationOf(c.Attrs)}
		tasks.Do(c.Pool, lanes, 1, codesInputs{g})
		tasks.Do(c.Pool, lanes, 1, codesLines{g})
		if g.finish.o.ending.any() {
			tasks.Do(c.Pool, lanes, 1, codesEndings{g})
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
			row, at, step := g.lanes[lane].row, g.lead.OffsetOf(r), ops.LastStride(g.x.Layout)
			if step == 1 {
				row = ops.Elements[float32](g.x)[at:][:g.k]
			} else {
				ops.LoadReal(row, g.x, at, step)
			}
			codes.Round(row, &simd.Codes{
				Codes: g.inputs.Codes[r*g.k:][:g.k], Scales: g.inputs.Scales[r*blocks:][:blocks], Extra: g.inputs.Extra[r*blocks:][:blocks],
			})
		}
	}
}

// codesLines is the task that multiplies: a part is a lane, which has some lines of the weight.
type codesLines struct{ *codesCall }

// Run implements Task.
func (g *codesLines) Run(from, to int) {
	blocks, data := g.k/simd.CodeBlock, ops.Elements[byte](g.w)
	width := g.w.Shape()[1]
	for lane := from; lane < to; lane++ {
		line := &g.lanes[lane].line
		first, end := g.share(lane, g.n)
		for j := first; j < end; j++ {
			g.expand(g.set, data[g.w.Layout.Offset+j*g.w.Layout.Strides[0]:][:width], line)
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
