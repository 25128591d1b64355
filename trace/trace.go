// Package trace writes a session's activity as a timeline for https://ui.perfetto.dev and chrome://tracing: lanes for
// passes, compute, ops, stalls, copies and the disk, counters of memory by purpose, and arrows from the read of a
// group's weights to the compute that needed them.
//
// Times are measured wall-clock times; places and purposes of memory come from the plan. A trace does not know how a
// pass is run. Its own memory is bounded by the plan's size, so it can run for any number of passes.
//
//	t := trace.New(file) // defer t.Close()
//	opts.Observe, opts.ObserveLoads = t.Observe, true
//	session, err := optimem.Start(ctx, model, opts)
//
// With Options.ObserveOps it has each op, too.
package trace

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/optimem/optimem/internal/recent"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
)

// A Trace is a timeline that is being written, in the JSON of Chrome's trace events. It may observe several sessions, from any
// goroutines.
type Trace struct {
	mu     sync.Mutex
	w      *bufio.Writer
	began  time.Time
	events int64
	closed bool
	line   []byte
	// lanes are by process and purpose, each of as many threads as had to be drawn at once; processes are those named.
	lanes     map[laneKey]*lane
	threads   int
	processes map[int]bool
	// flows counts the arrows.
	flows int64
	// plans has what is drawn of a plan, the last few; past is the one of the event before.
	plans *recent.Map[*plan.Plan, *drawn]
}

// maxPlans bounds the plans kept: a batch goes through two, one for whole passes and one for the rest.
const maxPlans = 4

// A laneKey is a lane of a process.
type laneKey struct {
	process int
	purpose purpose
}

// A purpose is what a lane is for. Lanes are sorted by it.
type purpose int

const (
	passes purpose = iota
	compute
	ops
	stalls
	copies
	disk
	residents
)

var purposes = [...]string{"passes", "compute", "ops", "stalls", "copies", "disk", "weights that stay"}

// A lane is threads of the timeline on which no two slices overlap, by when the last slice of each ends.
type lane struct {
	threads []int
	ends    []int64
}

// drawn is what a trace knows of a plan.
type drawn struct {
	*plan.Plan
	// holdings are by op, most are by group: the op of it that finds most in use.
	holdings []plan.Holding
	most     []int
	// groups have what waits for an arrow.
	groups []pending
}

// pending are the ends of arrows: where a group's weights were brought and it has not computed with them yet, or where it has and
// the bringing was not told of yet.
type pending struct {
	loads    []arrow
	computed *arrow
}

// An arrow is a place on the timeline, in nanoseconds.
type arrow struct {
	flow            int64
	process, thread int
	at              int64
}

// maxPending bounds the loads of one group that wait for it: two lie in staging memory at once; those that a pass which
// failed left behind are dropped.
const maxPending = 4

// New returns a trace that writes to w. Its events are complete once Close was called.
func New(w io.Writer) *Trace {
	t := &Trace{
		w: bufio.NewWriterSize(w, 1<<16), began: time.Now(), lanes: make(map[laneKey]*lane),
		processes: make(map[int]bool),
		plans:     recent.New[*plan.Plan, *drawn](maxPlans),
	}
	_, _ = t.w.WriteString(`{"displayTimeUnit":"ns","traceEvents":[`) // an error stays until Close
	return t
}

// Close ends the trace and says whether all of it was written. It does not close the writer. What is observed afterwards is
// left out. A second Close returns nil.
func (t *Trace) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	_, _ = t.w.WriteString("\n]}\n")
	return t.w.Flush()
}

// Observe writes what an event tells. It is an observer of sessions.
func (t *Trace) Observe(e pager.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	d := t.plan(e.Plan)
	switch e.Kind {
	case pager.GroupDone:
		t.group(d, e)
	case pager.OpDone:
		t.op(d, e)
	case pager.LoadDone:
		t.load(d, e)
	case pager.WeightsLoaded:
		t.slice(firstProcess, residents, "weights that stay", e.Begin, e.End, args{{"bytes", e.LoadedBytes}})
	case pager.PassDone:
		t.slice(firstProcess, passes, "pass", e.Begin, e.End, args{{"instances", int64(e.Instances)}})
		t.afterPass(d, e.End)
	case pager.Replanned:
		t.replanned(e)
	}
}

// firstProcess is that of the first device, hostProcess that of the CPU beside one.
const (
	firstProcess = 1
	hostProcess  = 1000
)

