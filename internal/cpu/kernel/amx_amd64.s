//go:build !noasm

#include "textflag.h"

// The assembler does not know these instructions. Tiles 0 to 3 are sums, 4 and 5 the left factor, 6 and 7 the right one.
#define LDTILECFG_R8 BYTE $0xc4; BYTE $0xc2; BYTE $0x78; BYTE $0x49; BYTE $0x00
#define TILERELEASE BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0xc0

// Rows of the left factor at SI, AX bytes apart; of the right one at DI, BX bytes apart.
#define LOAD4 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x24; BYTE $0x06
#define LOAD5 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0xac; BYTE $0x06; LONG $1024
#define LOAD6 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x34; BYTE $0x1f
#define LOAD7 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x7c; BYTE $0x1f; BYTE $0x40

// The same of the left factor for TILELOADDT1, which takes no room from what stays in the nearest cache.
#define LOAD4ONCE BYTE $0xc4; BYTE $0xe2; BYTE $0x79; BYTE $0x4b; BYTE $0x24; BYTE $0x06
#define LOAD5ONCE BYTE $0xc4; BYTE $0xe2; BYTE $0x79; BYTE $0x4b; BYTE $0xac; BYTE $0x06; LONG $1024

// Rows of sums at DX, CX bytes apart.
#define LOADSUMS(sums) BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $(0x04+8*sums); BYTE $0x0a
#define STORESUMS(sums) BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $(0x04+8*sums); BYTE $0x0a
#define LOAD0 LOADSUMS(0)
#define LOAD1 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x4c; BYTE $0x0a; BYTE $0x40
#define LOAD2 LOADSUMS(2)
#define LOAD3 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x5c; BYTE $0x0a; BYTE $0x40
#define STORE0 STORESUMS(0)
#define STORE1 BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $0x4c; BYTE $0x0a; BYTE $0x40
#define STORE2 STORESUMS(2)
#define STORE3 BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $0x5c; BYTE $0x0a; BYTE $0x40

// TDPBF16PS: tile 0 += 4·6, 1 += 4·7, 2 += 5·6, 3 += 5·7.
#define MULTIPLY0 BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5c; BYTE $0xc4
#define MULTIPLY1 BYTE $0xc4; BYTE $0xe2; BYTE $0x42; BYTE $0x5c; BYTE $0xcc
#define MULTIPLY2 BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5c; BYTE $0xd5
#define MULTIPLY3 BYTE $0xc4; BYTE $0xe2; BYTE $0x42; BYTE $0x5c; BYTE $0xdd

// func amxTiles(config *byte, blocks, steps, parts, ahead int, a *byte, aBlock int, b *byte, first *float32, ldf int,
//     firstBlock int, c *float32, ldc int)
//
// The right factor stays in the nearest cache for all blocks. Meanwhile lines of what lies behind it are fetched, ahead of them a
// step, and rows of the result, which are written at a block's end.
TEXT ·amxTiles(SB), NOSPLIT, $0-104
	MOVQ config+0(FP), R8
	LDTILECFG_R8
	MOVQ blocks+8(FP), R9
	MOVQ a+40(FP), R10
	MOVQ first+64(FP), R11
	MOVQ c+88(FP), R12
	MOVQ $64, AX
	MOVQ $128, BX
	MOVQ steps+16(FP), R15
	SHLQ $11, R15
	ADDQ b+56(FP), R15

block:
	MOVQ R11, DX
	MOVQ ldf+72(FP), CX
	LOAD0
	LOAD1
	MOVQ CX, R13
	SHLQ $4, R13
	ADDQ R13, DX
	LOAD2
	LOAD3
	MOVQ R12, DX
	MOVQ ldc+96(FP), CX
	MOVQ R10, SI
	MOVQ b+56(FP), DI
	MOVQ steps+16(FP), R13

step:
	LOAD6
	LOAD7
	MOVQ ahead+32(FP), R8
	TESTQ R8, R8
	JZ   fetched

