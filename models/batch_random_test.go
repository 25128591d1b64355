package models_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestBatchRandom writes small graphs at random, of views and ops over inputs whose sizes are easily confused, and runs
// those that are said to keep rows apart.
func TestBatchRandom(t *testing.T) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	rounds := 60000
	if testing.Short() {
		rounds = 12000
	}
	kept := make(map[graph.Kind]int)
	accepted := 0
	for seed := range rounds {
		w := &writer{rng: rand.New(rand.NewPCG(uint64(seed), 1)), graph: &graph.Graph{}}
		w.write()
		out, err := graph.Batched(w.graph, graph.Standard(), w.axes)
		if err != nil {
			continue
		}
		if d := out["y"]; d >= 0 {
			accepted++
			for _, op := range w.graph.Ops {
				kept[op.Kind]++
			}
		}
		if err := w.check(t, pool, out["y"]); err != nil {
			t.Fatalf("seed %d: inputs at %v, output axis %d: %v\n%s", seed, w.axes, out["y"], err, w)
		}
	}
	t.Logf("%d of %d graphs keep rows apart; ops in them: %v", accepted, rounds, kept)
	if accepted < rounds/50 {
		t.Errorf("only %d of %d graphs keep rows apart", accepted, rounds)
	}
	for _, k := range []graph.Kind{"add", "cat", "copy", "index", "matmul", "roll", "softmax", "sum", "write_view"} {
		if kept[k] < 20 {
			t.Errorf("%d graphs with %s keep rows apart", kept[k], k)
		}
	}
}

// A writer writes a graph over inputs x and z with rows, and w without.
type writer struct {
	rng   *rand.Rand
	graph *graph.Graph
	axes  map[string]int
	// made are operands to choose from, numbers those of int64.
	made, numbers []graph.Operand
}

func (w *writer) String() string {
	var b bytes.Buffer
	for _, op := range w.graph.Ops {
		fmt.Fprintln(&b, op.Out, op.Kind, op.Attrs, op.In)
	}
	fmt.Fprintln(&b, w.graph.Outputs)
	return b.String()
}

func (w *writer) write() {
	rows := 2 + w.rng.IntN(2)
	w.axes = map[string]int{"w": -1}
	for _, name := range []string{"x", "z", "w"} {
		s := tensor.Shape{2, 3, 2}
		for d := range s {
			s[d] = 1 + w.rng.IntN(4)
		}
		if name != "w" {
			w.axes[name] = w.rng.IntN(3)
			s[w.axes[name]] = rows
		}
		w.made = append(w.made, w.graph.Whole(w.graph.AddInput(name, tensor.Float32, s)))
	}
	w.emit("arange", graph.Attrs{"size": rows, "start": 0, "step": 1, "dtype": tensor.Int64})
	for range 2 + w.rng.IntN(6) {
		w.step()
	}
	w.graph.Outputs = []graph.Output{{Name: "y", Operand: w.view(w.made[len(w.made)-1])}}
}

// emit adds an op if it can be.
func (w *writer) emit(kind graph.Kind, a graph.Attrs, in ...graph.Operand) {
	ids, err := w.graph.Emit(graph.Standard(), graph.Op{Kind: kind, Attrs: a, In: in})
	if err != nil {
		return
	}
	for _, id := range ids {
		o := w.graph.Whole(id)
		if w.graph.Values[id].DType == tensor.Int64 {
			w.numbers = append(w.numbers, o)
		} else {
			w.made = append(w.made, o)
		}
	}
}

