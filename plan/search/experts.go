package search

import (
	"errors"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/slots"
	"github.com/optimem/optimem/storage"
)

// A lent op is one to which its experts may be lent while it runs.
type lent struct {
	path string
	each []plan.Expert
	// slotBytes is what the largest expert takes, meanBytes what reading one takes on average; bytes and params are all
	// experts'.
	slotBytes, meanBytes, bytes, params int64
	rows, named                         int
	// set and first say in which slots its experts lie, and under which ids.
	set, first int
}

// A lending is the ops of a graph to which experts are lent, by result, and their slots.
type lending struct {
	ops map[graph.ValueID]*lent
	// order has the results in the order of the graph.
	order []graph.ValueID
	sets  []plan.SlotSet
}

// slotBytes is what all slots take.
func (l *lending) slotBytes() int64 {
	if l == nil {
		return 0
	}
	var n int64
	for i := range l.sets {
		n += l.sets[i].Bytes()
	}
	return n
}

// lendable returns the ops whose experts can be lent, without slots; nil where there are none. An expert's weights have
// to be those of the checkpoint and nobody else's, on a device that files are read into.
func (d *draft) lendable() *lending {
	if !d.o.Target.Direct || d.o.Lower == nil || d.o.Instances > 1 || d.o.lending != nil {
		return nil
	}
	g := d.l.Graph
	var all lending
	for i := range g.Ops {
		if op := &g.Ops[i]; op.Kind == "experts" && len(op.Guard) == 0 {
			if x := d.lentOf(i); x != nil {
				if all.ops == nil {
					all.ops = make(map[graph.ValueID]*lent)
				}
				all.ops[op.Out[0]] = x
				all.order = append(all.order, op.Out[0])
			}
		}
	}
	if all.ops == nil {
		return nil
	}
	return &all
}

// lentOf returns an op's experts, nil where they cannot be lent.
func (d *draft) lentOf(i int) *lent {
	g := d.l.Graph
	op := &g.Ops[i]
	number, each := op.Attrs.Int("experts"), graph.ExpertOperands(op.Attrs)
	ids := g.Values[op.In[1].Value].Shape
	x := &lent{path: op.Path, each: make([]plan.Expert, number), named: ids[len(ids)-1]}
	x.rows = int(graph.Elements(ids)) / max(x.named, 1)
	mine := make(map[graph.ValueID]bool)
	for e := range x.each {
		expert := &x.each[e]
		for k := range graph.LentOperands {
			o := op.In[graph.ExpertsFirst+e*each+k]
			if o.Value == graph.NoValue || g.Values[o.Value].Role != graph.Weight || d.reads(o.Value) {
				return nil
			}
			part, ok := plan.OperandPart(g, o)
			if !ok {
				return nil
			}
			mine[o.Value] = true
			expert.Parts[k] = part
		}
		list, bytes := lentSpans(g, expert.Parts[:])
		if len(list) > 0 {
			// room for what an aligned read has too much
			if _, ok := list[0].Extent.Source.(storage.InPlaceSource); ok {
				bytes += 2 * storage.AlignBytes
			}
		}
		expert.Spans = list
		x.slotBytes = max(x.slotBytes, plan.AlignUp(bytes, storage.AlignBytes))
		x.meanBytes += bytes
	}
	x.meanBytes /= int64(number)
	for id := range g.Values {
		if mine[graph.ValueID(id)] {
			n := g.Values[id].Bytes()
			x.bytes, x.params = x.bytes+n, x.params+g.Values[id].Params(n)
		}
	}
	for j := range g.Ops {
		for k, o := range g.Ops[j].In {
			if o.Value != graph.NoValue && mine[o.Value] &&
				(j != i || k < graph.ExpertsFirst || (k-graph.ExpertsFirst)%each >= graph.LentOperands) {
				return nil
			}
		}
	}
	return x
}

// lentTo returns a draft of the same graph in which experts are lent, through so many bytes of slots; nil where the
// device does not take such ops.
func (d *draft) lentTo(l *lending, slotBytes int64) *draft {
	return d.withLent(l.within(slotBytes, d.o.Once))
}

// withLent returns a draft of the same graph in which experts are lent as use says; nil where the device does not take
// such ops.
func (d *draft) withLent(use *lending) *draft {
	g := graph.Lend(d.l.Graph, func(op int) bool { return use.ops[d.l.Graph.Ops[op].Out[0]] != nil })
	lowered, err := d.o.Lower(g)
	if err != nil {
		return nil
	}
	o := d.o
	o.lending = use
	return newDraft(lowered, cut(g, o.MaxGroup), o, nil).coarse()
}

// onceSlots is how many slots there are where nothing is needed twice: enough to read while others compute.
const onceSlots = 16

