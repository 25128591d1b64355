package tensor

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// ErrLayout is wrapped by every error about a shape, stride or offset that cannot be: negative sizes, products that
// overflow, elements outside their storage.
var ErrLayout = errors.New("impossible layout")

// A Shape is the size of each dimension. A scalar has the empty shape.
type Shape []int

// String writes the shape as PyTorch users read it: "[2 3 224 224]"; a scalar is "[]".
func (s Shape) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, n := range s {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprint(&b, n)
	}
	b.WriteByte(']')
	return b.String()
}

// Equal reports whether both shapes have the same dimensions.
func (s Shape) Equal(t Shape) bool {
	if len(s) != len(t) {
		return false
	}
	for i := range s {
		if s[i] != t[i] {
			return false
		}
	}
	return true
}

// NumElements returns the product of the dimensions. It fails on a negative dimension and where the product does not
// fit an int64, also when another dimension is zero: PyTorch refuses such shapes too.
func (s Shape) NumElements() (int64, error) {
	n := int64(1)
	empty := false
	for _, d := range s {
		if d < 0 {
			return 0, fmt.Errorf("%w: negative dimension in shape %v", ErrLayout, s)
		}
		if d == 0 {
			empty = true
			continue
		}
		var ok bool
		if n, ok = MulBytes(n, int64(d)); !ok {
			return 0, fmt.Errorf("%w: shape %v has more than 2^63 elements", ErrLayout, s)
		}
	}
	if empty {
		return 0, nil
	}
	return n, nil
}

// A Layout says where the elements of a tensor lie in a run of memory or of a file: dimension i advances by Strides[i]
// elements, and the first element lies Offset elements after the start. Strides may be zero (expanded) but, as in
// PyTorch, never negative.
type Layout struct {
	Shape   Shape
	Strides []int
	Offset  int
}

// Contiguous returns the row-major layout of the given dimensions, at offset 0. It panics where the product overflows;
// check untrusted dimensions with [Shape.NumElements] first.
func Contiguous(dims ...int) Layout {
	l := Layout{Shape: Shape(dims), Strides: make([]int, len(dims))}
	if _, err := l.Shape.NumElements(); err != nil {
		panic("BUG: " + err.Error())
	}
	step := 1
	for i := len(dims) - 1; i >= 0; i-- {
		l.Strides[i] = step
		step *= max(dims[i], 1)
	}
	return l
}

// NumElements returns the number of elements, which several positions may share when a stride is zero.
func (l Layout) NumElements() (int64, error) { return l.Shape.NumElements() }

// IsContiguous reports whether the elements lie in row-major order without gaps. Dimensions of size one may have any
// stride, and an empty tensor is always contiguous.
func (l Layout) IsContiguous() bool {
	want := 1
	for _, d := range l.Shape {
		if d == 0 {
			return true
		}
	}
	for i := len(l.Shape) - 1; i >= 0; i-- {
		if l.Shape[i] == 1 {
			continue
		}
		if l.Strides[i] != want {
			return false
		}
		want *= l.Shape[i]
	}
	return true
}

// ViewAs returns a layout with the given shape over the same elements in the same order, if strides can express it:
// PyTorch's computeStride. Where they cannot, reshape copies and view is an error.
func (l Layout) ViewAs(shape Shape) (Layout, bool) {
	out := Layout{Shape: shape, Strides: make([]int, len(shape)), Offset: l.Offset}
	if slices.Contains(shape, 0) {
		out.Strides = Contiguous(shape...).Strides
		return out, true
	}
	// Chunks of old dimensions that lie in order, from the last: each must be the product of some new dimensions.
	at := len(shape) - 1
	chunkStride, chunkSize, viewSize := 1, 1, 1
	if n := len(l.Strides); n > 0 {
		chunkStride = l.Strides[n-1]
	}
	for d := len(l.Shape) - 1; d >= 0; d-- {
		chunkSize *= l.Shape[d]
		if d > 0 && (l.Shape[d-1] == 1 || l.Strides[d-1] == chunkSize*chunkStride) {
			continue
		}
		for at >= 0 && (viewSize < chunkSize || shape[at] == 1) {
			out.Strides[at] = viewSize * chunkStride
			viewSize *= shape[at]
			at--
		}
		if viewSize != chunkSize {
			return Layout{}, false
		}
		if d > 0 {
			chunkStride, chunkSize, viewSize = l.Strides[d-1], 1, 1
		}
	}
	for ; at >= 0; at-- { // what is left has size one: the tensor was 0-dimensional
		if shape[at] != 1 {
			return Layout{}, false
		}
		out.Strides[at] = 1
	}
	return out, true
}

