package ptx

import "slices"

// The products of capability 7.0: of 8 × 4 by 4 × 8, one for each of a warp's four pairs of quads. A pair is four lanes that lie
// behind each other and those sixteen lanes on: 0–3 and 16–19, …, 12–15 and 28–31.

// quads are the registers of such products' operands in a thread: eight sums, and two words of halves of each factor.
type quads struct {
	d       []register
	a, b, c []int
	// aTurned says that the left factor's words have elements of a column, bTurned that the right one's have those of a row.
	aTurned, bTurned bool
}

// buildQuads makes mma of m8n8k4, of halves, with 32-bit sums. The layouts of the factors are the modifiers behind the shape.
func buildQuads(c *compiler, f *form, s *statement) action {
	at := slices.Index(f.mods, "m8n8k4")
	half, float := scalar{'f', 16}, scalar{'f', 32}
	if !f.take("sync") || !f.take("aligned") || !slices.Equal(f.types, []scalar{float, half, half, float}) ||
		at+2 >= len(f.mods) {
		return nil
	}
	left, right := f.mods[at+1], f.mods[at+2]
	for _, l := range []string{left, right} {
		if l != "row" && l != "col" {
			return nil
		}
		f.take(l)
	}
	args := c.args(s, 4)
	g := quads{
		d: c.registers(args[0]), a: c.sources(args[1]), b: c.sources(args[2]), c: c.sources(args[3]),
		aTurned: left == "col", bTurned: right == "row",
	}
	if len(g.d) != 8 || len(g.c) != 8 || len(g.a) != 2 || len(g.b) != 2 {
		c.fail("%s of %d, %d, %d and %d registers", s.op, len(g.d), len(g.a), len(g.b), len(g.c))
	}
	return c.together(&exchange{name: s.op, aligned: true, run: g.multiply}, -1)
}

// place returns which of eight lines element i of a lane's four elements of a factor are of, and term which term element i is: of one line four
// terms, or, where they are turned, of one term four lines.
func (g *quads) place(lane, i int, turned bool) (line, term int) {
	high := lane / 16 * 4
	if turned {
		return i + high, lane % 4
	}
	return lane%4 + high, i
}

// sum returns the row and the column of a lane's sum i.
func (g *quads) sum(lane, i int) (row, column int) {
	return lane&1 + i&2 + lane/16*4, i&4 + lane&2 + i&1
}

// multiply computes a warp's four products.
func (g *quads) multiply(list []*thread) {
	var a, b [4][8][4]float64 // of a pair of quads, line and term
	for _, t := range list {
		lane := t.id % warpThreads
		pair := lane / 4 % 4
		for i := range 4 {
			line, term := g.place(lane, i, g.aTurned)
			a[pair][line][term] = halfAt(t.r[g.a[i/2]], i%2)
			line, term = g.place(lane, i, g.bTurned)
			b[pair][line][term] = halfAt(t.r[g.b[i/2]], i%2)
		}
	}
	for _, t := range list {
		lane := t.id % warpThreads
		pair := lane / 4 % 4
		var sums [8]float32
		for i, slot := range g.c {
			row, column := g.sum(lane, i)
			total := float64(float32of(t.r[slot]))
			for k := range 4 {
				total += a[pair][row][k] * b[pair][column][k]
			}
			sums[i] = float32(total)
		}
		for i, r := range g.d {
			t.r[r.slot] = bits32(sums[i])
		}
	}
}

// halfAt is one of the two halves of a word.
func halfAt(word uint64, i int) float64 {
	return widened(scalar{'f', 16}, word>>(16*i)&0xffff)
}
