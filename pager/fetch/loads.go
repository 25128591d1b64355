package fetch

import (
	"sync"
	"time"
)

// A Load is the bringing of a group.
type Load struct {
	// Group is its number in the plan, Path its name, Bytes what was brought.
	Group int
	Path  string
	Bytes int64
	// Begin is when its reads were begun, End when the last was known to have ended; both are zero where nothing was read.
	// CopyBegin and CopyEnd are when the bytes were copied to a device with memory of its own, else zero.
	Begin, End, CopyBegin, CopyEnd time.Time
}

// Loads notes what fetchers bring, and when, for one pass after the other. A nil one notes nothing and looks at no
// clock.
type Loads struct {
	mu         sync.Mutex
	done, told []Load
	// awaited counts the copies that ops were made to wait for, ended those that have ended or will not; more has a token
	// where the last one may have.
	awaited, ended int
	more           chan struct{}
}

// NewLoads returns notes of nothing.
func NewLoads() *Loads { return &Loads{more: make(chan struct{}, 1)} }

// Settle returns once the copies that ops waited for are noted. It is called where these ops have ended, so that their
// copies have.
func (l *Loads) Settle() {
	if l == nil {
		return
	}
	for {
		l.mu.Lock()
		all := l.ended >= l.awaited
		l.mu.Unlock()
		if all {
			return
		}
		<-l.more
	}
}

// Tell calls a function with each load since it was called last. Like [Loads.Settle] it is called by the goroutine that
// runs the pass.
func (l *Loads) Tell(observe func(Load)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.done, l.told = l.told[:0], l.done
	l.mu.Unlock()
	for _, x := range l.told {
		observe(x)
	}
}

// stamp notes the time.
func (l *Loads) stamp(at *time.Time) {
	if l != nil {
		*at = time.Now()
	}
}

// await notes that ops wait for a copy.
func (l *Loads) await() {
	if l != nil {
		l.awaited++
	}
}

// copied notes that a group was copied to the device, or that this failed.
func (l *Loads) copied(x Load, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.done = append(l.done, x)
	}
	l.ended++
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// read notes that a group was read straight to where it is computed with.
func (l *Loads) read(v *visit, bytes int64) {
	if l == nil {
		return
	}
	x := Load{Group: v.group, Path: v.path, Bytes: bytes, Begin: v.began, End: v.ended}
	if v.reaped.After(x.End) {
		x.End = v.reaped
	}
	v.reaped = time.Time{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = append(l.done, x)
}

// forget begins to count anew, where nothing is under way.
func (l *Loads) forget() {
	if l != nil {
		l.awaited, l.ended = 0, 0
	}
}
