package aten

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// catCounted puts tensors side by side that have as many rows, or rows one after the other, which moves those that count to the
// front.
func catCounted(c *call, t Target) error {
	parts := c.tensors("tensors")
	if c.err != nil || len(parts) == 0 || slices.Contains(parts, nil) {
		return fmt.Errorf("no tensors to join")
	}
	d := c.catDim(parts)
	if c.err != nil {
		return c.err
	}
	k, alike := countOf(parts)
	if k != nil && (k.dim != d || len(parts) == 1) {
		if !alike {
			return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
		}
		return c.giveSame(t, k.Count, k.dim, nil)
	}
	var masks []*Ref
	key := ""
	var counts []*Count
	plus := 0
	for _, r := range parts {
		if r.IsCounted() && r.counted.dim != d {
			return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
		}
		if r.rank() == 1 && r.shape()[0] == 0 { // does not count, whatever its shape
			continue
		}
		is, err := c.full(true, tensor.Bool, tensor.Shape{r.shape()[d]})
		key += fmt.Sprint(r.shape()[d])
		if !r.IsCounted() {
			plus += r.shape()[d]
		} else {
			counts = append(counts, r.counted.Count)
			is, err = c.among(r.counted.Count, r.shape()[d])
			key += fmt.Sprint(" of ", r.counted.value.cell.value, r.counted.value.layout.Offset)
		}
		key += ","
		if err != nil {
			return err
		}
		masks = append(masks, is)
	}
	results, err := c.bareRun(t, nil)
	if err != nil {
		return err
	}
	is, ok := c.rowsJoined[key]
	if !ok || len(c.Guard) > 0 {
		if is, err = c.cat(masks, 0); err != nil {
			return err
		}
		if c.rowsJoined == nil {
			c.rowsJoined = make(map[string]*Ref)
		}
		if len(c.Guard) == 0 { // what a branch computes is not there in another
			c.rowsJoined[key] = is
		}
	}
	out, err := c.picked(results[0].(*Ref), is, d)
	if err == nil && len(out.counted.parts) == 0 {
		out.counted.sumOf(plus, counts...)
	}
	return c.giveRef(out, err)
}

// countOf returns the count of the rows of one tensor, and whether all have the same in the same dimension.
func countOf(parts []*Ref) (k *rows, alike bool) {
	for _, r := range parts {
		if r.IsCounted() {
			k = r.counted
		}
	}
	return k, k != nil && !slices.ContainsFunc(parts, func(r *Ref) bool {
		return !r.IsCounted() || !r.counted.same(k.Count) || r.counted.dim != k.dim
	})
}

func stackCounted(c *call, t Target) error {
	parts := c.tensors("tensors")
	k, alike := countOf(parts)
	if !alike || c.err != nil {
		return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
	}
	at := k.dim
	if c.wrapDim(c.int("dim"), parts[0].rank()+1) <= at {
		at++
	}
	return c.giveSame(t, k.Count, at, nil)
}

