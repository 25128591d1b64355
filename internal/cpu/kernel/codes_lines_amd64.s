//go:build !noasm

#include "textflag.h"

// Products of a row of inputs by sixteen lines of blocks as they lie, four lines at a time. Where the fields of a CodeLines are:
#define lines_src 0(AX)
#define lines_stride 8(AX)
#define lines_apart 16(AX)
#define lines_half 24(AX)
#define lines_steps 32(AX)
#define lines_step 40(AX)
#define lines_gap 48(AX)
#define lines_x 56(AX)
#define lines_factors 64(AX)
#define lines_scales 72(AX)
#define lines_sums 80(AX)
#define lines_table 88(AX)
#define lines_order 96(AX)
#define lines_flip 104(AX)

// R8 to R11 are the next four lines, R12 and R13 the distances of blocks and of halves of a step. DX are inputs, BX their factors,
// DI scales, which minima follow at 2048. CX counts lines, R15 steps. Z24 has lanes of sums, [lane][line], Z25 of what is added.
#define BEGIN \
	MOVQ lines+0(FP), AX           \
	MOVQ lines_src, R8             \
	MOVQ lines_apart, R12          \
	MOVQ lines_half, R13           \
	XORQ CX, CX

#define LINES \
	MOVQ lines_stride, SI          \
	LEAQ (R8)(SI*1), R9            \
	LEAQ (R8)(SI*2), R10           \
	LEAQ (R9)(SI*2), R11           \
	MOVQ lines_x, DX               \
	MOVQ lines_factors, BX         \
	MOVQ lines_scales, DI          \
	LEAQ (DI)(CX*4), DI            \
	MOVQ lines_sums, SI            \
	MOVQ CX, R15                   \
	SHLQ $5, R15                   \
	ADDQ R15, SI                   \
	VMOVUPS (SI), Z24              \
	VMOVUPS 64(SI), Z25            \
	MOVQ lines_steps, R15

// Of a step: Z0 has the sums of codes, [block][line]. Memory that is read sixteen lines later is fetched into the second cache.
#define STEP \
	VPADDD 128(BX), Z0, Z0                     \
	VMOVUPS (DI), X1                           \
	VMOVUPS 2048(DI), X2                       \
	VINSERTF32X4 $1, 64(DI), Z1, Z1            \
	VINSERTF32X4 $1, (2048+64)(DI), Z2, Z2     \
	VINSERTF32X4 $2, 128(DI), Z1, Z1           \
	VINSERTF32X4 $2, (2048+128)(DI), Z2, Z2    \
	VINSERTF32X4 $3, 192(DI), Z1, Z1           \
	VINSERTF32X4 $3, (2048+192)(DI), Z2, Z2    \
	VCVTDQ2PS Z0, Z0                           \
	VMULPS (BX), Z1, Z1                        \
	VMULPS 64(BX), Z2, Z2                      \
	VMULPS Z1, Z0, Z0                          \
	VADDPS Z2, Z25, Z25                        \
	VADDPS Z0, Z24, Z24                        \
	ADDQ $128, DX                              \
	ADDQ $192, BX                              \
	ADDQ $256, DI                              \
	MOVQ lines_stride, SI                      \
	SHLQ $4, SI                                \
	PREFETCHT1 (R8)(SI*1)                      \
	PREFETCHT1 (R9)(SI*1)                      \
	PREFETCHT1 (R10)(SI*1)                     \
	PREFETCHT1 (R11)(SI*1)                     \
	MOVQ lines_step, SI                        \
	ADDQ SI, R8                                \
	ADDQ SI, R9                                \
	ADDQ SI, R10                               \
	ADDQ SI, R11

#define NEXT \
	MOVQ lines_sums, SI            \
	MOVQ CX, R15                   \
	SHLQ $5, R15                   \
	ADDQ R15, SI                   \
	VMOVUPS Z24, (SI)              \
	VMOVUPS Z25, 64(SI)            \
	ADDQ $4, CX                    \
	MOVQ lines_stride, R8          \
	IMULQ CX, R8                   \
	ADDQ lines_src, R8             \
	CMPQ CX, $16

