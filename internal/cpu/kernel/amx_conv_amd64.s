//go:build !noasm

#include "textflag.h"
#include "unit_amd64.h"

// The assembler does not know these instructions. Tiles 0 to 3 are sums, 4 and 5 pixels, 6 and 7 weights.
#define LDTILECFG_R8 BYTE $0xc4; BYTE $0xc2; BYTE $0x78; BYTE $0x49; BYTE $0x00
#define TILERELEASE BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0xc0
#define ZERO0 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xc0
#define ZERO1 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xc8
#define ZERO2 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xd0
#define ZERO3 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xd8

// Pixels at SI and at R14, AX bytes apart; weights at DI, BX bytes apart.
#define LOAD4 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x24; BYTE $0x06
#define LOAD5 BYTE $0xc4; BYTE $0xc2; BYTE $0x7b; BYTE $0x4b; BYTE $0x2c; BYTE $0x06
#define LOAD6 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x34; BYTE $0x1f
#define LOAD7 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x7c; BYTE $0x1f; BYTE $0x40

// Sums to DX, CX bytes apart.
#define STORE0 BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $0x04; BYTE $0x0a
#define STORE1 BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $0x4c; BYTE $0x0a; BYTE $0x40
#define STORE2 BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $0x94; BYTE $0x0a; LONG $2048
#define STORE3 BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $0x9c; BYTE $0x0a; LONG $2112

// TDPBF16PS: tile 0 += 4·6, 1 += 4·7, 2 += 5·6, 3 += 5·7.
#define MULTIPLY0 BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5c; BYTE $0xc4
#define MULTIPLY1 BYTE $0xc4; BYTE $0xe2; BYTE $0x42; BYTE $0x5c; BYTE $0xcc
#define MULTIPLY2 BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5c; BYTE $0xd5
#define MULTIPLY3 BYTE $0xc4; BYTE $0xe2; BYTE $0x42; BYTE $0x5c; BYTE $0xdd

// What is wanted next comes into the second cache, or is asked for in vain.
#define AHEAD \
	PREFETCHT1 (BP)                \
	PREFETCHT1 64(BP)              \
	PREFETCHT1 128(BP)             \
	PREFETCHT1 192(BP)             \
	ADDQ $256, BP

#define MULTIPLY \
	MOVQ (R8), SI                  \
	LEAQ (R11)(SI*1), R14          \
	ADDQ R10, SI                   \
	LOAD6                          \
	LOAD4                          \
	MULTIPLY0                      \
	LOAD7                          \
	MULTIPLY1                      \
	LOAD5                          \
	MULTIPLY2                      \
	MULTIPLY3                      \
	MOVQ tile_aheadLines, R14      \
	ADDQ $8, R8                    \
	ADDQ $2048, DI

#define MULTIPLY_ONE \
	MOVQ (R8), SI                  \
	ADDQ R10, SI                   \
	LOAD6                          \
	LOAD4                          \
	MULTIPLY0                      \
	LOAD7                          \
	MULTIPLY1                      \
	ADDQ $8, R8                    \
	ADDQ $2048, DI

// func amxConv(tile *UnitTile)
//
// The sums of a block are finished while those of the next one are made, some pixels with each step, because the matrix
// unit and the vector units work at the same time. R12 is the number of pixels that are left of the tile that is being
// finished, R13 and DX are the next one's result and sums; rest is what the second tile has.
TEXT ·amxConv(SB), NOSPLIT, $56-8
	MOVQ tile+0(FP), R15
	LEAQ tile_config, R8
	LDTILECFG_R8
	MOVQ tile_x, R10
	MOVQ tile_blocks, R8
	MOVQ R8, blocks-8(SP)
	MOVQ tile_y, R8
	MOVQ R8, y-16(SP)
	MOVQ tile_sums, R8
	MOVQ R8, sums-24(SP)
	LEAQ 4096(R8)(R8*1), R8
	MOVQ R8, halves-56(SP)
	MOVQ $0, rest-32(SP)
	MOVQ $0, R12
	MOVQ tile_xPixel, AX
	MOVQ tile_ahead, BP
	MOVQ $128, BX
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

block:
	MOVQ tile_steps, R9
	MOVQ tile_offsets, R8
	MOVQ tile_w, DI
	MOVQ tile_xSecond, R11
	ADDQ R10, R11
	CMPQ tile_rows1, $0
	JE single
	ZERO0
	ZERO1
	ZERO2
	ZERO3
	TESTQ R12, R12
	JNZ both

step:
	MULTIPLY

stepAhead:
	AHEAD
	DECQ R14
	JNZ stepAhead
	DECQ R9
	JNZ step
	JMP store

both:
	MULTIPLY

