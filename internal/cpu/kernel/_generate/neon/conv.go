package main

import "fmt"

// The byte offsets of the fields of kernel.ConvTile.
const (
	tileX        = 8 * iota
	tileW        // packed weights
	tileY        // sums or results
	tileOffsets  // byte offsets of steps
	tileSteps    // their number
	tileQuads    // fours of k in a step
	tileSingles  // k beyond these
	tileXPixel   // bytes from pixel to pixel of x
	tileYPixel   // and of y
	_            // for kernels of more than sixteen channels
	tileFlags    // what follows the sums
	tileScale    // numbers for each output channel
	tileShift    //
	tileMask     // all ones or zero for each output channel
	tileResidual // like y
	tileLow      // one float
	tileHigh     // one float
	tileAheadX   // bytes to the pixels of the next tile
	tileAheadW   // weights that come next
	tileTiles    // tiles in a row
	tileRowCount // rows
	tileXRow     // bytes from row to row of x
	tileYRow     // and of y
)

// What follows the sums, as numbers of bits of the flags.
const (
	bitAdd = iota
	bitFinish
	bitResidual
	bitLimit
	bitClear
)

// tilePixels is the number of pixels of the largest tile.
const tilePixels = 6

// convFamily writes the kernels of package blocked, all of sixteen channels.
func convFamily(f *file) {
	for pixels := 1; pixels <= tilePixels; pixels++ {
		conv(f, pixels)
	}
	for _, kind := range []string{"depthwise", "max", "mean"} {
		for pixels := 1; pixels <= tilePixels; pixels++ {
			depthwise(f, kind, pixels)
		}
	}
	sumWide(f)
	norm(f)
	scales(f)
	silu(f)
	for _, m := range []int{2, 4} {
		winogradStore(f, m, 0, "In")
		winogradOutput(f, m)
		winogradStore(f, m, 2, "Weights")
		winogradLine(f, m)
	}
}

// A tile is what kernels of a ConvTile, or of one like it, have in registers.
type tile struct {
	*kernel
	t R
}

// field loads a field of eight bytes.
func (t tile) field(offset int) R {
	r := t.gp()
	t.p("MOVD %d(%v), %v", offset, t.t, r)
	return r
}

// all loads a field of one float into all lanes.
func (t tile) all(offset int, to V) {
	r := t.gp()
	t.p("ADD $%d, %v, %v", offset, t.t, r)
	t.loadAll(to, r)
	t.release(r)
}

// pixels points to pixels that lie apart, the first of which is known.
func (t tile) pixels(all []R, apart R) {
	for p := 1; p < len(all); p++ {
		t.p("ADD %v, %v, %v", apart, all[p-1], all[p])
	}
}

// sums is the register of a pixel's sums of four channels.
func sums(p, q int) V { return V(quads*p + q) }

// conv writes the tile of a convolution: pixels by sixteen output channels.
//
//	y[p][o] = Σ_step Σ_k x[offset[step] + p·xPixel + k]·w[step][k][o]
//
// with what ConvTile says.
func conv(f *file, pixels int) {
	k := f.kernel(fmt.Sprintf("conv128x%d", pixels), "t *byte", fmt.Sprintf("computes %d pixels of 16 channels; see ConvTile.", pixels))
	t := tile{kernel: k, t: k.arg("t")}
	for i := range quads * pixels {
		k.zero(V(i))
	}
	offsets, steps, x, w := t.field(tileOffsets), t.field(tileSteps), t.field(tileX), t.field(tileW)
	apart, aheadX, aheadW, left := t.field(tileXPixel), t.field(tileAheadX), t.field(tileAheadW), k.gp()
	bases := make([]R, pixels)
	for p := range bases {
		bases[p] = k.gp()
	}
	y := [quads]V{24, 25, 26, 27}
	const ones = 4
	one := func(p int) V { return V(28 + p%ones) }
	products := func(n int) {
		for p := range min(pixels, ones) {
			k.loadS(one(p), bases[p], 4*n)
		}
		f32.load(k, w, 0, y, 0)
		k.next(w, 64)
		for p := range pixels {
			for q := range quads {
				k.do(fmlaLane(sums(p, q), y[q], one(p), 0))
			}
			if p+ones < pixels {
				k.loadS(one(p), bases[p+ones], 4*n)
			}
		}
	}
	onward := func(floats int) {
		for _, base := range bases {
			k.next(base, 4*floats)
		}
		k.p("SUBS $1, %v, %v", left, left)
	}
	k.label("step")
	k.p("MOVD.P 8(%v), %v", offsets, bases[0])
	k.advance(x, bases[0])
	t.pixels(bases, apart)
	for line := range 4 {
		k.fetch(2, aheadW, 64*line)
	}
	k.next(aheadW, 256)
	k.p("MOVD %d(%v), %v", tileQuads, t.t, left)
	k.p("CBZ %v, rest", left)
	k.label("quad")
	for n := range 4 {
		products(n)
	}
	onward(4)
	k.p("BNE quad")
	k.label("rest")
	k.p("MOVD %d(%v), %v", tileSingles, t.t, left)
	k.p("CBZ %v, next", left)
	k.label("single")
	products(0)
	onward(1)
	k.p("BNE single")
	k.label("next")
	k.p("CBZ %v, far", aheadX)
	for _, base := range bases {
		k.advance(aheadX, base)
		k.p("SUB $64, %v, %v", base, base)
		k.fetch(1, base, 0)
	}
	k.label("far")
	k.p("SUBS $1, %v, %v", steps, steps)
	k.p("BNE step")
	k.release(bases...)
	t.finish(t.field(tileY), t.field(tileResidual), pixels)
	k.ret()
	k.end()
}

