package ptx

// What tensor cores compute with, and what fills shared memory for them.

// fragments are the registers of a matrix product's operands in a thread.
type fragments struct {
	d       []register
	a, b, c []int
	k       int // of m16n8k…
	value   func(word uint32, half int) float64
	perWord int // elements in a word
}

// buildMultiply makes mma of 16×8 results with 32-bit sums.
func buildMultiply(c *compiler, f *form, s *statement) action {
	if f.take("m8n8k4") {
		return buildQuads(c, f, s)
	}
	if !f.take("sync") || !f.take("aligned") || !f.take("row") || !f.take("col") || len(f.types) != 4 ||
		f.types[0] != (scalar{'f', 32}) || f.types[3] != f.types[0] || f.types[1] != f.types[2] {
		return nil
	}
	args := c.args(s, 4)
	g := fragments{d: c.registers(args[0]), a: c.sources(args[1]), b: c.sources(args[2]), c: c.sources(args[3])}
	switch kind := f.types[1]; {
	case kind.integer():
		return nil
	case kind.bits == 16 && f.take("m16n8k16"):
		g.k, g.perWord = 16, 2
		g.value = func(word uint32, half int) float64 { return widened(kind, uint64(word>>(16*half))) }
	case kind.bits == 16 && f.take("m16n8k8"):
		g.k, g.perWord = 8, 2
		g.value = func(word uint32, half int) float64 { return widened(kind, uint64(word>>(16*half))) }
	case kind.kind == 't' && f.take("m16n8k8"):
		// The lower bits do not reach the multipliers.
		g.k, g.perWord = 8, 1
		g.value = func(word uint32, _ int) float64 { return float64(float32of(uint64(word &^ 0x1fff))) }
	default:
		return nil
	}
	wantA := 16 * g.k / g.perWord / warpThreads
	if len(g.d) != 4 || len(g.c) != 4 || len(g.a) != wantA || len(g.b) != wantA/2 {
		c.fail("%s of %d, %d, %d and %d registers", s.op, len(g.d), len(g.a), len(g.b), len(g.c))
	}
	return c.together(&exchange{name: s.op, aligned: true, run: g.multiply}, -1)
}

// multiply computes a warp's product. In a thread, words of the left operand are of row lane/4 and of that + 8 in turn, of
// columns lane%4 words on, then those 4 words further; those of the right one of column lane/4; sums of row lane/4, then
// that + 8, columns twice lane%4 and the next.
func (g *fragments) multiply(list []*thread) {
	var a [16][16]float64
	var b [16][8]float64
	for _, t := range list {
		lane := t.id % warpThreads
		row, column := lane/4, lane%4
		for i, slot := range g.a {
			for half := range g.perWord {
				a[row+8*(i%2)][(column+4*(i/2))*g.perWord+half] = g.value(uint32(t.r[slot]), half)
			}
		}
		for i, slot := range g.b {
			for half := range g.perWord {
				b[(column+4*i)*g.perWord+half][row] = g.value(uint32(t.r[slot]), half)
			}
		}
	}
	for _, t := range list {
		lane := t.id % warpThreads
		var sums [4]float32
		for i, slot := range g.c {
			row, column := lane/4+8*(i/2), lane%4*2+i%2
			total := float64(float32of(t.r[slot]))
			for k := range g.k {
				total += a[row][k] * b[k][column]
			}
			sums[i] = float32(total)
		}
		for i, r := range g.d {
			t.r[r.slot] = bits32(sums[i])
		}
	}
}

// buildLoadMatrix makes ldmatrix: matrices of 8×8 halves, whose rows' addresses are those of 8 lanes each.
func buildLoadMatrix(c *compiler, f *form, s *statement) action {
	if !f.take("sync") || !f.take("aligned") || !f.take("m8n8") || len(f.types) != 1 || f.types[0].bits != 16 {
		return nil
	}
	n := 0
	for count, flag := range map[int]string{1: "x1", 2: "x2", 4: "x4"} {
		if f.take(flag) {
			n = count
		}
	}
	turned := f.take("trans")
	in := f.space()
	if n == 0 || in != inShared && in != inGeneric {
		return nil
	}
	to, base, offset := c.loaded(s, n)
	return c.together(&exchange{name: s.op, aligned: true, run: func(list []*thread) {
		for m, r := range to {
			var rows [8][8]uint64
			for i := range rows {
				t := list[m*8+i]
				p := t.bytes(in, t.r[base]+offset, 16, toRead)
				if p == nil {
					return
				}
				for k := range rows[i] {
					rows[i][k] = get(p[2*k : 2*k+2])
				}
			}
			for lane, t := range list {
				i, k := lane/4, lane%4*2
				if turned {
					t.r[r.slot] = rows[k][i] | rows[k+1][i]<<16
				} else {
					t.r[r.slot] = rows[i][k] | rows[i][k+1]<<16
				}
			}
		}
	}}, -1)
}

