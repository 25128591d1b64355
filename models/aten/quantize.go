package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// quantizeTargets round numbers to integers on a scale, and back: what torch.ao.quantization writes into programs.
var quantizeTargets = func() []atenOp {
	const (
		space     = "quantized_decomposed::"
		limits    = "int quant_min, int quant_max"
		to        = limits + ", ScalarType dtype) -> Tensor"
		from      = limits + ", ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor"
		numbers   = "float scale, int zero_point, "
		tensors   = "Tensor scale, Tensor zero_point, "
		perTensor = "aten::fake_quantize_per_tensor_affine"
		channels  = "aten::fake_quantize_per_channel_affine"
	)
	quantized := func(c *call) (*Ref, error) {
		s, err := c.quantScale(c.tensor("input"))
		if err != nil {
			return nil, err
		}
		q, _, err := c.quantize(c.tensor("input"), s)
		if err != nil {
			return nil, err
		}
		return c.Cast(q, c.dtype("dtype", tensor.Int8))
	}
	restored := func(c *call) (*Ref, error) {
		s, err := c.quantScale(c.tensor("input"))
		if err != nil {
			return nil, err
		}
		d := c.dtype("out_dtype", tensor.Float32)
		x, err := c.dequantize(c.tensor("input"), s)
		if err != nil {
			return nil, err
		}
		return c.Cast(x, d)
	}
	faked := func(c *call) (*Ref, error) {
		r, _, err := c.fakeQuantize()
		return r, err
	}
	masked := func(c *call) error {
		r, inside, err := c.fakeQuantize()
		if err != nil {
			return err
		}
		c.set(r, inside)
		return nil
	}
	return []atenOp{
		op(space+"quantize_per_tensor(Tensor input, "+numbers+to, quantized),
		op(space+"quantize_per_tensor.tensor(Tensor input, "+tensors+to, quantized),
		op(space+"dequantize_per_tensor(Tensor input, "+numbers+from, restored),
		op(space+"dequantize_per_tensor.tensor(Tensor input, "+tensors+from, restored),
		op(space+"quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, "+to, quantized),
		op(space+"dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, "+from, restored),
		{space + "choose_qparams.tensor(Tensor input, " + limits + ", float eps, ScalarType dtype) -> (Tensor, Tensor)",
			chooseScale},
		op(perTensor+"(Tensor self, "+numbers+limits+") -> Tensor", faked),
		op(perTensor+".tensor_qparams(Tensor self, "+tensors+limits+") -> Tensor", faked),
		{perTensor + "_cachemask(Tensor self, " + numbers + limits + ") -> (Tensor output, Tensor mask)", masked},
		op(channels+"(Tensor self, "+tensors+"int axis, "+limits+") -> Tensor", faked),
		{channels + "_cachemask(Tensor self, " + tensors + "int axis, " + limits +
			") -> (Tensor output, Tensor mask)", masked},
	}
}()

// A quantScale maps the integers q to (q − zero) × scale. Both broadcast to what they are for; zero may be nil.
type quantScale struct {
	// scale is float64, as Python numbers are, or float32.
	scale, zero *Ref
}