fetch:
	PREFETCHT1 (R15)
	ADDQ $64, R15
	DECQ R8
	JNZ  fetch

fetched:
	PREFETCHT0 (DX)
	PREFETCHT0 64(DX)
	ADDQ CX, DX
	PREFETCHT0 (DX)
	PREFETCHT0 64(DX)
	ADDQ CX, DX
	MOVQ parts+24(FP), R8

part:
	LOAD4ONCE
	MULTIPLY0
	MULTIPLY1
	LOAD5ONCE
	MULTIPLY2
	MULTIPLY3
	ADDQ $2048, SI
	DECQ R8
	JNZ  part
	ADDQ $2048, DI
	DECQ R13
	JNZ  step

	MOVQ R12, DX
	STORE0
	STORE1
	MOVQ CX, R13
	SHLQ $4, R13
	ADDQ R13, DX
	STORE2
	STORE3
	ADDQ R13, DX
	MOVQ DX, R12
	ADDQ aBlock+48(FP), R10
	ADDQ firstBlock+80(FP), R11
	DECQ R9
	JNZ  block
	TILERELEASE
	RET

// Four lines of the right factor, some steps ahead. Further away takes longer: a core waits for few lines at a time.
#define AHEAD4(at) \
	PREFETCHT0 (at)(DI)            \
	PREFETCHT0 (at+64)(DI)         \
	PREFETCHT0 (at+128)(DI)        \
	PREFETCHT0 (at+192)(DI)

// func amxFew(config *byte, panels, steps, parts int, a, b *byte, first *float32, ldf int, c *float32, ldc int)
//
// As many rows as the configuration says, 16 at most, of panels side by side: the right factor streams by, and is fetched
// before it is read.
TEXT ·amxFew(SB), NOSPLIT, $0-80
	MOVQ config+0(FP), R8
	LDTILECFG_R8
	MOVQ panels+8(FP), R9
	MOVQ b+40(FP), DI
	MOVQ first+48(FP), R11
	MOVQ c+64(FP), R12
	MOVQ $64, AX
	MOVQ $128, BX

fewPanel:
	MOVQ steps+16(FP), R13
	MOVQ a+32(FP), SI
	MOVQ R11, DX
	MOVQ ldf+56(FP), CX
	LOAD0
	LOAD1

fewStep:
	LOAD6
	AHEAD4(4096)
	AHEAD4(4352)
	AHEAD4(4608)
	AHEAD4(4864)
	LOAD7
	AHEAD4(5120)
	AHEAD4(5376)
	AHEAD4(5632)
	AHEAD4(5888)
	MOVQ parts+24(FP), R8

fewPart:
	LOAD4
	MULTIPLY0
	MULTIPLY1
	ADDQ $2048, SI
	DECQ R8
	JNZ  fewPart
	ADDQ $2048, DI
	DECQ R13
	JNZ  fewStep

	MOVQ R12, DX
	MOVQ ldc+72(FP), CX
	STORE0
	STORE1
	ADDQ $128, R11
	ADDQ $128, R12
	DECQ R9
	JNZ  fewPanel
	TILERELEASE
	RET

// Of three parts of the left factor at SI, of the right one at DI and R10, and their products: the number of the sums, and
// that of the tile that has the part.
#define LOAD5PART BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0xac; BYTE $0x06; LONG $2048
#define LOAD6PART BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0xb4; BYTE $0x06; LONG $4096
#define LOAD7LOW BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x3c; BYTE $0x1f
#define LOAD7NEXT BYTE $0xc4; BYTE $0xc2; BYTE $0x7b; BYTE $0x4b; BYTE $0x3c; BYTE $0x1a
#define LOAD7NEXTHIGH BYTE $0xc4; BYTE $0xc2; BYTE $0x7b; BYTE $0x4b; BYTE $0x7c; BYTE $0x1a; BYTE $0x40
#define MULTIPLY(sums, part) BYTE $0xc4; BYTE $0xe2; BYTE $0x42; BYTE $0x5c; BYTE $(0xc0+8*sums+part)

