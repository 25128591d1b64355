package main

import "fmt"

// The size of a tile: rows, and columns in registers of four.
const (
	tileRows = 6
	quads    = 4
	fewRows  = 4
)

// gemmFamily writes the tiles of products of matrices, dot products, and what packs for them.
func gemmFamily(f *file) {
	for rows := 1; rows <= tileRows; rows++ {
		gemm(f, rows, f32)
	}
	for rows := 1; rows <= fewRows; rows++ {
		dot(f, rows, 4)
		dot(f, rows, 1)
		few(f, rows, f32)
		across(f, rows, f32)
	}
	panelWiden(f, f32)
	transpose8(f, f32)
	fetchRows(f)
}

// An element is what the right factor of a product holds; the left one, sums and results are float32.
type element struct {
	name  string
	bytes int
}

// The elements of pairs are bfloat16: each two rows of a factor lie as one, element by element side by side.
var (
	f32, i8          = element{"", 4}, element{"i8", 1}
	bf16, f16, pairs = element{"bf16", 2}, element{"f16", 2}, element{"pairs", 2}
)

// load reads sixteen elements as float32: of pairs those of row k, with a mask of upper halves.
func (e element) load(k *kernel, base R, row int, to [quads]V, mask V) {
	switch e {
	case f16, bf16:
		k.loadQQ(to[0], to[2], base, 0)
		for _, v := range []V{to[0], to[2]} {
			if e == f16 {
				k.do(fcvtl2H(v+1, v))
				k.do(fcvtlH(v, v))
			} else {
				k.do(shll2(v+1, v))
				k.do(shll(v, v))
			}
		}
	case i8:
		k.loadQ(to[0], base, 0)
		k.do(sxtl2B(to[2], to[0]))
		k.do(sxtlB(to[0], to[0]))
		for _, v := range []V{to[0], to[2]} {
			k.do(sxtl2H(v+1, v))
			k.do(sxtlH(v, v))
		}
		for _, v := range to {
			k.do(scvtfS(v, v))
		}
	default:
		k.loadQQ(to[0], to[1], base, 0)
		k.loadQQ(to[2], to[3], base, 32)
	}
	if e == pairs {
		for _, v := range to {
			e.part(k, row, v, v, mask)
		}
	}
}

// part makes float32 of one element of each 32 bits: of a pair, or of four of int8.
func (e element) part(k *kernel, n int, from, to, mask V) {
	switch {
	case e == i8:
		if n %= 4; n < 3 {
			k.do(shlS(to, from, 24-8*n))
			from = to
		}
		k.do(sshrS(to, from, 24))
		k.do(scvtfS(to, to))
	case n%2 == 0:
		k.do(shlS(to, from, 16))
	default:
		k.and(from, mask, to)
	}
}

// streamedRows is the number of rows up to which a right factor is read faster than the cache ahead of the processor
// fetches it by itself.
const streamedRows = 4

// gemm writes the kernel of a tile: rows of a by sixteen columns of b.
//
//	c[r][j] = Σ_k a[r][k]·b[k][j] (+ c[r][j], + bias[r] or + bias[j]) for j < 16
//
// a is row-major with rows lda bytes apart; rows of b, or pairs of them, lie ldb bytes apart. While it computes, memory
// that is needed later is fetched into the cache: a run of bytes from ahead on; after each 16 of k, jump bytes are left
// out.
func gemm(f *file, rows int, e element) {
	k := f.kernel(fmt.Sprintf("gemm128%sx%d", e.name, rows),
		"depth int, a *float32, lda int, b *byte, ldb int, c *float32, ldc int, mode int, bias *float32, ahead uintptr, jump int",
		fmt.Sprintf("computes %d rows of 16 columns; see gemm.", rows))
	depth, b, ldb, ahead, jump := k.arg("depth"), k.arg("b"), k.arg("ldb"), k.arg("ahead"), k.arg("jump")
	a := k.rowPointers("a", "lda", rows)
	acc := func(r, q int) V { return V(quads*r + q) }
	for i := range quads * rows {
		k.zero(V(i))
	}
	y := [quads]V{24, 25, 26, 27}
	ones, mask := 4, V(31) // registers for elements of a; with pairs the last is the mask
	if e == pairs {
		ones = 3
		k.do(upperHalves(mask))
	}
	x := func(r int) V { return V(28 + r%ones) }
	step := func(n int) {
		for r := range min(rows, ones) {
			k.loadS(x(r), a[r], 4*n)
		}
		e.load(k, b, n, y, mask)
		for r := range rows {
			for q := range quads {
				k.do(fmlaLane(acc(r, q), y[q], x(r), 0))
			}
			if r+ones < rows {
				k.loadS(x(r), a[r+ones], 4*n)
			}
		}
		if e != pairs || n%2 == 1 {
			k.advance(ldb, b)
		}
	}
	fetches, level := max(e.bytes/2, 1), 2
	if rows <= streamedRows {
		fetches, level = e.bytes, 1
	}
	k.p("SUBS $4, %v, %v", depth, depth)
	k.p("BLT rest")
	k.label("loop")
	for n := range 4 {
		if n < fetches {
			k.fetch(level, ahead, 64*n)
		}
		step(n)
	}
	for _, row := range a {
		k.next(row, 16)
	}
	k.next(ahead, 64*fetches)
	jumped := k.gp()
	k.p("ADD %v, %v, %v", jump, ahead, jumped)
	k.p("TST $15, %v", depth)
	k.p("CSEL EQ, %v, %v, %v", jumped, ahead, ahead)
	k.p("SUBS $4, %v, %v", depth, depth)
	k.p("BGE loop")
	k.label("rest")
	k.next(depth, 4)
	for n := range 3 {
		k.p("SUBS $1, %v, %v", depth, depth)
		k.p("BLT done")
		step(n)
	}
	k.label("done")
	store(k, rows, quads, acc, y[0])
	k.end()
}

