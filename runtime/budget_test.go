package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/adapt"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// pictureShapes are those of so many pictures.
func pictureShapes(rows int) map[string]tensor.Shape {
	return map[string]tensor.Shape{"input": {rows, 1, 8, 8}}
}

// planned returns what is said of the plan for pictures.
func planned(t *testing.T, s *optimem.Session, rows int) string {
	t.Helper()
	p, err := s.Plan(t.Context(), pictureShapes(rows))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(p)
}

// TestBatchAfterResize: a batch is cut anew for another budget, and goes through within it.
func TestBatchAfterResize(t *testing.T) {
	const rows, much = 64, 8 << 20
	model := build(t, digitsModel, nil)
	want := oneByOne(t, model, optimem.Options{}, rows, 1)
	in, _ := rowsOf(model, rows)
	for _, device := range []string{"cpu", "emu:memory=64MiB"} {
		s := open(t, mode{start: optimem.Page, opts: optimem.Options{Device: device, Memory: much, MicroBatch: 1}}, model)
		passes := make([]int64, 0, 4)
		least, err := s.LeastForBatch(t.Context(), pictureShapes(rows))
		if err != nil {
			t.Fatal(err)
		}
		for _, budget := range []int64{much, least, much, least + least/8} {
			if err := s.Resize(t.Context(), budget); err != nil {
				t.Fatal(err)
			}
			b, err := s.PlanBatch(t.Context(), pictureShapes(rows))
			if err != nil {
				t.Fatal(err)
			}
			before := s.Metrics()
			out, err := s.RunBatch(t.Context(), in)
			if err != nil || !bytes.Equal(out["linear_1"].Data, want) {
				t.Fatalf("%s, %d bytes: other bits, or %v", device, budget, err)
			}
			after := s.Metrics()
			if n := onDevice(s); n > budget {
				t.Errorf("%s: %d of %d bytes", device, n, budget)
			}
			passes = append(passes, after.Runs-before.Runs)
			if after.Runs-before.Runs != int64(b.Passes) || b.MovedBytes == 0 {
				t.Errorf("%s, %d bytes: %d passes, %d were planned, which bring %d bytes", device, budget, after.Runs-before.Runs,
					b.Passes, b.MovedBytes)
			}
		}
		if passes[0] != 1 || passes[1] < 2 || passes[2] != 1 || passes[3] < 2 {
			t.Errorf("%s: %d passes", device, passes)
		}
	}
}

