package packed

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/storage"
)

// TestForgedBlocks: blocks whose parts do not belong together are refused, with vectors and without.
func TestForgedBlocks(t *testing.T) {
	kernels(t, func(t *testing.T) {
		for _, method := range []int{kindBF16, kindF16, kindF32} {
			// Three exponents, of which two are there once: they are written elsewhere.
			whole := make([]byte, 2048)
			at := upper(method) + 1
			for i := at; i < len(whole); i += width(method) {
				whole[i] = 0x3C
			}
			whole[at+8*width(method)], whole[at+90*width(method)] = 0x44, 0x48
			all := countAll(whole)
			pick := all[method].choose()
			stored := pick.write(nil, whole, &all[method])
			if pick.elsewhere != 2 {
				t.Fatalf("method %d: %d exponents elsewhere", method, pick.elsewhere)
			}
			back, halves := make([]byte, len(whole)), make([]byte, len(whole)/2)
			if err := decode(back, stored, halves); err != nil || !bytes.Equal(back, whole) {
				t.Fatalf("method %d: %v", method, err)
			}
			// Exponents that are elsewhere are the last part, as no lower byte is there.
			set := func(n int, block []byte) []byte {
				binary.LittleEndian.PutUint32(block[4:], uint32(n))
				return block
			}
			for name, bad := range map[string][]byte{
				"one more elsewhere than codes name":  set(3, append(bytes.Clone(stored), 0x3C)),
				"one less elsewhere than codes name":  set(1, bytes.Clone(stored)[:len(stored)-1]),
				"none elsewhere, though codes name 2": set(1<<31, bytes.Clone(stored)),
				"a byte behind it":                    append(bytes.Clone(stored), 0),
				"a byte missing":                      stored[:len(stored)-1],
			} {
				var corrupt *CorruptError
				if err := decode(back, bad, halves); !errors.As(err, &corrupt) {
					t.Errorf("method %d, %s: %v", method, name, err)
				}
			}
			if method != kindF16 {
				continue
			}
			for _, at := range []int{8, len(stored) - 1} { // what a code stands for, and what is elsewhere
				for _, bit := range []byte{1, 2, 0x80} {
					bad := bytes.Clone(stored)
					bad[at] |= bit
					var corrupt *CorruptError
					if err := decode(back, bad, halves); !errors.As(err, &corrupt) {
						t.Errorf("an exponent with bit %#x: %v", bit, err)
					}
				}
			}
		}
	})
}

// TestTurnedOver: what is written as it is has each byte turned over, to the last one.
func TestTurnedOver(t *testing.T) {
	p := []byte("PK\x05\x06 what ends like another format")
	for n := range len(p) + 1 {
		stored, method := encode(nil, p[:n])
		if method != asIs || len(stored) != n+1 {
			t.Fatalf("%d bytes are written as %d in %d", n, method, len(stored))
		}
		for i, c := range p[:n] {
			if stored[1+i] != ^c {
				t.Errorf("of %d bytes, byte %d is written as %#x", n, i, stored[1+i])
			}
		}
	}
}

// asIsFile is a file of bytes as they are, in blocks of a size.
func asIsFile(data []byte, block int) []byte {
	le := binary.LittleEndian
	file := append(make([]byte, 0, len(data)+1000), Magic...)
	file = le.AppendUint32(file, 1)
	file = le.AppendUint32(file, uint32(block))
	file = le.AppendUint64(file, uint64(len(data)))
	file = le.AppendUint64(file, 0)
	var blocks []byte
	for len(data) > 0 {
		n := min(block, len(data))
		file = le.AppendUint64(file, uint64(n+1))
		blocks = append(blocks, asIs)
		for _, c := range data[:n] {
			blocks = append(blocks, ^c)
		}
		data = data[n:]
	}
	file = append(file, blocks...)
	seal(file)
	return file
}

// TestBlockSizes: files with blocks of any size that is known are read one after the other, in parts too, and another
// version is none.
func TestBlockSizes(t *testing.T) {
	fresh := func() { // the tests beside this one want room for no more than their own blocks
		for range cap(buffers) {
			<-buffers
			buffers <- nil
		}
	}
	fresh()
	defer fresh()
	rng := rand.New(rand.NewPCG(3, 4))
	data := make([]byte, mostBlockBytes+5000)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	var file []byte
	for _, block := range []int{leastBlockBytes, mostBlockBytes, DefaultBlockBytes} {
		file = asIsFile(data, block)
		s := openIt(t, file)
		for i := range 2 * storage.DefaultInFlight { // each buffer is one that the files before had
			p := make([]byte, 3000)
			if off := 5 + 701*i; s.ReadAt(t.Context(), p, int64(off)) != nil || !bytes.Equal(p, data[off:][:len(p)]) {
				t.Fatalf("blocks of %d: other bytes at %d", block, off)
			}
		}
	}
	for _, v := range []uint32{0, version + 1} {
		binary.LittleEndian.PutUint32(file[8:], v)
		if _, err := Open(t.Context(), &memory{file}, nil); !errors.Is(err, ErrVersion) {
			t.Errorf("version %d: %v", v, err)
		}
	}
}

// watched is a file of which the host holds the half, and which may change.
type watched struct {
	memory
	changed error
}

func (w *watched) CachedBytes(_, n int64) (int64, bool) { return n / 2, true }
func (w *watched) Unchanged() error                     { return w.changed }

// TestWhatTheFileSays: of the host's memory a packed file says the share of its own bytes, and it has changed where its
// file has.
func TestWhatTheFileSays(t *testing.T) {
	file, _ := packIt(t, normal(5, 2*DefaultBlockBytes, asBFloat16), 1)
	raw := &watched{memory: memory{file}}
	s, err := Open(t.Context(), raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	const n = DefaultBlockBytes
	if got, ok := s.CachedBytes(0, n); !ok || got < n/2-1 || got > n/2 {
		t.Errorf("of %d bytes the host holds %d, %v", n, got, ok)
	}
	if _, ok := openIt(t, file).CachedBytes(0, n); ok {
		t.Error("a file that does not know says what the host holds")
	}
	if err := s.Unchanged(); err != nil {
		t.Error(err)
	}
	if raw.changed = storage.ErrChanged; !errors.Is(s.Unchanged(), storage.ErrChanged) {
		t.Error("a file that changed counts as unchanged")
	}
}

// TestStatsAdd: progress comes to the bytes of the original, each kind's bytes to all, and sums of files to those of
// both.
func TestStatsAdd(t *testing.T) {
	data := append(normal(6, 2*DefaultBlockBytes, asBFloat16), "as it is"...)
	var file memory
	done := int64(0)
	one, err := Write(context.Background(), &memory{data}, &file, Options{Threads: 2, Progress: func(n int64) { done += n }})
	if err != nil || done != int64(len(data)) {
		t.Errorf("%d of %d bytes are done: %v", done, len(data), err)
	}
	_, two := packIt(t, data, 1)
	two.Add(one)
	two.Add(Stats{Float16Bytes: 3, Float32Bytes: 4})
	want := Stats{
		Bytes: 2 * one.Bytes, PackedBytes: 2 * one.PackedBytes, BFloat16Bytes: 2 * one.BFloat16Bytes, AsIsBytes: 2 * one.AsIsBytes,
		Float16Bytes: 3, Float32Bytes: 4,
	}
	if two != want || one.BFloat16Bytes != 2*DefaultBlockBytes || one.AsIsBytes != 8 {
		t.Errorf("%+v, want %+v", two, want)
	}
}
