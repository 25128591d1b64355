package pager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/panicked"
	"github.com/optimem/optimem/pager/fetch"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/slots"
	"github.com/optimem/optimem/storage"
)

// expertSlots is what lies in the slots of experts, which are in the arena of what stays: with another arena they are
// empty.
type expertSlots struct {
	arena device.Memory
	sets  []*slots.Set
}

// slotsOf returns the sets of slots of the plan that runs.
func (g *Pager) slotsOf(p *plan.Plan) []*slots.Set {
	if g.slots == nil || g.slots.arena != g.fixed {
		g.slots = &expertSlots{arena: g.fixed}
		for _, s := range p.Fixed.Slots {
			g.slots.sets = append(g.slots.sets, slots.NewSet(s.Experts, s.Slots))
		}
	}
	return g.slots.sets
}

// Routing returns what passes have shown of the routing of layers, by module. It is called between passes, and what it
// returns is changed by those that follow.
func (g *Pager) Routing() map[string]*slots.Curve { return g.routing }

// note notes where rows of a layer went.
func (g *Pager) note(x *plan.Experts, rows int, experts []int32) {
	if g.routing == nil {
		g.routing = make(map[string]*slots.Curve)
	}
	curve := g.routing[x.Path]
	if curve == nil {
		curve = slots.NewCurve(len(x.Each))
		g.routing[x.Path] = curve
	}
	curve.Note(experts)
	if g.opts.Routed != nil {
		g.opts.Routed(x.Path, rows, experts)
	}
}

// A lender lends experts to an op: those first that are in their slots, while the others are read, each with all its
// reads at once. It does what [slots.Set] says.
type lender struct {
	g    *Pager
	plan *plan.Plan
	x    *plan.Experts
	op   *graph.Op
	// steps are those of this pass, of which at were lent and the reads of those before begun were begun; the last that
	// was lent is computed once the next is asked for.
	steps     []slots.Step
	ids       []int32
	at, begun int
	// asked says of each step whether its read was begun, there whether its expert is in its slot; ended tells of reads
	// that have ended.
	asked, there []bool
	ended        chan lentRead
	underWay     int
	// disks are those that experts lie on, by expert, and reading how many are read of each.
	disks    []int
	loaded   []int
	reading  context.Context
	cancel   context.CancelFunc
	operands [graph.LentOperands]device.Argument
	wanted   bool
}

// A lentRead is how reading the expert of a step has ended.
type lentRead struct {
	step        int
	storedBytes int64
	err         error
}

// lenders makes the ops of a plan ready to which experts are lent.
func (g *Pager) lenders(p *program) {
	for i := range p.plan.Experts {
		x := &p.plan.Experts[i]
		op := &p.plan.Lowered.Graph.Ops[x.Op]
		l := &lender{g: g, plan: p.plan, x: x, op: op}
		l.place()
		p.ops[x.Op].lender = l
		p.ops[x.Op].launch.Lender = p.ops[x.Op].lender
	}
}

// place finds on which disk each expert lies: from each as many are read at once.
func (l *lender) place() {
	var known []storage.Disk
	for i := range l.x.Each {
		disk := storage.Disk(0)
		if list := l.x.Each[i].Spans; len(list) > 0 {
			disk = storage.DiskOf(list[0].Extent.Source)
		}
		k := slices.Index(known, disk)
		if k < 0 {
			k = len(known)
			known = append(known, disk)
		}
		l.disks = append(l.disks, k)
	}
	l.loaded = make([]int, len(known))
	l.ended = make(chan lentRead, l.g.opts.Readers*max(len(known), 1))
}

// Want implements [device.Lender].
func (l *lender) Want(ctx context.Context, experts []int32, rows int) error {
	l.g.note(l.x, rows, experts)
	l.ids = l.ids[:0]
	for _, e := range experts {
		if e < 0 || int(e) >= len(l.x.Each) {
			return &graph.IndexError{Index: int64(e), Size: int64(len(l.x.Each)), Operand: 1}
		}
		l.ids = append(l.ids, e+int32(l.x.First))
	}
	l.steps = append(l.steps[:0], l.g.slotsOf(l.plan)[l.x.Set].Pass(l.x.First, l.ids)...)
	l.at, l.begun, l.wanted = 0, 0, true
	l.there, l.asked = l.there[:0], l.asked[:0]
	for _, step := range l.steps {
		l.there, l.asked = append(l.there, !step.Read), append(l.asked, !step.Read)
		if step.Read {
			l.g.stats.ExpertReads++
		} else {
			l.g.stats.ExpertHits++
		}
	}
	l.reading, l.cancel = context.WithCancel(ctx)
	return l.begin()
}

// Next implements [device.Lender].
func (l *lender) Next(ctx context.Context) (int, []device.Argument, error) {
	if err := l.begin(); err != nil {
		return 0, nil, err
	}
	if l.at == len(l.steps) {
		return -1, nil, nil
	}
	l.g.tick()
	for !l.there[l.at] {
		begin := time.Now()
		select {
		case r := <-l.ended:
			l.g.lentStall += time.Since(begin)
			if err := l.took(r); err != nil {
				return 0, nil, err
			}
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
		if err := l.begin(); err != nil {
			return 0, nil, err
		}
	}
	step := l.steps[l.at]
	l.at++
	e := int(step.Expert) - l.x.First
	gr := l.plan.Lowered.Graph
	slot := l.slot(step.Slot)
	for k := range l.operands {
		part := &l.x.Each[e].Parts[k]
		o := l.op.In[graph.ExpertsFirst+e*graph.ExpertOperands(l.op.Attrs)+k]
		o.Layout.Offset -= int(part.Low) / gr.Values[o.Value].DType.Size()
		l.operands[k] = device.Argument{
			Region:  device.Region{Memory: l.g.fixed, Offset: slot + part.Offset, Bytes: part.High - part.Low},
			Operand: o, Spec: gr.Spec(o),
		}
	}
	return e, l.operands[:], nil
}

// slot returns where a slot begins.
func (l *lender) slot(slot int32) int64 {
	set := &l.plan.Fixed.Slots[l.x.Set]
	return set.Offset + int64(slot)*set.SlotBytes
}

// begin begins the reads whose slots are free, in order on each disk. The steps before at are computed: the op asks for the
// next one.
func (l *lender) begin() error {
	for at := l.begun; at < len(l.steps) && l.underWay < cap(l.ended); at++ {
		if at == l.begun && l.asked[at] {
			l.begun++
		}
		if l.asked[at] {
			continue
		}
		step := l.steps[at]
		if int(step.After) >= l.at {
			return nil
		}
		disk := l.disks[int(step.Expert)-l.x.First]
		if l.loaded[disk] == l.g.opts.Readers {
			continue
		}
		if err := l.ask(at, disk); err != nil {
			return err
		}
	}
	return nil
}

// ask begins to read the expert of a step.
func (l *lender) ask(at, disk int) error {
	host, err := l.g.hostVisible()
	if err != nil {
		return err
	}
	step := l.steps[at]
	expert := &l.x.Each[int(step.Expert)-l.x.First]
	requests := make([]storage.Request, len(expert.Spans))
	var stored int64
	for i, s := range expert.Spans {
		into := device.Region{Memory: l.g.fixed, Offset: l.slot(step.Slot) + s.Offset, Bytes: s.Extent.Bytes}
		requests[i] = storage.Request{Extent: s.Extent, Into: host.HostBytes(into)}
		stored += s.Extent.StoredBytes()
	}
	set := &l.plan.Fixed.Slots[l.x.Set]
	slot := host.HostBytes(device.Region{Memory: l.g.fixed, Offset: l.slot(step.Slot), Bytes: set.SlotBytes})
	together, ok := fetch.Together(expert.Spans, slot)
	if ok {
		requests = together.Reads
	}
	l.g.stats.MovedBytes += expert.ReadBytes()
	l.asked[at] = true
	l.loaded[disk]++
	l.underWay++
	go func(readers int) { // ended has room for it
		ended := l.g.opts.Meter.Reading(expert.Spans[0].Extent, stored)
		err := readExpert(l.reading, readers, expert.Spans, requests, together.Decode)
		ended(err == nil)
		l.ended <- lentRead{at, stored, err}
	}(l.g.opts.Readers)
	return nil
}

// readExpert reads an expert, all its reads at once, decodes it where decode is not nil, and asks the sources whether they
// have changed.
func readExpert(
	ctx context.Context, readers int, list []plan.Span, requests []storage.Request, decode func(context.Context) error,
) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked.By(v)
		}
	}()
	if err = storage.Read(ctx, readers, requests...); err == nil && decode != nil {
		err = decode(ctx)
	}
	for _, source := range fetch.Guarded(nil, list) {
		if changed := source.Unchanged(); changed != nil {
			return errors.Join(changed, err)
		}
	}
	return err
}

// took notes that a read has ended.
func (l *lender) took(r lentRead) error {
	l.underWay--
	step := l.steps[r.step]
	l.loaded[l.disks[int(step.Expert)-l.x.First]]--
	if r.err != nil {
		return &GroupError{fmt.Sprintf("%s.%d", l.x.Path, int(step.Expert)-l.x.First), "load", r.err}
	}
	l.there[r.step] = true
	l.g.stats.ReadBytes += r.storedBytes
	return nil
}

// end is called once the op has run, or has failed: nothing is under way after it. What lies in the slots then is known
// only where all was lent.
func (l *lender) end() {
	if !l.wanted {
		return
	}
	l.wanted = false
	l.cancel()
	lent := l.at == len(l.steps)
	for l.underWay > 0 {
		if err := l.took(<-l.ended); err != nil {
			lent = false
		}
	}
	if !lent {
		l.g.slotsOf(l.plan)[l.x.Set].Empty()
	}
}
