package search

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// TestLeastBudget: what a plan says is the least budget works, and one byte less does not.
func TestLeastBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _ := lower(drawGraph(t))
		o := drawOptions(t, l.Graph)
		free, err := Plan(l, o)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, free, o, l.Graph)
		if free.MinBytes < 2 { // the host computes everything
			return
		}
		most := max(free.PeakBytes(), free.MinBytes)
		for _, memory := range []int64{free.MinBytes, rapid.Int64Range(free.MinBytes, most).Draw(t, "memory")} {
			o.MemoryBytes = memory
			p, err := Plan(l, o)
			if err != nil {
				t.Fatalf("%d bytes, where the least is %d: %v", memory, free.MinBytes, err)
			}
			if p.MinBytes != free.MinBytes {
				t.Fatalf("the least is %d bytes without a limit and %d with one of %d", free.MinBytes, p.MinBytes, memory)
			}
			checkPlan(t, p, o, l.Graph)
		}
		o.MemoryBytes = free.MinBytes - 1
		_, err = Plan(l, o)
		var c *plan.CapacityError
		if !errors.As(err, &c) || c.MinBytes != free.MinBytes || c.HaveBytes >= c.NeedBytes {
			t.Fatalf("a byte less than %d: got %#v", free.MinBytes, err)
		}
	})
}

// checkPlan fails where following a plan for a graph to the letter would lose or mix up bytes, or take more memory than
// there is.
func checkPlan(t failer, p *plan.Plan, o Options, g *graph.Graph) {
	several := p.Sides != nil && p.Sides.Peer != "" // each of which has a budget of its own
	if o.MemoryBytes > 0 && p.PeakBytes() > o.MemoryBytes && !several {
		t.Fatalf("takes %d of %d bytes\n%v", p.PeakBytes(), o.MemoryBytes, p)
	}
	if o.HostBytes > 0 && p.HostBytes() > o.HostBytes {
		t.Fatalf("takes %d of %d bytes of host memory\n%v", p.HostBytes(), o.HostBytes, p)
	}
	if p.Sides == nil && p.Target.Direct && p.SwapBytes > o.SwapBytes {
		t.Fatalf("takes %d of %d bytes of a file\n%v", p.SwapBytes, o.SwapBytes, p)
	}
	checkReads(t, p, g)
	if p.Sides != nil {
		checkSides(t, p, o)
		return
	}
	if o.Once && p.Target.Direct && len(p.Fixed.Packed) > 0 {
		t.Fatalf("%d weights are packed for one pass\n%v", len(p.Fixed.Packed), p)
	}
	checkRing(t, p)
	checkWeights(t, p)
	checkConsts(t, p)
	checkActivations(t, p)
	checkBytes(t, p)
	checkSwaps(t, p)
	checkFirstReads(t, p)
	checkGathers(t, p)
	checkHost(t, p)
	checkForecast(t, p, o)
	follow(t, p, g)
}

// checkRing: no slot is filled while a group that has bytes there may be under way or in use.
func checkRing(t failer, p *plan.Plan) {
	var visits []*plan.Group
	var moved, most int64
	for i := range p.Groups {
		if g := &p.Groups[i]; g.Paged() {
			visits = append(visits, g)
			moved += g.SlotBytes
			most = max(most, g.SlotOffset+g.SlotBytes)
		} else if g.SlotBytes != 0 || len(g.Spans) != 0 {
			t.Fatalf("group %d is not paged and has a slot", i)
		}
	}
	if moved != p.MovedBytes || most != p.RingBytes {
		t.Fatalf("%d bytes moved and a ring of %d, want %d and %d", p.MovedBytes, p.RingBytes, moved, most)
	}
	align := p.Target.AlignBytes
	if p.Target.Direct {
		align = storage.AlignBytes
	}
	for k, g := range visits {
		if g.SlotOffset%align != 0 {
			t.Fatalf("visit %d lies at %d, which is not a multiple of %d\n%v", k, g.SlotOffset, align, p)
		}
		if g.After < 1 || g.After > len(visits) {
			t.Fatalf("visit %d of %d waits for the one %d before", k, len(visits), g.After)
		}
		for back := 1; back < g.After; back++ {
			other := visits[((k-back)%len(visits)+len(visits))%len(visits)]
			if g.SlotOffset < other.SlotOffset+other.SlotBytes && other.SlotOffset < g.SlotOffset+g.SlotBytes {
				t.Fatalf("visit %d overlaps that %d before, and waits for that %d before\n%v", k, back, g.After, p)
			}
		}
	}
}

