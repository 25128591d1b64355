package ops

import (
	"context"
	"fmt"
	"math"
	goruntime "runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/internal/sysmem"
)

// A Pool is a fixed number of threads' worth of goroutines that kernels split their work over. Results do not depend on
// how many there are: work is cut by its size alone, and no two parts write one element.
//
// A region is one call's work. The caller is its first thread; workers that are looking for work join it while it is
// open. Nobody waits for a worker that did not join, so a region is never slower than its caller alone by more than what
// opening it costs. A worker that found no work for a while sleeps until the next region.
//
// A Pool is one goroutine's, or that of the parts of its work. Others that share the threads have pools of their own.
type Pool struct {
	*workers
	// ctx, where it is not nil, ends what the pool does: no part is begun some 100 µs after it is done, and Do ends in a panic
	// with stopped{}, since kernels cannot go on with what is half computed.
	ctx context.Context
	// meanwhile, where it is not nil, is called by the goroutine that computes, about as often as it lets others run.
	meanwhile func()
}

// stopped is what Do panics with where its context is done.
type stopped struct{}

// isStopped reports whether a panic is that of a pool whose context is done, in a part of its work or within one.
func isStopped(v any) bool {
	if w, ok := v.(workerPanic); ok {
		return isStopped(w.value)
	}
	_, ok := v.(stopped)
	return ok
}

// Recover, deferred by who calls a kernel, makes the panic of a pool whose context is done that context's error. Others go on.
func Recover(ctx context.Context, err *error) {
	done := ctx.Err()
	if done == nil {
		return
	}
	switch v := recover().(type) {
	case nil: // it had come to its end
	case stopped:
		*err = done
	default:
		if !isStopped(v) {
			panic(v)
		}
		*err = done // within a part
	}
}

// workers are the threads of pools.
type workers struct {
	threads int
	// spin says that workers look for work for a while before they sleep: a processor is free for each of them.
	spin bool
	// Set is the vector kernels that ops compute with, nil for Go's.
	Set  *simd.Set
	quit atomic.Bool
	once sync.Once

	// busy is held by the caller whose region it is, which alone writes the fields of the region: until is its context, nil
	// where that is never done.
	busy     sync.Mutex
	task     Task
	n, grain int
	until    context.Context
	own      pace

	_ [64]byte // what follows is written while workers read the above
	// state counts regions opened and closed in its upper half (odd is open), and workers that joined in its lower half.
	state atomic.Uint64
	_     [56]byte
	// spans are the parts of the region, a share of them for each thread.
	spans []span
	_     [40]byte
	// panicked is what a worker panicked with in the region.
	panicked atomic.Pointer[workerPanic]
	// asleep counts workers that sleep or are about to; each token of wake wakes one that is no longer counted.
	asleep atomic.Int32
	wake   chan struct{}
}

// A span is parts that one thread takes first: the same of each region of as many parts, so that it finds in its cache
// what it wrote there. The others take what it leaves.
type span struct {
	next, last atomic.Int64 // the next part that nobody took, and the end
	_          [48]byte
}

// A Task is the work of a region.
type Task = tasks.Task

// taskFunc is a function as a task.
type taskFunc func(from, to int)

func (f taskFunc) Run(from, to int) { f(from, to) }

const (
	// opened is one region opened or closed in a pool's state.
	opened = 1 << 32
	joined = opened - 1
	// spinTime is how long a worker looks for work before it sleeps: about twice as long as waking one takes.
	spinTime = 200 * time.Microsecond
	// spinsYield is how many times a worker looks before it lets other goroutines run, and looks at the clock.
	spinsYield = 32
	// yieldTime is how long a thread computes before it lets other goroutines run: those that wait for a processor, such as
	// a reader whose bytes have come, would else wait until the scheduler interrupts somebody, 10 ms and more.
	yieldTime = 100 * time.Microsecond
	// partsClock is after how many parts it looks at the clock.
	partsClock = 4
	// pauses is how many pause instructions there are between two looks.
	pauses = 4
)

