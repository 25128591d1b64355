package pager

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// Caches that wait away, in a file (away_file.go) or in the host's memory (away_host.go): the op that has them finds them in a
// slot. Before it runs, the blocks come there that its rows name, and after it what it has written goes back. Where a slot has
// room for fewer blocks than the rows name, the op runs for some of its rows at a time, as many as name no more: their bits do
// not depend on others. While it runs for some, the blocks of the next ones, or of the next op's first, come into the other slot.
// All of it goes in one order, so that a slot is filled after it was emptied, and blocks are read after they were written.

// A movedOp is an op whose caches wait away.
type movedOp struct {
	// launch is the op's, and part that for some rows, whose caches, and tables if a slot has not all blocks, are in a slot.
	launch *device.Launch
	part   device.Launch
	// keys and values are its caches.
	caches [2]movedCache
	// blocks is how many blocks each of the caches has, room how many a slot has of them, sees how many positions a row sees at
	// most, 0 for all.
	blocks, room  int
	window, chunk int
	writes        bool
	next          *movedOp
	// parts are the rows of this pass, none before it is known which blocks they name.
	parts []movedPart
}

// A movedPart is rows that an op runs for at once.
type movedPart struct {
	first, rows int
	// blocks are those that the rows name, in order; block k lies at place k of a slot, or at its own where a slot has all.
	blocks []int
	// reads and written are the places that come, and that go back.
	reads, written []placeRun
	slot           int
	coming         *blockTransfer
}

// namesBlocks are the operands of an op that name the blocks of its rows: positions, tables and further blocks.
var namesBlocks = [...]int{5, 6, 9}

// A movedCache is where blocks of a cache lie.
type movedCache struct {
	name string
	// of is the cache, offset where it lies in a slot, each the bytes of a place: of a row.
	of           *cache
	offset, each int64
}

// A placeRun is places of caches that follow each other, at those of a slot from one on.
type placeRun struct{ first, places, at int }

// A blockTransfer is runs of places on their way. Those from a file are there when done is closed, or err says why not; those from
// the host's memory once event is reached.
type blockTransfer struct {
	done  chan struct{}
	err   error
	event device.Event
}

// away is what moves caches between where they wait and slots.
type away struct {
	slots device.Memory
	// turns counts how often a slot was filled.
	turns int
	// known are the values of this pass that name blocks and were read before.
	known map[graph.ValueID]bool
	// last is the transfer from or to a file behind which the next one goes, nil where none was since the pass began.
	last *blockTransfer
	link link
}

// allocSlots takes the slots of caches that wait away. What lies in them is of no pass any more.
func (g *Pager) allocSlots(p *plan.Plan) error {
	want := int64(p.CacheSlots) * p.CacheSlotBytes
	if bytesOf(g.away.slots) == want {
		return nil
	}
	g.cacheChanges++
	if err := free(&g.away.slots); err != nil || want == 0 {
		return err
	}
	if !p.Target.Direct {
		if err := g.openLink(); err != nil {
			return err
		}
	}
	m, _, err := g.allocCache(want, want)
	if err == nil {
		g.away.slots = m
	}
	return err
}

// moved notes which ops of a program have caches that wait away, in order.
func (g *Pager) moved(p *program) error {
	if p.plan.CacheSlots == 0 {
		return nil
	}
	if _, err := g.hostVisible(); g.direct && err != nil {
		return err
	}
	away := make(map[graph.ValueID]*plan.Cache)
	for i := range p.plan.Caches {
		if c := &p.plan.Caches[i]; c.Away {
			away[c.Value] = c
		}
	}
	var last *movedOp
	gr := p.plan.Lowered.Graph
	for i := range gr.Ops {
		op := &gr.Ops[i]
		if op.Kind != "attend" || away[op.In[3].Value] == nil {
			continue
		}
		x := &movedOp{
			launch: &p.ops[i].launch, writes: op.In[1].Value != graph.NoValue,
			blocks: gr.Values[op.In[3].Value].Shape[0] / graph.BlockRows, window: op.Attrs.Int("window"), chunk: op.Attrs.Int("chunk"),
		}
		x.room = x.blocks
		if n := p.plan.CacheSlotBlocks; n > 0 {
			x.room = min(n, x.blocks)
		}
		for k := range x.caches {
			c := away[op.In[3+k].Value]
			each := gr.Values[c.Value].Bytes() / int64(max(x.blocks*graph.BlockRows, 1))
			x.caches[k] = movedCache{name: c.Name, of: g.opts.Caches.of[c.Name], offset: c.Offset, each: each}
		}
		x.part = *x.launch
		x.part.In, x.part.Out = slices.Clone(x.launch.In), slices.Clone(x.launch.Out)
		p.ops[i].moved = x
		if last != nil {
			last.next = x
		}
		last = x
	}
	return nil
}

