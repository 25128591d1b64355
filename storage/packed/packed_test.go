package packed

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/storage"
)

// memory is a source, and a file to write to.
type memory struct{ data []byte }

func (m *memory) Size() int64 { return int64(len(m.data)) }

func (m *memory) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(m.data)) || copy(p, m.data[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return ctx.Err()
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(m.data) {
		m.data = append(m.data, make([]byte, need-len(m.data))...)
	}
	return copy(m.data[off:], p), nil
}

// normal returns n bytes of numbers as models have them: of each row its own spread.
func normal(seed uint64, n int, write func(b []byte, x float32) []byte) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	var b []byte
	for scale := 0.02; len(b) < n; scale = 0.01 + 0.04*rng.Float64() {
		for i := 0; i < 4096 && len(b) < n; i++ {
			b = write(b, float32(rng.NormFloat64()*scale))
		}
	}
	return b[:n]
}

func asFloat32(b []byte, x float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
}

func asBFloat16(b []byte, x float32) []byte {
	bits := math.Float32bits(x)
	return binary.LittleEndian.AppendUint16(b, uint16((bits+0x7FFF+bits>>16&1)>>16))
}

func asRounded(b []byte, x float32) []byte {
	bits := math.Float32bits(x)
	return binary.LittleEndian.AppendUint32(b, (bits+0x7FFF+bits>>16&1)&^0xFFFF)
}

// asFloat16 is right for numbers that float16 has no special form for.
func asFloat16(b []byte, x float32) []byte {
	bits := math.Float32bits(x)
	e := int(bits>>23&0xFF) - 127 + 15
	if e <= 0 {
		return binary.LittleEndian.AppendUint16(b, uint16(bits>>16&0x8000)|uint16(bits&0x3FF))
	}
	return binary.LittleEndian.AppendUint16(b, uint16(bits>>16&0x8000)|uint16(e)<<10|uint16(bits>>13&0x3FF))
}

