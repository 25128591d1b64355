package tensor

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/x448/float16"
)

// recorded is what testdata/make_floats.py wrote: numbers as runs of hexadecimal digits of fixed width.
type recorded struct {
	Widen        map[string]string
	Narrow, Half map[string]string
}

func readRecorded(t *testing.T) recorded {
	t.Helper()
	text, err := os.ReadFile("testdata/floats.json")
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func hexWords(t *testing.T, s string, digits int) []uint32 {
	t.Helper()
	var words []uint32
	for ; len(s) >= digits; s = s[digits:] {
		n, err := strconv.ParseUint(s[:digits], 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		words = append(words, uint32(n))
	}
	if len(words) < 100 {
		t.Fatalf("only %d recorded values", len(words))
	}
	return words
}

// sameBits compares a float with recorded bits; any NaN is as good as another.
func sameBits(f float32, bits uint32) bool {
	want := math.Float32frombits(bits)
	return math.Float32bits(f) == bits || f != f && want != want
}

func TestNarrowAsPyTorch(t *testing.T) {
	r := readRecorded(t).Narrow
	single, half, brain := hexWords(t, r["float32"], 8), hexWords(t, r["float16"], 4), hexWords(t, r["bfloat16"], 4)
	for i, bits := range single {
		f := math.Float32frombits(bits)
		if got := Float16FromFloat32(f); got != uint16(half[i]) {
			t.Errorf("float16 of %#08x is %#04x, want %#04x", bits, got, half[i])
		}
		if got := BFloat16FromFloat32(f); got != uint16(brain[i]) {
			t.Errorf("bfloat16 of %#08x is %#04x, want %#04x", bits, got, brain[i])
		}
	}
}

func TestWidenHalfAsPyTorch(t *testing.T) {
	r := readRecorded(t).Half
	want := hexWords(t, r["float32"], 8)
	for i, bits := range hexWords(t, r["float16"], 4) {
		if got := Float16ToFloat32(uint16(bits)); !sameBits(got, want[i]) {
			t.Errorf("float16 %#04x is %v, want bits %#08x", bits, got, want[i])
		}
	}
}

func TestHalfRoundTrip(t *testing.T) {
	for bits := range 1 << 16 {
		if f := Float16ToFloat32(uint16(bits)); f == f && Float16FromFloat32(f) != uint16(bits) {
			t.Fatalf("float16 %#04x comes back as %#04x", bits, Float16FromFloat32(f))
		}
		if f := BFloat16ToFloat32(uint16(bits)); f == f && BFloat16FromFloat32(f) != uint16(bits) {
			t.Fatalf("bfloat16 %#04x comes back as %#04x", bits, BFloat16FromFloat32(f))
		}
	}
	for _, bits := range []uint32{0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff} { // none may become an infinity
		f := math.Float32frombits(bits)
		if b := BFloat16ToFloat32(BFloat16FromFloat32(f)); b == b {
			t.Errorf("bfloat16 of the NaN %#08x is %v", bits, b)
		}
		if h := Float16ToFloat32(Float16FromFloat32(f)); h == h {
			t.Errorf("float16 of the NaN %#08x is %v", bits, h)
		}
	}
}

// TestHalfAsLibrary: all of float16, and all beginnings of float32's bits, with ends that are at and about where float16 is rounded.
func TestHalfAsLibrary(t *testing.T) {
	for bits := range 1 << 16 {
		if got, want := Float16ToFloat32(uint16(bits)), float16.Frombits(uint16(bits)).Float32(); !sameBits(got, math.Float32bits(want)) {
			t.Fatalf("float16 %#04x is %v, want %v", bits, got, want)
		}
	}
	for high := range uint32(1 << 16) {
		for _, low := range []uint32{
			0, 1, 0x7ff, 0x800, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000, 0xefff, 0xf000, 0xf001,
			0xffff,
		} {
			f := math.Float32frombits(high<<16 | low)
			if got, want := Float16FromFloat32(f), float16.Fromfloat32(f).Bits(); got != want {
				t.Fatalf("float16 of %#04x%04x is %#04x, want %#04x", high, low, got, want)
			}
			many, round := make([]byte, 2), []float32{f}
			PutFloat16s(many, round)
			RoundFloat16s(round)
			want := float16.Fromfloat32(f)
			if got := binary.NativeEndian.Uint16(many); got != want.Bits() || !sameBits(round[0], math.Float32bits(want.Float32())) {
				t.Fatalf("float16 of %#04x%04x among others is %#04x and %v, want %#04x", high, low, got, round[0], want.Bits())
			}
		}
	}
}

func TestFloat8AsPyTorch(t *testing.T) {
	recorded := readRecorded(t).Widen
	if len(recorded) != 5 {
		t.Fatalf("%d dtypes recorded", len(recorded))
	}
	for name, digits := range recorded {
		d, ok := ParseDType(name)
		if !ok {
			t.Fatalf("unknown dtype %s", name)
		}
		for b, want := range hexWords(t, digits, 8) {
			if got := Float8ToFloat32(d, byte(b)); !sameBits(got, want) {
				t.Errorf("%v %#02x is %v, want bits %#08x", d, b, got, want)
			}
		}
	}
	if f := Float8ToFloat32(Int8, 1); f == f {
		t.Errorf("int8 as float8 is %v", f)
	}
}