// runMoved runs an op whose caches wait away.
func (g *Pager) runMoved(ctx context.Context, p *prepared, io IO) error {
	x := p.moved
	if g.direct {
		if err := g.stream.Sync(ctx); err != nil { // what names the blocks is there
			return err
		}
	}
	if err := g.name(ctx, x, io); err != nil {
		return opError(&p.launch.Op, err)
	}
	for i := range x.parts {
		part := &x.parts[i]
		if part.coming == nil {
			if err := g.come(ctx, x, part); err != nil {
				return opError(&p.launch.Op, err)
			}
		}
		if err := g.awaitTransfer(ctx, part.coming); err != nil {
			return opError(&p.launch.Op, err)
		}
		part.coming = nil
		if err := g.comeNext(ctx, x, i, io); err != nil {
			return err
		}
		g.lay(x, part)
		if err := g.runPart(ctx, x, part); err != nil {
			return opError(&p.launch.Op, err)
		}
	}
	err := g.comeSecond(ctx, x)
	x.parts = x.parts[:0]
	return err
}

// runPart runs an op for a part, whose blocks are in its slot, and has what it has written go.
func (g *Pager) runPart(ctx context.Context, x *movedOp, part *movedPart) error {
	if err := g.stream.Run(ctx, x.part); err != nil {
		return err
	}
	if !g.direct {
		return g.linkOut(x, part)
	}
	if err := g.stream.Sync(ctx); err != nil {
		return err
	}
	if x.writes {
		g.moveBlocks(x, part, part.written, scratch.Write, &g.stats.CacheOutBytes)
	}
	return nil
}

// comeNext has the blocks come of the part behind part i of an op, or of the next op's first, unless those are not known yet, or
// are written by then.
func (g *Pager) comeNext(ctx context.Context, x *movedOp, i int, io IO) error {
	to, part := x, (*movedPart)(nil)
	if i+1 < len(x.parts) {
		if part = &x.parts[i+1]; part.coming != nil || x.writes && overlap(x.parts[i].written, part.reads) {
			return nil
		}
	} else {
		if to = x.next; to == nil || len(to.parts) > 0 || !g.knows(to) || x.feeds(to) {
			return nil
		}
		if err := g.name(ctx, to, io); err != nil {
			return opError(&to.launch.Op, err)
		}
		part = &to.parts[0]
	}
	if err := g.come(ctx, to, part); err != nil {
		return opError(&to.launch.Op, err)
	}
	return nil
}

// comeSecond has the blocks come of the second part of the op behind one whose last part has run, if those of the first part are on
// their way and it writes none of them: the slot is free until then.
func (g *Pager) comeSecond(ctx context.Context, x *movedOp) error {
	to := x.next
	if to == nil || len(to.parts) < 2 || to.parts[0].coming == nil ||
		to.writes && overlap(to.parts[0].written, to.parts[1].reads) {
		return nil
	}
	if err := g.come(ctx, to, &to.parts[1]); err != nil {
		return opError(&to.launch.Op, err)
	}
	return nil
}

// overlap reports whether runs have a block in common.
func overlap(a, b []placeRun) bool {
	for _, x := range a {
		for _, y := range b {
			if x.first/graph.BlockRows < (y.first+y.places+graph.BlockRows-1)/graph.BlockRows &&
				y.first/graph.BlockRows < (x.first+x.places+graph.BlockRows-1)/graph.BlockRows {
				return true
			}
		}
	}
	return false
}

// lay makes an op's launch that for a part, whose blocks are in its slot.
func (g *Pager) lay(x *movedOp, part *movedPart) {
	p, l := g.current.plan, &x.part
	slot := int64(part.slot) * p.CacheSlotBytes
	for k := range x.caches {
		a := x.launch.In[3+k]
		a.Region = device.Region{Memory: g.away.slots, Offset: slot + x.caches[k].offset,
			Bytes: int64(x.room*graph.BlockRows) * x.caches[k].each}
		a.Operand.Layout.Shape = slices.Clone(a.Operand.Layout.Shape)
		a.Operand.Layout.Shape[0] = x.room * graph.BlockRows
		a.Spec.Shape = a.Operand.Layout.Shape
		l.In[3+k] = a
	}
	for _, k := range [...]int{0, 1, 2, 5, 6, 9} {
		if k < len(l.In) && l.In[k].Operand.Value != graph.NoValue {
			l.In[k] = partOf(x.launch.In[k], part)
		}
	}
	l.Out[0] = partOf(x.launch.Out[0], part)
	for k, to := range g.tables(x, part) {
		if to.Memory == nil {
			continue
		}
		a := &l.In[k]
		a.Operand.Layout, a.Region = tensor.Contiguous(part.rows, a.Spec.Shape[1]), to
		if host, err := g.hostVisible(); g.direct && err == nil {
			x.number(part, k, host.HostBytes(x.launch.In[k].Region), host.HostBytes(to))
		}
	}
}

