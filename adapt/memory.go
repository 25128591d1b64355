package adapt

import (
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/internal/sysmem"
)

// LimitProcess bounds the memory that the process takes for tensors and in Go's heap together, in bytes, and returns the
// limit before; 0 is none, which is how a process begins. It can be raised again.
//
// Sessions that are given no budget plan with what the limit leaves, and memory outside the heap that would exceed it is
// refused with an error for which [IsOutOfMemory] holds. The heap gets the rest as its own limit (debug.SetMemoryLimit), which
// is a soft one: Go collects garbage more often before it exceeds it. What C libraries and drivers allocate is
// not counted.
//
// It does not set RLIMIT_AS. That bounds addresses instead of memory, so mapped files and what Go's runtime reserves and
// never touches would count, and a Go program that is refused an address ends.
func LimitProcess(bytes int64) (before int64) { return hostmem.Limit(bytes) }

// hostFree is what the process can still take of the host's memory.
var hostFree sampled

// sampleEvery is how long a look at the host's memory is good for. It takes a tenth of a millisecond: a dozen files are read.
const sampleEvery = 100 * time.Millisecond

// A sampled looks at the host's memory now and then.
type sampled struct {
	freeBytes atomic.Int64
	// until is when to look again, since began.
	until atomic.Int64
}

var began = time.Now()

func (s *sampled) read() int64 {
	now := time.Since(began)
	if int64(now) < s.until.Load() {
		return s.freeBytes.Load()
	}
	freeBytes, ok := sysmem.Read().FreeBytes()
	if !ok {
		freeBytes = 0
	}
	s.freeBytes.Store(freeBytes)
	s.until.Store(int64(now + sampleEvery))
	return freeBytes
}

// forget has the next call look again.
func (s *sampled) forget() { s.until.Store(0) }
