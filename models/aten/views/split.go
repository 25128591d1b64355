package views

import (
	"fmt"

	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// maxParts bounds the tensors that one op gives: a file may ask for 2^40 of them.
const maxParts = 1 << 16

// CheckParts returns an error for more parts than any program has.
func CheckParts(n int) error {
	if n > maxParts {
		return fmt.Errorf("%d parts; at most %d can be", n, maxParts)
	}
	return nil
}

// giveParts makes the result the parts of "self" along a dimension, of the given sizes.
func giveParts(c *call.Call, d int, sizes []int) error {
	r := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	if r.Rank() == 0 {
		return fmt.Errorf("split of a scalar")
	}
	parts := make([]*cells.Ref, len(sizes))
	at := 0
	for i, n := range sizes {
		if n < 0 || n > r.Shape()[d]-at {
			return fmt.Errorf("parts %v of dimension %d of %v", sizes, d, r.Shape())
		}
		parts[i] = c.Slice(r, d, at, at+n, 1)
		at += n
	}
	c.Set(parts)
	return nil
}

func unbind(c *call.Call) error {
	r := c.Tensor("self")
	d := c.Dim("dim", r.Rank())
	if c.Err != nil {
		return c.Err
	}
	if r.Rank() == 0 {
		return fmt.Errorf("unbind of a scalar")
	}
	if err := CheckParts(r.Shape()[d]); err != nil {
		return err
	}
	parts := make([]*cells.Ref, r.Shape()[d])
	for i := range parts {
		parts[i] = c.SelectAt(r, d, i)
	}
	c.Set(parts)
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
func sizeOf(r *cells.Ref, d int) int {
	if d >= r.Rank() {
		return 0
	}
	return r.Shape()[d]
}

func splitEven(c *call.Call) error {
	r := c.Tensor("self")
	d, n := c.Dim("dim", r.Rank()), c.Int("split_size")
	if n <= 0 && sizeOf(r, d) > 0 || n < 0 {
		return fmt.Errorf("parts of %d", n)
	}
	if err := CheckParts(sizeOf(r, d) / max(n, 1)); err != nil {
		return err
	}
	return giveParts(c, d, evenParts(sizeOf(r, d), n))
}

func splitSizes(name string) func(c *call.Call) error {
	return func(c *call.Call) error {
		r := c.Tensor("self")
		d, sizes := c.Dim("dim", r.Rank()), c.Ints(name)
		total := 0
		for _, n := range sizes {
			total += n
		}
		if total != sizeOf(r, d) {
			return fmt.Errorf("parts %v of dimension %d of %v", sizes, d, r.Shape())
		}
		return giveParts(c, d, sizes)
	}
}

func chunk(c *call.Call) error {
	r := c.Tensor("self")
	d, n := c.Dim("dim", r.Rank()), c.Int("chunks")
	if n <= 0 {
		return fmt.Errorf("%d chunks", n)
	}
	if err := CheckParts(n); err != nil {
		return err
	}
	size := sizeOf(r, d) / n
	if sizeOf(r, d)%n > 0 { // n − 1 more might be more than 2^63
		size++
	}
	if size == 0 { // PyTorch gives as many empty parts as asked for
		return giveParts(c, d, make([]int, n))
	}
	return giveParts(c, d, evenParts(sizeOf(r, d), size))
}

func splitSections(c *call.Call) error {
	r := c.Tensor("self")
	d, n := c.Dim("dim", r.Rank()), c.Int("sections")
	if n <= 0 {
		return fmt.Errorf("%d sections", n)
	}
	if err := CheckParts(n); err != nil {
		return err
	}
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = sizeOf(r, d) / n
		if i < sizeOf(r, d)%n {
			sizes[i]++
		}
	}
	return giveParts(c, d, sizes)
}

func splitIndices(c *call.Call) error {
	r := c.Tensor("self")
	d := c.Dim("dim", r.Rank())
	if c.Err != nil || r.Rank() == 0 {
		return fmt.Errorf("split of %v", r.Shape())
	}
	n := r.Shape()[d]
	clamp := func(i int) int {
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	var parts []*cells.Ref
	from := 0
	for _, to := range c.Ints("indices") {
		to = clamp(to)
		parts = append(parts, c.Slice(r, d, from, max(from, to), 1))
		from = to
	}
	c.Set(append(parts, c.Slice(r, d, from, n, 1)))
	return c.Err
}

// meshgrid expands vectors over the grid that they span; indexing "xy" exchanges the first two dimensions.
func meshgrid(c *call.Call) error {
	in := c.Tensors("tensors")
	if err := cells.CheckRank(len(in)); err != nil {
		return err
	}
	xy := c.Args["indexing"] != nil && c.Text("indexing") == "xy" && len(in) >= 2
	shape := make(tensor.Shape, len(in))
	place := make([]int, len(in))
	for i, r := range in {
		place[i] = i
		if xy && i < 2 {
			place[i] = 1 - i
		}
		if r == nil || r.Rank() > 1 {
			return fmt.Errorf("meshgrid of what is not a vector")
		}
		shape[place[i]] = int(cells.NumElements(r.Shape()))
	}
	grids := make([]*cells.Ref, len(in))
	for i, r := range in {
		l := tensor.Layout{Shape: shape, Strides: make([]int, len(shape)), Offset: r.Layout().Offset}
		if r.Rank() == 1 {
			l.Strides[place[i]] = r.Layout().Strides[0]
		}
		grids[i] = c.View(r, l)
	}
	c.Set(grids)
	return c.Err
}
