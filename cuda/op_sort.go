package cuda

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// sortKernels order lines and add them up: kernels/sort.cu.
var sortKernels = map[graph.Kind]kernel{
	"sort":         {supports: onlyNumbers, work: sortWork, launch: launchSort},
	"topk":         {supports: onlyNumbers, work: sortWork, launch: launchSort},
	"kthvalue":     {supports: onlyNumbers, work: sortWork, launch: launchSort},
	"median":       {supports: onlyNumbers, work: sortWork, launch: launchSort},
	"mode":         {supports: onlyNumbers, work: sortWork, launch: launchSort},
	"cumsum":       {supports: onlyNumbers, launch: launchScan},
	"cumprod":      {supports: onlyNumbers, launch: launchScan},
	"logcumsumexp": {supports: onlyReal, launch: launchScan},
	"cummax":       {supports: supportsReduction, launch: launchScan},
	"cummin":       {supports: supportsReduction, launch: launchScan},
	"histc":        {supports: supportsHistogram, work: histogramWork, launch: launchHistogram},
	"cdist":        {supports: onlyReal, launch: launchDistances},
}

// scans are those of kernels/sort.cu.
var scans = map[graph.Kind]int32{"cumsum": 0, "cumprod": 1, "logcumsumexp": 2, "cummax": 3, "cummin": 4}

// THREADS and SHARED of kernels/sort.cu, the bytes of an element being sorted, and the most blocks that have room in memory.
const (
	sortThreads    = 256
	sortShared     = 1024
	rankedBytes    = 16
	mostSortBlocks = 64
)

// sortRoom returns how much room a line of n elements takes: a power of two.
func sortRoom(n int64) int64 {
	room := int64(2)
	for room < n {
		room *= 2
	}
	return room
}

// sortBlocks returns how many of lines are sorted at a time.
func sortBlocks(room, lines int64) int64 {
	if room <= sortShared {
		return min(lines, mostBlocks)
	}
	return min(lines, mostSortBlocks)
}

func sortWork(in, _ []graph.Spec, a graph.Attrs) int64 {
	n, err := in[0].Shape.NumElements()
	count := along(in[0].Shape, a.Int("dim"))
	room := sortRoom(count)
	if err != nil || n == 0 || room <= sortShared {
		return 0
	}
	return sortBlocks(room, n/count) * room * rankedBytes
}

// A lined operand is one seen as lines along a dimension.
type lined struct {
	lines              tensor.Layout
	step, count, inner int64
	n                  int64
}

// linesAlong returns the lines of an operand with elements; inner is how many lines lie between the elements of one in a
// contiguous tensor.
func linesAlong(o operand, d int) lined {
	shape := append(tensor.Shape{}, o.shape()...)
	x := lined{count: along(shape, d), inner: 1}
	if len(shape) > 0 {
		shape[d] = 1
		for _, n := range shape[d+1:] {
			x.inner *= int64(n)
		}
	}
	x.lines, x.step = across(o.layout, shape, d)
	x.n = o.size() / max(x.count, 1)
	return x
}

// launchSort gives elements of lines that are in order.
func launchSort(l *launch) error {
	x, out, where := l.in[0], l.out[0], l.out[1]
	if out.size() == 0 {
		return nil
	}
	v := linesAlong(x, l.attrs.Int("dim"))
	descending := l.attrs.Bool("descending") || l.attrs.Bool("largest")
	k, what := v.count, int32(0)
	switch l.kind {
	case "topk":
		k = int64(l.attrs.Int("k"))
	case "kthvalue":
		k, what = int64(l.attrs.Int("k")), 1
	case "median":
		what = 2
		if l.attrs.Bool("ignore_nan") {
			what = 3
		}
	case "mode":
		what = 4
	}
	room := sortRoom(v.count)
	blocks := sortBlocks(room, v.n)
	c := l.call("om_sort").write(out).write(where).read(x).i32(dtypeCodes[x.dtype]).i32(int32(x.dtype.Size()))
	c.layout(v.lines).i64(v.step).i64(v.count).i64(room)
	if room > sortShared {
		c.scratch(l.work.slice(0, blocks*room*rankedBytes))
	} else {
		c.i64(0)
	}
	c.i32(int32(flag(descending))).i32(what).i64(k).i64(v.inner).i64(v.n)
	return c.grid(dims{blocks, 1, 1}, dims{sortThreads, 1, 1}, 0)
}

// launchScan combines each element with those before it.
func launchScan(l *launch) error {
	x, out, where := l.in[0], l.out[0], operand{}
	if out.size() == 0 {
		return nil
	}
	if len(l.out) > 1 {
		where = l.out[1]
	}
	v := linesAlong(x, l.attrs.Int("dim"))
	name := "om_scan_i"
	if isReal(x.dtype) {
		name = "om_scan_d"
	}
	c := l.call(name).write(out).write(where).read(x).i32(dtypeCodes[x.dtype]).layout(v.lines).i64(v.step).i64(v.count)
	c.i64(v.inner).i32(scans[l.kind]).i64(v.n)
	return c.grid(dims{min(v.n, mostBlocks), 1, 1}, dims{sortThreads, 1, 1}, 0)
}

// supportsHistogram counts in ints.
func supportsHistogram(in, out []graph.Spec, a graph.Attrs) error {
	if n, err := in[0].Shape.NumElements(); err != nil || n > mostCounted {
		return fmt.Errorf("%v has more elements than it counts", in[0].Shape)
	}
	return supportsReduction(in, out, a)
}

func histogramWork(_, _ []graph.Spec, a graph.Attrs) int64 {
	return contiguousBytes(graph.Spec{DType: tensor.Int32, Shape: tensor.Shape{a.Int("bins")}})
}

// launchHistogram counts elements in equal parts of a range.
func launchHistogram(l *launch) error {
	x, bins := l.in[0], int64(l.attrs.Int("bins"))
	c := l.call("om_histogram").write(l.out[0]).scratch(l.work.slice(0, bins*4)).read(x).i32(dtypeCodes[x.dtype])
	c.layout(x.layout).i64(x.size()).i64(bins).f64(l.attrs.Float("min")).f64(l.attrs.Float("max"))
	return c.status().grid(dims{1, 1, 1}, dims{sortThreads, 1, 1}, 0)
}

// launchDistances computes the distances between rows.
func launchDistances(l *launch) error {
	x, y, out := l.in[0], l.in[1], l.out[0]
	n, r := out.size(), len(x.shape())
	c := l.call("om_distances").write(out).read(x).i32(dtypeCodes[x.dtype]).layout(x.layout.Leading(2))
	c.i64(int64(x.layout.Strides[r-2])).i64(int64(x.layout.Strides[r-1])).read(y).layout(y.layout.Leading(2))
	c.i64(int64(y.layout.Strides[r-2])).i64(int64(y.layout.Strides[r-1]))
	c.i64(int64(x.shape()[r-2])).i64(int64(y.shape()[r-2])).i64(int64(x.shape()[r-1]))
	return c.f64(l.attrs.Float("p")).i64(n).over(n)
}
