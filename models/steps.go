package models

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/lora"
	"github.com/optimem/optimem/tensor"
)

// StepOptions say what the caches of a model have room for that runs step by step.
type StepOptions struct {
	// Blocks is how many blocks of [graph.BlockRows] positions the caches have, of all sequences together.
	Blocks int
	// WindowBlocks, where it is not 0, is how many blocks the caches of those modules have that see no more than
	// [Model.Window] positions: [StepWindowBlocks] says where sequences lie in them, and Blocks is of the others alone.
	WindowBlocks int
	// Context is how many positions a sequence has at most; 0 is [Model.Context].
	Context int
	// States is how many states of sequences the caches have places for, of a model that keeps some ([Model.Keeps]); 0
	// is 1.
	States int
	// DType is that of keys and values in the caches: [tensor.Float32], which the zero value stands for, a half float, which
	// rounds them, or [tensor.Int8], which rounds each head's row to 255 steps.
	DType tensor.DType
	// Mirrors is how many further blocks a row may be written to ([StepMirrors]), in the caches that Blocks is of.
	Mirrors int
	// Hidden are layers whose input a step gives beside the logits ([StepHidden]), in that order and joined; or [layers.LastHidden],
	// which is what the last one gives behind the norm.
	Hidden []int
	// Source is how many positions a source has at most, of a model that reads one ([Model.Source]); 0 is all that it
	// may. SourceBlocks is how many blocks there are for the sources of all sequences together; 0 is those of one.
	Source, SourceBlocks int
}

// The inputs of a step, and its output.
const (
	// StepTokens are the ids of the tokens, one for each row of the pass: int64 [rows].
	StepTokens = "input_ids"
	// StepPositions are the positions of the rows in their sequences, negative where a row is none: int64 [rows].
	StepPositions = "positions"
	// StepBlocks are the blocks in which the sequence of each row lies, in order: int64 [rows, blocks of a context]. A
	// model that keeps no keys and values has no such input.
	StepBlocks = "blocks"
	// StepWindowBlocks are, where [StepOptions.WindowBlocks] is not 0, the blocks in which the sequence of each row lies
	// in the caches of modules with a window: int64 [rows, blocks of a context], of which only those are looked at in
	// which there are the last [Model.Window] positions of a row, itself included. The others may hold anything, so that
	// a sequence needs no more than what its next rows see.
	StepWindowBlocks = "window_blocks"
	// StepMirrors are, where [StepOptions.Mirrors] is not 0, blocks that a row's keys and values are written to besides
	// that which [StepBlocks] says: int64 [rows, mirrors]. One that is the row's own block says nothing. So sequences
	// that have a row in common, such as guesses of what follows, have it computed once.
	StepMirrors = "mirrors"
	// StepStates say, of a model that keeps states, where each row finds that of its sequence, and where it leaves what
	// became of it: int64 [rows, 2], the operand "states" of the ops that keep them ([graph.StateNone] and what follows
	// there).
	StepStates = "states"
	// StepWanted are the rows whose logits are wanted: int64 [wanted].
	StepWanted = "wanted"
	// StepAdapters are the numbers of the rows' adapters ([Model.AdapterNumber]), of a model that has some: int64 [rows].
	StepAdapters = "adapters"
	// StepLengths are how many tokens the sequences of the rows have in all, where [Model.Stretch] says that this matters: int64
	// [rows].
	StepLengths = "lengths"
	// StepSource is a source, for a pass that reads one in the place of writing: the ids of its tokens, int64 [1,
	// positions], or the features of a sound, float32 [1, bins, times]. StepSourceMask is 1 for the tokens of a text
	// and 0 for what pads it: int64 [1, positions].
	StepSource     = "source"
	StepSourceMask = "source_mask"
	// StepSourceAt is, where a source is read, the position of each of what the encoder gives, negative where it is
	// none: int64 [positions]. Where text is written it is the last position of each row's source: int64 [rows].
	StepSourceAt = "source_positions"
	// StepSourceBlocks are the blocks in which the source lies, for each of what the encoder gives, or for each row:
	// int64 [positions, blocks of a source] or [rows, blocks of a source].
	StepSourceBlocks = "source_blocks"
	// StepSourceRead is what a pass gives that reads a source: the first number of what the encoder gives, [1 1 1].
	StepSourceRead = "source_read"
	// StepLogits are the logits of the wanted rows, [wanted, vocabulary].
	StepLogits = "logits"
)

// Stretch returns the number of positions beyond which what a step makes of a token depends on the length of its sequence
// ([StepLengths], an input of steps with a larger context), 0 where it never does. restarts says that a sequence that becomes longer
// has to begin again, with no key or value of before.
func (m *Model) Stretch() (positions int, restarts bool) { return m.stretch, m.restarts }

