package pager

import (
	"sync"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
)

// copies are the weights that stay in host memory, for all plans that keep the same ones in the same places.
// Page-locking memory takes about as long as a disk takes to fill it, so it is taken in chunks: one while the groups of
// that before are read.
type copies struct {
	groups []copied
	chunks []*chunk
	// ahead are goroutines that take chunks which nobody needs yet.
	ahead sync.WaitGroup
}

// copied is a group whose bytes are kept at the begin of a chunk or behind those of others, and whether they are there.
type copied struct {
	spans  []plan.Span
	offset int64
	held   bool

	of    *copies
	chunk int
	at    int64
}

// A chunk is host memory of some groups.
type chunk struct {
	bytes int64
	alloc func(bytes int64, purpose hostmem.Purpose) (device.HostMemory, error)

	mu  sync.Mutex
	mem device.HostMemory
}

// chunkBytes is what a chunk has at least, but the last one and in tests: page-locking it takes some hundredths of a
// second.
var chunkBytes int64 = 128 << 20

// newCopies returns the copies that a plan keeps, which take no memory yet; nil where it keeps none.
func (g *Pager) newCopies(p *plan.Plan) *copies {
	c := &copies{}
	for k := range p.Groups {
		group := &p.Groups[k]
		if !g.copied(group) {
			continue
		}
		n := len(c.chunks)
		if n == 0 || c.chunks[n-1].bytes >= chunkBytes {
			c.chunks = append(c.chunks, &chunk{alloc: g.AllocHost})
			n++
		}
		last := c.chunks[n-1]
		c.groups = append(c.groups, copied{
			spans: group.Spans, offset: group.CopyOffset, of: c, chunk: n - 1, at: last.bytes,
		})
		last.bytes += plan.SpanBytes(group.Spans)
	}
	if len(c.groups) == 0 {
		return nil
	}
	return c
}

// take returns the memory of a group's copy, and has the next chunk taken meanwhile.
func (x *copied) take() ([]byte, error) {
	mem, err := x.of.chunks[x.chunk].take()
	if err != nil {
		return nil, err
	}
	if next := x.chunk + 1; next < len(x.of.chunks) && x.of.chunks[next].held() == 0 {
		x.of.ahead.Go(func() { _, _ = x.of.chunks[next].take() }) // who needs it gets the error
	}
	return mem[x.at:][:plan.SpanBytes(x.spans)], nil
}

// take returns a chunk's memory, which it takes where it is not there.
func (c *chunk) take() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mem == nil {
		mem, err := c.alloc(c.bytes, hostmem.Staging)
		if err != nil {
			return nil, err
		}
		c.mem = mem
	}
	return c.mem.Bytes(), nil
}

// held returns how many bytes a chunk has.
func (c *chunk) held() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return hostBytes(c.mem)
}

// bytes returns the memory that the copies have taken.
func (c *copies) bytes() (n int64) {
	if c == nil {
		return 0
	}
	for _, x := range c.chunks {
		n += x.held()
	}
	return n
}

// dropCopies frees the copies. Nothing on the device may use them any more, and no fetcher runs.
func (g *Pager) dropCopies() {
	if g.copies == nil {
		return
	}
	g.copies.ahead.Wait()
	for _, x := range g.copies.chunks {
		dropHost(&x.mem)
	}
	g.copies = nil
}
