package cpu

import (
	"fmt"
	"unsafe"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// isHalf reports whether elements of a dtype are computed with as float32.
func isHalf(d tensor.DType) bool { return d == tensor.Float16 || d == tensor.BFloat16 }

// isReal reports whether a dtype is a float that kernels compute in as a [real].
func isReal(d tensor.DType) bool { return d == tensor.Float32 || d == tensor.Float64 || isHalf(d) }

// realBytes returns the size of the elements that a float dtype is computed in.
func realBytes(d tensor.DType) int {
	if d == tensor.Float64 {
		return 8
	}
	return 4
}

// onlyReal is the support of kernels that compute in floats alone.
func onlyReal(in, _ []graph.Spec, _ graph.Attrs) error {
	if d := in[0].DType; !isReal(d) {
		return fmt.Errorf("it takes float32, float64, float16 and bfloat16, not %v", d)
	}
	return nil
}

// loadReal reads len(dst) elements of a float view, the first at index at of its memory, the others stride apart.
func loadReal[T real](dst []T, v view, at, stride int) {
	switch v.dtype {
	case tensor.Float16:
		src := elements[uint16](v)
		for i := range dst {
			dst[i] = T(tensor.Float16ToFloat32(src[at+i*stride]))
		}
	case tensor.BFloat16:
		src := elements[uint16](v)
		for i := range dst {
			dst[i] = T(tensor.BFloat16ToFloat32(src[at+i*stride]))
		}
	case tensor.Float32:
		src := elements[float32](v)
		for i := range dst {
			dst[i] = T(src[at+i*stride])
		}
	case tensor.Float64:
		src := elements[float64](v)
		for i := range dst {
			dst[i] = T(src[at+i*stride])
		}
	case tensor.Int8: // weights that are scaled
		src := elements[int8](v)
		for i := range dst {
			dst[i] = T(src[at+i*stride])
		}
	default:
		panic("BUG: reals of " + v.dtype.String())
	}
}

// storeReal writes src to consecutive elements of a float view's memory from index at, rounded to its dtype.
func storeReal[T real](v view, at int, src []T) {
	switch v.dtype {
	case tensor.Float16:
		dst := elements[uint16](v)[at:][:len(src)]
		for i, x := range src {
			dst[i] = tensor.Float16FromFloat32(float32(x))
		}
	case tensor.BFloat16:
		dst := elements[uint16](v)[at:][:len(src)]
		for i, x := range src {
			dst[i] = tensor.BFloat16FromFloat32(float32(x))
		}
	case tensor.Float32:
		dst := elements[float32](v)[at:][:len(src)]
		for i, x := range src {
			dst[i] = float32(x)
		}
	case tensor.Float64:
		dst := elements[float64](v)[at:][:len(src)]
		for i, x := range src {
			dst[i] = float64(x)
		}
	default:
		panic("BUG: reals of " + v.dtype.String())
	}
}

// loadAll reads all elements of a float view in row-major order.
func loadAll[T real](dst []T, v view) {
	if v.contiguous() {
		loadReal(dst, v, v.layout.Offset, 1)
		return
	}
	lines(v.layout, func(at, first, stride, n int) { loadReal(dst[at:at+n], v, first, stride) })
}

// A scratch hands out a kernel's work memory piece by piece. The pieces have addresses that are multiples of 8.
type scratch []byte

// takeReal returns n elements of the scratch.
func takeReal[T real](s *scratch, n int) []T {
	var zero T
	bytes := roundUp(n*int(unsafe.Sizeof(zero)), 8)
	piece := elements[T](view{data: (*s)[:bytes]})
	*s = (*s)[bytes:]
	return piece[:n]
}

// scratchBytes returns the scratch that pieces of the given numbers of elements take.
func scratchBytes(size int, pieces ...int) int64 {
	var sum int64
	for _, n := range pieces {
		sum += int64(roundUp(n*size, 8))
	}
	return sum
}

// volume returns the product of a shape that is known to be sound.
func volume(s tensor.Shape) int {
	n := 1
	for _, d := range s {
		n *= d
	}
	return n
}

// realDType returns the dtype of T.
func realDType[T real]() tensor.DType {
	var zero T
	if unsafe.Sizeof(zero) == 8 {
		return tensor.Float64
	}
	return tensor.Float32
}

// memoryOf returns the memory of a slice.
func memoryOf[T real](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}