// within returns the lending with slots of so many bytes, at least one: of each layer as many as of the others, if that
// is as many as a row needs; else slots that all share. For a single pass they are few.
func (l *lending) within(slotBytes int64, once bool) *lending {
	out := &lending{ops: make(map[graph.ValueID]*lent), order: l.order}
	var each, largest int64
	named, total := 0, 0
	for _, id := range l.order {
		x := *l.ops[id]
		out.ops[id] = &x
		each, largest = each+x.slotBytes, max(largest, x.slotBytes)
		named, total = max(named, x.named), total+len(x.each)
	}
	n := slotBytes / max(each, 1)
	if n < int64(named) || once {
		set := plan.SlotSet{
			Experts: total, Slots: int(min(max(slotBytes/max(largest, 1), 1), int64(total))), SlotBytes: largest,
		}
		if once {
			set.Slots = min(set.Slots, max(onceSlots, 2*named))
		}
		first := 0
		for _, id := range out.order {
			out.ops[id].set, out.ops[id].first = 0, first
			first += len(out.ops[id].each)
		}
		out.sets = []plan.SlotSet{set}
		return out
	}
	rest := slotBytes - n*each
	for k, id := range out.order {
		x := out.ops[id]
		set := plan.SlotSet{Experts: len(x.each), Slots: int(min(n, int64(len(x.each)))), SlotBytes: x.slotBytes}
		if set.Slots < set.Experts && rest >= x.slotBytes {
			set.Slots++
			rest -= x.slotBytes
		}
		x.set = k
		out.sets = append(out.sets, set)
	}
	return out
}

// lentAs returns the draft in which experts have the slots of another plan; nil where that cannot be.
func (d *draft) lentAs(like *plan.Plan) *draft {
	l := d.lendable()
	if l == nil || len(l.order) != len(like.Experts) {
		return nil
	}
	use := &lending{ops: l.ops, order: l.order}
	for k, id := range l.order {
		x, other := l.ops[id], &like.Experts[k]
		if x.path != other.Path || len(x.each) != len(other.Each) ||
			x.slotBytes > like.Fixed.Slots[other.Set].SlotBytes {
			return nil
		}
		x.set, x.first = other.Set, other.First
		if slices.EqualFunc(x.each, other.Each, sameExpert) { // plans of one session have them once
			x.each = other.Each
		}
	}
	for _, s := range like.Fixed.Slots {
		s.Offset = 0
		use.sets = append(use.sets, s)
	}
	return d.withLent(use)
}

// sameExpert reports whether two experts are read and lie in a slot alike.
func sameExpert(a, b plan.Expert) bool { return a.Parts == b.Parts && slices.Equal(a.Spans, b.Spans) }

// lend notes the ops to which experts are lent, what the groups weigh with these, and what bringing them is expected to
// take.
func (d *draft) lend() {
	use := d.o.lending
	if use == nil {
		return
	}
	d.base.Fixed.Slots = slices.Clone(use.sets)
	d.base.Experts, d.base.Routed = nil, plan.Routed{Known: true}
	shared := use.sharedHits(d.o.Routing)
	g := d.l.Graph
	for k := range d.groups {
		group := &d.groups[k]
		for i := group.First; i < group.End; i++ {
			if g.Ops[i].Kind != "experts" {
				continue
			}
			x := use.ops[g.Ops[i].Out[0]]
			if x == nil {
				continue
			}
			d.base.Experts = append(d.base.Experts, plan.Experts{
				Op: i, Path: x.path, Set: x.set, First: x.first, Each: x.each, Rows: x.rows, Named: x.named,
			})
			group.Lent = true
			group.Params, group.WeightBytes = group.Params+x.params, group.WeightBytes+x.bytes
			if at := joinedWith(group, i); at >= 0 {
				group.Joined[at].Params, group.Joined[at].WeightBytes = group.Joined[at].Params+x.params, group.Joined[at].WeightBytes+x.bytes
			}
			d.route(x, shared)
		}
	}
}

// sharedHits returns which share of the experts that are needed is there where all layers share slots; −1 where they do not,
// or where too little is known.
func (l *lending) sharedHits(routing map[string]*slots.Curve) float64 {
	if len(l.sets) != 1 || len(l.order) < 2 {
		return -1
	}
	var curves []*slots.Curve
	needs := 0.0
	for _, id := range l.order {
		x := l.ops[id]
		curve := routing[x.path]
		if curve == nil || len(curve.Ranks) != len(x.each) {
			return -1
		}
		curves = append(curves, curve)
		needs = max(needs, slots.Distinct(len(x.each), x.named, x.rows))
	}
	if hits, ok := slots.SharedHits(curves, l.sets[0].Slots, int(math.Round(needs))); ok {
		return hits
	}
	return -1
}

