package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const callers = 32

// lone returns what a session by itself gives for each caller's inputs.
func lone(t *testing.T, model *models.Model, input func(caller int) optimem.Values) [][]byte {
	t.Helper()
	s := start(t, model, optimem.Options{})
	want := make([][]byte, callers)
	for i := range want {
		out, err := s.Run(t.Context(), input(i))
		if err != nil {
			t.Fatal(err)
		}
		want[i] = out[model.Outputs()[0]].Data
	}
	return want
}

// callerPictures is a picture of the caller's own.
func callerPictures(caller int) optimem.Values {
	x := make([]float32, 64)
	for i := range x {
		x[i] = float32((i*(caller+3))%17) / 16
	}
	return optimem.Values{"input": tensor.Of(x, 1, 1, 8, 8)}
}

// TestJoin has 32 goroutines call a session in every mode: each gets what it would have got by itself, and where weights
// are paged the bytes moved are those of fewer passes than there were calls.
func TestJoin(t *testing.T) {
	const held, free = 2, 4 // rounds
	model := build(t, digitsModel, nil)
	want := lone(t, model, callerPictures)
	for _, m := range smallModes() {
		for _, join := range []int{0, 1, 5} {
			t.Run(fmt.Sprintf("%s on %s, %d", m.name, m.opts.Device, join), func(t *testing.T) {
				m.opts.MaxJoin = join
				m.opts.Memory = 0
				if m.name == "auto" {
					m.opts.Memory = 340 << 10
				}
				var most atomic.Int64
				var hold atomic.Bool
				var s *optimem.Session
				m.opts.Observe = func(e optimem.Event) {
					if e.Kind != optimem.PassDone {
						return
					}
					if hold.CompareAndSwap(true, false) {
						s.WaitFor(callers - e.Instances)
					}
					most.Store(max(most.Load(), int64(e.Instances))) // passes take turns
				}
				s = open(t, m, model)
				call := func(caller, rounds int) {
					y := optimem.Values{"linear_1": tensor.Of(make([]float32, 10), 1, 10)}
					for round := range rounds {
						in := callerPictures(caller)
						var err error
						out := y
						if round%2 == 0 {
							out, err = s.Run(t.Context(), in)
						} else {
							err = s.RunInto(t.Context(), in, y)
						}
						if err != nil || !bytes.Equal(out["linear_1"].Data, want[caller]) {
							t.Errorf("caller %d: other bits, %v", caller, err)
						}
					}
				}
				all := func(rounds int) {
					var wait sync.WaitGroup
					for i := range callers {
						wait.Go(func() { call(i, rounds) })
					}
					wait.Wait()
				}
				for range held { // the first pass lasts until everybody else waits
					hold.Store(true)
					all(1)
				}
				waited := s.Metrics()
				all(free)
				got := s.Metrics()
				if got.Calls != callers*(held+free) || got.Runs+got.Joined != got.Calls {
					t.Errorf("%d calls, %d joined, %d passes", got.Calls, got.Joined, got.Runs)
				}
				shares := got.MovedBytes > 0 || m.name == "chunk" && strings.HasPrefix(m.opts.Device, "emu") // with the CPU
				limit := map[bool]int{true: 8, false: 1}[shares]
				if join > 0 {
					limit = join
				}
				if most.Load() > int64(limit) {
					t.Errorf("%d calls in a pass of at most %d", most.Load(), limit)
				}
				if limit > 1 && waited.Runs > held*(1+callers/2) {
					t.Errorf("%d passes for %d calls, all but %d of which waited: nobody joins", waited.Runs, waited.Calls, held)
				}
				shapes := map[string]tensor.Shape{"input": {1, 1, 8, 8}}
				pl, err := s.Plan(t.Context(), shapes)
				if err != nil {
					t.Fatal(err)
				}
				if m.name == "auto" { // weights may give way to calls
					if limit > 1 && waited.MovedBytes > waited.Calls*pl.MovedBytes*3/4 {
						t.Errorf("%d passes moved %d bytes, %d calls alone %d each",
							waited.Runs, waited.MovedBytes, waited.Calls, pl.MovedBytes)
					}
				} else if pl.Sides == nil && got.MovedBytes > got.Runs*pl.MovedBytes {
					t.Errorf("%d passes moved %d bytes, one alone %d", got.Runs, got.MovedBytes, pl.MovedBytes)
				}
				if m.opts.Memory > 0 && got.PeakBytes > m.opts.Memory {
					t.Errorf("%d of %d bytes were held", got.PeakBytes, m.opts.Memory)
				}
			})
		}
	}
}

// held opens a session of the program with a gate whose first pass waits until it is let go.
func held(t *testing.T, opts optimem.Options) (s *optimem.Session, entered, letGo chan struct{}) {
	t.Helper()
	entered, letGo = make(chan struct{}, 100), make(chan struct{})
	g := &gate{pass: func() {
		entered <- struct{}{}
		<-letGo
	}}
	opts.Ops = g.registry(t)
	return open(t, mode{start: optimem.Page, opts: opts}, build(t, "testdata/gate.pt2", opts.Ops)), entered, letGo
}

