//go:build !noasm

#include "textflag.h"

// The assembler does not know these instructions. Tiles 0 and 1 are sums of blocks, 4 the left factor, 6 the right one.
#define LDTILECFG_R8 BYTE $0xc4; BYTE $0xc2; BYTE $0x78; BYTE $0x49; BYTE $0x00
#define TILERELEASE BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0xc0
#define ZERO0 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xc0
#define ZERO1 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xc8

// Codes of rows at SI, AX bytes apart; of lines at DI, BX bytes apart.
#define LOAD4 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x24; BYTE $0x06
#define LOAD6 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x34; BYTE $0x1f

#define LOAD5 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x2c; BYTE $0x06
#define LOAD7 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x3c; BYTE $0x1f

// TDPBSSD: tile 0 += 4·6, 1 += 5·7.
#define MULTIPLY0 BYTE $0xc4; BYTE $0xe2; BYTE $0x4b; BYTE $0x5e; BYTE $0xc4
#define MULTIPLY1 BYTE $0xc4; BYTE $0xe2; BYTE $0x43; BYTE $0x5e; BYTE $0xcd

// Sums of a block's codes to DX and 1024 bytes further, BX bytes apart.
#define STORE0 BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $0x04; BYTE $0x1a
#define STORE1 BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $0x8c; BYTE $0x1a; LONG $1024

// The next block of a lane is four further.
#define NEXT0 \
	LOAD4                          \
	LOAD6                          \
	ZERO0                          \
	MULTIPLY0                      \
	ADDQ $2048, SI                 \
	ADDQ $2048, DI                 \
	DECQ CX

#define NEXT1 \
	LOAD5                          \
	LOAD7                          \
	ZERO1                          \
	MULTIPLY1                      \
	ADDQ $2048, SI                 \
	ADDQ $2048, DI                 \
	DECQ CX

// A row's lane += (w.Scales·x.Scales)·sum.
#define ROW(from, n, lane, x, y) \
	VCVTDQ2PS (from+64*n)(DX), x       \
	VMULPS.BCST (4*n)(R12), Z24, y     \
	VMULPS y, x, x                     \
	VADDPS x, lane, lane

#define SCALE(from) \
	VMOVUPS (R11), Z24             \
	ROW(from, 0, Z0, Z16, Z20)     \
	ROW(from, 1, Z1, Z17, Z21)     \
	ROW(from, 2, Z2, Z18, Z22)     \
	ROW(from, 3, Z3, Z19, Z23)     \
	ROW(from, 4, Z4, Z16, Z20)     \
	ROW(from, 5, Z5, Z17, Z21)     \
	ROW(from, 6, Z6, Z18, Z22)     \
	ROW(from, 7, Z7, Z19, Z23)     \
	ROW(from, 8, Z8, Z16, Z20)     \
	ROW(from, 9, Z9, Z17, Z21)     \
	ROW(from, 10, Z10, Z18, Z22)   \
	ROW(from, 11, Z11, Z19, Z23)   \
	ROW(from, 12, Z12, Z16, Z20)   \
	ROW(from, 13, Z13, Z17, Z21)   \
	ROW(from, 14, Z14, Z18, Z22)   \
	ROW(from, 15, Z15, Z19, Z23)   \
	ADDQ $512, R11                 \
	ADDQ $512, R12

// A row's rest += w.Extra·x.Extra.
#define LEAST(n, rest, x) \
	VMULPS.BCST (64+4*n)(R12), Z24, x  \
	VADDPS x, rest, rest

#define CLEAR \
	VPXORD Z0, Z0, Z0              \
	VPXORD Z1, Z1, Z1              \
	VPXORD Z2, Z2, Z2              \
	VPXORD Z3, Z3, Z3              \
	VPXORD Z4, Z4, Z4              \
	VPXORD Z5, Z5, Z5              \
	VPXORD Z6, Z6, Z6              \
	VPXORD Z7, Z7, Z7              \
	VPXORD Z8, Z8, Z8              \
	VPXORD Z9, Z9, Z9              \
	VPXORD Z10, Z10, Z10           \
	VPXORD Z11, Z11, Z11           \
	VPXORD Z12, Z12, Z12           \
	VPXORD Z13, Z13, Z13           \
	VPXORD Z14, Z14, Z14           \
	VPXORD Z15, Z15, Z15

#define KEEP(at) \
	VMOVUPS Z0, (at)(R9)           \
	VMOVUPS Z1, (at+64)(R9)        \
	VMOVUPS Z2, (at+128)(R9)       \
	VMOVUPS Z3, (at+192)(R9)       \
	VMOVUPS Z4, (at+256)(R9)       \
	VMOVUPS Z5, (at+320)(R9)       \
	VMOVUPS Z6, (at+384)(R9)       \
	VMOVUPS Z7, (at+448)(R9)       \
	VMOVUPS Z8, (at+512)(R9)       \
	VMOVUPS Z9, (at+576)(R9)       \
	VMOVUPS Z10, (at+640)(R9)      \
	VMOVUPS Z11, (at+704)(R9)      \
	VMOVUPS Z12, (at+768)(R9)      \
	VMOVUPS Z13, (at+832)(R9)      \
	VMOVUPS Z14, (at+896)(R9)      \
	VMOVUPS Z15, (at+960)(R9)