#define AHEAD4NEXT(at) \
	PREFETCHT0 (at)(R10)           \
	PREFETCHT0 (at+64)(R10)        \
	PREFETCHT0 (at+128)(R10)       \
	PREFETCHT0 (at+192)(R10)

// func amxFewParts(config *byte, pairs, steps int, a, b *byte, first *float32, ldf int, c *float32, ldc int)
//
// As amxFew of a left factor in three parts, two panels at a time: a sum waits for the one before it, and these are of twice as
// many.
TEXT ·amxFewParts(SB), NOSPLIT, $0-72
	MOVQ config+0(FP), R8
	LDTILECFG_R8
	MOVQ pairs+8(FP), R9
	MOVQ b+32(FP), DI
	MOVQ first+40(FP), R11
	MOVQ c+56(FP), R12
	MOVQ $64, AX
	MOVQ $128, BX

pair:
	MOVQ steps+16(FP), R13
	MOVQ R13, R10
	SHLQ $11, R10
	ADDQ DI, R10
	MOVQ a+24(FP), SI
	MOVQ R11, DX
	MOVQ ldf+48(FP), CX
	LOAD0
	LOAD1
	ADDQ $128, DX
	LOAD2
	LOAD3

pairStep:
	LOAD4
	LOAD5PART
	LOAD6PART
	LOAD7LOW
	AHEAD4(4096)
	AHEAD4(4352)
	MULTIPLY(0, 4)
	MULTIPLY(0, 5)
	MULTIPLY(0, 6)
	AHEAD4(4608)
	AHEAD4(4864)
	LOAD7
	MULTIPLY(1, 4)
	MULTIPLY(1, 5)
	MULTIPLY(1, 6)
	AHEAD4(5120)
	AHEAD4(5376)
	AHEAD4(5632)
	AHEAD4(5888)
	LOAD7NEXT
	AHEAD4NEXT(4096)
	AHEAD4NEXT(4352)
	AHEAD4NEXT(4608)
	AHEAD4NEXT(4864)
	MULTIPLY(2, 4)
	MULTIPLY(2, 5)
	MULTIPLY(2, 6)
	LOAD7NEXTHIGH
	AHEAD4NEXT(5120)
	AHEAD4NEXT(5376)
	AHEAD4NEXT(5632)
	AHEAD4NEXT(5888)
	MULTIPLY(3, 4)
	MULTIPLY(3, 5)
	MULTIPLY(3, 6)
	ADDQ $6144, SI
	ADDQ $2048, DI
	ADDQ $2048, R10
	DECQ R13
	JNZ  pairStep

	MOVQ R12, DX
	MOVQ ldc+64(FP), CX
	STORE0
	STORE1
	ADDQ $128, DX
	STORE2
	STORE3
	MOVQ R10, DI
	ADDQ $256, R11
	ADDQ $256, R12
	DECQ R9
	JNZ  pair
	TILERELEASE
	RET

// Sixteen columns of a right factor that lie one behind the other, AX bytes apart, are the rows of the left factor here, and parts
// of the other one at SI, turned, the right one; sums lie at DX, CX bytes apart.
#define LINES4AT(base) BYTE $0xc4; BYTE $0xc2; BYTE $0x7b; BYTE $0x4b; BYTE $0x24; BYTE $base
#define LINES4R8 LINES4AT(0x00)
#define LINES4R9 LINES4AT(0x01)
#define LINES4R10 LINES4AT(0x02)
#define LINES4R11 LINES4AT(0x03)
#define LOAD5TURNED BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0xac; BYTE $0x1e; LONG $1024
#define LOAD6TURNED BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0xb4; BYTE $0x1e; LONG $3072
#define LOAD7TURNED BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0xbc; BYTE $0x1e; LONG $5120
#define ADD5(sums) BYTE $0xc4; BYTE $0xe2; BYTE $0x52; BYTE $0x5c; BYTE $(0xc4+8*sums)
#define ADD6(sums) BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5c; BYTE $(0xc4+8*sums)
#define ADD7(sums) MULTIPLY(sums, 4)
#define AHEAD4LINES(at) \
	PREFETCHT1 (at)(R12)           \
	PREFETCHT1 (at+64)(R12)        \
	PREFETCHT1 (at+128)(R12)       \
	PREFETCHT1 (at+192)(R12)
