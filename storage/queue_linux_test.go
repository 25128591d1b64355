package storage

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
)

// coldQueue opens a file that the page cache does not hold, and a queue of it.
func coldQueue(t *testing.T, path string, size int64, n int) (*File, ReadQueue) {
	t.Helper()
	s := mustOpenFile(t, path)
	q, err := s.Queue(n)
	if err != nil {
		t.Skip("no queue here: ", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(q.Close(), q.Close()); err != nil {
			t.Error(err)
		}
	})
	dropCache(t, s, 0, size)
	if residencyOf(s, 0, int(size)) != not {
		t.Skip("this file system keeps everything in memory")
	}
	return s, q
}

// TestQueue reads a cold file, pieces in any order and past its end, and leaves it cold.
func TestQueue(t *testing.T) {
	const size, piece, n = 40*AlignBytes + 123, 8 * AlignBytes, 6
	path, data := randomFile(t, t.TempDir(), size)
	for _, probing := range []bool{false, true} {
		s, q := coldQueue(t, path, size, n)
		probeByReading(s, probing)
		buf := aligned(n * piece)
		for i := range n {
			if !q.Begin(i, buf[i*piece:][:piece], int64(i*piece)) {
				t.Fatalf("read %d was not begun", i)
			}
		}
		seen := make(map[int]bool)
		for range n {
			number, filled, err := q.Wait(t.Context())
			if err != nil || !filled || seen[number] {
				t.Fatalf("read %d: filled %v, again %v, %v", number, filled, seen[number], err)
			}
			seen[number] = true
		}
		if !bytes.Equal(buf[:size], data) {
			t.Error("other bytes")
		}
		if _, _, err := q.Wait(t.Context()); err == nil {
			t.Error("there was nothing to wait for")
		}
		if residencyOf(mustOpenFile(t, path), 0, size) != not {
			t.Error("the page cache has bytes of the file now")
		}
	}
}

