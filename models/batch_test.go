package models

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/recent"
	"github.com/optimem/optimem/tensor"
)

type emitter = func(graph.Kind, graph.Attrs, ...graph.Operand) graph.Operand

// sketched is a model whose graph is written for the shapes that it is asked for. Dims are written as "s0 3 s1".
func sketched(inputs map[string]string, order []string, write func(*graph.Graph, []graph.Operand, emitter)) *Model {
	m := &Model{ops: graph.Standard(), graphs: recent.New[string, *graph.Graph](maxGraphs), outputs: []string{"y"}}
	for _, name := range order {
		p := Port{Name: name, DType: tensor.Float32}
		for _, dim := range strings.Fields(inputs[name]) {
			n := 0
			for _, r := range dim {
				if n = n*10 + int(r-'0'); r < '0' || r > '9' {
					n = -1
					break
				}
			}
			if p.Shape = append(p.Shape, n); n >= 0 {
				dim = ""
			}
			p.Dims = append(p.Dims, dim)
		}
		m.inputs = append(m.inputs, p)
	}
	m.build = func(_ context.Context, c Call) (*graph.Graph, error) {
		g := &graph.Graph{}
		var in []graph.Operand
		for _, p := range m.inputs {
			if c.Inputs[p.Name] == nil && p.Optional {
				continue
			}
			if len(c.Inputs[p.Name]) != len(p.Shape) {
				return nil, &InputError{p.Name, "is missing"}
			}
			in = append(in, g.Whole(g.AddInput(p.Name, p.DType, c.Inputs[p.Name])))
		}
		var failed error
		write(g, in, func(kind graph.Kind, a graph.Attrs, in ...graph.Operand) graph.Operand {
			if failed != nil {
				return in[0]
			}
			out, err := g.Emit(m.ops, graph.Op{Kind: kind, Attrs: a, In: in})
			if failed = err; err != nil {
				return in[0]
			}
			return g.Whole(out[0])
		})
		return g, failed
	}
	return m
}

// yields makes an operand the output.
func yields(g *graph.Graph, o graph.Operand) {
	g.Outputs = []graph.Output{{Name: "y", Operand: o}}
}

