package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The byte offsets of the fields of kernel.NormTile.
const (
	normX = 8 * iota
	normY
	normPixels
	normBlocks
	normPlane
	normWeight
	normBias
	normNumbers // 1 ÷ channels, epsilon and 1
)

// norm writes the normalisation of pixels over all channels, a few pixels at a time, then one by one.
func (s set) norm() {
	name := "norm" + s.name
	TEXT(name, NOSPLIT, "func(t *byte)")
	Doc(name + " normalises pixels over their channels; see NormTile.")
	Pragma("noescape")
	t := Load(Param("t"), GP64())
	field := func(offset int) Mem { return Mem{Base: t, Disp: offset} }
	room := AllocLocal(8)
	x, y, pixels, plane := GP64(), GP64(), GP64(), GP64()
	MOVQ(field(normX), x)
	MOVQ(field(normY), y)
	MOVQ(field(normPixels), pixels)
	MOVQ(field(normPlane), plane)
	from, to, left, weight, bias := GP64(), GP64(), GP64(), GP64(), GP64()
	vectors := 16 / s.lanes
	most := 4 / vectors
	inverse := s.vector(15)
	VBROADCASTSS(field(normNumbers), inverse)
	for _, count := range []int{most, 1} {
		label := func(what string) string { return fmt.Sprintf("%s_%s_%d", what, name, count) }
		sum := func(p, n int) reg.VecPhysical { return s.vector(vectors*p + n) }
		mean := func(p int) reg.VecPhysical { return s.vector(4 + p) }
		spare := []reg.VecPhysical{s.vector(8), s.vector(9)}
		// each runs body for every vector of the pixels, block after block.
		each := func(what string, begin func(), body func(p, n int, m Mem)) {
			MOVQ(x, from)
			MOVQ(field(normBlocks), left)
			Label(label(what))
			begin()
			for p := range count {
				for n := range vectors {
					body(p, n, Mem{Base: from, Disp: 64*p + 4*s.lanes*n})
				}
			}
			ADDQ(plane, from)
			DECQ(left)
			JNE(LabelRef(label(what)))
		}
		clearSums := func() {
			for i := range vectors * count {
				s.zero(s.vector(i))
			}
		}
		// means puts a pixel's sum divided by the number of channels into the low lane of the first spare register.
		means := func(p int) {
			if vectors == 2 {
				VADDPS(sum(p, 1), sum(p, 0), sum(p, 0))
			}
			s.reduce(sum(p, 0), spare[1], room)
			VMOVSS(room, low(spare[0]))
			VMULSS(low(inverse), low(spare[0]), low(spare[0]))
		}
		Label(label("pixels"))
		CMPQ(pixels, Imm(uint64(count)))
		JL(LabelRef(label("done")))
		clearSums()
		each("sum", func() {}, func(p, n int, m Mem) { VADDPS(m, sum(p, n), sum(p, n)) })
		for p := range count {
			means(p)
			VBROADCASTSS(low(spare[0]), mean(p))
		}
		clearSums()
		each("square", func() {}, func(p, n int, m Mem) {
			d := spare[(vectors*p+n)%2]
			VMOVUPS(m, d)
			VSUBPS(mean(p), d, d)
			VFMADD231PS(d, d, sum(p, n))
		})
		for p := range count {
			means(p)
			VADDSS(field(normNumbers+4), low(spare[0]), low(spare[0]))
			VSQRTSS(low(spare[0]), low(spare[0]), low(spare[0]))
			VMOVSS(field(normNumbers+8), low(spare[1]))
			VDIVSS(low(spare[0]), low(spare[1]), low(spare[0]))
			VBROADCASTSS(low(spare[0]), sum(p, 0))
		}
		MOVQ(y, to)
		MOVQ(field(normWeight), weight)
		MOVQ(field(normBias), bias)
		w, b := []reg.VecPhysical{s.vector(12), s.vector(13)}, []reg.VecPhysical{s.vector(14), s.vector(11)}
		each("scale", func() {
			for n := range vectors {
				VMOVUPS(Mem{Base: weight, Disp: 4 * s.lanes * n}, w[n])
				VMOVUPS(Mem{Base: bias, Disp: 4 * s.lanes * n}, b[n])
			}
			ADDQ(Imm(64), weight)
			ADDQ(Imm(64), bias)
			MOVQ(to, y)
			ADDQ(plane, to)
		}, func(p, n int, m Mem) {
			d := spare[(vectors*p+n)%2]
			VMOVUPS(m, d)
			VSUBPS(mean(p), d, d)
			VMULPS(sum(p, 0), d, d)
			VFMADD213PS(b[n], w[n], d)
			VMOVUPS(d, Mem{Base: y, Disp: m.Disp})
		})
		MOVQ(field(normBlocks), left)
		IMULQ(plane, left)
		SUBQ(left, to)
		LEAQ(Mem{Base: to, Disp: 64 * count}, y)
		ADDQ(U32(uint32(64*count)), x)
		SUBQ(Imm(uint64(count)), pixels)
		JMP(LabelRef(label("pixels")))
		Label(label("done"))
	}
	s.end()
}

// scales writes what a batch norm does to each channel, computed in float64: scale = w ÷ √(variance + ε), shift = b − mean·scale.
func (s set) scales() {
	name := "scales" + s.name
	TEXT(name, NOSPLIT, "func(count int, scale, shift, w, b, mean, variance *float32, eps float64)")
	Doc(fmt.Sprintf("%s computes count times %d channels.", name, s.lanes/2))
	Pragma("noescape")
	count := Load(Param("count"), GP64())
	pointer := map[string]reg.Register{}
	for _, p := range []string{"scale", "shift", "w", "b", "mean", "variance"} {
		pointer[p] = Load(Param(p), GP64())
	}
	eps, err := Param("eps").Resolve()
	if err != nil {
		panic(err)
	}
	v := func(n int) reg.VecPhysical { return s.vector(n) }
	VBROADCASTSD(eps.Addr, v(0))
	Label("more_" + name)
	for i, p := range []string{"variance", "w", "b", "mean"} {
		VCVTPS2PD(Mem{Base: pointer[p]}, v(1+i))
	}
	VADDPD(v(0), v(1), v(1))
	VSQRTPD(v(1), v(1))
	VDIVPD(v(1), v(2), v(2))
	VMULPD(v(2), v(4), v(4))
	VSUBPD(v(4), v(3), v(3))
	for i, p := range []string{"scale", "shift"} {
		if s.lanes == 16 {
			VCVTPD2PS(v(2+i), v(2+i).AsY())
			VMOVUPS(v(2+i).AsY(), Mem{Base: pointer[p]})
		} else {
			VCVTPD2PSY(v(2+i), v(2+i).AsX())
			VMOVUPS(v(2+i).AsX(), Mem{Base: pointer[p]})
		}
	}
	for _, p := range []string{"scale", "shift", "w", "b", "mean", "variance"} {
		ADDQ(Imm(uint64(2*s.lanes)), pointer[p])
	}
	DECQ(count)
	JNE(LabelRef("more_" + name))
	s.end()
}
