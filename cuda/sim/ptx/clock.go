package ptx

import "strconv"

// Barriers that only some threads wait at (mbarrier) order what barriers of whole blocks do not, so kernels
// that have them, bulk copies or products of warpgroups are watched by vector clocks: a view says of every actor
// up to which of its ticks another knows that it is done. Actors are a block's threads, then its warpgroups, whose
// products read shared memory by themselves, then its mbarriers, each for the copies that it counts: their ticks
// are groups of products and phases.

// A view is what an actor knows of others: seen in any way, and fenced where a fence for the asynchronous proxy
// lies between.
type view struct {
	seen, fenced []uint32
}

// knows reports whether a list covers a tick of an actor.
func knows(list []uint32, actor int, tick uint32) bool {
	return actor < len(list) && list[actor] >= tick
}

// learn adds what another list covers.
func learn(to, from []uint32) []uint32 {
	for len(to) < len(from) {
		to = append(to, 0)
	}
	for i, tick := range from {
		to[i] = max(to[i], tick)
	}
	return to
}

// note sets what is known of an actor.
func (v *view) note(actor int, tick uint32) {
	for len(v.seen) <= actor {
		v.seen = append(v.seen, 0)
	}
	v.seen[actor] = max(v.seen[actor], tick)
}

func (v *view) join(with *view) {
	v.seen, v.fenced = learn(v.seen, with.seen), learn(v.fenced, with.fenced)
}

func (v *view) forget() {
	clear(v.seen)
	clear(v.fenced)
}

// publish lets another view know what the thread has done so far.
func (t *thread) publish(to *view) {
	t.view.note(t.id, t.tick)
	to.join(&t.view)
	t.tick++
}

// fence has what the thread did or knows of be done for the asynchronous proxy too.
func (t *thread) fence() {
	t.view.note(t.id, t.tick)
	t.view.fenced = learn(t.view.fenced, t.view.seen)
	t.tick++
}

// meetViews tells threads of each other.
func meetViews(list []*thread) {
	var all view
	for _, t := range list {
		t.publish(&all)
	}
	for _, t := range list {
		t.view.join(&all)
	}
}

// An access is an actor's, at a tick.
type access struct {
	actor int32
	tick  uint32
}

// A trace is who touched a byte of shared memory last.
type trace struct {
	writer, wrote uint32 // actor + 1, perhaps byAtomic
	readers       []access
}

// maxReaders bounds how many readers are remembered of all bytes of a block.
const maxReaders = 1 << 23

// An asynchrony is what a block has beside its threads, and who touched its shared memory.
type asynchrony struct {
	traces   []trace
	readers  int
	barriers map[int]*mbarrier
	actors   int // threads, warpgroups and mbarriers so far
	names    []*mbarrier
	pending  []*bulk
	random   uint64
	syncs    uint32
	polls    int
}

const warpgroupThreads = 128

// begin readies for a block.
func (b *block) begin() {
	groups := (b.size + warpgroupThreads - 1) / warpgroupThreads
	a := b.async
	if a == nil {
		a = &asynchrony{traces: make([]trace, len(b.shared.data)), random: b.l.Seed}
		b.async = a
	}
	for i := range a.traces {
		a.traces[i] = trace{readers: a.traces[i].readers[:0]}
	}
	a.readers, a.barriers, a.names, a.pending, a.syncs, a.polls = 0, make(map[int]*mbarrier), nil, nil, 0, 0
	a.actors = b.size + groups
}

