package cuda

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// dtypeCodes are OM_F32 … OM_BOOL of om.h.
var dtypeCodes = map[tensor.DType]int32{
	tensor.Float32: 0, tensor.Float64: 1, tensor.Float16: 2, tensor.BFloat16: 3,
	tensor.Int8: 4, tensor.Int16: 5, tensor.Int32: 6, tensor.Int64: 7,
	tensor.UInt8: 8, tensor.UInt16: 9, tensor.UInt32: 10, tensor.UInt64: 11, tensor.Bool: 12,
}

// functions are the functions of kernels/elementwise.cu in the order of its enum.
var functions = []graph.Kind{
	"abs", "neg", "relu", "sign", "square", "ceil", "floor", "round", "trunc", "frac", "exp", "exp2", "expm1", "log", "log2",
	"log10", "log1p", "sigmoid", "logit", "log_sigmoid", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos",
	"atan", "sinh", "cosh", "asinh", "acosh", "atanh", "tanh", "sinc", "erf", "erfc", "nan_to_num", "clamp", "gelu", "gelu_tanh",
	"silu", "mish", "hardswish", "hardsigmoid", "elu", "leaky_relu", "softplus", "hardshrink", "softshrink", "ndtr",

	"add", "sub", "mul", "div", "div_floor", "div_trunc", "remainder", "fmod", "pow", "maximum", "minimum", "fmax", "fmin",
	"heaviside", "atan2", "hypot", "copysign", "nextafter", "logaddexp", "logaddexp2", "xlogy", "xlog1py", "prelu", "glu",
	"bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right", "gcd", "lcm", "eq", "ne", "lt", "le", "gt", "ge",

	"addcmul", "addcdiv", "lerp", "where", "bitwise_not",
}

// functionCodes are the functions' places in the enum.
var functionCodes = func() map[graph.Kind]int32 {
	codes := make(map[graph.Kind]int32)
	for i, kind := range functions {
		codes[kind] = int32(i)
	}
	return codes
}()

// elementwiseKernels compute each element by itself: kernels/elementwise.cu.
var elementwiseKernels = func() map[graph.Kind]kernel {
	all := map[graph.Kind]kernel{
		"where":   {launch: launchWhere},
		"signbit": {supports: onlyNumbers, launch: launchSignbit},
	}
	first := func(kind graph.Kind) int32 { return functionCodes[kind] }
	for i, kind := range functions {
		k := kernel{supports: onlyNumbers}
		switch i := int32(i); {
		case kind == "where" || kind == "gelu_tanh":
			continue
		case i < first("add") || kind == "bitwise_not":
			k.launch = launchUnary
		case i < first("eq"):
			k.launch = launchBinary
		case i < first("addcmul"):
			k.launch = launchCompare
		default:
			k.launch = launchTernary
		}
		all[kind] = k
	}
	return all
}()

// onlyNumbers is the support of kernels that tell dtypes apart while they run.
func onlyNumbers(in, _ []graph.Spec, _ graph.Attrs) error {
	for _, s := range in {
		if _, ok := dtypeCodes[s.DType]; !ok && s.DType != tensor.Invalid {
			return fmt.Errorf("it does not take %v", s.DType)
		}
	}
	return nil
}

// numbers returns the attributes of a function of one operand, in the order in which the kernel takes them.
func numbers(kind graph.Kind, a graph.Attrs) (x [3]float64) {
	names := map[graph.Kind][]string{
		"logit": {"eps"}, "nan_to_num": {"nan", "posinf", "neginf"}, "clamp": {"min", "max"},
		"elu": {"alpha", "scale", "input_scale"}, "leaky_relu": {"slope"}, "softplus": {"beta", "threshold"},
		"hardshrink": {"lambda"}, "softshrink": {"lambda"},
	}
	for i, name := range names[kind] {
		x[i] = a.Float(name)
	}
	return x
}

// How kernels read an operand: the enum of kernels/wide.h.
const (
	readOne = iota
	readFour
	readSame
)

// hows says how an elementwise kernel reads its operands, and how many results it has at a time: four where each operand has
// the four elements that a multiple of four begins, in row-major order, next to each other and aligned, or one for all
// of them.
func hows(out operand, in ...operand) (list []int32, width int64) {
	list = make([]int32, len(in))
	if out.size()%4 != 0 || !vectors(out, 4, 1) {
		return list, 1
	}
	for i, o := range in {
		l := o.layout.Joined()
		last := len(l.Shape) - 1
		switch {
		case !isReal(o.dtype) && o.dtype != tensor.Bool || o.dtype == tensor.Float64 || l.Shape[last]%4 != 0:
			return make([]int32, len(in)), 1
		case l.Strides[last] == 0:
			list[i] = readSame
		case vectors(o, 4, l.Strides[last], l.Strides[:last]...):
			list[i] = readFour
		default:
			return make([]int32, len(in)), 1
		}
	}
	return list, 4
}

// launchUnary computes out[i] = f(in[0][i]).
func launchUnary(l *launch) error {
	x, out := l.in[0], l.out[0]
	n, kind := out.size(), l.kind
	if kind == "gelu" && l.attrs.String("approximate") == "tanh" {
		kind = "gelu_tanh"
	}
	p := numbers(kind, l.attrs)
	switch {
	case x.dtype == tensor.Float64:
		c := l.call("om_unary_d").write(out).read(x).layout(x.layout).i64(n)
		return c.i32(functionCodes[kind]).f64(p[0]).f64(p[1]).f64(p[2]).over(n)
	case isReal(x.dtype):
		c := l.call("om_unary_f").write(out).i32(dtypeCodes[out.dtype]).read(x).i32(dtypeCodes[x.dtype]).layout(x.layout).i64(n)
		how, width := hows(out, x)
		return c.i32(functionCodes[kind]).f32(float32(p[0])).f32(float32(p[1])).f32(float32(p[2])).i32(how[0]).over(n / width)
	}
	c := l.call("om_unary_i").write(out).read(x).i32(dtypeCodes[x.dtype]).layout(x.layout).i64(n)
	return c.i32(functionCodes[kind]).over(n)
}

