package quantize

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/tensor"
)

// TestFloat8: every number of float8_e4m3fn is its own code; others have the nearest, of two that are equally near the even one, and
// numbers beyond the largest have that.
func TestFloat8(t *testing.T) {
	value := func(c int) float32 { return tensor.Float8ToFloat32(tensor.Float8E4M3FN, byte(c)) }
	check := func(x float32, want int) {
		t.Helper()
		if got := float8(x); int(got) != want {
			t.Errorf("%v has code %#x, want %#x", x, got, want)
		}
		if got := float8(-x); int(got) != want|0x80 {
			t.Errorf("%v has code %#x, want %#x", -x, got, want|0x80)
		}
	}
	for c := range 0x7e {
		low, high := value(c), value(c+1)
		half := (low + high) / 2
		check(low, c)
		check(math.Nextafter32(half, 0), c)
		check(half, c+c&1)
		check(math.Nextafter32(half, 1000), c+1)
	}
	check(448, 0x7e)
	check(1e30, 0x7e)
}

// TestExtremes: groups of numbers that are all zero, tiny, or the largest of their dtype have scales and codes that stand for
// finite numbers, no farther off than the numbers are large.
func TestExtremes(t *testing.T) {
	most := map[tensor.DType]float32{tensor.Float16: 65504, tensor.BFloat16: 3.3895314e38, tensor.Float32: math.MaxFloat32}
	least := map[tensor.DType]float32{tensor.Float16: 6e-8, tensor.BFloat16: 1e-40, tensor.Float32: 1e-45}
	for dtype := range most {
		for _, x := range [][]float32{
			{0, 0}, {most[dtype], 0}, {-most[dtype], 0}, {most[dtype], -most[dtype]}, {least[dtype], 0}, {least[dtype], -least[dtype]},
			{most[dtype], least[dtype]}, {1, 1}, {-3, -3},
		} {
			squares := 0.0
			for i, v := range x {
				x[i] = rounded(v, dtype)
				squares += float64(x[i]) * float64(x[i])
			}
			for _, minimum := range []bool{false, true} {
				for _, bits := range []int64{4, 8} {
					k, codes := integers{bits, dtype}, make([]byte, 2)
					s, z := k.fit(x, nil, minimum)
					if e := k.encode(x, s, z, codes); !(e <= squares) || s <= 0 || z < 0 || int(z) >= 1<<bits || rounded(s, dtype) != s {
						t.Errorf("%v %v, %d bits: a squared error of %v of %v, scale %v, zero %v", dtype, x, bits, e, squares, s, z)
					}
				}
			}
			s := fitFloat8(x, dtype)
			if e := encodeFloat8(x, s, dtype, nil); !(e <= squares) || s <= 0 || rounded(s, dtype) != s {
				t.Errorf("%v %v, float8: a squared error of %v of %v, scale %v", dtype, x, e, squares, s)
			}
		}
	}
}

// TestFitIsNoWorse: no group is worse off than with the scale by which its farthest number has the last code.
func TestFitIsNoWorse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Float32Range(-100, 100), 2, 40).Draw(t, "x")
		if len(x)%2 == 1 {
			x = x[1:]
		}
		k := integers{rapid.SampledFrom([]int64{4, 8}).Draw(t, "bits"), tensor.Float32}
		var far float32
		for _, v := range x {
			far = max(far, v, -v)
		}
		if far < 1e-30 {
			return
		}
		last, codes := float32(int(1)<<(k.bits-1)-1), make([]byte, len(x))
		s, z := k.fit(x, nil, false)
		if got, plain := k.encode(x, s, z, codes), k.encode(x, far/last, last+1, codes); got > plain {
			t.Fatalf("%v instead of %v", got, plain)
		}
		if got, plain := encodeFloat8(x, fitFloat8(x, k.dtype), k.dtype, nil), encodeFloat8(x, far/448, k.dtype, nil); got > plain {
			t.Fatalf("float8: %v instead of %v", got, plain)
		}
	})
}
