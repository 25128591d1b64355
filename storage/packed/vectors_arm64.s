//go:build !noasm

#include "textflag.h"

// Which byte of eight has the bit of each of 64 numbers, and that bit.
DATA byteOf<>+0(SB)/8, $0x0000000000000000
DATA byteOf<>+8(SB)/8, $0x0101010101010101
DATA byteOf<>+16(SB)/8, $0x0202020202020202
DATA byteOf<>+24(SB)/8, $0x0303030303030303
DATA byteOf<>+32(SB)/8, $0x0404040404040404
DATA byteOf<>+40(SB)/8, $0x0505050505050505
DATA byteOf<>+48(SB)/8, $0x0606060606060606
DATA byteOf<>+56(SB)/8, $0x0707070707070707
GLOBL byteOf<>(SB), RODATA|NOPTR, $64

// V16 to V19 have which byte of a plane each number looks at, V20 which bit, V21, V22 the tables, V24 to V27 the weights 1, 2, 4 and 8 of
// the planes of codes, and V23 0x80.
#define BEGIN \
	MOVD dst+0(FP), R0                    \
	MOVD planes+8(FP), R1                 \
	MOVD low+16(FP), R2                   \
	MOVD groups+24(FP), R3                \
	MOVD codeBits+32(FP), R4              \
	MOVD upper+40(FP), R5                 \
	VLD1 (R5), [V21.B16]                  \
	MOVD $byteOf<>(SB), R5                \
	VLD1 (R5), [V16.B16, V17.B16, V18.B16, V19.B16] \
	MOVD $0x8040201008040201, R5          \
	VDUP R5, V20.D2                       \
	MOVD $0x80, R5                        \
	VDUP R5, V23.B16                      \
	MOVD $1, R5                           \
	VDUP R5, V24.B16                      \
	MOVD $2, R5                           \
	VDUP R5, V25.B16                      \
	MOVD $4, R5                           \
	VDUP R5, V26.B16                      \
	MOVD $8, R5                           \
	VDUP R5, V27.B16

// The 16 numbers of a register whose bit of the plane in V8 is set get a weight there.
#define SET(of, weight, into) \
	VTBL of.B16, [V8.B16], V9.B16         \
	VCMTST V20.B16, V9.B16, V9.B16        \
	VAND weight.B16, V9.B16, V9.B16       \
	VORR V9.B16, into.B16, into.B16

#define PLANE(weight) \
	FMOVD.P 8(R6), F8                     \
	SET(V16, weight, V0)                  \
	SET(V17, weight, V1)                  \
	SET(V18, weight, V2)                  \
	SET(V19, weight, V3)

// The codes of 64 numbers in V0 to V3; R6 is behind their planes.
#define CODES \
	MOVD R1, R6                           \
	VEOR V0.B16, V0.B16, V0.B16           \
	VEOR V1.B16, V1.B16, V1.B16           \
	VEOR V2.B16, V2.B16, V2.B16           \
	VEOR V3.B16, V3.B16, V3.B16           \
	CBZ R4, coded                         \
	PLANE(V24)                            \
	CMP $1, R4                            \
	BEQ coded                             \
	PLANE(V25)                            \
	CMP $2, R4                            \
	BEQ coded                             \
	PLANE(V26)                            \
	CMP $3, R4                            \
	BEQ coded                             \
	PLANE(V27)                            \
coded:

// The 16 numbers with such codes are written: sign and fraction come from a register.
#define BFLOAT(codes, rest) \
	VTBL codes.B16, [V21.B16], V11.B16    \
	VTBL codes.B16, [V22.B16], V10.B16    \
	VAND V23.B16, rest.B16, V12.B16       \
	VEOR V12.B16, rest.B16, V13.B16       \
	VORR V12.B16, V11.B16, V11.B16        \
	VORR V13.B16, V10.B16, V10.B16        \
	VST2.P [V10.B16, V11.B16], 32(R0)

// func nameBFloat16(dst, planes, low *byte, groups, codeBits int, upper, lower *[dictionary]byte)
TEXT ·nameBFloat16(SB), NOSPLIT, $0-56
	BEGIN
	MOVD lower+48(FP), R5
	VLD1 (R5), [V22.B16]

loop:
	CODES
	MOVD R6, R1
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]
	BFLOAT(V0, V4)
	BFLOAT(V1, V5)
	BFLOAT(V2, V6)
	BFLOAT(V3, V7)
	SUB $1, R3
	CBNZ R3, loop
	RET

#define FLOAT(upper, low) \
	VORR low.B16, low.B16, V10.B16        \
	VORR upper.B16, upper.B16, V11.B16    \
	VST2.P [V10.B16, V11.B16], 32(R0)

// func nameFloat16(dst, planes, low *byte, groups, codeBits int, upper *[dictionary]byte)
TEXT ·nameFloat16(SB), NOSPLIT, $0-48
	BEGIN

loop:
	CODES
	VTBL V0.B16, [V21.B16], V0.B16
	VTBL V1.B16, [V21.B16], V1.B16
	VTBL V2.B16, [V21.B16], V2.B16
	VTBL V3.B16, [V21.B16], V3.B16
	PLANE(V23)
	PLANE(V25)
	PLANE(V24)
	MOVD R6, R1
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]
	FLOAT(V0, V4)
	FLOAT(V1, V5)
	FLOAT(V2, V6)
	FLOAT(V3, V7)
	SUB $1, R3
	CBNZ R3, loop
	RET

// func joinSingles(dst, halves, lowest, second *byte, groups int)
TEXT ·joinSingles(SB), NOSPLIT, $0-40
	MOVD dst+0(FP), R0
	MOVD halves+8(FP), R1
	MOVD lowest+16(FP), R2
	MOVD second+24(FP), R5
	MOVD groups+32(FP), R3
	LSL $2, R3, R3
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16

loop:
	VLD2.P 32(R1), [V2.B16, V3.B16]
	CBZ R2, noLowest
	VLD1.P 16(R2), [V0.B16]

noLowest:
	CBZ R5, noSecond
	VLD1.P 16(R5), [V1.B16]

noSecond:
	VST4.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0)
	SUB $1, R3
	CBNZ R3, loop
	RET
