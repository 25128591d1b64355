package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

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
	tileYBlock   // bytes between the blocks of y
	tileFlags    // what follows the sums
	tileScale    // numbers for each output channel
	tileShift    //
	tileMask     // all ones or zero for each output channel
	tileResidual // like y
	tileLow      // one float
	tileHigh     // one float
	tileAheadX   // bytes to the pixels of the next tile
	tileAheadW   // weights that come next
)

// What follows the sums, as bits of the flags.
const (
	tileAdd = 1 << iota
	tileFinish
	tileAddResidual
	tileLimit
	tileClear
)

// weightsAhead is how many bytes before their use weights are fetched where they are used for few pixels.
const weightsAhead = 4096

// convFamily writes the kernels of package blocked.
func convFamily() {
	for _, s := range sets {
		for pixels := 1; pixels <= s.rows; pixels++ {
			s.conv(pixels, 2)
		}
		for pixels := 1; pixels <= s.rows; pixels++ {
			s.depthwise("depthwise", pixels)
		}
		for pixels := 1; pixels <= 6; pixels++ {
			s.depthwise("max", pixels)
			s.depthwise("mean", pixels)
		}
		s.sumWide()
		s.norm()
		s.scales()
		s.winogradFamily()
		s.silu()
	}
	for pixels := 1; pixels <= sets[0].rows; pixels++ {
		sets[0].conv(pixels, 1)
	}
	constants.write()
}

// conv writes the tile of a convolution: pixels by one or two vectors of output channels.
//
//	y[p][o] = Σ_step Σ_k x[offset[step] + p·xPixel + k]·w[step][k][o]
//
// with what ConvTile says.
func (s set) conv(pixels, vectors int) {
	name := fmt.Sprintf("conv%sx%dx%d", s.name, pixels, vectors)
	label := func(what string) string { return fmt.Sprintf("%s_%s", what, name) }
	TEXT(name, NOSPLIT, "func(t *byte)")
	Doc(fmt.Sprintf("%s computes %d pixels of %d channels; see ConvTile.", name, pixels, vectors*s.lanes))
	Pragma("noescape")
	t := Load(Param("t"), GP64())
	field := func(offset int) Mem { return Mem{Base: t, Disp: offset} }
	acc := func(p, n int) reg.VecPhysical { return s.vector(vectors*p + n) }
	for i := range vectors * pixels {
		s.zero(s.vector(i))
	}
	offsets, steps, w, pixel, left, ahead := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	MOVQ(field(tileOffsets), offsets)
	MOVQ(field(tileSteps), steps)
	MOVQ(field(tileW), w)
	MOVQ(field(tileXPixel), pixel)
	MOVQ(field(tileAheadW), ahead)
	place := GP64() // of the sums that are fetched next
	MOVQ(field(tileY), place)
	// Pixels in threes: one base each, and the distance of pixels as index.
	var bases []reg.GPVirtual
	for p := 0; p < pixels; p += 3 {
		bases = append(bases, GP64())
	}
	at := func(p, disp int) Mem {
		m := Mem{Base: bases[p/3], Disp: disp}
		if p%3 > 0 {
			m.Index, m.Scale = pixel, uint8(p%3)
		}
		return m
	}
	bytes := 4 * s.lanes // of a vector
	b := [2]reg.VecPhysical{s.vector(s.registers - 4), s.vector(s.registers - 3)}
	one := [2]reg.VecPhysical{s.vector(s.registers - 2), s.vector(s.registers - 1)}
	products := func(k int) {
		for n := range vectors {
			VMOVUPS(Mem{Base: w, Disp: (vectors*k + n) * bytes}, b[n])
			if pixels <= 2 && n*bytes%64 == 0 { // it is the weights that are waited for
				PREFETCHT0(Mem{Base: w, Disp: (vectors*k+n)*bytes + weightsAhead})
			}
		}
		for p := range pixels {
			if vectors == 1 {
				VFMADD231PS_BCST(at(p, 4*k), b[0], acc(p, 0))
				continue
			}
			x := one[p%2]
			VBROADCASTSS(at(p, 4*k), x)
			for n := range vectors {
				VFMADD231PS(b[n], x, acc(p, n))
			}
		}
	}
	advance := func(k int) {
		for _, base := range bases {
			ADDQ(Imm(uint64(4*k)), base)
		}
		ADDQ(U32(uint32(k*vectors*bytes)), w)
	}
	Label(label("step"))
	MOVQ(Mem{Base: offsets}, bases[0])
	ADDQ(field(tileX), bases[0])
	for j := 1; j < len(bases); j++ {
		LEAQ(Mem{Base: bases[j-1], Index: pixel, Scale: 2}, bases[j])
		ADDQ(pixel, bases[j])
	}
	for line := range 4 {
		PREFETCHT1(Mem{Base: ahead, Disp: 64 * line})
	}
	ADDQ(U32(256), ahead)
	s.fetchSums(label("sums"), field, place, left, vectors)
	MOVQ(field(tileQuads), left)
	TESTQ(left, left)
	JE(LabelRef(label("rest")))
	Label(label("quad"))
	for k := range 4 {
		products(k)
	}
	advance(4)
	DECQ(left)
	JNE(LabelRef(label("quad")))
	Label(label("rest"))
	MOVQ(field(tileSingles), left)
	TESTQ(left, left)
	JE(LabelRef(label("next")))
	Label(label("single"))
	products(0)
	advance(1)
	DECQ(left)
	JNE(LabelRef(label("single")))
	Label(label("next"))
	MOVQ(field(tileAheadX), left)
	TESTQ(left, left)
	JE(LabelRef(label("far")))
	for _, base := range bases {
		ADDQ(left, base)
	}
	for p := range pixels {
		PREFETCHT0(at(p, -64))
	}
	Label(label("far"))
	ADDQ(Imm(8), offsets)
	DECQ(steps)
	JNE(LabelRef(label("step")))
	s.finish(label, field, pixels, vectors, acc, b, one, true)
	s.end()
}

