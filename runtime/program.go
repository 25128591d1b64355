package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/machine"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A program is a graph lowered for the session's device, with its plans.
type program struct {
	// source is the graph as the model has it, graph the one that is computed, with the same inputs and outputs.
	source, graph *graph.Graph
	// finds and leaves are those of the graph.
	finds, leaves string
	// told says that the session knows which buffers it changes.
	told    bool
	lowered *graph.Lowered
	// hostOps are the ops that the device cannot compute and the CPU beside it does, nil where there are none.
	hostOps []bool
	// section is what the graph is of the whole one, nil where it is the whole.
	section *graph.Section
	// whole has, for each output, whether its elements lie in order without gaps, so that they can be copied out as they
	// are; spanBytes what lies from its first element to its last.
	whole     []bool
	spanBytes []int64
	// plans are by the number of instances. joint is how many calls may share a pass; 0 is not known yet.
	plans map[int]*plan.Plan
	joint int
}

// maxPrograms bounds the programs kept, one for each set of input shapes.
const maxPrograms = 32

// program returns the graph made ready to be planned.
func (s *Session) program(ctx context.Context, g *graph.Graph) (*program, error) {
	if p, ok := s.programs.Get(g); ok {
		return p, nil
	}
	dumped, err := withDumps(g, s.opts.Dump)
	if err != nil {
		return nil, err
	}
	if s.opts.Extend != nil {
		if dumped, err = s.opts.Extend(dumped); err != nil {
			return nil, err
		}
	}
	p := &program{source: rewrite.Prune(s.withChanged(dumped)), finds: g.Finds, leaves: g.Leaves,
		plans: make(map[int]*plan.Plan)}
	made, err := s.machine.Compile(ctx, p.source, machine.Compilation{
		Ops: s.opts.Ops, Without: s.opts.Without, Exact: s.opts.Exact, Precision: s.opts.Precision, Mode: s.mode,
		Range: s.opts.Range,
	})
	if err != nil {
		return nil, err
	}
	p.graph, p.lowered, p.hostOps, p.section = made.Graph, made.Lowered, made.HostOps, made.Section
	for _, out := range p.graph.Outputs {
		first, end, err := out.Operand.Layout.Span()
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", out.Name, err)
		}
		p.whole = append(p.whole, out.Operand.Layout.IsContiguous())
		p.spanBytes = append(p.spanBytes, (end-first)*int64(p.graph.Values[out.Operand.Value].DType.Size()))
	}
	s.programs.Put(g, p)
	return p, nil
}

// withChanged returns the graph with the buffers that passes have changed as states, which are the session's and not the checkpoint's.
func (s *Session) withChanged(g *graph.Graph) *graph.Graph {
	if !s.reads(g) {
		return g
	}
	changed := *g
	changed.Values = slices.Clone(g.Values)
	for i := range changed.Values {
		if v := &changed.Values[i]; v.Role == graph.Weight && s.changed[v.Weight.Extent] {
			v.Role = graph.State
		}
	}
	return &changed
}

// reads reports whether a graph has a buffer that a pass has changed as a weight of the checkpoint.
func (s *Session) reads(g *graph.Graph) bool {
	return len(s.changed) > 0 && slices.ContainsFunc(g.Values, func(v graph.Value) bool {
		return v.Role == graph.Weight && s.changed[v.Weight.Extent]
	})
}

// tell notes the buffers that a program changes. What was made of graphs that only read one of them is made again.
func (s *Session) tell(p *program) {
	p.told = true
	before := len(s.changed)
	for _, u := range p.graph.Updates {
		if s.changed == nil {
			s.changed = make(map[storage.Extent]bool)
		}
		s.changed[p.graph.Values[u.State].Weight.Extent] = true
	}
	if len(s.changed) == before {
		return
	}
	var stale []*graph.Graph
	for g, other := range s.programs.All() {
		if s.reads(other.source) {
			stale = append(stale, g)
		}
	}
	for _, g := range stale {
		s.programs.Delete(g)
	}
	s.batches.Clear()
}

