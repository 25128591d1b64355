package ptx

import (
	"fmt"
	"slices"
)

// maxBarrierCount is the most arrivals, and bytes, that an mbarrier counts.
const maxBarrierCount = 1<<20 - 1

// maxBarriers bounds the mbarriers of a block.
const maxBarriers = 1 << 10

// An mbarrier lies in shared memory, counts arrivals and bytes that are copied, and goes to its next phase when
// none is missing.
type mbarrier struct {
	at, actor         int
	live              bool
	expected, missing int // arrivals
	bytes             int // that are still to be copied
	phase             uint32
	maker             int // the thread that initialised it, when
	made              uint32
	fenced            bool // by a fence for it alone
	// gathered is what those know that arrived in the phase, done what all knew of phases that are over.
	gathered, done view
}

// A try is a wait that was not over.
type try struct {
	pc, at int
	phase  uint32
}

// buildBarrierObject makes mbarrier, whose objects are opaque: their bytes are not kept as a GPU does.
func buildBarrierObject(c *compiler, f *form, s *statement) action {
	op := ""
	for _, name := range []string{"init", "inval", "arrive", "expect_tx", "complete_tx", "try_wait", "test_wait"} {
		if op == "" && f.take(name) {
			op = name
		}
	}
	expects := op == "arrive" && f.take("expect_tx")
	if op == "arrive" && f.take("no_complete") || op == "" || op == "complete_tx" {
		return nil
	}
	parity := f.take("parity")
	for _, order := range []string{"release", "acquire", "relaxed", "cta"} {
		f.take(order)
	}
	in := f.space()
	if in != inShared && in != inGeneric || len(f.types) > 1 || op != "expect_tx" && len(f.types) == 0 ||
		len(f.types) == 1 && f.types[0] != (scalar{'b', 64}) || parity && op != "try_wait" && op != "test_wait" {
		return nil
	}
	if op == "try_wait" || op == "expect_tx" || expects {
		c.wants(s, 90, false)
	}
	c.wants(s, 80, false)
	c.waits, c.async = true, true
	switch op {
	case "init":
		args := c.args(s, 2)
		base, offset := c.address(args[0])
		count := c.src(args[1])
		return func(t *thread) { t.makeBarrier(in, t.r[base]+offset, uint32(t.r[count])) }
	case "inval":
		base, offset := c.address(c.args(s, 1)[0])
		return func(t *thread) {
			if m := t.barrier(in, t.r[base]+offset); m != nil {
				m.live = false
				for i := m.at; i < m.at+8; i++ {
					t.b.shared.states[i] = nothing
					t.b.async.traces[i] = trace{writer: uint32(t.id + 1), wrote: t.tick}
				}
			}
		}
	case "expect_tx":
		args := c.args(s, 2)
		base, offset := c.address(args[0])
		bytes := c.src(args[1])
		return func(t *thread) {
			if m := t.barrier(in, t.r[base]+offset); m != nil {
				t.expect(m, uint32(t.r[bytes]))
			}
		}
	case "arrive":
		return buildArrive(c, s, in, expects)
	}
	return buildWait(c, s, in, parity, op == "try_wait")
}

// buildArrive makes mbarrier.arrive, which gives the phase that it counts for as the state.
func buildArrive(c *compiler, s *statement, in space, expects bool) action {
	if len(s.args) != 2 && len(s.args) != 3 || expects && len(s.args) != 3 {
		c.fail("%s has %d operands", s.op, len(s.args))
	}
	d := c.dst(s.args[0]).slot
	base, offset := c.address(s.args[1])
	count := c.constant(1)
	if len(s.args) == 3 {
		count = c.src(s.args[2])
	}
	return func(t *thread) {
		m := t.barrier(in, t.r[base]+offset)
		if m == nil {
			return
		}
		n := uint32(t.r[count])
		if expects {
			if !t.expect(m, n) {
				return
			}
			n = 1
		}
		if n < 1 || int64(n) > int64(m.missing) {
			t.fault(BadBarrier, "%d arrivals at the mbarrier at %d, of whose %d in phase %d only %d are missing", n,
				m.at,
				m.expected, m.phase, m.missing)
			return
		}
		t.r[d] = uint64(m.phase)
		t.publish(&m.gathered)
		m.missing -= int(n)
		m.advance()
	}
}

// buildWait makes mbarrier.try_wait and mbarrier.test_wait. The first time that a phase is not over, try_wait says
// so, as it may; the next time the thread rests until it is.
func buildWait(c *compiler, s *statement, in space, parity, rests bool) action {
	if len(s.args) != 3 && (len(s.args) != 4 || !rests) {
		c.fail("%s has %d operands", s.op, len(s.args))
	}
	d := c.dst(s.args[0]).slot
	base, offset := c.address(s.args[1])
	which := c.src(s.args[2])
	return func(t *thread) {
		m := t.barrier(in, t.r[base]+offset)
		if m == nil {
			return
		}
		over := uint64(m.phase) > t.r[which]
		if parity {
			if t.r[which]&0xffffffff > 1 {
				t.fault(BadBarrier, "a parity of %d", uint32(t.r[which]))
				return
			}
			over = uint64(m.phase&1) != t.r[which]&1
		}
		now := try{t.pc, m.at, m.phase}
		switch {
		case over:
			t.r[d], t.tried = 1, try{}
			t.view.join(&m.done)
		case rests && t.tried == now:
			t.state, t.rests = atWait, m
			t.pc--
		default:
			t.r[d], t.tried = 0, now
			if !rests {
				t.state = yielded
			}
		}
	}
}