// checkWeights: all that ops read of weights is in the group's slot or stays, where a span brings it.
func checkWeights(t failer, p *plan.Plan) {
	g := p.Lowered.Graph
	inside := func(parts []plan.Part, spans []plan.Span, bytes int64) {
		var last int64
		byOffset := func(a, b plan.Part) int { return int(a.Offset - b.Offset) }
		for _, part := range slices.SortedFunc(slices.Values(parts), byOffset) {
			n := part.High - part.Low
			if part.Offset < 0 || part.Offset+n > bytes {
				t.Fatalf("%d bytes of value %d at %d of %d", n, part.Value, part.Offset, bytes)
			}
			if !p.Target.Direct && part.Offset < last {
				t.Fatalf("value %d overlaps what is before it", part.Value)
			}
			last = part.Offset + n
			at := part.Offset
			if !p.Target.Direct {
				at = part.Staged
			}
			e := g.Values[part.Value].Weight.Extent
			if !slices.ContainsFunc(spans, func(s plan.Span) bool {
				return s.Offset <= at && at+n <= s.Offset+s.Extent.Bytes && s.Extent.Source == e.Source &&
					at-s.Offset == e.Offset+part.Low-s.Extent.Offset
			}) {
				t.Fatalf("no read brings value %d to %d\n%v", part.Value, at, p)
			}
		}
	}
	inside(p.Fixed.Parts, p.Fixed.Spans, p.Fixed.Bytes)
	checkPacked(t, p)
	has := func(parts []plan.Part, want plan.Part) bool {
		return slices.ContainsFunc(parts, func(h plan.Part) bool {
			return h.Value == want.Value && h.Low <= want.Low && want.High <= h.High
		})
	}
	next := 0
	for i := range p.Groups {
		group := &p.Groups[i]
		inside(group.Parts, group.Spans, group.SlotBytes)
		for _, part := range group.Parts {
			if part.Offset%p.Target.AlignBytes != 0 && !p.Target.Direct {
				t.Fatalf("value %d lies at %d of a slot\n%v", part.Value, part.Offset, p)
			}
			if has(p.Fixed.Parts, part) {
				t.Fatalf("group %d brings value %d, which stays\n%v", i, part.Value, p)
			}
		}
		if group.First != next {
			t.Fatalf("group %d begins at op %d, want %d", i, group.First, next)
		}
		next = group.End
		for k := group.First; k < group.End; k++ {
			for _, part := range plan.OpParts(g, &g.Ops[k]) {
				packed := slices.ContainsFunc(p.Fixed.Packed, func(c plan.Packed) bool {
					return c.Operand.Value == part.Value && c.Low == part.Low && c.High == part.High && g.Ops[k].Kind == "linear"
				})
				for _, c := range p.Fixed.Packed {
					shares := c.Operand.Value == part.Value && c.Low < part.High && part.Low < c.High
					if c.Copy && shares && !has(p.Fixed.Parts, part) && g.Ops[k].Kind != "linear" {
						t.Fatalf("op %d reads value %d, of which only a copy stays\n%v", k, part.Value, p)
					}
				}
				if !has(group.Parts, part) && !has(p.Fixed.Parts, part) && !packed {
					t.Fatalf("op %d reads value %d from %d to %d, which is not there\n%v", k, part.Value, part.Low, part.High, p)
				}
			}
		}
	}
	if next != len(g.Ops) {
		t.Fatalf("%d ops of %d are in groups", next, len(g.Ops))
	}
	for _, tied := range p.Tied {
		moves := 0
		for i := range p.Groups {
			if slices.ContainsFunc(p.Groups[i].Parts, func(part plan.Part) bool { return part.Value == tied.Value }) {
				moves++
			}
		}
		if moves != tied.Moves || tied.Readers < 2 {
			t.Fatalf("value %d is %v, and %d groups bring it", tied.Value, tied, moves)
		}
	}
}

