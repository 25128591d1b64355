package serve

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/runtime"
)

// stats count the requests to a version, whatever instance answered.
type stats struct {
	// here counts requests that wait or run, by priority.
	here    [runtime.LastPriority + 1]atomic.Int64
	refused atomic.Int64

	mu      sync.Mutex
	last    time.Time
	rows    int64
	success tally
	fail    tally
	queue   tally
	input   tally
	infer   tally
	output  tally
	codes   map[int]int64
	took    histogram
	queued  histogram
}

// A tally is how often something was, and how long it took together.
type tally struct {
	Count int64 `json:"count"`
	NS    int64 `json:"ns"`
}

func (t *tally) add(d time.Duration) {
	t.Count++
	t.NS += int64(d)
}

func (s *stats) init() {
	s.codes = make(map[int]int64)
}

// waits adds to the requests of a priority that wait or run, and returns how many do, and how many of them go no later
// than the last that is added.
func (s *stats) waits(n int64, of runtime.Priority) (all, first int64) {
	s.here[of].Add(n)
	for p := range s.here {
		here := s.here[p].Load()
		all += here
		if p <= int(of) {
			first += here
		}
	}
	return all, first
}

// waiting is how many requests wait or run.
func (s *stats) waiting() int64 {
	all, _ := s.waits(0, runtime.DefaultPriority)
	return all
}

// done counts a request that is over.
func (s *stats) done(c *call, status int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[status]++
	s.took.add(took)
	if status != 200 {
		s.fail.add(took)
		return
	}
	s.last = time.Now()
	s.rows += c.rows
	s.success.add(took)
	s.queue.add(c.queue)
	s.input.add(c.input)
	s.infer.add(c.infer)
	s.output.add(c.output)
	s.queued.add(c.queue)
}

// A histogram counts durations in buckets that double from a millisecond to about two minutes.
type histogram struct {
	buckets [18]int64
	count   int64
	sum     time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.count++
	h.sum += d
	for i := range h.buckets {
		if d <= time.Millisecond<<i {
			h.buckets[i]++
			return
		}
	}
}

// counts are those of requests, whatever their model.
type counts struct {
	mu     sync.Mutex
	panics int64
	codes  map[int]int64
	// refusals are how long requests took to be refused because there are too many.
	refusals histogram
}

// refuse counts a request that was refused.
func (c *counts) refuse(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusals.add(took)
}

func (c *counts) init() { c.codes = make(map[int]int64) }

func (c *counts) add(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.codes[status]++
}
