package aten

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// maxParts bounds the tensors that one op gives: a file may ask for 2^40 of them.
const maxParts = 1 << 16

// checkParts returns an error for more parts than any program has.
func checkParts(n int) error {
	if n > maxParts {
		return fmt.Errorf("%d parts; at most %d can be", n, maxParts)
	}
	return nil
}

// giveParts makes the result the parts of "self" along a dimension, of the given sizes.
func (c *call) giveParts(d int, sizes []int) error {
	r := c.tensor("self")
	if c.err != nil {
		return c.err
	}
	if r.rank() == 0 {
		return fmt.Errorf("split of a scalar")
	}
	parts := make([]*Ref, len(sizes))
	at := 0
	for i, n := range sizes {
		if n < 0 || n > r.shape()[d]-at {
			return fmt.Errorf("parts %v of dimension %d of %v", sizes, d, r.shape())
		}
		parts[i] = c.slice(r, d, at, at+n, 1)
		at += n
	}
	c.set(parts)
	return nil
}

func unbind(c *call) error {
	r := c.tensor("self")
	d := c.dim("dim", r.rank())
	if c.err != nil {
		return c.err
	}
	if r.rank() == 0 {
		return fmt.Errorf("unbind of a scalar")
	}
	if err := checkParts(r.shape()[d]); err != nil {
		return err
	}
	parts := make([]*Ref, r.shape()[d])
	for i := range parts {
		parts[i] = c.selectAt(r, d, i)
	}
	c.set(parts)
	return nil
}

// evenParts returns sizes of n that add up to total, the last one smaller; one empty part of nothing.
func evenParts(total, n int) []int {
	if total == 0 {
		return []int{0}
	}
	var sizes []int
	for left := total; left > 0; left -= n {
		sizes = append(sizes, min(n, left))
	}
	return sizes
}

// sizeOf returns the size of dimension d, 0 for a scalar, which no split takes.
func sizeOf(r *Ref, d int) int {
	if d >= r.rank() {
		return 0
	}
	return r.shape()[d]
}

func splitEven(c *call) error {
	r := c.tensor("self")
	d, n := c.dim("dim", r.rank()), c.int("split_size")
	if n <= 0 && sizeOf(r, d) > 0 || n < 0 {
		return fmt.Errorf("parts of %d", n)
	}
	if err := checkParts(sizeOf(r, d) / max(n, 1)); err != nil {
		return err
	}
	return c.giveParts(d, evenParts(sizeOf(r, d), n))
}

func splitSizes(name string) func(c *call) error {
	return func(c *call) error {
		r := c.tensor("self")
		d, sizes := c.dim("dim", r.rank()), c.ints(name)
		total := 0
		for _, n := range sizes {
			total += n
		}
		if total != sizeOf(r, d) {
			return fmt.Errorf("parts %v of dimension %d of %v", sizes, d, r.shape())
		}
		return c.giveParts(d, sizes)
	}
}

func chunk(c *call) error {
	r := c.tensor("self")
	d, n := c.dim("dim", r.rank()), c.int("chunks")
	if n <= 0 {
		return fmt.Errorf("%d chunks", n)
	}
	if err := checkParts(n); err != nil {
		return err
	}
	size := sizeOf(r, d) / n
	if sizeOf(r, d)%n > 0 { // n − 1 more might be more than 2^63
		size++
	}
	if size == 0 { // PyTorch gives as many empty parts as asked for
		return c.giveParts(d, make([]int, n))
	}
	return c.giveParts(d, evenParts(sizeOf(r, d), size))
}

func splitSections(c *call) error {
	r := c.tensor("self")
	d, n := c.dim("dim", r.rank()), c.int("sections")
	if n <= 0 {
		return fmt.Errorf("%d sections", n)
	}
	if err := checkParts(n); err != nil {
		return err
	}
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = sizeOf(r, d) / n
		if i < sizeOf(r, d)%n {
			sizes[i]++
		}
	}
	return c.giveParts(d, sizes)
}

func splitIndices(c *call) error {
	r := c.tensor("self")
	d := c.dim("dim", r.rank())
	if c.err != nil || r.rank() == 0 {
		return fmt.Errorf("split of %v", r.shape())
	}
	n := r.shape()[d]
	clamp := func(i int) int {
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	var parts []*Ref
	from := 0
	for _, to := range c.ints("indices") {
		to = clamp(to)
		parts = append(parts, c.slice(r, d, from, max(from, to), 1))
		from = to
	}
	c.set(append(parts, c.slice(r, d, from, n, 1)))
	return c.err
}

// meshgrid expands vectors over the grid that they span; indexing "xy" exchanges the first two dimensions.
func meshgrid(c *call) error {
	in := c.tensors("tensors")
	if err := CheckRank(len(in)); err != nil {
		return err
	}
	xy := c.args["indexing"] != nil && c.str("indexing") == "xy" && len(in) >= 2
	shape := make(tensor.Shape, len(in))
	place := make([]int, len(in))
	for i, r := range in {
		place[i] = i
		if xy && i < 2 {
			place[i] = 1 - i
		}
		if r == nil || r.rank() > 1 {
			return fmt.Errorf("meshgrid of what is not a vector")
		}
		shape[place[i]] = int(NumElements(r.shape()))
	}
	grids := make([]*Ref, len(in))
	for i, r := range in {
		l := tensor.Layout{Shape: shape, Strides: make([]int, len(shape)), Offset: r.layout.Offset}
		if r.rank() == 1 {
			l.Strides[place[i]] = r.layout.Strides[0]
		}
		grids[i] = c.view(r, l)
	}
	c.set(grids)
	return c.err
}
