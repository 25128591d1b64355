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
