package work

import (
	"context"
	"sync"
	"time"
)

// A turn says which of a worker's models takes items: one stays as long as it has some, since its weights are in memory, and the
// others have theirs when it has none, or when one has waited for as long as a turn may be.
//
// It is a preference and no lock: items that come to a model that was asking while nobody had the turn are run beside.
type turn struct {
	stay time.Duration
	// now is the clock, for tests and for simulations.
	now func() time.Time

	mu     sync.Mutex
	holder int // -1 while nobody has it
	under  map[int]int
	// waits has since when models wait for the turn.
	waits map[int]time.Time
	// changed is closed when there is something new to look at.
	changed chan struct{}
}

func newTurn(stay time.Duration, now func() time.Time) *turn {
	return &turn{
		stay: stay, now: now, holder: -1, under: make(map[int]int), waits: make(map[int]time.Time), changed: make(chan struct{}),
	}
}

// may reports whether a model may ask for items now, and else after what time it may be otherwise. The lock is held.
func (t *turn) may(model int) (bool, time.Duration) {
	now := t.now()
	longest, first := time.Duration(-1), -1
	for m, since := range t.waits {
		if d := now.Sub(since); d > longest || d == longest && m < first {
			longest, first = d, m
		}
	}
	long := first >= 0 && longest >= t.stay
	switch {
	case t.holder < 0 && (!long || first == model):
		if _, ok := t.waits[model]; ok {
			delete(t.waits, model)
			t.tell()
		}
		return true, 0
	case t.holder == model && !long:
		return true, 0
	case t.holder == model: // it takes no more, and who waited longest is next
		return false, t.stay
	}
	if _, ok := t.waits[model]; !ok {
		t.waits[model] = now
	}
	return false, max(t.stay-now.Sub(t.waits[model]), 0)
}

// took notes that a model has n more items under way.
func (t *turn) took(model, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.under[model] += n
	if n > 0 && t.holder < 0 {
		t.holder = model
		delete(t.waits, model)
	}
	t.tell()
}

// ended notes that an item of a model is no longer under way. With the last the turn ends.
func (t *turn) ended(model int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.under[model]--; t.under[model] > 0 || t.holder != model {
		return
	}
	t.holder = -1
	for m, n := range t.under { // who has items beside the turn has it now
		if n > 0 && (t.holder < 0 || m < t.holder) {
			t.holder = m
		}
	}
	delete(t.waits, t.holder)
	t.tell()
}

func (t *turn) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// wait returns when a model may ask for items, or ctx is done.
func (t *turn) wait(ctx context.Context, model int) {
	for ctx.Err() == nil {
		t.mu.Lock()
		ok, after := t.may(model)
		changed := t.changed
		t.mu.Unlock()
		if ok {
			return
		}
		timer := time.NewTimer(max(after, 10*time.Millisecond))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}