// next is a number of a sequence that the launch's seed begins.
func (a *asynchrony) next() uint64 {
	a.random += 0x9e3779b97f4a7c15
	x := a.random
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// actor names one.
func (b *block) actor(i int) string {
	switch groups := (b.size + warpgroupThreads - 1) / warpgroupThreads; {
	case i < b.size:
		return b.name(uint32(b.number*b.size+i) + 1)
	case i < b.size+groups:
		return "products of warpgroup " + strconv.Itoa(i-b.size)
	default:
		return "a copy that the mbarrier at " + strconv.Itoa(b.async.names[i-b.size-groups].at) + " counts"
	}
}

// noteShared looks for a race with what others did to shared memory, and keeps what the thread does.
func (t *thread) noteShared(at, n int, why purpose) bool {
	a := t.b.async
	for i := at; i < at+n; i++ {
		if t.b.shared.states[i] == coming {
			t.fault(Race, "byte %d of shared memory is still being copied to", i)
			return false
		}
		h := &a.traces[i]
		who := int(h.writer&^byAtomic) - 1
		if who >= 0 && who != t.id && !(why == toUpdate && h.writer&byAtomic != 0) &&
			!knows(t.view.seen, who, h.wrote) {
			return t.raceWith(i, who, "written", why)
		}
		if why == toRead {
			if !t.read(h, t.id, t.tick, t.view.seen) {
				return false
			}
			continue
		}
		for _, r := range h.readers {
			if int(r.actor) != t.id && !knows(t.view.seen, int(r.actor), r.tick) {
				return t.raceWith(i, int(r.actor), "read", why)
			}
		}
		a.readers -= len(h.readers)
		h.writer, h.wrote, h.readers = uint32(t.id+1), t.tick, h.readers[:0]
		if why == toUpdate {
			h.writer |= byAtomic
		}
	}
	return true
}

// read adds a reader of a byte to those that it does not know of.
func (t *thread) read(h *trace, actor int, tick uint32, seen []uint32) bool {
	kept := h.readers[:0]
	for _, r := range h.readers {
		if int(r.actor) != actor && !knows(seen, int(r.actor), r.tick) {
			kept = append(kept, r)
		}
	}
	t.b.async.readers += len(kept) + 1 - len(h.readers)
	h.readers = append(kept, access{int32(actor), tick})
	if t.b.async.readers > maxReaders {
		t.fault(TooLong, "more than %d readers of bytes of shared memory", maxReaders)
		return false
	}
	return true
}

// raceWith ends the launch.
func (t *thread) raceWith(at, who int, was string, why purpose) bool {
	now := map[purpose]string{toRead: "read", toWrite: "written", toUpdate: "updated"}[why]
	t.fault(Race, "byte %d of shared memory is %s, and was %s by %s with nothing that orders them", at, now, was,
		t.b.actor(who))
	return false
}

// noteGlobal is note for global memory in kernels with views. Of several readers it is known only whether a
// barrier of the whole block was since.
func (t *thread) noteGlobal(w *window, at, n int, why purpose) bool {
	me, a := t.number(), t.b.async
	for i := at; i < at+n; i++ {
		h := w.history(i)
		if h.writer != 0 && h.writer != me && !(why == toUpdate && h.writer&byAtomic != 0) &&
			t.apart(h.writer&^byAtomic, h.wrote) {
			return t.race(w, i, h.writer, "written", why)
		}
		apart := h.reader != 0 && h.reader != me && t.apart(h.reader, h.read)
		switch {
		case why == toRead && apart && h.reader&byAll == 0 && t.b.block(h.reader&numberMask) == t.b.number:
			h.reader, h.read = me|byBlock, a.syncs
		case why == toRead && apart:
			h.reader = byAll
		case why == toRead:
			h.reader, h.read = me, t.tick
		case apart:
			return t.race(w, i, h.reader, "read", why)
		default:
			h.writer, h.wrote = me, t.tick
			if why == toUpdate {
				h.writer |= byAtomic
			}
		}
	}
	return true
}

// apart reports whether nothing orders another's access to global memory and the thread's.
func (t *thread) apart(who, tick uint32) bool {
	number := who & numberMask
	if who&byAll != 0 || t.b.block(number) != t.b.number {
		return true
	}
	if who&byBlock != 0 {
		return tick == t.b.async.syncs
	}
	return number != t.number() && !knows(t.view.seen, int(number-1)%t.b.size, tick)
}
