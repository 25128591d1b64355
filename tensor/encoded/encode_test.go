package encoded_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/optimem/optimem/tensor/encoded"
)

// toEncode are the numbers of testdata/make_encoded.py, 256 for each block.
func toEncode(blocks int) []float32 {
	state := uint32(1)
	draw := func() int {
		state = state*1664525 + 1013904223
		return int(state >> 16)
	}
	x, scale := make([]float32, blocks*256), float32(0)
	for i := range x {
		if i%64 == 0 {
			scale = float32(math.Exp2(float64(draw()%12 - 18)))
		}
		x[i] = float32(draw()+draw()+draw()+draw()-2*65536) * scale / 64
	}
	for i := range 256 {
		at := func(block int) *float32 { return &x[256*block+i] }
		*at(1), *at(5), *at(9) = 0, 0.25, -3
		*at(2) = float32(math.Abs(float64(*at(2))))
		*at(3) = -float32(math.Abs(float64(*at(3))))
		*at(8) *= float32(math.Exp2(-60))
		if *at(10) = float32(i%32)/2 - 8; i%32 == 0 {
			*at(10) = 127
		}
		if i > 0 {
			*at(4) = 0
		}
		if i%7 == 0 {
			*at(6) *= 1000
		}
		if i >= 32 {
			*at(7) = 0
		}
	}
	return x
}

// TestEncode: blocks are those that ggml makes, bit for bit, and stand for about the numbers that they were made of.
func TestEncode(t *testing.T) {
	var recorded struct {
		Numbers string
		Blocks  map[string][]string
	}
	text, err := os.ReadFile("testdata/encode.json")
	if err == nil {
		err = json.Unmarshal(text, &recorded)
	}
	if err != nil {
		t.Fatal(err)
	}
	const blocks = 48
	x := toEncode(blocks)
	var raw []byte
	for _, v := range x {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != recorded.Numbers {
		t.Fatal("the numbers are not those that were recorded")
	}
	worst := map[string]float64{"Q4_0": 0.12, "Q4_1": 0.1, "Q5_0": 0.06, "Q8_0": 0.01, "Q4_K": 0.1, "Q6_K": 0.025}
	for _, e := range encoded.All() {
		if !e.Encodes() {
			continue
		}
		want := recorded.Blocks[e.Name]
		if len(want) != blocks {
			t.Fatalf("%s was recorded with %d blocks", e.Name, len(want))
		}
		size, _ := e.BlockBytes(len(x))
		out, back := make([]byte, size), make([]float32, len(x))
		for i := range out {
			out[i] = 0xA5
		}
		if n := e.Encode(out, x); n != len(x) {
			t.Fatalf("%s: no scale for block %d", e.Name, n/256)
		}
		for i := range blocks {
			sum := sha256.Sum256(out[i*size/blocks:][:size/blocks])
			if hex.EncodeToString(sum[:8]) != want[i] {
				t.Errorf("%s: other bits than ggml's in block %d", e.Name, i)
			}
		}
		e.Decode(back, out)
		var lost, all float64
		for i := range x[:256] {
			d := float64(back[i] - x[i])
			lost, all = lost+d*d, all+float64(x[i])*float64(x[i])
		}
		if r := math.Sqrt(lost / all); r > worst[e.Name] {
			t.Errorf("%s is off by %.3f", e.Name, r)
		}
	}
	if len(recorded.Blocks) != len(worst) {
		t.Errorf("%d encodings were recorded", len(recorded.Blocks))
	}
}

// TestEncodeFar: numbers for whose scale float16 has no room are told, and so are numbers next to nothing made blocks
// of nothing.
func TestEncodeFar(t *testing.T) {
	for _, e := range encoded.All() {
		if !e.Encodes() {
			continue
		}
		x := make([]float32, 3*e.Elements)
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		out := make([]byte, 3*e.Bytes)
		for _, far := range []float32{3e38, 1e9, -1e9} {
			x[2*e.Elements+3] = far
			if n := e.Encode(out, x); int64(n) != 2*e.Elements {
				t.Errorf("%s: %d numbers were encoded before %g", e.Name, n, far)
			}
		}
		for _, tiny := range []float32{1e-45, 1e-40, -1e-39, 1e-30} {
			for i := range x {
				x[i] = tiny * float32(i%5)
			}
			back := make([]float32, len(x))
			if n := e.Encode(out, x); n != len(x) {
				t.Errorf("%s: of %g %d numbers were encoded", e.Name, tiny, n)
			}
			e.Decode(back, out)
			for i, v := range back {
				if d := math.Abs(float64(v - x[i])); !(d < 1e-6) {
					t.Fatalf("%s: %g comes back as %g", e.Name, x[i], v)
				}
			}
		}
	}
}
