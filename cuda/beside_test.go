//go:build gorgonia && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"errors"
	goruntime "runtime"
	"testing"

	"gorgonia.org/cu"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// TestBesideOthers: who calls gorgonia.org/cu on a thread of their own, in a context of another GPU, finds that context
// there whatever this package does on the thread meanwhile, and its memory on that GPU; a pass gives the same bits.
func TestBesideOthers(t *testing.T) {
	l := lower(t, network(t, 3, widths...))
	p := planned(t, l, search.Options{Mode: plan.Page})
	lib := sim.New(t, "devices=2 memory=8M order=lazy:3")
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	dev, err := cuda.New(cuda.Options{Library: lib.Path})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := cu.Device(1).RetainPrimaryCtx()
	if err != nil {
		t.Fatal(err)
	}
	if err := cu.SetCurrentContext(theirs); err != nil {
		t.Fatal(err)
	}
	there := func(after string) {
		t.Helper()
		if now, err := cu.CurrentContext(); err != nil || now != theirs {
			t.Fatalf("after %s the thread's context is %v, not %v: %v", after, now, theirs, err)
		}
	}
	const bytes = 1 << 20
	free, _, err := cu.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	memory, err := dev.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	there("an allocation")
	mine, err := cu.MemAlloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	if now, _, err := cu.MemInfo(); err != nil || now != free-bytes {
		t.Errorf("%d bytes are free on the other GPU, of %d: %v", now, free, err)
	}
	want, _, err := passes(t.Context(), dev, p, 3)
	if err != nil || len(want) == 0 {
		t.Fatal(err)
	}
	there("passes")
	if err := errors.Join(memory.Free(), dev.Close()); err != nil {
		t.Fatal(err)
	}
	there("closing the device")
	if err := cu.MemFree(mine); err != nil {
		t.Error(err)
	}
	if err := errors.Join(cu.SetCurrentContext(cu.CUContext{}), cu.Device(1).ReleasePrimaryCtx()); err != nil {
		t.Error(err)
	}
	lib.Check(t)
}
