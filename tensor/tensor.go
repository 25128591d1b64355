package tensor

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// A Tensor is a tensor in memory. Data holds the elements in the machine's byte order; Layout says where in it they
// lie. It does not own Data: whoever allocated that memory frees it.
type Tensor struct {
	DType  DType
	Layout Layout
	Data   []byte
}

// An Element is a Go type with a dtype of the same representation. Half precision has none: its elements are the bits
// that [Float16FromFloat32] and [BFloat16FromFloat32] make.
type Element interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | bool | complex64 | complex128
}

// Of returns the contiguous tensor of the given dimensions whose elements are data. It shares data's memory. It panics
// when the dimensions do not multiply to len(data): that is a mistake in the program, not in its input.
func Of[T Element](data []T, dims ...int) *Tensor {
	layout := Contiguous(dims...)
	if n, _ := layout.NumElements(); n != int64(len(data)) {
		panic(fmt.Sprintf("BUG: tensor.Of: %d elements for shape %v", len(data), layout.Shape))
	}
	d := dtypeOf[T]()
	var bytes []byte
	if len(data) > 0 {
		bytes = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*d.Size())
	}
	return &Tensor{DType: d, Layout: layout, Data: bytes}
}

// Slice returns the elements of a contiguous tensor in row-major order. They share the tensor's memory. It fails when T
// is not the Go type of the tensor's dtype, when the tensor is not contiguous (see [Tensor.Contiguous]), and when
// its memory is not aligned for T.
func Slice[T Element](t *Tensor) ([]T, error) {
	want := dtypeOf[T]()
	if t.DType != want {
		return nil, fmt.Errorf("a tensor of %v has no elements of %v", t.DType, want)
	}
	first, end, err := t.Layout.Span()
	if err != nil {
		return nil, err
	}
	if !t.Layout.IsContiguous() {
		return nil, fmt.Errorf("shape %v with strides %v is not contiguous", t.Layout.Shape, t.Layout.Strides)
	}
	if size := int64(want.Size()); end > int64(len(t.Data))/size {
		return nil, fmt.Errorf("%w: %d elements of %v in %d bytes", ErrLayout, end, want, len(t.Data))
	}
	if first == end {
		return []T{}, nil
	}
	p := unsafe.Pointer(&t.Data[first*int64(want.Size())])
	if uintptr(p)%unsafe.Alignof(*new(T)) != 0 {
		return nil, fmt.Errorf("the tensor's memory is not aligned for %v", want)
	}
	if want == Bool {
		for i, b := range t.Data[first:end] {
			if b > 1 { // such a Go bool would be neither true nor false
				return nil, fmt.Errorf("element %d of a bool tensor is %d", i, b)
			}
		}
	}
	return unsafe.Slice((*T)(p), end-first), nil
}

// Contiguous returns t when its elements lie in row-major order from the start of Data, else a copy in which they do.
// Every element must lie inside Data: [Weight.Check] says so of untrusted layouts.
func (t *Tensor) Contiguous() *Tensor {
	n, err := t.Layout.NumElements()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	size := t.DType.Size()
	if t.Layout.IsContiguous() && t.Layout.Offset == 0 {
		c := Tensor{DType: t.DType, Layout: Contiguous(t.Layout.Shape...), Data: t.Data[:n*int64(size)]}
		return &c
	}
	c := &Tensor{DType: t.DType, Layout: Contiguous(t.Layout.Shape...), Data: make([]byte, n*int64(size))}
	t.CopyTo(c.Data)
	return c
}

// CopyTo writes the elements in row-major order to dst, which is as long as they take. It allocates nothing for tensors
// of up to eight dimensions.
func (t *Tensor) CopyTo(dst []byte) {
	if len(dst) > 0 {
		gather(dst, t.Data[t.Layout.Offset*t.DType.Size():], t.Layout, t.DType.Size())
	}
}

// gather copies the elements that a non-empty layout names, in row-major order, from src, which begins with the
// first one, to dst.
func gather(dst, src []byte, l Layout, size int) {
	var dimsOf, stepsOf, indexOf [8]int
	dims, steps := dimsOf[:0], stepsOf[:0] // without the dimensions of one; steps in bytes
	for i, d := range l.Shape {
		if d != 1 {
			dims, steps = append(dims, d), append(steps, l.Strides[i]*size)
		}
	}
	run := size // bytes that lie together
	for len(dims) > 0 && steps[len(dims)-1] == run {
		run *= dims[len(dims)-1]
		dims, steps = dims[:len(dims)-1], steps[:len(dims)-1]
	}
	index := indexOf[:0]
	for range dims {
		index = append(index, 0)
	}
	at := 0
	for {
		if len(dims) == 0 {
			copy(dst, src[at:at+run])
			return
		}
		last := len(dims) - 1
		dst = gatherRow(dst, src[at:], dims[last], steps[last], run)
		k := last - 1
		for ; k >= 0; k-- {
			at += steps[k]
			if index[k]++; index[k] < dims[k] {
				break
			}
			at -= index[k] * steps[k]
			index[k] = 0
		}
		if k < 0 {
			return
		}
	}
}

// gatherRow copies n runs of bytes that lie step bytes apart and returns the rest of dst.
func gatherRow(dst, src []byte, n, step, run int) []byte {
	switch run { // fixed sizes become single moves
	case 2:
		for i := range n {
			copy(dst[2*i:2*i+2], src[i*step:i*step+2])
		}
	case 4:
		for i := range n {
			copy(dst[4*i:4*i+4], src[i*step:i*step+4])
		}
	default:
		for i := range n {
			copy(dst[run*i:run*i+run], src[i*step:i*step+run])
		}
	}
	return dst[n*run:]
}

func dtypeOf[T Element]() DType {
	switch any(*new(T)).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return UInt8
	case uint16:
		return UInt16
	case uint32:
		return UInt32
	case uint64:
		return UInt64
	case bool:
		return Bool
	case complex64:
		return Complex64
	default:
		return Complex128
	}
}

func (d DType) complex() bool { return d == Complex32 || d == Complex64 || d == Complex128 }

// wordBytes returns the size of what has a byte order and a sign: half of a complex element.
func (d DType) wordBytes() int {
	if d.complex() {
		return d.Size() / 2
	}
	return d.Size()
}

var nativeLittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// swapBytes reverses each word of p.
func swapBytes(p []byte, word int) {
	for ; len(p) >= word; p = p[word:] {
		for i := range word / 2 {
			p[i], p[word-1-i] = p[word-1-i], p[i]
		}
	}
}

// negate flips the sign bit of the words of p; with odd 1, only of every second one, which is the imaginary part.
func negate(p []byte, word, odd int) {
	sign := 0
	if nativeLittleEndian {
		sign = word - 1
	}
	for i := odd * word; i < len(p); i += word * (1 + odd) {
		p[i+sign] ^= 0x80
	}
}
