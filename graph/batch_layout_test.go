package graph

import (
	"fmt"
	"strings"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// TestFind looks for the rows of [2 3 4], and of their like, in views.
func TestFind(t *testing.T) {
	view := func(shape, strides []int, offset int) tensor.Layout {
		return tensor.Layout{Shape: shape, Strides: strides, Offset: offset}
	}
	for _, c := range []struct {
		name string
		l    tensor.Layout
		g    digit
		want place
		err  string
	}{
		{"whole", tensor.Contiguous(2, 3, 4), digit{12, 2}, place{0, 1}, ""},
		{"transposed", view([]int{4, 3, 2}, []int{1, 4, 12}, 0), digit{12, 2}, place{2, 1}, ""},
		{"merged with the next", tensor.Contiguous(6, 4), digit{12, 2}, place{0, 3}, ""},
		{"flat", tensor.Contiguous(24), digit{12, 2}, place{0, 12}, ""},
		{"split behind", tensor.Contiguous(2, 3, 2, 2), digit{12, 2}, place{0, 1}, ""},
		{"merged and split again", tensor.Contiguous(4, 6), digit{12, 2}, place{0, 2}, ""},
		{"merged with the one before", tensor.Contiguous(6, 4), digit{4, 2}, place{0, 1}, ""},
		{"a slice behind", view([]int{2, 2, 4}, []int{12, 4, 1}, 4), digit{12, 2}, place{0, 1}, ""},
		{"every other behind", view([]int{2, 3, 2}, []int{12, 4, 2}, 1), digit{12, 2}, place{0, 1}, ""},
		{"expanded", view([]int{5, 2, 12}, []int{0, 12, 1}, 0), digit{12, 2}, place{1, 1}, ""},
		{"of size one", view([]int{1, 2, 12}, []int{99, 12, 1}, 0), digit{12, 2}, place{1, 1}, ""},
		{"windows that overlap", view([]int{2, 3, 6}, []int{12, 3, 1}, 0), digit{12, 2}, place{0, 1}, ""},
		{"the second half of two batches", view([]int{2, 12}, []int{12, 1}, 24), digit{12, 2}, place{0, 1}, ""},
		{"two batches", tensor.Contiguous(4, 12), digit{12, 2}, place{0, 1}, ""},

		{"one row", view([]int{3, 4}, []int{4, 1}, 0), digit{12, 2}, place{}, "one row"},
		{"the other row", view([]int{3, 4}, []int{4, 1}, 12), digit{12, 2}, place{}, "begins at row 1"},
		{"from the second row", view([]int{2, 12}, []int{12, 1}, 12), digit{12, 3}, place{}, "begins at row 1"},
		{"two rows of three", view([]int{2, 12}, []int{12, 1}, 0), digit{12, 3}, place{}, "cuts"},
		{"every other row", view([]int{2, 12}, []int{24, 1}, 0), digit{12, 4}, place{}, "steps by 24"},
		{"two dimensions of rows", tensor.Contiguous(2, 2, 3), digit{3, 4}, place{}, "steps by 6"},
		{"rows cut unevenly", tensor.Contiguous(3, 8), digit{12, 2}, place{}, "steps by 8"},
		{"the diagonal", view([]int{2}, []int{3}, 0), digit{2, 2}, place{}, "steps by 3"},
		{"windows from row to row", view([]int{2, 14}, []int{12, 1}, 0), digit{12, 2}, place{}, "both lead"},
		{"a shifted slice", view([]int{2, 12}, []int{12, 1}, 4), digit{12, 2}, place{}, "overlap"},
		{"rows merged with a slice", view([]int{4, 5}, []int{6, 1}, 2), digit{12, 2}, place{}, "overlap"},
	} {
		got, err := find(c.l, c.g)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v and %v, want the error %q", c.name, got, err, c.err)
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%s: %v and %v, want %v", c.name, got, err, c.want)
		}
		// What find says is what the elements say.
		if err == nil {
			checkFound(t, c.name, c.l, c.g, got)
		}
	}
}

// checkFound visits every element.
func checkFound(t *testing.T, name string, l tensor.Layout, g digit, at place) {
	t.Helper()
	n, _ := l.NumElements()
	for i := range int(n) {
		rest, offset, index := i, l.Offset, 0
		for d := len(l.Shape) - 1; d >= 0; d-- {
			k := rest % l.Shape[d]
			rest /= l.Shape[d]
			offset += k * l.Strides[d]
			if d == at.dim {
				index = k
			}
		}
		if row := offset / g.inner % g.count; row != index/at.inner%g.count {
			t.Errorf("%s: element %d is of row %d, not %d", name, i, row, index/at.inner%g.count)
			return
		}
	}
}

// TestFindAll compares find with the elements themselves, for every view of 24 elements by two dimensions.
func TestFindAll(t *testing.T) {
	var found int
	for _, g := range []digit{{12, 2}, {8, 3}, {4, 2}, {3, 4}, {1, 2}, {6, 4}} {
		for a := 1; a <= 6; a++ {
			for b := 1; b <= 6; b++ {
				for s := range 13 {
					for r := range 13 {
						for _, offset := range []int{0, 1, 4, 6, 12} {
							l := tensor.Layout{Shape: []int{a, b}, Strides: []int{s, r}, Offset: offset}
							at, err := find(l, g)
							if err != nil {
								continue
							}
							found++
							checkFound(t, fmt.Sprint(l, g), l, g, at)
						}
					}
				}
			}
		}
	}
	if found < 500 {
		t.Errorf("found %d places only", found)
	}
}
