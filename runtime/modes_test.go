package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A mode is a way to start a session.
type mode struct {
	name  string
	start func(context.Context, *models.Model, optimem.Options) (*optimem.Session, error)
	opts  optimem.Options
}

// smallModes are ways to run the digits in less memory than their weights take.
func smallModes() []mode {
	params := func(n int64) plan.Limit { return plan.Limit{N: n, Unit: plan.Params} }
	var list []mode
	for _, device := range []string{"cpu", "emu:memory=64MiB,bandwidth=12GB/s,latency=10us"} {
		list = append(list,
			mode{"resident", optimem.Resident, optimem.Options{Device: device}},
			mode{"page", optimem.Page, optimem.Options{Device: device}},
			mode{"page whole", optimem.Page, optimem.Options{Device: device, MaxGroup: params(1 << 40)}},
			mode{"chunk", optimem.Chunk, optimem.Options{Device: device, Capacity: params(30_000)}},
			mode{"chunk nothing", optimem.Chunk, optimem.Options{Device: device, Capacity: params(0)}},
			mode{"auto", optimem.Auto, optimem.Options{Device: device, Memory: 500 << 10}},
			mode{"resident once", optimem.Resident, optimem.Options{Device: device, Once: true}},
			mode{"page once", optimem.Page, optimem.Options{Device: device, Once: true}},
			mode{"auto once", optimem.Auto, optimem.Options{Device: device, Once: true, Memory: 300 << 10}},
		)
	}
	return list
}

// TestModes runs the digits in every mode, on the CPU and on the emulated device: the same bits for several shapes in
// turn, and no more memory than the plan says.
func TestModes(t *testing.T) {
	model := build(t, digitsModel, nil)
	want := make(map[int][]byte)
	for _, m := range smallModes() {
		t.Run(fmt.Sprintf("%s on %s", m.name, m.opts.Device), func(t *testing.T) {
			s, err := m.start(t.Context(), model, m.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			for range 2 {
				for _, rows := range []int{1, 3, 2} {
					got := runDigits(t, s, pictures(rows))
					if want[rows] == nil {
						want[rows] = got
					}
					if !bytes.Equal(got, want[rows]) {
						t.Errorf("%d rows give other bits", rows)
					}
				}
			}
			if peak := s.Metrics().PeakBytes; m.opts.Memory > 0 && peak > m.opts.Memory {
				t.Errorf("%d bytes were held of %d", peak, m.opts.Memory)
			}
		})
	}
}

// TestTooSmall: what does not fit is an error with the budget that would do, which then does.
func TestTooSmall(t *testing.T) {
	model := build(t, digitsModel, nil)
	for _, m := range smallModes() {
		if m.name == "chunk nothing" && m.opts.Device != "cpu" {
			continue // the host computes everything
		}
		m.opts.Memory = 10_000
		s, err := m.start(t.Context(), model, m.opts)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Run(t.Context(), digitsInput(pictures(2)))
		var capacity *plan.CapacityError
		if !errors.As(err, &capacity) || capacity.MinBytes <= m.opts.Memory {
			t.Fatalf("%s on %s: got %v, want a capacity error", m.name, m.opts.Device, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		m.opts.Memory = capacity.MinBytes
		if s, err = m.start(t.Context(), model, m.opts); err != nil {
			t.Fatal(err)
		}
		runDigits(t, s, pictures(2))
		if peak := s.Metrics().PeakBytes; peak > m.opts.Memory {
			t.Errorf("%s on %s: %d bytes were held of %d", m.name, m.opts.Device, peak, m.opts.Memory)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBadOptions: numbers that cannot be meant are refused before anything is opened.
func TestBadOptions(t *testing.T) {
	model := build(t, digitsModel, nil)
	for name, o := range map[string]optimem.Options{
		"memory": {Memory: -1}, "host memory": {HostMemory: -1}, "micro-batch": {MicroBatch: -1}, "joined": {MaxJoin: -1},
		"threads": {Threads: -1}, "many threads": {Threads: optimem.MaxThreads + 1},
	} {
		for _, m := range smallModes() {
			o.Device = m.opts.Device
			wantOptionError(t, name+", "+m.name, m.start, model, o)
		}
	}
	// What a mode has no use for.
	some := plan.Limit{N: 1000, Unit: plan.Params}
	wantOptionError(t, "groups of what stays", optimem.Resident, model, optimem.Options{MaxGroup: some})
	for name, start := range map[string]starter{"page": optimem.Page, "auto": optimem.Auto, "resident": optimem.Resident} {
		wantOptionError(t, "a prefix in the mode "+name, start, model, optimem.Options{Capacity: some})
		wantOptionError(t, "no prefix in the mode "+name, start, model, optimem.Options{Capacity: plan.Limit{Unit: plan.Params}})
	}
}

type starter = func(context.Context, *models.Model, optimem.Options) (*optimem.Session, error)

// wantOptionError demands that a session is refused for its options.
func wantOptionError(t *testing.T, name string, start starter, model *models.Model, o optimem.Options) {
	t.Helper()
	s, err := start(t.Context(), model, o)
	var option *optimem.OptionError
	if !errors.As(err, &option) {
		t.Errorf("%s: %v", name, err)
	}
	if err == nil {
		_ = s.Close()
	}
}

// TestBadDevices: a device that cannot be used is an error that names it.
func TestBadDevices(t *testing.T) {
	for _, device := range []string{
		"gpu", "cpu:2", "emu:memory=-1", "emu:memory=0", "emu:bandwidth=0", "emu:speed=3", "emu:latency=-1s", "emu:bandwidth=x",
		"emu:memory=1e30", "emu:memory=1GiB,latency=1us,memory=2GiB",
	} {
		_, err := optimem.Page(t.Context(), new(models.Model), optimem.Options{Device: device})
		var bad *optimem.DeviceError
		if !errors.As(err, &bad) || bad.Device != device {
			t.Errorf("%s: got %v", device, err)
		}
	}
}

// TestGivenOutputs: outputs that no op computes are there where the CPU beside a device computes all.
func TestGivenOutputs(t *testing.T) {
	for _, name := range []string{"resets", "odd"} {
		s, err := optimem.Chunk(t.Context(), build(t, "testdata/"+name+".pt2", nil), optimem.Options{Device: "emu:memory=64MiB", Memory: 300})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range recorded(t, name) {
			p, err := s.Plan(t.Context(), map[string]tensor.Shape{"x": want.input()["x"].Layout.Shape})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(p.Groups, func(g plan.Group) bool { return g.OnHost }) {
				t.Errorf("%s: nothing is on the host\n%v", name, p)
			}
			got, err := s.Run(t.Context(), want.input())
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
