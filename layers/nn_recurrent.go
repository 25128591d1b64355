package layers

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// recurrentClasses walk a sequence with a state.
var recurrentClasses = Classes{
	"torch.nn.modules.rnn.LSTM":     sequence("lstm"),
	"torch.nn.modules.rnn.GRU":      sequence("gru"),
	"torch.nn.modules.rnn.RNN":      sequence(""),
	"torch.nn.modules.rnn.LSTMCell": step("lstm"),
	"torch.nn.modules.rnn.GRUCell":  step("gru"),
	"torch.nn.modules.rnn.RNNCell":  step(""),
}

// states are the names of the state's tensors.
func states(op string) []string {
	if op == "lstm" {
		return []string{"h_0", "c_0"}
	}
	return []string{"h_0"}
}

// statePorts are the inputs of a class with a state that may be left out.
func statePorts(op string) []Port {
	ports := []Port{{Name: "input", DType: tensor.Float32}}
	for _, name := range states(op) {
		ports = append(ports, Port{Name: name, DType: tensor.Float32, Optional: true})
	}
	return ports
}

// sequence is the class of recurrences over a sequence. They take it and a state: a tuple as in Python, or its tensors
// one by one.
func sequence(op string) Class {
	return Class{
		Inputs:   statePorts(op),
		Defaults: map[string]any{"proj_size": 0, "batch_first": false, "bias": true, "bidirectional": false},
		Forward:  func(t *Trace, m *Module, args ...any) any { return sequenceForward(t, m, op, args) },
	}
}

func sequenceForward(t *Trace, m *Module, op string, args []any) any {
	if op == "" {
		op = rnnOp(m, m.Text("mode"), "RNN_TANH", "RNN_RELU")
	}
	x, hx := withState(m, op, args)
	first := m.Bool("batch_first")
	batchDim := 1
	if first {
		batchDim = 0
	}
	batched := len(x.Shape()) == 3
	if !batched {
		if len(x.Shape()) != 2 {
			fail("takes a tensor of rank 2 or 3, not %v", x.Shape())
		}
		x = t.Op("unsqueeze", x, batchDim)
		for i, h := range hx {
			if len(h.Shape()) != 2 {
				fail("a state %v for a sequence without a batch", h.Shape())
			}
			hx[i] = t.Op("unsqueeze", h, 1)
		}
	}
	layers, directions := m.Int("num_layers"), 1
	if m.Bool("bidirectional") {
		directions = 2
	}
	if layers < 1 || layers > len(m.Params) {
		m.lacks("num_layers", "the number of layers that there are parameters for")
	}
	if hx == nil {
		sizes := []int{m.Int("hidden_size"), m.Int("hidden_size")}
		if p := m.Int("proj_size"); p > 0 {
			sizes[0] = p
		}
		for i := range states(op) {
			shape := []int{layers * directions, x.Shape()[batchDim], sizes[i]}
			hx = append(hx, t.Op("zeros", shape, Named{"dtype": x.DType()}))
		}
	}
	var params []Tensor
	for _, suffix := range layerSuffixes(layers, directions) {
		names := []string{"weight_ih", "weight_hh"}
		if m.Bool("bias") {
			names = append(names, "bias_ih", "bias_hh")
		}
		if m.Int("proj_size") > 0 {
			names = append(names, "weight_hr")
		}
		for _, name := range names {
			params = append(params, t.Param(m, name+suffix))
		}
	}
	var state any = hx
	if op != "lstm" {
		state = hx[0]
	}
	results := t.Ops(op+".input", x, state, params, m.Bool("bias"), layers, 0.0, false, directions == 2, first)
	if !batched {
		results[0] = t.Op("squeeze.dim", results[0], batchDim)
		for i := range results[1:] {
			results[i+1] = t.Op("squeeze.dim", results[i+1], 1)
		}
	}
	if op == "lstm" {
		return []any{results[0], results[1:]}
	}
	return results
}

// layerSuffixes are the ends of the names of the parameters of each layer and direction.
func layerSuffixes(layers, directions int) []string {
	var list []string
	for layer := range layers {
		list = append(list, fmt.Sprintf("_l%d", layer))
		if directions == 2 {
			list = append(list, fmt.Sprintf("_l%d_reverse", layer))
		}
	}
	return list
}

// rnnOp is the op of a plain recurrence, whose module names its nonlinearity.
func rnnOp(m *Module, mode, tanh, relu string) string {
	switch mode {
	case tanh:
		return "rnn_tanh"
	case relu:
		return "rnn_relu"
	}
	fail("%s of mode %q", m.Class, mode)
	return ""
}

