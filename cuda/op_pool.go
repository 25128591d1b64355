package cuda

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// poolKernels reduce windows: kernels/pool.cu.
var poolKernels = map[graph.Kind]kernel{
	"max_pool":          {supports: supportsReduction, launch: launchMaxPool},
	"adaptive_max_pool": {supports: supportsReduction, launch: launchMaxPool},
	"avg_pool":          {supports: realOrInt64, work: avgPoolWork, launch: launchAvgPool},
	"adaptive_avg_pool": {supports: onlyReal, work: avgPoolWork, launch: launchAvgPool},
	"max_unpool":        {supports: supportsUnpool, work: unpoolWork, launch: launchMaxUnpool},
}

func realOrInt64(in, _ []graph.Spec, _ graph.Attrs) error {
	if d := in[0].DType; !isReal(d) && d != tensor.Int64 {
		return fmt.Errorf("it takes floats and int64, not %v", d)
	}
	return nil
}

// sharedRows is ROWS of kernels/pool.cu: the outputs that a thread has one below the other where their windows overlap.
const sharedRows = 4

// enoughThreads is how many threads have work before a thread takes more of it.
const enoughThreads = processors * 1024

// poolSizes returns the pool_sizes of kernels/pool.cu, and how many threads there are.
func (l *launch) poolSizes() (list []int, n int64) {
	x, a := l.in[0], l.attrs
	in, size := threes(x.shape()[2:], 1), threes(l.out[0].shape()[2:], 1)
	kernel, stride, dilation := threes(a.Ints("kernel"), 1), threes(a.Ints("stride"), 1), threes(a.Ints("dilation"), 1)
	adaptive, outputs := a.Ints("kernel") == nil, l.out[0].size()
	rows := 1
	if !adaptive && kernel[1] > stride[1] && dilation[1] == 1 && outputs >= sharedRows*l.s.d.enough {
		rows = sharedRows
	}
	down := int(ceilDiv(int64(size[1]), int64(rows)))
	list = l.s.divisorInts(int64(x.shape()[1]), outputs)
	for d, n := range size {
		// Adaptive windows divide more than what counts outputs.
		list = append(list, l.s.divisorInts(int64(n), max(outputs, (int64(n)+1)*(int64(in[d])+1)))...)
	}
	list = append(append(list, l.s.divisorInts(int64(down), outputs)...), x.layout.Strides[0], x.layout.Strides[1])
	for _, three := range [][3]int{in, threes(x.layout.Strides[2:], 0), kernel, stride, threes(a.Ints("padding"), 0), dilation} {
		list = append(list, three[:]...)
	}
	list = append(list, flag(adaptive), flag(a.Bool("count_include_pad")), a.Int("divisor"), rows)
	if outputs == 0 {
		return list, 0
	}
	return list, outputs / int64(size[1]) * int64(down)
}

func launchMaxPool(l *launch) error {
	x, out, where := l.in[0], l.out[0], operand{}
	if len(l.out) > 1 {
		where = l.out[1]
	}
	name := "om_max_pool_i"
	switch {
	case x.dtype == tensor.Float64:
		name = "om_max_pool_d"
	case isReal(x.dtype):
		name = "om_max_pool_f"
	}
	sizes, n := l.poolSizes()
	c := l.call(name).write(out).write(where).read(x).i32(dtypeCodes[x.dtype]).ints(len(sizes), sizes...)
	return c.i64(n).over(n)
}

// overAll reports whether a mean is of whole channels: the windows, one for each, cover everything and nothing else.
func overAll(in, out []graph.Spec, a graph.Attrs) bool {
	if !isReal(in[0].DType) || a.Int("divisor") != 0 {
		return false
	}
	if n, err := out[0].Shape[2:].NumElements(); err != nil || n != 1 {
		return false
	}
	kernel := a.Ints("kernel")
	return kernel == nil || slices.Equal(kernel, in[0].Shape[2:]) && threes(a.Ints("padding"), 0) == [3]int{}
}

// avgPoolWork is that of a mean of rows, where a mean is of whole channels.
func avgPoolWork(in, out []graph.Spec, a graph.Attrs) int64 {
	if !overAll(in, out, a) {
		return 0
	}
	return reductionWork(in, out, a)
}

func launchAvgPool(l *launch) error {
	x, out := l.in[0], l.out[0]
	specs := func(o operand) []graph.Spec { return []graph.Spec{{DType: o.dtype, Shape: o.shape()}} }
	if overAll(specs(x), specs(out), l.attrs) {
		mean := *l
		var space []int
		for d := range x.shape()[2:] {
			space = append(space, 2+d)
		}
		mean.kind, mean.attrs = "mean", graph.Attrs{"dims": space, "keepdim": true}
		return launchReduction(&mean)
	}
	name := "om_avg_pool_f"
	switch {
	case !isReal(x.dtype):
		name = "om_avg_pool_i"
	case x.dtype == tensor.Float64:
		name = "om_avg_pool_d"
	}
	sizes, n := l.poolSizes()
	return l.call(name).write(out).read(x).i32(dtypeCodes[x.dtype]).ints(len(sizes), sizes...).i64(n).over(n)
}

// mostCounted is the most elements that the kernels count in an int.
const mostCounted = 1<<31 - 1

func supportsUnpool(in, _ []graph.Spec, _ graph.Attrs) error {
	if in[0].DType.Size() > 8 {
		return fmt.Errorf("it does not take %v", in[0].DType)
	}
	if n, err := in[0].Shape[2:].NumElements(); err != nil || n > mostCounted {
		return fmt.Errorf("channels of %v", in[0].Shape[2:])
	}
	return nil
}

// unpoolWork is room for an int for each element of the result.
func unpoolWork(_, out []graph.Spec, _ graph.Attrs) int64 {
	return contiguousBytes(graph.Spec{DType: tensor.Int32, Shape: out[0].Shape})
}

// launchMaxUnpool writes elements where indices say, the last of several.
func launchMaxUnpool(l *launch) error {
	x, index, out := l.in[0], l.in[1], l.out[0]
	n, m := out.size(), x.size()
	if n == 0 {
		return nil
	}
	channels := int64(out.shape()[0]) * int64(out.shape()[1])
	per, pixels := m/channels, n/channels
	last := l.work.slice(0, n*4)
	if err := l.call("om_none").scratch(last).i64(n).over(n); err != nil {
		return err
	}
	c := l.call("om_last").scratch(last).read(index).layout(index.layout).divisor(per, m).i64(pixels).i64(m)
	if err := c.status().over(m); err != nil {
		return err
	}
	c = l.call(fmt.Sprintf("om_unpool_%d", out.dtype.Size())).write(out).read(x).layout(x.layout).scratch(last)
	return c.i64(per).divisor(pixels, n).i64(n).over(n)
}
