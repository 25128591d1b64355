package profile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/profile"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// made returns a plan by hand: a list of four layers with an op each, in groups of two, and a head that is called twice.
func made() *plan.Plan {
	g := &graph.Graph{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{2, 8})
	for _, path := range []string{"layers.0.fc", "layers.1.fc", "layers.2.fc", "layers.3.fc", "head", "head@1"} {
		g.Ops = append(g.Ops, graph.Op{Kind: "relu", Path: path, In: []graph.Operand{g.Whole(x)}})
	}
	p := &plan.Plan{Target: plan.CPU, Instances: 1, Lowered: &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}}
	for i := range p.Lowered.Steps {
		p.Lowered.Steps[i].Cost = graph.Cost{FLOPs: int64(1000 * (i + 1)), Bytes: 1}
		p.Lowered.Steps[i].WorkBytes = int64(100 + i)
	}
	p.WorkBytes = 200
	for k := range 3 {
		p.Groups = append(p.Groups, plan.Group{Path: g.Ops[2*k].Path, First: 2 * k, End: 2*k + 2, WeightBytes: 64})
	}
	p.Places = make([]plan.Place, len(g.Values))
	for i := range p.Places {
		p.Places[i].First = -1
	}
	return p
}

// pass tells of a pass of a plan by hand, which began at a time: each group waits for 1 ms and computes for 10 ms.
func pass(p *profile.Profile, made *plan.Plan, at time.Time, instances int, timed bool) {
	begin := at
	for k := range made.Groups {
		g := &made.Groups[k]
		if timed {
			for i := g.First; i < g.End; i++ {
				p.Observe(pager.Event{
					Kind: pager.OpDone, Group: k, Op: i, Path: made.Lowered.Graph.Ops[i].Path, Took: time.Duration(i+1) * time.Millisecond,
					Begin: at, End: at, Plan: made,
				})
			}
		}
		p.Observe(pager.Event{
			Group: k, Path: g.Path, LoadedBytes: 64, Stall: time.Millisecond, Compute: 10 * time.Millisecond, Begin: at, End: at, Plan: made,
		})
	}
	p.Observe(pager.Event{Kind: pager.PassDone, Took: 40 * time.Millisecond, Instances: instances, Begin: begin, End: at, Plan: made})
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b), 1) }

func moduleOf(t *testing.T, r *profile.Report, path string) profile.Module {
	t.Helper()
	for _, m := range r.Modules {
		if m.Path == path {
			return m
		}
	}
	t.Fatalf("no module %q in %+v", path, r.Modules)
	return profile.Module{}
}

// TestPassesAddUp: numbers are those of an average pass; a module has its share of its group's time, all modules have the time of the
// groups, and what is left beside waiting is told.
func TestPassesAddUp(t *testing.T) {
	p, plan := profile.New(profile.Options{}), made()
	if r := p.Report(); r.Passes != 0 || len(r.Modules) != 0 || !strings.Contains(r.Text(profile.View{}), "no pass so far") {
		t.Errorf("before: %+v", r)
	}
	for range 5 {
		pass(p, plan, time.Now(), 3, false)
	}
	r := p.Report()
	if r.Passes != 5 || r.Instances != 15 || r.Exact || r.Device != "cpu" || r.MovedBytes != 3*64 || r.PeakBytes != 200 ||
		!near(r.Seconds, 0.04) || !near(r.ComputeSeconds, 0.03) || !near(r.StallSeconds, 0.003) || !near(r.OtherSeconds, 0.007) {
		t.Errorf("%+v", r)
	}
	top := r.Modules[0]
	if top.Path != "" || !near(top.Seconds, 0.03) || !near(top.StallSeconds, 0.003) || !near(top.FLOPs, 3*21_000) || top.Calls != 1 || top.PeakBytes != 105 {
		t.Errorf("the program: %+v", top)
	}
	if m := moduleOf(t, r, "layers"); !near(m.Seconds, 0.02) || m.SelfSeconds != 0 || m.Depth != 1 || m.Calls != 1 {
		t.Errorf("%+v", m)
	}
	head := moduleOf(t, r, "head")
	if head.Calls != 2 || !near(head.Seconds, 0.01) || !near(head.SelfSeconds, 0.01) || !near(head.FLOPsPerSecond, 3*11_000/0.01) || head.Bound != "compute" {
		t.Errorf("%+v", head)
	}
	if a, b := moduleOf(t, r, "layers.0.fc"), moduleOf(t, r, "layers.1.fc"); !(a.Seconds > 0 && a.Seconds < b.Seconds) || !near(a.Seconds+b.Seconds, 0.01) {
		t.Errorf("%+v and %+v share the time of their group", a, b)
	}
	p.Reset()
	if r := p.Report(); r.Passes != 0 {
		t.Errorf("after a reset: %+v", r)
	}
}

