package trace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/trace"
)

// event is an event of the format, as a viewer reads it.
type event struct {
	Name, Ph, Cat, Bp string
	Pid, Tid          int
	Ts, Dur           *float64
	ID                int64
	Args              map[string]any
}

func (e event) end() float64 { return *e.Ts + *e.Dur }

// events reads a trace, strictly: each event has what its phase needs.
func events(t *testing.T, text []byte) []event {
	t.Helper()
	var all struct {
		DisplayTimeUnit string
		TraceEvents     []event
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		// A field that only some phases have.
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
	for _, e := range all.TraceEvents {
		if e.Name == "" || e.Ph == "" || e.Pid == 0 || e.Ts == nil || *e.Ts < 0 || (e.Ph == "X") != (e.Dur != nil) {
			t.Fatalf("%+v", e)
		}
	}
	return all.TraceEvents
}

const (
	digits = "../examples/digits/digits.pt2"
	llama  = "../models/testdata/families/hf/tiny_llama"
)

// build returns the model of a checkpoint.
func build(t *testing.T, path string) *models.Model {
	t.Helper()
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ckpt.Close(); err != nil {
			t.Error(err)
		}
	})
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// traced runs a model a few times and returns what was drawn, with the plan.
func traced(t *testing.T, o runtime.Options, rows, runs int) ([]event, *plan.Plan) {
	t.Helper()
	in := runtime.Values{"input": tensor.Of(make([]float32, rows*64), rows, 1, 8, 8)}
	return tracedModel(t, build(t, digits), o, runs, func(s *runtime.Session) error {
		_, err := s.RunBatch(t.Context(), in)
		return err
	})
}

