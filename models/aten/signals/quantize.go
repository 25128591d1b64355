package signals

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// quantizeTargets round numbers to integers on a scale, and back: what torch.ao.quantization writes into programs.
var quantizeTargets = func() []call.Overload {
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
	quantized := func(c *call.Call) (*cells.Ref, error) {
		s, err := scaleOf(c, c.Tensor("input"))
		if err != nil {
			return nil, err
		}
		q, _, err := quantize(c, c.Tensor("input"), s)
		if err != nil {
			return nil, err
		}
		return c.Cast(q, c.DType("dtype", tensor.Int8))
	}
	restored := func(c *call.Call) (*cells.Ref, error) {
		s, err := scaleOf(c, c.Tensor("input"))
		if err != nil {
			return nil, err
		}
		d := c.DType("out_dtype", tensor.Float32)
		x, err := dequantize(c, c.Tensor("input"), s)
		if err != nil {
			return nil, err
		}
		return c.Cast(x, d)
	}
	faked := func(c *call.Call) (*cells.Ref, error) {
		r, _, err := fakeQuantize(c)
		return r, err
	}
	masked := func(c *call.Call) error {
		r, inside, err := fakeQuantize(c)
		if err != nil {
			return err
		}
		c.Set(r, inside)
		return nil
	}
	return []call.Overload{
		call.One(space+"quantize_per_tensor(Tensor input, "+numbers+to, quantized),
		call.One(space+"quantize_per_tensor.tensor(Tensor input, "+tensors+to, quantized),
		call.One(space+"dequantize_per_tensor(Tensor input, "+numbers+from, restored),
		call.One(space+"dequantize_per_tensor.tensor(Tensor input, "+tensors+from, restored),
		call.One(space+"quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, "+to,
			quantized),
		call.One(space+"dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, "+from,
			restored),
		call.Several(space+"choose_qparams.tensor(Tensor input, "+limits+
			", float eps, ScalarType dtype) -> (Tensor, Tensor)",
			chooseScale),
		call.One(perTensor+"(Tensor self, "+numbers+limits+") -> Tensor", faked),
		call.One(perTensor+".tensor_qparams(Tensor self, "+tensors+limits+") -> Tensor", faked),
		call.Several(perTensor+"_cachemask(Tensor self, "+numbers+limits+") -> (Tensor output, Tensor mask)", masked),
		call.One(channels+"(Tensor self, "+tensors+"int axis, "+limits+") -> Tensor", faked),
		call.Several(channels+"_cachemask(Tensor self, "+tensors+"int axis, "+limits+
			") -> (Tensor output, Tensor mask)", masked),
	}
}()

// A quantScale maps the integers q to (q − zero) × scale. Both broadcast to what they are for; zero may be nil.
type quantScale struct {
	// scale is float64, as Python numbers are, or float32.
	scale, zero *cells.Ref
}

