//go:build linux && (amd64 || arm64) && !nocuda

package runtime_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// onGPU returns a session on the simulated driver.
func onGPU(t *testing.T, model *models.Model, mode plan.Mode, lib *sim.Library, o optimem.Options) *optimem.Session {
	t.Helper()
	o.Device, o.CUDALibrary = cmp.Or(o.Device, "cuda"), lib.Path
	start := map[plan.Mode]func() (*optimem.Session, error){
		plan.Resident: func() (*optimem.Session, error) { return optimem.Resident(t.Context(), model, o) },
		plan.Page:     func() (*optimem.Session, error) { return optimem.Page(t.Context(), model, o) },
		plan.Chunk:    func() (*optimem.Session, error) { return optimem.Chunk(t.Context(), model, o) },
		plan.Auto:     func() (*optimem.Session, error) { return optimem.Auto(t.Context(), model, o) },
	}
	s, err := start[mode]()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDigitsOnGPU runs the model of examples/digits in every mode on the simulated driver: as the CPU does within the
// bounds of its ops, and with the same bits in all modes that place everything on the GPU.
func TestDigitsOnGPU(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(5)
	want := &tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(5, 10)}
	want.Data = runDigits(t, start(t, model, optimem.ResidentOptions{}), x)
	var resident []byte
	for _, order := range []string{"threads", "lazy:1", "lazy:2", "lazy:3"} {
		for _, mode := range []plan.Mode{plan.Resident, plan.Page, plan.Chunk, plan.Auto} {
			t.Run(fmt.Sprintf("%s %s", mode, order), func(t *testing.T) {
				lib := sim.New(t, "memory=64M order="+order)
				s := onGPU(t, model, mode, lib, optimem.Options{})
				out, err := s.Run(t.Context(), digitsInput(x))
				if errors.Is(err, graph.ErrUnsupported) {
					s.Close()
					t.Skip("NOT ON THE GPU: ", err)
				}
				if err != nil {
					t.Fatal(err)
				}
				var got *tensor.Tensor
				for _, y := range out {
					got = y
				}
				if err := devicetest.Compare(got, want, 1e-5); err != nil {
					t.Error(err)
				}
				if resident == nil {
					resident = got.Data
				}
				if !bytes.Equal(got.Data, resident) {
					t.Error("other bits than resident")
				}
				for range 2 {
					if again := runDigits(t, s, x); !bytes.Equal(again, resident) {
						t.Error("another pass gives other bits")
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				lib.Check(t)
			})
		}
	}
}

// TestGiveBackOnGPU: what a session gave back is free for others, and the next passes give the same bits.
func TestGiveBackOnGPU(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(5)
	for _, mode := range []plan.Mode{plan.Resident, plan.Page, plan.Chunk, plan.Auto} {
		t.Run(string(mode), func(t *testing.T) {
			lib := sim.New(t, "memory=64M order=lazy:5")
			s := onGPU(t, model, mode, lib, optimem.Options{})
			free := func() int64 {
				gpus, err := optimem.GPUs(lib.Path)
				if err != nil || len(gpus) != 1 {
					t.Fatalf("%d GPUs, %v", len(gpus), err)
				}
				return gpus[0].FreeBytes
			}
			idle, host := free(), s.Metrics().HostBytes
			var want []byte
			for range 2 {
				for range 5 { // from the third on ops are given out together
					got := runDigits(t, s, x)
					if want == nil {
						want = got
					}
					if !bytes.Equal(got, want) {
						t.Error("other bits")
					}
				}
				if s.Metrics().PeakBytes > 0 && free() >= idle {
					t.Error("nothing was held")
				}
				if err := s.GiveBack(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := free(); n != idle {
					t.Errorf("%d bytes are held", idle-n)
				}
				if n := s.Metrics().HostBytes; n != host {
					t.Errorf("%d bytes of the host's are held", n)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			lib.Check(t)
		})
	}
}

// TestMemoryTakenByOthers lets another process take memory after a session was opened, and again in its life: it plans for
// less and gives the same bits.
func TestMemoryTakenByOthers(t *testing.T) {
	model := build(t, digitsModel, nil)
	const total = 2 << 20
	lib := sim.New(t, fmt.Sprintf("memory=%d order=lazy:4", total))
	replans := 0
	s := onGPU(t, model, plan.Auto, lib, optimem.Options{Observe: func(e optimem.Event) {
		if e.Kind == optimem.Replanned {
			replans++
		}
	}})
	want, err := s.Run(t.Context(), digitsInput(pictures(5)))
	if errors.Is(err, graph.ErrUnsupported) {
		s.Close()
		t.Skip("NOT ON THE GPU: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	free := int64(total) - s.Metrics().PeakBytes
	for _, leave := range []int64{free / 2, 0} {
		lib.Take(0, free-leave)
		for _, rows := range []int{80, 5} { // more rows want more memory
			got, err := s.Run(t.Context(), digitsInput(pictures(rows)))
			if err != nil {
				t.Fatalf("%d bytes left: %v", leave, err)
			}
			if rows == 5 {
				for name := range want {
					if !bytes.Equal(got[name].Data, want[name].Data) {
						t.Errorf("%d bytes left: other bits", leave)
					}
				}
			}
		}
	}
	if replans == 0 {
		t.Error("nothing was planned anew")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	lib.Check(t)
}

// TestOpNotOnGPU runs a model with an op that only the CPU has: the auto mode moves it there, the others refuse the model.
func TestOpNotOnGPU(t *testing.T) {
	ops := mixOps(t)
	model := build(t, "testdata/mix.pt2", ops)
	want := recorded(t, "mix")[0]
	for _, mode := range []plan.Mode{plan.Auto, plan.Resident, plan.Page, plan.Chunk} {
		lib := sim.New(t, "memory=64M order=lazy:2")
		s := onGPU(t, model, mode, lib, optimem.Options{Ops: ops})
		got, err := s.Run(t.Context(), want.input())
		switch {
		case mode != plan.Auto && (!errors.Is(err, graph.ErrUnsupported) || !strings.Contains(err.Error(), "test::mix")):
			t.Errorf("%s: %v", mode, err)
		case mode == plan.Auto && err != nil:
			t.Error(err)
		case mode == plan.Auto:
			compare(t, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		lib.Check(t)
	}
}

// TestPageableMemory: what could not be page-locked is counted.
func TestPageableMemory(t *testing.T) {
	model := build(t, digitsModel, nil)
	for settings, counted := range map[string]bool{"memory=64M pinned=1": true, "memory=64M": false} {
		s := onGPU(t, model, plan.Page, sim.New(t, settings), optimem.Options{})
		runDigits(t, s, pictures(2))
		if n := s.Metrics().PageableBytes; counted != (n > 0) {
			t.Errorf("%s: %d bytes", settings, n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestObservedOnGPU: a driver that takes ops as graphs is given them one by one where each is observed, also on two GPUs, and
// the bits are the same.
func TestObservedOnGPU(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(2)
	for _, c := range []struct {
		mode    plan.Mode
		device  string
		devices int
	}{{plan.Resident, "cuda", 1}, {plan.Page, "cuda", 1}, {plan.Auto, "cuda:0,cuda:1", 2}} {
		lib := sim.New(t, fmt.Sprintf("devices=%d memory=64M order=lazy:6", c.devices))
		s := onGPU(t, model, plan.Resident, lib, optimem.Options{})
		want := runDigits(t, s, x)
		o := optimem.Options{Device: c.device}
		if c.devices > 1 {
			o.Memory = s.Metrics().PeakBytes * 3 / 4
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		var events []optimem.Event
		o.ObserveOps, o.Observe = true, opsOf(&events)
		s = onGPU(t, model, c.mode, lib, o)
		p, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {2, 1, 8, 8}})
		if err != nil || len(p.DeviceBytes()) != c.devices {
			t.Fatalf("%v\n%v", err, p)
		}
		for range 4 {
			events = nil
			if got := runDigits(t, s, x); !bytes.Equal(got, want) {
				t.Errorf("%s on %s: other bits", c.mode, c.device)
			}
			checkOps(t, p, events, 1)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		lib.Check(t)
	}
}

// TestDigitsOnTwoGPUs runs a model on two GPUs, each with half of the memory that it takes on one: the bits are the same.
func TestDigitsOnTwoGPUs(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(5)
	lib := sim.New(t, "memory=64M")
	s := onGPU(t, model, plan.Resident, lib, optimem.Options{})
	want, peak := runDigits(t, s, x), s.Metrics().PeakBytes
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []plan.Mode{plan.Resident, plan.Page, plan.Auto} {
		lib := sim.New(t, "devices=2 memory=64M order=lazy:5")
		budget := peak * 3 / 4
		s := onGPU(t, model, mode, lib, optimem.Options{Device: "cuda:0,cuda:1", Memory: budget})
		for range 2 {
			if got := runDigits(t, s, x); !bytes.Equal(got, want) {
				t.Errorf("%s: other bits", mode)
			}
		}
		p, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {5, 1, 8, 8}})
		if err != nil || len(p.DeviceBytes()) != 2 {
			t.Errorf("%s: %v", mode, err)
		}
		if m := s.Metrics(); m.PeakBytes > budget || m.PeakBytes != p.PeakBytes() || (mode == plan.Page) != (m.MovedBytes > 0) {
			t.Errorf("%s: %+v of %d bytes", mode, m, budget)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		lib.Check(t)
	}
}

// TestGPUsThatCannotBe names what is wrong with a list of GPUs.
func TestGPUsThatCannotBe(t *testing.T) {
	model := build(t, digitsModel, nil)
	lib := sim.New(t, "devices=2 memory=64M")
	for device, why := range map[string]string{
		"cuda:0,cuda:0": "once each", "cuda:0,cpu": "once each", "cuda:0,cuda:2": "there is no GPU of that number",
		"cuda:0,cuda:x": "has a number", "cuda,cuda:1": "once each",
	} {
		_, err := optimem.Auto(t.Context(), model, optimem.Options{Device: device, CUDALibrary: lib.Path})
		var failed *optimem.DeviceError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", device, err)
		}
	}
	lib.Check(t)
	s, err := optimem.Auto(t.Context(), model, optimem.Options{
		Device: "cuda:0,cuda:1", CUDALibrary: filepath.Join(t.TempDir(), "none"), PlanOnly: true, Memory: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {5, 1, 8, 8}})
	if err != nil || len(p.DeviceBytes()) != 2 {
		t.Errorf("a plan for GPUs that are not here: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoGPU gives the reason where a GPU was asked for, and runs on the CPU where none was.
func TestNoGPU(t *testing.T) {
	model := build(t, digitsModel, nil)
	absent := filepath.Join(t.TempDir(), "libcuda.so.1")
	_, err := optimem.Auto(t.Context(), model, optimem.Options{Device: "cuda", CUDALibrary: absent})
	var failed *optimem.DeviceError
	var why *cuda.UnavailableError
	if !errors.As(err, &failed) || !errors.As(err, &why) {
		t.Errorf("no driver: %v", err)
	}
	runDigits(t, start(t, model, optimem.ResidentOptions{CUDALibrary: absent}), pictures(1))
}

// TestPlanWithoutGPU plans for a GPU that is not here, given its memory, and runs nothing.
func TestPlanWithoutGPU(t *testing.T) {
	model := build(t, digitsModel, nil)
	o := optimem.Options{Device: "cuda", CUDALibrary: filepath.Join(t.TempDir(), "none"), PlanOnly: true}
	if _, err := optimem.Auto(t.Context(), model, o); err == nil {
		t.Error("a plan for an unknown amount of memory")
	}
	o.Memory = 64 << 20
	s, err := optimem.Auto(t.Context(), model, o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {5, 1, 8, 8}})
	if errors.Is(err, graph.ErrUnsupported) {
		t.Skip("NOT ON THE GPU: ", err)
	}
	if err != nil || p.PeakBytes() == 0 || p.Target.Name != "cuda" {
		t.Errorf("%v: %v", p, err)
	}
	if _, err := s.Run(t.Context(), digitsInput(pictures(5))); !errors.Is(err, optimem.ErrPlanOnly) {
		t.Errorf("a run without a GPU: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestFixturesOnGPU runs every exported program among the loader's fixtures that the GPU has kernels for, resident and
// paged, and compares with PyTorch. The others are listed.
func TestFixturesOnGPU(t *testing.T) {
	fixtures := recordedFixtures(t)
	ran := 0
	for _, name := range slices.Sorted(maps.Keys(fixtures)) {
		t.Run(name, func(t *testing.T) {
			model := build(t, fixturesFolder()+name, nil)
			var resident [][]byte
			for _, mode := range []plan.Mode{plan.Resident, plan.Page} {
				lib := sim.New(t, "memory=64M order=lazy:6")
				s := onGPU(t, model, mode, lib, optimem.Options{})
				for n, p := range fixtures[name] {
					got, err := s.Run(t.Context(), p.inputs(t, model))
					if errors.Is(err, graph.ErrUnsupported) {
						s.Close()
						t.Skip("NOT ON THE GPU: ", err)
					}
					if err != nil {
						t.Fatalf("%s: %v", mode, err)
					}
					p.compare(t, model, got)
					var bits []byte
					for _, output := range model.Outputs() {
						if y := got[output]; y != nil {
							bits = append(bits, y.Data...)
						}
					}
					if mode == plan.Resident {
						resident = append(resident, bits)
					} else if !bytes.Equal(bits, resident[n]) {
						t.Error("paging gives other bits")
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				lib.Check(t)
			}
			ran++
		})
	}
	t.Logf("%d of %d programs ran", ran, len(fixtures))
}

// TestPrecisionOnGPU: factors of products are rounded where that is asked for, with the same bits in the modes in which
// nothing is left to the CPU; the others refuse it, and so does a GPU that has no such products.
func TestPrecisionOnGPU(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(33)
	run := func(mode plan.Mode, precision string) *tensor.Tensor {
		lib := sim.New(t, "memory=64M order=lazy:1")
		s := onGPU(t, model, mode, lib, optimem.Options{Precision: precision})
		got := &tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(33, 10), Data: runDigits(t, s, x)}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		lib.Check(t)
		return got
	}
	want := run(plan.Resident, "")
	for precision, bound := range map[string]float64{"bf16": 1.0 / 64, "tf32": 1.0 / 512} {
		got := run(plan.Resident, precision)
		if err := devicetest.Compare(got, want, bound); err != nil {
			t.Errorf("%s: %v", precision, err)
		}
		if devicetest.Compare(got, want, 1e-5) == nil {
			t.Errorf("%s: nothing was rounded", precision)
		}
		if !bytes.Equal(run(plan.Page, precision).Data, got.Data) {
			t.Errorf("%s: paged gives other bits than resident", precision)
		}
	}
	for _, c := range []struct {
		mode                 plan.Mode
		precision, gpu, says string
	}{
		{plan.Auto, "bf16", "", "mode auto"},
		{plan.Chunk, "tf32", "", "mode chunk"},
		{plan.Resident, "tf32", "cc=75", "compute capability 7.5"},
	} {
		lib := sim.New(t, "memory=64M order=lazy:1 "+c.gpu)
		s := onGPU(t, model, c.mode, lib, optimem.Options{Precision: c.precision})
		_, err := s.Run(t.Context(), digitsInput(x))
		if !errors.Is(err, graph.ErrUnsupported) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