// inBlock returns the place of an address in shared memory.
func inBlock(in space, address uint64) (int, bool) {
	if in == inGeneric {
		if address&^uint64(windowMask) != sharedBase {
			return 0, false
		}
		address &= windowMask
	}
	return int(address), address < maxSharedBytes
}

// makeBarrier initialises an mbarrier.
func (t *thread) makeBarrier(in space, address uint64, count uint32) {
	at, ok := inBlock(in, address)
	if !ok {
		t.fault(OutOfBounds, "an mbarrier at %#x", address)
		return
	}
	if count < 1 || count > maxBarrierCount {
		t.fault(BadBarrier, "an mbarrier for %d arrivals", count)
		return
	}
	if t.bytes(inShared, uint64(at), 8, toWrite) == nil {
		return
	}
	a := t.b.async
	m := a.barriers[at]
	if m == nil {
		if len(a.names) >= maxBarriers {
			t.fault(TooLong, "more than %d mbarriers", maxBarriers)
			return
		}
		m = &mbarrier{at: at, actor: a.actors}
		a.actors++
		a.names = append(a.names, m)
		a.barriers[at] = m
	}
	// A barrier that was there before is over: phases have the numbers of one of even parity on.
	m.phase += m.phase & 1
	m.live, m.expected, m.missing, m.bytes = true, int(count), int(count), 0
	m.maker, m.made, m.fenced = t.id, t.tick, false
	m.gathered.forget()
	for i := at; i < at+8; i++ {
		t.b.shared.states[i] = counting
	}
}

// barrier returns the mbarrier at an address, which the thread knows of, or nil after a fault.
func (t *thread) barrier(in space, address uint64) *mbarrier {
	at, ok := inBlock(in, address)
	if ok && at&7 != 0 {
		t.fault(Misaligned, "an mbarrier at %#x", address)
		return nil
	}
	m := t.b.async.barriers[at]
	if !ok || m == nil || !m.live {
		t.fault(BadBarrier, "there is no mbarrier at %#x", address)
		return nil
	}
	if m.maker != t.id && !knows(t.view.seen, m.maker, m.made) {
		t.fault(Race, "the mbarrier at %d is used, and was initialised by %s with nothing that orders them", at,
			t.b.actor(m.maker))
		return nil
	}
	return m
}

// expect adds bytes to those that are to be copied in a phase.
func (t *thread) expect(m *mbarrier, bytes uint32) bool {
	if bytes > maxBarrierCount || m.bytes+int(bytes) > maxBarrierCount {
		t.fault(BadBarrier, "the mbarrier at %d cannot count %d bytes and %d more", m.at, m.bytes, bytes)
		return false
	}
	m.bytes += int(bytes)
	return true
}

// advance goes to the next phase where nothing is missing.
func (m *mbarrier) advance() {
	if m.missing != 0 || m.bytes != 0 {
		return
	}
	m.phase++
	m.missing = m.expected
	m.done.join(&m.gathered)
	m.done.note(m.actor, m.phase)
	m.gathered.forget()
}

// rest lets the block go on in which threads rest at mbarriers or gave up their turn, or ends it. It reports
// whether there are any: copies are made only once they keep someone from going on.
func (b *block) rest() bool {
	rests := slices.ContainsFunc(b.threads, func(t *thread) bool { return t.state == atWait || t.state == yielded })
	if rests && !b.wake() && !b.landOne() && !b.resume() {
		b.stuck()
	}
	return rests
}

// wake lets threads go on that rest until a phase is over, and reports whether there were any.
func (b *block) wake() bool {
	went := false
	for _, t := range b.threads {
		if t.state == atWait && (!t.rests.live || t.rests.phase != t.tried.phase) {
			t.state, went = running, true
		}
	}
	return went
}

// maxPolls bounds how often threads are told that a phase is not over while nothing else happens.
const maxPolls = 1 << 16

// resume lets threads go on that gave up their turn, and reports whether there were any.
func (b *block) resume() bool {
	went := false
	for _, t := range b.threads {
		if t.state != yielded {
			continue
		}
		t.state, went = running, true
		if b.async.polls++; b.async.polls > maxPolls {
			t.fault(BadBarrier, "the thread polls the mbarrier at %d for ever", t.tried.at)
		}
	}
	return went
}

// initialised returns the mbarriers that the thread made.
func (t *thread) initialised() (list []*mbarrier) {
	if t.b.async == nil {
		return nil
	}
	for _, m := range t.b.async.names {
		if m.live && m.maker == t.id {
			list = append(list, m)
		}
	}
	return list
}

// ended looks for what a block that is over left.
func (b *block) ended() {
	if b.async != nil && b.fault == nil && len(b.async.pending) > 0 {
		x := b.async.pending[0]
		b.blame(x, "the block ends, and nobody waited for the copy")
	}
}

// stuck ends the launch of a block in which threads rest at mbarriers for ever.
func (b *block) stuck() {
	var first *thread
	text, told := "", make(map[*mbarrier]bool)
	for _, t := range b.threads {
		if m := t.rests; t.state == atWait && !told[m] && len(told) < 4 {
			if told[m] = true; first == nil {
				first, text = t, "the thread waits for ever for "
			} else {
				text += fmt.Sprintf("; thread %v for ", t.at)
			}
			text += fmt.Sprintf("phase %d, of parity %d, of the mbarrier at %d: %d of %d arrivals and %d bytes are missing", m.phase,
				m.phase&1, m.at, m.missing, m.expected, m.bytes)
		}
	}
	first.pc++
	first.fault(BadBarrier, "%s", text)
}
