package cpu

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// chunk is how many elements kernels convert to the type they compute in at a time.
const chunk = 256

// An along is a tensor taken apart into lines along one dimension. A scalar is one line of one element.
type along struct {
	// n and stride are those of a line; count is the number of lines.
	n, stride, count int
	// inner is the product of the dimensions after this one.
	inner int
	starts
}

func alongDim(l tensor.Layout, d int) along {
	if len(l.Shape) == 0 {
		return along{n: 1, stride: 1, count: 1, inner: 1, starts: starts{offset: l.Offset}}
	}
	a := along{n: l.Shape[d], stride: l.Strides[d], inner: volume(l.Shape[d+1:]), starts: startsOf(l, l.Shape, d)}
	a.count = volume(a.layout().Shape)
	return a
}

// first returns where line i begins in a contiguous tensor whose lines have n elements.
func (a *along) first(i, n int) int { return i/a.inner*n*a.inner + i%a.inner }

// each calls body for the lines [from, to) with their numbers and where they begin.
func (a *along) each(from, to int, body func(line, first int)) {
	linesOf(a.layout(), from, to, func(at, first, stride, n int) {
		for i := range n {
			body(at+i, first+i*stride)
		}
	})
}

// doLines does a task whose parts are lines, in parts that have at least about grain elements. Lines of nothing are left
// out.
func doLines[T any, P interface {
	*T
	Task
}](p *Pool, a *along, task T) {
	if a.n != 0 {
		tasks.Do[T, P](p, a.count, max(1, grain/a.n), task)
	}
}

// starts is the layout of the first elements of lines.
type starts struct {
	// room has the shape and the strides of rank dimensions, many where they are more than mostDims.
	room         [2][mostDims]int
	many         [2][]int
	rank, offset int
}

// startsOf returns the layout l without dimension d, over a shape that may be smaller.
func startsOf(l tensor.Layout, shape tensor.Shape, d int) starts {
	s := starts{offset: l.Offset}
	if len(shape) > mostDims+1 {
		s.many = [2][]int{make([]int, len(shape)), make([]int, len(shape))}
	}
	sizes, strides := s.dims()
	for i, n := range shape {
		if i != d {
			sizes[s.rank], strides[s.rank] = n, l.Strides[i]
			s.rank++
		}
	}
	return s
}

// dims returns the memory of the dimensions.
func (s *starts) dims() (shape, strides []int) {
	if s.many[0] != nil {
		return s.many[0], s.many[1]
	}
	return s.room[0][:], s.room[1][:]
}

// layout returns the starts, in the memory of s.
func (s *starts) layout() tensor.Layout {
	shape, strides := s.dims()
	return tensor.Layout{Shape: shape[:s.rank], Strides: strides[:s.rank], Offset: s.offset}
}

// A walk is the lines of dimensions that are visited many times, from different starts.
type walk struct {
	// room has the shape and the strides of rank dimensions, many where they are more than mostDims.
	room [2][mostDims]int
	many [2][]int
	rank int
	// n and stride are those of a line.
	n, stride int
	size      int
}

func walkOf(l tensor.Layout) walk {
	w := walk{size: volume(l.Shape)}
	joined := l.JoinedIn(w.room[0][:], w.room[1][:])
	w.rank = len(joined.Shape) - 1
	w.n, w.stride = joined.Shape[w.rank], joined.Strides[w.rank]
	if w.rank >= mostDims {
		w.many = [2][]int{slices.Clone(joined.Shape), slices.Clone(joined.Strides)}
	}
	return w
}

// dims returns the dimensions of the lines.
func (w *walk) dims() (shape, strides []int) {
	if w.many[0] != nil {
		return w.many[0][:w.rank], w.many[1][:w.rank]
	}
	return w.room[0][:w.rank], w.room[1][:w.rank]
}

