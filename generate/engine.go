// Package generate generates text with a causal language model: it is the loop around a session that samples tokens,
// feeds them back, and batches many sequences into each pass.
//
// An [Engine] owns a session of the stepwise model ([models.Model.Steps]). Each pass takes one row for every sequence
// in decode and, while there is room, rows of prompts that wait for prefill, so that weights are brought once for all
// of them. The keys and values of every sequence are in blocks of a cache that is part of the plan: a request is
// admitted when its blocks are free, and never runs out of memory later. Sequences with a common prefix share its
// blocks.
//
//	engine, err := generate.New(ctx, model, generate.Options{})     // defer engine.Close()
//	result, err := engine.Generate(ctx, generate.Request{Prompt: ids, MaxTokens: 100}, func(t generate.Token) error {
//		fmt.Print(t.ID, " ")
//		return nil
//	})
//
// The result of a request depends on its prompt, sampling and seed only: not on the mode, the budget, concurrent
// requests or how its prompt was split into passes.
package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// Options say how an engine runs a model. The zero value is right.
type Options struct {
	// Session is how the session runs: its mode, device, memory, ….
	Session runtime.Options
	// Context is how many tokens a sequence has at most, its prompt included, and of a model that reads a text before
	// it writes how many that has at most. 0 is what the model and the budget admit, 4096 at most, or 1024 of such a
	// model.
	Context int
	// Sequences is how many sequences of a full context there is room for at once; shorter ones take less, so there may be
	// more of them. 0 is 1.
	Sequences int
	// Rows is how many tokens a pass takes at most; 0 is 256, or fewer where the budget admits no more.
	Rows int
	// KV is the dtype of the keys and values that are kept: float32, bfloat16, float16 or int8. The zero value is float32. A
	// narrower one than the model's weights rounds; int8 does so to 255 steps for the row of a token in a head, with a scale.
	KV tensor.DType
	// Speculate is how many tokens in a row are guessed ahead at most, from what was written before, so that a pass may
	// write more than one: 0 is as many as make it faster, by the plan and by what passes take, and none where experts
	// are read as they are needed; [NoSpeculation] is none. The text is the same. A model that keeps states
	// ([models.Model.Keeps]) keeps one for each token that is guessed: 0 is none there, or four with a draft.
	Speculate int
	// Draft is a smaller model with the same vocabulary that guesses, in the place of what was written before, or a head on this
	// model ([models.BuildHead]). It stays in memory, and what it takes is part of the budget. Its checkpoint must stay open as
	// the model's must.
	Draft *models.Model
	// Remote, where it is not nil, begins what runs the passes in place of a session of this process: package pipeline.
	// Session then only plans, nothing is guessed ahead unless Speculate says how far, and nothing can be saved.
	Remote OpenRemote
	// Branches is how many guesses of what follows a pass verifies of each sequence at most, of which the model's own
	// choice follows one: others than the first are what followed other occurrences of the same tokens, or, with Draft, what
	// that holds for likely. 0 is 1. More
	// take blocks of their own, which are planned. A model that keeps states, or has layers with a window, has one.
	Branches int
	// Pictures is how many pictures a request may have, of a model that sees some ([models.Model.Pictures]): what stands for
	// them in texts is kept beside keys and values, of all sequences. 0 is 1.
	Pictures int
	// Grammars are bytes of the host's memory that schemas and grammars of requests take ([Text.GrammarBytes]). They are part of the
	// budget: on the CPU of the session's memory, beside a device with memory of its own of what it may take of the host's.
	Grammars int64
	// Grow has, on the CPU in the mode auto, the memory of keys and values grow and shrink with the texts: while they need
	// less of it, more weights stay. It is there for all texts that are admitted, since weights give way.
	Grow bool
}

// The defaults.
const (
	defaultContext = 4096
	sourceContext  = 1024
	leastContext   = 64
	defaultRows    = 256
	leastRows      = 16
)

