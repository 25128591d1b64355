package ops

import (
	"sync"
	"unsafe"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// BlockElements is the length of a block.
const BlockElements = 1024

// BufferFloats is how many floats a buffer has room for.
const BufferFloats = 4 * BlockElements

// BlockBuffers hold blocks of up to 16 bytes an element.
var BlockBuffers = sync.Pool{New: func() any { return new([2 * BlockElements]uint64) }}

// A BlockBuffer has room for a block.
type BlockBuffer = *[2 * BlockElements]uint64

// NewBlockBuffer takes a buffer of BlockBuffers, which takes it back.
func NewBlockBuffer() BlockBuffer { return BlockBuffers.Get().(BlockBuffer) }

// BlockOf views a buffer as a block of T.
func BlockOf[T any](b BlockBuffer) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(b)), BlockElements)
}

// IsSingle reports whether elements of a dtype are computed with in float32.
func IsSingle(d tensor.DType) bool { return d == tensor.Float32 || IsHalf(d) }

// FloatsIn returns a buffer's floats.
func FloatsIn(b BlockBuffer) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(b)), BufferFloats)
}

// LoadSingle reads len(dst) elements that lie stride apart as float32.
func LoadSingle(set *simd.Set, dst []float32, v View, first, stride int) {
	if len(dst) == 0 {
		return // there may be no memory at the index
	}
	switch v.DType {
	case tensor.Float32:
		LoadStrided(dst, v, first, stride)
	case tensor.Float16, tensor.BFloat16:
		at := 0
		if stride == 1 {
			at = set.WidenRow(halfElement(v.DType), dst, Elements[uint16](v)[first:])
		}
		if rest := dst[at:]; v.DType == tensor.Float16 {
			LoadFloat16(rest, v, first+at*stride, stride)
		} else {
			LoadBFloat16(rest, v, first+at*stride, stride)
		}
	case tensor.Bool:
		src := Elements[uint8](v)
		for i := range dst {
			dst[i] = float32(src[first+i*stride])
		}
	default:
		panic("BUG: single precision of " + v.DType.String())
	}
}

// NarrowRow stores float32 as halves.
func NarrowRow(set *simd.Set, v View, at int, src []float32) {
	n := set.NarrowRow(halfElement(v.DType), Elements[uint16](v)[at:], src)
	if v.DType == tensor.Float16 {
		StoreFloat16(v, at+n, src[n:])
	} else {
		StoreBFloat16(v, at+n, src[n:])
	}
}

// LoadRow reads len(dst) elements of a float dtype that lie stride apart; set may be nil.
func LoadRow(set *simd.Set, dst []float32, v View, first, stride int) {
	if set != nil {
		LoadSingle(set, dst, v, first, stride)
	} else {
		LoadReal(dst, v, first, stride)
	}
}

// StoreRow writes elements of a float dtype one behind the other; set may be nil.
func StoreRow(set *simd.Set, v View, at int, src []float32) {
	switch {
	case len(src) == 0:
	case !IsHalf(v.DType):
		copy(Elements[float32](v)[at:], src)
	case set != nil:
		NarrowRow(set, v, at, src)
	default:
		StoreReal(v, at, src)
	}
}

// RoundRow rounds float32 to bfloat16, where they lie.
func RoundRow(set *simd.Set, x []float32) {
	var room [256]uint16
	for len(x) > 0 {
		n := min(len(x), len(room))
		whole := n / set.Columns * set.Columns
		set.Narrow(simd.BFloat16, x[:whole], room[:whole])
		set.WidenRow(simd.BFloat16, x[:whole], room[:whole])
		for i, v := range x[whole:n] {
			x[whole+i] = tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(v))
		}
		x = x[n:]
	}
}

// halfElement is what kernels call a dtype of half precision.
func halfElement(d tensor.DType) simd.Element {
	if d == tensor.Float16 {
		return simd.Float16
	}
	return simd.BFloat16
}

// LoadStrided copies the elements of a line.
func LoadStrided[T any](dst []T, v View, first, stride int) {
	src := Elements[T](v)
	switch stride {
	case 0:
		x := src[first]
		for i := range dst {
			dst[i] = x
		}
	case 1:
		copy(dst, src[first:])
	default:
		for i := range dst {
			dst[i] = src[first+i*stride]
		}
	}
}

// LoadFloat16 reads len(dst) elements that lie stride apart, and widens them.
func LoadFloat16(dst []float32, v View, first, stride int) {
	src := Elements[uint16](v)
	for i := range dst {
		dst[i] = tensor.Float16ToFloat32(src[first+i*stride])
	}
}

// LoadBFloat16 is LoadFloat16 for bfloat16.
func LoadBFloat16(dst []float32, v View, first, stride int) {
	src := Elements[uint16](v)
	for i := range dst {
		dst[i] = tensor.BFloat16ToFloat32(src[first+i*stride])
	}
}

// StoreFloat16 writes src to consecutive elements from index at on, rounded.
func StoreFloat16[T Computed](v View, at int, src []T) {
	dst := Elements[uint16](v)[at:][:len(src)]
	for i, x := range src {
		dst[i] = tensor.Float16FromFloat32(float32(x))
	}
}

// StoreBFloat16 is StoreFloat16 for bfloat16.
func StoreBFloat16[T Computed](v View, at int, src []T) {
	dst := Elements[uint16](v)[at:][:len(src)]
	for i, x := range src {
		dst[i] = tensor.BFloat16FromFloat32(float32(x))
	}
}

// Computed is the types that elementwise ops compute in: float32 for the half precisions, int64 for bool and all
// integers but uint64, whose results wrap when they are stored.
type Computed interface {
	float32 | float64 | int64 | uint64
}

// BlockFloats is how many elements the steps of a chain work on at a time: a few blocks stay in the nearest cache.
const BlockFloats = BufferFloats / 2

// FloatsOf returns a buffer of a block, which it gets if there is none yet.
func FloatsOf(b *BlockBuffer) []float32 {
	if *b == nil {
		*b = NewBlockBuffer()
	}
	return FloatsIn(*b)[:BlockFloats]
}
