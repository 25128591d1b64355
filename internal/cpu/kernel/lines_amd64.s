//go:build !noasm

#include "textflag.h"

// The products of a column at key with the four rows of queries in Z16 to Z19.
#define COLUMN(key, row0, row1, row2, row3) \
	VMOVUPS key, Z20               \
	VFMADD231PS Z16, Z20, row0     \
	VFMADD231PS Z17, Z20, row1     \
	VFMADD231PS Z18, Z20, row2     \
	VFMADD231PS Z19, Z20, row3

// Halves of a and of b, added up: those of a are the first two lanes of a, those of b the last two.
#define HALVES(a, b) \
	VSHUFF64X2 $0x44, b, a, Z20    \
	VSHUFF64X2 $0xee, b, a, Z21    \
	VADDPS Z21, Z20, a

// Even and odd lanes, added up: a has those of a and then those of b.
#define LANES(a, b) \
	VSHUFF64X2 $0x88, b, a, Z20    \
	VSHUFF64X2 $0xdd, b, a, Z21    \
	VADDPS Z21, Z20, a

// Of each lane the two halves, added up: those of a and then those of b.
#define PAIRS(a, b) \
	VUNPCKLPD b, a, Z20            \
	VUNPCKHPD b, a, Z21            \
	VADDPS Z21, Z20, a

// Of each pair the two elements, added up: those of a and then those of b.
#define ELEMENTS(a, b) \
	VSHUFPS $0x88, b, a, Z20       \
	VSHUFPS $0xdd, b, a, Z21       \
	VADDPS Z21, Z20, a

// func dotLines512(columns, depth int, a *float32, lda int, b *float32, ldb int, to *float32, at [DotRows]int)
//
// The sums of dot512x4x4, four columns at a time: sixteen elements of each are added up in the same order, of sixteen sums at once.
TEXT ·dotLines512(SB), NOSPLIT, $0-88
	MOVQ columns+0(FP), R12
	MOVQ a+16(FP), CX
	MOVQ lda+24(FP), DX
	MOVQ b+32(FP), BX
	MOVQ ldb+40(FP), SI
	MOVQ to+48(FP), AX
	MOVQ at_0+56(FP), R8
	LEAQ (AX)(R8*4), R8
	MOVQ at_1+64(FP), R9
	LEAQ (AX)(R9*4), R9
	MOVQ at_2+72(FP), R10
	LEAQ (AX)(R10*4), R10
	MOVQ at_3+80(FP), R11
	LEAQ (AX)(R11*4), R11
	LEAQ (DX)(DX*2), DI
	LEAQ (SI)(SI*2), R13

columns:
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPXORD Z6, Z6, Z6
	VPXORD Z7, Z7, Z7
	VPXORD Z8, Z8, Z8
	VPXORD Z9, Z9, Z9
	VPXORD Z10, Z10, Z10
	VPXORD Z11, Z11, Z11
	VPXORD Z12, Z12, Z12
	VPXORD Z13, Z13, Z13
	VPXORD Z14, Z14, Z14
	VPXORD Z15, Z15, Z15
	MOVQ a+16(FP), CX
	MOVQ BX, R15
	MOVQ depth+8(FP), AX

deeper:
	VMOVUPS (CX), Z16
	VMOVUPS (CX)(DX*1), Z17
	VMOVUPS (CX)(DX*2), Z18
	VMOVUPS (CX)(DI*1), Z19
	COLUMN((R15), Z0, Z1, Z2, Z3)
	COLUMN((R15)(SI*1), Z4, Z5, Z6, Z7)
	COLUMN((R15)(SI*2), Z8, Z9, Z10, Z11)
	COLUMN((R15)(R13*1), Z12, Z13, Z14, Z15)
	ADDQ $64, CX
	ADDQ $64, R15
	SUBQ $16, AX
	JNZ  deeper

	HALVES(Z0, Z1)
	HALVES(Z2, Z3)
	HALVES(Z4, Z5)
	HALVES(Z6, Z7)
	HALVES(Z8, Z9)
	HALVES(Z10, Z11)
	HALVES(Z12, Z13)
	HALVES(Z14, Z15)
	LANES(Z0, Z2)
	LANES(Z4, Z6)
	LANES(Z8, Z10)
	LANES(Z12, Z14)
	PAIRS(Z0, Z4)
	PAIRS(Z8, Z12)
	ELEMENTS(Z0, Z8)
	VMOVUPS X0, (R8)
	VEXTRACTF32X4 $1, Z0, (R9)
	VEXTRACTF32X4 $2, Z0, (R10)
	VEXTRACTF32X4 $3, Z0, (R11)
	ADDQ $16, R8
	ADDQ $16, R9
	ADDQ $16, R10
	ADDQ $16, R11
	LEAQ (BX)(SI*4), BX
	SUBQ $4, R12
	JNZ  columns
	VZEROUPPER
	RET