// store writes the sums of rows of a number of registers, to which mode says what is added: 0 nothing, 1 what is there,
// 2 a number for each row, 3 one for each column.
func store(k *kernel, rows, vectors int, acc func(r, q int) V, spare V) {
	mode, c, ldc, bias := k.arg("mode"), k.arg("c"), k.arg("ldc"), k.arg("bias")
	k.p("CMP $1, %v", mode)
	k.p("BLT store")
	k.p("BEQ add")
	k.p("CMP $2, %v", mode)
	k.p("BEQ rows")
	for q := range vectors {
		k.loadQ(spare, bias, 16*q)
		for r := range rows {
			k.do(faddS(acc(r, q), acc(r, q), spare))
		}
	}
	k.p("B store")
	k.label("rows")
	for r := range rows {
		k.loadAll(spare, bias)
		for q := range vectors {
			k.do(faddS(acc(r, q), acc(r, q), spare))
		}
		if r < rows-1 {
			k.next(bias, 4)
		}
	}
	k.label("store")
	for r := range rows {
		for q := 0; q < vectors; q += 2 {
			k.storeQQ(acc(r, q), acc(r, q+1), c, 16*q)
		}
		if r < rows-1 {
			k.advance(ldc, c)
		}
	}
	k.ret()
	k.label("add")
	for r := range rows {
		for q := range vectors {
			k.loadQ(spare, c, 16*q)
			k.do(faddS(acc(r, q), acc(r, q), spare))
			k.storeQ(acc(r, q), c, 16*q)
		}
		if r < rows-1 {
			k.advance(ldc, c)
		}
	}
	k.ret()
}

// dot writes the kernel of a few rows by a few columns that both lie along k:
//
//	sums[r·columns+j] = Σ_k a[r][k]·b[j][k] for k < depth, a multiple of eight
//
// Each sum is that of eight partial sums, which are added up in the same order whatever is computed beside it.
func dot(f *file, rows, columns int) {
	k := f.kernel(fmt.Sprintf("dot128x%dx%d", rows, columns),
		"depth int, a *float32, lda int, b *float32, ldb int, sums *float32",
		fmt.Sprintf("computes %d rows by %d columns; see dot.", rows, columns))
	depth, sums := k.arg("depth"), k.arg("sums")
	a, b := k.rowPointers("a", "lda", rows), k.rowPointers("b", "ldb", columns)
	// Two rows at a time, for which there are registers.
	for first := 0; first < rows; first += 2 {
		n := min(2, rows-first)
		acc := func(r, j, half int) V { return V(2*(r*columns+j) + half) }
		for i := range 2 * n * columns {
			k.zero(V(i))
		}
		x := func(r int) V { return V(16 + 2*r) }
		y := func(j int) V { return V(20 + 2*j) }
		left, loop := k.gp(), fmt.Sprintf("loop%d", first)
		k.p("MOVD %v, %v", depth, left)
		k.label(loop)
		for r := range n {
			k.loadQQ(x(r), x(r)+1, a[first+r], 0)
			k.next(a[first+r], 32)
		}
		for j := range columns {
			k.loadQQ(y(j), y(j)+1, b[j], 0)
			k.next(b[j], 32)
		}
		for half := range 2 {
			for j := range columns {
				for r := range n {
					k.do(fmlaS(acc(r, j, half), x(r)+V(half), y(j)+V(half)))
				}
			}
		}
		k.p("SUBS $8, %v, %v", left, left)
		k.p("BGT %s", loop)
		for r := range n {
			for j := range columns {
				k.do(faddS(acc(r, j, 0), acc(r, j, 0), acc(r, j, 1)))
				addUp(k, acc(r, j, 0))
				k.storeS(acc(r, j, 0), sums, 4*((first+r)*columns+j))
			}
		}
		if first+n < rows { // back to where the columns begin
			for j := range columns {
				k.p("SUB %v<<2, %v, %v", depth, b[j], b[j])
			}
		}
		k.release(left)
	}
	k.ret()
	k.end()
}

