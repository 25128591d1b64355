package main

import "fmt"

// fewPanels returns how many panels are read side by side for a number of rows: several streams are read faster than
// one. It is what package kernel says for sixteen registers of eight floats.
func fewPanels(rows int) int {
	for _, n := range []int{4, 2} {
		if 2*n*rows+rows+1 <= 16 {
			return n
		}
	}
	return 1
}

// few writes the kernel of few rows by some panels of sixteen columns.
//
//	c[r][j] = Σ_k a[r][k]·b[k][j] (+ c[r][j], + bias[r] or + bias[j]) for j < 16·panels
//
// Panels of b lie next bytes apart, their rows, or pairs of them, ldb; of each panel what lies ahead bytes further is
// fetched into the cache.
func few(f *file, rows int, e element) {
	panels := fewPanels(rows)
	k := f.kernel(fmt.Sprintf("few128%sx%d", e.name, rows),
		"depth int, a *float32, lda int, b *byte, ldb, next int, c *float32, ldc int, mode int, bias *float32, ahead int",
		fmt.Sprintf("computes %d rows of %d panels; see few.", rows, panels))
	depth, ldb, ahead := k.arg("depth"), k.arg("ldb"), k.arg("ahead")
	a, b := k.rowPointers("a", "lda", rows), k.rowPointers("b", "next", panels)
	vectors := quads * panels
	acc := func(r, q int) V { return V(vectors*r + q) }
	for i := range vectors * rows {
		k.zero(V(i))
	}
	y := [quads]V{24, 25, 26, 27}
	x := func(r int) V { return V(28 + r) }
	// With pairs there are as many rows as registers where there are few sums.
	mask, each := V(vectors*rows), 1
	if e == pairs {
		each = 2
		if rows == 3 {
			mask = 31
		}
		k.do(upperHalves(mask))
	}
	step := func(n int) {
		for r := range rows {
			k.loadS(x(r), a[r], 4*n)
		}
		for p := range panels {
			e.load(k, b[p], n, y, mask)
			for r := range rows {
				for q := range quads {
					k.do(fmlaLane(acc(r, quads*p+q), y[q], x(r), 0))
				}
			}
		}
	}
	far := k.gp()
	k.p("SUBS $%d, %v, %v", each, depth, depth)
	k.p("BLT rest")
	k.label("loop")
	for p := range panels {
		k.p("ADD %v, %v, %v", ahead, b[p], far)
		k.fetch(2, far, 0)
	}
	for n := range each {
		step(n)
	}
	for _, row := range a {
		k.next(row, 4*each)
	}
	for _, panel := range b {
		k.advance(ldb, panel)
	}
	k.p("SUBS $%d, %v, %v", each, depth, depth)
	k.p("BGE loop")
	k.label("rest")
	if each == 2 {
		k.p("ADDS $1, %v, %v", depth, depth)
		k.p("BLT done")
		step(0)
		k.label("done")
	}
	k.release(far)
	k.release(a...)
	store(k, rows, vectors, acc, y[0])
	k.end()
}

// acrossGroups is how many times eight columns are computed, as package kernel says.
func acrossGroups(rows int, e element) int {
	if e == i8 && rows <= 2 {
		return 2
	}
	return 1
}

// across writes the kernel of few rows by eight columns, or sixteen, whose elements lie along k:
//
//	c[r][j] = Σ_k a[r][k]·b[j][k] (+ c[r][j], + bias[r] or + bias[j]) for j < 8·groups
//
// b is turned in registers, four elements of each column at a time, or four pairs of elements of bfloat16, or four times
// four of int8; depth is a multiple of twice that. Columns lie ldb bytes apart; of each what lies ahead bytes further is
// fetched into the cache.
func across(f *file, rows int, e element) {
	groups := acrossGroups(rows, e)
	k := f.kernel(fmt.Sprintf("across128%sx%d", e.name, rows),
		"depth int, a *float32, lda int, b *byte, ldb int, c *float32, ldc int, mode int, bias *float32, ahead int",
		fmt.Sprintf("computes %d rows of %d columns; see across.", rows, 8*groups))
	depth, ahead := k.arg("depth"), k.arg("ahead")
	a, b := k.rowPointers("a", "lda", rows), k.rowPointers("b", "ldb", 8*groups)
	vectors := 2 * groups
	acc := func(r, q int) V { return V(vectors*r + q) }
	for i := range vectors * rows {
		k.zero(V(i))
	}
	columns := [2][4]V{{8, 9, 10, 11}, {12, 13, 14, 15}}
	spares := [2][4]V{{16, 17, 18, 19}, {20, 21, 22, 23}}
	x := func(r int) V { return V(24 + r) }
	spare, mask := V(28), V(31)
	each := 4 / e.bytes // elements in 32 bits
	if e == pairs {
		k.do(upperHalves(mask))
	}
	far := k.gp()
	k.label("loop")
	for _, column := range b {
		k.p("ADD %v, %v, %v", ahead, column, far)
		k.fetch(2, far, 0)
	}
	for part := range 2 {
		for group := range groups {
			for j, column := range b[8*group : 8*group+8] {
				k.loadQ(columns[j/4][j%4], column, 16*part)
			}
			var turned [2][4]V
			for half := range turned {
				turned[half] = turn4(k, columns[half], spares[half])
			}
			for n := range 4 * each {
				if n%4 == 0 {
					for r := range rows {
						k.loadQ(x(r), a[r], 4*n)
					}
				}
				for half := range 2 {
					y := turned[half][n/each]
					if each > 1 {
						e.part(k, n, y, spare, mask)
						y = spare
					}
					for r := range rows {
						k.do(fmlaLane(acc(r, 2*group+half), y, x(r), n%4))
					}
				}
			}
		}
		for _, row := range a {
			k.next(row, 16*each)
		}
	}
	for _, column := range b {
		k.next(column, 32)
	}
	k.p("SUBS $%d, %v, %v", 8*each, depth, depth)
	k.p("BGT loop")
	k.release(far)
	k.release(b...)
	store(k, rows, vectors, acc, spare)
	k.end()
}
