package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/adapt"
)

// fits returns a function that has memory for a number of rows, which may change, and notes every size.
func fits(most *int, sizes *[]int) func(context.Context, int) error {
	return func(_ context.Context, n int) error {
		*sizes = append(*sizes, n)
		if n > *most {
			return errShort
		}
		return nil
	}
}

// times makes so many calls.
func times(t *testing.T, calls int, site *adapt.Site, initial int, fn func(context.Context, int) error) {
	t.Helper()
	for range calls {
		if err := adapt.Batch(context.Background(), site, initial, fn); err != nil {
			t.Fatal(err)
		}
	}
}

// runs writes a list as sizes with how often each came in a row.
func runs(sizes []int) string {
	var b strings.Builder
	for i := 0; i < len(sizes); {
		n := i
		for i < len(sizes) && sizes[i] == sizes[n] {
			i++
		}
		fmt.Fprintf(&b, " %dx%d", i-n, sizes[n])
	}
	return b.String()[1:]
}

// A size that was lowered is tried twice as large after 8 calls that succeeded, then after twice as many each time that
// this fails; a try that fails does not lower it.
func TestSizesGrowAgain(t *testing.T) {
	site := adapt.NewSite(adapt.Options{Remember: adapt.Always, Grow: true})
	most, sizes := 20, []int{}
	times(t, 26, site, 100, fits(&most, &sizes))
	// 12 fits 20, 24 does not: a trial after 8 calls, and after 16 more.
	if got, want := runs(sizes), "1x100 1x50 1x25 8x12 1x24 16x12 1x24 2x12"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// There is memory again: 30 of the 32 calls are left to wait for, then it doubles after 8 calls each, up to the initial.
	most, sizes = 1000, nil
	times(t, 30+24+10, site, 100, fits(&most, &sizes))
	if got, want := runs(sizes), "30x12 9x24 9x48 9x96 7x100"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if n := site.Size(100); n != 100 {
		t.Errorf("the size is %d", n)
	}
}