// plan returns what is known of a plan, nil of none.
func (t *Trace) plan(p *plan.Plan) *drawn {
	if p == nil {
		return nil
	}
	if d, ok := t.plans.Get(p); ok {
		return d
	}
	d := &drawn{
		Plan: p, holdings: p.Holdings(), most: make([]int, len(p.Groups)), groups: make([]pending, len(p.Groups)),
	}
	for k := range p.Groups {
		g := &p.Groups[k]
		d.most[k] = g.First
		for i := g.First; i < g.End; i++ {
			if d.holdings[i].Total() > d.holdings[d.most[k]].Total() {
				d.most[k] = i
			}
		}
	}
	t.plans.Put(p, d)
	t.name(d)
	return d
}

// name names the processes of a plan: its devices, and the CPU beside them.
func (t *Trace) name(d *drawn) {
	t.nameProcess(firstProcess, d.Target.Name)
	for k := range d.Groups {
		process := processOf(&d.Groups[k])
		if process == hostProcess {
			t.nameProcess(process, "cpu beside "+d.Target.Name)
		} else {
			t.nameProcess(process, d.Target.Name+":"+strconv.Itoa(process-firstProcess))
		}
	}
}

func (t *Trace) nameProcess(process int, name string) {
	if t.processes[process] {
		return
	}
	t.processes[process] = true
	t.metadata("process_name", process, 0, args{{"name", name}})
	t.metadata("process_sort_index", process, 0, args{{"sort_index", int64(process)}})
}

func processOf(g *plan.Group) int {
	if g.OnHost {
		return hostProcess
	}
	return firstProcess + g.Device
}

// group draws a group that is done.
func (t *Trace) group(d *drawn, e pager.Event) {
	if d == nil || e.Group < 0 || e.Group >= len(d.Groups) || e.Begin.IsZero() {
		return
	}
	g := &d.Groups[e.Group]
	process, begin := processOf(g), e.Arrived
	if begin.Sub(e.Begin) >= time.Microsecond {
		t.slice(process, stalls, nameOf(e.Path), e.Begin, begin, args{{"group", int64(e.Group)}})
	}
	t.memory(process, &d.holdings[d.most[e.Group]], begin)
	to := t.slice(process, compute, nameOf(e.Path), begin, e.End, args{
		{"group", int64(e.Group)}, {"ops", int64(g.End - g.First)}, {"loaded_bytes", e.LoadedBytes},
		{"expected_us", g.Seconds * 1e6 * float64(max(d.Instances, 1))},
		{"stall_us", float64(e.Stall.Nanoseconds()) / 1e3},
	}.swaps(d.Plan, g, e.SwapStall))
	if x := &d.groups[e.Group]; len(x.loads) > 0 {
		t.flow("f", x.loads[0].flow, to)
		x.loads = x.loads[:copy(x.loads, x.loads[1:])]
	} else {
		x.computed = &to
	}
}

// swaps adds what a group sends away, gets back and computes anew of activations, where it does.
func (a args) swaps(p *plan.Plan, g *plan.Group, stall time.Duration) args {
	if out, in := p.SwapsOf(g); out+in > 0 {
		a = append(a, arg{"swapped_out_bytes", out}, arg{"swapped_in_bytes", in},
			arg{"swap_stall_us", float64(stall.Nanoseconds()) / 1e3})
	}
	if n := p.AgainOf(g); n > 0 {
		a = append(a, arg{"recomputed_bytes", n})
	}
	return a
}

// op draws an op that is done.
func (t *Trace) op(d *drawn, e pager.Event) {
	if d == nil || e.Group < 0 || e.Group >= len(d.Groups) || e.Op < 0 || e.Op >= len(d.holdings) {
		return
	}
	process := processOf(&d.Groups[e.Group])
	t.memory(process, &d.holdings[e.Op], e.Begin)
	t.slice(process, ops, string(e.OpKind), e.Begin, e.End, args{
		{"path", e.Path}, {"op", int64(e.Op)}, {"instance", int64(e.Instance)},
		{"took_us", float64(e.Took.Nanoseconds()) / 1e3},
		{"source", d.Lowered.Graph.Ops[e.Op].Source},
	})
}

