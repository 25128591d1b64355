package ops

import (
	"context"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// counted counts how often each index is done.
type counted struct{ times []atomic.Int32 }

func (c *counted) Run(from, to int) {
	for i := from; i < to; i++ {
		c.times[i].Add(1)
	}
}

func (c *counted) check(t *testing.T, n int) {
	t.Helper()
	for i := range c.times {
		want := int32(0)
		if i < n {
			want = 1
		}
		if got := c.times[i].Swap(0); got != want {
			t.Fatalf("index %d of %d was done %d times", i, n, got)
		}
	}
}

// TestPoolParts: every index is done once, whatever the sizes, right after other regions and after a rest.
func TestPoolParts(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 8} {
		p := NewPool(threads)
		c := &counted{make([]atomic.Int32, 200)}
		for round := range 400 {
			n, grain := round*7%200, round%5*round%40
			p.Do(n, grain, c)
			c.check(t, n)
			if round%100 == 99 {
				time.Sleep(2 * spinTime)
			}
		}
		p.Close()
		p.Close()
	}
}

// TestPoolCallers: several callers at once, one of them from inside a region, with fewer processors than threads.
func TestPoolCallers(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	for _, processors := range []int{1, 2} {
		goruntime.GOMAXPROCS(processors)
		p := NewPool(2)
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() {
				outer := make([]counted, 10)
				for i := range outer {
					outer[i].times = make([]atomic.Int32, 50)
				}
				for range 50 {
					p.For(len(outer), 1, func(from, to int) {
						for i := from; i < to; i++ {
							p.Do(50, 3, &outer[i])
						}
					})
					for i := range outer {
						outer[i].check(t, 50)
					}
				}
			})
		}
		wait.Wait()
		p.Close()
	}
}

// TestPoolEnds: Close ends the goroutines, those that sleep and those that look for work.
func TestPoolEnds(t *testing.T) {
	before := goruntime.NumGoroutine()
	for i := range 20 {
		p := NewPool(4)
		p.For(8, 1, func(int, int) {})
		if i%2 == 0 {
			time.Sleep(2 * spinTime)
		}
		p.Close()
	}
	for range 1000 {
		if goruntime.NumGoroutine() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", goruntime.NumGoroutine(), before)
}

// slow is work whose parts take a while, until it is over.
type slow struct {
	began chan struct{}
	once  sync.Once
	done  atomic.Int64
	over  atomic.Bool
}

func (s *slow) Run(int, int) {
	s.once.Do(func() { close(s.began) })
	for start := time.Now(); time.Since(start) < 50*time.Microsecond && !s.over.Load(); {
	}
	s.done.Add(1)
}

// TestPoolYields: while a region has all processors, another goroutine gets to run between its parts, again and again
// long before they are done.
func TestPoolYields(t *testing.T) {
	const parts, turns = 400_000, 400
	p := NewPool(0)
	defer p.Close()
	work := &slow{began: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Do(parts, 1, work)
	}()
	<-work.began
	for range turns {
		goruntime.Gosched()
	}
	done := work.done.Load()
	work.over.Store(true)
	<-ended
	t.Logf("%d of %d parts in %d turns", done, parts, turns)
	if done > parts/4 {
		t.Errorf("%d of %d parts were done before another goroutine had %d turns", done, parts, turns)
	}
}

// A pausing task has parts that take long enough for the caller to be called between them.
type pausing struct{}

func (pausing) Run(int, int) {
	for begin := time.Now(); time.Since(begin) < yieldTime/2; {
	}
}

// TestMeanwhile: who computes is called between parts, on one thread and on several, unless parts are few; and no more once
// nobody wants to be.
func TestMeanwhile(t *testing.T) {
	for _, threads := range []int{1, 2} {
		p := NewPool(threads)
		calls := 0 // not atomic: the race detector would tell of another goroutine
		p.meanwhile = func() { calls++ }
		for range 50 { // where the other thread does all parts there is nobody to call
			if p.Do(100, 1, pausing{}); calls > 0 {
				break
			}
		}
		if calls == 0 || calls > 100 {
			t.Errorf("%d threads: called %d times in 100 parts", threads, calls)
		}
		calls = 0
		p.meanwhile = nil
		p.Do(100, 1, pausing{})
		if calls > 0 {
			t.Errorf("%d threads: called %d times for nobody", threads, calls)
		}
		p.Close()
	}
}

func TestPoolAllocates(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	c := &counted{make([]atomic.Int32, 64)}
	if n := testing.AllocsPerRun(100, func() { p.Do(64, 8, c) }); n != 0 {
		t.Errorf("a region allocates %v objects", n)
	}
}

// TestPoolPanics: a panic in the caller's part leaves the pool usable.
func TestPoolPanics(t *testing.T) {
	p := NewPool(1)
	defer p.Close()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		p.For(2, 1, func(int, int) { panic("BUG: a test") })
	}()
	c := &counted{make([]atomic.Int32, 9)}
	p.Do(9, 1, c)
	c.check(t, 9)
}

