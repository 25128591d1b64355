// Package pipeline runs a model that is too large for one machine over several, its stages: each computes a range of
// the model's groups, and gives what the next range reads to the next stage. What comes out has the bits of one
// machine.
//
// A [Stage] serves a model on a machine. A head ([Open]) asks stages what ranges would take there, divides the model,
// and runs passes; as many may be under way as keep all stages busy. Inputs go from the head to the stages that read
// them, values from stage to stage, outputs from the stage that computes them to the head, all over TCP, with TLS
// beyond one host. Both ends of a connection prove that they know a common token. Each length that is read is compared
// with what the plan says before memory is taken.
//
// It does not know where models come from, or what their inputs mean.
//
//	stage, err := pipeline.NewStage(ctx, model, pipeline.StageOptions{})   // on each machine
//	err = stage.Serve(ctx, listener)
//
//	p, err := pipeline.Open(ctx, model, shapes, pipeline.Options{Stages: []string{"10.0.0.1:4300", "10.0.0.2:4300"}})
//	out, err := p.Run(ctx, runtime.Values{"x": pixels}) // defer p.Close()
package pipeline

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// Options say which stages there are, and how they are reached.
type Options struct {
	// Stages are their addresses, HOST:PORT, in order. Each stage reaches the next one by it.
	Stages []string
	// At are the modules before which the model is divided, one less than there are stages; nil has the model divided as
	// the stages' memory is.
	At []string
	// Token and TLS are as stages have them; nil is none.
	Token []byte
	TLS   *tls.Config
	// Steps has the stages run the stepwise model ([models.Model.Steps]); the model that is given is the whole one.
	Steps *models.StepOptions
	// Window is how many passes are under way at once; 0 is one more than there are stages.
	Window int
	// Patience is how long stages may make no progress while passes are under way; 0 is five minutes.
	Patience time.Duration
	// LinkBytes is how many bytes go over a link in a second, for the forecast; 0 is 125e6, a gigabit. LinkSeconds is
	// how long the first of them takes; 0 is what was measured to each stage.
	LinkBytes, LinkSeconds float64
	// Typical are the shapes of a usual pass, for the forecast; nil is those of the largest.
	Typical map[string]tensor.Shape
	// Wait is how long is waited for a stage that computes for another head, which may be about to leave; 0 is 5 seconds.
	Wait time.Duration
	// Slower lets a pipeline run though one of the machines would be faster by itself; else [*SlowerError] is returned.
	Slower bool
}

// defaultLinkBytes is a gigabit a second.
const defaultLinkBytes = 125e6

// A StageError says which stage failed. A request that failed with it can be run again, by a new pipeline.
type StageError struct {
	// Stage counts from 0, Address is its own.
	Stage   int
	Address string
	Err     error
}

// Error names the stage.
func (e *StageError) Error() string {
	return fmt.Sprintf("stage %d, %s: %v", e.Stage+1, e.Address, e.Err)
}

// Unwrap returns the cause.
func (e *StageError) Unwrap() error { return e.Err }

// A Pipeline runs a model over stages. Any number of goroutines may call Run.
type Pipeline struct {
	opts  Options
	peers []*peer
	plan  *Plan

	// sending keeps passes in the same order at every stage; last is the number of the one that was sent last.
	sending sync.Mutex
	last    uint64
	// asking is held by who asks stages about shapes.
	asking sync.Mutex
	// window has a token for each pass that is under way.
	window chan struct{}
	// progress is when a stage was last heard of, in nanoseconds.
	progress atomic.Int64
	readers  sync.WaitGroup
	closing  chan struct{}

	mu      sync.Mutex
	flights map[uint64]*flight
	layouts map[string][]*layout
	err     error
}

// A peer is a stage as the head sees it.
type peer struct {
	address string
	link    *link
	answers chan *answer
	said    *answer
	// seconds is how long a question and its answer took.
	seconds float64
}

// A flight is a pass under way.
type flight struct {
	layouts []*layout
	// results are the outputs that each stage gave, missing how many stages are still to be heard of; heard says which
	// were.
	results [][]byte
	heard   []bool
	missing int
	err     error
	done    chan struct{}
}

// check looks at the options alone.
func (o *Options) check(stages int) error {
	switch {
	case stages < 2:
		return fmt.Errorf("a pipeline of %d stages: two are the least", stages)
	case o.At != nil && len(o.At) != stages-1:
		return fmt.Errorf("%d places to divide a model over %d stages", len(o.At), stages)
	case o.Window < 0 || o.Window > maxWindow:
		return fmt.Errorf("%d passes under way: 1 to %d are possible", o.Window, maxWindow)
	case !(o.LinkBytes >= 0) || !(o.LinkSeconds >= 0):
		return fmt.Errorf("a link of %v bytes a second after %v seconds", o.LinkBytes, o.LinkSeconds)
	}
	return nil
}

