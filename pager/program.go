package pager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/pager/fetch"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A program is a plan made ready to run: every op with the regions of its operands.
type program struct {
	plan   *plan.Plan
	consts device.Memory
	ops    []prepared
	// fetcher reads ahead for it.
	fetcher fetch.Fetcher
	// updates is where states pass through on their way back.
	updates [][]byte
	// fixed finds the parts of weights that stay by value.
	fixed map[graph.ValueID][]plan.Part
	// packed finds those in forms of the device's own.
	packed map[graph.ValueID][]*plan.Packed
	// kept are the stretches of ops that the stream may keep, by their first op; nil where it keeps none.
	kept map[int]*stretch
	// skipped says which results were not made, by instance and value; nil where no op is guarded.
	skipped []bool
	// lendable are inputs and outputs that ops may use where callers have them, loans those of the pass that runs, by value
	// and instance, and uses where ops have them; nil where there are none.
	lendable []lendable
	loans    []loan
	uses     [][]use
	// arenas are those that the regions point into: with others the program is stale.
	arenas arenas
}

// arenas is the memory that programs share.
type arenas struct {
	fixed, ring, activations, scratch device.Memory
	staging                           device.HostMemory
	copies                            *copies
	sources, cacheChanges             int
}

// A prepared op is a launch with its regions filled in, and how far the regions of one instance are from the next's.
type prepared struct {
	launch  device.Launch
	in, out []int64
	// gather is set for embeddings of which rows are read.
	gather *gather
	// lender is set for ops to which experts are lent.
	lender *lender
	// moved is set for ops whose caches wait away.
	moved *movedOp
	// instance is the one that the regions are those of now.
	instance int
}

// maxPrograms bounds the plans kept ready, one for each set of input shapes.
const maxPrograms = 32

// use makes a plan the one that runs. Weights that stay are brought unless they are there in the same places, and buffers
// are what the last pass made of them, wherever it ran.
func (g *Pager) use(ctx context.Context, p *plan.Plan) error {
	g.opts.States.begun++
	// Another pager may have taken a cache that the plan has here.
	if g.current == nil || g.current.plan != p || g.current.arenas.cacheChanges != g.cacheChanges {
		if err := g.change(ctx, p); err != nil {
			return err
		}
	}
	return g.refresh(ctx)
}

// change goes from one plan to another. Where the device has no room although plans before are what takes it, everything
// is given back first.
func (g *Pager) change(ctx context.Context, p *plan.Plan) error {
	g.putAway()
	before := g.Held().Total() > 0
	err := g.ready(ctx, p)
	var full *device.OutOfMemoryError
	if !errors.As(err, &full) {
		return err
	}
	if released := g.release(ctx); released != nil {
		return errors.Join(err, released)
	}
	if !before {
		return err
	}
	if err = g.ready(ctx, p); errors.As(err, &full) {
		err = errors.Join(err, g.release(ctx))
	}
	return err
}

// GiveBack frees all memory that the pager holds, of the device and of the host, between passes. The next pass takes it
// again and brings the weights that stay; what a program changes is kept aside on Go's heap meanwhile. Caches stay where they
// are: [Pager.DropCaches] frees them.
func (g *Pager) GiveBack(ctx context.Context) error {
	if g.closed {
		return errClosed
	}
	g.putAway()
	return g.release(ctx)
}

// Trim frees all device memory that the pager holds but the weights that stay and caches, between passes. The next pass takes it
// again and brings none of these.
func (g *Pager) Trim() error {
	if g.closed {
		return errClosed
	}
	g.putAway()
	return errors.Join(g.drop(), free(&g.ring), free(&g.activations), free(&g.scratch))
}

// putAway ends what the plan that runs reads ahead: the ring is no longer its own.
func (g *Pager) putAway() {
	if g.current != nil {
		g.current.fetcher.Reset()
		g.current = nil
	}
}

