// Package adapt runs code with smaller and smaller batches until it has enough memory, remembers which size worked, and
// tries larger ones again later. It is for code whose memory nobody can plan: a C library, a third-party device, an
// embedder's own op. Models that this module runs do not need it: their memory is planned, and runtime's RunBatch
// splits a batch into micro-batches that fit before anything runs.
//
// It does not know what the code computes or where its memory lies. Only the error counts: an out-of-memory error
// ([IsOutOfMemory]) halves the size, any other ends the call. Running out of Go's own heap cannot be caught, since it
// ends the program; running out of memory outside the heap or on a device can.
//
//	var site adapt.Site // one for each place in the program whose size is worth remembering
//
//	err := adapt.Range(ctx, &site, 0, len(rows), 512, func(ctx context.Context, lo, hi int) error {
//		return library.Embed(rows[lo:hi], out[lo:hi])
//	})
package adapt

import (
	"context"
	"fmt"
	"math"

	"github.com/optimem/optimem/tensor"
)

// Batch calls fn with a size: initial, or the smaller one that the site remembers. Where fn fails for want of memory it is
// called again with half of that, down to 1, so fn must be able to begin anew. The last error of a size of 1, and any error
// that is not for want of memory, is Batch's own.
//
// Between two tries a context that was cancelled ends the call. A nil site remembers nothing.
func Batch(ctx context.Context, site *Site, initial int, fn func(ctx context.Context, n int) error) error {
	if err := check(ctx, initial); err != nil {
		return err
	}
	c := site.begin()
	defer c.abandon()
	for {
		n := c.next(initial, math.MaxInt)
		err := fn(ctx, n)
		if err == nil {
			c.end(n, worked)
			return nil
		}
		if err := c.failed(ctx, n, err); err != nil {
			return err
		}
	}
}

// Range calls fn for one part of [start, end) after the other, in order and without gaps: initial rows at a time, or the
// smaller number that the site remembers; the last part may be shorter. A part that fails for want of memory is tried again
// with half the step; parts before it are not repeated. Errors are as those of [Batch].
func Range(ctx context.Context, site *Site, start, end, initial int,
	fn func(ctx context.Context, lo, hi int) error) error {
	if err := check(ctx, initial); err != nil {
		return err
	}
	c := site.begin()
	defer c.abandon()
	for lo := start; lo < end; {
		left := uint(end) - uint(lo) // more than an int holds, where start is below 0
		step := c.next(initial, int(min(left, math.MaxInt)))
		n := int(min(uint(step), left))
		if err := fn(ctx, lo, lo+n); err != nil {
			if err := c.failed(ctx, step, err); err != nil {
				return err
			}
			continue
		}
		how := worked
		if n < step {
			how = unknown // the rest of a range says nothing about the step
		}
		c.end(step, how)
		if lo += n; lo < end {
			if err := ctx.Err(); err != nil {
				return err
			}
			c.goOn()
		}
	}
	return nil
}

// Chunks calls fn for one part of t after the other, cut along a dimension as [Range] cuts a range; a negative dimension
// counts from the last. A part has the rows [lo, hi) and shares t's memory, so what fn writes there is written to t; fn may
// keep it.
func Chunks(ctx context.Context, site *Site, t *tensor.Tensor, dim, initial int,
	fn func(ctx context.Context, part *tensor.Tensor, lo, hi int) error,
) error {
	rank := len(t.Layout.Shape)
	if dim < -rank || dim >= rank {
		return fmt.Errorf("dimension %d of a tensor of shape %v", dim, t.Layout.Shape)
	}
	if dim < 0 {
		dim += rank
	}
	return Range(ctx, site, 0, t.Layout.Shape[dim], initial, func(ctx context.Context, lo, hi int) error {
		return fn(ctx, narrow(t, dim, lo, hi), lo, hi)
	})
}

// narrow is torch.Tensor.narrow: rows of a dimension, in the same memory.
func narrow(t *tensor.Tensor, dim, lo, hi int) *tensor.Tensor {
	part := *t
	part.Layout.Shape = append(tensor.Shape(nil), t.Layout.Shape...)
	part.Layout.Shape[dim] = hi - lo
	part.Layout.Offset += lo * t.Layout.Strides[dim]
	return &part
}

// check finds what no call can begin with.
func check(ctx context.Context, initial int) error {
	if initial < 1 {
		return fmt.Errorf("an initial size of %d", initial)
	}
	return ctx.Err()
}