// An Engine writes for many callers at once. It may be shared between goroutines. The checkpoint must stay open until the
// engine was closed.
type Engine struct {
	session *runtime.Session
	// remote runs the passes in its place, nil where it does; landed are those that are over.
	remote Remote
	landed chan *pass
	model  *models.Model
	// whole is the model with the caches of all modules in one order, where those with a window have another, and without
	// what only guesses need.
	whole   *models.Model
	opts    Options
	context int
	rows    int
	// vocabulary is how many logits there are for a token.
	vocabulary int
	// source is how many positions a source has at most, 0 of a model that reads none, and sourceWords how many tokens
	// it may have.
	source, sourceWords int
	// picture stands for a part of a picture in a text, places of them for each picture; 0 places of a model that sees none.
	picture, places int

	// stretch is how many tokens a sequence has before its length matters, where one may have more; 0 otherwise. restarts says
	// that one that becomes longer begins again.
	stretch  int
	restarts bool

	// requests brings sequences to the loop, which owns all else; stop ends the loop, and done says that it ended.
	requests chan *sequence
	// tasks are run by the loop between passes. pinned counts those who hold blocks that no request has.
	tasks   chan func()
	pinned  int
	stop    context.CancelFunc
	stopped context.Context
	done    chan struct{}

	blocks  *blocks
	sources *sources
	reading reading
	waiting []*sequence
	running []*sequence
	// finished are those that this pass was the last of.
	finished  []*sequence
	pass      pass
	now       func() time.Time
	ahead     *ahead
	branching branching
	growing   growing
	draft     *draft

	// stating is held by who saves or restores: one at a time needs a place for a state.
	stating sync.Mutex
	// keeping guards kept, which is what keys and values are, once somebody saves or restores some.
	keeping sync.Mutex
	kept    *kept

	// mu guards what follows.
	mu    sync.Mutex
	stats Stats
}

// Stats count what an engine did.
type Stats struct {
	// Passes counts passes, Rows the tokens that went through them, Tokens those that were written.
	Passes, Rows, Tokens int64
	// SharedTokens are tokens of prompts whose keys and values were there already.
	SharedTokens int64
	// Guessed are tokens that were guessed ahead, Accepted those of them that were right.
	Guessed, Accepted int64
	// Declined counts the passes that could have had guesses and had none, since they were expected to take longer than the
	// guesses were worth.
	Declined int64
	// Grown counts how often the memory of keys and values became larger, Shrunk how often weights got some of it back.
	Grown, Shrunk int64
	// Running and Waiting are how many requests are being written and how many wait for blocks.
	Running, Waiting int
}

// ErrClosed is returned to requests of an engine that is closed.
var ErrClosed = errors.New("engine is closed")

// A RequestError says that a request cannot be taken, whatever else the engine does.
type RequestError struct {
	// Field is the field of the [Request] that is wrong.
	Field, Msg string
}

// Error names the field.
func (e *RequestError) Error() string { return e.Field + ": " + e.Msg }

// New returns an engine for a model. The session's budget has to admit the caches for a context: where Context is 0, the
// longest one is taken that fits, else what does not fit is a [*runtime.CapacityError].
func New(ctx context.Context, model *models.Model, opts Options) (*Engine, error) {
	longest := model.Context()
	switch {
	case opts.Context < 0:
		return nil, &RequestError{"Context", fmt.Sprintf("%d tokens", opts.Context)}
	case longest > 0 && opts.Context > longest:
		return nil, &RequestError{"Context", fmt.Sprintf("%d tokens, and the model was made for %d", opts.Context, longest)}
	case opts.Sequences < 0:
		return nil, &RequestError{"Sequences", fmt.Sprintf("%d sequences", opts.Sequences)}
	case opts.Speculate < NoSpeculation || opts.Speculate > MostSpeculation:
		return nil, &RequestError{"Speculate", fmt.Sprintf("%d tokens: 1 to %d are possible", opts.Speculate, MostSpeculation)}
	case opts.Pictures < 0:
		return nil, &RequestError{"Pictures", fmt.Sprintf("%d pictures", opts.Pictures)}
	case opts.Grammars < 0:
		return nil, &RequestError{"Grammars", fmt.Sprintf("%d bytes", opts.Grammars)}
	case opts.Rows < 0 || opts.Rows > maxRows:
		return nil, &RequestError{"Rows", fmt.Sprintf("%d rows: 1 to %d are possible", opts.Rows, maxRows)}
	}
	if opts.Sequences == 0 {
		opts.Sequences = 1
	}
	err := opts.checkBranches(model)
	if err != nil {
		return nil, err
	}
	most := defaultContext
	if _, places := model.Pictures(); model.Source() > 0 && places == 0 {
		most = sourceContext
	}
	for _, size := range sizes(opts, min(max(longest, 1), most)) {
		var e *Engine
		var full *runtime.CapacityError
		if e, err = open(ctx, model, opts, size); err == nil || !errors.As(err, &full) {
			return e, err
		}
	}
	return nil, err // of the smallest, which says what would do
}

// maxRows bounds the tokens of a pass.
const maxRows = 4096

// A size is one that an engine may have.
type size struct{ context, rows int }

