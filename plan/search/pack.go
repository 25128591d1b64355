package search

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// packable returns the operands that every op that reads any of their bytes also takes in one form, and copies of those
// that some do where the form is worth it, in the order of their values. What goes out, or may change, is read by
// others than ops.
func packable(l *graph.Lowered) []plan.Packed {
	g := l.Graph
	type view struct {
		plan.Packed
		// raw says that an op does not take it packed, mixed that ops take it in several forms.
		raw, mixed bool
	}
	views := make([][]view, len(g.Values))
	for i := range g.Ops {
		for k, o := range g.Ops[i].In {
			if o.Value == graph.NoValue || g.Values[o.Value].Role != graph.Weight {
				continue
			}
			part, ok := plan.OperandPart(g, o)
			if !ok {
				continue
			}
			pack, packs := l.Steps[i].PackOf(k)
			list := views[o.Value]
			at := slices.IndexFunc(list, func(v view) bool { return sameLayout(v.Operand.Layout, o.Layout) })
			if at < 0 {
				at = len(list)
				list = append(list, view{Packed: plan.Packed{Operand: o, Low: part.Low, High: part.High, Op: -1}})
				views[o.Value] = list
			}
			switch v := &list[at]; {
			case !packs:
				v.raw = true
			case v.Op < 0:
				v.Op, v.Pack = i, pack
			default:
				v.mixed = v.mixed || v.Pack.Form != pack.Form || v.Pack.Bytes != pack.Bytes
			}
		}
	}
	for _, o := range g.Outputs {
		views[o.Operand.Value] = nil
	}
	for _, u := range g.Updates {
		views[u.Operand.Value] = nil
	}
	var all []plan.Packed
	for _, list := range views {
		slices.SortStableFunc(list, func(a, b view) int { return cmp.Compare(a.Low, b.Low) })
		var high int64
		for i := range list {
			v := &list[i]
			alone := v.Low >= high && (i == len(list)-1 || list[i+1].Low >= v.High)
			high = max(high, v.High)
			if v.Copy = !alone || v.raw; v.Op >= 0 && !v.mixed && (!v.Copy || v.Pack.Copy) {
				all = append(all, v.Packed)
			}
		}
	}
	return all
}

func sameLayout(a, b tensor.Layout) bool {
	return a.Offset == b.Offset && slices.Equal(a.Shape, b.Shape) && slices.Equal(a.Strides, b.Strides)
}

