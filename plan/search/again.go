package search

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// An again is a way to have a value again without keeping it: to compute it anew.
type again struct {
	// maker is the op that does so, before the one before which it is to be there.
	maker, before int
	// cost is how many bytes are copied, each of two ways, in the time that it takes.
	cost  int64
	frees []relief
}

// A recomputing has what it takes to know which values are cheaper to compute anew than to send away.
type recomputing struct {
	d *draft
	// maker is the op that makes each value and could make it again, −1 for none.
	maker []int
	// used are the ops that make and read each value, in order, stepOf is the step of each op.
	used   [][]int
	stepOf []int
	// over is set for values that are written over, before their last reader is done.
	over []bool
}

// recomputing looks at a draft's ops. What may be computed anew is made by one op alone, unconditionally, of
// activations and constants: no weight has to be brought again. An embedder's own op is not taken: nobody but the
// embedder knows what else it does. Micro-batches that go through a group one after the other leave what they need
// between them, and the sides of a plan have the ops that they were given.
func (d *draft) recomputing(steps []step) *recomputing {
	g := d.l.Graph
	r := &recomputing{
		d: d, maker: slices.Repeat([]int{-1}, len(g.Values)), used: make([][]int, len(g.Values)),
		stepOf: make([]int, len(g.Ops)), over: make([]bool, len(g.Values)),
	}
	if d.o.Instances > 1 || d.o.asGiven {
		return r
	}
	for k, step := range steps {
		for i := step.first; i < step.end; i++ {
			r.stepOf[i] = k
		}
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		for _, o := range op.In {
			if o.Value == graph.NoValue {
				continue
			}
			if n := len(r.used[o.Value]); n == 0 || r.used[o.Value][n-1] != i {
				r.used[o.Value] = append(r.used[o.Value], i)
			}
		}
		for _, id := range op.Out {
			r.used[id] = append(r.used[id], i)
		}
		if len(op.Out) == 1 && len(op.Guard) == 0 && d.seconds[i] > 0 && r.pure(op) &&
			!slices.ContainsFunc(d.base.Gathers, func(x plan.Gather) bool { return x.Op == i }) {
			r.maker[op.Out[0]] = i
		}
	}
	for id := range d.base.Places {
		if place := &d.base.Places[id]; place.Over {
			r.over[place.Operand] = true
		}
	}
	return r
}

// pure reports whether an op is known to do nothing but compute, and of what a pass holds.
func (r *recomputing) pure(op *graph.Op) bool {
	if def, ok := r.d.o.Ops.Lookup(op.Kind); ok && def.Reference != nil {
		return false
	}
	if op.Kind == "experts" { // its weights may be lent to it, and are no operands then
		return false
	}
	for _, o := range op.In {
		if o.Value == graph.NoValue {
			continue
		}
		if role := r.d.l.Graph.Values[o.Value].Role; role != graph.Computed && role != graph.Input &&
			role != graph.Const {
			return false
		}
	}
	return true
}

// insteadOf returns how a value that is not used between two steps is computed anew before the second one, nil where
// that cannot be or takes longer than copies do: one back and, if it leaves once, one out. What it is computed of must
// be there, or is kept until then, and must not wait itself.
func (r *recomputing) insteadOf(id graph.ValueID, from, to step, once bool) *again {
	d, g := r.d, r.d.l.Graph
	maker := r.maker[id]
	if maker < 0 {
		return nil
	}
	last, before := -1, -1 // the use before the gap, and that behind it
	for _, op := range r.used[id] {
		if op < from.end {
			last = op
		}
		if op >= to.first && before < 0 {
			before = op
		}
	}
	bytes := plan.AlignUp(d.base.Places[id].Bytes, d.o.Target.AlignBytes)
	ways := 1.0
	if once {
		ways = 2
	}
	copied := ways * d.swapCopySeconds(bytes)
	if last < 0 || before <= last+1 || d.seconds[maker] >= copied {
		return nil
	}
	a := &again{maker: maker, before: before, cost: max(int64(d.seconds[maker]/copied*ways/2*float64(bytes)), 1)}
	a.frees = []relief{{last + 1, before, bytes}}
	seen := make(map[graph.ValueID]bool)
	for _, o := range g.Ops[maker].In {
		if o.Value == graph.NoValue || g.Values[o.Value].Role == graph.Const || seen[o.Value] {
			continue
		}
		seen[o.Value] = true
		kept := d.base.Places[o.Value].Last
		if kept < before {
			// It is kept for longer, beside what is written over it now.
			first := kept + 1
			if r.over[o.Value] {
				first = kept
			}
			more := plan.AlignUp(d.base.Places[o.Value].Bytes, d.o.Target.AlignBytes)
			if bytes -= more; bytes <= 0 {
				return nil
			}
			a.frees = append(a.frees, relief{first, before, -more})
			continue
		}
		if r.mayWait(o.Value, before) {
			return nil
		}
	}
	return a
}

