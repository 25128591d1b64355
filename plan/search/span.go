package search

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// maxGapBytes is the largest run of bytes that nobody wants and that is read all the same, to make one read of two.
const maxGapBytes = 64 << 10

// spans finds the reads that bring parts, and gives each part the offset of its first byte. Reads begin and end at
// multiples of [storage.AlignBytes], as reading past the page cache demands; neighbours in the file, no more than
// gapBytes apart, become one read. It returns the bytes that all of them take.
func spans(g *graph.Graph, parts []plan.Part, gapBytes int64) ([]plan.Span, int64) {
	return spansAt(g, parts, gapBytes, storage.AlignBytes)
}

// lentSpans is spans for an expert. Of packed files it has that and nothing else, since whatever lies beside it in the
// original may lie elsewhere in the file.
func lentSpans(g *graph.Graph, parts []plan.Part) ([]plan.Span, int64) {
	for i := range parts {
		if _, ok := g.Values[parts[i].Value].Weight.Extent.Source.(storage.InPlaceSource); !ok {
			return spans(g, parts, maxGapBytes)
		}
	}
	return spansAt(g, parts, 0, 1)
}

// keptAlign is what offsets in memory have in common with those in files: no element is aligned worse than there.
const keptAlign = 64

// spansAt is spans whose reads begin and end at multiples of alignBytes.
func spansAt(g *graph.Graph, parts []plan.Part, gapBytes, alignBytes int64) ([]plan.Span, int64) {
	order := make([]int, len(parts))
	sources := []storage.Source{}
	of := make([]int, len(parts))
	for i := range parts {
		src := g.Values[parts[i].Value].Weight.Extent.Source
		k := slices.Index(sources, src)
		if k < 0 {
			k = len(sources)
			sources = append(sources, src)
		}
		order[i], of[i] = i, k
	}
	at := func(i int) (source int, low, high int64) {
		e := &g.Values[parts[i].Value].Weight.Extent
		return of[i], e.Offset + parts[i].Low, e.Offset + parts[i].High
	}
	slices.SortStableFunc(order, func(i, j int) int {
		si, li, _ := at(i)
		sj, lj, _ := at(j)
		return cmp.Or(cmp.Compare(si, sj), cmp.Compare(li, lj))
	})
	list := make([]plan.Span, 0, len(parts))
	var used int64
	lastSource := -1
	for _, i := range order {
		source, low, high := at(i)
		start, end := low/alignBytes*alignBytes, plan.AlignUp(high, alignBytes)
		if n := len(list); n > 0 && source == lastSource {
			last := &list[n-1]
			reach := last.Extent.Offset + last.Extent.Bytes
			if start <= reach+gapBytes {
				if end > reach {
					last.Extent.Bytes += end - reach
					used = plan.AlignUp(last.Offset+last.Extent.Bytes, storage.AlignBytes)
				}
				parts[i].Offset = last.Offset + low - last.Extent.Offset
				continue
			}
		}
		lastSource = source
		list = append(list, plan.Span{
			Extent: storage.Extent{Source: sources[source], Offset: start, Bytes: end - start},
			Offset: used + start%keptAlign,
		})
		parts[i].Offset = used + start%keptAlign + low - start
		used = plan.AlignUp(used+start%keptAlign+end-start, storage.AlignBytes)
	}
	return list, used
}