// settle puts the defaults in their places.
func (o *Options) settle(stages int, shapes map[string]tensor.Shape) {
	o.Window = cmp.Or(o.Window, min(stages+1, maxWindow))
	o.Patience, o.Wait = cmp.Or(o.Patience, 5*time.Minute), cmp.Or(o.Wait, 5*time.Second)
	o.LinkBytes = cmp.Or(o.LinkBytes, defaultLinkBytes)
	if o.Typical == nil {
		o.Typical = shapes
	}
}

// Open connects to stages, divides the model over them for inputs of these shapes, the largest that there will be, and
// has them get ready. The checkpoint must stay open until the pipeline is closed, but no weight is read here.
func Open(ctx context.Context, model *models.Model, shapes map[string]tensor.Shape, opts Options) (_ *Pipeline,
	err error) {
	if err := opts.check(len(opts.Stages)); err != nil {
		return nil, err
	}
	opts.settle(len(opts.Stages), shapes)
	p := &Pipeline{
		opts: opts, window: make(chan struct{}, opts.Window), closing: make(chan struct{}),
		flights: make(map[uint64]*flight), layouts: make(map[string][]*layout),
	}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	files, err := Identity(ctx, model)
	if err != nil {
		return nil, err
	}
	if err := p.dial(ctx, files); err != nil {
		return nil, err
	}
	if p.plan, err = p.divide(ctx); err != nil {
		return nil, err
	}
	if err := p.openStages(ctx, files, shapes); err != nil {
		return nil, err
	}
	if _, err := p.layoutsFor(ctx, shapes); err != nil {
		return nil, err
	}
	go p.watch()
	return p, nil
}

// dial connects to all stages and asks who they are.
func (p *Pipeline) dial(ctx context.Context, files string) error {
	for i, address := range p.opts.Stages {
		l, err := dial(ctx, address, p.opts.TLS, p.opts.Token, asHead, p.opts.Patience)
		if err != nil {
			return p.stageError(i, err)
		}
		one := &peer{address: address, link: l, answers: make(chan *answer, 1)}
		p.peers = append(p.peers, one)
		p.readers.Go(func() { p.read(i, one) })
		if err := p.meet(ctx, i); err != nil {
			return err
		}
		switch {
		case one.said.Files != files:
			return p.stageError(i, fmt.Errorf("%w: other files", ErrModel))
		case one.said.Busy:
			return p.stageError(i, ErrBusy)
		}
	}
	return nil
}

