// Package limit meters what opening one file may cost. Every reader charges the meter before it allocates in
// proportion to its input, so that the sum over all records and formats of one file stays under one bound.
package limit

import (
	"math"
	"sync/atomic"

	"github.com/optimem/optimem/loader/internal/fault"
)

// A Meter counts bytes against a budget. It is safe for parallel use.
type Meter struct {
	used atomic.Int64
	max  atomic.Int64
}

// New returns a meter that allows maxBytes.
func New(maxBytes int64) *Meter {
	m := &Meter{}
	m.max.Store(min(maxBytes, exceeded-1))
	return m
}

// exceeded is what a meter has used that refused something.
const exceeded = math.MaxInt64

// Raise allows maxBytes from now on if that is more than before. What was refused stays refused.
func (m *Meter) Raise(maxBytes int64) {
	maxBytes = min(maxBytes, exceeded-1)
	for {
		most := m.max.Load()
		if maxBytes <= most || m.max.CompareAndSwap(most, maxBytes) {
			return
		}
	}
}

// Charge takes n bytes from the budget. Once the budget is exceeded every further charge fails too.
func (m *Meter) Charge(n int64) error {
	for {
		used, most := m.used.Load(), m.max.Load()
		if n < 0 || used > most || n > most-used {
			m.used.Store(exceeded)
			err := fault.New(fault.ErrMemory, -1,
				"reading it would take more than the %d bytes of memory allowed", most)
			err.AllowedBytes = most
			return err
		}
		if m.used.CompareAndSwap(used, used+n) {
			return nil
		}
	}
}

// Used returns the bytes charged so far.
func (m *Meter) Used() int64 { return min(m.used.Load(), m.max.Load()) }

// Release gives back n bytes that were charged for memory that is free again. After the budget was exceeded it does
// nothing.
func (m *Meter) Release(n int64) {
	for n > 0 {
		used := m.used.Load()
		if used > m.max.Load() || m.used.CompareAndSwap(used, max(used-n, 0)) {
			return
		}
	}
}
