//go:build !noasm

#include "textflag.h"
#include "unit_amd64.h"

// VDPBF16PS: register d of sums += pairs of w times pairs of x. The assembler does not know it.
#define DOT(d, w, x) \
	BYTE $0x62                                                                         \
	BYTE $(0xf2^(((d>>3)&1)<<7)^(((x>>4)&1)<<6)^(((x>>3)&1)<<5)^(((d>>4)&1)<<4))       \
	BYTE $(0x06^((15-(w&15))<<3))                                                      \
	BYTE $(0x48^(((w>>4)&1)<<3))                                                       \
	BYTE $0x52                                                                         \
	BYTE $(0xc0+((d&7)<<3)+(x&7))

// The sums of a row that are added to, and those that come of it.
#define FIRST(low, high) \
	VMOVUPS (R11), low             \
	VMOVUPS 64(R11), high          \
	ADDQ BX, R11

#define STORE(low, high) \
	VMOVUPS low, (DX)              \
	VMOVUPS high, 64(DX)           \
	ADDQ CX, DX

// func dotTile(rows, steps int, x *uint16, xPixel int, offsets *int, w *uint16, first *float32, ldf int,
//     c *float32, ldc int)
//
// R12 is the number of rows that are left, R10 the first of them. Eight are computed together, then four, two and one: a
// row's sums run over k in order, whoever is beside it.
TEXT ·dotTile(SB), NOSPLIT, $0-80
	MOVQ rows+0(FP), R12
	MOVQ x+16(FP), R10
	MOVQ xPixel+24(FP), AX
	MOVQ first+48(FP), R11
	MOVQ ldf+56(FP), BX
	MOVQ c+64(FP), DX
	MOVQ ldc+72(FP), CX
	LEAQ (AX)(AX*2), R14

group8:
	CMPQ R12, $8
	JLT group4
	FIRST(Z0, Z1)
	FIRST(Z2, Z3)
	FIRST(Z4, Z5)
	FIRST(Z6, Z7)
	FIRST(Z8, Z9)
	FIRST(Z10, Z11)
	FIRST(Z12, Z13)
	FIRST(Z14, Z15)
	MOVQ offsets+32(FP), R8
	MOVQ w+40(FP), DI
	MOVQ steps+8(FP), R13

step8:
	MOVQ (R8), SI
	ADDQ R10, SI
	LEAQ (SI)(AX*4), R15
	MOVQ $16, R9

pair8:
	VMOVDQU32 (DI), Z22
	VMOVDQU32 64(DI), Z23
	VPBROADCASTD (SI), Z24
	DOT(0, 22, 24)
	DOT(1, 23, 24)
	VPBROADCASTD (SI)(AX*1), Z25
	DOT(2, 22, 25)
	DOT(3, 23, 25)
	VPBROADCASTD (SI)(AX*2), Z26
	DOT(4, 22, 26)
	DOT(5, 23, 26)
	VPBROADCASTD (SI)(R14*1), Z27
	DOT(6, 22, 27)
	DOT(7, 23, 27)
	VPBROADCASTD (R15), Z28
	DOT(8, 22, 28)
	DOT(9, 23, 28)
	VPBROADCASTD (R15)(AX*1), Z29
	DOT(10, 22, 29)
	DOT(11, 23, 29)
	VPBROADCASTD (R15)(AX*2), Z24
	DOT(12, 22, 24)
	DOT(13, 23, 24)
	VPBROADCASTD (R15)(R14*1), Z25
	DOT(14, 22, 25)
	DOT(15, 23, 25)
	ADDQ $4, SI
	ADDQ $4, R15
	ADDQ $128, DI
	DECQ R9
	JNZ pair8
	ADDQ $8, R8
	DECQ R13
	JNZ step8
	STORE(Z0, Z1)
	STORE(Z2, Z3)
	STORE(Z4, Z5)
	STORE(Z6, Z7)
	STORE(Z8, Z9)
	STORE(Z10, Z11)
	STORE(Z12, Z13)
	STORE(Z14, Z15)
	LEAQ (R10)(AX*8), R10
	SUBQ $8, R12
	JMP group8

group4:
	CMPQ R12, $4
	JLT group2
	FIRST(Z0, Z1)
	FIRST(Z2, Z3)
	FIRST(Z4, Z5)
	FIRST(Z6, Z7)
	MOVQ offsets+32(FP), R8
	MOVQ w+40(FP), DI
	MOVQ steps+8(FP), R13

step4:
	MOVQ (R8), SI
	ADDQ R10, SI
	MOVQ $16, R9