// checkFirstReads: cut by group, reads are those of what stays, no byte twice, and before a group runs all is there
// that it reads of that and no group before it has read.
func checkFirstReads(t failer, p *plan.Plan) {
	reads := p.FirstReads()
	state := slices.ContainsFunc(p.Fixed.Parts, func(part plan.Part) bool {
		return p.Lowered.Graph.Values[part.Value].Role == graph.State
	})
	if reads != nil && state {
		t.Fatalf("first reads of what a pass before may have changed\n%v", p)
	}
	if reads == nil {
		if p.Target.Direct && len(p.Fixed.Packings)+len(p.Fixed.Stored) == 0 && len(p.Fixed.Spans) > 0 && !state {
			t.Fatalf("no first reads\n%v", p)
		}
		return
	}
	there := make([]bool, p.Fixed.Bytes/storage.AlignBytes)
	for k := range p.Groups {
		for _, r := range reads[k] {
			if (r.Extent.Offset|r.Extent.Bytes|r.Offset)%storage.AlignBytes != 0 {
				t.Fatalf("group %d reads %v to %d: no multiples of %d\n%v", k, r.Extent, r.Offset, storage.AlignBytes, p)
			}
			if !slices.ContainsFunc(p.Fixed.Spans, func(s plan.Span) bool {
				return s.Extent.Source == r.Extent.Source && s.Offset <= r.Offset &&
					r.Offset+r.Extent.Bytes <= s.Offset+s.Extent.Bytes && r.Offset-s.Offset == r.Extent.Offset-s.Extent.Offset
			}) {
				t.Fatalf("group %d reads %v to %d, which is in no read of what stays\n%v", k, r.Extent, r.Offset, p)
			}
			for at := r.Offset; at < r.Offset+r.Extent.Bytes; at += storage.AlignBytes {
				if there[at/storage.AlignBytes] {
					t.Fatalf("byte %d is read twice\n%v", at, p)
				}
				there[at/storage.AlignBytes] = true
			}
		}
		for i := p.Groups[k].First; i < p.Groups[k].End; i++ {
			for _, want := range plan.OpParts(p.Lowered.Graph, &p.Lowered.Graph.Ops[i]) {
				held, ok := plan.Covering(p.Fixed.Parts, want)
				low := held.Offset + want.Low - held.Low
				for at := low; ok && at < low+want.High-want.Low; at++ {
					if !there[at/storage.AlignBytes] {
						t.Fatalf("op %d reads byte %d of what stays before it is there\n%v", i, at, p)
					}
				}
			}
		}
	}
	if slices.Contains(there, false) {
		t.Fatalf("some of what stays is not read\n%v", p)
	}
}

// checkPacked: what is packed lies behind what is not, nothing overlaps, and all of it is made of raw bytes that lie in
// the memory for them.
func checkPacked(t failer, p *plan.Plan) {
	f := &p.Fixed
	var end int64
	for _, s := range f.Spans {
		if p.Target.Direct {
			end = max(end, s.Offset+s.Extent.Bytes)
		}
	}
	made := make([]int64, len(f.Packed))
	for i := range f.Packed {
		c := &f.Packed[i]
		if i == 0 {
			for _, part := range f.Parts {
				end = max(end, part.Offset+part.High-part.Low)
			}
		}
		if c.Offset < end || c.Offset%p.Target.AlignBytes != 0 || c.Offset+c.Pack.Bytes > f.Bytes {
			t.Fatalf("%d packed bytes at %d of %d, where %d are taken\n%v", c.Pack.Bytes, c.Offset, f.Bytes, end, p)
		}
		end = c.Offset + c.Pack.Bytes
	}
	least, g := int64(0), p.Lowered.Graph
	for i := range f.Packed {
		c := &f.Packed[i]
		least = max(least, leastPacking(p, c))
		for k := range g.Ops {
			for in, o := range g.Ops[k].In {
				part, ok := plan.Part{}, false
				if o.Value == c.Operand.Value {
					part, ok = plan.OperandPart(g, o)
				}
				if ok && !c.Copy && part.Low < c.High && c.Low < part.High &&
					!(sameLayout(o.Layout, c.Operand.Layout) && c.TakenBy(&p.Lowered.Steps[k], in)) {
					t.Fatalf("op %d reads value %d otherwise than it is packed, not as a copy\n%v", k, o.Value, p)
				}
			}
		}
	}
	if most := max(p.PassBytes()-f.Bytes, f.Bytes/smallPart, least); f.PackingBytes > most+storage.AlignBytes {
		t.Fatalf("%d bytes for packing, want no more than %d\n%v", f.PackingBytes, most, p)
	}
	for _, k := range f.Packings {
		for _, piece := range k.Pieces {
			c := &f.Packed[piece.Of]
			if piece.Offset != c.Offset+made[piece.Of] || piece.Part.Offset < 0 ||
				piece.Part.Offset+piece.Part.High-piece.Part.Low > f.PackingBytes {
				t.Fatalf("a piece at %d, %d of %d bytes were made\n%v", piece.Offset, made[piece.Of], c.Pack.Bytes, p)
			}
			made[piece.Of] += piece.Bytes
		}
	}
	for i, n := range made {
		if n != f.Packed[i].Pack.Bytes {
			t.Fatalf("%d of %d bytes are packed", n, f.Packed[i].Pack.Bytes)
		}
	}
}