// sizes are those to try, the largest first: fewer rows a pass before a shorter context.
func sizes(opts Options, longest int) []size {
	contexts := []int{opts.Context}
	if opts.Context == 0 {
		contexts = contexts[:0]
		for n := longest; ; n /= 2 {
			contexts = append(contexts, n)
			if n/2 < leastContext {
				break
			}
		}
	}
	var list []size
	for _, n := range contexts {
		if opts.Rows > 0 {
			list = append(list, size{n, opts.Rows})
			continue
		}
		for rows := defaultRows; rows >= leastRows; rows /= 4 {
			list = append(list, size{n, min(rows, bucket(n))})
		}
	}
	return list
}

// open returns an engine of a size.
func open(ctx context.Context, model *models.Model, opts Options, n size) (_ *Engine, err error) {
	perSequence := graph.Blocks(n.context)
	source, err := opts.sourceOf(model, n)
	if err != nil {
		return nil, err
	}
	picture, places := model.Pictures()
	sourceBlocks := graph.Blocks(source) * opts.Sequences
	keys, recurrent := model.Keeps()
	states := 0
	if recurrent {
		if opts.Speculate == 0 { // the state behind each guess has to be kept, which takes memory
			if opts.Speculate = NoSpeculation; opts.Draft != nil {
				opts.Speculate = statesSpeculation
			}
		}
		states = opts.statePlaces(n.rows)
	}
	step := models.StepOptions{
		Blocks: perSequence*opts.Sequences + opts.spareBlocks(), Context: n.context, DType: opts.KV, Source: source, SourceBlocks: sourceBlocks, States: states,
	}
	whole, err := model.Steps(step)
	if err != nil {
		return nil, err
	}
	steps, blocks := whole, newBlocks(step.Blocks)
	if size := model.Window(); size > 0 && size < n.context {
		blocks.windows = newWindows(size, n.rows, opts.Sequences, perSequence)
		step.WindowBlocks = len(blocks.windows.of)
	}
	step.Hidden, blocks.together = opts.seen(), opts.Session.CachesAway
	if step.Mirrors = opts.mirrors(); step.Mirrors+step.WindowBlocks+len(step.Hidden) > 0 {
		if steps, err = model.Steps(step); err != nil {
			return nil, err
		}
	}
	if source > 0 && opts.Draft != nil {
		return nil, &RequestError{"Draft", "guesses for a model that reads a source, of which it would know nothing"}
	}
	e := &Engine{
		model: steps, whole: whole, opts: opts, context: n.context, rows: n.rows, source: source, picture: picture, places: places,
		requests: make(chan *sequence), tasks: make(chan func()), done: make(chan struct{}),
		blocks: blocks, sources: newSources(sourceBlocks), ahead: newAhead(opts, n.rows), now: time.Now,
	}
	e.pass.in = stepInputs{
		width: perSequence, sourceWidth: graph.Blocks(source), adapted: len(model.Adapters()) > 0, keyless: !keys, recurrent: recurrent,
		windowed: blocks.windows != nil, mirrors: step.Mirrors,
	}
	if recurrent {
		e.blocks.states = newStates(states)
	}
	if stretch, restarts := model.Stretch(); stretch > 0 && n.context > stretch {
		e.stretch, e.restarts = stretch, restarts
		e.pass.in.lengthened = true
	}
	if opts.Draft != nil && opts.Speculate != NoSpeculation {
		if e.draft, err = openDraft(ctx, model, opts, n); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				e.draft.session.Close()
			}
		}()
	}
	budget, taken, err := e.setAside(ctx, steps)
	if err != nil {
		return nil, err
	}
	if taken > 0 {
		defer func() { err = besides(err, taken, budget) }()
	}
	if err = e.startSession(ctx, model, step); err != nil {
		return nil, err
	}
	e.stopped, e.stop = context.WithCancel(context.Background())
	go e.loop()
	return e, nil
}

// sourceOf is how many positions a source of a model has at most, 0 of one that reads none.
func (o *Options) sourceOf(model *models.Model, n size) (int, error) {
	source := model.Source()
	_, places := model.Pictures()
	switch _, isSound := model.Sound(); {
	case places > 0 && o.Pictures > source/places:
		return 0, &RequestError{"Pictures", fmt.Sprintf("%d pictures: 1 to %d are possible", o.Pictures, source/places)}
	case places > 0:
		return places * max(o.Pictures, 1), nil
	case !isSound:
		return min(source, n.context), nil
	}
	return source, nil
}

