//go:build !noasm

#include "textflag.h"

// What the two products of codes have in common. X0 has the lanes, X8 what is added.

#define ARGUMENTS \
	MOVQ blocks+0(FP), CX          \
	MOVQ w+8(FP), DI               \
	MOVQ ws+16(FP), R8             \
	MOVQ wm+24(FP), R9             \
	MOVQ x+32(FP), SI              \
	MOVQ xs+40(FP), R10            \
	MOVQ xt+48(FP), R11            \
	MOVQ sums+56(FP), DX           \
	VXORPS X0, X0, X0              \
	VXORPS X8, X8, X8              \
	XORQ AX, AX

// Y1 has a weight's 32 codes and Y2 the input's; of these the sign goes to the input's, so that one factor has none.
#define SIGNS(offset) \
	VMOVDQU offset(DI), Y1         \
	VMOVDQU offset(SI), Y2         \
	VPABSB Y1, Y3                  \
	VPSIGNB Y1, Y2, Y2

// Y4 to Y7 have the sums of four products each of a block, X4 then those of all.
#define ADD \
	VPHADDD Y5, Y4, Y4             \
	VPHADDD Y7, Y6, Y6             \
	VPHADDD Y6, Y4, Y4             \
	VEXTRACTI128 $1, Y4, X5        \
	VPADDD X5, X4, X4              \
	VCVTDQ2PS X4, X4               \
	VMOVUPS (R8)(AX*4), X5         \
	VMULPS (R10)(AX*4), X5, X5     \
	VMULPS X5, X4, X4              \
	VADDPS X4, X0, X0              \
	VMOVUPS (R9)(AX*4), X6         \
	VMULPS (R11)(AX*4), X6, X6     \
	VADDPS X6, X8, X8              \
	ADDQ $128, DI                  \
	ADDQ $128, SI                  \
	ADDQ $4, AX

#define END \
	VMOVUPS X0, (DX)               \
	VMOVUPS X8, 16(DX)             \
	VZEROUPPER                     \
	RET

// At most 2·128·127: nothing is cut off.
#define MULTIPLY(offset, to) \
	SIGNS(offset)                  \
	VPMADDUBSW Y2, Y3, to          \
	VPMADDWD Y9, to, to

// func dotCodes256(blocks int, w *int8, ws, wm *float32, x *int8, xs, xt, sums *float32)
TEXT ·dotCodes256(SB), NOSPLIT, $0-64
	ARGUMENTS
	VPCMPEQW Y9, Y9, Y9
	VPSRLW $15, Y9, Y9 // ones

loop:
	MULTIPLY(0, Y4)
	MULTIPLY(32, Y5)
	MULTIPLY(64, Y6)
	MULTIPLY(96, Y7)
	ADD
	CMPQ AX, CX
	JLT loop
	END

#define MULTIPLYADD(offset, to) \
	SIGNS(offset)                  \
	VPXOR to, to, to               \
	VPDPBUSD Y2, Y3, to

// func dotCodesVNNI(blocks int, w *int8, ws, wm *float32, x *int8, xs, xt, sums *float32)
TEXT ·dotCodesVNNI(SB), NOSPLIT, $0-64
	ARGUMENTS

loop:
	MULTIPLYADD(0, Y4)
	MULTIPLYADD(32, Y5)
	MULTIPLYADD(64, Y6)
	MULTIPLYADD(96, Y7)
	ADD
	CMPQ AX, CX
	JLT loop
	END

// What is in registers of the product of a panel: Z0 to Z7 sums of a block's codes, one for each row, Z8 to Z15 lanes, Z16 to
// Z23 what is added, Z31 what codes of the weight need to be without a sign. R13 is the first row's codes, R8, R10, DX and SI
// are one, three, five and seven rows; R11 has words, R9 scales, DI minima, R12 factors.

#define FOURS(offset, wide) \
	VPXORD wide(R11), Z31, Z24                  \
	VPDPBUSD.BCST offset(R13), Z24, Z0          \
	VPDPBUSD.BCST offset(R13)(R8*1), Z24, Z1    \
	VPDPBUSD.BCST offset(R13)(R8*2), Z24, Z2    \
	VPDPBUSD.BCST offset(R13)(R10*1), Z24, Z3   \
	VPDPBUSD.BCST offset(R13)(R8*4), Z24, Z4    \
	VPDPBUSD.BCST offset(R13)(DX*1), Z24, Z5    \
	VPDPBUSD.BCST offset(R13)(R10*2), Z24, Z6   \
	VPDPBUSD.BCST offset(R13)(SI*1), Z24, Z7

#define ROW(n, sum, lane, rest) \
	VCVTDQ2PS sum, sum                          \
	VMULPS.BCST (4*n)(R12), Z25, Z27            \
	VMULPS.BCST (32+4*n)(R12), Z26, Z28         \
	VMULPS Z27, sum, sum                        \
	VADDPS Z28, rest, rest                      \
	VADDPS sum, lane, lane

