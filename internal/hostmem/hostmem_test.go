package hostmem

import (
	"math"
	"sync"
	"testing"
	"unsafe"
)

func TestAlloc(t *testing.T) {
	before := InUse(Staging)
	for _, n := range []int64{0, 1, 4095, 4096, 4097, 1 << 20, 2 << 20, 5<<20 + 3} {
		b, err := Alloc(n, Staging)
		if err != nil {
			t.Fatal(err)
		}
		p := b.Bytes()
		if int64(len(p)) != n || int64(cap(p)) != n {
			t.Fatalf("%d bytes: len %d, cap %d", n, len(p), cap(p))
		}
		if address := uintptr(unsafe.Pointer(unsafe.SliceData(p))); n > 0 && address%alignBytes != 0 {
			t.Errorf("%d bytes lie at %#x", n, address)
		}
		for i := range p {
			if p[i] != 0 {
				t.Fatalf("%d bytes: byte %d is %d", n, i, p[i])
			}
			p[i] = 0xff
		}
		if got := InUse(Staging) - before; got != n {
			t.Errorf("%d bytes counted as %d", n, got)
		}
		b.Free()
		if b.Bytes() != nil || InUse(Staging) != before {
			t.Errorf("%d bytes: not given back", n)
		}
	}
}

func TestAllocParallel(t *testing.T) {
	before := InUse(Workspace)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range int64(50) {
				b, err := Alloc(i*1000, Workspace)
				if err != nil {
					t.Error(err)
					return
				}
				b.Free()
			}
		})
	}
	group.Wait()
	if got := InUse(Workspace); got != before {
		t.Errorf("in use: %d, want %d", got, before)
	}
}

func TestAllocFails(t *testing.T) {
	for _, n := range []int64{-1, math.MinInt64, math.MaxInt64, 1 << 60} {
		if _, err := Alloc(n, Weights); err == nil {
			t.Errorf("%d bytes were allocated", n)
		}
	}
	if got := InUse(Weights); got != 0 {
		t.Errorf("in use after failures: %d", got)
	}
}

func TestFreeTwicePanics(t *testing.T) {
	b, err := Alloc(10, Activations)
	if err != nil {
		t.Fatal(err)
	}
	b.Free()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	b.Free()
}

func TestPurposeString(t *testing.T) {
	if Activations.String() != "activations" || Purpose(99).String() != "purpose(99)" {
		t.Errorf("%v, %v", Activations, Purpose(99))
	}
}

// TestResize: a buffer with room becomes smaller and larger, keeps what it has, and is counted as what it takes.
func TestResize(t *testing.T) {
	before := InUse(Weights)
	const most = 9<<20 + 7
	b, err := AllocRoom(3<<20+5, most, Weights)
	if err != nil {
		t.Fatal(err)
	}
	check := func(n int64) {
		t.Helper()
		if int64(len(b.Bytes())) != n || int64(cap(b.Bytes())) != n || InUse(Weights)-before != n {
			t.Fatalf("%d bytes, of which %d can be used, counted as %d: want %d", len(b.Bytes()), cap(b.Bytes()), InUse(Weights)-before, n)
		}
		if int64(uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes()))))%alignBytes != 0 {
			t.Error("not aligned")
		}
	}
	check(3<<20 + 5)
	copy(b.Bytes(), "kept")
	b.Bytes()[3<<20] = 7
	if !CanResize {
		if b.Resize(1<<20) || !b.Resize(3<<20+5) {
			t.Error("only its size is possible here")
		}
		check(3<<20 + 5)
	} else {
		for _, n := range []int64{most, most - 1, 1<<20 + 3, 4096, 2 << 20, 4095, most} {
			if !b.Resize(n) {
				t.Fatalf("no %d bytes", n)
			}
			check(n)
			if string(b.Bytes()[:4]) != "kept" {
				t.Fatalf("%d bytes: %q", n, b.Bytes()[:4])
			}
		}
		if b.Bytes()[3<<20] != 0 {
			t.Error("what was given back is still there")
		}
		if b.Resize(most+1) || b.Resize(0) || b.Resize(-1) {
			t.Error("a size that cannot be")
		}
		check(most)
	}
	limit := InUse(Weights) + 64<<20
	defer Limit(Limit(limit))
	if CanResize {
		if !b.Resize(4096) {
			t.Error("no smaller under a limit")
		}
		check(4096)
	}
	b.Free()
	if InUse(Weights) != before {
		t.Error("not given back")
	}
}
