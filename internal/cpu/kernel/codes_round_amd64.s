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

// Four lines of 16 bytes each, stride DX apart, as parts n of Z0 to Z3. R8 is three strides.
#define FOURLINES(n) \
	LEAQ (R10)(DX*4), R10                      \
	VINSERTI32X4 $n, (R10), Z0, Z0             \
	VINSERTI32X4 $n, (R10)(DX*1), Z1, Z1       \
	VINSERTI32X4 $n, (R10)(DX*2), Z2, Z2       \
	VINSERTI32X4 $n, (R10)(R8*1), Z3, Z3

// What the table has for the low halves, to BX, and for the high ones, R9 bytes further.
#define LOOKUP(at, words, high) \
	VPSRLW $4, words, high                     \
	VPANDD Z31, words, words                   \
	VPANDD Z31, high, high                     \
	VPSHUFB words, Z30, words                  \
	VPSHUFB high, Z30, high                    \
	VMOVDQU64 words, at(BX)                    \
	VMOVDQU64 high, at(BX)(R9*1)

// func putHalves512(steps, pieces int, src *byte, stride, gap int, table, dst *byte, ahead uintptr)
//
// As PutHalfBytes, a piece of sixteen lines at a time. Memory that is read later, at DI, is fetched into the second cache: as much as
// a piece and what blocks begin with take.
TEXT ·putHalves512(SB), NOSPLIT, $0-64
	MOVQ steps+0(FP), AX
	MOVQ pieces+8(FP), R9
	SHLQ $8, R9
	MOVQ src+16(FP), CX
	MOVQ stride+24(FP), DX
	LEAQ (DX)(DX*2), R8
	MOVQ gap+32(FP), R12
	MOVQ table+40(FP), R10
	VBROADCASTI32X4 (R10), Z30
	VBROADCASTI32X4 16(R10), Z31
	MOVQ dst+48(FP), BX
	MOVQ ahead+56(FP), DI

halvesStep:
	MOVQ pieces+8(FP), R11

halvesPiece:
	PREFETCHT1 (DI)
	PREFETCHT1 64(DI)
	PREFETCHT1 128(DI)
	PREFETCHT1 192(DI)
	PREFETCHT1 256(DI)
	ADDQ $288, DI
	MOVQ CX, R10
	VMOVDQU (R10), X0
	VMOVDQU (R10)(DX*1), X1
	VMOVDQU (R10)(DX*2), X2
	VMOVDQU (R10)(R8*1), X3
	FOURLINES(1)
	FOURLINES(2)
	FOURLINES(3)
	VPUNPCKLDQ Z1, Z0, Z4
	VPUNPCKHDQ Z1, Z0, Z5
	VPUNPCKLDQ Z3, Z2, Z6
	VPUNPCKHDQ Z3, Z2, Z7
	VPUNPCKLQDQ Z6, Z4, Z0
	VPUNPCKHQDQ Z6, Z4, Z1
	VPUNPCKLQDQ Z7, Z5, Z2
	VPUNPCKHQDQ Z7, Z5, Z3
	LOOKUP(0, Z0, Z8)
	LOOKUP(64, Z1, Z9)
	LOOKUP(128, Z2, Z10)
	LOOKUP(192, Z3, Z11)
	ADDQ $256, BX
	ADDQ $16, CX
	DECQ R11
	JNZ halvesPiece
	ADDQ R9, BX
	ADDQ R12, CX
	DECQ AX
	JNZ halvesStep
	VZEROUPPER
	RET