// fetchSums fetches two pixels of the output and of the residual into the first cache.
func (s set) fetchSums(skip string, field func(int) Mem, place, spare reg.GPVirtual, vectors int) {
	fetch := func(base, index reg.GPVirtual) {
		PREFETCHT0(Mem{Base: base})
		if vectors*s.lanes > 16 {
			PREFETCHT0(Mem{Base: base, Index: index, Scale: 1})
		}
	}
	block, other := GP64(), GP64()
	MOVQ(field(tileYBlock), block)
	MOVQ(field(tileResidual), spare)
	MOVQ(field(tileYPixel), other)
	fetch(place, block)
	ADDQ(other, place)
	fetch(place, block)
	ADDQ(other, place)
	TESTQ(spare, spare)
	JE(LabelRef(skip))
	ADDQ(place, spare)
	SUBQ(field(tileY), spare)
	SUBQ(other, spare)
	fetch(spare, block)
	SUBQ(other, spare)
	fetch(spare, block)
	Label(skip)
}

// finish writes what follows the sums of a tile: the sum so far, scale and shift, residual, limits, the mask of channels
// that are, and the store; or only this.
func (s set) finish(
	label func(string) string, field func(int) Mem, pixels, vectors int, acc func(p, n int) reg.VecPhysical,
	b, one [2]reg.VecPhysical, all bool,
) {
	bytes := 4 * s.lanes
	flags, y, block, step, at := GP64(), GP64(), GP64(), GP64(), GP64()
	MOVQ(field(tileY), y)
	MOVQ(field(tileYPixel), step)
	// place is where the second vector lies: in the same block of sixteen with AVX2, in the next with AVX-512.
	place := func(base reg.GPVirtual, n int) Mem {
		switch {
		case n == 0:
			return Mem{Base: base}
		case s.lanes == 8:
			return Mem{Base: base, Disp: bytes}
		}
		return Mem{Base: base, Index: block, Scale: 1}
	}
	each := func(base reg.GPVirtual, body func(p, n int, m Mem)) {
		for p := range pixels {
			for n := range vectors {
				body(p, n, place(base, n))
			}
			if p < pixels-1 {
				ADDQ(step, base)
			}
		}
	}
	if !all {
		each(y, func(p, n int, m Mem) { VMOVUPS(acc(p, n), m) })
		return
	}
	MOVQ(field(tileFlags), flags)
	MOVQ(field(tileYBlock), block)
	unless := func(flag int, skip string) {
		TESTQ(U32(uint32(flag)), flags)
		JE(LabelRef(label(skip)))
	}
	unless(tileAdd, "whole")
	MOVQ(y, at)
	each(at, func(p, n int, m Mem) { VADDPS(m, acc(p, n), acc(p, n)) })
	Label(label("whole"))
	unless(tileFinish, "store")
	pointer := GP64()
	MOVQ(field(tileScale), pointer)
	for n := range vectors {
		VMOVUPS(Mem{Base: pointer, Disp: n * bytes}, b[n])
	}
	MOVQ(field(tileShift), pointer)
	for n := range vectors {
		VMOVUPS(Mem{Base: pointer, Disp: n * bytes}, one[n])
	}
	for p := range pixels {
		for n := range vectors {
			VFMADD213PS(one[n], b[n], acc(p, n))
		}
	}
	unless(tileAddResidual, "limit")
	MOVQ(field(tileResidual), at)
	each(at, func(p, n int, m Mem) { VADDPS(m, acc(p, n), acc(p, n)) })
	Label(label("limit"))
	unless(tileLimit, "clear")
	VBROADCASTSS(field(tileLow), b[0])
	VBROADCASTSS(field(tileHigh), b[1])
	for p := range pixels {
		for n := range vectors {
			// Where one of the two is NaN the result is the first operand as it is written here: NaN stays.
			VMAXPS(acc(p, n), b[0], acc(p, n))
			VMINPS(acc(p, n), b[1], acc(p, n))
		}
	}
	Label(label("clear"))
	unless(tileClear, "store")
	MOVQ(field(tileMask), pointer)
	for n := range vectors {
		VMOVUPS(Mem{Base: pointer, Disp: n * bytes}, b[n])
	}
	for p := range pixels {
		for n := range vectors {
			VANDPS(b[n], acc(p, n), acc(p, n))
		}
	}
	Label(label("store"))
	each(y, func(p, n int, m Mem) { VMOVUPS(acc(p, n), m) })
}
