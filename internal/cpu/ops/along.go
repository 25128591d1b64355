package ops

import (
	"errors"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// Chunk is how many elements kernels convert to the type they compute in at a time.
const Chunk = 256

// An Along is a tensor taken apart into lines along one dimension. A scalar is one line of one element.
type Along struct {
	// N and stride are those of a line; count is the number of lines.
	N, Stride, Count int
	// Inner is the product of the dimensions after this one.
	Inner int
	Starts
}

// AlongDim takes a layout apart into lines along dimension d.
func AlongDim(l tensor.Layout, d int) Along {
	if len(l.Shape) == 0 {
		return Along{N: 1, Stride: 1, Count: 1, Inner: 1, Starts: Starts{offset: l.Offset}}
	}
	a := Along{N: l.Shape[d], Stride: l.Strides[d], Inner: Volume(l.Shape[d+1:]), Starts: StartsOf(l, l.Shape, d)}
	a.Count = Volume(a.Layout().Shape)
	return a
}

// First returns where line i begins in a contiguous tensor whose lines have n elements.
func (a *Along) First(i, n int) int { return i/a.Inner*n*a.Inner + i%a.Inner }

// Each calls body for the lines [from, to) with their numbers and where they begin.
func (a *Along) Each(from, to int, body func(line, first int)) {
	LinesOf(a.Layout(), from, to, func(at, first, stride, n int) {
		for i := range n {
			body(at+i, first+i*stride)
		}
	})
}

// DoLines does a task whose parts are lines, in parts that have at least about grain elements. Lines of nothing are
// left out.
func DoLines[T any, P interface {
	*T
	Task
}](p *Pool, a *Along, task T) {
	if a.N != 0 {
		tasks.Do[T, P](p, a.Count, max(1, Grain/a.N), task)
	}
}

// Starts is the layout of the first elements of lines.
type Starts struct {
	// room has the shape and the strides of rank dimensions, many where they are more than mostDims.
	room         [2][MostDims]int
	many         [2][]int
	rank, offset int
}

// StartsOf returns the layout l without dimension d, over a shape that may be smaller.
func StartsOf(l tensor.Layout, shape tensor.Shape, d int) Starts {
	s := Starts{offset: l.Offset}
	if len(shape) > MostDims+1 {
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
func (s *Starts) dims() (shape, strides []int) {
	if s.many[0] != nil {
		return s.many[0], s.many[1]
	}
	return s.room[0][:], s.room[1][:]
}

// Layout returns the starts, in the memory of s.
func (s *Starts) Layout() tensor.Layout {
	shape, strides := s.dims()
	return tensor.Layout{Shape: shape[:s.rank], Strides: strides[:s.rank], Offset: s.offset}
}

// A Walk is the lines of dimensions that are visited many times, from different starts.
type Walk struct {
	// room has the shape and the strides of rank dimensions, many where they are more than mostDims.
	room [2][MostDims]int
	many [2][]int
	Rank int
	// N and stride are those of a line.
	N, Stride int
	Size      int
}

// WalkOf returns the walk over a layout.
func WalkOf(l tensor.Layout) Walk {
	w := Walk{Size: Volume(l.Shape)}
	joined := l.JoinedIn(w.room[0][:], w.room[1][:])
	w.Rank = len(joined.Shape) - 1
	w.N, w.Stride = joined.Shape[w.Rank], joined.Strides[w.Rank]
	if w.Rank >= MostDims {
		w.many = [2][]int{slices.Clone(joined.Shape), slices.Clone(joined.Strides)}
	}
	return w
}

// dims returns the dimensions of the lines.
func (w *Walk) dims() (shape, strides []int) {
	if w.many[0] != nil {
		return w.many[0][:w.Rank], w.many[1][:w.Rank]
	}
	return w.room[0][:w.Rank], w.room[1][:w.Rank]
}

// Lines calls body with the first element of every line from base, in row-major order. index has room for the walk's
// dimensions.
func (w *Walk) Lines(base int, index []int, body func(first int)) {
	if w.N == 0 {
		return
	}
	clear(index)
	shape, strides := w.dims()
	for {
		body(base)
		d := w.Rank - 1
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

// LoadInts reads len(dst) elements of an integer or bool view.
func LoadInts(dst []int64, v View, at, stride int) {
	switch v.DType {
	case tensor.Int64, tensor.UInt64:
		loadIntsAs(dst, Elements[int64](v), at, stride)
	case tensor.Int32:
		loadIntsAs(dst, Elements[int32](v), at, stride)
	case tensor.Int16:
		loadIntsAs(dst, Elements[int16](v), at, stride)
	case tensor.Int8:
		loadIntsAs(dst, Elements[int8](v), at, stride)
	case tensor.UInt8:
		loadIntsAs(dst, Elements[uint8](v), at, stride)
	case tensor.UInt16:
		loadIntsAs(dst, Elements[uint16](v), at, stride)
	case tensor.UInt32:
		loadIntsAs(dst, Elements[uint32](v), at, stride)
	case tensor.Bool:
		src := Elements[uint8](v)
		for i := range dst {
			dst[i] = 0
			if src[at+i*stride] != 0 {
				dst[i] = 1
			}
		}
	default:
		panic("BUG: integers of " + v.DType.String())
	}
}

func loadIntsAs[T int64 | int32 | int16 | int8 | uint8 | uint16 | uint32](dst []int64, src []T, at, stride int) {
	for i := range dst {
		dst[i] = int64(src[at+i*stride])
	}
}

// StoreInt writes one element of an integer or bool view, modulo its range.
func StoreInt(v View, at int, x int64) {
	switch v.DType {
	case tensor.Int64, tensor.UInt64:
		Elements[int64](v)[at] = x
	case tensor.Int32, tensor.UInt32:
		Elements[int32](v)[at] = int32(x)
	case tensor.Int16, tensor.UInt16:
		Elements[int16](v)[at] = int16(x)
	case tensor.Int8, tensor.UInt8:
		Elements[int8](v)[at] = int8(x)
	case tensor.Bool:
		Elements[uint8](v)[at] = 0
		if x != 0 {
			Elements[uint8](v)[at] = 1
		}
	default:
		panic("BUG: integers of " + v.DType.String())
	}
}

// StoreFloat writes one element of a float view, rounded to its dtype.
func StoreFloat(v View, at int, x float64) {
	switch v.DType {
	case tensor.Float32:
		Elements[float32](v)[at] = float32(x)
	case tensor.Float64:
		Elements[float64](v)[at] = x
	case tensor.Float16:
		Elements[uint16](v)[at] = tensor.Float16FromFloat32(float32(x))
	case tensor.BFloat16:
		Elements[uint16](v)[at] = tensor.BFloat16FromFloat32(float32(x))
	default:
		panic("BUG: floats of " + v.DType.String())
	}
}

// StoreFloats writes elements of a float view that lie stride apart.
func StoreFloats(v View, at, stride int, src []float64) {
	if stride == 1 {
		StoreReal(v, at, src)
		return
	}
	for i, x := range src {
		StoreFloat(v, at+i*stride, x)
	}
}

// StoreInts writes elements of an integer or bool view that lie stride apart.
func StoreInts(v View, at, stride int, src []int64) {
	for i, x := range src {
		StoreInt(v, at+i*stride, x)
	}
}

// NoUnsigned64 refuses the one dtype whose order int64 does not keep.
func NoUnsigned64(in, _ []graph.Spec, _ graph.Attrs) error {
	for _, s := range in {
		if s.DType == tensor.UInt64 {
			return errUnsigned64
		}
	}
	return nil
}

// errUnsigned64 is why ops that compute in int64 refuse an operand.
var errUnsigned64 = errors.New("not for uint64")
