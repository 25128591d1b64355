package graph

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// sketch writes a graph for tests.
type sketch struct {
	Graph
	t    *testing.T
	path string
}

func (s *sketch) input(name string, shape ...int) Operand {
	return s.Whole(s.AddInput(name, tensor.Float32, shape))
}

func (s *sketch) weight(shape ...int) Operand {
	n, _ := tensor.Shape(shape).NumElements()
	w := tensor.Weight{DType: tensor.Float32, Extent: storage.Extent{Bytes: 4 * n}}
	return Operand{s.AddWeight(w, Weight), tensor.Contiguous(shape...)}
}

func (s *sketch) number(x float32) Operand {
	data := binary.LittleEndian.AppendUint32(nil, math.Float32bits(x))
	return s.Whole(s.AddConst(&tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(), Data: data}))
}

// op emits an op and returns its first result.
func (s *sketch) op(kind Kind, attrs Attrs, in ...Operand) Operand {
	s.t.Helper()
	out, err := s.Emit(Standard(), Op{Kind: kind, Path: s.path, Source: "model.py:7", Attrs: attrs, In: in})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.Whole(out[0])
}

func (s *sketch) give(name string, o Operand) {
	s.Outputs = append(s.Outputs, Output{Name: name, Operand: o})
}

// seen is a contiguous value seen with another shape.
func seen(o Operand, shape ...int) Operand { return Operand{o.Value, tensor.Contiguous(shape...)} }

// swapped transposes two dimensions.
func swapped(o Operand, a, b int) Operand {
	l := tensor.Layout{Offset: o.Layout.Offset}
	l.Shape = append(l.Shape, o.Layout.Shape...)
	l.Strides = append(l.Strides, o.Layout.Strides...)
	l.Shape[a], l.Shape[b] = l.Shape[b], l.Shape[a]
	l.Strides[a], l.Strides[b] = l.Strides[b], l.Strides[a]
	return Operand{o.Value, l}
}

// expanded gives dimension d, of size one, another size.
func expanded(o Operand, d, n int) Operand {
	o = swapped(o, d, d)
	o.Layout.Shape[d], o.Layout.Strides[d] = n, 0
	return o
}

// cut takes indices from … to−1 of dimension d.
func cut(o Operand, d, from, to int) Operand {
	o = swapped(o, d, d)
	o.Layout.Offset += from * o.Layout.Strides[d]
	o.Layout.Shape[d] = to - from
	return o
}

