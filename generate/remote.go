package generate

import (
	"context"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A Remote runs passes of a stepwise model elsewhere. It keeps the caches from pass to pass, and computes passes in the
// order in which it was called for those of one sequence, of which one is under way at a time.
type Remote interface {
	// RunInto is [runtime.Session.RunInto]. Several goroutines call it at once.
	RunInto(ctx context.Context, in, out runtime.Values) error
	// Passes is how many passes are to be under way at once, so that all of it is busy.
	Passes() int
	Close() error
}

// A Metered is a [Remote] that knows what the sessions do which its passes run in, a session of each device in their order, and
// how long a pass of a row is expected to take.
type Metered interface {
	Metrics() []runtime.Metrics
	PassSeconds() float64
}

// Metrics tells what the engine's session did, or those that a [Remote] has; none where it does not know.
func (e *Engine) Metrics() []runtime.Metrics {
	if e.remote == nil {
		return []runtime.Metrics{e.session.Metrics()}
	}
	if m, ok := e.remote.(Metered); ok {
		return m.Metrics()
	}
	return nil
}

// PassSeconds is how long a pass for one row is expected to take: what writing a token takes.
func (e *Engine) PassSeconds(ctx context.Context) (float64, error) {
	if m, ok := e.remote.(Metered); ok {
		return m.PassSeconds(), nil
	}
	p, err := e.Forecast(ctx)
	if err != nil {
		return 0, err
	}
	return p.Forecast.Seconds, nil
}

// OpenRemote begins what runs the passes of an engine elsewhere.
type OpenRemote = func(ctx context.Context, m RemoteModel) (Remote, error)

// A RemoteModel is what a [Remote] is to run.
type RemoteModel struct {
	// Model is the whole one, Steps what its stepwise model is made with ([models.Model.Steps]).
	Model *models.Model
	Steps models.StepOptions
	// Largest are the shapes of the inputs of the largest pass, Least those of a pass that writes one token.
	Largest, Least map[string]tensor.Shape
}

// checkRemote refuses what passes elsewhere cannot have.
func (e *Engine) checkRemote() error {
	switch {
	case e.source > 0:
		return &models.UnsupportedError{What: "passes elsewhere of a model that reads a source", Hint: "run it on one machine"}
	case e.opts.Draft != nil:
		return &RequestError{"Draft", "guesses for passes that run elsewhere"}
	case e.opts.Branches > 1:
		return &RequestError{"Branches", "several guesses for passes that run elsewhere"}
	case e.opts.Speculate == 0:
		e.ahead.limit = 0
	}
	return nil
}

// startRemote begins what runs the passes.
func (e *Engine) startRemote(ctx context.Context, whole *models.Model, steps models.StepOptions) (err error) {
	e.remote, err = e.opts.Remote(ctx, RemoteModel{
		Model: whole, Steps: steps, Largest: e.shapes(bucket(e.rows), min(bucket(e.opts.Sequences), e.rows)), Least: e.shapes(1, 1),
	})
	return err
}

// loopRemote runs passes elsewhere, several at once, each of other sequences.
func (e *Engine) loopRemote() {
	lanes := max(e.remote.Passes(), 1)
	if e.blocks.states != nil {
		lanes = 1 // their places are counted for one pass
	}
	e.landed = make(chan *pass, lanes)
	free := make([]*pass, lanes)
	for i := range free {
		free[i] = &pass{in: e.pass.in}
	}
	defer func() {
		for range lanes - len(free) { // they write into this engine's memory
			<-e.landed
		}
	}()
	for {
		if len(free) == lanes && !e.gather() {
			return
		}
		e.waiting, e.running = e.alive(e.waiting), e.alive(e.running)
		e.admit()
		for len(free) > 0 {
			p := free[len(free)-1]
			if !e.launch(p, (len(e.running)+lanes-1)/lanes) {
				break
			}
			free = free[:len(free)-1]
		}
		if len(free) == lanes {
			continue
		}
		select {
		case p := <-e.landed:
			free = append(free, p)
			e.land(p)
		case s := <-e.requests:
			e.enter(s)
		case task := <-e.tasks:
			task()
		case <-e.stopped.Done():
			return
		}
	}
}

// launch has a pass run elsewhere, and reports whether there is one to run.
func (e *Engine) launch(p *pass, most int) bool {
	if p.err = e.compose(e.stopped, p, most); p.err == nil && p.rows == 0 {
		return false
	}
	for _, part := range p.parts {
		part.s.flying = true
	}
	if p.err != nil {
		p.rows = 0
		e.landed <- p
		return true
	}
	in, out := e.fill(p, p.rows)
	go func() {
		p.err = e.remote.RunInto(e.stopped, in, out)
		e.landed <- p
	}()
	return true
}

// land takes a pass that is over.
func (e *Engine) land(p *pass) {
	for _, part := range p.parts {
		part.s.flying = false
	}
	if p.err == nil {
		p.err = e.choose(p)
	}
	if p.err == nil || e.stopped.Err() != nil {
		return
	}
	if p.rows > 0 {
		e.abandon(p.parts)
	}
	failed := make(map[*sequence]bool)
	for _, part := range p.parts {
		if part.s.table != nil {
			e.release(part.s)
		}
		part.s.end("", p.err)
		failed[part.s] = true
	}
	kept := e.running[:0]
	for _, s := range e.running {
		if !failed[s] {
			kept = append(kept, s)
		}
	}
	clear(e.running[len(kept):])
	e.running = kept
}
