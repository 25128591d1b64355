//go:build !noasm

#include "textflag.h"

// Which byte of four has the bit of each of 32 numbers, and that bit.
DATA byteOf<>+0(SB)/8, $0x0000000000000000
DATA byteOf<>+8(SB)/8, $0x0101010101010101
DATA byteOf<>+16(SB)/8, $0x0202020202020202
DATA byteOf<>+24(SB)/8, $0x0303030303030303
GLOBL byteOf<>(SB), RODATA|NOPTR, $32

DATA bitOf<>+0(SB)/8, $0x8040201008040201
GLOBL bitOf<>(SB), RODATA|NOPTR, $8

// Y12 has which byte of a plane each number looks at, Y13 which bit, Y10, Y11 the tables, Y8, Y9, Y6, Y7 the weights 1, 2, 4 and 8 of the
// planes of codes, and Y15 0x80.
#define BEGIN \
	MOVQ dst+0(FP), DI                    \
	MOVQ planes+8(FP), SI                 \
	MOVQ low+16(FP), DX                   \
	MOVQ groups+24(FP), CX                \
	MOVQ codeBits+32(FP), BX              \
	MOVQ upper+40(FP), AX                 \
	VBROADCASTI128 (AX), Y10              \
	VMOVDQU byteOf<>(SB), Y12             \
	VPBROADCASTQ bitOf<>(SB), Y13         \
	VPCMPEQB Y7, Y7, Y7                   \
	VPXOR Y8, Y8, Y8                      \
	VPSUBB Y7, Y8, Y8                     \
	VPADDB Y8, Y8, Y9                     \
	VPADDB Y9, Y9, Y6                     \
	VPADDB Y6, Y6, Y7                     \
	VPSLLW $7, Y8, Y15

// The numbers whose bit of a plane is set get a weight in Y0.
#define PLANE(at, weight) \
	VPBROADCASTD at, Y1                   \
	VPSHUFB Y12, Y1, Y1                   \
	VPAND Y13, Y1, Y1                     \
	VPCMPEQB Y13, Y1, Y1                  \
	VPAND weight, Y1, Y1                  \
	VPOR Y1, Y0, Y0

// The codes of 32 numbers in Y0, at an offset within the planes.
#define CODES(offset, done) \
	VPXOR Y0, Y0, Y0                      \
	TESTQ BX, BX                          \
	JZ done                               \
	PLANE(offset+0(SI), Y8)               \
	CMPQ BX, $1                           \
	JEQ done                              \
	PLANE(offset+8(SI), Y9)               \
	CMPQ BX, $2                           \
	JEQ done                              \
	PLANE(offset+16(SI), Y6)              \
	CMPQ BX, $3                           \
	JEQ done                              \
	PLANE(offset+24(SI), Y7)              \
done:

// Upper bytes in Y2 and lower ones in Y3 are written as words.
#define WORDS(at) \
	VPUNPCKLBW Y2, Y3, Y4                 \
	VPUNPCKHBW Y2, Y3, Y5                 \
	VPERM2I128 $0x20, Y5, Y4, Y2          \
	VPERM2I128 $0x31, Y5, Y4, Y3          \
	VMOVDQU Y2, at+0(DI)                  \
	VMOVDQU Y3, at+32(DI)

#define BFLOAT(offset, at, done) \
	CODES(offset, done)                   \
	VMOVDQU (offset*8)(DX), Y1            \
	VPSHUFB Y0, Y10, Y2                   \
	VPSHUFB Y0, Y11, Y3                   \
	VPAND Y15, Y1, Y4                     \
	VPANDN Y1, Y15, Y5                    \
	VPOR Y4, Y2, Y2                       \
	VPOR Y5, Y3, Y3                       \
	WORDS(at)

// func nameBFloat16(dst, planes, low *byte, groups, codeBits int, upper, lower *[dictionary]byte)
TEXT ·nameBFloat16(SB), NOSPLIT, $0-56
	BEGIN
	MOVQ lower+48(FP), AX
	VBROADCASTI128 (AX), Y11

loop:
	BFLOAT(0, 0, first)
	BFLOAT(4, 64, second)
	LEAQ (SI)(BX*8), SI
	ADDQ $64, DX
	ADDQ $128, DI
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET

#define FLOAT(offset, at, done) \
	CODES(offset, done)                   \
	VPSHUFB Y0, Y10, Y0                   \
	PLANE(offset+0(R8), Y15)              \
	PLANE(offset+8(R8), Y9)               \
	PLANE(offset+16(R8), Y8)              \
	VMOVDQA Y0, Y2                        \
	VMOVDQU (offset*8)(DX), Y3            \
	WORDS(at)

// func nameFloat16(dst, planes, low *byte, groups, codeBits int, upper *[dictionary]byte)
TEXT ·nameFloat16(SB), NOSPLIT, $0-48
	BEGIN

loop:
	LEAQ (SI)(BX*8), R8
	FLOAT(0, 0, first)
	FLOAT(4, 64, second)
	LEAQ 24(R8), SI
	ADDQ $64, DX
	ADDQ $128, DI
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET

// func joinSingles256(dst, halves, lowest, second *byte, groups int)
TEXT ·joinSingles256(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ halves+8(FP), SI
	MOVQ lowest+16(FP), DX
	MOVQ second+24(FP), R9
	MOVQ groups+32(FP), CX
	SHLQ $3, CX

loop:
	VPMOVZXWD (SI), Y0
	VPSLLD $16, Y0, Y0
	TESTQ DX, DX
	JZ noLowest
	VPMOVZXBD (DX), Y1
	VPOR Y1, Y0, Y0
	ADDQ $8, DX

noLowest:
	TESTQ R9, R9
	JZ noSecond
	VPMOVZXBD (R9), Y1
	VPSLLD $8, Y1, Y1
	VPOR Y1, Y0, Y0
	ADDQ $8, R9

noSecond:
	VMOVDQU Y0, (DI)
	ADDQ $16, SI
	ADDQ $32, DI
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET
