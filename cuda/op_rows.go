package cuda

import (
	"fmt"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// rowKernels combine rows of elements: kernels/rows.cu.
var rowKernels = func() map[layers.Kind]kernel {
	all := map[layers.Kind]kernel{
		"softmax":     {supports: onlyReal, launch: func(l *launch) error { return launchSoftmax(l, 0) }},
		"log_softmax": {supports: onlyReal, launch: func(l *launch) error { return launchSoftmax(l, 1) }},
		"layer_norm":  {supports: realFirst, launch: func(l *launch) error { return launchRowNorm(l, 1) }},
		"rms_norm":    {supports: realFirst, launch: func(l *launch) error { return launchRowNorm(l, 0) }},
		"group_norm":  {supports: realFirst, launch: launchGroupNorm},
		"batch_norm":  {supports: realFirst, launch: launchBatchNorm},
	}
	for _, kind := range reductions {
		all[kind] = kernel{supports: supportsReduction, launch: launchReduction}
	}
	return all
}()

// reductions are those of kernels/rows.cu in the order of its enum.
var reductions = []layers.Kind{
	"sum", "nansum", "prod", "mean", "amax", "amin", "any", "all", "count_nonzero", "norm", "var", "std", "logsumexp", "argmax",
	"argmin",
}

// rowThreads is THREADS of kernels/rows.cu.
const rowThreads = 128

// perRow launches a block for each of n rows.
func (c *call) perRow(n int64) error {
	if n == 0 {
		return c.err
	}
	return c.grid(dims{min(n, mostBlocks), 1, 1}, dims{rowThreads, 1, 1}, 0)
}

// realFirst is the support of ops whose first operand is of floats and whose parameters may be of wider ones.
func realFirst(in, out []layers.Spec, a layers.Attrs) error {
	if !isReal(in[0].DType) {
		return fmt.Errorf("it takes floats, not %v", in[0].DType)
	}
	return onlyNumbers(in, out, a)
}

// supportsReduction refuses unsigned integers of 64 bits, whose order the kernel does not know.
func supportsReduction(in, out []layers.Spec, a layers.Attrs) error {
	if in[0].DType == tensor.UInt64 {
		return fmt.Errorf("it does not take %v", in[0].DType)
	}
	return onlyNumbers(in, out, a)
}

// launchReduction combines the elements along some dimensions.
func launchReduction(l *launch) error {
	x, out := l.in[0], l.out[0]
	kept, gone := x.layout.Split(l.attrs.Ints("dims"))
	outputs, count := out.size(), int64(1)
	for _, n := range gone.Shape {
		count *= int64(n)
	}
	var op int32
	for i, kind := range reductions {
		if kind == l.kind {
			op = int32(i)
		}
	}
	if !isReal(x.dtype) {
		c := l.call("om_reduce_i").write(out).i32(dtypeCodes[out.dtype]).read(x).i32(dtypeCodes[x.dtype])
		return c.layout(kept).layout(gone).i64(outputs).i64(count).i32(op).perRow(outputs)
	}
	order := number(l.attrs, "ord", 0)
	if l.kind == "var" || l.kind == "std" {
		order = number(l.attrs, "correction", 0)
	}
	c := l.call("om_reduce_f").write(out).i32(dtypeCodes[out.dtype]).read(x).i32(dtypeCodes[x.dtype])
	return c.layout(kept).layout(gone).i64(outputs).i64(count).i32(op).f64(order).perRow(outputs)
}

// launchSoftmax computes softmax along a dimension, or its logarithm.
func launchSoftmax(l *launch, logarithm int32) error {
	x, out := l.in[0], l.out[0]
	if out.size() == 0 {
		return nil
	}
	count, step, inner := int64(1), 0, int64(1)
	lines := tensor.Layout{}
	for d, n := range x.shape() {
		if d == l.attrs.Int("dim") {
			count, step = int64(n), x.layout.Strides[d]
			continue
		}
		if d > l.attrs.Int("dim") {
			inner *= int64(n)
		}
		lines.Shape, lines.Strides = append(lines.Shape, n), append(lines.Strides, x.layout.Strides[d])
	}
	safe := int32(0)
	if l.attrs.Bool("safe") {
		safe = 1
	}
	n := out.size() / count
	var c *call
	if x.dtype == tensor.Float64 {
		c = l.call("om_softmax_d").write(out).read(x)
	} else {
		c = l.call("om_softmax_f").write(out).read(x).i32(dtypeCodes[x.dtype])
	}
	return c.layout(lines).i64(int64(step)).i64(count).i64(inner).i64(n).i32(logarithm).i32(safe).perRow(n)
}

// parameter passes an operand that may be absent, its dtype and its view.
func (c *call) parameter(l *launch, i int) {
	o := operand{}
	if i < len(l.in) {
		o = l.in[i]
	}
	view := o.layout
	if o.absent() {
		view = tensor.Contiguous(1)
	}
	c.read(o).i32(dtypeCodes[o.dtype]).layout(view)
}

// normed launches a norm over rows of count elements; see kernels/rows.cu for what parameters go with which.
func (l *launch) normed(rows, row tensor.Layout, centred int32, groups, channels, spatial int64) error {
	x, out, eps := l.in[0], l.out[0], l.attrs.Float("eps")
	if out.size() == 0 {
		return nil
	}
	count := int64(1)
	for _, n := range row.Shape {
		count *= int64(n)
	}
	name := "om_norm_f"
	if x.dtype == tensor.Float64 {
		name = "om_norm_d"
	}
	c := l.call(name).write(out).read(x).i32(dtypeCodes[x.dtype]).layout(rows).layout(row)
	c.parameter(l, 1)
	c.parameter(l, 2)
	n := out.size() / count
	c.i64(n).i64(count).i32(centred)
	if x.dtype == tensor.Float64 {
		c.f64(eps)
	} else {
		c.f32(float32(eps))
	}
	return c.i64(groups).i64(channels).i64(spatial).perRow(n)
}

// launchRowNorm normalises over the last dimensions; centred by the mean, or not at all.
func launchRowNorm(l *launch, centred int32) error {
	x := l.in[0].layout
	at := len(x.Shape) - l.attrs.Int("dims")
	row := tensor.Layout{Shape: x.Shape[at:], Strides: x.Strides[at:]}
	return l.normed(x.Leading(len(x.Shape)-at), row, centred, 1, 0, 1)
}

// launchGroupNorm normalises over the channels of a group and all positions.
func launchGroupNorm(l *launch) error {
	x, groups := l.in[0].layout, l.attrs.Int("groups")
	channels, spatial := x.Shape[1]/groups, int64(1)
	rows := tensor.Layout{
		Shape: tensor.Shape{x.Shape[0], groups}, Strides: []int{x.Strides[0], x.Strides[1] * channels},
	}
	row := tensor.Layout{Shape: tensor.Shape{channels}, Strides: []int{x.Strides[1]}}
	for d := 2; d < len(x.Shape); d++ {
		row.Shape, row.Strides = append(row.Shape, x.Shape[d]), append(row.Strides, x.Strides[d])
		spatial *= int64(x.Shape[d])
	}
	return l.normed(rows, row, 1, int64(groups), int64(channels), max(spatial, 1))
}

// launchBatchNorm normalises channels by given means and variances.
func launchBatchNorm(l *launch) error {
	x, out, eps := l.in[0], l.out[0], l.attrs.Float("eps")
	n := out.size()
	if n == 0 {
		return nil
	}
	channels, spatial := x.shape()[1], int64(1)
	for _, d := range x.shape()[2:] {
		spatial *= int64(d)
	}
	name := "om_channel_norm_f"
	if x.dtype == tensor.Float64 {
		name = "om_channel_norm_d"
	}
	c := l.call(name).write(out).read(x).i32(dtypeCodes[x.dtype]).layout(x.layout)
	var steps []int
	for _, o := range l.in[1:] {
		c.read(o).i32(dtypeCodes[o.dtype])
		step := 0
		if !o.absent() {
			step = o.layout.Strides[0]
		}
		steps = append(steps, step)
	}
	c.ints(4, steps...).i64(int64(channels)).i64(spatial).i64(n)
	if x.dtype == tensor.Float64 {
		return c.f64(eps).over(n)
	}
	return c.f32(float32(eps)).over(n)
}
