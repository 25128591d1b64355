package search

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A failer is a test or a property.
type failer interface{ Fatalf(string, ...any) }

// A memory is what was last written to each of its bytes.
type memory []written

// A written is a run of bytes with one content.
type written struct {
	low, high int64
	what      content
}

// A content is bytes of a file, of a value of an instance, or of a packed weight. From is where its byte 0 lies.
type content struct {
	file     storage.Source
	value    graph.ValueID
	instance int
	packed   int
	from     int64
}

// write puts bytes somewhere: what was there is gone.
func (m *memory) write(low, bytes int64, what content) {
	high := low + bytes
	var now memory
	for _, w := range *m {
		if w.low < low {
			now = append(now, written{w.low, min(w.high, low), w.what})
		}
		if w.high > high {
			now = append(now, written{max(w.low, high), w.high, w.what})
		}
	}
	if bytes > 0 {
		now = append(now, written{low, high, what})
	}
	*m = now
}

// has reports whether all of the bytes are as they were written.
func (m memory) has(low, bytes int64, what content) bool {
	high := low + bytes
	for _, w := range m {
		if w.what == what && w.low < high && low < w.high {
			bytes -= min(w.high, high) - max(w.low, low)
		}
	}
	return bytes == 0
}

// bring reads spans into the memory, which begins at byte at of it.
func (m *memory) bring(list []plan.Span, at int64) {
	for _, s := range list {
		m.write(at+s.Offset, s.Extent.Bytes, content{file: s.Extent.Source, from: at + s.Offset - s.Extent.Offset})
	}
}

// A follower obeys a plan to the letter and as early as it allows: each slot is filled as soon as the group that it
// waits for is done, each byte is whatever was written there last. Whatever an op, an output or an update reads must be
// what the program says. It knows nothing of how plans are made.
type follower struct {
	t      failer
	p      *plan.Plan
	g      *graph.Graph
	whole  *graph.Graph // the program, where the plan has the same ops, beside those that compute anew
	number []int        // of the program's op that each op is, or computes anew
	origin map[graph.ValueID]graph.ValueID
	// The device's memory and the host's.
	fixed, ring, activations, swaps memory
	loaded                          int // of all visits
	visits                          []int
}

// follow follows three passes of a plan for a graph.
func follow(t failer, p *plan.Plan, whole *graph.Graph) {
	f := &follower{t: t, p: p, g: p.Lowered.Graph, origin: make(map[graph.ValueID]graph.ValueID)}
	anew := make(map[int]graph.ValueID)
	for k := range p.Groups {
		for _, a := range p.Groups[k].Again {
			if a.Op < p.Groups[k].First || a.Op >= p.Groups[k].End {
				t.Fatalf("group %d does not have op %d, which computes anew\n%v", k, a.Op, p)
			}
			anew[a.Op] = a.Value
			f.origin[f.g.Ops[a.Op].Out[0]] = a.Value
		}
	}
	if len(f.g.Ops) == len(whole.Ops)+len(anew) {
		f.whole = whole
	}
	next := 0
	for i := range f.g.Ops {
		value, again := anew[i]
		if !again {
			f.number, next = append(f.number, next), next+1
			continue
		}
		maker := slices.IndexFunc(f.g.Ops[:i], func(op graph.Op) bool { return slices.Contains(op.Out, value) })
		if maker < 0 || f.g.Ops[maker].Kind != f.g.Ops[i].Kind {
			t.Fatalf("op %d computes value %d anew, which no such op has made\n%v", i, value, p)
		}
		f.number = append(f.number, f.number[maker])
	}
	for k := range p.Groups {
		if p.Groups[k].Paged() {
			f.visits = append(f.visits, k)
		}
	}
	reads := p.FirstReads()
	if reads == nil {
		f.bringFixed()
	}
	visit := 0
	for pass := range 3 {
		for k := range p.Groups {
			if pass == 0 && reads != nil {
				f.fixed.bring(reads[k], 0)
			}
			if p.Groups[k].Paged() {
				f.load(visit)
				visit++
			}
			f.group(k)
		}
		f.updates()
	}
}

