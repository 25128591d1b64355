package pager

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// Caches that wait in a file: the op that has them finds them in a slot. Before it runs, the blocks come there that its rows
// name, and after it what it has written goes back. While an op runs the blocks of the next one come into the other
// slot. All of it goes in one order, so that a slot is filled after it was emptied, and blocks are read after they were
// written.

// A movedOp is an op whose caches wait in a file.
type movedOp struct {
	// launch is the op's, whose regions of caches are those of its slot.
	launch *device.Launch
	// keys and values are its caches, at in which slot they lie.
	caches [2]movedCache
	slot   int
	// blocks is how many blocks each of the caches has, sees how many positions a row sees at most, 0 for all.
	blocks         int
	window, chunk  int
	writes         bool
	next           *movedOp
	reads, written []placeRun
	coming         *blockTransfer
}

// namesBlocks are the operands of an op that name the blocks of its rows: positions, tables and further blocks.
var namesBlocks = [...]int{5, 6, 9}

// A movedCache is where blocks of a cache lie.
type movedCache struct {
	name string
	// of is the cache, slot its memory while the op runs, each the bytes of a place: of a row.
	of   *cache
	slot []byte
	each int64
}

// A placeRun is places of caches that follow each other.
type placeRun struct{ first, places int }

// A blockTransfer is runs of places on their way. done is closed when they are there, or err says why not.
type blockTransfer struct {
	done chan struct{}
	err  error
}

// away is what moves caches between a file and slots.
type away struct {
	slots device.Memory
	// last is the transfer behind which the next one goes, nil where none was since the pass began.
	last *blockTransfer
	// known are the values of this pass that name blocks and were read before.
	known map[graph.ValueID]bool
}

// allocSlots takes the slots of caches that wait in a file.
func (g *Pager) allocSlots(p *plan.Plan) error {
	want := int64(p.CacheSlots) * p.CacheSlotBytes
	if bytesOf(g.away.slots) >= want {
		return nil
	}
	g.cacheChanges++
	if err := free(&g.away.slots); err != nil {
		return err
	}
	m, err := g.allocCache(want)
	if err == nil {
		g.away.slots = m
	}
	return err
}

// takeAway has a cache in the file, where it begins as zeros.
func (g *Pager) takeAway(want *plan.Cache, value *graph.Value) error {
	all, size := g.opts.Caches, value.Bytes()
	if x := all.of[want.Name]; x != nil {
		switch {
		case x.size != size:
			return fmt.Errorf("%d bytes in one program of a session, %d in another", x.size, size)
		case x.file == nil:
			return fmt.Errorf("BUG: it is in memory in one program of a session, and in a file in another")
		}
		return nil
	}
	at := int64(0)
	if all.file == nil {
		file, err := storage.NewScratch(g.opts.SwapFolder, size)
		if err != nil {
			return err
		}
		all.file = file
	} else {
		at = all.file.Bytes()
		if err := all.file.Grow(at + size); err != nil {
			return err
		}
	}
	all.of[want.Name] = &cache{owner: g, value: *value, size: size, file: all.file, at: at}
	return nil
}

// moved notes which ops of a program have caches that wait in a file, in order.
func (g *Pager) moved(p *program) error {
	if p.plan.CacheSlots == 0 {
		return nil
	}
	host, err := g.hostVisible()
	if err != nil {
		return err
	}
	away := make(map[graph.ValueID]*plan.Cache)
	for i := range p.plan.Caches {
		if c := &p.plan.Caches[i]; c.Away {
			away[c.Value] = c
		}
	}
	var last *movedOp
	gr, slot := p.plan.Lowered.Graph, 0
	for i := range gr.Ops {
		op := &gr.Ops[i]
		if op.Kind != "attend" || away[op.In[3].Value] == nil {
			continue
		}
		x := &movedOp{
			launch: &p.ops[i].launch, slot: slot, writes: op.In[1].Value != graph.NoValue,
			blocks: gr.Values[op.In[3].Value].Shape[0] / graph.BlockRows, window: op.Attrs.Int("window"), chunk: op.Attrs.Int("chunk"),
		}
		for k := range x.caches {
			c := away[op.In[3+k].Value]
			region := device.Region{Memory: g.away.slots, Offset: int64(slot)*p.plan.CacheSlotBytes + c.Offset, Bytes: gr.Values[c.Value].Bytes()}
			x.launch.In[3+k].Region = region
			x.caches[k] = movedCache{name: c.Name, of: g.opts.Caches.of[c.Name], slot: host.HostBytes(region), each: region.Bytes / int64(max(x.blocks*graph.BlockRows, 1))}
		}
		p.ops[i].moved = x
		if last != nil {
			last.next = x
		}
		last, slot = x, (slot+1)%p.plan.CacheSlots
	}
	return nil
}

