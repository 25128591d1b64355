package hostmem

import (
	"fmt"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
)

// limits is the limit of the process: what buffers take and what Go's heap takes, together.
var limits struct {
	// bytes is the limit, 0 without one.
	bytes atomic.Int64
	// mu is held while memory is taken or given back under a limit.
	mu sync.Mutex
	// heapBefore is the heap's limit without one.
	heapBefore int64
}

// A LimitError says that a buffer would take the process past its limit.
type LimitError struct {
	// WantBytes is what was asked for, LeftBytes what the limit leaves, and LimitBytes the limit.
	WantBytes, LeftBytes, LimitBytes int64
}

// Error gives all three.
func (e *LimitError) Error() string {
	return fmt.Sprintf(
		"the process is limited to %d bytes, which leaves %d: %d wanted", e.LimitBytes, e.LeftBytes, e.WantBytes,
	)
}

// OutOfMemory reports that memory was short.
func (*LimitError) OutOfMemory() bool { return true }

// Limit bounds what the process takes: buffers that would exceed it are refused with a [LimitError], and Go's heap gets what
// buffers leave as its own, soft, limit. It returns the limit before; 0 is none.
func Limit(bytes int64) (before int64) {
	limits.mu.Lock()
	defer limits.mu.Unlock()
	bytes = max(bytes, 0)
	before = limits.bytes.Swap(bytes)
	switch {
	case bytes > 0 && before == 0:
		limits.heapBefore = debug.SetMemoryLimit(-1)
	case bytes == 0 && before > 0:
		debug.SetMemoryLimit(limits.heapBefore)
	}
	limitHeap()
	return before
}

// Left returns the limit and what it leaves, both [math.MaxInt64] without one.
func Left() (limitBytes, leftBytes int64) {
	limitBytes = limits.bytes.Load()
	if limitBytes == 0 {
		return math.MaxInt64, math.MaxInt64
	}
	return limitBytes, max(limitBytes-heapBytes()-mappedBytes(), 0)
}

// take counts bytes as in use, or says that the limit does not allow it.
func take(bytes int64, purpose Purpose) error {
	if limits.bytes.Load() == 0 {
		inUse[purpose].Add(bytes)
		return nil
	}
	limits.mu.Lock()
	defer limits.mu.Unlock()
	limitBytes, leftBytes := Left()
	if bytes > leftBytes {
		debug.FreeOSMemory() // garbage is no reason to refuse
		limitBytes, leftBytes = Left()
	}
	if bytes > leftBytes {
		return &LimitError{WantBytes: bytes, LeftBytes: leftBytes, LimitBytes: limitBytes}
	}
	inUse[purpose].Add(bytes)
	limitHeap()
	return nil
}

// giveBack counts bytes as no longer in use.
func giveBack(bytes int64, purpose Purpose) {
	inUse[purpose].Add(-bytes)
	if limits.bytes.Load() == 0 {
		return
	}
	limits.mu.Lock()
	defer limits.mu.Unlock()
	limitHeap()
}

// limitHeap gives Go's heap what buffers leave of a limit.
func limitHeap() {
	if bytes := limits.bytes.Load(); bytes > 0 {
		debug.SetMemoryLimit(min(max(bytes-mappedBytes(), 0), limits.heapBefore))
	}
}

// mappedBytes is what buffers take outside of Go's heap.
func mappedBytes() int64 {
	if !outsideHeap {
		return 0
	}
	var n int64
	for p := range inUse {
		n += inUse[p].Load()
	}
	return n
}

// heapBytes is what [debug.SetMemoryLimit] limits: all that Go's runtime has and has not given back to the system.
func heapBytes() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}
