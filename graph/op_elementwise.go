package graph

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// Elementwise ops take operands of one shape: whoever builds the graph expands them (by a stride of zero) and casts
// them to the dtype that PyTorch computes in. A float32 operand may stand beside float16 or bfloat16 ones, for a number that
// PyTorch does not round to half precision before it computes; the result has half precision.
var elementwiseOps = slices.Concat(
	[]OpDef{
		// cast: the value in the dtype of attribute "dtype"; floats are truncated to integers, and what is not zero is true.
		{Kind: "cast", Shape: castShape, FLOPs: noFLOPs, Axes: samePlace},
		// where: In[1] where In[0], of bool, is true, else In[2]; any dtype.
		{Kind: "where", Shape: whereShape, Axes: samePlace},
		// signbit: whether the sign is negative, also that of zero and NaN.
		{Kind: "signbit", Shape: compareShape(1), Axes: samePlace},
		// bitwise_not: not x for bool.
		{Kind: "bitwise_not", Shape: sameDType(1, isInteger, isBool), Axes: samePlace},
	},
	// One operand of any real dtype. square is x × x; relu keeps NaN.
	kindsOf(sameDType(1, isInteger, isFloat), "abs", "neg", "relu", "sign", "square"),
	// One operand of a float dtype. round takes ties to even; logit has attribute "eps" (none: NaN), below which and
	// above one minus which it clamps.
	kindsOf(sameDType(1, isFloat),
		"acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "digamma", "erf", "erfc", "erfinv",
		"exp", "exp2", "expm1", "floor", "frac", "lgamma", "log", "log10", "log1p", "log2", "logit", "ndtr",
		"reciprocal",
		"round", "rsqrt", "sigmoid", "sin", "sinc", "sinh", "sqrt", "tan", "tanh", "trunc"),
	// Functions of torch.special under its names; trigamma is the derivative of digamma.
	kindsOf(sameDType(1, isFloat),
		"bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "entr", "erfcx", "i0", "i0e", "i1", "i1e", "log_ndtr",
		"ndtri",
		"spherical_bessel_j0", "trigamma"),
	// Activations. gelu has attribute "approximate" ("none" or "tanh"); elu "alpha", "scale" and "input_scale"; leaky_relu
	// "slope"; softplus "beta" and "threshold"; hardshrink and softshrink "lambda"; clamp "min" and "max" (infinite for
	// none, NaN makes all NaN); nan_to_num "nan", "posinf" and "neginf".
	kindsOf(sameDType(1, isFloat),
		"gelu", "silu", "mish", "hardswish", "hardsigmoid", "elu", "leaky_relu", "log_sigmoid", "softplus",
		"hardshrink",
		"softshrink", "clamp", "nan_to_num"),
	// Two operands of any real dtype. add is In[0] + alpha × In[1] and sub In[0] − alpha × In[1], where attribute "alpha"
	// is 1 if absent and 1 for integers. Integers wrap; div_floor, div_trunc, remainder and fmod of integers fail on a
	// divisor of zero while running.
	kindsOf(
		sameDType(2, isInteger, isFloat), "add", "sub", "mul", "div_floor", "div_trunc", "remainder", "fmod", "pow",
	),
	kindsOf(sameDType(2, isInteger, isFloat, isBool), "maximum", "minimum", "fmax", "fmin", "heaviside"),
	// Two operands of a float dtype. prelu is In[0] where positive, else In[0] × In[1]; glu is In[0] × sigmoid(In[1]).
	kindsOf(sameDType(2, isFloat),
		"div", "atan2", "hypot", "copysign", "nextafter", "logaddexp", "logaddexp2", "xlogy", "xlog1py", "zeta",
		"prelu", "glu"),
	kindsOf(sameDType(2, isInteger, isBool), "bitwise_and", "bitwise_or", "bitwise_xor"),
	// Shifts by less than zero or by more bits than there are leave no bit of the value.
	kindsOf(sameDType(2, isInteger), "shift_left", "shift_right", "gcd", "lcm"),
	// addcmul and addcdiv are In[0] + value × In[1] × or ÷ In[2]; lerp is In[0] + In[2] × (In[1] − In[0]).
	kindsOf(sameDType(3, isFloat), "addcmul", "addcdiv", "lerp"),
	kindsOf(compareShape(2), "eq", "ne", "lt", "le", "gt", "ge"),
)