// Bound changes [Options.MemoryBytes] for plans from now on.
func (g *Pager) Bound(memoryBytes int64) { g.opts.MemoryBytes = memoryBytes }

// release frees all memory that the pager holds but caches. States are kept aside.
func (g *Pager) release(ctx context.Context) error {
	if err := g.save(ctx); err != nil {
		return err
	}
	return errors.Join(g.drop(), g.empty())
}

// ready makes the arenas large enough for a plan and prepares its ops.
func (g *Pager) ready(ctx context.Context, p *plan.Plan) error {
	if dev, ok := g.dev.(device.Preparer); ok {
		if _, known := g.programs.Get(p); !known {
			dev.Prepare(p.Lowered)
		}
	}
	if g.held == nil || !plan.SameFixed(p, g.held) {
		if err := g.bring(ctx, p); err != nil {
			return err
		}
	}
	if err := g.takeCaches(ctx, p); err != nil {
		return err
	}
	for _, a := range []struct {
		arena *device.Memory
		bytes int64
	}{{&g.ring, p.RingBytes}, {&g.activations, p.ActivationBytes}, {&g.scratch, p.WorkBytes}} {
		if err := g.grow(a.arena, a.bytes); err != nil {
			return err
		}
	}
	if err := g.growHost(p); err != nil {
		return err
	}
	if n := p.Instances; len(g.gone) < n {
		g.gone = make([]bool, n)
	}
	ready, err := g.program(ctx, p)
	if err != nil {
		return err
	}
	if g.first != nil {
		if err := g.layFirst(p); err != nil {
			return err
		}
	}
	g.current = ready
	g.stats.PeakBytes = max(g.stats.PeakBytes, g.Held().Total())
	return nil
}

// yield gives back what plans before took and this one does not need, where both together would be more than the budget.
func (g *Pager) yield(p *plan.Plan) error {
	h := g.Held()
	larger := h.FixedBytes + p.ConstBytes + max(h.CacheBytes, p.CacheBytes) + max(h.RingBytes, p.RingBytes) + max(h.ActivationBytes, p.ActivationBytes) +
		max(h.WorkBytes, p.WorkBytes)
	if g.opts.MemoryBytes == 0 || larger <= g.opts.MemoryBytes {
		return nil
	}
	return errors.Join(g.drop(), free(&g.ring), free(&g.activations), free(&g.scratch))
}

// grow makes an arena as large as a plan needs it. What it held is not kept.
func (g *Pager) grow(arena *device.Memory, bytes int64) error {
	if *arena != nil && (*arena).Bytes() >= bytes || bytes == 0 {
		return nil
	}
	if err := free(arena); err != nil {
		return err
	}
	m, err := g.dev.Alloc(bytes)
	if err != nil {
		return err
	}
	*arena = m
	return nil
}

// bring drops what is on the device and brings the weights that stay, but for those that are there and can be moved.
// What passes made of buffers is kept aside.
func (g *Pager) bring(ctx context.Context, p *plan.Plan) error {
	if err := g.save(ctx); err != nil {
		return err
	}
	held := g.held
	g.held = nil
	if moved, err := g.move(ctx, held, p); err != nil || moved {
		return err
	}
	if err := errors.Join(g.drop(), free(&g.fixed)); err != nil {
		return err
	}
	if len(p.Fixed.Packings) > 0 { // what takes memory while weights are packed is instead of these
		if err := errors.Join(free(&g.ring), free(&g.activations), free(&g.scratch)); err != nil {
			return err
		}
	}
	g.dropCopies() // with other weights on the device there are others in host memory, too
	dropHost(&g.staging)
	if p.Fixed.Bytes > 0 {
		if err := g.bringWeights(ctx, p); err != nil {
			return errors.Join(err, free(&g.fixed))
		}
	}
	g.held = p
	return nil
}