// load draws the bringing of a group, and an arrow to its computing.
func (t *Trace) load(d *drawn, e pager.Event) {
	if d == nil || e.Group < 0 || e.Group >= len(d.Groups) {
		return
	}
	process := processOf(&d.Groups[e.Group])
	more := args{
		{"group", int64(e.Group)}, {"bytes", e.LoadedBytes}, {"expected_us", d.Groups[e.Group].LoadSeconds * 1e6},
	}
	t.flows++
	step := "s"
	var at arrow
	for _, x := range []struct {
		purpose    purpose
		begin, end time.Time
	}{{disk, e.Begin, e.End}, {copies, e.CopyBegin, e.CopyEnd}} {
		if x.begin.IsZero() {
			continue
		}
		from := t.slice(process, x.purpose, nameOf(e.Path), x.begin, x.end, more)
		if step == "s" {
			at = from
		}
		// An arrow leaves a slice at its end, within it.
		from.at = max(from.at, t.nanoseconds(x.end)-1)
		t.flow(step, t.flows, from)
		step = "t"
	}
	if step == "s" {
		return
	}
	at.flow = t.flows
	x := &d.groups[e.Group]
	if c := x.computed; c != nil {
		x.computed = nil
		if at.at <= c.at {
			t.flow("f", at.flow, *c)
			return
		}
	}
	if len(x.loads) == maxPending {
		x.loads = x.loads[:copy(x.loads, x.loads[1:])]
	}
	x.loads = append(x.loads, at)
}

// afterPass says that nothing but weights and slots is in use.
func (t *Trace) afterPass(d *drawn, at time.Time) {
	if d == nil {
		return
	}
	seen := make(map[int]bool)
	for k := range d.Groups {
		process := processOf(&d.Groups[k])
		if !seen[process] {
			seen[process] = true
			h := d.holdings[d.most[k]]
			h.ActivationBytes, h.WorkBytes = 0, 0
			t.memory(process, &h, at)
		}
	}
}

// nameOf is what a slice of a module is called.
func nameOf(path string) string {
	if path == "" {
		return "(program)"
	}
	return path
}

// replanned marks that a device refused memory.
func (t *Trace) replanned(e pager.Event) {
	cause := ""
	if e.Err != nil {
		cause = e.Err.Error()
	}
	t.begin("planned for less memory", "i", firstProcess, 0, t.nanoseconds(time.Now()))
	t.line = append(t.line, `,"s":"g"`...)
	t.end(args{{"cause", cause}, {"peak_bytes", e.PeakBytes}})
}

// slice draws a slice on a lane, and returns where an arrow ends that points to it.
func (t *Trace) slice(process int, p purpose, name string, begin, end time.Time, more args) arrow {
	from, to := t.nanoseconds(begin), t.nanoseconds(end)
	to = max(from+1, to) // an arrow needs something to point to
	thread := t.thread(process, p, from, to)
	t.begin(name, "X", process, thread, from)
	t.line = append(t.line, `,"cat":"`...)
	t.line = append(t.line, purposes[p]...)
	t.line = append(t.line, `","dur":`...)
	t.line = appendMicroseconds(t.line, to-from)
	t.end(more)
	return arrow{process: process, thread: thread, at: from}
}

// thread returns the first thread of a lane on which nothing else is drawn from a time on.
func (t *Trace) thread(process int, p purpose, from, to int64) int {
	key := laneKey{process, p}
	l := t.lanes[key]
	if l == nil {
		l = &lane{}
		t.lanes[key] = l
	}
	for i, end := range l.ends {
		if end <= from {
			l.ends[i] = to
			return l.threads[i]
		}
	}
	t.threads++
	l.threads, l.ends = append(l.threads, t.threads), append(l.ends, to)
	name := purposes[p]
	if n := len(l.threads); n > 1 {
		name += " " + strconv.Itoa(n)
	}
	t.metadata("thread_name", process, t.threads, args{{"name", name}})
	t.metadata("thread_sort_index", process, t.threads, args{{"sort_index", int64(p)*1000 + int64(len(l.threads))}})
	return t.threads
}

// memory draws the counters of the memory in use.
func (t *Trace) memory(process int, h *plan.Holding, at time.Time) {
	t.begin("memory", "C", process, 0, t.nanoseconds(at))
	t.end(args{
		{"weights", h.FixedBytes}, {"slots", h.RingBytes}, {"caches", h.CacheBytes}, {"activations", h.ActivationBytes},
		{"workspace", h.WorkBytes},
	})
}

// flow draws a step of an arrow: "s" its start, "t" what lies between, "f" its end.
func (t *Trace) flow(step string, flow int64, at arrow) {
	t.begin("weights", step, at.process, at.thread, at.at)
	t.line = append(t.line, `,"cat":"flow","id":`...)
	t.line = strconv.AppendInt(t.line, flow, 10)
	if step == "f" {
		t.line = append(t.line, `,"bp":"e"`...)
	}
	t.end(nil)
}

func (t *Trace) nanoseconds(at time.Time) int64 { return max(at.Sub(t.began), 0).Nanoseconds() }

// String says how many events were written.
func (t *Trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("a trace of %d events", t.events)
}
