package cpu

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// Products by a matrix unit: factors are bfloat16, or rounded to it, sums float32. They run over k in order, two products
// at a time, and begin with the bias. Denormal factors count as zero there, as in PyTorch.
//
// Floats by a weight of bfloat16 are such products, too, where rows are to have the same bits however many there are and the
// unit has tiles: a float is the sum of three numbers of bfloat16, whose products are exact and are added to the same sum.
// Of a float the unit loses what is denormal; one that is finite gives NaN with a weight that is infinite.
const (
	// unitBlockK is the most of the depth that stays in the cache nearest to the processor, 40 KB of a panel. What is deeper is
	// computed in pieces of unitPieceK, which hold whole blocks of every encoding.
	unitBlockK, unitPieceK = 640, 512
	// unitLeastRows is the number of rows from which on a unit is used: fewer wait for memory anyway. Where rows are to
	// have the same bits however many there are, it is used for all of them, as its sums have another order than
	// others.
	unitLeastRows = 5
	// unitFewRows is the number of rows up to which a unit computes as many as there are, not whole blocks of them.
	unitFewRows = simd.UnitFewRows
	// unitMostK bounds the memory that a left factor is packed in.
	unitMostK = 1 << 16
)

// A unitCut is how a product by a matrix unit is cut, by its sizes alone.
type unitCut struct {
	// depth is that of the padded factors.
	depth int
	// blockK is how much of the depth is computed at a time.
	blockK int
	// parts is how many numbers an element of the left factor is the sum of.
	parts int
	// rows is those of a block, which the left factor is packed for; panels those of a part, of 32 columns each.
	rows, panels, lanes int
	// tall is how many rows a block may have of which the left factor is packed for a chunk of the depth at a time, so that fewer blocks read
	// the right one; 0 where that does not pay.
	tall, chunk          int
	leftBytes, laneBytes int
}

func cutUnit(m, n, k, parts int) unitCut {
	const leftMost, rowsMost, panelsMost, lanesMost = 1 << 20, 256, 4, 4 << 20
	const manyPanels = 512 // an output of the size of a vocabulary
	u := unitCut{depth: ops.RoundUp(max(k, 1), simd.UnitDepth), parts: parts}
	if u.blockK = u.depth; u.blockK > unitBlockK {
		u.blockK = unitPieceK
	}
	u.rows = max(leftMost/(2*u.depth*parts), 1)
	u.rows = min(max(u.rows&^(simd.UnitRows-1), simd.UnitRows), rowsMost, ops.RoundUp(max(m, 1), simd.UnitRows))
	u.leftBytes = 2 * u.rows * u.depth * parts
	if tall := min(m&^(simd.UnitRows-1), rowsMost); tall > u.rows && n%simd.UnitColumns == 0 {
		u.tall, u.chunk = tall, max(leftMost/(2*tall*parts)/unitPieceK, 1)*unitPieceK
		u.leftBytes = max(u.leftBytes, 2*u.tall*u.chunk*parts)
	}
	panels := max((n+simd.UnitColumns-1)/simd.UnitColumns, 1)
	pieces := 16
	most := panelsMost
	if m <= unitFewRows {
		pieces = 8 // weights stream by, the longer at once the better
		if panels >= manyPanels {
			most = 4 * panelsMost
		}
	}
	u.panels = min(most, max(panels/pieces, 1))
	// The bias, sums, a packed block of the right factor, and float32 that it is made of.
	floats := u.panels*simd.UnitColumns + u.rows*u.panels*simd.UnitColumns + blockK*simd.UnitColumns
	u.laneBytes = ops.RoundUp(4*floats+2*u.blockK*simd.UnitColumns, 64)
	u.lanes = max(1, min((panels+u.panels-1)/u.panels, mostLanes, lanesMost/u.laneBytes))
	return u
}

// leastRowsOf is the number of rows from which on a unit computes a product.
func leastRowsOf(how manner) int {
	if how.alone {
		return 1
	}
	return unitLeastRows
}

