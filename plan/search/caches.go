package search

import (
	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// placeCaches lists the caches of a plan's graph. Where they may wait away, those of attention do: an op has them in a slot, and
// while it runs those of the next op come into the other one. Else those of some blocks may have fewer at first.
func placeCaches(p *plan.Plan, o *Options) {
	g, away := p.Lowered.Graph, o.CachesAway && p.Instances <= 1
	waits, unused := make(map[graph.ValueID]bool), make(map[graph.ValueID]bool)
	some := o.CacheBlocks.Now > 0 && p.Target.Direct && !away
	if away || some { // what is there for another program waits wherever that has it
		waits, unused = attended(g)
	}
	known := make(map[string]bool)
	for id := range g.Values {
		v := &g.Values[id]
		if v.Role != graph.Cache {
			continue
		}
		c := plan.Cache{Value: graph.ValueID(id), Name: v.Name, Bytes: plan.AlignUp(v.Bytes(), p.Target.AlignBytes)}
		if of := o.CacheBlocks.Of; some && (waits[c.Value] || unused[c.Value]) && v.Shape[0] == of*graph.BlockRows {
			c.Bytes = plan.AlignUp(v.Bytes()/int64(of)*int64(min(o.CacheBlocks.Now, of)), p.Target.AlignBytes)
		}
		if away && (waits[c.Value] || unused[c.Value]) {
			c.Bytes, c.Away = 0, true
		}
		p.Caches = append(p.Caches, c)
		if !known[v.Name] {
			p.CacheBytes += c.Bytes
			if c.Away {
				p.CacheAwayBytes += v.Bytes()
			}
		}
		known[v.Name] = true
	}
	if away {
		placeSlots(p, o, waits)
	}
}

// placeSlots says where in a slot caches that wait away lie: behind each other in the order of the op's operands, values
// behind keys wherever they are read, and at the end of the slot tables, where it has not all blocks.
func placeSlots(p *plan.Plan, o *Options, waits map[graph.ValueID]bool) {
	g, align := p.Lowered.Graph, p.Target.AlignBytes
	var all []*graph.Op
	for i := range g.Ops {
		if op := &g.Ops[i]; op.Kind == attend && waits[op.In[3].Value] {
			all = append(all, op)
		}
	}
	room := slotBlocks(g, o, all)
	offset := make(map[graph.ValueID]int64) // of keys it is 0
	for _, op := range all {
		keys, values := op.In[3].Value, op.In[4].Value
		part := func(id graph.ValueID) int64 {
			v := &g.Values[id]
			return plan.AlignUp(v.Bytes()/int64(max(blocksOf(v), 1))*int64(min(room, blocksOf(v))), align)
		}
		offset[keys], offset[values] = 0, part(keys)
		p.CacheSlotBytes = max(p.CacheSlotBytes, offset[values]+part(values))
		if room < blocksOf(&g.Values[keys]) {
			p.CacheSlotBlocks = room
			p.CacheTableBytes = max(p.CacheTableBytes, tableBytes(op, align))
		}
	}
	p.CacheSlotBytes += p.CacheTableBytes
	for i := range p.Caches {
		if c := &p.Caches[i]; c.Away {
			c.Offset = -1
			if at, ok := offset[c.Value]; ok {
				c.Offset = at
			}
		}
	}
	if p.CacheSlots = min(len(all), 2); p.CacheSlotBlocks > 0 {
		p.CacheSlots = 2
	}
	p.CacheBytes += int64(p.CacheSlots) * p.CacheSlotBytes
}

// blocksOf is how many blocks a cache has.
func blocksOf(v *graph.Value) int { return v.Shape[0] / graph.BlockRows }

// tableBytes is what the tables of an op's rows take.
func tableBytes(op *graph.Op, align int64) (bytes int64) {
	for _, k := range [...]int{6, 9} {
		if k < len(op.In) && op.In[k].Value != graph.NoValue {
			l := &op.In[k].Layout
			bytes += plan.AlignUp(8*int64(l.Shape[0])*int64(l.Shape[1]), align)
		}
	}
	return bytes
}

// named is how many blocks a row of an op names at most, and all its rows do.
func named(g *graph.Graph, op *graph.Op) (row, rows int) {
	row, all := op.In[6].Layout.Shape[1], blocksOf(&g.Values[op.In[3].Value])
	if sees := graph.Sees(op.Attrs.Int("window"), op.Attrs.Int("chunk")); sees > 0 {
		row = min(row, graph.Blocks(sees)+1)
	}
	if len(op.In) > 9 && op.In[9].Value != graph.NoValue {
		row += op.In[9].Layout.Shape[1]
	}
	return min(row, all), min(op.In[6].Layout.Shape[0]*row, all)
}

// littleMore is what part of the time that caches take to come and go may be added by moving them in more than one part.
const littleMore = 0.02

// slotBlocks is how many blocks a slot has of each cache: as many as one row names at least, and as few as the options say, or as
// their rates let cost little where rows name all blocks. So it is the same for passes of few rows and of many, which take turns.
func slotBlocks(g *graph.Graph, o *Options, all []*graph.Op) int {
	most, least := 1, max(o.SlotBlocks, 1)
	for _, op := range all {
		row, _ := named(g, op)
		most, least = max(most, blocksOf(&g.Values[op.In[3].Value])), max(least, row)
	}
	if o.SlotBlocks > 0 {
		return min(least, most)
	}
	rates, room := o.Rates.WithGuesses(), most
	for n := (most + 1) / 2; n >= least; n = (n + 1) / 2 {
		more, moving := 0.0, 0.0
		for _, op := range all {
			bytes, rows := int64(0), blocksOf(&g.Values[op.In[3].Value])
			for _, in := range op.In[3:5] {
				v := &g.Values[in.Value]
				bytes += v.Bytes() / int64(max(blocksOf(v), 1)) * int64(rows)
			}
			more, moving = more+o.moving(rates, 0, 2*((rows+n-1)/n-1)), moving+o.moving(rates, bytes, 1)
		}
		if more > littleMore*moving {
			break
		}
		if room = n; n == 1 {
			break
		}
	}
	return room
}

// attend is the op whose caches are blocks of which it touches those that its rows name.
const attend graph.Kind = "attend"

// attended returns the caches of attention: pairs of keys and values that no other op has, and none in another pair; and
// those that no op has at all.
func attended(g *graph.Graph) (waits, unused map[graph.ValueID]bool) {
	unused = make(map[graph.ValueID]bool)
	for id := range g.Values {
		unused[graph.ValueID(id)] = g.Values[id].Role == graph.Cache
	}
	values, others := make(map[graph.ValueID]graph.ValueID), make(map[graph.ValueID]bool)
	for i := range g.Ops {
		op := &g.Ops[i]
		for k, in := range op.In {
			if in.Value == graph.NoValue || g.Values[in.Value].Role != graph.Cache {
				continue
			}
			delete(unused, in.Value)
			others[in.Value] = others[in.Value] || op.Kind != attend || k != 3 && k != 4
		}
		if op.Kind != attend {
			continue
		}
		k, v := op.In[3].Value, op.In[4].Value
		if before, known := values[k]; known && before != v || k == v {
			others[k], others[v], others[before] = true, true, true
		}
		values[k] = v
	}
	waits = make(map[graph.ValueID]bool)
	for k, v := range values {
		if !others[k] && !others[v] {
			waits[k], waits[v] = true, true
		}
	}
	return waits, unused
}

// moving is what bytes of caches take to come or go in so many moves: from a file, or over the bus.
func (o *Options) moving(r cost.Rates, bytes int64, moves int) float64 {
	if o.Target.Direct {
		return r.Reading(bytes, moves)
	}
	return r.Copying(bytes, moves)
}

// A cacheVisit is what caches take to come for an op and to go back, in all, and in how many parts they do.
type cacheVisit struct {
	in, out float64
	parts   int
}

// cacheVisits are those of the ops whose caches wait away, by the op's number, of others in no parts: as if each row had another
// sequence, and that were as long as it may be. Blocks of a sequence lie together.
func cacheVisits(p *plan.Plan, o *Options) []cacheVisit {
	g, away := p.Lowered.Graph, make(map[graph.ValueID]bool)
	for i := range p.Caches {
		away[p.Caches[i].Value] = p.Caches[i].Away
	}
	visits := make([]cacheVisit, len(g.Ops))
	for i := range g.Ops {
		op := &g.Ops[i]
		if op.Kind != attend || !away[op.In[3].Value] {
			continue
		}
		rows := op.In[6].Layout.Shape[0]
		_, touched := named(g, op)
		v := cacheVisit{parts: 1}
		if n := p.CacheSlotBlocks; n > 0 {
			v.parts = max((touched+n-1)/n, 1)
		}
		for _, in := range op.In[3:5] {
			all := blocksOf(&g.Values[in.Value])
			if all == 0 {
				continue
			}
			each := g.Values[in.Value].Bytes() / int64(all)
			comes, goes := int64(touched)*each, int64(0)
			if op.In[1].Value != graph.NoValue {
				goes = int64(rows) * each / graph.BlockRows
			}
			if o.Target.Direct {
				v.in += o.Rates.Reading(comes+goes, v.parts)
				continue
			}
			v.in += o.Rates.Copying(comes, max(min(rows, touched), v.parts))
			if goes > 0 {
				v.out += o.Rates.Copying(goes, rows)
			}
		}
		visits[i] = v
	}
	return visits
}

// addCaches adds to what a pass is expected to take how long the caches that wait away take to come and go. Those in a file
// hold up the ops; those in the host's memory come and go while ops run, as far as slots are free, by the bus that weights come by.
func addCaches(p *plan.Plan, o *Options) {
	f := &p.Forecast
	if p.Sides == nil && p.CacheSlots == 0 {
		return
	}
	if p.Sides == nil && p.Target.Direct {
		for _, v := range cacheVisits(p, o) {
			f.CacheSeconds += v.in
		}
		f.Seconds, f.LeastSeconds = f.Seconds+f.CacheSeconds, f.LeastSeconds+f.CacheSeconds
		if f.CacheSeconds > max(f.ComputeSeconds, f.LoadSeconds) {
			f.Bound = "disk"
		}
		return
	}
	var stalls, bus float64
	for _, q := range waitingPlans(p) {
		moves, waits := cacheStalls(q, o)
		f.CacheSeconds, stalls = f.CacheSeconds+moves, stalls+waits
		bus = max(bus, moves+q.Forecast.LoadSeconds)
	}
	if f.CacheSeconds == 0 {
		return
	}
	f.Seconds, f.LeastSeconds = max(f.Seconds+stalls, bus), max(f.LeastSeconds, bus)
	if bus > f.ComputeSeconds && f.Bound != "disk" {
		f.Bound = "transfer"
	}
}

// waitingPlans are the plans of those devices of a plan that have memory of their own.
func waitingPlans(p *plan.Plan) []*plan.Plan {
	switch {
	case p.Sides == nil:
		return []*plan.Plan{p}
	case p.Sides.Peer == "":
		return []*plan.Plan{p.Sides.Device}
	}
	return devicePlans(p)
}

// cacheStalls returns how long the caches of a device's plan are under way, and how long ops wait for them where nothing else is:
// parts come one after the other, each once the one before the last has left its slot, and what was written goes in between.
func cacheStalls(p *plan.Plan, o *Options) (moves, waits float64) {
	if p.CacheSlots == 0 {
		return 0, 0
	}
	visits := cacheVisits(p, o)
	type part struct{ in, out, there float64 }
	var (
		parts     []part
		free      = make([]float64, p.CacheSlots) // when each slot is
		bus, now  float64
		come, ran int
	)
	for _, v := range visits {
		for range v.parts {
			parts = append(parts, part{in: v.in / float64(v.parts), out: v.out / float64(v.parts)})
		}
		moves += v.in + v.out
	}
	ahead := func(end int) {
		for ; come < min(end, len(parts)); come++ {
			bus = max(bus, free[come%len(free)]) + parts[come].in
			parts[come].there = bus
		}
	}
	computes := 0.0
	for i, seconds := range o.Rates.GraphSeconds(p.Lowered, o.Ops) {
		computes += seconds
		v := visits[i]
		if v.parts == 0 {
			now += seconds
			continue
		}
		if ran == 0 {
			bus = now
		}
		for range v.parts {
			ahead(ran + len(free))
			now = max(now, parts[ran].there) + seconds/float64(v.parts)
			free[ran%len(free)] = now
			bus = max(bus, now) + parts[ran].out
			ran++
		}
		ahead(ran + len(free))
	}
	return moves, max(now, bus) - computes
}
