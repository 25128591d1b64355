package cpu

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor/encoded"
)

// decodeKernels make numbers of blocks of codes.
var decodeKernels = map[graph.Kind]kernel{"decode": {run: runDecode}}

// runDecode: out[…, i·E + j] = number j of block i of in[0][…], as package encoded has it, blocks of E numbers.
func runDecode(c *call) error {
	e, in := graph.EncodingOf(c.attrs), c.in[0]
	if in.size() == 0 {
		return nil
	}
	shape := in.shape()
	lead := in.layout.Leading(1)
	rowBytes := shape[len(shape)-1]
	t := decoding{
		encoding: e, in: in, lead: volume(lead.Shape), rowBytes: rowBytes, numbers: int(e.Numbers(int64(rowBytes))),
		out: row[float32](c.out[0]),
	}
	tasks.Do(c.pool, t.lead, 1+grain/t.numbers, t)
	return nil
}

// decoding is the task of runDecode: a part is some rows.
type decoding struct {
	encoding                *encoded.Encoding
	in                      view
	lead, rowBytes, numbers int
	out                     []float32
}

// Run implements Task.
func (t decoding) Run(from, to int) {
	lead, step := t.in.layout.Leading(1), lastStride(t.in.layout)
	size := int(t.encoding.Bytes)
	var room [256]byte // a block, where its bytes lie apart
	for i := from; i < to; i++ {
		at, out := lead.OffsetOf(i), t.out[i*t.numbers:][:t.numbers]
		if step == 1 {
			t.encoding.Decode(out, t.in.data[at:][:t.rowBytes])
			continue
		}
		for b := 0; b < t.rowBytes; b += size {
			for k := range size {
				room[k] = t.in.data[at+(b+k)*step]
			}
			n := int(t.encoding.Elements)
			t.encoding.Decode(out[b/size*n:][:n], room[:size])
		}
	}
}
