package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/tensor"
)

func unsqueezeCounted(c *call, t Target) error {
	r := c.onlyCounted("self")
	if r == nil {
		return c.err
	}
	at := r.counted.dim
	if c.wrapDim(c.int("dim"), r.rank()+1) <= at {
		at++
	}
	return c.giveSame(t, r.counted.Count, at, nil)
}

func squeezeCounted(c *call, t Target) error {
	r := c.onlyCounted("self")
	if r == nil {
		return c.err
	}
	at := r.counted.dim
	drops := func(int) bool { return true }
	if c.schema.has("dim") {
		dims := c.wrapDims(r, c.ints("dim"))
		drops = func(d int) bool { return slices.Contains(dims, d) }
	}
	if drops(at) && c.err == nil {
		return c.Unsupported("of rows that may be one: %s", SizeOfData)
	}
	for d := range r.counted.dim {
		if r.shape()[d] == 1 && drops(d) {
			at--
		}
	}
	return c.giveSame(t, r.counted.Count, at, nil)
}

// permuteCounted finds the dimension where a tensor goes that has other sizes in all dimensions.
func permuteCounted(c *call, t Target) error {
	r := c.onlyCounted("self")
	if r == nil {
		return c.err
	}
	results, err := c.bareRun(t, map[string]any{"self": numbered(r)})
	if err != nil || len(results) != 1 {
		return err
	}
	at := slices.Index(results[0].(*Ref).layout.Strides, r.counted.dim)
	return c.giveSame(t, r.counted.Count, at, nil)
}

// numbered returns a view whose strides are the numbers of its dimensions, to find out where they go.
func numbered(r *Ref) *Ref {
	view := *bare(r)
	view.layout.Strides = allDims(r.rank())
	return &view
}

// sliceCounted takes rows from the front, or those of another dimension.
func sliceCounted(c *call, t Target) error {
	r, own := c.args["self"].(*Ref)
	if !own || r == nil || !r.IsCounted() {
		return c.Unsupported("to a number of rows: %s", SizeOfData)
	}
	at := r.counted.dim
	if c.dim("dim", r.rank()) != at {
		if c.onlyCounted("self") == nil {
			return c.err
		}
		return c.giveSame(t, r.counted.Count, at, nil)
	}
	start, end := c.optInt("start", 0), c.args["end"]
	if c.err != nil {
		return c.err
	}
	if start < 0 || c.int("step") != 1 {
		return c.Unsupported("rows that data counts from the end, or not all of them: %s", SizeOfData)
	}
	k, err := c.within(r.counted.Count, start, end)
	if err != nil {
		return err
	}
	whole := bare(r)
	start = min(start, whole.shape()[at])
	return c.giveRef(k.of(c.Builder.slice(whole, at, start, start+k.most, 1), at), nil)
}

// reshapeCounted keeps the rows as a dimension, or takes with each what comes behind it.
func reshapeCounted(c *call, t Target) error {
	r, own := c.args["self"].(*Ref)
	if !own || r == nil || !r.IsCounted() {
		return c.Unsupported("to a number of rows: %s", SizeOfData)
	}
	sizes, err := c.sizesOf(t, r)
	if err != nil {
		return err
	}
	shape, open, err := c.openShape(r, sizes)
	if err != nil {
		return err
	}
	_, byCount := sizes[open].(*Count)
	behind, inner, ok := reshapedRows(r, shape, open, byCount)
	if !ok {
		return c.Unsupported("rows that data counts, put together otherwise: %s", SizeOfData)
	}
	k := r.counted
	count, whole := k.Count, bare(r)
	switch {
	case behind > inner:
		count, err = c.multiple(k.Count, int(behind/inner))
	case inner > behind: // several rows become one
		f := int(inner / behind)
		most := k.most / f
		whole = c.Builder.slice(whole, k.dim, 0, most*f, 1)
		var value *Ref
		value, err = c.combine("div_floor", nil, k.value, f)
		count = &Count{value: value, most: most, within: k.Count}
	}
	if err != nil {
		return err
	}
	shape[open] = count.most
	if shape, err = inferShape(shape, NumElements(whole.shape())); err != nil {
		return err
	}
	out, err := c.Reshape(whole, shape)
	if err != nil {
		return err
	}
	return c.giveRef(count.of(out, open), nil)
}

// sizesOf returns the sizes that a reshaping of r asks for, −1 for the dimension with the rows where it is not named otherwise.
func (c *call) sizesOf(t Target, r *Ref) ([]any, error) {
	switch baseName(t.schema.target) {
	case "flatten":
		return c.flatSizes(r)
	case "unflatten":
		return c.unflatSizes(r)
	}
	sizes := []any(nil)
	switch list := c.args[c.sizesName()].(type) {
	case []any:
		sizes = list
	case []int:
		for _, n := range list {
			sizes = append(sizes, n)
		}
	}
	return sizes, nil
}

