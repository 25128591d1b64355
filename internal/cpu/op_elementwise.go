package cpu

import "github.com/optimem/optimem/layers"

// elementwiseKernels compute each element of the result from the elements at the same place.
var elementwiseKernels = map[layers.Kind]kernel{
	"relu": {run: func(c *call) error {
		x := c.in[0]
		out, in := elements[float32](c.out[0]), elements[float32](x)
		c.pool.For(x.size(), grain, func(from, to int) {
			linesOf(x.layout, from, to, func(at, first, stride, n int) {
				for i := range n {
					v := in[first+i*stride]
					if v < 0 {
						v = 0
					}
					out[at+i] = v
				}
			})
		})
		return nil
	}},
}
