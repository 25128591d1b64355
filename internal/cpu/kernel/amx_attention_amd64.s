//go:build !noasm

#include "textflag.h"

// VCVTNE2PS2BF16: Z2 = Z0 and, behind it, Z1.
#define NARROW BYTE $0x62; BYTE $0xf2; BYTE $0x77; BYTE $0x48; BYTE $0x72; BYTE $0xd0

// Fields of a UnitScores, as it lies in memory.
#define scores_scores 0(R15)
#define scores_scoresBlock 8(R15)
#define scores_y 16(R15)
#define scores_yBlock 24(R15)
#define scores_mask 32(R15)
#define scores_maskRow 40(R15)
#define scores_rows 48(R15)
#define scores_seen 56(R15)
#define scores_seenStep 64(R15)
#define scores_keys 72(R15)
#define scores_blocks 80(R15)
#define scores_unseen 88(R15)

DATA exps<>+0(SB)/4, $0x3fb8aa3b  // log2 e
DATA exps<>+4(SB)/4, $0x3f318000  // ln 2, its upper bits
DATA exps<>+8(SB)/4, $0xb95e8083  // and the rest
DATA exps<>+12(SB)/4, $0x3c088889 // 1/120
DATA exps<>+16(SB)/4, $0x3d2aaaab // 1/24
DATA exps<>+20(SB)/4, $0x3e2aaaab // 1/6
DATA exps<>+24(SB)/4, $0x3f000000 // 1/2
DATA exps<>+28(SB)/4, $0x3f800000 // 1
DATA exps<>+32(SB)/4, $0xc2ae0000 // −87, below which an exponential is zero
DATA exps<>+36(SB)/4, $0xff7fffff // what the largest score counts as at least
DATA exps<>+40(SB)/4, $0xff800000 // −∞
GLOBL exps<>(SB), RODATA|NOPTR, $44

// Z0 and Z1 are the scores of 32 keys, and become the exponentials of them less Z31.
#define EXPONENTIALS \
	VSUBPS Z31, Z0, Z0             \
	VSUBPS Z31, Z1, Z1             \
	VCMPPS $17, Z28, Z0, K4        \
	VCMPPS $17, Z28, Z1, K5        \
	VMAXPS Z0, Z28, Z0             \
	VMAXPS Z1, Z28, Z1             \
	VMULPS Z20, Z0, Z2             \
	VMULPS Z20, Z1, Z3             \
	VRNDSCALEPS $8, Z2, Z2         \
	VRNDSCALEPS $8, Z3, Z3         \
	VFNMADD231PS Z21, Z2, Z0       \
	VFNMADD231PS Z21, Z3, Z1       \
	VFNMADD231PS Z22, Z2, Z0       \
	VFNMADD231PS Z22, Z3, Z1       \
	VMOVAPS Z23, Z4                \
	VMOVAPS Z23, Z5                \
	VFMADD213PS Z24, Z0, Z4        \
	VFMADD213PS Z24, Z1, Z5        \
	VFMADD213PS Z25, Z0, Z4        \
	VFMADD213PS Z25, Z1, Z5        \
	VFMADD213PS Z26, Z0, Z4        \
	VFMADD213PS Z26, Z1, Z5        \
	VFMADD213PS Z27, Z0, Z4        \
	VFMADD213PS Z27, Z1, Z5        \
	VFMADD213PS Z27, Z0, Z4        \
	VFMADD213PS Z27, Z1, Z5        \
	VSCALEFPS Z2, Z4, Z0           \
	VSCALEFPS Z3, Z5, Z1           \
	KNOTW K4, K4                   \
	KNOTW K5, K5                   \
	VMOVAPS.Z Z0, K4, Z0           \
	VMOVAPS.Z Z1, K5, Z1           \
	VADDPS Z0, Z6, Z6              \
	VADDPS Z1, Z7, Z7              \
	VMOVUPS Z0, (DI)               \
	VMOVUPS Z1, 64(DI)

// The sum, or the largest, of the lanes of Z6, in lane 0, by way of Z0.
#define ACROSS(op) \
	VEXTRACTF64X4 $1, Z6, Y0       \
	op Y0, Y6, Y6                  \
	VEXTRACTF128 $1, Y6, X0        \
	op X0, X6, X6                  \
	VPERMILPS $0x4e, X6, X0        \
	op X0, X6, X6                  \
	VPERMILPS $0xb1, X6, X0        \
	op X0, X6, X6

// func amxWeigh(t *UnitScores)
//
// SI is the row's scores, R13 its weights, R10 its mask, R9 how many keys it sees; K1 and K2 are those of its last block.
TEXT ·amxWeigh(SB), NOSPLIT, $0-8
	MOVQ t+0(FP), R15
	VBROADCASTSS exps<>+0(SB), Z20
	VBROADCASTSS exps<>+4(SB), Z21
	VBROADCASTSS exps<>+8(SB), Z22
	VBROADCASTSS exps<>+12(SB), Z23
	VBROADCASTSS exps<>+16(SB), Z24
	VBROADCASTSS exps<>+20(SB), Z25
	VBROADCASTSS exps<>+24(SB), Z26
	VBROADCASTSS exps<>+28(SB), Z27
	VBROADCASTSS exps<>+32(SB), Z28
	VBROADCASTSS exps<>+36(SB), Z29
	VBROADCASTSS exps<>+40(SB), Z30
	MOVQ scores_scores, SI
	MOVQ scores_y, R13
	MOVQ scores_mask, R10
	MOVQ scores_scoresBlock, R11
	MOVQ scores_yBlock, R14
	MOVQ scores_rows, R12
	MOVQ scores_seen, DX

