package layers

import "fmt"

// An Attention says how rows of a step attend to what they and earlier steps wrote.
type Attention struct {
	// Scale is multiplied with the scores; Softcap bounds them where it is not 0.
	Scale, Softcap float64
	// Window is how many positions a row sees, itself included; 0 is all.
	Window int
	// Chunk, where it is not 0, is how many positions there are in each of the chunks that rows see none before: a row sees
	// those of its own up to itself.
	Chunk int
	// Sinks are a score more for each head of the queries, whose value is nothing; nil for none.
	Sinks Tensor
	// Bias is added to the scores of each head of the queries by how far away a position is, the last one for all that
	// are further: float32 [heads distances], nil for none.
	Bias Tensor
}

// A Stepper is a [Recorder] of a step: of a pass over rows of tokens that may belong to any sequences, whose keys and
// values stay in caches for the steps that follow. A module that attends by [Trace.Attend] is written once for both: in a
// step its tensors have one row of a batch, and the tokens of that row are the step's rows.
type Stepper interface {
	Recorder
	// Attend records what the module at path attends to: queries, keys and values of [1 heads rows size], those of keys
	// and values perhaps fewer. The result is [1 rows heads×size]. Keys and values may be nil where the module attended
	// before in the same step: what it remembers is seen again.
	Attend(path string, q, k, v Tensor, a Attention) (Tensor, error)
	// Recur records an op of the module at path that walks the rows with a state, of which in are the operands before
	// the state.
	Recur(path, op string, in []Tensor) (Tensor, error)
	// Wanted returns those rows of [1 rows …] whose result is asked for.
	Wanted(x Tensor) (Tensor, error)
	// Context is the largest number of positions that a sequence may have.
	Context() int
	// Positions are those of the rows in their sequences, int64 [rows]; 0 of rows that are no tokens.
	Positions() (Tensor, error)
	// Recall records what the module at path attends to of its sequence's source, all of it: queries of [1 heads rows
	// size]. The result is [1 rows heads×size]. See [SourceReader].
	Recall(path string, q Tensor, a Attention) (Tensor, error)
}

// A SourceReader is a [Recorder] of how a source is read that steps then attend to: a text, or a sound. The encoder
// runs as in a forward; the decoder does not run, but the keys and values that its modules make of what the encoder
// gives are kept for steps.
type SourceReader interface {
	Recorder
	// Keep records keys and values of [1 heads tokens size] that [Stepper.Recall] of the module at path attends to.
	Keep(path string, k, v Tensor) error
	// Reserve says that steps keep keys and values of so many heads and such a size for the module at path: their
	// memory is there also while sources are read.
	Reserve(path string, heads, size int)
}

// Steps reports whether a step is recorded, and how many positions a sequence may have in it.
func (t *Trace) Steps() (context int, ok bool) {
	s, ok := t.recorder.(Stepper)
	if !ok {
		return 0, false
	}
	return s.Context(), true
}

// Attend records what a module attends to in a step. See [Stepper].
func (t *Trace) Attend(m *Module, q, k, v Tensor, a Attention) Tensor {
	s, ok := t.recorder.(Stepper)
	if !ok {
		panic("BUG: attend outside of a step")
	}
	x, err := s.Attend(t.paths[m], q, k, v, a)
	if err != nil {
		panic(traceFailure{fmt.Errorf("attend: %w", err)})
	}
	return x
}

// Recur records an op that walks the tokens of [batch tokens …] with a state: "causal_conv", "selective_scan" or
// "delta_rule". In a step the state is kept for the tokens that follow; a module has one. An operand may be nil where
// the op has it optional.
func (t *Trace) Recur(m *Module, op string, in ...Tensor) Tensor {
	s, ok := t.recorder.(Stepper)
	if !ok {
		args := make([]any, len(in))
		for i, x := range in {
			if x != nil {
				args[i] = x
			}
		}
		return t.Op("optimem::"+op, args...)
	}
	x, err := s.Recur(t.paths[m], op, in)
	if err != nil {
		panic(traceFailure{fmt.Errorf("%s: %w", op, err)})
	}
	return x
}

// Positions returns those of a step's rows. See [Stepper].
func (t *Trace) Positions() Tensor {
	s, ok := t.recorder.(Stepper)
	if !ok {
		panic("BUG: positions outside of a step")
	}
	x, err := s.Positions()
	if err != nil {
		panic(traceFailure{err})
	}
	return x
}

