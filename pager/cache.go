package pager

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// Caches are the memory that outlives passes, by name: what ops write in place, and read in passes to come, whichever plan
// these have. Pagers whose plans have parts of one program share them, for from one plan to the next a cache may be wanted on
// another device. Like its pagers it must not be used by two goroutines at once.
//
// A cache belongs to the pager that used it last, which frees it when it is closed. It begins as zeros.
type Caches struct {
	of map[string]*cache
	// file is that in which some wait, nil where none do.
	file scratch
}

// NewCaches returns the caches of programs that have none yet.
func NewCaches() *Caches { return &Caches{of: make(map[string]*cache)} }

// A cache is memory on the device of its owner. Where nobody is, its contents are kept as bytes.
type cache struct {
	owner  *Pager
	memory device.Memory
	bytes  []byte
	// value is the graph's, size how many bytes it has; memory is as much larger as the device aligns to.
	value graph.Value
	size  int64
	// file is where it waits, from at on, and host the host memory where it waits for a device with memory of its own; nil for one
	// that is elsewhere.
	file scratch
	at   int64
	host device.HostMemory
}

// takeCaches has all caches of a plan on the device. Those that it does not have go where they take none of what the device
// has for the plan.
func (g *Pager) takeCaches(ctx context.Context, p *plan.Plan) error {
	if !p.Target.Direct { // else they would only go from the host's memory to the host's memory
		if err := g.leaveCaches(ctx, p.Caches, false); err != nil {
			return err
		}
	}
	if err := g.yield(p); err != nil {
		return err
	}
	if err := g.allocSlots(p); err != nil {
		return err
	}
	for i := range p.Caches {
		c := &p.Caches[i]
		if c.Away && c.Offset < 0 {
			continue
		}
		if c.Away && !p.Target.Direct {
			if err := g.takeWaiting(ctx, c, &p.Lowered.Graph.Values[c.Value]); err != nil {
				return located(err, c.Name, "cache")
			}
			continue
		}
		if c.Away {
			if err := g.takeAway(c, &p.Lowered.Graph.Values[c.Value]); err != nil {
				return located(err, c.Name, "cache")
			}
			continue
		}
		if err := g.takeCache(ctx, c, &p.Lowered.Graph.Values[c.Value]); err != nil {
			return located(err, c.Name, "cache")
		}
	}
	return nil
}

// takeCache has a cache on the device that is a value of a plan's graph.
func (g *Pager) takeCache(ctx context.Context, want *plan.Cache, value *graph.Value) error {
	all, size := g.opts.Caches.of, value.Bytes()
	x := all[want.Name]
	if x != nil && x.size != size {
		return fmt.Errorf("%d bytes in one program of a session, %d in another", x.size, size)
	}
	if x != nil && x.owner == g && x.host == nil {
		return g.growCache(x, want.Bytes)
	}
	memory, zero, err := g.allocCache(want.Bytes, max(size, want.Bytes))
	if err != nil {
		return err
	}
	if err := g.fillCache(ctx, memory, x, zero); err != nil {
		return errors.Join(err, memory.Free())
	}
	if x == nil {
		x = new(cache)
		all[want.Name] = x
	}
	err = x.free()
	x.owner, x.memory, x.bytes, x.value, x.size = g, memory, nil, *value, size
	g.cacheChanges++
	return err
}

// allocCache takes memory of the device for the beginning of a cache that is to have so many bytes at most, and reports whether it
// is zero.
func (g *Pager) allocCache(bytes, most int64) (m device.Memory, zero bool, err error) {
	if c, ok := g.dev.(device.CacheAllocator); ok {
		m, err = c.AllocCache(bytes, most)
		return m, true, err
	}
	m, err = g.dev.Alloc(bytes)
	return m, false, err
}

// settlePasses is after how many passes it is looked which caches are full.
const settlePasses = 32

// settleCaches has what is full of the caches lie so that it is read fast.
func (g *Pager) settleCaches() {
	c, ok := g.dev.(device.CacheAllocator)
	if !ok {
		return
	}
	for _, x := range g.opts.Caches.of {
		if x.owner == g && x.file == nil && x.host == nil && x.memory != nil {
			c.SettleCache(x.memory)
		}
	}
}

// growCache gives a cache more memory, where a plan wants it to have that: what it holds stays where it is.
func (g *Pager) growCache(x *cache, bytes int64) error {
	if bytes <= x.memory.Bytes() {
		return nil
	}
	rooms, ok := g.dev.(device.RoomAllocator)
	if !ok || !rooms.Resize(x.memory, bytes) {
		return &device.OutOfMemoryError{Device: g.dev.Name(), WantBytes: bytes - x.memory.Bytes()}
	}
	g.cacheChanges++
	return nil
}

// ShrinkCaches takes from those caches that have so many blocks in all the memory of what lies behind the first ones of them, as
// many as now says, where it can become smaller where it is. It is called between passes. What lies in these stays; the others
// begin as zeros, when a plan wants them again.
func (g *Pager) ShrinkCaches(blocks, now int) error {
	rooms, ok := g.dev.(device.RoomAllocator)
	if !ok {
		return errors.New("memory of caches cannot become smaller")
	}
	g.quiesce()
	for name, x := range g.opts.Caches.of {
		if x.owner != g || x.file != nil || len(x.value.Shape) == 0 || x.value.Shape[0] != blocks*graph.BlockRows {
			continue
		}
		bytes := plan.AlignUp(x.size/int64(blocks)*int64(now), plan.CPU.AlignBytes)
		if bytes >= x.memory.Bytes() {
			continue
		}
		g.cacheChanges++
		if !rooms.Resize(x.memory, bytes) {
			return located(errors.New("its memory cannot become smaller"), name, "cache")
		}
	}
	return nil
}