// runMoved runs an op whose caches wait in a file.
func (g *Pager) runMoved(ctx context.Context, p *prepared) error {
	x := p.moved
	if err := g.stream.Sync(ctx); err != nil { // what names the blocks is there
		return err
	}
	if x.coming == nil {
		if err := g.come(x); err != nil {
			return opError(&p.launch.Op, err)
		}
	}
	if err := g.awaitTransfer(ctx, x.coming); err != nil {
		return opError(&p.launch.Op, err)
	}
	x.coming = nil
	if next := x.next; next != nil && next.coming == nil && g.knows(next) && !x.feeds(next) {
		if err := g.come(next); err != nil {
			return opError(&next.launch.Op, err)
		}
	}
	err := g.stream.Run(ctx, p.launch)
	if err == nil {
		err = g.stream.Sync(ctx)
	}
	if err != nil {
		return opError(&p.launch.Op, err)
	}
	if x.writes {
		g.moveBlocks(x, x.written, (*storage.Scratch).Write, &g.stats.CacheOutBytes)
	}
	return nil
}

// knows reports whether what names an op's blocks is there: an op before it has had the same.
func (g *Pager) knows(x *movedOp) bool {
	also := x.also()
	return g.away.known[x.launch.In[5].Operand.Value] && g.away.known[x.launch.In[6].Operand.Value] && (also == nil || g.away.known[also.Operand.Value])
}

// also names further blocks that rows are written to, nil where there are none.
func (x *movedOp) also() *device.Argument {
	if in := x.launch.In; len(in) > 9 && in[9].Operand.Value != graph.NoValue {
		return &in[9]
	}
	return nil
}

// feeds reports whether an op writes what another one reads.
func (x *movedOp) feeds(next *movedOp) bool { return x.writes && x.caches[0].of == next.caches[0].of }

// come has the blocks of an op come into its slot.
func (g *Pager) come(x *movedOp) error {
	if err := g.name(x); err != nil {
		return err
	}
	x.coming = g.moveBlocks(x, x.reads, (*storage.Scratch).Read, &g.stats.CacheInBytes)
	return nil
}

// name finds the blocks that an op's rows name: those that they see, and those that they write to.
func (g *Pager) name(x *movedOp) error {
	host, err := g.hostVisible()
	if err != nil {
		return err
	}
	at, table := &x.launch.In[5], &x.launch.In[6]
	positions, tables := host.HostBytes(at.Region), host.HostBytes(table.Region)
	number := func(bytes []byte, element int) int { return int(int64(binary.NativeEndian.Uint64(bytes[8*element:]))) }
	seen, written := make([]bool, x.blocks), make([]bool, x.blocks*graph.BlockRows)
	width := table.Operand.Layout.Shape[1]
	for r := range at.Operand.Layout.Shape[0] {
		p := number(positions, at.Operand.Layout.Offset+r*at.Operand.Layout.Strides[0])
		if p < 0 || p >= width*graph.BlockRows { // the latter is the op's error
			continue
		}
		first := 0
		if x.window > 0 {
			first = max(0, p-x.window+1)
		}
		if x.chunk > 0 {
			first = max(first, p/x.chunk*x.chunk)
		}
		for b := first / graph.BlockRows; b <= p/graph.BlockRows; b++ {
			l := &table.Operand.Layout
			k := number(tables, l.Offset+r*l.Strides[0]+b*l.Strides[1])
			if k < 0 || k >= x.blocks {
				continue // as is this
			}
			seen[k] = true
			if b == p/graph.BlockRows {
				written[k*graph.BlockRows+p%graph.BlockRows] = true
			}
		}
		if also := x.also(); also != nil { // further blocks that the row is written to
			blocks, l := host.HostBytes(also.Region), &also.Operand.Layout
			for b := range l.Shape[1] {
				if k := number(blocks, l.Offset+r*l.Strides[0]+b*l.Strides[1]); k >= 0 && k < x.blocks {
					written[k*graph.BlockRows+p%graph.BlockRows] = true
				}
			}
		}
	}
	x.reads, x.written = runsOf(x.reads[:0], seen, graph.BlockRows), runsOf(x.written[:0], written, 1)
	if g.away.known == nil {
		g.away.known = make(map[graph.ValueID]bool)
	}
	g.away.known[at.Operand.Value], g.away.known[table.Operand.Value] = true, true
	if also := x.also(); also != nil {
		g.away.known[also.Operand.Value] = true
	}
	return nil
}

