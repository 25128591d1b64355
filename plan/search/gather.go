package search

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A table is what an embedding picks rows from.
type table struct {
	weight tensor.Weight
	layout tensor.Layout
	// of is the value that the weight is.
	of *graph.Value
}

// rowBytes is what a row of a table takes.
func (t *table) rowBytes() int64 {
	n, err := t.layout.Shape[1:].NumElements()
	if err != nil {
		panic("BUG: table " + t.weight.Name + ": " + err.Error())
	}
	return n * int64(t.weight.DType.Size())
}

// gatheredTable returns the table of an embedding whose rows can be brought one by one: each lies in one run, and the
// indices are known to the host.
func gatheredTable(g *graph.Graph, op *graph.Op, direct bool) (table, bool) {
	if op.Kind != "embedding" || len(op.Guard) > 0 || len(op.In) != 2 {
		return table{}, false
	}
	o, ids := op.In[0], op.In[1]
	if o.Value == graph.NoValue || g.Values[o.Value].Role != graph.Weight || len(o.Layout.Shape) < 2 {
		return table{}, false
	}
	role := g.Values[ids.Value].Role
	if role != graph.Input && (!direct || role != graph.Computed) {
		return table{}, false
	}
	row := tensor.Layout{Shape: o.Layout.Shape[1:], Strides: o.Layout.Strides[1:]}
	if _, end, err := row.Span(); err != nil || end == 0 || !row.IsContiguous() || int64(o.Layout.Strides[0]) < end {
		return table{}, false
	}
	return table{g.Values[o.Value].Weight, o.Layout, &g.Values[o.Value]}, true
}

// gatherSeconds returns what bringing the rows of an embedding takes for one instance.
func (d *draft) gatherSeconds(t *table, resultBytes int64) float64 {
	r := d.o.Rates
	if !d.o.Target.Direct {
		return d.copy(resultBytes)
	}
	n := resultBytes / max(t.rowBytes(), 1)
	rowBytes := plan.AlignUp(t.rowBytes(), storage.AlignBytes)
	each := float64(rowBytes) / r.DiskBytes
	if p, ok := storage.Packed(t.weight.Extent.Source); ok { // a block is decoded for each
		each = max(float64(p.BlockBytes())/r.DiskBytes, r.Decoding(p.BlockBytes()))
	}
	return float64(n) * (r.ReadSeconds/storage.DefaultInFlight + each)
}

// thrifty returns the draft in which of embeddings only rows are brought where that takes less time than bringing the
// table does; the draft itself where there are none.
func (d *draft) thrifty() *draft {
	if d.saving == nil {
		d.saving = d.gathering(func(t *table, bytes, resultBytes int64) bool {
			whole := float64(bytes) / d.o.Rates.DiskBytes
			if !d.o.Target.Direct {
				whole = d.copy(bytes)
			}
			return 2*d.gatherSeconds(t, resultBytes)*float64(d.o.Instances) <= whole
		})
		d.saving.saving = d.saving
	}
	return d.saving
}

// sparing returns the draft in which large embeddings that nothing else reads stay in the file though there is room for
// them, where bringing their rows is next to nothing beside the pass; the draft itself where there are none. Each row
// is read where it lies, as a mapped file would be.
func (d *draft) sparing() *draft {
	if !d.o.Target.Direct {
		return d
	}
	g := d.l.Graph
	var pass float64
	for _, s := range d.seconds {
		pass += s
	}
	readers := make(map[storage.Extent]int)
	for i := range g.Ops {
		for _, o := range g.Ops[i].In {
			if o.Value != graph.NoValue && g.Values[o.Value].Role == graph.Weight {
				readers[g.Values[o.Value].Weight.Extent]++
			}
		}
	}
	return d.gathering(func(t *table, bytes, resultBytes int64) bool {
		return bytes >= sparedBytes && readers[t.weight.Extent] == 1 &&
			d.gatherSeconds(t, resultBytes) <= pass*sparedShare
	})
}

const (
	// sparedBytes is what a table takes at least that stays in the file, sparedShare which part of a pass its rows may
	// take.
	sparedBytes = 16 << 20
	sparedShare = 0.02
)

// gathered returns the draft in which the rows of the same tables are brought as in a plan for other shapes.
func (d *draft) gathered(like []plan.Gather) *draft {
	return d.gathering(func(t *table, _, _ int64) bool {
		return slices.ContainsFunc(like, func(o plan.Gather) bool { return o.Weight.Extent == t.weight.Extent })
	})
}

