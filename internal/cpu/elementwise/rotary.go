package elementwise

import (
	"sync"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// rotaryKernels turn pairs of elements.
var rotaryKernels = map[graph.Kind]ops.Kernel{
	"rotary": {Run: runRotary},
}

// A rotary is x × cos + (−second half of x, first half of x) × sin, a line at a time: its operands in this order.
type rotary struct {
	set   *simd.Set
	in    [3][]float32
	lines [3]tensor.Layout
	step  [3]int
	half  int
	out   []float32
	// of are operands of half floats, and to is their result, instead of in and out.
	of [3]ops.View
	to ops.View
}

var rotaryPool = sync.Pool{New: func() any { return new(rotary) }}

func runRotary(c *ops.Call) error {
	r := rotaryPool.Get().(*rotary)
	shape := c.Out[0].Shape()
	last := len(shape) - 1
	*r = rotary{set: c.Pool.Set, half: shape[last] / 2}
	for i, v := range c.In {
		r.lines[i], r.step[i] = v.Layout.Leading(1), v.Layout.Strides[last]
		if r.step[i] != 1 {
			r.set = nil
		}
	}
	if ops.IsHalf(c.Out[0].DType) {
		r.to = c.Out[0]
		copy(r.of[:], c.In)
	} else {
		r.out = ops.Elements[float32](c.Out[0])[c.Out[0].Layout.Offset:]
		for i, v := range c.In {
			r.in[i] = ops.Elements[float32](v)
		}
	}
	if r.half > 0 {
		c.Pool.Do(ops.Volume(shape[:last]), max(1, ops.Grain/shape[last]), r)
	}
	*r = rotary{}
	rotaryPool.Put(r)
	return nil
}

// Run implements Task. The bits are those of two products and a sum, since −a × b is −(a × b).
func (r *rotary) Run(from, to int) {
	held := ops.NewBlockBuffer()
	defer ops.BlockBuffers.Put(held)
	for line := from; line < to; line++ {
		var at [3]int
		for i := range at {
			at[i] = r.lines[i].OffsetOf(line)
		}
		if ops.IsHalf(r.to.DType) {
			r.halves(ops.BlockOf[float32](held), line, at)
			continue
		}
		out := r.out[line*2*r.half:][:2*r.half]
		if r.set == nil {
			r.line(out, at)
			continue
		}
		x, cos, sin := r.in[0][at[0]:], r.in[1][at[1]:], r.in[2][at[2]:]
		if r.set.TurnPairs(x, cos, sin, out) {
			continue
		}
		for k := 0; k < r.half; k += ops.BlockElements {
			n := min(ops.BlockElements, r.half-k)
			crossed := ops.BlockOf[float32](held)[:n]
			x1, x2 := x[k:][:n], x[r.half+k:][:n]
			one, two := out[k:][:n], out[r.half+k:][:n]
			r.set.Map(simd.MapMul, one, x1, cos[k:][:n], nil, 0, 0, 0)
			r.set.Map(simd.MapMul, crossed, x2, sin[k:][:n], nil, 0, 0, 0)
			r.set.Map(simd.MapSub, one, one, crossed, nil, 0, 0, 0)
			r.set.Map(simd.MapMul, two, x2, cos[r.half+k:][:n], nil, 0, 0, 0)
			r.set.Map(simd.MapMul, crossed, x1, sin[r.half+k:][:n], nil, 0, 0, 0)
			r.set.Map(simd.MapAdd, two, two, crossed, nil, 0, 0, 0)
		}
	}
}

// line computes a line of any strides.
func (r *rotary) line(out []float32, at [3]int) {
	get := func(operand, i int) float32 { return r.in[operand][at[operand]+i*r.step[operand]] }
	for k := range r.half {
		x1, x2 := get(0, k), get(0, r.half+k)
		// The conversions keep products and sums apart.
		out[k] = float32(x1*get(1, k)) - float32(x2*get(2, k))
		out[r.half+k] = float32(x2*get(1, r.half+k)) + float32(x1*get(2, r.half+k))
	}
}

// halves computes a line of half floats.
func (r *rotary) halves(room []float32, line int, at [3]int) {
	const each = ops.BlockElements / 4
	for k := 0; k < r.half; k += each {
		n := min(each, r.half-k)
		x1, x2, p, q := room[:n], room[each:][:n], room[2*each:][:n], room[3*each:][:n]
		load := func(to []float32, operand, from int) {
			ops.LoadReal(to, r.of[operand], at[operand]+from*r.step[operand], r.step[operand])
		}
		first := r.to.Layout.Offset + line*2*r.half + k
		load(x1, 0, k)
		load(x2, 0, r.half+k)
		load(p, 1, k)
		load(q, 2, k)
		r.products(p, x1)
		r.products(q, x2)
		for j := range n {
			p[j] -= q[j]
		}
		ops.StoreReal(r.to, first, p)
		load(p, 1, r.half+k)
		load(q, 2, r.half+k)
		r.products(p, x2)
		r.products(q, x1)
		for j := range n {
			p[j] += q[j]
		}
		ops.StoreReal(r.to, first+r.half, p)
	}
}

// products multiplies, and rounds to half floats.
func (r *rotary) products(p, by []float32) {
	if r.to.DType == tensor.BFloat16 {
		for j, x := range by {
			p[j] = tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(p[j] * x))
		}
		return
	}
	for j, x := range by {
		p[j] = tensor.Float16ToFloat32(tensor.Float16FromFloat32(p[j] * x))
	}
}
