package elements

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// activationTargets are the functions of torch.nn.functional. They are for floats.
func activationTargets() []call.Overload {
	const self = "(Tensor self) -> Tensor"
	var all []call.Overload
	for _, name := range []string{"relu", "silu", "mish", "hardswish", "hardsigmoid"} {
		all = append(all, call.Twins("aten::"+name+self, unary(graph.Kind(name)))...)
	}
	all = append(all, call.Twins("aten::gelu(Tensor self, *, str approximate=\"none\") -> Tensor", gelu)...)
	all = append(all, call.Twins("aten::relu6"+self,
		func(c *call.Call) (*cells.Ref, error) { return hardtanh(c, 0, 6) })...)
	all = append(all, call.Twins("aten::hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) { return hardtanh(c, c.Number("min_val"), c.Number("max_val")) })...)
	all = append(all, call.Twins("aten::elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) {
			return elu(c, c.Float("alpha"), c.Float("scale"), c.Float("input_scale"))
		})...)
	all = append(all, call.Twins("aten::selu"+self, func(c *call.Call) (*cells.Ref, error) {
		return elu(c, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1)
	})...)
	all = append(all, call.Twins("aten::celu(Tensor self, Scalar alpha=1.) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) {
			alpha := c.Float("alpha")
			if alpha == 0 {
				return nil, fmt.Errorf("alpha is zero")
			}
			return elu(c, alpha, 1, 1/alpha)
		})...)
	all = append(all, call.Twins("aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor",
		func(c *call.Call) (*cells.Ref, error) { return leakyRelu(c, c.Float("negative_slope")) })...)
	all = append(all, call.Twins("aten::rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.33333333333333331, "+
		"bool training=False, Generator? generator=None) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
		if c.Bool("training") {
			return nil, fmt.Errorf("random numbers while training")
		}
		return leakyRelu(c, (c.Float("lower")+c.Float("upper"))/2)
	})...)
	all = append(all, call.Twins("aten::threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor",
		threshold)...)
	return append(all,
		call.One("aten::softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
			func(c *call.Call) (*cells.Ref, error) {
				return c.Apply("softplus",
					graph.Attrs{"beta": c.Float("beta"), "threshold": c.Float("threshold")}, c.Tensor("self"))
			}),
		call.One("aten::hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor", shrink("hardshrink")),
		call.One("aten::softshrink(Tensor self, Scalar lambd=0.5) -> Tensor", shrink("softshrink")),
		call.One("aten::log_sigmoid"+self, unary("log_sigmoid")),
		call.Several("aten::log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)", logSigmoidForward),
		call.One("aten::glu(Tensor self, int dim=-1) -> Tensor", glu),
		call.One("aten::prelu(Tensor self, Tensor weight) -> Tensor", prelu),
		call.One("aten::_prelu_kernel(Tensor self, Tensor weight) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
			return c.Combine("prelu", nil, c.Tensor("self"), c.Tensor("weight"))
		}),
	)
}

func gelu(c *call.Call) (*cells.Ref, error) {
	approximate := c.Text("approximate")
	if approximate != "none" && approximate != "tanh" {
		return nil, fmt.Errorf("approximation %q", approximate)
	}
	return c.Apply("gelu", graph.Attrs{"approximate": approximate}, c.Tensor("self"))
}

// hardtanh limits self to a range that is converted to its dtype.
func hardtanh(c *call.Call, low, high cells.Number) (*cells.Ref, error) {
	x := c.Tensor("self")
	if !cells.IsIntegral(x.DType()) {
		return clamp(c.Builder, x, low, high)
	}
	return clamp(c.Builder, x, integerOf(low), integerOf(high))
}

func elu(c *call.Call, alpha, scale, inputScale float64) (*cells.Ref, error) {
	return c.Apply("elu", graph.Attrs{"alpha": alpha, "scale": scale, "input_scale": inputScale}, c.Tensor("self"))
}

func leakyRelu(c *call.Call, slope float64) (*cells.Ref, error) {
	return c.Apply("leaky_relu", graph.Attrs{"slope": slope}, c.Tensor("self"))
}

// shrink compares with a limit of self's dtype, but what softshrink takes away is not rounded to half precision.
func shrink(kind graph.Kind) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		x, limit := c.Tensor("self"), c.Float("lambd")
		if kind == "hardshrink" {
			limit = cells.RoundedTo(limit, x.DType())
		}
		return c.Apply(kind, graph.Attrs{"lambda": limit}, x)
	}
}

// threshold: value where self ≤ threshold, else self. Halves are compared with a threshold that is not rounded to one.
func threshold(c *call.Call) (*cells.Ref, error) {
	x := c.Tensor("self")
	d := x.DType()
	if d.IsHalf() {
		d = tensor.Float32
	}
	low, err := c.Together(d, x, c.Number("threshold"))
	if err != nil {
		return nil, err
	}
	is, err := c.Apply("le", nil, low...)
	if err != nil {
		return nil, err
	}
	return c.Choose(is, x.DType(), c.Number("value"), x)
}

