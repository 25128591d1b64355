package runtime

import "time"

// WaitFor returns once so many calls wait for their turn.
func (s *Session) WaitFor(calls int) {
	for {
		s.mu.Lock()
		n := len(s.waiting)
		s.mu.Unlock()
		if n >= calls {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