// kindsOf returns definitions of ops that share a shape rule and compute each element by itself.
func kindsOf(rule func([]Spec, Attrs) ([]Spec, error), kinds ...Kind) []OpDef {
	defs := make([]OpDef, len(kinds))
	for i, k := range kinds {
		defs[i] = OpDef{Kind: k, Shape: rule, Axes: samePlace}
	}
	return defs
}

func isBool(d tensor.DType) bool { return d == tensor.Bool }

func isFloat(d tensor.DType) bool { return d == tensor.Float32 || d == tensor.Float64 || d.IsHalf() }

func isInteger(d tensor.DType) bool {
	switch d {
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64,
		tensor.UInt8, tensor.UInt16, tensor.UInt32, tensor.UInt64:
		return true
	}
	return false
}

// castShape is the rule of "cast": the operand's shape with the dtype of attribute "dtype".
func castShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) != 1 {
		return nil, fmt.Errorf("%d operands", len(in))
	}
	return []Spec{{DType: a.DType("dtype"), Shape: in[0].Shape}}, nil
}

// whereShape is the rule of "where".
func whereShape(in []Spec, _ Attrs) ([]Spec, error) {
	if len(in) != 3 || in[0].DType != tensor.Bool || in[1].DType != in[2].DType ||
		!in[0].Shape.Equal(in[1].Shape) || !in[0].Shape.Equal(in[2].Shape) {
		return nil, mismatch(in)
	}
	return in[1:2], nil
}

// sameDType returns the rule of ops whose n operands and result have one shape and one dtype of the given classes.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func sameDType(n int, classes ...func(tensor.DType) bool) func([]Spec, Attrs) ([]Spec, error) {
	return func(in []Spec, _ Attrs) ([]Spec, error) {
		result, err := common(in, n)
		if err != nil {
			return nil, err
		}
		for _, is := range classes {
			if is(result.DType) {
				return []Spec{result}, nil
			}
		}
		return nil, fmt.Errorf("%w: %v", ErrDType, result.DType)
	}
}

// compareShape returns the rule of ops that give a bool for each element of n operands of one real dtype.
func compareShape(n int) func([]Spec, Attrs) ([]Spec, error) {
	return func(in []Spec, _ Attrs) ([]Spec, error) {
		s, err := common(in, n)
		if err != nil {
			return nil, err
		}
		if !isFloat(s.DType) && !isInteger(s.DType) && !isBool(s.DType) {
			return nil, fmt.Errorf("%w: %v", ErrDType, s.DType)
		}
		return []Spec{{DType: tensor.Bool, Shape: s.Shape}}, nil
	}
}

// common returns the shape and dtype that n operands share.
func common(in []Spec, n int) (Spec, error) {
	if len(in) != n {
		return Spec{}, fmt.Errorf("%d operands, not %d", len(in), n)
	}
	result := in[0]
	for _, s := range in[1:] {
		if !s.Shape.Equal(result.Shape) {
			return Spec{}, mismatch(in)
		}
		switch {
		case s.DType == result.DType:
		case result.DType == tensor.Float32 && s.DType.IsHalf():
			result.DType = s.DType
		case result.DType.IsHalf() && s.DType == tensor.Float32:
		default:
			return Spec{}, mismatch(in)
		}
	}
	return result, nil
}

// mismatch is the error of operands that do not go together.
func mismatch(in []Spec) error {
	text := ""
	for i, s := range in {
		if i > 0 {
			text += " × "
		}
		text += fmt.Sprintf("%v %v", s.DType, s.Shape)
	}
	return fmt.Errorf("%s do not go together", text)
}

// sameAsFirst is the rule of ops whose result is like their first operand.
func sameAsFirst(in []Spec, _ Attrs) ([]Spec, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("no operands")
	}
	return []Spec{in[0]}, nil
}

// sameShapes is the rule of ops over operands that are all alike.
func sameShapes(in []Spec, _ Attrs) ([]Spec, error) {
	for _, s := range in {
		if s.DType != in[0].DType || !s.Shape.Equal(in[0].Shape) {
			return nil, mismatch(in)
		}
	}
	return sameAsFirst(in, nil)
}
