package cpu

import (
	"cmp"
	"unsafe"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
)

// A gemmPart is some rows and columns of a block of a product, computed by one thread.
type gemmPart[T ops.Real] struct {
	*gemmCall[T]
	// Rows are counted from the block's first, columns from the product's.
	i0, i1, j0, j1 int
	// edge is room for a tile, panels for the packed right factor.
	edge, panels []T
	// c is where the sums of row i0 from column j0 on are, ldc elements from row to row.
	c   []T
	ldc int
	// tiles is the number of tiles down.
	tiles int
	// room is for columns of codes, nil before there were any.
	room *fewCodesRoom
}

// fewTiles is the number of tiles up to which the left factor stays in a core's cache whole.
const fewTiles = 4

// tileGroup is how many tiles high the rows of the left factor are that stay in a core's cache.
const tileGroup = 8

// part computes rows [i0, i1) of the block and columns [j0, j1).
func (g *gemmCall[T]) part(lane, i0, i1, j0, j1 int) {
	mine := ops.Elements[T](ops.View{Data: g.work[g.leftBytes+lane*g.laneBytes:][:g.laneBytes]})
	p := gemmPart[T]{gemmCall: g, i0: i0, i1: i1, edge: mine[:edgeElements]}
	p.panels = mine[edgeElements:][:g.gemmCut.panels]
	p.tiles = (i1 - i0 + g.tileRows - 1) / g.tileRows
	width := groupStrips * stripColumns
	if p.tiles <= fewTiles { // the right factor is read in the order in which it lies
		width = g.columns
	}
	few := g.fewColumns
	for p.j0 = j0; p.j0 < j1; p.j0 = p.j1 {
		if few > 0 && p.j0+few > j1 { // the last ones
			if g.again() && j1-j0 >= few {
				p.j0 = j1 - few
			} else {
				few, width = 0, g.columns
			}
		}
		p.j1 = min(p.j0+cmp.Or(few, width), j1)
		if g.o.half.Absent() {
			p.c, p.ldc = g.c[(g.i0+i0)*g.ldc+p.j0:], g.ldc
		} else {
			p.c, p.ldc = mine[edgeElements+g.gemmCut.panels:], min(groupStrips, g.strips)*stripColumns
		}
		if few > 0 {
			p.few()
		} else {
			for k0 := g.k0; k0 < g.k1; k0 += blockK {
				p.block(k0, min(k0+blockK, g.k1))
			}
		}
		if g.k1 == g.k {
			p.finish(lane)
		}
	}
	if p.room != nil {
		p.room.give()
	}
}

// block adds the products of a block of the depth.
func (p *gemmPart[T]) block(k0, k1 int) {
	single := p.tiles <= tileGroup
	for tile := 0; tile < p.tiles; tile += tileGroup {
		end := min(tile+tileGroup, p.tiles)
		for j := p.j0; j < p.j1; j += p.columns {
			room := p.panels
			if !single {
				room = room[(j-p.j0)*ops.RoundUp(k1-k0, unroll):]
			}
			p.panel(tile, end, j, k0, k1, room, tile == 0)
		}
	}
}

// finish gives complete sums their last form.
func (p *gemmPart[T]) finish(lane int) {
	if !p.o.ending.any() && p.o.half.Absent() {
		return
	}
	p.gemmCall.finish(lane, completeSums[T]{
		row: p.gemmCall.i0 + p.i0, rows: p.i1 - p.i0, j: p.j0, width: p.j1 - p.j0, c: p.c, ldc: p.ldc,
	}, p.edge)
	if p.o.half.Absent() {
		return
	}
	for i := p.i0; i < p.i1; i++ {
		at := p.o.halfAt + (p.gemmCall.i0+i)*p.n + p.j0
		storeHalf(p.set, p.o.half, at, p.c[(i-p.i0)*p.ldc:][:p.j1-p.j0])
	}
}

// storeHalf is storeReal with the kernels of a processor.
func storeHalf[T ops.Real](s *simd.Set, v ops.View, at int, sums []T) {
	if e, ok := elementOf(v.DType); ok && s != nil {
		whole := len(sums) / s.Lanes * s.Lanes
		s.Narrow(e, singles(sums[:whole]), ops.Elements[uint16](v)[at:])
		at, sums = at+whole, sums[whole:]
	}
	ops.StoreReal(v, at, sums)
}

