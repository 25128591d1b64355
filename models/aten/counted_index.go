package aten

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/aten/views"
	"github.com/optimem/optimem/tensor"
)

// catCounted puts tensors side by side that have as many rows, or rows one after the other, which moves those that count to the
// front.
func catCounted(c *call.Call, t Target) error {
	parts := c.Tensors("tensors")
	if c.Err != nil || len(parts) == 0 || slices.Contains(parts, nil) {
		return fmt.Errorf("no tensors to join")
	}
	d := views.CatDim(c, parts)
	if c.Err != nil {
		return c.Err
	}
	k, alike := countOf(parts)
	if k != nil && (k.Dim != d || len(parts) == 1) {
		if !alike {
			return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
		}
		return giveSame(c, t, k.Count, k.Dim, nil)
	}
	var masks []*cells.Ref
	key := ""
	var counts []*cells.Count
	plus := 0
	for _, r := range parts {
		if r.IsCounted() && r.Rows().Dim != d {
			return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
		}
		if r.Rank() == 1 && r.Shape()[0] == 0 { // does not count, whatever its shape
			continue
		}
		is, err := c.Full(true, tensor.Bool, tensor.Shape{r.Shape()[d]})
		key += fmt.Sprint(r.Shape()[d])
		if !r.IsCounted() {
			plus += r.Shape()[d]
		} else {
			counts = append(counts, r.Rows().Count)
			is, err = c.Among(r.Rows().Count, r.Shape()[d])
			key += fmt.Sprint(" of ", r.Rows().Value.Memory().Value(), r.Rows().Value.Layout().Offset)
		}
		key += ","
		if err != nil {
			return err
		}
		masks = append(masks, is)
	}
	results, err := bareRun(c, t, nil)
	if err != nil {
		return err
	}
	is, ok := c.RowsJoined[key]
	if !ok || len(c.Guard) > 0 {
		if is, err = c.Cat(masks, 0); err != nil {
			return err
		}
		if c.RowsJoined == nil {
			c.RowsJoined = make(map[string]*cells.Ref)
		}
		if len(c.Guard) == 0 { // what a branch computes is not there in another
			c.RowsJoined[key] = is
		}
	}
	out, err := c.Picked(results[0].(*cells.Ref), is, d)
	if err == nil && len(out.Rows().Parts) == 0 {
		out.Rows().SumOf(plus, counts...)
	}
	return c.GiveRef(out, err)
}

// countOf returns the count of the rows of one tensor, and whether all have the same in the same dimension.
func countOf(parts []*cells.Ref) (k *cells.Rows, alike bool) {
	for _, r := range parts {
		if r.IsCounted() {
			k = r.Rows()
		}
	}
	return k, k != nil && !slices.ContainsFunc(parts, func(r *cells.Ref) bool {
		return !r.IsCounted() || !r.Rows().Same(k.Count) || r.Rows().Dim != k.Dim
	})
}

func stackCounted(c *call.Call, t Target) error {
	parts := c.Tensors("tensors")
	k, alike := countOf(parts)
	if !alike || c.Err != nil {
		return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
	}
	at := k.Dim
	if c.WrapDim(c.Int("dim"), parts[0].Rank()+1) <= at {
		at++
	}
	return giveSame(c, t, k.Count, at, nil)
}

