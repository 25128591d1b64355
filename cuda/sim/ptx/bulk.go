package ptx

// A bulk is a copy of a box of a tensor to shared memory that is under way. It is made as late as may be, or where the
// launch's seed says, and read only then.
type bulk struct {
	t        *thread
	line     int
	m        *mbarrier
	phase    uint32
	to       int
	box      TensorMap
	at       [5]int64 // where the box begins
	elements int      // bytes of one
}

// maxBulks bounds what a block has under way.
const maxBulks = 1 << 10

// bytes is what the copy writes, and the mbarrier counts.
func (x *bulk) bytes() int {
	n := x.elements
	for _, d := range x.box.Box[:x.box.Rank] {
		n *= int(d)
	}
	return n
}

// buildBulk makes cp.async.bulk.tensor of one or two dimensions, from global memory, in tiles.
func buildBulk(c *compiler, f *form, s *statement) action {
	rank := 0
	for n, name := range []string{"1d", "2d"} {
		if f.take(name) {
			rank = n + 1
		}
	}
	f.take("tile")
	shared := f.take("shared::cluster") || f.take("shared::cta")
	if !f.take("tensor") || rank == 0 || !shared || !f.take("global") || !f.take("mbarrier::complete_tx::bytes") {
		return nil
	}
	c.wants(s, 90, false)
	args := c.args(s, 3)
	dst, dstOffset := c.address(args[0])
	if args[1].kind != isAddress || len(args[1].args) != 2 {
		c.fail("%s: a map and where the box begins must be here", s.op)
	}
	source, begins := c.src(args[1].args[0]), c.sources(args[1].args[1])
	bar, barOffset := c.address(args[2])
	if len(begins) != rank {
		c.fail("%s: %d places of a box's begin", s.op, len(begins))
	}
	c.waits, c.async = true, true
	return func(t *thread) {
		x := &bulk{t: t, line: t.line()}
		if x.m = t.barrier(inShared, t.r[bar]+barOffset); x.m == nil {
			return
		}
		for i, slot := range begins {
			x.at[i] = int64(int32(t.r[slot]))
		}
		t.bring(x, t.r[source], t.r[dst]+dstOffset, rank)
	}
}

// tensorMap reads a map in parameters or in global memory.
func (t *thread) tensorMap(address uint64) (m TensorMap, ok bool) {
	if address&63 != 0 {
		t.fault(Misaligned, "a tensor map at %#x", address)
		return m, false
	}
	var all [TensorMapBytes]byte
	for i := 0; i < len(all); i += 64 {
		p := t.bytes(inGeneric, address+uint64(i), 64, toRead)
		if p == nil {
			return m, false
		}
		copy(all[i:], p)
	}
	if m, ok = decodeMap(all[:]); !ok {
		t.fault(BadMap, "what lies at %#x is no tensor map", address)
	}
	return m, ok
}

// bring begins a copy.
func (t *thread) bring(x *bulk, source, to uint64, rank int) {
	m, ok := t.tensorMap(source)
	if !ok {
		return
	}
	x.box, x.elements, x.phase = m, mapTypes[m.Type], x.m.phase
	inner, span := int(m.Box[0])*x.elements, swizzleSpans[m.Swizzle]
	switch {
	case int(m.Rank) != rank:
		t.fault(BadMap, "the map is of %d dimensions, the copy of %d", m.Rank, rank)
	case m.Interleave != 0 || m.Fill != 0 || m.Steps[0] > 1 || m.Steps[1] > 1:
		t.fault(BadMap, "maps with interleaved lines, steps or filled with NaN are not modelled")
	case span != 0 && inner != span:
		t.fault(BadMap, "lines of %d bytes, swizzled as those of %d: where they lie is not documented", inner, span)
	case to&127 != 0:
		t.fault(Misaligned, "a box copied to %#x", to)
	case len(t.b.async.pending) >= maxBulks:
		t.fault(TooLong, "more than %d copies under way", maxBulks)
	case !x.m.fenced && !knows(t.view.fenced, x.m.maker, x.m.made):
		t.fault(Race, "the mbarrier at %d was initialised by %s, and no fence.proxy.async lies between that and the copy", x.m.at,
			t.b.actor(x.m.maker))
	case to >= uint64(len(t.b.shared.data)) || x.bytes() > len(t.b.shared.data)-int(to):
		t.fault(OutOfBounds, "%d bytes at %d of %d bytes of shared memory", x.bytes(), to, len(t.b.shared.data))
	default:
		x.to = int(to)
		if t.readsTensor(x) && t.takes(x) {
			t.b.async.pending = append(t.b.async.pending, x)
		}
	}
}