func tracedModel(
	t *testing.T, model *models.Model, o runtime.Options, runs int, run func(*runtime.Session) error,
) ([]event, *plan.Plan) {
	t.Helper()
	var out bytes.Buffer
	tr := trace.New(&out)
	o.ObserveLoads = true
	var p *plan.Plan
	o.Observe = runtime.TeeObserver(tr.Observe, func(e runtime.Event) { p = e.Plan })
	s, err := runtime.Start(t.Context(), model, o)
	if err != nil {
		t.Fatal(err)
	}
	for range runs {
		if err := run(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Close(), tr.Close()); err != nil {
		t.Fatal(err)
	}
	return events(t, out.Bytes()), p
}

const emulatedDevice = "emu:memory=64MiB,bandwidth=12GB/s,latency=10us"

// TestEveryGroupIsDrawn: in every mode and on every device each group of each pass has a slice with the plan's bytes, each that is paged
// its bringing, and an arrow from one to the other; no slices of a lane overlap; and the counters are the plan's.
func TestEveryGroupIsDrawn(t *testing.T) {
	const runs = 3
	params := func(n int64) plan.Limit { return plan.Limit{N: n, Unit: plan.Params} }
	for _, device := range []string{"cpu", emulatedDevice} {
		for _, o := range []runtime.Options{
			{Mode: plan.Resident}, {Mode: plan.Page}, {Mode: plan.Page, ObserveOps: true}, {Mode: plan.Page, Once: true},
			{Mode: plan.Chunk, Capacity: params(30_000)}, {Mode: plan.Chunk, Capacity: params(30_000), ObserveOps: true},
			{Mode: plan.Auto, Memory: 500 << 10}, {Mode: plan.Resident, Once: true},
		} {
			o.Device = device
			t.Run(fmt.Sprintf("%s %s once %v ops %v", device, o.Mode, o.Once, o.ObserveOps), func(t *testing.T) {
				list, p := traced(t, o, 1, runs)
				check(t, list, p, runs, o)
			})
		}
	}
}

func check(t *testing.T, list []event, p *plan.Plan, runs int, o runtime.Options) {
	t.Helper()
	var groups, ops, passes, loads int
	lanes := make(map[int][]event)
	named := make(map[int]bool)
	for _, e := range list {
		switch {
		case e.Ph == "M" && e.Name == "thread_name":
			named[e.Tid] = true
		case e.Ph == "X":
			if lanes[e.Tid] = append(lanes[e.Tid], e); !named[e.Tid] {
				t.Errorf("%s is on a lane without a name", e.Name)
			}
		}
		switch e.Cat {
		case "passes":
			passes++
		case "ops":
			ops++
		case "compute":
			g := p.Groups[int(e.Args["group"].(float64))]
			if e.Name != g.Name() || e.Args["loaded_bytes"] != float64(g.SlotBytes) || (e.Pid == 1000) != g.OnHost {
				t.Errorf("group %s is drawn as %+v", g.Name(), e)
			}
			groups++
		case "disk", "copies":
			g := p.Groups[int(e.Args["group"].(float64))]
			if e.Name != g.Name() || g.Paged() && e.Args["bytes"].(float64) < float64(g.SlotBytes) || (e.Pid == 1000) != g.OnHost {
				t.Errorf("the bringing of %s is drawn as %+v", g.Name(), e)
			}
			loads++
		}
	}
	if groups != runs*len(p.Groups) || passes != runs {
		t.Errorf("%d slices of %d groups, %d passes", groups, len(p.Groups), passes)
	}
	if want := runs * len(p.Lowered.Graph.Ops); o.ObserveOps && ops != want || !o.ObserveOps && ops != 0 {
		t.Errorf("%d ops, of %d", ops, want)
	}
	for _, slices := range lanes {
		apart(t, slices)
	}
	paged := 0
	for k := range p.Groups {
		if p.Groups[k].Paged() {
			paged++
		}
	}
	// The pass before brings what the next will need.
	if loads < runs*paged || !o.Once && paged == 0 && loads > 0 {
		t.Errorf("%d loads in %d runs of %d paged groups", loads, runs, paged)
	}
	arrows(t, list, runs*paged)
	counters(t, list, p)
}

// apart checks that slices of a lane do not overlap.
func apart(t *testing.T, list []event) {
	t.Helper()
	list = slices.SortedFunc(slices.Values(list), func(a, b event) int {
		if *a.Ts < *b.Ts {
			return -1
		}
		return 1
	})
	for i := 1; i < len(list); i++ {
		if list[i-1].end() > *list[i].Ts+1e-4 {
			t.Errorf("%+v overlaps %+v", list[i], list[i-1])
		}
	}
}

// arrows checks that each arrow begins in a slice of the disk or a copy, and ends, later, in the computing of the same group.
func arrows(t *testing.T, list []event, least int) {
	t.Helper()
	within := func(x event) *event {
		for i := range list {
			if e := &list[i]; e.Ph == "X" && e.Tid == x.Tid && *e.Ts <= *x.Ts && *x.Ts < e.end() {
				return e
			}
		}
		return nil
	}
	from := make(map[int64]event)
	n := 0
	for _, e := range list {
		if e.Ph == "s" {
			from[e.ID] = e
		}
	}
	for _, e := range list {
		if e.Ph != "f" {
			continue
		}
		n++
		begin, known := from[e.ID]
		if !known || e.Bp != "e" || begin.Name != e.Name || begin.Cat != e.Cat {
			t.Errorf("%+v comes from %+v", e, begin)
			continue
		}
		delete(from, e.ID)
		a, b := within(begin), within(e)
		if a == nil || b == nil || a.Cat != "disk" && a.Cat != "copies" || b.Cat != "compute" || a.Name != b.Name || *a.Ts > *b.Ts {
			t.Errorf("an arrow from %+v to %+v", a, b)
		}
	}
	if n < least {
		t.Errorf("%d arrows, of %d", n, least)
	}
}

// counters checks that what is in use is never more than the plan takes, and that activations and scratch memory are given
// back at the end of a pass.
func counters(t *testing.T, list []event, p *plan.Plan) {
	t.Helper()
	var most float64
	var last map[string]any
	for _, e := range list {
		if e.Ph == "C" && e.Pid == 1 {
			var sum float64
			for _, v := range e.Args {
				sum += v.(float64)
			}
			most, last = max(most, sum), e.Args
		}
	}
	var planned int64
	for _, h := range p.Holdings() {
		if !h.OnHost {
			planned = max(planned, h.Total())
		}
	}
	if most != float64(planned) || last["activations"] != 0.0 || last["workspace"] != 0.0 || last["weights"] != float64(p.Fixed.Bytes+p.ConstBytes) {
		t.Errorf("at most %v, at last %v; planned are %d", most, last, planned)
	}
}

// TestCachesAreDrawn: the counters have the caches of a session that has some, also between passes.
func TestCachesAreDrawn(t *testing.T) {
	steps, err := build(t, llama).Steps(models.StepOptions{Blocks: 4})
	if err != nil {
		t.Fatal(err)
	}
	in := runtime.Values{
		models.StepTokens: tensor.Of([]int64{3, 1}, 2), models.StepPositions: tensor.Of([]int64{0, 1}, 2),
		models.StepBlocks: tensor.Of([]int64{2, 0, 2, 0}, 2, 2), models.StepWanted: tensor.Of([]int64{1}, 1),
	}
	for _, o := range []runtime.Options{{Mode: plan.Resident}, {Mode: plan.Page, Device: emulatedDevice}} {
		list, p := tracedModel(t, steps, o, 2, func(s *runtime.Session) error {
			_, err := s.Run(t.Context(), in)
			return err
		})
		counters(t, list, p)
		n := 0
		for _, e := range list {
			if e.Ph != "C" {
				continue
			}
			if n++; e.Args["caches"] != float64(p.CacheBytes) || p.CacheBytes == 0 {
				t.Errorf("%+v, and the caches have %d bytes", e, p.CacheBytes)
			}
		}
		if n < 2*len(p.Groups) {
			t.Errorf("%d counters of %d groups", n, len(p.Groups))
		}
	}
}

// TestBatchOnBothSides: what two sides compute at the same time is drawn, too, and no slices of a lane overlap.
func TestBatchOnBothSides(t *testing.T) {
	o := runtime.Options{
		Device: emulatedDevice, Mode: plan.Chunk, Capacity: plan.Limit{N: 5000, Unit: plan.Params}, MicroBatch: 8,
	}
	list, p := traced(t, o, 64, 2)
	if p.Sides == nil {
		t.Fatalf("one side\n%v", p)
	}
	lanes, groups := make(map[int][]event), make(map[string]int)
	for _, e := range list {
		if e.Ph == "X" {
			lanes[e.Tid] = append(lanes[e.Tid], e)
		}
		if e.Cat == "compute" {
			groups[fmt.Sprint(e.Pid, e.Name)]++
		}
	}
	for _, slices := range lanes {
		apart(t, slices)
	}
	if len(groups) != len(p.Groups) {
		t.Errorf("drawn are %v of %d groups", groups, len(p.Groups))
	}
}

// TestHostileNames: whatever a file calls a module, the trace is JSON.
func TestHostileNames(t *testing.T) {
	var out bytes.Buffer
	tr := trace.New(&out)
	name := "a\"}]\x00\xff</script>" + strings.Repeat("é", 1000)
	g := &graph.Graph{Ops: []graph.Op{{Kind: "linear", Path: name, Source: name}}}
	p := &plan.Plan{
		Target: plan.Target{Name: name}, Groups: []plan.Group{{Path: name, End: 1, Parts: []plan.Part{{}}}},
		Lowered: &graph.Lowered{Graph: g, Steps: make([]graph.Step, 1)},
	}
	now := time.Now()
	for _, kind := range []pager.Kind{pager.GroupDone, pager.OpDone, pager.LoadDone, pager.WeightsLoaded, pager.PassDone, pager.Replanned} {
		tr.Observe(pager.Event{Kind: kind, Path: name, OpKind: "linear", Err: errors.New(name), Plan: p, Begin: now, Arrived: now, End: now})
	}
	// What a plan does not have is left out.
	for _, e := range []pager.Event{{Group: 1}, {Group: -1}, {Kind: pager.OpDone, Op: 1}, {Kind: pager.LoadDone, Group: 7}} {
		e.Plan, e.Begin, e.End = p, now, now
		tr.Observe(e)
		e.Plan = nil
		tr.Observe(e)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	list := events(t, out.Bytes())
	var drawn []string
	for _, e := range list {
		if e.Ph == "X" && *e.Dur <= 0 {
			t.Errorf("no arrow can lead to %+v", e)
		}
		if e.Ph == "X" || e.Ph == "i" {
			drawn = append(drawn, e.Cat+e.Ph)
		}
	}
	if want := []string{"computeX", "opsX", "diskX", "weights that stayX", "passesX", "i"}; !slices.Equal(drawn, want) {
		t.Errorf("drawn are %v, want %v", drawn, want)
	}
	if out.Len() > 8<<10 {
		t.Errorf("%d bytes: names are not bounded", out.Len())
	}
}

// A failing writer has room for so many bytes.
type failing struct{ room int }

func (f *failing) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, errors.New("the disk is full")
	}
	return len(p), nil
}

