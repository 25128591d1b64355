package aten

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// activationTargets are the functions of torch.nn.functional. They are for floats.
func activationTargets() []atenOp {
	const self = "(Tensor self) -> Tensor"
	var all []atenOp
	for _, name := range []string{"relu", "silu", "mish", "hardswish", "hardsigmoid"} {
		all = append(all, twins("aten::"+name+self, unary(graph.Kind(name)))...)
	}
	all = append(all, twins("aten::gelu(Tensor self, *, str approximate=\"none\") -> Tensor", gelu)...)
	all = append(all, twins("aten::relu6"+self, func(c *call) (*Ref, error) { return c.hardtanh(0, 6) })...)
	all = append(all, twins("aten::hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
		func(c *call) (*Ref, error) { return c.hardtanh(c.number("min_val"), c.number("max_val")) })...)
	all = append(all, twins("aten::elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
		func(c *call) (*Ref, error) { return c.elu(c.float("alpha"), c.float("scale"), c.float("input_scale")) })...)
	all = append(all, twins("aten::selu"+self, func(c *call) (*Ref, error) {
		return c.elu(1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1)
	})...)
	all = append(all, twins("aten::celu(Tensor self, Scalar alpha=1.) -> Tensor", func(c *call) (*Ref, error) {
		alpha := c.float("alpha")
		if alpha == 0 {
			return nil, fmt.Errorf("alpha is zero")
		}
		return c.elu(alpha, 1, 1/alpha)
	})...)
	all = append(all, twins("aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor",
		func(c *call) (*Ref, error) { return c.leakyRelu(c.float("negative_slope")) })...)
	all = append(all, twins("aten::rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.33333333333333331, "+
		"bool training=False, Generator? generator=None) -> Tensor", func(c *call) (*Ref, error) {
		if c.bool("training") {
			return nil, fmt.Errorf("random numbers while training")
		}
		return c.leakyRelu((c.float("lower") + c.float("upper")) / 2)
	})...)
	all = append(all, twins("aten::threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor", threshold)...)
	return append(all,
		op("aten::softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor", func(c *call) (*Ref, error) {
			return c.apply("softplus",
				graph.Attrs{"beta": c.float("beta"), "threshold": c.float("threshold")}, c.tensor("self"))
		}),
		op("aten::hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor", shrink("hardshrink")),
		op("aten::softshrink(Tensor self, Scalar lambd=0.5) -> Tensor", shrink("softshrink")),
		op("aten::log_sigmoid"+self, unary("log_sigmoid")),
		atenOp{"aten::log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)", logSigmoidForward},
		op("aten::glu(Tensor self, int dim=-1) -> Tensor", glu),
		op("aten::prelu(Tensor self, Tensor weight) -> Tensor", prelu),
		op("aten::_prelu_kernel(Tensor self, Tensor weight) -> Tensor", func(c *call) (*Ref, error) {
			return c.combine("prelu", nil, c.tensor("self"), c.tensor("weight"))
		}),
	)
}

func gelu(c *call) (*Ref, error) {
	approximate := c.str("approximate")
	if approximate != "none" && approximate != "tanh" {
		return nil, fmt.Errorf("approximation %q", approximate)
	}
	return c.apply("gelu", graph.Attrs{"approximate": approximate}, c.tensor("self"))
}

// hardtanh limits self to a range that is converted to its dtype.
func (c *call) hardtanh(low, high number) (*Ref, error) {
	x := c.tensor("self")
	if !isIntegral(x.dtype) {
		return c.clamp(x, low, high)
	}
	return c.clamp(x, integerOf(low), integerOf(high))
}

func (c *call) elu(alpha, scale, inputScale float64) (*Ref, error) {
	return c.apply("elu", graph.Attrs{"alpha": alpha, "scale": scale, "input_scale": inputScale}, c.tensor("self"))
}

func (c *call) leakyRelu(slope float64) (*Ref, error) {
	return c.apply("leaky_relu", graph.Attrs{"slope": slope}, c.tensor("self"))
}

// shrink compares with a limit of self's dtype, but what softshrink takes away is not rounded to half precision.
func shrink(kind graph.Kind) meaning {
	return func(c *call) (*Ref, error) {
		x, limit := c.tensor("self"), c.float("lambd")
		if kind == "hardshrink" {
			limit = roundedTo(limit, x.dtype)
		}
		return c.apply(kind, graph.Attrs{"lambda": limit}, x)
	}
}

