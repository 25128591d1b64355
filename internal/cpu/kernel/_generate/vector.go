package main

import (
	"fmt"
	"math"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vectorFamily writes functions of floats that lie in a row, reductions of a row, and conversions.
func vectorFamily() {
	for _, s := range sets {
		for _, m := range mappings {
			s.mapping(m)
			if slices.Contains(inRows, m.name) {
				s.mappingRows(m)
			}
		}
		s.sum()
		s.squares()
		s.extreme("max", math.Inf(-1))
		s.extreme("min", math.Inf(1))
		s.expSum()
		s.maxRows(false)
		s.maxRows(true)
		s.expSumRows()
		s.scaleRows()
		s.normRows()
		s.accumulate()
		s.widen("Float16")
		s.widen("BFloat16")
		s.narrow("Float16")
		s.narrow("BFloat16")
		s.weighted()
		s.addRows()
	}
	pause()
	constants.write()
}

// A table is the constants of all kernels, each repeated to the width of a 256-bit register, and behind them the masks
// of the last elements of a row.
type table struct{ bits []uint32 }

var constants table

const tableName, maskName = "vectorConstants", "vectorMasks"

func static(name string, disp int) Mem {
	return Mem{Symbol: Symbol{Name: name, Static: true}, Base: reg.StaticBase, Disp: disp}
}

// at returns where a constant is.
func (t *table) at(bits uint32) Mem {
	i := slices.Index(t.bits, bits)
	if i < 0 {
		i = len(t.bits)
		t.bits = append(t.bits, bits)
	}
	return static(tableName, 32*i)
}

func (t *table) write() {
	GLOBL(tableName, RODATA|NOPTR)
	for i, b := range t.bits {
		for k := range 4 {
			DATA(32*i+8*k, U64(uint64(b)<<32|uint64(b)))
		}
	}
	GLOBL(maskName, RODATA|NOPTR)
	for i, m := range []uint64{math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64, 0, 0, 0, 0} {
		DATA(8*i, U64(m))
	}
}

// pause writes a wait that tells the processor that it waits.
func pause() {
	TEXT("pause", NOSPLIT, "func(n int)")
	Doc("pause waits for n pause instructions.")
	n := Load(Param("n"), GP64())
	Label("loop")
	PAUSE()
	DECQ(n)
	JG(LabelRef("loop"))
	RET()
}

// A vec is a kernel being written: which registers hold what. Temporaries are taken from the first register up;
// constants and parameters that stay in registers from the last one down, loaded before the loop.
type vec struct {
	set
	temps int // registers in use for temporaries
	keep  int // registers for temporaries
	kept  []kept
	mask  reg.Register // of the lanes that exist, nil for all
}

// kept is what a register holds all the time: a constant, or a parameter.
type kept struct {
	bits  uint32
	param int
}

// t returns a new temporary.
func (v *vec) t() reg.VecPhysical {
	v.temps++
	if v.temps > v.keep {
		panic("out of registers")
	}
	return v.vector(v.temps - 1)
}

// hold returns the register that holds something, nil if there is no room for it.
func (v *vec) hold(k kept) reg.VecPhysical {
	i := slices.Index(v.kept, k)
	if i < 0 {
		if v.registers-len(v.kept)-1 <= v.keep { // the one after the temporaries is c's
			return nil
		}
		i = len(v.kept)
		v.kept = append(v.kept, k)
	}
	return v.vector(v.registers - 1 - i)
}

// c returns a constant as an operand of the next instruction.
func (v *vec) c(x float64) Op {
	bits := math.Float32bits(float32(x))
	if v.lanes == 8 {
		if slices.Contains(v.kept, kept{bits, -1}) {
			return v.hold(kept{bits, -1})
		}
		return constants.at(bits)
	}
	r := v.hold(kept{bits, -1})
	if r == nil {
		r = v.vector(v.keep)
		VBROADCASTSS(constants.at(bits), r)
	}
	return r
}

// r returns a constant in a register.
func (v *vec) r(x float64) reg.VecPhysical {
	bits := math.Float32bits(float32(x))
	if r := v.hold(kept{bits, -1}); r != nil {
		return r
	}
	r := v.t()
	VBROADCASTSS(constants.at(bits), r)
	return r
}

// param returns a parameter in a register.
func (v *vec) param(i int) reg.VecPhysical {
	r := v.hold(kept{0, i})
	if r == nil {
		r = v.t()
		VBROADCASTSS(argument(i), r)
	}
	return r
}

// address returns where a parameter or a result is.
func address(c gotypes.Component) Mem {
	p, err := c.Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}

// argument returns where parameter i is.
func argument(i int) Mem { return address(Param(fmt.Sprintf("p%d", i))) }

// start begins a kernel whose registers are filled by finish.
func (v *vec) start() {
	JMP(LabelRef("fill"))
	Label("begin")
}

// finish fills the registers that stay.
func (v *vec) finish() {
	Label("fill")
	for i, k := range v.kept {
		r := v.vector(v.registers - 1 - i)
		if k.param >= 0 {
			VBROADCASTSS(argument(k.param), r)
		} else {
			VBROADCASTSS(constants.at(k.bits), r)
		}
	}
	JMP(LabelRef("begin"))
}

// masks sets the mask of the first n lanes.
func (v *vec) masks(n reg.Register) {
	if v.lanes == 16 {
		m := GP64()
		MOVQ(n, reg.RCX)
		MOVQ(U32(1), m)
		SHLQ(reg.CL, m)
		DECQ(m)
		KMOVW(m.As32(), reg.K1)
		v.mask = reg.K1
		return
	}
	at := GP64()
	LEAQ(static(maskName, 32), at)
	SHLQ(Imm(2), n)
	SUBQ(n, at)
	m := v.t()
	VMOVUPS(Mem{Base: at}, m)
	v.mask = m
}

// load loads a vector, with zeros for lanes that do not exist.
func (v *vec) load(m Mem, to reg.VecPhysical) {
	switch {
	case v.mask == nil:
		VMOVUPS(m, to)
	case v.lanes == 16:
		VMOVUPS_Z(m, v.mask, to)
	default:
		VMASKMOVPS(m, v.mask, to)
	}
}

func (v *vec) store(from reg.VecPhysical, m Mem) {
	switch {
	case v.mask == nil:
		VMOVUPS(from, m)
	case v.lanes == 16:
		VMOVUPS(from, v.mask, m)
	default:
		VMASKMOVPS(from, v.mask, m)
	}
}

// Predicates of comparisons; those with NaN are false but for unordered.
const (
	below, unordered, above = 0x11, 3, 0x1e
)

// choose: to = yes where a pred b, else no.
func (v *vec) choose(pred uint8, a reg.VecPhysical, b, yes Op, no, to reg.VecPhysical) {
	if v.lanes == 16 {
		VCMPPS(Imm(uint64(pred)), b, a, reg.K2)
		VBLENDMPS(yes, no, reg.K2, to)
		return
	}
	m := v.t()
	VCMPPS(Imm(uint64(pred)), b, a, m)
	VBLENDVPS(m, yes, no, to)
	v.temps--
}

// round: to = x rounded; how is 0 to nearest, 1 down, 2 up, 3 towards zero.
func (v *vec) round(how int, x Op, to reg.VecPhysical) {
	if v.lanes == 16 {
		VRNDSCALEPS(Imm(uint64(8+how)), x, to)
		return
	}
	VROUNDPS(Imm(uint64(8+how)), x, to)
}

// absolute: to = |x|.
func (v *vec) absolute(x, to reg.VecPhysical) {
	VANDPS(v.bits(0x7fffffff), x, to)
}

// bits returns a constant of bits.
func (v *vec) bits(b uint32) Op { return v.c(float64(math.Float32frombits(b))) }

// sign: to = to with the sign of x; to is not negative.
func (v *vec) sign(x, to reg.VecPhysical) {
	s := v.t()
	VANDPS(v.bits(1<<31), x, s)
	VORPS(s, to, to)
	v.temps--
}

// horner: to = ((c[n]·x + c[n−1])·x + …)·x + c[0].
func (v *vec) horner(x, to reg.VecPhysical, c ...float64) {
	n := len(c) - 1
	VMOVUPS(v.c(c[n]), to)
	for i := n - 1; i >= 0; i-- {
		VFMADD213PS(v.c(c[i]), x, to)
	}
}
