package models

import (
	"context"
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/models/lora"
	"github.com/optimem/optimem/tensor"
)

// StepOptions say what the caches of a model have room for that runs step by step.
type StepOptions struct {
	// Blocks is how many blocks of [graph.BlockRows] positions the caches have, of all sequences together.
	Blocks int
	// Context is how many positions a sequence has at most; 0 is [Model.Context].
	Context int
	// States is how many states of sequences the caches have places for, of a model that keeps some ([Model.Keeps]); 0 is 1.
	States int
	// DType is that of keys and values in the caches: [tensor.Float32], which the zero value stands for, a half float, which
	// rounds them, or [tensor.Int8], which rounds each head's row to 255 steps.
	DType tensor.DType
}

// The inputs of a step, and its output.
const (
	// StepTokens are the ids of the tokens, one for each row of the pass: int64 [rows].
	StepTokens = "input_ids"
	// StepPositions are the positions of the rows in their sequences, negative where a row is none: int64 [rows].
	StepPositions = "positions"
	// StepBlocks are the blocks in which the sequence of each row lies, in order: int64 [rows, blocks of a context]. A model that
	// keeps no keys and values has no such input.
	StepBlocks = "blocks"
	// StepStates say, of a model that keeps states, where each row finds that of its sequence, and where it leaves what became of
	// it: int64 [rows, 2], the operand "states" of the ops that keep them ([graph.StateNone] and what follows there).
	StepStates = "states"
	// StepWanted are the rows whose logits are wanted: int64 [wanted].
	StepWanted = "wanted"
	// StepAdapters are the numbers of the rows' adapters ([Model.AdapterNumber]), of a model that has some: int64 [rows].
	StepAdapters = "adapters"
	// StepLengths are how many tokens the sequences of the rows have in all, where [Model.Stretch] says that this matters: int64
	// [rows].
	StepLengths = "lengths"
	// StepLogits are the logits of the wanted rows, [wanted, vocabulary].
	StepLogits = "logits"
)

// Stretch returns the number of positions beyond which what a step makes of a token depends on the length of its sequence
// ([StepLengths], an input of steps with a larger context), 0 where it never does. restarts says that a sequence that becomes longer
// has to begin again, with no key or value of before.
func (m *Model) Stretch() (positions int, restarts bool) { return m.stretch, m.restarts }

// Keeps returns what a step keeps of the tokens it has seen: keys and values, which grow with a sequence and lie in blocks; states,
// which are as large for any sequence; or both.
func (m *Model) Keeps() (keys, states bool) { return !m.keyless, m.recurrent }

// Context returns how many positions a sequence may have, of a model that [Model.Steps] takes; 0 of others.
func (m *Model) Context() int { return m.context }

// Steps returns the model as one that is run step by step: a pass takes rows of tokens, of any sequences, and keeps their
// keys and values in caches, so that the passes that follow need only the tokens that are new. Sequences are the caller's:
// it says where each row's sequence lies ([StepBlocks]), and a pass writes to no other place. See the op "attend" of
// package graph.
//
// Models whose modules do not say how they attend step by step are an [*UnsupportedError].
func (m *Model) Steps(o StepOptions) (*Model, error) {
	if m.step == nil {
		return nil, &UnsupportedError{
			What: "a model that predicts tokens one after the other, which this is not known to be",
			Hint: "give a Hugging Face folder of a causal language model",
		}
	}
	if o.Context == 0 {
		o.Context = m.context
	}
	if o.DType == tensor.Invalid {
		o.DType = tensor.Float32
	}
	o.States = max(o.States, 1)
	switch {
	case o.Context < 1 || o.Context > m.context:
		return nil, fmt.Errorf("a context of %d positions, and the model has 1 to %d", o.Context, m.context)
	case o.Blocks < 1 || o.Blocks > maxBlocks:
		return nil, fmt.Errorf("caches of %d blocks: 1 to %d are possible", o.Blocks, maxBlocks)
	case o.States > maxBlocks:
		return nil, fmt.Errorf("caches of %d states: 1 to %d are possible", o.States, maxBlocks)
	case o.DType != tensor.Float32 && o.DType != tensor.Int8 && !o.DType.IsHalf():
		return nil, fmt.Errorf("keys and values of %v: float32, bfloat16, float16 and int8 are possible", o.DType)
	}
	return m.step(o), nil
}

// maxBlocks bounds the blocks of caches.
const maxBlocks = 1 << 24

// A stepSource is what the graphs of a model's steps are made of.
type stepSource struct {
	ckpt     *loader.Checkpoint
	arch     *layers.Architecture
	ops      *graph.Registry
	rename   func(string) string
	adapters adapters
}

