package aten

import (
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/aten/views"
	"github.com/optimem/optimem/tensor"
)

// scatterCounted writes to as many places as data counts, in a tensor with one place more along the dimension: what does not count
// goes there.
func scatterCounted(c *call.Call, t Target) error {
	r, index := c.Tensor("self"), c.Tensor("index")
	d := c.Dim("dim", r.Rank())
	if c.Err != nil {
		return c.Err
	}
	list := []*cells.Ref{r, index}
	if src, ok := c.Args["src"].(*cells.Ref); ok {
		list = append(list, src)
	}
	if k, alike := countOf(list); alike && k.Dim != d {
		return giveSame(c, t, k.Count, k.Dim, nil)
	}
	if k, alike := countOf(list[1:]); !alike || index.Rank() != r.Rank() || r.IsCounted() && r.Rows().Dim != d ||
		k == nil {
		return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
	}
	places, err := placesOrBehind(c, r, d, index, false)
	if err != nil {
		return err
	}
	return writeBehind(c, t, r, d, map[string]any{"index": places})
}

// putAtCounted is x[indices] = values with as many indices along one dimension as data counts.
func putAtCounted(c *call.Call, t Target) error {
	r, values, indices := c.Tensor("self"), c.Tensor("values"), c.Tensors("indices")
	if c.Err != nil {
		return c.Err
	}
	d := -1
	for i, index := range indices {
		if index != nil && d >= 0 {
			return c.Unsupported("at several counted indices: %s", cells.SizeOfData)
		}
		if index != nil {
			d = i
		}
	}
	if d < 0 || d >= r.Rank() || indices[d].Rank() != 1 || !indices[d].IsCounted() ||
		r.IsCounted() && r.Rows().Dim != d {
		return c.Unsupported("rows that data counts, put elsewhere: %s", cells.SizeOfData)
	}
	if k := values.Rows(); k != nil {
		if !k.Same(indices[d].Rows().Count) || values.Rank()-k.Dim != r.Rank()-d {
			return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
		}
	} else if at := values.Rank() - (r.Rank() - d); at >= 0 && values.Shape()[at] != 1 {
		return c.Unsupported("of %v beside rows that data counts: %s", values.Shape(), cells.SizeOfData)
	}
	places, err := placesOrBehind(c, r, d, indices[d], true)
	if err != nil {
		return err
	}
	list := slices.Clone(indices)
	list[d] = places
	return writeBehind(c, t, r, d, map[string]any{"indices": list})
}

// placesOrBehind returns all indices of a dimension of r, counted from the front, where those that do not count are one place
// behind it. Where it wraps, negative ones are counted from the end.
func placesOrBehind(c *call.Call, r *cells.Ref, d int, index *cells.Ref, wraps bool) (*cells.Ref, error) {
	k, size := index.Rows(), any(r.Shape()[d])
	if err := views.MayIndex(index.DType()); err != nil {
		return nil, err
	}
	places, err := c.Cast(cells.Bare(index), tensor.Int64)
	if err != nil {
		return nil, err
	}
	if r.IsCounted() {
		if places, err = amongRows(c, places, r.Rows().Count); err != nil {
			return nil, err
		}
	} else {
		if wraps {
			fromEnd, err := c.Combine("add", nil, places, size)
			if err != nil {
				return nil, err
			}
			negative, err := c.Combine("lt", nil, places, 0)
			if err != nil {
				return nil, err
			}
			if places, err = c.Choose(negative, tensor.Int64, fromEnd, places); err != nil {
				return nil, err
			}
		}
		if places, err = failingBeyond(c, places, size); err != nil {
			return nil, err
		}
	}
	counts, err := c.Among(k.Count, places.Shape()[k.Dim])
	if err != nil {
		return nil, err
	}
	shape := slices.Repeat(tensor.Shape{1}, places.Rank())
	shape[k.Dim] = places.Shape()[k.Dim]
	if counts, err = c.Reshape(counts, shape); err != nil {
		return nil, err
	}
	return c.Choose(counts, tensor.Int64, places, size)
}

