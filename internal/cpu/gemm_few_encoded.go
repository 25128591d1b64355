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

// fewCodesRoom is what the columns of a part are prepared in.
type fewCodesRoom struct {
	turningRoom
	turning [2]turning
	turns   [2]*simd.Turn
	words   [simd.WordBytes]byte
}

// fewCodes is few for columns that are blocks of codes.
func (p *gemmPart[T]) fewCodes() {
	m := &p.right
	turn := turns[m.encoding.Name]
	if p.room == nil {
		p.room = tasks.Take[fewCodesRoom]()
	}
	room, used := p.room, p.set.CodesTurns()
	var lines [2][]byte
	for i := range used {
		x := &room.turning[i]
		x.set, x.stride, x.words, x.turningRoom, x.nth, x.blocks = p.set, m.line, room.words[:], &room.turningRoom, i, 0
		room.turns[i], lines[i] = &x.turn, m.data[m.lineAt(p.j0+i*simd.TurnedLines):]
	}
	// The blocks that the next columns begin with are fetched as they lie, one behind the other, as far as blocks are done.
	next, each := m.lineAt(p.j1), m.line*p.columns/p.k
	if next+each*p.k > len(m.data) {
		next = m.lineAt(p.j0) // there are none
	}
	for k0 := p.k0; k0 < p.k1; k0 += blockK {
		k1 := min(k0+blockK, p.k1)
		from, blocks := blocksAt(m.encoding, k0), (k1-k0)/int(m.encoding.Elements)
		first := uintptr(unsafe.Pointer(&m.data[next+each*k0]))
		ahead := first
		for i := range used {
			x := &room.turning[i]
			x.src, x.kept, x.blocks, x.ahead = lines[i][from:], x.kept && x.blocks == blocks, blocks, ahead
			turn(x)
			ahead = x.turn.Ahead
		}
		jump := max(0, each*(k1-k0)-int(ahead-first)) / ((k1 - k0) / 4)
		left, lda := p.leftTile(p.i0, k0)
		mode, bias := p.firstBias(k0)
		p.set.Codes(p.m, room.turns[:used], room.words[:], singles(left), lda, singles(p.c), p.ldc, mode, bias, ahead, jump)
	}
}

// give gives what columns were prepared in back.
func (r *fewCodesRoom) give() {
	for i := range r.turning {
		x := &r.turning[i]
		x.set, x.src, x.words, x.turningRoom, x.turn, x.kept = nil, nil, nil, nil, simd.Turn{}, false
	}
	tasks.Give(r)
}