pair4:
	VMOVDQU32 (DI), Z22
	VMOVDQU32 64(DI), Z23
	VPBROADCASTD (SI), Z24
	DOT(0, 22, 24)
	DOT(1, 23, 24)
	VPBROADCASTD (SI)(AX*1), Z25
	DOT(2, 22, 25)
	DOT(3, 23, 25)
	VPBROADCASTD (SI)(AX*2), Z26
	DOT(4, 22, 26)
	DOT(5, 23, 26)
	VPBROADCASTD (SI)(R14*1), Z27
	DOT(6, 22, 27)
	DOT(7, 23, 27)
	ADDQ $4, SI
	ADDQ $128, DI
	DECQ R9
	JNZ pair4
	ADDQ $8, R8
	DECQ R13
	JNZ step4
	STORE(Z0, Z1)
	STORE(Z2, Z3)
	STORE(Z4, Z5)
	STORE(Z6, Z7)
	LEAQ (R10)(AX*4), R10
	SUBQ $4, R12
	JMP group2

group2:
	CMPQ R12, $2
	JLT group1
	FIRST(Z0, Z1)
	FIRST(Z2, Z3)
	MOVQ offsets+32(FP), R8
	MOVQ w+40(FP), DI
	MOVQ steps+8(FP), R13

step2:
	MOVQ (R8), SI
	ADDQ R10, SI
	MOVQ $16, R9

pair2:
	VMOVDQU32 (DI), Z22
	VMOVDQU32 64(DI), Z23
	VPBROADCASTD (SI), Z24
	DOT(0, 22, 24)
	DOT(1, 23, 24)
	VPBROADCASTD (SI)(AX*1), Z25
	DOT(2, 22, 25)
	DOT(3, 23, 25)
	ADDQ $4, SI
	ADDQ $128, DI
	DECQ R9
	JNZ pair2
	ADDQ $8, R8
	DECQ R13
	JNZ step2
	STORE(Z0, Z1)
	STORE(Z2, Z3)
	LEAQ (R10)(AX*2), R10
	SUBQ $2, R12
	JMP group1

group1:
	CMPQ R12, $1
	JLT done
	FIRST(Z0, Z1)
	MOVQ offsets+32(FP), R8
	MOVQ w+40(FP), DI
	MOVQ steps+8(FP), R13

step1:
	MOVQ (R8), SI
	ADDQ R10, SI
	MOVQ $16, R9

pair1:
	VMOVDQU32 (DI), Z22
	VMOVDQU32 64(DI), Z23
	VPBROADCASTD (SI), Z24
	DOT(0, 22, 24)
	DOT(1, 23, 24)
	ADDQ $4, SI
	ADDQ $128, DI
	DECQ R9
	JNZ pair1
	ADDQ $8, R8
	DECQ R13
	JNZ step1
	STORE(Z0, Z1)
	ADDQ AX, R10
	SUBQ $1, R12
	JMP group1

done:
	VZEROUPPER
	RET

// func dotFinish(tile *UnitTile, pixels int, sums *float32, y *uint16)
//
// Sums of a tile become what amxConv makes of them: R13 is a pixel's result, DX its sums.
TEXT ·dotFinish(SB), NOSPLIT, $0-32
	MOVQ tile+0(FP), R15
	MOVQ pixels+8(FP), R12
	MOVQ sums+16(FP), DX
	MOVQ y+24(FP), R13
	ADDQ tile_y, R13
	MOVQ tile_scale, R8
	VMOVUPS (R8), Z16
	VMOVUPS 64(R8), Z17
	MOVQ tile_shift, R8
	VMOVUPS (R8), Z18
	VMOVUPS 64(R8), Z19
	VBROADCASTSS tile_low, Z20
	VBROADCASTSS tile_high, Z21
	MOVL tile_mask, R8
	KMOVD R8, K1
	KMOVW R8, K2
	SHRL $16, R8
	KMOVW R8, K3
	MOVQ tile_residual, CX
	SUBQ tile_y, CX
	CMPQ tile_keep, $0
	JNE keep
	CMPQ tile_wide, $0
	JNE wide

narrow:
	SCALED
	CMPQ tile_residual, $0
	JE limit
	RESIDUAL

limit:
	LIMITED
	ADDQ $128, DX
	ADDQ $64, R13
	DECQ R12
	JNZ narrow
	VZEROUPPER
	RET

wide:
	SCALED
	CMPQ tile_residual, $0
	JE wider
	WIDE_RESIDUAL

wider:
	WIDE
	ADDQ $128, DX
	ADDQ tile_yPixel, R13
	DECQ R12
	JNZ wide
	VZEROUPPER
	RET

keep:
	SCALED
	CMPQ tile_residual, $0
	JE kept
	RESIDUAL

kept:
	VMOVUPS Z0, (DX)
	VMOVUPS Z1, 64(DX)
	ADDQ $128, DX
	ADDQ $64, R13
	DECQ R12
	JNZ keep
	VZEROUPPER
	RET