// finish writes what follows the sums of a tile: the sum so far, scale and shift, residual, limits, the mask of channels
// that are; then it stores them.
func (t tile) finish(y, residual R, pixels int) {
	flags, step, pointer, at := t.field(tileFlags), t.field(tileYPixel), t.gp(), t.gp()
	unless := func(bit int, skip string) { t.p("TBZ $%d, %v, %s", bit, flags, skip) }
	scale, shift, other := V(24), V(25), V(26)
	add := func(base R) {
		t.p("MOVD %v, %v", base, at)
		for p := range pixels {
			for q := 0; q < quads; q += 2 {
				t.loadQQ(scale, shift, at, 16*q)
				t.do(faddS(sums(p, q), sums(p, q), scale))
				t.do(faddS(sums(p, q+1), sums(p, q+1), shift))
			}
			if p < pixels-1 {
				t.advance(step, at)
			}
		}
	}
	unless(bitAdd, "whole")
	add(y)
	t.label("whole")
	unless(bitFinish, "store")
	t.p("MOVD %d(%v), %v", tileScale, t.t, pointer)
	t.p("MOVD %d(%v), %v", tileShift, t.t, at)
	for q := range quads {
		t.loadQ(scale, pointer, 16*q)
		t.loadQ(shift, at, 16*q)
		for p := range pixels {
			t.do(fmulS(sums(p, q), sums(p, q), scale))
		}
		for p := range pixels {
			t.do(faddS(sums(p, q), sums(p, q), shift))
		}
	}
	unless(bitResidual, "limit")
	add(residual)
	t.label("limit")
	unless(bitLimit, "clear")
	t.all(tileLow, scale)
	t.all(tileHigh, shift)
	for i := range V(quads * pixels) {
		t.do(fmaxS(i, i, scale))
		t.do(fminS(i, i, shift))
	}
	t.label("clear")
	unless(bitClear, "store")
	t.p("MOVD %d(%v), %v", tileMask, t.t, pointer)
	for q := range quads {
		t.loadQ(other, pointer, 16*q)
		for p := range pixels {
			t.and(sums(p, q), other, sums(p, q))
		}
	}
	t.label("store")
	t.p("MOVD %v, %v", y, at)
	t.write(at, step, pixels)
	t.release(flags, step, pointer, at)
}

// write stores the sums of pixels; it changes at.
func (t tile) write(at, step R, pixels int) {
	for p := range pixels {
		t.storeQQ(sums(p, 0), sums(p, 1), at, 0)
		t.storeQQ(sums(p, 2), sums(p, 3), at, 32)
		if p < pixels-1 {
			t.advance(step, at)
		}
	}
}