// Sizes that do not grow stay, however often they work.
func TestSizesStayWithoutGrow(t *testing.T) {
	site := adapt.NewSite(adapt.Options{Remember: adapt.Always})
	most, sizes := 20, []int{}
	times(t, 500, site, 100, fits(&most, &sizes))
	if got, want := runs(sizes), "1x100 1x50 1x25 500x12"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// More free memory than when a size was refused is a reason to try at once, but once only.
func TestFreedMemoryIsTriedAtOnce(t *testing.T) {
	free := int64(1 << 30)
	site := adapt.NewSite(adapt.Options{Remember: adapt.Always, Grow: true, Free: func() int64 { return free }})
	most, sizes := 20, []int{}
	times(t, 2, site, 64, fits(&most, &sizes))
	free = 2 << 30
	times(t, 3, site, 64, fits(&most, &sizes))
	free = 1 << 30
	times(t, 2, site, 64, fits(&most, &sizes))
	free = 2 << 30
	times(t, 2, site, 64, fits(&most, &sizes))
	if got, want := runs(sizes), "1x64 1x32 2x16 1x32 7x16"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	free, most, sizes = 4<<30, 32, nil
	times(t, 2, site, 64, fits(&most, &sizes))
	if got, want := runs(sizes), "2x32"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A long range learns while it runs: the step grows between its parts, and no row is done twice.
func TestRangeGrowsOnItsWay(t *testing.T) {
	for _, site := range []*adapt.Site{
		adapt.NewSite(adapt.Options{Remember: adapt.Never, Grow: true}),
		adapt.NewSite(adapt.Options{Remember: adapt.ByFree, Grow: true, Free: func() int64 { return 1 << 30 }}),
	} {
		var sizes []int
		next := 0
		err := adapt.Range(context.Background(), site, 0, 300, 32, func(_ context.Context, lo, hi int) error {
			sizes = append(sizes, hi-lo)
			if lo < 50 && hi-lo > 8 {
				return errShort
			}
			if lo != next {
				t.Errorf("a part begins at %d instead of %d", lo, next)
			}
			next = hi
			return nil
		})
		if got, want := runs(sizes), "1x32 1x16 8x8 9x16 2x32 1x28"; err != nil || got != want || next != 300 {
			t.Errorf("%s, want %s; ends at %d, %v", got, want, next, err)
		}
	}
}

// A last part that is shorter than its step says nothing about the step: it is no trial, and no success.
func TestShortPartsProveNothing(t *testing.T) {
	site := adapt.NewSite(adapt.Options{Remember: adapt.Always, Grow: true})
	most, sizes := 8, []int{}
	times(t, 1, site, 16, fits(&most, &sizes))
	part := func(_ context.Context, lo, hi int) error { return fits(&most, &sizes)(context.Background(), hi-lo) }
	for range 10 {
		if err := adapt.Range(context.Background(), site, 0, 5, 16, part); err != nil {
			t.Fatal(err)
		}
	}
	times(t, 6, site, 16, fits(&most, &sizes))
	if err := adapt.Range(context.Background(), site, 0, 15, 16, part); err != nil { // one more success, and no room for a trial
		t.Fatal(err)
	}
	times(t, 1, site, 16, fits(&most, &sizes))
	if got, want := runs(sizes), "1x16 1x8 10x5 7x8 1x7 1x16 1x8"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A trial that panics, or fails for another reason, is not a trial that never ends.
func TestTrialsEnd(t *testing.T) {
	for name, end := range map[string]func() error{
		"another error": func() error { return errOther },
		"a panic":       func() error { panic("the function's") },
	} {
		for kind, call := range map[string]func(*adapt.Site, func(context.Context, int) error) error{
			"batch": func(s *adapt.Site, fn func(context.Context, int) error) error {
				return adapt.Batch(context.Background(), s, 16, fn)
			},
			"range": func(s *adapt.Site, fn func(context.Context, int) error) error {
				return adapt.Range(context.Background(), s, 0, 16, 16, func(ctx context.Context, lo, hi int) error { return fn(ctx, hi-lo) })
			},
		} {
			site := adapt.NewSite(adapt.Options{Remember: adapt.Always, Grow: true})
			most, sizes := 8, []int{}
			times(t, 8, site, 16, fits(&most, &sizes))
			func() {
				defer func() { _ = recover() }()
				err := call(site, func(_ context.Context, n int) error {
					if n != 16 {
						t.Errorf("%s, %s: no trial but %d", kind, name, n)
					}
					return end()
				})
				if !errors.Is(err, errOther) {
					t.Errorf("%s, %s: %v", kind, name, err)
				}
			}()
			most = 16
			times(t, 1, site, 16, fits(&most, &sizes))
			if got, want := runs(sizes), "1x16 8x8 1x16"; got != want {
				t.Errorf("%s, %s: %s, want %s", kind, name, got, want)
			}
		}
	}
}

// Each class of free memory, a quarter of a power of two, has a size of its own.
func TestFreeMemoryIsOfClasses(t *testing.T) {
	free := int64(0)
	site := adapt.NewSite(adapt.Options{Free: func() int64 { return free }})
	var sizes []int
	for _, free = range []int64{-5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16 << 30, 19 << 30, 20 << 30, math.MaxInt64} {
		sizes = nil
		times(t, 1, site, 64, limited(&sizes))
		begins := fmt.Sprint(free, " ", runs(sizes))
		switch free {
		case 0, 3, 9, 19 << 30: // of the class before
			if !strings.HasSuffix(begins, " 1x8") {
				t.Error(begins)
			}
		default:
			if !strings.HasSuffix(begins, " 1x64 1x32 1x16 1x8") {
				t.Error(begins)
			}
		}
	}
	site.Forget()
	if n := site.Size(64); n != 64 {
		t.Errorf("%d after Forget", n)
	}
}

// What runs out at a size of 1, fails for another reason, or cannot begin, is an error; the first can still be told by code.
func TestCallsThatFail(t *testing.T) {
	ctx := context.Background()
	always := func(context.Context, int) error { return errShort }
	err := adapt.Batch(ctx, nil, 3, always)
	if err == nil || err.Error() != "with a size of 1: no memory left" || !adapt.IsOutOfMemory(err) || !errors.Is(err, errShort) {
		t.Errorf("%v", err)
	}
	if err := adapt.Batch(ctx, nil, 3, func(context.Context, int) error { return errOther }); err != errOther {
		t.Errorf("%v", err)
	}
	for _, initial := range []int{0, -4} {
		want := fmt.Sprintf("an initial size of %d", initial)
		if err := adapt.Batch(ctx, nil, initial, always); err == nil || err.Error() != want {
			t.Errorf("%v", err)
		}
		if err := adapt.Range(ctx, nil, 0, 4, initial, nil); err == nil || err.Error() != want {
			t.Errorf("%v", err)
		}
	}
}

// A context that is cancelled ends a call before it begins, between two tries and between two parts.
func TestCancelledCallsEnd(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	never := func(context.Context, int) error { t.Error("called"); return nil }
	if err := adapt.Batch(gone, nil, 4, never); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	err := adapt.Batch(ctx, nil, 4, func(context.Context, int) error { calls++; cancel(); return errShort })
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	calls = 0
	err = adapt.Range(ctx, nil, 0, 8, 4, func(context.Context, int, int) error { calls++; cancel(); return nil })
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	// The last part was done: that is a success.
	ctx, cancel = context.WithCancel(context.Background())
	if err := adapt.Range(ctx, nil, 0, 4, 4, func(context.Context, int, int) error { cancel(); return nil }); err != nil {
		t.Error(err)
	}
}

// Ranges wider than an int, and up to its end, are cut without overflow.
func TestRangesOfAnyWidth(t *testing.T) {
	var parts []string
	err := adapt.Range(context.Background(), nil, math.MinInt, math.MaxInt, math.MaxInt,
		func(_ context.Context, lo, hi int) error {
			parts = append(parts, fmt.Sprint(lo, " ", hi))
			return nil
		})
	free := int64(1)
	site := adapt.NewSite(adapt.Options{Remember: adapt.Always, Grow: true, Free: func() int64 { return free }})
	most, sizes := 8, []int{}
	times(t, 1, site, 16, fits(&most, &sizes))
	free = 2
	first := func(_ context.Context, lo, hi int) error { return fmt.Errorf("%d rows", hi-lo) }
	if err := adapt.Range(context.Background(), site, math.MinInt, math.MaxInt, 16, first); err.Error() != "16 rows" {
		t.Errorf("%v: there are rows enough to try more", err)
	}
	want := fmt.Sprintf("[%d -1 -1 %d %d %d]", math.MinInt, math.MaxInt-1, math.MaxInt-1, math.MaxInt)
	if got := fmt.Sprint(parts); err != nil || got != want {
		t.Errorf("%s, want %s, %v", got, want, err)
	}
}

// Whatever fails, every row is done once and in order, no part exceeds the initial size, and none is empty.
func TestRangesDoEveryRowOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		site := adapt.NewSite(adapt.Options{
			Remember: rapid.SampledFrom([]adapt.Remember{adapt.ByFree, adapt.Always, adapt.Never}).Draw(t, "remember"),
			Grow:     rapid.Bool().Draw(t, "grow"),
			Free:     func() int64 { return rapid.Int64Range(0, 64).Draw(t, "free") },
		})
		for range rapid.IntRange(1, 4).Draw(t, "calls") {
			start, initial := rapid.IntRange(-9, 9).Draw(t, "start"), rapid.IntRange(1, 40).Draw(t, "initial")
			end, next := start+rapid.IntRange(0, 200).Draw(t, "rows"), start
			err := adapt.Range(context.Background(), site, start, end, initial, func(_ context.Context, lo, hi int) error {
				if lo != next || hi <= lo || hi > end || hi-lo > initial {
					t.Fatalf("a part of [%d, %d) after %d, of at most %d", lo, hi, next, initial)
				}
				if hi-lo > 1 && rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
					return errShort
				}
				next = hi
				return nil
			})
			if err != nil || next != max(start, end) {
				t.Fatalf("ends at %d of %d: %v", next, end, err)
			}
		}
	})
}

