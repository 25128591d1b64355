package search

import (
	"cmp"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// cut divides the ops of a graph into groups: runs of ops under one cut point, each with the parts of weights that its
// ops read. Ops that read none join the group before them, and at the start of the program the one after.
func cut(g *graph.Graph, limit plan.Limit) []plan.Group {
	point := cutPoints(g, limit)
	var groups []plan.Group
	for i := range g.Ops {
		path, parts := point(g.Ops[i].Path), plan.OpParts(g, &g.Ops[i])
		n := len(groups)
		switch {
		case n > 0 && len(groups[n-1].Parts) == 0 && len(parts) > 0:
			groups[n-1].Path = path
		case n == 0 || len(parts) > 0 && groups[n-1].Path != path:
			groups = append(groups, plan.Group{Path: path, First: i})
		}
		last := &groups[len(groups)-1]
		last.End = i + 1
		last.Parts = append(last.Parts, parts...)
	}
	if groups == nil {
		return []plan.Group{{}} // no op: inputs and weights that go out as they are
	}
	count(g, groups)
	return groups
}

// cutParts divides the groups of a graph for the graph in which ops were split by rows, where from has the op that each
// op was made from: every part is a group of its own. It returns the groups and which of the old ones each is of. In
// groups whose slots are larger than mostBytes, ops that could be split begin a group, too.
func cutParts(old []plan.Group, g *graph.Graph, from []int, mostBytes int64) ([]plan.Group, []int) {
	parts := make(map[int]int) // how many ops an op became
	for _, k := range from {
		parts[k]++
	}
	var groups []plan.Group
	var origin []int
	at := 0
	for k := range old {
		first := len(groups)
		for ; at < len(g.Ops) && from[at] < old[k].End; at++ {
			op := &g.Ops[at]
			reads := plan.OpParts(g, op)
			rows, _ := rewrite.SplittableRows(g, op)
			isPart := parts[from[at]] > 1 && len(reads) > 0
			alone := isPart || rows > 0 && old[k].SlotBytes > mostBytes
			n := len(groups)
			switch {
			case n == first, len(reads) > 0 && len(groups[n-1].Parts) > 0 && (alone || groups[n-1].EndRow > 0):
				groups, origin = append(groups, sameModule(&old[k], at, at)), append(origin, k)
			}
			group := &groups[len(groups)-1]
			group.End = at + 1
			group.Parts = append(group.Parts, reads...)
			if isPart {
				group.FirstRow, group.EndRow = partRows(g, op)
			}
		}
		if len(groups) == first { // a group without ops
			groups, origin = append(groups, sameModule(&old[k], at, at)), append(origin, k)
		}
		if old[k].Joined != nil {
			for i := first; i < len(groups); i++ {
				joinedFrom(&groups[i], &old[k], from)
			}
		}
	}
	count(g, groups)
	return groups, origin
}

// joinedWith returns which of the modules joined to the group an op of it is of, −1 where none were.
func joinedWith(g *plan.Group, op int) int {
	end := g.First
	for k := range g.Joined {
		if end += g.Joined[k].Ops; op < end {
			return k
		}
	}
	return -1
}

// joinedFrom says which modules the group is of that was made from a part of one that modules were joined to, where
// from has the op that each op was made from.
func joinedFrom(g *plan.Group, old *plan.Group, from []int) {
	last := -1
	for _, op := range from[g.First:g.End] {
		if layer := joinedWith(old, op); layer != last {
			g.Joined, last = append(g.Joined, plan.Layer{Path: old.Joined[layer].Path}), layer
		}
		g.Joined[len(g.Joined)-1].Ops++
	}
	if len(g.Joined) == 1 {
		g.Path, g.Joined = g.Joined[0].Path, nil
	}
}

// sameModule returns a group of the same module with the ops [first, end).
func sameModule(g *plan.Group, first, end int) plan.Group {
	return plan.Group{Path: g.Path, First: first, End: end}
}

// partRows returns which rows of its weight a part of an op reads.
func partRows(g *graph.Graph, op *graph.Op) (first, end int) {
	if op.Kind == "embedding_rows" {
		first = op.Attrs.Int("low")
		return first, first + op.In[0].Layout.Shape[0]
	}
	w, dim := op.In[1].Layout, rewrite.SplitDim(op.Kind)
	first = w.Offset / w.Strides[dim]
	return first, first + w.Shape[dim]
}

// count merges the parts of each group and counts what they hold, of each of its modules, too.
func count(g *graph.Graph, groups []plan.Group) {
	size := func(parts []plan.Part) (params, bytes int64) {
		for _, p := range parts {
			bytes += p.High - p.Low
			params += g.Values[p.Value].Params(p.High - p.Low)
		}
		return params, bytes
	}
	for i := range groups {
		group := &groups[i]
		group.Parts = merge(group.Parts)
		group.Params, group.WeightBytes = size(group.Parts)
		op := group.First
		for k := range group.Joined {
			layer := &group.Joined[k]
			var parts []plan.Part
			for range layer.Ops {
				parts = append(parts, plan.OpParts(g, &g.Ops[op])...)
				op++
			}
			layer.Params, layer.WeightBytes = size(merge(parts))
		}
	}
}

// cutPoints returns the function from an op's module to the module at which its group is cut: the outermost one that
// has no modules below it or is no larger than the limit. A list of modules is entered whatever its size: it has no
// forward, so no op's module stack names it.
func cutPoints(g *graph.Graph, limit plan.Limit) func(path string) string {
	if limit.Unit == plan.Unset || limit.N < 0 {
		return func(path string) string { return path }
	}
	sizes := make(map[string]int64)
	counted := make(map[storage.Extent]bool)
	for _, v := range g.Values {
		if v.Role != graph.Weight && v.Role != graph.State || counted[v.Weight.Extent] {
			continue
		}
		counted[v.Weight.Extent] = true
		n := v.Bytes()
		if limit.Unit == plan.Params {
			n = v.Params(n)
		}
		owner := v.Weight.Name
		for {
			dot := strings.LastIndexByte(owner, '.')
			if dot < 0 {
				break
			}
			owner = owner[:dot]
			sizes[owner] += n
		}
	}
	called := make(map[string]bool)
	for _, op := range g.Ops {
		called[op.Path] = true
	}
	for path := range g.Modules {
		called[path] = true
	}
	return func(path string) string {
		for i := 0; i <= len(path); i++ {
			if i < len(path) && path[i] != '.' {
				continue
			}
			if prefix := path[:i]; called[prefix] && sizes[prefix] < limit.N {
				return prefix
			}
		}
		return path
	}
}

// merge returns parts as one run for each value: from the lowest byte read to the highest. (Of a weight that is split
// the parts of one group lie together.)
func merge(parts []plan.Part) []plan.Part {
	slices.SortStableFunc(parts, func(a, b plan.Part) int { return cmp.Compare(a.Value, b.Value) })
	out := parts[:0]
	for _, p := range parts {
		if n := len(out); n > 0 && out[n-1].Value == p.Value {
			out[n-1].Low, out[n-1].High = min(out[n-1].Low, p.Low), max(out[n-1].High, p.High)
			continue
		}
		out = append(out, p)
	}
	return out
}