// unitWork returns the scratch of a product by a matrix unit on a number of threads, of a left factor in parts.
func unitWork(m, n, k, threads, parts int, how manner) int64 {
	if m < leastRowsOf(how) || !how.round && k > unitMostK {
		return 0
	}
	u := cutUnit(m, n, k, parts)
	return int64(64 + u.leftBytes + min(u.lanes, threads)*u.laneBytes)
}

// byUnit reports whether a product is left to a matrix unit.
func (g *gemmCall[T]) byUnit(how manner) bool {
	if g.set == nil || g.k == 0 || g.m < leastRowsOf(how) || !g.set.HasUnit() {
		return false
	}
	left := g.left.dtype == tensor.BFloat16 && !how.alone ||
		g.left.dtype == tensor.Float32 && how.alone && g.set.Unit() == simd.UnitTiles
	return how.round || left && g.k <= unitMostK && g.right.dtype == tensor.BFloat16 && g.right.encoding == nil
}

// roundFew lets a product of too few rows for a unit, whose factors may be rounded, read a weight that lies rounded, which
// takes as long as its bytes do, or else round as it packs.
func (g *gemmCall[T]) roundFew() {
	g.left.rounded = true
	if g.right.packed {
		g.right.dtype = tensor.BFloat16
	} else {
		g.right.rounded = true
	}
}

// rounds reports whether attributes of an op let it round its factors to bfloat16.
func rounds(a graph.Attrs) bool { return a.String("precision") == "bf16" }

// precisionSupports returns why a precision that attributes ask for cannot be given.
func precisionSupports(in []graph.Spec, a graph.Attrs) error {
	switch p := a.String("precision"); {
	case p == "":
		return nil
	case p != "bf16" || in[0].DType != tensor.Float32:
		return fmt.Errorf("no products of %v in precision %q", in[0].DType, p)
	}
	if set := simd.Best(); set == nil || !set.HasUnit() {
		return errors.New("precision bf16 takes a processor with AVX512-BF16, or AMX that the system lets programs use")
	}
	return nil
}

// unitOf returns what a set multiplies factors of bfloat16 with, "" for no set.
func unitOf(set *simd.Set) string {
	if set == nil {
		return ""
	}
	return set.Unit()
}

// productLabel returns what reports call a product: one that rounds says what multiplies.
func productLabel(kind string) func(a graph.Attrs) string {
	return func(a graph.Attrs) string {
		name := kind
		if e := a.String(graph.EncodingAttr); e != "" {
			name += " of " + e
		}
		if p := a.String("precision"); byCodes(a) {
			return name + "_" + p
		} else if p != "" {
			return name + "_" + unitOf(simd.Best()) + "_" + p
		}
		return name
	}
}

// A unitCall is a call as a product by a matrix unit: a task whose parts are lanes.
type unitCall[T ops.Real] gemmCall[T]

// runUnit computes the product with the matrix unit. Both factors are matrices.
func (g *gemmCall[T]) runUnit(p *ops.Pool) {
	parts := 1
	if !g.round && g.left.dtype == tensor.Float32 {
		parts = simd.UnitParts
	}
	g.unit = cutUnit(g.m, g.n, g.k, parts)
	g.lanes = min(g.unit.lanes, (len(g.work)-64-g.unit.leftBytes)/g.unit.laneBytes)
	g.alignWork()
	g.left.set, g.right.set = g.set, g.set
	tall := g.unit.tall > 0 && g.o.half.Absent()
	for g.i0 = 0; g.i0 < g.m; g.i0 += g.rows {
		left := g.m - g.i0
		if g.rows = min(g.unit.rows, left); !tall || left <= g.unit.rows || left < simd.UnitRows {
			g.unitBlock(p, 0, g.unit.depth)
			continue
		}
		g.rows = min(g.unit.tall, left&^(simd.UnitRows-1))
		for k0 := 0; k0 < g.unit.depth; k0 += g.unit.chunk {
			g.unitBlock(p, k0, min(k0+g.unit.chunk, g.unit.depth))
		}
	}
}

