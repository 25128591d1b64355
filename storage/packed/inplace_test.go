package packed

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/storage"
)

// readInPlace reads n bytes as whoever has only the memory for them does; false where that is not enough.
func readInPlace(ctx context.Context, s *Source, off, n int64) ([]byte, bool, error) {
	p, parts := storage.AlignedBytes(n), []storage.Part{{Offset: off, Bytes: n}}
	stored, at, ok := s.InPlace(p, parts)
	if !ok {
		return nil, false, nil
	}
	for i := range p {
		p[i] = 0xA5
	}
	r := storage.Request{Extent: stored, Into: p[at:][:stored.Bytes]}
	if (stored.Offset|stored.Bytes|at)%storage.AlignBytes != 0 {
		return nil, true, errors.New("the read is not aligned")
	}
	if err := storage.Read(ctx, 1, r); err != nil {
		return nil, true, err
	}
	err := s.Decode(ctx, p, parts)
	return p[:min(n, s.Size()-off)], true, err
}

// TestInPlace: blocks that were read into the memory that what they stand for is to fill become that, wherever a read
// begins and ends, in each way of writing and of decoding; reads of some size can be made so where blocks become less,
// and none where they do not.
func TestInPlace(t *testing.T) {
	const block, page = DefaultBlockBytes, storage.AlignBytes
	kernels(t, func(t *testing.T) {
		random := make([]byte, 20*block)
		rng := rand.New(rand.NewPCG(7, 8))
		for i := range random {
			random[i] = byte(rng.Uint32())
		}
		for name, c := range map[string]struct {
			data  []byte
			least int64 // reads of so many bytes that end with a block fit, 0 for none
		}{
			"bfloat16": {normal(1, 20*block+3000, asBFloat16), 4 * block}, "rounded": {normal(2, 20*block+3000, asRounded), 2 * block},
			"float16": {normal(3, 20*block+3000, asFloat16), 8 * block}, "float32": {normal(4, 20*block+3000, asFloat32), 8 * block},
			"as it is": {random, 0},
			"mixed":    {append(normal(5, 10*block, asRounded), random...), 0},
		} {
			file, _ := packIt(t, c.data, 2)
			s := openIt(t, file)
			size := int64(len(c.data))
			fitted := 0
			for range 300 {
				first := rng.Int64N(size/page + 1)
				off, n := first*page, (1+rng.Int64N(min(9*block/page, (size+page-1)/page-first+1)))*page
				if off >= size || off+n >= size+page {
					continue
				}
				if rng.IntN(2) == 0 { // as reads of a pass do
					off, n = off/block*block, (n+block-1)/block*block
					n = min(n, (size-off+page-1)/page*page)
				}
				p, ok, err := readInPlace(t.Context(), s, off, n)
				if err != nil || ok && !bytes.Equal(p, c.data[off:][:len(p)]) {
					t.Fatalf("%s: %d bytes at %d: %v, or other bytes", name, n, off, err)
				}
				if ok {
					fitted++
				}
				if c.least > 0 && !ok && n >= c.least && off%block == 0 && (off+n)%block == 0 {
					t.Errorf("%s: %d bytes at %d do not fit", name, n, off)
				}
			}
			if fits := fitted > 0; fits != (name != "as it is") {
				t.Errorf("%s: %d reads fit", name, fitted)
			}
		}
	})
}

// TestNotInPlace: what does not come back is told as for other reads, and so is a context that is done; blocks that stay
// are not read in place.
func TestNotInPlace(t *testing.T) {
	const block = DefaultBlockBytes
	data := normal(6, 8*block, asBFloat16)
	file, _ := packIt(t, data, 1)
	s := openIt(t, file)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := storage.AlignedBytes(8 * block)
	parts := []storage.Part{{Bytes: 8 * block}}
	stored, at, ok := s.InPlace(p, parts)
	if !ok {
		t.Fatal("it does not fit")
	}
	copy(p[at:], file[stored.Offset:])
	if err := s.Decode(ctx, p, parts); !errors.Is(err, context.Canceled) {
		t.Errorf("decoded although nobody wants it: %v", err)
	}
	for i := range s.sums {
		bad := bytes.Clone(file)
		bad[s.at[i]+50] ^= 4
		_, _, err := readInPlace(t.Context(), openIt(t, bad), 0, 8*block)
		var at *CorruptError
		if !errors.As(err, &at) || at.Offset != int64(i)*block || at.Bytes != block {
			t.Errorf("block %d: %v", i, err)
		}
	}
	if err := s.Decode(t.Context(), p[:storage.AlignBytes], parts); err == nil {
		t.Error("decoded what does not fit")
	}
	kept := make([]byte, s.StoredBytes(0, 8*block))
	if err := s.ReadStored(t.Context(), kept, 0, 8*block); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := s.Kept(kept, 0, 8*block).(storage.InPlaceSource).InPlace(p, parts); ok {
		t.Error("blocks that stay are to be read")
	}
	if _, _, ok := s.InPlace(p, []storage.Part{{Offset: -4096, Bytes: 8 * block}}); ok {
		t.Error("what is before the first byte is to be read")
	}
	if len(buffers) != cap(buffers) {
		t.Errorf("%d buffers are in use", cap(buffers)-len(buffers))
	}
}