func BenchmarkPool(b *testing.B) {
	p := NewPool(0)
	defer p.Close()
	c := &counted{make([]atomic.Int32, 8)}
	b.Run("region", func(b *testing.B) {
		for b.Loop() {
			p.Do(p.threads, 1, c)
		}
	})
	b.Run("after rest", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			time.Sleep(2 * spinTime)
			b.StartTimer()
			p.Do(p.threads, 1, c)
		}
	})
}

// TestPoolWorkersPanic: what a part panics with, a worker's or the caller's, goes on in the caller, and the pool works afterwards.
func TestPoolWorkersPanic(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	for i := range 100 {
		func() {
			defer func() {
				v := recover()
				if w, ok := v.(workerPanic); ok {
					if len(w.stack) == 0 {
						t.Error("no stack")
					}
					v = w.value
				}
				if v != "part" {
					t.Errorf("round %d: recovered %v", i, v)
				}
			}()
			p.For(100, 1, func(from, _ int) {
				time.Sleep(10 * time.Microsecond)
				if from == i {
					panic("part")
				}
			})
			t.Errorf("round %d: no panic", i)
		}()
		c := &counted{make([]atomic.Int32, 50)}
		p.Do(50, 1, c)
		c.check(t, 50)
	}
}

// A limited context is done once it was asked so many times.
type limited struct {
	context.Context
	left atomic.Int64
}

func (l *limited) Done() <-chan struct{} { return make(chan struct{}) }

func (l *limited) Err() error {
	if l.left.Add(-1) >= 0 {
		return nil
	}
	return context.Canceled
}

// TestStopped: where a context is done parts are left undone, on one thread and on several and within parts of other work,
// and the pool goes on for others.
func TestStopped(t *testing.T) {
	const parts = 2000
	for _, threads := range []int{1, 2, 3} {
		base := NewPool(threads)
		for try := range 40 { // who meets the end first, and how deep, is another one each time
			nested := try%2 > 0
			ctx := &limited{Context: context.Background()}
			ctx.left.Store(int64(1 + try/4))
			p := base.With(ctx, nil)
			var done atomic.Int64
			count := func(from, to int) {
				pausing{}.Run(from, to)
				done.Add(1)
			}
			func() {
				defer func() {
					if v := recover(); !isStopped(v) {
						t.Errorf("%d threads, nested %t: ended with %v", threads, nested, v)
					}
				}()
				if nested {
					p.For(2, 1, func(int, int) { p.For(parts/2, 1, count) })
				} else {
					p.For(parts, 1, count)
				}
			}()
			if n := done.Load(); n == 0 || n > parts/2 {
				t.Errorf("%d threads, nested %t: %d parts of %d were done", threads, nested, n, parts)
			}
			var other atomic.Int64
			base.For(100, 1, func(from, to int) { other.Add(int64(to - from)) })
			if n := other.Load(); n != 100 {
				t.Errorf("%d threads: others had %d of 100 parts done", threads, n)
			}
		}
		base.Close()
	}
}
