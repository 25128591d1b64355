package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
)

// recurrentTargets walk a sequence with a state.
var recurrentTargets = []atenOp{
	{"aten::lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, " +
		"bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)", recurrent("lstm", "input")},
	{"aten::lstm.data(Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, " +
		"float dropout, bool train, bool bidirectional) -> (Tensor, Tensor, Tensor)", recurrent("lstm", "data")},
	{"aten::gru.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, " +
		"bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)", recurrent("gru", "input")},
	{"aten::gru.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, " +
		"float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)", recurrent("gru", "data")},
	{"aten::rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, " +
		"bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)", recurrent("tanh", "input")},
	{"aten::rnn_tanh.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, " +
		"int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)", recurrent(
		"tanh", "data",
	)},
	{"aten::rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, " +
		"bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)", recurrent("relu", "input")},
	{"aten::rnn_relu.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, " +
		"int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)", recurrent(
		"relu", "data",
	)},
	{"aten::lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> " +
		"(Tensor, Tensor)", recurrentCell("lstm")},
	{"aten::gru_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
		recurrentCell("gru")},
	{"aten::rnn_tanh_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> " +
		"Tensor", recurrentCell("tanh")},
	{"aten::rnn_relu_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> " +
		"Tensor", recurrentCell("relu")},
}

// recurrentOp returns the kind of op for a cell ("lstm", "gru", "tanh" or "relu") and its attributes.
func recurrentOp(cell string) (graph.Kind, graph.Attrs) {
	if cell == "tanh" || cell == "relu" {
		return "rnn", graph.Attrs{"nonlinearity": cell}
	}
	return graph.Kind(cell), graph.Attrs{}
}

// states returns the argument "hx": the state, and the cell of an lstm.
func (c *call) states(cell string) (h, cellState *Ref, err error) {
	if cell != "lstm" {
		return c.tensor("hx"), nil, c.err
	}
	list := c.tensors("hx")
	if len(list) != 2 || slices.Contains(list, nil) {
		return nil, nil, fmt.Errorf("a state of %d tensors, not 2", len(list))
	}
	return list[0], list[1], c.err
}

// recurrent builds a recurrence of several layers, one op for each. The argument named input is the sequence: padded, or
// "data" for a packed one.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func recurrent(cell, input string) func(c *call) error {
	return func(c *call) error {
		x := c.tensor(input)
		var sizes *Ref
		if input == "data" {
			sizes = c.tensor("batch_sizes")
		}
		h, cellState, err := c.states(cell)
		if err != nil {
			return err
		}
		layerCount, directions := c.int("num_layers"), 1
		if c.bool("bidirectional") {
			directions = 2
		}
		if c.bool("train") && c.float("dropout") != 0 && layerCount > 1 {
			return errDropout
		}
		params, err := c.layerParams(cell, layerCount*directions)
		if err != nil {
			return err
		}
		swap := input == "input" && c.bool("batch_first")
		rank := 3
		if sizes != nil {
			rank = 2
		}
		if x.rank() != rank || h.rank() != 3 || h.shape()[0] != layerCount*directions {
			return fmt.Errorf("sequence %v and state %v for %d layers", x.shape(), h.shape(), layerCount)
		}
		if swap {
			x = c.transpose(x, 0, 1)
		}
		var lastStates, lastCells []*Ref
		kind, attrs := recurrentOp(cell)
		attrs["bidirectional"] = directions == 2
		for layer := range layerCount {
			from, to := layer*directions, (layer+1)*directions
			if x, err = c.inRows(x); err != nil {
				return err
			}
			in := []graph.Operand{c.Read(x), c.Read(sizes), c.Read(c.slice(h, 0, from, to, 1)), graph.Absent}
			if cellState != nil {
				if cellState.rank() != 3 || cellState.shape()[0] != layerCount*directions {
					return fmt.Errorf("cell %v does not fit state %v", cellState.shape(), h.shape())
				}
				in[3] = c.Read(c.slice(cellState, 0, from, to, 1))
			}
			for _, p := range params[from:to] {
				for _, r := range p {
					in = append(in, c.Read(r))
				}
			}
			out, err := c.Emit(kind, attrs, in...)
			if err != nil {
				return fmt.Errorf("layer %d: %w", layer, err)
			}
			x = out[0]
			lastStates = append(lastStates, out[1])
			if cellState != nil {
				lastCells = append(lastCells, out[2])
			}
		}
		if swap {
			x = c.transpose(x, 0, 1)
		}
		last, err := c.concat(lastStates)
		if err != nil {
			return err
		}
		c.set(x, last)
		if cellState != nil {
			if last, err = c.concat(lastCells); err != nil {
				return err
			}
			c.results = append(c.results, last)
		}
		return c.err
	}
}

// layerParams returns the argument "params" for each layer and direction, absent ones as nil: two weights, two biases
// and a projection.
func (c *call) layerParams(cell string, n int) ([][graph.RecurrentParams]*Ref, error) {
	list := c.tensors("params")
	each := 2
	if c.bool("has_biases") {
		each = 4
	}
	projected := cell == "lstm" && n > 0 && len(list) == n*(each+1)
	if projected {
		each++
	}
	if n <= 0 || len(list) != n*each || slices.Contains(list, nil) {
		return nil, fmt.Errorf("%d parameters for %d layers and directions", len(list), n)
	}
	params := make([][graph.RecurrentParams]*Ref, n)
	for i := range params {
		p := list[i*each : (i+1)*each]
		if projected {
			params[i][4], p = p[each-1], p[:each-1]
		}
		copy(params[i][:], p)
	}
	return params, nil
}

// concat joins tensors along their first dimension.
func (b *Builder) concat(list []*Ref) (*Ref, error) {
	if len(list) == 1 {
		return list[0], nil
	}
	in := make([]graph.Operand, len(list))
	for i, r := range list {
		in[i] = b.Read(r)
	}
	return b.Emit1("cat", graph.Attrs{"dim": 0}, in...)
}

// recurrentCell builds one step of a recurrence: a sequence of one.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func recurrentCell(cell string) func(c *call) error {
	return func(c *call) error {
		x := c.tensor("input")
		h, cellState, err := c.states(cell)
		if err != nil {
			return err
		}
		if x.rank() != 2 || h.rank() != 2 || cellState != nil && cellState.rank() != 2 {
			return fmt.Errorf("input %v and state %v of a cell", x.shape(), h.shape())
		}
		kind, attrs := recurrentOp(cell)
		in := []graph.Operand{c.Read(c.unsqueeze(x, 0)), graph.Absent, c.Read(c.unsqueeze(h, 0)), graph.Absent}
		if cellState != nil {
			in[3] = c.Read(c.unsqueeze(cellState, 0))
		}
		in = append(in, c.Read(c.tensor("w_ih")), c.Read(c.tensor("w_hh")),
			c.Read(c.optTensor("b_ih")), c.Read(c.optTensor("b_hh")), graph.Absent)
		if c.err != nil {
			return c.err
		}
		out, err := c.Emit(kind, attrs, in...)
		if err != nil {
			return err
		}
		for _, r := range out[1:] {
			c.results = append(c.results, c.selectAt(r, 0, 0))
		}
		return nil
	}
}
