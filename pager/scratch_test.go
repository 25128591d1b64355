package pager

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/storage"
)

// A badDisk is one in memory on a disk that becomes full, or that stalls.
type badDisk struct {
	mu    sync.Mutex
	bytes []byte
	// room is how many bytes it may have, writes after how many writes the disk is full though there was room; 0 is never.
	room          int64
	writes, after int
	// stall is how long one read takes, which is the one behind so many others.
	stall  time.Duration
	behind int
	reads  int
}

func (f *badDisk) Grow(bytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.room > 0 && bytes > f.room {
		return &storage.ScratchError{Folder: "full", Bytes: bytes, Err: syscall.ENOSPC}
	}
	f.bytes = append(f.bytes, make([]byte, bytes-int64(len(f.bytes)))...)
	return nil
}

func (f *badDisk) Bytes() int64 { return int64(len(f.bytes)) }
func (f *badDisk) Close() error { return nil }

func (f *badDisk) Write(p []byte, off int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.writes++; f.after > 0 && f.writes > f.after {
		return syscall.ENOSPC
	}
	copy(f.bytes[off:], p)
	return nil
}

func (f *badDisk) Read(p []byte, off int64) error {
	f.mu.Lock()
	f.reads++
	stalls := f.stall > 0 && f.reads == f.behind+1
	f.mu.Unlock()
	if stalls {
		time.Sleep(f.stall)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(p, f.bytes[off:])
	return nil
}

// on has a pager's files be this one.
func (f *badDisk) on(o Options) Options {
	o.newScratch = func(_ string, bytes int64) (scratch, error) {
		if err := f.Grow(bytes); err != nil {
			return nil, err
		}
		return f, nil
	}
	return o
}

// TestCachesAwayFull: a disk without room for the keys and values is an error that says so, before anything runs, and one that
// becomes full all the same ends the pass; once there is room, passes go on.
func TestCachesAwayFull(t *testing.T) {
	host := newCPU(t)
	g := attention(t, 4)
	l, err := host.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	in, out := awayPlans(t, l)
	r := rand.New(rand.NewPCG(1, 1))
	tables, from := [2][]int{{3, 0, 7, 8}, {10, 11, 1, 5}}, [2]int{}
	x := textPass(g, r, tables, &from)
	if err := newPager(t, host, Options{}).Pass(t.Context(), in, x); err != nil {
		t.Fatal(err)
	}
	for _, room := range []int64{1, out.CacheAwayBytes / 2, out.CacheAwayBytes - 1} { // of the first cache, or of a later one
		f := &badDisk{room: room}
		p := newPager(t, host, f.on(Options{}))
		y := &textIO{in: x.in, out: make([]byte, len(x.out))}
		var failed *storage.ScratchError
		if err := p.Pass(t.Context(), out, y); !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &failed) || f.writes > 0 {
			t.Errorf("of %d bytes there is room for %d: %v after %d writes", out.CacheAwayBytes, room, err, f.writes)
		}
		f.room = out.CacheAwayBytes
		if err := p.Pass(t.Context(), out, y); err != nil || !bytes.Equal(x.out, y.out) {
			t.Errorf("there is room again: %v, or other bits", err)
		}
		if p.Held().CacheBytes != out.CacheBytes {
			t.Errorf("%d bytes are held, %d planned", p.Held().CacheBytes, out.CacheBytes)
		}
	}
	f := &badDisk{after: 1}
	p := newPager(t, host, f.on(Options{}))
	y := &textIO{in: x.in, out: make([]byte, len(x.out))}
	if err := p.Pass(t.Context(), out, y); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write failed: %v", err)
	}
	f.after = 0
	if err := p.Pass(t.Context(), out, y); err != nil || !bytes.Equal(x.out, y.out) {
		t.Errorf("there is room again: %v, or other bits", err)
	}
}

// TestCachesAwayStall: while a read of the file stalls for ten seconds the pass waits, and then goes on with the same bits; who
// cancels it meanwhile hears so once the read is over, and the next pass is right.
func TestCachesAwayStall(t *testing.T) {
	const stall = 10 * time.Second
	for _, cancelled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			host := cpu.New(1, graph.Standard()) // others than the caller's goroutine look for work, which takes no time here
			t.Cleanup(func() { _ = host.Close() })
			g := attention(t, 4)
			l, err := host.Lower(g)
			if err != nil {
				t.Fatal(err)
			}
			in, out := awayPlans(t, l)
			f := &badDisk{}
			stay, away := newPager(t, host, Options{}), newPager(t, host, f.on(Options{}))
			r := rand.New(rand.NewPCG(1, 1))
			tables, from := [2][]int{{3, 0, 7, 8}, {10, 11, 1, 5}}, [2]int{}
			for k := range 6 {
				x := textPass(g, r, tables, &from)
				y := &textIO{in: x.in, out: make([]byte, len(x.out))}
				if err := stay.Pass(t.Context(), in, x); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				if k == 3 {
					f.stall, f.behind = stall, f.reads+2
					if cancelled {
						time.AfterFunc(time.Second, cancel)
					}
				}
				begin, before := time.Now(), away.Stats().SwapStall
				err := away.Pass(ctx, out, y)
				cancel()
				if took := time.Since(begin); k == 3 && (took != stall || away.Stats().SwapStall-before != stall) {
					t.Errorf("the pass took %v, and waited %v for a read of %v", took, away.Stats().SwapStall-before, stall)
				}
				if cancelled && k == 3 {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("a cancelled pass ends with %v", err)
					}
					err = away.Pass(t.Context(), out, y)
				}
				if err != nil || !bytes.Equal(x.out, y.out) {
					t.Errorf("pass %d: %v, or other bits", k, err)
				}
			}
		})
	}
}
