// Package limit meters what opening one file may cost. Every reader charges the meter before it allocates in
// proportion to its input, so that the sum over all records and formats of one file stays under one bound.
package limit

import (
	"sync/atomic"

	"github.com/optimem/optimem/loader/internal/fault"
)

// A Meter counts bytes against a budget. It is safe for parallel use.
type Meter struct {
	used atomic.Int64
	max  int64
}

// New returns a meter that allows maxBytes.
func New(maxBytes int64) *Meter { return &Meter{max: maxBytes} }

// Charge takes n bytes from the budget. Once the budget is exceeded every further charge fails too.
func (m *Meter) Charge(n int64) error {
	if n < 0 || n > m.max || m.used.Add(n) > m.max {
		m.used.Store(m.max + 1)
		return fault.New(fault.ErrMemory, -1, "reading it would take more than the %d bytes of memory allowed", m.max)
	}
	return nil
}

// Used returns the bytes charged so far.
func (m *Meter) Used() int64 { return min(m.used.Load(), m.max) }

// Release gives back n bytes that were charged for memory that is free again. After the budget was exceeded it does
// nothing.
func (m *Meter) Release(n int64) {
	for n > 0 {
		used := m.used.Load()
		if used > m.max || m.used.CompareAndSwap(used, max(used-n, 0)) {
			return
		}
	}
}