#define AHEAD16LINES(at) \
	AHEAD4LINES(at)                \
	AHEAD4LINES(at+256)            \
	AHEAD4LINES(at+512)            \
	AHEAD4LINES(at+768)

// func amxLines(config *byte, blocks, steps, parts int, w *byte, ldw int, x *uint16, c *float32, ldc int)
//
// Blocks of 64 columns. While one is computed the next one, which lies behind it, is fetched.
TEXT ·amxLines(SB), NOSPLIT, $0-72
	MOVQ config+0(FP), R8
	LDTILECFG_R8
	MOVQ w+32(FP), R8
	MOVQ ldw+40(FP), AX
	MOVQ c+56(FP), DI
	MOVQ $64, BX
	MOVQ AX, R15
	SHLQ $4, R15

lines:
	LEAQ (R8)(R15*1), R9
	LEAQ (R8)(R15*2), R10
	LEAQ (R9)(R15*2), R11
	LEAQ (R8)(R15*4), R12
	MOVQ ldc+64(FP), CX
	MOVQ CX, R14
	SHLQ $4, R14
	MOVQ DI, DX
	LOADSUMS(0)
	ADDQ R14, DX
	LOADSUMS(1)
	ADDQ R14, DX
	LOADSUMS(2)
	ADDQ R14, DX
	LOADSUMS(3)
	MOVQ x+48(FP), SI
	MOVQ steps+16(FP), R13
	CMPQ parts+24(FP), $1
	JEQ  linesOnce

linesStep:
	LOAD5TURNED
	LOAD6TURNED
	LOAD7TURNED
	LINES4R8
	ADD5(0)
	ADD6(0)
	ADD7(0)
	AHEAD16LINES(0)
	LINES4R9
	ADD5(1)
	ADD6(1)
	ADD7(1)
	AHEAD16LINES(1024)
	LINES4R10
	ADD5(2)
	ADD6(2)
	ADD7(2)
	AHEAD16LINES(2048)
	LINES4R11
	ADD5(3)
	ADD6(3)
	ADD7(3)
	AHEAD16LINES(3072)
	ADDQ $6144, SI
	ADDQ $64, R8
	ADDQ $64, R9
	ADDQ $64, R10
	ADDQ $64, R11
	ADDQ $4096, R12
	DECQ R13
	JNZ  linesStep
	JMP  linesDone

linesOnce:
	LOAD5TURNED
	LINES4R8
	ADD5(0)
	AHEAD16LINES(0)
	LINES4R9
	ADD5(1)
	AHEAD16LINES(1024)
	LINES4R10
	ADD5(2)
	AHEAD16LINES(2048)
	LINES4R11
	ADD5(3)
	AHEAD16LINES(3072)
	ADDQ $2048, SI
	ADDQ $64, R8
	ADDQ $64, R9
	ADDQ $64, R10
	ADDQ $64, R11
	ADDQ $4096, R12
	DECQ R13
	JNZ  linesOnce

linesDone:
	MOVQ DI, DX
	STORESUMS(0)
	ADDQ R14, DX
	STORESUMS(1)
	ADDQ R14, DX
	STORESUMS(2)
	ADDQ R14, DX
	STORESUMS(3)
	ADDQ R14, DX
	MOVQ DX, DI
	MOVQ steps+16(FP), DX
	SHLQ $6, DX
	SUBQ DX, R8
	LEAQ (R8)(R15*4), R8
	DECQ blocks+8(FP)
	JNZ  lines
	TILERELEASE
	RET

