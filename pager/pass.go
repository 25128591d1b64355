package pager

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/panicked"
	"github.com/optimem/optimem/plan"
)

// Pass runs every group of a plan once, for all instances. Where it fails, or ctx is done, it returns within the op that
// runs, and the pager can be used again.
func (g *Pager) Pass(ctx context.Context, p *plan.Plan, io IO) error {
	g.early = !g.opts.ObserveOps // what ops wait for is not to be taken for what they take
	err := g.Begin(ctx, p)
	if g.early = false; err != nil {
		return err
	}
	g.beginTransfers(p)
	defer g.endTransfers()
	g.borrows = len(g.current.lendable) > 0
	defer g.endBorrowing()
	if err := g.Run(ctx, 0, len(p.Groups), io); err != nil {
		return err
	}
	if err := g.Finish(ctx, io); err != nil {
		return err
	}
	g.Commit()
	return nil
}

// Begin starts a pass of which [Pager.Run] runs the groups, in order and all of them, and which [Pager.Finish] and
// [Pager.Commit] end. Where one of these fails the pass is over.
func (g *Pager) Begin(ctx context.Context, p *plan.Plan) (err error) {
	if g.closed {
		return errClosed
	}
	if err := g.open(); err != nil {
		return err
	}
	g.direct = p.Target.Direct
	defer func() {
		if v := recover(); v != nil {
			err = g.Abandon(located(panicked.By(v), "", "load"))
		}
	}()
	if err := g.use(ctx, p); err != nil {
		return g.Abandon(err)
	}
	g.fetcher().Begin()
	g.given = 0
	clear(g.gone)
	return nil
}

// Run runs the groups [first, end) of the pass that was begun, and returns once their outputs are in the caller's memory.
func (g *Pager) Run(ctx context.Context, first, end int, io IO) (err error) {
	k := first
	if end > first {
		g.until = g.current.plan.Groups[end-1].End
	}
	defer func() {
		if v := recover(); v != nil {
			err = g.Abandon(located(panicked.By(v), g.current.plan.Groups[min(k, end-1)].Name(), "run"))
		}
	}()
	for ; k < end; k++ {
		if err := g.group(ctx, k, io); err != nil {
			return g.Abandon(located(err, g.current.plan.Groups[k].Name(), "run"))
		}
	}
	if err := g.stream.Sync(ctx); err != nil {
		return g.Abandon(located(err, g.current.plan.Groups[max(end-1, 0)].Name(), "run"))
	}
	g.handOut()
	if err := g.endFirst(); err != nil {
		return g.Abandon(located(err, "", "load"))
	}
	g.loads.Settle()
	g.tellLoads()
	return nil
}

// Finish reads what the states become by the pass, and changes none: until then a pass that fails, or is cancelled, has
// changed nothing.
func (g *Pager) Finish(ctx context.Context, io IO) error {
	if err := g.settleAway(); err != nil {
		return g.Abandon(located(err, "", "update"))
	}
	if err := g.readUpdates(ctx, io); err != nil {
		return g.Abandon(located(err, "", "update"))
	}
	return nil
}

// Commit makes the states what Finish read, and ends the pass. It does not fail: the next pass that needs them copies them to
// its device.
func (g *Pager) Commit() {
	g.commitUpdates()
	if g.stats.Passes++; g.stats.Passes%settlePasses == 0 {
		g.settleCaches()
	}
}

// Abandon brings the pager back to where a pass begins, and returns err. What still runs on the device is waited for.
func (g *Pager) Abandon(err error) error {
	g.quiesce()
	_ = g.settleAway() // what fails now follows from err, or is it
	g.spent = g.spent[:0]
	if g.current != nil {
		g.current.forgetComing()
		g.current.fetcher.Reset()
	}
	return g.dropFirst(err)
}

// quiesce waits for what the device still does after an error: memory that it works with must not be given back before. What
// fails then follows from that error.
func (g *Pager) quiesce() { _ = g.stream.Sync(context.Background()) }

