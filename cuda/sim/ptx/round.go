package ptx

import "math"

// A rounding is a direction.
type rounding byte

const (
	toNearest rounding = 'n'
	toZero    rounding = 'z'
	toMinus   rounding = 'm'
	toPlus    rounding = 'p'
)

// rounding takes an instruction's direction; integers says that it may be one to an integer.
func (f *form) rounding() (how rounding, integer, given bool) {
	for _, r := range []rounding{toNearest, toZero, toMinus, toPlus} {
		if f.take("r" + string(rune(r))) {
			return r, false, true
		}
		if f.take("r" + string(rune(r)) + "i") {
			return r, true, true
		}
	}
	return toNearest, false, false
}

func float32of(x uint64) float32 { return math.Float32frombits(uint32(x)) }

// canonical is the NaN of 32 bits that GPUs make.
const canonical = 0x7fffffff

func bits32(x float32) uint64 {
	if x != x {
		return canonical
	}
	return uint64(math.Float32bits(x))
}

// flush makes zero of a number too small to be normal.
func flush(x float32) float32 {
	if bits := math.Float32bits(x); bits&0x7f800000 == 0 {
		return math.Float32frombits(bits & 0x80000000)
	}
	return x
}

// addOdd is a sum with its last bit set where it is not exact, so that it can be rounded once more, to fewer bits, as the
// exact sum would be.
func addOdd(a, b float64) float64 {
	s := a + b
	if s-s != 0 {
		return s
	}
	t := s - a
	e := (a - (s - t)) + (b - t)
	if bits := math.Float64bits(s); e != 0 && bits&1 == 0 {
		if (e > 0) == (s > 0) {
			return math.Float64frombits(bits + 1)
		}
		return math.Float64frombits(bits - 1)
	}
	return s
}

// narrow rounds to 32 bits.
func narrow(x float64, how rounding) float32 {
	y := float32(x)
	if x != x || float64(y) == x {
		return y
	}
	switch above := float64(y) > x; {
	case how == toZero && above == (x > 0), how == toMinus && above:
		return math.Nextafter32(y, float32(math.Copysign(math.Inf(1), -boolSign(above))))
	case how == toPlus && !above:
		return math.Nextafter32(y, float32(math.Inf(1)))
	}
	return y
}

func boolSign(b bool) float64 {
	if b {
		return 1
	}
	return -1
}

// sum and product are those of 32 bits, rounded in a direction.
func sum(a, b float32, how rounding) float32 {
	if how == toNearest {
		return a + b
	}
	s := narrow(addOdd(float64(a), float64(b)), how)
	if s == 0 && a == -b && a != 0 && how == toMinus {
		return float32(math.Copysign(0, -1))
	}
	return s
}

func product(a, b float32, how rounding) float32 {
	if how == toNearest {
		return a * b
	}
	return narrow(float64(a)*float64(b), how)
}

// fused is a·b+c, rounded once: the product of two numbers of 24 bits is exact in 53.
func fused(a, b, c float32, how rounding) float32 {
	s := narrow(addOdd(float64(a)*float64(b), float64(c)), how)
	if s == 0 && how == toMinus && c != 0 {
		return float32(math.Copysign(0, -1))
	}
	return s
}

// whole rounds to an integer.
func whole(x float64, how rounding) float64 {
	switch how {
	case toZero:
		return math.Trunc(x)
	case toMinus:
		return math.Floor(x)
	case toPlus:
		return math.Ceil(x)
	}
	return math.RoundToEven(x)
}

// saturate keeps to [0, 1], and makes 0 of what is no number.
func saturate[T float32 | float64](x T) T {
	if !(x > 0) {
		return 0
	}
	return min(x, 1)
}

// halfOf is the value of a half float; halfBits rounds to the nearest.
func halfOf(bits uint16) float32 {
	sign, e, m := uint32(bits&0x8000)<<16, int(bits>>10&31), uint32(bits&0x3ff)
	switch {
	case e == 31:
		return math.Float32frombits(sign | 0x7f800000 | m<<13)
	case e == 0:
		return float32(math.Copysign(math.Ldexp(float64(m), -24), 1-2*float64(sign>>31)))
	}
	return math.Float32frombits(sign | uint32(e+112)<<23 | m<<13)
}

func halfBits(x float32) uint16 {
	sign := uint16(math.Float32bits(x) >> 16 & 0x8000)
	a := math.Abs(float64(x))
	switch {
	case x != x:
		return 0x7fff
	case a >= 65520:
		return sign | 0x7c00
	}
	e := max(math.Ilogb(a), -14)
	if a == 0 {
		return sign
	}
	m := math.RoundToEven(math.Ldexp(a, 10-e)) // up to 2048, which carries into the exponent
	if e == -14 {
		return sign | uint16(m)
	}
	return sign | uint16((e+14)<<10+int(m))
}

func brainOf(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }

func brainBits(x float32) uint16 {
	if x != x {
		return 0x7fff
	}
	b := math.Float32bits(x)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