// quantScale reads a call's scale and zero point, of all of x or of each index of dimension "axis".
func (c *call) quantScale(x *Ref) (*quantScale, error) {
	s := &quantScale{}
	name, zero := "scale", "zero_point"
	if c.has("scales") {
		name, zero = "scales", "zero_points"
	}
	var err error
	switch v := c.args[name].(type) {
	case float64, int:
		s.scale, err = c.Scalar(v, tensor.Float64)
	default:
		s.scale = c.tensor(name)
	}
	if err == nil && c.has(zero) {
		s.zero = c.optTensor(zero)
	}
	if c.err != nil || err != nil {
		return nil, fmt.Errorf("a scale: %v %v", c.err, err)
	}
	shape := tensor.Shape{}
	if c.schema.has("axis") {
		axis := c.dim("axis", x.rank())
		if c.err != nil || x.rank() == 0 {
			return nil, fmt.Errorf("channels of %v", x.shape())
		}
		shape = slices.Repeat(tensor.Shape{1}, x.rank())
		shape[axis] = x.shape()[axis]
	}
	for _, r := range []**Ref{&s.scale, &s.zero} {
		if *r == nil {
			continue
		}
		if *r, err = c.Reshape(*r, shape); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// quantize returns the integers, as floats, that x is rounded to, and which of them lie within "quant_min" and "quant_max"
// before they are made to.
func (c *call) quantize(x *Ref, s *quantScale) (q, inside *Ref, err error) {
	if x, err = c.Cast(x, tensor.Float32); err != nil {
		return nil, nil, err
	}
	inverse, err := c.apply("reciprocal", nil, s.scale)
	if err != nil {
		return nil, nil, err
	}
	if inverse, err = c.Cast(inverse, tensor.Float32); err != nil {
		return nil, nil, err
	}
	if q, err = c.combine("mul", nil, x, inverse); err != nil {
		return nil, nil, err
	}
	if q, err = c.apply("round", nil, q); err != nil {
		return nil, nil, err
	}
	if s.zero != nil {
		zero, err := c.Cast(s.zero, tensor.Float32)
		if err != nil {
			return nil, nil, err
		}
		if q, err = c.combine("add", nil, q, zero); err != nil {
			return nil, nil, err
		}
	}
	rounded := q
	for _, end := range []struct {
		kind  graph.Kind
		limit string
	}{{"maximum", "quant_min"}, {"minimum", "quant_max"}} {
		if q, err = c.combine(end.kind, nil, q, c.int(end.limit)); err != nil {
			return nil, nil, err
		}
	}
	inside, err = c.combine("eq", nil, q, rounded)
	return q, inside, err
}

// dequantize returns the numbers that integers stand for.
func (c *call) dequantize(q *Ref, s *quantScale) (*Ref, error) {
	q, err := c.Cast(q, tensor.Float32)
	if err != nil {
		return nil, err
	}
	symmetric := s.zero == nil
	if !symmetric {
		// x − 0 is x, to the last bit: without it a device sees weights that are scaled, which it need not widen.
		if symmetric, err = c.zeros(s.zero); err != nil {
			return nil, err
		}
	}
	if !symmetric {
		zero, err := c.Cast(s.zero, tensor.Float32)
		if err != nil {
			return nil, err
		}
		if q, err = c.combine("sub", nil, q, zero); err != nil {
			return nil, err
		}
	}
	scale, err := c.Cast(s.scale, tensor.Float32)
	if err != nil {
		return nil, err
	}
	return c.combine("mul", nil, q, scale)
}

// fakeQuantize rounds "self" to what the integers can stand for.
func (c *call) fakeQuantize() (r, inside *Ref, err error) {
	x := c.tensor("self")
	s, err := c.quantScale(x)
	if err != nil {
		return nil, nil, err
	}
	if s.scale, err = c.Cast(s.scale, tensor.Float32); err != nil {
		return nil, nil, err
	}
	q, inside, err := c.quantize(x, s)
	if err != nil {
		return nil, nil, err
	}
	if r, err = c.dequantize(q, s); err != nil {
		return nil, nil, err
	}
	r, err = c.Cast(r, x.dtype)
	return r, inside, err
}

// chooseScale gives the scale and the zero point for which the integers reach from the least to the largest number of
// "input", and to 0.
func chooseScale(c *call) error {
	x := c.tensor("input")
	least, most := c.int("quant_min"), c.int("quant_max")
	if c.err != nil || most <= least || NumElements(x.shape()) == 0 {
		return fmt.Errorf("integers from %d to %d for %v", least, most, x.shape())
	}
	if x.dtype != tensor.Float32 {
		return c.Unsupported("a scale for %v", x.dtype)
	}
	var err error
	var ends [2]*Ref
	for i, kinds := range [][2]graph.Kind{{"amin", "minimum"}, {"amax", "maximum"}} {
		if ends[i], err = c.fold(kinds[0], x, allDims(x.rank()), false, nil); err != nil {
			return err
		}
		if ends[i], err = c.combine(kinds[1], nil, ends[i], 0); err != nil {
			return err
		}
	}
	scale, err := c.combine("sub", nil, ends[1], ends[0])
	if err != nil {
		return err
	}
	if scale, err = c.combine("div", nil, scale, float64(most-least)); err != nil {
		return err
	}
	if scale, err = c.combine("maximum", nil, scale, c.float("eps")); err != nil {
		return err
	}
	zero, err := c.combine("div", nil, ends[0], scale)
	if err != nil {
		return err
	}
	if zero, err = c.apply("round", nil, zero); err != nil {
		return err
	}
	if zero, err = c.combine("sub", nil, float64(least), zero); err != nil {
		return err
	}
	if zero, err = c.combine("maximum", nil, zero, least); err != nil {
		return err
	}
	if zero, err = c.combine("minimum", nil, zero, most); err != nil {
		return err
	}
	if scale, err = c.Cast(c.unsqueeze(scale, 0), tensor.Float64); err != nil {
		return err
	}
	if zero, err = c.Cast(c.unsqueeze(zero, 0), tensor.Int64); err != nil {
		return err
	}
	c.set(scale, zero)
	return c.err
}