// depthwise writes rows of tiles of pixels by the sixteen channels of a block, each of which has its own weights:
//
//	y[row][p][o] = Σ_step x[row][offset[step] + p·xPixel + o]·w[step][o]
//
// Pools are the same with other sums: kind "max" takes the largest x, NaN where there is one; "mean" adds them up and
// divides by High. Neither has weights, and nothing follows.
func depthwise(f *file, kind string, pixels int) {
	k := f.kernel(fmt.Sprintf("%s128x%d", kind, pixels), "t *byte", fmt.Sprintf("computes rows of tiles of %d pixels; see ConvTile.", pixels))
	t := tile{kernel: k, t: k.arg("t")}
	// Where a row begins, and where a tile does.
	rowX, rowY, rowResidual, rows := t.field(tileX), t.field(tileY), t.field(tileResidual), t.field(tileRowCount)
	x, y, residual, tiles := k.gp(), k.gp(), k.gp(), k.gp()
	apart, offsets, steps, w := t.field(tileXPixel), k.gp(), k.gp(), k.gp()
	bases := make([]R, pixels)
	for p := range bases {
		bases[p] = k.gp()
	}
	k.label("row")
	k.p("MOVD %v, %v", rowX, x)
	k.p("MOVD %v, %v", rowY, y)
	k.p("MOVD %v, %v", rowResidual, residual)
	k.p("MOVD %d(%v), %v", tileTiles, t.t, tiles)
	k.label("tile")
	if kind == "max" {
		t.all(tileLow, 0)
		for i := V(1); i < V(quads*pixels); i++ {
			k.move(0, i)
		}
	} else {
		for i := range V(quads * pixels) {
			k.zero(i)
		}
	}
	k.p("MOVD %d(%v), %v", tileOffsets, t.t, offsets)
	k.p("MOVD %d(%v), %v", tileSteps, t.t, steps)
	k.p("MOVD %d(%v), %v", tileW, t.t, w)
	weights, values := [quads]V{24, 25, 26, 27}, [quads]V{28, 29, 30, 31}
	k.label("step")
	k.p("MOVD.P 8(%v), %v", offsets, bases[0])
	k.advance(x, bases[0])
	t.pixels(bases, apart)
	if kind == "depthwise" {
		f32.load(k, w, 0, weights, 0)
		k.next(w, 64)
	}
	for p, base := range bases {
		f32.load(k, base, 0, values, 0)
		for q, v := range values {
			switch kind {
			case "depthwise":
				k.do(fmlaS(sums(p, q), v, weights[q]))
			case "mean":
				k.do(faddS(sums(p, q), sums(p, q), v))
			default:
				k.do(fmaxS(sums(p, q), sums(p, q), v))
			}
		}
	}
	k.p("SUBS $1, %v, %v", steps, steps)
	k.p("BNE step")
	k.release(bases...)
	switch kind {
	case "depthwise":
		t.finish(y, residual, pixels)
	case "mean":
		t.all(tileHigh, 24)
		for i := range V(quads * pixels) {
			k.do(fdivS(i, i, 24))
		}
	}
	step := t.field(tileYPixel)
	if kind != "depthwise" {
		at := k.gp()
		k.p("MOVD %v, %v", y, at)
		t.write(at, step, pixels)
		k.release(at)
	}
	times := k.gp()
	k.p("MOVD $%d, %v", pixels, times)
	k.p("MADD %v, %v, %v, %v", apart, x, times, x)
	k.p("MADD %v, %v, %v, %v", step, y, times, y)
	k.p("MADD %v, %v, %v, %v", step, residual, times, residual)
	k.release(step, times)
	k.p("SUBS $1, %v, %v", tiles, tiles)
	k.p("BNE tile")
	byX, byY := t.field(tileXRow), t.field(tileYRow)
	k.advance(byX, rowX)
	k.advance(byY, rowY)
	k.advance(byY, rowResidual)
	k.p("SUBS $1, %v, %v", rows, rows)
	k.p("BNE row")
	k.ret()
	k.end()
}

// sumWide writes the sum of vectors of sixteen floats in float64.
func sumWide(f *file) {
	k := f.kernel("sumWide128", "count int, x *float32, sums *float64",
		"adds count vectors of sixteen floats, which lie one behind the other, to sixteen sums.")
	count, x, to := k.arg("count"), k.arg("x"), k.arg("sums")
	for i := range 4 {
		k.loadQQ(V(2*i), V(2*i+1), to, 32*i)
	}
	k.label("more")
	for half := range V(2) {
		w := [4]V{16 + 4*half, 17 + 4*half, 18 + 4*half, 19 + 4*half}
		k.loadQQ(24+2*half, 25+2*half, x, int(32*half))
		wide(k, pair{24 + 2*half, 25 + 2*half}, w)
		for i, v := range w {
			k.do(faddD(4*half+V(i), 4*half+V(i), v))
		}
	}
	k.next(x, 64)
	k.p("SUBS $1, %v, %v", count, count)
	k.p("BNE more")
	for i := range 4 {
		k.storeQQ(V(2*i), V(2*i+1), to, 32*i)
	}
	k.ret()
	k.end()
}