// bringFixed brings what stays, and packs what is packed.
func (f *follower) bringFixed() {
	x := &f.p.Fixed
	if f.p.Target.Direct {
		f.fixed.bring(x.Spans, 0)
		for i, s := range x.Stored {
			f.fixed.write(s.Offset, s.Bytes, storedContent(i))
		}
	} else {
		f.copyParts(x.Spans, x.Parts, &f.fixed, 0)
	}
	var raw memory
	for k := range x.Packings {
		list := x.Packings[k].Spans
		parts := make([]plan.Part, len(x.Packings[k].Pieces))
		for i := range parts {
			parts[i] = x.Packings[k].Pieces[i].Part
		}
		if !f.p.Target.Direct {
			f.copyParts(list, parts, &raw, 0)
		} else {
			raw.bring(list, 0)
		}
		// The next packing's bytes may come already, where these lie elsewhere.
		if next := k + 1; next < len(x.Packings) && f.p.Target.Direct && apart(list, x.Packings[next].Spans) {
			raw.bring(x.Packings[next].Spans, 0)
		}
		for i := range parts {
			piece := &x.Packings[k].Pieces[i]
			c := &x.Packed[piece.Of]
			part, _ := plan.OperandPart(f.g, piece.Operand)
			if part.Low < c.Low || part.High > c.High || part.Low < parts[i].Low || part.High > parts[i].High {
				f.t.Fatalf("a piece of bytes %d to %d of %d to %d, of which %d to %d are read\n%v",
					part.Low, part.High, c.Low, c.High, parts[i].Low, parts[i].High, f.p)
			}
			if !raw.has(parts[i].Offset, parts[i].High-parts[i].Low, f.fileOf(parts[i])) {
				f.t.Fatalf("packing %d: the raw bytes of piece %d are not there\n%v", k, i, f.p)
			}
			f.fixed.write(piece.Offset, piece.Bytes, content{packed: piece.Of + 1, from: c.Offset})
		}
	}
}

func apart(a, b []plan.Span) bool {
	return !slices.ContainsFunc(a, func(s plan.Span) bool {
		return slices.ContainsFunc(b, func(t plan.Span) bool {
			return s.Offset < t.Offset+t.Extent.Bytes && t.Offset < s.Offset+s.Extent.Bytes
		})
	})
}

// fileOf is a part as it lies in its file, at the part's offset.
func (f *follower) fileOf(part plan.Part) content {
	e := f.g.Values[part.Value].Weight.Extent
	return content{file: e.Source, from: part.Offset - e.Offset - part.Low}
}

// copyParts reads spans into host memory and copies parts from there to memory of the device that begins at byte at.
func (f *follower) copyParts(list []plan.Span, parts []plan.Part, to *memory, at int64) {
	var host memory
	host.bring(list, 0)
	for _, part := range parts {
		e := f.g.Values[part.Value].Weight.Extent
		if !host.has(part.Staged, part.High-part.Low, content{file: e.Source, from: part.Staged - e.Offset - part.Low}) {
			f.t.Fatalf("value %d is not at %d of host memory\n%v", part.Value, part.Staged, f.p)
		}
		part.Offset += at
		to.write(part.Offset, part.High-part.Low, f.fileOf(part))
	}
}

// load fills all slots that may be filled before a visit, which must be there then.
func (f *follower) load(visit int) {
	n := len(f.visits)
	for f.loaded <= visit+n {
		group := &f.p.Groups[f.visits[f.loaded%n]]
		if before := f.loaded - group.After; group.After > 0 && before >= visit {
			break // it is not done
		}
		if f.p.Target.Direct {
			f.decodes(group)
			f.ring.bring(group.Spans, group.SlotOffset)
		} else {
			f.copyParts(group.Spans, group.Parts, &f.ring, group.SlotOffset)
		}
		f.loaded++
	}
	if f.loaded <= visit {
		f.t.Fatalf("visit %d waits for one that comes after it\n%v", visit, f.p)
	}
}

// storedContent is that of blocks that stay.
func storedContent(i int) content { return content{packed: -1 - i} }

