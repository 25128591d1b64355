package cpu

import (
	simd "github.com/optimem/optimem/internal/cpu/kernel"
)

// The sizes of the blocks that products in assembly work through: a part of parallel work is some tiles high and some
// wide, so that its share of both factors stays in a core's cache.
const (
	partTilesHigh, partTilesWide = 8, 4
	// widestTile is the number of columns of the widest tile, which scratch memory is rounded up to.
	widestTile = 32
)

// gemmTiles computes a product of float32 with the kernels of a processor. It has the blocks of gemm and sums in its
// order: over k within a block, then the blocks. Products are rounded once, with the sum (FMA).
func gemmTiles(
	s *simd.Set, p *Pool, m, n, k int, a, b panelSource[float32], c []float32, ldc int,
	o gemmOptions[float32], work []byte,
) {
	if skinnyTiles(s, p, m, n, k, a, b, c, ldc, o) {
		return
	}
	scratch := elements[float32](view{data: work})
	rows := tileHeight(s, m)
	for j0 := 0; j0 < n; j0 += blockColumns {
		j1 := min(j0+blockColumns, n)
		for k0 := 0; k0 < k; k0 += blockK {
			k1 := min(k0+blockK, k)
			depth := roundUp(k1-k0, unroll)
			bSize := roundUp(j1-j0, s.Columns) * depth
			right := scratch[:bSize]
			for i0 := 0; i0 < m; i0 += blockRows {
				i1 := min(i0+blockRows, m)
				t := tileBlock{
					set: s, left: scratch[bSize:][:(i1-i0)*depth], right: right, c: c, ldc: ldc, o: o, depth: depth, rows: rows,
					i0: i0, i1: i1, j0: j0, j1: j1, first: k0 == 0,
				}
				packTiles(p, &t, a, b, k0, k1, i0 == 0)
				t.run(p)
			}
		}
	}
}

// tileHeight returns the rows of the tiles that m rows are cut into: all about as high, so that none is mostly empty.
func tileHeight(s *simd.Set, m int) int {
	tiles := (m + s.Rows - 1) / s.Rows
	return (m + tiles - 1) / tiles
}

// packTiles writes the rows of a one behind the other, and the columns of b in panels as wide as a tile.
func packTiles(p *Pool, t *tileBlock, a, b panelSource[float32], k0, k1 int, withRight bool) {
	const linesEach = 32
	leftParts := (t.i1 - t.i0 + linesEach - 1) / linesEach
	parts := leftParts
	if withRight {
		parts += (t.j1 - t.j0 + linesEach - 1) / linesEach
	}
	forEach(p, parts, func(part int) {
		src, dst, width, from, to := a, t.left, 1, t.i0, t.i1
		if part >= leftParts {
			part -= leftParts
			src, dst, width, from, to = b, t.right, t.set.Columns, t.j0, t.j1
		}
		src.pack(dst[part*linesEach*t.depth:], width, from+part*linesEach, min(from+(part+1)*linesEach, to), k0, k1)
	})
}

// A tileBlock is the product of packed blocks: the rows [i0, i1) and columns [j0, j1) of c.
type tileBlock struct {
	set            *simd.Set
	left, right    []float32
	c              []float32
	ldc            int
	o              gemmOptions[float32]
	depth, rows    int
	i0, i1, j0, j1 int
	// first says that c holds no sum yet.
	first bool
}

func (t *tileBlock) run(p *Pool) {
	high, wide := t.rows*partTilesHigh, t.set.Columns*partTilesWide
	down, across := (t.i1-t.i0+high-1)/high, (t.j1-t.j0+wide-1)/wide
	forEach(p, down*across, func(n int) {
		i0, j0 := t.i0+n%down*high, t.j0+n/down*wide
		t.part(i0, min(i0+high, t.i1), j0, min(j0+wide, t.j1))
	})
}

// part computes the tiles of a part of the block.
func (t *tileBlock) part(i0, i1, j0, j1 int) {
	s := t.set
	mode := simd.Add
	var bias []float32
	if t.first && !t.o.add {
		switch {
		case t.o.rowBias != nil:
			mode = simd.RowBias
		case t.o.columnBias != nil:
			mode = simd.ColumnBias
		default:
			mode = simd.Store
		}
	}
	for j := j0; j < j1; j += s.Columns {
		right := t.right[(j-t.j0)*t.depth:][:s.Columns*t.depth]
		columns := min(s.Columns, j1-j)
		for i := i0; i < i1; i += t.rows {
			rows := min(t.rows, i1-i)
			left := t.left[(i-t.i0)*t.depth:][:rows*t.depth]
			if columns < s.Columns {
				t.edge(rows, columns, i, j, left, right)
				continue
			}
			switch mode {
			case simd.RowBias:
				bias = t.o.rowBias[i:]
			case simd.ColumnBias:
				bias = t.o.columnBias[j:]
			}
			s.Gemm(rows, t.depth, left, t.depth, right, t.c[i*t.ldc+j:], t.ldc, mode, bias)
		}
	}
}

// edge computes a tile that is cut off on the right.
func (t *tileBlock) edge(rows, columns, i, j int, left, right []float32) {
	const most = 14 * widestTile
	var room [most]float32
	s := t.set
	s.Gemm(rows, t.depth, left, t.depth, right, room[:], s.Columns, simd.Store, nil)
	for r := range rows {
		at := (i+r)*t.ldc + j
		line, sums := t.c[at:at+columns], room[r*s.Columns:][:columns]
		if t.first && !t.o.add {
			for x := range line {
				line[x] = t.o.first(t.c, i+r, j+x, at+x) + sums[x]
			}
			continue
		}
		for x := range line {
			line[x] += sums[x]
		}
	}
}

// skinnyTiles is skinny with the kernels of a processor.
func skinnyTiles(
	s *simd.Set, p *Pool, m, n, k int, a, b panelSource[float32], c []float32, ldc int, o gemmOptions[float32],
) bool {
	x, ok := a.(*matrix[float32])
	w, ok2 := b.(*matrix[float32])
	if !ok || !ok2 || m > simd.DotRows {
		return false
	}
	left, right := x.direct(), w.direct()
	if left == nil || right == nil {
		return false
	}
	whole := k / s.Lanes * s.Lanes
	left = left[x.offset:]
	columns := func(j0, j1 int) {
		var sums [4 * simd.DotRows]float32
		for j := j0; j < j1; {
			count := 1
			if j+4 <= j1 {
				count = 4
			}
			at := right[w.offset+j*w.line:]
			clear(sums[:])
			if whole > 0 {
				s.Dot(m, count, whole, left, x.line, at, w.line, sums[:])
			}
			for i := range m {
				for r := range count {
					sum := sums[i*count+r]
					for t := whole; t < k; t++ {
						sum += left[i*x.line+t] * at[r*w.line+t]
					}
					to := i*ldc + j + r
					c[to] = o.first(c, i, j+r, to) + sum
				}
			}
			j += count
		}
	}
	const each = 32
	if p == nil {
		columns(0, n)
	} else {
		p.For(n, each, columns)
	}
	return true
}