// stepModel returns m, an architecture's, as a model that is run step by step.
func (m *Model) stepModel(from stepSource, o StepOptions) *Model {
	port := func(name string, dims ...string) Port {
		p := Port{Name: name, DType: tensor.Int64, Dims: dims}
		for range dims {
			p.Shape = append(p.Shape, -1)
		}
		return p
	}
	tables := port(StepBlocks, "rows", "blocks")
	tables.Shape[1] = graph.Blocks(o.Context)
	s := newModel(m.ops, m.weights)
	s.arch, s.notes, s.modules, s.context, s.adapters = m.arch, m.notes, m.modules, o.Context, m.adapters
	s.outputs = []string{StepLogits}
	s.stretch, s.restarts, s.recurrent, s.keyless = m.stretch, m.restarts, m.recurrent, m.keyless
	s.inputs = []Port{port(StepTokens, "rows"), port(StepPositions, "rows")}
	if !m.keyless {
		s.inputs = append(s.inputs, tables)
	}
	if m.recurrent {
		places := port(StepStates, "rows", "places")
		places.Shape[1] = 2
		s.inputs = append(s.inputs, places)
	}
	s.inputs = append(s.inputs, port(StepWanted, "wanted"))
	if len(m.adapters) > 0 {
		s.inputs = append(s.inputs, port(StepAdapters, "rows"))
	}
	if m.stretch > 0 && o.Context > m.stretch {
		s.inputs = append(s.inputs, port(StepLengths, "rows"))
	}
	s.build = func(ctx context.Context, c Call) (*graph.Graph, error) {
		r := newRecorder(from.ckpt, from.ops)
		r.Ctx, r.rename, r.adapted = ctx, from.rename, from.adapters.weights
		bound, err := r.bind(s.inputs, c.Inputs)
		if err != nil {
			return nil, err
		}
		rows := bound[0].Shape()[0]
		for i, p := range s.inputs {
			if p.Name != StepWanted && bound[i].Shape()[0] != rows {
				return nil, &InputError{p.Name, fmt.Sprintf("%d rows where there are %d tokens", bound[i].Shape()[0], rows)}
			}
		}
		input := func(name string) layers.Tensor {
			if i := slices.IndexFunc(s.inputs, func(p Port) bool { return p.Name == name }); i >= 0 {
				return bound[i]
			}
			return nil
		}
		step := &stepRecorder{
			recorder: r, options: o, positions: input(StepPositions), blocks: input(StepBlocks), states: input(StepStates),
			wanted: input(StepWanted),
		}
		a := from.arch
		if len(m.adapters) > 0 {
			step.adapters = input(StepAdapters)
			a = lora.Mixed(a, from.adapters.list, step.choose)
		}
		if x := input(StepLengths); x != nil {
			lengths, err := r.Call("aten::unsqueeze", []any{x, 0}, nil)
			if err != nil {
				return nil, err
			}
			step.lengths = lengths[0].(layers.Tensor)
		}
		args, err := step.arguments(a.Inputs, bound[0])
		if err != nil {
			return nil, err
		}
		result, err := a.Trace(step, args)
		if err != nil {
			return nil, traceError(err)
		}
		return r.Graph, step.give(result)
	}
	return s
}

// A stepRecorder is what the trace of a step writes to. The modules see the rows as the tokens of one row of a batch.
type stepRecorder struct {
	*recorder
	options                           StepOptions
	positions, blocks, states, wanted layers.Tensor
	// none says of each row whether it is no token, once something asked.
	none layers.Tensor
	// adapters are the numbers of the rows' adapters, once [stepRecorder.Wanted] was called those of the rows that it gave.
	adapters layers.Tensor
	// lengths are those of the rows' sequences, [1 rows], nil where they do not matter.
	lengths layers.Tensor
}

// arguments are those of forward: the tokens and their positions, where it takes them.
func (r *stepRecorder) arguments(ports []Port, tokens layers.Tensor) ([]any, error) {
	args := make([]any, len(ports))
	for i, p := range ports {
		var x layers.Tensor
		switch p.Name {
		case "input_ids":
			x = tokens
		case "position_ids":
			place, err := r.Call("aten::clamp", []any{r.positions, 0}, nil) // rows that are none are tokens at the beginning
			if err != nil {
				return nil, err
			}
			x = place[0].(layers.Tensor)
		default:
			continue
		}
		row, err := r.Call("aten::unsqueeze", []any{x, 0}, nil)
		if err != nil {
			return nil, err
		}
		args[i] = row[0]
	}
	return args, nil
}

// Context implements layers.Stepper.
func (r *stepRecorder) Context() int { return r.options.Context }

// Lengths are how long the rows' sequences are: see layers.Trace.
func (r *stepRecorder) Lengths() layers.Tensor { return r.lengths }

// Wanted implements layers.Stepper.
func (r *stepRecorder) Wanted(x layers.Tensor) (layers.Tensor, error) {
	out, err := r.Call("aten::index_select", []any{x, 1, r.wanted}, nil)
	if err != nil {
		return nil, err
	}
	if r.adapters != nil {
		of, err := r.Call("aten::index_select", []any{r.adapters, 0, r.wanted}, nil)
		if err != nil {
			return nil, err
		}
		r.adapters = of[0].(layers.Tensor)
	}
	return out[0].(layers.Tensor), nil
}

