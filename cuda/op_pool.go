package cuda

import (
	"fmt"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// poolKernels reduce windows: kernels/pool.cu.
var poolKernels = map[layers.Kind]kernel{
	"max_pool":          {supports: supportsReduction, launch: launchMaxPool},
	"adaptive_max_pool": {supports: supportsReduction, launch: launchMaxPool},
	"avg_pool":          {supports: realOrInt64, launch: launchAvgPool},
	"adaptive_avg_pool": {supports: onlyReal, launch: launchAvgPool},
	"max_unpool":        {supports: supportsUnpool, work: unpoolWork, launch: launchMaxUnpool},
}

func realOrInt64(in, _ []layers.Spec, _ layers.Attrs) error {
	if d := in[0].DType; !isReal(d) && d != tensor.Int64 {
		return fmt.Errorf("it takes floats and int64, not %v", d)
	}
	return nil
}

// poolSizes are the pool_sizes of kernels/pool.cu.
func (l *launch) poolSizes() []int {
	x, a := l.in[0], l.attrs
	list := []int{x.shape()[1], x.layout.Strides[0], x.layout.Strides[1]}
	for _, three := range [][3]int{
		threes(x.shape()[2:], 1), threes(l.out[0].shape()[2:], 1), threes(x.layout.Strides[2:], 0),
		threes(a.Ints("kernel"), 1), threes(a.Ints("stride"), 1), threes(a.Ints("padding"), 0), threes(a.Ints("dilation"), 1),
	} {
		list = append(list, three[:]...)
	}
	return append(list, flag(a.Ints("kernel") == nil), flag(a.Bool("count_include_pad")), a.Int("divisor"))
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
	sizes, n := l.poolSizes(), out.size()
	c := l.call(name).write(out).write(where).read(x).i32(dtypeCodes[x.dtype]).ints(len(sizes), sizes...)
	return c.i64(n).over(n)
}

func launchAvgPool(l *launch) error {
	x, out := l.in[0], l.out[0]
	name := "om_avg_pool_d"
	if !isReal(x.dtype) {
		name = "om_avg_pool_i"
	}
	sizes, n := l.poolSizes(), out.size()
	return l.call(name).write(out).read(x).i32(dtypeCodes[x.dtype]).ints(len(sizes), sizes...).i64(n).over(n)
}

// mostCounted is the most elements that the kernels count in an int.
const mostCounted = 1<<31 - 1

func supportsUnpool(in, _ []layers.Spec, _ layers.Attrs) error {
	if in[0].DType.Size() > 8 {
		return fmt.Errorf("it does not take %v", in[0].DType)
	}
	if n, err := in[0].Shape[2:].NumElements(); err != nil || n > mostCounted {
		return fmt.Errorf("channels of %v", in[0].Shape[2:])
	}
	return nil
}

// unpoolWork is room for an int for each element of the result.
func unpoolWork(_, out []layers.Spec, _ layers.Attrs) int64 {
	return contiguousBytes(layers.Spec{DType: tensor.Int32, Shape: out[0].Shape})
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
	c := l.call("om_last").scratch(last).read(index).layout(index.layout).i64(per).i64(pixels).i64(m)
	if err := c.status().over(m); err != nil {
		return err
	}
	c = l.call(fmt.Sprintf("om_unpool_%d", out.dtype.Size())).write(out).read(x).layout(x.layout).scratch(last)
	return c.i64(per).i64(pixels).i64(n).over(n)
}
