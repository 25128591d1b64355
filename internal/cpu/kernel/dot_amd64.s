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

// A row's pair of x times those of w, which Z22 and Z23 hold.
#define ROW1 \
	VPBROADCASTD (SI), Z24         \
	DOT(0, 22, 24)                 \
	DOT(1, 23, 24)

#define ROW2 \
	ROW1                           \
	VPBROADCASTD (SI)(AX*1), Z25   \
	DOT(2, 22, 25)                 \
	DOT(3, 23, 25)

#define ROW3 \
	ROW2                           \
	VPBROADCASTD (SI)(AX*2), Z26   \
	DOT(4, 22, 26)                 \
	DOT(5, 23, 26)

#define ROW4 \
	ROW3                           \
	VPBROADCASTD (SI)(R14*1), Z27  \
	DOT(6, 22, 27)                 \
	DOT(7, 23, 27)

#define ROW5 \
	ROW4                           \
	VPBROADCASTD (R15), Z28        \
	DOT(8, 22, 28)                 \
	DOT(9, 23, 28)

#define ROW6 \
	ROW5                           \
	VPBROADCASTD (R15)(AX*1), Z29  \
	DOT(10, 22, 29)                \
	DOT(11, 23, 29)

#define ROW7 \
	ROW6                           \
	VPBROADCASTD (R15)(AX*2), Z24  \
	DOT(12, 22, 24)                \
	DOT(13, 23, 24)

#define ROW8 \
	ROW7                           \
	VPBROADCASTD (R15)(R14*1), Z25 \
	DOT(14, 22, 25)                \
	DOT(15, 23, 25)

#define FIRST1 FIRST(Z0, Z1)
#define FIRST2 FIRST1; FIRST(Z2, Z3)
#define FIRST3 FIRST2; FIRST(Z4, Z5)
#define FIRST4 FIRST3; FIRST(Z6, Z7)
#define FIRST5 FIRST4; FIRST(Z8, Z9)
#define FIRST6 FIRST5; FIRST(Z10, Z11)
#define FIRST7 FIRST6; FIRST(Z12, Z13)
#define FIRST8 FIRST7; FIRST(Z14, Z15)

#define STORE1 STORE(Z0, Z1)
#define STORE2 STORE1; STORE(Z2, Z3)
#define STORE3 STORE2; STORE(Z4, Z5)
#define STORE4 STORE3; STORE(Z6, Z7)
#define STORE5 STORE4; STORE(Z8, Z9)
#define STORE6 STORE5; STORE(Z10, Z11)
#define STORE7 STORE6; STORE(Z12, Z13)
#define STORE8 STORE7; STORE(Z14, Z15)

// GROUP computes some rows together.
#define GROUP(step, pair, firsts, rows, stores) \
	firsts                         \
	MOVQ offsets+32(FP), R8        \
	MOVQ w+40(FP), DI              \
	MOVQ steps+8(FP), R13          \
step:                              \
	MOVQ (R8), SI                  \
	ADDQ R10, SI                   \
	LEAQ (SI)(AX*4), R15           \
	MOVQ $16, R9                   \
pair:                              \
	VMOVDQU32 (DI), Z22            \
	VMOVDQU32 64(DI), Z23          \
	rows                           \
	ADDQ $4, SI                    \
	ADDQ $4, R15                   \
	ADDQ $128, DI                  \
	DECQ R9                        \
	JNZ pair                       \
	ADDQ $8, R8                    \
	DECQ R13                       \
	JNZ step                       \
	stores                         \
	JMP next

// VCVTNE2PS2BF16: register d = the floats of low as bfloat16, and those of high behind them. The assembler does not know it.
#define NARROWED(d, high, low) \
	BYTE $0x62                                                                         \
	BYTE $(0xf2^(((d>>3)&1)<<7)^(((low>>4)&1)<<6)^(((low>>3)&1)<<5)^(((d>>4)&1)<<4))   \
	BYTE $(0x07^((15-(high&15))<<3))                                                   \
	BYTE $(0x48^(((high>>4)&1)<<3))                                                    \
	BYTE $0x72                                                                         \
	BYTE $(0xc0+((d&7)<<3)+(low&7))

// What a code stands for becomes a number: see Turn.
#define SCALED_NUMBER(x, scale, minimum) \
	VFMADD213PS minimum, scale, x

