package aten

import (
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// scatterCounted writes to as many places as data counts, in a tensor with one place more along the dimension: what does not count
// goes there.
func scatterCounted(c *call, t Target) error {
	r, index := c.tensor("self"), c.tensor("index")
	d := c.dim("dim", r.rank())
	if c.err != nil {
		return c.err
	}
	list := []*Ref{r, index}
	if src, ok := c.args["src"].(*Ref); ok {
		list = append(list, src)
	}
	if k, alike := countOf(list); alike && k.dim != d {
		return c.giveSame(t, k.Count, k.dim, nil)
	}
	if k, alike := countOf(list[1:]); !alike || index.rank() != r.rank() || r.IsCounted() && r.counted.dim != d ||
		k == nil {
		return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
	}
	places, err := c.placesOrBehind(r, d, index, false)
	if err != nil {
		return err
	}
	return c.writeBehind(t, r, d, map[string]any{"index": places})
}

// putAtCounted is x[indices] = values with as many indices along one dimension as data counts.
func putAtCounted(c *call, t Target) error {
	r, values, indices := c.tensor("self"), c.tensor("values"), c.tensors("indices")
	if c.err != nil {
		return c.err
	}
	d := -1
	for i, index := range indices {
		if index != nil && d >= 0 {
			return c.Unsupported("at several counted indices: %s", SizeOfData)
		}
		if index != nil {
			d = i
		}
	}
	if d < 0 || d >= r.rank() || indices[d].rank() != 1 || !indices[d].IsCounted() ||
		r.IsCounted() && r.counted.dim != d {
		return c.Unsupported("rows that data counts, put elsewhere: %s", SizeOfData)
	}
	if k := values.counted; k != nil {
		if !k.same(indices[d].counted.Count) || values.rank()-k.dim != r.rank()-d {
			return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
		}
	} else if at := values.rank() - (r.rank() - d); at >= 0 && values.shape()[at] != 1 {
		return c.Unsupported("of %v beside rows that data counts: %s", values.shape(), SizeOfData)
	}
	places, err := c.placesOrBehind(r, d, indices[d], true)
	if err != nil {
		return err
	}
	list := slices.Clone(indices)
	list[d] = places
	return c.writeBehind(t, r, d, map[string]any{"indices": list})
}

// placesOrBehind returns all indices of a dimension of r, counted from the front, where those that do not count are one place
// behind it. Where it wraps, negative ones are counted from the end.
func (c *call) placesOrBehind(r *Ref, d int, index *Ref, wraps bool) (*Ref, error) {
	k, size := index.counted, any(r.shape()[d])
	if err := mayIndex(index.dtype); err != nil {
		return nil, err
	}
	places, err := c.Cast(bare(index), tensor.Int64)
	if err != nil {
		return nil, err
	}
	if r.IsCounted() {
		if places, err = c.amongRows(places, r.counted.Count); err != nil {
			return nil, err
		}
	} else {
		if wraps {
			fromEnd, err := c.combine("add", nil, places, size)
			if err != nil {
				return nil, err
			}
			negative, err := c.combine("lt", nil, places, 0)
			if err != nil {
				return nil, err
			}
			if places, err = c.choose(negative, tensor.Int64, fromEnd, places); err != nil {
				return nil, err
			}
		}
		if places, err = c.failingBeyond(places, size); err != nil {
			return nil, err
		}
	}
	counts, err := c.among(k.Count, places.shape()[k.dim])
	if err != nil {
		return nil, err
	}
	shape := slices.Repeat(tensor.Shape{1}, places.rank())
	shape[k.dim] = places.shape()[k.dim]
	if counts, err = c.Reshape(counts, shape); err != nil {
		return nil, err
	}
	return c.choose(counts, tensor.Int64, places, size)
}

// failingBeyond makes places that are not among the first of a size fail while running: the place behind them is not one either.
func (c *call) failingBeyond(places *Ref, size operandArg) (*Ref, error) {
	for _, bound := range []struct {
		kind graph.Kind
		than operandArg
	}{{"lt", 0}, {"ge", size}} {
		beyond, err := c.combine(bound.kind, nil, places, bound.than)
		if err != nil {
			return nil, err
		}
		if places, err = c.choose(beyond, tensor.Int64, 1<<62, places); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// writeBehind builds the call for a tensor with one more place along dimension d, and leaves that out of the result.
func (c *call) writeBehind(t Target, r *Ref, d int, changed map[string]any) error {
	shape := slices.Clone(r.shape())
	size := shape[d]
	shape[d] = 1
	behind, err := c.filled(0, r.dtype, shape)
	if err != nil {
		return err
	}
	if changed["self"], err = c.cat([]*Ref{bare(r), behind}, d); err != nil {
		return err
	}
	results, err := c.bareRun(t, changed)
	if err != nil {
		return err
	}
	out := c.Builder.slice(results[0].(*Ref), d, 0, size, 1)
	if strings.HasSuffix(baseName(t.schema.target), "_") {
		if err := c.Write(bare(r), out); err != nil {
			return err
		}
		return c.giveRef(r, nil)
	}
	if r.IsCounted() {
		out = r.counted.of(out, r.counted.dim)
	}
	return c.giveRef(out, nil)
}

// splitCounted divides rows that data counts into parts of which data says how large they are.
func splitCounted(c *call, t Target) error {
	name := "split_size"
	if c.schema.has("split_sizes") {
		name = "split_sizes"
	}
	sizes, ok := c.args[name].([]any)
	if !ok {
		return keepsRows("self", "dim", 0)(c, t)
	}
	r := c.tensor("self")
	d := c.dim("dim", r.rank())
	switch {
	case c.err != nil:
		return c.err
	case !r.IsCounted() || r.counted.dim != d:
		return c.Unsupported("into a number of rows: %s", SizeOfData)
	}
	if err := checkParts(len(sizes)); err != nil {
		return err
	}
	start, err := c.Scalar(0, tensor.Int64)
	if err != nil {
		return err
	}
	parts := make([]*Ref, len(sizes))
	for i, size := range sizes {
		k, isCount := size.(*Count)
		if isCount && len(sizes) == 1 && k.same(r.counted.Count) {
			parts[i] = r
			break
		}
		n, next := 0, operandArg(size)
		switch size := size.(type) {
		case *Count:
			n, next = size.most, size.value
		case int:
			n = min(max(size, 0), r.shape()[d])
		}
		if parts[i], err = c.rowsFrom(r, start, n); err != nil {
			return err
		}
		if isCount {
			parts[i] = k.of(parts[i], d)
		}
		if start, err = c.combine("add", nil, start, next); err != nil {
			return err
		}
	}
	c.set(parts)
	return nil
}

// rowsFrom returns n rows from one on that data says, and whatever there is for those behind the last.
func (c *call) rowsFrom(r, start *Ref, n int) (*Ref, error) {
	d := r.counted.dim
	at, err := c.Emit1("arange", graph.Attrs{"start": 0, "step": 1, "size": n, "dtype": tensor.Int64})
	if err != nil {
		return nil, err
	}
	if at, err = c.combine("add", nil, at, start); err != nil {
		return nil, err
	}
	if at, err = c.combine("minimum", nil, at, max(r.shape()[d]-1, 0)); err != nil {
		return nil, err
	}
	return c.Emit1("index", graph.Attrs{"dim": d}, c.Read(bare(r)), c.Read(at))
}
