package adapt

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
)

// Remember says what a [Site] remembers sizes by.
type Remember int

const (
	// ByFree remembers a size for each class of free memory, four to every doubling: what fits while much is free is not
	// forgotten while little is. A class that is new begins with the initial size.
	ByFree Remember = iota
	// Always remembers one size.
	Always
	// Never begins every call with the initial size.
	Never
)

// Options are those of a [Site]. The zero value is right: sizes are remembered by the host's free memory and never grow.
type Options struct {
	// Remember is what sizes are remembered by.
	Remember Remember
	// Grow has a size that was lowered tried at twice itself, up to the initial one: after 8 calls of the function that
	// succeeded at it, or, unless sizes are remembered by free memory, when more of that is free than when the size
	// was lowered. If that works it goes on like that; if not, the size stays, and the next try comes after twice as many
	// calls.
	Grow bool
	// Free returns how many bytes are free where the code takes its memory, such as on a GPU. It is called once for each
	// call of [Batch], [Range] or [Chunks], and with Grow for each part. Nil is the host's memory, as far as the process's
	// cgroups and [LimitProcess] leave it, looked at ten times a second at most.
	Free func() int64
}

// A Site is a place in a program where work is cut, and remembers the sizes that worked there. The zero Site is ready to
// use, and a Site may be used by many goroutines. It must not be copied.
type Site struct {
	opts    Options
	mu      sync.Mutex
	classes map[int]*shared
}

// NewSite returns a site with options.
func NewSite(opts Options) *Site { return &Site{opts: opts} }

// Size returns the size that a call with that initial size would begin with now.
func (s *Site) Size(initial int) int {
	c := s.begin()
	if c.shared == nil {
		return initial
	}
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	return c.shared.limit(initial)
}

// Forget has the site begin anew.
func (s *Site) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.classes = nil
}

// class returns the class of the memory that is free.
func (s *Site) class() int {
	if s.opts.Free != nil {
		return classOf(s.opts.Free())
	}
	return classOf(hostFree.read())
}

// classOf numbers quarters of powers of two: 0 is nothing, and what is free at 8 GiB is in a class of 2 GiB.
func classOf(freeBytes int64) int {
	if freeBytes <= 0 {
		return 0
	}
	octave := bits.Len64(uint64(freeBytes))
	if octave < 3 {
		return octave
	}
	return octave<<2 | int(freeBytes>>(octave-3))&3
}

// A call is one of [Batch] or [Range]. It does not leave their frames, so that calls allocate nothing.
type call struct {
	site *Site
	// shared is what calls of the site have learnt, nil where nothing is remembered; own is what this call learns then.
	shared *shared
	own    sizes
	// class is of the memory that is free.
	class int
	// trial is set while a larger size is tried.
	trial bool
}

// A shared is what calls learn together.
type shared struct {
	mu sync.Mutex
	sizes
}

// begin looks up what is known for a call that begins now.
func (s *Site) begin() (c call) {
	c.site = s
	if s == nil {
		return c
	}
	if s.opts.Remember == ByFree || s.opts.Grow {
		c.class = s.class()
	}
	fresh := sizes{grows: s.opts.Grow, class: c.class}
	key := 0
	switch s.opts.Remember {
	case Never:
		c.own = fresh
		return c
	case ByFree:
		key = c.class
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.shared = s.classes[key]
	if c.shared == nil {
		if s.classes == nil {
			s.classes = make(map[int]*shared)
		}
		c.shared = &shared{sizes: fresh}
		s.classes[key] = c.shared
	}
	return c
}

// next returns the size for the next call of a function with so many rows left.
func (c *call) next(initial, left int) (n int) {
	if c.shared == nil {
		n, c.trial = c.own.next(initial, left, c.class)
		return n
	}
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	n, c.trial = c.shared.next(initial, left, c.class)
	return n
}

// end takes note of how a call of the function with a size ended.
func (c *call) end(n int, o outcome) {
	trial := c.trial
	c.trial = false
	if c.shared == nil {
		c.own.end(n, o, trial, c.class)
		return
	}
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	c.shared.end(n, o, trial, c.class)
}

// failed takes note of an error of the function, and returns one where it is not to be called again.
func (c *call) failed(ctx context.Context, n int, err error) error {
	switch {
	case !IsOutOfMemory(err):
		return err
	case n == 1:
		return fmt.Errorf("with a size of 1: %w", err)
	}
	c.end(n, refused)
	hostFree.forget()
	return ctx.Err()
}

// abandon ends a trial that says nothing about memory: the function panicked, or failed for another reason.
func (c *call) abandon() {
	if c.trial {
		c.end(0, unknown)
	}
}

// goOn looks at free memory again between two parts of a range. A size that is remembered by it stays with the class that
// it began with.
func (c *call) goOn() {
	if s := c.site; s != nil && s.opts.Grow && s.opts.Remember != ByFree {
		c.class = s.class()
	}
}

// firstPatience is after how many calls that succeeded a larger size is tried; it doubles with each trial in vain, up to
// mostDoublings times.
const (
	firstPatience = 8
	mostDoublings = 13
)

// sizes is which size works.
type sizes struct {
	// most is the largest size to use, 0 where none was refused yet.
	most int
	// grows says whether larger sizes are tried; the rest is about that.
	grows bool
	// good counts calls in a row that succeeded with most, failures trials in a row that did not.
	good, failures int
	// trying is set while one call tries a larger size: others keep to what works.
	trying bool
	// class is the most free memory with which a size was refused.
	class int
}

// limit is the size without growth.
func (s *sizes) limit(initial int) int {
	if s.most == 0 {
		return initial
	}
	return min(s.most, initial)
}

// next returns the size to use, and whether it is a trial, which must end.
func (s *sizes) next(initial, left, class int) (n int, trial bool) {
	n = s.limit(initial)
	if !s.grows || s.trying || n == initial {
		return n, false
	}
	larger := initial
	if n <= initial/2 {
		larger = 2 * n
	}
	patience := firstPatience << min(s.failures, mostDoublings)
	if left < larger || s.good < patience && class <= s.class {
		return n, false
	}
	s.trying = true
	s.class = max(s.class, class)
	return larger, true
}

// An outcome is how a call of the function ended, as far as memory is concerned.
type outcome int

const (
	unknown outcome = iota
	worked
	refused
)

// end takes note of an outcome.
func (s *sizes) end(n int, o outcome, trial bool, class int) {
	if trial {
		s.trying = false
	}
	switch {
	case o == worked && trial:
		s.most, s.good, s.failures = max(s.most, n), 0, 0
	case o == worked && n == s.most:
		s.good++
	case o == refused:
		s.good = 0
		s.class = max(s.class, class)
		if trial {
			s.failures++
		} else if half := n / 2; s.most == 0 || s.most > half {
			s.most = half
		}
	}
}