// bringWeights fills a new arena with the weights that stay.
func (g *Pager) bringWeights(ctx context.Context, p *plan.Plan) (err error) {
	if g.fixed, err = g.allocFixed(p); err != nil {
		return err
	}
	begin := time.Now()
	if g.early {
		if g.first = newFirst(p, begin); g.first != nil {
			return nil
		}
	}
	read, err := g.bringFixed(ctx, p)
	if err != nil {
		return located(readError(p, err), "", "load")
	}
	g.stats.ReadBytes += read
	if err := g.stream.Sync(ctx); err != nil {
		return located(err, "", "load")
	}
	g.brought(p.Fixed.WeightBytes, begin)
	return nil
}

// brought notes that the weights that stay are there, for which so many bytes were brought.
func (g *Pager) brought(bytes int64, begin time.Time) {
	g.stats.FixedBytes += bytes
	if g.opts.Observe != nil {
		end := time.Now()
		g.opts.Observe(Event{
			Kind: WeightsLoaded, Group: -1, LoadedBytes: bytes, Took: end.Sub(begin), Begin: begin, End: end,
		})
	}
}

// readError names the module of the first weight that could not be read.
func readError(p *plan.Plan, err error) error {
	var failed *storage.ReadError
	if !errors.As(err, &failed) {
		return err
	}
	parts := slices.Clip(p.Fixed.Parts)
	for i := range p.Fixed.Packed {
		c := &p.Fixed.Packed[i]
		parts = append(parts, plan.Part{Value: c.Operand.Value, Low: c.Low, High: c.High})
	}
	for _, part := range parts {
		w := p.Lowered.Graph.Values[part.Value].Weight
		low, high := w.Extent.Offset+part.Low, w.Extent.Offset+part.High
		if w.Extent.Source == failed.Extent.Source && low < failed.Extent.Offset+failed.Extent.Bytes &&
			failed.Extent.Offset < high {
			return &GroupError{module(w.Name), "load", err}
		}
	}
	return err
}

// module returns the path of the module that owns a weight.
func module(weight string) string {
	dot := strings.LastIndexByte(weight, '.')
	return weight[:max(dot, 0)]
}

// drop forgets every program.
func (g *Pager) drop() error {
	var errs []error
	for _, p := range g.programs.All() {
		errs = append(errs, p.close())
	}
	g.programs.Clear()
	g.current = nil
	return errors.Join(errs...)
}

func (g *Pager) fixedRegion(p plan.Part) device.Region {
	return device.Region{Memory: g.fixed, Offset: p.Offset, Bytes: p.High - p.Low}
}

// program returns a plan made ready.
func (g *Pager) program(ctx context.Context, p *plan.Plan) (*program, error) {
	arenas := arenas{g.fixed, g.ring, g.activations, g.scratch, g.staging, g.copies, len(g.registered), g.cacheChanges}
	if ready, ok := g.programs.Get(p); ok {
		if ready.arenas == arenas {
			return ready, nil
		}
		g.programs.Delete(p)
		if err := ready.close(); err != nil {
			return nil, err
		}
	}
	if old, gone := g.programs.MakeRoom(); gone {
		if err := old.close(); err != nil {
			return nil, err
		}
	}
	ready := &program{plan: p, arenas: arenas}
	if err := g.constants(ctx, ready); err != nil {
		return nil, err
	}
	var err error
	if ready.fetcher, err = g.newFetcher(p); err != nil {
		return nil, errors.Join(err, ready.close())
	}
	g.prepare(ready)
	if err := g.moved(ready); err != nil {
		return nil, errors.Join(err, ready.close())
	}
	g.lendables(ready)
	if g.keeper != nil {
		ready.kept = ready.stretches()
	}
	g.programs.Put(p, ready)
	return ready, nil
}

// close frees what a program holds by itself.
func (p *program) close() error {
	errs := p.drop()
	if p.fetcher != nil {
		errs = append(errs, p.fetcher.Close())
	}
	return errors.Join(append(errs, free(&p.consts))...)
}

