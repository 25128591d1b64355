package aten

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// lowest and highest stand for the numbers that no element is below or above.
type extreme int

const (
	lowest extreme = iota
	highest
)

// of returns the number in a dtype. Of floats the highest is NaN, where it sorts as such, and else infinite.
func (e extreme) of(d tensor.DType) (cells.Number, bool) {
	sign := 1.0
	if e == lowest {
		sign = -1
	}
	switch d {
	case tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16:
		return math.Inf(int(sign)), true
	case tensor.Bool:
		return e == highest, true
	case tensor.UInt8:
		return int(255 * (e - lowest)), true
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		bits := 8*d.Size() - 1
		if e == lowest {
			return -1 << bits, true
		}
		return 1<<bits - 1, true
	}
	return 0, false
}

// foldCounted is the rule of reductions to which a number behind the rows that count makes no difference. Where there are no
// rows the result is that number, also for those for which PyTorch has none.
func foldCounted(neutral any) countedRule {
	return func(c *call.Call, t Target) error {
		r := onlyCounted(c, "self")
		if r == nil {
			return c.Err
		}
		fill := neutral
		if e, ok := neutral.(extreme); ok {
			if fill, ok = e.of(r.DType()); !ok {
				return c.Unsupported("of %v whose rows data counts: %s", r.DType(), cells.SizeOfData)
			}
		}
		dims, one := cells.AllDims(r.Rank()), false
		if c.Has("dim") {
			if list := c.Ints("dim"); len(list) > 0 {
				dims = c.WrapDims(r, list)
			}
			_, one = c.Args["dim"].(int)
		}
		if c.Err != nil {
			return c.Err
		}
		at := r.Rows().Dim
		if !slices.Contains(dims, at) {
			if !c.Bool("keepdim") {
				for _, d := range dims {
					if d < r.Rows().Dim {
						at--
					}
				}
			}
			return giveSame(c, t, r.Rows().Count, at, nil)
		}
		name := call.BaseName(t.schema.Target)
		if !one && r.Rank() > 1 && (name == "argmax" || name == "argmin") && at != 0 {
			return c.Unsupported("a place among rows that data counts: %s", cells.SizeOfData) // counted with those that do not count
		}
		whole, err := c.FilledBehind(r, fill)
		if err != nil {
			return err
		}
		results, err := bareRun(c, t, map[string]any{"self": whole})
		c.Set(results...)
		return err
	}
}

// meanCounted divides by the number of rows that count.
func meanCounted(c *call.Call, t Target) error {
	r := onlyCounted(c, "self")
	if r == nil {
		return c.Err
	}
	dims := c.ReductionDims(r)
	if c.Err != nil {
		return c.Err
	}
	if !slices.Contains(dims, r.Rows().Dim) {
		return foldCounted(0)(c, t)
	}
	d := c.DType("dtype", r.DType())
	whole, err := c.FilledBehind(r, 0)
	if err != nil {
		return err
	}
	if whole, err = c.Converted(whole, d); err != nil {
		return err
	}
	n := 1
	for _, e := range dims {
		if e != r.Rows().Dim {
			n *= r.Shape()[e]
		}
	}
	count, err := c.Multiple(r.Rows().Count, n)
	if err != nil {
		return err
	}
	total := d // halves are added, and divided, in float32
	if d.IsHalf() {
		total = tensor.Float32
	}
	sum, err := c.Fold("sum", whole, dims, c.Bool("keepdim"), graph.Attrs{"dtype": total})
	if err != nil {
		return err
	}
	divisor, err := c.Cast(count.Value, total)
	if err != nil {
		return err
	}
	mean, err := c.Combine("div", nil, sum, divisor)
	if err != nil {
		return err
	}
	return c.GiveRef(c.Cast(mean, d))
}

// sortedLast returns all of a tensor so that the rows that count sort first: stably, since they come before equal ones.
func sortedLast(c *call.Call, r *cells.Ref, descending bool) (*cells.Ref, error) {
	if cells.IsFloat(r.DType()) && !descending {
		return c.FilledBehind(r, math.NaN())
	}
	e := highest
	if descending {
		e = lowest
	}
	fill, ok := e.of(r.DType())
	if !ok {
		return nil, c.Unsupported("of %v whose rows data counts: %s", r.DType(), cells.SizeOfData)
	}
	return c.FilledBehind(r, fill)
}

func sortCounted(c *call.Call, t Target) error {
	r := onlyCounted(c, "self")
	if r == nil {
		return c.Err
	}
	changed := map[string]any{}
	if c.Dim("dim", r.Rank()) == r.Rows().Dim {
		whole, err := sortedLast(c, r, c.Bool("descending"))
		if err != nil {
			return err
		}
		changed["self"] = whole
	}
	return giveSame(c, t, r.Rows().Count, r.Rows().Dim, changed)
}

// topKCounted takes as many as another count says of rows, which are at least that many.
func topKCounted(c *call.Call, t Target) error {
	r, ok := c.Args["self"].(*cells.Ref)
	if !ok {
		return c.Unsupported("%s", cells.SizeOfData)
	}
	d := c.Dim("dim", r.Rank())
	k, counted := c.Args["k"].(*cells.Count)
	switch {
	case c.Err != nil:
		return c.Err
	case !counted && r.IsCounted() && r.Rows().Dim != d:
		return giveSame(c, t, r.Rows().Count, r.Rows().Dim, nil)
	case !counted, r.IsCounted() && r.Rows().Dim != d:
		return c.Unsupported("a fixed number of rows that data counts: %s", cells.SizeOfData)
	}
	changed := map[string]any{}
	if r.IsCounted() {
		whole, err := sortedLast(c, r, c.Bool("largest"))
		if err != nil {
			return err
		}
		changed["self"] = whole
	}
	if k.Most > r.Shape()[d] {
		return fmt.Errorf("the first %d of %d", k.Most, r.Shape()[d])
	}
	return giveSame(c, t, k, d, changed)
}
