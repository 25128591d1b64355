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

// recorded is what Python's package gguf makes of blocks; testdata/make.py wrote it.
type recorded struct {
	Blocks    int64
	Encodings map[string]struct {
		ID              uint32
		Elements, Bytes int64
		Scales          []int64
		First           []float32
		SHA256          string
	}
	Sizes map[string][3]int64
}

func readRecorded(t *testing.T) recorded {
	t.Helper()
	var all recorded
	text, err := os.ReadFile("testdata/blocks.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// pseudoRandom are the blocks of testdata/make.py.
func pseudoRandom(id uint32, blocks, size int64, scales []int64) []byte {
	state, data := id, make([]byte, blocks*size)
	for i := range data {
		state = state*1664525 + 1013904223
		data[i] = byte(state >> 24)
	}
	for b := range blocks {
		for _, s := range scales {
			data[b*size+s+1] &= 0xBF
		}
	}
	if id == mxfp4 && blocks > 2 {
		data[0], data[size], data[2*size] = 0, 1, 2
	}
	return data
}

const mxfp4 = 39

// TestNumbersAreThoseOfGGUF: every encoding that is read gives the bits that Python's package gguf computes.
func TestNumbersAreThoseOfGGUF(t *testing.T) {
	all := readRecorded(t)
	for name, want := range all.Encodings {
		e, ok := encoded.ByID(want.ID)
		if !ok || e.Name != name || !e.Readable() {
			t.Errorf("%s: %+v", name, e)
			continue
		}
		numbers := make([]float32, all.Blocks*e.Elements)
		e.Decode(numbers, pseudoRandom(e.ID, all.Blocks, e.Bytes, want.Scales))
		bits := make([]byte, 0, 4*len(numbers))
		for _, x := range numbers {
			bits = binary.LittleEndian.AppendUint32(bits, math.Float32bits(x))
		}
		if sum := sha256.Sum256(bits); hex.EncodeToString(sum[:]) != want.SHA256 {
			t.Errorf("%s begins %v, want %v", name, numbers[:4], want.First)
		}
	}
	for _, e := range encoded.All() {
		if _, ok := all.Encodings[e.Name]; e.Readable() && e.Elements > 1 && !ok {
			t.Errorf("%s is read, and nothing is recorded of it", e.Name)
		}
	}
}

// TestSizesAreThoseOfGGUF: names and sizes of all encodings are ggml's.
func TestSizesAreThoseOfGGUF(t *testing.T) {
	known := 0
	for name, want := range readRecorded(t).Sizes {
		e, ok := encoded.ByID(uint32(want[0]))
		if !ok {
			t.Errorf("%s is not known", name)
			continue
		}
		known++
		if e.Name != name || e.Elements != want[1] || e.Bytes != want[2] {
			t.Errorf("%s: %s of %d numbers in %d bytes, want %d in %d", name, e.Name, e.Elements, e.Bytes, want[1], want[2])
		}
	}
	if known != len(encoded.All()) {
		t.Errorf("%d encodings are known, and %d recorded", len(encoded.All()), known)
	}
}
