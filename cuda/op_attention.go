package cuda

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// attentionKernels let positions look at each other: kernels/attention.cu.
var attentionKernels = map[layers.Kind]kernel{
	"scaled_dot_product_attention": {supports: supportsAttention, launch: launchAttention},
}

// The constants of kernels/attention.cu: the threads of a block, the queries that it takes, and the columns.
const (
	attentionThreads     = 128
	attentionRows        = 16
	attentionColumns     = 64
	attentionWideColumns = 128
)

// supportsAttention takes floats of one dtype, and any mask that the shape rule takes.
func supportsAttention(in, out []layers.Spec, a layers.Attrs) error {
	return onlyReal(in[:3], out, a)
}

// flag is 1 for true.
func flag(x bool) int {
	if x {
		return 1
	}
	return 0
}

// launchAttention computes softmax(in[0]·in[1]ᵀ·scale + in[3])·in[2].
func launchAttention(l *launch) error {
	q, k, v, a := l.in[0], l.in[1], l.in[2], l.attrs
	mask, maskBatches := operand{}, tensor.Contiguous(1)
	lineOf := func(o operand) (line, step int) {
		n := len(o.layout.Strides)
		return o.layout.Strides[n-2], o.layout.Strides[n-1]
	}
	var maskLine, maskStep int
	if len(l.in) > 3 && !l.in[3].absent() {
		mask, maskBatches = l.in[3], l.in[3].layout.Leading(2)
		maskLine, maskStep = lineOf(mask)
	}
	n := len(q.shape())
	batch := int64(1)
	for _, d := range q.shape()[:n-2] {
		batch *= int64(d)
	}
	queries, keys, width, values := q.shape()[n-2], k.shape()[n-2], q.shape()[n-1], v.shape()[n-1]
	if batch == 0 || queries == 0 {
		return nil
	}
	qLine, qStep := lineOf(q)
	kLine, kStep := lineOf(k)
	vLine, vStep := lineOf(v)
	sizes := []int{
		int(batch), queries, keys, width, values, qLine, qStep, kLine, kStep, vLine, vStep, maskLine, maskStep,
		flag(a.Bool("is_causal")), flag(a.Bool("unseen_nan")),
	}
	rest := func(c *call) *call {
		c.read(mask).layout(maskBatches).i32(dtypeCodes[q.dtype]).i32(dtypeCodes[mask.dtype]).ints(len(sizes), sizes...)
		if q.dtype == tensor.Float64 {
			return c.f64(a.Float("scale"))
		}
		return c.f32(float32(a.Float("scale")))
	}
	var also operand
	if len(l.out) > 1 && a.String("also") == "logsumexp" {
		also = l.out[1]
	}
	name, columns := "om_attention_f32", int64(attentionColumns)
	switch {
	case q.dtype == tensor.Float64:
		name = "om_attention_f64"
	case values > attentionColumns:
		name, columns = "om_attention_wide_f32", attentionWideColumns
	}
	c := l.call(name).write(l.out[0]).write(also).read(q).layout(q.layout.Leading(2)).read(k).layout(k.layout.Leading(2))
	c.read(v).layout(v.layout.Leading(2))
	units := batch * ceilDiv(int64(queries), attentionRows) * max(ceilDiv(int64(values), columns), 1)
	if err := rest(c).grid(dims{min(units, mostBlocks), 1, 1}, dims{attentionThreads, 1, 1}, 0); err != nil {
		return err
	}
	if a.String("also") != "weights" || keys == 0 {
		return nil
	}
	name = "om_attention_weights_f32"
	if q.dtype == tensor.Float64 {
		name = "om_attention_weights_f64"
	}
	c = l.call(name).write(l.out[1]).read(q).layout(q.layout.Leading(2)).read(k).layout(k.layout.Leading(2))
	return rest(c).grid(dims{min(ceilDiv(batch*int64(queries), attentionThreads/32), mostBlocks), 1, 1}, dims{attentionThreads, 1, 1}, 0)
}