// mayWait reports whether a value may be elsewhere before an op that does not read it.
func (r *recomputing) mayWait(id graph.ValueID, op int) bool {
	if r.d.base.Places[id].Bytes < leastSwapBytes {
		return false
	}
	at, read := slices.BinarySearch(r.used[id], op)
	return !read && at > 0 && at < len(r.used[id]) && r.stepOf[r.used[id][at-1]] != r.stepOf[r.used[id][at]]
}

// swapCopySeconds is what a copy to or from where an activation waits takes.
func (d *draft) swapCopySeconds(bytes int64) float64 {
	if d.o.Target.Direct {
		return float64(bytes) / d.o.Rates.DiskBytes
	}
	return d.copy(bytes)
}

// insert adds the ops that compute what is chosen to be computed anew, each before the op that reads it next, in the
// group of that op. It returns which op of the graph before each op is, or computes anew; nil where none does.
func (s *swapper) insert(chosen []wait) []int {
	type fresh struct {
		*again
		value graph.ValueID
	}
	var list []fresh
	for _, w := range chosen {
		if w.again != nil {
			list = append(list, fresh{w.again, w.value})
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(
		list, func(a, b fresh) int { return cmp.Or(cmp.Compare(a.before, b.before), cmp.Compare(a.maker, b.maker)) },
	)
	old := s.g.Ops
	s.g.Ops = make([]graph.Op, 0, len(old)+len(list))
	var from []int
	for k := range s.groups {
		group := &s.groups[k]
		if group.Joined != nil {
			group.Joined = slices.Clone(group.Joined)
		}
		first := len(s.g.Ops)
		var more []int // ops of layers
		for i := group.First; i < group.End; i++ {
			for len(list) > 0 && list[0].before == i {
				f := list[0]
				list = list[1:]
				op := old[f.maker]
				op.Out = []graph.ValueID{s.name(f.value, f.before)}
				op.In = slices.Clone(op.In)
				for o := range op.In {
					if op.In[o].Value != graph.NoValue {
						op.In[o].Value = s.name(s.programs(op.In[o].Value), f.before)
					}
				}
				group.Again = append(
					group.Again, plan.Again{Op: len(s.g.Ops), Value: f.value, Bytes: s.g.Values[f.value].Bytes()},
				)
				if layer := joinedWith(group, i); layer >= 0 {
					more = append(more, layer)
				}
				s.g.Ops, from = append(s.g.Ops, op), append(from, f.maker)
			}
			s.g.Ops, from = append(s.g.Ops, old[i]), append(from, i)
		}
		for _, layer := range more {
			group.Joined[layer].Ops++
		}
		group.First, group.End = first, len(s.g.Ops)
	}
	return from
}

// programs returns the number that a value had before it was renamed.
func (s *swapper) programs(id graph.ValueID) graph.ValueID {
	for before, names := range s.names {
		if slices.ContainsFunc(names, func(n naming) bool { return n.id == id }) {
			return before
		}
	}
	return id
}