// Recur implements layers.Stepper.
func (r *stepRecorder) Recur(path, op string, in []layers.Tensor) (layers.Tensor, error) {
	if r.states == nil {
		return nil, fmt.Errorf("a state in a model that is said to keep none")
	}
	operands, shapes := make([]graph.Operand, len(in)), make([]tensor.Shape, len(in))
	for i, x := range in {
		if operands[i] = graph.Absent; x != nil {
			operands[i], shapes[i] = r.Read(x.(*aten.Ref)), x.Shape()
		}
	}
	shape := append(tensor.Shape{r.options.States}, graph.StateShape(graph.Kind(op), shapes)...)
	cache := r.Graph.AddCache(path+".state", tensor.Float32, shape)
	operands = append(operands, r.Graph.Whole(cache), r.Read(r.states.(*aten.Ref)))
	return r.Emit1(graph.Kind(op), nil, operands...)
}

// Attend implements layers.Stepper.
func (r *stepRecorder) Attend(path string, q, k, v layers.Tensor, a layers.Attention) (layers.Tensor, error) {
	if r.blocks == nil {
		return nil, fmt.Errorf("keys and values in a model that is said to keep none")
	}
	rows := func(x layers.Tensor) (*aten.Ref, error) { // [1 heads rows size] as [rows heads size]
		s := x.Shape()
		if len(s) != 4 || s[0] != 1 {
			return nil, fmt.Errorf("%v where [1 heads rows size] is wanted", s)
		}
		out, err := r.Call("aten::select.int", []any{x, 0, 0}, nil)
		if err == nil {
			out, err = r.Call("aten::transpose.int", []any{out[0], 0, 1}, nil)
		}
		if err != nil {
			return nil, err
		}
		return out[0].(*aten.Ref), nil
	}
	var in []graph.Operand
	var caches []graph.Operand
	for i, x := range []layers.Tensor{q, k, v} {
		ref, err := rows(x)
		if err != nil {
			return nil, err
		}
		in = append(in, r.Read(ref))
		if i == 0 {
			continue
		}
		name, shape := path+".keys", ref.Shape()
		if i == 2 {
			name = path + ".values"
		}
		id := r.Graph.AddCache(name, r.options.DType, tensor.Shape{
			r.options.Blocks * graph.BlockRows, shape[1], graph.CacheWidth(r.options.DType, shape[2]),
		})
		caches = append(caches, r.Graph.Whole(id))
	}
	in = append(append(in, caches...), r.Read(r.positions.(*aten.Ref)), r.Read(r.blocks.(*aten.Ref)))
	if a.Sinks != nil {
		in = append(in, r.Read(a.Sinks.(*aten.Ref)))
	}
	out, err := r.Emit1("attend", graph.Attrs{"scale": a.Scale, "softcap": a.Softcap, "window": a.Window, "chunk": a.Chunk}, in...)
	if err != nil {
		return nil, err
	}
	s := out.Shape()
	return r.Reshape(out, tensor.Shape{1, s[0], s[1] * s[2]})
}

// choose returns of two results of a module, [1 rows …], that with an adapter for the rows that have it. It copies bits, so
// that the rows of others keep theirs.
func (r *stepRecorder) choose(adapter int, with, without layers.Tensor) (layers.Tensor, error) {
	rows, s := r.adapters.Shape()[0], with.Shape()
	if len(s) < 2 || s[0] != 1 || s[1] != rows {
		return nil, fmt.Errorf("a result of %v for %d rows", s, rows)
	}
	is, err := r.Call("aten::eq.Scalar", []any{r.adapters, adapter + 1}, nil)
	if err != nil {
		return nil, err
	}
	shape := make([]int, len(s))
	for i := range shape {
		shape[i] = 1
	}
	shape[1] = rows
	if is, err = r.Call("aten::view", []any{is[0], shape}, nil); err != nil {
		return nil, err
	}
	out, err := r.Call("aten::where.self", []any{is[0], with, without}, nil)
	if err != nil {
		return nil, err
	}
	return out[0].(layers.Tensor), nil
}

// give makes the logits of [1 wanted vocabulary] the output of the graph.
func (r *stepRecorder) give(result any) error {
	fields, _ := result.(layers.Fields)
	for _, f := range fields {
		x, ok := f.Value.(*aten.Ref)
		if !ok || x.IsCounted() || f.Name != StepLogits || len(x.Shape()) != 3 {
			continue
		}
		x, err := r.Reshape(x, x.Shape()[1:])
		if err != nil {
			return err
		}
		return r.recorder.give(layers.Fields{{Name: StepLogits, Value: x}})
	}
	return fmt.Errorf("the model gives no logits")
}