// constants copies the graph's constants to the device.
func (g *Pager) constants(ctx context.Context, p *program) (err error) {
	if p.plan.ConstBytes == 0 {
		return nil
	}
	if p.consts, err = g.dev.Alloc(p.plan.ConstBytes); err != nil {
		return err
	}
	for _, part := range p.plan.Consts {
		region := device.Region{Memory: p.consts, Offset: part.Offset, Bytes: part.High}
		if err = g.stream.CopyIn(region, p.plan.Lowered.Graph.Values[part.Value].Const); err != nil {
			break
		}
	}
	if err == nil {
		err = g.stream.Sync(ctx)
	}
	if err != nil {
		g.quiesce()
		return errors.Join(err, free(&p.consts))
	}
	return nil
}

// prepare fills in the regions of every op.
func (g *Pager) prepare(p *program) {
	gr := p.plan.Lowered.Graph
	p.fixed = make(map[graph.ValueID][]plan.Part, len(p.plan.Fixed.Parts))
	for _, part := range p.plan.Fixed.Parts {
		p.fixed[part.Value] = append(p.fixed[part.Value], part)
	}
	p.packed = make(map[graph.ValueID][]*plan.Packed, len(p.plan.Fixed.Packed))
	for i := range p.plan.Fixed.Packed {
		c := &p.plan.Fixed.Packed[i]
		p.packed[c.Operand.Value] = append(p.packed[c.Operand.Value], c)
	}
	r := &regions{
		pager: g, program: p, consts: make(map[graph.ValueID]plan.Part, len(p.plan.Consts)),
		caches: make(map[graph.ValueID]device.Memory, len(p.plan.Caches)),
	}
	for _, part := range p.plan.Consts {
		r.consts[part.Value] = part
	}
	for _, c := range p.plan.Caches {
		if c.Away { // where those lie is said below
			r.caches[c.Value] = g.away.slots
			continue
		}
		r.caches[c.Value] = g.opts.Caches.of[c.Name].memory
	}
	p.ops = make([]prepared, len(gr.Ops))
	for i, x := range gathers(p.plan) {
		p.ops[i].gather = x
	}
	for k := range p.plan.Groups {
		group := &p.plan.Groups[k]
		r.group, r.paged = group, make(map[graph.ValueID]plan.Part, len(group.Parts))
		for _, part := range group.Parts {
			r.paged[part.Value] = part
		}
		for i := group.First; i < group.End; i++ {
			step := p.plan.Lowered.Steps[i]
			ready := &p.ops[i]
			ready.launch = device.Launch{
				Step: step, Op: gr.Ops[i], Work: device.Region{Memory: g.scratch, Bytes: step.WorkBytes},
			}
			for k, o := range gr.Ops[i].In {
				a, stride := r.argument(o, i, k)
				ready.launch.In, ready.in = append(ready.launch.In, a), append(ready.in, stride)
			}
			for _, id := range gr.Ops[i].Out {
				a, stride := r.argument(gr.Whole(id), i, -1)
				ready.launch.Out, ready.out = append(ready.launch.Out, a), append(ready.out, stride)
			}
		}
	}
	g.lenders(p)
	for _, u := range gr.Updates {
		p.updates = append(p.updates, make([]byte, gr.Values[u.State].Bytes()))
	}
	if slices.ContainsFunc(gr.Ops, func(op graph.Op) bool { return len(op.Guard) > 0 }) {
		p.skipped = make([]bool, len(gr.Values)*p.plan.Instances)
	}
}

// regions say where the values of a program lie while a group is at hand, whose paged parts lie in its slot.
type regions struct {
	pager   *Pager
	program *program
	consts  map[graph.ValueID]plan.Part
	caches  map[graph.ValueID]device.Memory
	group   *plan.Group
	paged   map[graph.ValueID]plan.Part
}

