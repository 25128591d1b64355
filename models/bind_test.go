package models

import (
	"errors"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// TestSizesOfPrograms: inputs have the sizes that a program was exported for, a symbol one size wherever it stands, and a size
// that is computed from a symbol that of the symbol.
func TestSizesOfPrograms(t *testing.T) {
	symbol := &exported.Expr{Fn: exported.FnSymbol, Name: "s0"}
	number := func(n int64) *exported.Expr { return &exported.Expr{Fn: exported.FnInteger, Int: n, Den: 1} }
	double := &exported.Expr{Fn: exported.FnMul, Args: []*exported.Expr{number(2), symbol}}
	more := &exported.Expr{Fn: exported.FnAdd, Args: []*exported.Expr{symbol, number(1)}}
	fixed := func(n int64) exported.SymInt { return exported.SymInt{Int: n} }
	for _, c := range []struct {
		name   string
		ports  [][]exported.SymInt
		shapes []tensor.Shape
		s0     int64 // 0 where the shapes are refused
	}{
		{"a symbol", [][]exported.SymInt{{{Expr: symbol}, fixed(3)}}, []tensor.Shape{{4, 3}}, 4},
		{"the largest size", [][]exported.SymInt{{{Expr: symbol}}}, []tensor.Shape{{8}}, 8},
		{"more than the largest", [][]exported.SymInt{{{Expr: symbol}}}, []tensor.Shape{{9}}, 0},
		{"one where two is the least", [][]exported.SymInt{{{Expr: symbol}}}, []tensor.Shape{{1}}, 1},
		{"none", [][]exported.SymInt{{{Expr: symbol}}}, []tensor.Shape{{0}}, 0},
		{"a larger fixed size", [][]exported.SymInt{{fixed(3)}}, []tensor.Shape{{4}}, 0},
		{"a smaller fixed size", [][]exported.SymInt{{fixed(3)}}, []tensor.Shape{{2}}, 0},
		{"another rank", [][]exported.SymInt{{{Expr: symbol}, fixed(3)}}, []tensor.Shape{{4}}, 0},
		{"equal symbols", [][]exported.SymInt{{{Expr: symbol}}, {{Expr: symbol}}}, []tensor.Shape{{5}, {5}}, 5},
		{"a larger second", [][]exported.SymInt{{{Expr: symbol}}, {{Expr: symbol}}}, []tensor.Shape{{5}, {6}}, 0},
		{"a smaller second", [][]exported.SymInt{{{Expr: symbol}}, {{Expr: symbol}}}, []tensor.Shape{{5}, {4}}, 0},
		{"twice as much", [][]exported.SymInt{{{Expr: symbol}}, {{Expr: double}}}, []tensor.Shape{{5}, {10}}, 5},
		{"more than twice", [][]exported.SymInt{{{Expr: symbol}}, {{Expr: double}}}, []tensor.Shape{{5}, {11}}, 0},
		{"less than twice", [][]exported.SymInt{{{Expr: symbol}}, {{Expr: double}}}, []tensor.Shape{{5}, {9}}, 0},
		{"the double alone", [][]exported.SymInt{{{Expr: double}}}, []tensor.Shape{{14}}, 7},
		{"an odd double", [][]exported.SymInt{{{Expr: double}}}, []tensor.Shape{{7}}, 0},
		{"one more, alone", [][]exported.SymInt{{{Expr: more}}}, []tensor.Shape{{7}}, 6},
		{"one more than the largest", [][]exported.SymInt{{{Expr: more}}}, []tensor.Shape{{9}}, 8},
	} {
		b := newRecorder(nil, nil).programBuilder
		b.symbols, b.binders = make(map[string]int64), make(map[string]string)
		b.program = &exported.Program{Ranges: []exported.Range{{Symbol: "s0", Min: 2, Max: 8}}}
		var err error
		for i, sizes := range c.ports {
			if err == nil {
				name := string(rune('a' + i))
				port := exported.Port{Name: name, DType: tensor.Float32, Shape: sizes}
				_, err = b.userInput(port, map[string]tensor.Shape{name: c.shapes[i]})
			}
		}
		if err == nil {
			err = b.checkRanges()
		}
		var refused *InputError
		if c.s0 == 0 && (!errors.As(err, &refused) || len(refused.Input) != 1) || c.s0 > 0 && (err != nil || b.symbols["s0"] != c.s0) {
			t.Errorf("%s: %v with the symbol %d", c.name, err, b.symbols["s0"])
		}
	}
}

// TestWeightsOverOneStorage: tied weights are one value of the graph, so that a plan holds them once. A weight that
// reads the same bytes as numbers of another type, as Tensor.view(dtype) makes them, is a value of that type.
func TestWeightsOverOneStorage(t *testing.T) {
	shared := storage.Extent{Source: absent{}, Bytes: 24}
	var weights []tensor.Weight
	for _, w := range []struct {
		name  string
		dtype tensor.DType
	}{{"floats", tensor.Float32}, {"tied", tensor.Float32}, {"bits", tensor.Int32}} {
		weights = append(weights, tensor.Weight{
			Name: w.name, DType: w.dtype, Layout: tensor.Contiguous(2, 3), Extent: shared,
		})
	}
	ckpt, err := loader.NewCheckpoint("shared.pt2", weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := newRecorder(ckpt, graph.Standard()).programBuilder
	values := make(map[string]graph.ValueID)
	for _, w := range weights {
		r, err := b.weight(w.Name)
		if err != nil {
			t.Fatal(err)
		}
		values[w.Name] = r.Memory().Value()
		if v := b.Graph.Values[r.Memory().Value()]; v.DType != w.DType || r.DType() != w.DType {
			t.Errorf("%s of %v is a value of %v, read as %v", w.Name, w.DType, v.DType, r.DType())
		}
	}
	if values["tied"] != values["floats"] || values["bits"] == values["floats"] {
		t.Errorf("the values are %v", values)
	}
}