#define STORE(n, lane, rest) \
	VMOVUPS lane, (64*n)(AX)                    \
	VMOVUPS rest, (2048+64*n)(AX)

// What lanes are, four of them 512 bytes apart, as one: of row n the products.
#define COMBINE(n) \
	VMOVUPS (64*n)(AX), Z0                      \
	VADDPS (64*n+1024)(AX), Z0, Z0              \
	VMOVUPS (64*n+512)(AX), Z1                  \
	VADDPS (64*n+1536)(AX), Z1, Z1              \
	VADDPS Z1, Z0, Z0                           \
	VMOVUPS (64*n+2048)(AX), Z2                 \
	VADDPS (64*n+3072)(AX), Z2, Z2              \
	VMOVUPS (64*n+2560)(AX), Z3                 \
	VADDPS (64*n+3584)(AX), Z3, Z3              \
	VADDPS Z3, Z2, Z2                           \
	VADDPS Z2, Z0, Z0                           \
	VMOVUPS Z0, (64*n)(AX)

// func panelCodesVNNI(blocks int, words *byte, scales *float32, x *int8, ldx int, factors, sums *float32)
TEXT ·panelCodesVNNI(SB), NOSPLIT, $0-56
	MOVQ ldx+32(FP), R8
	LEAQ (R8)(R8*2), R10
	LEAQ (R8)(R8*4), DX
	LEAQ (R10)(R8*4), SI
	MOVL $0x80808080, AX
	VPBROADCASTD AX, Z31
	XORQ BX, BX // the lane

lane:
	VPXORD Z8, Z8, Z8
	VPXORD Z9, Z9, Z9
	VPXORD Z10, Z10, Z10
	VPXORD Z11, Z11, Z11
	VPXORD Z12, Z12, Z12
	VPXORD Z13, Z13, Z13
	VPXORD Z14, Z14, Z14
	VPXORD Z15, Z15, Z15
	VPXORD Z16, Z16, Z16
	VPXORD Z17, Z17, Z17
	VPXORD Z18, Z18, Z18
	VPXORD Z19, Z19, Z19
	VPXORD Z20, Z20, Z20
	VPXORD Z21, Z21, Z21
	VPXORD Z22, Z22, Z22
	VPXORD Z23, Z23, Z23
	MOVQ BX, R11
	SHLQ $9, R11
	ADDQ words+8(FP), R11
	MOVQ BX, R9
	SHLQ $6, R9
	ADDQ scales+16(FP), R9
	MOVQ blocks+0(FP), DI
	SHLQ $6, DI
	ADDQ R9, DI
	MOVQ BX, R13
	SHLQ $5, R13
	ADDQ x+24(FP), R13
	IMUL3Q $96, BX, R12
	ADDQ factors+40(FP), R12
	MOVQ blocks+0(FP), CX
	SUBQ BX, CX
	JLE store

block:
	VPBROADCASTD 64(R12), Z0
	VPBROADCASTD 68(R12), Z1
	VPBROADCASTD 72(R12), Z2
	VPBROADCASTD 76(R12), Z3
	VPBROADCASTD 80(R12), Z4
	VPBROADCASTD 84(R12), Z5
	VPBROADCASTD 88(R12), Z6
	VPBROADCASTD 92(R12), Z7
	FOURS(0, 0)
	FOURS(4, 64)
	FOURS(8, 128)
	FOURS(12, 192)
	FOURS(16, 256)
	FOURS(20, 320)
	FOURS(24, 384)
	FOURS(28, 448)
	VMOVUPS (R9), Z25
	VMOVUPS (DI), Z26
	ROW(0, Z0, Z8, Z16)
	ROW(1, Z1, Z9, Z17)
	ROW(2, Z2, Z10, Z18)
	ROW(3, Z3, Z11, Z19)
	ROW(4, Z4, Z12, Z20)
	ROW(5, Z5, Z13, Z21)
	ROW(6, Z6, Z14, Z22)
	ROW(7, Z7, Z15, Z23)
	ADDQ $2048, R11
	ADDQ $256, R9
	ADDQ $256, DI
	ADDQ $128, R13
	ADDQ $384, R12
	SUBQ $4, CX
	JG block

store:
	MOVQ BX, AX
	SHLQ $9, AX
	ADDQ sums+48(FP), AX
	STORE(0, Z8, Z16)
	STORE(1, Z9, Z17)
	STORE(2, Z10, Z18)
	STORE(3, Z11, Z19)
	STORE(4, Z12, Z20)
	STORE(5, Z13, Z21)
	STORE(6, Z14, Z22)
	STORE(7, Z15, Z23)
	INCQ BX
	CMPQ BX, $4
	JLT lane
	MOVQ sums+48(FP), AX
	COMBINE(0)
	COMBINE(1)
	COMBINE(2)
	COMBINE(3)
	COMBINE(4)
	COMBINE(5)
	COMBINE(6)
	COMBINE(7)
	VZEROUPPER
	RET

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