// Four blocks of a line, sixteen bytes each, the low halves of all before the high ones: lane b has sums of four codes of block b.
#define SIXTEENS(line, sums) \
	VMOVDQU64 (line), X16                      \
	VINSERTI32X4 $1, (line)(R12*1), Z16, Z16   \
	VINSERTI32X4 $2, (line)(R12*2), Z16, Z16   \
	VINSERTI32X4 $3, (line)(R13*1), Z16, Z16   \
	VPSRLW $4, Z16, Z17                        \
	VPANDD Z30, Z16, Z16                       \
	VPANDD Z30, Z17, Z17                       \
	VPSHUFB Z16, Z31, Z16                      \
	VPSHUFB Z17, Z31, Z17                      \
	VPXORD sums, sums, sums                    \
	VPDPBUSD Z28, Z16, sums                    \
	VPDPBUSD Z29, Z17, sums

// Z16 and Z17 have codes of two blocks each: of each half block sums of two times two of one and of the other.
#define PAIRS(both) \
	VPXORD Z18, Z18, Z18                       \
	VPXORD Z19, Z19, Z19                       \
	VPDPBUSD Z28, Z16, Z18                     \
	VPDPBUSD Z29, Z17, Z19                     \
	VPUNPCKLQDQ Z19, Z18, Z16                  \
	VPUNPCKHQDQ Z19, Z18, Z17                  \
	VPADDD Z16, Z17, both

// Two times 32 bytes of a line, the low halves of both before the high ones.
#define HALVES(line, both) \
	VMOVDQU64 (line), Y16                      \
	VINSERTI64X4 $1, (line)(R12*1), Z16, Z16   \
	VPSRLW $4, Z16, Z17                        \
	VPANDD Z30, Z16, Z16                       \
	VPANDD Z30, Z17, Z17                       \
	PAIRS(both)

// Four blocks of a line, 32 bytes each.
#define BYTES(line, both) \
	VMOVDQU64 (line), Y16                      \
	VMOVDQU64 (line)(R13*1), Y17               \
	VINSERTI64X4 $1, (line)(R12*1), Z16, Z16   \
	VINSERTI64X4 $1, (line)(SI*1), Z17, Z17    \
	VPXORD Z30, Z16, Z16                       \
	VPXORD Z30, Z17, Z17                       \
	PAIRS(both)

// What Z0 to Z3 have of four lines as sums of blocks, which Z31 puts in order.
#define REDUCE \
	VSHUFPS $0x88, Z1, Z0, Z16                 \
	VSHUFPS $0xdd, Z1, Z0, Z17                 \
	VSHUFPS $0x88, Z3, Z2, Z18                 \
	VSHUFPS $0xdd, Z3, Z2, Z19                 \
	VPADDD Z16, Z17, Z16                       \
	VPADDD Z18, Z19, Z18                       \
	VSHUFI64X2 $0x88, Z18, Z16, Z17            \
	VSHUFI64X2 $0xdd, Z18, Z16, Z19            \
	VPADDD Z17, Z19, Z0                        \
	VPERMD Z0, Z31, Z0

// func codeLines16(lines *CodeLines)
TEXT ·codeLines16(SB), NOSPLIT, $0-8
	BEGIN
	MOVQ lines_table, SI
	VBROADCASTI32X4 (SI), Z31
	MOVL $0x0f0f0f0f, SI
	VPBROADCASTD SI, Z30
	LEAQ (R12)(R12*2), R13

lines:
	LINES

step:
	VMOVDQU64 (DX), Z28
	VMOVDQU64 64(DX), Z29
	SIXTEENS(R8, Z0)
	SIXTEENS(R9, Z1)
	SIXTEENS(R10, Z2)
	SIXTEENS(R11, Z3)
	VPUNPCKLDQ Z1, Z0, Z16
	VPUNPCKHDQ Z1, Z0, Z17
	VPUNPCKLDQ Z3, Z2, Z18
	VPUNPCKHDQ Z3, Z2, Z19
	VPADDD Z16, Z17, Z16
	VPADDD Z18, Z19, Z18
	VPUNPCKLQDQ Z18, Z16, Z17
	VPUNPCKHQDQ Z18, Z16, Z19
	VPADDD Z17, Z19, Z0
	STEP
	DECQ R15
	JNZ step
	NEXT
	JLT lines
	VZEROUPPER
	RET

// func codeLines32(lines *CodeLines)
TEXT ·codeLines32(SB), NOSPLIT, $0-8
	BEGIN
	MOVQ lines_order, SI
	VMOVDQU64 (SI), Z31
	MOVL $0x0f0f0f0f, SI
	VPBROADCASTD SI, Z30

lines:
	LINES