// group runs the ops of one group for all instances.
func (g *Pager) group(ctx context.Context, k int, io IO) error {
	group := &g.current.plan.Groups[k]
	var stall time.Duration
	waits := time.Now()
	brings := g.brings(k)
	if brings {
		var err error
		if stall, err = g.arrive(ctx, k); err != nil {
			return located(err, group.Name(), "load")
		}
	}
	if group.Paged() {
		g.stats.Stall += stall
		g.stats.MovedBytes += group.SlotBytes
	}
	begin, swapped := time.Now(), g.stats.SwapStall
	g.lentStall = 0
	if err := g.instances(ctx, k, io); err != nil {
		return err
	}
	end := time.Now()
	swapped = g.stats.SwapStall - swapped
	compute := end.Sub(begin) - swapped - g.lentStall
	stall += g.lentStall
	g.stats.Stall += g.lentStall
	g.stats.Compute += compute
	if brings {
		g.fetcher().Done(k)
	}
	if g.opts.Observe != nil {
		g.opts.Observe(Event{
			Group: k, Path: group.Name(), LoadedBytes: group.SlotBytes, Stall: stall, Compute: compute,
			SwapStall: swapped,
			Begin:     waits, Arrived: begin, End: end,
		})
	}
	g.tellLoads()
	return nil
}

// arrive returns once the weights of a group may be read, with how long that was waited for.
func (g *Pager) arrive(ctx context.Context, k int) (time.Duration, error) {
	if g.opts.ObserveOps {
		return g.arriveObserved(ctx, k)
	}
	begin := time.Now()
	err := g.fetcher().Ready(ctx, k)
	return time.Since(begin), fetched(err)
}

// instances runs the ops of one group for every instance that is there.
func (g *Pager) instances(ctx context.Context, k int, io IO) error {
	shared, ok := io.(Shared)
	if !ok {
		for instance := range g.current.plan.Instances {
			if err := g.instance(ctx, k, instance, io); err != nil {
				return err
			}
		}
		return nil
	}
	for instance := range min(shared.Instances(), g.current.plan.Instances) {
		if g.gone[instance] {
			continue
		}
		var err error
		if shared.Wanted(instance) {
			if err = g.instance(ctx, k, instance, io); err == nil {
				continue
			}
			if err = located(err, g.current.plan.Groups[k].Name(), "run"); ctx.Err() != nil {
				return err
			}
		}
		g.gone[instance] = true
		if err := g.stream.Sync(ctx); err != nil {
			return err
		}
		g.handOut() // from now on its bytes are not touched
		if !shared.Left(instance, err) {
			return cmp.Or(err, errLeft)
		}
	}
	return nil
}

// errLeft ends a pass that every instance has left.
var errLeft = errors.New("nobody waits for the pass any more")

// instance runs the ops of one group for one instance.
func (g *Pager) instance(ctx context.Context, k, instance int, io IO) (err error) {
	group := &g.current.plan.Groups[k]
	op := -1 // the one that runs
	defer func() {
		if v := recover(); v != nil && op >= 0 {
			err = opError(&g.current.ops[op].launch.Op, panicked.By(v))
		} else if v != nil {
			err = panicked.By(v)
		}
	}()
	g.branches.forget()
	for _, id := range group.Inputs {
		if err := g.input(instance, id, io); err != nil {
			return located(err, cmp.Or(g.current.plan.Lowered.Graph.Values[id].Name, group.Name()), "input")
		}
	}
	g.borrowOutputs(k, instance, io)
	for _, s := range group.SwapIn {
		if err := g.swapIn(ctx, s, instance); err != nil {
			return located(err, group.Name(), "swap in")
		}
	}
	if g.opts.ObserveOps { // what is copied in is no part of the first op
		if err := g.stream.Sync(ctx); err != nil {
			return err
		}
	}
	for i := max(group.First, g.given); i < group.End; i++ {
		g.tick()
		op = i
		if n, err := g.kept(ctx, i, instance); err != nil {
			return err
		} else if n > 0 {
			i += n - 1
			if i >= group.End {
				g.given = i + 1
			}
			continue
		}
		p := &g.current.ops[i]
		if runs, err := g.runs(ctx, &p.launch.Op, instance); err != nil {
			return err
		} else if !runs {
			continue
		}
		g.turn(i, p, instance)
		if g.opts.ObserveOps {
			begin := time.Now()
			took, err := g.runObserved(ctx, p, instance, io)
			if err != nil {
				return err
			}
			op = -1 // a panic of the observer is none of the op
			g.opts.Observe(Event{
				Kind: OpDone, Group: k, Op: i, Path: p.launch.Op.Path, OpKind: p.launch.Op.Kind, Instance: instance,
				Took:  took,
				Begin: begin, End: time.Now(),
			})
			continue
		}
		if err := g.runOp(ctx, p, instance, io); err != nil {
			return err
		}
	}
	op = -1
	for _, again := range group.Again {
		g.stats.RecomputedBytes += again.Bytes
	}
	for _, output := range group.Outputs {
		if err := g.output(instance, output, io); err != nil {
			return located(err, cmp.Or(g.current.plan.Lowered.Graph.Outputs[output].Name, group.Name()), "output")
		}
	}
	for _, s := range group.SwapOut {
		if err := g.swapOut(ctx, s, instance); err != nil {
			return located(err, group.Name(), "swap out")
		}
	}
	return nil
}

