package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The byte offsets of the fields of kernel.ConvTile that are about runs of tiles.
const (
	tileTiles = 8*19 + 8*iota
	tileRows
	tileXRow
	tileYRow
	tileAheadLines // of weights, fetched with each four of k
)

// depthwise writes rows of tiles of pixels by the sixteen channels of a block, each of which has its own weights:
//
//	y[row][p][o] = Σ_step x[row][offset[step] + p·xPixel + o]·w[step][o]
//
// Pools are the same with other sums: kind "max" takes the largest x, NaN where there is one; "mean" adds them up and
// divides by High. Neither has weights, and nothing follows.
func (s set) depthwise(kind string, pixels int) {
	name := fmt.Sprintf("%s%sx%d", kind, s.name, pixels)
	label := func(what string) string { return fmt.Sprintf("%s_%s", what, name) }
	TEXT(name, NOSPLIT, "func(t *byte)")
	Doc(fmt.Sprintf("%s computes rows of tiles of %d pixels; see ConvTile.", name, pixels))
	Pragma("noescape")
	vectors := 16 / s.lanes
	t := Load(Param("t"), GP64())
	// Where this tile and this row begin lies on the stack.
	cursors := map[int]Mem{}
	for _, offset := range []int{tileX, tileY, tileResidual, tileTiles, tileRows} {
		cursors[offset] = AllocLocal(8)
	}
	rowX, rowY, rowResidual := AllocLocal(8), AllocLocal(8), AllocLocal(8)
	field := func(offset int) Mem {
		if m, ok := cursors[offset]; ok {
			return m
		}
		return Mem{Base: t, Disp: offset}
	}
	r := GP64()
	move := func(from, to Mem) {
		MOVQ(from, r)
		MOVQ(r, to)
	}
	whole := func(offset int) Mem { return Mem{Base: t, Disp: offset} }
	move(whole(tileX), rowX)
	move(whole(tileY), rowY)
	move(whole(tileResidual), rowResidual)
	move(whole(tileRows), field(tileRows))
	Label(label("row"))
	move(rowX, field(tileX))
	move(rowY, field(tileY))
	move(rowResidual, field(tileResidual))
	move(whole(tileTiles), field(tileTiles))
	Label(label("tile"))
	acc := func(p, n int) reg.VecPhysical { return s.vector(vectors*p + n) }
	for i := range vectors * pixels {
		if kind == "max" {
			VBROADCASTSS(field(tileLow), s.vector(i))
		} else {
			s.zero(s.vector(i))
		}
	}
	b := [2]reg.VecPhysical{s.vector(s.registers - 4), s.vector(s.registers - 3)}
	one := [2]reg.VecPhysical{s.vector(s.registers - 2), s.vector(s.registers - 1)}
	offsets, steps, w, pixel := GP64(), GP64(), GP64(), GP64()
	MOVQ(field(tileOffsets), offsets)
	MOVQ(field(tileSteps), steps)
	MOVQ(field(tileW), w)
	MOVQ(field(tileXPixel), pixel)
	var bases []reg.GPVirtual
	for p := 0; p < pixels; p += 3 {
		bases = append(bases, GP64())
	}
	Label(label("step"))
	MOVQ(Mem{Base: offsets}, bases[0])
	ADDQ(field(tileX), bases[0])
	for j := 1; j < len(bases); j++ {
		LEAQ(Mem{Base: bases[j-1], Index: pixel, Scale: 2}, bases[j])
		ADDQ(pixel, bases[j])
	}
	if kind == "depthwise" {
		for n := range vectors {
			VMOVUPS(Mem{Base: w, Disp: 4 * n * s.lanes}, b[n])
		}
	}
	for p := range pixels {
		for n := range vectors {
			m := Mem{Base: bases[p/3], Disp: 4 * n * s.lanes}
			if p%3 > 0 {
				m.Index, m.Scale = pixel, uint8(p%3)
			}
			switch kind {
			case "depthwise":
				VFMADD231PS(m, b[n], acc(p, n))
			case "mean":
				VADDPS(m, acc(p, n), acc(p, n))
			default:
				s.greater(m, acc(p, n), b[0], b[1])
			}
		}
	}
	ADDQ(Imm(64), w)
	ADDQ(Imm(8), offsets)
	DECQ(steps)
	JNE(LabelRef(label("step")))
	if kind == "mean" {
		VBROADCASTSS(field(tileHigh), b[0])
		for i := range vectors * pixels {
			VDIVPS(b[0], s.vector(i), s.vector(i))
		}
	}
	s.finish(label, field, pixels, vectors, acc, b, one, kind == "depthwise")
	next := func(to Mem, step int, times int) {
		if times == 1 {
			MOVQ(field(step), r)
		} else {
			IMUL3Q(U32(uint32(times)), field(step), r)
		}
		ADDQ(r, to)
	}
	next(field(tileX), tileXPixel, pixels)
	next(field(tileY), tileYPixel, pixels)
	next(field(tileResidual), tileYPixel, pixels)
	DECQ(field(tileTiles))
	JNE(LabelRef(label("tile")))
	next(rowX, tileXRow, 1)
	next(rowY, tileYRow, 1)
	next(rowResidual, tileYRow, 1)
	DECQ(field(tileRows))
	JNE(LabelRef(label("row")))
	s.end()
}