// view returns a view of an operand, as views of views come about.
func (w *writer) view(o graph.Operand) graph.Operand {
	l := tensor.Layout{Shape: slices.Clone(o.Layout.Shape), Strides: slices.Clone(o.Layout.Strides), Offset: o.Layout.Offset}
	for range w.rng.IntN(3) {
		if len(l.Shape) == 0 {
			break
		}
		d := w.rng.IntN(len(l.Shape))
		n := l.Shape[d]
		switch w.rng.IntN(6) {
		case 0:
			e := w.rng.IntN(len(l.Shape))
			l.Shape[d], l.Shape[e] = l.Shape[e], l.Shape[d]
			l.Strides[d], l.Strides[e] = l.Strides[e], l.Strides[d]
		case 1: // a slice
			from := w.rng.IntN(n)
			l.Offset += from * l.Strides[d]
			l.Shape[d] = 1 + w.rng.IntN(n-from)
		case 2: // expanded
			if n == 1 {
				l.Shape[d], l.Strides[d] = 1+w.rng.IntN(4), 0
			}
		case 3: // split
			for _, k := range []int{2, 3} {
				if n%k == 0 && n > k {
					l.Shape = slices.Insert(l.Shape, d+1, k)
					l.Strides = slices.Insert(l.Strides, d+1, l.Strides[d])
					l.Shape[d], l.Strides[d] = n/k, l.Strides[d]*k
					break
				}
			}
		case 4: // merged with the next
			if d+1 < len(l.Shape) && l.Strides[d] == l.Strides[d+1]*l.Shape[d+1] {
				l.Shape[d] *= l.Shape[d+1]
				l.Strides[d] = l.Strides[d+1]
				l.Shape, l.Strides = slices.Delete(l.Shape, d+1, d+2), slices.Delete(l.Strides, d+1, d+2)
			}
		case 5:
			l.Shape, l.Strides = slices.Insert(l.Shape, d, 1), slices.Insert(l.Strides, d, 0)
		}
	}
	if n, _ := l.NumElements(); n > 200 {
		return o
	}
	return graph.Operand{Value: o.Value, Layout: l}
}

// pick returns a view of something made before, rather of the last.
func (w *writer) pick() graph.Operand {
	i := len(w.made) - 1
	if w.rng.IntN(2) == 0 {
		i = w.rng.IntN(len(w.made))
	}
	return w.view(w.made[i])
}

// like returns an operand of a shape: something made that fits, or can be expanded to it.
func (w *writer) like(s tensor.Shape) (graph.Operand, bool) {
	for range 12 {
		o := w.pick()
		if lead := len(s) - len(o.Layout.Shape); lead > 0 {
			o.Layout.Shape = slices.Concat(slices.Repeat([]int{1}, lead), o.Layout.Shape)
			o.Layout.Strides = slices.Concat(make([]int, lead), o.Layout.Strides)
		}
		if len(o.Layout.Shape) != len(s) {
			continue
		}
		l := tensor.Layout{Shape: s, Strides: slices.Clone(o.Layout.Strides), Offset: o.Layout.Offset}
		fits := true
		for d, n := range o.Layout.Shape {
			if n == 1 && s[d] > 1 {
				l.Strides[d] = 0
			} else {
				fits = fits && n == s[d]
			}
		}
		if fits {
			return graph.Operand{Value: o.Value, Layout: l}, true
		}
	}
	return graph.Operand{}, false
}

// step adds an op.
func (w *writer) step() {
	x := w.pick()
	s := x.Layout.Shape
	if len(s) == 0 {
		return
	}
	d := w.rng.IntN(len(s))
	switch w.rng.IntN(13) {
	case 0, 1:
		w.emit("copy", nil, x)
	case 2, 3:
		if y, ok := w.like(s); ok {
			w.emit("add", nil, x, y)
		}
	case 4:
		w.emit("softmax", graph.Attrs{"dim": d}, x)
	case 5:
		w.emit("sum", graph.Attrs{"dims": []int{d}, "keepdim": w.rng.IntN(2) == 0, "dtype": tensor.Float32}, x)
	case 6:
		w.emit("cumsum", graph.Attrs{"dim": d}, x)
	case 7:
		w.emit("roll", graph.Attrs{"dims": []int{d}, "shifts": []int{w.rng.IntN(3)}}, x)
	case 8:
		other := slices.Clone(s)
		other[d] = 1 + w.rng.IntN(4)
		if y, ok := w.like(other); ok {
			w.emit("cat", graph.Attrs{"dim": d}, x, y)
		}
	case 9:
		if len(s) >= 2 {
			other := slices.Clone(s)
			other[len(s)-2] = s[len(s)-1]
			other[len(s)-1] = 1 + w.rng.IntN(4)
			if y, ok := w.like(other); ok {
				w.emit("matmul", nil, x, y)
			}
		}
	case 10, 11:
		w.index(x, d)
	case 12:
		w.writeView(x)
	}
}

