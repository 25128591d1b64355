package elementwise

import (
	"maps"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// elementwiseKernels compute each element of the result from the elements at the same place.
var elementwiseKernels = func() map[graph.Kind]ops.Kernel {
	all := make(map[graph.Kind]ops.Kernel)
	for _, part := range []map[graph.Kind]ops.Kernel{
		arithmeticKernels, functionKernels, specialKernels, activationKernels, testKernels,
	} {
		maps.Copy(all, part)
	}
	all["where"] = ops.Kernel{Run: runWhere, Supports: supportsWhere}
	for kind, k := range all {
		k.InPlace = ops.OverAny
		all[kind] = withVectors(kind, k)
	}
	return all
}()

// fixed returns the kernel of an op without attributes.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func fixed(l ops.Loops) ops.Kernel {
	return elementwiseOf(func(graph.Attrs, tensor.DType) ops.Loops { return l })
}

// map1 returns a loop of a function of one element.
func map1[T any](f func(T) T) func(dst []T, in [][]T) {
	return func(dst []T, in [][]T) {
		for i, x := range in[0][:len(dst)] {
			dst[i] = f(x)
		}
	}
}

// map2 returns a loop of a function of two elements.
func map2[T any](f func(a, b T) T) func(dst []T, in [][]T) {
	return func(dst []T, in [][]T) {
		b := in[1][:len(dst)]
		for i, x := range in[0][:len(dst)] {
			dst[i] = f(x, b[i])
		}
	}
}

// map3 returns a loop of a function of three elements.
func map3[T any](f func(a, b, c T) T) func(dst []T, in [][]T) {
	return func(dst []T, in [][]T) {
		b, c := in[1][:len(dst)], in[2][:len(dst)]
		for i, x := range in[0][:len(dst)] {
			dst[i] = f(x, b[i], c[i])
		}
	}
}

// real1 returns the loops of a function of a real number. float32 is computed in float64 and rounded once.
func real1(f func(float64) float64) ops.Loops {
	return ops.Loops{
		F32: func(dst []float32, in [][]float32) {
			for i, x := range in[0][:len(dst)] {
				dst[i] = float32(f(float64(x)))
			}
		},
		F64: map1(f),
	}
}

// real2 is real1 for two operands.
func real2(f func(a, b float64) float64) ops.Loops {
	return ops.Loops{
		F32: func(dst []float32, in [][]float32) {
			b := in[1][:len(dst)]
			for i, x := range in[0][:len(dst)] {
				dst[i] = float32(f(float64(x), float64(b[i])))
			}
		},
		F64: map2(f),
	}
}

// real3 is real1 for three operands.
func real3(f func(a, b, c float64) float64) ops.Loops {
	return ops.Loops{
		F32: func(dst []float32, in [][]float32) {
			b, c := in[1][:len(dst)], in[2][:len(dst)]
			for i, x := range in[0][:len(dst)] {
				dst[i] = float32(f(float64(x), float64(b[i]), float64(c[i])))
			}
		},
		F64: map3(f),
	}
}

// runWhere: out[i] = in[1][i] if in[0][i], else in[2][i]: torch.where.
func runWhere(c *ops.Call) error {
	switch c.Out[0].DType.Size() {
	case 1:
		whereOf(c, ops.LoadStrided[uint8])
	case 2:
		whereOf(c, ops.LoadStrided[uint16])
	case 4:
		whereOf(c, ops.LoadStrided[uint32])
	case 8:
		whereOf(c, ops.LoadStrided[uint64])
	case 16:
		whereOf(c, ops.LoadStrided[[2]uint64])
	}
	return nil
}

func supportsWhere(_, out []graph.Spec, _ graph.Attrs) error {
	switch out[0].DType.Size() {
	case 1, 2, 4, 8, 16:
		return nil
	}
	return supported(false, out[0].DType)
}

func whereOf[T any](c *ops.Call, load func(dst []T, v ops.View, first, stride int)) {
	tasks.Do(c.Pool, c.Out[0].Size(), ops.Grain, choosing[T]{
		condition: c.In[0], yes: c.In[1], no: c.In[2], out: c.Out[0], load: load,
	})
}

// choosing is the task of runWhere: a part is some elements.
type choosing[T any] struct {
	condition, yes, no, out ops.View
	load                    func(dst []T, v ops.View, first, stride int)
}

// Run implements Task.
func (t *choosing[T]) Run(from, to int) {
	conds := newReader(t.condition, ops.LoadStrided[uint8], true, from)
	yes := newReader(t.yes, t.load, true, from)
	no := newReader(t.no, t.load, true, from)
	out := ops.Elements[T](t.out)[t.out.Layout.Offset:]
	for at := from; at < to; at += ops.BlockElements {
		dst := out[at:min(at+ops.BlockElements, to)]
		cond, a, b := conds.next(len(dst)), yes.next(len(dst)), no.next(len(dst))
		for i, is := range cond[:len(dst)] {
			if is != 0 {
				dst[i] = a[i]
			} else {
				dst[i] = b[i]
			}
		}
	}
	conds.release()
	yes.release()
	no.release()
}

// SingleLoop returns the loop of an elementwise kind over float32.
func SingleLoop(kind graph.Kind, a graph.Attrs) func(dst []float32, in [][]float32) {
	return elementwiseKernels[kind].Loops(a, tensor.Float32).F32
}