// runs reports whether an op's guard, if it has one, lets it run, and notes which results there will be.
func (g *Pager) runs(ctx context.Context, op *graph.Op, instance int) (bool, error) {
	if len(op.Guard) == 0 {
		return true, nil
	}
	runs, err := g.holds(ctx, op.Guard, instance)
	if err != nil {
		return false, opError(op, err)
	}
	for _, id := range op.Out {
		g.current.skipped[g.current.result(id, instance)] = !runs
	}
	return runs, nil
}

// runOp gives an op to the device, or brings the rows of an embedding.
func (g *Pager) runOp(ctx context.Context, p *prepared, instance int, io IO) error {
	if p.gather != nil {
		return g.gather(ctx, p, instance, io)
	}
	if p.moved != nil {
		return g.runMoved(ctx, p, io)
	}
	if p.lender != nil {
		defer p.lender.end()
	}
	if err := g.stream.Run(ctx, p.launch); err != nil {
		return opError(&p.launch.Op, err)
	}
	return nil
}

func opError(op *graph.Op, err error) error {
	return &OpError{Path: op.Path, Kind: string(op.Kind), Source: op.Source, Err: err}
}

// input copies an input to the device, unless ops can use it where it is.
func (g *Pager) input(instance int, id graph.ValueID, io IO) error {
	from := io.Input(instance, id)
	if g.borrow(id, instance, from) {
		return nil
	}
	if mem := g.through(len(from)); mem != nil {
		copy(mem, from)
		from = mem
	}
	return g.stream.CopyIn(g.place(id, instance), from)
}

// output copies an output to where the caller wants it.
func (g *Pager) output(instance, output int, io IO) error {
	o := g.current.plan.Lowered.Graph.Outputs[output].Operand
	made := g.current.skipped == nil || !g.current.skipped[g.current.result(o.Value, instance)]
	dst, asked, there := g.lent(o.Value, output, instance)
	if !asked {
		dst = io.Output(instance, output, made)
	}
	if there || len(dst) == 0 {
		return nil
	}
	region := g.region(o.Value, instance)
	first, end, err := o.Layout.Span()
	if err != nil {
		return err
	}
	size := int64(g.current.plan.Lowered.Graph.Values[o.Value].DType.Size())
	region.Offset, region.Bytes = region.Offset+first*size, (end-first)*size
	if mem := g.through(len(dst)); mem != nil {
		g.transfers.due = append(g.transfers.due, dueOutput{dst, mem})
		dst = mem
	}
	return g.stream.CopyOut(dst, region)
}

// branches is what an instance knows of its conditionals.
type branches struct {
	// decided holds the predicates that were read; there are few.
	decided []decision
	// read is where one is read to.
	read [1]byte
}

// result numbers the results of all instances.
func (p *program) result(id graph.ValueID, instance int) int {
	return instance*len(p.plan.Lowered.Graph.Values) + int(id)
}

type decision struct {
	value  graph.ValueID
	offset int
	is     bool
}

// forget drops what was decided: predicates are read again by the next group and the next instance, since it costs
// little.
func (b *branches) forget() { b.decided = b.decided[:0] }

func (b *branches) decide(at graph.Operand) (is, known bool) {
	for _, d := range b.decided {
		if d.value == at.Value && d.offset == at.Layout.Offset {
			return d.is, true
		}
	}
	return false, false
}

// holds reports whether an op under guards runs. A predicate is waited for and read once for each group.
func (g *Pager) holds(ctx context.Context, guards []graph.Guard, instance int) (bool, error) {
	for _, c := range guards {
		is, known := g.branches.decide(c.Predicate)
		if !known {
			if err := g.stream.Sync(ctx); err != nil {
				return false, err
			}
			region := g.region(c.Predicate.Value, instance)
			region.Offset, region.Bytes = region.Offset+int64(c.Predicate.Layout.Offset), 1
			if err := g.stream.CopyOut(g.branches.read[:], region); err != nil {
				return false, err
			}
			if err := g.stream.Sync(ctx); err != nil {
				return false, err
			}
			is = g.branches.read[0] != 0
			g.branches.decided = append(g.branches.decided, decision{c.Predicate.Value, c.Predicate.Layout.Offset, is})
		}
		if is != c.Want {
			return false, nil
		}
	}
	return true, nil
}
