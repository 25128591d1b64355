package cpu

import (
	"github.com/optimem/optimem/tensor"
)

// lines walks a strided view in row-major order, line by line: body gets the position in the result, and the first
// element, the stride and the length of a line of the view. Dimensions that lie in order are walked as one.
func lines(l tensor.Layout, body func(at, first, stride, n int)) {
	linesOf(l, 0, -1, body)
}

// linesOf is lines over the elements [from, to) of the row-major order only; to < 0 is the end. Lines may be cut at
// both ends.
func linesOf(l tensor.Layout, from, to int, body func(at, first, stride, n int)) {
	var room [3][mostDims]int
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
	index := intsIn(room[2][:], inner)
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

// intsIn returns n zeros in given memory, which is zero, or in other memory where it is too small.
func intsIn(room []int, n int) []int {
	if n > len(room) {
		return make([]int, n)
	}
	return room[:n]
}

// grain is the number of elements that one part of parallel elementwise work has.
const grain = 16 << 10
