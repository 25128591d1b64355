//go:build linux && (amd64 || arm64) && !nocuda

package runtime_test

import (
	"bytes"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
)

// TestEverythingOfAGPU: once everything is given back the driver has nothing of the session, its context included, and being asked
// does not bring it back; the next pass does, with the same bits.
func TestEverythingOfAGPU(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(3)
	for name, o := range map[string]optimem.Options{
		"one GPU": {}, "two GPUs": {Device: "cuda:0,cuda:1", Memory: 300 << 10}, "cuBLASLt": {CUBLASLt: "sim"},
	} {
		for _, mode := range []plan.Mode{plan.Page, plan.Auto} {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				lib := sim.New(t, "memory=64M order=lazy:1 devices=2")
				if o.CUBLASLt != "" {
					o.CUBLASLt = lib.Path
				}
				s := onGPU(t, model, mode, lib, o)
				want := runDigits(t, s, x)
				if s.Metrics().HeldBytes == 0 {
					t.Error("nothing is held")
				}
				for range 2 {
					before, products := s.Metrics(), lib.Report().Products
					for range 2 { // the second time there is nothing left
						if err := s.GiveBack(t.Context(), optimem.Everything); err != nil {
							t.Fatal(err)
						}
						if left := lib.Report().Left; len(left) > 0 {
							t.Fatalf("the driver still has %v", left)
						}
					}
					if m := s.Metrics(); m.HeldBytes != 0 || m.HostBytes != 0 || m.LoadedBytes != before.LoadedBytes || m.Runs != before.Runs {
						t.Errorf("%+v", m)
					}
					// None of these needs the GPU.
					if report, err := s.Memory(t.Context()); err != nil || report.Devices[0].HeldBytes != 0 || report.Devices[0].DriverBytes != 0 {
						t.Errorf("%+v, %v", report, err)
					}
					if err := s.GiveBack(t.Context()); err != nil {
						t.Error(err)
					}
					if err := s.DropCaches(t.Context()); err != nil {
						t.Error(err)
					}
					if left := lib.Report().Left; len(left) > 0 {
						t.Fatalf("to be asked takes %v", left)
					}
					if !bytes.Equal(runDigits(t, s, x), want) {
						t.Error("other bits")
					}
					if lib.Report().Left["modules"] == 0 {
						t.Error("kernels of the context before are used")
					}
					if m := s.Metrics(); m.LoadedBytes <= before.LoadedBytes {
						t.Errorf("%d bytes read, %d before", m.LoadedBytes, before.LoadedBytes)
					}
					if o.CUBLASLt != "" && lib.Report().Products == products {
						t.Error("cuBLASLt computes nothing any more")
					}
				}
				// Inputs of other shapes are lowered while the context is away.
				if err := s.GiveBack(t.Context(), optimem.Everything); err != nil {
					t.Fatal(err)
				}
				products := lib.Report().Products
				runDigits(t, s, pictures(4))
				if o.CUBLASLt != "" && lib.Report().Products == products {
					t.Error("cuBLASLt computes nothing of what was planned meanwhile")
				}
				if err := s.GiveBack(t.Context(), optimem.Everything); err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				lib.Check(t)
			})
		}
	}
}

// TestEverythingOfOneOfTwo: what a session gives back leaves another one on the GPU as it was.
func TestEverythingOfOneOfTwo(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(3)
	lib := sim.New(t, "memory=64M order=lazy:1")
	one := onGPU(t, model, plan.Resident, lib, optimem.Options{})
	two := onGPU(t, model, plan.Resident, lib, optimem.Options{})
	want := runDigits(t, one, x)
	runDigits(t, two, x)
	loaded := two.Metrics().LoadedBytes
	if err := one.GiveBack(t.Context(), optimem.Everything); err != nil {
		t.Fatal(err)
	}
	if n := lib.Report().Left["contexts"]; n != 1 {
		t.Errorf("%d contexts", n)
	}
	for _, s := range []*optimem.Session{two, one} {
		if !bytes.Equal(runDigits(t, s, x), want) {
			t.Error("other bits")
		}
	}
	if n := two.Metrics().LoadedBytes; n != loaded {
		t.Errorf("the other one read %d bytes again", n-loaded)
	}
	for _, s := range []*optimem.Session{one, two} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	lib.Check(t)
}

// TestEverythingKeepsStates: what a program changes goes on from what it was, through a context that was given back.
func TestEverythingKeepsStates(t *testing.T) {
	model := build(t, "testdata/states.pt2", nil)
	for _, device := range []string{"cuda", "cpu", "emu:memory=64MiB"} {
		lib := sim.New(t, "memory=64M order=lazy:2")
		s := onGPU(t, model, plan.Auto, lib, optimem.Options{Device: device})
		for _, want := range recorded(t, "states") {
			got, err := s.Run(t.Context(), want.input())
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, want)
			if err := s.GiveBack(t.Context(), optimem.Everything); err != nil {
				t.Fatal(err)
			}
			if left := lib.Report().Left; len(left) > 0 {
				t.Fatalf("the driver still has %v", left)
			}
			if n := s.Metrics().HeldBytes; n != 0 {
				t.Errorf("%s: %d bytes are held", device, n)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPoolOnAGPU: the models of a pool have one GPU, and its memory, together.
func TestPoolOnAGPU(t *testing.T) {
	lib := sim.New(t, "memory=64M order=lazy:3")
	model := build(t, digitsModel, nil)
	x := pictures(2)
	alone := onGPU(t, model, plan.Resident, lib, optimem.Options{})
	want := runDigits(t, alone, x)
	if err := alone.Close(); err != nil {
		t.Fatal(err)
	}
	const budget = 300 << 10 // the weights of one take 220 KiB
	p := newPool(t, optimem.PoolOptions{Memory: budget, Device: "cuda"})
	for _, name := range []string{"a", "b", "c"} {
		if _, err := p.Open(t.Context(), name, model, optimem.Options{CUDALibrary: lib.Path, HostMemory: 4 << 20}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		out, err := p.Run(t.Context(), []string{"a", "b", "a", "c"}[i%4], digitsInput(x))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytesOf(out), want) {
			t.Errorf("call %d: other bits", i)
		}
	}
	if n := lib.Report().PeakBytes; n > budget {
		t.Errorf("the driver saw %d bytes, %d more than the budget", n, n-budget)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	lib.Check(t)
}