// NewPool returns a pool of the given number of threads; 0 is one for each processor that the process may use. Close ends
// its goroutines.
func NewPool(threads int) *Pool {
	processors := min(goruntime.GOMAXPROCS(0), goruntime.NumCPU())
	if quota := sysmem.Read().CPUs; quota > 0 {
		processors = min(processors, max(int(math.Ceil(quota)), 1))
	}
	if threads <= 0 {
		threads = processors
	}
	p := &workers{threads: threads, spin: threads <= processors, Set: simd.Best(), wake: make(chan struct{}, threads)}
	p.spans = make([]span, max(threads, 1))
	for i := range threads - 1 {
		go p.worker(i + 1)
	}
	return &Pool{workers: p}
}

// With returns a pool of the same threads that works until ctx is done, and calls meanwhile where it is not nil.
func (p *Pool) With(ctx context.Context, meanwhile func()) Pool {
	if ctx.Done() == nil {
		ctx = nil
	}
	return Pool{workers: p.workers, ctx: ctx, meanwhile: meanwhile}
}

// Threads returns the number of threads.
func (p *workers) Threads() int { return p.threads }

// Close ends the threads of all pools. None must be in use.
func (p *workers) Close() {
	p.once.Do(func() {
		p.quit.Store(true)
		p.state.Add(2 * opened) // as if a region had come and gone, for those about to sleep
		p.wakeUp(p.threads)
	})
}

// For calls body for consecutive ranges [from, to) that cover [0, n), each of at most grain indices, in parallel. It
// returns when all calls have. Kernels, which must not allocate, give tasks.Do a task of their own.
func (p *Pool) For(n, grain int, body func(from, to int)) { p.Do(n, grain, taskFunc(body)) }

// Do is For with a task as the body. It allocates nothing.
func (p *Pool) Do(n, grain int, task Task) {
	grain = max(grain, 1)
	for from := 0; from < n; from += grain {
		// While other callers have the pool, each computes by itself.
		if p.threads > 1 && n-from > grain && p.busy.TryLock() {
			p.share(task, from/grain, n, grain)
			p.check()
			return
		}
		task.Run(from, min(from+grain, n))
		p.check()
		if p.threads == 1 && p.meanwhile != nil && p.own.shouldYield() {
			p.meanwhile()
		}
	}
}

// check ends the work where the context is done.
func (p *Pool) check() {
	if p.ctx != nil && p.ctx.Err() != nil {
		panic(stopped{})
	}
}

// share opens a region for the parts from first on, and does what the workers leave.
func (p *Pool) share(task Task, first, n, grain int) {
	parts := (n + grain - 1) / grain
	p.task, p.n, p.grain, p.until = task, n, grain, p.ctx
	for i := range p.spans {
		p.spans[i].next.Store(int64(first + (parts-first)*i/p.threads))
		p.spans[i].last.Store(int64(first + (parts-first)*(i+1)/p.threads))
	}
	p.state.Add(opened)
	if p.asleep.Load() > 0 {
		p.wakeUp(parts - first - 1)
	}
	defer p.leave()
	for p.work(0, &p.own) {
		if p.meanwhile != nil {
			p.meanwhile()
		}
		goruntime.Gosched()
	}
}

// leave closes the region and waits for the workers that joined it.
func (p *workers) leave() {
	state := p.state.Add(opened)
	for looks := 1; state&joined != 0; looks++ {
		simd.Pause(1)
		if looks%256 == 0 {
			goruntime.Gosched()
		}
		state = p.state.Load()
	}
	p.task, p.until = nil, nil
	failed := p.panicked.Swap(nil)
	p.busy.Unlock()
	if failed != nil {
		panic(workerPanic{failed.value, failed.stack})
	}
}

// A workerPanic is what a worker panicked with. It goes on in the caller, who can recover from it.
type workerPanic struct {
	value any
	stack []byte
}

func (w workerPanic) Error() string { return fmt.Sprint(w.value) }
func (w workerPanic) Stack() []byte { return w.stack }
func (w workerPanic) Unwrap() error {
	err, _ := w.value.(error)
	return err
}

// help does parts of the region that a worker has joined, as work does, and leaves it.
func (p *workers) help(thread int, own *pace) (more bool) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case workerPanic: // of a region within the part
			p.panicked.CompareAndSwap(nil, &v)
		default:
			p.panicked.CompareAndSwap(nil, &workerPanic{v, debug.Stack()})
		}
		p.state.Add(^uint64(0)) // nobody waits for it while others run
	}()
	return p.work(thread, own)
}

// work does parts of the region until none is left, those of a thread first, or until it is time to let other goroutines
// run: it then reports that there may be more to do.
func (p *workers) work(thread int, own *pace) (more bool) {
	for k := range p.spans {
		s := &p.spans[(thread+k)%len(p.spans)]
		for last := s.last.Load(); ; {
			i := s.next.Add(1) - 1
			if i >= last {
				break
			}
			p.task.Run(int(i)*p.grain, min((int(i)+1)*p.grain, p.n))
			if own.shouldYield() {
				if p.until != nil && p.until.Err() != nil {
					p.skip()
					return false
				}
				return true
			}
		}
	}
	return false
}

// skip leaves the parts of the region undone that nobody took.
func (p *workers) skip() {
	for k := range p.spans {
		s := &p.spans[k]
		s.next.Store(s.last.Load())
	}
}

// A pace is how long a thread has computed.
type pace struct {
	parts   int
	yielded time.Time
}

// shouldYield is asked after each part, and reports whether it is time to let other goroutines run. Most parts take much
// less than that: it does not look at the clock each time.
func (p *pace) shouldYield() bool {
	if p.parts++; p.parts%partsClock != 0 {
		return false
	}
	now := time.Now()
	if now.Sub(p.yielded) < yieldTime {
		return false
	}
	p.yielded = now
	return true
}

// worker joins regions until the pool is closed.
func (p *workers) worker(thread int) {
	seen := uint64(0) // the regions opened and closed when it last looked
	var own pace
	for !p.quit.Load() {
		state := p.find(seen)
		seen = state / opened
		if seen&1 == 1 && p.state.CompareAndSwap(state, state+1) {
			if p.help(thread, &own) {
				goruntime.Gosched()
				seen-- // the region may go on
			}
			continue
		}
		if seen&1 == 1 {
			seen-- // others joined or left at the same moment, or the region was closed
		}
	}
}

// find returns the state when a region that the worker has not seen is open, or the pool ends.
func (p *workers) find(seen uint64) uint64 {
	fresh := func(state uint64) bool { return state/opened&1 == 1 && state/opened != seen || p.quit.Load() }
	for {
		if p.spin {
			start := time.Now()
			for time.Since(start) < spinTime {
				for range spinsYield {
					if state := p.state.Load(); fresh(state) {
						return state
					}
					simd.Pause(pauses)
				}
				goruntime.Gosched()
			}
		}
		p.asleep.Add(1)
		if state := p.state.Load(); fresh(state) {
			if !p.rouse() {
				<-p.wake // somebody has sent for it already
			}
			return state
		}
		<-p.wake
		if state := p.state.Load(); fresh(state) {
			return state
		}
	}
}

// rouse takes one worker off those that sleep; it reports whether there was one.
func (p *workers) rouse() bool {
	for {
		n := p.asleep.Load()
		if n == 0 {
			return false
		}
		if p.asleep.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// wakeUp wakes at most n workers.
func (p *workers) wakeUp(n int) {
	for range n {
		if !p.rouse() {
			return
		}
		p.wake <- struct{}{}
	}
}
