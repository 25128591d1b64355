// Command _generate writes the amd64 assembly of package kernel, one file per family of kernels, with the same bodies
// for AVX-512 and for AVX2 with FMA. go generate in the package's folder runs it once for each family.
//
//	go run . -family gemm -out ../gemm_amd64.s -stubs ../gen_gemm_amd64.go -pkg kernel
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// families has what writes each family; one file each.
var families = map[string]func(){
	"bytes":         bytesFamily,
	"combine":       combineFamily,
	"conv":          convFamily,
	"encoded":       encodedFamily,
	"encoded_few":   encodedFewFamily,
	"encoded_lines": encodedLinesFamily,
	"encoded_twice": encodedTwiceFamily,
	"gemm":          gemmFamily,
	"half":          halfFamily,
	"vector":        vectorFamily,
}

// A set is an instruction set: the width of its registers in floats, how many there are, and the rows of its largest
// tile.
type set struct {
	name      string
	lanes     int
	registers int
	rows      int
}

var sets = []set{{"512", 16, 32, 14}, {"256", 8, 16, 6}}

func main() {
	family := flag.String("family", "", "the family of kernels to write")
	flag.Parse()
	write, ok := families[*family]
	if !ok {
		fmt.Fprintf(os.Stderr, "no family %q: have %q\n", *family, slices.Sorted(maps.Keys(families)))
		os.Exit(2)
	}
	ConstraintExpr("amd64,!noasm")
	write()
	Generate()
}

// vector returns a register of the set.
func (s set) vector(n int) reg.VecPhysical {
	if s.lanes == 16 {
		return []reg.VecPhysical{
			reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13,
			reg.Z14, reg.Z15, reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26,
			reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
		}[n]
	}
	return []reg.VecPhysical{
		reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13,
		reg.Y14, reg.Y15,
	}[n]
}

func (s set) zero(v reg.VecPhysical) {
	if s.lanes == 16 {
		VPXORD(v, v, v)
		return
	}
	VXORPS(v, v, v)
}

// fold joins the lanes of a vector in halves into its first.
func (s set) fold(v, spare reg.VecPhysical, join func(b Op, a, to reg.VecPhysical)) {
	if s.lanes == 16 { // the spare may be one of the upper sixteen, which the older instruction cannot name
		y := v.AsY().(reg.VecPhysical)
		VEXTRACTF64X4(Imm(1), v, spare.AsY())
		join(spare.AsY(), y, y)
		VEXTRACTF32X4(Imm(1), v.AsY(), low(spare))
	} else {
		VEXTRACTF128(Imm(1), v.AsY(), low(spare))
	}
	join(low(spare), low(v), low(v))
	VMOVHLPS(low(v), low(v), low(spare))
	join(low(spare), low(v), low(v))
	VMOVSHDUP(low(v), low(spare))
	join(low(spare), low(v), low(v))
}

// reduce adds up the lanes of a vector and stores the sum.
func (s set) reduce(v, spare reg.VecPhysical, to Mem) {
	s.fold(v, spare, func(b Op, a, to reg.VecPhysical) { VADDPS(b, a, to) })
	VMOVSS(low(v), to)
}

// low returns the low 128 bits of a register.
func low(v reg.VecPhysical) reg.VecPhysical { return v.AsX().(reg.VecPhysical) }

func (s set) end() {
	VZEROUPPER()
	RET()
}