// func amxLines16(config *byte, steps, parts int, w *byte, ldw int, x *uint16, c *float32, ldc int)
//
// Sixteen columns.
TEXT ·amxLines16(SB), NOSPLIT, $0-64
	MOVQ config+0(FP), R8
	LDTILECFG_R8
	MOVQ w+24(FP), R8
	MOVQ ldw+32(FP), AX
	MOVQ x+40(FP), SI
	MOVQ c+48(FP), DX
	MOVQ ldc+56(FP), CX
	MOVQ $64, BX
	MOVQ steps+8(FP), R13
	MOVQ parts+16(FP), R14
	LOADSUMS(0)

lines16:
	LINES4R8
	LOAD5TURNED
	ADD5(0)
	ADDQ $64, R8
	CMPQ R14, $1
	JEQ  lines16Once
	LOAD6TURNED
	LOAD7TURNED
	ADD6(0)
	ADD7(0)
	ADDQ $4096, SI

lines16Once:
	ADDQ $2048, SI
	DECQ R13
	JNZ  lines16
	STORESUMS(0)
	TILERELEASE
	RET

// 16 floats at from(SI) as three parts at to(DI), 2048 bytes apart. Each is what is left without the last 16 bits, which
// is exact. Infinities and NaN, of which one stays NaN, leave nothing.
#define SPLIT(from, to) \
	VMOVUPS from(SI), Z0           \
	VFPCLASSPSZ $0x81, Z0, K1      \
	VFPCLASSPSZ $0x99, Z0, K2      \
	KNOTW K2, K2                   \
	VPANDD Z10, Z0, Z1             \
	VSUBPS.Z Z1, Z0, K2, Z2        \
	VPORD Z11, Z1, K1, Z1          \
	VPANDD Z10, Z2, Z3             \
	VSUBPS Z3, Z2, Z4              \
	VPSRLD $16, Z1, Z1             \
	VPSRLD $16, Z3, Z3             \
	VPSRLD $16, Z4, Z4             \
	VPMOVDW Z1, to(DI)             \
	VPMOVDW Z3, (2048+to)(DI)      \
	VPMOVDW Z4, (4096+to)(DI)

// func amxSplit(steps int, x *float32, y *uint16)
TEXT ·amxSplit(SB), NOSPLIT, $0-24
	MOVQ steps+0(FP), CX
	MOVQ x+8(FP), SI
	MOVQ y+16(FP), DI
	MOVL $0xffff0000, AX
	VPBROADCASTD AX, Z10
	MOVL $0x00400000, AX
	VPBROADCASTD AX, Z11

splitStep:
	SPLIT(0, 0)
	SPLIT(64, 32)
	ADDQ $128, SI
	ADDQ $6144, DI
	DECQ CX
	JNZ  splitStep
	VZEROUPPER
	RET

// 16 floats at from(SI), rounded to nearest with ties to even, at to(DI); NaN is Z12.
#define ROUND(from, to) \
	VMOVUPS from(SI), Z0           \
	VCMPPS $3, Z0, Z0, K1          \
	VPSRLD $16, Z0, Z1             \
	VPANDD Z10, Z1, Z1             \
	VPADDD Z0, Z1, Z1              \
	VPADDD Z11, Z1, Z1             \
	VPSRLD $16, Z1, Z1             \
	VMOVDQA32 Z12, K1, Z1          \
	VPMOVDW Z1, to(DI)

// func amxRound(steps int, x *float32, y *uint16)
TEXT ·amxRound(SB), NOSPLIT, $0-24
	MOVQ steps+0(FP), CX
	MOVQ x+8(FP), SI
	MOVQ y+16(FP), DI
	MOVL $1, AX
	VPBROADCASTD AX, Z10
	MOVL $0x7fff, AX
	VPBROADCASTD AX, Z11
	MOVL $0x7fc0, AX
	VPBROADCASTD AX, Z12

roundStep:
	ROUND(0, 0)
	ROUND(64, 32)
	ADDQ $128, SI
	ADDQ $2048, DI
	DECQ CX
	JNZ  roundStep
	VZEROUPPER
	RET
