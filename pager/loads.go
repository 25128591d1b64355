package pager

import (
	"sync"
	"time"
)

// loads are what was brought and nobody was told of yet. A nil one is that of a pager whose loads nobody observes: it notes
// nothing and looks at no clock.
type loads struct {
	mu         sync.Mutex
	done, told []Event
	// awaited counts the copies that ops were made to wait for, copied those that have ended or will not; ended has a token where
	// the last one may have.
	awaited, copied int
	ended           chan struct{}
}

func newLoads() *loads { return &loads{ended: make(chan struct{}, 1)} }

// stamp notes the time.
func (l *loads) stamp(at *time.Time) {
	if l != nil {
		*at = time.Now()
	}
}

// add notes that a group was brought.
func (l *loads) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = append(l.done, e)
}

// await notes that ops wait for a copy.
func (l *loads) await() {
	if l != nil {
		l.awaited++
	}
}

// copy notes that a group was copied to the device, or that this failed.
func (l *loads) copy(e Event, err error) {
	if err == nil {
		l.add(e)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.copied++
	select {
	case l.ended <- struct{}{}:
	default:
	}
}

// settle returns once the copies that ops waited for are noted. They have ended, since the ops have.
func (l *loads) settle() {
	if l == nil {
		return
	}
	for {
		l.mu.Lock()
		all := l.copied >= l.awaited
		l.mu.Unlock()
		if all {
			return
		}
		<-l.ended
	}
}

// forget begins to count anew, where nothing is under way.
func (l *loads) forget() {
	if l != nil {
		l.awaited, l.copied = 0, 0
	}
}

// read notes that a group was read straight to where it is computed with.
func (l *loads) read(v *visit, bytes int64) {
	if l == nil {
		return
	}
	e := Event{Kind: LoadDone, Group: v.group, Path: v.path, LoadedBytes: bytes, Begin: v.began, End: v.ended}
	if v.reaped.After(e.End) {
		e.End = v.reaped
	}
	v.reaped = time.Time{}
	l.add(e)
}

// tellLoads tells the observer what was brought since it was told last.
func (g *Pager) tellLoads() {
	l := g.loads
	if l == nil {
		return
	}
	l.mu.Lock()
	l.done, l.told = l.told[:0], l.done
	l.mu.Unlock()
	for i := range l.told {
		g.opts.Observe(l.told[i])
	}
}
