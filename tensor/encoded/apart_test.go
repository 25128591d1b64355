package encoded

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/storage"
)

type bytesInMemory []byte

func (b bytesInMemory) Size() int64 { return int64(len(b)) }

func (b bytesInMemory) ReadAt(_ context.Context, p []byte, off int64) error {
	copy(p, b[off:])
	return nil
}

func extentOf(b []byte) storage.Extent {
	return storage.Extent{Source: bytesInMemory(b), Bytes: int64(len(b))}
}

// TestApart: what transformers.integrations.mxfp4.convert_moe_packed_tensors makes of
// blocks = (arange(32) * 37 + 11).reshape(1, 2, 16) and scales = [[126, 129]], both uint8.
func TestApart(t *testing.T) {
	codes := make([]byte, 32)
	for i := range codes {
		codes[i] = byte(i*37 + 11)
	}
	raw, err := Apart(extentOf(codes), extentOf([]byte{126, 129}))
	if err != nil {
		t.Fatal(err)
	}
	e, _ := ByName("MXFP4")
	source, at := New(raw, []Run{{Encoding: e, Rows: 1, RowElements: 64}})
	data := make([]byte, 256)
	if err := source.ReadAt(t.Context(), data, at[0]); err != nil {
		t.Fatal(err)
	}
	want := []float32{
		-0.75, 0, 0, 0.75, 1.5, 1.5, -0.5, 3, -3, -0.25, 1, -1, -0.25, -2, -2, 0,
		0.75, 0.75, 0, 1.5, -1.5, 3, 0.5, -0.5, 3, -1, -1, -2, 0.25, 0.25, 2, 0.75,
		-6, 12, 0, 0, 12, -4, -4, -8, -24, -16, 8, 2, -2, 6, -16, 12,
		6, 0, 0, -4, -12, -8, 4, -24, 24, 2, -8, 6, 2, 16, 16, 0,
	}
	for i, x := range want {
		if got := math.Float32frombits(binary.NativeEndian.Uint32(data[4*i:])); got != x {
			t.Errorf("number %d is %v, want %v", i, got, x)
		}
	}
}

// TestApartInParts: any part of the blocks is that part of all of them.
func TestApartInParts(t *testing.T) {
	const blocks = apartBlocks + 100
	rng := rand.New(rand.NewPCG(1, 2))
	codes, scales := make([]byte, 16*blocks), make([]byte, blocks)
	for _, b := range [][]byte{codes, scales} {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	}
	raw, err := Apart(extentOf(codes), extentOf(scales))
	if err != nil {
		t.Fatal(err)
	}
	all := make([]byte, raw.Size())
	if err := raw.ReadAt(t.Context(), all, 0); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		from := rng.IntN(len(all))
		part := make([]byte, 1+rng.IntN(min(200, len(all)-from)))
		if err := raw.ReadAt(t.Context(), part, int64(from)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(part, all[from:][:len(part)]) {
			t.Fatalf("%d bytes at %d are others", len(part), from)
		}
	}
	for _, c := range [][2]int64{{-1, 1}, {raw.Size(), 1}, {0, raw.Size() + 1}} {
		if raw.ReadAt(t.Context(), make([]byte, c[1]), c[0]) == nil {
			t.Errorf("%d bytes at %d: no error", c[1], c[0])
		}
	}
	for _, c := range [][2]int{{16, 2}, {15, 1}, {0, 0}, {32, 1}} {
		if _, err := Apart(extentOf(codes[:c[0]]), extentOf(scales[:c[1]])); err == nil {
			t.Errorf("codes of %d bytes with scales of %d: no error", c[0], c[1])
		}
	}
}