// TestBatched follows rows through graphs that keep them.
func TestBatched(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(s *sketch)
		axes  map[string]int
		want  map[string]int
	}{
		{"rows merged, a linear layer, split again", func(s *sketch) {
			x := s.input("x", 2, 3, 4)
			y := s.op("linear", nil, seen(x, 6, 4), s.weight(5, 4), s.weight(5))
			s.give("y", seen(y, 2, 3, 5))
		}, map[string]int{"x": 0}, map[string]int{"y": 0}},
		{"sequence first", func(s *sketch) {
			x := s.input("x", 3, 2, 4)
			y := s.op("softmax", Attrs{"dim": 2}, s.op("relu", nil, swapped(x, 0, 1)))
			s.give("y", swapped(y, 0, 1))
			s.give("sum", s.op("sum", Attrs{"dims": []int{0}, "dtype": tensor.Float32}, x))
		}, map[string]int{"x": 1}, map[string]int{"y": 1, "sum": 0}},
		{"heads beside rows, a mask for all", func(s *sketch) {
			x := s.op("linear", nil, s.input("x", 2, 5, 12), s.weight(12, 12), Absent)
			q := swapped(seen(x, 2, 5, 3, 4), 1, 2)
			copied := s.op("copy", nil, q)
			mask := expanded(seen(s.op("tril", nil, s.weight(5, 5)), 1, 5, 5), 0, 6)
			y := s.op("matmul", nil, seen(copied, 6, 5, 4), swapped(seen(copied, 6, 5, 4), 1, 2), mask)
			s.give("y", seen(y, 2, 3, 5, 5))
		}, map[string]int{"x": 0}, map[string]int{"y": 0}},
		{"a constant copied for each row", func(s *sketch) {
			x := s.input("x", 2, 3, 4)
			table := s.op("copy", nil, expanded(s.weight(1, 3, 4), 0, 2))
			grown := s.op("linear", nil, seen(table, 6, 4), s.weight(4, 4), Absent)
			s.give("y", s.op("add", nil, x, seen(grown, 2, 3, 4)))
			s.give("table", grown)
		}, map[string]int{"x": 0}, map[string]int{"y": 0, "table": -1}},
		{"a token put before each row", func(s *sketch) {
			x := s.input("x", 2, 3, 4)
			s.give("y", s.op("cat", Attrs{"dim": 1}, expanded(s.weight(1, 1, 4), 0, 2), x))
		}, map[string]int{"x": 0}, map[string]int{"y": 0}},
		{"two batches one after the other, and apart again", func(s *sketch) {
			x, y := s.input("x", 2, 4), s.input("y", 2, 4)
			both := s.op("relu", nil, s.op("cat", Attrs{"dim": 0}, x, y))
			s.give("z", s.op("sub", nil, cut(both, 0, 0, 2), cut(both, 0, 2, 4)))
		}, map[string]int{"x": 0, "y": 0}, map[string]int{"z": 0}},
		{"an element of each row", func(s *sketch) {
			x := s.input("x", 2, 3, 4)
			last := s.op("argmax", Attrs{"dims": []int{1}}, cut(seen(x, 2, 12), 1, 0, 3))
			number := s.op("arange", Attrs{"size": 2, "start": 0, "step": 1, "dtype": tensor.Int64})
			s.give("y", s.op("index", Attrs{"dim": 0}, x, number, last))
		}, map[string]int{"x": 0}, map[string]int{"y": 0}},
		{"a table looked up by row number where rows are alike", func(s *sketch) {
			x := s.input("x", 2, 3)
			number := s.op("arange", Attrs{"size": 2, "start": 0, "step": 1, "dtype": tensor.Int64})
			table := s.op("copy", nil, expanded(s.weight(1, 3), 0, 2))
			s.give("y", s.op("mul", nil, x, s.op("index", Attrs{"dim": 0}, table, number)))
		}, map[string]int{"x": 0}, map[string]int{"y": 0}},
		{"a part of each row replaced", func(s *sketch) {
			x := s.input("x", 2, 3)
			part := Attrs{"shape": []int{2, 1}, "strides": []int{3, 1}, "offset": 1}
			y := s.op("write_view", part, x, expanded(s.weight(1, 1), 0, 2))
			zero := s.op("copy", nil, expanded(expanded(s.weight(1, 1), 0, 2), 1, 3))
			zero = s.op("write_view", part, zero, expanded(s.weight(1, 1), 0, 2))
			s.give("y", s.op("write_view", part, zero, cut(y, 1, 2, 3)))
		}, map[string]int{"x": 0}, map[string]int{"y": 0}},
		{"an input for all rows", func(s *sketch) {
			x, t := s.input("x", 2, 3), s.input("t", 3)
			s.give("y", s.op("add", nil, x, expanded(seen(t, 1, 3), 0, 2)))
			s.give("t", s.op("relu", nil, t))
		}, map[string]int{"x": 0, "t": -1}, map[string]int{"y": 0, "t": -1}},
		{"a cell with a state for each row", func(s *sketch) {
			x, h := s.input("x", 7, 2, 3), s.input("h", 1, 2, 4)
			in := []Operand{x, Absent, h, Absent, s.weight(12, 3), s.weight(12, 4), s.weight(12), s.weight(12), Absent}
			ids, err := s.Emit(Standard(), Op{Kind: "gru", In: in})
			if err != nil {
				s.t.Fatal(err)
			}
			s.give("y", s.Whole(ids[0]))
			s.give("h", s.Whole(ids[1]))
		}, map[string]int{"x": 1, "h": 1}, map[string]int{"y": 1, "h": 1}},
		{"a constant without elements", func(s *sketch) {
			x := s.input("x", 2, 3)
			s.give("y", s.op("relu", nil, x))
			s.give("none", s.op("relu", nil, cut(s.weight(2, 3), 0, 0, 0)))
		}, map[string]int{"x": 0}, map[string]int{"y": 0, "none": -1}},
		{"one row: the inputs' axis", func(s *sketch) {
			x := s.input("x", 1, 3, 4)
			s.give("y", s.op("sum", Attrs{"dims": []int{0, 1}, "keepdim": true, "dtype": tensor.Float32}, x))
			s.give("one", s.op("arange", Attrs{"size": 1, "start": 0, "step": 1, "dtype": tensor.Int64}))
		}, map[string]int{"x": 0}, map[string]int{"y": 0, "one": -1}},
		{"one row: the output's axis by name", func(s *sketch) {
			s.give("y", swapped(s.input("x", 1, 3, 4), 0, 2))
		}, map[string]int{"x": 0, "y": 2}, map[string]int{"y": 2}},
	} {
		s := &sketch{t: t}
		c.build(s)
		got, err := Batched(&s.Graph, Standard(), c.axes)
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v and %v, want %v", c.name, got, err, c.want)
		}
	}
}

