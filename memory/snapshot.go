package memory

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// WriteSnapshot writes what a pass of a plan takes, and when, as torch.cuda.memory._snapshot() does what PyTorch's allocator
// did, so that https://pytorch.org/memory_viz and python -m torch.cuda._memory_viz show it: an arena is a segment, and what lies in it
// is allocated and freed in the order of the pass. Devices are numbered in the plan's order. Times are those that the plan expects.
func WriteSnapshot(w io.Writer, p *plan.Plan) error {
	var segments, traces list
	for i, part := range partsOf(p) {
		d := newSnapshot(part.plan, int64(i))
		d.pass()
		segments = append(segments, d.segments()...)
		traces = append(traces, d.trace)
	}
	return pickled(w, dict{{"segments", segments}, {"device_traces", traces}})
}

// Addresses are as large as a GPU's, arenas begin at multiples of what PyTorch's do, and devices are apart.
const (
	firstAddress = int64(0x7f00_0000_0000)
	deviceBytes  = int64(1) << 40
	arenaBytes   = int64(2) << 20
)

// A snapshot is the memory of one device over a pass.
type snapshot struct {
	*plan.Plan
	device int64
	arenas []*arena
	trace  list
	// seconds is the time of the pass so far.
	seconds float64
}

// An arena is one allocation, with the blocks that are in use by where they begin.
type arena struct {
	address, bytes int64
	blocks         map[int64]block
}

type block struct {
	bytes int64
	frame list
}

func newSnapshot(p *plan.Plan, device int64) *snapshot {
	return &snapshot{Plan: p, device: device, trace: list{}}
}

// arena takes an arena.
func (s *snapshot) arena(bytes int64) *arena {
	at := firstAddress + s.device*deviceBytes
	for _, a := range s.arenas {
		at = a.address + (a.bytes+arenaBytes-1)/arenaBytes*arenaBytes
	}
	a := &arena{at, bytes, make(map[int64]block)}
	if s.arenas = append(s.arenas, a); bytes > 0 {
		s.event("segment_alloc", at, bytes, list{})
	}
	return a
}

func (s *snapshot) event(action string, address, bytes int64, frames list) {
	s.trace = append(s.trace, dict{
		{"action", action}, {"addr", address}, {"size", bytes}, {"stream", int64(0)},
		{"time_us", int64(s.seconds * 1e6)},
		{"frames", frames},
	})
}

// take marks bytes of an arena as in use, give as free.
func (s *snapshot) take(a *arena, offset, bytes int64, frames list) {
	if bytes > 0 {
		a.blocks[offset] = block{bytes, frames}
		s.event("alloc", a.address+offset, bytes, frames)
	}
}

func (s *snapshot) give(a *arena, offset int64) {
	b, taken := a.blocks[offset]
	if !taken {
		return
	}
	delete(a.blocks, offset)
	s.event("free_requested", a.address+offset, b.bytes, b.frame)
	s.event("free_completed", a.address+offset, b.bytes, b.frame)
}

// framesOf is what the viewer shows of an allocation, as it does the stack of Python.
func framesOf(name, where string, line int) list {
	return list{dict{{"name", name}, {"filename", cmp.Or(where, "(program)")}, {"line", int64(line)}}}
}

