package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// A digit is a part of the offset of an element in its value: offset ÷ inner mod count. A value that depends on a batch
// of count rows keeps in it which row an element belongs to. Reshapes do not change it: they number dimensions anew and
// leave the elements where they are.
type digit struct {
	inner, count int
}

// A place is where a digit is found in an operand: the digit of an element is its index in dimension dim, ÷ inner mod
// the digit's count.
type place struct {
	dim, inner int
}

// digitAt returns the digit that a place in a contiguous value of the given shape is.
func digitAt(s tensor.Shape, p place, count int) digit {
	return digit{inner: tensor.Contiguous(s...).Strides[p.dim] * p.inner, count: count}
}

// find returns the place of a digit in a view. There is one where exactly one dimension moves through the digit, in
// full turns and starting from 0, and the other dimensions stay below or above it. The error says what is wrong.
func find(l tensor.Layout, g digit) (place, error) {
	turn := g.inner * g.count
	if l.Offset/g.inner%g.count != 0 {
		return place{}, fmt.Errorf("it begins at row %d", l.Offset/g.inner%g.count)
	}
	at := place{dim: -1}
	// below is how far the other dimensions reach inside of one count of the digit.
	below := l.Offset % g.inner
	for d, n := range l.Shape {
		stride := l.Strides[d]
		switch {
		case n <= 1 || stride%turn == 0:
		case stride <= (g.inner-1)/(n-1):
			below += (n - 1) * stride
		case at.dim >= 0:
			return place{}, fmt.Errorf("dimensions %d and %d both lead from row to row", at.dim, d)
		case g.inner%stride != 0:
			return place{}, fmt.Errorf("dimension %d steps by %d elements, and a row has %d", d, stride, g.inner)
		case n%(turn/stride) != 0:
			return place{}, fmt.Errorf("dimension %d of size %d cuts the %d rows", d, n, g.count)
		default:
			at = place{dim: d, inner: g.inner / stride}
		}
	}
	if at.dim < 0 {
		return place{}, fmt.Errorf("it is one row of the batch")
	}
	if below += (at.inner - 1) * l.Strides[at.dim]; below >= g.inner {
		return place{}, fmt.Errorf("rows overlap")
	}
	return at, nil
}
