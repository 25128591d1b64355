package loader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/x448/float16"
	"pgregory.net/rapid"

	"github.com/optimem/optimem/tensor"
)

var randomDTypes = []tensor.DType{
	tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16,
	tensor.Complex32, tensor.Complex64, tensor.Complex128,
}

// Reading in pieces gives the same as reading at once.
func TestRandomIsPositional(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := Random{
			Seed:   rapid.Uint64().Draw(rt, "seed"),
			Tensor: rapid.Uint64().Draw(rt, "tensor"),
			DType:  rapid.SampledFrom(randomDTypes).Draw(rt, "dtype"),
			Scale:  0.1,
		}
		whole := make([]byte, 1024)
		if err := r.ReadAt(t.Context(), whole, 0); err != nil {
			rt.Fatal(err)
		}
		off := rapid.IntRange(0, 1000).Draw(rt, "offset")
		p := make([]byte, rapid.IntRange(0, len(whole)-off).Draw(rt, "length"))
		if err := r.ReadAt(t.Context(), p, int64(off)); err != nil {
			rt.Fatal(err)
		}
		if !bytes.Equal(p, whole[off:off+len(p)]) {
			rt.Fatalf("bytes from %d on are % x, want % x", off, p, whole[off:off+len(p)])
		}
	})
}

// The numbers of a seed never change: files made from them are referred to by it.
func TestRandomNumbers(t *testing.T) {
	for d, want := range map[tensor.DType][4]float64{
		tensor.Float32:  {-1.9504523277282715, -0.5087261199951172, 0.5989418029785156, -1.7385003566741943},
		tensor.Float64:  {-0.5087259127643082, -1.7385002401194205, 0.4104347502577128, -1.8501334717923994},
		tensor.Float16:  {0.6669921875, -1.2080078125, 0.216796875, 1.8603515625},
		tensor.BFloat16: {0.66796875, -1.2109375, 0.216796875, 1.859375},
	} {
		if got := [4]float64(randomNumbers(t, Random{Seed: 7, Tensor: 3, DType: d, Scale: 2}, 4)); got != want {
			t.Errorf("%v: %v, want %v", d, got, want)
		}
	}
}

// An offset moves the numbers and leaves their spread.
func TestRandomOffset(t *testing.T) {
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16} {
		plain := randomNumbers(t, Random{Seed: 7, DType: d, Scale: 0.5}, 1000)
		moved := randomNumbers(t, Random{Seed: 7, DType: d, Scale: 0.5, Offset: 3}, 1000)
		for i, x := range moved {
			if math.Abs(x-plain[i]-3) > 0.02 || x < 2.49 || x > 3.51 {
				t.Fatalf("%v: number %d is %v with the offset, %v without", d, i, x, plain[i])
			}
		}
	}
}

// randomNumbers returns the first n numbers.
func randomNumbers(t *testing.T, r Random, n int) []float64 {
	t.Helper()
	p := make([]byte, n*r.DType.Size())
	if err := r.ReadAt(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	var list []float64
	for range n {
		switch r.DType {
		case tensor.Float64:
			list = append(list, math.Float64frombits(binary.LittleEndian.Uint64(p)))
		case tensor.Float32:
			list = append(list, float64(math.Float32frombits(binary.LittleEndian.Uint32(p))))
		case tensor.Float16:
			list = append(list, float64(float16.Frombits(binary.LittleEndian.Uint16(p)).Float32()))
		case tensor.BFloat16:
			list = append(list, float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(p))<<16)))
		}
		p = p[r.DType.Size():]
	}
	return list
}

// The spread is even: mean 0, variance scale²/3, nothing outside; other seeds and tensors have other numbers.
func TestRandomIsUniform(t *testing.T) {
	const n, scale = 100_000, 0.25
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16} {
		var sum, squares float64
		for _, v := range randomNumbers(t, Random{Seed: 1, DType: d, Scale: scale}, n) {
			if math.Abs(v) > scale {
				t.Fatalf("%v: %v is outside ±%v", d, v, scale)
			}
			sum += v
			squares += v * v
		}
		// Five standard deviations of each estimate.
		if mean := sum / n; math.Abs(mean) > 5*scale/math.Sqrt(3*n) {
			t.Errorf("%v: mean %v", d, mean)
		}
		if variance := squares / n; math.Abs(variance-scale*scale/3) > 5*scale*scale*math.Sqrt(4./45/n) {
			t.Errorf("%v: variance %v, want %v", d, variance, scale*scale/3)
		}
		base := randomNumbers(t, Random{Seed: 1, Tensor: 1, DType: d, Scale: scale}, 8)
		for _, other := range []Random{{Seed: 2, Tensor: 1}, {Seed: 1, Tensor: 2}, {Seed: 0, Tensor: 0}} {
			other.DType, other.Scale = d, scale
			same := 0
			for i, v := range randomNumbers(t, other, 8) {
				if v == base[i] {
					same++
				}
			}
			if same > 1 {
				t.Errorf("%v: %+v has %d of 8 numbers in common with seed 1, tensor 1", d, other, same)
			}
		}
	}
}

func TestRandomRefuses(t *testing.T) {
	for _, d := range []tensor.DType{tensor.Invalid, tensor.Int64, tensor.Bool, tensor.Float8E4M3FN, tensor.QInt8} {
		if err := (Random{DType: d}).ReadAt(t.Context(), make([]byte, 8), 0); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%v: %v", d, err)
		}
	}
	if err := (Random{DType: tensor.Float32}).ReadAt(t.Context(), make([]byte, 8), -8); err == nil {
		t.Error("a negative offset is accepted")
	}
}

func TestRoundFloat16(t *testing.T) {
	// All exponents and signs, with the last places that decide about rounding.
	for high := range uint32(1 << 16) {
		if high&0x7f80 == 0x7f80 {
			continue // infinities and NaN
		}
		for _, low := range []uint32{0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x7fff, 0x8000, 0xefff, 0xf000, 0xffff} {
			f := math.Float32frombits(high<<16 | low)
			if got, want := roundFloat16(f), float16.Fromfloat32(f).Bits(); got != want {
				t.Fatalf("%v (%08x) rounds to %04x, want %04x", f, high<<16|low, got, want)
			}
		}
	}
}

func TestRoundBFloat16(t *testing.T) {
	for bits, want := range map[uint32]uint16{
		0: 0, 0x3f800000: 0x3f80, 0x3f807fff: 0x3f80, 0x3f808000: 0x3f80, 0x3f808001: 0x3f81, 0x3f818000: 0x3f82,
		0xbf818000: 0xbf82, 0x7f7fffff: 0x7f80, 0x00008001: 1,
	} {
		if got := roundBFloat16(math.Float32frombits(bits)); got != want {
			t.Errorf("%08x rounds to %04x, want %04x", bits, got, want)
		}
	}
}

func BenchmarkRandom(b *testing.B) {
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16} {
		b.Run(d.String(), func(b *testing.B) {
			p := make([]byte, 1<<20)
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				if err := (Random{Seed: 1, DType: d, Scale: 1}).ReadAt(b.Context(), p, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
