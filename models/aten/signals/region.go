package signals

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// regionTargets are torchvision's ops. What some give beside their result is for its derivative, and not computed.
var regionTargets = []call.Overload{
	call.One("torchvision::roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"+
		" int sampling_ratio, bool aligned) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
		return regions(c,
			"roi_align", graph.Attrs{"sampling": max(c.Int("sampling_ratio"), 0), "aligned": c.Bool("aligned")},
		)
	}),
	regionsAndMore("torchvision::roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,"+
		" SymInt pooled_width) -> (Tensor, Tensor)", func(
		c *call.Call,
	) (*cells.Ref, error) {
		return regions(c, "roi_pool", graph.Attrs{})
	}),
	regionsAndMore("torchvision::ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,"+
		" SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)", func(c *call.Call) (*cells.Ref, error) {
		return regions(c, "roi_align", graph.Attrs{"sampling": max(c.Int("sampling_ratio"), 0), "positional": true})
	}),
	regionsAndMore("torchvision::ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,"+
		" SymInt pooled_width) -> (Tensor, Tensor)", func(c *call.Call) (*cells.Ref, error) {
		return regions(c, "roi_pool", graph.Attrs{"positional": true})
	}),
	call.One("torchvision::deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h,"+
		" SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups,"+
		" SymInt offset_groups, bool use_mask) -> Tensor", deformConv),
}

// regionsAndMore returns an overload whose second result is for the derivative of the first.
func regionsAndMore(schema string, f call.Meaning) call.Overload {
	return call.Several(schema, func(c *call.Call) error {
		r, err := f(c)
		c.Set(r, nil)
		return err
	})
}

func regions(c *call.Call, kind graph.Kind, attrs graph.Attrs) (*cells.Ref, error) {
	attrs["scale"] = c.Float("spatial_scale")
	attrs["size"] = []int{c.Int("pooled_height"), c.Int("pooled_width")}
	x, regions := c.Tensor("input"), c.Tensor("rois")
	if c.Err != nil {
		return nil, c.Err
	}
	return c.Emit1(kind, attrs, c.Read(x), c.Read(regions))
}

// deformConv is a product of the weight and of what each position of the kernel meets.
func deformConv(c *call.Call) (*cells.Ref, error) {
	x, weight, moves, bias := c.Tensor("input"), c.Tensor("weight"), c.Tensor("offset"), c.Tensor("bias")
	pair := func(name string) []int { return []int{c.Int(name + "_h"), c.Int(name + "_w")} }
	attrs := graph.Attrs{
		"stride": pair("stride"), "padding": pair("pad"), "dilation": pair("dilation"),
		"groups": c.Int("offset_groups"),
	}
	groups := c.Int("groups")
	var mask *cells.Ref
	if c.Bool("use_mask") {
		mask = c.Tensor("mask")
	}
	if c.Err != nil {
		return nil, c.Err
	}
	w := weight.Shape()
	if len(w) != 4 || groups < 1 || x.Rank() != 4 || w[0]%groups != 0 || w[1]*groups != x.Shape()[1] ||
		!bias.Shape().Equal(tensor.Shape{w[0]}) {
		return nil, fmt.Errorf("weights %v and %v for an input %v in %d groups", w, bias.Shape(), x.Shape(), groups)
	}
	attrs["kernel"] = []int{w[2], w[3]}
	operands := []graph.Operand{c.Read(x), c.Read(moves)}
	if mask != nil {
		operands = append(operands, c.Read(mask))
	}
	columns, err := c.Emit1("deform_columns", attrs, operands...)
	if err != nil {
		return nil, err
	}
	s := columns.Shape()
	n, each, outputs := s[0], w[1]*w[2]*w[3], s[3]*s[4]
	if columns, err = c.Reshape(columns, tensor.Shape{n, groups, each, outputs}); err != nil {
		return nil, err
	}
	if weight, err = c.Reshape(weight, tensor.Shape{1, groups, w[0] / groups, each}); err != nil {
		return nil, err
	}
	if weight, err = c.Expand(weight, tensor.Shape{n, groups, w[0] / groups, each}); err != nil {
		return nil, err
	}
	if bias, err = c.Reshape(bias, tensor.Shape{1, groups, w[0] / groups, 1}); err != nil {
		return nil, err
	}
	if bias, err = c.Expand(bias, tensor.Shape{n, groups, w[0] / groups, outputs}); err != nil {
		return nil, err
	}
	out, err := c.Apply("matmul", graph.Attrs{"alpha": 1.0, "beta": 1.0}, weight, columns, bias)
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, slices.Concat(tensor.Shape{n, w[0]}, s[3:]))
}
