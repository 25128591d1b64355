package aten

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// detectorTargets are ops of optimem's own. TorchScript's evaluation calls them in the place of functions of torchvision that
// loop over what only data counts.
var detectorTargets = []call.Overload{
	// Torchvision's batched_nms: beyond "apart" boxes classes are looked at one by one, up to there all in one plane, where each
	// class has a place of its own.
	call.One(
		"optimem::batched_nms(Tensor boxes, Tensor scores, Tensor idxs, float iou_threshold, int apart) -> Tensor",
		suppressClasses,
	),
	// Where maps, interpolated to the sizes of their regions, are largest: rows, columns, and what is there.
	call.Several("optimem::heatmap_peaks(Tensor maps, Tensor heights, Tensor widths) -> (Tensor, Tensor, Tensor)",
		heatmapPeaks),
}

// suppressClasses moves the boxes of each class to a place of its own where there are few, and compares classes where there are
// many: where both are one, which is only with rounding aside, PyTorch's way decides.
func suppressClasses(c *call.Call) (*cells.Ref, error) {
	boxes, scores, classes := c.Tensor("boxes"), c.Tensor("scores"), c.Tensor("idxs")
	apart := c.Int("apart")
	if c.Err != nil {
		return nil, c.Err
	}
	if boxes.Rank() != 2 || boxes.Shape()[1] != 4 || classes.Rank() != 1 || classes.Shape()[0] != boxes.Shape()[0] {
		return nil, fmt.Errorf("boxes %v of classes %v", boxes.Shape(), classes.Shape())
	}
	if !cells.IsIntegral(classes.DType()) {
		return nil, c.Unsupported("classes of %v", classes.DType())
	}
	most := boxes.Shape()[0]
	count, err := c.Scalar(most, tensor.Int64)
	if err != nil {
		return nil, err
	}
	k, alike := countOf([]*cells.Ref{boxes, scores, classes})
	if k != nil {
		if !alike || k.Dim != 0 {
			return nil, c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
		}
		count = k.Value
	}
	class, err := c.Cast(cells.Bare(classes), tensor.Int64)
	if err != nil {
		return nil, err
	}
	all := cells.Bare(boxes)
	if k != nil || most <= apart {
		few, err := c.Combine("le", nil, count, apart)
		if err != nil {
			return nil, err
		}
		moved, err := movedByClass(c, boxes, classes)
		if err != nil {
			return nil, err
		}
		if all, err = c.Choose(few, boxes.DType(), moved, all); err != nil {
			return nil, err
		}
		if class, err = c.Choose(few, tensor.Int64, 0, class); err != nil {
			return nil, err
		}
	}
	refs, err := c.Emit("nms", graph.Attrs{"threshold": c.Float("iou_threshold")},
		c.Read(all), c.Read(cells.Bare(scores)), c.Read(count), c.Read(class))
	if err != nil {
		return nil, err
	}
	stay := &cells.Count{Value: refs[1], Most: most}
	if k != nil {
		stay.Within = k.Count
	}
	return stay.Of(refs[0], 0), c.Err
}

// movedByClass moves boxes by their class times one more than the largest coordinate.
func movedByClass(c *call.Call, boxes, classes *cells.Ref) (*cells.Ref, error) {
	low, ok := lowest.of(boxes.DType())
	if !ok {
		return nil, c.Unsupported("boxes of %v", boxes.DType())
	}
	filled, err := c.FilledBehind(boxes, low)
	if err != nil {
		return nil, err
	}
	largest, err := c.Fold("amax", filled, []int{0, 1}, false, nil)
	if err != nil {
		return nil, err
	}
	step, err := c.Combine("add", nil, largest, 1)
	if err != nil {
		return nil, err
	}
	by, err := c.Cast(cells.Bare(classes), boxes.DType())
	if err != nil {
		return nil, err
	}
	if by, err = c.Combine("mul", nil, by, step); err != nil {
		return nil, err
	}
	return c.Combine("add", nil, cells.Bare(boxes), c.Unsqueeze(by, 1))
}

func heatmapPeaks(c *call.Call) error {
	maps, heights, widths := c.Tensor("maps"), c.Tensor("heights"), c.Tensor("widths")
	if c.Err != nil {
		return c.Err
	}
	k, alike := countOf([]*cells.Ref{maps, heights, widths})
	if k != nil && (!alike || k.Dim != 0) {
		return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
	}
	if heights.Rank() != 1 || !heights.Shape().Equal(widths.Shape()) {
		return fmt.Errorf("heights %v and widths %v of regions", heights.Shape(), widths.Shape())
	}
	sizes := make([]*cells.Ref, 2)
	for i, r := range []*cells.Ref{heights, widths} {
		var err error
		if sizes[i], err = c.Cast(cells.Bare(r), tensor.Int64); err != nil {
			return err
		}
		sizes[i] = c.Unsqueeze(sizes[i], 1)
	}
	both, err := c.Cat(sizes, 1)
	if err != nil {
		return err
	}
	in := []graph.Operand{c.Read(cells.Bare(maps)), c.Read(both)}
	if k != nil {
		in = append(in, c.Read(k.Value))
	}
	refs, err := c.Emit("heatmap_peaks", graph.Attrs{}, in...)
	if err != nil {
		return err
	}
	results := []any{c.SelectAt(refs[0], 2, 0), c.SelectAt(refs[0], 2, 1), refs[1]}
	if k == nil {
		c.Set(results...)
		return nil
	}
	return giveCounted(c, results, k.Count, 0)
}