// decodes looks whether the blocks stay from which a group is decoded.
func (f *follower) decodes(group *plan.Group) {
	for _, s := range group.Spans {
		if !group.Decoded {
			return
		}
		i := slices.IndexFunc(f.p.Fixed.Stored, func(b plan.Stored) bool {
			return b.Extent.Source == s.Extent.Source && b.Extent.Offset <= s.Extent.Offset &&
				s.Extent.Offset+s.Extent.Bytes <= b.Extent.Offset+b.Extent.Bytes
		})
		if i < 0 {
			f.t.Fatalf("%s is decoded from blocks that do not stay\n%v", group.Name(), f.p)
		}
		b := f.p.Fixed.Stored[i]
		if b.Offset+b.Bytes > f.p.Fixed.Bytes || !f.fixed.has(b.Offset, b.Bytes, storedContent(i)) {
			f.t.Fatalf("the blocks of %s are not there\n%v", group.Name(), f.p)
		}
	}
}

// group runs a group for all instances.
func (f *follower) group(k int) {
	group := &f.p.Groups[k]
	for instance := range f.p.Instances {
		for _, id := range group.Inputs {
			f.write(id, instance, id)
		}
		for _, s := range group.SwapIn {
			f.swapIn(s, instance)
		}
		for i := group.First; i < group.End; i++ {
			f.op(k, i, instance)
		}
		for _, out := range group.Outputs {
			f.read("an output of", k, f.g.Outputs[out].Operand, instance, nil, 0)
		}
		for _, s := range group.SwapOut {
			f.read("what leaves", k, f.g.Whole(s.Value), instance, nil, 0)
			f.mayLeave(s.Value)
			f.swaps.write(s.Offset+int64(instance)*s.Stride, f.p.Places[s.Value].Bytes,
				content{value: f.originOf(s.Value), instance: instance, from: s.Offset + int64(instance)*s.Stride})
		}
	}
}

func (f *follower) originOf(id graph.ValueID) graph.ValueID {
	if from, ok := f.origin[id]; ok {
		return from
	}
	return id
}

// place is where an instance's value lies, and where the next one's begins.
func (f *follower) place(id graph.ValueID, instance int) (low, bytes int64) {
	place := &f.p.Places[id]
	return place.Offset + int64(instance)*place.Stride, place.Bytes
}

// write writes a value to where it belongs, with the content of another.
func (f *follower) write(id graph.ValueID, instance int, of graph.ValueID) {
	if f.p.Places[id].First >= 0 {
		low, bytes := f.place(id, instance)
		f.activations.write(low, bytes, content{value: of, instance: instance, from: low})
	}
}

// swapIn copies back what lies in host memory.
func (f *follower) swapIn(s plan.Swap, instance int) {
	low, bytes := s.Offset+int64(instance)*s.Stride, f.g.Values[s.Value].Bytes()
	for _, w := range f.swaps {
		if w.low == low && w.high == low+bytes && w.what.instance == instance && w.what.from == low {
			f.origin[s.Value] = w.what.value
			f.write(s.Value, instance, w.what.value)
			return
		}
	}
	f.t.Fatalf("value %d of instance %d comes back from %d, where it is not\n%v", s.Value, instance, low, f.p)
}

// mayLeave fails for a value that has to be known by its number: one that becomes a state, or that may not have been
// made.
func (f *follower) mayLeave(id graph.ValueID) {
	id = f.originOf(id)
	for _, u := range f.g.Updates {
		if f.originOf(u.Operand.Value) == id {
			f.t.Fatalf("value %d leaves and becomes a state\n%v", id, f.p)
		}
	}
	for i := range f.g.Ops {
		if op := &f.g.Ops[i]; len(op.Guard) > 0 && slices.Contains(op.Out, id) {
			f.t.Fatalf("value %d leaves, and op %d may not make it\n%v", id, i, f.p)
		}
	}
}