// TestWriteError: that the trace could not be written is told at its end, and the session does not see it.
func TestWriteError(t *testing.T) {
	w := &failing{room: 1 << 16}
	tr := trace.New(w)
	for range 10_000 {
		tr.Observe(pager.Event{Kind: pager.PassDone, Begin: time.Now(), End: time.Now()})
	}
	if err := tr.Close(); err == nil || err.Error() != "the disk is full" {
		t.Errorf("%v", err)
	}
	if err := tr.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

// TestNothingIsKept: of the bringings that passes which failed have left, the last few wait for their group, and no more.
func TestNothingIsKept(t *testing.T) {
	var out bytes.Buffer
	tr := trace.New(&out)
	p := &plan.Plan{
		Groups:  []plan.Group{{Path: "a", End: 2, Parts: []plan.Part{{}}}},
		Lowered: &graph.Lowered{Graph: &graph.Graph{Ops: make([]graph.Op, 2)}, Steps: []graph.Step{{}, {WorkBytes: 100}}},
	}
	const many = 10
	for range many {
		tr.Observe(pager.Event{Kind: pager.LoadDone, Plan: p, Begin: time.Now(), End: time.Now()})
	}
	for range many {
		tr.Observe(pager.Event{Plan: p, Begin: time.Now(), Arrived: time.Now(), End: time.Now()})
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	arrows := 0
	for _, e := range events(t, out.Bytes()) {
		switch e.Ph {
		case "f":
			arrows++
		case "C":
			if e.Args["workspace"] != 100.0 {
				t.Errorf("the second op of the group takes 100 bytes, and drawn is %v", e.Args)
			}
		}
	}
	if arrows != 4 {
		t.Errorf("%d arrows", arrows)
	}
	written := out.Len()
	for range 10_000 {
		tr.Observe(pager.Event{Kind: pager.PassDone, Begin: time.Now(), End: time.Now()})
	}
	if out.Len() != written {
		t.Error("after its end the trace goes on")
	}
}