// TestBatchAxes chooses among the dimensions of inputs.
func TestBatchAxes(t *testing.T) {
	relu := func(g *graph.Graph, in []graph.Operand, emit emitter) { yields(g, emit("relu", nil, in[0])) }
	sum := func(g *graph.Graph, in []graph.Operand, emit emitter) { yields(g, emit("add", nil, in...)) }
	scan := func(g *graph.Graph, in []graph.Operand, emit emitter) {
		yields(g, emit("cumsum", graph.Attrs{"dim": 0}, in[0]))
	}
	turned := func(g *graph.Graph, in []graph.Operand, _ emitter) {
		l := in[0].Layout
		yields(g, graph.Operand{Value: in[0].Value, Layout: tensor.Layout{
			Shape: tensor.Shape{l.Shape[1], l.Shape[0]}, Strides: []int{l.Strides[1], l.Strides[0]}}})
	}
	type names = map[string]int
	for _, c := range []struct {
		name    string
		inputs  map[string]string
		order   string
		shapes  map[string]tensor.Shape
		write   func(*graph.Graph, []graph.Operand, emitter)
		named   names
		in, out names
		err     string
	}{
		{name: "a symbol at axis 0, given one row", inputs: map[string]string{"x": "s0 s1"}, order: "x",
			shapes: map[string]tensor.Shape{"x": {1, 5}}, write: relu, in: names{"x": 0}, out: names{"y": 0}},
		{name: "a symbol at axis 1, where that at axis 0 is no batch",
			inputs: map[string]string{"x": "s0 s1"}, order: "x",
			shapes: map[string]tensor.Shape{"x": {1, 5}}, write: scan, in: names{"x": 1}, out: names{"y": 1}},
		{name: "symbols of their own", inputs: map[string]string{"x": "s0 4", "w": "s1 4"}, order: "x w",
			shapes: map[string]tensor.Shape{"x": {1, 4}, "w": {1, 4}}, write: sum,
			in: names{"x": 0, "w": 0}, out: names{"y": 0}},
		{name: "an input without the symbol", inputs: map[string]string{"t": "4", "x": "s0 4"}, order: "t x",
			shapes: map[string]tensor.Shape{"x": {7, 4}, "t": {4}},
			write: func(g *graph.Graph, in []graph.Operand, emit emitter) {
				in[0].Layout = tensor.Layout{Shape: in[1].Layout.Shape, Strides: []int{0, 1}}
				yields(g, emit("add", nil, in...))
			}, in: names{"x": 0, "t": -1}, out: names{"y": 0}},
		{name: "a size made of the symbol", inputs: map[string]string{"x": "s0 4", "w": "2*s0 4"}, order: "x w",
			shapes: map[string]tensor.Shape{"x": {1, 4}, "w": {2, 4}}, write: relu, err: "w: dimension 0 is 2*s0"},
		{name: "fixed, of one row", inputs: map[string]string{"x": "1 s0", "w": "1 s0"}, order: "x w",
			shapes: map[string]tensor.Shape{"x": {1, 4}, "w": {1, 4}}, write: sum,
			in: names{"x": 0, "w": 0}, out: names{"y": 0}},
		{name: "fixed, of one row that goes elsewhere", inputs: map[string]string{"x": "1 4"}, order: "x",
			shapes: map[string]tensor.Shape{"x": {1, 4}}, write: turned, err: "Name the output's axis"},
		{name: "fixed, and the output's named", inputs: map[string]string{"x": "1 4"}, order: "x", named: names{"y": 1},
			shapes: map[string]tensor.Shape{"x": {1, 4}}, write: turned, in: names{"x": 0}, out: names{"y": 1}},
		{name: "fixed, of two rows", inputs: map[string]string{"x": "2 4"}, order: "x",
			shapes: map[string]tensor.Shape{"x": {2, 4}}, write: turned, in: names{"x": 0}, out: names{"y": 1}},
		{name: "fixed, of several sizes", inputs: map[string]string{"x": "2 4", "w": "3"}, order: "x w",
			shapes: map[string]tensor.Shape{"x": {2, 4}, "w": {3}}, write: relu, err: "name it"},
		{name: "the same, named", inputs: map[string]string{"x": "2 4", "w": "3"}, order: "x w", named: names{"x": 0},
			shapes: map[string]tensor.Shape{"x": {2, 4}, "w": {3}}, write: relu,
			in: names{"x": 0, "w": -1}, out: names{"y": 0}},
		{name: "named where another would be chosen",
			inputs: map[string]string{"x": "s0 s1"}, order: "x", named: names{"x": 1},
			shapes: map[string]tensor.Shape{"x": {1, 5}}, write: relu, in: names{"x": 1}, out: names{"y": 1}},
		{name: "named for one, and shared by symbol", inputs: map[string]string{"x": "s0 s1", "w": "s0 s1"},
			order: "x w", named: names{"w": 1}, shapes: map[string]tensor.Shape{"x": {3, 5}, "w": {3, 5}}, write: sum,
			in: names{"x": 1, "w": 1}, out: names{"y": 1}},
		{name: "named and mixed", inputs: map[string]string{"x": "s0 s1"}, order: "x", named: names{"x": 0},
			shapes: map[string]tensor.Shape{"x": {1, 5}}, write: scan, err: "cumsum: it mixes the rows"},
		{name: "a name that is none", inputs: map[string]string{"x": "s0"}, order: "x", named: names{"z": 0},
			write: relu, err: "z: there is no such input or output"},
		{name: "an axis that is none", inputs: map[string]string{"x": "s0"}, order: "x", named: names{"x": 1},
			write: relu, err: "x: there is no axis 1"},
		{name: "of a size that is decided by the number of rows", inputs: map[string]string{"x": "s0 4"}, order: "x",
			shapes: map[string]tensor.Shape{"x": {1, 4}},
			write: func(g *graph.Graph, in []graph.Operand, emit emitter) {
				in[0].Layout.Shape = tensor.Shape{in[0].Layout.Shape[0], in[0].Layout.Shape[0]}
				yields(g, emit("relu", nil, in[0]))
			}, err: "depends on the number of rows"},
	} {
		m := sketched(c.inputs, strings.Fields(c.order), c.write)
		in, out, err := m.BatchAxes(c.shapes, c.named)
		switch {
		case c.err != "" && (!errors.As(err, new(*graph.NotBatchableError)) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, %v and %v, want the error %q", c.name, in, out, err, c.err)
		case c.err == "" && (err != nil || !maps.Equal(in, c.in) || !maps.Equal(out, c.out)):
			t.Errorf("%s: %v, %v and %v, want %v and %v", c.name, in, out, err, c.in, c.out)
		}
	}
	m := sketched(map[string]string{"x": "s0 4"}, []string{"x"}, relu)
	if _, _, err := m.BatchAxes(nil, nil); !errors.As(err, new(*InputError)) {
		t.Errorf("without shapes: %v", err)
	}
}

// TestBatchAxesBeforeGraph: an output can be named before a graph has said what the outputs are, also while another is built.
func TestBatchAxesBeforeGraph(t *testing.T) {
	m := sketched(map[string]string{"x": "s0 3"}, []string{"x"}, func(g *graph.Graph, in []graph.Operand, emit emitter) {
		yields(g, emit("relu", nil, in[0]))
	})
	m.outputs = nil
	built := make(chan error)
	go func() {
		_, err := m.Graph(map[string]tensor.Shape{"x": {7, 3}})
		built <- err
	}()
	shapes := map[string]tensor.Shape{"x": {5, 3}}
	in, out, err := m.BatchAxes(shapes, map[string]int{"x": 0, "y": 0})
	if err != nil || in["x"] != 0 || out["y"] != 0 {
		t.Errorf("got %v, %v, %v", in, out, err)
	}
	if err := <-built; err != nil {
		t.Error(err)
	}
	m.outputs = nil
	var refused *graph.NotBatchableError
	if _, _, err := m.BatchAxes(shapes, map[string]int{"z": 0}); !errors.As(err, &refused) || refused.Name != "z" {
		t.Errorf("an output that is not there: %v", err)
	}
}

// TestBatchAxesOfUnknownShapes: a model that does not tell the shapes of its inputs, as a pickled module, has its rows at axis
// 0, or where a caller says, if it keeps them apart.
func TestBatchAxesOfUnknownShapes(t *testing.T) {
	m := &Model{
		ops: graph.Standard(), graphs: recent.New[string, *graph.Graph](maxGraphs),
		inputs: []Port{{Name: "x", DType: tensor.Float32}},
	}
	m.build = func(_ context.Context, c Call) (*graph.Graph, error) {
		g := &graph.Graph{}
		x := g.Whole(g.AddInput("x", tensor.Float32, c.Inputs["x"]))
		out, err := g.Emit(m.ops, graph.Op{Kind: "cumsum", Attrs: graph.Attrs{"dim": 1}, In: []graph.Operand{x}})
		if err == nil {
			yields(g, g.Whole(out[0]))
		}
		return g, err
	}
	for _, c := range []struct {
		rows  int
		named map[string]int
		fails string
	}{
		{3, nil, ""}, {1, nil, ""}, {3, map[string]int{"x": 0}, ""}, {1, map[string]int{"x": 0, "y": 0}, ""},
		{3, map[string]int{"x": 1}, "mixes"}, {3, map[string]int{"x": 2}, "no axis 2"}, {3, map[string]int{"x": -2}, "no axis -2"},
		{3, map[string]int{"x": -1}, "no input has"},
	} {
		in, out, err := m.BatchAxes(map[string]tensor.Shape{"x": {c.rows, 3}}, c.named)
		var refused *graph.NotBatchableError
		switch {
		case c.fails == "" && (err != nil || in["x"] != 0 || out["y"] != 0):
			t.Errorf("%d rows, %v: got %v, %v, %v", c.rows, c.named, in, out, err)
		case c.fails != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.fails)):
			t.Errorf("%d rows, %v: got %v, want what says %q", c.rows, c.named, err, c.fails)
		}
	}
}

// TestBatchAxesOfOptionalInputs: the rows are found where an input that need not be given has them too, given or not.
func TestBatchAxesOfOptionalInputs(t *testing.T) {
	m := sketched(map[string]string{"x": "s0 4", "mask": "s0 4"}, []string{"x", "mask"},
		func(g *graph.Graph, in []graph.Operand, emit emitter) {
			if len(in) == 1 {
				in = append(in, in[0])
			}
			yields(g, emit("mul", nil, in...))
		})
	m.inputs[1].Optional = true
	for _, shapes := range []map[string]tensor.Shape{{"x": {1, 4}}, {"x": {1, 4}, "mask": {1, 4}}} {
		for _, named := range []map[string]int{nil, {"x": 0}} {
			in, out, err := m.BatchAxes(shapes, named)
			if err != nil || in["x"] != 0 || in["mask"] != 0 || out["y"] != 0 {
				t.Errorf("shapes %v, axes %v: %v, %v and %v", shapes, named, in, out, err)
			}
		}
	}
}
