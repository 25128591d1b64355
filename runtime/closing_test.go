package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/machine"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// closedOnce is a machine that cannot be closed a second time.
type closedOnce struct {
	machine.Machine
	closed int
}

func (m *closedOnce) Close() error {
	if m.closed++; m.closed > 1 {
		return errors.New("there is no such device any more")
	}
	return m.Machine.Close()
}

// TestMachineIsClosedOnce: a driver whose device was closed is not told to close it again.
func TestMachineIsClosedOnce(t *testing.T) {
	s := quietSession(t, &quiet{}, plan.Resident, quietGraph(t, 2), Options{})
	m := &closedOnce{Machine: s.machine}
	s.machine = m
	for range 3 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if m.closed != 1 {
		t.Errorf("closed %d times", m.closed)
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
	y, across := small.Outputs[0], small.Outputs[1]
	small.Outputs = []graph.Output{across, {Name: "again", Operand: across.Operand}, y}
	if _, err := s.program(t.Context(), small); err != nil {
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

// TestInputsStayAsGiven: what a pass was given of an input is the input's until the pass is over, whatever it asks for besides:
// a device may copy late.
func TestInputsStayAsGiven(t *testing.T) {
	g := &graph.Graph{}
	var ids []graph.ValueID
	for _, name := range []string{"a", "b", "c"} {
		ids = append(ids, g.AddInput(name, tensor.Float32, tensor.Shape{2, 3}))
		g.Outputs = append(g.Outputs, graph.Output{Name: name, Operand: g.Whole(ids[len(ids)-1])})
	}
	s := quietSession(t, &quiet{}, plan.Resident, g, Options{})
	p, err := s.program(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	turned := func(first float32) *tensor.Tensor {
		x := tensor.Of([]float32{first, first + 1, first + 2, first + 3, first + 4, first + 5}, 3, 2)
		x.Layout = tensor.Layout{Shape: tensor.Shape{2, 3}, Strides: []int{1, 2}}
		return x
	}
	x := &exchange{}
	for round := range 2 {
		in := Values{"a": turned(1), "b": turned(10), "c": turned(float32(100 * round))}
		if err := x.begin(p, in, nil); err != nil {
			t.Fatal(err)
		}
		var given [][]byte
		for _, id := range p.graph.Inputs {
			given = append(given, x.input(id))
		}
		for i, id := range p.graph.Inputs {
			want := make([]byte, 24)
			in[p.graph.Values[id].Name].CopyTo(want)
			if !bytes.Equal(given[i], want) {
				t.Errorf("round %d: input %s is %v, want %v", round, p.graph.Values[id].Name, given[i], want)
			}
		}
	}
}

// TestDumpsAreTheSessions: sessions of one model that dump other modules have graphs of their own.
func TestDumpsAreTheSessions(t *testing.T) {
	g := quietGraph(t, 3)
	g.Outputs = slices.Grow(g.Outputs, 4)
	g.Modules = make(map[string]graph.Operand)
	for _, op := range g.Ops {
		g.Modules[op.Path] = g.Whole(op.Out[0])
	}
	var graphs []*graph.Graph
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

// A lateContext is one whose call comes to wait for its turn only when it is let go.
type lateContext struct {
	context.Context
	called         atomic.Bool
	waits, letItGo chan struct{}
}

func (c *lateContext) Done() <-chan struct{} {
	if !c.called.Swap(true) { // the first to ask is the call itself
		close(c.waits)
		<-c.letItGo
	}
	return c.Context.Done()
}

// TestTurnOfJoinedCall: a call that another's pass took along, and that finds its turn has come when the pass is over, leaves the
// turn to others.
func TestTurnOfJoinedCall(t *testing.T) {
	s := quietSession(t, &quiet{}, plan.Page, quietGraph(t, 4), Options{MaxJoin: 2})
	in := Values{"x": tensor.Of(make([]float32, 8*64), 8, 64)}
	for round := range 12 { // it finds its turn or its results, by chance
		<-s.turn
		late := &lateContext{Context: t.Context(), waits: make(chan struct{}), letItGo: make(chan struct{})}
		ended := make(chan error)
		go func() { ended <- s.do(&call{ctx: late, in: in}) }()
		<-late.waits
		if err := s.first(&call{ctx: t.Context(), in: in, done: make(chan struct{})}); err != nil {
			t.Fatal(err)
		}
		if !s.Idle() {
			t.Fatal("a pass does not end")
		}
		close(late.letItGo)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if len(s.turn) != 1 {
			t.Fatalf("round %d: nobody has the turn", round)
		}
	}
	if joined := s.Metrics().Joined; joined != 12 {
		t.Errorf("%d calls were taken along, want 12", joined)
	}
}

// TestRefusedWhileWaiting: a call whose outputs do not fit is refused by the pass that would take it along, and waits no more.
func TestRefusedWhileWaiting(t *testing.T) {
	s := quietSession(t, &quiet{}, plan.Page, quietGraph(t, 4), Options{MaxJoin: 2})
	in := Values{"x": tensor.Of(make([]float32, 8*64), 8, 64)}
	<-s.turn
	ended := make(chan error)
	go func() {
		ended <- s.do(&call{ctx: t.Context(), in: in, into: Values{"y": tensor.Of(make([]float32, 3), 3)}})
	}()
	s.WaitFor(1)
	if err := s.first(&call{ctx: t.Context(), in: in, done: make(chan struct{})}); err != nil {
		t.Fatal(err)
	}
	var output *OutputError
	if err := <-ended; !errors.As(err, &output) {
		t.Errorf("outputs that do not fit: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) != 0 {
		t.Errorf("%d calls wait", len(s.waiting))
	}
}

// TestClosedAnswersEveryTime: whatever is asked of a closed session, and however often, the answer is that it is closed.
func TestClosedAnswersEveryTime(t *testing.T) {
	s := quietSession(t, &quiet{}, plan.Resident, quietGraph(t, 2), Options{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 2 {
		_, planErr := s.Plan(ctx, nil)
		_, batchErr := s.RunBatch(ctx, nil)
		for _, err := range []error{planErr, batchErr, s.GiveBack(ctx), s.Resize(ctx, 1<<20)} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("got %v", err)
			}
		}
	}
}