// index takes elements of x by numbers: those of rows, and the places of maxima.
func (w *writer) index(x graph.Operand, d int) {
	s := x.Layout.Shape
	if d+1 < len(s) && w.rng.IntN(2) == 0 {
		w.emit("argmax", graph.Attrs{"dims": []int{d + 1}}, x)
	}
	var in []graph.Operand
	for k := range 1 + w.rng.IntN(2) {
		n := w.numbers[w.rng.IntN(len(w.numbers))]
		if k == 0 && w.rng.IntN(2) == 0 {
			n = w.numbers[0]
		}
		n = w.view(n)
		if k > 0 && !n.Layout.Shape.Equal(in[0].Layout.Shape) {
			return
		}
		in = append(in, n)
	}
	w.emit("index", graph.Attrs{"dim": d}, append([]graph.Operand{x}, in...)...)
}

// writeView replaces a part of something made by x.
func (w *writer) writeView(x graph.Operand) {
	whole := w.graph.Whole(w.made[w.rng.IntN(len(w.made))].Value)
	part := w.view(whole)
	if slices.Contains(part.Layout.Strides, 0) {
		return // an element would be written twice
	}
	if y, ok := w.like(part.Layout.Shape); ok {
		x = y
	}
	l := part.Layout
	w.emit("write_view", graph.Attrs{"shape": []int(l.Shape), "strides": l.Strides, "offset": l.Offset}, whole, x)
}

// check runs the graph twice: with the rows of the inputs, and with them in the opposite order and row 0 replaced.
func (w *writer) check(t *testing.T, pool *cpu.Pool, axis int) error {
	first, second := make(map[string]*tensor.Tensor), make(map[string]*tensor.Tensor)
	rows := 0
	for _, id := range w.graph.Inputs {
		v := w.graph.Values[id]
		values := make([]float32, v.Bytes()/4)
		for i := range values {
			values[i] = float32(w.rng.IntN(1000)) / 64
		}
		x := tensor.Of(values, v.Shape...)
		first[v.Name], second[v.Name] = x, x
		if d := w.axes[v.Name]; d >= 0 {
			rows = v.Shape[d]
			second[v.Name] = take(replaced(x, d), d, backwards(rows))
		}
	}
	run := func(in map[string]*tensor.Tensor) (*tensor.Tensor, error) {
		out, err := cpu.Interpret(t.Context(), pool, graph.Standard(), w.graph, nil, in)
		return out["y"], err
	}
	a, err := run(first)
	if err != nil {
		return nil // an index outside of its dimension
	}
	b, err := run(second)
	if err != nil {
		return nil
	}
	if axis < 0 {
		if !bytes.Equal(a.Data, b.Data) {
			return fmt.Errorf("it depends on the rows")
		}
		return nil
	}
	if a.Layout.Shape[axis] != rows {
		return fmt.Errorf("%v has no %d rows", a.Layout.Shape, rows)
	}
	b = take(b, axis, backwards(rows))
	for i := 1; i < rows; i++ {
		only := slices.Repeat([]int{i}, rows)
		if !bytes.Equal(take(a, axis, only).Data, take(b, axis, only).Data) {
			return fmt.Errorf("row %d changes with row 0 or the order", i)
		}
	}
	return nil
}