// launchSignbit computes whether the sign of in[0][i] is negative.
func launchSignbit(l *launch) error {
	x, out := l.in[0], l.out[0]
	n := out.size()
	unsigned := int32(0)
	if dtypeCodes[x.dtype] >= dtypeCodes[tensor.UInt8] {
		unsigned = 1
	}
	c := l.call("om_signbit").write(out).read(x).layout(x.layout).i64(n).i64(int64(x.dtype.Size())).i32(unsigned)
	return c.over(n)
}

// alphaOf returns the factor of the second operand of a sum.
func alphaOf(a graph.Attrs) float64 {
	if _, ok := a["alpha"]; !ok {
		return 1
	}
	return a.Float("alpha")
}

// launchBinary computes out[i] = f(in[0][i], in[1][i]).
func launchBinary(l *launch) error {
	a, b, out := l.in[0], l.in[1], l.out[0]
	n, code := out.size(), functionCodes[l.kind]
	alpha := alphaOf(l.attrs)
	switch {
	case out.dtype == tensor.Float64:
		c := l.call("om_binary_d").write(out).read(a).layout(a.layout).read(b).layout(b.layout).i64(n)
		return c.i32(code).f64(alpha).over(n)
	case isReal(out.dtype):
		c := l.call("om_binary_f").write(out).i32(dtypeCodes[out.dtype])
		c.read(a).i32(dtypeCodes[a.dtype]).layout(a.layout).read(b).i32(dtypeCodes[b.dtype]).layout(b.layout).i64(n)
		how, width := hows(out, a, b)
		if l.kind == "nextafter" {
			how, width = make([]int32, 2), 1
		}
		return c.i32(code).f32(float32(alpha)).i32(how[0]).i32(how[1]).over(n / width)
	}
	c := l.call("om_binary_i").write(out).read(a).layout(a.layout).read(b).layout(b.layout).i32(dtypeCodes[out.dtype]).i64(n)
	return c.i32(code).i32(int32(alpha)).i32(int32(8 * out.dtype.Size())).status().over(n)
}

// launchCompare computes whether in[0][i] and in[1][i] compare so.
func launchCompare(l *launch) error {
	a, b, out := l.in[0], l.in[1], l.out[0]
	n := out.size()
	c := l.call("om_compare").write(out).read(a).i32(dtypeCodes[a.dtype]).layout(a.layout)
	return c.read(b).i32(dtypeCodes[b.dtype]).layout(b.layout).i64(n).i32(functionCodes[l.kind]).over(n)
}

// launchTernary computes out[i] = f(in[0][i], in[1][i], in[2][i]).
func launchTernary(l *launch) error {
	out := l.out[0]
	n, code, value := out.size(), functionCodes[l.kind], l.attrs.Float("value")
	if out.dtype == tensor.Float64 {
		c := l.call("om_ternary_d").write(out)
		for _, o := range l.in {
			c.read(o).layout(o.layout)
		}
		return c.i64(n).i32(code).f64(value).over(n)
	}
	c := l.call("om_ternary_f").write(out).i32(dtypeCodes[out.dtype])
	for _, o := range l.in {
		c.read(o).i32(dtypeCodes[o.dtype]).layout(o.layout)
	}
	how, width := hows(out, l.in...)
	return c.i64(n).i32(code).f32(float32(value)).i32(how[0]).i32(how[1]).i32(how[2]).over(n / width)
}

// launchWhere computes out[i] = in[1][i] where in[0][i], else in[2][i].
func launchWhere(l *launch) error {
	out := l.out[0]
	n := out.size()
	c := l.call(fmt.Sprintf("om_where_%d", out.dtype.Size())).write(out)
	for _, o := range l.in {
		c.read(o).layout(o.layout)
	}
	return c.i64(n).over(n)
}

// specialKernels are functions that few networks use: kernels/special.cu.
var specialKernels = func() map[graph.Kind]kernel {
	all := map[graph.Kind]kernel{"zeta": {supports: onlyReal, launch: launchZeta}}
	for i, kind := range specials {
		all[kind] = kernel{supports: onlyReal, launch: func(l *launch) error { return launchSpecial(l, int32(i)) }}
	}
	return all
}()

// specials are the functions of one operand in the order of the enum.
var specials = []graph.Kind{
	"lgamma", "digamma", "trigamma", "erfinv", "entr", "erfcx", "log_ndtr", "ndtri", "bessel_j0", "bessel_j1", "bessel_y0",
	"bessel_y1", "spherical_bessel_j0", "i0", "i0e", "i1", "i1e",
}

// launchSpecial computes out[i] = f(in[0][i]).
func launchSpecial(l *launch, code int32) error {
	x, out := l.in[0], l.out[0]
	n := out.size()
	return l.call("om_special").write(out).read(x).i32(dtypeCodes[x.dtype]).layout(x.layout).i64(n).i32(code).over(n)
}

// launchZeta computes the Hurwitz zeta function of in[0] and in[1].
func launchZeta(l *launch) error {
	out := l.out[0]
	n := out.size()
	c := l.call("om_zeta").write(out).i32(dtypeCodes[out.dtype])
	for _, o := range l.in {
		c.read(o).i32(dtypeCodes[o.dtype]).layout(o.layout)
	}
	return c.i64(n).over(n)
}