bothAhead:
	AHEAD
	DECQ R14
	JNZ bothAhead
	MOVQ tile_perStep, SI
	CMPQ tile_wide, $0
	JNE bothWide
	CMPQ tile_residual, $0
	JNE bothResidual

bothPixel:
	TESTQ R12, R12
	JZ bothSecond
	SCALED
	LIMITED
	ADDQ $128, DX
	ADDQ $64, R13
	DECQ R12
	DECQ SI
	JNZ bothPixel
	DECQ R9
	JNZ both
	JMP store

bothResidual:
	TESTQ R12, R12
	JZ bothSecond
	SCALED
	RESIDUAL
	LIMITED
	ADDQ $128, DX
	ADDQ $64, R13
	DECQ R12
	DECQ SI
	JNZ bothResidual
	DECQ R9
	JNZ both
	JMP store

bothWide:
	TESTQ R12, R12
	JZ bothSecond
	SCALED
	CMPQ tile_residual, $0
	JE bothWider
	WIDE_RESIDUAL

bothWider:
	WIDE
	ADDQ $128, DX
	ADDQ tile_yPixel, R13
	DECQ R12
	DECQ SI
	JNZ bothWide
	DECQ R9
	JNZ both
	JMP store

bothSecond:
	MOVQ rest-32(SP), R12
	TESTQ R12, R12
	JZ bothDone
	MOVQ $0, rest-32(SP)
	MOVQ ySecond-40(SP), R13
	MOVQ sumsSecond-48(SP), DX
	CMPQ tile_wide, $0
	JNE bothWide
	CMPQ tile_residual, $0
	JNE bothResidual
	JMP bothPixel

bothDone:
	DECQ R9
	JNZ step

store:
	MOVQ sums-24(SP), DX
	MOVQ $128, CX
	STORE0
	STORE1
	STORE2
	STORE3
	JMP stored

single:
	ZERO0
	ZERO1
	TESTQ R12, R12
	JNZ bothOne

stepOne:
	MULTIPLY_ONE
	DECQ R9
	JNZ stepOne
	JMP storeOne

bothOne:
	MULTIPLY_ONE
	MOVQ tile_perStep, SI

pixelOne:
	TESTQ R12, R12
	JZ doneOne
	SCALED
	CMPQ tile_wide, $0
	JNE wideOne
	CMPQ tile_residual, $0
	JE limitOne
	RESIDUAL

limitOne:
	LIMITED
	ADDQ $128, DX
	ADDQ $64, R13
	DECQ R12
	DECQ SI
	JNZ pixelOne

doneOne:
	DECQ R9
	JNZ bothOne
	JMP storeOne

wideOne:
	CMPQ tile_residual, $0
	JE widerOne
	WIDE_RESIDUAL

widerOne:
	WIDE
	ADDQ $128, DX
	ADDQ tile_yPixel, R13
	DECQ R12
	DECQ SI
	JNZ pixelOne
	DECQ R9
	JNZ bothOne

storeOne:
	MOVQ sums-24(SP), DX
	MOVQ $128, CX
	STORE0
	STORE1

stored:
	// The block's sums wait to be finished with the next one, in the other half of the scratch memory.
	MOVQ tile_rows0, R12
	MOVQ tile_rows1, R8
	MOVQ R8, rest-32(SP)
	MOVQ y-16(SP), R13
	MOVQ tile_ySecond, R8
	ADDQ R13, R8
	MOVQ R8, ySecond-40(SP)
	LEAQ 2048(DX), R8
	MOVQ R8, sumsSecond-48(SP)
	MOVQ tile_residual, CX
	SUBQ tile_y, CX
	CMPQ tile_keep, $0
	JNE keep
	MOVQ halves-56(SP), R8
	SUBQ DX, R8
	MOVQ R8, sums-24(SP)
	CMPQ blocks-8(SP), $1
	JNE advance

drain:
	TESTQ R12, R12
	JZ drainSecond
	SCALED
	CMPQ tile_wide, $0
	JNE drainWide
	CMPQ tile_residual, $0
	JE drainLimit
	RESIDUAL

drainLimit:
	LIMITED
	ADDQ $128, DX
	ADDQ $64, R13
	DECQ R12
	JMP drain

drainWide:
	CMPQ tile_residual, $0
	JE drainWider
	WIDE_RESIDUAL

drainWider:
	WIDE
	ADDQ $128, DX
	ADDQ tile_yPixel, R13
	DECQ R12
	JMP drain

drainSecond:
	MOVQ rest-32(SP), R12
	MOVQ $0, rest-32(SP)
	MOVQ ySecond-40(SP), R13
	MOVQ sumsSecond-48(SP), DX
	TESTQ R12, R12
	JNZ drain
	JMP advance

