package graph

import (
	"errors"
	"strings"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// TestBatchedPair has programs whose rows are separate at two sizes, and yet not the same.
func TestBatchedPair(t *testing.T) {
	arange := func(s *sketch, n int) Operand {
		return s.op("arange", Attrs{"size": n, "start": 0, "step": 1, "dtype": tensor.Int64})
	}
	for _, c := range []struct {
		name  string
		build func(s *sketch, x Operand, n int) Operand
		want  string
	}{
		{"a linear layer over rows merged with others", func(s *sketch, x Operand, n int) Operand {
			y := s.op("linear", nil, seen(x, n*3, 4), s.weight(5, 4), Absent)
			return seen(y, n, 3, 5)
		}, ""},
		{"rows last", func(s *sketch, x Operand, n int) Operand {
			return swapped(s.op("relu", nil, swapped(x, 0, 2)), 0, 2)
		}, ""},
		{"a mask by row numbers", func(s *sketch, x Operand, n int) Operand {
			table := s.op("copy", nil, expanded(s.weight(1, 12), 0, n))
			return s.op("add", nil, x, seen(s.op("index", Attrs{"dim": 0}, table, arange(s, n)), n, 3, 4))
		}, ""},
		{"an element of each row", func(s *sketch, x Operand, n int) Operand {
			chosen := s.op("argmax", Attrs{"dims": []int{1}}, cut(seen(x, n, 12), 1, 0, 3))
			return s.op("index", Attrs{"dim": 0}, x, arange(s, n), chosen)
		}, ""},
		{"two batches", func(s *sketch, x Operand, n int) Operand {
			both := s.op("relu", nil, s.op("cat", Attrs{"dim": 0}, x, x))
			return s.op("sub", nil, cut(both, 0, 0, n), cut(both, 0, n, 2*n))
		}, ""},
		{"divided by the number of rows", func(s *sketch, x Operand, n int) Operand {
			c := s.number(float32(n))
			c.Layout = tensor.Layout{Shape: x.Layout.Shape, Strides: []int{0, 0, 0}}
			return s.op("div", nil, x, c)
		}, "block.1: div: the constant that is operand 1 depends on the number of rows"},
		{"an attribute", func(s *sketch, x Operand, n int) Operand {
			return s.op("leaky_relu", Attrs{"slope": 1 / float64(n)}, x)
		}, "leaky_relu: attribute slope, 0.5 or 0.3333333333333333, depends on the number of rows"},
		{"a slice as long as the batch", func(s *sketch, x Operand, n int) Operand {
			return s.op("sum", Attrs{"dims": []int{1, 2}, "dtype": tensor.Float32}, cut(x, 1, 0, n))
		}, "sum: operand 0, [2 2 4] or [3 3 4], depends"},
		{"a slice after as many as the batch", func(s *sketch, x Operand, n int) Operand {
			return s.op("relu", nil, cut(x, 1, n-1, n))
		}, "relu: operand 0"},
		{"the number of rows, counted", func(s *sketch, x Operand, n int) Operand {
			ones := expanded(s.weight(1), 0, n)
			count := s.op("sum", Attrs{"dims": []int{0}, "dtype": tensor.Float32}, ones)
			count.Layout = tensor.Layout{Shape: x.Layout.Shape, Strides: []int{0, 0, 0}}
			return s.op("div", nil, x, count)
		}, "sum: operand 0, [2] or [3], depends"},
		{"another op", func(s *sketch, x Operand, n int) Operand {
			if n == 2 {
				return s.op("relu", nil, x)
			}
			return s.op("neg", nil, x)
		}, "which op is here, relu or neg, depends"},
		{"one more op", func(s *sketch, x Operand, n int) Operand {
			for range n {
				x = s.op("relu", nil, x)
			}
			return x
		}, "depends"},
		{"a part that is written", func(s *sketch, x Operand, n int) Operand {
			to := Attrs{"shape": []int{n, 1}, "strides": []int{12, 1}, "offset": n}
			return s.op("write_view", to, x, expanded(s.weight(1, 1), 0, n))
		}, "which part is written depends"},
	} {
		graph := func(n int) *Graph {
			s := &sketch{t: t, path: "block.1"}
			s.give("y", c.build(s, s.input("x", n, 3, 4), n))
			if _, err := Batched(&s.Graph, Standard(), map[string]int{"x": 0}); err != nil {
				t.Errorf("%s, %d rows: %v", c.name, n, err)
			}
			return &s.Graph
		}
		got, err := BatchedPair(graph(2), graph(3), Standard(), map[string]int{"x": 0})
		switch {
		case c.want == "" && (err != nil || got["y"] != 0):
			t.Errorf("%s: %v and %v", c.name, got, err)
		case c.want != "" && (!errors.As(err, new(*NotBatchableError)) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	// A program that takes the first two rows looks like one that takes all, when there are two.
	graph := func(n int) *Graph {
		s := &sketch{t: t}
		s.give("y", s.op("index", Attrs{"dim": 0}, s.input("x", n, 3), arange(s, 2)))
		return &s.Graph
	}
	if _, err := Batched(graph(2), Standard(), map[string]int{"x": 0}); err != nil {
		t.Errorf("two rows of two: %v", err)
	}
	if _, err := BatchedPair(graph(2), graph(3), Standard(), map[string]int{"x": 0}); err == nil {
		t.Error("two rows of three are said to be all")
	}
}
