package ptx

// A history is who touched a byte last: threads' numbers from 1 on with marks, and their epochs.
type history struct {
	writer, wrote, reader, read uint32
}

// warpEpochBits are the low bits of an epoch, which bar.warp.sync counts; bar.sync counts those above.
const warpEpochBits = 12

// The marks beside a thread's number in a history.
const (
	// byAtomic writers do not race with each other.
	byAtomic = 1 << 30
	// Readers of which the number is one: of its warp, of its block. byAll are of several blocks, without a number.
	byWarp  = 1 << 29
	byBlock = 1 << 30
	byAll   = 1 << 31

	numberMask = 1<<29 - 1
)

// block returns which block a numbered thread is in, warp which warp of it.
func (r *run) block(number uint32) int { return int(number-1) / r.size }
func (r *run) warp(number uint32) int  { return int(number-1) % r.size / warpThreads }

// unordered reports whether no barrier lies between another's access and the thread's.
func (t *thread) unordered(who, epoch uint32) bool {
	number := who & numberMask
	if who&byAll != 0 || t.b.block(number) != t.b.number {
		return true
	}
	if epoch>>warpEpochBits != t.epoch>>warpEpochBits {
		return false
	}
	if who&byBlock != 0 {
		return true
	}
	if t.b.warp(number) == t.id/warpThreads && epoch != t.epoch {
		return false
	}
	return who&byWarp != 0 || number != t.number()
}

func (t *thread) number() uint32 { return uint32(t.b.number*t.b.size+t.id) + 1 }

// note looks for a race, and keeps who touches bytes.
func (t *thread) note(w *window, at, n int, why purpose) bool {
	if t.b.async != nil {
		if w.states != nil {
			return t.noteShared(at, n, why)
		}
		return t.noteGlobal(w, at, n, why)
	}
	me := t.number()
	for i := at; i < at+n; i++ {
		h := w.history(i)
		if h.writer != 0 && h.writer != me && !(why == toUpdate && h.writer&byAtomic != 0) &&
			t.unordered(h.writer&^byAtomic, h.wrote) {
			return t.race(w, i, h.writer, "written", why)
		}
		if why == toRead {
			t.noteReader(h, me)
			continue
		}
		if h.reader != 0 && h.reader != me && t.unordered(h.reader, h.read) {
			return t.race(w, i, h.reader, "read", why)
		}
		h.writer, h.wrote = me, t.epoch
		if why == toUpdate {
			h.writer |= byAtomic
		}
	}
	return true
}

// noteReader adds a reader of a byte to those that no barrier parts from it.
func (t *thread) noteReader(h *history, me uint32) {
	number := h.reader & numberMask
	switch {
	case h.reader == 0 || h.reader == me:
		h.reader, h.read = me, t.epoch
	case h.reader == byAll:
	case t.b.block(number) != t.b.number:
		h.reader = byAll
	case h.read>>warpEpochBits != t.epoch>>warpEpochBits:
		h.reader, h.read = me, t.epoch
	case h.reader&byBlock != 0:
	case t.b.warp(number) != t.id/warpThreads:
		h.reader |= byBlock
	case h.read != t.epoch:
		h.reader, h.read = me, t.epoch
	case number != me:
		h.reader |= byWarp
	}
}

// race ends the launch.
func (t *thread) race(w *window, at int, who uint32, was string, why purpose) bool {
	now := map[purpose]string{toRead: "read", toWrite: "written", toUpdate: "updated"}[why]
	other := "threads of several blocks"
	if who&byAll == 0 {
		other = t.b.name(who & numberMask)
	}
	where := "of shared memory"
	if w.states == nil {
		where = "of an operand"
	}
	t.fault(Race, "byte %d %s is %s, and was %s by %s with no barrier in between", at, where, now, was, other)
	return false
}