// scaleOf reads a call's scale and zero point, of all of x or of each index of dimension "axis".
func scaleOf(c *call.Call, x *cells.Ref) (*quantScale, error) {
	s := &quantScale{}
	name, zero := "scale", "zero_point"
	if c.Has("scales") {
		name, zero = "scales", "zero_points"
	}
	var err error
	switch v := c.Args[name].(type) {
	case float64, int:
		s.scale, err = c.Scalar(v, tensor.Float64)
	default:
		s.scale = c.Tensor(name)
	}
	if err == nil && c.Has(zero) {
		s.zero = c.OptTensor(zero)
	}
	if c.Err != nil || err != nil {
		return nil, fmt.Errorf("a scale: %v %v", c.Err, err)
	}
	shape := tensor.Shape{}
	if c.Schema.Has("axis") {
		axis := c.Dim("axis", x.Rank())
		if c.Err != nil || x.Rank() == 0 {
			return nil, fmt.Errorf("channels of %v", x.Shape())
		}
		shape = slices.Repeat(tensor.Shape{1}, x.Rank())
		shape[axis] = x.Shape()[axis]
	}
	for _, r := range []**cells.Ref{&s.scale, &s.zero} {
		if *r == nil {
			continue
		}
		if *r, err = c.Reshape(*r, shape); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// quantize returns the integers, as floats, that x is rounded to, and which of them lie within "quant_min" and
// "quant_max" before they are made to.
func quantize(c *call.Call, x *cells.Ref, s *quantScale) (q, inside *cells.Ref, err error) {
	if x, err = c.Cast(x, tensor.Float32); err != nil {
		return nil, nil, err
	}
	inverse, err := c.Apply("reciprocal", nil, s.scale)
	if err != nil {
		return nil, nil, err
	}
	if inverse, err = c.Cast(inverse, tensor.Float32); err != nil {
		return nil, nil, err
	}
	if q, err = c.Combine("mul", nil, x, inverse); err != nil {
		return nil, nil, err
	}
	if q, err = c.Apply("round", nil, q); err != nil {
		return nil, nil, err
	}
	if s.zero != nil {
		zero, err := c.Cast(s.zero, tensor.Float32)
		if err != nil {
			return nil, nil, err
		}
		if q, err = c.Combine("add", nil, q, zero); err != nil {
			return nil, nil, err
		}
	}
	rounded := q
	for _, end := range []struct {
		kind  graph.Kind
		limit string
	}{{"maximum", "quant_min"}, {"minimum", "quant_max"}} {
		if q, err = c.Combine(end.kind, nil, q, c.Int(end.limit)); err != nil {
			return nil, nil, err
		}
	}
	inside, err = c.Combine("eq", nil, q, rounded)
	return q, inside, err
}

// dequantize returns the numbers that integers stand for.
func dequantize(c *call.Call, q *cells.Ref, s *quantScale) (*cells.Ref, error) {
	q, err := c.Cast(q, tensor.Float32)
	if err != nil {
		return nil, err
	}
	symmetric := s.zero == nil
	if !symmetric {
		// x − 0 is x, to the last bit: without it a device sees weights that are scaled, which it need not widen.
		if symmetric, err = c.Zeros(s.zero); err != nil {
			return nil, err
		}
	}
	if !symmetric {
		zero, err := c.Cast(s.zero, tensor.Float32)
		if err != nil {
			return nil, err
		}
		if q, err = c.Combine("sub", nil, q, zero); err != nil {
			return nil, err
		}
	}
	scale, err := c.Cast(s.scale, tensor.Float32)
	if err != nil {
		return nil, err
	}
	return c.Combine("mul", nil, q, scale)
}

// fakeQuantize rounds "self" to what the integers can stand for.
func fakeQuantize(c *call.Call) (r, inside *cells.Ref, err error) {
	x := c.Tensor("self")
	s, err := scaleOf(c, x)
	if err != nil {
		return nil, nil, err
	}
	if s.scale, err = c.Cast(s.scale, tensor.Float32); err != nil {
		return nil, nil, err
	}
	q, inside, err := quantize(c, x, s)
	if err != nil {
		return nil, nil, err
	}
	if r, err = dequantize(c, q, s); err != nil {
		return nil, nil, err
	}
	r, err = c.Cast(r, x.DType())
	return r, inside, err
}

// chooseScale gives the scale and the zero point for which the integers reach from the least to the largest number of
// "input", and to 0.
func chooseScale(c *call.Call) error {
	x := c.Tensor("input")
	least, most := c.Int("quant_min"), c.Int("quant_max")
	if c.Err != nil || most <= least || cells.NumElements(x.Shape()) == 0 {
		return fmt.Errorf("integers from %d to %d for %v", least, most, x.Shape())
	}
	if x.DType() != tensor.Float32 {
		return c.Unsupported("a scale for %v", x.DType())
	}
	var err error
	var ends [2]*cells.Ref
	for i, kinds := range [][2]graph.Kind{{"amin", "minimum"}, {"amax", "maximum"}} {
		if ends[i], err = c.Fold(kinds[0], x, cells.AllDims(x.Rank()), false, nil); err != nil {
			return err
		}
		if ends[i], err = c.Combine(kinds[1], nil, ends[i], 0); err != nil {
			return err
		}
	}
	scale, err := c.Combine("sub", nil, ends[1], ends[0])
	if err != nil {
		return err
	}
	if scale, err = c.Combine("div", nil, scale, float64(most-least)); err != nil {
		return err
	}
	if scale, err = c.Combine("maximum", nil, scale, c.Float("eps")); err != nil {
		return err
	}
	zero, err := c.Combine("div", nil, ends[0], scale)
	if err != nil {
		return err
	}
	if zero, err = c.Apply("round", nil, zero); err != nil {
		return err
	}
	if zero, err = c.Combine("sub", nil, float64(least), zero); err != nil {
		return err
	}
	if zero, err = c.Combine("maximum", nil, zero, least); err != nil {
		return err
	}
	if zero, err = c.Combine("minimum", nil, zero, most); err != nil {
		return err
	}
	if scale, err = c.Cast(c.Unsqueeze(scale, 0), tensor.Float64); err != nil {
		return err
	}
	if zero, err = c.Cast(c.Unsqueeze(zero, 0), tensor.Int64); err != nil {
		return err
	}
	c.Set(scale, zero)
	return c.Err
}