#define ROUNDED_NUMBER(x, scale, minimum) \
	VSUBPS minimum, x, x           \
	VMULPS scale, x, x

#define FLOAT16_NUMBER(x, scale, minimum) \
	ROUNDED_NUMBER(x, scale, minimum) \
	VCVTPS2PH $0, x, Y9            \
	VCVTPH2PS Y9, x

// Two of the depth of half bytes: those that the lower four bits of x and y say, of eight columns each.
#define HALF_BYTES(x, y, scales, scales8, minima, minima8, number, to) \
	VPERMPS Z31, x, Z3             \
	VPERMPS Z31, y, Z4             \
	number(Z3, scales, minima)     \
	number(Z4, scales8, minima8)   \
	NARROWED(5, 4, 3)              \
	VMOVDQU32 Z5, to

// The same of words shifted right.
#define SHIFTED(bits, scales, scales8, minima, minima8, number, to) \
	VPSRLD $bits, Z1, Z6           \
	VPSRLD $bits, Z2, Z7           \
	HALF_BYTES(Z6, Z7, scales, scales8, minima, minima8, number, to)

// Scales or minima of columns, each twice, eight columns in each register.
#define TWICE(from, x, y) \
	VMOVUPS from, Z0               \
	VPERMPS Z0, Z30, x             \
	VPERMPS Z0, Z29, y

// Steps of half bytes: high ones lie BX behind low ones.
#define HALF_BYTES_STEPS(step, word, number) \
step:                              \
	TWICE((R10), Z16, Z17)         \
	TWICE((R10)(R12*1), Z18, Z19)  \
	TWICE((R11), Z20, Z21)         \
	TWICE((R11)(R12*1), Z22, Z23)  \
	MOVQ words+8(FP), CX           \
word:                              \
	PREFETCHT1 (R14)               \
	ADDQ R15, R14                  \
	VMOVDQU32 (SI), Z0             \
	VPERMD Z0, Z30, Z1             \
	VPERMD Z0, Z29, Z2             \
	VPSRLVD Z28, Z1, Z1            \
	VPSRLVD Z28, Z2, Z2            \
	HALF_BYTES(Z1, Z2, Z16, Z17, Z20, Z21, number, (DI)) \
	SHIFTED(16, Z16, Z17, Z20, Z21, number, 128(DI)) \
	SHIFTED(4, Z18, Z19, Z22, Z23, number, (DI)(BX*1)) \
	SHIFTED(20, Z18, Z19, Z22, Z23, number, 128(DI)(BX*1)) \
	ADDQ $128, SI                  \
	ADDQ $256, DI                  \
	DECQ CX                        \
	JNZ word                       \
	ADDQ BX, DI                    \
	LEAQ 64(R10)(R12*1), R10       \
	LEAQ 64(R11)(R12*1), R11       \
	DECQ R8                        \
	JNZ step                       \
	VZEROUPPER                     \
	RET

#define CODES_ARGUMENTS \
	MOVQ steps+0(FP), R8           \
	MOVQ src+16(FP), SI            \
	MOVQ scales+24(FP), R10        \
	MOVQ minima+32(FP), R11        \
	MOVQ dst+56(FP), DI            \
	MOVQ ahead+64(FP), R14         \
	MOVQ jump+72(FP), R15          \
	VMOVDQU32 ·dotPlaces+0(SB), Z30 \
	VMOVDQU32 ·dotPlaces+64(SB), Z29

// Two of the depth of bytes: each becomes the upper end of a word, which is 2²⁴ times as much.
#define BYTES(places, to) \
	VPSHUFB places, Z1, Z3         \
	VPSHUFB places, Z2, Z4         \
	VCVTDQ2PS Z3, Z3               \
	VCVTDQ2PS Z4, Z4               \
	SCALED_NUMBER(Z3, Z16, Z20)    \
	SCALED_NUMBER(Z4, Z17, Z21)    \
	NARROWED(5, 4, 3)              \
	VMOVDQU32 Z5, to

