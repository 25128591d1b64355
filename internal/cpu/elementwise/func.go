package elementwise

import (
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// functionKernels are the functions of one number that PyTorch has under the same names.
var functionKernels = map[graph.Kind]ops.Kernel{
	"abs": fixed(ops.Loops{
		F32: map1(func(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }),
		F64: map1(math.Abs), I64: map1(magnitude), U64: map1(same[uint64]),
	}),
	"neg": fixed(ops.Loops{F32: neg[float32], F64: neg[float64], I64: neg[int64], U64: neg[uint64]}),
	// −1, 0 or 1; 0 for NaN.
	"sign": fixed(ops.Loops{
		F32: map1(sign[float32]), F64: map1(sign[float64]), I64: map1(sign[int64]), U64: map1(sign[uint64]),
	}),
	"square": fixed(ops.Loops{F32: square[float32], F64: square[float64], I64: square[int64], U64: square[uint64]}),

	"ceil":  fixed(real1(math.Ceil)),
	"floor": fixed(real1(math.Floor)),
	"round": fixed(real1(math.RoundToEven)),
	"trunc": fixed(real1(math.Trunc)),
	"frac":  fixed(real1(func(x float64) float64 { return x - math.Trunc(x) })),

	"exp":     fixed(ops.Loops{F32: map1(exp32), F64: map1(math.Exp)}),
	"exp2":    fixed(real1(math.Exp2)),
	"expm1":   fixed(real1(math.Expm1)),
	"log":     fixed(real1(math.Log)),
	"log2":    fixed(real1(math.Log2)),
	"log10":   fixed(real1(math.Log10)),
	"log1p":   fixed(real1(math.Log1p)),
	"sigmoid": fixed(ops.Loops{F32: map1(sigmoid32), F64: map1(sigmoid64)}),
	// log(x / (1 − x)) of x clamped to [eps, 1 − eps], not clamped for NaN.
	"logit": elementwise(func(a graph.Attrs, _ tensor.DType) ops.Loops {
		eps := a.Float("eps")
		return ops.Loops{F32: logit(float32(eps)), F64: logit(eps)}
	}, "eps"),
	// log(1 / (1 + e^-x)).
	"log_sigmoid": fixed(real1(func(x float64) float64 {
		return math.Min(x, 0) - math.Log1p(math.Exp(-math.Abs(x)))
	})),

	"sqrt":  fixed(ops.Loops{F32: sqrt[float32], F64: sqrt[float64]}),
	"rsqrt": fixed(ops.Loops{F32: rsqrt[float32], F64: rsqrt[float64]}),
	"reciprocal": fixed(ops.Loops{
		F32: map1(func(x float32) float32 { return 1 / x }), F64: map1(func(x float64) float64 { return 1 / x }),
	}),

	"sin": fixed(real1(math.Sin)), "cos": fixed(real1(math.Cos)), "tan": fixed(real1(math.Tan)),
	"asin": fixed(real1(math.Asin)), "acos": fixed(real1(math.Acos)), "atan": fixed(real1(math.Atan)),
	"sinh": fixed(real1(math.Sinh)), "cosh": fixed(real1(math.Cosh)),
	"asinh": fixed(real1(math.Asinh)), "acosh": fixed(real1(math.Acosh)), "atanh": fixed(real1(math.Atanh)),
	"tanh": fixed(ops.Loops{F32: map1(tanh32), F64: map1(math.Tanh)}),
	"sinc": fixed(ops.Loops{F32: map1(sinc[float32]), F64: map1(sinc[float64])}),

	"erf":     fixed(ops.Loops{F32: map1(erf32), F64: map1(math.Erf)}),
	"erfc":    fixed(real1(math.Erfc)),
	"erfinv":  fixed(real1(math.Erfinv)),
	"lgamma":  fixed(real1(lgamma)),
	"digamma": fixed(real1(digamma)),
	"ndtr":    fixed(real1(normalCDF)),

	// NaN, infinity and minus infinity replaced by three numbers.
	"nan_to_num": elementwise(func(a graph.Attrs, _ tensor.DType) ops.Loops {
		nan, above, below := a.Float("nan"), a.Float("posinf"), a.Float("neginf")
		return real1(func(x float64) float64 {
			switch {
			case x != x:
				return nan
			case x > math.MaxFloat64:
				return above
			case x < -math.MaxFloat64:
				return below
			}
			return x
		})
	}, "nan", "posinf", "neginf"),
	// x limited to [min, max]: max wins, and NaN gives NaN.
	"clamp": elementwise(func(a graph.Attrs, _ tensor.DType) ops.Loops {
		low, high := a.Float("min"), a.Float("max")
		return ops.Loops{F32: clamp(float32(low), float32(high)), F64: clamp(low, high)}
	}, "min", "max"),
}

func sqrt[T floatNumber](dst []T, in [][]T) {
	for i, x := range in[0][:len(dst)] {
		dst[i] = T(math.Sqrt(float64(x)))
	}
}

// rsqrt: 1 / √x.
func rsqrt[T floatNumber](dst []T, in [][]T) {
	for i, x := range in[0][:len(dst)] {
		dst[i] = T(1 / math.Sqrt(float64(x)))
	}
}

func logit[T floatNumber](eps T) func(dst []T, in [][]T) {
	return map1(func(x T) T {
		if x < eps {
			x = eps
		} else if x > 1-eps {
			x = 1 - eps
		}
		return T(math.Log(float64(x / (1 - x))))
	})
}

func same[T any](x T) T { return x }

func neg[T ops.Computed](dst []T, in [][]T) {
	for i, x := range in[0][:len(dst)] {
		dst[i] = -x
	}
}

func square[T ops.Computed](dst []T, in [][]T) {
	for i, x := range in[0][:len(dst)] {
		dst[i] = x * x
	}
}

func sign[T ops.Computed](x T) T {
	switch {
	case x > 0:
		return 1
	case x < 0:
		var zero T
		return zero - 1
	}
	return 0
}

func clamp[T floatNumber](low, high T) func(dst []T, in [][]T) {
	if low != low || high != high {
		low += high
		high = low
	}
	return func(dst []T, in [][]T) {
		for i, x := range in[0][:len(dst)] {
			if x < low {
				x = low
			}
			if x > high {
				x = high
			}
			if low != low {
				x = low
			}
			dst[i] = x
		}
	}
}

// testKernels compare numbers. NaN is not equal to anything, itself included.
var testKernels = map[graph.Kind]ops.Kernel{
	"eq": elementwiseTest(tests{equal[float32], equal[float64], equal[int64], equal[uint64]}),
	"ne": elementwiseTest(tests{unequal[float32], unequal[float64], unequal[int64], unequal[uint64]}),
	"lt": elementwiseTest(tests{less[float32], less[float64], less[int64], less[uint64]}),
	"le": elementwiseTest(tests{lessEqual[float32], lessEqual[float64], lessEqual[int64], lessEqual[uint64]}),
	"gt": elementwiseTest(tests{
		swapped(less[float32]), swapped(less[float64]), swapped(less[int64]), swapped(less[uint64]),
	}),
	"ge": elementwiseTest(tests{
		swapped(lessEqual[float32]), swapped(lessEqual[float64]), swapped(lessEqual[int64]), swapped(lessEqual[uint64]),
	}),
	"signbit": elementwiseTest(tests{
		f32: func(dst []bool, in [][]float32) {
			for i, x := range in[0][:len(dst)] {
				dst[i] = math.Float32bits(x)>>31 != 0
			}
		},
		f64: func(dst []bool, in [][]float64) {
			for i, x := range in[0][:len(dst)] {
				dst[i] = math.Signbit(x)
			}
		},
		i64: func(dst []bool, in [][]int64) {
			for i, x := range in[0][:len(dst)] {
				dst[i] = x < 0
			}
		},
		u64: func(dst []bool, _ [][]uint64) { clear(dst) },
	}),
}

func equal[T ops.Computed](dst []bool, in [][]T) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		dst[i] = x == b[i]
	}
}

func unequal[T ops.Computed](dst []bool, in [][]T) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		dst[i] = x != b[i]
	}
}

func less[T ops.Computed](dst []bool, in [][]T) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		dst[i] = x < b[i]
	}
}

func lessEqual[T ops.Computed](dst []bool, in [][]T) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		dst[i] = x <= b[i]
	}
}

// swapped returns a loop of two operands with the operands exchanged.
func swapped[T any](f func(dst []bool, in [][]T)) func(dst []bool, in [][]T) {
	return func(dst []bool, in [][]T) { f(dst, [][]T{in[1], in[0]}) }
}