// withState returns the first argument and the tensors of the state, nil where it is left out.
func withState(m *Module, op string, args []any) (Tensor, []Tensor) {
	x := argument(m, args, 0)
	state := args[1:]
	if len(state) == 1 {
		switch tuple := state[0].(type) {
		case []any:
			state = tuple
		case []Tensor:
			state = nil
			for _, h := range tuple {
				state = append(state, h)
			}
		}
	}
	var hx []Tensor
	for i := range state {
		if h := optional(m, state, i); h != nil {
			hx = append(hx, h)
		}
	}
	if n := len(states(op)); len(hx) != 0 && len(hx) != n {
		fail("a state of %d tensors, not %d", len(hx), n)
	}
	return x, hx
}

// step is the class of one step of a recurrence.
func step(op string) Class {
	return Class{
		Inputs:   statePorts(op),
		Defaults: map[string]any{"bias": true},
		Forward:  func(t *Trace, m *Module, args ...any) any { return stepForward(t, m, op, args) },
	}
}

func stepForward(t *Trace, m *Module, op string, args []any) any {
	if op == "" {
		op = rnnOp(m, m.Text("nonlinearity"), "tanh", "relu")
	}
	x, hx := withState(m, op, args)
	batched := len(x.Shape()) == 2
	if !batched {
		if len(x.Shape()) != 1 {
			fail("takes a tensor of rank 1 or 2, not %v", x.Shape())
		}
		x = t.Op("unsqueeze", x, 0)
		for i, h := range hx {
			hx[i] = t.Op("unsqueeze", h, 0)
		}
	}
	if hx == nil {
		zeros := t.Op("zeros", []int{x.Shape()[0], m.Int("hidden_size")}, Named{"dtype": x.DType()})
		for range states(op) {
			hx = append(hx, zeros)
		}
	}
	var state any = hx
	if op != "lstm" {
		state = hx[0]
	}
	results := t.Ops(op+"_cell", x, state, t.Param(m, "weight_ih"), t.Param(m, "weight_hh"),
		t.Param(m, "bias_ih"), t.Param(m, "bias_hh"))
	if !batched {
		for i := range results {
			results[i] = t.Op("squeeze.dim", results[i], 0)
		}
	}
	if op == "lstm" {
		return results
	}
	return results[0]
}

// Bidirectional makes a recurrence that walks both ways.
func Bidirectional(attrs map[string]any) { attrs["bidirectional"] = true }

// BatchFirst makes a module whose inputs have the batch before the sequence.
func BatchFirst(attrs map[string]any) { attrs["batch_first"] = true }

// Layers sets the number of layers of a recurrence.
func Layers(n int) Option { return Attr("num_layers", n) }

// LSTM is torch.nn.LSTM.
func LSTM(in, hidden int, opts ...Option) *Module {
	return recurrence("LSTM", "LSTM", 4, in, hidden, opts)
}

// GRU is torch.nn.GRU.
func GRU(in, hidden int, opts ...Option) *Module {
	return recurrence("GRU", "GRU", 3, in, hidden, opts)
}

// RNN is torch.nn.RNN with a hyperbolic tangent.
func RNN(in, hidden int, opts ...Option) *Module {
	return recurrence("RNN", "RNN_TANH", 1, in, hidden, opts)
}

func recurrence(class, mode string, gates, in, hidden int, opts []Option) *Module {
	m := made("torch.nn.modules.rnn."+class, map[string]any{
		"mode": mode, "input_size": in, "hidden_size": hidden, "num_layers": 1, "bias": true, "batch_first": false,
		"dropout": 0.0, "bidirectional": false, "proj_size": 0,
	}, opts)
	directions, out := 1, hidden
	if m.Bool("bidirectional") {
		directions = 2
	}
	if p := m.Int("proj_size"); p > 0 {
		out = p
	}
	for i, suffix := range layerSuffixes(m.Int("num_layers"), directions) {
		from := in
		if i >= directions {
			from = out * directions
		}
		m.Param("weight_ih"+suffix, gates*hidden, from).Param("weight_hh"+suffix, gates*hidden, out)
		if m.Bool("bias") {
			m.Param("bias_ih"+suffix, gates*hidden).Param("bias_hh"+suffix, gates*hidden)
		}
		if out != hidden {
			m.Param("weight_hr"+suffix, out, hidden)
		}
	}
	return m
}