// TestPlannedBatchIsRun: a batch is run as planned where micro-batches do not divide its rows nor passes its micro-batches,
// and brings what was planned.
func TestPlannedBatchIsRun(t *testing.T) {
	const rows, micro = 29, 3 // nine micro-batches, and two rows
	model := build(t, digitsModel, nil)
	in, _ := rowsOf(model, rows)
	probe := start(t, model, optimem.Options{MicroBatch: micro})
	whole, err := probe.RunBatch(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	want := whole["linear_1"].Data
	for _, device := range []string{"cpu", "emu:memory=64MiB"} {
		for _, share := range []int64{1, 2, 16} {
			o := optimem.Options{Device: device, MicroBatch: micro}
			least, err := open(t, mode{start: optimem.Page, opts: o}, model).LeastForBatch(t.Context(), pictureShapes(rows))
			if err != nil {
				t.Fatal(err)
			}
			o.Memory = least + least/share
			s := open(t, mode{start: optimem.Page, opts: o}, model)
			b, err := s.PlanBatch(t.Context(), pictureShapes(rows))
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Metrics(); got != (optimem.Metrics{}) {
				t.Errorf("planning has done something: %+v", got)
			}
			out, err := s.RunBatch(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out["linear_1"].Data, want) {
				t.Errorf("%s, %d bytes: other bits", device, o.Memory)
			}
			m := s.Metrics()
			if b.Rows != rows || b.MicroRows != micro || int64(b.Passes) != m.Runs || b.MovedBytes != m.MovedBytes {
				t.Errorf("%s, %d bytes: planned are %d passes and %d bytes, made were %d and %d", device, o.Memory, b.Passes,
					b.MovedBytes, m.Runs, m.MovedBytes)
			}
		}
	}
}

// plannedBatch returns what is said of the plan for a batch of pictures.
func plannedBatch(t *testing.T, s *optimem.Session, rows int) string {
	t.Helper()
	b, err := s.PlanBatch(t.Context(), pictureShapes(rows))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d rows at a time, %d passes, %d bytes moved: %v", b.MicroRows, b.Passes, b.MovedBytes, b.Plan)
}

// TestLeastForBatchChangesNothing: who asks for the least budget has the plans of who does not, also where a device need
// hold nothing, since the host can compute everything.
func TestLeastForBatchChangesNothing(t *testing.T) {
	model := build(t, digitsModel, nil)
	modes := append(smallModes(), mode{"chunk what fits", optimem.Chunk, optimem.Options{Device: "emu:memory=64MiB"}})
	for _, m := range modes {
		m.opts.MicroBatch = 2
		fresh, s := open(t, m, model), open(t, m, model)
		for _, rows := range []int{2, 8} { // with one micro-batch and with several
			if _, err := s.LeastForBatch(t.Context(), pictureShapes(rows)); err != nil {
				t.Fatal(err)
			}
		}
		want, got := planned(t, fresh, 2), planned(t, s, 2)
		if got != want {
			t.Errorf("%s on %s: %s", m.name, m.opts.Device, cmp.Diff(want, got))
		}
		want, got = plannedBatch(t, fresh, 8), plannedBatch(t, s, 8)
		if got != want {
			t.Errorf("%s on %s, a batch: %s", m.name, m.opts.Device, cmp.Diff(want, got))
		}
	}
}

// TestJoinedAfterResize: calls that shared a pass within the budget before are served within a smaller one, in which not so
// many go through a pass.
func TestJoinedAfterResize(t *testing.T) {
	const several = 5
	model := build(t, digitsModel, nil)
	want := lone(t, model, callerPictures)
	for _, m := range smallModes() {
		if m.name != "page" && m.name != "auto" {
			continue
		}
		var hold bool // passes take turns
		var most int
		var s *optimem.Session
		m.opts.MaxJoin, m.opts.Memory = several, 8<<20
		m.opts.Observe = func(e optimem.Event) {
			if e.Kind != optimem.PassDone {
				return
			}
			if most = max(most, e.Instances); hold {
				hold = false
				s.WaitFor(several - e.Instances)
			}
		}
		s = open(t, m, model)
		least, err := open(t, mode{start: m.start, opts: optimem.Options{Device: m.opts.Device, Memory: 1, PlanOnly: true}}, model).
			LeastForBatch(t.Context(), pictureShapes(1))
		if err != nil {
			t.Fatal(err)
		}
		for _, budget := range []int64{8 << 20, least, 8 << 20, least + 1000} {
			if err := s.Resize(t.Context(), budget); err != nil {
				t.Fatal(err)
			}
			hold, most = true, 0
			var calls sync.WaitGroup
			for i := range several {
				calls.Go(func() {
					out, err := s.Run(t.Context(), callerPictures(i))
					if err != nil || !bytes.Equal(out["linear_1"].Data, want[i]) {
						t.Errorf("%s on %s, %d bytes: other bits, or %v", m.name, m.opts.Device, budget, err)
					}
				})
			}
			calls.Wait()
			if n := onDevice(s); n > budget {
				t.Errorf("%s on %s: %d of %d bytes", m.name, m.opts.Device, n, budget)
			}
			if m.name == "page" && budget == 8<<20 && most < 2 {
				t.Errorf("%s on %s: nobody shared a pass", m.name, m.opts.Device)
			}
		}
	}
}

// TestRefusedBudgetChangesNothing: after a budget that is too small plans are what they were, also where the device had
// refused memory before.
func TestRefusedBudgetChangesNothing(t *testing.T) {
	const memory = 4 << 20
	model := build(t, digitsModel, nil)
	for _, mode := range []plan.Mode{plan.Page, plan.Auto, plan.Resident, plan.Chunk} {
		s, dev := emulate(t, model, mode, optimem.Options{}, emulated.Options{MemoryBytes: memory})
		runDigits(t, s, pictures(3))
		for _, taken := range []int64{0, memory * 9 / 10} {
			dev.Take(taken)
			if _, err := s.Run(t.Context(), digitsInput(pictures(3))); err != nil {
				continue // a mode that cannot take less
			}
			want, wantOne := planned(t, s, 3), planned(t, s, 1)
			var capacity *plan.CapacityError
			if err := s.Resize(t.Context(), 1000); !errors.As(err, &capacity) {
				if mode == plan.Chunk && err == nil {
					break // the host computes everything
				}
				t.Fatalf("%s: %v", mode, err)
			}
			if err := s.Resize(t.Context(), capacity.MinBytes-1); !errors.As(err, &capacity) { // enough for one picture
				t.Fatalf("%s: %v", mode, err)
			}
			if got := planned(t, s, 1); got != wantOne {
				t.Errorf("%s, %d bytes taken, one picture: %s", mode, taken, cmp.Diff(wantOne, got))
			}
			if got := planned(t, s, 3); got != want {
				t.Errorf("%s, %d bytes taken: %s", mode, taken, cmp.Diff(want, got))
			}
		}
	}
}

// TestResizeForgetsWhatWasRefused: a budget is that of a new session, whatever the device refused before: it pins as much, and
// cuts batches as large.
func TestResizeForgetsWhatWasRefused(t *testing.T) {
	const memory, rows = 4 << 20, 64
	model := build(t, digitsModel, nil)
	in, _ := rowsOf(model, rows)
	for _, mode := range []plan.Mode{plan.Page, plan.Auto, plan.Chunk} {
		fresh, _ := emulate(t, model, mode, optimem.Options{Memory: memory}, emulated.Options{MemoryBytes: memory})
		runDigits(t, fresh, pictures(3))
		want, wantBatch := planned(t, fresh, 3), plannedBatch(t, fresh, rows)
		s, dev := emulate(t, model, mode, optimem.Options{Memory: memory}, emulated.Options{MemoryBytes: memory})
		p, err := s.Plan(t.Context(), pictureShapes(3))
		if err != nil {
			t.Fatal(err)
		}
		left := p.MinBytes * 21 / 20
		if mode == plan.Chunk { // which needs nothing of the device
			left = p.PeakBytes() * 9 / 10
		}
		dev.Take(memory - left)
		runDigits(t, s, pictures(3))
		if s.Metrics().Replans == 0 {
			t.Errorf("%s: nothing was refused", mode)
		}
		if _, err := s.RunBatch(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		if plannedBatch(t, s, rows) == wantBatch {
			t.Errorf("%s: nothing was refused to a batch", mode)
		}
		dev.Take(0)
		if err := errors.Join(s.GiveBack(t.Context()), s.Resize(t.Context(), memory)); err != nil {
			t.Fatal(err)
		}
		runDigits(t, s, pictures(3))
		if got := planned(t, s, 3); got != want {
			t.Errorf("%s: %s", mode, cmp.Diff(want, got))
		}
		if got := plannedBatch(t, s, rows); got != wantBatch {
			t.Errorf("%s, a batch: %s", mode, cmp.Diff(wantBatch, got))
		}
	}
}

// TestCallsOfOtherShapesWithinResized: calls of few pictures, which take a large ring, and of many, which take large
// activations, each fit a smaller budget; what both took does not, and is not held.
func TestCallsOfOtherShapesWithinResized(t *testing.T) {
	const few, many, much = 1, 40, 4 << 20
	model := build(t, digitsModel, nil)
	for _, device := range []string{"cpu", "emu:memory=64MiB"} {
		s := open(t, mode{start: optimem.Page, opts: optimem.Options{Device: device, Memory: much}}, model)
		p, err := s.Plan(t.Context(), pictureShapes(many))
		if err != nil {
			t.Fatal(err)
		}
		budget := p.MinBytes
		runDigits(t, s, pictures(few))
		if err := s.Resize(t.Context(), budget); err != nil {
			t.Fatal(err)
		}
		for _, rows := range []int{few, many, few, many} {
			runDigits(t, s, pictures(rows))
			if held := onDevice(s); held > budget {
				t.Errorf("%s: after a call of %d pictures %d bytes are held of %d", device, rows, held, budget)
			}
		}
	}
}

// TestRefusedCallLeavesOthersTheirBudget: a call for which the device has no memory and that cannot do with less fails, and
// calls that take less have all of the budget, as before.
func TestRefusedCallLeavesOthersTheirBudget(t *testing.T) {
	const memory, few, many = 4 << 20, 20, 40
	model := build(t, digitsModel, nil)
	probe, _ := emulate(t, model, plan.Auto, optimem.Options{}, emulated.Options{MemoryBytes: memory})
	p, err := probe.Plan(t.Context(), pictureShapes(many))
	if err != nil {
		t.Fatal(err)
	}
	s, dev := emulate(t, model, plan.Auto, optimem.Options{Memory: p.MinBytes}, emulated.Options{MemoryBytes: memory})
	want := planned(t, s, few)
	dev.Take(memory)
	_, err = s.Run(t.Context(), digitsInput(pictures(many)))
	var full *device.OutOfMemoryError
	if !errors.As(err, &full) || s.Metrics().Replans != 0 {
		t.Fatalf("made %d smaller plans, then %v", s.Metrics().Replans, err)
	}
	dev.Take(0)
	if got := planned(t, s, few); got != want {
		t.Error(cmp.Diff(want, got))
	}
	runDigits(t, s, pictures(many))
}

// TestRefusedMemoryChangesNothing: a call for which the device has no memory at all leaves the session with the plans that
// it had, and each smaller plan that is told of takes less than what was refused.
func TestRefusedMemoryChangesNothing(t *testing.T) {
	const memory = 4 << 20
	model := build(t, digitsModel, nil)
	for _, m := range emulatedModes() {
		var refused []optimem.Event
		m.opts.Observe = func(e optimem.Event) {
			if e.Kind == optimem.Replanned {
				refused = append(refused, e)
			}
		}
		s, dev := emulate(t, model, m.mode, m.opts, emulated.Options{MemoryBytes: memory})
		p, err := s.Plan(t.Context(), pictureShapes(3))
		if err != nil {
			t.Fatal(err)
		}
		want, wantOne, peak := fmt.Sprint(p), planned(t, s, 1), p.PeakBytes()
		dev.Take(memory)
		_, err = s.Run(t.Context(), digitsInput(pictures(3)))
		var full *device.OutOfMemoryError
		if m.mode != plan.Chunk && !errors.As(err, &full) {
			t.Fatalf("%s: %v", m.name, err)
		}
		for _, e := range refused {
			if e.PeakBytes >= peak {
				t.Errorf("%s: a plan of %d bytes after one of %d was refused", m.name, e.PeakBytes, peak)
			}
			peak = e.PeakBytes
		}
		dev.Take(0)
		if len(refused) > 0 { // what was learnt is less, and works
			runDigits(t, s, pictures(3))
			continue
		}
		if got := planned(t, s, 1); got != wantOne {
			t.Errorf("%s, one picture: %s", m.name, cmp.Diff(wantOne, got))
		}
		if got := planned(t, s, 3); got != want {
			t.Errorf("%s: %s", m.name, cmp.Diff(want, got))
		}
	}
}

// TestLargerBatchAfterRefusal: what the device refused once is asked for again where a batch does not fit into less.
func TestLargerBatchAfterRefusal(t *testing.T) {
	const memory, rows = 8 << 20, 64
	model := build(t, digitsModel, nil)
	s, dev := emulate(t, model, plan.Page, optimem.Options{MicroBatch: rows}, emulated.Options{MemoryBytes: memory})
	p, err := s.Plan(t.Context(), pictureShapes(1))
	if err != nil {
		t.Fatal(err)
	}
	dev.Take(memory - p.MinBytes*21/20)
	one, _ := rowsOf(model, 1)
	if _, err := s.RunBatch(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if s.Metrics().Replans == 0 {
		t.Fatal("nothing was refused")
	}
	dev.Take(0)
	in, _ := rowsOf(model, rows)
	out, err := s.RunBatch(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if want := oneByOne(t, model, optimem.Options{}, rows, rows); !bytes.Equal(out["linear_1"].Data, want) {
		t.Error("other bits")
	}
}

// TestDeviceBoundsBudget: no budget is larger than the memory of a device that is emulated, at the start or later.
func TestDeviceBoundsBudget(t *testing.T) {
	model := build(t, digitsModel, nil)
	want := runDigits(t, start(t, model, optimem.Options{}), pictures(3))
	const memory = 400 << 10 // the weights take more
	for _, given := range []int64{0, memory, 1 << 30} {
		o := optimem.Options{Device: fmt.Sprintf("emu:memory=%d", memory), Memory: given}
		s := open(t, mode{start: optimem.Auto, opts: o}, model)
		for _, resized := range []int64{0, 1 << 40, 1 << 20} {
			if resized > 0 {
				if err := s.Resize(t.Context(), resized); err != nil {
					t.Fatal(err)
				}
			}
			p, err := s.Plan(t.Context(), pictureShapes(3))
			if err != nil || p.PeakBytes() > memory {
				t.Errorf("a budget of %d bytes, then of %d: %v\n%v", given, resized, err, p)
			}
			if got := runDigits(t, s, pictures(3)); !bytes.Equal(got, want) {
				t.Error("other bits")
			}
			if n := s.Metrics().Replans; n != 0 {
				t.Errorf("a budget of %d bytes, then of %d: memory was refused", given, resized)
			}
		}
	}
}

// TestHostBoundsOnlyTheHost: what the host's memory has left is no budget of a device that has its own.
func TestHostBoundsOnlyTheHost(t *testing.T) {
	defer optimem.OnHost(1000)()
	model := build(t, digitsModel, nil)
	s := open(t, mode{start: optimem.Auto, opts: optimem.Options{Device: "emu:bandwidth=1GB/s", HostMemory: 1 << 20}}, model)
	runDigits(t, s, pictures(3))
	var capacity *optimem.CapacityError
	_, err := open(t, mode{start: optimem.Auto}, model).Run(t.Context(), digitsInput(pictures(3)))
	if !errors.As(err, &capacity) {
		t.Errorf("with 1000 bytes left: %v", err)
	}
}

// TestFailureOfAll: where what all callers of a pass wait for fails, each gets that error, and not another's.
func TestFailureOfAll(t *testing.T) {
	const several = 4
	cause := errors.New("thrown")
	entered, letGo := make(chan struct{}, 100), make(chan struct{})
	g := &gate{}
	g.pass = func() {
		entered <- struct{}{}
		<-letGo
		panic(cause)
	}
	opts := optimem.Options{Ops: g.registry(t)}
	s := open(t, mode{start: optimem.Page, opts: opts}, build(t, "testdata/gate.pt2", opts.Ops))
	want := recorded(t, "gate")[0]
	results := make(chan error, several)
	call := func() {
		_, err := s.Run(context.Background(), want.input())
		results <- err
	}
	go call()
	<-entered
	for range several - 1 {
		go call()
	}
	s.WaitFor(several - 1)
	close(letGo)
	for range several {
		var panicked *optimem.PanicError
		var where *optimem.GroupError
		err := <-results
		if !errors.Is(err, cause) || !errors.As(err, &panicked) || !errors.As(err, &where) || errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	if !s.Idle() {
		t.Error("it is still somebody's turn")
	}
	g.pass = nil
	got, err := s.Run(t.Context(), want.input())
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, want)
	if n := s.Metrics().Calls; n != 1 {
		t.Errorf("%d calls are counted as served, want one", n)
	}
}

// TestBudgetHeedsLimitProcess: a session that is given no budget plans with what a limit of the process leaves, and one that
// is given more is refused the memory with an error that says so.
func TestBudgetHeedsLimitProcess(t *testing.T) {
	model := build(t, digitsModel, nil)
	const limit = 1 << 30
	defer adapt.LimitProcess(adapt.LimitProcess(limit))
	s := open(t, mode{start: optimem.Auto}, model)
	if budget, _ := s.Budget(); budget <= 0 || budget >= limit {
		t.Errorf("a budget of %d bytes within %d", budget, limit)
	}
	runDigits(t, s, pictures(1))
	adapt.LimitProcess(1 << 20)
	s = open(t, mode{start: optimem.Auto, opts: optimem.Options{Memory: limit}}, model)
	if _, err := s.Run(t.Context(), optimem.Values{"input": tensor.Of(pictures(1), 1, 1, 8, 8)}); !adapt.IsOutOfMemory(err) {
		t.Errorf("beyond the limit: %v", err)
	}
}
