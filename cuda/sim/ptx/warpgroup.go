package ptx

import "strconv"

// A groupProduct is wgmma.mma_async of 64×columns results with 32-bit sums and 16 terms of two bytes, which a
// warpgroup computes.
type groupProduct struct {
	columns   int
	kind      scalar
	d         []register
	a         []int // the registers of the left factor, or none
	aAt, bAt  int   // descriptors
	adds      int
	negate    bool // one factor's sign
	turnA     bool // the factors' columns, not terms, lie behind each other
	turnB     bool
	registers []int32 // of d, then of a, as marks are numbered
	shape     uint32
}

const groupRows, groupTerms = 64, 16

// buildGroup makes wgmma.
func buildGroup(c *compiler, f *form, s *statement) action {
	op := ""
	for _, name := range []string{"mma_async", "fence", "commit_group", "wait_group"} {
		if f.take(name) {
			op = name
		}
	}
	if !f.take("sync") || !f.take("aligned") {
		return nil
	}
	c.wants(s, 90, true)
	c.waits, c.async = true, true
	together := func(do func(t *thread)) action {
		return c.together(&exchange{name: s.op, aligned: true, run: func(list []*thread) {
			for _, t := range list {
				do(t)
			}
		}}, -1)
	}
	switch op {
	case "mma_async":
		return buildGroupProduct(c, f, s)
	case "fence":
		c.args(s, 0)
		return together(func(t *thread) { t.groups.fences++ })
	case "commit_group":
		c.args(s, 0)
		return together(func(t *thread) { t.groups.closed++ })
	case "wait_group":
		o := c.args(s, 1)[0]
		if o.kind != isNumber || o.bits > 1<<20 {
			c.fail("%s: the number of groups must be a constant", s.op)
		}
		most := uint32(o.bits)
		return together(func(t *thread) {
			if t.groups.closed > most {
				t.groups.done = max(t.groups.done, t.groups.closed-most)
			}
			t.view.note(t.b.size+t.id/warpgroupThreads, t.groups.done)
		})
	}
	return nil
}

// buildGroupProduct makes wgmma.mma_async.
func buildGroupProduct(c *compiler, f *form, s *statement) action {
	g := &groupProduct{}
	for n := 8; n <= 256; n += 8 {
		if f.take(shapeName(n)) {
			g.columns = n
		}
	}
	if g.columns == 0 || len(f.types) != 3 || f.types[0] != (scalar{'f', 32}) || f.types[1] != f.types[2] ||
		f.types[1].bits != 16 || f.types[1].integer() {
		return nil
	}
	g.kind, g.shape = f.types[1], uint32(g.columns)
	if len(s.args) != 8 && len(s.args) != 7 {
		c.fail("%s has %d operands", s.op, len(s.args))
	}
	g.d = c.registers(s.args[0])
	rest := s.args[2:]
	if s.args[1].kind == isVector {
		g.a = c.sources(s.args[1])
	} else {
		g.aAt = c.src(s.args[1])
	}
	g.bAt, g.adds = c.src(rest[0]), c.src(rest[1])
	flags := rest[2:]
	if len(g.d) != g.columns/2 || (len(g.a) == 4) != (len(flags) == 3) || len(g.a) != 0 && len(g.a) != 4 {
		c.fail("%s of %d and %d registers and %d operands", s.op, len(g.d), len(g.a), len(s.args))
	}
	for i, o := range flags {
		negative := o.bits == 1<<64-1
		if o.kind != isNumber || i < 2 && o.bits != 1 && !negative || i >= 2 && o.bits > 1 {
			c.fail("%s: signs are 1 or -1, turns 0 or 1", s.op)
		}
		if i < 2 {
			g.negate = g.negate != negative
		}
	}
	if len(g.a) == 0 {
		g.turnA = flags[2].bits == 1
	}
	g.turnB = flags[len(flags)-1].bits == 1
	c.groups = append(c.groups, g)
	return c.together(&exchange{name: s.op, aligned: true, group: true, run: g.multiply}, -1)
}

