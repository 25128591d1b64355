package search

import (
	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// placeCaches lists the caches of a plan's graph. Where they may wait in a file, those of attention do: an op has them in a
// slot, and while it runs those of the next op come into the other one. Else those of some blocks may have fewer at first.
func placeCaches(p *plan.Plan, o *Options) {
	g, away := p.Lowered.Graph, o.CachesAway && p.Target.Direct && p.Instances <= 1
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
				p.CacheFileBytes += v.Bytes()
			}
		}
		known[v.Name] = true
	}
	if away {
		placeSlots(p, o, waits)
	}
}

// placeSlots says where in a slot caches that wait in a file lie: behind each other in the order of the op's operands, values
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
			more, moving = more+rates.Reading(0, 2*((rows+n-1)/n-1)), moving+rates.Reading(bytes, 1)
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

// addCaches adds to what a pass is expected to take how long the caches that wait in a file take to come and go: as if
// each row had another sequence, and that were as long as it may be.
func addCaches(p *plan.Plan, r cost.Rates) {
	if p.CacheSlots == 0 {
		return
	}
	g, f := p.Lowered.Graph, &p.Forecast
	away := make(map[graph.ValueID]bool)
	for i := range p.Caches {
		away[p.Caches[i].Value] = p.Caches[i].Away
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		if op.Kind != attend || !away[op.In[3].Value] {
			continue
		}
		rows := int64(op.In[6].Layout.Shape[0])
		_, touched := named(g, op)
		parts := 1
		if n := p.CacheSlotBlocks; n > 0 {
			parts = (touched + n - 1) / n
		}
		for _, in := range op.In[3:5] {
			v := &g.Values[in.Value]
			all := int64(v.Shape[0] / graph.BlockRows)
			if all == 0 {
				continue
			}
			each := v.Bytes() / all
			bytes := int64(touched) * each
			if op.In[1].Value != graph.NoValue {
				bytes += rows * each / graph.BlockRows
			}
			f.CacheSeconds += r.Reading(bytes, parts)
		}
	}
	f.Seconds, f.LeastSeconds = f.Seconds+f.CacheSeconds, f.LeastSeconds+f.CacheSeconds
	if f.CacheSeconds > max(f.ComputeSeconds, f.LoadSeconds) {
		f.Bound = "disk"
	}
}
