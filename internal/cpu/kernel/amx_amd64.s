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

// Rows of sums at DX, CX bytes apart.
#define LOAD0 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x04; BYTE $0x0a
#define LOAD1 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x4c; BYTE $0x0a; BYTE $0x40
#define LOAD2 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x14; BYTE $0x0a
#define LOAD3 BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x4b; BYTE $0x5c; BYTE $0x0a; BYTE $0x40
#define STORE0 BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $0x04; BYTE $0x0a
#define STORE1 BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $0x4c; BYTE $0x0a; BYTE $0x40
#define STORE2 BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $0x14; BYTE $0x0a
#define STORE3 BYTE $0xc4; BYTE $0xe2; BYTE $0x7a; BYTE $0x4b; BYTE $0x5c; BYTE $0x0a; BYTE $0x40

// TDPBF16PS: tile 0 += 4·6, 1 += 4·7, 2 += 5·6, 3 += 5·7.
#define MULTIPLY0 BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5c; BYTE $0xc4
#define MULTIPLY1 BYTE $0xc4; BYTE $0xe2; BYTE $0x42; BYTE $0x5c; BYTE $0xcc
#define MULTIPLY2 BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5c; BYTE $0xd5
#define MULTIPLY3 BYTE $0xc4; BYTE $0xe2; BYTE $0x42; BYTE $0x5c; BYTE $0xdd

// func amxTiles(config *byte, blocks, steps int, a *byte, aBlock int, b *byte, first *float32, ldf int, firstBlock int,
//     c *float32, ldc int)
TEXT ·amxTiles(SB), NOSPLIT, $0-88
	MOVQ config+0(FP), R8
	LDTILECFG_R8
	MOVQ blocks+8(FP), R9
	MOVQ a+24(FP), R10
	MOVQ first+48(FP), R11
	MOVQ c+72(FP), R12
	MOVQ $64, AX
	MOVQ $128, BX

block:
	MOVQ R11, DX
	MOVQ ldf+56(FP), CX
	LOAD0
	LOAD1
	MOVQ CX, R13
	SHLQ $4, R13
	ADDQ R13, DX
	LOAD2
	LOAD3
	MOVQ R10, SI
	MOVQ b+40(FP), DI
	MOVQ steps+16(FP), R13

step:
	LOAD6
	LOAD4
	MULTIPLY0
	LOAD7
	MULTIPLY1
	LOAD5
	MULTIPLY2
	MULTIPLY3
	ADDQ $2048, SI
	ADDQ $2048, DI
	DECQ R13
	JNZ  step

	MOVQ R12, DX
	MOVQ ldc+80(FP), CX
	STORE0
	STORE1
	MOVQ CX, R13
	SHLQ $4, R13
	ADDQ R13, DX
	STORE2
	STORE3
	ADDQ R13, DX
	MOVQ DX, R12
	ADDQ aBlock+32(FP), R10
	ADDQ firstBlock+64(FP), R11
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

// func amxFew(config *byte, panels, steps int, a, b *byte, first *float32, ldf int, c *float32, ldc int)
//
// As many rows as the configuration says, 16 at most, of panels side by side: the right factor streams by, and is fetched
// before it is read.
TEXT ·amxFew(SB), NOSPLIT, $0-72
	MOVQ config+0(FP), R8
	LDTILECFG_R8
	MOVQ panels+8(FP), R9
	MOVQ b+32(FP), DI
	MOVQ first+40(FP), R11
	MOVQ c+56(FP), R12
	MOVQ $64, AX
	MOVQ $128, BX

fewPanel:
	MOVQ steps+16(FP), R13
	MOVQ a+24(FP), SI
	MOVQ R11, DX
	MOVQ ldf+48(FP), CX
	LOAD0
	LOAD1

fewStep:
	LOAD6
	AHEAD4(4096)
	AHEAD4(4352)
	AHEAD4(4608)
	AHEAD4(4864)
	LOAD4
	MULTIPLY0
	LOAD7
	AHEAD4(5120)
	AHEAD4(5376)
	AHEAD4(5632)
	AHEAD4(5888)
	MULTIPLY1
	ADDQ $2048, SI
	ADDQ $2048, DI
	DECQ R13
	JNZ  fewStep

	MOVQ R12, DX
	MOVQ ldc+64(FP), CX
	STORE0
	STORE1
	ADDQ $128, R11
	ADDQ $128, R12
	DECQ R9
	JNZ  fewPanel
	TILERELEASE
	RET