// plan returns a plan for a number of instances. Where that does not fit into what the device admitted before, it may
// admit more now.
func (s *Session) plan(ctx context.Context, p *program, instances int) (*plan.Plan, error) {
	pl, err := s.planWithin(ctx, p, instances, s.limits.memory)
	if err != nil && s.unlearn(err) {
		return s.planWithin(ctx, p, instances, s.limits.memory)
	}
	return pl, err
}

// unlearn goes back to the limits that were given where an error says that those learnt are too small.
func (s *Session) unlearn(err error) bool {
	var capacity *plan.CapacityError
	if s.limits == s.given || !errors.As(err, &capacity) {
		return false
	}
	s.limits = s.given
	s.forget()
	return true
}

// planWithin plans with a budget, 0 for none. Weights that stay do so where the mix of passes has them, or the plan
// that ran last, if the budget allows it.
func (s *Session) planWithin(ctx context.Context, p *program, instances int, budgetBytes int64) (*plan.Plan, error) {
	if pl, ok := p.plans[instances]; ok && (budgetBytes == 0 || pl.PeakBytes() <= budgetBytes) {
		return pl, nil
	}
	pl, err := s.newPlan(ctx, p, instances, budgetBytes)
	if err != nil {
		return nil, err
	}
	p.plans[instances] = pl
	return pl, nil
}

// newPlan plans, and keeps nothing.
func (s *Session) newPlan(ctx context.Context, p *program, instances int, budgetBytes int64) (*plan.Plan, error) {
	like, err := s.anchor(ctx, budgetBytes)
	if err != nil {
		return nil, err
	}
	if like == nil {
		if pl, err := s.likeApart(ctx, p, instances, budgetBytes); pl != nil || err != nil {
			return pl, err
		}
	}
	pl, err := s.newPlanLike(ctx, p, instances, budgetBytes, like)
	if err == nil && like == nil && len(pl.Experts) > 0 {
		s.lends = pl
	}
	return pl, err
}

// newPlanLike is newPlan where another plan says which weights stay, if it is not nil.
func (s *Session) newPlanLike(
	ctx context.Context, p *program, instances int, budgetBytes int64, like *plan.Plan,
) (*plan.Plan, error) {
	return s.search(ctx, p, budgetBytes, search.Options{Instances: instances, Like: like})
}

// newPlanWithin is newPlanLike where nothing stays that does not before the session's plans changed.
func (s *Session) newPlanWithin(ctx context.Context, p *program, budgetBytes int64) (*plan.Plan, error) {
	return s.search(ctx, p, budgetBytes, search.Options{Instances: 1, Within: s.within})
}

// search finds a plan of so many instances, like another one or within one.
func (s *Session) search(ctx context.Context, p *program, budgetBytes int64, how search.Options) (*plan.Plan, error) {
	o := s.planOptions()
	o.Peers, o.Stop = s.peers(budgetBytes), ctx.Err
	o.MemoryBytes, o.Instances, o.Like, o.Within, o.HostOps = budgetBytes, how.Instances, how.Like, how.Within, p.hostOps
	if s.pooled && p.hostOps == nil {
		o.HostLower = nil
	}
	share, past := 0.0, o
	if o.Rates.CachedBytes > 0 || o.HostRates.CachedBytes > 0 {
		share = cachedShare(p.lowered.Graph)
		o.Rates, o.HostRates = o.Rates.Cached(share), o.HostRates.Cached(share)
	}
	pl, err := search.Plan(p.lowered, o)
	if err != nil || share == 0 {
		return pl, err
	}
	return search.Past(pl, p.lowered, past, o.Rates), nil
}