// TestCancelledMembers: of calls that share a pass, one that is cancelled gets its context's error and the others what
// they would have got; one that is cancelled in the queue never gets into a pass; where all are cancelled the pass ends.
func TestCancelledMembers(t *testing.T) {
	runs := recorded(t, "gate")
	input := runs[0].input
	for _, all := range []bool{false, true} {
		s, entered, letGo := held(t, optimem.Options{})
		results := make(chan error, 10)
		call := func(ctx context.Context) {
			out, err := s.Run(ctx, input())
			if err == nil {
				compare(t, out, runs[0])
			}
			results <- err
		}
		go call(t.Context())
		<-entered // the first is in its pass; whoever comes now waits
		contexts := make([]context.CancelFunc, 4)
		for i := range contexts {
			var ctx context.Context
			ctx, contexts[i] = context.WithCancel(t.Context())
			defer contexts[i]()
			go call(ctx)
		}
		s.WaitFor(len(contexts))
		contexts[3]()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled while it waited: %v", err)
		}
		letGo <- struct{}{}
		if err := <-results; err != nil {
			t.Fatal(err)
		}
		<-entered // the other three share a pass, and the first of them is in the gate
		contexts[1]()
		if all {
			contexts[0]()
			contexts[2]()
		}
		close(letGo)
		var cancelled, done int
		for range 3 {
			switch err := <-results; {
			case err == nil:
				done++
			case errors.Is(err, context.Canceled):
				cancelled++
			default:
				t.Error(err)
			}
		}
		if want := map[bool]int{true: 3, false: 1}[all]; cancelled != want || done != 3-want {
			t.Errorf("%d cancelled, %d done", cancelled, done)
		}
		if out, err := s.Run(t.Context(), input()); err != nil {
			t.Error(err)
		} else {
			compare(t, out, runs[0])
		}
	}
}

// TestLeavingAPart: where a device refuses memory to calls that share a pass, and the one that goes first is then cancelled,
// the other goes on. The n-th allocation is refused, and where everything is brought anew after that, all that follow.
func TestLeavingAPart(t *testing.T) {
	const memory = 16 << 20
	model := build(t, digitsModel, nil)
	want := lone(t, model, callerPictures)
	parted := 0
	for fail := range 12 {
		first, cancel := context.WithCancel(t.Context())
		defer cancel()
		entered := make(chan struct{})
		var s *optimem.Session
		var dev *emulated.Device
		shared := false // passes take turns
		observe := func(e optimem.Event) {
			switch {
			case e.Kind == optimem.PassDone && !shared:
				shared = true
				close(entered)
				s.WaitFor(2)
			case e.Kind == optimem.WeightsLoaded && shared && first.Err() == nil:
				dev.Take(memory)
			case e.Kind == optimem.Replanned && shared:
				parted++
				dev.Take(0)
				cancel()
			}
		}
		s, dev, err := optimem.StartEmulated(t.Context(), model, plan.Resident, optimem.Options{MaxJoin: 2, Observe: observe},
			emulated.Options{MemoryBytes: memory, FailAlloc: fail})
		if err != nil {
			t.Fatal(err)
		}
		results := make([]chan error, 3)
		call := func(ctx context.Context, caller int) {
			results[caller] = make(chan error, 1)
			go func() {
				out, err := s.Run(ctx, callerPictures(caller))
				if err == nil && !bytes.Equal(out["linear_1"].Data, want[caller]) {
					err = errors.New("other bits")
				}
				results[caller] <- err
			}()
		}
		call(t.Context(), 0)
		<-entered
		call(first, 1)
		s.WaitFor(1)
		call(t.Context(), 2)
		if err := errors.Join(<-results[0], <-results[2]); err != nil {
			t.Errorf("allocation %d: %v", fail, err)
		}
		if err := <-results[1]; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("allocation %d: %v", fail, err)
		}
		if err := errors.Join(s.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	}
	if parted == 0 {
		t.Error("calls that share a pass were never parted")
	}
}

// TestImpatientCallers has callers in every mode that give up at random times: each gets its result or its context's
// error, whoever shares its pass, and the session goes on.
func TestImpatientCallers(t *testing.T) {
	model := build(t, digitsModel, nil)
	want := lone(t, model, callerPictures)
	for _, m := range smallModes() {
		m.opts.MaxJoin, m.opts.Memory = 4, 0
		s := open(t, m, model)
		var gaveUp, served atomic.Int64
		var wait sync.WaitGroup
		for i := range callers {
			wait.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 3))
				for range 8 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(4000))*time.Microsecond)
					out, err := s.Run(ctx, callerPictures(i))
					switch {
					case err == nil && bytes.Equal(out["linear_1"].Data, want[i]):
						served.Add(1)
					case errors.Is(err, context.DeadlineExceeded):
						gaveUp.Add(1)
					default:
						t.Errorf("%s on %s, caller %d: other bits, or %v", m.name, m.opts.Device, i, err)
					}
					cancel()
				}
			})
		}
		wait.Wait()
		if out, err := s.Run(t.Context(), callerPictures(5)); err != nil || !bytes.Equal(out["linear_1"].Data, want[5]) {
			t.Errorf("%s on %s: other bits afterwards, or %v", m.name, m.opts.Device, err)
		}
		if got := s.Metrics().Calls; got != served.Load()+1 {
			t.Errorf("%s on %s: %d calls counted, %d served", m.name, m.opts.Device, got, served.Load()+1)
		}
		t.Logf("%s on %s: %d served, %d gave up", m.name, m.opts.Device, served.Load(), gaveUp.Load())
	}
}
