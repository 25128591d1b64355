package emulated

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/device"
)

// A clock holds, for each stream, a number of steps.
type clock []int

func (c *clock) grow(n int) {
	for len(*c) < n {
		*c = append(*c, 0)
	}
}

// tick counts a step of a stream.
func (c *clock) tick(stream int) {
	c.grow(stream + 1)
	(*c)[stream]++
}

// join takes the later of each.
func (c *clock) join(other clock) {
	c.grow(len(other))
	for i, n := range other {
		(*c)[i] = max((*c)[i], n)
	}
}

func (c *clock) copy() clock { return slices.Clone(*c) }

func (c *clock) of(stream int) int {
	if stream < len(*c) {
		return (*c)[stream]
	}
	return 0
}

// An access is a step of a stream that reads or writes bytes.
type access struct {
	stream, step int
	low, high    int64
	write        bool
}

// order looks for accesses that no event orders.
type order struct {
	seen map[*memory][]access
	// host is what was synchronised with the host.
	host clock
	err  error
}

// access notes that the stream's step touches bytes, and compares it with what others did there.
func (s *stream) access(m *memory, r device.Region, write bool) {
	o := &s.d.order
	if !s.d.opts.CheckOrder || r.Bytes == 0 {
		return
	}
	if o.seen == nil {
		o.seen = make(map[*memory][]access)
	}
	now := access{s.id, s.knows.of(s.id), r.Offset, r.Offset + r.Bytes, write}
	kept := o.seen[m][:0]
	for _, a := range o.seen[m] {
		ordered := a.step <= s.knows.of(a.stream)
		if a.low < now.high && now.low < a.high && (a.write || write) && a.stream != s.id && !ordered && o.err == nil {
			o.err = fmt.Errorf("streams %d and %d use bytes %d to %d of one memory, and no event orders them",
				a.stream, s.id, max(a.low, now.low), min(a.high, now.high))
		}
		// What a later access covers in full need not be remembered: whoever conflicts with it conflicts with that too.
		if write && ordered && now.low <= a.low && a.high <= now.high {
			continue
		}
		if !write && !a.write && a.stream == s.id && now.low <= a.low && a.high <= now.high {
			continue
		}
		kept = append(kept, a)
	}
	o.seen[m] = append(kept, now)
}

// forget drops a memory that was freed.
func (o *order) forget(m *memory) { delete(o.seen, m) }
