package ops

import (
	"fmt"
	"unsafe"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// IsHalf reports whether elements of a dtype are computed with as float32.
func IsHalf(d tensor.DType) bool { return d == tensor.Float16 || d == tensor.BFloat16 }

// IsReal reports whether a dtype is a float that kernels compute in as a [Real].
func IsReal(d tensor.DType) bool { return d == tensor.Float32 || d == tensor.Float64 || IsHalf(d) }

// RealBytes returns the size of the elements that a float dtype is computed in.
func RealBytes(d tensor.DType) int {
	if d == tensor.Float64 {
		return 8
	}
	return 4
}

// OnlyReal is the support of kernels that compute in floats alone.
func OnlyReal(in, _ []graph.Spec, _ graph.Attrs) error {
	if d := in[0].DType; !IsReal(d) {
		return fmt.Errorf("it takes float32, float64, float16 and bfloat16, not %v", d)
	}
	return nil
}

// LoadReal reads len(dst) elements of a float view, the first at index at of its memory, the others stride apart.
func LoadReal[T Real](dst []T, v View, at, stride int) {
	switch v.DType {
	case tensor.Float16:
		src := Elements[uint16](v)
		for i := range dst {
			dst[i] = T(tensor.Float16ToFloat32(src[at+i*stride]))
		}
	case tensor.BFloat16:
		src := Elements[uint16](v)
		for i := range dst {
			dst[i] = T(tensor.BFloat16ToFloat32(src[at+i*stride]))
		}
	case tensor.Float32:
		src := Elements[float32](v)
		for i := range dst {
			dst[i] = T(src[at+i*stride])
		}
	case tensor.Float64:
		src := Elements[float64](v)
		for i := range dst {
			dst[i] = T(src[at+i*stride])
		}
	case tensor.Int8: // weights that are scaled
		src := Elements[int8](v)
		for i := range dst {
			dst[i] = T(src[at+i*stride])
		}
	default:
		panic("BUG: reals of " + v.DType.String())
	}
}

// StoreReal writes src to consecutive elements of a float view's memory from index at, rounded to its dtype.
func StoreReal[T Real](v View, at int, src []T) {
	switch v.DType {
	case tensor.Float16:
		dst := Elements[uint16](v)[at:][:len(src)]
		for i, x := range src {
			dst[i] = tensor.Float16FromFloat32(float32(x))
		}
	case tensor.BFloat16:
		dst := Elements[uint16](v)[at:][:len(src)]
		for i, x := range src {
			dst[i] = tensor.BFloat16FromFloat32(float32(x))
		}
	case tensor.Float32:
		dst := Elements[float32](v)[at:][:len(src)]
		for i, x := range src {
			dst[i] = float32(x)
		}
	case tensor.Float64:
		dst := Elements[float64](v)[at:][:len(src)]
		for i, x := range src {
			dst[i] = float64(x)
		}
	default:
		panic("BUG: reals of " + v.DType.String())
	}
}

// LoadAll reads all elements of a float view in row-major order.
func LoadAll[T Real](dst []T, v View) {
	if v.Contiguous() {
		LoadReal(dst, v, v.Layout.Offset, 1)
		return
	}
	Lines(v.Layout, func(at, first, stride, n int) { LoadReal(dst[at:at+n], v, first, stride) })
}

// A Scratch hands out a kernel's work memory piece by piece. The pieces have addresses that are multiples of 8.
type Scratch []byte

// TakeReal returns n elements of the scratch.
func TakeReal[T Real](s *Scratch, n int) []T {
	var zero T
	bytes := RoundUp(n*int(unsafe.Sizeof(zero)), 8)
	piece := Elements[T](View{Data: (*s)[:bytes]})
	*s = (*s)[bytes:]
	return piece[:n]
}

// ScratchBytes returns the scratch that pieces of the given numbers of elements take.
func ScratchBytes(size int, pieces ...int) int64 {
	var sum int64
	for _, n := range pieces {
		sum += int64(RoundUp(n*size, 8))
	}
	return sum
}

// Volume returns the product of a shape that is known to be sound.
func Volume(s tensor.Shape) int {
	n := 1
	for _, d := range s {
		n *= d
	}
	return n
}

// RealDType returns the dtype of T.
func RealDType[T Real]() tensor.DType {
	var zero T
	if unsafe.Sizeof(zero) == 8 {
		return tensor.Float64
	}
	return tensor.Float32
}

// MemoryOf returns the memory of a slice.
func MemoryOf[T Real](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// A Real is a type that products of matrices are computed in.
type Real interface{ float32 | float64 }

// RoundUp returns the smallest multiple of to that is not below n.
func RoundUp(n, to int) int { return (n + to - 1) / to * to }

// OnlyNumbers is the support of kernels that compute in floats and integers.
func OnlyNumbers(in, _ []graph.Spec, _ graph.Attrs) error {
	switch d := in[0].DType; d {
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64, tensor.UInt8:
		return nil
	default:
		if !IsReal(d) {
			return fmt.Errorf("it takes floats and integers, not %v", d)
		}
		return nil
	}
}

// Rounded returns the nearest number that a dtype holds.
func Rounded[T Real](d tensor.DType, x T) T {
	switch d {
	case tensor.Float16:
		return T(tensor.Float16ToFloat32(tensor.Float16FromFloat32(float32(x))))
	case tensor.BFloat16:
		return T(tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(float32(x))))
	}
	return x
}

// IntegerAt returns element i of a one-dimensional view of int32 or int64.
func IntegerAt(v View, i int) int64 {
	at := v.Layout.Offset + i*v.Layout.Strides[0]
	if v.DType == tensor.Int32 {
		return int64(Elements[int32](v)[at])
	}
	return Elements[int64](v)[at]
}

// An Integer is a type whose sums and products wrap, as PyTorch's do.
type Integer interface {
	int8 | int16 | int32 | int64 | uint8
}
