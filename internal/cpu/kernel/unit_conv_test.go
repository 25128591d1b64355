package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// nearestBFloat16 is the bfloat16 nearest to a float, by comparing distances: of two equally near ones the even one. NaN
// is quiet, and what is smaller than normal numbers is a zero of the same sign, as matrix units make it.
func nearestBFloat16(v float32) uint16 {
	bits := math.Float32bits(v)
	sign, below := uint16(bits>>16)&0x8000, uint16(bits>>16)
	switch x := math.Abs(float64(v)); {
	case v != v:
		return below | 0x40
	case x < 0x1p-126:
		return sign
	case math.IsInf(float64(v), 0):
		return below
	}
	value := func(h uint16) float64 { return float64(math.Float32frombits(uint32(h) << 16)) }
	low, high := math.Abs(float64(v)-value(below)), math.Abs(value(below+1)-float64(v))
	if math.IsInf(value(below+1), 0) { // as far from the largest number as one of a larger exponent would be
		high = math.Abs(math.Copysign(0x1p128, float64(v)) - float64(v))
	}
	if high < low || high == low && below&1 == 1 {
		return below + 1
	}
	return below
}

// halfNumbers are floats between, at and beside bfloat16s, and special ones.
func halfNumbers(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		bits := rng.Uint32()
		switch i % 5 {
		case 0: // ties
			bits = bits&^0xffff | 0x8000
		case 1: // beside ties
			bits = bits&^0xffff | 0x7fff + 2*(bits&1)
		case 2: // small ones
			bits &^= 0x7f000000
		case 3: // NaN and infinities
			bits |= 0x7f800000
			if bits&1 == 0 {
				bits &= 0xff800000
			}
		}
		x[i] = math.Float32frombits(bits)
	}
	return x
}

// Floats become the nearest bfloat16s, ties even, and NaN stays NaN: in planes of any length and in rows some distance
// apart, by every set. Channels that there are not are cleared.
func TestUnitNarrow(t *testing.T) {
	rng := rand.New(rand.NewPCG(55, 56))
	for _, s := range UnitSets() {
		for _, pixels := range []int{1, 7, 1025, 4100} {
			const mask = 0x0007ffff
			low, high := halfNumbers(rng, 16*pixels), halfNumbers(rng, 16*pixels)
			y := make([]uint16, UnitColumns*pixels)
			s.Narrow(low, high, y, mask)
			for i, got := range y {
				lane, want := i%UnitColumns, uint16(0)
				switch from := i / UnitColumns * 16; {
				case lane < 16:
					want = nearestBFloat16(low[from+lane])
				case mask>>lane&1 != 0:
					want = nearestBFloat16(high[from+lane-16])
				}
				if got != want {
					t.Fatalf("%s, %d pixels: channel %d of pixel %d is %#x, want %#x", s.Name, pixels, lane, i/UnitColumns, got, want)
				}
			}
		}
		for _, channels := range []int{5, 16, 30, 32, 50} {
			const rows, pitch = 2500, 53
			x := halfNumbers(rng, rows*pitch)
			y := make([]uint16, UnitColumns*rows)
			s.NarrowRows(x, pitch, channels, y)
			for i, got := range y {
				lane, want := i%UnitColumns, uint16(0)
				if lane < channels {
					want = nearestBFloat16(x[i/UnitColumns*pitch+lane])
				}
				if got != want {
					t.Fatalf("%s: column %d of row %d of %d columns is %#x, want %#x", s.Name, lane, i/UnitColumns, channels, got, want)
				}
			}
		}
	}
}

// Each half of a plane is widened as it is, in planes of any length.
func TestUnitWiden(t *testing.T) {
	rng := rand.New(rand.NewPCG(57, 58))
	for _, s := range UnitSets() {
		for _, pixels := range []int{1, 5, 4096, 9001} {
			x := make([]uint16, UnitColumns*pixels)
			for i := range x {
				x[i] = uint16(rng.Uint32())
			}
			for upper, from := range map[bool]int{false: 0, true: 16} {
				y := make([]float32, 16*pixels)
				s.Widen(x, upper, y)
				for i, v := range y {
					if want := uint32(x[i/16*UnitColumns+from+i%16]) << 16; math.Float32bits(v) != want {
						t.Fatalf("%s: channel %d of pixel %d is %#x, want %#x", s.Name, from+i%16, i/16, math.Float32bits(v), want)
					}
				}
			}
		}
	}
}
