package axes

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// crossKernels are products of vectors of three.
var crossKernels = map[graph.Kind]ops.Kernel{"cross": {Run: runCross, Supports: ops.OnlyNumbers}}

// runCross: out = a₁b₂ − a₂b₁, a₂b₀ − a₀b₂, a₀b₁ − a₁b₀ along the dimension of size 3: torch.linalg.cross.
func runCross(c *ops.Call) error {
	switch c.In[0].DType {
	case tensor.Float32:
		cross(c, plain[float32], plain[float32])
	case tensor.Float64:
		cross(c, plain[float64], plain[float64])
	case tensor.Float16:
		cross(c, tensor.Float16ToFloat32, tensor.Float16FromFloat32)
	case tensor.BFloat16:
		cross(c, tensor.BFloat16ToFloat32, tensor.BFloat16FromFloat32)
	case tensor.Int8:
		cross(c, plain[int8], plain[int8])
	case tensor.Int16:
		cross(c, plain[int16], plain[int16])
	case tensor.Int32:
		cross(c, plain[int32], plain[int32])
	case tensor.Int64:
		cross(c, plain[int64], plain[int64])
	case tensor.UInt8:
		cross(c, plain[uint8], plain[uint8])
	}
	return nil
}

func plain[T any](x T) T { return x }

// cross computes in T for elements that lie in memory as E.
func cross[E any, T ops.Real | ops.Integer](c *ops.Call, load func(E) T, store func(T) E) {
	x, y, out, d := c.In[0], c.In[1], c.Out[0], c.Attrs.Int("dim")
	t := crossing[E, T]{
		x: ops.Elements[E](x), y: ops.Elements[E](y), out: ops.Elements[E](out), load: load, store: store,
		xs: ops.StartsOf(x.Layout, x.Shape(), d), ys: ops.StartsOf(y.Layout, y.Shape(), d),
		outs:  ops.StartsOf(out.Layout, out.Shape(), d),
		xStep: x.Layout.Strides[d], yStep: y.Layout.Strides[d], outStep: out.Layout.Strides[d],
	}
	tasks.Do(c.Pool, out.Size()/3, ops.Grain, t)
}

// crossing is the task of cross: a part is some vectors, which begin at xs, ys and outs, their elements the steps
// apart.
type crossing[E any, T ops.Real | ops.Integer] struct {
	x, y, out             []E
	load                  func(E) T
	store                 func(T) E
	xs, ys, outs          ops.Starts
	xStep, yStep, outStep int
}

// Run implements Task.
func (t *crossing[E, T]) Run(from, to int) {
	lx, ly, lo := t.xs.Layout(), t.ys.Layout(), t.outs.Layout()
	for i := from; i < to; i++ {
		x, y, out := lx.OffsetOf(i), ly.OffsetOf(i), lo.OffsetOf(i)
		for e := range 3 {
			f, g := (e+1)%3, (e+2)%3
			t.out[out+e*t.outStep] = t.store(
				T(
					t.load(t.x[x+f*t.xStep])*t.load(t.y[y+g*t.yStep]),
				) - T(t.load(t.x[x+g*t.xStep])*t.load(t.y[y+f*t.yStep])))
		}
	}
}
