// Package profile measures where the time of passes goes while a session runs, module by module: time, stalls, bytes
// moved, arithmetic, and what bounds each module. It observes any session, so a service can keep it on: without
// Options.ObserveOps it costs a pass only a few additions per group.
//
// It knows plans and their ops. It does not know how a pass is run.
//
//	p := profile.New(profile.Options{Every: 100, W: os.Stderr})
//	opts.Observe = p.Observe
//	session, err := optimem.Start(ctx, model, opts)
//	fmt.Print(p.Report().Text(profile.View{}))
//
// Package profile/profilehttp shows it to a browser.
package profile

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/recent"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
)

// Options say what a profile does. The zero value only counts, and tells who asks.
type Options struct {
	// Every is after how many passes a report of them is written to W, on the goroutine that runs the pass; 0 is never.
	Every int
	W     io.Writer
	// View is what such a report shows.
	View View
	// Ops and Rates are what ops cost and the device does, of which follow what bounds a module and, where ops are not observed, what share
	// of its group's time it has. Nil is graph.Standard(), the zero Rates are guesses.
	Ops   *graph.Registry
	Rates cost.Rates
}

// A Profile counts what passes do. It may observe several sessions, from any goroutines.
type Profile struct {
	opts Options

	mu sync.Mutex
	// all counts since New or Reset, interval since the last report to W; windows are those that somebody waits for.
	all, interval *counts
	windows       []*window
	plans         *recent.Map[*plan.Plan, *indexed]
}

// A window counts a number of passes.
type window struct {
	left   int
	counts *counts
	full   chan struct{}
}

// maxPlans bounds the plans kept, maxModules the modules counted, maxDepth how deep their paths go: what is beyond counts for the
// module that it is in.
const (
	maxPlans   = 8
	maxModules = 1 << 16
	maxDepth   = 64
)

// counts are sums over passes.
type counts struct {
	passes, instances      int64
	seconds, computing     float64
	stall, loading         float64
	device                 string
	exact                  bool // the times are those of ops
	modules                map[string]*sums
	order                  []string
	takenBytes, movedBytes int64
}

// sums are those of a module alone, without the modules in it.
type sums struct {
	calls, seconds, stall float64
	flops, bytes          float64
	moved                 float64
	peak                  int64
	direct                bool
}

func newCounts() *counts { return &counts{modules: make(map[string]*sums)} }

// at returns the sums of a module, in the order in which modules first run.
func (c *counts) at(path string) *sums {
	if s := c.modules[path]; s != nil {
		return s
	}
	if len(c.modules) >= maxModules {
		path = ""
		if s := c.modules[path]; s != nil {
			return s
		}
	}
	s := &sums{}
	c.modules[path] = s
	c.order = append(c.order, path)
	return s
}

// add adds other counts, whose arithmetic was done for so many instances.
func (c *counts) add(o *counts, instances float64) {
	c.passes, c.instances = c.passes+o.passes, c.instances+o.instances
	c.seconds, c.computing, c.stall, c.loading = c.seconds+o.seconds, c.computing+o.computing, c.stall+o.stall,
		c.loading+o.loading
	c.takenBytes, c.movedBytes = max(c.takenBytes, o.takenBytes), c.movedBytes+o.movedBytes
	c.device, c.exact = o.device, o.exact
	for _, path := range o.order {
		from, to := o.modules[path], c.at(path)
		to.calls, to.seconds, to.stall, to.moved = to.calls+from.calls, to.seconds+from.seconds, to.stall+from.stall,
			to.moved+from.moved
		to.flops, to.bytes = to.flops+from.flops*instances, to.bytes+from.bytes*instances
		to.peak, to.direct = max(to.peak, from.peak), from.direct
	}
}

// New returns a profile that has counted nothing.
func New(opts Options) *Profile {
	if opts.Ops == nil {
		opts.Ops = graph.Standard()
	}
	return &Profile{
		opts: opts, all: newCounts(), interval: newCounts(),
		plans: recent.New[*plan.Plan, *indexed](maxPlans),
	}
}

// Reset forgets what was counted, but for who waits.
func (p *Profile) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all, p.interval = newCounts(), newCounts()
}

// Report returns what was counted since New or Reset.
func (p *Profile) Report() *Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return newReport(p.all, p.opts.Rates)
}