// peers are the devices behind the first, with budgets that have shrunk as the first one's has.
func (s *Session) peers(budgetBytes int64) []search.Peer {
	list := slices.Clone(s.behind)
	for i := range list {
		if s.given.memory > 0 && budgetBytes > 0 && budgetBytes != s.given.memory {
			list[i].MemoryBytes = int64(float64(list[i].MemoryBytes) * float64(budgetBytes) / float64(s.given.memory))
		}
	}
	return list
}

// cachedShare returns how much of the weights of a graph the host holds in memory, as far as it tells.
func cachedShare(g *graph.Graph) float64 {
	var cached, total int64
	for i := range g.Values {
		v := &g.Values[i]
		if v.Role != graph.Weight {
			continue
		}
		e := v.Weight.Extent
		total += e.Bytes
		if src, ok := e.Source.(storage.CachedSource); ok {
			if n, ok := src.CachedBytes(e.Offset, e.Bytes); ok {
				cached += n
			}
		}
	}
	if total == 0 {
		return 0
	}
	return float64(cached) / float64(total)
}

func (s *Session) planOptions() search.Options {
	read := s.read // of disks that nobody measured before
	if read == nil {
		read = s.meter.Rates()
	}
	return search.Options{
		Mode: s.mode, Target: s.machine.Device().Target, HostBytes: s.opts.HostMemory, SwapBytes: s.opts.Swap,
		CachesAway: s.opts.CachesAway, CacheBlocks: s.cacheBlocks,
		MaxGroup: s.opts.MaxGroup, Capacity: s.limits.capacity, Slots: s.limits.slots, Once: s.opts.Once,
		Ops: s.opts.Ops, Rates: s.machine.Device().Rates.WithDisks(read), HostRates: s.opts.HostRates.WithDisks(read),
		Routing: s.opts.Routing,
		Lower:   s.machine.Device().Lower, HostLower: s.machine.Device().HostLower,
	}
}

// withDumps returns the graph with the outputs of modules among its outputs.
func withDumps(g *graph.Graph, paths []string) (*graph.Graph, error) {
	if len(paths) == 0 {
		return g, nil
	}
	dumped := *g
	dumped.Values, dumped.Ops, dumped.Outputs = slices.Clip(g.Values), slices.Clip(g.Ops), slices.Clip(g.Outputs)
	for _, path := range paths {
		o, ok := g.Modules[path]
		if !ok {
			return nil, &OutputError{dumpPrefix + path, fmt.Sprintf("no module %q gives a tensor", path)}
		}
		n, err := o.Layout.NumElements()
		if held, _ := g.Values[o.Value].Shape.NumElements(); err != nil || n > held {
			// A view of some elements many times: what a plan counts is the memory of a copy.
			out, err := dumped.Emit(graph.Standard(), graph.Op{
				Kind: "copy", Path: path, In: []graph.Operand{o}, Guard: guardOf(g, o.Value),
			})
			if err != nil {
				return nil, fmt.Errorf("dump: %s: %w", path, err)
			}
			o = dumped.Whole(out[0])
		}
		dumped.Outputs = append(dumped.Outputs, graph.Output{Name: dumpPrefix + path, Operand: o})
	}
	return &dumped, nil
}

// dumpPrefix begins the names of outputs that are those of modules.
const dumpPrefix = "dump:"

// guardOf returns the guard of the op that computes a value.
func guardOf(g *graph.Graph, id graph.ValueID) []graph.Guard {
	for _, op := range g.Ops {
		if slices.Contains(op.Out, id) {
			return op.Guard
		}
	}
	return nil
}

// Plan returns what a pass for inputs of the given shapes would do, and in its forecast what it is expected to take.
// Nothing is read or allocated for it.
func (s *Session) Plan(ctx context.Context, shapes map[string]tensor.Shape) (*plan.Plan, error) {
	if err := s.wait(ctx, "plan"); err != nil {
		return nil, err
	}
	defer s.release()
	g, err := s.model.GraphOf(ctx, models.Call{Inputs: shapes, After: s.after})
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	p, err := s.program(ctx, g)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	pl, err := s.plan(ctx, p, 1)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return pl, nil
}