keep:
	TESTQ R12, R12
	JZ keepSecond
	SCALED
	CMPQ tile_residual, $0
	JE keepSums
	RESIDUAL

keepSums:
	VMOVUPS Z0, (DX)
	VMOVUPS Z1, 64(DX)
	ADDQ $128, DX
	ADDQ $64, R13
	DECQ R12
	JMP keep

keepSecond:
	MOVQ rest-32(SP), R12
	MOVQ $0, rest-32(SP)
	MOVQ ySecond-40(SP), R13
	MOVQ sumsSecond-48(SP), DX
	TESTQ R12, R12
	JNZ keep

next:
	ADDQ $4096, sums-24(SP)

advance:
	ADDQ tile_xBlock, R10
	MOVQ tile_yBlock, R8
	ADDQ R8, y-16(SP)
	DECQ blocks-8(SP)
	JNZ block
	TILERELEASE
	VZEROUPPER
	RET

// func amxMax(row *UnitRow)
//
// Z0 and Z1 are the largest of the even and of the odd channels so far, as float32; Z5 is what makes float32 of the odd
// ones.
TEXT ·amxMax(SB), NOSPLIT, $0-8
	MOVQ row+0(FP), R15
	MOVQ 0(R15), SI
	MOVQ 8(R15), AX
	MOVQ 16(R15), R10
	MOVQ 24(R15), R11
	MOVQ 32(R15), DI
	MOVQ 40(R15), R12
	MOVL $0xffff0000, R8
	VPBROADCASTD R8, Z5
	MOVL $0xff800000, R8
	VPBROADCASTD R8, Z6

maxPixel:
	MOVQ R10, R8
	MOVQ R11, R9
	VMOVDQA64 Z6, Z0
	VMOVDQA64 Z6, Z1

maxTap:
	MOVQ (R8), BX
	VMOVDQU32 (SI)(BX*1), Z3
	VPSLLD $16, Z3, Z2
	VPANDD Z5, Z3, Z3
	VCMPPS $3, Z0, Z0, K2
	VCMPPS $3, Z1, Z1, K3
	VMAXPS Z2, Z0, Z2
	VMAXPS Z3, Z1, Z3
	VMOVAPS Z0, K2, Z2
	VMOVAPS Z1, K3, Z3
	VMOVAPS Z2, Z0
	VMOVAPS Z3, Z1
	ADDQ $8, R8
	DECQ R9
	JNZ maxTap
	VPSRLD $16, Z0, Z0
	VPANDD Z5, Z1, Z1
	VPORD Z0, Z1, Z0
	VMOVDQU32 Z0, (DI)
	ADDQ AX, SI
	ADDQ $64, DI
	DECQ R12
	JNZ maxPixel
	VZEROUPPER
	RET

// func amxNarrow(pixels int, low, high *float32, step int, y *uint16, mask uint32)
TEXT ·amxNarrow(SB), NOSPLIT, $0-44
	MOVQ pixels+0(FP), R9
	MOVQ low+8(FP), SI
	MOVQ high+16(FP), DI
	MOVQ step+24(FP), AX
	MOVQ y+32(FP), R13
	MOVL mask+40(FP), R8
	KMOVD R8, K1
	KMOVW R8, K2
	SHRL $16, R8
	KMOVW R8, K3

narrowPixel:
	VMOVUPS.Z (SI), K2, Z0
	VMOVUPS.Z (DI), K3, Z1
	NARROW
	VMOVDQU32 Z2, (R13)
	ADDQ AX, SI
	ADDQ AX, DI
	ADDQ $64, R13
	DECQ R9
	JNZ narrowPixel
	VZEROUPPER
	RET

// func amxWiden(pixels int, x *uint16, y *float32)
TEXT ·amxWiden(SB), NOSPLIT, $0-24
	MOVQ pixels+0(FP), R9
	MOVQ x+8(FP), SI
	MOVQ y+16(FP), DI

widenPixel:
	VPMOVZXWD (SI), Z0
	VPSLLD $16, Z0, Z0
	VMOVDQU32 Z0, (DI)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ R9
	JNZ widenPixel
	VZEROUPPER
	RET

// func amxGather(lines int, x *uint16, step int, y *uint16)
TEXT ·amxGather(SB), NOSPLIT, $0-32
	MOVQ lines+0(FP), R9
	MOVQ x+8(FP), SI
	MOVQ step+16(FP), AX
	MOVQ y+24(FP), DI

gatherLine:
	VMOVDQU32 (SI), Z0
	VMOVDQU32 Z0, (DI)
	ADDQ AX, SI
	ADDQ $64, DI
	DECQ R9
	JNZ gatherLine
	VZEROUPPER
	RET
