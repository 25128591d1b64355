package elementwise

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor/encoded"
)

// decodeKernels make numbers of blocks of codes.
var decodeKernels = map[graph.Kind]ops.Kernel{"decode": {Run: runDecode}}

// runDecode: out[…, i·E + j] = number j of block i of in[0][…], as package encoded has it, blocks of E numbers.
func runDecode(c *ops.Call) error {
	e, in := graph.EncodingOf(c.Attrs), c.In[0]
	if in.Size() == 0 {
		return nil
	}
	shape := in.Shape()
	lead := in.Layout.Leading(1)
	rowBytes := shape[len(shape)-1]
	t := decoding{
		encoding: e, in: in, lead: ops.Volume(lead.Shape), rowBytes: rowBytes, numbers: int(e.Numbers(int64(rowBytes))),
		out: ops.Row[float32](c.Out[0]),
	}
	tasks.Do(c.Pool, t.lead, 1+ops.Grain/t.numbers, t)
	return nil
}

// decoding is the task of runDecode: a part is some rows.
type decoding struct {
	encoding                *encoded.Encoding
	in                      ops.View
	lead, rowBytes, numbers int
	out                     []float32
}

// Run implements Task.
func (t decoding) Run(from, to int) {
	lead, step := t.in.Layout.Leading(1), ops.LastStride(t.in.Layout)
	size := int(t.encoding.Bytes)
	var room [256]byte // a block, where its bytes lie apart
	for i := from; i < to; i++ {
		at, out := lead.OffsetOf(i), t.out[i*t.numbers:][:t.numbers]
		if step == 1 {
			t.encoding.Decode(out, t.in.Data[at:][:t.rowBytes])
			continue
		}
		for b := 0; b < t.rowBytes; b += size {
			for k := range size {
				room[k] = t.in.Data[at+(b+k)*step]
			}
			n := int(t.encoding.Elements)
			t.encoding.Decode(out[b/size*n:][:n], room[:size])
		}
	}
}