// indexCounted takes rows by indices, as many as are counted, or those of which not the rows' dimension is indexed.
func indexCounted(c *call, t Target) error {
	name, self := "indices", "self"
	switch baseName(t.schema.target) {
	case "index_select":
		name = "index"
	case "embedding":
		self = "weight"
	}
	r := c.tensor(self)
	lists, isList := c.args[name].([]*Ref)
	if !isList {
		d := 0
		if self == "self" {
			d = c.dim("dim", r.rank())
		}
		lists = make([]*Ref, d+1)
		lists[d] = c.tensor(name)
	}
	if c.err != nil {
		return c.err
	}
	if mask, lead, ok, err := c.maskOf(r, lists); ok || err != nil {
		if err != nil {
			return err
		}
		return c.giveRef(c.picked(r, mask, lead))
	}
	lists = slices.Clone(lists)
	rank, back := 0, -1
	var k *Count
	for i, index := range lists {
		if index == nil {
			continue
		}
		rank = max(rank, index.rank())
		if r.IsCounted() && i == r.counted.dim {
			var err error
			if lists[i], err = c.amongRows(index, r.counted.Count); err != nil {
				return err
			}
		}
		if !index.IsCounted() {
			continue
		}
		if k != nil && (!k.same(index.counted.Count) || back != index.rank()-index.counted.dim) {
			return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
		}
		k, back = index.counted.Count, index.rank()-index.counted.dim
		var err error
		if lists[i], err = c.filledBehind(index.counted.of(lists[i], index.counted.dim), 0); err != nil { // what there is
			return err
		}
	}
	p, err := c.planIndex(bare(r), bareArgument(lists).([]*Ref))
	if err != nil {
		return err
	}
	at := -1
	if k != nil {
		at = p.at + rank - back
	}
	if r.IsCounted() && (r.counted.dim >= len(lists) || lists[r.counted.dim] == nil) {
		if k != nil {
			return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
		}
		// The rows stay a dimension: its place among those that are not indexed.
		indexed := len(p.order) - r.rank() + countIndexed(lists)
		place := slices.Index(p.order, r.counted.dim)
		if place > p.at {
			place += rank - indexed
		}
		k, at = r.counted.Count, place
	}
	operands := append([]*Ref{c.permute(bare(r), p.order...)}, p.index...)
	out, err := c.apply("index", graph.Attrs{"dim": p.at, "wrap": true}, operands...)
	if err == nil && k != nil {
		out = k.of(out, at)
	}
	return c.giveRef(out, err)
}

// amongRows returns indices of rows, counted from the front, so that one beyond those that count fails while running.
func (c *call) amongRows(index *Ref, k *Count) (*Ref, error) {
	index = bare(index)
	if err := mayIndex(index.dtype); err != nil {
		return nil, err
	}
	index, err := c.Cast(index, tensor.Int64)
	if err != nil {
		return nil, err
	}
	fromEnd, err := c.combine("add", nil, index, k.value)
	if err != nil {
		return nil, err
	}
	negative, err := c.combine("lt", nil, index, 0)
	if err != nil {
		return nil, err
	}
	if index, err = c.choose(negative, tensor.Int64, fromEnd, index); err != nil {
		return nil, err
	}
	if negative, err = c.combine("lt", nil, index, 0); err != nil {
		return nil, err
	}
	within, err := c.combine("lt", nil, index, k.value)
	if err != nil {
		return nil, err
	}
	if index, err = c.choose(within, tensor.Int64, index, math.MaxInt64); err != nil {
		return nil, err
	}
	return c.choose(negative, tensor.Int64, math.MaxInt64, index)
}

func countIndexed(lists []*Ref) int {
	n := 0
	for _, r := range lists {
		if r != nil {
			n++
		}
	}
	return n
}

// putCounted is x[mask] = values with as many values as the mask has trues.
func putCounted(c *call, t Target) error {
	r, values := c.tensor("self"), c.tensor("values")
	if c.err != nil {
		return c.err
	}
	mask, lead, ok, err := c.maskOf(r, c.tensors("indices"))
	if err != nil {
		return err
	}
	if !ok {
		return putAtCounted(c, t)
	}
	k := values.counted
	if k == nil || r.IsCounted() || lead != 0 || k.dim != 0 || c.bool("accumulate") ||
		values.rank() != r.rank()-mask.rank()+1 {
		return c.Unsupported("rows that data counts, put elsewhere: %s", SizeOfData)
	}
	p, err := c.where(mask)
	if err != nil {
		return err
	}
	if !p.same(k.Count) {
		return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
	}
	for mask.rank() < r.rank() {
		mask = c.unsqueeze(mask, mask.rank())
	}
	if mask, err = c.expand(mask, r.shape()); err != nil {
		return err
	}
	source, err := c.Cast(bare(values), r.dtype)
	if err != nil {
		return err
	}
	wide := append(tensor.Shape{k.most}, r.shape()[r.rank()-values.rank()+1:]...)
	if source, err = c.expand(source, wide); err != nil {
		return err
	}
	out, err := c.apply("masked_scatter", nil, r, mask, source)
	if err == nil && strings.HasSuffix(baseName(t.schema.target), "_") {
		err = c.Write(r, out)
		out = r
	}
	return c.giveRef(out, err)
}