// runsOf appends the runs of what is set, each of so many places.
func runsOf(list []placeRun, set []bool, places int) []placeRun {
	for i, is := range set {
		if !is {
			continue
		}
		if n := len(list); n > 0 && list[n-1].first+list[n-1].places == i*places {
			list[n-1].places += places
		} else {
			list = append(list, placeRun{i * places, places})
		}
	}
	return list
}

// transferBytes is how many bytes one reader or writer has at a time at most.
const transferBytes = 1 << 20

// moveBlocks moves runs of places of an op's caches behind what was to be moved before, and counts them.
func (g *Pager) moveBlocks(x *movedOp, runs []placeRun, move func(*storage.Scratch, []byte, int64) error, count *int64) *blockTransfer {
	type piece struct {
		of    *movedCache
		bytes []byte
		at    int64
	}
	var pieces []piece
	for k := range x.caches {
		c := &x.caches[k]
		for _, run := range runs {
			low, high := int64(run.first)*c.each, int64(run.first+run.places)*c.each
			*count += high - low
			for ; low < high; low += transferBytes {
				pieces = append(pieces, piece{c, c.slot[low:min(low+transferBytes, high)], c.of.at + low})
			}
		}
	}
	before, t := g.away.last, &blockTransfer{done: make(chan struct{})}
	g.away.last = t
	readers := min(g.opts.Readers, len(pieces))
	go func() {
		defer close(t.done)
		if before != nil {
			if <-before.done; before.err != nil {
				t.err = before.err
				return
			}
		}
		var next atomic.Int64
		var all sync.WaitGroup
		errs := make([]error, readers)
		for i := range readers {
			all.Go(func() {
				for {
					k := int(next.Add(1)) - 1
					if k >= len(pieces) {
						return
					}
					if p := &pieces[k]; errs[i] == nil {
						if err := move(p.of.of.file, p.bytes, p.at); err != nil {
							errs[i] = fmt.Errorf("cache %s: %w", p.of.name, err)
						}
					}
				}
			})
		}
		all.Wait()
		if k := slices.IndexFunc(errs, func(err error) bool { return err != nil }); k >= 0 {
			t.err = errs[k]
		}
	}()
	return t
}

// awaitTransfer waits for blocks that come.
func (g *Pager) awaitTransfer(ctx context.Context, t *blockTransfer) error {
	begin := time.Now()
	defer func() { g.stats.SwapStall += time.Since(begin) }()
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settleAway waits for all transfers, however they end, and returns the error of the first that failed. Those to come do
// not know of it.
func (g *Pager) settleAway() error {
	clear(g.away.known)
	last := g.away.last
	if last == nil {
		return nil
	}
	begin := time.Now()
	<-last.done
	g.stats.SwapStall += time.Since(begin)
	g.away.last = nil
	return last.err
}

// forgetComing has no op of a program count on blocks that come.
func (p *program) forgetComing() {
	for i := range p.ops {
		if x := p.ops[i].moved; x != nil {
			x.coming = nil
		}
	}
}