// fillCache gives new memory the contents of a cache, or zeros. Memory that is zero is written to only where the contents are not:
// a host gives what nothing was written to no memory.
func (g *Pager) fillCache(ctx context.Context, memory device.Memory, from *cache, zero bool) error {
	if zero && from == nil {
		return nil
	}
	const each = 1 << 20
	size := memory.Bytes()
	room := make([]byte, min(each, size))
	for at := int64(0); at < size; at += each {
		n := min(each, size-at)
		part := room[:n]
		if from != nil {
			clear(part)
			if err := from.read(ctx, part[:max(min(n, from.size-at), 0)], at); err != nil {
				return err
			}
			if zero && len(bytes.Trim(part, "\x00")) == 0 {
				continue
			}
		}
		if err := g.stream.CopyIn(device.Region{Memory: memory, Offset: at, Bytes: n}, part); err != nil {
			return err
		}
		if err := g.stream.Sync(ctx); err != nil {
			g.quiesce()
			return err
		}
	}
	return nil
}

// read copies bytes of a cache from an offset on.
func (x *cache) read(ctx context.Context, dst []byte, at int64) error {
	if x.file != nil {
		return x.file.Read(dst, x.at+at)
	}
	switch {
	case x.owner == nil:
		copy(dst, x.bytes[at:])
		return nil
	case x.host != nil:
		copy(dst, x.host.Bytes()[at:])
		return nil
	}
	if err := x.owner.stream.CopyOut(dst, device.Region{Memory: x.memory, Offset: at, Bytes: int64(len(dst))}); err != nil {
		return err
	}
	if err := x.owner.stream.Sync(ctx); err != nil {
		x.owner.quiesce()
		return err
	}
	return nil
}

// free gives back the memory of a cache.
func (x *cache) free() error {
	if x.owner == nil {
		return nil
	}
	x.owner.cacheChanges++
	x.owner = nil
	dropHost(&x.host)
	return free(&x.memory)
}

// leaveCaches keeps aside the caches on the device but those of a plan, and those too that wait in the host's memory where waiting
// says so.
func (g *Pager) leaveCaches(ctx context.Context, but []plan.Cache, waiting bool) error {
	wanted := make(map[string]bool, len(but))
	for i := range but {
		wanted[but[i].Name] = true
	}
	for name, x := range g.opts.Caches.of {
		if x.owner != g || wanted[name] || x.host != nil && !waiting {
			continue
		}
		bytes := make([]byte, x.size)
		if err := x.read(ctx, bytes, 0); err != nil {
			return located(err, name, "save")
		}
		if err := x.free(); err != nil {
			return err
		}
		x.bytes = bytes
	}
	return nil
}

// cacheBytes is what caches take on the device.
func (g *Pager) cacheBytes() int64 {
	n := bytesOf(g.away.slots)
	for _, x := range g.opts.Caches.of {
		if x.owner == g {
			n += bytesOf(x.memory)
		}
	}
	return n
}

// DropCaches frees the caches on the device, and forgets those that are nowhere: they begin as zeros again. It is called
// between passes.
func (g *Pager) DropCaches() error {
	var errs []error
	for name, x := range g.opts.Caches.of {
		if x.owner == g || x.owner == nil {
			errs = append(errs, x.free())
			delete(g.opts.Caches.of, name)
		}
	}
	if file := g.opts.Caches.file; file != nil { // all that wait there are this pager's
		errs = append(errs, file.Close())
		g.opts.Caches.file = nil
	}
	if g.away.slots != nil {
		g.cacheChanges++
		errs = append(errs, free(&g.away.slots))
	}
	return errors.Join(errs...)
}

// ErrNoCache is of a cache that no pass has used yet, so that it has no memory.
var ErrNoCache = errors.New("no pass has used the cache")

// ReadCache copies what a cache holds, from a byte on. It is called between passes.
func (g *Pager) ReadCache(ctx context.Context, name string, dst []byte, at int64) error {
	x, err := g.cache(name, at, len(dst))
	if err == nil {
		err = x.read(ctx, dst, at)
	}
	return located(err, name, "read")
}

// WriteCache puts bytes into a cache, from a byte on. It is called between passes.
func (g *Pager) WriteCache(ctx context.Context, name string, src []byte, at int64) error {
	x, err := g.cache(name, at, len(src))
	if err == nil {
		err = x.write(ctx, src, at)
	}
	return located(err, name, "write")
}

// cache returns one that has so many bytes from a byte on.
func (g *Pager) cache(name string, at int64, bytes int) (*cache, error) {
	x := g.opts.Caches.of[name]
	switch {
	case x == nil:
		return nil, ErrNoCache
	case at < 0 || at > x.size-int64(bytes):
		return nil, fmt.Errorf("bytes %d to %d of %d", at, at+int64(bytes), x.size)
	}
	return x, nil
}

// write copies bytes to a cache from an offset on.
func (x *cache) write(ctx context.Context, src []byte, at int64) error {
	if x.file != nil {
		return x.file.Write(src, x.at+at)
	}
	switch {
	case x.owner == nil:
		copy(x.bytes[at:], src)
		return nil
	case x.host != nil:
		copy(x.host.Bytes()[at:], src)
		return nil
	}
	if err := x.owner.stream.CopyIn(device.Region{Memory: x.memory, Offset: at, Bytes: int64(len(src))}, src); err != nil {
		return err
	}
	if err := x.owner.stream.Sync(ctx); err != nil {
		x.owner.quiesce()
		return err
	}
	return nil
}