// exchangeGroup lets a warpgroup go on that waits for its threads, if they are all there.
func (b *block) exchangeGroup(t *thread) bool {
	first := t.id / warpgroupThreads * warpgroupThreads
	if first+warpgroupThreads > len(b.threads) {
		t.fault(Divergence, "%s takes all of a warpgroup, which has %d threads", t.meets.name, len(b.threads)-first)
		return false
	}
	list := b.threads[first : first+warpgroupThreads]
	for _, other := range list {
		if other.state == exited {
			t.fault(Divergence, "%s takes all of a warpgroup, and thread %v has ended", t.meets.name, other.at)
			return false
		}
		if other.state != atExchange || other.meets != t.meets || other.pc != t.pc {
			return false
		}
	}
	t.meets.run(list)
	for _, other := range list {
		if other.state == atExchange {
			other.state = running
		}
	}
	return true
}

// A descriptor is where a factor lies in shared memory, of pieces of 16 bytes: 8×2 of them are a tile, or 2, 4 or
// 8 times that where lines of pieces are swizzled.
type descriptor struct {
	start, leading, stride, base uint64
	span                         int // of what is swizzled, in bytes; 0 is nothing
}

// describe reads a descriptor of the ISA.
func describe(bits uint64) descriptor {
	field := func(at int) uint64 { return bits >> at & 0x3fff << 4 }
	return descriptor{
		start: field(0), leading: field(16), stride: field(32), base: bits >> 49 & 7,
		span: [...]int{0, 128, 64, 32}[bits>>62],
	}
}

// piece returns where a piece lies: of eight terms of a row, piece k of two, or where the factor is turned of
// eight rows of a term.
func (d descriptor) piece(outer, inner int, turned bool) uint64 {
	o, i, wide := uint64(outer), uint64(inner), uint64(max(d.span, 16))
	var at uint64
	switch {
	case !turned && d.span == 0:
		at = o%8*16 + o/8*d.stride + i*d.leading
	case !turned:
		at = o%8*wide + o/8*d.stride + i*16
	case d.span == 0: // outer is a term, inner eight rows
		at = i*d.stride + o%8*16 + o/8*d.leading
	default:
		pieces := wide / 16
		at = i%pieces*16 + i/pieces*d.leading + o%8*wide + o/8*d.stride
	}
	at = (d.start + at) & 0x3ffff
	if d.span == 0 {
		return at
	}
	return at ^ (at>>7-d.base)&uint64(d.span/16-1)<<4
}

// shapeName is a shape's name.
func shapeName(n int) string { return "m64n" + strconv.Itoa(n) + "k16" }

// A watched is what a warpgroup's threads all know, with which it reads shared memory.
type watched struct {
	lead  *thread
	known view
	actor int
	tick  uint32
}

// watch finds what all threads of a warpgroup know.
func watch(list []*thread) *watched {
	t := list[0]
	w := &watched{lead: t, actor: t.b.size + t.id/warpgroupThreads, tick: t.groups.closed + 1}
	t.view.note(t.id, t.tick)
	w.known.join(&t.view)
	for _, other := range list[1:] {
		other.view.note(other.id, other.tick)
		lower(w.known.seen, other.view.seen)
		lower(w.known.fenced, other.view.fenced)
	}
	return w
}

// lower lowers what a list covers to what another does too.
func lower(list, with []uint32) {
	for i := range list {
		if i < len(with) {
			list[i] = min(list[i], with[i])
		} else {
			list[i] = 0
		}
	}
}

