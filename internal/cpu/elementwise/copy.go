package elementwise

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// copyKernels move elements without looking at them.
var copyKernels = map[graph.Kind]ops.Kernel{
	"copy":       {Run: runCopy, InPlace: ops.OverFirst},
	"bitcast":    {Run: runCopy},
	"write_view": {Run: runWriteView, Work: writeViewWork, InPlace: ops.OverFirst},
	"choose":     {Run: runChoose},
}

// runCopy: out[i] = in[i] over all elements in row-major order.
func runCopy(c *ops.Call) error {
	ops.Gather(c.Pool, c.Out[0].Data, c.In[0])
	return nil
}

// runChoose: out = in[1] if in[0], else in[2].
func runChoose(c *ops.Call) error {
	from := c.In[2]
	if ops.Elements[uint8](c.In[0])[c.In[0].Layout.Offset] != 0 {
		from = c.In[1]
	}
	ops.Gather(c.Pool, c.Out[0].Data, from)
	return nil
}

// runWriteView: out is a copy of in[0], a whole value, whose elements under the layout of the attributes are replaced
// by those of in[1].
func runWriteView(c *ops.Call) error {
	ops.Gather(c.Pool, c.Out[0].Data, c.In[0])
	to := tensor.Layout{
		Shape: c.Attrs.Ints("shape"), Strides: c.Attrs.Ints("strides"), Offset: c.Attrs.Int("offset"),
	}
	if to.Shape.Equal(c.In[1].Shape()) {
		ops.CopyView(c.Pool, c.Out[0].Data, to, c.In[1])
		return nil
	}
	switch c.In[1].DType.Size() {
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

func scatterTo[T any](c *ops.Call, to tensor.Layout) {
	src := ops.Elements[T](ops.View{Data: c.Work})
	ops.Gather(c.Pool, c.Work, c.In[1])
	dst := ops.Elements[T](c.Out[0])
	ops.Lines(to, func(at, first, stride, n int) {
		for i := range n {
			dst[first+i*stride] = src[at+i]
		}
	})
}