// threshold: value where self ≤ threshold, else self. Halves are compared with a threshold that is not rounded to one.
func threshold(c *call) (*Ref, error) {
	x := c.tensor("self")
	d := x.dtype
	if d.IsHalf() {
		d = tensor.Float32
	}
	low, err := c.together(d, x, c.number("threshold"))
	if err != nil {
		return nil, err
	}
	is, err := c.apply("le", nil, low...)
	if err != nil {
		return nil, err
	}
	return c.choose(is, x.dtype, c.number("value"), x)
}

// logSigmoidForward gives log_sigmoid and what its gradient needs, e^-|x|.
func logSigmoidForward(c *call) error {
	x := c.tensor("self")
	y, err := c.apply("log_sigmoid", nil, x)
	if err != nil {
		return err
	}
	z := x
	for _, kind := range []graph.Kind{"abs", "neg", "exp"} {
		if z, err = c.apply(kind, nil, z); err != nil {
			return err
		}
	}
	c.set(y, z)
	return nil
}

// glu is the first half of self along a dimension, times the sigmoid of the second.
func glu(c *call) (*Ref, error) {
	x := c.tensor("self")
	d := c.dim("dim", x.rank())
	if x.rank() == 0 || x.shape()[d]%2 != 0 {
		return nil, fmt.Errorf("halves of dimension %d of %v", d, x.shape())
	}
	half := func(i int) *Ref {
		l := tensor.Layout{
			Shape: append(tensor.Shape{}, x.shape()...), Strides: x.layout.Strides, Offset: x.layout.Offset,
		}
		l.Shape[d] /= 2
		l.Offset += i * l.Shape[d] * l.Strides[d]
		return c.view(x, l)
	}
	return c.apply("glu", nil, half(0), half(1))
}

// prelu scales what is not positive by one weight, or by one for each channel.
func prelu(c *call) (*Ref, error) {
	x, w := c.tensor("self"), c.tensor("weight")
	if n := NumElements(w.shape()); x.rank() > 1 && n != 1 && w.rank() == 1 {
		shape := make(tensor.Shape, x.rank())
		for i := range shape {
			shape[i] = 1
		}
		shape[1] = w.shape()[0]
		var err error
		if w, err = c.Reshape(w, shape); err != nil {
			return nil, err
		}
	}
	if w.rank() > 0 && NumElements(w.shape()) == 1 {
		w = c.view(w, tensor.Layout{Shape: tensor.Shape{}, Strides: []int{}, Offset: w.layout.Offset})
	}
	if w.dtype != x.dtype {
		return nil, fmt.Errorf("weight of %v for %v", w.dtype, x.dtype)
	}
	refs, err := c.broadcast(x, w)
	if err != nil {
		return nil, err
	}
	if !refs[0].shape().Equal(x.shape()) {
		return nil, fmt.Errorf("weight %v for %v", w.shape(), x.shape())
	}
	return c.apply("prelu", nil, refs...)
}

// clamp limits x to [low, high], either of which may be nil, a number or a tensor, in the dtype that all promote to.
func (b *Builder) clamp(x *Ref, low, high operandArg) (*Ref, error) {
	self := x
	d, err := resultType(x, low, high)
	if err != nil {
		return nil, err
	}
	_, lowTensor := low.(*Ref)
	_, highTensor := high.(*Ref)
	if IsFloat(d) && !lowTensor && !highTensor {
		attrs := graph.Attrs{"min": math.Inf(-1), "max": math.Inf(1)}
		if low != nil {
			attrs["min"] = floatOfNumber(low)
		}
		if high != nil {
			attrs["max"] = floatOfNumber(high)
		}
		if x, err = b.Cast(x, d); err != nil {
			return nil, err
		}
		return b.apply("clamp", attrs, x)
	}
	if !IsFloat(d) {
		if low, err = integerBound(low, d, true); err != nil {
			return nil, err
		}
		if high, err = integerBound(high, d, false); err != nil {
			return nil, err
		}
	}
	if low != nil {
		refs, err := b.together(d, x, low)
		if err != nil {
			return nil, err
		}
		if x, err = b.apply("maximum", nil, refs...); err != nil {
			return nil, err
		}
	}
	if high != nil {
		refs, err := b.together(d, x, high)
		if err != nil {
			return nil, err
		}
		if x, err = b.apply("minimum", nil, refs...); err != nil {
			return nil, err
		}
	}
	if x == self { // neither bounds anything
		return b.copy(x)
	}
	return x, nil
}

// integerBound returns a bound of a clamp of integers: nil for a number that bounds nothing in the dtype.
func integerBound(bound operandArg, d tensor.DType, low bool) (operandArg, error) {
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
