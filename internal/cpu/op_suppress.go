package cpu

import (
	"slices"
	"unsafe"

	"github.com/optimem/optimem/graph"
)

// A box is a candidate of non-maximum suppression.
type box[T plainReal] struct {
	left, top, right, bottom, area T
	index, class                   int64
	dropped                        bool
}

// nmsWork is room for the order of the scores and for the boxes in that order.
func nmsWork(in, _ []graph.Spec, _ graph.Attrs) int64 {
	return int64(volume(in[1].Shape)) * int64(unsafe.Sizeof(ranked{})+unsafe.Sizeof(box[float64]{}))
}

// suppress is torchvision's nms for the CPU, step by step: boxes that overlap by just the threshold stay or go as they do there.
func suppress[T plainReal](c *call) error {
	scores := c.in[1]
	n := scores.size()
	stay, count := row[int64](c.out[0]), row[int64](c.out[1])
	clear(stay)
	count[0] = 0
	if len(c.in) > 2 && !c.in[2].absent() {
		n = int(min(max(row[int64](c.in[2])[0], 0), int64(n)))
	}
	if n == 0 {
		return nil
	}
	order := elements[ranked](view{data: c.work})[:n]
	rankLine(order, scores, scores.layout.Offset, scores.layout.Strides[0], true)
	slices.SortFunc(order, byKey)
	boxes := elements[box[T]](view{data: c.work[n*int(unsafe.Sizeof(ranked{})):]})[:n]
	at := c.in[0].layout
	all := elements[T](c.in[0])
	for i, o := range order {
		side := func(k int) T { return all[at.Offset+o.index*at.Strides[0]+k*at.Strides[1]] }
		b := box[T]{left: side(0), top: side(1), right: side(2), bottom: side(3), index: int64(o.index)}
		b.area = T(b.right-b.left) * T(b.bottom-b.top)
		boxes[i] = b
	}
	if len(c.in) > 3 && !c.in[3].absent() {
		classes := c.in[3]
		for i := range boxes {
			boxes[i].class = elements[int64](classes)[classes.layout.Offset+int(boxes[i].index)*classes.layout.Strides[0]]
		}
	}
	threshold := c.attrs.Float("threshold")
	for i := range boxes {
		if boxes[i].dropped {
			continue
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		stay[count[0]] = boxes[i].index
		count[0]++
		for j := i + 1; j < n; j++ {
			if !boxes[j].dropped && boxes[i].class == boxes[j].class && float64(boxes[i].overlap(&boxes[j])) > threshold {
				boxes[j].dropped = true
			}
		}
	}
	return nil
}

// overlap returns which part of the union of two boxes both have. What is not a number is treated as by C++.
func (b *box[T]) overlap(o *box[T]) T {
	left, top, right, bottom := b.left, b.top, b.right, b.bottom
	if left < o.left {
		left = o.left
	}
	if top < o.top {
		top = o.top
	}
	if o.right < right {
		right = o.right
	}
	if o.bottom < bottom {
		bottom = o.bottom
	}
	var width, height T
	if d := right - left; 0 < d {
		width = d
	}
	if d := bottom - top; 0 < d {
		height = d
	}
	both := T(width * height)
	return both / T(T(b.area+o.area)-both)
}
