package cpu

import (
	goruntime "runtime"
	"sync"
	"sync/atomic"
)

// A Pool is a fixed number of threads' worth of goroutines that kernels split their work over. Results do not depend on
// how many there are: work is cut by its size alone, and no two parts write one element.
type Pool struct {
	threads int
	tasks   chan func()
	once    sync.Once
}

// NewPool returns a pool of the given number of threads; 0 is one for each processor. Close ends its goroutines.
func NewPool(threads int) *Pool {
	if threads <= 0 {
		threads = goruntime.GOMAXPROCS(0)
	}
	p := &Pool{threads: threads, tasks: make(chan func(), threads)}
	for range threads - 1 {
		go func() {
			for task := range p.tasks {
				task()
			}
		}()
	}
	return p
}

// Threads returns the number of threads.
func (p *Pool) Threads() int { return p.threads }

// Close ends the pool. It must not be in use.
func (p *Pool) Close() { p.once.Do(func() { close(p.tasks) }) }

// For calls body for consecutive ranges [from, to) that cover [0, n), each of at most grain indices, in parallel. It
// returns when all calls have.
func (p *Pool) For(n, grain int, body func(from, to int)) {
	if n <= 0 {
		return
	}
	grain = max(grain, 1)
	parts := (n + grain - 1) / grain
	if parts == 1 || p.threads == 1 {
		for from := 0; from < n; from += grain {
			body(from, min(from+grain, n))
		}
		return
	}
	var next atomic.Int64
	work := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= parts {
				return
			}
			body(i*grain, min((i+1)*grain, n))
		}
	}
	var wait sync.WaitGroup
	for range min(p.threads, parts) - 1 {
		wait.Add(1)
		task := func() {
			defer wait.Done()
			work()
		}
		select {
		case p.tasks <- task:
		default: // every thread is busy with another caller's work
			wait.Done()
		}
	}
	work()
	wait.Wait()
}