// TestNotBatchable mixes rows in many ways; the error says where.
func TestNotBatchable(t *testing.T) {
	float := Attrs{"dtype": tensor.Float32}
	for _, c := range []struct {
		name  string
		build func(s *sketch, x Operand) Operand
		kind  Kind
		msg   string
	}{
		{"mean over the batch", func(s *sketch, x Operand) Operand {
			mean := s.op("mean", Attrs{"dims": []int{0}, "keepdim": true, "dtype": tensor.Float32}, x)
			return s.op("sub", nil, x, expanded(mean, 0, 3))
		}, "mean", "mixes the rows in dimension 0"},
		{"softmax over the batch", func(s *sketch, x Operand) Operand {
			return s.op("softmax", Attrs{"dim": 0}, x)
		}, "softmax", "mixes the rows in dimension 0"},
		{"products of all rows", func(s *sketch, x Operand) Operand {
			return s.op("matmul", nil, x, swapped(x, 0, 1))
		}, "matmul", "operands 0, [3 4], and 1, [4 3], are not taken row by row"},
		{"rows backwards", func(s *sketch, x Operand) Operand {
			return s.op("flip", Attrs{"dims": []int{0}}, x)
		}, "flip", "mixes the rows"},
		{"rows turned", func(s *sketch, x Operand) Operand {
			return s.op("roll", Attrs{"dims": []int{0, 1}, "shifts": []int{1, 0}}, x)
		}, "roll", "mixes the rows"},
		{"twice as many rows", func(s *sketch, x Operand) Operand {
			return s.op("cat", Attrs{"dim": 0}, x, x)
		}, "cat", "more than the 3 rows"},
		{"rows and a constant", func(s *sketch, x Operand) Operand {
			return s.op("cat", Attrs{"dim": 0}, x, s.weight(1, 4))
		}, "cat", "operand 1"},
		{"a padded batch", func(s *sketch, x Operand) Operand {
			return s.op("pad", Attrs{"before": []int{1, 0}, "after": []int{0, 0}, "mode": "constant"}, x, s.number(0))
		}, "pad", "mixes the rows"},
		{"a running sum of rows", func(s *sketch, x Operand) Operand {
			return s.op("cumsum", Attrs{"dim": 0}, x)
		}, "cumsum", "mixes the rows"},
		{"rows in order", func(s *sketch, x Operand) Operand {
			return s.op("sort", Attrs{"dim": 0}, x)
		}, "sort", "mixes the rows"},
		{"a triangle of rows", func(s *sketch, x Operand) Operand {
			return s.op("tril", nil, x)
		}, "tril", "mixes the rows"},
		{"the first row", func(s *sketch, x Operand) Operand {
			return s.op("sub", nil, x, expanded(cut(x, 0, 0, 1), 0, 3))
		}, "sub", "one row"},
		{"another row", func(s *sketch, x Operand) Operand {
			return s.op("relu", nil, cut(x, 0, 1, 3))
		}, "relu", "begins at row 1"},
		{"rows against each other", func(s *sketch, x Operand) Operand {
			l := expanded(seen(x, 3, 1, 4), 1, 3)
			r := expanded(seen(x, 1, 3, 4), 0, 3)
			return s.op("sub", nil, l, r)
		}, "sub", "are not taken row by row"},
		{"elements that travel between rows", func(s *sketch, x Operand) Operand {
			return s.op("softmax", Attrs{"dim": 1}, seen(x, 2, 6))
		}, "softmax", "steps by 6 elements"},
		{"a softmax over rows merged with others", func(s *sketch, x Operand) Operand {
			return s.op("softmax", Attrs{"dim": 0}, seen(x, 12))
		}, "softmax", "mixes the rows"},
		{"a constant for each row", func(s *sketch, x Operand) Operand {
			return s.op("add", nil, x, s.weight(3, 4))
		}, "add", "operand 1, [3 4], does not depend on the batch and differs"},
		{"the numbers of rows", func(s *sketch, x Operand) Operand {
			n := s.op("arange", Attrs{"size": 3, "start": 0, "step": 1, "dtype": tensor.Int64})
			return s.op("mul", nil, x, expanded(seen(s.op("cast", float, n), 3, 1), 1, 4))
		}, "mul", "differs from row to row"},
		{"rows chosen by others", func(s *sketch, x Operand) Operand {
			chosen := s.op("argmax", Attrs{"dims": []int{1}}, cut(x, 1, 0, 3))
			return s.op("index", Attrs{"dim": 0}, x, chosen)
		}, "index", "mixes the rows"},
		{"rows numbered from one", func(s *sketch, x Operand) Operand {
			n := s.op("arange", Attrs{"size": 3, "start": -1, "step": 1, "dtype": tensor.Int64})
			return s.op("index", Attrs{"dim": 0, "wrap": true}, x, n)
		}, "index", "mixes the rows"},
		{"rows written into another", func(s *sketch, x Operand) Operand {
			return s.op("write_view", Attrs{"shape": []int{1, 4}, "strides": []int{4, 1}, "offset": 4}, x, cut(x, 0, 0, 1))
		}, "write_view", "begins at row 1"},
		{"rows written over others", func(s *sketch, x Operand) Operand {
			part := cut(x, 1, 0, 3)
			return s.op("write_view", Attrs{"shape": []int{3, 3}, "strides": []int{4, 1}, "offset": 0}, x, swapped(part, 0, 1))
		}, "write_view", "rows are written into others"},
		{"queries that see keys up to their own", func(s *sketch, x Operand) Operand {
			a := Attrs{"scale": 0.5, "is_causal": true, "also": ""}
			return s.op("scaled_dot_product_attention", a, x, s.weight(3, 4), s.weight(3, 4))
		}, "scaled_dot_product_attention", "mixes the rows"},
		{"a norm of all rows as channels of a group", func(s *sketch, x Operand) Operand {
			return s.op("group_norm", Attrs{"groups": 1, "eps": 1e-5}, seen(x, 1, 3, 4))
		}, "group_norm", "mixes the rows"},
		{"bags of rows", func(s *sketch, x Operand) Operand {
			first := s.Whole(s.AddConst(tensor.Of([]int64{0, 1, 2}, 3)))
			return s.op("embedding_bag", Attrs{"padding": -1, "mode": 0}, x, first, first)
		}, "embedding_bag", "mixes the rows"},
		{"states of packed sequences", func(s *sketch, x Operand) Operand {
			sizes := s.Whole(s.AddConst(tensor.Of([]int64{3, 2}, 2)))
			in := []Operand{s.weight(5, 3), sizes, seen(x, 1, 3, 4), Absent, s.weight(12, 3), s.weight(12, 4), s.weight(12),
				s.weight(12), Absent}
			ids, err := s.Emit(Standard(), Op{Kind: "gru", Path: s.path, Source: "model.py:7", In: in})
			if err != nil {
				s.t.Fatal(err)
			}
			return s.Whole(ids[1])
		}, "gru", "mixes the rows"},
		{"a constant for each row, written", func(s *sketch, x Operand) Operand {
			return s.op("write_view", Attrs{"shape": []int{3, 1}, "strides": []int{4, 1}, "offset": 0}, x, s.weight(3, 1))
		}, "write_view", "operand 1"},
		{"rows written over a constant for each", func(s *sketch, x Operand) Operand {
			base := s.op("copy", nil, s.weight(3, 4))
			return s.op("write_view", Attrs{"shape": []int{3, 1}, "strides": []int{4, 1}, "offset": 0}, base, cut(x, 1, 0, 1))
		}, "write_view", "operand 0"},
	} {
		s := &sketch{t: t, path: "block.1"}
		s.give("y", c.build(s, s.input("x", 3, 4)))
		got, err := Batched(&s.Graph, Standard(), map[string]int{"x": 0})
		var refused *NotBatchableError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v and %v", c.name, got, err)
			continue
		}
		if refused.Path != "block.1" || refused.Kind != c.kind || refused.Source != "model.py:7" ||
			!strings.Contains(refused.Msg, c.msg) {
			t.Errorf("%s: %v, want %s: %s", c.name, err, c.kind, c.msg)
		}
	}
}

