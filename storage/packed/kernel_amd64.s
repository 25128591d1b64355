//go:build !noasm

#include "textflag.h"

// Where the 128-bit lanes of interleaved bytes belong: those of the lower halves of lanes, and those of the upper ones, in turns.
DATA lanesLow<>+0(SB)/8, $0
DATA lanesLow<>+8(SB)/8, $1
DATA lanesLow<>+16(SB)/8, $8
DATA lanesLow<>+24(SB)/8, $9
DATA lanesLow<>+32(SB)/8, $2
DATA lanesLow<>+40(SB)/8, $3
DATA lanesLow<>+48(SB)/8, $10
DATA lanesLow<>+56(SB)/8, $11
GLOBL lanesLow<>(SB), RODATA|NOPTR, $64

DATA lanesHigh<>+0(SB)/8, $4
DATA lanesHigh<>+8(SB)/8, $5
DATA lanesHigh<>+16(SB)/8, $12
DATA lanesHigh<>+24(SB)/8, $13
DATA lanesHigh<>+32(SB)/8, $6
DATA lanesHigh<>+40(SB)/8, $7
DATA lanesHigh<>+48(SB)/8, $14
DATA lanesHigh<>+56(SB)/8, $15
GLOBL lanesHigh<>(SB), RODATA|NOPTR, $64

// What the two unpackings have in common, but for what the named bytes in Z1 are joined with, DX's in Z2. A group is 64 numbers; its
// codes are planes of bits, and those with all bits are escapes: Z1 has what the dictionary or the escapes name.
#define NAMED \
	MOVQ dst+0(FP), DI                    \
	MOVQ planes+8(FP), SI                 \
	MOVQ low+16(FP), DX                   \
	MOVQ groups+24(FP), CX                \
	MOVQ codeBits+32(FP), BX              \
	MOVQ dictionary+40(FP), AX            \
	MOVQ escapes+48(FP), R9               \
	MOVQ n+56(FP), R10                    \
	MOVQ R10, R12                         \
	VBROADCASTI32X4 (AX), Z16             \
	MOVL $1, AX                           \
	VPBROADCASTB AX, Z17                  \
	MOVL $2, AX                           \
	VPBROADCASTB AX, Z18                  \
	MOVL $4, AX                           \
	VPBROADCASTB AX, Z19                  \
	MOVL $8, AX                           \
	VPBROADCASTB AX, Z20                  \
	MOVL $0x80, AX                        \
	VPBROADCASTB AX, Z21                  \
	VMOVDQU64 lanesLow<>(SB), Z22         \
	VMOVDQU64 lanesHigh<>(SB), Z23        \
loop:                                  \
	VPXORQ Z0, Z0, Z0                     \
	MOVQ $-1, R8                          \
	TESTQ BX, BX                          \
	JZ coded                              \
	MOVQ (SI), AX                         \
	ANDQ AX, R8                           \
	KMOVQ AX, K1                          \
	VPADDB Z17, Z0, K1, Z0                \
	CMPQ BX, $1                           \
	JEQ coded                             \
	MOVQ 8(SI), AX                        \
	ANDQ AX, R8                           \
	KMOVQ AX, K1                          \
	VPADDB Z18, Z0, K1, Z0                \
	CMPQ BX, $2                           \
	JEQ coded                             \
	MOVQ 16(SI), AX                       \
	ANDQ AX, R8                           \
	KMOVQ AX, K1                          \
	VPADDB Z19, Z0, K1, Z0                \
	CMPQ BX, $3                           \
	JEQ coded                             \
	MOVQ 24(SI), AX                       \
	ANDQ AX, R8                           \
	KMOVQ AX, K1                          \
	VPADDB Z20, Z0, K1, Z0                \
coded:                                 \
	LEAQ (SI)(BX*8), SI                   \
	VPSHUFB Z0, Z16, Z1                   \
	TESTQ R12, R12                        \
	JZ named                              \
	TESTQ R8, R8                          \
	JZ named                              \
	POPCNTQ R8, AX                        \
	SUBQ AX, R10                          \
	JLT short                             \
	KMOVQ R8, K1                          \
	VPEXPANDB (R9), K1, Z1                \
	ADDQ AX, R9                           \
named:

// Numbers have their bytes interleaved, those of the registers low and high, and are written.
#define WRITTEN(high, low) \
	VPUNPCKLBW high, low, Z5              \
	VPUNPCKHBW high, low, Z6              \
	VMOVDQA64 Z5, Z7                      \
	VPERMT2Q Z6, Z22, Z7                  \
	VPERMT2Q Z6, Z23, Z5                  \
	VMOVDQU64 Z7, (DI)                    \
	VMOVDQU64 Z5, 64(DI)                  \
	ADDQ $128, DI                         \
	ADDQ $64, DX                          \
	DECQ CX                               \
	JNZ loop                              \
	SUBQ R10, R12                         \
	MOVQ R12, used+64(FP)                 \
	VZEROUPPER                            \
	RET                                   \
short:                                 \
	MOVQ $-1, used+64(FP)                 \
	VZEROUPPER                            \
	RET

// func unpackBFloat16(dst, planes, low *byte, groups, codeBits int, dictionary, escapes *byte, n int) (used int)
TEXT ·unpackBFloat16(SB), NOSPLIT, $0-72
	NAMED
	VMOVDQU64 (DX), Z2
	VPSRLW $1, Z1, Z3
	VPSLLW $7, Z1, Z4
	VPTERNLOGQ $0xD8, Z21, Z2, Z3 // the byte's sign, and 7 bits of the exponent
	VPTERNLOGQ $0xE4, Z21, Z2, Z4 // the exponent's last bit, and the byte's fraction
	WRITTEN(Z3, Z4)

// func unpackFloat16(dst, planes, low *byte, groups, codeBits int, dictionary, escapes *byte, n int) (used int)
TEXT ·unpackFloat16(SB), NOSPLIT, $0-72
	NAMED
	VMOVDQU64 (DX), Z2
	KMOVQ (SI), K2
	KMOVQ 8(SI), K3
	KMOVQ 16(SI), K4
	ADDQ $24, SI
	VPADDB Z21, Z1, K2, Z1
	VPADDB Z18, Z1, K3, Z1
	VPADDB Z17, Z1, K4, Z1
	WRITTEN(Z1, Z2)

// func joinSingles(dst, halves, lowest, second *byte, groups int)
TEXT ·joinSingles(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ halves+8(FP), SI
	MOVQ lowest+16(FP), DX
	MOVQ second+24(FP), R9
	MOVQ groups+32(FP), CX
	SHLQ $2, CX

loop:
	VPMOVZXWD (SI), Z0
	VPSLLD $16, Z0, Z0
	TESTQ DX, DX
	JZ noLowest
	VPMOVZXBD (DX), Z1
	VPORD Z1, Z0, Z0
	ADDQ $16, DX

noLowest:
	TESTQ R9, R9
	JZ noSecond
	VPMOVZXBD (R9), Z1
	VPSLLD $8, Z1, Z1
	VPORD Z1, Z0, Z0
	ADDQ $16, R9

noSecond:
	VMOVDQU64 Z0, (DI)
	ADDQ $32, SI
	ADDQ $64, DI
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET
