package tensor

import (
	"encoding/binary"
	"math"

	"github.com/x448/float16"
)

// Both ways are gone, of which a processor takes one without a guess: for normal ones, and for those below the least of them, to
// which a number is added whose last bit is theirs.

// widened is what bits of a float16 without a sign are in float32, up to the largest finite one.
func widened(size uint32) uint32 {
	x := size<<13 + 0x38000000
	if least := math.Float32bits(math.Float32frombits(size<<13+0x38800000) - 1.0/(1<<14)); size < 0x400 {
		x = least
	}
	return x
}

// narrowed is the nearest of float16 to bits of a float32 without a sign, below the first that no finite one is near.
func narrowed(size uint32) uint32 {
	x := (size - 0x38000000 + 0xfff + size>>13&1) >> 13
	if least := math.Float32bits(math.Float32frombits(size)+0.5) - 0x3f000000; size < 0x38800000 {
		x = least
	}
	return x
}

// notNarrowed is the first that narrowed is not for.
const notNarrowed = 0x477ff000

// Float16ToFloat32 returns the value of a half-precision float, exactly.
func Float16ToFloat32(bits uint16) float32 {
	if bits&0x7c00 == 0x7c00 { // none is finite
		return float16.Frombits(bits).Float32()
	}
	return math.Float32frombits(uint32(bits)&0x8000<<16 | widened(uint32(bits)&0x7fff))
}

// Float16FromFloat32 returns the bits of the nearest half-precision float, ties to even.
func Float16FromFloat32(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff >= notNarrowed {
		return float16.Fromfloat32(f).Bits()
	}
	return uint16(bits>>16)&0x8000 | uint16(narrowed(bits&0x7fffffff))
}

// PutFloat16s writes the nearest half-precision floats of numbers, in the machine's order.
func PutFloat16s(to []byte, numbers []float32) {
	to = to[:2*len(numbers)]
	for i, f := range numbers {
		bits := math.Float32bits(f)
		if bits&0x7fffffff >= notNarrowed {
			binary.NativeEndian.PutUint16(to[2*i:], float16.Fromfloat32(f).Bits())
			continue
		}
		binary.NativeEndian.PutUint16(to[2*i:], uint16(bits>>16)&0x8000|uint16(narrowed(bits&0x7fffffff)))
	}
}

// RoundFloat16s makes numbers those of the nearest half-precision floats.
func RoundFloat16s(numbers []float32) {
	for i, f := range numbers {
		bits := math.Float32bits(f)
		if bits&0x7fffffff >= notNarrowed {
			numbers[i] = Float16ToFloat32(float16.Fromfloat32(f).Bits())
			continue
		}
		half := narrowed(bits & 0x7fffffff)
		numbers[i] = math.Float32frombits(bits&0x80000000 | widened(half))
	}
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
