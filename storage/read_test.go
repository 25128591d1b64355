package storage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

// memory is a Source of bytes, the plain one.
type memory struct {
	data []byte
	// reads counts what was asked for.
	mu    sync.Mutex
	reads []int64
}

func (m *memory) Size() int64 { return int64(len(m.data)) }

func (m *memory) ReadAt(ctx context.Context, p []byte, off int64) error {
	m.mu.Lock()
	m.reads = append(m.reads, int64(len(p)))
	m.mu.Unlock()
	if off < 0 || off+int64(len(p)) > m.Size() {
		return io.ErrUnexpectedEOF
	}
	copy(p, m.data[off:])
	return ctx.Err()
}

// bulkMemory is a BulkSource of bytes that insists on the alignment it was promised.
type bulkMemory struct {
	memory
	bulk atomic.Int64
}

func (m *bulkMemory) ReadBulk(ctx context.Context, p []byte, off int64) error {
	if (off|int64(len(p))|int64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))))%AlignBytes != 0 {
		return errors.New("unaligned bulk read")
	}
	m.bulk.Add(int64(len(p)))
	copy(p, m.data[off:])
	return ctx.Err()
}

func randomBytes(n int) []byte {
	p := make([]byte, n)
	var seed [32]byte
	_, _ = rand.NewChaCha8(seed).Read(p)
	return p
}

func TestRead(t *testing.T) {
	data := randomBytes(3*readPieceBytes + 5000)
	for _, inFlight := range []int{0, 1, 3, 100} {
		src := &memory{data: data}
		var requests []Request
		for _, r := range [][2]int64{
			{0, 0}, {1, 7}, {0, int64(len(data))}, {4096, 4096}, {9999, 2 * readPieceBytes}, {17, 0},
		} {
			requests = append(requests, Request{Extent{src, r[0], r[1]}, make([]byte, r[1])})
		}
		if err := Read(t.Context(), inFlight, requests...); err != nil {
			t.Fatal(err)
		}
		for _, r := range requests {
			if !bytes.Equal(r.Into, data[r.Extent.Offset:][:r.Extent.Bytes]) {
				t.Errorf("%d in flight: %v: wrong bytes", inFlight, r.Extent)
			}
		}
		if n := len(src.reads); n != 1+4+1+2 {
			t.Errorf("%d in flight: %d reads", inFlight, n)
		}
	}
	if err := Read(t.Context(), 4); err != nil {
		t.Errorf("reading nothing: %v", err)
	}
}

func TestReadAligned(t *testing.T) {
	data := randomBytes(2*readPieceBytes + 5000)
	bulk, plain := &bulkMemory{memory: memory{data: data}}, &memory{data: data}
	for _, src := range []Source{bulk, plain} {
		for _, e := range []Extent{
			{src, 5000, 10}, {src, 0, int64(len(data))}, {src, 4095, 2}, {src, 8192, 4096},
			{src, int64(len(data)) - 1, 1}, {src, readPieceBytes - 1, readPieceBytes + 2}, {src, 12288, 0},
		} {
			around, skip := e.Aligned()
			if around.Offset%AlignBytes != 0 || around.Bytes%AlignBytes != 0 || around.Offset+skip != e.Offset ||
				around.Bytes-skip < e.Bytes || around.Bytes-skip >= e.Bytes+AlignBytes {
				t.Fatalf("%v lies %d bytes into %v", e, skip, around)
			}
			p := AlignedBytes(around.Bytes)
			before := bulk.bulk.Load()
			if err := Read(t.Context(), 2, Request{around, p}); err != nil {
				t.Fatalf("%v: %v", e, err)
			}
			if !bytes.Equal(p[skip:skip+e.Bytes], data[e.Offset:e.Offset+e.Bytes]) {
				t.Errorf("%v: wrong bytes", e)
			}
			if got := bulk.bulk.Load() - before; src == Source(bulk) && got != around.Bytes {
				t.Errorf("%v: %d of %d bytes were read in bulk", e, got, around.Bytes)
			}
		}
	}
	// A buffer at an odd address must not reach ReadBulk.
	if err := Read(t.Context(), 1, Request{Extent{bulk, 0, 8192}, AlignedBytes(8193)[1:]}); err != nil {
		t.Errorf("unaligned buffer: %v", err)
	}
	if plain.reads == nil || len(bulk.reads) != 1 {
		t.Errorf("%d plain reads of the bulk source", len(bulk.reads))
	}
	// Nor may it make the end of the file an error, behind which the last part of an aligned extent lies.
	for _, src := range []Source{bulk, plain} {
		around, skip := Extent{src, int64(len(data)) - 10, 10}.Aligned()
		p := AlignedBytes(around.Bytes + 512)[512:]
		if err := Read(t.Context(), 1, Request{around, p}); err != nil {
			t.Errorf("the end into an unaligned buffer: %v", err)
		} else if !bytes.Equal(p[skip:skip+10], data[len(data)-10:]) {
			t.Error("the end into an unaligned buffer: wrong bytes")
		}
	}
}

func TestReadFails(t *testing.T) {
	src := &memory{data: randomBytes(3 * readPieceBytes)}
	good := Request{Extent{src, 0, 2 * readPieceBytes}, make([]byte, 2*readPieceBytes)}
	bad := Request{Extent{src, 2*readPieceBytes + 1, readPieceBytes}, make([]byte, readPieceBytes)}
	err := Read(t.Context(), 4, good, bad)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "extent of 8388608 bytes at 16777217") {
		t.Errorf("read past the end: %v", err)
	}
	if err := Read(t.Context(), 4, Request{good.Extent, make([]byte, 9)}); err == nil {
		t.Error("a buffer of another size was filled")
	}
	past, _ := Extent{src, src.Size() + 1, 5}.Aligned()
	if err := Read(t.Context(), 1, Request{past, AlignedBytes(past.Bytes)}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("aligned read wholly past the end: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Read(ctx, 4, good); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestExtentReadAt(t *testing.T) {
	src := &memory{data: []byte("0123456789")}
	e := Extent{src, 2, 5}
	p := make([]byte, 3)
	if err := e.ReadAt(t.Context(), p, 2); err != nil || string(p) != "456" {
		t.Errorf("%q, %v", p, err)
	}
	for _, off := range []int64{-1, 3, 5, 1 << 62} {
		if err := e.ReadAt(t.Context(), p, off); err == nil {
			t.Errorf("read of 3 bytes at %d succeeded", off)
		}
	}
	if err := e.ReadAt(t.Context(), nil, 5); err != nil {
		t.Errorf("empty read at the end: %v", err)
	}
}
