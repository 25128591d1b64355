package cpu

import (
	"fmt"
	"sync"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/codes"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// The precision int8 rounds each 32 inputs of a row to codes of 8 bits with a scale of their own, and multiplies them
// by the codes of the weight: sums of 32 products are exact integers, and only they are scaled and added in float32. A
// row's result depends on no other row, and is the same with every processor's kernels and on any number of threads
// ([codes.Product]).

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

// codesLaneBytes is what a lane takes: also a row of inputs as float32, and a row of results.
func codesLaneBytes(m, n, k int) int64 { return codes.LaneBytes(m, k) + ops.ScratchBytes(4, k, n) }

// codesWork returns the scratch of a product by codes.
func codesWork(threads, m, n, k int) int64 {
	return codes.SharedBytes(m, k) + int64(min(threads, mostLanes))*codesLaneBytes(m, n, k)
}

// A codesCall is a linear by codes.
type codesCall struct {
	codes.Product
	x    ops.View
	lead tensor.Layout
	// rows are room for a row of inputs of each lane, rooms for one of results.
	rows, rooms [][]float32
	// finish does what the linear's ending says: it has the residual and the activation.
	finish *gemmCall[float32]
}

var codesCalls = sync.Pool{New: func() any { return new(codesCall) }}

// linearByCodes is linear in the precision int8.
func linearByCodes(c *ops.Call) {
	x, w, out := c.In[0], c.In[1], c.Out[0]
	g := codesCalls.Get().(*codesCall)
	g.N, g.K = w.Shape()[0], x.Shape()[len(x.Shape())-1]
	g.M = ops.Volume(x.Shape()[:len(x.Shape())-1])
	work := ops.Scratch(c.Work)
	if g.M > 0 && g.N > 0 {
		g.Bias = rowIn(c.Operand(2), ops.TakeReal[float32](&work, g.N))
		g.x, g.lead, g.Set = x, x.Layout.Leading(1), c.Pool.Set
		g.Blocks, g.Width, g.Stride = ops.Elements[byte](w)[w.Layout.Offset:], w.Shape()[1], w.Layout.Strides[0]
		encoding := c.Attrs.String(graph.EncodingAttr)
		g.Expand, g.Panel, g.Minima = codes.Of(encoding), codes.PanelingOf(g.Set, encoding), codes.Minima(encoding)
		g.Lining = codes.LiningOf(g.Set, encoding)
		g.Out = ops.Elements[float32](out)[out.Layout.Offset:]
		left := int64(len(work)) - codes.SharedBytes(g.M, g.K)
		lanes := max(1, min(c.Pool.Threads(), mostLanes, int(left/codesLaneBytes(g.M, g.N, g.K))))
		g.Take(lanes, &work)
		for range lanes {
			g.rows, g.rooms = append(g.rows, ops.TakeReal[float32](&work, g.K)),
				append(g.rooms, ops.TakeReal[float32](&work, g.N))
		}
		g.finish = takeGemm[float32]()
		g.finish.set = g.Set
		g.finish.o.ending = ending[float32]{residual: c.Operand(graph.LinearResidual), act: activationOf(c.Attrs)}
		tasks.Do(c.Pool, lanes, 1, codesInputs{g})
		tasks.Do(c.Pool, lanes, 1, codesLines{g})
		if g.finish.o.ending.any() {
			tasks.Do(c.Pool, lanes, 1, codesEndings{g})
		}
		g.finish.release()
	}
	g.Reset()
	clear(g.rows)
	clear(g.rooms)
	g.x, g.lead, g.finish, g.rows, g.rooms = ops.View{}, tensor.Layout{}, nil, g.rows[:0], g.rooms[:0]
	codesCalls.Put(g)
}

// codesInputs is the task that rounds inputs: a part is a lane.
type codesInputs struct{ *codesCall }

// Run implements Task.
func (g *codesInputs) Run(from, to int) {
	for lane := from; lane < to; lane++ {
		first, end := g.Share(lane, g.M)
		for r := first; r < end; r++ {
			row, at, step := g.rows[lane], g.lead.OffsetOf(r), ops.LastStride(g.x.Layout)
			if step == 1 {
				row = ops.Elements[float32](g.x)[at:][:g.K]
			} else {
				ops.LoadReal(row, g.x, at, step)
			}
			g.Round(r, row)
		}
	}
}

// codesLines is the task that multiplies: a part is a lane, which has some lines of the weight.
type codesLines struct{ *codesCall }

// Run implements Task.
func (g *codesLines) Run(from, to int) {
	for lane := from; lane < to; lane++ {
		g.Multiply(lane)
	}
}

// codesEndings is the task that does what comes after the products: a part is a lane, which has some rows.
type codesEndings struct{ *codesCall }

// Run implements Task.
func (g *codesEndings) Run(from, to int) {
	for lane := from; lane < to; lane++ {
		first, end := g.Share(lane, g.M)
		if first < end {
			g.finish.finish(lane, completeSums[float32]{row: first, rows: end - first, width: g.N,
				c: g.Out[first*g.N:], ldc: g.N}, g.rooms[lane])
		}
	}
}
