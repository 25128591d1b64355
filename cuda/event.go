package cuda

import (
	"context"
	"sync"

	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/device"
)

// An event is a point in a stream. The driver's events are used again: one that was reached long ago lends its handle to a
// new one and is done from then on.
type event struct {
	d *Device

	mu     sync.Mutex
	handle driver.Event
	done   bool
	err    error
}

// keptEvents is how many events a stream has before it uses the oldest again, if that was reached: more than anyone who
// waits is behind.
const keptEvents = 256

// polls is how often an event is asked for before its waiter sleeps. Asking takes a driver less than a microsecond, and
// waking who sleeps some tens of them: who waits for what is nearly there does not, and who waits longer has lost
// little.
const polls = 64

// retire takes the handle away from an event that was reached.
func (e *event) retire() driver.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.done = true
	return e.handle
}

// Record marks the work given so far.
func (s *stream) Record() device.Event {
	e := &event{d: s.d}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.err = s.begin(); e.err != nil {
		return e
	}
	defer s.d.leave()
	if e.handle, e.err = s.spare(); e.err != nil {
		return e
	}
	if e.err = s.d.failed(s.d.lib.RecordEvent(e.handle, s.handle)); e.err != nil {
		_ = s.d.lib.DestroyEvent(e.handle) // the error is that of recording
		return e
	}
	s.events = append(s.events, e)
	return e
}

// spare returns an event of the driver that is free.
func (s *stream) spare() (driver.Event, error) {
	if len(s.events) >= keptEvents {
		oldest := s.events[0]
		if done, err := s.d.lib.EventDone(oldest.handle); err != nil {
			return 0, s.d.failed(err)
		} else if done {
			copy(s.events, s.events[1:])
			s.events = s.events[:len(s.events)-1]
			return oldest.retire(), nil
		}
	}
	e, err := s.d.lib.NewEvent()
	return e, s.d.failed(err)
}

// Wait makes this stream wait for a mark of another. After a failure the stream takes no work until Sync, which returns
// the error: what comes next must not run too early.
func (s *stream) Wait(mark device.Event) {
	e := mark.(*event)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.wait(e); err != nil && s.err == nil {
		s.err = err
	}
}

func (s *stream) wait(e *event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil || e.done {
		return e.err
	}
	if err := s.d.enter(); err != nil {
		return err
	}
	defer s.d.leave()
	return s.d.failed(s.d.lib.WaitEvent(s.handle, e.handle))
}

// Done reports whether the event was reached, or never will be.
func (e *event) Done() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil || e.done {
		return true
	}
	if e.d.enter() != nil {
		return true
	}
	defer e.d.leave()
	done, err := e.d.lib.EventDone(e.handle)
	return done || e.d.failed(err) != nil
}

// Sync returns once the event was reached.
func (e *event) Sync(ctx context.Context) error {
	e.mu.Lock()
	handle, done, err := e.handle, e.done, e.err
	e.mu.Unlock()
	if err != nil {
		return err
	}
	if done {
		return ctx.Err()
	}
	if err := e.d.enter(); err != nil {
		return err
	}
	defer e.d.leave()
	// Where the handle was taken away meanwhile, what is waited for comes later than need be.
	for range polls {
		if done, err := e.d.lib.EventDone(handle); err != nil {
			return e.d.failed(err)
		} else if done {
			return ctx.Err()
		}
	}
	if err := e.d.failed(e.d.lib.SyncEvent(handle)); err != nil {
		return err
	}
	return ctx.Err()
}
