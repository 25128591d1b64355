package plan

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// maxGapBytes is the largest run of bytes that nobody wants and that is read all the same, to make one read of two.
const maxGapBytes = 64 << 10

// spans finds the reads that bring parts, and gives each part the offset of its first byte behind base. Reads begin and
// end at multiples of [tensor.AlignBytes], as reading past the page cache demands; neighbours in the file become one
// read. It returns the bytes that all of them take.
func spans(g *layers.Graph, parts []Part, base int64) ([]Span, int64) {
	order := make([]int, 0, len(parts))
	sources := make(map[tensor.Source]int)
	for i := range parts {
		src := g.Values[parts[i].Value].Weight.Extent.Source
		if _, ok := sources[src]; !ok {
			sources[src] = len(sources)
		}
		order = append(order, i)
	}
	at := func(i int) (source int, low, high int64) {
		e := g.Values[parts[i].Value].Weight.Extent
		return sources[e.Source], e.Offset + parts[i].Low, e.Offset + parts[i].High
	}
	slices.SortStableFunc(order, func(i, j int) int {
		si, li, _ := at(i)
		sj, lj, _ := at(j)
		return cmp.Or(cmp.Compare(si, sj), cmp.Compare(li, lj))
	})
	var list []Span
	var used int64
	lastSource := -1
	for _, i := range order {
		source, low, high := at(i)
		start := low / tensor.AlignBytes * tensor.AlignBytes
		end := (high + tensor.AlignBytes - 1) / tensor.AlignBytes * tensor.AlignBytes
		if n := len(list); n > 0 && source == lastSource {
			last := &list[n-1]
			reach := last.Extent.Offset + last.Extent.Bytes
			if start <= reach+maxGapBytes {
				if end > reach {
					used += end - reach
					last.Extent.Bytes += end - reach
				}
				parts[i].Offset = base + last.Offset + low - last.Extent.Offset
				continue
			}
		}
		lastSource = source
		list = append(list, Span{
			Extent: tensor.Extent{Source: g.Values[parts[i].Value].Weight.Extent.Source, Offset: start, Bytes: end - start},
			Offset: used,
		})
		parts[i].Offset = base + used + low - start
		used += end - start
	}
	for i := range list {
		list[i].Offset += base
	}
	return list, used
}