// indexCounted takes rows by indices, as many as are counted, or those of which not the rows' dimension is indexed.
func indexCounted(c *call.Call, t Target) error {
	name, self := "indices", "self"
	switch call.BaseName(t.schema.Target) {
	case "index_select":
		name = "index"
	case "embedding":
		self = "weight"
	}
	r := c.Tensor(self)
	lists, isList := c.Args[name].([]*cells.Ref)
	if !isList {
		d := 0
		if self == "self" {
			d = c.Dim("dim", r.Rank())
		}
		lists = make([]*cells.Ref, d+1)
		lists[d] = c.Tensor(name)
	}
	if c.Err != nil {
		return c.Err
	}
	if mask, lead, ok, err := c.MaskOf(r, lists); ok || err != nil {
		if err != nil {
			return err
		}
		return c.GiveRef(c.Picked(r, mask, lead))
	}
	lists = slices.Clone(lists)
	rank, back := 0, -1
	var k *cells.Count
	for i, index := range lists {
		if index == nil {
			continue
		}
		rank = max(rank, index.Rank())
		if r.IsCounted() && i == r.Rows().Dim {
			var err error
			if lists[i], err = amongRows(c, index, r.Rows().Count); err != nil {
				return err
			}
		}
		if !index.IsCounted() {
			continue
		}
		if k != nil && (!k.Same(index.Rows().Count) || back != index.Rank()-index.Rows().Dim) {
			return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
		}
		k, back = index.Rows().Count, index.Rank()-index.Rows().Dim
		var err error
		if lists[i], err = c.FilledBehind(index.Rows().Of(lists[i], index.Rows().Dim), 0); err != nil { // what there is
			return err
		}
	}
	p, err := views.PlanIndex(c, cells.Bare(r), bareArgument(lists).([]*cells.Ref))
	if err != nil {
		return err
	}
	at := -1
	if k != nil {
		at = p.At + rank - back
	}
	if r.IsCounted() && (r.Rows().Dim >= len(lists) || lists[r.Rows().Dim] == nil) {
		if k != nil {
			return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
		}
		// The rows stay a dimension: its place among those that are not indexed.
		indexed := len(p.Order) - r.Rank() + countIndexed(lists)
		place := slices.Index(p.Order, r.Rows().Dim)
		if place > p.At {
			place += rank - indexed
		}
		k, at = r.Rows().Count, place
	}
	operands := append([]*cells.Ref{c.Permute(cells.Bare(r), p.Order...)}, p.Index...)
	out, err := c.Apply("index", graph.Attrs{"dim": p.At, "wrap": true}, operands...)
	if err == nil && k != nil {
		out = k.Of(out, at)
	}
	return c.GiveRef(out, err)
}

// amongRows returns indices of rows, counted from the front, so that one beyond those that count fails while running.
func amongRows(c *call.Call, index *cells.Ref, k *cells.Count) (*cells.Ref, error) {
	index = cells.Bare(index)
	if err := views.MayIndex(index.DType()); err != nil {
		return nil, err
	}
	index, err := c.Cast(index, tensor.Int64)
	if err != nil {
		return nil, err
	}
	fromEnd, err := c.Combine("add", nil, index, k.Value)
	if err != nil {
		return nil, err
	}
	negative, err := c.Combine("lt", nil, index, 0)
	if err != nil {
		return nil, err
	}
	if index, err = c.Choose(negative, tensor.Int64, fromEnd, index); err != nil {
		return nil, err
	}
	if negative, err = c.Combine("lt", nil, index, 0); err != nil {
		return nil, err
	}
	within, err := c.Combine("lt", nil, index, k.Value)
	if err != nil {
		return nil, err
	}
	if index, err = c.Choose(within, tensor.Int64, index, math.MaxInt64); err != nil {
		return nil, err
	}
	return c.Choose(negative, tensor.Int64, math.MaxInt64, index)
}

func countIndexed(lists []*cells.Ref) int {
	n := 0
	for _, r := range lists {
		if r != nil {
			n++
		}
	}
	return n
}

// putCounted is x[mask] = values with as many values as the mask has trues.
func putCounted(c *call.Call, t Target) error {
	r, values := c.Tensor("self"), c.Tensor("values")
	if c.Err != nil {
		return c.Err
	}
	mask, lead, ok, err := c.MaskOf(r, c.Tensors("indices"))
	if err != nil {
		return err
	}
	if !ok {
		return putAtCounted(c, t)
	}
	k := values.Rows()
	if k == nil || r.IsCounted() || lead != 0 || k.Dim != 0 || c.Bool("accumulate") ||
		values.Rank() != r.Rank()-mask.Rank()+1 {
		return c.Unsupported("rows that data counts, put elsewhere: %s", cells.SizeOfData)
	}
	p, err := c.Where(mask)
	if err != nil {
		return err
	}
	if !p.Same(k.Count) {
		return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
	}
	for mask.Rank() < r.Rank() {
		mask = c.Unsqueeze(mask, mask.Rank())
	}
	if mask, err = c.Expand(mask, r.Shape()); err != nil {
		return err
	}
	source, err := c.Cast(cells.Bare(values), r.DType())
	if err != nil {
		return err
	}
	wide := append(tensor.Shape{k.Most}, r.Shape()[r.Rank()-values.Rank()+1:]...)
	if source, err = c.Expand(source, wide); err != nil {
		return err
	}
	out, err := c.Apply("masked_scatter", nil, r, mask, source)
	if err == nil && strings.HasSuffix(call.BaseName(t.schema.Target), "_") {
		err = c.Write(r, out)
		out = r
	}
	return c.GiveRef(out, err)
}