// Four vectors of a row in Z16 to Z19, times the weight at w, added to sums.
#define ADDED(w, sum0, sum1, sum2, sum3) \
	VBROADCASTSS w, Z20            \
	VFMADD231PS Z16, Z20, sum0     \
	VFMADD231PS Z17, Z20, sum1     \
	VFMADD231PS Z18, Z20, sum2     \
	VFMADD231PS Z19, Z20, sum3

#define FOUR(op, at, v0, v1, v2, v3) \
	op(at, 0, v0)                  \
	op(at, 64, v1)                 \
	op(at, 128, v2)                \
	op(at, 192, v3)

#define LOADED(at, offset, v) VMOVUPS offset(at), v
#define STORED(at, offset, v) VMOVUPS v, offset(at)

// func weightedLines512(n int, w *float32, at [DotRows]int, rows *float32, ldr int, sums *float32, lds int)
//
// weighted4x512 for four rows of weights at once.
TEXT ·weightedLines512(SB), NOSPLIT, $0-80
	MOVQ n+0(FP), R12
	MOVQ w+8(FP), AX
	MOVQ at_0+16(FP), R8
	LEAQ (AX)(R8*4), R8
	MOVQ at_1+24(FP), R9
	LEAQ (AX)(R9*4), R9
	MOVQ at_2+32(FP), R10
	LEAQ (AX)(R10*4), R10
	MOVQ at_3+40(FP), R11
	LEAQ (AX)(R11*4), R11
	MOVQ rows+48(FP), BX
	MOVQ ldr+56(FP), SI
	MOVQ sums+64(FP), DX
	MOVQ lds+72(FP), CX
	LEAQ (DX)(CX*1), R13
	LEAQ (DX)(CX*2), R15
	LEAQ (R13)(CX*2), DI
	FOUR(LOADED, DX, Z0, Z1, Z2, Z3)
	FOUR(LOADED, R13, Z4, Z5, Z6, Z7)
	FOUR(LOADED, R15, Z8, Z9, Z10, Z11)
	FOUR(LOADED, DI, Z12, Z13, Z14, Z15)
	XORQ AX, AX

weight:
	FOUR(LOADED, BX, Z16, Z17, Z18, Z19)
	ADDED((R8)(AX*4), Z0, Z1, Z2, Z3)
	ADDED((R9)(AX*4), Z4, Z5, Z6, Z7)
	ADDED((R10)(AX*4), Z8, Z9, Z10, Z11)
	ADDED((R11)(AX*4), Z12, Z13, Z14, Z15)
	ADDQ SI, BX
	INCQ AX
	CMPQ AX, R12
	JNE  weight

	FOUR(STORED, DX, Z0, Z1, Z2, Z3)
	FOUR(STORED, R13, Z4, Z5, Z6, Z7)
	FOUR(STORED, R15, Z8, Z9, Z10, Z11)
	FOUR(STORED, DI, Z12, Z13, Z14, Z15)
	VZEROUPPER
	RET

// func turnPairs512(n int, x, cos, sin, to *float32, half int)
//
// For n floats, a multiple of 16, and those half bytes behind them: products are rounded before they are added up.
TEXT ·turnPairs512(SB), NOSPLIT, $0-48
	MOVQ n+0(FP), CX
	MOVQ x+8(FP), SI
	MOVQ cos+16(FP), R8
	MOVQ sin+24(FP), R9
	MOVQ to+32(FP), DI
	MOVQ half+40(FP), BX

turn:
	VMOVUPS (SI), Z0
	VMOVUPS (SI)(BX*1), Z1
	VMULPS (R8), Z0, Z2
	VMULPS (R9), Z1, Z3
	VSUBPS Z3, Z2, Z2
	VMULPS (R8)(BX*1), Z1, Z4
	VMULPS (R9)(BX*1), Z0, Z5
	VADDPS Z5, Z4, Z4
	VMOVUPS Z2, (DI)
	VMOVUPS Z4, (DI)(BX*1)
	ADDQ $64, SI
	ADDQ $64, R8
	ADDQ $64, R9
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ  turn
	VZEROUPPER
	RET
