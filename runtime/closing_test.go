package runtime

import (
	"bytes"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// TestMachineIsClosedOnce: a driver whose device was closed is not told to close it again.
func TestMachineIsClosedOnce(t *testing.T) {
	s := quietSession(t, &quiet{}, plan.Resident, quietGraph(t, 2), Options{})
	shut, closed := s.machine.close, 0
	s.machine.close = func() error {
		if closed++; closed > 1 {
			return errors.New("there is no such device any more")
		}
		return shut()
	}
	for range 3 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if closed != 1 {
		t.Errorf("closed %d times", closed)
	}
}

// TestClosedSessionsLeaveNoThreads: what computes ends with its session, the CPU's threads beside a device too.
func TestClosedSessionsLeaveNoThreads(t *testing.T) {
	const sessions, threads = 4, 8
	for _, device := range []string{"cpu", "emu:memory=1MiB"} {
		before := goruntime.NumGoroutine()
		for range sessions {
			s, err := Page(t.Context(), new(models.Model), Options{Device: device, Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		left := 0
		for range 200 { // those that were told to end may still be about to
			if left = goruntime.NumGoroutine() - before; left <= 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if left > 0 {
			t.Errorf("%s: %d sessions leave %d goroutines", device, sessions, left)
		}
	}
}

// TestRunIntoKeepsNothing: what a caller gave is the collector's once the call is over, while the session stays.
func TestRunIntoKeepsNothing(t *testing.T) {
	s := quietSession(t, &quiet{}, plan.Resident, quietGraph(t, 2), Options{})
	given := func() (in, out weak.Pointer[tensor.Tensor]) {
		x, y := tensor.Of(make([]float32, 8*64), 8, 64), tensor.Of(make([]float32, 8*64), 8, 64)
		if err := s.RunInto(t.Context(), Values{"x": x}, Values{"y": y}); err != nil {
			t.Fatal(err)
		}
		return weak.Make(x), weak.Make(y)
	}
	in, out := given()
	for range 3 {
		goruntime.GC()
	}
	if in.Value() != nil || out.Value() != nil {
		t.Error("the session keeps the caller's tensors")
	}
	goruntime.KeepAlive(s)
}

// TestRunIntoOfSeveralPrograms: calls of programs in turn fill what each of them is given, also where one has more outputs
// across memory than the other.
func TestRunIntoOfSeveralPrograms(t *testing.T) {
	s := quietSession(t, &quiet{}, plan.Resident, quietGraph(t, 2), Options{})
	small := quietGraph(t, 1)
	if _, err := s.program(small); err != nil {
		t.Fatal(err)
	}
	programs := make([]*program, 0, 2)
	for _, p := range s.programs.All() {
		programs = append(programs, p)
	}
	x := tensor.Of(make([]float32, 8*64), 8, 64)
	for round := range 4 {
		p := programs[round%2]
		y, across := tensor.Of(make([]float32, 8*64), 8, 64), tensor.Of(make([]float32, 8*64), 64, 8)
		if err := s.spare.x.begin(p, Values{"x": x}, Values{"y": y, "across": across}); err != nil {
			t.Fatal(err)
		}
		if err := s.alone(t.Context(), p, &s.spare.x); err != nil {
			t.Fatal(err)
		}
		want := []float32{1 + 2, 1}[round%2]
		if first(y.Data[4*9:]) != want || !bytes.Equal(across.Data[:4], y.Data[:4]) {
			t.Errorf("round %d: %v and %v, want %v", round, first(y.Data[4*9:]), first(across.Data), want)
		}
	}
}

// TestDumpsAreTheSessions: sessions of one model that dump other modules have graphs of their own.
func TestDumpsAreTheSessions(t *testing.T) {
	g := quietGraph(t, 3)
	g.Outputs = slices.Grow(g.Outputs, 4)
	g.Modules = make(map[string]layers.Operand)
	for _, op := range g.Ops {
		g.Modules[op.Path] = g.Whole(op.Out[0])
	}
	var graphs []*layers.Graph
	for _, path := range []string{"0", "1"} {
		dumped, err := withDumps(g, []string{path})
		if err != nil {
			t.Fatal(err)
		}
		graphs = append(graphs, dumped)
	}
	for i, dumped := range graphs {
		if n := len(dumped.Outputs); n != 3 || dumped.Outputs[n-1].Name != dumpPrefix+fmt.Sprint(i) {
			t.Errorf("session %d dumps %v", i, dumped.Outputs)
		}
	}
}
