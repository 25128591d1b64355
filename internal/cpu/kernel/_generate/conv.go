package main

import (
	"fmt"
	"math"

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
	tileHardSwish
)

// weightsAhead is how many bytes before their use weights are fetched where they are used for few pixels.
const weightsAhead = 4096

// convFamily writes the kernels of package blocked.
func convFamily() {
	for _, s := range sets {
		for pixels := 1; pixels <= s.rows; pixels++ {
			s.conv("conv", pixels, 2)
		}
		for pixels := 1; pixels <= s.rows; pixels++ {
			s.conv("pairs", pixels, 16/s.lanes)
		}
		s.pairHalves()
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
		sets[0].conv("conv", pixels, 1)
	}
	orders()
	constants.write()
}

// conv writes the tile of a convolution: pixels by one or two vectors of output channels.
//
//	y[p][o] = Σ_step Σ_k x[offset[step] + p·xPixel + k]·w[step][k][o]
//
// with what ConvTile says. Kind "pairs" has sixteen channels, of which the first eight and the others read inputs of their
// own. These lie in pairs, and so do weights: both halves' first, both halves' second and so on. A broadcast of eight bytes
// brings both halves what they multiply.
func (s set) conv(kind string, pixels, vectors int) {
	name := fmt.Sprintf("%s%sx%dx%d", kind, s.name, pixels, vectors)
	pairs, each := kind == "pairs", 4 // bytes of x for each k
	if pairs {
		each = 8
	}
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
			if vectors == 1 && !pairs {
				VFMADD231PS_BCST(at(p, 4*k), b[0], acc(p, 0))
				continue
			}
			x := one[p%2]
			if pairs {
				VBROADCASTSD(at(p, 8*k), x)
			} else {
				VBROADCASTSS(at(p, 4*k), x)
			}
			for n := range vectors {
				VFMADD231PS(b[n], x, acc(p, n))
			}
		}
	}
	advance := func(k int) {
		for _, base := range bases {
			ADDQ(Imm(uint64(each*k)), base)
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
	s.fetchSums(label("sums"), field, place, left, vectors)
	MOVQ(field(tileQuads), left)
	TESTQ(left, left)
	JE(LabelRef(label("rest")))
	lines := GP64()
	Label(label("quad"))
	MOVQ(field(tileAheadLines), lines)
	Label(label("lines"))
	PREFETCHT1(Mem{Base: ahead})
	ADDQ(Imm(64), ahead)
	DECQ(lines)
	JNE(LabelRef(label("lines")))
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
	if pairs {
		s.unpair(pixels, acc, b)
	}
	s.finish(label, field, pixels, vectors, acc, b, one, true)
	s.end()
}

// unpair puts the sums of pixels, which are in pairs, in the order of their channels.
func (s set) unpair(pixels int, acc func(p, n int) reg.VecPhysical, b [2]reg.VecPhysical) {
	if s.lanes == 16 {
		VMOVUPS(static(pairsApart, 0), b[0])
		for p := range pixels {
			VPERMPS(acc(p, 0), b[0], acc(p, 0))
		}
		return
	}
	for p := range pixels {
		first, second := acc(p, 0), acc(p, 1)
		VSHUFPS(Imm(0xdd), second, first, b[0])
		VSHUFPS(Imm(0x88), second, first, first)
		VPERMPD(Imm(0xd8), b[0], second)
		VPERMPD(Imm(0xd8), first, first)
	}
}

// pairHalves writes blocks of sixteen channels in pairs: the first of each half, the second of each and so on.
func (s set) pairHalves() {
	name := "pairHalves" + s.name
	TEXT(name, NOSPLIT, "func(count int, x, y *float32)")
	Doc(name + " writes count blocks of sixteen floats, which lie one behind the other, with their halves in pairs.")
	Pragma("noescape")
	count, x, y := Load(Param("count"), GP64()), Load(Param("x"), GP64()), Load(Param("y"), GP64())
	a, b := s.vector(0), s.vector(1)
	if s.lanes == 16 {
		VMOVUPS(static(pairsTogether, 0), b)
	}
	Label("block_" + name)
	if s.lanes == 16 {
		VPERMPS(Mem{Base: x}, b, a)
		VMOVUPS(a, Mem{Base: y})
	} else {
		// The quarters of each half that meet lie in the same 128 bits then.
		c := s.vector(2)
		VPERMPD(Imm(0xd8), Mem{Base: x}, a)
		VPERMPD(Imm(0xd8), Mem{Base: x, Disp: 32}, b)
		VUNPCKLPS(b, a, c)
		VUNPCKHPS(b, a, a)
		VMOVUPS(c, Mem{Base: y})
		VMOVUPS(a, Mem{Base: y, Disp: 32})
	}
	ADDQ(Imm(64), x)
	ADDQ(Imm(64), y)
	DECQ(count)
	JNE(LabelRef("block_" + name))
	s.end()
}

// The orders of lanes that bring pairs apart, and together.
const pairsApart, pairsTogether = "pairsApart", "pairsTogether"

// orders writes them.
func orders() {
	for _, apart := range []bool{true, false} {
		name := pairsTogether
		if apart {
			name = pairsApart
		}
		GLOBL(name, RODATA|NOPTR)
		for i := range 16 {
			lane := i%2*8 + i/2
			if apart {
				lane = i%8*2 + i/8
			}
			DATA(4*i, U32(uint32(lane)))
		}
	}
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
	unless(tileLimit, "swish")
	VBROADCASTSS(field(tileLow), b[0])
	VBROADCASTSS(field(tileHigh), b[1])
	for p := range pixels {
		for n := range vectors {
			// Where one of the two is NaN the result is the first operand as it is written here: NaN stays.
			VMAXPS(acc(p, n), b[0], acc(p, n))
			VMINPS(acc(p, n), b[1], acc(p, n))
		}
	}
	Label(label("swish"))
	unless(tileHardSwish, "clear")
	s.hardSwish(vectors, pixels, acc, b, one)
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

// hardSwish writes x·min(max(x+3, 0), 6)/6 of all sums.
func (s set) hardSwish(vectors, pixels int, acc func(p, n int) reg.VecPhysical, b, one [2]reg.VecPhysical) {
	constant := func(x float32) Mem { return constants.at(math.Float32bits(x)) }
	zero, six, sixth := b[0], b[1], one[0]
	s.zero(zero)
	VBROADCASTSS(constant(6), six)
	VBROADCASTSS(constant(1.0/6), sixth)
	for p := range pixels {
		for n := range vectors {
			x, gate := acc(p, n), one[1]
			if s.lanes == 16 {
				VADDPS_BCST(constant(3), x, gate)
			} else {
				VADDPS(constant(3), x, gate)
			}
			VMAXPS(zero, gate, gate)
			VMINPS(six, gate, gate)
			VMULPS(sixth, x, x)
			VMULPS(gate, x, x)
		}
	}
}
