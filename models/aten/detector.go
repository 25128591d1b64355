package aten

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// detectorTargets are ops of optimem's own. TorchScript's evaluation calls them in the place of functions of torchvision that
// loop over what only data counts.
var detectorTargets = []atenOp{
	// Torchvision's batched_nms: beyond "apart" boxes classes are looked at one by one, up to there all in one plane, where each
	// class has a place of its own.
	op(
		"optimem::batched_nms(Tensor boxes, Tensor scores, Tensor idxs, float iou_threshold, int apart) -> Tensor",
		suppressClasses,
	),
	// Where maps, interpolated to the sizes of their regions, are largest: rows, columns, and what is there.
	{"optimem::heatmap_peaks(Tensor maps, Tensor heights, Tensor widths) -> (Tensor, Tensor, Tensor)", heatmapPeaks},
}

// suppressClasses moves the boxes of each class to a place of its own where there are few, and compares classes where there are
// many: where both are one, which is only with rounding aside, PyTorch's way decides.
func suppressClasses(c *call) (*Ref, error) {
	boxes, scores, classes := c.tensor("boxes"), c.tensor("scores"), c.tensor("idxs")
	apart := c.int("apart")
	if c.err != nil {
		return nil, c.err
	}
	if boxes.rank() != 2 || boxes.shape()[1] != 4 || classes.rank() != 1 || classes.shape()[0] != boxes.shape()[0] {
		return nil, fmt.Errorf("boxes %v of classes %v", boxes.shape(), classes.shape())
	}
	if !isIntegral(classes.dtype) {
		return nil, c.Unsupported("classes of %v", classes.dtype)
	}
	most := boxes.shape()[0]
	count, err := c.Scalar(most, tensor.Int64)
	if err != nil {
		return nil, err
	}
	k, alike := countOf([]*Ref{boxes, scores, classes})
	if k != nil {
		if !alike || k.dim != 0 {
			return nil, c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
		}
		count = k.value
	}
	class, err := c.Cast(bare(classes), tensor.Int64)
	if err != nil {
		return nil, err
	}
	all := bare(boxes)
	if k != nil || most <= apart {
		few, err := c.combine("le", nil, count, apart)
		if err != nil {
			return nil, err
		}
		moved, err := c.movedByClass(boxes, classes)
		if err != nil {
			return nil, err
		}
		if all, err = c.choose(few, boxes.dtype, moved, all); err != nil {
			return nil, err
		}
		if class, err = c.choose(few, tensor.Int64, 0, class); err != nil {
			return nil, err
		}
	}
	refs, err := c.Emit("nms", graph.Attrs{"threshold": c.float("iou_threshold")},
		c.Read(all), c.Read(bare(scores)), c.Read(count), c.Read(class))
	if err != nil {
		return nil, err
	}
	stay := &Count{value: refs[1], most: most}
	if k != nil {
		stay.within = k.Count
	}
	return stay.of(refs[0], 0), c.err
}

// movedByClass moves boxes by their class times one more than the largest coordinate.
func (c *call) movedByClass(boxes, classes *Ref) (*Ref, error) {
	low, ok := lowest.of(boxes.dtype)
	if !ok {
		return nil, c.Unsupported("boxes of %v", boxes.dtype)
	}
	filled, err := c.filledBehind(boxes, low)
	if err != nil {
		return nil, err
	}
	largest, err := c.fold("amax", filled, []int{0, 1}, false, nil)
	if err != nil {
		return nil, err
	}
	step, err := c.combine("add", nil, largest, 1)
	if err != nil {
		return nil, err
	}
	by, err := c.Cast(bare(classes), boxes.dtype)
	if err != nil {
		return nil, err
	}
	if by, err = c.combine("mul", nil, by, step); err != nil {
		return nil, err
	}
	return c.combine("add", nil, bare(boxes), c.unsqueeze(by, 1))
}

func heatmapPeaks(c *call) error {
	maps, heights, widths := c.tensor("maps"), c.tensor("heights"), c.tensor("widths")
	if c.err != nil {
		return c.err
	}
	k, alike := countOf([]*Ref{maps, heights, widths})
	if k != nil && (!alike || k.dim != 0) {
		return c.Unsupported("of rows that are counted by themselves: %s", SizeOfData)
	}
	if heights.rank() != 1 || !heights.shape().Equal(widths.shape()) {
		return fmt.Errorf("heights %v and widths %v of regions", heights.shape(), widths.shape())
	}
	sizes := make([]*Ref, 2)
	for i, r := range []*Ref{heights, widths} {
		var err error
		if sizes[i], err = c.Cast(bare(r), tensor.Int64); err != nil {
			return err
		}
		sizes[i] = c.unsqueeze(sizes[i], 1)
	}
	both, err := c.cat(sizes, 1)
	if err != nil {
		return err
	}
	in := []graph.Operand{c.Read(bare(maps)), c.Read(both)}
	if k != nil {
		in = append(in, c.Read(k.value))
	}
	refs, err := c.Emit("heatmap_peaks", graph.Attrs{}, in...)
	if err != nil {
		return err
	}
	results := []any{c.selectAt(refs[0], 2, 0), c.selectAt(refs[0], 2, 1), refs[1]}
	if k == nil {
		c.set(results...)
		return nil
	}
	return c.giveCounted(results, k.Count, 0)
}