// eachRun calls move with where runs of places of an op's caches lie, in a slot and from a byte of the cache on, and counts their
// bytes.
func (g *Pager) eachRun(
	x *movedOp, part *movedPart, runs []placeRun, count *int64, move func(c *movedCache, slot device.Region, at int64) error,
) error {
	for k := range x.caches {
		c := &x.caches[k]
		first := int64(part.slot)*g.current.plan.CacheSlotBytes + c.offset
		for _, run := range runs {
			if run.at < 0 || run.at+run.places > x.room*graph.BlockRows {
				panic("BUG: places of a cache that its slot has no room for")
			}
			slot := device.Region{Memory: g.away.slots, Offset: first + int64(run.at)*c.each, Bytes: int64(run.places) * c.each}
			*count += slot.Bytes
			if err := move(c, slot, int64(run.first)*c.each); err != nil {
				return fmt.Errorf("cache %s: %w", c.name, err)
			}
		}
	}
	return nil
}

// tables are where a part's tables lie in its slot, by operand, where a slot has not all blocks.
func (g *Pager) tables(x *movedOp, part *movedPart) (at [10]device.Region) {
	if x.room == x.blocks {
		return at
	}
	p := g.current.plan
	offset := int64(part.slot+1)*p.CacheSlotBytes - p.CacheTableBytes
	for _, k := range [...]int{6, 9} {
		if k >= len(x.launch.In) || x.launch.In[k].Operand.Value == graph.NoValue {
			continue
		}
		shape := x.launch.In[k].Spec.Shape
		at[k] = device.Region{Memory: g.away.slots, Offset: offset, Bytes: 8 * int64(part.rows) * int64(shape[1])}
		offset += plan.AlignUp(8*int64(shape[0])*int64(shape[1]), p.Target.AlignBytes)
	}
	return at
}

// partOf is what an argument has of a part's rows.
func partOf(a device.Argument, part *movedPart) device.Argument {
	l := &a.Operand.Layout
	l.Shape = slices.Clone(l.Shape)
	l.Offset, l.Shape[0] = l.Offset+part.first*l.Strides[0], part.rows
	a.Spec.Shape = l.Shape
	return a
}

// number writes what operand k has for a part's rows with the numbers that blocks have in the slot. What a row does not name it
// has as it was, or is nothing: the op looks at none of it, or says that it is wrong.
func (x *movedOp) number(part *movedPart, k int, from, into []byte) {
	l := &x.launch.In[k].Operand.Layout
	for r := range part.rows {
		for b := range l.Shape[1] {
			n := elementOf(from, l.Offset+(part.first+r)*l.Strides[0]+b*l.Strides[1])
			if at, is := slices.BinarySearch(part.blocks, n); is {
				n = at
			} else if n >= 0 && n < x.blocks {
				n = 0
			}
			binary.NativeEndian.PutUint64(into[8*(r*l.Shape[1]+b):], uint64(int64(n)))
		}
	}
}

// elementOf is a number of 64 bits.
func elementOf(bytes []byte, element int) int {
	return int(int64(binary.NativeEndian.Uint64(bytes[8*element:])))
}

// knows reports whether what names an op's blocks is there: an op before it has had the same, or the caller has it.
func (g *Pager) knows(x *movedOp) bool {
	for _, k := range namesBlocks {
		if k >= len(x.launch.In) || x.launch.In[k].Operand.Value == graph.NoValue {
			continue
		}
		if id := x.launch.In[k].Operand.Value; !g.away.known[id] && (g.direct || !g.isInput(id)) {
			return false
		}
	}
	return true
}

func (g *Pager) isInput(id graph.ValueID) bool {
	return g.current.plan.Lowered.Graph.Values[id].Role == graph.Input
}