// Keeps returns what a step keeps of the tokens it has seen: keys and values, which grow with a sequence and lie in
// blocks; states, which are as large for any sequence; or both.
func (m *Model) Keeps() (keys, states bool) { return !m.keyless, m.recurrent }

// Window returns how many positions modules see at most that see no more than so many, 0 where all see all.
func (m *Model) Window() int { return m.window }

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
	if o.Source == 0 {
		if o.Source = m.source; m.pictures != nil {
			o.Source = m.pictures.Places
		}
	}
	if o.SourceBlocks == 0 {
		o.SourceBlocks = graph.Blocks(o.Source)
	}
	switch {
	case m.source > 0 && len(m.adapters) > 0:
		return nil, &UnsupportedError{What: "writing with adapters of a model that reads a source", Hint: "merge the adapter into the model"}
	case o.Source < 0 || o.Source > m.source:
		return nil, fmt.Errorf("sources of %d positions, and the model reads 1 to %d", o.Source, m.source)
	case o.SourceBlocks < 0 || o.SourceBlocks > maxBlocks:
		return nil, fmt.Errorf("caches of %d blocks for sources: 1 to %d are possible", o.SourceBlocks, maxBlocks)
	case o.Context < 1 || o.Context > m.context:
		return nil, fmt.Errorf("a context of %d positions, and the model has 1 to %d", o.Context, m.context)
	case o.Blocks < 1 || o.Blocks > maxBlocks:
		return nil, fmt.Errorf("caches of %d blocks: 1 to %d are possible", o.Blocks, maxBlocks)
	case o.WindowBlocks < 0 || o.WindowBlocks > maxBlocks:
		return nil, fmt.Errorf("caches of %d blocks for windows: 1 to %d are possible", o.WindowBlocks, maxBlocks)
	case o.WindowBlocks > 0 && m.window == 0:
		return nil, fmt.Errorf("caches for windows, and the model has none")
	case o.Mirrors < 0 || o.Mirrors > maxMirrors:
		return nil, fmt.Errorf("%d further blocks of a row: 0 to %d are possible", o.Mirrors, maxMirrors)
	case o.Mirrors > 0 && (m.keyless || m.recurrent || o.WindowBlocks > 0):
		return nil, fmt.Errorf("further blocks of a row in a model with states or with caches for windows")
	case len(o.Hidden) > maxHidden:
		return nil, fmt.Errorf("what %d layers see: 0 to %d are possible", len(o.Hidden), maxHidden)
	case o.States > maxBlocks:
		return nil, fmt.Errorf("caches of %d states: 1 to %d are possible", o.States, maxBlocks)
	case o.DType != tensor.Float32 && o.DType != tensor.Int8 && !o.DType.IsHalf():
		return nil, fmt.Errorf("keys and values of %v: float32, bfloat16, float16 and int8 are possible", o.DType)
	}
	return m.step(o), nil
}