step:
	VMOVDQU64 (DX), Z28
	VMOVDQU64 64(DX), Z29
	HALVES(R8, Z0)
	HALVES(R9, Z1)
	HALVES(R10, Z2)
	HALVES(R11, Z3)
	REDUCE
	STEP
	TESTQ $1, R15
	JZ near
	MOVQ lines_gap, SI // behind each two steps
	ADDQ SI, R8
	ADDQ SI, R9
	ADDQ SI, R10
	ADDQ SI, R11

near:
	DECQ R15
	JNZ step
	NEXT
	JLT lines
	VZEROUPPER
	RET

// func codeLinesBytes(lines *CodeLines)
TEXT ·codeLinesBytes(SB), NOSPLIT, $0-8
	BEGIN
	MOVQ lines_order, SI
	VMOVDQU64 (SI), Z31
	MOVQ lines_flip, SI
	VPBROADCASTD SI, Z30

lines:
	LINES

step:
	VMOVDQU64 (DX), Z28
	VMOVDQU64 64(DX), Z29
	LEAQ (R12)(R13*1), SI
	BYTES(R8, Z0)
	BYTES(R9, Z1)
	BYTES(R10, Z2)
	BYTES(R11, Z3)
	REDUCE
	STEP
	DECQ R15
	JNZ step
	NEXT
	JLT lines
	VZEROUPPER
	RET

// func codeHeads(kind, steps, each int, src *byte, stride, size, nothing int, scales *float32)
//
// What HeadsOfCodes writes.
TEXT ·codeHeads(SB), NOSPLIT, $0-64
	MOVQ kind+0(FP), AX
	MOVQ steps+8(FP), CX
	MOVQ each+16(FP), DX
	MOVQ src+24(FP), SI
	MOVQ size+40(FP), BX
	MOVQ scales+56(FP), DI
	VMOVDQU64 countLines<>(SB), Z0
	MOVQ stride+32(FP), R8
	VPBROADCASTD R8, Z1
	VPMULLD Z1, Z0, Z0
	MOVQ nothing+48(FP), R8
	VPBROADCASTD R8, Z7
	MOVL $0xff, R8
	VPBROADCASTD R8, Z6

head:
	KXNORW K1, K1, K1
	VPGATHERDD (SI)(Z0*1), K1, Z1
	VPXORD Z3, Z3, Z3
	CMPQ AX, $1
	JLT bfloat16
	JEQ float16
	CMPQ AX, $3
	JLT float32
	JEQ alone
	VPANDD Z6, Z1, Z1 // of code c 2^(c−128), which is none of the normal numbers for c < 2
	MOVL $1, R8
	VPBROADCASTD R8, Z4
	VPSUBD Z4, Z1, Z2
	VPSLLD $23, Z2, Z2
	VPCMPUD $2, Z4, Z1, K2 // c ≤ 1
	MOVL $0x200000, R8
	VPBROADCASTD R8, Z4
	VPSLLVD Z1, Z4, K2, Z2
	VMOVAPS Z2, Z1
	JMP put

alone:
	VMULPS Z7, Z1, Z1
	JMP put

bfloat16:
	VPSRLD $16, Z1, Z2
	VPSLLD $16, Z1, Z1
	JMP zero

float16:
	VPSRLD $16, Z1, Z2
	VPMOVDW Z1, Y1
	VCVTPH2PS Y1, Z1
	JMP zero

float32:
	KXNORW K1, K1, K1
	VPGATHERDD 1(SI)(Z0*1), K1, Z2
	VPSRLD $24, Z2, Z2

zero:
	VPANDD Z6, Z2, Z2
	VPSUBD Z2, Z7, Z2
	VCVTDQ2PS Z2, Z2
	VMULPS Z2, Z1, Z3

put:
	MOVQ DX, R9

putEach:
	VMOVUPS Z1, (DI)
	VMOVUPS Z3, 2048(DI)
	ADDQ $64, DI
	DECQ R9
	JNZ putEach
	ADDQ BX, SI
	DECQ CX
	JNZ head
	VZEROUPPER
	RET

DATA countLines<>+0(SB)/8, $0x0000000100000000
DATA countLines<>+8(SB)/8, $0x0000000300000002
DATA countLines<>+16(SB)/8, $0x0000000500000004
DATA countLines<>+24(SB)/8, $0x0000000700000006
DATA countLines<>+32(SB)/8, $0x0000000900000008
DATA countLines<>+40(SB)/8, $0x0000000b0000000a
DATA countLines<>+48(SB)/8, $0x0000000d0000000c
DATA countLines<>+56(SB)/8, $0x0000000f0000000e
GLOBL countLines<>(SB), RODATA|NOPTR, $64