// startSession begins what runs the passes: a session, or what is elsewhere.
func (e *Engine) startSession(ctx context.Context, whole *models.Model, steps models.StepOptions) (err error) {
	if e.opts.Remote != nil {
		if err := e.checkRemote(); err != nil {
			return err
		}
		e.opts.Session = runtime.Options{PlanOnly: true, Mode: plan.Resident, Memory: math.MaxInt64 / 4}
	}
	if e.session, err = runtime.Start(ctx, e.model, e.opts.Session); err != nil {
		return err
	}
	p, err := e.largest(ctx, e.session)
	if err == nil {
		e.vocabulary = p.Lowered.Graph.Outputs[0].Operand.Layout.Shape[1]
		if d := e.draft; d != nil && d.words() != e.vocabulary {
			err = &RequestError{"Draft", fmt.Sprintf("a model of %d tokens, and the other has %d", d.words(),
				e.vocabulary)}
		}
	}
	if err == nil && e.opts.Remote != nil {
		err = e.startRemote(ctx, whole, steps)
	}
	if err != nil {
		e.session.Close()
		return err
	}
	if len(p.Experts) > 0 && e.opts.Speculate == 0 { // each row more needs other experts, which are read: guessing costs more than it gives
		e.ahead.limit = 0
	}
	if err = e.openBranches(ctx); err == nil && !e.opts.Session.PlanOnly {
		err = e.beginSmall(ctx, p)
	}
	if err != nil {
		e.session.Close()
	}
	return err
}

// largest plans the largest pass, which takes what the engine takes: nothing is found out later. The weights that stay
// are chosen for prompts and writing together: as many tokens are taken to be written as there are in prompts, in
// passes of all sequences.
func (e *Engine) largest(ctx context.Context, session *runtime.Session) (*plan.Plan, error) {
	rows, all := bucket(e.rows), min(bucket(e.opts.Sequences), e.rows)
	mix := []runtime.PassKind{{Shapes: e.shapes(rows, all), Weight: 1}}
	if all < rows {
		mix = append(mix, runtime.PassKind{Shapes: e.shapes(all, all), Weight: float64(rows) / float64(all)})
	}
	plans, err := session.PlanMix(ctx, mix...)
	if err != nil {
		return nil, err
	}
	p := plans[0]
	if all > 1 {
		_, err = session.Plan(ctx, e.shapes(1, 1))
	}
	if err == nil && e.source > 0 {
		var reading *plan.Plan
		if reading, err = session.Plan(ctx, e.sourceShapes(e.source)); err == nil {
			e.sourceWords = sourceWords(reading.Lowered.Graph)
		}
	}
	return p, err
}

// ForecastSource returns the plan of the pass that reads a source of so many positions, of a model that reads one; or one
// of the pictures of a source.
func (e *Engine) ForecastSource(ctx context.Context, positions int) (*plan.Plan, error) {
	if positions < 1 || positions > e.source {
		return nil, &RequestError{"Source", fmt.Sprintf("of %d positions: it has 1 to %d", positions, e.source)}
	}
	return e.session.Plan(ctx, e.sourceShapes(positions))
}

// setAside takes from the budget of the engine's session what the draft and grammars take of it, and returns the whole and that part.
func (e *Engine) setAside(ctx context.Context, steps *models.Model) (budget, taken int64, err error) {
	o := &e.opts.Session
	if e.draft != nil {
		taken = e.draft.takes()
	}
	if o.Device == "" || o.Device == "cpu" {
		taken += e.opts.Grammars
	} else if o.HostMemory > 0 {
		o.HostMemory = max(o.HostMemory-e.opts.Grammars, 1)
	}
	if taken == 0 {
		return 0, 0, nil
	}
	if budget, err = budgetOf(ctx, steps, *o); err == nil && budget > 0 {
		o.Memory, o.MemoryShare = max(budget-taken, 1), 0
	}
	return budget, taken, err
}

// budgetOf is what a session with these options may take of the device; 0 is no limit that is known.
func budgetOf(ctx context.Context, model *models.Model, opts runtime.Options) (int64, error) {
	if opts.Memory > 0 {
		return opts.Memory, nil
	}
	opts.PlanOnly = true
	session, err := runtime.Start(ctx, model, opts)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	budget, _ := session.Budget()
	return budget, nil
}

// shapes are those of the inputs of a pass that writes.
func (e *Engine) shapes(rows, wanted int) map[string]tensor.Shape {
	return e.pass.in.shapes(rows, wanted)
}

// Context returns how many tokens a sequence has at most.
func (e *Engine) Context() int { return e.context }