// Recall records what a module attends to of a source in a step. See [Stepper].
func (t *Trace) Recall(m *Module, q Tensor, a Attention) Tensor {
	s, ok := t.recorder.(Stepper)
	if !ok {
		panic("BUG: recall outside of a step")
	}
	x, err := s.Recall(t.paths[m], q, a)
	if err != nil {
		panic(traceFailure{fmt.Errorf("recall: %w", err)})
	}
	return x
}

// Reads reports whether it is recorded how a source is read. See [SourceReader].
func (t *Trace) Reads() bool {
	_, ok := t.recorder.(SourceReader)
	return ok
}

// Keep records what a module keeps of a source. See [SourceReader].
func (t *Trace) Keep(m *Module, k, v Tensor) {
	s, ok := t.recorder.(SourceReader)
	if !ok {
		panic("BUG: keep where no source is read")
	}
	if err := s.Keep(t.paths[m], k, v); err != nil {
		panic(traceFailure{fmt.Errorf("keep: %w", err)})
	}
}

// Reserve says what a module keeps of sequences. See [SourceReader].
func (t *Trace) Reserve(m *Module, heads, size int) {
	s, ok := t.recorder.(SourceReader)
	if !ok {
		panic("BUG: reserve where no source is read")
	}
	s.Reserve(t.paths[m], heads, size)
}

// Lengths returns how long the sequences of a step's rows are in all, [1 rows], where the context is larger than the
// architecture's Stretch.
func (t *Trace) Lengths() Tensor {
	s, ok := t.recorder.(interface{ Lengths() Tensor })
	if !ok {
		panic("BUG: lengths outside of a step")
	}
	x := s.Lengths()
	if x == nil {
		fail("a step that depends on the lengths of sequences, and nobody says them")
	}
	return x
}

// Wanted returns the tokens of [batch tokens …] whose result is asked for: in a step those that the caller names, else all.
func (t *Trace) Wanted(x Tensor) Tensor {
	s, ok := t.recorder.(Stepper)
	if !ok {
		return x
	}
	x, err := s.Wanted(x)
	if err != nil {
		panic(traceFailure{err})
	}
	return x
}

// A Seer is a [Stepper] of an architecture that sees: see [Pictures].
type Seer interface {
	Stepper
	// Seen returns what was kept for the places that the rows name, [1 rows size], and which rows name one, bool [rows].
	// The numbers of others are any.
	Seen(path string, size int) (x, named Tensor, err error)
}

// A SeerReader is a [SourceReader] of an architecture that sees.
type SeerReader interface {
	SourceReader
	// KeepSeen keeps what stands for a picture in a text: [1 places size].
	KeepSeen(path string, x Tensor) error
}

// KeepSeen keeps what stands for a picture, where a source is read. See [SeerReader].
func (t *Trace) KeepSeen(m *Module, x Tensor) {
	s, ok := t.recorder.(SeerReader)
	if !ok {
		panic("BUG: a picture is kept where none is read")
	}
	if err := s.KeepSeen(t.paths[m], x); err != nil {
		panic(traceFailure{fmt.Errorf("a picture: %w", err)})
	}
}

// Seen returns what was kept of pictures for the rows of a step, and which rows name some. See [Seer].
func (t *Trace) Seen(m *Module, size int) (x, named Tensor) {
	s, ok := t.recorder.(Seer)
	if !ok {
		panic("BUG: pictures outside of a step")
	}
	x, named, err := s.Seen(t.paths[m], size)
	if err != nil {
		panic(traceFailure{fmt.Errorf("pictures: %w", err)})
	}
	return x, named
}

// LastHidden is the number under which [Trace.Hidden] has what the head of a model sees, behind all layers.
const LastHidden = -1

// A Listener is a [Stepper] that takes what layers see, beside what the model gives.
type Listener interface {
	Stepper
	// Hidden takes what layer number layer sees of the tokens, [1 rows size], or [LastHidden].
	Hidden(layer int, x Tensor)
}

// Hidden tells what a layer of a decoder sees, counted from 0, of all there are the number for what the last one gives. See
// [Listener].
func (t *Trace) Hidden(layer int, x Tensor) {
	if s, ok := t.recorder.(Listener); ok {
		s.Hidden(layer, x)
	}
}