// unitBlock adds to the sums of the block of rows what a part of the depth gives.
func (g *gemmCall[T]) unitBlock(p *ops.Pool, k0, k1 int) {
	g.k0, g.k1 = k0, k1
	blocks := (g.rows + simd.UnitRows - 1) / simd.UnitRows
	g.parts = (g.n + g.unit.panels*simd.UnitColumns - 1) / (g.unit.panels * simd.UnitColumns)
	g.next[0].Store(0)
	if p == nil {
		(*unitLeft[T])(g).Run(0, blocks)
		(*unitCall[T])(g).Run(0, 1)
		return
	}
	p.Do(blocks, 1, (*unitLeft[T])(g))
	p.Do(g.lanes, 1, (*unitCall[T])(g))
}

// A unitLeft is a call as the task of packing blocks of rows for the matrix unit.
type unitLeft[T ops.Real] gemmCall[T]

// Run packs blocks: for each step of the depth the elements of all rows that there are.
func (g *unitLeft[T]) Run(from, to int) {
	step, depth := simd.UnitRows*simd.UnitDepth*g.unit.parts, g.k1-g.k0
	end := min(g.k1, g.k) - g.k0
	left := ops.Elements[uint16](ops.View{Data: g.work[:g.unit.leftBytes]})
	m := &g.left
	for i := from * simd.UnitRows; i < min(to*simd.UnitRows, g.rows); i++ {
		row := left[i/simd.UnitRows*simd.UnitRows*depth*g.unit.parts+i%simd.UnitRows*simd.UnitDepth:]
		at, k := m.lineAt(g.i0+i)+g.k0*m.step, 0
		if m.dtype == tensor.Float32 && m.step == 1 {
			k = end &^ (simd.UnitDepth - 1)
			if src := ops.Elements[float32](ops.View{Data: m.data})[at:]; g.unit.parts > 1 {
				g.set.Split(k/simd.UnitDepth, src, row)
			} else {
				g.set.Round(k/simd.UnitDepth, src, row)
			}
		}
		for ; k < end; k += simd.UnitDepth {
			dst := row[k/simd.UnitDepth*step:][:simd.UnitDepth]
			n := min(simd.UnitDepth, end-k)
			if n < len(dst) {
				clear(dst)
			}
			switch {
			case m.dtype == tensor.BFloat16 && m.step == 1:
				copy(dst[:n], ops.Elements[uint16](ops.View{Data: m.data})[at+k:])
			default:
				var room [simd.UnitDepth]float32
				ops.LoadReal(room[:n], ops.View{Data: m.data, DType: m.dtype}, at+k*m.step, m.step)
				if g.unit.parts > 1 {
					g.set.Split(1, room[:], row[k/simd.UnitDepth*step:])
					continue
				}
				for x, v := range room[:n] {
					dst[x] = tensor.BFloat16FromFloat32(v)
				}
			}
		}
	}
	if (*gemmCall[T])(g).unitLines() {
		simd.TurnFew(g.rows, g.unit.depth/simd.UnitDepth, g.unit.parts, left)
	}
}

// Run computes parts until none is left.
func (u *unitCall[T]) Run(lane, _ int) {
	g := (*gemmCall[T])(u)
	width := g.unit.panels * simd.UnitColumns
	for {
		n := int(g.next[0].Add(1)) - 1
		if n >= g.parts {
			return
		}
		g.unitPart(lane, n*width, min((n+1)*width, g.n))
	}
}

