package profiled

import (
	"slices"
	"time"

	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
)

// A planIndex finds the ops and groups of a plan that events are about. The last rows of a batch go through a plan of their
// own, whose ops may have other numbers: they count for the first op here of the same module and kind.
type planIndex struct {
	*plan.Plan
	byKind, byPath map[string]int
	groupOf        []int
}

func newPlanIndex(p *plan.Plan) *planIndex {
	x := &planIndex{Plan: p, byKind: make(map[string]int), byPath: make(map[string]int)}
	ops := p.Lowered.Graph.Ops
	for i := len(ops) - 1; i >= 0; i-- {
		x.byPath[ops[i].Path] = i
		x.byKind[ops[i].Path+" "+string(ops[i].Kind)] = i
	}
	x.groupOf = make([]int, len(ops))
	for k := range p.Groups {
		for i := p.Groups[k].First; i < p.Groups[k].End; i++ {
			x.groupOf[i] = k
		}
	}
	return x
}

// op returns the number of the op that an event is about.
func (x *planIndex) op(e runtime.Event) int {
	ops := x.Lowered.Graph.Ops
	if e.Op < len(ops) && ops[e.Op].Path == e.Path && ops[e.Op].Kind == e.OpKind {
		return e.Op
	}
	if i, ok := x.byKind[e.Path+" "+string(e.OpKind)]; ok {
		return i
	}
	if i, ok := x.byPath[e.Path]; ok {
		return i
	}
	return min(e.Op, len(ops)-1)
}

// group returns the number of the group that an event is about.
func (x *planIndex) group(e runtime.Event) int {
	if e.Group < len(x.Groups) && x.Groups[e.Group].Name() == e.Path {
		return e.Group
	}
	k := slices.IndexFunc(x.Groups, func(g plan.Group) bool { return g.Name() == e.Path })
	if k < 0 {
		k = min(max(e.Group, 0), len(x.Groups)-1)
	}
	return k
}

// An opTimes is what ops of a plan took, by op, how many times each ran, how long each group was waited for, and what was
// brought for it.
type opTimes struct {
	seconds []float64
	times   []int
	stall   []float64
	moved   []int64
}

func newOpTimes(p *planIndex) opTimes {
	ops, groups := len(p.Lowered.Graph.Ops), len(p.Groups)
	return opTimes{make([]float64, ops), make([]int, ops), make([]float64, groups), make([]int64, groups)}
}

func (t *opTimes) clear() {
	clear(t.seconds)
	clear(t.times)
	clear(t.stall)
	clear(t.moved)
}

func (t *opTimes) add(o *opTimes) {
	for i := range o.seconds {
		t.seconds[i] += o.seconds[i]
		t.times[i] += o.times[i]
	}
	for k := range o.stall {
		t.stall[k] += o.stall[k]
		t.moved[k] += o.moved[k]
	}
}

func (t *opTimes) clone() opTimes {
	return opTimes{slices.Clone(t.seconds), slices.Clone(t.times), slices.Clone(t.stall), slices.Clone(t.moved)}
}

// observedOp is an op that was told of since the last group's end.
type observedOp struct {
	op   int
	took time.Duration
}

// An Watch adds up what is told of the ops of a run.
type Watch struct {
	plan *planIndex
	// simulated says that the device has a clock of its own, on which what the CPU beside it computes takes no time but what
	// the plan expects.
	simulated bool
	replanned bool
	// pass is what was told since the last pass's end: a pass that fails is run again, with another plan. run is that of all
	// passes of the run.
	pass, run opTimes
	// group are the ops of the group that is under way, instances how many micro-batches they were for.
	group     []observedOp
	instances int
}

// Begin follows runs of a plan, and forgets what was told of another. Simulated says that the device has a clock of its own.
func (w *Watch) Begin(p *plan.Plan, simulated bool) {
	x := newPlanIndex(p)
	*w = Watch{plan: x, simulated: simulated, pass: newOpTimes(x), run: newOpTimes(x)}
}

// BeginRun forgets what was told of the run before.
func (w *Watch) BeginRun() {
	w.run.clear()
	w.dropPass()
}

func (w *Watch) dropPass() {
	w.pass.clear()
	w.group, w.instances = w.group[:0], 0
}

// Replanned reports whether the session made another plan since Begin: what is told from there on is not of the plan that the
// watch knows.
func (w *Watch) Replanned() bool { return w.replanned }

// Observe is told of an event. There are none of ops before Begin.
func (w *Watch) Observe(e runtime.Event) {
	switch e.Kind {
	case runtime.OpDone:
		w.group = append(w.group, observedOp{w.plan.op(e), e.Took})
		w.instances = max(w.instances, e.Instance+1)
	case runtime.GroupDone:
		w.endGroup(e)
	case runtime.PassDone:
		w.run.add(&w.pass)
		w.dropPass()
	case runtime.Replanned:
		w.replanned = true
		w.dropPass()
	}
}

// endGroup counts the ops of a group. Where the device's clock is its own, those that the CPU computed share what the plan
// expects of the group as they shared the wall's time.
func (w *Watch) endGroup(e runtime.Event) {
	k := w.plan.group(e)
	stall := e.Stall.Seconds()
	scale, each := 1.0, 0.0
	if g := &w.plan.Groups[k]; w.simulated && g.OnHost {
		stall = 0
		var wall time.Duration
		for _, o := range w.group {
			wall += o.took
		}
		expected := g.Seconds * float64(w.instances)
		if wall > 0 {
			scale = expected / wall.Seconds()
		} else {
			each = expected / float64(max(len(w.group), 1))
		}
	}
	for _, o := range w.group {
		w.pass.seconds[o.op] += o.took.Seconds()*scale + each
		w.pass.times[o.op]++
	}
	w.pass.stall[k] += stall
	w.pass.moved[k] += e.LoadedBytes
	w.group, w.instances = w.group[:0], 0
}

// A Measurement is what the runs that count took.
type Measurement struct {
	runs  []opTimes
	facts []Facts
}

// Facts are what a session says of a run as a whole.
type Facts struct {
	Seconds float64
	// Simulated says that this is by a device's own clock.
	Simulated bool
	// PeakDeviceBytes is the memory that was taken on the device, all arenas whole.
	PeakDeviceBytes int64
}

// Add counts the run that a watch was told of since its BeginRun.
func (a *Measurement) Add(w *Watch, f Facts) {
	a.runs, a.facts = append(a.runs, w.run.clone()), append(a.facts, f)
}

// Runs returns how many runs count.
func (a *Measurement) Runs() int { return len(a.runs) }

// median returns the opTimes of which each time is the median of all runs', and the median of the runs' times. What ran and
// what was brought are the last run's.
func (a *Measurement) median() (opTimes, float64) {
	m := a.runs[len(a.runs)-1].clone()
	each := make([]float64, len(a.runs))
	middle := func(of func(t *opTimes) float64) float64 {
		for i := range a.runs {
			each[i] = of(&a.runs[i])
		}
		return Median(each)
	}
	for i := range m.seconds {
		m.seconds[i] = middle(func(t *opTimes) float64 { return t.seconds[i] })
	}
	for k := range m.stall {
		m.stall[k] = middle(func(t *opTimes) float64 { return t.stall[k] })
	}
	for i := range a.facts {
		each[i] = a.facts[i].Seconds
	}
	return m, Median(each)
}

// Median returns the middle of some numbers, which it sorts.
func Median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}