// gathering returns the draft in which only rows are brought of embeddings of which worth says so, given what the table
// and the result take; the draft itself where there are none.
func (d *draft) gathering(worth func(t *table, bytes, resultBytes int64) bool) *draft {
	g := d.l.Graph
	var out graph.Graph
	l := &graph.Lowered{Graph: &out, Steps: d.l.Steps}
	tables := make(map[graph.ValueID]table)
	for i := range g.Ops {
		t, ok := gatheredTable(g, &g.Ops[i], d.o.Target.Direct)
		if !ok || d.reads(g.Ops[i].In[0].Value) {
			continue
		}
		part, _ := plan.OperandPart(g, g.Ops[i].In[0])
		id := g.Ops[i].Out[0]
		if !worth(&t, part.High-part.Low, g.Values[id].Bytes()) {
			continue
		}
		if len(tables) == 0 {
			out = *g
			out.Ops, l.Steps = slices.Clone(g.Ops), slices.Clone(d.l.Steps)
		}
		tables[id] = t
		out.Ops[i].In = []graph.Operand{graph.Absent, g.Ops[i].In[1]}
		l.Steps[i] = graph.Step{Kernel: "rows"}
	}
	if len(tables) == 0 {
		return d
	}
	groups := make([]plan.Group, len(d.groups))
	for k := range groups {
		groups[k] = sameModule(&d.groups[k], d.groups[k].First, d.groups[k].End)
		for i := groups[k].First; i < groups[k].End; i++ {
			groups[k].Parts = append(groups[k].Parts, plan.OpParts(&out, &out.Ops[i])...)
		}
	}
	count(&out, groups)
	o := d.o
	o.tables = tables
	e := newDraft(l, groups, o, nil)
	e.whole, e.origin = d.whole, d.origin
	e.base.SplitBytes, e.base.Cuts = d.base.SplitBytes, d.base.Cuts
	return e
}

// reads reports whether a value stays because others than ops read it.
func (d *draft) reads(id graph.ValueID) bool {
	return slices.ContainsFunc(d.always, func(p plan.Part) bool { return p.Value == id })
}

// gather notes the embeddings of which rows are brought, what the groups weigh with their tables, and what that takes.
func (d *draft) gather(seconds []float64) {
	g := d.l.Graph
	for k := range d.groups {
		group := &d.groups[k]
		for i := group.First; i < group.End && len(d.o.tables) > 0; i++ {
			t, ok := d.o.tables[g.Ops[i].Out[0]]
			if !ok {
				continue
			}
			n := g.Values[g.Ops[i].Out[0]].Bytes()
			gather := plan.Gather{Op: i, Weight: t.weight, Layout: t.layout}
			if !d.o.Target.Direct {
				gather.HostOffset, gather.HostStride = d.base.GatherBytes, plan.AlignUp(n, d.o.Target.AlignBytes)
				d.base.GatherBytes += gather.HostStride * int64(d.o.Instances)
			}
			d.base.Gathers = append(d.base.Gathers, gather)
			group.Rows = true
			elements, _ := t.layout.Shape.NumElements()
			bytes := elements * int64(t.weight.DType.Size())
			params := t.of.Params(bytes)
			group.Params += params
			group.WeightBytes += bytes
			if at := joinedWith(group, i); at >= 0 {
				group.Joined[at].Params += params
				group.Joined[at].WeightBytes += bytes
			}
			seconds[i] = d.gatherSeconds(&t, n)
		}
	}
}

// lowerWith lowers a graph in which the tables of embeddings are absent.
func lowerWith(
	lower func(*graph.Graph) (*graph.Lowered, error), g *graph.Graph, tables map[graph.ValueID]table,
) (*graph.Lowered, error) {
	if len(tables) == 0 {
		return lower(g)
	}
	whole := *g
	whole.Values, whole.Ops = slices.Clone(g.Values), slices.Clone(g.Ops)
	var without []int
	for i := range whole.Ops {
		op := &whole.Ops[i]
		if t, ok := tables[op.Out[0]]; ok {
			op.In = []graph.Operand{{Value: whole.AddWeight(t.weight, graph.Weight), Layout: t.layout}, op.In[1]}
			without = append(without, i)
		}
	}
	l, err := lower(&whole)
	if err != nil {
		return nil, err
	}
	l = &graph.Lowered{Graph: g, Steps: slices.Clone(l.Steps)}
	for _, i := range without {
		l.Steps[i] = graph.Step{Kernel: "rows"}
	}
	return l, nil
}

// tablesOf returns the tables of a side of a graph.
func (d *draft) tablesOf(side *graph.Side) map[graph.ValueID]table {
	tables := make(map[graph.ValueID]table)
	for id, t := range d.o.tables {
		if own := side.Values[id]; own != graph.NoValue {
			tables[own] = t
		}
	}
	return tables
}
