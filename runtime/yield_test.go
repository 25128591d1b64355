package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A yielder yields in the middle of a pass: after its first group, from another goroutine.
type yielder struct {
	session *optimem.Session
	armed   atomic.Bool
	groups  atomic.Int64
	ended   chan error
}

func (y *yielder) observe(e optimem.Event) {
	if e.Group < 0 || e.Kind == optimem.OpDone {
		return
	}
	y.groups.Add(1)
	if !y.armed.CompareAndSwap(true, false) {
		return
	}
	go func() { y.ended <- y.session.Yield(context.Background()) }()
	for !y.session.Yielding() {
		time.Sleep(time.Microsecond)
	}
}

// TestYield: a pass that runs stops, nothing is held, and once the session may go on it gives the same bits.
func TestYield(t *testing.T) {
	model := build(t, digitsModel, nil)
	x := pictures(3)
	want := runDigits(t, start(t, model, optimem.Options{}), x)
	for _, m := range smallModes() {
		t.Run(fmt.Sprintf("%s on %s", m.name, m.opts.Device), func(t *testing.T) {
			y := &yielder{ended: make(chan error, 1)}
			m.opts.Observe = y.observe
			s := open(t, m, model)
			idle := offHeap()
			y.session = s
			runDigits(t, s, x)
			whole := y.groups.Swap(0)
			y.armed.Store(whole > 1)
			if !y.armed.Load() {
				t.Skip("one group: there is no middle")
			}
			got := make(chan []byte)
			go func() { got <- runDigits(t, s, x) }()
			if err := <-y.ended; err != nil {
				t.Fatal(err)
			}
			if n := offHeap(); n != idle {
				t.Errorf("%d bytes are held", n-idle)
			}
			if n := y.groups.Load(); n >= whole {
				t.Errorf("the pass went on for %d of %d groups", n, whole)
			}
			select {
			case <-got:
				t.Fatal("the pass did not wait")
			default:
			}
			s.Resume()
			if !bytes.Equal(<-got, want) {
				t.Error("other bits")
			}
			if runs := s.Metrics().Runs; runs != 2 {
				t.Errorf("%d runs", runs)
			}
		})
	}
}

// TestYieldKeepsStates: a pass that stops has changed no buffer.
func TestYieldKeepsStates(t *testing.T) {
	model := build(t, "testdata/states.pt2", nil)
	for _, device := range []string{"cpu", "emu:memory=64MiB"} {
		y := &yielder{ended: make(chan error, 1)}
		s := open(t, mode{start: optimem.Page, opts: optimem.Options{Device: device, Observe: y.observe}}, model)
		y.session = s
		for _, want := range recorded(t, "states") {
			y.armed.Store(true)
			go func() {
				if err := <-y.ended; err != nil {
					t.Error(err)
				}
				s.Resume()
			}()
			got, err := s.Run(t.Context(), want.input())
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, want)
		}
	}
}

// TestYieldHoldsCalls: while the session yields calls wait, each as long as its context lets it, and closing ends that.
func TestYieldHoldsCalls(t *testing.T) {
	model := build(t, digitsModel, nil)
	in := optimem.Values{"input": tensor.Of(pictures(1), 1, 1, 8, 8)}
	s := open(t, mode{start: optimem.Page, opts: optimem.Options{Memory: 1 << 20}}, model)
	for range 2 { // the second time nothing is left to do
		if err := s.Yield(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, in); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ran while yielding: %v", err)
	}
	// Calls that would share a pass: one gives up, the others are answered.
	ended := make(chan error)
	leaving, leave := context.WithCancel(t.Context())
	free := s.TakeTurn() // until all wait: else the first two may share a pass before the third comes
	for _, ctx := range []context.Context{t.Context(), leaving, t.Context()} {
		go func() {
			_, err := s.Run(ctx, in)
			ended <- err
		}()
	}
	s.WaitFor(3)
	free()
	s.WaitForNobody() // they share a pass, which stands aside
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("who left: %v", err)
	}
	select {
	case err := <-ended:
		t.Errorf("another call ended: %v", err)
	default:
	}
	s.Resume()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	s.Resume() // of nothing
	if err := s.Yield(t.Context()); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := s.Run(t.Context(), in)
		ended <- err
	}()
	s.WaitForTurnTaken()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("of a session that was closed meanwhile: %v", err)
	}
	if err := s.Yield(t.Context()); !errors.Is(err, optimem.ErrClosed) || s.Yielding() {
		t.Errorf("closed: %v", err)
	}
}

// TestYieldGivesUp: where the memory is not free in time, the session goes on.
func TestYieldGivesUp(t *testing.T) {
	s := start(t, build(t, digitsModel, nil), optimem.Options{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	free := s.TakeTurn()
	if err := s.Yield(gone); !errors.Is(err, context.Canceled) || s.Yielding() {
		t.Errorf("%v", err)
	}
	free()
	runDigits(t, s, pictures(1))
}
