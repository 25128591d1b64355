package cpu

import (
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
)

// A product of few rows by a right factor whose rows lie in memory as they are, k×n, reads that as it lies: pieces of rows,
// as long as they may be, are added up, each block of the depth for itself. The blocks' sums are then added in order, so
// that bits are those of tiles.

// A rowsCut is how such a product is cut, by its sizes alone.
type rowsCut struct {
	// blocks of the depth are computed before their sums are added up, chunk columns of one at a time.
	blocks, chunk int
	// width is the sums of a row of a block: those of its columns, and of a panel.
	width, m, k int
	half        bool
}

// cutRows cuts a product, whose result is rounded if half.
func cutRows(m, n, k int, half bool) rowsCut {
	const sumsMost, leastChunk, mostChunk, manyTasks = 1 << 15, 256, 4096, 12
	c := rowsCut{m: m, k: k, half: half, width: ops.RoundUp(n, stripColumns) + stripColumns}
	all := max(1, (k+blockK-1)/blockK)
	most := min(all, max(1, sumsMost/(m*c.width)))
	rounds := (all + most - 1) / most
	c.blocks = (all + rounds - 1) / rounds
	pieces := (manyTasks + c.blocks - 1) / c.blocks
	c.chunk = ops.RoundUp((n+pieces-1)/pieces, stripColumns)
	c.chunk = min(max(c.chunk, leastChunk), mostChunk)
	return c
}

// floats returns the scratch: the sums of blocks, the left factor, and the sums of rows where they are rounded.
func (c rowsCut) floats() (sums, left, rows int) {
	if c.half {
		rows = c.m * c.width
	}
	return c.blocks * c.m * c.width, c.m * c.k, rows
}

func (c rowsCut) workBytes() int64 {
	sums, left, rows := c.floats()
	return int64(64 + 4*(sums+left+rows))
}

func (c rowsCut) split(work []byte) (sums, left, rows []float32) {
	nSums, nLeft, nRows := c.floats()
	all := ops.Elements[float32](ops.View{Data: work})
	return all[:nSums], all[nSums:][:nLeft], all[nSums+nLeft:][:nRows]
}

// byRows reports whether a product is computed so.
func (g *gemmCall[T]) byRows() bool {
	return g.set != nil && g.set.HasCombine(g.element) && g.m <= simd.FewRows && g.source == rightRows && g.n >= stripColumns &&
		g.a == panelSource[T](&g.left)
}

// A rowsCall is a call as the task of computing blocks' sums.
type rowsCall[T ops.Real] gemmCall[T]

// runRows computes the product.
func (g *gemmCall[T]) runRows(p *ops.Pool) {
	c := cutRows(g.m, g.n, g.k, !g.o.half.Absent())
	sums, left, rows := c.split(g.work)
	g.left.packRows(any(left).([]T), g.k, 0, g.m, 0, g.k)
	to, ldc := g.c, g.ldc
	if !g.o.half.Absent() {
		to, ldc = any(rows).([]T), c.width
	}
	pieces := (g.n + c.chunk - 1) / c.chunk
	for g.k0 = 0; g.k0 < g.k; g.k0 += c.blocks * blockK {
		g.k1 = min(g.k0+c.blocks*blockK, g.k)
		blocks := (g.k1 - g.k0 + blockK - 1) / blockK
		g.parts = blocks * pieces
		g.next[0].Store(0)
		if p == nil {
			(*rowsCall[T])(g).Run(0, 1)
		} else {
			p.Do(min(g.parts, mostLanes), 1, (*rowsCall[T])(g))
		}
		for i := range g.m {
			for b := range blocks {
				g.addBlock(i, g.k0+b*blockK, singles(to[i*ldc:][:g.n]), sums[(b*c.m+i)*c.width:][:g.n])
			}
		}
	}
	g.finish(0, completeSums[T]{rows: g.m, width: g.n, c: to, ldc: ldc}, any(sums[:c.width]).([]T))
	if !g.o.half.Absent() {
		for i := range g.m {
			storeHalf(g.set, g.o.half, g.o.halfAt+i*g.n, to[i*ldc:][:g.n])
		}
	}
}

// addBlock adds a block's sums to row i.
func (g *gemmCall[T]) addBlock(i, k0 int, to, sums []float32) {
	switch {
	case k0 > 0 || g.o.add:
		g.set.Map(simd.MapAdd, to, to, sums, nil, 0, 0, 0)
	case g.o.rowBias != nil:
		g.set.Map(simd.MapAdd, to, sums, singles(g.o.rowBias[i:][:1]), nil, 0, 0, 0)
	case g.o.columnBias != nil:
		g.set.Map(simd.MapAdd, to, sums, singles(g.o.columnBias), nil, 0, 0, 0)
	default:
		copy(to, sums)
	}
}

// Run computes parts until none is left.
func (r *rowsCall[T]) Run(_, _ int) {
	g := (*gemmCall[T])(r)
	c := cutRows(g.m, g.n, g.k, !g.o.half.Absent())
	pieces := (g.n + c.chunk - 1) / c.chunk
	sums, left, _ := c.split(g.work)
	for n := int(g.next[0].Add(1)) - 1; n < g.parts; n = int(g.next[0].Add(1)) - 1 {
		block, j0 := n/pieces, n%pieces*c.chunk
		g.rowsPart(c, block, j0, min(j0+c.chunk, g.n), sums[block*c.m*c.width:], left)
	}
}

// rowsPart computes the sums of columns [j0, j1) of a block.
func (g *gemmCall[T]) rowsPart(c rowsCut, block, j0, j1 int, sums, left []float32) {
	const each = 8 // rows at a time, which stay in the cache for all rows of the left factor
	m, e := &g.right, g.element
	size := e.Bytes()
	k0 := g.k0 + block*blockK
	k1 := min(k0+blockK, g.k1)
	whole := (j1 - j0) / g.set.Columns * g.set.Columns
	compute := func(j, width, to int) {
		for i := range g.m {
			clear(sums[i*c.width+to:][:width])
		}
		for k := k0; k < k1; k += each {
			at := (m.offset + j + k*m.step) * size
			for i := range g.m {
				x := left[i*g.k+k:][:min(each, k1-k)]
				g.set.Combine(e, x, m.data[at:], m.step*size, sums[i*c.width+to:][:width])
			}
		}
	}
	compute(j0, whole, j0)
	if rest := j1 - j0 - whole; rest > 0 { // the last columns, with some before them once more
		room := c.width - stripColumns
		compute(j1-g.set.Columns, g.set.Columns, room)
		for i := range g.m {
			row := sums[i*c.width:][:c.width]
			copy(row[j1-rest:j1], row[room+g.set.Columns-rest:])
		}
	}
}
