package tensor

import (
	"math"

	"github.com/x448/float16"
)

// Float16ToFloat32 returns the value of a half-precision float, exactly.
func Float16ToFloat32(bits uint16) float32 {
	size := uint32(bits) & 0x7fff
	if size >= 0x7c00 { // none is finite
		return float16.Frombits(bits).Float32()
	}
	x := size<<13 + 0x38000000
	if least := math.Float32bits(math.Float32frombits(size<<13+0x38800000) - 1.0/(1<<14)); size < 0x400 {
		x = least
	}
	return math.Float32frombits(uint32(bits)&0x8000<<16 | x)
}

// Float16FromFloat32 returns the bits of the nearest half-precision float, ties to even.
func Float16FromFloat32(f float32) uint16 {
	bits := math.Float32bits(f)
	size := bits & 0x7fffffff
	if size >= 0x477ff000 { // no finite one is as large
		return float16.Fromfloat32(f).Bits()
	}
	// Both ways, of which a processor takes one without a guess: below the least normal one, one half's last bit is theirs.
	x := (size - 0x38000000 + 0xfff + size>>13&1) >> 13
	if least := math.Float32bits(math.Float32frombits(size)+0.5) - 0x3f000000; size < 0x38800000 {
		x = least
	}
	return uint16(bits>>16)&0x8000 | uint16(x)
}

// BFloat16ToFloat32 returns the value of a bfloat16, exactly.
func BFloat16ToFloat32(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }

// BFloat16FromFloat32 returns the bits of the nearest bfloat16, ties to even. Every NaN becomes 0x7fc0, as in PyTorch's
// scalar conversion.
func BFloat16FromFloat32(f float32) uint16 {
	if f != f {
		return 0x7fc0
	}
	bits := math.Float32bits(f)
	bits += 0x7fff + bits>>16&1
	return uint16(bits >> 16)
}