// lines calls body with the first element of every line from base, in row-major order. index has room for the walk's
// dimensions.
func (w *walk) lines(base int, index []int, body func(first int)) {
	if w.n == 0 {
		return
	}
	clear(index)
	shape, strides := w.dims()
	for {
		body(base)
		d := w.rank - 1
		for ; d >= 0; d-- {
			index[d]++
			base += strides[d]
			if index[d] < shape[d] {
				break
			}
			base -= index[d] * strides[d]
			index[d] = 0
		}
		if d < 0 {
			return
		}
	}
}

// loadInts reads len(dst) elements of an integer or bool view.
func loadInts(dst []int64, v view, at, stride int) {
	switch v.dtype {
	case tensor.Int64, tensor.UInt64:
		loadIntsAs(dst, elements[int64](v), at, stride)
	case tensor.Int32:
		loadIntsAs(dst, elements[int32](v), at, stride)
	case tensor.Int16:
		loadIntsAs(dst, elements[int16](v), at, stride)
	case tensor.Int8:
		loadIntsAs(dst, elements[int8](v), at, stride)
	case tensor.UInt8:
		loadIntsAs(dst, elements[uint8](v), at, stride)
	case tensor.UInt16:
		loadIntsAs(dst, elements[uint16](v), at, stride)
	case tensor.UInt32:
		loadIntsAs(dst, elements[uint32](v), at, stride)
	case tensor.Bool:
		src := elements[uint8](v)
		for i := range dst {
			dst[i] = 0
			if src[at+i*stride] != 0 {
				dst[i] = 1
			}
		}
	default:
		panic("BUG: integers of " + v.dtype.String())
	}
}

func loadIntsAs[T int64 | int32 | int16 | int8 | uint8 | uint16 | uint32](dst []int64, src []T, at, stride int) {
	for i := range dst {
		dst[i] = int64(src[at+i*stride])
	}
}

// storeInt writes one element of an integer or bool view, modulo its range.
func storeInt(v view, at int, x int64) {
	switch v.dtype {
	case tensor.Int64, tensor.UInt64:
		elements[int64](v)[at] = x
	case tensor.Int32, tensor.UInt32:
		elements[int32](v)[at] = int32(x)
	case tensor.Int16, tensor.UInt16:
		elements[int16](v)[at] = int16(x)
	case tensor.Int8, tensor.UInt8:
		elements[int8](v)[at] = int8(x)
	case tensor.Bool:
		elements[uint8](v)[at] = 0
		if x != 0 {
			elements[uint8](v)[at] = 1
		}
	default:
		panic("BUG: integers of " + v.dtype.String())
	}
}

// storeFloat writes one element of a float view, rounded to its dtype.
func storeFloat(v view, at int, x float64) {
	switch v.dtype {
	case tensor.Float32:
		elements[float32](v)[at] = float32(x)
	case tensor.Float64:
		elements[float64](v)[at] = x
	case tensor.Float16:
		elements[uint16](v)[at] = tensor.Float16FromFloat32(float32(x))
	case tensor.BFloat16:
		elements[uint16](v)[at] = tensor.BFloat16FromFloat32(float32(x))
	default:
		panic("BUG: floats of " + v.dtype.String())
	}
}

// storeFloats writes elements of a float view that lie stride apart.
func storeFloats(v view, at, stride int, src []float64) {
	if stride == 1 {
		storeReal(v, at, src)
		return
	}
	for i, x := range src {
		storeFloat(v, at+i*stride, x)
	}
}

// storeInts writes elements of an integer or bool view that lie stride apart.
func storeInts(v view, at, stride int, src []int64) {
	for i, x := range src {
		storeInt(v, at+i*stride, x)
	}
}

// noUnsigned64 refuses the one dtype whose order int64 does not keep.
func noUnsigned64(in, _ []graph.Spec, _ graph.Attrs) error {
	for _, s := range in {
		if s.DType == tensor.UInt64 {
			return errUnsigned64
		}
	}
	return nil
}