// unitPart computes the columns [j0, j1) of the block of rows.
func (g *gemmCall[T]) unitPart(lane, j0, j1 int) {
	mine := g.work[g.unit.leftBytes+lane*g.unit.laneBytes:][:g.unit.laneBytes]
	width := g.unit.panels * simd.UnitColumns
	take := func(n int) []float32 {
		s := ops.Elements[float32](ops.View{Data: mine[:4*n]})
		mine = mine[4*n:]
		return s
	}
	bias, sums := take(width), take(g.unit.rows*width)
	if g.rows <= unitFewRows && g.unitPacked() {
		g.unitStream(j0, j1, bias, sums)
		g.unitFinish(lane, 0, j0, j1, sums, width)
		return
	}
	room := take(blockK * simd.UnitColumns)
	if g.unitLines() {
		g.unitFew(j0, j1, bias, sums, room)
		g.unitFinish(lane, 0, j0, j1, sums, width)
		return
	}
	// Whole blocks of rows go where they belong, if they may.
	whole := g.rows / simd.UnitRows
	if !g.o.half.Absent() || (j1-j0)%simd.UnitColumns != 0 {
		whole = 0
	}
	for j := j0; j < j1; j += simd.UnitColumns {
		clear(bias)
		if g.o.columnBias != nil {
			copy(bias, singles(g.o.columnBias[j:min(j+simd.UnitColumns, j1)]))
		}
		for k0 := g.k0; k0 < g.k1; k0 += g.unit.blockK {
			k1 := min(k0+g.unit.blockK, g.k1)
			g.fetchNext(j+simd.UnitColumns, k0, k1)
			b := simd.UnitBlock{
				Steps: (k1 - k0) / simd.UnitDepth, ABlock: simd.UnitRows * (g.k1 - g.k0) * g.unit.parts,
				Parts: g.unit.parts, Streams: g.unitPacked(),
			}
			b.B = g.unitRight(j, min(j+simd.UnitColumns, j1), k0, k1, room, mine)
			left := ops.Elements[uint16](ops.View{Data: g.work[:g.unit.leftBytes]})[(k0-g.k0)*simd.UnitRows*g.unit.parts:]
			run := func(from, blocks int, c []float32, ldc int) {
				b.A, b.Blocks, b.C, b.Ldc = left[from*b.ABlock:], blocks, c, ldc
				b.Rows = g.rows - from*simd.UnitRows
				b.First, b.LdFirst = bias, 0
				if k0 > 0 {
					b.First, b.LdFirst = c, ldc
				}
				g.set.MultiplyUnit(&b)
			}
			if whole > 0 {
				run(0, whole, singles(g.c[g.i0*g.ldc+j:]), g.ldc)
			}
			if rest := (g.rows+simd.UnitRows-1)/simd.UnitRows - whole; rest > 0 {
				run(whole, rest, sums[whole*simd.UnitRows*width+j-j0:], width)
			}
		}
	}
	if g.k1 == g.unit.depth {
		g.unitFinish(lane, whole*simd.UnitRows, j0, j1, sums, width)
	}
}

// unitStream computes few rows of the columns [j0, j1), of which the right factor lies packed: all of it in one go.
func (g *gemmCall[T]) unitStream(j0, j1 int, bias, sums []float32) {
	clear(bias)
	if g.o.columnBias != nil {
		copy(bias, singles(g.o.columnBias[j0:j1]))
	}
	g.set.MultiplyUnit(&simd.UnitBlock{
		Blocks: 1, Rows: g.rows, Steps: g.unit.depth / simd.UnitDepth, Parts: g.unit.parts,
		Panels: (j1 - j0 + simd.UnitColumns - 1) / simd.UnitColumns,
		A:      ops.Elements[uint16](ops.View{Data: g.work[:g.unit.leftBytes]}), B: g.right.data[2*j0*g.unit.depth:],
		First: bias, C: sums, Ldc: len(bias),
	})
}

// unitLines reports whether the rows are few and the right factor lies as tiles take it for few rows: column behind column, as weights do in
// files. An output embedding that inputs are looked up in is kept so.
func (g *gemmCall[T]) unitLines() bool {
	m := &g.right
	return g.rows <= unitFewRows && g.set.Unit() == simd.UnitTiles && !m.packed && m.dtype == tensor.BFloat16 && m.encoding == nil &&
		m.step == 1 && m.line >= g.k && len(m.rows.Shape) == 0 && g.k == g.unit.depth && g.n >= simd.UnitFewRows
}

