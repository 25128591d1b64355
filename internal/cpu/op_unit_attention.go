package cpu

import (
	"bytes"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/blocked"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// unitAttentionKernels is attention by a matrix unit, which only package arrange makes.
var unitAttentionKernels = map[graph.Kind]ops.Kernel{
	// scaled_dot_product_attention over rows of bfloat16, with a blocked.UnitAttention; In[3] is the mask.
	"attention32": {
		Run: runAttention32, WorkOn: attention32Work, Cost: attention32Cost, Label: unitLabel("attention32"),
	},
}

func attention32Of(a graph.Attrs) *blocked.UnitAttention {
	return a["attention"].(*blocked.UnitAttention)
}

func attention32Work(threads int, _, _ []graph.Spec, a graph.Attrs) int64 {
	return attention32Of(a).WorkBytes(threads)
}

func attention32Cost(in, out []graph.Spec, a graph.Attrs) graph.Cost {
	c := blockedCost(0)(in, out, a)
	u := attention32Of(a)
	c.FLOPs = 2 * int64(len(u.Y.First)*u.Queries*u.Keys) * int64(u.Width+u.ValueWidth) / int64(unitSet(a).Speed)
	return c
}

func runAttention32(c *ops.Call) error {
	a := blocked.UnitAttentionArgs{
		Q: halves32(c.In[0]), K: halves32(c.In[1]), V: halves32(c.In[2]), Y: halves32(c.Out[0]),
		Work: ops.Elements[float32](ops.View{Data: c.Work}),
	}
	if mask := c.Operand(3); !mask.Absent() {
		a.Mask = func(head, query int, to []float32) bool { return maskRow(mask, head, query, to) }
	}
	return attention32Of(c.Attrs).Run(c.Ctx, c.Pool, a)
}

// maskRow writes what a mask adds to the scores of a query; it returns false where that is nothing.
func maskRow(mask ops.View, head, query int, to []float32) bool {
	l := mask.Layout
	rank := len(l.Shape)
	stride := l.Strides[rank-1]
	at := l.Leading(2).OffsetOf(head) + query*l.Strides[rank-2]
	if mask.DType != tensor.Bool {
		ops.LoadReal(to, mask, at, stride)
		return true
	}
	seen := ops.Elements[uint8](mask)
	if stride == 1 && bytes.IndexByte(seen[at:][:len(to)], 0) < 0 {
		return false
	}
	for i := range to {
		if to[i] = 0; seen[at+i*stride] == 0 {
			to[i] = hidden[0]
		}
	}
	return true
}
