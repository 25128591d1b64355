package cuda

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// rowKernels combine rows of elements: kernels/rows.cu.
var rowKernels = func() map[graph.Kind]kernel {
	all := map[graph.Kind]kernel{
		"softmax":     {supports: onlyReal, launch: func(l *launch) error { return launchSoftmax(l, 0) }},
		"log_softmax": {supports: onlyReal, launch: func(l *launch) error { return launchSoftmax(l, 1) }},
		"layer_norm":  {supports: realFirst, launch: func(l *launch) error { return launchRowNorm(l, 1) }},
		"rms_norm":    {supports: realFirst, launch: func(l *launch) error { return launchRowNorm(l, 0) }},
		"group_norm":  {supports: realFirst, launch: launchGroupNorm},
		"batch_norm":  {supports: realFirst, launch: launchBatchNorm},
	}
	for _, kind := range reductions {
		all[kind] = kernel{supports: supportsReduction, work: reductionWork, launch: launchReduction}
	}
	return all
}()

// reductions are those of kernels/rows.cu in the order of its enum.
var reductions = []graph.Kind{
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
func realFirst(in, out []graph.Spec, a graph.Attrs) error {
	if !isReal(in[0].DType) {
		return fmt.Errorf("it takes floats, not %v", in[0].DType)
	}
	return onlyNumbers(in, out, a)
}

// supportsReduction refuses unsigned integers of 64 bits, whose order the kernel does not know.
func supportsReduction(in, out []graph.Spec, a graph.Attrs) error {
	if in[0].DType == tensor.UInt64 {
		return fmt.Errorf("it does not take %v", in[0].DType)
	}
	return onlyNumbers(in, out, a)
}

// mostAcross is how many outputs or lines next to each other a block takes at most.
const mostAcross = 32

// partsOf returns into how many parts rows of count elements are cut: few long rows do not fill a GPU. It depends on nothing
// but the sizes, so that a sum has the same order wherever it is computed.
func partsOf(kind graph.Kind, outputs, count int64) int64 {
	const enough, each, most = 512, 4096, 512
	switch {
	case kind == "var" || kind == "std" || kind == "logsumexp", outputs == 0 || outputs >= enough:
		return 1
	}
	return max(min(enough/outputs, count/each, most), 1)
}

// reductionWork is room for what is found in parts of rows: a number and where.
func reductionWork(in, out []graph.Spec, a graph.Attrs) int64 {
	outputs, err := out[0].Shape.NumElements()
	all, err2 := in[0].Shape.NumElements()
	if err != nil || err2 != nil || outputs == 0 {
		return 0
	}
	// The kind is not known here: of those that have no parts this is more than they need.
	if parts := partsOf("", outputs, all/outputs); parts > 1 {
		return ceilDiv(outputs*parts*16, alignBytes) * alignBytes
	}
	return 0
}

// launchReduction combines the elements along some dimensions.
func launchReduction(l *launch) error {
	x, out := l.in[0], l.out[0]
	kept, gone := x.layout.Split(l.attrs.Ints("dims"))
	outputs, count := out.size(), int64(1)
	for _, n := range gone.Shape {
		count *= int64(n)
	}
	if outputs == 0 {
		return nil
	}
	var op int32
	for i, kind := range reductions {
		if kind == l.kind {
			op = int32(i)
		}
	}
	parts, across := partsOf(l.kind, outputs, count), int64(1)
	if beside(kept) && !beside(gone) && count > 1 {
		across = mostAcross
	}
	var order float64
	name := "i"
	if isReal(x.dtype) {
		name, order = "f", number(l.attrs, "ord", 0)
		if l.kind == "var" || l.kind == "std" {
			order = number(l.attrs, "correction", 0)
		}
	}
	if wholeRows(l.kind, order, x.dtype, gone) {
		return launchRows(l, kept, outputs, count, parts, op, order)
	}
	c := l.call("om_reduce_" + name).write(out).i32(dtypeCodes[out.dtype]).read(x).i32(dtypeCodes[x.dtype])
	c.layout(kept).layout(gone).i64(outputs).i64(count).i32(op)
	if name == "f" {
		c.f64(order)
	}
	c.i32(int32(across)).i64(parts)
	blocks := ceilDiv(outputs, across) * parts
	if parts == 1 {
		return c.i64(0).perRow(blocks)
	}
	noted := l.work.slice(0, outputs*parts*16)
	if err := c.scratch(noted).perRow(blocks); err != nil {
		return err
	}
	c = l.call("om_reduce_join_" + name).write(out).i32(dtypeCodes[out.dtype]).scratch(noted).i64(outputs)
	if name == "f" {
		return c.i64(count).i32(op).f64(order).i64(parts).perRow(outputs)
	}
	return c.i32(op).i64(parts).perRow(outputs)
}

// wholeRows reports whether om_reduce_rows can combine rows of such elements.
func wholeRows(kind graph.Kind, order float64, dtype tensor.DType, row tensor.Layout) bool {
	switch kind {
	case "sum", "nansum", "mean", "amax", "amin":
	case "norm":
		if order != 1 && order != 2 {
			return false
		}
	default:
		return false
	}
	row = row.Joined()
	return isReal(dtype) && dtype != tensor.Float64 && len(row.Shape) == 1 && row.Strides[0] == 1
}

// mostWarpRow is how many elements of a row, or of a part of one, a warp goes over; of longer ones a block does.
const mostWarpRow = 1024

// launchRows combines rows whose elements lie one behind the other.
func launchRows(l *launch, lines tensor.Layout, outputs, count, parts int64, op int32, order float64) error {
	x, out := l.in[0], l.out[0]
	fours, warps := count%4 == 0 && vectors(x, 4, 1, lines.Strides...), int64(1)
	if ceilDiv(count, parts) > mostWarpRow {
		warps = rowThreads / 32
	}
	c := l.call("om_reduce_rows").write(out).i32(dtypeCodes[out.dtype]).read(x).i32(dtypeCodes[x.dtype]).layout(lines)
	c.i64(outputs).i64(count).i32(op).f64(order).i64(parts).i64(ceilDiv(ceilDiv(count, parts), 4) * 4)
	if parts == 1 {
		return c.i64(0).i32(int32(flag(fours))).i32(int32(warps)).perWarps(outputs, warps)
	}
	noted := l.work.slice(0, outputs*parts*16)
	err := c.scratch(noted).i32(int32(flag(fours))).i32(int32(warps)).perWarps(outputs*parts, warps)
	if err != nil {
		return err
	}
	c = l.call("om_reduce_join_f").write(out).i32(dtypeCodes[out.dtype]).scratch(noted).i64(outputs)
	return c.i64(count).i32(op).f64(order).i64(parts).perRow(outputs)
}

// beside reports whether the elements of a view that follow each other lie next to each other.
func beside(l tensor.Layout) bool {
	l = l.Joined()
	n := len(l.Shape)
	return n > 0 && l.Strides[n-1] == 1 && l.Shape[n-1] > 1
}

// A row that the threads of one block hold in registers: kernels/rows.cu.
const (
	rowWarpElements = 512
	mostRowWarps    = 16
)

// rowWarps returns how many warps hold a row of count elements, 0 where they cannot, or where it is not read in fours.
func rowWarps(x, out operand, count int64, strides ...int) int64 {
	warps := ceilDiv(count, rowWarpElements)
	if x.dtype == tensor.Float64 || count%4 != 0 || warps > mostRowWarps || !vectors(x, 4, 1, strides...) ||
		!vectors(out, 4, 1) {
		return 0
	}
	return warps
}

// perWarps launches a block for each of n rows, or for four that a warp each holds.
func (c *call) perWarps(n, warps int64) error {
	if warps == 1 {
		return c.grid(dims{min(ceilDiv(n, rowThreads/32), mostBlocks), 1, 1}, dims{rowThreads, 1, 1}, 0)
	}
	return c.grid(dims{min(n, mostBlocks), 1, 1}, dims{32 * warps, 1, 1}, 0)
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
	safe := int32(flag(l.attrs.Bool("safe")))
	n := out.size() / count
	if warps := rowWarps(x, out, count, lines.Strides...); warps > 0 && step == 1 && inner == 1 {
		c := l.call("om_softmax_rows").write(out).read(x).i32(dtypeCodes[x.dtype]).layout(lines).i32(int32(count)).i64(n)
		return c.i32(logarithm).i32(safe).i32(int32(warps)).perWarps(n, warps)
	}
	across := int64(1)
	switch {
	case inner > 1 && count <= mostAcross: // a thread a line
		across = rowThreads
	case inner > 1:
		across = mostAcross
	}
	var c *call
	if x.dtype == tensor.Float64 {
		c = l.call("om_softmax_d").write(out).read(x)
	} else {
		c = l.call("om_softmax_f").write(out).read(x).i32(dtypeCodes[x.dtype])
	}
	c.layout(lines).i64(int64(step)).i64(count).i64(inner).i64(n).i32(logarithm).i32(safe).i32(int32(across))
	return c.perRow(ceilDiv(n, across))
}

// optional returns an operand that may be absent.
func (l *launch) optional(i int) operand {
	if i < len(l.in) {
		return l.in[i]
	}
	return operand{}
}

// flatParameters reports whether a norm's parameters lie one behind the other, and can be read in fours where each has one
// element of a row; otherwise four elements have the same.
func (l *launch) flatParameters(spatial int64) bool {
	for i := 1; i < 3; i++ {
		o := l.optional(i)
		if o.absent() {
			continue
		}
		flat := o.layout.Joined()
		if o.dtype == tensor.Float64 || len(flat.Shape) != 1 || flat.Strides[0] != 1 || spatial == 1 && !vectors(o, 4, 1) {
			return false
		}
	}
	return spatial == 1 || spatial%4 == 0
}

// parameter passes an operand that may be absent, its dtype and its view.
func (c *call) parameter(l *launch, i int) {
	o := l.optional(i)
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
	n := out.size() / count
	flat := row.Joined()
	warps := rowWarps(x, out, count, rows.Strides...)
	if warps > 0 && len(flat.Shape) == 1 && flat.Strides[0] == 1 && l.flatParameters(spatial) {
		c := l.call("om_norm_rows").write(out).read(x).i32(dtypeCodes[x.dtype]).layout(rows)
		for i := 1; i < 3; i++ {
			o := l.optional(i)
			c.read(o).i32(dtypeCodes[o.dtype])
		}
		c.i32(int32(count)).i64(n).i32(centred).f32(float32(eps)).i64(groups).i32(int32(channels)).i32(int32(spatial))
		return c.i32(int32(warps)).perWarps(n, warps)
	}
	name := "om_norm_f"
	if x.dtype == tensor.Float64 {
		name = "om_norm_d"
	}
	c := l.call(name).write(out).read(x).i32(dtypeCodes[x.dtype]).layout(rows).layout(row)
	c.parameter(l, 1)
	c.parameter(l, 2)
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
