package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

func unsqueezeCounted(c *call.Call, t Target) error {
	r := onlyCounted(c, "self")
	if r == nil {
		return c.Err
	}
	at := r.Rows().Dim
	if c.WrapDim(c.Int("dim"), r.Rank()+1) <= at {
		at++
	}
	return giveSame(c, t, r.Rows().Count, at, nil)
}

func squeezeCounted(c *call.Call, t Target) error {
	r := onlyCounted(c, "self")
	if r == nil {
		return c.Err
	}
	at := r.Rows().Dim
	drops := func(int) bool { return true }
	if c.Schema.Has("dim") {
		dims := c.WrapDims(r, c.Ints("dim"))
		drops = func(d int) bool { return slices.Contains(dims, d) }
	}
	if drops(at) && c.Err == nil {
		return c.Unsupported("of rows that may be one: %s", cells.SizeOfData)
	}
	for d := range r.Rows().Dim {
		if r.Shape()[d] == 1 && drops(d) {
			at--
		}
	}
	return giveSame(c, t, r.Rows().Count, at, nil)
}

// permuteCounted finds the dimension where a tensor goes that has other sizes in all dimensions.
func permuteCounted(c *call.Call, t Target) error {
	r := onlyCounted(c, "self")
	if r == nil {
		return c.Err
	}
	results, err := bareRun(c, t, map[string]any{"self": numbered(r)})
	if err != nil || len(results) != 1 {
		return err
	}
	at := slices.Index(results[0].(*cells.Ref).Layout().Strides, r.Rows().Dim)
	return giveSame(c, t, r.Rows().Count, at, nil)
}

// numbered returns a view whose strides are the numbers of its dimensions, to find out where they go.
func numbered(r *cells.Ref) *cells.Ref {
	l := r.Layout()
	l.Strides = cells.AllDims(r.Rank())
	return cells.NewRef(r.Memory(), l, r.DType())
}

// sliceCounted takes rows from the front, or those of another dimension.
func sliceCounted(c *call.Call, t Target) error {
	r, own := c.Args["self"].(*cells.Ref)
	if !own || r == nil || !r.IsCounted() {
		return c.Unsupported("to a number of rows: %s", cells.SizeOfData)
	}
	at := r.Rows().Dim
	if c.Dim("dim", r.Rank()) != at {
		if onlyCounted(c, "self") == nil {
			return c.Err
		}
		return giveSame(c, t, r.Rows().Count, at, nil)
	}
	start, end := c.OptInt("start", 0), c.Args["end"]
	if c.Err != nil {
		return c.Err
	}
	if start < 0 || c.Int("step") != 1 {
		return c.Unsupported("rows that data counts from the end, or not all of them: %s", cells.SizeOfData)
	}
	k, err := c.Within(r.Rows().Count, start, end)
	if err != nil {
		return err
	}
	whole := cells.Bare(r)
	start = min(start, whole.Shape()[at])
	return c.GiveRef(k.Of(c.Builder.Slice(whole, at, start, start+k.Most, 1), at), nil)
}

// reshapeCounted keeps the rows as a dimension, or takes with each what comes behind it.
func reshapeCounted(c *call.Call, t Target) error {
	r, own := c.Args["self"].(*cells.Ref)
	if !own || r == nil || !r.IsCounted() {
		return c.Unsupported("to a number of rows: %s", cells.SizeOfData)
	}
	sizes, err := sizesOf(c, t, r)
	if err != nil {
		return err
	}
	shape, open, err := openShape(c, r, sizes)
	if err != nil {
		return err
	}
	_, byCount := sizes[open].(*cells.Count)
	behind, inner, ok := reshapedRows(r, shape, open, byCount)
	if !ok {
		return c.Unsupported("rows that data counts, put together otherwise: %s", cells.SizeOfData)
	}
	k := r.Rows()
	count, whole := k.Count, cells.Bare(r)
	switch {
	case behind > inner:
		count, err = c.Multiple(k.Count, int(behind/inner))
	case inner > behind: // several rows become one
		f := int(inner / behind)
		most := k.Most / f
		whole = c.Builder.Slice(whole, k.Dim, 0, most*f, 1)
		var value *cells.Ref
		value, err = c.Combine("div_floor", nil, k.Value, f)
		count = &cells.Count{Value: value, Most: most, Within: k.Count}
	}
	if err != nil {
		return err
	}
	shape[open] = count.Most
	if shape, err = cells.InferShape(shape, cells.NumElements(whole.Shape())); err != nil {
		return err
	}
	out, err := c.Reshape(whole, shape)
	if err != nil {
		return err
	}
	return c.GiveRef(count.Of(out, open), nil)
}

