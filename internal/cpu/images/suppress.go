package images

import (
	"slices"
	"unsafe"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/axes"
	"github.com/optimem/optimem/internal/cpu/ops"
)

// A box is a candidate of non-maximum suppression.
type box[T ops.Real] struct {
	left, top, right, bottom, area T
	index, class                   int64
	dropped                        bool
}

// nmsWork is room for the order of the scores and for the boxes in that order.
func nmsWork(in, _ []graph.Spec, _ graph.Attrs) int64 {
	return int64(ops.Volume(in[1].Shape)) * int64(unsafe.Sizeof(axes.Ranked{})+unsafe.Sizeof(box[float64]{}))
}

// suppress is torchvision's nms for the CPU, step by step: boxes that overlap by just the threshold stay or go as they do there.
func suppress[T ops.Real](c *ops.Call) error {
	scores := c.In[1]
	n := scores.Size()
	stay, count := ops.Row[int64](c.Out[0]), ops.Row[int64](c.Out[1])
	clear(stay)
	count[0] = 0
	if len(c.In) > 2 && !c.In[2].Absent() {
		n = int(min(max(ops.Row[int64](c.In[2])[0], 0), int64(n)))
	}
	if n == 0 {
		return nil
	}
	order := ops.Elements[axes.Ranked](ops.View{Data: c.Work})[:n]
	axes.RankLine(order, scores, scores.Layout.Offset, scores.Layout.Strides[0], true)
	slices.SortFunc(order, axes.ByKey)
	boxes := ops.Elements[box[T]](ops.View{Data: c.Work[n*int(unsafe.Sizeof(axes.Ranked{})):]})[:n]
	at := c.In[0].Layout
	all := ops.Elements[T](c.In[0])
	for i, o := range order {
		side := func(k int) T { return all[at.Offset+o.Index*at.Strides[0]+k*at.Strides[1]] }
		b := box[T]{left: side(0), top: side(1), right: side(2), bottom: side(3), index: int64(o.Index)}
		b.area = T(b.right-b.left) * T(b.bottom-b.top)
		boxes[i] = b
	}
	if len(c.In) > 3 && !c.In[3].Absent() {
		classes := c.In[3]
		for i := range boxes {
			boxes[i].class = ops.Elements[int64](classes)[classes.Layout.Offset+
				int(boxes[i].index)*classes.Layout.Strides[0]]
		}
	}
	threshold := c.Attrs.Float("threshold")
	for i := range boxes {
		if boxes[i].dropped {
			continue
		}
		if err := c.Ctx.Err(); err != nil {
			return err
		}
		stay[count[0]] = boxes[i].index
		count[0]++
		for j := i + 1; j < n; j++ {
			if !boxes[j].dropped && boxes[i].class == boxes[j].class &&
				float64(boxes[i].overlap(&boxes[j])) > threshold {
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