// Adapters returns the names of the adapters that requests may have.
func (e *Engine) Adapters() []string { return e.model.Adapters() }

// Rows returns how many tokens a pass takes at most.
func (e *Engine) Rows() int { return e.rows }

// Sequences returns how many sequences of a full context there is room for at once.
func (e *Engine) Sequences() int { return e.opts.Sequences }

// Vocabulary returns how many tokens the model chooses from.
func (e *Engine) Vocabulary() int { return e.vocabulary }

// Session returns the session that runs the passes, for who wants its metrics or its plan. Its runs are the engine's to do.
func (e *Engine) Session() *runtime.Session { return e.session }

// DraftBytes returns what [Options.Draft] takes of the device's memory at most, 0 without one.
func (e *Engine) DraftBytes() int64 {
	if e.draft == nil {
		return 0
	}
	return e.draft.takes()
}

// Guesses reports whether passes may guess ahead: not where [Options.Speculate] says so, nor where nothing is said and each row more
// would need other experts, which are read.
func (e *Engine) Guesses() bool { return e.ahead.limit > 0 }

// Forecast returns the plan of a pass for one row: what writing a token takes.
func (e *Engine) Forecast(ctx context.Context) (*plan.Plan, error) {
	return e.ForecastPass(ctx, 1, 1)
}

// ForecastPass returns the plan of a pass that takes so many tokens, and after wanted of which one is chosen: as many sequences
// that each write one, or a part of a prompt. The largest is of [Engine.Rows] tokens; what it takes is what the engine takes.
func (e *Engine) ForecastPass(ctx context.Context, tokens, wanted int) (*plan.Plan, error) {
	if tokens < 1 || tokens > e.rows || wanted < 1 || wanted > tokens {
		return nil, &RequestError{"Rows", fmt.Sprintf("a pass of %d tokens, of which %d are wanted: it has 1 to %d", tokens, wanted, e.rows)}
	}
	return e.session.Plan(ctx, e.shapes(bucket(tokens), bucket(wanted)))
}

// Stats returns what the engine did so far.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

// Close ends all requests, with [ErrClosed], and frees everything. It waits for a pass that runs to be cancelled.
func (e *Engine) Close() error {
	e.stop()
	<-e.done
	err := e.session.Close()
	if e.remote != nil {
		err = cmp.Or(err, e.remote.Close())
	}
	if e.draft != nil {
		err = cmp.Or(err, e.draft.session.Close())
	}
	return err
}

// Generate writes what follows a prompt. It calls got, which may be nil, for each token on the caller's goroutine; what got
// returns ends the request: [ErrStop] as finished, another error as failed. The result tells what was written also where there
// is an error.
//
// A request waits until its blocks are free, then goes on in every pass. A cancelled one returns at once and is out of the
// passes that follow.
func (e *Engine) Generate(ctx context.Context, r Request, got func(Token) error) (*Result, error) {
	begin := time.Now()
	s, err := e.sequence(ctx, r)
	if err != nil {
		return nil, err
	}
	result := &Result{PromptTokens: len(r.Prompt)}
	select {
	case e.requests <- s:
	case <-ctx.Done():
		return result, ctx.Err()
	case <-e.stopped.Done():
		return result, ErrClosed
	}
	defer s.cancel()
	for {
		select {
		case read := <-s.read: // never, where nobody wants to know
			r.Progress(read, len(r.Prompt))
		case t, more := <-s.out:
			if !more {
				result.Seconds = time.Since(begin).Seconds()
				result.Finish, result.Passes, result.SharedTokens = s.finish, s.passes, s.shared
				return result, s.err
			}
			if len(result.Tokens) == 0 {
				result.FirstTokenSeconds = time.Since(begin).Seconds()
				select {
				case read := <-s.read:
					r.Progress(read, len(r.Prompt))
				default:
				}
			}
			result.Tokens = append(result.Tokens, t.ID)
			if r.Logprobs > 0 {
				result.Likely = append(result.Likely, t)
			}
			if got == nil {
				continue
			}
			if err := got(t); err != nil {
				result.Seconds = time.Since(begin).Seconds()
				if errors.Is(err, ErrStop) {
					result.Finish, err = FinishStop, nil
				}
				return result, err
			}
		case <-ctx.Done():
			result.Seconds, result.Finish = time.Since(begin).Seconds(), FinishCancelled
			return result, ctx.Err()
		}
	}
}

// ErrStop is what a caller returns of a token after which nothing is to follow.
var ErrStop = errors.New("stop")
