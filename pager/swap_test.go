package pager

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// TestSwap runs a network whose skip connection waits in host memory: the same bits, no access out of order, and the
// memory that was planned, for several instances, too.
func TestSwap(t *testing.T) {
	host := newCPU(t)
	l, _ := network(t, host, 200, 100, 200, 20, 600, 600, 20, 200)
	const instances = 3
	want := newTransfer(l.Graph, instances)
	resident := mustPlan(t, l, search.Options{Mode: plan.Resident, Instances: instances})
	if err := newPager(t, host, Options{}).Pass(t.Context(), resident, want); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, instances} {
		o := search.Options{
			Mode: plan.Page, Target: plan.Target{Name: "emu", AlignBytes: 256}, MemoryBytes: 1, Instances: n, Lower: host.Lower,
		}
		_, err := search.Plan(l, o)
		var capacity *plan.CapacityError
		if !errors.As(err, &capacity) {
			t.Fatal(err)
		}
		o.MemoryBytes = capacity.MinBytes
		made := mustPlan(t, l, o)
		if made.SwapBytes == 0 {
			t.Fatalf("nothing waits in host memory:\n%v", made)
		}
		before := inUse()
		dev := emulated.New(emulated.Options{
			MemoryBytes: made.PeakBytes(), CopyBytes: 1e9, CopyLatency: time.Microsecond, CheckOrder: true,
		})
		p, err := New(dev, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			got := newTransfer(l.Graph, n)
			if err := p.Pass(t.Context(), made, got); err != nil {
				t.Fatal(err)
			}
			for i := range got.out {
				if !bytes.Equal(got.out[i], want.out[i]) {
					t.Fatalf("instance %d of %d gives other bits", i, n)
				}
			}
		}
		if held := inUse() - before - dev.PeakBytes(); held != p.HostBytes() || held > made.HostBytes() {
			t.Errorf("%d bytes of host memory, %d said, %d planned", held, p.HostBytes(), made.HostBytes())
		}
		if hostmem.InUse(hostmem.Activations) == 0 {
			t.Error("nothing is counted")
		}
		if err := errors.Join(p.Close(), dev.Close()); err != nil {
			t.Fatal(err)
		}
		if inUse() != before {
			t.Errorf("%d bytes are left", inUse()-before)
		}
	}
}