// sizesOf returns the sizes that a reshaping of r asks for, −1 for the dimension with the rows where it is not named otherwise.
func sizesOf(c *call.Call, t Target, r *cells.Ref) ([]any, error) {
	switch call.BaseName(t.schema.Target) {
	case "flatten":
		return flatSizes(c, r)
	case "unflatten":
		return unflatSizes(c, r)
	}
	sizes := []any(nil)
	switch list := c.Args[sizesName(c)].(type) {
	case []any:
		sizes = list
	case []int:
		for _, n := range list {
			sizes = append(sizes, n)
		}
	}
	return sizes, nil
}

func flatSizes(c *call.Call, r *cells.Ref) (sizes []any, err error) {
	rows := r.Rows().Dim
	from, to := c.Dim("start_dim", r.Rank()), c.Dim("end_dim", r.Rank())
	if from > to || c.Err != nil {
		return nil, fmt.Errorf("flatten from dimension %d to %d", from, to)
	}
	for d, n := range r.Shape() {
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

func unflatSizes(c *call.Call, r *cells.Ref) (sizes []any, err error) {
	d := c.Dim("dim", r.Rank())
	if c.Err != nil || d == r.Rows().Dim {
		return nil, c.Unsupported("rows that data counts: %s", cells.SizeOfData)
	}
	inner, err := cells.InferShape(c.Ints("sizes"), int64(r.Shape()[d]))
	if err != nil {
		return nil, err
	}
	for e, n := range r.Shape() {
		switch {
		case e == r.Rows().Dim:
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
func openShape(c *call.Call, r *cells.Ref, sizes []any) (shape tensor.Shape, open int, err error) {
	open, shape = -1, make(tensor.Shape, len(sizes))
	for i, n := range sizes {
		switch n := n.(type) {
		case *cells.Count:
			if !n.Same(r.Rows().Count) || open >= 0 && sizes[open] != -1 {
				return nil, 0, c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
			}
			open, shape[i] = i, n.Most
		case int:
			if shape[i] = n; n == -1 && open < 0 {
				open = i
			}
		}
	}
	if open < 0 {
		return nil, 0, c.Unsupported("a fixed number of rows that data counts: %s", cells.SizeOfData)
	}
	return shape, open, nil
}

// reshapedRows returns how many elements are behind a row of r, and how many behind one in its new shape: the places before and
// behind the open dimension are those before and behind the rows, or the rows take some of them along. byCount says that the open
// dimension is named by the count of the rows.
func reshapedRows(r *cells.Ref, shape tensor.Shape, open int, byCount bool) (behind, inner int64, ok bool) {
	k := r.Rows()
	before := cells.NumElements(r.Shape()[:k.Dim])
	behind = cells.NumElements(r.Shape()[k.Dim+1:])
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
func sizesName(c *call.Call) string {
	for _, name := range []string{"size", "shape", "sizes"} {
		if c.Schema.Has(name) {
			return name
		}
	}
	return ""
}

func expandCounted(c *call.Call, t Target) error {
	r, own := c.Args["self"].(*cells.Ref)
	sizes, ok := c.Args["size"].([]any)
	if list, is := c.Args["size"].([]int); is {
		for _, n := range list {
			sizes = append(sizes, n)
		}
		ok = true
	}
	if !own || !ok {
		return c.Unsupported("%s", cells.SizeOfData)
	}
	var k *cells.Count
	at := -1
	if r.IsCounted() {
		k, at = r.Rows().Count, len(sizes)-r.Rank()+r.Rows().Dim
		if at < 0 || sizes[at] == any(r.Rows().Most) {
			return c.Unsupported("a fixed number of rows that data counts: %s", cells.SizeOfData)
		}
	}
	for i, n := range sizes {
		n, is := n.(*cells.Count)
		switch {
		case !is:
		case k == nil:
			k, at = n, i
		case at != i || !k.Same(n):
			return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
		}
	}
	if own := at - (len(sizes) - r.Rank()); !r.IsCounted() && own >= 0 && r.Shape()[own] != 1 {
		return c.Unsupported("of %v beside rows that data counts: %s", r.Shape(), cells.SizeOfData)
	}
	return giveSame(c, t, k, at, nil)
}

func expandAsCounted(c *call.Call, t Target) error {
	r, other := c.Tensor("self"), c.Tensor("other")
	if c.Err != nil {
		return c.Err
	}
	k := other.Rows()
	if k == nil {
		return c.Unsupported("a fixed number of rows that data counts: %s", cells.SizeOfData)
	}
	at := k.Dim - (other.Rank() - r.Rank())
	switch {
	case r.IsCounted() &&
		(!r.Rows().Same(k.Count) || r.Rows().Dim != at), !r.IsCounted() && at >= 0 && r.Shape()[at] != 1:
		return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
	}
	return giveSame(c, t, k.Count, k.Dim, nil)
}