// singles returns a slice of float32 as that.
func singles[T ops.Real](s []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

// leftTile returns the left factor from row i and depth k0 on, and the elements from row to row.
func (p *gemmPart[T]) leftTile(i, k0 int) ([]T, int) {
	if p.direct {
		return ops.Elements[T](ops.View{Data: p.left.data})[p.left.lineAt(p.gemmCall.i0+i)+k0:], p.left.line
	}
	return p.leftPack[((k0-p.k0)/blockK*p.gemmCut.rows+i)*p.pitch:], p.pitch
}

// row returns the first row of a tile: tiles differ by one row at most, since the last one would take almost as long with
// few.
func (p *gemmPart[T]) row(tile int) int { return p.i0 + tile*(p.i1-p.i0)/p.tiles }

// panel computes the tiles [first, end) of one panel of columns from j on. room is for the panel; fresh says that it is not
// there yet.
func (p *gemmPart[T]) panel(first, end, j, k0, k1 int, room []T, fresh bool) {
	columns := min(p.columns, p.n-j)
	if p.set == nil {
		if fresh {
			p.b.pack(room, p.columns, j, j+columns, k0, k1)
		}
		for tile := first; tile < end; tile++ {
			i := p.row(tile)
			p.goTile(i, p.row(tile+1)-i, j, columns, k0, k1, room)
		}
		return
	}
	b := p.rightPanel(j, columns, k0, k1, singles(room), fresh)
	next := p.upcoming(j, k0, k1)
	mode, biases := p.firstMode(k0)
	var bias []float32
	fetched := p.set.Fetched(b.Element, p.row(first+1)-p.row(first), k1-k0)
	residual := k1 == p.k && !p.o.ending.residual.Absent()
	each := fetched * 16 / max(k1-k0, 16)
	share := min(fetched, (next.most+end-1)/end)
	jump := share*16/max(k1-k0, 16) - each
	for tile, i := first, p.row(first); tile < end; tile++ {
		below := p.row(tile + 1)
		rows := below - i
		if residual {
			p.fetchResidual(i, rows, j, columns)
		}
		left, lda := p.leftTile(i, k0)
		b.Ahead, b.Jump = uintptr(unsafe.Pointer(&left[0])), 0
		switch {
		case next.most > 0 && first == 0: // each tile fetches some, all as much as they can: a burst would delay what tiles read
			b.Ahead, b.Jump = next.at+uintptr(tile*share), jump
		case next.most == 0 && tile*16 < next.lines:
			b.Ahead, b.Jump = next.at+uintptr(16*tile*next.apart), next.apart-each
		}
		if columns < p.columns {
			p.set.Multiply(rows, k1-k0, singles(left), lda, &b, singles(p.edge), p.columns, simd.Store, nil)
			p.addTile(i, rows, j, columns, k0 == 0, p.edge)
			i = below
			continue
		}
		switch mode {
		case simd.RowBias:
			bias = biases[p.gemmCall.i0+i:]
		case simd.ColumnBias:
			bias = biases[j:]
		}
		at := (i-p.i0)*p.ldc + j - p.j0
		p.set.Multiply(rows, k1-k0, singles(left), lda, &b, singles(p.c[at:]), p.ldc, mode, bias)
		i = below
	}
}

// addTile adds the sums of a tile that lie in a row of tiles as wide as columns of the set.
func (p *gemmPart[T]) addTile(i, rows, j, columns int, first bool, tile []T) {
	for r := range rows {
		line := p.c[(i-p.i0+r)*p.ldc+j-p.j0:][:columns]
		sums := tile[r*p.columns:][:columns]
		if !first || p.o.add {
			for x := range line {
				line[x] += sums[x]
			}
			continue
		}
		for x := range line {
			line[x] = p.o.first(0, p.gemmCall.i0+i+r, j+x) + sums[x]
		}
	}
}

// rightPanel returns a panel of the right factor as tiles read it, packed to room where it is not there yet.
func (p *gemmPart[T]) rightPanel(j, columns, k0, k1 int, room []float32, fresh bool) simd.Panel {
	m := &p.right
	size := p.element.Bytes()
	var b simd.Panel
	switch {
	case p.source == rightPanels:
		b = simd.Panel{Data: m.data[p.panelAt(j, k0):], Stride: p.columns * size, Element: p.element}
		if p.element == simd.Pairs {
			b.Stride *= 2
		}
	case p.source == rightRows && columns == p.columns:
		b = simd.Panel{Data: m.data[(m.offset+j+k0*m.step)*size:], Stride: m.step * size, Element: p.element}
	}
	if b.Data != nil && (p.element == simd.Float32 || p.tiles <= 2 && p.tileRows <= p.set.MostRows(p.element)) {
		return b
	}
	if fresh && b.Data != nil {
		p.set.Widen(b.Element, k1-k0, b.Data, b.Stride, room)
	} else if fresh {
		p.b.pack(any(room).([]T), p.columns, j, j+columns, k0, k1)
	}
	return simd.Panel{Data: ops.MemoryOf(room), Stride: 4 * p.columns}
}

// panelAt returns where in a packed right factor the panel of column j begins, from depth k0 on.
func (p *gemmPart[T]) panelAt(j, k0 int) int {
	return (j*panelDepth(p.k, p.right.dtype) + k0*p.columns) * p.element.Bytes()
}

// upcoming is memory that is read soon: most bytes in a row, or a piece of each of some lines that lie apart.
type upcoming struct {
	at           uintptr
	most         int
	lines, apart int
}

// upcoming returns where the memory is that the next panel is made of.
func (p *gemmPart[T]) upcoming(j, k0, k1 int) upcoming {
	m := &p.right
	size := p.element.Bytes()
	base := uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
	if p.source == rightPanels && p.tiles == 1 {
		// As fast as it is read, a little before.
		const distance = 8 << 10
		return upcoming{
			at: base + uintptr(p.panelAt(j, k0)+distance), lines: 1, apart: 16 * p.columns * size,
		}
	}
	switch {
	case j+p.columns < p.j1:
		j += p.columns
	case k1 < p.k1:
		j, k0 = p.j0, k1
	case p.j1 < p.n && p.i1-p.i0 == p.rows: // of the next part
		j, k0 = p.j1, p.k0
	default:
		return upcoming{}
	}
	switch {
	case p.source == rightPanels:
		return upcoming{at: base + uintptr(p.panelAt(j, k0)), most: blockK * p.columns * size}
	case p.source == rightPacked && m.encoding != nil:
		lines := min(p.columns, p.n-j)
		return upcoming{at: base + uintptr(m.offset+j*m.line+blocksAt(m.encoding, k0)), lines: lines, apart: m.line}
	case p.source == rightPacked && m.step == 1 && m.data != nil:
		size = m.dtype.Size()
		lines := min(p.columns, p.n-j)
		return upcoming{at: base + uintptr((m.offset+j*m.line+k0)*size), lines: lines, apart: m.line * size}
	}
	return upcoming{}
}