// Calls with a smaller initial size say nothing about the size that was lowered, and a trial that such a size bounds is one
// like any other.
func TestSmallerCallsProveNothing(t *testing.T) {
	site := adapt.NewSite(adapt.Options{Remember: adapt.Always, Grow: true})
	most, sizes := 12, []int{}
	times(t, 1, site, 24, fits(&most, &sizes))
	times(t, 10, site, 11, fits(&most, &sizes))
	times(t, 9, site, 20, fits(&most, &sizes))
	if got, want := runs(sizes), "1x24 1x12 10x11 7x12 1x20 2x12"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// While one call tries a larger size, others keep to what works.
func TestOneTrialAtATime(t *testing.T) {
	site := adapt.NewSite(adapt.Options{Remember: adapt.Always, Grow: true})
	most, sizes, inner := 8, []int{}, []int{}
	times(t, 8, site, 16, fits(&most, &sizes))
	err := adapt.Batch(context.Background(), site, 16, func(_ context.Context, n int) error {
		if n == 16 {
			times(t, 10, site, 16, fits(&most, &inner))
		}
		return nil
	})
	if err != nil || runs(inner) != "10x8" || site.Size(16) != 16 {
		t.Errorf("%s within a trial, then %d, %v", runs(inner), site.Size(16), err)
	}
}

// A call that learns late, of a size that another call of the site has lowered further meanwhile, does not raise that.
func TestLateRefusalsRaiseNothing(t *testing.T) {
	site := adapt.NewSite(adapt.Options{Remember: adapt.Always})
	most, inner, outer := 8, []int{}, []int{}
	err := adapt.Batch(context.Background(), site, 64, func(_ context.Context, n int) error {
		outer = append(outer, n)
		if n <= most {
			return nil
		}
		times(t, 1, site, 64, fits(&most, &inner))
		return errShort
	})
	if err != nil || runs(outer) != "1x64 1x8" || runs(inner) != "1x64 1x32 1x16 1x8" {
		t.Errorf("%v around %v, %v", outer, inner, err)
	}
}

// Goroutines share a site: all learn, and only one at a time tries a larger size.
func TestSitesAreShared(t *testing.T) {
	site := adapt.NewSite(adapt.Options{Remember: adapt.Always, Grow: true})
	var trying, done atomic.Int64
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			for range 200 {
				learnt := site.Size(64) == 8
				err := adapt.Batch(context.Background(), site, 64, func(_ context.Context, n int) error {
					if n <= 8 {
						return nil
					}
					if learnt {
						if trying.Add(1) > 1 {
							t.Error("two trials at once")
						}
						defer trying.Add(-1)
					}
					return errShort
				})
				if err != nil {
					t.Error(err)
				}
				done.Add(1)
			}
		})
	}
	group.Wait()
	if n := site.Size(64); n != 8 || done.Load() != 32*200 {
		t.Errorf("the size is %d after %d calls", n, done.Load())
	}
}

// A call without a retry allocates nothing.
func TestCallsAllocateNothing(t *testing.T) {
	ctx := context.Background()
	nothing := func(context.Context, int) error { return nil }
	part := func(context.Context, int, int) error { return nil }
	for name, site := range map[string]*adapt.Site{
		"no site": nil, "by free": {}, "never": adapt.NewSite(adapt.Options{Remember: adapt.Never}),
		"always":  adapt.NewSite(adapt.Options{Remember: adapt.Always}),
		"growing": adapt.NewSite(adapt.Options{Remember: adapt.Always, Grow: true}),
	} {
		n := testing.AllocsPerRun(20000, func() { // looking at the host's memory allocates, ten times a second
			_ = adapt.Batch(ctx, site, 64, nothing)
			_ = adapt.Range(ctx, site, 0, 256, 64, part)
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