func packIt(t testing.TB, data []byte, threads int) ([]byte, Stats) {
	t.Helper()
	var file memory
	stats, err := Write(context.Background(), &memory{data}, &file, Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	if stats.PackedBytes != int64(len(file.data)) || stats.Bytes != int64(len(data)) {
		t.Fatalf("%+v of %d bytes in %d", stats, len(data), len(file.data))
	}
	return file.data, stats
}

func openIt(t testing.TB, file []byte) *Source {
	t.Helper()
	s, err := Open(context.Background(), &memory{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// levels calls a function for each way to decode that the processor has, the best first.
func levels(do func(name string)) {
	best := level
	defer func() { level = best }()
	for level = best; level >= inGo; level-- {
		do([]string{"plain", "vectors", "expand"}[level])
	}
}

// kernels runs a test with each way to decode.
func kernels(t *testing.T, test func(t *testing.T)) {
	levels(func(name string) { t.Run(name, test) })
}

// TestRatios: every bit comes back, and numbers take what they are promised to take.
func TestRatios(t *testing.T) {
	random := make([]byte, 1<<20+77)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	kernels(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			data []byte
			most float64
			kind func(Stats) int64
		}{
			{"bfloat16", normal(1, 1<<18, asBFloat16), 0.715, func(s Stats) int64 { return s.BFloat16Bytes }},
			{"float16", normal(2, 1<<18, asFloat16), 0.90, func(s Stats) int64 { return s.Float16Bytes }},
			{"float32", normal(3, 1<<18, asFloat32), 0.86, func(s Stats) int64 { return s.Float32Bytes }},
			{"float32 that was bfloat16", normal(4, 1<<18, asRounded), 0.36, func(s Stats) int64 { return s.Float32Bytes }},
			{"zeros", make([]byte, 1<<20), 0.51, nil},
			{"random", random, 1.001, func(s Stats) int64 { return s.AsIsBytes }},
			{"a tail", normal(5, 1<<18+255, asBFloat16), 0.71, nil},
			{"a few bytes", random[:5], 13, nil},
			{"nothing", nil, 0, nil},
		} {
			file, stats := packIt(t, c.data, 2)
			if ratio := float64(len(file)) / max(float64(len(c.data)), 1); ratio > c.most && len(c.data) > 0 {
				t.Errorf("%s: %d bytes in %d", c.name, len(c.data), len(file))
			}
			if c.kind != nil && c.kind(stats) != int64(len(c.data)) {
				t.Errorf("%s: %+v", c.name, stats)
			}
			s := openIt(t, file)
			back := make([]byte, s.Size())
			if err := s.ReadAt(t.Context(), back, 0); err != nil || !bytes.Equal(back, c.data) {
				t.Errorf("%s: other bytes came back, %v", c.name, err)
			}
			if err := s.Verify(t.Context()); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	})
}

// drawn are bytes whose exponents are of n kinds, some of them rare.
func drawn(rng *rand.Rand, n, size int) []byte {
	exponents := make([]uint16, n)
	for i := range exponents {
		exponents[i] = uint16(rng.Uint32())
	}
	b := make([]byte, 0, size+4)
	for len(b) < size {
		e := exponents[min(int(math.Abs(rng.NormFloat64()*float64(n)/3)), n-1)]
		if rng.IntN(2) == 0 {
			b = binary.LittleEndian.AppendUint16(b, e&0x7F80|uint16(rng.Uint32())&0x807F)
		} else {
			b = binary.LittleEndian.AppendUint16(b, e&0x7C00|uint16(rng.Uint32())&0x83FF)
		}
	}
	return b[:size]
}

// TestBlocks: blocks of every method, length of codes and number of exponents elsewhere come back, with vectors and
// without.
func TestBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	seen := make(map[[3]int]bool)
	for n := range 400 {
		kinds := 1 + n%20
		size := 256*(1+rng.IntN(9)) + []int{0, 0, 1, 255, 128}[n%5]
		p := drawn(rng, kinds, size)
		if n%3 == 0 { // words of one kind alone
			for i := 0; i+1 < len(p); i += 2 {
				p[i+1] = p[i+1]&0x80 | byte(0x30+rng.IntN(kinds)/2)
			}
		}
		stored, _ := encode(nil, p)
		written := make([][]byte, 0, 4)
		written = append(written, stored)
		for m := kindBF16; m < methods; m++ { // also what is not the least
			whole := p[:len(p)&^(wholeBytes-1)]
			all := countAll(whole)
			pick := all[m].choose()
			written = append(written, append(pick.write(nil, whole, &all[m]), p[len(whole):]...))
			seen[[3]int{m, pick.bits, min(pick.elsewhere, 1)}] = true
		}
		for _, stored := range written {
			levels(func(name string) {
				back := bytes.Repeat([]byte{0xA5}, size)
				if err := decode(back, stored, make([]byte, size/2)); err != nil || !bytes.Equal(back, p) {
					t.Fatalf("draw %d, method %d of %d bits, %s: %v", n, stored[0], stored[1], name, err)
				}
			})
		}
	}
	for m := kindBF16; m < methods; m++ {
		for bits := 1; bits <= mostBits; bits++ {
			if !seen[[3]int{m, bits, 0}] && !seen[[3]int{m, bits, 1}] {
				t.Errorf("no block of method %d has codes of %d bits", m, bits)
			}
		}
		if !seen[[3]int{m, mostBits, 1}] && !seen[[3]int{m, mostBits - 1, 1}] {
			t.Errorf("no block of method %d has exponents elsewhere", m)
		}
	}
}

// TestParts: any part of the bytes, read by several at once, is that part of all of them.
func TestParts(t *testing.T) {
	data := slices.Concat(normal(7, 300_001, asBFloat16), normal(8, 200_000, asFloat32), normal(9, 99_999, asFloat16))
	file, _ := packIt(t, data, 3)
	s := openIt(t, file)
	var group sync.WaitGroup
	for k := range 8 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), 9))
			for range 60 {
				off := rng.IntN(len(data) + 1)
				p := make([]byte, rng.IntN(min(len(data)-off, 300_000)+1))
				if err := s.ReadAt(t.Context(), p, int64(off)); err != nil || !bytes.Equal(p, data[off:][:len(p)]) {
					t.Errorf("%d bytes at %d: %v", len(p), off, err)
					return
				}
			}
		})
	}
	group.Wait()
	end := storage.AlignedBytes(2 * storage.AlignBytes)
	off := int64(len(data)) / storage.AlignBytes * storage.AlignBytes
	if err := s.ReadBulk(t.Context(), end, off); err != nil || !bytes.Equal(end[:int64(len(data))-off], data[off:]) {
		t.Errorf("a read past the end: %v", err)
	}
	for _, c := range [][2]int64{{-1, 1}, {s.Size(), 1}, {0, s.Size() + 1}} {
		if s.ReadAt(t.Context(), make([]byte, c[1]), c[0]) == nil {
			t.Errorf("%d bytes at %d: no error", c[1], c[0])
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.ReadAt(cancelled, make([]byte, 10), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled read: %v", err)
	}
}

// TestKept: blocks that stay in memory give the bytes that they have, and no others; nothing is read of the file, or
// noticed of it. What is damaged is told before.
func TestKept(t *testing.T) {
	data := slices.Concat(normal(7, 300_000, asBFloat16), normal(8, 200_000, asFloat32), normal(9, 99_999, asFloat16))
	file, _ := packIt(t, data, 3)
	s := openIt(t, file)
	rng := rand.New(rand.NewPCG(4, 9))
	for range 100 {
		off := rng.Int64N(int64(len(data)))
		n := rng.Int64N(int64(len(data))-off) + 1
		p := make([]byte, s.StoredBytes(off, n))
		if err := s.ReadStored(t.Context(), p, off, n); err != nil {
			t.Fatal(err)
		}
		kept := s.Kept(p, off, n)
		s.raw = nil // nobody may ask it
		first := off + rng.Int64N(n)
		part := make([]byte, rng.Int64N(off+n-first)+1)
		if err := kept.ReadAt(t.Context(), part, first); err != nil || !bytes.Equal(part, data[first:][:len(part)]) {
			t.Fatalf("%d bytes at %d of %d at %d: %v", len(part), first, n, off, err)
		}
		if kept.StoredBytes(off, n) != 0 || kept.Size() != int64(len(data)) || kept.(storage.Guarded).Unchanged() != nil {
			t.Error("what stays is said to be read")
		}
		if at := off - DefaultBlockBytes; at >= 0 && kept.ReadAt(t.Context(), part[:1], at) == nil {
			t.Errorf("a byte at %d, which does not stay", at)
		}
		if at := off + n + DefaultBlockBytes; at < int64(len(data)) && kept.ReadAt(t.Context(), part[:1], at) == nil {
			t.Errorf("a byte at %d, which does not stay", at)
		}
		s.raw = &memory{file}
	}
	if s.ReadStored(t.Context(), make([]byte, 5), 0, 1000) == nil {
		t.Error("blocks were read to where there is no room")
	}
	file[len(file)-3] ^= 1
	p := make([]byte, s.StoredBytes(0, s.Size()))
	var bad *CorruptError
	if err := s.ReadStored(t.Context(), p, 0, s.Size()); !errors.As(err, &bad) || bad.Offset+bad.Bytes != s.Size() {
		t.Errorf("got %v, want the last block", err)
	}
}

// TestBegun: of what an earlier Write left, the blocks that come back are not written again, up to the first that does
// not.
func TestBegun(t *testing.T) {
	const blocks = 9
	data := normal(3, blocks*DefaultBlockBytes-500, asBFloat16)
	want, stats := packIt(t, data, 1)
	s := openIt(t, want)
	for good := range blocks + 1 {
		begun := bytes.Clone(want)
		clear(begun[:headBytes]) // the head comes last
		if good < blocks {
			begun[s.at[good]+100] ^= 1
		}
		file := &written{memory: memory{begun}}
		got, err := Write(t.Context(), &memory{data}, file, Options{Threads: 2, Begun: bytes.NewReader(bytes.Clone(begun))})
		if err != nil || got != stats || !bytes.Equal(file.data, want) {
			t.Fatalf("%d blocks are good: %v, %+v, want %+v", good, err, got, stats)
		}
		if least := s.at[blocks] - s.at[good]; file.bytes < least || file.bytes > least+headBytes+runBytes+2*blocks*entryBytes {
			t.Errorf("%d blocks are good: %d bytes are written, %d are missing", good, file.bytes, least)
		}
	}
	other := bytes.Clone(data)
	other[5*DefaultBlockBytes+7] ^= 1
	fresh, _ := packIt(t, other, 1)
	file := &memory{bytes.Clone(want)}
	if _, err := Write(t.Context(), &memory{other}, file, Options{Begun: bytes.NewReader(want)}); err != nil || !bytes.Equal(file.data, fresh) {
		t.Errorf("what is left is of another file: %v", err)
	}
	for _, n := range []int{0, 10, headBytes + 3, headBytes + runBytes + blocks*entryBytes, len(want) / 2} {
		file := &memory{bytes.Clone(want[:n])}
		if _, err := Write(t.Context(), &memory{data}, file, Options{Begun: bytes.NewReader(want[:n])}); err != nil || !bytes.Equal(file.data, want) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
}

// A written memory counts what is written.
type written struct {
	memory
	bytes int64
}

func (w *written) WriteAt(p []byte, off int64) (int, error) {
	w.bytes += int64(len(p))
	return w.memory.WriteAt(p, off)
}

// TestSameFile: the file does not depend on the number of threads, and what reads take of it adds up to it.
func TestSameFile(t *testing.T) {
	data := normal(11, 3*DefaultBlockBytes+1000, asBFloat16)
	one, _ := packIt(t, data, 1)
	five, _ := packIt(t, data, 5)
	if !bytes.Equal(one, five) {
		t.Error("another number of threads writes another file")
	}
	s := openIt(t, one)
	blocks := int64(4)
	if got, want := s.StoredBytes(0, s.Size()), int64(len(one))-headBytes-runBytes-blocks*entryBytes; got != want {
		t.Errorf("all bytes take %d of the file, not %d", got, want)
	}
	sum := int64(0)
	for i := range blocks {
		sum += s.StoredBytes(i*DefaultBlockBytes+5, 1)
	}
	if sum != s.StoredBytes(0, s.Size()) || s.StoredBytes(7, 0) != 0 || s.StoredBytes(s.Size(), 10) != 0 {
		t.Errorf("a byte of each block takes %d", sum)
	}
}

// TestCorrupt: a bit that turned over anywhere is an error, where it can be told with which bytes do not come back.
func TestCorrupt(t *testing.T) {
	data := normal(13, 2*DefaultBlockBytes+300, asBFloat16)
	file, _ := packIt(t, data, 2)
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 300 {
		at := n
		if n >= 100 {
			at = rng.IntN(len(file))
		}
		bad := bytes.Clone(file)
		bad[at] ^= 1 << rng.IntN(8)
		s, err := Open(t.Context(), &memory{bad}, nil)
		if err == nil {
			err = s.Verify(t.Context())
		}
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("byte %d: %v", at, err)
		}
		if s != nil && (corrupt.Bytes == 0 || corrupt.Offset%DefaultBlockBytes != 0) {
			t.Errorf("byte %d: %v", at, err)
		}
	}
	for _, n := range []int{0, 7, headBytes - 1, headBytes, headBytes + 5, len(file) / 2, len(file) - 1} {
		if _, err := Open(t.Context(), &memory{file[:n]}, nil); err == nil {
			t.Errorf("%d bytes of the file open", n)
		}
	}
	if _, err := Open(t.Context(), &memory{append(bytes.Clone(file), 0)}, nil); err == nil {
		t.Error("a file with something behind it opens")
	}
	s := openIt(t, file)
	s.raw.(*memory).data[len(file)-1] ^= 1
	named := errors.New("the tensor x")
	s.Explain = func(*CorruptError) error { return named }
	if err := s.ReadAt(t.Context(), make([]byte, 1), s.Size()-1); !errors.Is(err, named) {
		t.Errorf("what explains is not asked: %v", err)
	}
	if err := s.ReadAt(t.Context(), make([]byte, 1), 0); err != nil {
		t.Errorf("another block: %v", err)
	}
}

// TestHuge: a table that could not be in the file is refused before it is asked for.
func TestHuge(t *testing.T) {
	file, _ := packIt(t, normal(1, 1000, asBFloat16), 1)
	for _, size := range []uint64{1 << 40, 1 << 62, 1<<64 - 1} {
		binary.LittleEndian.PutUint64(file[16:], size)
		charged := int64(0)
		_, err := Open(t.Context(), &memory{file}, func(n int64) error { charged += n; return nil })
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || charged != 0 {
			t.Errorf("%d bytes: %v, charged %d", size, err, charged)
		}
	}
	refused := errors.New("no more")
	file, _ = packIt(t, normal(1, 1000, asBFloat16), 1)
	if _, err := Open(t.Context(), &memory{file}, func(int64) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("what refuses memory is not heard: %v", err)
	}
}

// seal gives a file the checksums that fit it.
func seal(file []byte) {
	if len(file) < headBytes {
		return
	}
	le := binary.LittleEndian
	copy(file, Magic)
	if v := le.Uint32(file[8:]); v != 1 {
		le.PutUint32(file[8:], version)
	}
	block, size := uint64(le.Uint32(file[12:])), le.Uint64(file[16:])
	if block == 0 || size > 1<<30 {
		return
	}
	blocks, table := (size+block-1)/block, uint64(headBytes)
	if le.Uint32(file[8:]) > 1 {
		runs := uint64(le.Uint32(file[28:]))
		if blocks, table = 0, headBytes+runs*runBytes; table > uint64(len(file)) {
			return
		}
		for i := range runs {
			blocks += (min(le.Uint64(file[headBytes+i*runBytes+8:]), size) + block - 1) / block
		}
	}
	at := table + blocks*entryBytes
	if at > uint64(len(file)) {
		return
	}
	for i := range blocks {
		entry := file[table+i*entryBytes:]
		n := uint64(le.Uint32(entry))
		if n > uint64(len(file))-at {
			break
		}
		le.PutUint32(entry[4:], crc32.Checksum(file[at:][:n], castagnoli))
		at += n
	}
	sum := crc32.Checksum(file[:24], castagnoli)
	if le.Uint32(file[8:]) > 1 {
		sum = crc32.Update(sum, castagnoli, file[28:headBytes])
	}
	le.PutUint32(file[24:], crc32.Update(sum, castagnoli, file[headBytes:table+blocks*entryBytes]))
}

// FuzzOpen: whatever a file holds, with checksums that fit, it is refused with a class or read, alike with vectors and
// without.
func FuzzOpen(f *testing.F) {
	for i, data := range [][]byte{
		normal(1, 3000, asBFloat16), normal(2, 2100, asFloat16), normal(3, 4096, asRounded), normal(4, 3000, asFloat32), nil,
		make([]byte, 700), {1, 2, 3},
	} {
		file, _ := packIt(f, data, 1)
		f.Add(file, i%2 == 0)
	}
	f.Add(asIsFile(make([]byte, 40_000), leastBlockBytes), true)
	f.Add(packRuns(f, normal(5, 9000, asBFloat16), []Run{{4000, 5000}, {0, 1000}, {1000, 3000}}), true)
	f.Fuzz(func(t *testing.T, file []byte, sealed bool) {
		if sealed {
			seal(file)
		}
		s, err := Open(t.Context(), &memory{file}, nil)
		if err != nil {
			var bad *CorruptError
			if !errors.As(err, &bad) && !errors.Is(err, ErrVersion) {
				t.Fatalf("an error without a class: %v", err)
			}
			return
		}
		size := min(s.Size(), 1<<22)
		var first []byte
		var failed error
		levels(func(name string) {
			p := make([]byte, size)
			err := s.ReadAt(t.Context(), p, 0)
			var bad *CorruptError
			switch {
			case err != nil && !errors.As(err, &bad):
				t.Fatalf("an error without a class: %v", err)
			case first == nil:
				first, failed = p, err
			case (err == nil) != (failed == nil), err == nil && !bytes.Equal(p, first):
				t.Fatalf("the best %v, %s %v", failed, name, err)
			}
		})
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		name  string
		write func([]byte, float32) []byte
	}{{"bfloat16", asBFloat16}, {"float16", asFloat16}, {"float32", asFloat32}, {"float32 that was bfloat16", asRounded}} {
		p := normal(1, DefaultBlockBytes, c.write)
		stored, _ := encode(nil, p)
		halves := make([]byte, len(p)/2)
		levels(func(name string) {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(p)))
				for b.Loop() {
					if err := decode(p, stored, halves); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func BenchmarkRead(b *testing.B) {
	data := normal(1, 64<<20, asBFloat16)
	file, _ := packIt(b, data, 0)
	s := openIt(b, file)
	p := make([]byte, 1<<20)
	b.SetBytes(int64(len(p)))
	off := int64(0)
	for b.Loop() {
		if err := s.ReadAt(b.Context(), p, off); err != nil {
			b.Fatal(err)
		}
		off = (off + int64(len(p))) % int64(len(data))
	}
}

func BenchmarkEncode(b *testing.B) {
	p := normal(1, DefaultBlockBytes, asBFloat16)
	b.SetBytes(int64(len(p)))
	var stored []byte
	for b.Loop() {
		stored, _ = encode(stored[:0], p)
	}
}