// argument returns an operand of an op as the device takes it, and how far its instances are apart. An op's operand has
// a number, in; what it makes has none, −1.
func (r *regions) argument(o graph.Operand, op, in int) (device.Argument, int64) {
	g, p, gr := r.pager, r.program, r.program.plan.Lowered.Graph
	if o.Value == graph.NoValue {
		return device.Argument{Operand: graph.Absent}, 0
	}
	a, step := device.Argument{Operand: o, Spec: gr.Spec(o)}, &p.plan.Lowered.Steps[op]
	if in >= 0 && gr.Ops[op].Lent(in) {
		return a, 0
	}
	low := int64(0) // where the region begins within the value
	if part, ok := r.paged[o.Value]; ok {
		low = part.Low
		a.Region = device.Region{Memory: g.ring, Offset: r.group.SlotOffset + part.Offset, Bytes: part.High - part.Low}
	} else if c, ok := p.packedOperand(o, step, in); ok {
		a.Region, a.Packed = device.Region{Memory: g.fixed, Offset: c.Offset, Bytes: c.Pack.Bytes}, true
		return a, 0
	} else if part, ok := p.fixedPart(o, gr); ok {
		low = part.Low
		a.Region = g.fixedRegion(part)
	} else if memory, ok := r.caches[o.Value]; ok {
		a.Region = device.Region{Memory: memory, Bytes: min(gr.Values[o.Value].Bytes(), memory.Bytes())}
	} else if part, ok := r.consts[o.Value]; ok {
		a.Region = device.Region{Memory: p.consts, Offset: part.Offset, Bytes: part.High}
	} else {
		place := p.plan.Places[o.Value]
		a.Region = device.Region{Memory: g.activations, Offset: place.Offset, Bytes: place.Bytes}
		return a, place.Stride
	}
	a.Operand.Layout.Offset -= int(low) / gr.Values[o.Value].DType.Size()
	return a, 0
}

// fixedPart returns the part of a value that stays and that has an operand's elements.
func (p *program) fixedPart(o graph.Operand, graph *graph.Graph) (plan.Part, bool) {
	parts := p.fixed[o.Value]
	if len(parts) == 1 {
		return parts[0], true
	}
	first, end, err := o.Layout.Span()
	if err != nil {
		panic("BUG: operand of " + graph.Values[o.Value].Name + ": " + err.Error())
	}
	size := int64(graph.Values[o.Value].DType.Size())
	for _, part := range parts {
		if part.Low <= first*size && end*size <= part.High {
			return part, true
		}
	}
	return plan.Part{}, false
}

// turn makes the regions of an op those of an instance.
func (p *prepared) turn(instance int) {
	if p.instance == instance {
		return
	}
	by := int64(instance - p.instance)
	for i, stride := range p.in {
		p.launch.In[i].Region.Offset += by * stride
	}
	for i, stride := range p.out {
		p.launch.Out[i].Region.Offset += by * stride
	}
	p.instance = instance
}

// place returns the region of an input or result: in the arena, or where the caller has it.
func (g *Pager) place(id graph.ValueID, instance int) device.Region {
	if l := g.loan(id, instance); l != nil && l.on {
		return device.Region{Memory: l.mem, Bytes: l.mem.Bytes()}
	}
	place := &g.current.plan.Places[id]
	return device.Region{
		Memory: g.activations, Offset: place.Offset + int64(instance)*place.Stride, Bytes: place.Bytes,
	}
}

// region returns where a value is that is a weight that stays, an input or a result.
func (g *Pager) region(id graph.ValueID, instance int) device.Region {
	if parts := g.current.fixed[id]; len(parts) > 0 { // what is not an operand stays as a whole
		return g.fixedRegion(parts[0])
	}
	for _, part := range g.current.plan.Consts {
		if part.Value == id {
			return device.Region{Memory: g.current.consts, Offset: part.Offset, Bytes: part.High}
		}
	}
	return g.place(id, instance)
}
