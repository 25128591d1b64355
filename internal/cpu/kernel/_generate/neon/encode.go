package main

import "fmt"

// An instruction is a word of machine code and how Arm's manual writes it.
type instruction struct {
	word uint32
	text string
}

// A V is one of the 32 vector registers.
type V uint32

func (v V) String() string { return fmt.Sprintf("V%d", uint32(v)) }

// f is the name under which Go's assembler loads and stores a vector register.
func (v V) f() string { return fmt.Sprintf("F%d", uint32(v)) }

// The functions below encode what Go's assembler does not know, one function for one instruction. Results come first. A
// name ends in the kind of the lanes where there are several: S for four float32, D for two float64.

// three encodes an instruction of two operands and a result.
func three(base uint32, name, lanes string, d, n, m V) instruction {
	return instruction{
		base | uint32(m)<<16 | uint32(n)<<5 | uint32(d),
		fmt.Sprintf("%s v%d.%s, v%d.%s, v%d.%s", name, d, lanes, n, lanes, m, lanes),
	}
}

// two encodes an instruction of one operand, whose lanes may be others than the result's.
func two(base uint32, name, to, from string, d, n V) instruction {
	return instruction{base | uint32(n)<<5 | uint32(d), fmt.Sprintf("%s v%d.%s, v%d.%s", name, d, to, n, from)}
}

// shift encodes an instruction of one operand and a number of bits. For those to the right place is what the width of a
// lane is twice, less the bits.
func shift(base uint32, name, to, from string, d, n V, bits, place int) instruction {
	return instruction{
		base | uint32(place)<<16 | uint32(n)<<5 | uint32(d),
		fmt.Sprintf("%s v%d.%s, v%d.%s, #%d", name, d, to, n, from, bits),
	}
}

func faddS(d, n, m V) instruction { return three(0x4e20d400, "fadd", "4s", d, n, m) }
func faddD(d, n, m V) instruction { return three(0x4e60d400, "fadd", "2d", d, n, m) }
func fsubS(d, n, m V) instruction { return three(0x4ea0d400, "fsub", "4s", d, n, m) }
func fsubD(d, n, m V) instruction { return three(0x4ee0d400, "fsub", "2d", d, n, m) }
func fmulS(d, n, m V) instruction { return three(0x6e20dc00, "fmul", "4s", d, n, m) }
func fmulD(d, n, m V) instruction { return three(0x6e60dc00, "fmul", "2d", d, n, m) }
func fdivS(d, n, m V) instruction { return three(0x6e20fc00, "fdiv", "4s", d, n, m) }
func fdivD(d, n, m V) instruction { return three(0x6e60fc00, "fdiv", "2d", d, n, m) }

// fmlaS adds n·m to d, rounded once; fmlsS subtracts it.
func fmlaS(d, n, m V) instruction { return three(0x4e20cc00, "fmla", "4s", d, n, m) }
func fmlaD(d, n, m V) instruction { return three(0x4e60cc00, "fmla", "2d", d, n, m) }
func fmlsS(d, n, m V) instruction { return three(0x4ea0cc00, "fmls", "4s", d, n, m) }

// fmlaLane adds n·m[lane] to d, for one lane of m.
func fmlaLane(d, n, m V, lane int) instruction {
	i := uint32(lane)
	return instruction{
		0x4f801000 | i&1<<21 | i>>1<<11 | uint32(m)<<16 | uint32(n)<<5 | uint32(d),
		fmt.Sprintf("fmla v%d.4s, v%d.4s, v%d.s[%d]", d, n, m, lane),
	}
}

// fmaxS and fminS are NaN where one operand is.
func fmaxS(d, n, m V) instruction { return three(0x4e20f400, "fmax", "4s", d, n, m) }
func fminS(d, n, m V) instruction { return three(0x4ea0f400, "fmin", "4s", d, n, m) }

// The pairwise ones take the neighbours of n, then those of m.
func faddpS(d, n, m V) instruction { return three(0x6e20d400, "faddp", "4s", d, n, m) }
func faddpD(d, n, m V) instruction { return three(0x6e60d400, "faddp", "2d", d, n, m) }
func fmaxpS(d, n, m V) instruction { return three(0x6e20f400, "fmaxp", "4s", d, n, m) }
func fminpS(d, n, m V) instruction { return three(0x6ea0f400, "fminp", "4s", d, n, m) }

// Comparisons set all bits of a lane where they hold, which they do not with NaN.
func fcmeqS(d, n, m V) instruction { return three(0x4e20e400, "fcmeq", "4s", d, n, m) }
func fcmgtS(d, n, m V) instruction { return three(0x6ea0e400, "fcmgt", "4s", d, n, m) }

func fabsS(d, n V) instruction  { return two(0x4ea0f800, "fabs", "4s", "4s", d, n) }
func fnegS(d, n V) instruction  { return two(0x6ea0f800, "fneg", "4s", "4s", d, n) }
func fsqrtS(d, n V) instruction { return two(0x6ea1f800, "fsqrt", "4s", "4s", d, n) }
func fsqrtD(d, n V) instruction { return two(0x6ee1f800, "fsqrt", "2d", "2d", d, n) }

