package elementwise

import (
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// activationKernels are the functions of torch.nn.functional of the same names.
var activationKernels = map[graph.Kind]ops.Kernel{
	"relu": fixed(ops.Loops{F32: relu[float32], F64: relu[float64], I64: relu[int64], U64: relu[uint64]}),
	"gelu": elementwise(func(a graph.Attrs, _ tensor.DType) ops.Loops {
		if a.String("approximate") == "tanh" {
			return ops.Loops{F32: map1(tanhGelu32), F64: map1(tanhGelu)}
		}
		return ops.Loops{F32: map1(gelu32), F64: map1(gelu64)}
	}, "approximate"),
	"silu": fixed(ops.Loops{F32: map1(silu32), F64: map1(silu64)}),
	"mish": fixed(ops.Loops{F32: map1(mish32), F64: map1(mish64)}),
	// x × min(max(x + 3, 0), 6) / 6.
	"hardswish": fixed(ops.Loops{F32: map1(hardswish[float32]), F64: map1(hardswish[float64])}),
	// min(max(x + 3, 0), 6) / 6.
	"hardsigmoid": fixed(ops.Loops{F32: map1(hardsigmoid[float32]), F64: map1(hardsigmoid[float64])}),
	// scale × x where x > 0, else scale × alpha × (e^(input_scale × x) − 1).
	"elu": elementwise(func(a graph.Attrs, _ tensor.DType) ops.Loops {
		alpha, scale, inner := a.Float("alpha"), a.Float("scale"), a.Float("input_scale")
		return real1(func(x float64) float64 {
			if x > 0 {
				return scale * x
			}
			return scale * alpha * math.Expm1(inner*x)
		})
	}, "alpha", "scale", "input_scale"),
	// x where x > 0, else slope × x.
	"leaky_relu": elementwise(func(a graph.Attrs, _ tensor.DType) ops.Loops {
		slope := a.Float("slope")
		return ops.Loops{F32: leakyRelu(float32(slope)), F64: leakyRelu(slope)}
	}, "slope"),
	// log(1 + e^(beta × x)) / beta, x where beta × x is above the threshold.
	"softplus": elementwise(func(a graph.Attrs, _ tensor.DType) ops.Loops {
		beta, threshold := a.Float("beta"), a.Float("threshold")
		return real1(func(x float64) float64 {
			if x*beta > threshold {
				return x
			}
			return math.Log1p(math.Exp(x*beta)) / beta
		})
	}, "beta", "threshold"),
	// 0 for |x| ≤ lambda, else x.
	"hardshrink": elementwise(func(a graph.Attrs, _ tensor.DType) ops.Loops {
		lambda := a.Float("lambda")
		return ops.Loops{F32: hardshrink(float32(lambda)), F64: hardshrink(lambda)}
	}, "lambda"),
	// x moved towards zero by lambda, 0 for |x| ≤ lambda.
	"softshrink": elementwise(func(a graph.Attrs, _ tensor.DType) ops.Loops {
		lambda := a.Float("lambda")
		return ops.Loops{F32: softshrink(float32(lambda)), F64: softshrink(lambda)}
	}, "lambda"),
}

func relu[T ops.Computed](dst []T, in [][]T) {
	for i, x := range in[0][:len(dst)] {
		if x < 0 {
			x = 0
		}
		dst[i] = x
	}
}

// gate returns min(max(x + 3, 0), 6), NaN for NaN.
func gate[T floatNumber](x T) T {
	g := x + 3
	if g < 0 {
		return 0
	}
	if g > 6 {
		return 6
	}
	return g
}

func hardswish[T floatNumber](x T) T { return x * gate(x) / 6 }

func hardsigmoid[T floatNumber](x T) T { return gate(x) / 6 }

func leakyRelu[T floatNumber](slope T) func(dst []T, in [][]T) {
	return func(dst []T, in [][]T) {
		for i, x := range in[0][:len(dst)] {
			if !(x > 0) {
				x *= slope
			}
			dst[i] = x
		}
	}
}

func hardshrink[T floatNumber](lambda T) func(dst []T, in [][]T) {
	return map1(func(x T) T {
		if x >= -lambda && x <= lambda {
			return 0
		}
		return x
	})
}

func softshrink[T floatNumber](lambda T) func(dst []T, in [][]T) {
	return map1(func(x T) T {
		switch {
		case x > lambda:
			return x - lambda
		case x < -lambda:
			return x + lambda
		}
		return x * 0 // NaN stays NaN
	})
}
