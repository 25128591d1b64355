package cpu

import (
	"unsafe"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// A product of few rows reads blocks of codes once, so that writing their numbers for tiles to read takes longer than what tiles
// do. Codes become numbers in registers then, which are multiplied at once.

// takesCodes reports whether a product of few rows by blocks of codes is computed so.
func (g *gemmCall[T]) takesCodes() bool {
	m := &g.right
	if g.m > simd.FewRows || m.encoding == nil || m.rounded || g.b != panelSource[T](m) || len(m.rows.Shape) > 0 || m.line < 0 {
		return false
	}
	turn, ok := turns[m.encoding.Name]
	return ok && turn != nil && g.set.Turns() && g.set.HasCodes(g.m, roundOf(m.encoding))
}

// fewCodesRoom is what the columns of a part are prepared in.
type fewCodesRoom struct {
	turning [2]turning
	turns   [2]*simd.Turn
	words   [simd.WordBytes]byte
}

// fewCodes is few for columns that are blocks of codes.
func (p *gemmPart[T]) fewCodes() {
	m := &p.right
	turn := turns[m.encoding.Name]
	room := tasks.Take[fewCodesRoom]()
	used := p.set.CodesTurns()
	for i := range used {
		x := &room.turning[i]
		x.set, x.stride, x.words, x.nth = p.set, m.line, room.words[:], i
		room.turns[i] = &x.turn
	}
	for k0 := p.k0; k0 < p.k1; k0 += blockK {
		k1 := min(k0+blockK, p.k1)
		p.fetchCodes(k0, k1)
		for i := range used {
			x := &room.turning[i]
			x.blocks = (k1 - k0) / int(m.encoding.Elements)
			x.src = m.data[m.lineAt(p.j0+i*simd.TurnedLines)+blocksAt(m.encoding, k0):]
			turn(x)
		}
		left, lda := p.leftTile(p.i0, k0)
		mode, bias := p.firstMode(k0)
		switch mode {
		case simd.RowBias:
			bias = bias[p.gemmCall.i0+p.i0:]
		case simd.ColumnBias:
			bias = bias[p.j0:]
		}
		p.set.Codes(p.m, room.turns[:used], room.words[:], singles(left), lda, singles(p.c), p.ldc, mode, bias)
	}
	for i := range used {
		x := &room.turning[i]
		x.set, x.src, x.words, x.turn = nil, nil, nil, simd.Turn{}
	}
	tasks.Give(room)
}

// fetchCodes fetches what is read after the blocks of [k0, k1) of the columns.
func (p *gemmPart[T]) fetchCodes(k0, k1 int) {
	m := &p.right
	j, k := p.j0, k1
	if k1 == p.k1 {
		j, k = p.j1, p.k0
	}
	if j+p.columns > p.n {
		return
	}
	from, end := blocksAt(m.encoding, k), blocksAt(m.encoding, min(k+blockK, p.k1))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(m.data))) + uintptr(m.lineAt(j)+from)
	simd.FetchRows(p.columns, at, m.line, end-from)
}
