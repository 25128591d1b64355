package loader

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/optimem/optimem/tensor"
)

// A Random is the contents of a tensor of random numbers, evenly spread between Offset−Scale and Offset+Scale. The value
// of an element depends only on its index, Seed, Tensor, Offset and Scale, so the contents can be read from any offset,
// by anybody, again and again, and are held nowhere.
//
// It is for weights whose values do not matter. It is not for cryptography.
type Random struct {
	// Seed is the user's, Tensor the number of the tensor in its file.
	Seed, Tensor uint64
	// DType is one of the floating-point or complex dtypes; of the latter both parts are random.
	DType         tensor.DType
	Offset, Scale float64
}

// goldenStep is 2^64 over the golden ratio, the step of SplitMix64 (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", 2014). Counting in such steps and mixing the count gives a random word by its
// position.
const goldenStep = 0x9e3779b97f4a7c15

// wordBytes is what one random word makes of contents: four numbers of 16 bits, two of 32, or one of 64.
const wordBytes = 8

func splitMix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// ReadAt fills p with the contents from byte off on.
func (r Random) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if off < 0 {
		return fmt.Errorf("random contents at %d: negative offset", off)
	}
	var fill func(p []byte, z uint64)
	switch r.DType {
	case tensor.Float32, tensor.Complex64:
		fill = r.fill32
	case tensor.Float64, tensor.Complex128:
		fill = r.fill64
	case tensor.Float16, tensor.Complex32:
		fill = func(p []byte, z uint64) { r.fillNarrow(p, z, roundFloat16) }
	case tensor.BFloat16:
		fill = func(p []byte, z uint64) { r.fillNarrow(p, z, roundBFloat16) }
	default:
		return fmt.Errorf("%w: random contents of %v", ErrUnsupported, r.DType)
	}
	key := splitMix(splitMix(r.Seed) + r.Tensor*goldenStep)
	at := func(word int64) uint64 { return key + uint64(word)*goldenStep }
	word, skip := off/wordBytes, off%wordBytes
	var edge [wordBytes]byte
	if skip > 0 {
		fill(edge[:], at(word))
		p = p[copy(p, edge[skip:]):]
		word++
	}
	whole := int64(len(p)) / wordBytes
	fill(p[:whole*wordBytes], at(word))
	if p = p[whole*wordBytes:]; len(p) > 0 {
		fill(edge[:], at(word+whole))
		copy(p, edge[:])
	}
	return nil
}

// fill32 writes two float32 for each word counted from z.
func (r Random) fill32(p []byte, z uint64) {
	scale, offset := float32(r.Scale/(1<<23)), float32(r.Offset)
	for ; len(p) >= wordBytes; p = p[wordBytes:] {
		w := splitMix(z)
		// The conversions keep products and sums apart, so that every machine rounds alike.
		lo, hi := float32(float32(int32(w)>>8)*scale)+offset, float32(float32(int32(w>>32)>>8)*scale)+offset
		binary.LittleEndian.PutUint64(p, uint64(math.Float32bits(lo))|uint64(math.Float32bits(hi))<<32)
		z += goldenStep
	}
}

func (r Random) fill64(p []byte, z uint64) {
	scale := r.Scale / (1 << 52)
	for ; len(p) >= wordBytes; p = p[wordBytes:] {
		v := float64(float64(int64(splitMix(z))>>11)*scale) + r.Offset
		binary.LittleEndian.PutUint64(p, math.Float64bits(v))
		z += goldenStep
	}
}

// narrowLevels is how many different numbers the 16-bit dtypes get. They are looked up: rounding each number would take
// three times as long.
const narrowLevels = 1 << 12

// fillNarrow writes four numbers of 16 bits for each word counted from z.
func (r Random) fillNarrow(p []byte, z uint64, round func(float32) uint16) {
	var level [narrowLevels]uint16
	scale, offset := float32(r.Scale/(narrowLevels/2)), float32(r.Offset)
	for i := range level {
		level[i] = round(float32(float32(i-narrowLevels/2)*scale) + offset)
	}
	const mask = narrowLevels - 1
	for ; len(p) >= wordBytes; p = p[wordBytes:] {
		w := splitMix(z)
		out := uint64(level[w&mask]) | uint64(level[w>>16&mask])<<16 |
			uint64(level[w>>32&mask])<<32 | uint64(level[w>>48&mask])<<48
		binary.LittleEndian.PutUint64(p, out)
		z += goldenStep
	}
}

// roundBFloat16 rounds a finite number to the nearest bfloat16, ties to even.
func roundBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// roundFloat16 rounds a finite number to the nearest float16, ties to even.
func roundFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, b := uint16(b>>16&0x8000), b&0x7fffffff
	const (
		smallestNormal = 0x38800000 // 2^-14
		overflow       = 0x477ff000 // 65520, half-way to what would follow the largest
		half           = 0x3f000000 // 0.5, whose last place is that of the subnormal float16
	)
	switch {
	case b >= overflow:
		return sign | 0x7c00
	case b < smallestNormal:
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-half)
	}
	return sign | uint16((b+0xfff+b>>13&1)>>13-112<<10)
}
