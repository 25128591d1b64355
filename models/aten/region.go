package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// regionTargets are torchvision's ops. What some give beside their result is for its derivative, and not computed.
var regionTargets = []atenOp{
	op("torchvision::roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"+
		" int sampling_ratio, bool aligned) -> Tensor", func(c *call) (*Ref, error) {
		return c.regions(
			"roi_align", graph.Attrs{"sampling": max(c.int("sampling_ratio"), 0), "aligned": c.bool("aligned")},
		)
	}),
	regionsAndMore("torchvision::roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,"+
		" SymInt pooled_width) -> (Tensor, Tensor)", func(
		c *call,
	) (*Ref, error) {
		return c.regions("roi_pool", graph.Attrs{})
	}),
	regionsAndMore("torchvision::ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,"+
		" SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)", func(c *call) (*Ref, error) {
		return c.regions("roi_align", graph.Attrs{"sampling": max(c.int("sampling_ratio"), 0), "positional": true})
	}),
	regionsAndMore("torchvision::ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,"+
		" SymInt pooled_width) -> (Tensor, Tensor)", func(c *call) (*Ref, error) {
		return c.regions("roi_pool", graph.Attrs{"positional": true})
	}),
	op("torchvision::deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h,"+
		" SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups,"+
		" SymInt offset_groups, bool use_mask) -> Tensor", deformConv),
}

// regionsAndMore returns an overload whose second result is for the derivative of the first.
func regionsAndMore(schema string, f meaning) atenOp {
	return atenOp{schema, func(c *call) error {
		r, err := f(c)
		c.set(r, nil)
		return err
	}}
}

func (c *call) regions(kind graph.Kind, attrs graph.Attrs) (*Ref, error) {
	attrs["scale"] = c.float("spatial_scale")
	attrs["size"] = []int{c.int("pooled_height"), c.int("pooled_width")}
	x, regions := c.tensor("input"), c.tensor("rois")
	if c.err != nil {
		return nil, c.err
	}
	return c.Emit1(kind, attrs, c.Read(x), c.Read(regions))
}

// deformConv is a product of the weight and of what each position of the kernel meets.
func deformConv(c *call) (*Ref, error) {
	x, weight, moves, bias := c.tensor("input"), c.tensor("weight"), c.tensor("offset"), c.tensor("bias")
	pair := func(name string) []int { return []int{c.int(name + "_h"), c.int(name + "_w")} }
	attrs := graph.Attrs{
		"stride": pair("stride"), "padding": pair("pad"), "dilation": pair("dilation"),
		"groups": c.int("offset_groups"),
	}
	groups := c.int("groups")
	var mask *Ref
	if c.bool("use_mask") {
		mask = c.tensor("mask")
	}
	if c.err != nil {
		return nil, c.err
	}
	w := weight.shape()
	if len(w) != 4 || groups < 1 || x.rank() != 4 || w[0]%groups != 0 || w[1]*groups != x.shape()[1] ||
		!bias.shape().Equal(tensor.Shape{w[0]}) {
		return nil, fmt.Errorf("weights %v and %v for an input %v in %d groups", w, bias.shape(), x.shape(), groups)
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
	s := columns.shape()
	n, each, outputs := s[0], w[1]*w[2]*w[3], s[3]*s[4]
	if columns, err = c.Reshape(columns, tensor.Shape{n, groups, each, outputs}); err != nil {
		return nil, err
	}
	if weight, err = c.Reshape(weight, tensor.Shape{1, groups, w[0] / groups, each}); err != nil {
		return nil, err
	}
	if weight, err = c.expand(weight, tensor.Shape{n, groups, w[0] / groups, each}); err != nil {
		return nil, err
	}
	if bias, err = c.Reshape(bias, tensor.Shape{1, groups, w[0] / groups, 1}); err != nil {
		return nil, err
	}
	if bias, err = c.expand(bias, tensor.Shape{n, groups, w[0] / groups, outputs}); err != nil {
		return nil, err
	}
	out, err := c.apply("matmul", graph.Attrs{"alpha": 1.0, "beta": 1.0}, weight, columns, bias)
	if err != nil {
		return nil, err
	}
	return c.Reshape(out, slices.Concat(tensor.Shape{n, w[0]}, s[3:]))
}