// checkActivations: every op's operands were made, by an op or a copy, and nothing else lies there until they were
// read.
func checkActivations(t failer, p *plan.Plan) {
	g := p.Lowered.Graph
	size := func(id int) int64 {
		if place := &p.Places[id]; place.Stride == 0 {
			return place.Bytes
		}
		return p.Places[id].Stride*int64(p.Instances-1) + p.Places[id].Bytes
	}
	for id := range p.Places {
		place := &p.Places[id]
		if place.First >= 0 && place.Bytes > 0 && (place.Offset < 0 || place.Offset+size(id) > p.ActivationBytes) {
			t.Fatalf("value %d lies at %d of %d", id, place.Offset, p.ActivationBytes)
		}
	}
	made := make([]bool, len(g.Values))
	alive := func(id graph.ValueID, op int) {
		if place := &p.Places[id]; op < place.First || op > place.Last {
			t.Fatalf("op %d has to do with value %d, which is alive from %d to %d", op, id, place.First, place.Last)
		}
	}
	use := func(id graph.ValueID, op int) {
		if role := g.Values[id].Role; role != graph.Computed && role != graph.Input {
			return
		}
		if !made[id] {
			t.Fatalf("op %d reads value %d, which nothing made\n%v", op, id, p)
		}
		alive(id, op)
	}
	given := make([]bool, len(g.Outputs))
	for i := range p.Groups {
		group := &p.Groups[i]
		for _, id := range group.Inputs {
			made[id] = true
			alive(id, group.First)
		}
		for _, s := range group.SwapIn {
			made[s.Value] = true
			alive(s.Value, group.First)
		}
		for k := group.First; k < group.End; k++ {
			for _, o := range g.Ops[k].In {
				if o.Value != graph.NoValue {
					use(o.Value, k)
				}
			}
			for _, id := range g.Ops[k].Out {
				made[id] = true
				alive(id, k)
			}
		}
		for _, s := range group.SwapOut {
			use(s.Value, group.End-1)
		}
		for _, k := range group.Outputs {
			use(g.Outputs[k].Operand.Value, max(group.End-1, 0))
			given[k] = true
		}
		if p.Instances == 1 {
			continue
		}
		for id := range made { // the next instance overwrites it
			if made[id] && p.Places[id].Stride == 0 && g.Values[id].Role != graph.Const {
				made[id] = false
			}
		}
	}
	if slices.Contains(given, false) {
		t.Fatalf("outputs given: %v", given)
	}
}

// checkSwaps: what comes back from host memory is what left, and nothing else was put there meanwhile.
func checkSwaps(t failer, p *plan.Plan) {
	type there struct {
		low, high int64
		bytes     int64
	}
	var held []there
	for i := range p.Groups {
		group := &p.Groups[i]
		for _, s := range group.SwapIn {
			n := p.Lowered.Graph.Values[s.Value].Bytes()
			at := slices.IndexFunc(held, func(h there) bool { return h.low == s.Offset && h.bytes == n })
			if at < 0 {
				t.Fatalf("value %d comes back from %d, and nothing is there", s.Value, s.Offset)
			}
			if !slices.ContainsFunc(p.Lowered.Graph.Ops[group.First:group.End], func(op graph.Op) bool {
				return slices.ContainsFunc(op.In, func(o graph.Operand) bool { return o.Value == s.Value })
			}) {
				t.Fatalf("value %d comes back for group %d, which does not read it\n%v", s.Value, i, p)
			}
		}
		for _, s := range group.SwapOut {
			n := p.Lowered.Graph.Values[s.Value].Bytes()
			now := there{s.Offset, s.Offset + int64(p.Instances)*s.Stride, n}
			if n > s.Stride || now.high > p.SwapBytes {
				t.Fatalf("value %d goes to %d of %d", s.Value, s.Offset, p.SwapBytes)
			}
			held = slices.DeleteFunc(held, func(h there) bool { return h.low < now.high && now.low < h.high })
			held = append(held, now)
		}
	}
}