// greater replaces a by the greater of x and a, and by NaN if one is.
func (s set) greater(x Mem, a, spare, nan reg.VecPhysical) {
	VMOVUPS(x, spare)
	VMAXPS(a, spare, a) // a where one is NaN
	if s.lanes == 16 {
		VCMPPS(Imm(3), spare, spare, reg.K1)
		VMOVAPS(spare, reg.K1, a)
		return
	}
	VCMPPS(Imm(3), spare, spare, nan)
	VORPS(nan, a, a) // all ones is NaN too
}

// sumWide adds count vectors of sixteen floats to sums in float64: eight at a time are added up as floats before, in
// pairs, which is off by three roundings at most.
func (s set) sumWide() {
	name := "sumWide" + s.name
	TEXT(name, NOSPLIT, "func(count int, x *float32, sums *float64)")
	Doc(name + " adds count vectors of sixteen floats, which lie one behind the other, to sixteen sums.")
	Pragma("noescape")
	count := Load(Param("count"), GP64())
	x := Load(Param("x"), GP64())
	sums := Load(Param("sums"), GP64())
	wide := s.lanes / 2
	parts := 16 / wide
	for i := range parts {
		VMOVUPS(Mem{Base: sums, Disp: 8 * i * wide}, s.vector(i))
	}
	for _, n := range []int{8, 1} {
		label := func(what string) string { return fmt.Sprintf("%s_%s_%d", what, name, n) }
		Label(label("more"))
		CMPQ(count, Imm(uint64(n)))
		JL(LabelRef(label("less")))
		at := func(v, half int) Mem { return Mem{Base: x, Disp: 64*v + 4*half*s.lanes} }
		for half := range 16 / s.lanes {
			sum := func(i int) reg.VecPhysical { return s.vector(parts + i) }
			if n == 1 {
				VMOVUPS(at(0, half), sum(0))
			} else {
				for i := range n / 2 {
					VMOVUPS(at(2*i, half), sum(i))
					VADDPS(at(2*i+1, half), sum(i), sum(i))
				}
				VADDPS(sum(1), sum(0), sum(0))
				VADDPS(sum(3), sum(2), sum(2))
				VADDPS(sum(2), sum(0), sum(0))
			}
			// The lower half of a register, then the upper one.
			for k := range 2 {
				to := s.vector(2*half + k)
				wider := sum(1 + k)
				switch {
				case s.lanes == 16 && k == 0:
					VCVTPS2PD(sum(0).AsY(), wider)
				case s.lanes == 16:
					VEXTRACTF64X4(Imm(1), sum(0), sum(3).AsY())
					VCVTPS2PD(sum(3).AsY(), wider)
				case k == 0:
					VCVTPS2PD(sum(0).AsX(), wider)
				default:
					VEXTRACTF128(Imm(1), sum(0), sum(3).AsX())
					VCVTPS2PD(sum(3).AsX(), wider)
				}
				VADDPD(wider, to, to)
			}
		}
		ADDQ(U32(uint32(64*n)), x)
		SUBQ(Imm(uint64(n)), count)
		JMP(LabelRef(label("more")))
		Label(label("less"))
	}
	for i := range parts {
		VMOVUPS(s.vector(i), Mem{Base: sums, Disp: 8 * i * wide})
	}
	s.end()
}