// meet asks a stage who it is, again for a while where it computes for another head.
func (p *Pipeline) meet(ctx context.Context, i int) (err error) {
	one, until := p.peers[i], time.Now().Add(p.opts.Wait)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		begin := time.Now()
		if one.said, err = p.ask(ctx, i, ask{}); err != nil || !one.said.Busy || begin.After(until) {
			one.seconds = time.Since(begin).Seconds()
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stageError is an error of a stage, or the one that ended the pipeline before.
func (p *Pipeline) stageError(i int, err error) error {
	return &StageError{Stage: i, Address: p.opts.Stages[i], Err: err}
}

// ask asks a stage. One question is asked at a time.
func (p *Pipeline) ask(ctx context.Context, i int, what ask) (*answer, error) {
	one := p.peers[i]
	if err := one.link.sendJSON(kindAsk, 0, what); err != nil {
		return nil, p.stageError(i, err)
	}
	select {
	case said, ok := <-one.answers:
		if !ok {
			return nil, p.failed()
		}
		if said.Error != nil {
			return said, p.stageError(i, said.Error.err())
		}
		return said, nil
	case <-ctx.Done():
		p.fail(ctx.Err()) // its answer would be that of the next question
		return nil, ctx.Err()
	}
}

// askAll asks all stages the same at once.
func (p *Pipeline) askAll(ctx context.Context, what ask) ([]*answer, error) {
	answers, failures := make([]*answer, len(p.peers)), make([]error, len(p.peers))
	var asking sync.WaitGroup
	for i := range p.peers {
		asking.Go(func() { answers[i], failures[i] = p.ask(ctx, i, what) })
	}
	asking.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// openStages has the stages get ready, the last one first, which the one before connects to.
func (p *Pipeline) openStages(ctx context.Context, files string, shapes map[string]tensor.Shape) error {
	name := make([]byte, 16)
	rand.Read(name)
	for i := len(p.peers) - 1; i >= 0; i-- {
		r := p.plan.rangeOf(i)
		open := &openAsk{rangeAsk: rangeAsk{From: r.From, To: r.To, Shapes: shapes, Steps: stepsOf(p.opts.Steps),
			Window: p.opts.Window}, Run: fmt.Sprintf("%x", name), Files: files, First: i == 0}
		if i < len(p.peers)-1 {
			open.Next = p.opts.Stages[i+1]
		}
		said, err := p.ask(ctx, i, ask{Open: open})
		if err != nil {
			return err
		}
		if said.Forecast == nil {
			return p.stageError(i, &ProtocolError{"no forecast"})
		}
		part := &p.plan.Stages[i] // what the largest pass takes, in the time of a usual one
		part.Forecast.WeightBytes, part.Forecast.PeakBytes = said.Forecast.WeightBytes, said.Forecast.PeakBytes
		part.Forecast.MovedBytes, part.Forecast.BufferBytes = said.Forecast.MovedBytes, said.Forecast.BufferBytes
	}
	return nil
}

// divide asks the stages what they would take.
func (p *Pipeline) divide(ctx context.Context) (*Plan, error) {
	d := &dividing{opts: p.opts, forecast: func(ctx context.Context, i int, r *rangeAsk) (*answer, error) {
		return p.ask(ctx, i, ask{Forecast: r})
	}}
	for _, one := range p.peers {
		d.names, d.memories = append(d.names, one.address), append(d.memories, one.said.BudgetBytes)
		d.seconds = append(d.seconds, cmp.Or(p.opts.LinkSeconds, one.seconds/2))
	}
	return d.divide(ctx)
}

// stepsOf is how steps are said to a stage.
func stepsOf(o *models.StepOptions) *steps {
	if o == nil {
		return nil
	}
	s := &steps{Blocks: o.Blocks, Context: o.Context, States: o.States, Windows: o.WindowBlocks}
	if o.DType != tensor.Invalid {
		s.KV = o.DType.String()
	}
	return s
}

// layoutsFor returns how inputs of these shapes go through the stages.
func (p *Pipeline) layoutsFor(ctx context.Context, shapes map[string]tensor.Shape) ([]*layout, error) {
	key := shapesKey(shapes)
	p.asking.Lock()
	defer p.asking.Unlock()
	if known := p.layouts[key]; known != nil {
		return known, nil
	}
	answers, err := p.askAll(ctx, ask{Shapes: shapes})
	if err != nil {
		return nil, err
	}
	var list []*layout
	for i, said := range answers {
		if said.Layout == nil {
			return nil, p.stageError(i, &ProtocolError{"no layout"})
		}
		if err := p.checkLayout(i, said.Layout, list); err != nil {
			return nil, p.stageError(i, err)
		}
		list = append(list, said.Layout)
	}
	if len(p.layouts) >= maxLayouts {
		clear(p.layouts)
	}
	p.layouts[key] = list
	return list, nil
}

// mostOutputBytes bounds the outputs of a pass that a stage may announce.
const mostOutputBytes = 16 << 30

// checkLayout refuses a stage that computes another graph than those before it, or has outputs that cannot be.
func (p *Pipeline) checkLayout(i int, l *layout, before []*layout) error {
	r, err := roomOf(l)
	if err != nil {
		return err
	}
	if r.out > mostOutputBytes {
		return &ProtocolError{fmt.Sprintf("outputs of %d bytes", r.out)}
	}
	if i == 0 {
		return nil
	}
	last := before[i-1]
	same := slices.EqualFunc(last.After, l.Before, func(a, b spec) bool {
		return a.Name == b.Name && a.DType == b.DType && a.Shape.Equal(b.Shape)
	})
	if l.Digest != last.Digest || !same {
		return fmt.Errorf("%w: it computes another graph than stage %d: another release, or another kind of device",
			ErrModel, i)
	}
	return nil
}

// Passes returns how many passes are to be under way at once, so that all stages are busy.
func (p *Pipeline) Passes() int { return p.opts.Window }

// PassSeconds is how long a usual pass is expected to take by itself.
func (p *Pipeline) PassSeconds() float64 { return p.plan.PassSeconds() }

// Plan returns how the model is divided, and what that is expected to take.
func (p *Pipeline) Plan() *Plan { return p.plan }

// Close ends what runs, with [ErrClosed], and the connections. A second Close returns nil.
func (p *Pipeline) Close() error {
	p.fail(ErrClosed)
	p.readers.Wait()
	return nil
}

// fail ends the pipeline: every pass under way, and whoever comes.
func (p *Pipeline) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	p.err = err
	close(p.closing)
	for id, f := range p.flights {
		delete(p.flights, id)
		f.err = err
		close(f.done)
	}
	for _, one := range p.peers {
		one.link.close()
	}
}

// failed returns what ended the pipeline.
func (p *Pipeline) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Run computes the model for inputs that are no larger than those of [Open]. The outputs are the caller's. An error of
// a stage is a [*StageError]; where a stage is gone, all that was under way ends in one.
func (p *Pipeline) Run(ctx context.Context, in runtime.Values) (runtime.Values, error) {
	out := make(runtime.Values)
	if err := p.run(ctx, in, out, true); err != nil {
		return nil, err
	}
	return out, nil
}

// RunInto is Run into contiguous tensors of the caller's; outputs that out does not name are left out.
func (p *Pipeline) RunInto(ctx context.Context, in, out runtime.Values) error {
	return p.run(ctx, in, out, false)
}

func (p *Pipeline) run(ctx context.Context, in, out runtime.Values, all bool) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	shapes := make(map[string]tensor.Shape, len(in))
	for name, t := range in {
		if t == nil {
			return &runtime.InputError{Input: name, Msg: "is nil"}
		}
		shapes[name] = t.Layout.Shape
	}
	layouts, err := p.layoutsFor(ctx, shapes)
	if err != nil {
		return err
	}
	messages, err := packed(shapes, in, layouts)
	if err != nil {
		return err
	}
	select {
	case p.window <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("run: waiting for another pass: %w", ctx.Err())
	case <-p.closing:
		return p.failed()
	}
	f, err := p.launch(layouts, messages)
	if err != nil {
		return err
	}
	select {
	case <-f.done:
	case <-ctx.Done(): // it goes through all the same
		return fmt.Errorf("run: %w", ctx.Err())
	}
	if f.err != nil {
		return f.err
	}
	return f.gather(out, all)
}

// packed are the frames of a pass, one for each stage: the shapes, then the inputs that it reads.
func packed(shapes map[string]tensor.Shape, in runtime.Values, layouts []*layout) ([][][]byte, error) {
	text, err := json.Marshal(shapes)
	if err != nil {
		return nil, err
	}
	begin := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	contents := make(map[string][]byte, len(in))
	messages := make([][][]byte, len(layouts))
	for i, l := range layouts {
		messages[i] = [][]byte{begin, text}
		for k := range l.Inputs {
			s := &l.Inputs[k]
			t := in[s.Name]
			if t == nil || t.DType.String() != s.DType || !t.Layout.Shape.Equal(s.Shape) {
				return nil, &runtime.InputError{Input: s.Name, Msg: fmt.Sprintf("%s %v is wanted", s.DType, s.Shape)}
			}
			if contents[s.Name] == nil {
				n, err := s.bytes()
				if err != nil {
					return nil, err
				}
				if _, end, err := t.Layout.Span(); err != nil || end > int64(len(t.Data)/t.DType.Size()) {
					return nil, &runtime.InputError{Input: s.Name,
						Msg: fmt.Sprintf("%v do not fit into %d bytes", s.Shape, len(t.Data))}
				}
				contents[s.Name] = make([]byte, n) // the caller may change its own once Run has returned
				t.CopyTo(contents[s.Name])
			}
			messages[i] = append(messages[i], contents[s.Name])
		}
	}
	return messages, nil
}

// launch sends a pass to all stages.
func (p *Pipeline) launch(layouts []*layout, messages [][][]byte) (*flight, error) {
	f := &flight{
		layouts: layouts, results: make([][]byte, len(p.peers)), heard: make([]bool, len(p.peers)),
		missing: len(p.peers),
		done:    make(chan struct{}),
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	p.mu.Lock()
	if p.err != nil {
		defer p.mu.Unlock()
		return nil, p.err
	}
	p.last++
	id := p.last
	if len(p.flights) == 0 {
		p.progress.Store(time.Now().UnixNano())
	}
	p.flights[id] = f
	p.mu.Unlock()
	for i, one := range p.peers {
		if err := one.link.send(kindPass, id, messages[i]...); err != nil {
			p.fail(p.stageError(i, err))
			return nil, p.failed()
		}
	}
	return f, nil
}

// gather takes the outputs of a pass.
func (f *flight) gather(out runtime.Values, all bool) error {
	named := 0
	for i, l := range f.layouts {
		results, err := over(l.Outputs, f.results[i])
		if err != nil {
			return err
		}
		for name, t := range results {
			if all {
				out[name] = t
				continue
			}
			to := out[name]
			if to == nil {
				continue
			}
			named++
			_, end, err := to.Layout.Span()
			if err != nil || to.DType != t.DType || !to.Layout.Shape.Equal(t.Layout.Shape) ||
				!to.Layout.IsContiguous() ||
				end > int64(len(to.Data)/to.DType.Size()) {
				return &runtime.OutputError{Output: name,
					Msg: fmt.Sprintf("a contiguous %v %v is wanted", t.DType, t.Layout.Shape)}
			}
			copy(to.Data[to.Layout.Offset*to.DType.Size():], t.Data)
		}
	}
	if !all && named < len(out) {
		return &runtime.OutputError{Msg: "the model has no such output"}
	}
	return nil
}

// read reads what a stage says, until it goes away.
func (p *Pipeline) read(i int, one *peer) {
	defer close(one.answers)
	for {
		f, err := one.link.next()
		if err == nil {
			p.progress.Store(time.Now().UnixNano())
			err = p.hear(i, one, f)
		}
		if err != nil {
			var stage *StageError
			if !errors.As(err, &stage) {
				err = p.stageError(i, err)
			}
			p.fail(err)
			return
		}
	}
}

// errGone says that a stage ended its connection to a neighbour.
var errGone = errors.New("it is gone")

// hear takes a frame of a stage.
func (p *Pipeline) hear(i int, one *peer, f frame) error {
	switch f.kind {
	case kindBeat:
		if f.n == 0 {
			return nil
		}
	case kindAnswer:
		said := new(answer)
		if err := one.link.readJSON(f, said); err != nil {
			return err
		}
		select {
		case one.answers <- said:
			return nil
		default:
			return &ProtocolError{"an answer that nobody asked for"}
		}
	case kindLost:
		side := make([]byte, 1)
		if f.n != 1 {
			break
		}
		if err := one.link.read(side); err != nil {
			return err
		}
		switch {
		case side[0] == 0 && i > 0:
			return p.stageError(i-1, errGone)
		case side[0] == 1 && i < len(p.peers)-1:
			return p.stageError(i+1, errGone)
		}
	case kindResult:
		return p.result(i, one, f)
	}
	return &ProtocolError{fmt.Sprintf("a frame of kind %d of %d bytes", f.kind, f.n)}
}

// result takes what a stage has for a pass.
func (p *Pipeline) result(i int, one *peer, f frame) error {
	p.mu.Lock()
	pass := p.flights[f.id]
	p.mu.Unlock()
	if pass == nil || pass.heard[i] || f.n < 1 {
		return &ProtocolError{fmt.Sprintf("a result of pass %d, which is not under way", f.id)}
	}
	status := make([]byte, 1)
	if err := one.link.read(status); err != nil {
		return err
	}
	var data []byte
	var failed error
	switch status[0] {
	case statusDone:
		want, err := bytesOf(pass.layouts[i].Outputs)
		if err != nil {
			return err
		}
		if f.n-1 != want {
			return &ProtocolError{fmt.Sprintf("outputs of %d bytes, and %d are wanted", f.n-1, want)}
		}
		data = make([]byte, want)
		if err := one.link.read(data); err != nil {
			return err
		}
	case statusFailed:
		var why failure
		if err := one.link.readJSON(frame{f.kind, f.id, f.n - 1}, &why); err != nil {
			return err
		}
		failed = p.stageError(i, why.err())
	case statusSkipped:
		if f.n != 1 {
			return &ProtocolError{"results of a pass that was skipped"}
		}
	default:
		return &ProtocolError{"a result that is neither done nor failed"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pass.heard[i], pass.results[i] = true, data
	if pass.err == nil {
		pass.err = failed
	}
	if pass.missing--; pass.missing == 0 && p.flights[f.id] == pass {
		if pass.err == nil && slices.ContainsFunc(pass.results, func(r []byte) bool { return r == nil }) {
			pass.err = &ProtocolError{"a pass was skipped by a stage, and none failed"}
		}
		delete(p.flights, f.id)
		close(pass.done)
		<-p.window
	}
	return nil
}

// watch ends the pipeline when no stage makes progress.
func (p *Pipeline) watch() {
	ticks := time.NewTicker(max(p.opts.Patience/8, time.Millisecond))
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-p.closing:
			return
		}
		p.mu.Lock()
		first := -1
		var oldest uint64
		for id, f := range p.flights {
			if first < 0 || id < oldest {
				oldest, first = id, slices.Index(f.heard, false)
			}
		}
		p.mu.Unlock()
		if since := time.Since(time.Unix(0, p.progress.Load())); first >= 0 && since > p.opts.Patience {
			p.fail(p.stageError(first, fmt.Errorf("%w for %v", ErrStuck, p.opts.Patience)))
			return
		}
	}
}