// TestQueueRefuses: what the page cache holds, what is not aligned, and what is behind the end are for ReadBulk; so is
// everything once the file is closed.
func TestQueueRefuses(t *testing.T) {
	const size = 64 * AlignBytes
	path, _ := randomFile(t, t.TempDir(), size)
	s, q := coldQueue(t, path, size, 1)
	buf := aligned(2 * AlignBytes)
	for _, c := range []struct {
		name string
		p    []byte
		off  int64
	}{
		{"offset", buf[:AlignBytes], 512}, {"length", buf[:512], 0}, {"address", buf[512:][:AlignBytes], 0},
		{"end", buf, size},
	} {
		if q.Begin(0, c.p, c.off) {
			t.Errorf("%s: begun", c.name)
		}
	}
	if err := s.ReadAt(t.Context(), make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	if residencyOf(s, 0, size) == wholly && q.Begin(0, buf, 0) {
		t.Error("begun, although the page cache holds it")
	}
	if q.(*readQueue).aio != 0 {
		t.Error("the kernel was asked for a context that no read needs")
	}
	dropCache(t, s, AlignBytes, size-AlignBytes)
	s.known.found = nil
	if !s.probes.Load() && residencyOf(s, 0, len(buf)) == partly {
		if !q.Begin(0, buf, 0) {
			t.Error("not begun, although the page cache holds a part only")
		} else if _, filled, err := q.Wait(t.Context()); !filled || err != nil {
			t.Errorf("filled %v, %v", filled, err)
		}
	}
	dropCache(t, s, 0, size)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if q.Begin(0, buf, 0) {
		t.Error("begun, although the file is closed")
	}
}

// TestQueueShrunk: a read of what is gone is not filled, and ReadBulk says why. A context that is done ends a wait.
func TestQueueShrunk(t *testing.T) {
	const size = 64 * AlignBytes
	path, _ := randomFile(t, t.TempDir(), size)
	s, q := coldQueue(t, path, size, 2)
	if err := os.Truncate(path, 10*AlignBytes); err != nil {
		t.Fatal(err)
	}
	buf := aligned(2 * AlignBytes)
	if !q.Begin(1, buf, 20*AlignBytes) {
		t.Fatal("not begun")
	}
	if number, filled, err := q.Wait(t.Context()); number != 1 || filled || err != nil {
		t.Errorf("read %d: filled %v, %v", number, filled, err)
	}
	if err := s.ReadBulk(t.Context(), buf, 20*AlignBytes); err == nil {
		t.Error("no error")
	}
	if !q.Begin(0, buf, 0) {
		t.Fatal("not begun")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		number, filled, err := q.Wait(ctx)
		if errors.Is(err, context.Canceled) {
			continue // until it has ended
		}
		if number != 0 || !filled || err != nil {
			t.Errorf("read %d: filled %v, %v", number, filled, err)
		}
		break
	}
}

// TestQueueNotTaken: of reads that the kernel does not take, of which others are taken, Wait says that they are not filled.
func TestQueueNotTaken(t *testing.T) {
	const size, n = 64 * AlignBytes, 5
	path, data := randomFile(t, t.TempDir(), size)
	_, reads := coldQueue(t, path, size, n)
	q := reads.(*readQueue)
	buf := aligned(n * AlignBytes)
	fd := q.fd
	for i := range n {
		if q.fd = fd; i%2 == 1 {
			q.fd = -1
		}
		if !q.Begin(i, buf[i*AlignBytes:][:AlignBytes], int64(i*AlignBytes)) {
			t.Fatalf("read %d was not begun", i)
		}
	}
	q.fd = fd
	seen := make(map[int]bool)
	for range n {
		number, filled, err := q.Wait(t.Context())
		if err != nil || seen[number] || filled != (number%2 == 0) {
			t.Errorf("read %d: filled %v, again %v, %v", number, filled, seen[number], err)
		}
		if seen[number] = true; filled && !bytes.Equal(buf[number*AlignBytes:][:AlignBytes], data[number*AlignBytes:][:AlignBytes]) {
			t.Errorf("read %d: other bytes", number)
		}
	}
	if _, _, err := q.Wait(t.Context()); err == nil {
		t.Error("there was nothing to wait for")
	}
}

// TestBulkReadsStayApart: reading the cached beginning of a file does not bring in what follows, piece after piece.
func TestBulkReadsStayApart(t *testing.T) {
	const size = 64 << 20
	path, _ := randomFile(t, t.TempDir(), size)
	s := mustOpenFile(t, path)
	dropCache(t, s, 0, size)
	if err := s.ReadAt(t.Context(), make([]byte, 64<<10), 0); err != nil {
		t.Fatal(err)
	}
	before, ok := s.CachedBytes(0, size)
	if !ok || before > size/2 {
		t.Skip("this file system keeps everything in memory, or the kernel does not tell")
	}
	buf := aligned(1 << 20)
	for off := int64(0); off < size; off += int64(len(buf)) {
		if err := s.ReadBulk(t.Context(), buf, off); err != nil {
			t.Fatal(err)
		}
	}
	if after, _ := s.CachedBytes(0, size); after > before {
		t.Errorf("the page cache holds %d bytes, %d before", after, before)
	}
}

// TestQueuePast reads a file that the page cache holds from the disk, and leaves it there; the other queue leaves that to who copies.
func TestQueuePast(t *testing.T) {
	const size = 16 * AlignBytes
	path, data := randomFile(t, t.TempDir(), size)
	for _, probing := range []bool{false, true} {
		s, q := coldQueue(t, path, size, 1)
		past, err := s.QueuePast(1)
		if err != nil || !s.ReadsPast() {
			t.Fatalf("there is a queue, but none past the page cache: %v", err)
		}
		defer past.Close()
		if err := s.ReadAt(t.Context(), make([]byte, size), 0); err != nil {
			t.Fatal(err)
		}
		s.LookAgain()
		probeByReading(s, probing)
		if residencyOf(s, 0, size) != wholly {
			t.Skip("this file system does not keep what was read")
		}
		buf := aligned(size)
		if !probing && q.Begin(0, buf, 0) {
			t.Error("a read of what the page cache holds was begun")
		}
		if !past.Begin(0, buf, 0) {
			t.Fatal("the read was not begun")
		}
		if _, filled, err := past.Wait(t.Context()); err != nil || !filled || !bytes.Equal(buf, data) {
			t.Errorf("filled %v, %v, or other bytes", filled, err)
		}
		if residencyOf(s, 0, size) != wholly {
			t.Error("the page cache has let go of the file")
		}
	}
}
