package cpu

import (
	"github.com/optimem/optimem/internal/cpu/ops"
)

// goRows and goColumns are the size of a tile in Go.
const goRows, goColumns = 2, 4

// goTile computes a tile in Go from a packed panel.
func (p *gemmPart[T]) goTile(i, rows, j, columns, k0, k1 int, panel []T) {
	left, lda := p.leftTile(i, k0)
	a0 := left[:k1-k0]
	a1 := a0
	if rows == 2 {
		a1 = left[lda:][:k1-k0]
	}
	multiplyPanels(a0, a1, panel, (*[goRows * goColumns]T)(p.edge))
	p.addTile(i, rows, j, columns, k0 == 0, p.edge)
}

// multiplyPanels computes acc[r][s] = Σ a_r[k]·b[k][s] for two rows and a panel of 4 columns. The conversions keep
// compilers from fusing, so that every machine computes the same bits.
func multiplyPanels[T ops.Real](a0, a1, b []T, acc *[goRows * goColumns]T) {
	var c00, c01, c02, c03, c10, c11, c12, c13 T
	a1, b = a1[:len(a0)], b[:goColumns*len(a0)]
	for k, x0 := range a0 {
		x1, y := a1[k], (*[goColumns]T)(b[goColumns*k:])
		c00 += T(x0 * y[0])
		c01 += T(x0 * y[1])
		c02 += T(x0 * y[2])
		c03 += T(x0 * y[3])
		c10 += T(x1 * y[0])
		c11 += T(x1 * y[1])
		c12 += T(x1 * y[2])
		c13 += T(x1 * y[3])
	}
	*acc = [goRows * goColumns]T{c00, c01, c02, c03, c10, c11, c12, c13}
}

// skinny computes products with few rows where both factors lie along k, without packing the right one, which would
// cost more than the product in Go. It sums in the order that tiles do.
func (g *gemmCall[T]) skinny(p *ops.Pool) bool {
	const few = 4
	x, w := &g.left, &g.right
	if g.m > few || g.a != panelSource[T](x) || g.b != panelSource[T](w) || len(x.rows.Shape) > 0 {
		return false
	}
	if x.step != 1 || w.step != 1 || x.dtype != ops.RealDType[T]() || w.dtype != ops.RealDType[T]() {
		return false
	}
	const each = 32
	if p == nil {
		(*skinnyRows[T])(g).Run(0, g.n)
	} else {
		p.Do(g.n, each, (*skinnyRows[T])(g))
	}
	return true
}

// skinnyRows is a call as the task of computing columns.
type skinnyRows[T ops.Real] gemmCall[T]

// Run computes columns [j0, j1).
func (g *skinnyRows[T]) Run(j0, j1 int) {
	left, right := ops.Elements[T](ops.View{Data: g.left.data}), ops.Elements[T](ops.View{Data: g.right.data})
	for i := range g.m {
		row := left[g.left.offset+i*g.left.line:][:g.k]
		line := g.c[i*g.ldc:][:g.n]
		j := j0
		for ; j+4 <= j1; j += 4 {
			var s [4]T
			for r := range s {
				s[r] = g.o.first(line[j+r], i, j+r)
			}
			at, next := g.right.offset+j*g.right.line, g.right.line
			dot4(row, right[at:][:g.k], right[at+next:][:g.k], right[at+2*next:][:g.k], right[at+3*next:][:g.k], &s)
			copy(line[j:j+4], s[:])
		}
		for ; j < j1; j++ {
			line[j] = dot(row, right[g.right.offset+j*g.right.line:][:g.k], g.o.first(line[j], i, j))
		}
	}
}

// dot returns start + Σ a[k]·b[k], block by block as gemm sums.
func dot[T ops.Real](a, b []T, start T) T {
	for k0 := 0; k0 < len(a); k0 += blockK {
		x := a[k0:min(k0+blockK, len(a))]
		y := b[k0:][:len(x)]
		var s T
		for i := range x {
			s += T(x[i] * y[i])
		}
		start += s
	}
	return start
}

// dot4 is dot for four right-hand sides.
func dot4[T ops.Real](a, b0, b1, b2, b3 []T, start *[4]T) {
	for k0 := 0; k0 < len(a); k0 += blockK {
		x := a[k0:min(k0+blockK, len(a))]
		y0, y1, y2, y3 := b0[k0:][:len(x)], b1[k0:][:len(x)], b2[k0:][:len(x)], b3[k0:][:len(x)]
		var s0, s1, s2, s3 T
		for i, v := range x {
			s0 += T(v * y0[i])
			s1 += T(v * y1[i])
			s2 += T(v * y2[i])
			s3 += T(v * y3[i])
		}
		start[0] += s0
		start[1] += s1
		start[2] += s2
		start[3] += s3
	}
}