// Next returns what is counted in the next passes, so many of them, once they are over.
func (p *Profile) Next(ctx context.Context, passes int) (*Report, error) {
	w := &window{left: max(passes, 1), counts: newCounts(), full: make(chan struct{})}
	p.mu.Lock()
	p.windows = append(p.windows, w)
	p.mu.Unlock()
	select {
	case <-w.full:
		return newReport(w.counts, p.opts.Rates), nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.windows {
		if p.windows[i] == w {
			p.windows = append(p.windows[:i], p.windows[i+1:]...)
			break
		}
	}
	return nil, ctx.Err()
}

// An indexed plan has what counting needs of it.
type indexed struct {
	*plan.Plan
	paths                 []string // of each op, without the number of a call
	called                []string // and with it
	seconds, flops, bytes []float64
	peaks                 []int64
	// pass is what was told of the pass that runs with the plan, began when the first of it began, calls which modules were called;
	// opsTold says that ops of the group were told of.
	pass    *counts
	began   time.Time
	calls   map[string]bool
	opsTold bool
}

func (p *Profile) index(made *plan.Plan) *indexed {
	if x, ok := p.plans.Get(made); ok {
		return x
	}
	g := made.Lowered.Graph
	n := len(g.Ops)
	x := &indexed{
		Plan: made, paths: make([]string, n), called: make([]string, n), flops: make([]float64, n),
		bytes: make([]float64, n),
		peaks: make([]int64, n), seconds: p.opts.Rates.WithGuesses().GraphSeconds(made.Lowered, p.opts.Ops),
	}
	for i, h := range made.Holdings() {
		op := &g.Ops[i]
		x.called[i], x.paths[i] = op.Path, modulePath(op.Path)
		x.peaks[i] = h.ActivationBytes + h.WorkBytes
		in, out := make([]graph.Spec, len(op.In)), make([]graph.Spec, len(op.Out))
		for k, o := range op.In {
			if o.Value != graph.NoValue {
				in[k] = g.Spec(o)
			}
		}
		for k, id := range op.Out {
			out[k] = g.Spec(g.Whole(id))
		}
		c := cost.StepCost(p.opts.Ops, &made.Lowered.Steps[i], op, in, out)
		x.flops[i], x.bytes[i] = float64(c.FLOPs), float64(c.Bytes)
	}
	x.drop()
	p.plans.Put(made, x)
	return x
}

// modulePath is a path without what says which call of a module it is, and not too deep: "encoder.layer" for "encoder.layer@1".
func modulePath(path string) string {
	if !strings.Contains(path, "@") && strings.Count(path, ".") < maxDepth {
		return path
	}
	parts := strings.Split(path, ".")
	parts = parts[:min(len(parts), maxDepth)]
	for i, part := range parts {
		if name, call, ok := strings.Cut(part, "@"); ok && strings.Trim(call, "0123456789") == "" {
			parts[i] = name
		}
	}
	return strings.Join(parts, ".")
}

// Observe counts what an event tells. It is an observer of sessions.
func (p *Profile) Observe(e pager.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Plan == nil { // no pass runs
		return
	}
	x := p.index(e.Plan)
	switch e.Kind {
	case pager.WeightsLoaded:
		if x.began.IsZero() { // else they were brought while ops ran, and what these waited is told with them
			x.start(e.Begin)
			x.pass.loading += e.Took.Seconds()
		}
	case pager.OpDone:
		if e.Op >= 0 && e.Op < len(x.paths) {
			x.start(e.Begin)
			x.opsTold, x.pass.exact = true, true
			x.pass.at(x.paths[e.Op]).seconds += e.Took.Seconds()
			x.pass.computing += e.Took.Seconds()
		}
	case pager.GroupDone:
		if e.Group >= 0 && e.Group < len(x.Groups) {
			x.group(e)
		}
	case pager.PassDone:
		p.passDone(x, e)
	case pager.Replanned:
		x.drop()
	}
}

// start notes when the first step of a pass began.
func (x *indexed) start(at time.Time) {
	if x.began.IsZero() {
		x.began = at
	}
}

// drop forgets the pass that runs.
func (x *indexed) drop() {
	x.pass, x.began, x.opsTold, x.calls = newCounts(), time.Time{}, false, make(map[string]bool)
}

// group counts a group that is done. Where no op of it was told of, its modules share its time as the plan expects them to.
func (x *indexed) group(e pager.Event) {
	x.start(e.Begin)
	g := &x.Groups[e.Group]
	var expected float64
	for i := g.First; i < g.End; i++ {
		expected += x.seconds[i]
	}
	if g.First < g.End { // the first op waits
		x.pass.at(x.paths[g.First]).stall += e.Stall.Seconds()
	}
	x.pass.stall += e.Stall.Seconds()
	x.pass.movedBytes += e.LoadedBytes
	for i := g.First; i < g.End; i++ {
		s := x.pass.at(x.paths[i])
		if !x.calls[x.called[i]] {
			x.calls[x.called[i]] = true
			s.calls++
		}
		if !x.opsTold {
			share := 1 / float64(g.End-g.First)
			if expected > 0 {
				share = x.seconds[i] / expected
			}
			s.seconds += e.Compute.Seconds() * share
		}
		s.flops, s.bytes = s.flops+x.flops[i], s.bytes+x.bytes[i]
		s.peak, s.direct = max(s.peak, x.peaks[i]), x.Target.Direct || g.OnHost
	}
	if !x.opsTold {
		x.pass.computing += e.Compute.Seconds()
	}
	x.opsTold = false
	x.moved(g, e.LoadedBytes)
}

// moved shares what was brought for a group among its modules, by what they read.
func (x *indexed) moved(g *plan.Group, bytes int64) {
	if bytes == 0 {
		return
	}
	layers := g.Layers()
	for _, l := range layers {
		share := 1 / float64(len(layers))
		if g.WeightBytes > 0 {
			share = float64(l.WeightBytes) / float64(g.WeightBytes)
		}
		x.pass.at(modulePath(l.Path)).moved += float64(bytes) * share
	}
}

// passDone ends a pass. One whose first steps are left from a pass that failed is not counted.
func (p *Profile) passDone(x *indexed, e pager.Event) {
	pass, began := x.pass, x.began
	x.drop()
	if began.Before(e.Begin) && !began.IsZero() && !e.Begin.IsZero() {
		return
	}
	pass.passes, pass.instances, pass.seconds = 1, int64(e.Instances), e.Took.Seconds()
	pass.device, pass.takenBytes = e.Plan.Target.Name, e.Plan.PeakBytes()
	n := float64(max(e.Instances, 1))
	p.all.add(pass, n)
	p.interval.add(pass, n)
	left := p.windows[:0]
	for _, w := range p.windows {
		w.counts.add(pass, n)
		if w.left--; w.left == 0 {
			close(w.full)
		} else {
			left = append(left, w)
		}
	}
	p.windows = left
	if p.opts.Every > 0 && p.opts.W != nil && p.interval.passes >= int64(p.opts.Every) {
		text := newReport(p.interval, p.opts.Rates).Text(p.opts.View)
		p.interval = newCounts()
		_, _ = io.WriteString(p.opts.W, text+"\n")
	}
}
