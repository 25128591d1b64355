package limit

import (
	"errors"
	"math"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/loader/internal/fault"
)

// A meter is a number that charges and releases move between zero and its budget, until it is exceeded once: from then
// on nothing is given any more. The sums of the reference cannot overflow.
func TestMeterIsASum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := rapid.SampledFrom([]int64{0, 1, 100, 1 << 40, 1 << 62, math.MaxInt64 - 1}).Draw(t, "budget")
		amount := rapid.OneOf(
			rapid.Int64Range(0, max(1, budget)), rapid.Int64Range(0, 10),
			rapid.SampledFrom([]int64{-1, math.MinInt64, math.MaxInt64, math.MaxInt64 - 1, 1 << 62}),
		)
		m, used, exceeded := New(budget), int64(0), false
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			n := amount.Draw(t, "bytes")
			if rapid.Bool().Draw(t, "charge") {
				exceeded = exceeded || n < 0 || n > budget-used
				err := m.Charge(n)
				if exceeded {
					var found *fault.Error
					if !errors.Is(err, fault.ErrMemory) || !errors.Is(err, fault.ErrLimit) || !errors.As(err, &found) || found.AllowedBytes != budget {
						t.Fatalf("charge of %d to %d of %d: %v", n, used, budget, err)
					}
					used = budget
				} else if used += n; err != nil {
					t.Fatalf("charge of %d to %d of %d: %v", n, used, budget, err)
				}
			} else {
				m.Release(n)
				if !exceeded {
					used = max(used-max(n, 0), 0)
				}
			}
			if got := m.Used(); got != used {
				t.Fatalf("%d bytes are used, want %d of %d", got, used, budget)
			}
		}
	})
}

// Goroutines that charge one meter never get more than its budget together.
func TestMeterIsSharedByGoroutines(t *testing.T) {
	const budget, each, workers = 1000, 3, 8
	m := New(budget)
	var group sync.WaitGroup
	got := make([]int, workers)
	for i := range workers {
		group.Go(func() {
			for m.Charge(each) == nil {
				got[i]++
			}
		})
	}
	group.Wait()
	sum := 0
	for _, n := range got {
		sum += n * each
	}
	if sum > budget || sum < budget-each+1 {
		t.Errorf("%d bytes were given of %d", sum, budget)
	}
	if m.Release(budget); m.Charge(1) == nil {
		t.Error("a meter that was exceeded gives again")
	}
}

// The largest budget that can be written is no reason to count wrongly.
func TestMeterWithoutABound(t *testing.T) {
	m := New(math.MaxInt64)
	for range 2 {
		if err := m.Charge(1 << 61); err != nil {
			t.Fatal(err)
		}
	}
	if used := m.Used(); used != 1<<62 {
		t.Errorf("%d bytes are used of 2^62", used)
	}
	if err := m.Charge(math.MaxInt64); err == nil {
		t.Error("more than 2^63 bytes are given")
	}
	if used := m.Used(); used < 1<<62 {
		t.Errorf("%d bytes are used of a meter that was exceeded", used)
	}
	if m.Release(1 << 61); m.Charge(1) == nil {
		t.Error("a meter that was exceeded gives again")
	}
}

// TestMeterRaised: a raised limit gives room once, a lower one takes none, and what was refused stays refused.
func TestMeterRaised(t *testing.T) {
	m := New(10)
	m.Raise(15)
	m.Raise(12)
	if err := m.Charge(15); err != nil {
		t.Error(err)
	}
	if err := m.Charge(1); err == nil {
		t.Error("16 of 15 bytes")
	}
	m.Raise(100)
	if err := m.Charge(1); err == nil {
		t.Error("an exceeded meter gives room again")
	}
}
