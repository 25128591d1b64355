package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestGiveBack: after it the session holds nothing, in any mode, and the next passes give the same bits.
func TestGiveBack(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(3)
	want := runDigits(t, start(t, model, optimem.Options{}), x)
	for _, m := range smallModes() {
		t.Run(fmt.Sprintf("%s on %s", m.name, m.opts.Device), func(t *testing.T) {
			before := offHeap()
			s, err := m.start(t.Context(), model, m.opts)
			if err != nil {
				t.Fatal(err)
			}
			idle := offHeap()
			if err := s.GiveBack(t.Context()); err != nil {
				t.Errorf("before the first pass: %v", err)
			}
			for range 3 {
				for range 2 {
					if got := runDigits(t, s, x); !bytes.Equal(got, want) {
						t.Error("other bits")
					}
				}
				if offHeap() == idle {
					t.Error("nothing was held")
				}
				for range 2 { // the second time there is nothing left
					if err := s.GiveBack(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if n := offHeap(); n != idle {
					t.Errorf("%d bytes are held", n-idle)
				}
				if m := s.Metrics(); m.WeightBytes+m.RingBytes+m.ActivationBytes+m.WorkBytes+m.HostBytes != 0 {
					t.Errorf("the metrics still count %+v", m)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if n := offHeap(); n != before {
				t.Errorf("%d bytes are left", n-before)
			}
			if err := s.GiveBack(t.Context()); !errors.Is(err, optimem.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		})
	}
}

// TestGiveBackKeepsStates: what a program changes goes on from what it was.
func TestGiveBackKeepsStates(t *testing.T) {
	model := build(t, "testdata/states.pt2", nil)
	for _, device := range []string{"cpu", "emu:memory=64MiB"} {
		s := start(t, model, optimem.Options{Device: device})
		for _, want := range recorded(t, "states") {
			got, err := s.Run(t.Context(), want.input())
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, want)
			for range 2 {
				if err := s.GiveBack(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestGiveBackBetweenCalls gives back and resizes while others run: each has its results.
func TestGiveBackBetweenCalls(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(2)
	want := runDigits(t, start(t, model, optimem.Options{}), x)
	for _, mode := range []func() (*optimem.Session, error){
		func() (*optimem.Session, error) { return optimem.Page(t.Context(), model, optimem.Options{}) },
		func() (*optimem.Session, error) {
			return optimem.Auto(t.Context(), model, optimem.Options{Device: "emu:memory=64MiB"})
		},
	} {
		s, err := mode()
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				for range 20 {
					out, err := s.Run(t.Context(), digitsInput(x))
					if err != nil {
						t.Error(err)
						return
					}
					for _, y := range out {
						if !bytes.Equal(y.Data, want) {
							t.Error("other bits")
						}
					}
				}
			})
		}
		calls.Go(func() {
			for i := range 20 {
				if err := s.GiveBack(t.Context()); err != nil {
					t.Error(err)
				}
				if err := s.Resize(t.Context(), int64(1+i%2)<<20); err != nil {
					t.Error(err)
				}
			}
		})
		calls.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestResize goes from a budget that holds the model to one that pages it, and back.
func TestResize(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(3)
	want := runDigits(t, start(t, model, optimem.Options{}), x)
	const much, little = 4 << 20, 350 << 10
	for _, device := range []string{"cpu", "emu:memory=64MiB,bandwidth=12GB/s"} {
		t.Run(device, func(t *testing.T) {
			s, err := optimem.Auto(t.Context(), model, optimem.Options{Device: device, Memory: much})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			// moved returns the bytes that a pass brings once the session is used to its budget.
			moved := func() int64 {
				for range 2 {
					if got := runDigits(t, s, x); !bytes.Equal(got, want) {
						t.Error("other bits")
					}
				}
				before := s.Metrics().MovedBytes
				runDigits(t, s, x)
				return s.Metrics().MovedBytes - before
			}
			for range 2 {
				if n := moved(); n != 0 {
					t.Errorf("%d bytes are brought although everything fits", n)
				}
				if err := s.Resize(t.Context(), little); err != nil {
					t.Fatal(err)
				}
				if n := onDevice(s); n > little {
					t.Errorf("%d bytes are still held of %d", n, little)
				}
				if n := moved(); n == 0 && device == "cpu" {
					t.Error("nothing is brought although it does not fit")
				}
				if n := onDevice(s); n > little {
					t.Errorf("%d bytes are held of %d", n, little)
				}
				// What does not fit changes nothing.
				err := s.Resize(t.Context(), 1000)
				var capacity *plan.CapacityError
				if !errors.As(err, &capacity) || capacity.MinBytes > little {
					t.Fatalf("1000 bytes: %v", err)
				}
				if got := runDigits(t, s, x); !bytes.Equal(got, want) {
					t.Error("other bits")
				}
				if err := s.Resize(t.Context(), capacity.MinBytes); err != nil {
					t.Errorf("the least that works does not: %v", err)
				}
				if got := runDigits(t, s, x); !bytes.Equal(got, want) {
					t.Error("other bits")
				}
				if err := s.Resize(t.Context(), much); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Resize(t.Context(), 0); err == nil {
				t.Error("no memory is a budget")
			}
		})
	}
}

// onDevice is what a session has of its device after its last pass.
func onDevice(s *optimem.Session) int64 {
	m := s.Metrics()
	return m.WeightBytes + m.RingBytes + m.ActivationBytes + m.WorkBytes
}

// TestGiveBackWaits: whose context ends while a pass runs does not wait for it.
func TestGiveBackWaits(t *testing.T) {
	model := build(t, digitsModel, nil)
	var s *optimem.Session
	tried := false
	s, err := optimem.Page(t.Context(), model, optimem.Options{Observe: func(optimem.Event) {
		if tried {
			return
		}
		tried = true
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for name, f := range map[string]func() error{
			"give back": func() error { return s.GiveBack(ctx) },
			"resize":    func() error { return s.Resize(ctx, 1<<30) },
		} {
			if err := f(); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	runDigits(t, s, pictures(1))
	if !tried {
		t.Error("nothing was observed")
	}
}

// TestResizeReachesAll: a new budget is that of a program, too, which is not among those kept any more.
func TestResizeReachesAll(t *testing.T) {
	const rows = 40
	model := build(t, digitsModel, nil)
	probe, err := optimem.Auto(t.Context(), model, optimem.Options{PlanOnly: true, Memory: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	_, err = probe.Plan(t.Context(), map[string]tensor.Shape{"input": {rows, 1, 8, 8}})
	var capacity *plan.CapacityError
	if !errors.As(err, &capacity) {
		t.Fatal(err)
	}
	s, err := optimem.Auto(t.Context(), model, optimem.Options{Memory: capacity.MinBytes + 30_000})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := func() int64 {
		before := s.Metrics().MovedBytes
		if _, err := s.Run(t.Context(), digitsInput(pictures(rows))); err != nil {
			t.Fatal(err)
		}
		return s.Metrics().MovedBytes - before
	}
	if run() == 0 {
		t.Fatal("nothing is paged")
	}
	for n := 1; n < rows; n++ { // more than are kept
		if _, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {n, 1, 8, 8}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Resize(t.Context(), 64<<20); err != nil {
		t.Fatal(err)
	}
	run()
	if moved := run(); moved != 0 {
		t.Errorf("%d bytes are brought in each pass within 64 MiB", moved)
	}
}
