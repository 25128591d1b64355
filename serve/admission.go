package serve

import (
	"context"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/optimem/optimem/runtime"
)

// bodies bounds the bytes of requests that are under way, and keeps the memory of large ones for those that come: Go would
// clear it anew, and the system give its pages anew, which takes longer than to fill it.
type bodies struct {
	mu   sync.Mutex
	most int64
	held int64
	// spare is memory that no request has, the oldest first, of spareBytes. It counts with what is held, and gives way to it;
	// drops drops it when nobody used any for a while.
	spare      [][]byte
	spareBytes int64
	drops      *time.Timer
	// lent is how much memory those have who read what nobody wants.
	lent int
}

const (
	// leastKept is how many bytes memory has that is kept. Its sizes are multiples of keptPiece.
	leastKept = 256 << 10
	keptPiece = 64 << 10
	// mostLent have memory to read what nobody wants.
	mostLent = 4
)

// keptFor is how long memory is kept that nobody uses. Tests lengthen it.
var keptFor = 10 * time.Second

// keptSize is how much memory is taken for so many bytes, with what is needed to have them lie where they are to.
func keptSize(n int64) int64 {
	if n < leastKept {
		return n
	}
	return (n + bodyAlign + keptPiece - 1) / keptPiece * keptPiece
}

// memory returns some for bytes that are reserved, n of [keptSize]: what was kept, or new. What lies there is anything.
func (b *bodies) memory(n int64) []byte {
	b.mu.Lock()
	for i := len(b.spare) - 1; i >= 0; i-- {
		if m := b.spare[i]; int64(len(m)) == n {
			b.spare = slices.Delete(b.spare, i, i+1)
			b.spareBytes -= n
			b.mu.Unlock()
			return m
		}
	}
	b.mu.Unlock()
	return make([]byte, n)
}

// keep takes back memory that nobody uses any more, whose bytes are given back already.
func (b *bodies) keep(m []byte) {
	n := int64(len(m))
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < leastKept || n > b.most-b.held {
		return
	}
	b.yield(n)
	b.spare, b.spareBytes = append(b.spare, m), b.spareBytes+n
	if b.drops == nil {
		b.drops = time.AfterFunc(keptFor, b.drop)
	} else {
		b.drops.Reset(keptFor)
	}
}

// lend reserves memory to read what nobody wants, or returns nil where enough have some, or there is none.
func (b *bodies) lend() []byte {
	n := keptSize(leastKept)
	b.mu.Lock()
	if b.lent >= mostLent || n > b.most-b.held {
		b.mu.Unlock()
		return nil
	}
	b.yield(n)
	b.held, b.lent = b.held+n, b.lent+1
	b.mu.Unlock()
	return b.memory(n)
}

// takeBack takes what was lent.
func (b *bodies) takeBack(m []byte) {
	b.mu.Lock()
	b.held, b.lent = b.held-int64(len(m)), b.lent-1
	b.mu.Unlock()
	b.keep(m)
}

// yield has so many bytes free, which there are without what is kept.
func (b *bodies) yield(n int64) {
	for b.spareBytes > 0 && n > b.most-b.held-b.spareBytes {
		b.spareBytes -= int64(len(b.spare[0]))
		b.spare = slices.Delete(b.spare, 0, 1)
	}
}

// drop keeps nothing any more.
func (b *bodies) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spare, b.spareBytes = nil, 0
}

// take reserves bytes, or says that there is no room. Nobody waits: what waits would be held, too.
func (b *bodies) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.most-b.held {
		return false
	}
	b.yield(n)
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
	// inside counts requests to members of the pool that passed; idle is closed when there are none, nil where nobody waits for it.
	inside int
	idle   chan struct{}
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

// pass waits until the gate is open. Who is counted leaves.
func (g *gate) pass(ctx context.Context, counted bool) error {
	for {
		g.mu.Lock()
		closed := g.closed
		if closed == nil && counted {
			g.inside++
		}
		g.mu.Unlock()
		if closed == nil {
			return nil
		}
		select {
		case <-closed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// settle waits until nobody who was counted is inside.
func (g *gate) settle(ctx context.Context) error {
	g.mu.Lock()
	if g.inside > 0 && g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
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
func (r *Registry) admit(ctx context.Context, v *version, i *instance, of runtime.Priority) (done func(), err error) {
	waits, first := v.stats.waits(1, of)
	gone := func() { v.stats.waits(-1, of) }
	pooled := v.what().kind == Tensors
	if waits > int64(r.opts.MaxQueue) {
		gone()
		v.stats.refused.Add(1)
		return nil, r.tooMany(i, waits)
	}
	if until, ok := ctx.Deadline(); ok && waits > 1 {
		if wait := r.wait(i, first); time.Until(until) < wait {
			gone()
			v.stats.refused.Add(1)
			return nil, &Error{Status: http.StatusTooManyRequests, Msg: "its time would be over before its pass is", RetryAfter: wait}
		}
	}
	if err := r.gate.pass(ctx, pooled); err != nil {
		gone()
		return nil, err
	}
	if pooled {
		return func() { r.gate.leave(); gone() }, nil
	}
	return gone, nil
}

// crammed refuses a request to a version for which as many wait as may, before it is read: under overload most of what
// comes is refused, and reading it would take from those that are answered.
func (r *Registry) crammed(v *version) error {
	i := v.current()
	waits := v.stats.waiting()
	if i == nil || waits < int64(r.opts.MaxQueue) {
		return nil
	}
	e := r.tooMany(i, waits+1)
	v.stats.refused.Add(1)
	v.stats.done(&call{}, e.Status, 0)
	return e
}

func (r *Registry) tooMany(i *instance, waits int64) *Error {
	return &Error{Status: http.StatusTooManyRequests, Msg: "too many requests wait for the model", RetryAfter: r.wait(i, waits)}
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
