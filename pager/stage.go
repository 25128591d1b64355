package pager

import (
	"context"
	"slices"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A staged loader brings groups to a device that files cannot be read into: through host memory, over a stream of its own.
// Groups whose bytes the plan keeps in host memory are read from files once, and those whose sources lie in memory that the
// device can copy from never.
type staged struct {
	reader
	g       *Pager
	stream  device.Stream
	order   []*stagedVisit
	running bool
	// computed has the event of each visit that the ops have been given to the device for, free the event after which a
	// staging slot may be filled again, and arrived those visits that the compute stream can wait for.
	computed, arrived chan device.Event
	free              chan device.Event
	// read has each visit whose bytes are in host memory.
	read chan fed
}

// A fed visit is one whose bytes lie in host memory, from where they are copied. The next time, for a later pass, they may be
// brought to another place meanwhile.
type fed struct {
	*stagedVisit
	from []byte
	// began and ended are when its reads were, where somebody wants to know and there were any.
	began, ended time.Time
}

// A stagedVisit is a paged group as the staged loader sees it.
type stagedVisit struct {
	visit
	group *plan.Group
	// host holds the bytes of a group that are there to stay once held says so; both are nil where they do not.
	host []byte
	held *bool
	// slots are the reads into each staging slot, for groups that are not held.
	slots [plan.StagingSlots][]piece
	bytes [plan.StagingSlots][]byte
	// inPlace holds the bytes of each part where these are in the memory of their sources, else it is nil.
	inPlace [][]byte
}

// passing reports whether the bytes pass through a staging slot.
func (v *stagedVisit) passing() bool { return v.inPlace == nil && !v.group.Copied }

// copies are the weights that stay in host memory, for all plans that keep the same ones in the same places.
type copies struct {
	buf device.HostMemory
	// groups are those copied, each with whether its bytes are there.
	groups []copied
}

type copied struct {
	spans  []plan.Span
	offset int64
	held   bool
}

// copied reports whether a pager keeps a copy of a group's bytes in host memory.
func (g *Pager) copied(group *plan.Group) bool { return group.Copied && g.inPlace(group) == nil }

// fit reports whether a pager's copies are those that a plan keeps.
func (g *Pager) fit(p *plan.Plan) bool {
	c, n := g.copies, 0
	for k := range p.Groups {
		group := &p.Groups[k]
		if !g.copied(group) {
			continue
		}
		if n == len(c.groups) || c.groups[n].offset != group.CopyOffset || !slices.Equal(c.groups[n].spans, group.Spans) {
			return false
		}
		n++
	}
	return n == len(c.groups)
}

// slotBytes is what a staging slot has to hold for a plan.
func (g *Pager) slotBytes(p *plan.Plan) int64 {
	var n int64
	for k := range p.Groups {
		if group := &p.Groups[k]; group.Paged() && !group.Copied && g.inPlace(group) == nil {
			n = max(n, plan.SpanBytes(group.Spans))
		}
	}
	return n
}

// growHost takes the host memory that a plan wants. What plans before had there and this one does not is given back.
func (g *Pager) growHost(p *plan.Plan) (err error) {
	if p.Target.Direct {
		return nil
	}
	g.register(p)
	if g.copies != nil && !g.fit(p) {
		g.dropCopies()
	}
	if err := g.sizeHost(&g.staging, plan.StagingSlots*g.slotBytes(p), hostmem.Staging); err != nil {
		return err
	}
	if err := g.sizeHost(&g.swaps, p.SwapBytes, hostmem.Activations); err != nil {
		return err
	}
	if err := g.sizeHost(&g.rowsMemory, p.GatherBytes, hostmem.Staging); err != nil {
		return err
	}
	if g.copies != nil {
		return nil
	}
	c := &copies{}
	for k := range p.Groups {
		if group := &p.Groups[k]; g.copied(group) {
			c.groups = append(c.groups, copied{spans: group.Spans, offset: group.CopyOffset})
		}
	}
	if len(c.groups) == 0 {
		return nil
	}
	if c.buf, err = g.AllocHost(p.HostCopyBytes, hostmem.Staging); err != nil {
		return err
	}
	g.copies = c
	return nil
}

// sizeHost makes host memory large enough, or gives it back where none is wanted.
func (g *Pager) sizeHost(buf *device.HostMemory, bytes int64, purpose hostmem.Purpose) (err error) {
	if *buf != nil && bytes > 0 && int64(len((*buf).Bytes())) >= bytes {
		return nil
	}
	dropHost(buf)
	if bytes > 0 {
		*buf, err = g.AllocHost(bytes, purpose)
	}
	return err
}

// AllocHost takes host memory that the device copies from and to, page-locked where the device gives such memory out and
// has some. The caller frees it before the device is closed.
func (g *Pager) AllocHost(bytes int64, purpose hostmem.Purpose) (device.HostMemory, error) {
	if from, ok := g.dev.(device.HostAllocator); ok && bytes > 0 {
		mem, err := from.AllocHost(bytes)
		if err == nil {
			return mem, nil
		}
		g.stats.PageableBytes += bytes
	}
	mem, err := hostmem.Alloc(bytes, purpose)
	if err != nil {
		return nil, err
	}
	return mem, nil
}

func (g *Pager) dropCopies() {
	if g.copies != nil {
		g.copies.buf.Free()
		g.copies = nil
	}
}

func dropHost(buf *device.HostMemory) {
	if *buf != nil {
		(*buf).Free()
		*buf = nil
	}
}

func (g *Pager) newStaged(p *plan.Plan) (_ loader, err error) {
	s := &staged{g: g}
	s.bytes, s.loads = &g.stats.readBytes, g.loads
	if s.stream, err = g.dev.NewStream(); err != nil {
		return nil, err
	}
	slot, kept := g.slotBytes(p), 0
	for k := range p.Groups {
		group := &p.Groups[k]
		if !group.Paged() {
			continue
		}
		v := &stagedVisit{group: group, inPlace: g.inPlace(group)}
		v.path, v.visit.group, v.after, v.visit.arrived = group.Name(), k, group.After, make(chan struct{}, 1)
		n := plan.SpanBytes(group.Spans)
		switch {
		case v.inPlace != nil:
		case group.Copied:
			v.host, v.held = g.copies.buf.Bytes()[group.CopyOffset:][:n], &g.copies.groups[kept].held
			kept++
			v.pieces = pieces(group.Spans, v.host, pieceBytes, &v.visit)
		default:
			for i := range v.slots {
				v.bytes[i] = g.staging.Bytes()[int64(i)*slot:][:n]
				v.slots[i] = pieces(group.Spans, v.bytes[i], pieceBytes, &v.visit)
			}
		}
		s.order = append(s.order, v)
	}
	return s, nil
}

// begin starts the readers and the copies where they do not run.
func (s *staged) begin() {
	if s.running || len(s.order) == 0 {
		return
	}
	s.running = true
	// What filled and read the ring before is done, and was waited for on other streams. A device that looks at the order of
	// what is done to its memory sees that here; there is nothing to wait for.
	_ = s.stream.Sync(context.Background())
	n := 2 * len(s.order)
	s.computed, s.arrived = make(chan device.Event, n), make(chan device.Event, n)
	s.read = make(chan fed, plan.StagingSlots)
	s.free = make(chan device.Event, plan.StagingSlots)
	for range plan.StagingSlots {
		s.free <- nil
	}
	s.start(s.g.opts.Readers, s.g.opts.Readers)
	s.idle.Go(s.feed)
	s.idle.Go(s.copy)
}

// feed brings the bytes of one visit after the other into host memory, pass after pass, as far ahead as there is room.
func (s *staged) feed() {
	slot := 0
	for n := 0; ; n++ {
		v := s.order[n%len(s.order)]
		list, from := v.pieces, v.host
		switch {
		case v.held != nil && *v.held:
			list = nil
		case v.passing():
			select {
			case e := <-s.free:
				if e == nil {
					break
				}
				if err := e.Sync(s.ctx); err != nil {
					s.fail(&GroupError{v.path, "load", err})
					return
				}
			case <-s.ctx.Done():
				return
			}
			list, from = v.slots[slot], v.bytes[slot]
			slot = (slot + 1) % plan.StagingSlots
		}
		var began, ended time.Time
		if len(list) > 0 {
			s.loads.stamp(&began)
			if !s.request(&v.visit, list) {
				return
			}
			// The next visit's reads begin when this one's are under way to their end: the host memory of a visit is
			// handed on in order.
			select {
			case <-v.visit.arrived:
			case <-s.failed:
				return
			case <-s.ctx.Done():
				return
			}
			s.loads.stamp(&ended)
			if v.held != nil {
				*v.held = true
			}
		}
		select {
		case s.read <- fed{v, from, began, ended}:
		case <-s.ctx.Done():
			return
		}
	}
}

// copy gives the copies of one visit after the other to the device, each behind the event after which its slot is free.
func (s *staged) copy() {
	var last device.Event
	done := 0
	for n := 0; ; n++ {
		var v fed
		select {
		case v = <-s.read:
		case <-s.ctx.Done():
			return
		}
		for need := v.need(n, len(s.order)); done < need; done++ {
			select {
			case last = <-s.computed:
			case <-s.ctx.Done():
				return
			}
		}
		if last != nil && v.after > 0 {
			s.stream.Wait(last)
			if s.loads != nil { // the copy is to be measured, and not what it waits for
				if err := last.Sync(s.ctx); err != nil {
					s.fail(&GroupError{v.path, "load", err})
					return
				}
			}
			last = nil // what comes next is behind it
		}
		var begin time.Time
		s.loads.stamp(&begin)
		if err := s.bring(v); err != nil {
			s.fail(&GroupError{v.path, "load", err})
			return
		}
		e := s.stream.Record()
		if v.passing() {
			s.free <- e
		}
		select {
		case s.arrived <- e:
		case <-s.ctx.Done():
			return
		}
		if s.loads != nil {
			err := e.Sync(s.ctx)
			s.loads.copy(Event{
				Kind: LoadDone, Group: v.visit.group, Path: v.path, LoadedBytes: v.group.SlotBytes,
				Begin: v.began, End: v.ended, CopyBegin: begin, CopyEnd: time.Now(),
			}, err)
			if err != nil {
				s.fail(&GroupError{v.path, "load", err})
				return
			}
		}
	}
}

// bring copies the parts of a group to its slot.
func (s *staged) bring(v fed) error {
	for i, part := range v.group.Parts {
		n := part.High - part.Low
		var from []byte
		if v.inPlace != nil {
			from = v.inPlace[i]
		} else {
			from = v.from[part.Staged:][:n]
		}
		to := device.Region{Memory: s.g.ring, Offset: v.group.SlotOffset + part.Offset, Bytes: n}
		if err := s.stream.CopyIn(to, from); err != nil {
			return err
		}
	}
	return nil
}

func (s *staged) ready(ctx context.Context, _ int) error {
	select {
	case e := <-s.arrived:
		s.g.stream.Wait(e)
		s.loads.await()
		return nil
	case <-s.failed:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *staged) tick() {}

func (s *staged) done(int) { s.computed <- s.g.stream.Record() }

// reset stops everything and waits for it. What is held in host memory stays.
func (s *staged) reset() {
	if !s.running {
		return
	}
	s.running = false
	s.end()
	_ = s.stream.Sync(context.Background()) // the error is that of the pass that was given up
	for _, v := range s.order {
		v.forget()
	}
	s.loads.forget()
}

func (s *staged) close() error {
	s.reset()
	if s.stream == nil {
		return nil
	}
	err := s.stream.Close()
	s.stream = nil
	return err
}

// stageFixed brings the weights that stay through a little host memory, and returns how many bytes were read.
func (g *Pager) stageFixed(ctx context.Context, p *plan.Plan) (read int64, err error) {
	total := plan.SpanBytes(p.Fixed.Spans)
	if total == 0 {
		return 0, nil
	}
	buf, err := g.AllocHost(min(total, p.StagingBytes), hostmem.Staging)
	if err != nil {
		return 0, err
	}
	defer buf.Free()
	defer func() {
		if err != nil {
			g.quiesce() // it may still be copied from
		}
	}()
	return g.stageParts(ctx, p, p.Fixed.Spans, p.Fixed.Parts, g.fixed, buf.Bytes())
}

// stageParts brings parts to the device's memory through the given host memory, and returns how many bytes were read.
func (g *Pager) stageParts(
	ctx context.Context, p *plan.Plan, list []plan.Span, parts []plan.Part, memory device.Memory, stage []byte,
) (read int64, err error) {
	for _, span := range list {
		for at := int64(0); at < span.Extent.Bytes; {
			n := min(int64(len(stage))/storage.AlignBytes*storage.AlignBytes, span.Extent.Bytes-at)
			e := span.Extent
			e.Offset, e.Bytes = e.Offset+at, n
			if err := storage.Read(ctx, g.opts.Readers, storage.Request{Extent: e, Into: stage[:n]}); err != nil {
				return read, err
			}
			read += n
			low := span.Offset + at
			for _, part := range parts {
				first, end := max(part.Staged, low), min(part.Staged+part.High-part.Low, low+n)
				if first >= end {
					continue
				}
				to := device.Region{Memory: memory, Offset: part.Offset + first - part.Staged, Bytes: end - first}
				if err := g.stream.CopyIn(to, stage[first-low:end-low]); err != nil {
					return read, located(err, module(p.Lowered.Graph.Values[part.Value].Weight.Name), "load")
				}
			}
			if err := g.stream.Sync(ctx); err != nil { // the host memory is filled again
				return read, err
			}
			at += n
		}
	}
	return read, nil
}