// maxBlocks bounds the blocks of caches, maxMirrors those that a row is written to besides its own, maxHidden the layers whose
// inputs a step gives.
const (
	maxBlocks  = 1 << 24
	maxMirrors = 64
	maxHidden  = 16
)

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
	s.source, s.sound, s.pictures = o.Source, m.sound, m.pictures
	s.outputs = []string{StepLogits}
	if len(o.Hidden) > 0 || m.head != nil {
		s.outputs = append(s.outputs, StepHidden)
	}
	s.stretch, s.restarts, s.recurrent, s.keyless, s.window = m.stretch, m.restarts, m.recurrent, m.keyless, m.window
	s.inputs = []Port{port(StepTokens, "rows"), port(StepPositions, "rows")}
	if !m.keyless {
		s.inputs = append(s.inputs, tables)
	}
	if o.WindowBlocks > 0 {
		tables.Name = StepWindowBlocks
		s.inputs = append(s.inputs, tables)
	}
	if o.Mirrors > 0 {
		mirrors := port(StepMirrors, "rows", "mirrors")
		mirrors.Shape[1] = o.Mirrors
		s.inputs = append(s.inputs, mirrors)
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
	if m.head != nil {
		s.head = m.head
		s.inputs = append(s.inputs, m.head.ports()...)
	}
	writing := s.inputs
	var reading []Port
	if m.source > 0 {
		writing, reading = from.sourcePorts(o, writing)
		s.inputs = eitherPorts(writing, reading)
		s.outputs = nil // they differ
	}
	s.build = func(ctx context.Context, c Call) (*graph.Graph, error) {
		r := newRecorder(from.ckpt, from.ops)
		r.Ctx, r.rename, r.adapted, r.Graph.SourceBytes = ctx, from.rename, from.adapters.weights, from.adapters.bytes
		if _, reads := c.Inputs[StepSource]; reads && reading != nil {
			if err := from.reserve(r, o, s, c); err != nil {
				return nil, err
			}
			return from.read(r, o, reading, c)
		}
		bound, err := r.bind(writing, c.Inputs)
		if err != nil {
			return nil, err
		}
		rows := bound[0].Shape()[0]
		for i, p := range writing {
			if p.Name != StepWanted && bound[i].Shape()[0] != rows {
				return nil, &InputError{p.Name, fmt.Sprintf("%d rows where there are %d tokens", bound[i].Shape()[0], rows)}
			}
		}
		input := func(name string) layers.Tensor {
			if i := slices.IndexFunc(writing, func(p Port) bool { return p.Name == name }); i >= 0 {
				return bound[i]
			}
			return nil
		}
		step := &stepRecorder{
			recorder: r, options: o, positions: input(StepPositions), blocks: input(StepBlocks), states: input(StepStates),
			wanted: input(StepWanted), windowBlocks: input(StepWindowBlocks), mirrors: input(StepMirrors), window: m.window,
		}
		a := from.arch
		if len(m.adapters) > 0 {
			step.adapters = input(StepAdapters)
			a = lora.Mixed(a, from.adapters.list, step.choose)
		}
		if n := len(bound); m.source > 0 {
			step.sourceAt, step.sourceBlocks, step.sees = bound[n-2], bound[n-1], m.pictures != nil
		}
		if x := input(StepLengths); x != nil {
			lengths, err := r.Call("aten::unsqueeze", []any{x, 0}, nil)
			if err != nil {
				return nil, err
			}
			step.lengths = lengths[0].(layers.Tensor)
		}
		args, err := step.arguments(a.Inputs, bound[0], input)
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
	// windowBlocks are the tables of modules that see no more than window positions, nil where they have those of others.
	windowBlocks layers.Tensor
	// mirrors are the further blocks of rows, nil for none.
	mirrors layers.Tensor
	window  int
	// none says of each row whether it is no token, once something asked.
	none layers.Tensor
	// adapters are the numbers of the rows' adapters, once [stepRecorder.Wanted] was called those of the rows that it gave.
	adapters layers.Tensor
	// lengths are those of the rows' sequences, [1 rows], nil where they do not matter.
	lengths layers.Tensor
	// sourceAt and sourceBlocks say where the rows' sources lie, of a model that reads some.
	sourceAt, sourceBlocks layers.Tensor
	// sees says that the sources are pictures whose parts are among the tokens.
	sees bool
	// written are the caches of keys and values that modules write to, by their paths.
	written map[string][]graph.Operand
	// hidden are what layers see, of those that are asked for.
	hidden map[int]layers.Tensor
}

// arguments are those of forward: the tokens and their positions, where it takes them, and what a head sees.
func (r *stepRecorder) arguments(
	ports []Port, tokens layers.Tensor, input func(name string) layers.Tensor,
) ([]any, error) {
	args := make([]any, len(ports))
	for i, p := range ports {
		x, name := layers.Tensor(nil), p.Name
		if r.sourceAt != nil && !r.sees {
			var written bool
			if name, written = strings.CutPrefix(name, "decoder_"); !written && ports[0].DType == tensor.Int64 { // another text's
				continue
			}
		}
		switch name {
		case "input_ids":
			x = tokens
		case "position_ids":
			place, err := r.Positions()
			if err != nil {
				return nil, err
			}
			x = place
		case StepSeen, StepOwn, StepGuessed:
			if x = input(name); x == nil {
				continue
			}
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

// Positions implements layers.Stepper. Rows that are none are tokens at the beginning.
func (r *stepRecorder) Positions() (layers.Tensor, error) {
	place, err := r.Call("aten::clamp", []any{r.positions, 0}, nil)
	if err != nil {
		return nil, err
	}
	return place[0].(layers.Tensor), nil
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
			operands[i], shapes[i] = r.Read(x.(*cells.Ref)), x.Shape()
		}
	}
	shape := append(tensor.Shape{r.options.States}, graph.StateShape(graph.Kind(op), shapes)...)
	cache := r.Graph.AddCache(path+".state", tensor.Float32, shape)
	operands = append(operands, r.Graph.Whole(cache), r.Read(r.states.(*cells.Ref)))
	return r.Emit1(graph.Kind(op), nil, operands...)
}

// Attend implements layers.Stepper.
func (r *stepRecorder) Attend(path string, q, k, v layers.Tensor, a layers.Attention) (layers.Tensor, error) {
	if r.blocks == nil {
		return nil, fmt.Errorf("keys and values in a model that is said to keep none")
	}
	tables, blocks := r.blocks, r.options.Blocks
	if sees := graph.Sees(a.Window, a.Chunk); r.windowBlocks != nil && sees > 0 && sees <= r.window {
		tables, blocks = r.windowBlocks, r.options.WindowBlocks
	}
	var in []graph.Operand
	var caches []graph.Operand
	if k == nil {
		if caches = r.written[path]; caches == nil {
			return nil, fmt.Errorf("what %s remembers is seen before it does", path)
		}
	}
	for i, x := range []layers.Tensor{q, k, v} {
		if x == nil { // what the module wrote is there
			in = append(in, graph.Absent)
			continue
		}
		ref, err := r.rowsOf(x)
		if err != nil {
			return nil, err
		}
		in = append(in, r.Read(ref))
		if i == 0 {
			continue
		}
		caches = append(caches, r.cache(r.options, path, i == 2, blocks, ref.Shape()[1:]))
	}
	if r.written == nil {
		r.written = make(map[string][]graph.Operand)
	}
	r.written[path] = caches
	in = append(append(in, caches...), r.Read(r.positions.(*cells.Ref)), r.Read(tables.(*cells.Ref)))
	mirrors := r.mirrors
	if k == nil { // nothing is written
		mirrors = nil
	}
	return r.attend(in, mirrors, a)
}

// attend adds the operands that an attention may have, and emits it.
func (r *stepRecorder) attend(in []graph.Operand, mirrors layers.Tensor, a layers.Attention) (layers.Tensor, error) {
	for i, x := range []layers.Tensor{a.Sinks, a.Bias, mirrors} {
		if x == nil {
			continue
		}
		for len(in) < 7+i {
			in = append(in, graph.Absent)
		}
		in = append(in, r.Read(x.(*cells.Ref)))
	}
	out, err := r.Emit1("attend", graph.Attrs{"scale": a.Scale, "softcap": a.Softcap, "window": a.Window, "chunk": a.Chunk}, in...)
	if err != nil {
		return nil, err
	}
	s := out.Shape()
	return r.Reshape(out, tensor.Shape{1, s[0], s[1] * s[2]})
}

// rowsOf returns [1 heads rows size] as [rows heads size].
func (r *recorder) rowsOf(x layers.Tensor) (*cells.Ref, error) {
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
	return out[0].(*cells.Ref), nil
}

// cache returns the cache of keys, or of values, of the module at path: of rows of [heads size] in so many blocks.
func (r *recorder) cache(o StepOptions, path string, values bool, blocks int, row tensor.Shape) graph.Operand {
	name := path + ".keys"
	if values {
		name = path + ".values"
	}
	shape := tensor.Shape{blocks * graph.BlockRows, row[0], graph.CacheWidth(o.DType, row[1])}
	return r.Graph.Whole(r.Graph.AddCache(name, o.DType, shape))
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

// give makes the logits of [1 wanted vocabulary] the output of the graph, and what layers see where that is asked for, or what a
// head gives for the next row.
func (r *stepRecorder) give(result any) error {
	var logits, hidden layers.Tensor
	fields, _ := result.(layers.Fields)
	for _, f := range fields {
		x, ok := f.Value.(*cells.Ref)
		if !ok || x.IsCounted() || len(x.Shape()) != 3 {
			continue
		}
		switch f.Name {
		case StepLogits:
			logits = x
		case StepHidden:
			hidden = x
		}
	}
	if logits == nil {
		return fmt.Errorf("the model gives no logits")
	}
	if len(r.options.Hidden) > 0 {
		var err error
		if hidden, err = r.joined(); err != nil {
			return err
		}
	}
	var out layers.Fields
	for _, f := range []layers.Field{{Name: StepLogits, Value: logits}, {Name: StepHidden, Value: hidden}} {
		x, ok := f.Value.(*cells.Ref)
		if !ok {
			continue
		}
		x, err := r.Reshape(x, x.Shape()[1:])
		if err != nil {
			return err
		}
		out = append(out, layers.Field{Name: f.Name, Value: x})
	}
	return r.recorder.give(out)
}

// Hidden implements layers.Listener.
func (r *stepRecorder) Hidden(layer int, x layers.Tensor) {
	if !slices.Contains(r.options.Hidden, layer) {
		return
	}
	if r.hidden == nil {
		r.hidden = make(map[int]layers.Tensor)
	}
	r.hidden[layer] = x
}

// joined is what the layers see that are asked for, [1 rows …].
func (r *stepRecorder) joined() (layers.Tensor, error) {
	list := make([]layers.Tensor, len(r.options.Hidden))
	for i, layer := range r.options.Hidden {
		x := r.hidden[layer]
		if x == nil || len(x.Shape()) != 3 {
			what := fmt.Sprintf("what layer %d of the model sees, which nothing says", layer)
			return nil, &UnsupportedError{What: what}
		}
		list[i] = x
	}
	if len(list) == 1 {
		return list[0], nil
	}
	out, err := r.Call("aten::cat", []any{list, -1}, nil)
	if err != nil {
		return nil, err
	}
	return out[0].(layers.Tensor), nil
}
