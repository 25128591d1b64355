package pager

import (
	"context"
	"fmt"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
)

// A link is what moves caches between the host's memory, where they wait, and slots of a device with memory of its own: a stream
// beside that of the ops. Each waits for the other's events, and the host for neither.
type link struct {
	stream device.Stream
	// used says that the stream was given something since the pass began.
	used bool
	// read are the values of this pass that name blocks, as the host has them.
	read map[graph.ValueID][]byte
	// tables is the host memory through which tables pass, a part for each slot, and passed is where each was read last.
	tables device.HostMemory
	passed []device.Event
}

// openLink makes the stream, where there is none.
func (g *Pager) openLink() (err error) {
	if g.away.link.stream == nil {
		g.away.link.stream, err = g.dev.NewStream()
	}
	return err
}

// closeLink ends the stream.
func (g *Pager) closeLink() error {
	if g.away.link.stream == nil {
		return nil
	}
	err := g.away.link.stream.Close()
	g.away.link.stream = nil
	return err
}

// sizeTables takes the host memory through which a plan's tables pass.
func (g *Pager) sizeTables(p *plan.Plan) error {
	l := &g.away.link
	l.passed = make([]device.Event, p.CacheSlots)
	return g.sizeHost(&l.tables, int64(p.CacheSlots)*p.CacheTableBytes, hostmem.Staging)
}

// takeWaiting has a cache in the host's memory, where it begins as zeros, or as what it held elsewhere.
func (g *Pager) takeWaiting(ctx context.Context, want *plan.Cache, value *graph.Value) error {
	all, size := g.opts.Caches.of, value.Bytes()
	x := all[want.Name]
	if x != nil && x.size != size {
		return fmt.Errorf("%d bytes in one program of a session, %d in another", x.size, size)
	}
	if x != nil && x.owner == g && x.host != nil {
		return nil
	}
	host, err := g.AllocHost(size, hostmem.Caches)
	if err != nil {
		return err
	}
	if x == nil {
		x = new(cache)
		all[want.Name] = x
		clear(host.Bytes())
	} else if err := x.read(ctx, host.Bytes()[:size], 0); err != nil {
		host.Free()
		return err
	}
	err = x.free()
	x.owner, x.host, x.bytes, x.value, x.size = g, host, nil, *value, size
	g.cacheChanges++
	return err
}

// linked returns what an operand has that names blocks: as the caller has it where it is an input, else as it comes from the device.
func (g *Pager) linked(ctx context.Context, a *device.Argument, io IO) ([]byte, error) {
	l, id := &g.away.link, a.Operand.Value
	if bytes, ok := l.read[id]; ok {
		return bytes, nil
	}
	var bytes []byte
	if g.isInput(id) {
		bytes = io.Input(0, id)
	} else {
		bytes = make([]byte, a.Region.Bytes)
		if err := g.stream.CopyOut(bytes, a.Region); err != nil {
			return nil, err
		}
		if err := g.stream.Sync(ctx); err != nil {
			return nil, err
		}
	}
	if l.read == nil {
		l.read = make(map[graph.ValueID][]byte)
	}
	l.read[id] = bytes
	return bytes, nil
}

// linkIn has the blocks of a part come into its slot, with its tables, behind what was to be moved before.
func (g *Pager) linkIn(ctx context.Context, x *movedOp, part *movedPart) (*blockTransfer, error) {
	l, p := &g.away.link, g.current.plan
	l.used = true
	err := g.copyRuns(x, part, part.reads, &g.stats.CacheInBytes, l.stream.CopyIn)
	if err != nil {
		return nil, err
	}
	begin := int64(part.slot+1)*p.CacheSlotBytes - p.CacheTableBytes
	for k, to := range g.tables(x, part) {
		if to.Memory == nil {
			continue
		}
		if e := l.passed[part.slot]; e != nil { // those before have left the host's memory
			if err := e.Sync(ctx); err != nil {
				return nil, err
			}
			l.passed[part.slot] = nil
		}
		from := l.tables.Bytes()[int64(part.slot)*p.CacheTableBytes+to.Offset-begin:][:to.Bytes]
		x.number(part, k, l.read[x.launch.In[k].Operand.Value], from)
		if err := l.stream.CopyIn(to, from); err != nil {
			return nil, err
		}
	}
	e := l.stream.Record()
	if p.CacheTableBytes > 0 {
		l.passed[part.slot] = e
	}
	return &blockTransfer{event: e}, nil
}

// linkOut has what a part of an op has written go once that has run. Whatever comes into the slot next comes after that.
func (g *Pager) linkOut(x *movedOp, part *movedPart) error {
	l := &g.away.link
	l.stream.Wait(g.stream.Record())
	if !x.writes {
		return nil
	}
	return g.copyRuns(x, part, part.written, &g.stats.CacheOutBytes, func(slot device.Region, host []byte) error {
		return l.stream.CopyOut(host, slot)
	})
}

// copyRuns copies runs of places between slots and the host's memory, by what copies one of a region and of bytes.
func (g *Pager) copyRuns(
	x *movedOp, part *movedPart, runs []placeRun, count *int64, one func(device.Region, []byte) error,
) error {
	return g.eachRun(x, part, runs, count, func(c *movedCache, slot device.Region, at int64) error {
		return one(slot, c.of.host.Bytes()[at:][:slot.Bytes])
	})
}

// settleLink waits for all that the stream was given.
func (g *Pager) settleLink() error {
	l := &g.away.link
	clear(l.read)
	clear(l.passed)
	if !l.used || l.stream == nil {
		return nil
	}
	l.used = false
	return l.stream.Sync(context.Background())
}

// waitingBytes is the host memory in which caches of the pager's wait, and through which tables of their blocks pass.
func (g *Pager) waitingBytes() int64 {
	n := hostBytes(g.away.link.tables)
	for _, x := range g.opts.Caches.of {
		if x.owner == g {
			n += hostBytes(x.host)
		}
	}
	return n
}