// TestObservedOps: where ops are timed a module has their time and not a share.
func TestObservedOps(t *testing.T) {
	p := profile.New(profile.Options{})
	pass(p, made(), time.Now(), 1, true)
	r := p.Report()
	at, made := time.Now(), made() // of which only the first group's ops are told of
	p2 := profile.New(profile.Options{})
	p2.Observe(pager.Event{Kind: pager.OpDone, Took: time.Millisecond, Begin: at, End: at, Plan: made})
	for k := range made.Groups {
		p2.Observe(pager.Event{Group: k, Compute: 10 * time.Millisecond, Begin: at, Plan: made})
	}
	p2.Observe(pager.Event{Kind: pager.PassDone, Took: time.Second, Begin: at, Plan: made})
	if r := p2.Report(); !near(r.ComputeSeconds, 0.021) || !near(moduleOf(t, r, "head").Seconds, 0.01) {
		t.Errorf("%+v", r)
	}
	if m := moduleOf(t, r, "layers.2.fc"); !r.Exact || !near(m.Seconds, 0.003) || !near(r.ComputeSeconds, 0.021) {
		t.Errorf("%+v, %+v", r, m)
	}
}

// TestBound: what waits longer for weights than it computes is bound by the disk, or by the copies of a device with memory of its own;
// what moves more than it computes by memory.
func TestBound(t *testing.T) {
	for _, c := range []struct {
		direct bool
		stall  time.Duration
		bytes  int64
		want   string
	}{{true, time.Second, 1, "disk"}, {false, time.Second, 1, "transfer"}, {true, 0, 1 << 40, "memory"}, {true, 0, 1, "compute"}} {
		made := made()
		made.Target.Direct = c.direct
		for i := range made.Lowered.Steps {
			made.Lowered.Steps[i].Cost.Bytes = c.bytes
		}
		p := profile.New(profile.Options{})
		at := time.Now()
		p.Observe(pager.Event{Group: 2, Stall: c.stall, Compute: time.Millisecond, Begin: at, Plan: made})
		p.Observe(pager.Event{Kind: pager.PassDone, Took: 2 * time.Second, Begin: at, Plan: made})
		if m := moduleOf(t, p.Report(), "head"); m.Bound != c.want {
			t.Errorf("%+v, want %s", m, c.want)
		}
	}
}

// TestFailedPass: what a pass that failed has told is not counted with the next.
func TestFailedPass(t *testing.T) {
	p, plan := profile.New(profile.Options{}), made()
	p.Observe(pager.Event{Group: 0, Compute: time.Hour, Begin: time.Now(), Plan: plan})
	pass(p, plan, time.Now().Add(time.Second), 1, false)
	pass(p, plan, time.Now().Add(2*time.Second), 1, false)
	p.Observe(pager.Event{Group: 0, Compute: time.Hour, Begin: time.Now(), Plan: plan})
	p.Observe(pager.Event{Kind: pager.Replanned, Err: errors.New("full"), Plan: plan})
	pass(p, plan, time.Now(), 1, false)
	if r := p.Report(); r.Passes != 2 || !near(r.ComputeSeconds, 0.03) {
		t.Errorf("%+v", r)
	}
	// What a plan does not have is left out.
	for _, e := range []pager.Event{{Group: -1}, {Group: 3}, {Kind: pager.OpDone, Op: 6}, {Kind: pager.OpDone, Op: -1}} {
		p.Observe(e)
		e.Plan = plan
		p.Observe(e)
	}
}

// TestEvery: a report of so many passes is written after each so many, of those alone.
func TestEvery(t *testing.T) {
	var out bytes.Buffer
	p := profile.New(profile.Options{Every: 3, W: &out, View: profile.View{Columns: []profile.Column{profile.Time}, Depth: 1}})
	plan := made()
	for range 7 {
		pass(p, plan, time.Now(), 1, false)
	}
	if n := strings.Count(out.String(), "3 passes on cpu"); n != 2 || strings.Contains(out.String(), "gflop") || strings.Contains(out.String(), "fc") {
		t.Errorf("%d reports in\n%s", n, &out)
	}
	if r := p.Report(); r.Passes != 7 {
		t.Errorf("%+v", r)
	}
}