// pass takes and gives what a pass does.
func (s *snapshot) pass() {
	g := s.Lowered.Graph
	fixed, consts, ring := s.arena(s.Fixed.Bytes), s.arena(s.ConstBytes), s.arena(s.RingBytes)
	activations, work := s.arena(s.ActivationBytes), s.arena(s.WorkBytes)
	stay := weightsAt(g, s.Fixed.Parts, Weight)
	for i := range s.Fixed.Packed {
		c := &s.Fixed.Packed[i]
		x := extentOf(g, c.Operand.Value, Packed)
		x.low, x.high = c.Offset, c.Offset+c.Pack.Bytes
		stay = append(stay, x)
	}
	s.stays(fixed, stay)
	s.stays(consts, weightsAt(g, s.Consts, Constant))
	for _, c := range cachesOf(s.Plan) { // each in memory of its own
		s.take(s.arena(c.Bytes), 0, c.Bytes, framesOf(c.Name, Cache, 0))
	}

	tenants := s.Tenants()
	begins, ends := make([][]int, len(g.Ops)+1), make([][]int, len(g.Ops)+1)
	for i, t := range tenants {
		first := min(t.First, len(g.Ops))
		begins[first] = append(begins[first], i)
		last := min(max(t.Last, first), max(len(g.Ops)-1, 0))
		ends[last] = append(ends[last], i)
	}
	visits, brought := s.visits(), 0
	done := 0
	for k := range s.Groups {
		group := &s.Groups[k]
		for ; brought < len(visits) && visits[brought].need <= done; brought++ {
			x := &s.Groups[visits[brought].group]
			s.take(ring, x.SlotOffset, x.SlotBytes, framesOf("weights of "+x.Name(), x.Path, visits[brought].group))
		}
		each := group.Seconds * float64(max(s.Instances, 1)) / float64(max(group.End-group.First, 1))
		for i := group.First; i < group.End; i++ {
			op := &g.Ops[i]
			for _, t := range begins[i] {
				s.takeTenant(activations, tenants[t])
			}
			s.take(work, 0, s.Lowered.Steps[i].WorkBytes, framesOf("workspace of "+string(op.Kind), op.Path, i))
			s.seconds += each
			s.give(work, 0)
			for _, t := range ends[i] {
				s.give(activations, tenants[t].Offset)
			}
		}
		if group.Paged() {
			done++
			s.give(ring, group.SlotOffset)
		}
	}
}

// takeTenant marks the bytes of an activation as in use.
func (s *snapshot) takeTenant(a *arena, t plan.Tenant) {
	g := s.Lowered.Graph
	id := t.Values[0]
	name, where := cmp.Or(g.Values[id].Name, fmt.Sprintf("value %d", id)), "input"
	if g.Values[id].Role != graph.Input && t.First < len(g.Ops) {
		op := &g.Ops[t.First]
		where = cmp.Or(op.Source, op.Path)
	}
	s.take(a, t.Offset, t.Bytes, framesOf(name, where, t.First))
}

// stays marks what stays as in use: bytes that several weights share are the first one's.
func (s *snapshot) stays(a *arena, all []extent) {
	slices.SortStableFunc(
		all, func(x, y extent) int { return cmp.Or(cmp.Compare(x.low, y.low), cmp.Compare(y.high, x.high)) },
	)
	var end int64
	for i := range all {
		x := &all[i]
		if low := max(x.low, end); x.high > low {
			s.take(a, low, x.high-low, framesOf(x.Name, x.Kind, 0))
			end = x.high
		}
	}
}

// A visit is a group that is brought, once so many before it are done.
type visit struct{ group, need int }

func (s *snapshot) visits() []visit {
	var list []visit
	for k := range s.Groups {
		if s.Groups[k].Paged() {
			need := 0
			if after := s.Groups[k].After; after > 0 {
				need = len(list) - after + 1
			}
			list = append(list, visit{k, need})
		}
	}
	return list
}

// segments are the arenas as the pass leaves them.
func (s *snapshot) segments() list {
	var all list
	for _, a := range s.arenas {
		if a.bytes == 0 {
			continue
		}
		offsets := make([]int64, 0, len(a.blocks))
		for at := range a.blocks {
			offsets = append(offsets, at)
		}
		slices.Sort(offsets)
		var blocks list
		var end, active int64
		add := func(low, bytes int64, state string, frames list) {
			if bytes > 0 {
				blocks = append(blocks, dict{
					{"address", a.address + low}, {"size", bytes}, {"requested_size", bytes}, {"state", state},
					{"frames", frames},
				})
			}
		}
		for _, at := range offsets {
			b := a.blocks[at]
			add(end, at-end, "inactive", list{})
			add(at, b.bytes, "active_allocated", b.frame)
			end, active = at+b.bytes, active+b.bytes
		}
		add(end, a.bytes-end, "inactive", list{})
		all = append(all, dict{
			{"device", s.device}, {"address", a.address}, {"total_size", a.bytes}, {"allocated_size", active},
			{"active_size", active},
			{"requested_size", active}, {"stream", int64(0)}, {"segment_type", "large"},
			{"segment_pool_id", pair{int64(0), int64(0)}},
			{"is_expandable", false}, {"frames", list{}}, {"blocks", blocks},
		})
	}
	return all
}
