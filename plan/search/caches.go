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
		placeSlots(p, waits)
	}
}

// placeSlots says where in a slot caches that wait in a file lie: behind each other in the order of the op's operands, values
// behind keys wherever they are read.
func placeSlots(p *plan.Plan, waits map[graph.ValueID]bool) {
	g, align, ops := p.Lowered.Graph, p.Target.AlignBytes, 0
	offset := make(map[graph.ValueID]int64) // of keys it is 0
	for i := range g.Ops {
		op := &g.Ops[i]
		if op.Kind != attend || !waits[op.In[3].Value] {
			continue
		}
		keys, values := op.In[3].Value, op.In[4].Value
		offset[keys], offset[values] = 0, plan.AlignUp(g.Values[keys].Bytes(), align)
		p.CacheSlotBytes = max(p.CacheSlotBytes, offset[values]+plan.AlignUp(g.Values[values].Bytes(), align))
		ops++
	}
	for i := range p.Caches {
		if c := &p.Caches[i]; c.Away {
			c.Offset = -1
			if at, ok := offset[c.Value]; ok {
				c.Offset = at
			}
		}
	}
	p.CacheSlots = min(ops, 2)
	p.CacheBytes += int64(p.CacheSlots) * p.CacheSlotBytes
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
		rows, blocks := int64(op.In[6].Layout.Shape[0]), int64(op.In[6].Layout.Shape[1])
		if sees := graph.Sees(op.Attrs.Int("window"), op.Attrs.Int("chunk")); sees > 0 {
			blocks = min(blocks, int64(graph.Blocks(sees))+1)
		}
		for _, in := range op.In[3:5] {
			v := &g.Values[in.Value]
			all := int64(v.Shape[0] / graph.BlockRows)
			if all == 0 {
				continue
			}
			each := v.Bytes() / all
			touched := min(rows*blocks, all)
			bytes := touched * each
			if op.In[1].Value != graph.NoValue {
				bytes += rows * each / graph.BlockRows
			}
			f.CacheSeconds += r.Reading(bytes, 1)
		}
	}
	f.Seconds, f.LeastSeconds = f.Seconds+f.CacheSeconds, f.LeastSeconds+f.CacheSeconds
	if f.CacheSeconds > max(f.ComputeSeconds, f.LoadSeconds) {
		f.Bound = "disk"
	}
}
