package quantize

import (
	"encoding/binary"
	"math"

	"github.com/optimem/optimem/tensor"
)

// shrinks are the parts of a group's range that its codes may span: where few numbers are far out, to round those off costs less
// than to have all others between wide steps. 7 of 7½ steps is where both ends of signed codes of 4 bits are used.
var shrinks = [...]float32{1, 0.9961, 0.975, 0.95, 0.9333, 0.9, 0.875, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6}

// rounded rounds a number to a dtype.
func rounded(x float32, dtype tensor.DType) float32 {
	switch dtype {
	case tensor.Float16:
		return tensor.Float16ToFloat32(tensor.Float16FromFloat32(x))
	case tensor.BFloat16:
		return tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(x))
	}
	return x
}

// nearest rounds a number below 2²² to an integer, halves to even ones. The conversions keep a compiler from fusing a product of the
// caller's with the sum, which would give other bits on other machines.
func nearest(x float32) float32 {
	const magic = 3 << 22
	return float32(float32(x)+magic) - magic
}

// integers are codes of 4 or 8 bits, unsigned: what stands for nothing is 2^(bits−1), or the group's zero point.
type integers struct {
	bits  int64
	dtype tensor.DType // of scales, and of what numbers are rounded to
}

// fit returns the scale and the code of nothing with which a group's codes stand for its numbers with the least squared
// error, in which each number has a weight where weights are not nil.
func (k integers) fit(x []float32, weights []float64, minimum bool) (scale, zero float32) {
	lo, hi := x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	lo, hi = min(lo, 0), max(hi, 0)
	top := float32(int(1)<<k.bits - 1)
	half := float32(int(1) << (k.bits - 1))
	scale, zero = 1, half
	if lo == hi {
		return scale, zero
	}
	least := math.Inf(1)
	for _, f := range shrinks {
		s, z := rounded(max(hi, -lo)/(half-1)*f, k.dtype), half
		if minimum {
			s = rounded(float32(hi/top-lo/top)*f, k.dtype)
			z = min(max(nearest(max(-lo*f/s, 0)), 0), top)
		}
		if s == 0 || math.IsInf(float64(s), 0) || math.IsInf(float64(1/s), 0) {
			continue
		}
		if e := k.squares(x, weights, s, z); e < least {
			least, scale, zero = e, s, z
		}
	}
	return scale, zero
}

// squares is the squared error of a group's codes.
func (k integers) squares(x []float32, weights []float64, scale, zero float32) float64 {
	top, inverse, sum := float32(int(1)<<k.bits-1), 1/scale, 0.0
	for i, v := range x {
		c := k.code(v, inverse, zero, top)
		d := float64(v) - float64(float32((c-zero)*scale))
		if weights != nil {
			d *= math.Sqrt(weights[i])
		}
		sum += float64(d * d)
	}
	if farthest := rounded(max(zero, top-zero)*scale, k.dtype); math.IsInf(float64(farthest), 0) {
		return math.Inf(1) // some code is no number
	}
	return sum
}

// code returns the code of a number.
func (integers) code(v, inverse, zero, top float32) float32 {
	return min(max(nearest(min(max(float32(v*inverse), -512), 512))+zero, 0), top)
}

// encode writes a group's codes and returns its squared error, with numbers as readers round them.
func (k integers) encode(x []float32, scale, zero float32, to []byte) float64 {
	top, inverse, sum := float32(int(1)<<k.bits-1), 1/scale, 0.0
	for i, v := range x {
		c := k.code(v, inverse, zero, top)
		d := float64(v) - float64(rounded((c-zero)*scale, k.dtype))
		sum += float64(d * d)
		switch {
		case k.bits == 8:
			to[i] = byte(c)
		case i%2 == 0:
			to[i/2] = byte(c)
		default:
			to[i/2] |= byte(c) << 4
		}
	}
	return sum
}

// mostFloat8 is the largest number of float8_e4m3fn.
const mostFloat8 = 448

// float8 returns the code of float8_e4m3fn that is nearest to a number, the even one of two; numbers beyond the largest are that.
func float8(x float32) byte {
	bits := math.Float32bits(x)
	sign := byte(bits >> 24 & 0x80)
	bits &= 1<<31 - 1
	a := math.Float32frombits(bits)
	const leastNormal = 1.0 / 64
	if a < leastNormal {
		return sign | byte(nearest(a*512)) // steps of 2⁻⁹; eight of them are the least normal number
	}
	const dropped = 20 // bits of a mantissa of 23 of which 3 stay
	code := (bits+1<<(dropped-1)-1+bits>>dropped&1)>>dropped - (127-7)<<3
	return sign | byte(min(code, 0x7e))
}

// fitFloat8 returns the scale with which a row's codes have the least squared error.
func fitFloat8(x []float32, dtype tensor.DType) float32 {
	var most float32
	for _, v := range x {
		most = max(most, v, -v)
	}
	best, least := float32(1), math.Inf(1)
	if most == 0 {
		return best
	}
	for _, f := range shrinks {
		s := rounded(most/mostFloat8*f, dtype)
		if s == 0 || math.IsInf(float64(1/s), 0) || math.IsInf(float64(rounded(mostFloat8*s, dtype)), 0) {
			continue
		}
		if e := encodeFloat8(x, s, dtype, nil); e < least {
			best, least = s, e
		}
	}
	return best
}

// encodeFloat8 writes a row's codes, to nil none, and returns their squared error, with numbers as readers round them.
func encodeFloat8(x []float32, scale float32, dtype tensor.DType, to []byte) float64 {
	inverse, sum := 1/scale, 0.0
	for i, v := range x {
		c := float8(v * inverse)
		if to != nil {
			to[i] = c
		}
		d := float64(v) - float64(rounded(tensor.Float8ToFloat32(tensor.Float8E4M3FN, c)*scale, dtype))
		sum += float64(d * d)
	}
	return sum
}

// decode brings a row's elements of the file into memory.
func decode(to []float32, raw []byte, dtype tensor.DType) {
	for i := range to {
		switch dtype {
		case tensor.Float16:
			to[i] = tensor.Float16ToFloat32(binary.LittleEndian.Uint16(raw[2*i:]))
		case tensor.BFloat16:
			to[i] = tensor.BFloat16ToFloat32(binary.LittleEndian.Uint16(raw[2*i:]))
		default:
			to[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	}
}

// store writes a scale.
func store(to []byte, x float32, dtype tensor.DType) {
	switch dtype {
	case tensor.Float16:
		binary.LittleEndian.PutUint16(to, tensor.Float16FromFloat32(x))
	case tensor.BFloat16:
		binary.LittleEndian.PutUint16(to, tensor.BFloat16FromFloat32(x))
	default:
		binary.LittleEndian.PutUint32(to, math.Float32bits(x))
	}
}
