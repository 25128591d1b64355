//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/optimem/optimem/chunker"
	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// TestSeveralGPUs places a network over two and over three GPUs, resident and paged, with one micro-batch and with several:
// the bits are those of one GPU, in random orders of execution, each GPU holds what its plan says and works, and nothing
// races.
func TestSeveralGPUs(t *testing.T) {
	g := network(t, 5, widths...)
	l := lower(t, g)
	const instances = 3
	want := make([]*transfer, instances)
	for i := range want {
		want[i] = newTransfer(g)
		want[i].in[3] = byte(64 + i)
	}
	one, _ := open(t, "memory=8M")

	pg, err := pager.New(one, pager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	resident := planned(t, l, search.Options{Mode: plan.Resident})
	for _, x := range want {
		if err := pg.Pass(t.Context(), resident, x); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(pg.Close(), one.Close()); err != nil {
		t.Fatal(err)
	}
	if err := devicetest.Compare(float32s(want[0].out), float32s(onCPU(t, g)), 1); err != nil {
		t.Fatal(err)
	}
	for _, gpus := range []int{2, 3} {
		for _, c := range []struct {
			mode      plan.Mode
			instances int
			overlaps  bool
		}{
			{plan.Resident, 1, false}, {plan.Resident, instances, true}, {plan.Page, 1, false}, {plan.Page, instances, false},
			{plan.Auto, 1, false}, {plan.Auto, instances, false},
		} {
			for _, order := range []string{"threads", "lazy:1", "lazy:2"} {
				if testing.Short() && order != "threads" {
					continue
				}
				t.Run(fmt.Sprintf("%d/%s/%d/%s", gpus, c.mode, c.instances, order), func(t *testing.T) {
					o := search.Options{Mode: c.mode, Instances: c.instances, Lower: cuda.Lower}
					for i := range gpus - 1 {
						o.Peers = append(o.Peers, search.Peer{Name: fmt.Sprintf("cuda:%d", i+1)})
					}
					if c.mode == plan.Auto { // a little more than what works, so that some weights stay
						least := planned(t, l, o).MinBytes
						o.MemoryBytes = least + least/8
						for i := range o.Peers {
							o.Peers[i].MemoryBytes = o.MemoryBytes
						}
					}
					p := planned(t, l, o)
					if len(p.DeviceBytes()) != gpus || p.Sides.Overlaps != c.overlaps {
						t.Fatalf("peaks %v, at once %v\n%v", p.DeviceBytes(), p.Sides.Overlaps, p)
					}
					lib := sim.New(t, fmt.Sprintf("devices=%d memory=8M order=%s", gpus, order))
					spread(t, lib, p, gpus, want[:c.instances])
					lib.Check(t)
				})
			}
		}
	}
}

// spread runs a plan for several GPUs and compares the outputs.
func spread(t *testing.T, lib *sim.Library, p *plan.Plan, gpus int, want []*transfer) {
	t.Helper()
	var devices []device.Device
	for i := range gpus {
		dev, err := cuda.New(cuda.Options{Library: lib.Path, Ordinal: i})
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, dev)
	}
	seen := make([]int, len(p.Groups))
	c, err := chunker.Spread(devices, chunker.Options{Device: pager.Options{Observe: func(e pager.Event) {
		if e.Kind == pager.GroupDone {
			seen[e.Group]++
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	const times = 3
	for range times {
		x := &batchTransfer{}
		for _, w := range want {
			x.all = append(x.all, &transfer{w.in, make([]byte, len(w.out))})
		}
		if err := c.Pass(t.Context(), p, x); err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if !bytes.Equal(x.all[i].out, w.out) {
				t.Errorf("instance %d: other bits\n%v", i, p)
			}
		}
	}
	for k, n := range seen {
		if n != times {
			t.Errorf("group %d was told of %d times", k, n)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for i, dev := range devices {
		gpu := dev.(*cuda.Device)
		if planned := p.DeviceBytes()[i]; gpu.PeakBytes() != planned || planned == 0 {
			t.Errorf("%s held %d bytes, %d are planned", gpu.Name(), gpu.PeakBytes(), planned)
		}
		if err := gpu.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSeveralGPUsRefuse: too little memory names what would do, which then does; the chunk mode is not for several.
func TestSeveralGPUsRefuse(t *testing.T) {
	l := lower(t, network(t, 5, widths...))
	o := search.Options{
		Mode: plan.Page, Target: target, Lower: cuda.Lower, MemoryBytes: 1000,
		Peers: []search.Peer{{Name: "cuda:1", MemoryBytes: 1000}},
	}
	_, err := search.Plan(l, o)
	var capacity *plan.CapacityError
	if !errors.As(err, &capacity) || capacity.MinBytes <= 1000 {
		t.Fatalf("%v", err)
	}
	o.MemoryBytes, o.Peers[0].MemoryBytes = capacity.MinBytes, capacity.MinBytes
	if p, err := search.Plan(l, o); err != nil || p.PeakBytes() > capacity.MinBytes {
		t.Errorf("with %d bytes: %v", capacity.MinBytes, err)
	}
	o.Mode, o.MemoryBytes = plan.Chunk, 0
	if _, err := search.Plan(l, o); err == nil {
		t.Error("several GPUs in the chunk mode")
	}
}
