package serve

import (
	"context"
	"math"
	"net/http"
	"sync"
	"time"
)

// bodies bounds the bytes of requests that are under way.
type bodies struct {
	mu   sync.Mutex
	most int64
	held int64
}

// take reserves bytes, or says that there is no room. Nobody waits: what waits would be held, too.
func (b *bodies) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.most-b.held {
		return false
	}
	b.held += n
	return true
}

func (b *bodies) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
}

func (b *bodies) heldBytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// A gate is shut while memory is given back.
type gate struct {
	mu     sync.Mutex
	closed chan struct{}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed != nil
}

// pass waits until the gate is open.
func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed == nil {
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takes refuses a request that comes after the server said that it ends. Those that came before go on.
func (r *Registry) takes() error {
	if r.draining.Load() {
		return &Error{Status: http.StatusServiceUnavailable, Msg: "the server ends", RetryAfter: time.Second}
	}
	return nil
}

// admit gives a request its place among those of a model, or refuses it at once: when too many wait, or when its time would be
// over before its pass is. The caller calls done.
func (r *Registry) admit(ctx context.Context, v *version, i *instance) (done func(), err error) {
	waits := v.stats.waits(1)
	done = func() { v.stats.waits(-1) }
	if waits > int64(r.opts.MaxQueue) {
		done()
		v.stats.refused.Add(1)
		return nil, &Error{Status: http.StatusTooManyRequests, Msg: "too many requests wait for the model", RetryAfter: r.wait(i, waits)}
	}
	if until, ok := ctx.Deadline(); ok && waits > 1 {
		if wait := r.wait(i, waits); time.Until(until) < wait {
			done()
			v.stats.refused.Add(1)
			return nil, &Error{Status: http.StatusTooManyRequests, Msg: "its time would be over before its pass is", RetryAfter: wait}
		}
	}
	if err := r.gate.pass(ctx); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// wait is how long a request of a model would wait, with so many of it there: a pass for as many as share one, at what passes
// take.
func (r *Registry) wait(i *instance, waits int64) time.Duration {
	f := i.facts()
	passes := math.Ceil(float64(waits) / float64(max(f.join, 1)))
	return time.Duration(passes * f.passSeconds * float64(time.Second))
}

// retryAfter is the header's value: whole seconds, one at least.
func retryAfter(d time.Duration) int { return max(int(math.Ceil(d.Seconds())), 1) }