// op runs an op.
func (f *follower) op(group, i, instance int) {
	op := &f.g.Ops[i]
	for k, guard := range op.Guard {
		f.read("the condition of", i, guard.Predicate, instance, nil, group)
		if f.whole != nil {
			f.same(i, guard.Predicate.Value, f.whole.Ops[f.number[i]].Guard[k].Predicate.Value)
		}
	}
	for k, o := range op.In {
		switch {
		case o.Value != graph.NoValue:
			f.read("an operand of", i, o, instance, &f.p.Lowered.Steps[i], group)
			if f.whole != nil {
				f.same(i, o.Value, f.whole.Ops[f.number[i]].In[k].Value)
			}
		case f.whole != nil && f.whole.Ops[f.number[i]].In[k].Value != graph.NoValue:
			if !slices.ContainsFunc(f.p.Gathers, func(x plan.Gather) bool { return x.Op == i }) {
				f.t.Fatalf("op %d lacks operand %d\n%v", i, k, f.p)
			}
		}
	}
	for _, id := range op.Out {
		f.write(id, instance, f.originOf(id))
	}
}

// same fails where an op reads another value than in the program.
func (f *follower) same(op int, id, want graph.ValueID) {
	if role := f.g.Values[id].Role; (role == graph.Computed || role == graph.Input) && f.originOf(id) != want {
		f.t.Fatalf("op %d reads what is value %d of the program, want %d\n%v", op, f.originOf(id), want, f.p)
	}
}

// read fails where an operand is not what it should be. Who reads it is number n; an op has a step.
func (f *follower) read(what string, n int, o graph.Operand, instance int, step *graph.Step, group int) {
	part, ok := plan.OperandPart(f.g, o)
	if !ok {
		return
	}
	switch f.g.Values[o.Value].Role {
	case graph.Const:
	case graph.Weight, graph.State:
		if !f.hasWeight(part, o, step, group) {
			f.t.Fatalf("%s %d: bytes %d to %d of weight %d are not there\n%v", what, n, part.Low, part.High, o.Value, f.p)
		}
	default:
		low, bytes := f.place(o.Value, instance)
		want := content{value: f.originOf(o.Value), instance: instance, from: low}
		if f.p.Places[o.Value].First < 0 || !f.activations.has(low, bytes, want) {
			f.t.Fatalf("%s %d: value %d of instance %d is not there\n%v", what, n, o.Value, instance, f.p)
		}
	}
}

// hasWeight reports whether bytes of a weight stay, as they are or as the op takes them, or are in the group's slot.
func (f *follower) hasWeight(part plan.Part, o graph.Operand, step *graph.Step, group int) bool {
	there := func(held []plan.Part, at int64, in memory) bool {
		return slices.ContainsFunc(held, func(h plan.Part) bool {
			if h.Value != part.Value || part.Low < h.Low || h.High < part.High {
				return false
			}
			now := part
			now.Offset = at + h.Offset + part.Low - h.Low
			return in.has(now.Offset, part.High-part.Low, f.fileOf(now))
		})
	}
	g := &f.p.Groups[group]
	if there(f.p.Fixed.Parts, 0, f.fixed) || there(g.Parts, g.SlotOffset, f.ring) {
		return true
	}
	return step != nil && slices.ContainsFunc(f.p.Fixed.Packed, func(c plan.Packed) bool {
		return c.Operand.Value == o.Value && sameLayout(c.Operand.Layout, o.Layout) &&
			slices.ContainsFunc(step.Packs, func(k graph.Pack) bool { return k.Form == c.Pack.Form }) &&
			f.fixed.has(c.Offset, c.Pack.Bytes, content{packed: f.packedIndex(&c) + 1, from: c.Offset})
	})
}

func (f *follower) packedIndex(c *plan.Packed) int {
	return slices.IndexFunc(f.p.Fixed.Packed, func(o plan.Packed) bool { return o.Offset == c.Offset })
}

// updates reads what states become.
func (f *follower) updates() {
	for k, u := range f.g.Updates {
		f.read("update", k, u.Operand, 0, nil, 0)
		if !slices.ContainsFunc(f.p.Fixed.Parts, func(h plan.Part) bool {
			return h.Value == u.State && h.Low == 0 && h.High == f.g.Values[u.State].Bytes()
		}) {
			f.t.Fatalf("state %d does not stay\n%v", u.State, f.p)
		}
	}
}
