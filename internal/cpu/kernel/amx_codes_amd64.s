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
	ADDQ $256, R11                 \
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

// What is there already, from R9 on, comes first.
#define JOIN(at) \
	VADDPS (at)(R9), Z0, Z0 \
	VADDPS (at+64)(R9), Z1, Z1 \
	VADDPS (at+128)(R9), Z2, Z2 \
	VADDPS (at+192)(R9), Z3, Z3 \
	VADDPS (at+256)(R9), Z4, Z4 \
	VADDPS (at+320)(R9), Z5, Z5 \
	VADDPS (at+384)(R9), Z6, Z6 \
	VADDPS (at+448)(R9), Z7, Z7 \
	VADDPS (at+512)(R9), Z8, Z8 \
	VADDPS (at+576)(R9), Z9, Z9 \
	VADDPS (at+640)(R9), Z10, Z10 \
	VADDPS (at+704)(R9), Z11, Z11 \
	VADDPS (at+768)(R9), Z12, Z12 \
	VADDPS (at+832)(R9), Z13, Z13 \
	VADDPS (at+896)(R9), Z14, Z14 \
	VADDPS (at+960)(R9), Z15, Z15

#define ADDBIAS \
	VADDPS Z24, Z0, Z0 \
	VADDPS Z24, Z1, Z1 \
	VADDPS Z24, Z2, Z2 \
	VADDPS Z24, Z3, Z3 \
	VADDPS Z24, Z4, Z4 \
	VADDPS Z24, Z5, Z5 \
	VADDPS Z24, Z6, Z6 \
	VADDPS Z24, Z7, Z7 \
	VADDPS Z24, Z8, Z8 \
	VADDPS Z24, Z9, Z9 \
	VADDPS Z24, Z10, Z10 \
	VADDPS Z24, Z11, Z11 \
	VADDPS Z24, Z12, Z12 \
	VADDPS Z24, Z13, Z13 \
	VADDPS Z24, Z14, Z14 \
	VADDPS Z24, Z15, Z15

// A row of results, R8 of which are left.
#define PUT(n) \
	VMOVUPS n, (DI)                \
	ADDQ CX, DI                    \
	DECQ R8                        \
	JZ end

// func amxCodes(config *byte, tiles, blocks, lane, stage, minima int, words *byte, scales *float32, x *int8, factors, room, sums, bias, out *float32, ldo, rows int)
//
// One lane of all tiles: R10 counts them, R13 are the lane's blocks, R9 where its sums are kept, those of what is added 2048 bytes
// further. While the sums of a block, R8 of which are left, are scaled, those of the next one are stored, and the codes of that
// after it, CX of which are left, are multiplied. At stage 1 sums are added to what is there. At stage 2 all become results: those of
// two lanes are there, and of a third 1024 bytes further.
TEXT ·amxCodes(SB), NOSPLIT, $0-128
	MOVQ config+0(FP), R8
	LDTILECFG_R8
	MOVQ tiles+8(FP), R10
	MOVQ blocks+16(FP), R13
	SUBQ lane+24(FP), R13
	ADDQ $3, R13
	SHRQ $2, R13
	MOVQ room+80(FP), DX
	MOVQ sums+88(FP), R9
	MOVQ $32, AX
	MOVQ $64, BX

tile:
	CMPQ stage+32(FP), $2
	JNE begin
	MOVQ out+104(FP), DI // which is written when this tile is done
	MOVQ ldo+112(FP), SI
	MOVQ $16, CX

fetch:
	PREFETCHT0 (DI)
	ADDQ SI, DI
	DECQ CX
	JNZ fetch

begin:
	MOVQ words+48(FP), DI
	MOVQ scales+56(FP), R11
	MOVQ x+64(FP), SI
	MOVQ factors+72(FP), R12
	CLEAR
	MOVQ R13, CX
	MOVQ R13, R8
	TESTQ CX, CX
	JZ kept
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
	CMPQ stage+32(FP), $1
	JLT keep
	JEQ join
	JOIN(1024)

join:
	JOIN(0)

keep:
	KEEP(0)
	MOVQ scales+56(FP), R11
	ADDQ minima+40(FP), R11
	MOVQ factors+72(FP), R12
	CLEAR
	CMPQ minima+40(FP), $0
	JEQ rest
	MOVQ R13, CX
	TESTQ CX, CX
	JZ leastKept

least:
	VMOVUPS (R11), Z24
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
	ADDQ $256, R11
	ADDQ $512, R12
	DECQ CX
	JNZ least

leastKept:
	CMPQ stage+32(FP), $1
	JLT keepLeast
	JEQ joinLeast
	JOIN(3072)
	JOIN(2048)
	JMP results

joinLeast:
	JOIN(2048)

keepLeast:
	KEEP(2048)
	JMP next

rest:
	CMPQ stage+32(FP), $2
	JNE next

results:
	JOIN(0)
	MOVQ bias+96(FP), SI
	TESTQ SI, SI
	JZ put
	VMOVUPS (SI), Z24
	ADDBIAS

put:
	MOVQ out+104(FP), DI
	MOVQ ldo+112(FP), CX
	MOVQ rows+120(FP), R8
	PUT(Z0)
	PUT(Z1)
	PUT(Z2)
	PUT(Z3)
	PUT(Z4)
	PUT(Z5)
	PUT(Z6)
	PUT(Z7)
	PUT(Z8)
	PUT(Z9)
	PUT(Z10)
	PUT(Z11)
	PUT(Z12)
	PUT(Z13)
	PUT(Z14)
	PUT(Z15)
	MOVQ DI, out+104(FP)
	MOVQ R8, rows+120(FP)

next:
	// Tiles lie blocks·512 and blocks·128 bytes apart, their sums 4096.
	MOVQ blocks+16(FP), CX
	SHLQ $7, CX
	ADDQ CX, factors+72(FP)
	SHLQ $2, CX
	ADDQ CX, x+64(FP)
	ADDQ $4096, R9
	DECQ R10
	JNZ tile

end:
	TILERELEASE
	VZEROUPPER
	RET
