package packed

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/storage"
)

// TestChecksAsItDecodes: of blocks with a few bits or bytes turned, checking accepts those that decode, and no others.
func TestChecksAsItDecodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, write := range []func([]byte, float32) []byte{asFloat32, asBFloat16, asRounded} {
		for _, n := range []int{100, 4096, 5001} {
			whole := normal(uint64(n), n, write)
			stored, method := encode(nil, whole)
			accepted := 0
			for try := range 300 {
				bad := bytes.Clone(stored)
				if try > 0 {
					at := rng.IntN(len(bad))
					if try%2 == 0 { // where most matters
						at = rng.IntN(min(len(bad), blockHead+64))
					}
					bad[at] ^= 1 << rng.IntN(8)
				}
				if try%5 == 4 {
					bad = bad[:len(bad)-1]
				}
				back, halves := make([]byte, n), make([]byte, n/2)
				want, got := decode(back, bad, halves), decodes(bad, n)
				if (want == nil) != (got == nil) {
					t.Fatalf("method %d of %d bytes, try %d: decoding says %v, checking %v", method, n, try, want, got)
				}
				if got == nil {
					accepted++
				}
			}
			if accepted == 0 || accepted == 300 {
				t.Errorf("method %d of %d bytes: %d of 300 were accepted", method, n, accepted)
			}
		}
	}
}

// TestCheckBlock: blocks are found where the source says that they are, and checked against their own checksums.
func TestCheckBlock(t *testing.T) {
	whole := normal(3, 400<<10, asBFloat16)
	runs := []Run{{Offset: 200 << 10, Bytes: 200 << 10}, {Offset: 0, Bytes: 200 << 10}}
	var file memory
	if _, err := Write(t.Context(), &memory{whole}, &file, Options{Runs: runs}); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), &file, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Explain = func(e *CorruptError) error { return errors.Join(errors.New("named"), e) }
	at := int64(1000)
	var before storage.Block
	for b := range s.Blocks(at, int64(len(whole))-at) {
		stored := bytes.Clone(file.data[b.At:][:b.Stored])
		if err := s.CheckBlock(b, stored); err != nil {
			t.Error(err)
		}
		if before.Stored > 0 && s.CheckBlock(before, stored) == nil {
			t.Error("a block is taken for another")
		}
		stored[len(stored)/2] ^= 4
		var bad *CorruptError
		if err := s.CheckBlock(b, stored); !errors.As(err, &bad) || bad.Offset != b.Offset || bad.Bytes != b.Bytes {
			t.Errorf("of a damaged block: %v", err)
		}
		if b.Offset > at || b.Offset+b.Bytes <= at {
			t.Fatalf("bytes from %d on are not in the block of %d to %d", at, b.Offset, b.Offset+b.Bytes)
		}
		at, before = b.Offset+b.Bytes, b
	}
	if at != int64(len(whole)) || s.File() != storage.Source(&file) {
		t.Errorf("blocks end at %d of %d", at, len(whole))
	}
}
