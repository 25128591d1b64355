package embed

import "time"

// SetClock has requests come by another clock.
func (e *Embedder) SetClock(now func() time.Time) {
	e.line.mu.Lock()
	defer e.line.mu.Unlock()
	e.line.now = now
}