// TestRowsThatDoNotMeet has inputs whose rows lie differently, so that ops take them together in no way.
func TestRowsThatDoNotMeet(t *testing.T) {
	for name, c := range map[string]struct {
		build func(s *sketch) Operand
		axes  map[string]int
	}{
		"half as many rows, first": {func(s *sketch) Operand {
			s.input("z", 2, 4)
			return s.op("relu", nil, s.input("x", 4, 4))
		}, map[string]int{"x": 0, "z": 0}},
		"half as many rows, last": {func(s *sketch) Operand {
			y := s.op("relu", nil, s.input("x", 4, 4))
			s.input("z", 2, 4)
			return y
		}, map[string]int{"x": 0, "z": 0}},
		"rows merged in front and behind": {func(s *sketch) Operand {
			return seen(s.op("add", nil, seen(s.input("x", 2, 3, 4), 6, 4), seen(s.input("y", 3, 2, 4), 6, 4)), 2, 3, 4)
		}, map[string]int{"x": 0, "y": 1}},
		"channels of groups": {func(s *sketch) Operand {
			a := Attrs{"stride": []int{1}, "padding": []int{0}, "dilation": []int{1}, "groups": 3}
			return s.op("conv", a, seen(s.input("x", 2, 3), 1, 6, 1), expanded(s.weight(1, 2, 1), 0, 3), Absent)
		}, map[string]int{"x": 1}},
	} {
		s := &sketch{t: t}
		s.give("out", c.build(s))
		if got, err := Batched(&s.Graph, Standard(), c.axes); !errors.As(err, new(*NotBatchableError)) {
			t.Errorf("%s: %v and %v", name, got, err)
		}
	}
}