// addUp adds up the lanes of a vector.
func addUp(k *kernel, v V) {
	k.do(faddpS(v, v, v))
	k.do(faddpS(v, v, v))
}

// panelWiden writes the copy of rows of sixteen elements, lds bytes apart, to one behind the other as float32.
func panelWiden(f *file, e element) {
	k := f.kernel("panelWiden128"+e.name, "rows int, src *byte, lds int, dst *float32",
		"copies rows of 16 elements, which of pairs lie two and two.")
	rows, src, lds, dst := k.arg("rows"), k.arg("src"), k.arg("lds"), k.arg("dst")
	y, mask := [quads]V{0, 1, 2, 3}, V(4)
	each := 1
	if e == pairs {
		each = 2
		k.do(upperHalves(mask))
	}
	k.label("loop")
	for n := range each {
		k.p("SUBS $1, %v, %v", rows, rows)
		k.p("BLT done")
		e.load(k, src, n, y, mask)
		k.storeQQ(y[0], y[1], dst, 0)
		k.storeQQ(y[2], y[3], dst, 32)
		k.next(dst, 64)
	}
	k.advance(lds, src)
	k.p("B loop")
	k.label("done")
	k.ret()
	k.end()
}

// turn4 exchanges rows and columns of a square of four vectors of four, with four more to work in. It returns where the
// result is.
func turn4(k *kernel, x, spare [4]V) [4]V {
	k.trn1("S4", x[0], x[1], spare[0])
	k.trn2("S4", x[0], x[1], spare[1])
	k.trn1("S4", x[2], x[3], spare[2])
	k.trn2("S4", x[2], x[3], spare[3])
	k.trn1("D2", spare[0], spare[2], x[0])
	k.trn1("D2", spare[1], spare[3], x[1])
	k.trn2("D2", spare[0], spare[2], x[2])
	k.trn2("D2", spare[1], spare[3], x[3])
	return x
}

// transpose8 writes the transposition of 8 by 8 elements: dst[k·ldd + r] = src[r·lds + k].
func transpose8(f *file, e element) {
	k := f.kernel("transpose8"+e.name, "count int, src *byte, lds int, dst *float32, ldd int",
		"writes count blocks of 8 columns of 8 rows of src, one behind the other, as rows of dst.")
	count := k.arg("count")
	src := k.rowPointers("src", "lds", 8)
	dst, ldd := k.arg("dst"), k.arg("ldd")
	k.p("LSL $1, %v, %v", count, count)
	k.label("loop")
	var rows [8]V
	for r := range rows {
		v := V(r)
		rows[r] = v
		switch e {
		case f32:
			k.loadQ(v, src[r], 0)
		case f16:
			k.loadD(v, src[r], 0)
			k.do(fcvtlH(v, v))
		case i8:
			k.loadS(v, src[r], 0)
			k.do(sxtlB(v, v))
			k.do(sxtlH(v, v))
			k.do(scvtfS(v, v))
		default:
			k.loadD(v, src[r], 0)
			k.do(shll(v, v))
		}
		k.next(src[r], 4*e.bytes)
	}
	low := turn4(k, [4]V(rows[:4]), [4]V{8, 9, 10, 11})
	high := turn4(k, [4]V(rows[4:]), [4]V{12, 13, 14, 15})
	for n := range 4 {
		k.storeQQ(low[n], high[n], dst, 0)
		k.advance(ldd, dst)
	}
	k.p("SUBS $1, %v, %v", count, count)
	k.p("BGT loop")
	k.ret()
	k.end()
}

// fetchRows writes the fetching of some bytes of rows into the second cache.
func fetchRows(f *file) {
	k := f.kernel("fetchRows", "rows int, at uintptr, pitch, bytes int", "fetches bytes of each row.")
	rows, at, pitch, bytes := k.arg("rows"), k.arg("at"), k.arg("pitch"), k.arg("bytes")
	line, last := k.gp(), k.gp()
	k.label("row")
	k.p("SUBS $1, %v, %v", rows, rows)
	k.p("BLT done")
	k.p("ADD %v, %v, %v", bytes, at, last)
	k.p("SUB $1, %v, %v", last, last)
	k.p("MOVD %v, %v", at, line)
	k.label("line")
	k.fetch(2, line, 0)
	k.next(line, 64)
	k.p("CMP %v, %v", last, line)
	k.p("BLO line")
	k.fetch(2, last, 0)
	k.advance(pitch, at)
	k.p("B row")
	k.label("done")
	k.ret()
	k.end()
}
