package work

import (
	"context"
	"sync"
	"time"
)

// A turn says which of a worker's models takes items: one stays as long as it has some, since its weights are in
// memory, and the others have theirs when it has none, or when nobody anywhere takes the items of one for as long as a
// turn may be.
//
// It is a preference and no lock: items that come to a model that was asking while nobody had the turn are run beside.
type turn struct {
	stay time.Duration
	// now is the clock, for tests and for simulations.
	now func() time.Time

	mu     sync.Mutex
	holder int // -1 while nobody has it
	// home is who had it last, and has it again before others where who starved had nothing after all.
	home  int
	under map[int]int
	// waits has since when models wait for the turn, or since when their items are known to be taken elsewhere.
	waits map[int]time.Time
	// starve are those of them whose items nobody takes.
	starve map[int]bool
	// changed is closed when there is something new to look at.
	changed chan struct{}
}

func newTurn(stay time.Duration, now func() time.Time) *turn {
	return &turn{
		stay: stay, now: now, holder: -1, home: -1, under: make(map[int]int), waits: make(map[int]time.Time),
		starve:  make(map[int]bool),
		changed: make(chan struct{}),
	}
}

// may reports whether a model may ask for items now, and else after what time it is to look whether it starves. The
// lock is held.
func (t *turn) may(model int) (bool, time.Duration) {
	first := -1 // of those who starve the one that waits longest
	for m := range t.starve {
		if since := t.waits[m]; first < 0 || since.Before(t.waits[first]) || since.Equal(t.waits[first]) && m < first {
			first = m
		}
	}
	_, homeWaits := t.waits[t.home]
	switch {
	case t.holder < 0 && first == model, // before that, the holder takes no more
		t.holder < 0 && first < 0 && (model == t.home || !homeWaits),
		t.holder == model && first < 0:
		t.leave(model)
		return true, 0
	}
	now := t.now()
	if _, ok := t.waits[model]; !ok {
		t.waits[model] = now
	}
	if t.starve[model] {
		return false, t.stay
	}
	return false, max(t.stay-now.Sub(t.waits[model]), 0)
}

// leave has a model wait no more.
func (t *turn) leave(model int) {
	if _, ok := t.waits[model]; ok {
		delete(t.waits, model)
		delete(t.starve, model)
		t.tell()
	}
}

// looked notes whether a model that waits starves: it has items, and nobody took one of them for as long as a turn may
// be.
func (t *turn) looked(model int, starves bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.waits[model]; !ok {
		return
	}
	if !starves {
		t.waits[model] = t.now()
		return
	}
	t.starve[model] = true
	t.tell()
}

// took notes that a model has n more items under way.
func (t *turn) took(model, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.under[model] += n
	if n > 0 && t.holder < 0 {
		t.holder, t.home = model, model
		t.leave(model)
	}
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
			t.holder, t.home = m, m
		}
	}
	t.leave(t.holder)
	t.tell()
}

func (t *turn) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// wait returns when a model may ask for items, or ctx is done. It asks starves whether it has items that nobody takes.
func (t *turn) wait(ctx context.Context, model int, starves func() bool) {
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
			t.looked(model, starves())
		}
		timer.Stop()
	}
}
