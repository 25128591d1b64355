package cuda

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// copyKernels move elements without looking at them: kernels/copy.cu.
var copyKernels = map[graph.Kind]kernel{
	"copy":       {launch: launchCopy},
	"bitcast":    {launch: launchBitcast},
	"write_view": {launch: launchWriteView},
	"choose":     {launch: launchChoose},
	"cat":        {launch: launchCat},
	"tril":       {launch: func(l *launch) error { return launchTriangle(l, 0) }},
	"triu":       {launch: func(l *launch) error { return launchTriangle(l, 1) }},
}

// gather copies an operand's elements to a result, in order.
func (l *launch) gather(out, in operand) error {
	wide := wider(out.joined(), in.joined())
	out, in = wide[0], wide[1]
	n := in.size()
	return l.call(fmt.Sprintf("om_gather_%d", in.dtype.Size())).write(out).read(in).layout(in.layout).i64(n).over(n)
}

// scatter writes an operand's elements to a view of a result.
func (l *launch) scatter(out operand, to tensor.Layout, in operand) error {
	out.layout = to
	wide := wider(out.joined(), in.joined())
	out, in = wide[0], wide[1]
	n := in.size()
	c := l.call(fmt.Sprintf("om_scatter_%d", in.dtype.Size())).write(out).layout(out.layout)
	return c.read(in).layout(in.layout).i64(n).over(n)
}

func launchCopy(l *launch) error { return l.gather(l.out[0], l.in[0]) }

// launchBitcast copies bytes: the result counts as elements of the operand's dtype.
func launchBitcast(l *launch) error {
	out, in := l.out[0], l.in[0]
	out.dtype, out.layout = in.dtype, tensor.Contiguous(in.shape()...)
	return l.gather(out, in)
}

// launchWriteView copies in[0] and then writes in[1] where the attributes say.
func launchWriteView(l *launch) error {
	if err := l.gather(l.out[0], l.in[0]); err != nil {
		return err
	}
	return l.scatter(l.out[0], tensor.Layout{
		Shape: l.attrs.Ints("shape"), Strides: l.attrs.Ints("strides"), Offset: l.out[0].layout.Offset + l.attrs.Int("offset"),
	}, l.in[1])
}

// launchChoose copies in[1] where the one bool in[0] is true, else in[2].
func launchChoose(l *launch) error {
	out, all := l.out[0], l.in[0]
	n := out.size()
	c := l.call(fmt.Sprintf("om_where_%d", out.dtype.Size())).write(out)
	c.read(all).layoutAs(tensor.Layout{Shape: tensor.Shape{1}, Strides: []int{0}})
	for _, o := range l.in[1:] {
		c.read(o).layout(o.layout)
	}
	return c.i64(n).over(n)
}

// launchCat writes the operands one after the other along a dimension.
func launchCat(l *launch) error {
	out, dim, at := l.out[0], l.attrs.Int("dim"), 0
	for _, o := range l.in {
		if o.size() == 0 {
			continue
		}
		part := tensor.Layout{Shape: o.shape(), Strides: out.layout.Strides, Offset: out.layout.Offset + at*out.layout.Strides[dim]}
		if err := l.scatter(out, part, o); err != nil {
			return err
		}
		at += o.shape()[dim]
	}
	return nil
}

// launchTriangle keeps what is on and below a diagonal, or with upper on and above it.
func launchTriangle(l *launch, upper int32) error {
	x, out := l.in[0], l.out[0]
	shape, n := out.shape(), out.size()
	rows, columns := shape[len(shape)-2], shape[len(shape)-1]
	c := l.call(fmt.Sprintf("om_triangle_%d", out.dtype.Size())).write(out).read(x).layout(x.layout)
	c.divisor(int64(rows), n).divisor(int64(columns), n).i64(int64(min(max(l.attrs.Int("diagonal"), -rows-1), columns+1))).i32(upper)
	return c.i64(n).over(n)
}