// func amxCodes(config *byte, tiles, blocks, lane, minima int, words *byte, scales *float32, x *int8, factors, room, sums *float32)
//
// One lane of all tiles: R10 counts them, R13 are the lane's blocks, R9 where its sums are kept. While the
// sums of a block, R8 of which are left, are scaled, those of the next one are stored, and the codes of that after it, CX of which
// are left, are multiplied.
TEXT ·amxCodes(SB), NOSPLIT, $0-88
	MOVQ config+0(FP), R8
	LDTILECFG_R8
	MOVQ tiles+8(FP), R10
	MOVQ blocks+16(FP), R13
	SUBQ lane+24(FP), R13
	ADDQ $3, R13
	SHRQ $2, R13
	MOVQ room+72(FP), DX
	MOVQ sums+80(FP), R9
	MOVQ $32, AX
	MOVQ $64, BX

tile:
	MOVQ words+40(FP), DI
	MOVQ scales+48(FP), R11
	MOVQ x+56(FP), SI
	MOVQ factors+64(FP), R12
	CLEAR
	MOVQ R13, CX
	MOVQ R13, R8
	NEXT0
	STORE0
	JZ even // of the blocks that are left to multiply
	NEXT1

even:
	CMPQ R8, $1
	JEQ scale0
	STORE1
	TESTQ CX, CX
	JZ scale0
	NEXT0

scale0:
	SCALE(0)
	DECQ R8
	JZ kept
	CMPQ R8, $1
	JEQ scale1
	STORE0
	TESTQ CX, CX
	JZ scale1
	NEXT1

scale1:
	SCALE(1024)
	DECQ R8
	JNZ even

kept:
	KEEP(0)
	CMPQ minima+32(FP), $0
	JEQ next
	MOVQ scales+48(FP), R11
	MOVQ factors+64(FP), R12
	CLEAR
	MOVQ R13, CX

least:
	VMOVUPS 64(R11), Z24
	LEAST(0, Z0, Z16)
	LEAST(1, Z1, Z17)
	LEAST(2, Z2, Z18)
	LEAST(3, Z3, Z19)
	LEAST(4, Z4, Z20)
	LEAST(5, Z5, Z21)
	LEAST(6, Z6, Z22)
	LEAST(7, Z7, Z23)
	LEAST(8, Z8, Z16)
	LEAST(9, Z9, Z17)
	LEAST(10, Z10, Z18)
	LEAST(11, Z11, Z19)
	LEAST(12, Z12, Z20)
	LEAST(13, Z13, Z21)
	LEAST(14, Z14, Z22)
	LEAST(15, Z15, Z23)
	ADDQ $512, R11
	ADDQ $512, R12
	DECQ CX
	JNZ least
	KEEP(4096)

next:
	// Tiles lie blocks·512 and blocks·128 bytes apart, their sums 8192.
	MOVQ blocks+16(FP), CX
	SHLQ $7, CX
	ADDQ CX, factors+64(FP)
	SHLQ $2, CX
	ADDQ CX, x+56(FP)
	ADDQ $8192, R9
	DECQ R10
	JNZ tile
	TILERELEASE
	VZEROUPPER
	RET

// func addCodes512(tiles, minima int, sums *float32)
//
// What lanes are, 1024 bytes apart, as one, a row at a time.
TEXT ·addCodes512(SB), NOSPLIT, $0-24
	MOVQ tiles+0(FP), R10
	MOVQ sums+16(FP), R9

addTile:
	MOVQ $16, CX

addRow:
	VMOVUPS (R9), Z0
	VADDPS 2048(R9), Z0, Z0
	VMOVUPS 1024(R9), Z1
	VADDPS 3072(R9), Z1, Z1
	VADDPS Z1, Z0, Z0
	VPXORD Z2, Z2, Z2
	CMPQ minima+8(FP), $0
	JEQ addRest
	VMOVUPS 4096(R9), Z2
	VADDPS 6144(R9), Z2, Z2
	VMOVUPS 5120(R9), Z3
	VADDPS 7168(R9), Z3, Z3
	VADDPS Z3, Z2, Z2

addRest:
	VADDPS Z2, Z0, Z0
	VMOVUPS Z0, (R9)
	ADDQ $64, R9
	DECQ CX
	JNZ addRow
	ADDQ $7168, R9
	DECQ R10
	JNZ addTile
	VZEROUPPER
	RET