// naming returns what an operand of an op has that names blocks.
func (g *Pager) naming(ctx context.Context, a *device.Argument, io IO) ([]byte, error) {
	if !g.direct {
		return g.linked(ctx, a, io)
	}
	host, err := g.hostVisible()
	if err != nil {
		return nil, err
	}
	return host.HostBytes(a.Region), nil
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

// come has the blocks of a part come into a slot.
func (g *Pager) come(ctx context.Context, x *movedOp, part *movedPart) (err error) {
	part.slot = g.away.turns % g.current.plan.CacheSlots
	g.away.turns++
	if g.direct {
		part.coming = g.moveBlocks(x, part, part.reads, scratch.Read, &g.stats.CacheInBytes)
		return nil
	}
	part.coming, err = g.linkIn(ctx, x, part)
	return err
}

// name finds the blocks that an op's rows name, those that they see and those that they write to, and makes parts of the rows
// that name no more than there is room for. It does so once a pass.
func (g *Pager) name(ctx context.Context, x *movedOp, io IO) error {
	if len(x.parts) > 0 {
		return nil
	}
	at, table, also := &x.launch.In[5], &x.launch.In[6], x.also()
	positions, err := g.naming(ctx, at, io)
	if err != nil {
		return err
	}
	tables, err := g.naming(ctx, table, io)
	if err != nil {
		return err
	}
	var others []byte
	if also != nil {
		if others, err = g.naming(ctx, also, io); err != nil {
			return err
		}
	}
	rows, l := at.Operand.Layout.Shape[0], &table.Operand.Layout
	seen, written := make([]bool, x.blocks), make([]bool, x.blocks*graph.BlockRows)
	first, held := 0, 0
	var named, places []int // by a row
	for r := range rows {
		named, places = named[:0], places[:0]
		p := elementOf(positions, at.Operand.Layout.Offset+r*at.Operand.Layout.Strides[0])
		if p >= 0 && p < l.Shape[1]*graph.BlockRows { // else it is no token, or the op's error
			for b := x.first(p) / graph.BlockRows; b <= p/graph.BlockRows; b++ {
				k := elementOf(tables, l.Offset+r*l.Strides[0]+b*l.Strides[1])
				if k < 0 || k >= x.blocks {
					continue // as is this
				}
				if named = append(named, k); b == p/graph.BlockRows {
					places = append(places, k*graph.BlockRows+p%graph.BlockRows)
				}
			}
			// further blocks that the row is written to
			for b := 0; also != nil && b < also.Operand.Layout.Shape[1]; b++ {
				l := &also.Operand.Layout
				if k := elementOf(others, l.Offset+r*l.Strides[0]+b*l.Strides[1]); k >= 0 && k < x.blocks {
					named, places = append(named, k), append(places, k*graph.BlockRows+p%graph.BlockRows)
				}
			}
		}
		if x.more(seen, named)+held > x.room && r > first {
			x.add(first, r, seen, written)
			first, held = r, 0
		}
		held += x.more(seen, named)
		for _, k := range named {
			seen[k] = true
		}
		for _, k := range places {
			written[k] = true
		}
	}
	x.add(first, rows, seen, written)
	if g.away.known == nil {
		g.away.known = make(map[graph.ValueID]bool)
	}
	for _, k := range namesBlocks {
		if k < len(x.launch.In) {
			g.away.known[x.launch.In[k].Operand.Value] = true
		}
	}
	return nil
}

// first is the first position that one sees.
func (x *movedOp) first(position int) int {
	first := 0
	if x.window > 0 {
		first = max(0, position-x.window+1)
	}
	if x.chunk > 0 {
		first = max(first, position/x.chunk*x.chunk)
	}
	return first
}

// more is how many of some blocks are not among those that are seen.
func (x *movedOp) more(seen []bool, named []int) int {
	n := 0
	for i, k := range named {
		if !seen[k] && !slices.Contains(named[:i], k) {
			n++
		}
	}
	return n
}

// add adds a part of rows, and forgets what they name.
func (x *movedOp) add(first, end int, seen, written []bool) {
	part := movedPart{first: first, rows: end - first}
	for k, is := range seen {
		if is {
			part.blocks = append(part.blocks, k)
		}
	}
	place := func(p int) int { // in a slot
		if x.room == x.blocks {
			return p
		}
		k, _ := slices.BinarySearch(part.blocks, p/graph.BlockRows)
		return k*graph.BlockRows + p%graph.BlockRows
	}
	part.reads, part.written = runsOf(seen, graph.BlockRows, place), runsOf(written, 1, place)
	x.parts = append(x.parts, part)
	clear(seen)
	clear(written)
}

// runsOf returns the runs of what is set, each of so many places, which place finds in a slot.
func runsOf(set []bool, places int, place func(int) int) []placeRun {
	var list []placeRun
	for i, is := range set {
		if !is {
			continue
		}
		at := place(i * places)
		if n := len(list); n > 0 && list[n-1].first+list[n-1].places == i*places &&
			list[n-1].at+list[n-1].places == at {
			list[n-1].places += places
		} else {
			list = append(list, placeRun{i * places, places, at})
		}
	}
	return list
}

// forgetComing has no op of a program count on blocks that come.
func (p *program) forgetComing() {
	for i := range p.ops {
		if x := p.ops[i].moved; x != nil {
			x.parts = x.parts[:0]
		}
	}
}
