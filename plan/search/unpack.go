package search

import (
	"cmp"
	"errors"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// mostLandBytes is the device memory through which blocks of packed files go that the device decodes: so many that its
// processors have enough to do, and that a copy takes much longer than to begin it.
var mostLandBytes int64 = 8 << 20

// layPacked lays out a group whose blocks the device decodes, as the files have them in host memory. It reports false, and
// leaves the group as it is, where something of it is not packed, or its blocks take no less than what is wanted of them.
func (d *draft) layPacked(group *plan.Group) bool {
	g, r := d.l.Graph, d.o.Rates
	var blocks []storage.Extent
	firsts, wanted := make([]storage.Extent, len(group.Parts)), int64(0)
	for i, p := range group.Parts {
		e := g.Values[p.Value].Weight.Extent
		source, ok := e.Source.(storage.BlockSource)
		if !ok {
			return false
		}
		wanted += p.High - p.Low
		run := storage.Extent{}
		for b := range source.Blocks(e.Offset+p.Low, p.High-p.Low) {
			if run.Bytes > 0 && run.Offset+run.Bytes == b.At {
				run.Bytes += b.Stored
				continue
			}
			if run.Bytes > 0 {
				blocks = append(blocks, run)
			} else {
				firsts[i] = storage.Extent{Source: source.File(), Offset: b.At, Bytes: b.Stored}
			}
			run = storage.Extent{Source: source.File(), Offset: b.At, Bytes: b.Stored}
		}
		if run.Bytes == 0 {
			return false
		}
		blocks = append(blocks, run)
	}
	list, staged := readsOf(blocks)
	if staged >= wanted {
		return false
	}
	group.Spans, group.LandBytes = list, min(staged, mostLandBytes)
	order := make([]*plan.Part, len(group.Parts))
	for i := range group.Parts {
		p := &group.Parts[i]
		k := slices.IndexFunc(list, func(s plan.Span) bool {
			at := firsts[i].Offset - s.Extent.Offset
			return s.Extent.Source == firsts[i].Source && at >= 0 && at < s.Extent.Bytes
		})
		p.Staged, order[i] = list[k].Offset+firsts[i].Offset-list[k].Extent.Offset, p
	}
	slices.SortStableFunc(order, func(a, b *plan.Part) int { return cmp.Compare(a.Staged, b.Staged) })
	for _, p := range order {
		p.Offset = group.SlotBytes
		group.SlotBytes += plan.AlignUp(p.High-p.Low, d.o.Target.AlignBytes)
	}
	// Each time that there is room the device is given a copy, and told to decode what was copied.
	group.LoadSeconds = r.Copying(staged, 2*(len(list)+int(staged/group.LandBytes)))
	return true
}

// readsOf returns the aligned reads that bring runs of blocks, each byte once, and how many bytes they are. Runs are in
// files in the order of where they lie.
func readsOf(runs []storage.Extent) (list []plan.Span, bytes int64) {
	var sources []storage.Source
	number := func(e storage.Extent) int { return slices.Index(sources, e.Source) }
	for _, e := range runs {
		if number(e) < 0 {
			sources = append(sources, e.Source)
		}
	}
	slices.SortStableFunc(runs, func(a, b storage.Extent) int {
		return cmp.Or(cmp.Compare(number(a), number(b)), cmp.Compare(a.Offset, b.Offset))
	})
	for _, e := range runs {
		around, _ := e.Aligned()
		if n := len(list); n > 0 && list[n-1].Extent.Source == e.Source {
			last := &list[n-1].Extent
			if reach := last.Offset + last.Bytes; around.Offset <= reach {
				more := max(around.Offset+around.Bytes-reach, 0)
				last.Bytes, bytes = last.Bytes+more, bytes+more
				continue
			}
		}
		list = append(list, plan.Span{Extent: around, Offset: bytes})
		bytes += around.Bytes
	}
	return list, bytes
}

// landBytes returns the device memory through which blocks of groups go.
func landBytes(groups []plan.Group) (most int64) {
	for i := range groups {
		if groups[i].Paged() {
			most = max(most, groups[i].LandBytes)
		}
	}
	return most
}

// findUnpacked is find. Where there is too little memory for blocks that the device would decode, the host does.
func findUnpacked(l *graph.Lowered, o Options) (*plan.Plan, error) {
	p, err := find(l, o)
	var full *plan.CapacityError
	if o.Target.Unpacks && errors.As(err, &full) {
		o.Target.Unpacks = false
		return find(l, o)
	}
	return p, err
}
