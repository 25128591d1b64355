package aten

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// lowest and highest stand for the numbers that no element is below or above.
type extreme int

const (
	lowest extreme = iota
	highest
)

// of returns the number in a dtype. Of floats the highest is NaN, where it sorts as such, and else infinite.
func (e extreme) of(d tensor.DType) (number, bool) {
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
	return func(c *call, t Target) error {
		r := c.onlyCounted("self")
		if r == nil {
			return c.err
		}
		fill := neutral
		if e, ok := neutral.(extreme); ok {
			if fill, ok = e.of(r.dtype); !ok {
				return c.Unsupported("of %v whose rows data counts: %s", r.dtype, SizeOfData)
			}
		}
		dims, one := allDims(r.rank()), false
		if c.has("dim") {
			if list := c.ints("dim"); len(list) > 0 {
				dims = c.wrapDims(r, list)
			}
			_, one = c.args["dim"].(int)
		}
		if c.err != nil {
			return c.err
		}
		at := r.counted.dim
		if !slices.Contains(dims, at) {
			if !c.bool("keepdim") {
				for _, d := range dims {
					if d < r.counted.dim {
						at--
					}
				}
			}
			return c.giveSame(t, r.counted.Count, at, nil)
		}
		name := baseName(t.schema.target)
		if !one && r.rank() > 1 && (name == "argmax" || name == "argmin") && at != 0 {
			return c.Unsupported("a place among rows that data counts: %s", SizeOfData) // counted with those that do not count
		}
		whole, err := c.filledBehind(r, fill)
		if err != nil {
			return err
		}
		results, err := c.bareRun(t, map[string]any{"self": whole})
		c.set(results...)
		return err
	}
}

// meanCounted divides by the number of rows that count.
func meanCounted(c *call, t Target) error {
	r := c.onlyCounted("self")
	if r == nil {
		return c.err
	}
	dims := c.reductionDims(r)
	if c.err != nil {
		return c.err
	}
	if !slices.Contains(dims, r.counted.dim) {
		return foldCounted(0)(c, t)
	}
	d := c.dtype("dtype", r.dtype)
	whole, err := c.filledBehind(r, 0)
	if err != nil {
		return err
	}
	if whole, err = c.converted(whole, d); err != nil {
		return err
	}
	n := 1
	for _, e := range dims {
		if e != r.counted.dim {
			n *= r.shape()[e]
		}
	}
	count, err := c.multiple(r.counted.Count, n)
	if err != nil {
		return err
	}
	total := d // halves are added, and divided, in float32
	if d.IsHalf() {
		total = tensor.Float32
	}
	sum, err := c.fold("sum", whole, dims, c.bool("keepdim"), graph.Attrs{"dtype": total})
	if err != nil {
		return err
	}
	divisor, err := c.Cast(count.value, total)
	if err != nil {
		return err
	}
	mean, err := c.combine("div", nil, sum, divisor)
	if err != nil {
		return err
	}
	return c.giveRef(c.Cast(mean, d))
}

// sortedLast returns all of a tensor so that the rows that count sort first: stably, since they come before equal ones.
func (c *call) sortedLast(r *Ref, descending bool) (*Ref, error) {
	if IsFloat(r.dtype) && !descending {
		return c.filledBehind(r, math.NaN())
	}
	e := highest
	if descending {
		e = lowest
	}
	fill, ok := e.of(r.dtype)
	if !ok {
		return nil, c.Unsupported("of %v whose rows data counts: %s", r.dtype, SizeOfData)
	}
	return c.filledBehind(r, fill)
}

func sortCounted(c *call, t Target) error {
	r := c.onlyCounted("self")
	if r == nil {
		return c.err
	}
	changed := map[string]any{}
	if c.dim("dim", r.rank()) == r.counted.dim {
		whole, err := c.sortedLast(r, c.bool("descending"))
		if err != nil {
			return err
		}
		changed["self"] = whole
	}
	return c.giveSame(t, r.counted.Count, r.counted.dim, changed)
}

// topKCounted takes as many as another count says of rows, which are at least that many.
func topKCounted(c *call, t Target) error {
	r, ok := c.args["self"].(*Ref)
	if !ok {
		return c.Unsupported("%s", SizeOfData)
	}
	d := c.dim("dim", r.rank())
	k, counted := c.args["k"].(*Count)
	switch {
	case c.err != nil:
		return c.err
	case !counted && r.IsCounted() && r.counted.dim != d:
		return c.giveSame(t, r.counted.Count, r.counted.dim, nil)
	case !counted, r.IsCounted() && r.counted.dim != d:
		return c.Unsupported("a fixed number of rows that data counts: %s", SizeOfData)
	}
	changed := map[string]any{}
	if r.IsCounted() {
		whole, err := c.sortedLast(r, c.bool("largest"))
		if err != nil {
			return err
		}
		changed["self"] = whole
	}
	if k.most > r.shape()[d] {
		return fmt.Errorf("the first %d of %d", k.most, r.shape()[d])
	}
	return c.giveSame(t, k, d, changed)
}
