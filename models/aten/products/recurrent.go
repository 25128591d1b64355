package products

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
)

// recurrentTargets walk a sequence with a state.
var recurrentTargets = []call.Overload{
	call.Several("aten::lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, "+
		"bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)", recurrent("lstm", "input")),
	call.Several("aten::lstm.data(Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, "+
		"float dropout, bool train, bool bidirectional) -> (Tensor, Tensor, Tensor)", recurrent("lstm", "data")),
	call.Several("aten::gru.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, "+
		"bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)", recurrent("gru", "input")),
	call.Several("aten::gru.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, "+
		"float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)", recurrent("gru", "data")),
	call.Several("aten::rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, "+
		"bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)", recurrent("tanh", "input")),
	call.Several("aten::rnn_tanh.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, "+
		"int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)", recurrent(
		"tanh", "data",
	)),
	call.Several("aten::rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, "+
		"bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)", recurrent("relu", "input")),
	call.Several("aten::rnn_relu.data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, "+
		"int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)", recurrent(
		"relu", "data",
	)),
	call.Several("aten::lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> "+
		"(Tensor, Tensor)", recurrentCell("lstm")),
	call.Several("aten::gru_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
		recurrentCell("gru")),
	call.Several("aten::rnn_tanh_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> "+
		"Tensor", recurrentCell("tanh")),
	call.Several("aten::rnn_relu_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> "+
		"Tensor", recurrentCell("relu")),
}

// recurrentOp returns the kind of op for a cell ("lstm", "gru", "tanh" or "relu") and its attributes.
func recurrentOp(cell string) (graph.Kind, graph.Attrs) {
	if cell == "tanh" || cell == "relu" {
		return "rnn", graph.Attrs{"nonlinearity": cell}
	}
	return graph.Kind(cell), graph.Attrs{}
}

// states returns the argument "hx": the state, and the cell of an lstm.
func states(c *call.Call, cell string) (h, cellState *cells.Ref, err error) {
	if cell != "lstm" {
		return c.Tensor("hx"), nil, c.Err
	}
	list := c.Tensors("hx")
	if len(list) != 2 || slices.Contains(list, nil) {
		return nil, nil, fmt.Errorf("a state of %d tensors, not 2", len(list))
	}
	return list[0], list[1], c.Err
}

// recurrent builds a recurrence of several layers, one op for each. The argument named input is the sequence: padded,
// or "data" for a packed one. Tables call it, and without its copies they compile faster.
//
//go:noinline
func recurrent(cell, input string) func(c *call.Call) error {
	return func(c *call.Call) error {
		x := c.Tensor(input)
		var sizes *cells.Ref
		if input == "data" {
			sizes = c.Tensor("batch_sizes")
		}
		h, cellState, err := states(c, cell)
		if err != nil {
			return err
		}
		layerCount, directions := c.Int("num_layers"), 1
		if c.Bool("bidirectional") {
			directions = 2
		}
		if c.Bool("train") && c.Float("dropout") != 0 && layerCount > 1 {
			return errDropout
		}
		params, err := layerParams(c, cell, layerCount*directions)
		if err != nil {
			return err
		}
		swap := input == "input" && c.Bool("batch_first")
		rank := 3
		if sizes != nil {
			rank = 2
		}
		if x.Rank() != rank || h.Rank() != 3 || h.Shape()[0] != layerCount*directions {
			return fmt.Errorf("sequence %v and state %v for %d layers", x.Shape(), h.Shape(), layerCount)
		}
		if swap {
			x = c.Transpose(x, 0, 1)
		}
		var lastStates, lastCells []*cells.Ref
		kind, attrs := recurrentOp(cell)
		attrs["bidirectional"] = directions == 2
		for layer := range layerCount {
			from, to := layer*directions, (layer+1)*directions
			if x, err = c.InRows(x); err != nil {
				return err
			}
			in := []graph.Operand{c.Read(x), c.Read(sizes), c.Read(c.Slice(h, 0, from, to, 1)), graph.Absent}
			if cellState != nil {
				if cellState.Rank() != 3 || cellState.Shape()[0] != layerCount*directions {
					return fmt.Errorf("cell %v does not fit state %v", cellState.Shape(), h.Shape())
				}
				in[3] = c.Read(c.Slice(cellState, 0, from, to, 1))
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
			x = c.Transpose(x, 0, 1)
		}
		last, err := concat(c.Builder, lastStates)
		if err != nil {
			return err
		}
		c.Set(x, last)
		if cellState != nil {
			if last, err = concat(c.Builder, lastCells); err != nil {
				return err
			}
			c.Results = append(c.Results, last)
		}
		return c.Err
	}
}

// layerParams returns the argument "params" for each layer and direction, absent ones as nil: two weights, two biases
// and a projection.
func layerParams(c *call.Call, cell string, n int) ([][graph.RecurrentParams]*cells.Ref, error) {
	list := c.Tensors("params")
	each := 2
	if c.Bool("has_biases") {
		each = 4
	}
	projected := cell == "lstm" && n > 0 && len(list) == n*(each+1)
	if projected {
		each++
	}
	if n <= 0 || len(list) != n*each || slices.Contains(list, nil) {
		return nil, fmt.Errorf("%d parameters for %d layers and directions", len(list), n)
	}
	params := make([][graph.RecurrentParams]*cells.Ref, n)
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
func concat(b *cells.Builder, list []*cells.Ref) (*cells.Ref, error) {
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
func recurrentCell(cell string) func(c *call.Call) error {
	return func(c *call.Call) error {
		x := c.Tensor("input")
		h, cellState, err := states(c, cell)
		if err != nil {
			return err
		}
		if x.Rank() != 2 || h.Rank() != 2 || cellState != nil && cellState.Rank() != 2 {
			return fmt.Errorf("input %v and state %v of a cell", x.Shape(), h.Shape())
		}
		kind, attrs := recurrentOp(cell)
		in := []graph.Operand{c.Read(c.Unsqueeze(x, 0)), graph.Absent, c.Read(c.Unsqueeze(h, 0)), graph.Absent}
		if cellState != nil {
			in[3] = c.Read(c.Unsqueeze(cellState, 0))
		}
		in = append(in, c.Read(c.Tensor("w_ih")), c.Read(c.Tensor("w_hh")),
			c.Read(c.OptTensor("b_ih")), c.Read(c.OptTensor("b_hh")), graph.Absent)
		if c.Err != nil {
			return c.Err
		}
		out, err := c.Emit(kind, attrs, in...)
		if err != nil {
			return err
		}
		for _, r := range out[1:] {
			c.Results = append(c.Results, c.SelectAt(r, 0, 0))
		}
		return nil
	}
}
