//go:build linux && (amd64 || arm64) && !nocuda

package runtime_test

import (
	"bytes"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/memory"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestWatchedOnGPU: on GPUs whose driver does things as late as it may, loads that are observed are told of once each, with the time
// of their copies, and the bits are the same; and what reports list adds up to what each GPU counts.
func TestWatchedOnGPU(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(2)
	var want []byte
	for _, c := range []struct {
		mode    plan.Mode
		device  string
		order   string
		devices int
	}{
		{plan.Resident, "cuda", "threads", 1}, {plan.Page, "cuda", "threads", 1}, {plan.Page, "cuda", "lazy:4", 1},
		{plan.Page, "cuda:0,cuda:1", "lazy:5", 2}, {plan.Chunk, "cuda", "lazy:6", 1},
	} {
		lib := sim.New(t, "devices=2 memory=64M order="+c.order)
		loads := make(map[int]int)
		o := optimem.Options{Device: c.device, ObserveLoads: true, Observe: func(e optimem.Event) {
			if e.Kind == optimem.LoadDone {
				loads[e.Group]++
				if e.CopyBegin.IsZero() || e.CopyEnd.Before(e.CopyBegin) || e.LoadedBytes <= 0 {
					t.Errorf("%s on %s: %+v", c.mode, c.device, e)
				}
			}
		}}
		if c.devices > 1 {
			o.Memory = 400 << 10
		}
		s := onGPU(t, model, c.mode, lib, o)
		const runs = 3
		for range runs {
			got := runDigits(t, s, x)
			if want == nil {
				want = got
			}
			if c.mode != plan.Chunk && !bytes.Equal(got, want) {
				t.Errorf("%s on %s: other bits", c.mode, c.device)
			}
		}
		p, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {2, 1, 8, 8}})
		if err != nil {
			t.Fatal(err)
		}
		for k := range p.Groups {
			// The pass before brings what the next will need.
			if n := loads[k]; p.Groups[k].Paged() && (n < runs || n > runs+1) || !p.Groups[k].Paged() && n > 0 {
				t.Errorf("%s on %s: group %d was loaded %d times in %d passes", c.mode, c.device, k, n, runs)
			}
		}
		now, err := s.Memory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sums(t, "now", now)
		planned := s.PlannedMemory(p)
		sums(t, "planned", planned)
		for i := range c.devices {
			if got, want := now.Devices[i], planned.Devices[i]; got.Name != want.Name || p.PeakBytes() == p.PassBytes() && got.HeldBytes != want.HeldBytes {
				t.Errorf("%s: %s holds %d, planned are %d on %s\n%s", c.mode, got.Name, got.HeldBytes, want.HeldBytes, want.Name, planned.Text(memory.Verbose))
			}
		}
		if one := now.Of("cuda"); len(one.Devices) != c.devices {
			t.Errorf("%s: of the GPUs: %+v", c.mode, one)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		lib.Check(t)
	}
}
