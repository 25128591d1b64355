package cpu

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/blocked"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// unitRowKernels are products of rows by a matrix unit, which only package arrange makes. Rows of bfloat16 lie as the pixels
// of a convolution do: [⌈C/32⌉, rows, 32], zero beyond C, so that a product of matrices is a convolution of pixels by themselves.
var unitRowKernels = map[graph.Kind]ops.Kernel{
	// Rows of float32, rounded.
	"rows32": {Run: runRows32, Cost: blockedCost(0)},
	// linear of rows of bfloat16, with a blocked.UnitConv. The result is rounded, for those that read nothing else, or
	// float32.
	"linear32": {
		Run: runLinear32, WorkOn: linear32Work, Packs: convPacksBlocked, Pack: packConvBlocked, Cost: linear32Cost,
		Label: unitLabel("linear32"),
	},
}

// RoundsRows reports whether "rows32" takes rows that lie so: each in order, and all equally far apart.
func RoundsRows(l tensor.Layout) bool {
	stride, even := ops.Evenly(l.Leading(1))
	return even && stride >= 0 && ops.LastStride(l) == 1
}

// runRows32: out[b, r, i] = in[0][r, 32·b + i].
func runRows32(c *ops.Call) error {
	rows, channels := c.Out[0].Shape()[1], c.In[0].Shape()[len(c.In[0].Shape())-1]
	tasks.Do(c.Pool, (rows+rows32Part-1)/rows32Part, max(1, ops.Grain/rows32Part/channels), roundRows{
		set: unitSet(c.Attrs), x: rowsOf(c.In[0]), out: halves32(c.Out[0]), rows: rows, channels: channels,
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
	src, rows := ops.Elements[float32](t.x.v), t.rows
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
	return int64(ops.RoundUp(4*in[1].Shape[0], 64)) + conv32Of(a).WorkBytes(threads, false)
}

func linear32Cost(in, out []graph.Spec, a graph.Attrs) graph.Cost {
	c := blockedCost(0)(in, out, a)
	conv := conv32Of(a)
	c.FLOPs = 2 * int64(conv.OutWidth*conv.In*conv.Out) / int64(unitSet(a).Speed)
	return c
}

func runLinear32(c *ops.Call) error {
	conv := conv32Of(c.Attrs)
	a := blocked.UnitArgs{X: halves32(c.In[0])}
	if w := c.In[1]; w.Packed {
		a.Packed = floats16(ops.View{Data: w.Data, DType: tensor.Float32})
	} else {
		a.Weight = weight16(w, &c.Weights[0])
	}
	work := ops.Elements[float32](ops.View{Data: c.Work})
	if b := c.Operand(2); !b.Absent() {
		a.Shift = work[:conv.Out]
		ops.LoadReal(a.Shift, b, b.Layout.Offset, b.Layout.Strides[0])
	}
	a.Work = work[ops.RoundUp(conv.Out, 16):]
	a.Act, a.A, a.B = actOf(c.Attrs)
	if out := c.Out[0]; out.DType == tensor.BFloat16 {
		a.Y = halves32(out)
	} else {
		a.Rows, a.RowPitch = floats16(out), conv.Out
		if r := c.Operand(3); !r.Absent() {
			a.RowResidual = floats16(r)
		}
	}
	return conv.Run(c.Ctx, c.Pool, a)
}
