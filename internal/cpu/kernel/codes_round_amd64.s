//go:build !noasm

#include "textflag.h"

// func roundCodes512(blocks int, x *float32, codes *int8, step int, scales, extra *float32, apart int)
//
// As Round of package codes, a block at a time: Z0 and Z1 have its numbers, X4 the scale, X5 what one divided by it is. Blocks of
// codes lie step bytes apart, their scales and what they add so many as apart says.
TEXT ·roundCodes512(SB), NOSPLIT, $0-56
	MOVQ blocks+0(FP), CX
	MOVQ x+8(FP), SI
	MOVQ codes+16(FP), DI
	MOVQ step+24(FP), R10
	MOVQ scales+32(FP), R8
	MOVQ extra+40(FP), R9
	MOVQ apart+48(FP), R11
	MOVL $0x7fffffff, AX
	VPBROADCASTD AX, Z16
	MOVL $127, AX
	VPBROADCASTD AX, Z17
	VCVTSI2SSL AX, X10, X10
	NEGL AX
	VPBROADCASTD AX, Z18
	MOVL $1, AX
	VCVTSI2SSL AX, X11, X11

block:
	VMOVUPS (SI), Z0
	VMOVUPS 64(SI), Z1
	VPANDD Z16, Z0, Z2
	VPANDD Z16, Z1, Z3
	VPMAXUD Z3, Z2, Z2 // of floats without a sign as of integers, infinities and NaN being the largest
	VEXTRACTI64X4 $1, Z2, Y3
	VPMAXUD Y3, Y2, Y2
	VEXTRACTI128 $1, Y2, X3
	VPMAXUD X3, X2, X2
	VPSHUFD $0x4e, X2, X3
	VPMAXUD X3, X2, X2
	VPSHUFD $0xb1, X2, X3
	VPMAXUD X3, X2, X2
	VMOVD X2, AX
	CMPL AX, $0x7f800000
	JAE none
	VDIVSS X10, X2, X4
	VDIVSS X4, X11, X5
	VMOVD X5, DX
	CMPL DX, $0x7f800000
	JAE nothing
	VBROADCASTSS X5, Z5
	VMULPS Z5, Z0, Z0
	VMULPS Z5, Z1, Z1
	VCVTPS2DQ Z0, Z0
	VCVTPS2DQ Z1, Z1
	VPMAXSD Z18, Z0, Z0
	VPMAXSD Z18, Z1, Z1
	VPMINSD Z17, Z0, Z0
	VPMINSD Z17, Z1, Z1
	VPMOVDB Z0, (DI)
	VPMOVDB Z1, 16(DI)
	VPADDD Z1, Z0, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPADDD Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDD X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPADDD X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VPADDD X1, X0, X0
	VCVTDQ2PS X0, X0
	VMULSS X4, X0, X0
	VMOVSS X4, (R8)
	VMOVSS X0, (R9)

next:
	ADDQ $128, SI
	ADDQ R10, DI
	ADDQ R11, R8
	ADDQ R11, R9
	DECQ CX
	JNZ block
	VZEROUPPER
	RET

none:
	MOVL $0x7fc00000, AX
	JMP same

nothing:
	XORL AX, AX

same:
	VPXOR Y0, Y0, Y0
	VMOVDQU Y0, (DI)
	MOVL AX, (R8)
	MOVL AX, (R9)
	JMP next