row:
	MOVQ DX, R9
	CMPQ R9, scores_keys
	JLE some
	MOVQ scores_keys, R9

some:
	// A mask for the keys of the last block, which may have none.
	MOVQ R9, CX
	ANDQ $31, CX
	MOVL $1, AX
	SHLL CX, AX
	DECL AX
	KMOVW AX, K1
	SHRL $16, AX
	KMOVW AX, K2
	SHRQ $5, R9
	VMOVAPS Z29, Z6
	VMOVAPS Z29, Z7
	MOVQ SI, DI
	MOVQ R10, R8
	MOVQ R9, BX
	TESTQ R10, R10
	JNZ masked

	TESTQ BX, BX
	JZ topTail

topBlock:
	VMAXPS (DI), Z6, Z6
	VMAXPS 64(DI), Z7, Z7
	ADDQ R11, DI
	DECQ BX
	JNZ topBlock

topTail:
	TESTQ CX, CX
	JZ top
	VMOVAPS Z30, Z0
	VMOVAPS Z30, Z1
	VMOVUPS (DI), K1, Z0
	VMOVUPS 64(DI), K2, Z1
	VMAXPS Z0, Z6, Z6
	VMAXPS Z1, Z7, Z7
	JMP top

masked:
	TESTQ BX, BX
	JZ maskedTail

maskedBlock:
	VMOVUPS (DI), Z0
	VMOVUPS 64(DI), Z1
	VADDPS (R8), Z0, Z0
	VADDPS 64(R8), Z1, Z1
	VMOVUPS Z0, (DI)
	VMOVUPS Z1, 64(DI)
	VMAXPS Z0, Z6, Z6
	VMAXPS Z1, Z7, Z7
	ADDQ R11, DI
	ADDQ $128, R8
	DECQ BX
	JNZ maskedBlock

maskedTail:
	TESTQ CX, CX
	JZ top
	VMOVAPS Z30, Z0
	VMOVAPS Z30, Z1
	VMOVUPS (DI), K1, Z0
	VMOVUPS 64(DI), K2, Z1
	VMOVUPS.Z (R8), K1, Z2
	VMOVUPS.Z 64(R8), K2, Z3
	VADDPS Z2, Z0, Z0
	VADDPS Z3, Z1, Z1
	VMOVUPS Z0, (DI)
	VMOVUPS Z1, 64(DI)
	VMAXPS Z0, Z6, Z6
	VMAXPS Z1, Z7, Z7

top:
	VMAXPS Z7, Z6, Z6
	ACROSS(VMAXPS)
	VBROADCASTSS X6, Z31
	VXORPS Z6, Z6, Z6
	VXORPS Z7, Z7, Z7
	MOVQ SI, DI
	MOVQ R9, BX
	TESTQ BX, BX
	JZ expTail

expBlock:
	VMOVUPS (DI), Z0
	VMOVUPS 64(DI), Z1
	EXPONENTIALS
	ADDQ R11, DI
	DECQ BX
	JNZ expBlock

expTail:
	TESTQ CX, CX
	JZ sum
	VMOVAPS Z30, Z0
	VMOVAPS Z30, Z1
	VMOVUPS (DI), K1, Z0
	VMOVUPS 64(DI), K2, Z1
	EXPONENTIALS
	INCQ R9

sum:
	VADDPS Z7, Z6, Z6
	ACROSS(VADDPS)
	VXORPS X0, X0, X0
	VUCOMISS X0, X6
	JP factor
	JNE factor
	VMOVSS scores_unseen, X6
	JMP scale

factor:
	VDIVSS X6, X27, X6

scale:
	VBROADCASTSS X6, Z31
	MOVQ SI, DI
	MOVQ R13, R8
	MOVQ scores_blocks, BX
	SUBQ R9, BX
	TESTQ R9, R9
	JZ rest

weights:
	VMULPS (DI), Z31, Z0
	VMULPS 64(DI), Z31, Z1
	NARROW
	VMOVDQU32 Z2, (R8)
	ADDQ R11, DI
	ADDQ R14, R8
	DECQ R9
	JNZ weights

rest:
	VXORPS Z0, Z0, Z0
	VMULPS Z0, Z31, Z0
	VMOVAPS Z0, Z1
	NARROW

restBlock:
	TESTQ BX, BX
	JLE next
	VMOVDQU32 Z2, (R8)
	ADDQ R14, R8
	DECQ BX
	JMP restBlock

next:
	ADDQ $128, SI
	ADDQ $64, R13
	ADDQ scores_seenStep, DX
	TESTQ R10, R10
	JZ unmasked
	ADDQ scores_maskRow, R10

unmasked:
	DECQ R12
	JNZ row
	VZEROUPPER
	RET

// func amxPairRows(pairs int, x *uint16, step int, y *uint16)
TEXT ·amxPairRows(SB), NOSPLIT, $0-32
	MOVQ pairs+0(FP), R9
	MOVQ x+8(FP), SI
	MOVQ step+16(FP), AX
	MOVQ y+24(FP), DI

pair:
	VPMOVZXWD (SI), Z0
	VPMOVZXWD 32(SI), Z1
	VPMOVZXWD (SI)(AX*1), Z2
	VPMOVZXWD 32(SI)(AX*1), Z3
	VPSLLD $16, Z2, Z2
	VPSLLD $16, Z3, Z3
	VPORD Z2, Z0, Z0
	VPORD Z3, Z1, Z1
	VMOVDQU32 Z0, (DI)
	VMOVDQU32 Z1, 64(DI)
	LEAQ (SI)(AX*2), SI
	ADDQ $128, DI
	DECQ R9
	JNZ pair
	VZEROUPPER
	RET
