// What kernels over blocks of bfloat16 have in common.

// VCVTNE2PS2BF16: Z2 = Z0 and, behind it, Z1, zero where K1 is not set.
#define NARROW BYTE $0x62; BYTE $0xf2; BYTE $0x77; BYTE $0xc9; BYTE $0x72; BYTE $0xd0

// Fields of a UnitTile, as it lies in memory.
#define tile_x 0(R15)
#define tile_xPixel 8(R15)
#define tile_xSecond 16(R15)
#define tile_xBlock 24(R15)
#define tile_offsets 32(R15)
#define tile_steps 40(R15)
#define tile_w 48(R15)
#define tile_sums 56(R15)
#define tile_blocks 64(R15)
#define tile_keep 72(R15)
#define tile_y 80(R15)
#define tile_ySecond 88(R15)
#define tile_yBlock 96(R15)
#define tile_residual 104(R15)
#define tile_scale 112(R15)
#define tile_shift 120(R15)
#define tile_mask 128(R15)
#define tile_low 132(R15)
#define tile_high 136(R15)
#define tile_ahead 144(R15)
#define tile_rows0 152(R15)
#define tile_rows1 160(R15)
#define tile_perStep 168(R15)
#define tile_config 176(R15)
#define tile_aheadLines 240(R15)
#define tile_wide 248(R15)
#define tile_yPixel 256(R15)

// The sums of a pixel at DX, scaled and shifted: Z0 and Z1.
#define SCALED \
	VMOVUPS (DX), Z0               \
	VMOVUPS 64(DX), Z1             \
	VFMADD213PS Z18, Z16, Z0       \
	VFMADD213PS Z19, Z17, Z1

// The residual of the pixel at R13, CX bytes from it.
#define RESIDUAL \
	VPMOVZXWD (R13)(CX*1), Z2      \
	VPMOVZXWD 32(R13)(CX*1), Z3    \
	VPSLLD $16, Z2, Z2             \
	VPSLLD $16, Z3, Z3             \
	VADDPS Z2, Z0, Z0              \
	VADDPS Z3, Z1, Z1

// Limits, where NaN stays NaN, and the result of the pixel.
#define LIMITED \
	VMAXPS Z0, Z20, Z0             \
	VMAXPS Z1, Z20, Z1             \
	VMINPS Z0, Z21, Z0             \
	VMINPS Z1, Z21, Z1             \
	NARROW                         \
	VMOVDQU32 Z2, (R13)

// The results of the pixel as float32, and their residual; K2 and K3 have a bit for each.
#define WIDE_RESIDUAL \
	VMOVUPS.Z (R13)(CX*1), K2, Z2   \
	VMOVUPS.Z 64(R13)(CX*1), K3, Z3 \
	VADDPS Z2, Z0, Z0               \
	VADDPS Z3, Z1, Z1

#define WIDE \
	VMAXPS Z0, Z20, Z0             \
	VMAXPS Z1, Z20, Z1             \
	VMINPS Z0, Z21, Z0             \
	VMINPS Z1, Z21, Z1             \
	VMOVUPS Z0, K2, (R13)          \
	VMOVUPS Z1, K3, 64(R13)
