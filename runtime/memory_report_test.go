package runtime_test

import (
	"context"
	"slices"
	"testing"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/memory"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// sums checks that the storages and the rest of each device add up to what the device counts, and returns the sum of those that are
// not the host's memory.
func sums(t *testing.T, what string, r *memory.Report) (onDevices int64) {
	t.Helper()
	for i := range r.Devices {
		d := &r.Devices[i]
		if n := d.StorageBytes() + d.RestBytes(); n != d.HeldBytes {
			t.Errorf("%s: %s adds up to %d of %d\n%s", what, d.Name, n, d.HeldBytes, r.Text(memory.Verbose))
		}
		if d.Name != memory.Host {
			onDevices += d.HeldBytes
		}
	}
	return onDevices
}

// TestMemoryAddsUp: in every mode, on the CPU and on an emulated device, what a report lists adds up to the byte to what the
// device counts: before the first pass, at the end of each group of one, for which the plan is asked, after it, and after the
// memory was given back.
func TestMemoryAddsUp(t *testing.T) {
	fixtures := recordedFixtures(t)
	for _, name := range []string{"", "pt2_shared.pt2", "pt2_tied.pt2", "pt2_buffer.pt2", "pt2_constants.pt2", "pt2_views.pt2", "pt2_attention.pt2"} {
		path, in := digitsModel, digitsInput(pictures(1))
		model := build(t, path, nil)
		if name != "" {
			path = fixturesFolder() + name
			model = build(t, path, nil)
			in = fixtures[name][0].inputs(t, model)
		}
		for _, m := range smallModes() {
			if m.opts.Device != "cpu" {
				continue
			}
			before := offHeap()
			counted := int64(-1)
			m.opts.Observe = func(e optimem.Event) {
				if e.Kind == optimem.GroupDone {
					counted = offHeap() - before
				}
			}
			s := open(t, m, model)
			memoryOver(t, path+" "+m.name, s, in, func() int64 { return offHeap() - before }, func() int64 { return counted })
		}
		for _, m := range emulatedModes() {
			var counted int64
			var dev *emulated.Device
			o := m.opts
			o.Observe = func(e optimem.Event) {
				if e.Kind == optimem.GroupDone {
					counted = dev.Allocated()
				}
			}
			var s *optimem.Session
			s, dev = emulate(t, model, m.mode, o, emulated.Options{MemoryBytes: 64 << 20})
			first := func(r *memory.Report) int64 { return r.Devices[0].HeldBytes }
			memoryOverBy(t, path+" emulated "+m.name, s, in, dev.Allocated, func() int64 { return counted }, first)
		}
	}
}

func memoryOver(t *testing.T, what string, s *optimem.Session, in optimem.Values, now, during func() int64) {
	t.Helper()
	all := func(r *memory.Report) int64 { return sums(t, what, r) }
	memoryOverBy(t, what, s, in, now, during, all)
}

func memoryOverBy(
	t *testing.T, what string, s *optimem.Session, in optimem.Values, now, during func() int64, of func(*memory.Report) int64,
) {
	t.Helper()
	ask := func(when string) {
		t.Helper()
		r, err := s.Memory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sums(t, what+", "+when, r)
		if got, want := of(r), now(); got != want {
			t.Errorf("%s, %s: reported are %d bytes, %d are there\n%s", what, when, got, want, r.Text(memory.Verbose))
		}
	}
	ask("before")
	shapes := make(map[string]tensor.Shape)
	for name, x := range in {
		shapes[name] = x.Layout.Shape
	}
	p, err := s.Plan(t.Context(), shapes)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Run(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		r := s.PlannedMemory(p)
		sums(t, what+", planned", r)
		if got, want := of(r), during(); got != want && p.PeakBytes() == p.PassBytes() {
			t.Errorf("%s: planned are %d bytes, a pass had %d\n%s", what, got, want, r.Text(memory.Verbose))
		}
	}
	ask("after")
	hostSums(t, what, s, p)
	if err := s.GiveBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask("given back")
}

// hostSums checks what reports say of the host's memory beside a device: as much as the plan and the session do, and the copies of
// weights that the plan keeps.
func hostSums(t *testing.T, what string, s *optimem.Session, p *plan.Plan) {
	t.Helper()
	now, err := s.Memory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held := func(r *memory.Report) (all, copies int64) {
		for _, d := range r.Devices[1:] {
			all += d.HeldBytes
			for _, x := range d.Rest {
				if x.Name == "copies of weights" {
					copies += x.Bytes
				}
			}
		}
		return all, copies
	}
	all, copies := held(now)
	if all != s.Metrics().HostBytes || p.Sides == nil && copies != p.HostCopyBytes {
		t.Errorf("%s: of the host's memory %d bytes are reported and %d held, copies %d of %d", what, all, s.Metrics().HostBytes, copies, p.HostCopyBytes)
	}
	if all, copies = held(s.PlannedMemory(p)); all != p.HostBytes() || p.Sides == nil && copies != p.HostCopyBytes {
		t.Errorf("%s: of the host's memory %d bytes are reported and %d planned", what, all, p.HostBytes())
	}
}

// stepModel is a Llama of 32 tokens that is run step by step, with caches of four blocks, and inputs of three tokens.
func stepModel(t *testing.T) (*models.Model, optimem.Values) {
	t.Helper()
	steps, err := build(t, "../models/testdata/families/hf/tiny_llama", nil).Steps(models.StepOptions{Blocks: 4})
	if err != nil {
		t.Fatal(err)
	}
	return steps, optimem.Values{
		models.StepTokens: tensor.Of([]int64{3, 1, 4}, 3), models.StepPositions: tensor.Of([]int64{0, 1, 2}, 3),
		models.StepBlocks: tensor.Of([]int64{2, 0, 2, 0, 2, 0}, 3, 2), models.StepWanted: tensor.Of([]int64{2}, 1),
	}
}

// TestMemoryOfCachesAddsUp: so does that of a session with caches, which are there by name, with their shapes, and stay where
// the rest of the memory is given back until they are dropped.
func TestMemoryOfCachesAddsUp(t *testing.T) {
	model, in := stepModel(t)
	for _, device := range []string{"cpu", "emu"} {
		for _, m := range []emulatedMode{
			{"resident", plan.Resident, optimem.Options{}},
			{"page", plan.Page, optimem.Options{}},
			{"chunk", plan.Chunk, optimem.Options{Capacity: plan.Limit{N: 1500, Unit: plan.Params}}},
			{"page once", plan.Page, optimem.Options{Once: true}},
		} {
			what, o := m.name+" on "+device, m.opts
			o.Mode, o.Device = m.mode, device
			before, counted := offHeap(), int64(-1)
			now := func() int64 { return offHeap() - before }
			of := func(r *memory.Report) int64 { return sums(t, what, r) }
			o.Observe = func(e optimem.Event) {
				if e.Kind == optimem.GroupDone {
					counted = now()
				}
			}
			var s *optimem.Session
			if device == "cpu" {
				s = open(t, mode{m.name, optimem.Start, o}, model)
			} else {
				var dev *emulated.Device
				s, dev = emulate(t, model, m.mode, o, emulated.Options{MemoryBytes: 64 << 20})
				now = dev.Allocated
				of = func(r *memory.Report) int64 { return r.Devices[0].HeldBytes }
			}
			memoryOverBy(t, what, s, in, now, func() int64 { return counted }, of)
			cachesOver(t, what, s, in, now)
		}
	}
}

// cachesOver checks what reports say of the caches of a session of [stepModel] that gave back what it could.
func cachesOver(t *testing.T, what string, s *optimem.Session, in optimem.Values, now func() int64) {
	t.Helper()
	shapes := make(map[string]tensor.Shape)
	for name, x := range in {
		shapes[name] = x.Layout.Shape
	}
	p, err := s.Plan(t.Context(), shapes)
	if err != nil {
		t.Fatal(err)
	}
	caches := func(r *memory.Report) (names []string, bytes int64) {
		for _, d := range r.Devices {
			for _, x := range d.Storages {
				if x.Kind != memory.Cache {
					continue
				}
				names, bytes = append(names, x.Name), bytes+x.Bytes
				if want := (tensor.Shape{4 * graph.BlockRows, 1, 8}); !slices.Equal(x.Shape, want) || x.DType != "float32" ||
					x.UsedBytes != 4*graph.BlockRows*8*4 || x.Bytes < x.UsedBytes {
					t.Errorf("%s: %+v, want a shape of %v", what, x, want)
				}
			}
		}
		slices.Sort(names)
		return names, bytes
	}
	want := []string{"model.layers.0.self_attn.keys", "model.layers.0.self_attn.values"}
	planned, plannedBytes := caches(s.PlannedMemory(p))
	for _, x := range s.PlannedMemory(p).Devices[0].Storages { // as the checkpoint has it
		if want := (tensor.Shape{32, 16}); x.Name == "lm_head.weight" && !slices.Equal(x.Shape, want) {
			t.Errorf("%s: %+v, want a shape of %v", what, x, want)
		}
	}
	left, err := s.Memory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held, heldBytes := caches(left)
	if !slices.Equal(planned, want) || !slices.Equal(held, want) || plannedBytes != heldBytes {
		t.Errorf("%s: caches %v of %d bytes are planned, %v of %d held", what, planned, plannedBytes, held, heldBytes)
	}
	if err := s.DropCaches(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err = s.Memory(t.Context()); err != nil {
		t.Fatal(err)
	}
	sums(t, what+", dropped", left)
	if names, _ := caches(left); len(names) > 0 || left.Devices[0].HeldBytes != now() || now() != 0 {
		t.Errorf("%s: caches %v after they were dropped; %d bytes are there\n%s", what, names, now(), left.Text(memory.Verbose))
	}
}

// TestMemoryWhileClosed: a closed session and a call that gave up get an error.
func TestMemoryWhileClosed(t *testing.T) {
	s := start(t, build(t, digitsModel, nil), optimem.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := s.Memory(ctx); err == nil && r == nil {
		t.Error("neither a report nor an error")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Memory(t.Context()); err != optimem.ErrClosed {
		t.Errorf("%v", err)
	}
}

// TestPackedWeightsHaveBothSizes: a weight that the device packs has what it takes and what the file has; at the peak the
// activations are named, and inputs are among them.
func TestPackedWeightsHaveBothSizes(t *testing.T) {
	model := build(t, digitsModel, nil)
	s := start(t, model, optimem.Options{Mode: plan.Resident})
	p, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {4, 1, 8, 8}})
	if err != nil {
		t.Fatal(err)
	}
	r := s.PlannedMemory(p)
	kinds := make(map[string][]string)
	for _, x := range r.Devices[0].Storages {
		kinds[x.Kind] = append(kinds[x.Kind], x.Name)
		if x.Kind != memory.Packed {
			continue
		}
		k := slices.IndexFunc(p.Fixed.Packed, func(c plan.Packed) bool {
			return p.Lowered.Graph.Values[c.Operand.Value].Weight.Name == x.Name
		})
		if c := &p.Fixed.Packed[k]; x.Bytes != c.Pack.Bytes || x.UsedBytes != c.High-c.Low {
			t.Errorf("%+v is planned as %+v", x, c)
		}
	}
	if len(p.Fixed.Packed) > 0 && len(kinds[memory.Packed]) != len(p.Fixed.Packed) {
		t.Errorf("%v of %d packed weights", kinds[memory.Packed], len(p.Fixed.Packed))
	}
	if len(kinds[memory.Activation]) == 0 || r.Moment == "peak" {
		t.Errorf("%s: %v", r.Moment, kinds)
	}
	if d := r.Of("cpu"); len(d.Devices) != 1 || len(r.Of("cp").Devices) != 0 || len(r.Of("cuda").Devices) != 0 {
		t.Errorf("of the cpu: %+v", d)
	}
}