// Rounded to the nearest whole number with ties to even, down, up, and towards zero.
func frintnS(d, n V) instruction { return two(0x4e218800, "frintn", "4s", "4s", d, n) }
func frintmS(d, n V) instruction { return two(0x4e219800, "frintm", "4s", "4s", d, n) }
func frintpS(d, n V) instruction { return two(0x4ea18800, "frintp", "4s", "4s", d, n) }
func frintzS(d, n V) instruction { return two(0x4ea19800, "frintz", "4s", "4s", d, n) }

// fcvtnsS gives the nearest integer.
func fcvtnsS(d, n V) instruction { return two(0x4e21a800, "fcvtns", "4s", "4s", d, n) }

// fcvtl widens the lower half of n, fcvtl2 the upper one: H from float16, S from float32.
func fcvtlH(d, n V) instruction  { return two(0x0e217800, "fcvtl", "4s", "4h", d, n) }
func fcvtl2H(d, n V) instruction { return two(0x4e217800, "fcvtl2", "4s", "8h", d, n) }
func fcvtlS(d, n V) instruction  { return two(0x0e617800, "fcvtl", "2d", "2s", d, n) }
func fcvtl2S(d, n V) instruction { return two(0x4e617800, "fcvtl2", "2d", "4s", d, n) }

// fcvtn narrows to the lower half of d and clears the upper one, fcvtn2 to the upper one.
func fcvtnS(d, n V) instruction  { return two(0x0e216800, "fcvtn", "4h", "4s", d, n) }
func fcvtn2S(d, n V) instruction { return two(0x4e216800, "fcvtn2", "8h", "4s", d, n) }
func fcvtnD(d, n V) instruction  { return two(0x0e616800, "fcvtn", "2s", "2d", d, n) }

// shll moves 16 bits to the upper half of 32: what a bfloat16 is as a float32.
func shll(d, n V) instruction {
	i := two(0x2e613800, "shll", "4s", "4h", d, n)
	i.text += ", #16"
	return i
}

func shll2(d, n V) instruction {
	i := two(0x6e613800, "shll2", "4s", "8h", d, n)
	i.text += ", #16"
	return i
}

// sxtl widens the integers of the lower half of n, sxtl2 those of the upper one: B from 8 bits, H from 16.
func sxtlB(d, n V) instruction  { return two(0x0f08a400, "sxtl", "8h", "8b", d, n) }
func sxtl2B(d, n V) instruction { return two(0x4f08a400, "sxtl2", "8h", "16b", d, n) }
func sxtlH(d, n V) instruction  { return two(0x0f10a400, "sxtl", "4s", "4h", d, n) }
func sxtl2H(d, n V) instruction { return two(0x4f10a400, "sxtl2", "4s", "8h", d, n) }

// smull multiplies the integers of 8 bits of the lower halves of n and m, smull2 those of the upper ones.
func smull(d, n, m V) instruction  { return longer(0x0e20c000, "smull", "8h", "8b", d, n, m) }
func smull2(d, n, m V) instruction { return longer(0x4e20c000, "smull2", "8h", "16b", d, n, m) }

// longer encodes an instruction of two operands whose lanes are others than the result's.
func longer(base uint32, name, to, from string, d, n, m V) instruction {
	return instruction{
		base | uint32(m)<<16 | uint32(n)<<5 | uint32(d),
		fmt.Sprintf("%s v%d.%s, v%d.%s, v%d.%s", name, d, to, n, from, m, from),
	}
}

// addpH adds neighbours of n, then those of m, of 16 bits; saddlp those of n to sums of 32.
func addpH(d, n, m V) instruction { return three(0x4e60bc00, "addp", "8h", d, n, m) }
func saddlp(d, n V) instruction   { return two(0x4e602800, "saddlp", "4s", "8h", d, n) }

// scvtfS makes floats of integers.
func scvtfS(d, n V) instruction { return two(0x4e21d800, "scvtf", "4s", "4s", d, n) }

// shrn keeps the upper half of 32 bits.
func shrn(d, n V) instruction  { return shift(0x0f008400, "shrn", "4h", "4s", d, n, 16, 32-16) }
func shrn2(d, n V) instruction { return shift(0x4f008400, "shrn2", "8h", "4s", d, n, 16, 32-16) }

func shlS(d, n V, bits int) instruction {
	return shift(0x4f005400, "shl", "4s", "4s", d, n, bits, 32+bits)
}

func ushrS(d, n V, bits int) instruction {
	return shift(0x6f000400, "ushr", "4s", "4s", d, n, bits, 64-bits)
}

func sshrS(d, n V, bits int) instruction {
	return shift(0x4f000400, "sshr", "4s", "4s", d, n, bits, 64-bits)
}

// upperHalves gives the mask of the upper half of each 32 bits.
func upperHalves(d V) instruction {
	return instruction{0x6f07c7e0 | uint32(d), fmt.Sprintf("mvni v%d.4s, #0xff, msl #8", d)}
}
