package ops

import (
	"github.com/optimem/optimem/tensor"
)

// Lines walks a strided view in row-major order, line by line: body gets the position in the result, and the first
// element, the stride and the length of a line of the view. Dimensions that lie in order are walked as one.
func Lines(l tensor.Layout, body func(at, first, stride, n int)) {
	LinesOf(l, 0, -1, body)
}

// LinesOf is lines over the elements [from, to) of the row-major order only; to < 0 is the end. Lines may be cut at
// both ends.
func LinesOf(l tensor.Layout, from, to int, body func(at, first, stride, n int)) {
	var room [3][MostDims]int
	joined := l.JoinedIn(room[0][:], room[1][:])
	shape, strides := joined.Shape, joined.Strides
	total := 1
	for _, d := range shape {
		total *= d
	}
	if to < 0 {
		to = total
	}
	if from >= to {
		return
	}
	inner := len(shape) - 1
	n, stride := shape[inner], strides[inner]
	index := IntsIn(room[2][:], inner)
	rest := from / n
	first := l.Offset
	for d := inner - 1; d >= 0; d-- {
		index[d] = rest % shape[d]
		rest /= shape[d]
		first += index[d] * strides[d]
	}
	skip := from % n
	for at := from; at < to; {
		m := min(n-skip, to-at)
		body(at, first+skip*stride, stride, m)
		at += m
		skip = 0
		for d := inner - 1; d >= 0; d-- {
			index[d]++
			first += strides[d]
			if index[d] < shape[d] {
				break
			}
			first -= index[d] * strides[d]
			index[d] = 0
		}
	}
}

// IntsIn returns n zeros in given memory, which is zero, or in other memory where it is too small.
func IntsIn(room []int, n int) []int {
	if n > len(room) {
		return make([]int, n)
	}
	return room[:n]
}

// Grain is the number of elements that one part of parallel elementwise work has.
const Grain = 16 << 10

// MostDims is how many dimensions a view may have after those that lie in order were joined.
const MostDims = 8

// LastStride returns the stride of the last dimension.
func LastStride(l tensor.Layout) int { return l.Strides[len(l.Strides)-1] }

// Evenly returns how far apart the elements of a layout lie in row-major order, false where that differs.
func Evenly(l tensor.Layout) (stride int, even bool) {
	last := -1
	for d := len(l.Shape) - 1; d >= 0; d-- {
		if l.Shape[d] == 1 {
			continue
		}
		if last >= 0 && l.Strides[d] != l.Strides[last]*l.Shape[last] {
			return 0, false
		}
		if last < 0 {
			stride = l.Strides[d]
		}
		last = d
	}
	return stride, true
}

// Threes returns the last entries of a list that has up to three, after ones: fill.
func Threes(list []int, fill int) (out [3]int) {
	for i := range out {
		out[i] = fill
		if k := i - (3 - len(list)); k >= 0 {
			out[i] = list[k]
		}
	}
	return out
}

// Inside returns the range of i in [0, n) for which first + i·step lies in [0, size).
func Inside(first, step, n, size int) (lo, hi int) {
	if first < 0 {
		lo = (-first + step - 1) / step
	}
	if first >= size {
		return 0, 0
	}
	hi = n
	if last := first + (n-1)*step; last >= size {
		hi = (size-first-1)/step + 1
	}
	if lo >= hi {
		return 0, 0
	}
	return lo, hi
}
