package cpu

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// copyKernels move elements without looking at them.
var copyKernels = map[graph.Kind]kernel{
	"copy":       {run: runCopy, inPlace: overFirst},
	"bitcast":    {run: runCopy},
	"write_view": {run: runWriteView, work: writeViewWork, inPlace: overFirst},
	"choose":     {run: runChoose},
}

// runCopy: out[i] = in[i] over all elements in row-major order.
func runCopy(c *call) error {
	gather(c.pool, c.out[0].data, c.in[0])
	return nil
}

// runChoose: out = in[1] if in[0], else in[2].
func runChoose(c *call) error {
	from := c.in[2]
	if elements[uint8](c.in[0])[c.in[0].layout.Offset] != 0 {
		from = c.in[1]
	}
	gather(c.pool, c.out[0].data, from)
	return nil
}

// runWriteView: out is a copy of in[0], a whole value, whose elements under the layout of the attributes are replaced
// by those of in[1].
func runWriteView(c *call) error {
	gather(c.pool, c.out[0].data, c.in[0])
	to := tensor.Layout{
		Shape: c.attrs.Ints("shape"), Strides: c.attrs.Ints("strides"), Offset: c.attrs.Int("offset"),
	}
	if to.Shape.Equal(c.in[1].shape()) {
		copyView(c.pool, c.out[0].data, to, c.in[1])
		return nil
	}
	switch c.in[1].dtype.Size() {
	case 1:
		scatterTo[uint8](c, to)
	case 2:
		scatterTo[uint16](c, to)
	case 4:
		scatterTo[uint32](c, to)
	case 8:
		scatterTo[uint64](c, to)
	case 16:
		scatterTo[[2]uint64](c, to)
	}
	return nil
}

// writeViewWork holds what is written, in row-major order.
func writeViewWork(in, _ []graph.Spec, _ graph.Attrs) int64 {
	n, err := in[1].Shape.NumElements()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return n * int64(in[1].DType.Size())
}

func scatterTo[T any](c *call, to tensor.Layout) {
	src := elements[T](view{data: c.work})
	gather(c.pool, c.work, c.in[1])
	dst := elements[T](c.out[0])
	lines(to, func(at, first, stride, n int) {
		for i := range n {
			dst[first+i*stride] = src[at+i]
		}
	})
}

// gather copies the elements of a view to dst in row-major order.
func gather(p *Pool, dst []byte, v view) { copyView(p, dst, tensor.Layout{}, v) }