// TestNext: who waits for passes gets those that come, or gives up.
func TestNext(t *testing.T) {
	p, plan := profile.New(profile.Options{}), made()
	pass(p, plan, time.Now(), 1, false)
	got := make(chan *profile.Report)
	go func() {
		r, err := p.Next(t.Context(), 2)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	var r *profile.Report
	for r == nil {
		select {
		case r = <-got:
		default:
			pass(p, plan, time.Now(), 1, false)
		}
	}
	if r.Passes != 2 || !near(r.Seconds, 0.04) {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Next(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestText: repeats are one row, columns and order are those asked for, levels are cut, and the rest is told.
func TestText(t *testing.T) {
	p := profile.New(profile.Options{})
	pass(p, made(), time.Now(), 1, true)
	r := p.Report()
	rows := func(v profile.View) (names []string) {
		for line := range strings.SplitSeq(strings.TrimSpace(r.Text(v)), "\n") {
			names = append(names, strings.Join(strings.Fields(line), " "))
		}
		return names[1:]
	}
	for _, c := range []struct {
		view profile.View
		want string
	}{
		{profile.View{Columns: []profile.Column{profile.Calls, profile.Time}},
			"module calls time|(program) 1 21 ms|layers 1 10 ms|0 … 3 (4) 4 10 ms|head 2 11 ms|(waiting) 3 ms|(other) 16 ms"},
		{profile.View{Columns: []profile.Column{profile.Percent}, Depth: 1, Sort: profile.Time},
			"module %|(program) 52.5|head 27.5|layers 25.0|(waiting) 7.5|(other) 40.0"},
		{profile.View{Columns: []profile.Column{profile.FLOPs, profile.Peak}, Apart: true, Sort: profile.FLOPs},
			"module flops peak|(program) 2.1e+04 105 B|head 1.1e+04 105 B|layers 1e+04 103 B|0 … 3 (4) 1e+04 103 B|" +
				"3 4000 103 B|fc 4000 103 B|2 3000 102 B|fc 3000 102 B|1 2000 101 B|fc 2000 101 B|0 1000 100 B|fc 1000 100 B|(waiting)|(other)"},
	} {
		if got := strings.Join(rows(c.view), "|"); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	for _, v := range []profile.View{{Columns: []profile.Column{"size"}}, {Sort: "size"}, {Depth: -1}} {
		if v.Check() == nil {
			t.Errorf("%+v is taken", v)
		}
	}
	if err := (&profile.View{Columns: profile.Columns, Sort: profile.Peak}).Check(); err != nil {
		t.Error(err)
	}
}

// TestPage: modules fold, repeats are in a fold of their own that is closed, the axis has round times, the rest is there, and a
// hostile name is only text.
func TestPage(t *testing.T) {
	plan := made()
	plan.Lowered.Graph.Ops[4].Path = "<script>alert(1)</script>"
	p := profile.New(profile.Options{})
	pass(p, plan, time.Now(), 1, true)
	var b bytes.Buffer
	if err := p.Report().WriteHTML(&b, "a & b", profile.View{}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"<title>a &amp; b</title>", "0 … 3 (4)", "<details open><summary", "<details><summary", "&lt;script&gt;", "(other)", "(waiting)",
		">10 ms</span>", ">40 ms</span>", "left:25%", "width:52.5%",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the page\n%s", want, text)
		}
	}
	for _, not := range []string{"<script", "http", "ZgotmplZ"} {
		if strings.Contains(text, not) {
			t.Errorf("%q is in the page", not)
		}
	}
}

// TestJSON: what is written is the report.
func TestJSON(t *testing.T) {
	p := profile.New(profile.Options{})
	pass(p, made(), time.Now(), 1, false)
	var b bytes.Buffer
	if err := p.Report().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Passes       int64
		OtherSeconds float64 `json:"other_seconds"`
		Modules      []struct {
			Path  string
			Bound string
			Rate  float64 `json:"flops_per_second"`
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Passes != 1 || !near(got.OtherSeconds, 0.007) || len(got.Modules) != 11 || got.Modules[10].Path != "head" || got.Modules[10].Rate <= 0 {
		t.Errorf("%+v", got)
	}
}

// TestSessions: a profile of sessions counts their passes, whose modules take what the groups do, in every mode.
func TestSessions(t *testing.T) {
	ckpt, err := loader.Open("../examples/digits/digits.pt2")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := ckpt.Close(); err != nil {
			t.Error(err)
		}
	}()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []runtime.Options{
		{Mode: plan.Resident}, {Mode: plan.Page}, {Mode: plan.Page, ObserveOps: true}, {Mode: plan.Page, Device: "emu:memory=64MiB"},
		{Mode: plan.Chunk, Device: "emu:memory=64MiB", Capacity: plan.Limit{N: 30_000, Unit: plan.Params}},
	} {
		p := profile.New(profile.Options{})
		o.Observe = p.Observe
		s, err := runtime.Start(t.Context(), model, o)
		if err != nil {
			t.Fatal(err)
		}
		const runs = 4
		for range runs {
			if _, err := s.Run(t.Context(), runtime.Values{"input": tensor.Of(make([]float32, 64), 1, 1, 8, 8)}); err != nil {
				t.Fatal(err)
			}
		}
		r, m := p.Report(), s.Metrics()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		paths := make(map[string]bool)
		for _, x := range r.Modules {
			paths[x.Path] = true
		}
		if r.Passes != runs || !paths["hidden"] || !paths["stem.conv"] || r.Modules[0].FLOPs < 8e5 || r.Exact != o.ObserveOps ||
			!near(r.Modules[0].Seconds, r.ComputeSeconds) || int64(runs)*r.MovedBytes != m.MovedBytes {
			t.Errorf("%+v: %+v, moved %d", o, r, m.MovedBytes)
		}
		if !o.ObserveOps && math.Abs(r.ComputeSeconds*runs-m.Compute.Seconds()) > 1e-6 {
			t.Errorf("%+v: ops take %v, the session counts %v", o, r.ComputeSeconds*runs, m.Compute)
		}
	}
}