func (c *call) flatSizes(r *Ref) (sizes []any, err error) {
	rows := r.counted.dim
	from, to := c.dim("start_dim", r.rank()), c.dim("end_dim", r.rank())
	if from > to || c.err != nil {
		return nil, fmt.Errorf("flatten from dimension %d to %d", from, to)
	}
	for d, n := range r.shape() {
		switch {
		case d == rows && (d < from || d > to), d == from && from <= rows && rows <= to:
			sizes = append(sizes, -1)
		case d > from && d <= to && from <= rows && rows <= to:
		case d > from && d <= to:
			sizes[len(sizes)-1] = sizes[len(sizes)-1].(int) * n
		default:
			sizes = append(sizes, n)
		}
	}
	return sizes, nil
}

func (c *call) unflatSizes(r *Ref) (sizes []any, err error) {
	d := c.dim("dim", r.rank())
	if c.err != nil || d == r.counted.dim {
		return nil, c.Unsupported("rows that data counts: %s", SizeOfData)
	}
	inner, err := inferShape(c.ints("sizes"), int64(r.shape()[d]))
	if err != nil {
		return nil, err
	}
	for e, n := range r.shape() {
		switch {
		case e == r.counted.dim:
			sizes = append(sizes, -1)
		case e == d:
			for _, m := range inner {
				sizes = append(sizes, m)
			}
		default:
			sizes = append(sizes, n)
		}
	}
	return sizes, nil
}

// openShape returns sizes with the largest that there can be, and which dimension it is that the program leaves to the tensor.
func (c *call) openShape(r *Ref, sizes []any) (shape tensor.Shape, open int, err error) {
	open, shape = -1, make(tensor.Shape, len(sizes))
	for i, n := range sizes {
		switch n := n.(type) {
		case *Count:
			if !n.same(r.counted.Count) || open >= 0 && sizes[open] != -1 {
				return nil, 0, c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
			}
			open, shape[i] = i, n.most
		case int:
			if shape[i] = n; n == -1 && open < 0 {
				open = i
			}
		}
	}
	if open < 0 {
		return nil, 0, c.Unsupported("a fixed number of rows that data counts: %s", SizeOfData)
	}
	return shape, open, nil
}

// reshapedRows returns how many elements are behind a row of r, and how many behind one in its new shape: the places before and
// behind the open dimension are those before and behind the rows, or the rows take some of them along. byCount says that the open
// dimension is named by the count of the rows.
func reshapedRows(r *Ref, shape tensor.Shape, open int, byCount bool) (behind, inner int64, ok bool) {
	k := r.counted
	before := NumElements(r.shape()[:k.dim])
	behind = NumElements(r.shape()[k.dim+1:])
	outer := int64(1)
	inner = 1
	for i, n := range shape {
		switch {
		case i < open:
			outer *= int64(n)
		case i > open:
			inner *= int64(n)
		}
	}
	if outer < 0 && inner == behind { // u0 rows, and −1 for what is before them
		inner, outer = behind, before
	}
	if inner < 0 && outer == before && byCount { // and behind them
		inner = behind
	}
	ok = outer == before && inner > 0 && behind > 0 && (behind%inner == 0 || inner%behind == 0) &&
		(inner == behind || before == 1)
	return behind, inner, ok
}

// sizesName is the name of the parameter of sizes.
func (c *call) sizesName() string {
	for _, name := range []string{"size", "shape", "sizes"} {
		if c.schema.has(name) {
			return name
		}
	}
	return ""
}

func expandCounted(c *call, t Target) error {
	r, own := c.args["self"].(*Ref)
	sizes, ok := c.args["size"].([]any)
	if list, is := c.args["size"].([]int); is {
		for _, n := range list {
			sizes = append(sizes, n)
		}
		ok = true
	}
	if !own || !ok {
		return c.Unsupported("%s", SizeOfData)
	}
	var k *Count
	at := -1
	if r.IsCounted() {
		k, at = r.counted.Count, len(sizes)-r.rank()+r.counted.dim
		if at < 0 || sizes[at] == any(r.counted.most) {
			return c.Unsupported("a fixed number of rows that data counts: %s", SizeOfData)
		}
	}
	for i, n := range sizes {
		n, is := n.(*Count)
		switch {
		case !is:
		case k == nil:
			k, at = n, i
		case at != i || !k.same(n):
			return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
		}
	}
	if own := at - (len(sizes) - r.rank()); !r.IsCounted() && own >= 0 && r.shape()[own] != 1 {
		return c.Unsupported("of %v beside rows that data counts: %s", r.shape(), SizeOfData)
	}
	return c.giveSame(t, k, at, nil)
}

func expandAsCounted(c *call, t Target) error {
	r, other := c.tensor("self"), c.tensor("other")
	if c.err != nil {
		return c.err
	}
	k := other.counted
	if k == nil {
		return c.Unsupported("a fixed number of rows that data counts: %s", SizeOfData)
	}
	at := k.dim - (other.rank() - r.rank())
	switch {
	case r.IsCounted() &&
		(!r.counted.same(k.Count) || r.counted.dim != at), !r.IsCounted() && at >= 0 && r.shape()[at] != 1:
		return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
	}
	return c.giveSame(t, k.Count, k.dim, nil)
}