// unitFew computes few rows of the columns [j0, j1) of a right factor as it lies. Room is for the sums by columns.
func (g *gemmCall[T]) unitFew(j0, j1 int, bias, sums, room []float32) {
	clear(bias)
	if g.o.columnBias != nil {
		copy(bias, singles(g.o.columnBias[j0:j1]))
	}
	m, width := &g.right, len(bias)
	whole := (j1 - j0) &^ (simd.UnitFewRows - 1)
	run := func(j, lines, from int) {
		c := room[:lines*g.rows]
		for i := from; i < lines; i++ {
			for r := range g.rows {
				c[i*g.rows+r] = bias[j+i-j0]
			}
		}
		g.set.MultiplyFew(&simd.UnitLines{
			Rows: g.rows, Steps: g.unit.depth / simd.UnitDepth, Parts: g.unit.parts, Lines: lines,
			A: ops.Elements[uint16](ops.View{Data: g.work[:g.unit.leftBytes]}), B: m.data[2*(m.offset+j*m.line):], Ldb: 2 * m.line, C: c,
		})
		for i := from; i < lines; i++ {
			for r := range g.rows {
				sums[r*width+j+i-j0] = c[i*g.rows+r]
			}
		}
	}
	run(j0, whole, 0)
	if rest := j1 - j0 - whole; rest > 0 { // with some before them, which may be another part's
		run(j1-simd.UnitFewRows, simd.UnitFewRows, simd.UnitFewRows-rest)
	}
}

// unitPacked reports whether the right factor lies as the unit reads it, panel by panel.
func (g *gemmCall[T]) unitPacked() bool {
	return g.right.packed && (g.right.dtype == tensor.BFloat16 || g.round)
}

// fetchNext fetches the columns from j on of a right factor that lies as it is, from depth k0 to k1, where the rows are
// so few that it streams by.
func (g *gemmCall[T]) fetchNext(j, k0, k1 int) {
	m := &g.right
	if g.rows > simd.FewRows || m.packed || m.encoding != nil || m.step != 1 || m.line < 0 || j >= g.n {
		return
	}
	size := m.dtype.Size()
	at := uintptr(unsafe.Pointer(unsafe.SliceData(m.data))) + uintptr((m.offset+j*m.line+k0)*size)
	simd.FetchRows(min(simd.UnitColumns, g.n-j), at, m.line*size, (min(k1, g.k)-k0)*size)
}

// unitRight returns the panel of columns [j, j1) from depth k0 to k1, packed where it is not.
func (g *gemmCall[T]) unitRight(j, j1, k0, k1 int, room []float32, dst []byte) []byte {
	m := &g.right
	const pair = 4 * simd.UnitColumns / 2 // bytes of a row
	if g.unitPacked() {
		return m.data[2*(j*g.unit.depth+k0*simd.UnitColumns):]
	}
	end := min(k1, g.k)
	dst = dst[:(k1-k0)*pair]
	words := ops.Elements[uint32](ops.View{Data: dst})
	if !m.packed && m.dtype == tensor.BFloat16 && m.step == 1 {
		if end < k1 || j1-j < simd.UnitColumns {
			clear(dst)
		}
		m.packPairs(words, simd.UnitColumns, j, j1-j, k0, end)
		return dst
	}
	if m.turnPairs(dst, j, j1-j, k0, end, g.k) {
		return dst
	}
	m.roundPairs(words, room, simd.UnitColumns, j, j1-j, k0, end)
	clear(words[(end-k0+1)/2*simd.UnitColumns:])
	return dst
}

// unitFinish gives complete sums their last form: rows from whole on are in sums.
func (g *gemmCall[T]) unitFinish(lane, whole, j0, j1 int, sums []float32, width int) {
	if whole > 0 {
		g.finish(lane, completeSums[T]{row: g.i0, rows: whole, j: j0, width: j1 - j0, c: g.c[g.i0*g.ldc+j0:],
			ldc: g.ldc}, nil)
	}
	if whole == g.rows {
		return
	}
	rest := any(sums[whole*width:][:(g.rows-whole-1)*width+j1-j0]).([]T)
	g.finish(lane, completeSums[T]{row: g.i0 + whole, rows: g.rows - whole, j: j0, width: j1 - j0, c: rest,
		ldc: width}, nil)
	for i := whole; i < g.rows; i++ {
		line := rest[(i-whole)*width:][:j1-j0]
		if row := g.i0 + i; g.o.half.Absent() {
			copy(g.c[row*g.ldc+j0:], line)
		} else {
			storeHalf(g.set, g.o.half, g.o.halfAt+row*g.n+j0, line)
		}
	}
}