// A transfer is a copy to shared memory that is under way. What it brings was read when it began; it is there when its
// thread has waited for it.
type transfer struct {
	to   int
	data [16]byte
	n    int
}

// Copies are a thread's transfers: groups that were closed, the oldest first, and those that no group has yet.
type copies struct {
	groups [][]transfer
	open   []transfer
}

// maxTransfers bounds what a thread has under way.
const maxTransfers = 1 << 12

// buildCopy makes cp.async and what waits for it.
func buildCopy(c *compiler, f *form, s *statement) action {
	if !f.take("async") {
		return nil
	}
	switch {
	case f.take("bulk"):
		return buildBulk(c, f, s)
	case f.take("commit_group"):
		c.args(s, 0)
		return func(t *thread) {
			t.copies.groups = append(t.copies.groups, t.copies.open)
			t.copies.open = nil
			if len(t.copies.groups) > maxTransfers {
				t.fault(TooLong, "more than %d groups of copies", maxTransfers)
			}
		}
	case f.take("wait_all"):
		c.args(s, 0)
		return func(t *thread) {
			t.arrive(0)
			t.land(t.copies.open)
			t.copies.open = nil
		}
	case f.take("wait_group"):
		o := c.args(s, 1)[0]
		if o.kind != isNumber || o.bits > 1024 {
			c.fail("%s: the number of groups must be a constant", s.op)
		}
		return func(t *thread) { t.arrive(int(o.bits)) }
	}
	return buildTransfer(c, f, s)
}

// buildTransfer makes a copy of cp.async.
func buildTransfer(c *compiler, f *form, s *statement) action {
	direct := f.take("cg")
	if !direct && !f.take("ca") {
		return nil
	}
	if !f.take("shared") && !f.take("shared::cta") || !f.take("global") {
		return nil
	}
	for _, hint := range []string{"L2::64B", "L2::128B", "L2::256B"} {
		f.take(hint)
	}
	if len(s.args) != 3 && len(s.args) != 4 {
		c.fail("%s has %d operands", s.op, len(s.args))
	}
	dst, dstOffset := c.address(s.args[0])
	src, srcOffset := c.address(s.args[1])
	n := s.args[2].bits
	if s.args[2].kind != isNumber || n != 4 && n != 8 && n != 16 || direct && n != 16 {
		c.fail("%s: 4, 8 or 16 bytes are copied, past the first cache 16", s.op)
	}
	given := c.src(s.args[len(s.args)-1])
	return func(t *thread) {
		x := transfer{to: int(t.r[dst] + dstOffset), n: int(n)}
		count := min(uint64(uint32(t.r[given])), n)
		if len(t.copies.open) >= maxTransfers {
			t.fault(TooLong, "more than %d copies in a group", maxTransfers)
			return
		}
		from := t.r[src] + srcOffset
		if from&(n-1) != 0 {
			t.fault(Misaligned, "%d bytes from %#x", n, from)
			return
		}
		// What is not copied is zero, and is not read. Whole words are, of which there can be three.
		for at := uint64(0); at < count; {
			step := uint64(1)
			for _, k := range []uint64{16, 8, 4, 2} {
				if step == 1 && at%k == 0 && at+k <= count {
					step = k
				}
			}
			p := t.bytes(inGlobal, from+at, int(step), toRead)
			if p == nil {
				return
			}
			copy(x.data[at:], p)
			at += step
		}
		if t.bytes(inShared, t.r[dst]+dstOffset, int(n), toWrite) == nil {
			return
		}
		for i := x.to; i < x.to+x.n; i++ {
			t.b.shared.states[i] = coming
		}
		t.copies.open = append(t.copies.open, x)
	}
}

// arrive waits until no more than some groups are under way.
func (t *thread) arrive(most int) {
	for len(t.copies.groups) > most {
		t.land(t.copies.groups[0])
		t.copies.groups = t.copies.groups[1:]
	}
}

// land brings copies to where they go. They are the thread's writes, as of now.
func (t *thread) land(list []transfer) {
	w := &t.b.shared
	for i := range list {
		x := &list[i]
		for k := x.to; k < x.to+x.n; k++ {
			w.states[k] = written
		}
		if !t.note(w, x.to, x.n, toWrite) {
			return
		}
		copy(w.data[x.to:], x.data[:x.n])
	}
}
