package hostmem

import (
	"errors"
	"math"
	"runtime/debug"
	"sync"
	"testing"
)

// limited sets a limit for a test.
func limited(t *testing.T, bytes int64) {
	t.Helper()
	before := Limit(bytes)
	t.Cleanup(func() { Limit(before) })
}

// Buffers count against the limit until they are freed, and leave the heap what they do not take.
func TestLimit(t *testing.T) {
	if limitBytes, leftBytes := Left(); limitBytes != math.MaxInt64 || leftBytes != math.MaxInt64 {
		t.Errorf("no limit is %d, leaves %d", limitBytes, leftBytes)
	}
	const most, part = 1 << 30, 300 << 20
	limited(t, most)
	a, err := Alloc(part, Weights)
	if err != nil {
		t.Fatal(err)
	}
	if !outsideHeap {
		defer a.Free()
		t.Skip("buffers lie in the heap here")
	}
	if heap := debug.SetMemoryLimit(-1); heap != most-part {
		t.Errorf("the heap is left %d", heap)
	}
	b, err := Alloc(part, Activations)
	if err != nil {
		t.Fatal(err)
	}
	limitBytes, leftBytes := Left()
	if used := most - 2*part - leftBytes; limitBytes != most || used <= 0 || used > 100<<20 {
		t.Errorf("%d of %d left", leftBytes, limitBytes)
	}
	before := InUse(Workspace)
	_, err = Alloc(500<<20, Workspace)
	var refused *LimitError
	if !errors.As(err, &refused) || refused.WantBytes != 500<<20 || refused.LimitBytes != most ||
		refused.LeftBytes <= 0 || refused.LeftBytes >= most-2*part || InUse(Workspace) != before {
		t.Fatalf("%v", err)
	}
	b.Free()
	if heap := debug.SetMemoryLimit(-1); heap != most-part {
		t.Errorf("the heap is left %d", heap)
	}
	c, err := Alloc(500<<20, Workspace)
	if err != nil {
		t.Fatalf("after another was freed: %v", err)
	}
	c.Free()
	a.Free()
	if heap := debug.SetMemoryLimit(-1); heap != most {
		t.Errorf("the heap is left %d", heap)
	}
}

// What Go's heap holds counts, but garbage is no reason to refuse.
func TestLimitCountsTheHeap(t *testing.T) {
	const most, large = 600 << 20, 200 << 20
	limited(t, most)
	kept := make([]byte, large)
	for i := 0; i < large; i += 4096 {
		kept[i] = 1
	}
	if _, err := Alloc(most-large, Staging); err == nil {
		t.Error("the heap does not count")
	}
	if kept[4096] != 1 {
		t.Error("lost")
	}
	kept = nil
	b, err := Alloc(most-large, Staging)
	if err != nil {
		t.Fatalf("after the heap was garbage: %v", err)
	}
	b.Free()
}

// Memory that the system refuses does not stay counted.
func TestLimitForgetsWhatFails(t *testing.T) {
	limited(t, math.MaxInt64-1)
	before := InUse(Weights)
	if _, err := Alloc(1<<60, Weights); err == nil || InUse(Weights) != before {
		t.Errorf("%d more in use: %v", InUse(Weights)-before, err)
	}
}

// Goroutines that ask at the same time never get more than the limit together.
func TestLimitIsOfAllTogether(t *testing.T) {
	const most, part = 400 << 20, 210 << 20 // there is room for one
	limited(t, most)
	for range 10 {
		var ready, group sync.WaitGroup
		var bufs [8]*Buf
		ready.Add(8)
		for i := range bufs {
			group.Go(func() {
				ready.Done()
				ready.Wait()
				if b, err := Alloc(part, Staging); err == nil {
					bufs[i] = b
				}
			})
		}
		group.Wait()
		got := 0
		for _, b := range bufs {
			if b != nil {
				got++
				b.Free()
			}
		}
		if got != 1 {
			t.Fatalf("%d of them got memory", got)
		}
	}
}

// A limit that is lifted leaves the heap the limit it had.
func TestLimitIsLifted(t *testing.T) {
	own := debug.SetMemoryLimit(5 << 30)
	defer debug.SetMemoryLimit(own)
	for _, c := range []struct{ set, before, heap int64 }{{1 << 30, 0, 1 << 30}, {8 << 30, 1 << 30, 5 << 30},
		{2 << 30, 8 << 30, 2 << 30}, {-3, 2 << 30, 5 << 30}} {
		before := Limit(c.set)
		if heap := debug.SetMemoryLimit(-1); before != c.before || heap > c.heap || heap < c.heap-1<<20 {
			t.Errorf("%d after %d, the heap %d, want %+v", c.set, before, heap, c)
		}
	}
	if heap := debug.SetMemoryLimit(-1); heap != 5<<30 {
		t.Errorf("the heap's limit is %d", heap)
	}
}
