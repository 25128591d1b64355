package runtime

import (
	"time"

	"github.com/optimem/optimem/pager"
)

// An Event is what [Options.Observe] is told: a step of a pass that is done.
type Event = pager.Event

// Clock returns the time on the clock of a device that is simulated, and false for a device whose clock is the wall's.
func (s *Session) Clock() (time.Duration, bool) {
	s.acquire()
	defer s.release()
	if s.machine.elapsed == nil {
		return 0, false
	}
	return s.machine.elapsed(), true
}