// func dotTile(rows, steps int, x *uint16, xPixel int, offsets *int, w *uint16, first *float32, ldf int,
//     c *float32, ldc int)
//
// R12 is the number of rows that are left, R10 the first of them. Up to eight are computed together, and of more about
// half: with few rows a processor waits for sums. A row's sums run over k in order, whoever is beside it.
TEXT ·dotTile(SB), NOSPLIT, $8-80
	MOVQ rows+0(FP), R12
	MOVQ x+16(FP), R10
	MOVQ xPixel+24(FP), AX
	MOVQ first+48(FP), R11
	MOVQ ldf+56(FP), BX
	MOVQ c+64(FP), DX
	MOVQ ldc+72(FP), CX
	LEAQ (AX)(AX*2), R14
	JMP some

next: // after R9 rows, which are kept in memory meanwhile
	MOVQ group-8(SP), R9
	SUBQ R9, R12
	IMULQ AX, R9
	ADDQ R9, R10

some:
	MOVQ R12, R9
	CMPQ R9, $8
	JLE few
	MOVQ $8, R9
	CMPQ R12, $16
	JGE few
	LEAQ 1(R12), R9
	SHRQ $1, R9

few:
	MOVQ R9, group-8(SP)
	CMPQ R9, $8
	JEQ eight
	CMPQ R9, $7
	JEQ seven
	CMPQ R9, $6
	JEQ six
	CMPQ R9, $5
	JEQ five
	CMPQ R9, $4
	JEQ four
	CMPQ R9, $3
	JEQ three
	CMPQ R9, $2
	JEQ two
	CMPQ R9, $1
	JEQ one
	VZEROUPPER
	RET

one:
	GROUP(step1, pair1, FIRST1, ROW1, STORE1)

two:
	GROUP(step2, pair2, FIRST2, ROW2, STORE2)

three:
	GROUP(step3, pair3, FIRST3, ROW3, STORE3)

four:
	GROUP(step4, pair4, FIRST4, ROW4, STORE4)

five:
	GROUP(step5, pair5, FIRST5, ROW5, STORE5)

six:
	GROUP(step6, pair6, FIRST6, ROW6, STORE6)

seven:
	GROUP(step7, pair7, FIRST7, ROW7, STORE7)

eight:
	GROUP(step8, pair8, FIRST8, ROW8, STORE8)

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

// func dotHalfBytes(steps, words int, src *byte, scales, minima *float32, other int, table, dst *byte, ahead uintptr, jump, ending int)
//
// Words become pairs: a column is twice in a vector, with the even one of two numbers and with the odd one.
TEXT ·dotHalfBytes(SB), NOSPLIT, $0-88
	CODES_ARGUMENTS
	VMOVDQU32 ·dotPlaces+128(SB), Z28
	MOVQ table+48(FP), AX
	VPMOVSXBD (AX), Z31
	VCVTDQ2PS Z31, Z31
	MOVQ other+40(FP), R12
	MOVQ words+8(FP), BX
	SHLQ $8, BX
	MOVQ ending+80(FP), AX
	CMPQ AX, $1
	JEQ rounded
	CMPQ AX, $2
	JEQ float16
	HALF_BYTES_STEPS(scaledStep, scaledWord, SCALED_NUMBER)

rounded:
	HALF_BYTES_STEPS(roundedStep, roundedWord, ROUNDED_NUMBER)

float16:
	HALF_BYTES_STEPS(float16Step, float16Word, FLOAT16_NUMBER)

// func dotBytes(steps, words int, src *byte, scales, minima *float32, other int, table, dst *byte, ahead uintptr, jump, ending int)
TEXT ·dotBytes(SB), NOSPLIT, $0-88
	CODES_ARGUMENTS
	VMOVDQU32 ·dotPlaces+192(SB), Z28
	VMOVDQU32 ·dotPlaces+256(SB), Z27
	MOVL $0x33800000, AX
	VPBROADCASTD AX, Z26

bytesStep:
	TWICE((R10), Z16, Z17)
	TWICE((R11), Z20, Z21)
	VMULPS Z26, Z16, Z16
	VMULPS Z26, Z17, Z17
	MOVQ words+8(FP), CX

bytesWord:
	PREFETCHT1 (R14)
	ADDQ R15, R14
	VMOVDQU32 (SI), Z0
	VPERMD Z0, Z30, Z1
	VPERMD Z0, Z29, Z2
	BYTES(Z28, (DI))
	BYTES(Z27, 128(DI))
	ADDQ $128, SI
	ADDQ $256, DI
	DECQ CX
	JNZ bytesWord
	ADDQ $64, R10
	ADDQ $64, R11
	DECQ R8
	JNZ bytesStep
	VZEROUPPER
	RET