// read returns a piece of shared memory that the warpgroup's products read from now on, or nil after a fault.
func (w *watched) read(at uint64) []byte {
	t, shared := w.lead, &w.lead.b.shared
	if at > uint64(len(shared.data)) || len(shared.data)-int(at) < 16 {
		t.fault(OutOfBounds, "16 bytes at %d of %d bytes of shared memory", at, len(shared.data))
		return nil
	}
	for i := int(at); i < int(at)+16; i++ {
		h := &t.b.async.traces[i]
		who := int(h.writer&^byAtomic) - 1
		switch {
		case shared.states[i] == nothing:
			t.fault(Uninitialised, "byte %d was not written by anyone", i)
		case shared.states[i] == coming:
			t.fault(Race, "byte %d of shared memory is still being copied to", i)
		case shared.states[i] == counting:
			t.fault(BadBarrier, "byte %d of shared memory is an mbarrier's", i)
		case who >= 0 && !knows(w.known.seen, who, h.wrote):
			t.raceWith(i, who, "written", toRead)
		case who >= 0 && who < t.b.size && !knows(w.known.fenced, who, h.wrote):
			t.unfenced(i, who, "read")
		default:
			if t.read(h, w.actor, w.tick, w.known.seen) {
				continue
			}
		}
		return nil
	}
	return shared.data[at : at+16]
}

// factor reads a factor of rows × 16 terms.
func (w *watched) factor(to []float64, rows int, bits uint64, turned bool, kind scalar) bool {
	d := describe(bits)
	if turned {
		for k := range groupTerms {
			for r := 0; r < rows; r += 8 {
				p := w.read(d.piece(k, r/8, true))
				if p == nil {
					return false
				}
				for e := range 8 {
					to[(r+e)*groupTerms+k] = widened(kind, get(p[2*e:2*e+2]))
				}
			}
		}
		return true
	}
	for r := range rows {
		for half := range 2 {
			p := w.read(d.piece(r, half, false))
			if p == nil {
				return false
			}
			for e := range 8 {
				to[r*groupTerms+half*8+e] = widened(kind, get(p[2*e:2*e+2]))
			}
		}
	}
	return true
}

// same faults where threads of a warpgroup do not all have the same operand.
func same(list []*thread, slot int, what string) bool {
	for _, t := range list[1:] {
		if t.r[slot] != list[0].r[slot] {
			t.fault(Divergence, "%s: the %s is %#x, and thread %v has %#x", t.meets.name, what, t.r[slot],
				list[0].at, list[0].r[slot])
			return false
		}
	}
	return true
}

// multiply computes a warpgroup's product. A warp has 16 of the rows, and of eight columns a thread has sums as
// mma has them. How hardware rounds within a product is not documented: sums are rounded once.
func (g *groupProduct) multiply(list []*thread) {
	for _, t := range list {
		if !t.claim(g) {
			return
		}
	}
	if len(g.a) == 0 && !same(list, g.aAt, "left descriptor") || !same(list, g.bAt, "right descriptor") ||
		!same(list, g.adds, "scale of sums") {
		return
	}
	var left [groupRows * groupTerms]float64
	right := make([]float64, g.columns*groupTerms)
	w := watch(list)
	if len(g.a) == 0 {
		if !w.factor(left[:], groupRows, list[0].r[g.aAt], g.turnA, g.kind) {
			return
		}
	} else {
		g.fragments(list, left[:])
	}
	if !w.factor(right, g.columns, list[0].r[g.bAt], g.turnB, g.kind) {
		return
	}
	if g.negate {
		for i := range left {
			left[i] = -left[i]
		}
	}
	for i, t := range list {
		for j, r := range g.d {
			row := i/warpThreads*16 + i%warpThreads/4 + j/2%2*8
			column := j/4*8 + i%4*2 + j%2
			total := 0.0
			if t.r[g.adds] != 0 {
				total = float64(float32of(t.r[r.slot]))
			}
			a, b := left[row*groupTerms:][:groupTerms], right[column*groupTerms:][:groupTerms]
			for k := range a {
				total += a[k] * b[k]
			}
			t.r[r.slot] = bits32(float32(total))
		}
	}
}

// fragments reads the left factor from registers, where it lies as that of mma.
func (g *groupProduct) fragments(list []*thread, left []float64) {
	for i, t := range list {
		for j, slot := range g.a {
			for half := range 2 {
				row := i/warpThreads*16 + i%warpThreads/4 + j%2*8
				left[row*groupTerms+i%4*2+j/2*8+half] = widened(g.kind, t.r[slot]>>(16*half)&0xffff)
			}
		}
	}
}