// failingBeyond makes places that are not among the first of a size fail while running: the place behind them is not one either.
func failingBeyond(c *call.Call, places *cells.Ref, size cells.Argument) (*cells.Ref, error) {
	for _, bound := range []struct {
		kind graph.Kind
		than cells.Argument
	}{{"lt", 0}, {"ge", size}} {
		beyond, err := c.Combine(bound.kind, nil, places, bound.than)
		if err != nil {
			return nil, err
		}
		if places, err = c.Choose(beyond, tensor.Int64, 1<<62, places); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// writeBehind builds the call for a tensor with one more place along dimension d, and leaves that out of the result.
func writeBehind(c *call.Call, t Target, r *cells.Ref, d int, changed map[string]any) error {
	shape := slices.Clone(r.Shape())
	size := shape[d]
	shape[d] = 1
	behind, err := c.Filled(0, r.DType(), shape)
	if err != nil {
		return err
	}
	if changed["self"], err = c.Cat([]*cells.Ref{cells.Bare(r), behind}, d); err != nil {
		return err
	}
	results, err := bareRun(c, t, changed)
	if err != nil {
		return err
	}
	out := c.Builder.Slice(results[0].(*cells.Ref), d, 0, size, 1)
	if strings.HasSuffix(call.BaseName(t.schema.Target), "_") {
		if err := c.Write(cells.Bare(r), out); err != nil {
			return err
		}
		return c.GiveRef(r, nil)
	}
	if r.IsCounted() {
		out = r.Rows().Of(out, r.Rows().Dim)
	}
	return c.GiveRef(out, nil)
}

// splitCounted divides rows that data counts into parts of which data says how large they are.
func splitCounted(c *call.Call, t Target) error {
	name := "split_size"
	if c.Schema.Has("split_sizes") {
		name = "split_sizes"
	}
	sizes, ok := c.Args[name].([]any)
	if !ok {
		return keepsRows("self", "dim", 0)(c, t)
	}
	r := c.Tensor("self")
	d := c.Dim("dim", r.Rank())
	switch {
	case c.Err != nil:
		return c.Err
	case !r.IsCounted() || r.Rows().Dim != d:
		return c.Unsupported("into a number of rows: %s", cells.SizeOfData)
	}
	if err := views.CheckParts(len(sizes)); err != nil {
		return err
	}
	start, err := c.Scalar(0, tensor.Int64)
	if err != nil {
		return err
	}
	parts := make([]*cells.Ref, len(sizes))
	for i, size := range sizes {
		k, isCount := size.(*cells.Count)
		if isCount && len(sizes) == 1 && k.Same(r.Rows().Count) {
			parts[i] = r
			break
		}
		n, next := 0, cells.Argument(size)
		switch size := size.(type) {
		case *cells.Count:
			n, next = size.Most, size.Value
		case int:
			n = min(max(size, 0), r.Shape()[d])
		}
		if parts[i], err = rowsFrom(c, r, start, n); err != nil {
			return err
		}
		if isCount {
			parts[i] = k.Of(parts[i], d)
		}
		if start, err = c.Combine("add", nil, start, next); err != nil {
			return err
		}
	}
	c.Set(parts)
	return nil
}

// rowsFrom returns n rows from one on that data says, and whatever there is for those behind the last.
func rowsFrom(c *call.Call, r, start *cells.Ref, n int) (*cells.Ref, error) {
	d := r.Rows().Dim
	at, err := c.Emit1("arange", graph.Attrs{"start": 0, "step": 1, "size": n, "dtype": tensor.Int64})
	if err != nil {
		return nil, err
	}
	if at, err = c.Combine("add", nil, at, start); err != nil {
		return nil, err
	}
	if at, err = c.Combine("minimum", nil, at, max(r.Shape()[d]-1, 0)); err != nil {
		return nil, err
	}
	return c.Emit1("index", graph.Attrs{"dim": d}, c.Read(cells.Bare(r)), c.Read(at))
}