// Span returns the range of elements [first, end) that the layout touches, counted from the start of the storage.
// An empty tensor spans nothing: first equals end. It fails on negative strides or offsets, on a stride count that is
// not the shape's, and where the arithmetic overflows.
func (l Layout) Span() (first, end int64, err error) {
	if len(l.Strides) != len(l.Shape) {
		return 0, 0, fmt.Errorf("%w: %d strides for shape %v", ErrLayout, len(l.Strides), l.Shape)
	}
	if l.Offset < 0 {
		return 0, 0, fmt.Errorf("%w: negative offset %d", ErrLayout, l.Offset)
	}
	n, err := l.Shape.NumElements()
	if err != nil {
		return 0, 0, err
	}
	last := int64(l.Offset)
	for i, d := range l.Shape {
		if l.Strides[i] < 0 {
			return 0, 0, fmt.Errorf("%w: negative stride in %v", ErrLayout, l.Strides)
		}
		if d <= 1 || n == 0 {
			continue
		}
		step, ok := MulBytes(int64(d-1), int64(l.Strides[i]))
		if !ok || step > math.MaxInt64-last-1 {
			return 0, 0, fmt.Errorf("%w: strides %v overflow over shape %v", ErrLayout, l.Strides, l.Shape)
		}
		last += step
	}
	if n == 0 {
		return int64(l.Offset), int64(l.Offset), nil
	}
	if last == math.MaxInt64 {
		return 0, 0, fmt.Errorf("%w: offset %d overflows", ErrLayout, l.Offset)
	}
	return int64(l.Offset), last + 1, nil
}

// MulBytes multiplies two non-negative sizes and reports whether the product fits an int64. All arithmetic on sizes
// that come from a file goes through it.
func MulBytes(a, b int64) (int64, bool) {
	if a < 0 || b < 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, false
	}
	return int64(lo), true
}

// Joined returns the view with those dimensions joined that lie in order, at least one.
func (l Layout) Joined() Layout { return l.JoinedIn(nil, nil) }

// JoinedIn is Joined with memory for dimensions, to which the result's are appended.
func (l Layout) JoinedIn(shape Shape, strides []int) Layout {
	j := Layout{Shape: shape[:0], Strides: strides[:0], Offset: l.Offset}
	for i, d := range l.Shape {
		if d == 1 {
			continue
		}
		if k := len(j.Shape) - 1; k >= 0 && j.Strides[k] == l.Strides[i]*d {
			j.Shape[k] *= d
			j.Strides[k] = l.Strides[i]
			continue
		}
		j.Shape, j.Strides = append(j.Shape, d), append(j.Strides, l.Strides[i])
	}
	switch {
	case len(j.Shape) == 0:
		j.Shape, j.Strides = append(j.Shape, 1), append(j.Strides, 1)
	case slices.Contains(l.Shape, 0):
		j.Shape, j.Strides = append(j.Shape[:0], 0), append(j.Strides[:0], 1)
	}
	return j
}

// Split returns the dimensions that are not among dims, which ascend, and those that are. The offset goes with the first.
func (l Layout) Split(dims []int) (kept, gone Layout) { return l.SplitIn(dims, Layout{}, Layout{}) }

// SplitIn is Split with layouts whose memory for dimensions the results take.
func (l Layout) SplitIn(dims []int, kept, gone Layout) (Layout, Layout) {
	kept = Layout{Shape: kept.Shape[:0], Strides: kept.Strides[:0], Offset: l.Offset}
	gone = Layout{Shape: gone.Shape[:0], Strides: gone.Strides[:0]}
	next := 0
	for d, n := range l.Shape {
		to := &kept
		if next < len(dims) && dims[next] == d {
			to = &gone
			next++
		}
		to.Shape, to.Strides = append(to.Shape, n), append(to.Strides, l.Strides[d])
	}
	return kept, gone
}

// Leading returns all dimensions but the last n.
func (l Layout) Leading(n int) Layout {
	n = len(l.Shape) - n
	return Layout{Shape: l.Shape[:n], Strides: l.Strides[:n], Offset: l.Offset}
}

// OffsetOf returns where the i-th element of the row-major order lies, in elements from the first of the memory.
func (l Layout) OffsetOf(i int) int {
	at := l.Offset
	for d := len(l.Shape) - 1; d >= 0; d-- {
		at += i % l.Shape[d] * l.Strides[d]
		i /= l.Shape[d]
	}
	return at
}
