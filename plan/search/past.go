package search

import (
	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// worthPast is what part of a pass's time reading past the page cache must leave at most to be worth it: the disk may be wanted
// by others.
const worthPast = 0.995

// Past returns a plan that reads what is paged from the disk, also what the page cache holds, if that is expected to be
// faster than p: copying out of the page cache takes processors from ops, while a disk that brings weights as fast as ops
// want them takes next to nothing of them. o is what p was planned with but for the rates, which are the disk's, and cached
// has those of p. l is the graph. Past returns p where it is not faster, the disk's rate was not measured, or there is but one pass.
func Past(p *plan.Plan, l *graph.Lowered, o Options, cached cost.Rates) *plan.Plan {
	if !o.Rates.Measured || p.Once || p.Sides != nil || !p.Target.Direct || p.MovedBytes == 0 ||
		cached.OutOfCache(p.MovedBytes) <= (1-worthPast)*p.Forecast.Seconds || !readsPast(p) {
		return p
	}
	q, err := Plan(l, o)
	if err != nil || q.Sides != nil || q.Forecast.Seconds > worthPast*p.Forecast.Seconds || !readsPast(q) {
		return p
	}
	q.PastCache = true
	return q
}

// readsPast reports whether all files of which a plan pages something can be read past the page cache.
func readsPast(p *plan.Plan) bool {
	known := make(map[storage.Source]bool)
	for i := range p.Groups {
		if p.Groups[i].Decoded {
			continue
		}
		for _, s := range p.Groups[i].Spans {
			source := s.Extent.Source
			if packed, ok := source.(storage.BlockSource); ok {
				source = packed.File()
			}
			if !known[source] {
				past, ok := source.(storage.PastSource)
				if !ok || !past.ReadsPast() {
					return false
				}
				known[source] = true
			}
		}
	}
	return true
}
