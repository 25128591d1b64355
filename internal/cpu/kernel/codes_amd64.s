//go:build !noasm

#include "textflag.h"

// What the two products of codes have in common: Y1 has a weight's 32 codes and Y2 the input's; of these the sign goes to the
// input's, so that one factor has none. Y0 has the lanes, X8 the rest.

#define ARGUMENTS \
	MOVQ blocks+0(FP), CX          \
	MOVQ w+8(FP), DI               \
	MOVQ ws+16(FP), R8             \
	MOVQ wm+24(FP), R9             \
	MOVQ x+32(FP), SI              \
	MOVQ xs+40(FP), R10            \
	MOVQ xt+48(FP), R11            \
	MOVQ sums+56(FP), DX           \
	VXORPS Y0, Y0, Y0              \
	VXORPS X8, X8, X8              \
	XORQ AX, AX

#define SIGNS \
	VMOVDQU (DI), Y1               \
	VMOVDQU (SI), Y2               \
	VPABSB Y1, Y3                  \
	VPSIGNB Y1, Y2, Y2

// Y4 has the sums of four products each.
#define ADD \
	VCVTDQ2PS Y4, Y4               \
	VMOVSS (R8)(AX*4), X5          \
	VMULSS (R10)(AX*4), X5, X5     \
	VBROADCASTSS X5, Y5            \
	VMULPS Y5, Y4, Y4              \
	VADDPS Y4, Y0, Y0              \
	VMOVSS (R9)(AX*4), X6          \
	VMULSS (R11)(AX*4), X6, X6     \
	VADDSS X6, X8, X8              \
	ADDQ $32, DI                   \
	ADDQ $32, SI                   \
	INCQ AX

#define END \
	VMOVUPS Y0, (DX)               \
	VMOVSS X8, 32(DX)              \
	VZEROUPPER                     \
	RET

// func dotCodes256(blocks int, w *int8, ws, wm *float32, x *int8, xs, xt, sums *float32)
TEXT ·dotCodes256(SB), NOSPLIT, $0-64
	ARGUMENTS
	VPCMPEQW Y7, Y7, Y7
	VPSRLW $15, Y7, Y7 // ones

loop:
	SIGNS
	VPMADDUBSW Y2, Y3, Y4 // at most 2·128·127: nothing is cut off
	VPMADDWD Y7, Y4, Y4
	ADD
	CMPQ AX, CX
	JLT loop
	END

// func dotCodesVNNI(blocks int, w *int8, ws, wm *float32, x *int8, xs, xt, sums *float32)
TEXT ·dotCodesVNNI(SB), NOSPLIT, $0-64
	ARGUMENTS

loop:
	SIGNS
	VPXOR Y4, Y4, Y4
	VPDPBUSD Y2, Y3, Y4
	ADD
	CMPQ AX, CX
	JLT loop
	END

// func nibbles256(groups, pieces int, src *byte, stride int, table *int8, dst *int8)
TEXT ·nibbles256(SB), NOSPLIT, $0-48
	MOVQ groups+0(FP), CX
	MOVQ pieces+8(FP), DX
	MOVQ src+16(FP), SI
	MOVQ stride+24(FP), R8
	MOVQ table+32(FP), R9
	MOVQ dst+40(FP), DI
	VMOVDQU (R9), X0
	VPCMPEQB X1, X1, X1
	VPSRLW $12, X1, X1
	VPACKUSWB X1, X1, X1 // 15 in each byte
	MOVQ DX, R10
	SHLQ $4, R10 // bytes of a group

group:
	MOVQ SI, R11
	MOVQ DX, BX

piece:
	VMOVDQU (R11), X2
	VPSRLW $4, X2, X3
	VPAND X1, X2, X2
	VPAND X1, X3, X3
	VPSHUFB X2, X0, X2
	VPSHUFB X3, X0, X3
	VMOVDQU X2, (DI)
	VMOVDQU X3, (DI)(R10*1)
	ADDQ $16, R11
	ADDQ $16, DI
	DECQ BX
	JNZ piece
	ADDQ R10, DI
	ADDQ R8, SI
	DECQ CX
	JNZ group
	VZEROUPPER
	RET