// route adds what passes through a layer read of its experts to what is expected; shared is as sharedHits has it.
func (d *draft) route(x *lent, shared float64) {
	set := &d.o.lending.sets[x.set]
	number := len(x.each)
	needs := slots.Distinct(number, x.named, x.rows)
	hits, known := shared, shared >= 0
	if curve := d.o.Routing[x.path]; curve != nil && len(curve.Ranks) == number && set.Experts == number {
		hits, known = curve.Hits(set.Slots)
	}
	if !known {
		hits = float64(set.Slots) / float64(max(set.Experts, 1))
	}
	if needs > 0 {
		hits = min(hits, float64(set.Slots)/needs, 1)
	}
	if d.o.Once {
		hits = 0
	}
	r := &d.base.Routed
	most := float64(min(number, x.rows*x.named))
	reads := needs * (1 - hits)
	r.ExpectedBytes += int64(reads * float64(x.meanBytes))
	r.MostBytes += int64(most * float64(x.meanBytes))
	r.Hits = (r.Hits*r.Needs + hits*needs) / max(r.Needs+needs, 1e-9)
	r.Needs += needs
	r.Known = r.Known && known
	each := d.lentSeconds(x)
	r.ReadSeconds += reads * each
	r.MostReadSeconds += most * each
}

// orLent plans as the mode does; where not everything stays, experts are lent if that is expected to take less, or if
// rows come one by one: a layer's experts together are then mostly brought in vain.
func (d *draft) orLent(make func(*draft) (*plan.Plan, error)) (*plan.Plan, error) {
	l := d.lendable()
	if l == nil {
		return make(d)
	}
	if d.o.Mode != plan.Page {
		if _, err := d.sparing().resident(); err == nil {
			return make(d)
		}
	}
	p, lentErr := d.lentPlan(l, make)
	if p != nil && d.l.Graph.HasCaches() {
		return p, nil
	}
	q, err := make(d)
	switch {
	case err == nil && (p == nil || q.Forecast.Seconds < p.Forecast.Seconds):
		if p != nil {
			q.MinBytes = min(q.MinBytes, p.MinBytes)
		}
		return q, nil
	case p != nil:
		return p, nil
	}
	var have, want *plan.CapacityError
	if errors.As(err, &have) && errors.As(lentErr, &want) {
		have.MinBytes = min(have.MinBytes, want.MinBytes)
	}
	return nil, err
}

// lentPlan returns the plan in which experts are lent: what all rows need stays first, and what is left are slots.
func (d *draft) lentPlan(l *lending, make func(*draft) (*plan.Plan, error)) (*plan.Plan, error) {
	least := d.lentTo(l, 0)
	if least == nil {
		return nil, graph.ErrUnsupported
	}
	var each, largest int64
	named := int64(0)
	for _, x := range l.ops {
		each, largest, named = each+x.slotBytes, max(largest, x.slotBytes), max(named, int64(x.named))
	}
	if d.o.MemoryBytes <= 0 {
		return make(d.lentTo(l, each*named))
	}
	p, err := make(least)
	if err != nil {
		return nil, err
	}
	minBytes := p.MinBytes
	plans := []*plan.Plan{p}
	spare := d.o.MemoryBytes - p.PeakBytes()
	list := []int64{spare + largest}
	if d.o.Mode != plan.Page {
		if whole, err := least.sparing().resident(); err == nil {
			list = []int64{d.o.MemoryBytes - whole.PeakBytes() + largest}
		} else { // what rows need competes with what all need
			list = []int64{named * largest, 2 * named * largest, named * each, spare + largest}
		}
	}
	for _, bytes := range list {
		if bytes <= largest {
			continue
		}
		if q, err := make(d.lentTo(l, bytes)); err == nil {
			plans = append(plans, q)
		}
	}
	best := plans[0]
	for _, q := range plans[1:] {
		if q.Forecast.Seconds <= best.Forecast.Seconds {
			best = q
		}
	}
	best.MinBytes = minBytes
	return best, nil
}

// laySlots places slots behind what stays, where files can be read to.
func laySlots(p *plan.Plan) {
	if len(p.Fixed.Slots) == 0 {
		return
	}
	p.Fixed.Slots = slices.Clone(p.Fixed.Slots)
	p.Fixed.Bytes = plan.AlignUp(p.Fixed.Bytes, storage.AlignBytes)
	for i := range p.Fixed.Slots {
		s := &p.Fixed.Slots[i]
		s.Offset = p.Fixed.Bytes
		p.Fixed.Bytes += s.Bytes()
	}
}

// addReads takes into account what is read while ops run, of which nobody knows before what it is: the ops wait for it.
func addReads(p *plan.Plan) {
	r, f := &p.Routed, &p.Forecast
	if len(p.Experts) == 0 {
		return
	}
	r.BestSeconds, r.WorstSeconds = f.Seconds, f.Seconds+r.MostReadSeconds
	f.Seconds += r.ReadSeconds
	f.LoadSeconds += r.ReadSeconds
	f.StallSeconds += r.ReadSeconds
	f.LeastSeconds = max(f.LeastSeconds, f.LoadSeconds)
	if f.LoadSeconds > f.ComputeSeconds {
		f.Bound = "disk"
	}
}