// logSigmoidForward gives log_sigmoid and what its gradient needs, e^-|x|.
func logSigmoidForward(c *call.Call) error {
	x := c.Tensor("self")
	y, err := c.Apply("log_sigmoid", nil, x)
	if err != nil {
		return err
	}
	z := x
	for _, kind := range []graph.Kind{"abs", "neg", "exp"} {
		if z, err = c.Apply(kind, nil, z); err != nil {
			return err
		}
	}
	c.Set(y, z)
	return nil
}

// glu is the first half of self along a dimension, times the sigmoid of the second.
func glu(c *call.Call) (*cells.Ref, error) {
	x := c.Tensor("self")
	d := c.Dim("dim", x.Rank())
	if x.Rank() == 0 || x.Shape()[d]%2 != 0 {
		return nil, fmt.Errorf("halves of dimension %d of %v", d, x.Shape())
	}
	half := func(i int) *cells.Ref {
		l := tensor.Layout{
			Shape: append(tensor.Shape{}, x.Shape()...), Strides: x.Layout().Strides, Offset: x.Layout().Offset,
		}
		l.Shape[d] /= 2
		l.Offset += i * l.Shape[d] * l.Strides[d]
		return c.View(x, l)
	}
	return c.Apply("glu", nil, half(0), half(1))
}

// prelu scales what is not positive by one weight, or by one for each channel.
func prelu(c *call.Call) (*cells.Ref, error) {
	x, w := c.Tensor("self"), c.Tensor("weight")
	if n := cells.NumElements(w.Shape()); x.Rank() > 1 && n != 1 && w.Rank() == 1 {
		shape := make(tensor.Shape, x.Rank())
		for i := range shape {
			shape[i] = 1
		}
		shape[1] = w.Shape()[0]
		var err error
		if w, err = c.Reshape(w, shape); err != nil {
			return nil, err
		}
	}
	if w.Rank() > 0 && cells.NumElements(w.Shape()) == 1 {
		w = c.View(w, tensor.Layout{Shape: tensor.Shape{}, Strides: []int{}, Offset: w.Layout().Offset})
	}
	if w.DType() != x.DType() {
		return nil, fmt.Errorf("weight of %v for %v", w.DType(), x.DType())
	}
	refs, err := c.Broadcast(x, w)
	if err != nil {
		return nil, err
	}
	if !refs[0].Shape().Equal(x.Shape()) {
		return nil, fmt.Errorf("weight %v for %v", w.Shape(), x.Shape())
	}
	return c.Apply("prelu", nil, refs...)
}

// clamp limits x to [low, high], either of which may be nil, a number or a tensor, in the dtype that all promote to.
func clamp(b *cells.Builder, x *cells.Ref, low, high cells.Argument) (*cells.Ref, error) {
	self := x
	d, err := cells.ResultType(x, low, high)
	if err != nil {
		return nil, err
	}
	_, lowTensor := low.(*cells.Ref)
	_, highTensor := high.(*cells.Ref)
	if cells.IsFloat(d) && !lowTensor && !highTensor {
		attrs := graph.Attrs{"min": math.Inf(-1), "max": math.Inf(1)}
		if low != nil {
			attrs["min"] = cells.FloatOfNumber(low)
		}
		if high != nil {
			attrs["max"] = cells.FloatOfNumber(high)
		}
		if x, err = b.Cast(x, d); err != nil {
			return nil, err
		}
		return b.Apply("clamp", attrs, x)
	}
	if !cells.IsFloat(d) {
		if low, err = integerBound(low, d, true); err != nil {
			return nil, err
		}
		if high, err = integerBound(high, d, false); err != nil {
			return nil, err
		}
	}
	if low != nil {
		refs, err := b.Together(d, x, low)
		if err != nil {
			return nil, err
		}
		if x, err = b.Apply("maximum", nil, refs...); err != nil {
			return nil, err
		}
	}
	if high != nil {
		refs, err := b.Together(d, x, high)
		if err != nil {
			return nil, err
		}
		if x, err = b.Apply("minimum", nil, refs...); err != nil {
			return nil, err
		}
	}
	if x == self { // neither bounds anything
		return b.Copy(x)
	}
	return x, nil
}

// integerBound returns a bound of a clamp of integers: nil for a number that bounds nothing in the dtype.
func integerBound(bound cells.Argument, d tensor.DType, low bool) (cells.Argument, error) {
	n, ok := bound.(int)
	if !ok || d == tensor.Bool || d.Size() == 8 {
		return bound, nil
	}
	first, last := 0, 1<<(8*d.Size())-1
	if d == tensor.Int8 || d == tensor.Int16 || d == tensor.Int32 {
		first, last = -(last+1)/2, last/2
	}
	switch {
	case n >= first && n <= last:
		return bound, nil
	case low == (n < first):
		return nil, nil
	}
	return nil, fmt.Errorf("bound %d of %v", n, d)
}
