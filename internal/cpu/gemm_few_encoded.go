package cpu

import (
	"unsafe"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// A product of few rows reads blocks of codes once, so that writing their numbers for tiles to read takes longer than
// what tiles do. Codes become numbers in registers then, which are multiplied at once.

// takesCodes reports whether a product of few rows by blocks of codes is computed so.
func (g *gemmCall[T]) takesCodes() bool {
	m := &g.right
	if g.m > simd.FewRows || m.encoding == nil || m.rounded || g.b != panelSource[T](m) || len(m.rows.Shape) > 0 || m.line < 0 {
		return false
	}
	turn, ok := turns[m.encoding.Name]
	return ok && turn != nil && g.set.HasCodes(g.m, roundOf(m.encoding))
}

// codesStrips returns how many strips of columns a part has then: codes take longer to compute with than to fetch, so
// that parts are small where there are few, for threads to have the same share. The last columns are in a part with
// others.
func (g *gemmCall[T]) codesStrips() int {
	const parts = 16
	if g.n%stripColumns != 0 {
		return g.strips
	}
	return min(g.strips, max(1, g.n/stripColumns/parts))
}

// fewCodesRoom is what the columns of a part are prepared in. It begins with words, so that they lie as vectors do.
type fewCodesRoom struct {
	words [2*simd.WordBytes + 64]byte
	// turning, and turns, are of one or two blocks of the depth, one behind the other.
	turning [4]turning
	turns   [4]*simd.Turn
	turningRoom
}

// fewCodes is few for columns that are blocks of codes.
func (p *gemmPart[T]) fewCodes() {
	m := &p.right
	turn := turns[m.encoding.Name]
	if p.room == nil {
		p.room = tasks.Take[fewCodesRoom]()
	}
	room, used := p.room, p.set.CodesTurns()
	words, c := room.words[:], singles(p.c)
	twice := p.m == 1 && p.direct && p.set.HasCodesTwice(roundOf(m.encoding))
	// The blocks that the next columns begin with are fetched as they lie, one behind the other, as far as blocks are done.
	next, each := m.lineAt(p.j1), m.line*p.columns/p.k
	if next+each*p.k > len(m.data) {
		next = m.lineAt(p.j0) // there are none
	}
	for k0, k1 := p.k0, 0; k0 < p.k1; k0 = k1 {
		k1 = min(k0+blockK, p.k1)
		some := 1
		if twice && k1+blockK <= p.k1 {
			k1, some = k1+blockK, 2
		}
		first := uintptr(unsafe.Pointer(&m.data[next+each*k0]))
		ahead, blocks := first, (k1-k0)/some/int(m.encoding.Elements)
		for i := range used * some {
			x, k := &room.turning[i], k0+i/used*blockK
			x.set, x.stride, x.nth, x.turningRoom = p.set, m.line, i%used, &room.turningRoom
			x.words = words[i/used*simd.WordBytes:]
			x.src = m.data[m.lineAt(p.j0+i%used*simd.TurnedLines)+blocksAt(m.encoding, k):]
			x.kept = x.kept && x.blocks == blocks && x.twice == (some == 2)
			x.twice, x.blocks, x.ahead = some == 2, blocks, ahead
			room.turns[i] = &x.turn
			turn(x)
			ahead = x.turn.Ahead
		}
		jump := max(0, each*(k1-k0)-int(ahead-first)) / (blockK / 4)
		left, lda := p.leftTile(p.i0, k0)
		mode, bias := p.firstBias(k0)
		turns, lines := room.turns[:used*some], room.turning[0].lines
		if some == 1 {
			p.set.Codes(p.m, turns, words, singles(left), lda, c, p.ldc, mode, bias, ahead, jump)
			continue
		}
		if p.set.CodesTwice(turns, lines, words, singles(left), c, mode, bias, ahead, jump) {
			continue
		}
		for i := range turns {
			if x := &room.turning[i]; lines {
				p.set.Words(&x.turn, x.nth, x.words, x.codes[:])
			}
		}
		p.set.Codes(1, turns[:used], words, singles(left), lda, c, p.ldc, mode, bias, ahead, jump)
		left, words := left[blockK:], words[simd.WordBytes:]
		p.set.Codes(1, turns[used:], words, singles(left), lda, c, p.ldc, simd.Add, nil, ahead, jump)
	}
}

// turnPairs writes the numbers [k0, k1) of lines of depth k that are blocks of codes as pairs of bfloat16, as roundPairs
// does, but without writing them as float32 first, and reports whether the processor has kernels for that. What the lines that follow have at the
// same depth is fetched meanwhile.
func (m *matrix[T]) turnPairs(dst []byte, l, lines, k0, k1, k int) bool {
	if m.encoding == nil || lines < m.set.Columns || len(m.rows.Shape) > 0 || m.line < 0 || !m.set.HasPairs() {
		return false
	}
	turn := turns[m.encoding.Name]
	if turn == nil {
		return false
	}
	room, used := tasks.Take[fewCodesRoom](), m.set.CodesTurns()
	next, each := m.lineAt(l+lines), m.line*lines/k
	if next+each*k > len(m.data) {
		next = m.lineAt(l) // there are none
	}
	for from := k0; from < k1; from += blockK {
		to := min(from+blockK, k1)
		first := uintptr(unsafe.Pointer(&m.data[next+each*from]))
		ahead, blocks := first, (to-from)/int(m.encoding.Elements)
		for i := range used {
			x := &room.turning[i]
			x.set, x.stride, x.nth, x.turningRoom, x.words = m.set, m.line, i, &room.turningRoom, room.words[:]
			x.src = m.data[m.lineAt(l+i*simd.TurnedLines)+blocksAt(m.encoding, from):]
			x.kept = x.kept && x.blocks == blocks
			x.blocks, x.ahead = blocks, ahead
			turn(x)
			ahead = x.turn.Ahead
		}
		for i := range used {
			t := &room.turning[i].turn
			words := 4 * t.Steps * t.Pieces
			jump := max(0, each*(to-from)-int(ahead-first)) / words / (used - i)
			t.Ahead, ahead = ahead, ahead+uintptr(jump*words)
			m.set.Pairs(t, i, room.words[:], dst[(from-k0)*2*lines:], jump)
		}
	}
	room.give()
	return true
}

// give gives what columns were prepared in back.
func (r *fewCodesRoom) give() {
	for i := range r.turning {
		x := &r.turning[i]
		x.set, x.src, x.words, x.turningRoom, x.turn, x.kept = nil, nil, nil, nil, simd.Turn{}, false
		x.scales, x.twice, x.lines = simd.Turn{}, false, false
	}
	tasks.Give(r)
}
