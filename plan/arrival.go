package plan

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
)

// FirstReads cuts the reads of the weights that stay by the group that needs them first, so that a first pass may begin
// before all of them are there: a group runs once its own and those of the groups before it are. What no group reads is
// with the first. It is nil where all has to be there before a pass: where weights are packed, which are read to
// elsewhere; where blocks of packed files stay; where a pass before may have changed some; and where files are not read
// straight into the device's memory.
func (p *Plan) FirstReads() [][]Span {
	f := &p.Fixed
	if !p.Target.Direct || len(f.Packings)+len(f.Stored) > 0 || len(f.Spans) == 0 || len(p.Groups) == 0 {
		return nil
	}
	for _, part := range f.Parts {
		if p.Lowered.Graph.Values[part.Value].Role == graph.State {
			return nil
		}
	}
	a := arrivals{plan: p}
	for k := range p.Groups {
		a.need(k)
	}
	a.assign()
	return a.reads()
}

// arrivals find the group that needs each byte of the arena of what stays first.
type arrivals struct {
	plan *Plan
	// runs are what groups need of the arena, in the order of the groups.
	runs []arenaRun
	// cuts divide the arena so that each run is some of the pieces between them; owner is the first group that needs a
	// piece, the first where none does.
	cuts  []int64
	owner []int
}

// An arenaRun is bytes of the arena that a group needs, from and to multiples of a read's alignment.
type arenaRun struct {
	low, high int64
	group     int
}

// need lists what a group reads of what stays.
func (a *arrivals) need(group int) {
	g, at := a.plan.Lowered.Graph, &a.plan.Groups[group]
	for i := at.First; i < at.End; i++ {
		for _, o := range g.Ops[i].In {
			a.operand(o, group)
		}
		for _, guard := range g.Ops[i].Guard {
			a.operand(guard.Predicate, group)
		}
	}
	for _, output := range at.Outputs {
		a.operand(g.Outputs[output].Operand, group)
	}
}

func (a *arrivals) operand(o graph.Operand, group int) {
	if o.Value == graph.NoValue {
		return
	}
	part, ok := OperandPart(a.plan.Lowered.Graph, o)
	if !ok {
		return
	}
	if held, ok := Covering(a.plan.Fixed.Parts, part); ok {
		low, high := held.Offset+part.Low-held.Low, held.Offset+part.High-held.Low
		low -= low % storage.AlignBytes
		a.runs = append(a.runs, arenaRun{low, AlignUp(high, storage.AlignBytes), group})
	}
}

// assign gives each piece of the arena to the first group that needs it.
func (a *arrivals) assign() {
	for _, s := range a.plan.Fixed.Spans {
		a.cuts = append(a.cuts, s.Offset, s.Offset+s.Extent.Bytes)
	}
	for _, r := range a.runs {
		a.cuts = append(a.cuts, r.low, r.high)
	}
	slices.Sort(a.cuts)
	a.cuts = slices.Compact(a.cuts)
	a.owner = make([]int, len(a.cuts))
	// next is the first piece from a given one on that has no owner, or one on the way to it.
	next := make([]int, len(a.cuts)+1)
	for i := range next {
		next[i] = i
	}
	free := func(i int) int {
		for next[i] != i {
			next[i] = next[next[i]]
			i = next[i]
		}
		return i
	}
	for _, r := range a.runs {
		first, _ := slices.BinarySearch(a.cuts, r.low)
		for i := free(first); i < len(a.cuts) && a.cuts[i] < r.high; i = free(i) {
			a.owner[i], next[i] = r.group, i+1
		}
	}
}

// reads lists the reads of each group, in the order of the arena.
func (a *arrivals) reads() [][]Span {
	reads := make([][]Span, len(a.plan.Groups))
	for _, s := range a.plan.Fixed.Spans {
		end := s.Offset + s.Extent.Bytes
		i, _ := slices.BinarySearch(a.cuts, s.Offset)
		for ; a.cuts[i] < end; i++ {
			low, list := a.cuts[i], &reads[a.owner[i]]
			bytes := a.cuts[i+1] - low
			if n := len(*list); n > 0 && (*list)[n-1].Offset+(*list)[n-1].Extent.Bytes == low && low > s.Offset {
				(*list)[n-1].Extent.Bytes += bytes
				continue
			}
			from := storage.Extent{Source: s.Extent.Source, Offset: s.Extent.Offset + low - s.Offset, Bytes: bytes}
			*list = append(*list, Span{Extent: from, Offset: low})
		}
	}
	return reads
}
