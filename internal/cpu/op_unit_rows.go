package cpu

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/blocked"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// unitRowKernels are products of rows by a matrix unit, which only package arrange makes. Rows of bfloat16 lie as the pixels
// of a convolution do: [⌈C/32⌉, rows, 32], zero beyond C, so that a product of matrices is a convolution of pixels by themselves.
var unitRowKernels = map[graph.Kind]kernel{
	// Rows of float32, rounded.
	"rows32": {run: runRows32, cost: blockedCost(0)},
	// linear of rows of bfloat16, with a blocked.UnitConv. The result is rounded, for those that read nothing else, or
	// float32.
	"linear32": {
		run: runLinear32, workOn: linear32Work, packs: convPacksBlocked, pack: packConvBlocked, cost: linear32Cost,
		label: unitLabel("linear32"),
	},
}

// RoundsRows reports whether "rows32" takes rows that lie so: each in order, and all equally far apart.
func RoundsRows(l tensor.Layout) bool {
	stride, even := evenly(l.Leading(1))
	return even && stride >= 0 && lastStride(l) == 1
}

// runRows32: out[b, r, i] = in[0][r, 32·b + i].
func runRows32(c *call) error {
	rows, channels := c.out[0].shape()[1], c.in[0].shape()[len(c.in[0].shape())-1]
	tasks.Do(c.pool, (rows+rows32Part-1)/rows32Part, max(1, grain/rows32Part/channels), roundRows{
		set: unitSet(c.attrs), x: rowsOf(c.in[0]), out: halves32(c.out[0]), rows: rows, channels: channels,
	})
	return nil
}

// rows32Part is how many rows are rounded at a time.
const rows32Part = 32

// roundRows is the task of runRows32.
type roundRows struct {
	set            *simd.UnitSet
	x              factor
	out            []uint16
	rows, channels int
}

// Run implements Task.
func (t *roundRows) Run(from, to int) {
	src, rows := elements[float32](t.x.v), t.rows
	for i := from * rows32Part; i < to*rows32Part && i < rows; i += rows32Part {
		count := min(rows32Part, rows-i)
		for b := range blocked.UnitBlocks(t.channels) {
			at := b * blocked.UnitLanes
			to := t.out[(b*rows+i)*blocked.UnitLanes:][:count*blocked.UnitLanes]
			t.set.NarrowRows(src[t.x.offset+i*t.x.line+at:], t.x.line, t.channels-at, to)
		}
	}
}

func linear32Work(threads int, in, _ []graph.Spec, a graph.Attrs) int64 {
	return int64(roundUp(4*in[1].Shape[0], 64)) + conv32Of(a).WorkBytes(threads, false)
}

func linear32Cost(in, out []graph.Spec, a graph.Attrs) graph.Cost {
	c := blockedCost(0)(in, out, a)
	conv := conv32Of(a)
	c.FLOPs = 2 * int64(conv.OutWidth*conv.In*conv.Out) / int64(unitSet(a).Speed)
	return c
}

func runLinear32(c *call) error {
	conv := conv32Of(c.attrs)
	a := blocked.UnitArgs{X: halves32(c.in[0])}
	if w := c.in[1]; w.packed {
		a.Packed = floats16(view{data: w.data, dtype: tensor.Float32})
	} else {
		a.Weight = weight16(w, &c.weights[0])
	}
	work := elements[float32](view{data: c.work})
	if b := c.operand(2); !b.absent() {
		a.Shift = work[:conv.Out]
		loadReal(a.Shift, b, b.layout.Offset, b.layout.Strides[0])
	}
	a.Work = work[roundUp(conv.Out, 16):]
	a.Act, a.A, a.B = actOf(c.attrs)
	if out := c.out[0]; out.dtype == tensor.BFloat16 {
		a.Y = halves32(out)
	} else {
		a.Rows, a.RowPitch = floats16(out), conv.Out
		if r := c.operand(3); !r.absent() {
			a.RowResidual = floats16(r)
		}
	}
	return conv.Run(c.ctx, c.pool, a)
}