// TestBatchedArguments gives axes that cannot be.
func TestBatchedArguments(t *testing.T) {
	for _, c := range []struct {
		axes map[string]int
		want string
	}{
		{nil, "no input has a batch axis"},
		{map[string]int{"x": -1}, "no input has a batch axis"},
		{map[string]int{"x": 2}, "not batchable: x: shape [3 4] has no axis 2"},
		{map[string]int{"x": 0, "w": 0}, "not batchable: w: axis 0 of shape [2 4]: input x has 3 rows"},
		{map[string]int{"x": 0, "z": 0}, "not batchable: z: there is no such input or output"},
		{map[string]int{"x": 0, "y": 1}, "not batchable: block.1: relu: y: the rows of [3 4] are along axis 0, not 1"},
	} {
		s := &sketch{t: t, path: "block.1"}
		s.give("y", s.op("relu", nil, s.input("x", 3, 4)))
		s.input("w", 2, 4)
		if _, err := Batched(&s.Graph, Standard(), c.axes); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("axes %v: %v, want %q", c.axes, err, c.want)
		}
	}
	s := &sketch{t: t}
	x := s.input("x", 1, 4)
	s.give("y", seen(x, 4))
	_, err := Batched(&s.Graph, Standard(), map[string]int{"x": 0})
	if err == nil || !strings.Contains(err.Error(), "Name the output's axis") {
		t.Errorf("an output with no place for rows: %v", err)
	}
	state := s.AddWeight(tensor.Weight{Name: "count", DType: tensor.Float32, Extent: storage.Extent{Bytes: 4}}, State)
	s.Updates = append(s.Updates, StateUpdate{State: state, Operand: s.Whole(state)})
	_, err = Batched(&s.Graph, Standard(), map[string]int{"x": 0})
	if err == nil || !strings.Contains(err.Error(), "count: it is changed") {
		t.Errorf("a state: %v", err)
	}
}

// TestAxisRuleMissing: an op without a rule may be used on what does not depend on rows.
func TestAxisRuleMissing(t *testing.T) {
	shape := func(in []Spec, _ Attrs) ([]Spec, error) { return in[:1], nil }
	none := func(_, _ []*tensor.Tensor, _ Attrs) error { return nil }
	wrong := func(in, _ []Spec, _ Attrs) [][]int { return [][]int{{0, 7}} }
	r, err := Standard().With(OpDef{Kind: "my::op", Shape: shape, Reference: none},
		OpDef{Kind: "my::wrong", Shape: shape, Reference: none, Axes: wrong})
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[Kind]string{
		"my::op": "it has no batch-axis rule", "my::wrong": "its batch-axis rule gives [[0 7]]",
	} {
		for _, shared := range []bool{false, true} {
			g := &Graph{}
			x, w := g.AddInput("x", tensor.Float32, tensor.Shape{2, 3}), g.AddInput("w", tensor.Float32, tensor.Shape{2, 3})
			in := g.Whole(x)
			if shared {
				in = g.Whole(w)
			}
			out, err := g.Emit(r, Op{Kind: kind, In: []Operand{in}})
			if err != nil {
				t.Fatal(err)
			}
			g.Outputs = []Output{{Name: "y", Operand: g.Whole(out[0])}}
			_, err = Batched(g, r, map[string]int{"x": 0})
			if shared && err != nil || !shared && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s, shared %t: %v", kind, shared, err)
			}
		}
	}
}