// packFixed makes weights that stay lie there in the forms that the device computes fastest with, as far as the budget,
// 0 for none, admits it: a weight for which it does not stays as it is in the file, and so do all where one pass over a
// Direct target is expected. Where only is not nil, it says which.
func packFixed(p *plan.Plan, budgetBytes int64, only func(*plan.Packed) bool) {
	if p.Once && p.Target.Direct {
		return
	}
	var list []plan.Packed
	for _, c := range packable(p.Lowered) {
		if covered(p.Fixed.Parts, plan.Part{Value: c.Operand.Value, Low: c.Low, High: c.High}) &&
			(only == nil || only(&c)) {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return
	}
	most := int64(noLimit)
	if budgetBytes > 0 {
		most = max(budgetBytes, p.PeakBytes())
	}
	list = slices.DeleteFunc(
		list, func(c plan.Packed) bool { return leastPacking(p, &c) > most-p.Fixed.Bytes-p.CacheBytes },
	)
	// Those that take the most besides what they take as they are go first.
	slices.SortStableFunc(list, func(a, b plan.Packed) int {
		return cmp.Compare(packedGrowth(p, &a), packedGrowth(p, &b))
	})
	fits := func(n int) *plan.Plan {
		q := withPacked(p, slices.Clone(list[:n]), most)
		if q == nil || q.PeakBytes() > most {
			return nil
		}
		return q
	}
	best := fits(len(list))
	if best == nil {
		best = fits(sort.Search(len(list), func(n int) bool { return fits(n+1) == nil }))
	}
	if best != nil {
		*p = *best
	}
}

// packedGrowth is how much more a packed operand takes than the weight's bytes.
func packedGrowth(p *plan.Plan, c *plan.Packed) int64 {
	if c.Copy {
		return plan.AlignUp(c.Pack.Bytes, p.Target.AlignBytes)
	}
	return plan.AlignUp(c.Pack.Bytes, p.Target.AlignBytes) - (c.High - c.Low)
}

// pieceSteps returns how many of the steps of a pack are in the operand, and whether it can be packed step by step.
func pieceSteps(c *plan.Packed) (n int, ok bool) {
	shape := c.Operand.Layout.Shape
	if c.Pack.Step <= 0 || c.Pack.Dim < 0 || c.Pack.Dim >= len(shape) {
		return 0, false
	}
	n = (shape[c.Pack.Dim] + c.Pack.Step - 1) / c.Pack.Step
	return n, n > 1 && c.Pack.Bytes%int64(n) == 0
}

// stepsOf returns the steps [first, end) of an operand.
func stepsOf(c *plan.Packed, first, end int) graph.Operand {
	layout, dim := c.Operand.Layout, c.Pack.Dim
	low := first * c.Pack.Step
	layout.Shape = slices.Clone(layout.Shape)
	layout.Offset += low * layout.Strides[dim]
	layout.Shape[dim] = min(end*c.Pack.Step, layout.Shape[dim]) - low
	return graph.Operand{Value: c.Operand.Value, Layout: layout}
}

// readBytes returns what the read of raw bytes takes at most: it begins and ends at multiples of its alignment.
func readBytes(p plan.Part) int64 {
	return plan.AlignUp(p.High-p.Low, storage.AlignBytes) + storage.AlignBytes
}

// leastPacking is the memory that packing an operand takes at least for its raw bytes.
func leastPacking(p *plan.Plan, c *plan.Packed) int64 {
	whole := readBytes(plan.Part{Low: c.Low, High: c.High})
	if _, ok := pieceSteps(c); ok {
		if part, _ := plan.OperandPart(p.Lowered.Graph, stepsOf(c, 0, 1)); readBytes(part) < whole/2 {
			return readBytes(part)
		}
	}
	return whole
}

const (
	// mostPackingBytes is as much as packing is given of the memory that a pass needs anyway.
	mostPackingBytes = 32 << 20
	// Where that is less, packing may take extraPackingBytes, if they are a small part of what is packed: reads of less
	// are slow.
	extraPackingBytes = 8 << 20
	smallPart         = 50
)

// withPacked returns the plan in which operands that stay are packed, within so many bytes if that can be; nil if not.
func withPacked(p *plan.Plan, list []plan.Packed, mostBytes int64) *plan.Plan {
	g := p.Lowered.Graph
	slices.SortFunc(list, func(a, b plan.Packed) int {
		return cmp.Or(cmp.Compare(a.Operand.Value, b.Operand.Value), cmp.Compare(a.Low, b.Low))
	})
	q := *p
	fix(&q, g, stillUnpacked(p, list))
	q.Fixed.WeightBytes, q.Fixed.Params = p.Fixed.WeightBytes, p.Fixed.Params
	q.Fixed.Bytes = plan.AlignUp(q.Fixed.Bytes, q.Target.AlignBytes)
	var least, total int64
	for i := range list {
		list[i].Offset = q.Fixed.Bytes
		q.Fixed.Bytes += plan.AlignUp(list[i].Pack.Bytes, q.Target.AlignBytes)
		least = max(least, leastPacking(&q, &list[i]))
		total += readBytes(plan.Part{Low: list[i].Low, High: list[i].High})
	}
	q.Fixed.Packed = list
	held := q.Fixed.Bytes + q.CacheBytes // caches may be in use by then
	rest := q.PeakBytes() - held
	want := max(min(rest, mostPackingBytes), min(extraPackingBytes, q.Fixed.Bytes/smallPart))
	most := min(total, max(min(want, mostBytes-held), least))
	if most > mostBytes-held {
		return nil
	}
	each := most
	if half := most / 2 / storage.AlignBytes * storage.AlignBytes; half >= least {
		each = half // the next bytes are read while those before are packed
	}
	layPackings(&q, each, most)
	return &q
}

// stillUnpacked returns the parts that stay as they are where the given operands, in the order of their values, do not:
// what other operands view of those parts.
func stillUnpacked(p *plan.Plan, list []plan.Packed) []plan.Part {
	type run struct {
		value     graph.ValueID
		low, high int64
	}
	packed := make(map[run]bool, len(list))
	touched := make(map[graph.ValueID]bool, len(list))
	for _, c := range list {
		packed[run{c.Operand.Value, c.Low, c.High}] = !c.Copy
		touched[c.Operand.Value] = true
	}
	var parts []plan.Part
	for _, part := range p.Fixed.Parts {
		if !touched[part.Value] {
			parts = append(parts, part)
		}
	}
	g := p.Lowered.Graph
	for i := range g.Ops {
		for _, o := range g.Ops[i].In {
			if o.Value == graph.NoValue || !touched[o.Value] {
				continue
			}
			part, ok := plan.OperandPart(g, o)
			if ok && !packed[run{part.Value, part.Low, part.High}] && covered(p.Fixed.Parts, part) {
				parts = append(parts, part)
			}
		}
	}
	return union(parts)
}

// layPackings divides packing into reads of no more than eachBytes, in the order of the files. Where two of them are
// within mostBytes, every other one goes to the second half.
func layPackings(p *plan.Plan, eachBytes, mostBytes int64) {
	f := &p.Fixed
	order := make([]int, len(f.Packed))
	sources := make(map[storage.Source]int)
	for i := range order {
		order[i] = i
		src := sourceOfPacked(p, i)
		if _, ok := sources[src]; !ok {
			sources[src] = len(sources)
		}
	}
	offset := func(i int) int64 {
		c := &f.Packed[i]
		return p.Lowered.Graph.Values[c.Operand.Value].Weight.Extent.Offset + c.Low
	}
	slices.SortStableFunc(order, func(a, b int) int {
		from, other := sources[sourceOfPacked(p, a)], sources[sourceOfPacked(p, b)]
		return cmp.Or(cmp.Compare(from, other), cmp.Compare(offset(a), offset(b)))
	})
	var now plan.Packing
	var nowBytes, largest int64
	flush := func() {
		if len(now.Pieces) > 0 {
			largest = max(largest, layPacking(p, &now))
			f.Packings = append(f.Packings, now)
			now, nowBytes = plan.Packing{}, 0
		}
	}
	for _, i := range order {
		for _, piece := range piecesOf(p, i, eachBytes) {
			n := readBytes(piece.Part)
			if nowBytes+n > eachBytes {
				flush()
			}
			now.Pieces, nowBytes = append(now.Pieces, piece), nowBytes+n
		}
	}
	flush()
	f.PackingBytes = largest
	if len(f.Packings) > 1 && 2*largest <= mostBytes {
		f.PackingBytes = 2 * largest
		for k := 1; k < len(f.Packings); k += 2 {
			movePacking(&f.Packings[k], largest, p.Target.Direct)
		}
	}
}

func sourceOfPacked(p *plan.Plan, packed int) storage.Source {
	return p.Lowered.Graph.Values[p.Fixed.Packed[packed].Operand.Value].Weight.Extent.Source
}

// movePacking lays a packing out further behind in the memory for it. What is read into host memory is read there as
// before.
func movePacking(k *plan.Packing, bytes int64, direct bool) {
	for i := range k.Spans {
		if direct {
			k.Spans[i].Offset += bytes
		}
	}
	for i := range k.Pieces {
		k.Pieces[i].Part.Offset += bytes
	}
}

// layPacking places the raw bytes of a packing, and returns what they take.
func layPacking(p *plan.Plan, k *plan.Packing) (bytes int64) {
	parts := make([]plan.Part, len(k.Pieces))
	for i := range parts {
		parts[i] = k.Pieces[i].Part
	}
	if p.Target.Direct {
		k.Spans, bytes = spans(p.Lowered.Graph, parts, 0)
	} else {
		k.Spans, bytes = staged(p.Lowered.Graph, parts, p.Target.AlignBytes)
	}
	for i := range parts {
		k.Pieces[i].Part = parts[i]
	}
	return plan.AlignUp(bytes, p.Target.AlignBytes)
}

// piecesOf cuts what is packed into pieces whose raw bytes take no more than the given ones, if it can be cut.
func piecesOf(p *plan.Plan, packed int, mostBytes int64) []plan.Piece {
	c := &p.Fixed.Packed[packed]
	whole := plan.Part{Value: c.Operand.Value, Low: c.Low, High: c.High}
	n, ok := pieceSteps(c)
	if !ok || readBytes(whole) <= mostBytes || leastPacking(p, c) == readBytes(whole) {
		return []plan.Piece{{Of: packed, Operand: c.Operand, Part: whole, Offset: c.Offset, Bytes: c.Pack.Bytes}}
	}
	one, _ := plan.OperandPart(p.Lowered.Graph, stepsOf(c, 0, 1))
	two, _ := plan.OperandPart(p.Lowered.Graph, stepsOf(c, 0, 2))
	more := max(two.High-one.High, 1) // what each step adds
	each := int(min(max((mostBytes-2*storage.AlignBytes-(one.High-one.Low))/more+1, 1), math.MaxInt32))
	stepBytes := c.Pack.Bytes / int64(n)
	var list []plan.Piece
	for first := 0; first < n; first += each {
		end := min(first+each, n)
		o := stepsOf(c, first, end)
		part, _ := plan.OperandPart(p.Lowered.Graph, o)
		list = append(list, plan.Piece{
			Of: packed, Operand: o, Part: part,
			Offset: c.Offset + int64(first)*stepBytes, Bytes: int64(end-first) * stepBytes,
		})
	}
	return list
}

// packedSeconds takes into account that ops whose weights lie packed are faster.
func packedSeconds(p *plan.Plan, r cost.Rates, ops *graph.Registry) {
	if len(p.Fixed.Packed) == 0 || len(r.Points) == 0 {
		return
	}
	g := p.Lowered.Graph
	packed := make(map[graph.ValueID]bool)
	for i := range p.Fixed.Packed {
		packed[p.Fixed.Packed[i].Operand.Value] = true
	}
	for k := range p.Groups {
		group := &p.Groups[k]
		group.Joined = slices.Clone(group.Joined)
		for i := group.First; i < group.End; i++ {
			op, step := &g.Ops[i], &p.Lowered.Steps[i]
			if !slices.ContainsFunc(op.In, func(o graph.Operand) bool { return packed[o.Value] }) {
				continue
			}
			in, out := g.Specs(op, nil, nil)
			cost := cost.StepCost(ops, step, op, in, out)
			more := r.LaunchSeconds(step.Product, op, in, out, cost, true) - r.LaunchSeconds(
				step.Product, op, in, out, cost, false,
			)
			group.Seconds += more
			if layer := joinedWith(group, i); layer >= 0 {
				group.Joined[layer].Seconds += more
			}
		}
	}
	forecast(p, r)
}