// lines calls do with the runs of bytes that lie in the tensor: where they are in the box, and in global memory.
func (x *bulk) lines(do func(to int, from uint64, n int) bool) {
	m, rows := &x.box, 1
	if m.Rank > 1 {
		rows = int(m.Box[1])
	}
	low, high := max(x.at[0], 0), min(x.at[0]+int64(m.Box[0]), int64(m.Dims[0]))
	for row := range rows {
		line := x.at[1] + int64(row)
		if low >= high || m.Rank > 1 && (line < 0 || line >= int64(m.Dims[1])) {
			continue
		}
		to := (row*int(m.Box[0]) + int(low-x.at[0])) * x.elements
		if !do(to, m.Address+uint64(low)*uint64(x.elements)+uint64(line)*m.Strides[0], int(high-low)*x.elements) {
			return
		}
	}
}

// readsTensor looks whether the launch has the memory that a copy reads, and who wrote it.
func (t *thread) readsTensor(x *bulk) bool {
	x.lines(func(_ int, from uint64, n int) bool {
		w := t.b.find(from, n, false)
		if w == nil {
			t.outside(from, n, toRead)
			return false
		}
		at := int(from - w.base)
		if w.writes && t.note(w, at, n, toRead) {
			for i := at; i < at+n; i++ {
				number := w.history(i).writer & numberMask
				if number != 0 && !knows(t.view.fenced, int(number-1)%t.b.size, w.history(i).wrote) {
					t.fault(Race, "byte %d of an operand is copied, was written by %s, and no fence.proxy.async lies between", i,
						t.b.name(number))
					return false
				}
			}
		}
		return t.state == running
	})
	return t.state == running
}

// takes looks whether shared memory is free for a copy, and has it wait for the copy.
func (t *thread) takes(x *bulk) bool {
	a, states := t.b.async, t.b.shared.states
	for i := x.to; i < x.to+x.bytes(); i++ {
		h := &a.traces[i]
		switch who := int(h.writer&^byAtomic) - 1; {
		case states[i] == coming:
			t.fault(Race, "byte %d of shared memory is copied to, and another copy to it is under way", i)
			return false
		case states[i] == counting:
			t.fault(BadBarrier, "byte %d of shared memory is copied to, and is an mbarrier's", i)
			return false
		case who >= 0 && !t.ordered(who, h.wrote, t.view.seen):
			return t.raceWith(i, who, "written", toWrite)
		case who >= 0 && who < t.b.size && !knows(t.view.fenced, who, h.wrote):
			return t.unfenced(i, who, "copied to")
		}
		for _, r := range h.readers {
			if !t.ordered(int(r.actor), r.tick, t.view.seen) {
				return t.raceWith(i, int(r.actor), "read", toWrite)
			}
		}
		a.readers -= len(h.readers)
		h.readers = h.readers[:0]
		h.writer, h.wrote = uint32(x.m.actor+1), x.phase+1
		states[i] = coming
	}
	return true
}

// ordered reports whether an access was before what the thread does, by itself or as others told.
func (t *thread) ordered(who int, tick uint32, seen []uint32) bool {
	return who == t.id || knows(seen, who, tick)
}

// unfenced ends the launch.
func (t *thread) unfenced(at, who int, now string) bool {
	t.fault(Race, "byte %d of shared memory is %s asynchronously, was written by %s, and no fence.proxy.async lies between", at,
		now, t.b.actor(who))
	return false
}

// land makes a copy.
func (b *block) land(x *bulk) {
	w, span := &b.shared, swizzleSpans[x.box.Swizzle]
	for i := x.to; i < x.to+x.bytes(); i++ {
		w.states[i] = written
		w.data[i] = 0
	}
	x.lines(func(to int, from uint64, n int) bool {
		r := b.find(from, n, false)
		for i, c := range r.data[int(from-r.base):][:n] {
			if at := swizzled(uint64(x.to+to+i), span); at < uint64(len(w.data)) {
				w.data[at] = c
			}
		}
		return true
	})
	switch m := x.m; {
	case !m.live || m.phase != x.phase:
		b.blame(x, "the copy of %d bytes ends after phase %d of the mbarrier at %d: fewer bytes were expected of it", x.bytes(),
			x.phase, m.at)
	case m.bytes-x.bytes() < -maxBarrierCount:
		b.blame(x, "the mbarrier at %d cannot count %d bytes more", m.at, x.bytes())
	default:
		m.bytes -= x.bytes()
		m.advance()
	}
}

// blame ends the launch for a copy.
func (b *block) blame(x *bulk, format string, args ...any) {
	x.t.fault(BadBarrier, format, args...)
	b.fault.Line = x.line
}

// landOne makes one of the copies under way, and reports whether there was one.
func (b *block) landOne() bool {
	a := b.async
	if len(a.pending) == 0 {
		return false
	}
	i := 0
	if b.l.Seed != 0 {
		i = int(a.next() % uint64(len(a.pending)))
	}
	x := a.pending[i]
	a.pending = append(a.pending[:i], a.pending[i+1:]...)
	b.land(x)
	return true
}
