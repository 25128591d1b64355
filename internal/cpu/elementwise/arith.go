package elementwise

import (
	"errors"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// arithmeticKernels are the ops on two or three numbers. Integers wrap.
var arithmeticKernels = map[graph.Kind]ops.Kernel{
	"add": elementwise(func(a graph.Attrs, _ tensor.DType) ops.Loops { return addLoops(alphaOf(a)) }, "alpha"),
	"sub": elementwise(func(a graph.Attrs, _ tensor.DType) ops.Loops {
		if alpha := alphaOf(a); alpha != 1 {
			return addLoops(-alpha)
		}
		return ops.Loops{F32: sub[float32], F64: sub[float64], I64: sub[int64], U64: sub[uint64]}
	}, "alpha"),
	"mul": fixed(ops.Loops{F32: mul[float32], F64: mul[float64], I64: mul[int64], U64: mul[uint64]}),
	"div": fixed(ops.Loops{F32: div[float32], F64: div[float64]}),
	// a / b rounded down: torch.div(rounding_mode="floor"), floor_divide.
	"div_floor": fixed(divisionLoops(floorDivide[float32], floorDivide[float64], floorIntegers, quotients[uint64])),
	// a / b rounded towards zero: torch.div(rounding_mode="trunc").
	"div_trunc": fixed(divisionLoops(truncDivide[float32], truncDivide[float64], quotients[int64], quotients[uint64])),
	// a modulo b with the sign of b: torch.remainder.
	"remainder": fixed(divisionLoops(remainder[float32], remainder[float64], moduloIntegers, modulos[uint64])),
	// a modulo b with the sign of a: torch.fmod.
	"fmod": fixed(divisionLoops(fmod[float32], fmod[float64], modulos[int64], modulos[uint64])),
	"pow": fixed(ops.Loops{F32: pow32, F64: map2(math.Pow), I64: map2(powInteger), U64: map2(func(a, b uint64) uint64 {
		return uint64(powPositive(int64(a), b))
	})}),
	// maximum and minimum give NaN where an operand is NaN, fmax and fmin the other operand: torch.maximum, torch.fmax.
	"maximum": fixed(ops.Loops{F32: maximum[float32], F64: maximum[float64], I64: maximum[int64], U64: maximum[uint64]}),
	"minimum": fixed(ops.Loops{F32: minimum[float32], F64: minimum[float64], I64: minimum[int64], U64: minimum[uint64]}),
	"fmax": fixed(ops.Loops{
		F32: map2(fmax[float32]), F64: map2(fmax[float64]), I64: maximum[int64], U64: maximum[uint64],
	}),
	"fmin": fixed(ops.Loops{
		F32: map2(fmin[float32]), F64: map2(fmin[float64]), I64: minimum[int64], U64: minimum[uint64],
	}),
	"heaviside": fixed(ops.Loops{
		F32: map2(heaviside[float32]), F64: map2(heaviside[float64]),
		I64: map2(heaviside[int64]), U64: map2(heaviside[uint64]),
	}),
	"atan2":    fixed(real2(math.Atan2)),
	"hypot":    fixed(real2(math.Hypot)),
	"copysign": fixed(real2(math.Copysign)),
	"nextafter": elementwise(func(_ graph.Attrs, d tensor.DType) ops.Loops {
		switch d {
		case tensor.BFloat16:
			return ops.Loops{F32: map2(nextafterHalf(tensor.BFloat16FromFloat32, tensor.BFloat16ToFloat32))}
		case tensor.Float16:
			return ops.Loops{F32: map2(nextafterHalf(tensor.Float16FromFloat32, tensor.Float16ToFloat32))}
		}
		return ops.Loops{F32: map2(math.Nextafter32), F64: map2(math.Nextafter)}
	}),
	"logaddexp":  fixed(real2(func(a, b float64) float64 { return logAddExp(a, b, math.Exp, math.Log1p) })),
	"logaddexp2": fixed(real2(func(a, b float64) float64 { return logAddExp(a, b, math.Exp2, log2p1) })),
	// a × log b, 0 where a is 0 and b not NaN: torch.xlogy.
	"xlogy": fixed(real2(func(a, b float64) float64 {
		if a == 0 && b == b {
			return 0
		}
		return a * math.Log(b)
	})),
	// x where positive, else x × weight: torch.prelu.
	"prelu": fixed(ops.Loops{F32: map2(prelu[float32]), F64: map2(prelu[float64])}),
	// a × sigmoid(b): torch.nn.functional.glu of the halves a and b.
	"glu": fixed(ops.Loops{
		F32: map2(func(a, b float32) float32 { return a * sigmoid32(b) }),
		F64: map2(func(a, b float64) float64 { return a * sigmoid64(b) }),
	}),

	"bitwise_and": fixed(bits(func(a, b uint64) uint64 { return a & b })),
	"bitwise_or":  fixed(bits(func(a, b uint64) uint64 { return a | b })),
	"bitwise_xor": fixed(bits(func(a, b uint64) uint64 { return a ^ b })),
	"bitwise_not": elementwise(func(_ graph.Attrs, d tensor.DType) ops.Loops {
		if d == tensor.Bool {
			return ops.Loops{I64: map1(func(x int64) int64 { return x ^ 1 })}
		}
		return ops.Loops{I64: map1(func(x int64) int64 { return ^x }), U64: map1(func(x uint64) uint64 { return ^x })}
	}),
	// a × 2^b, 0 where b is negative or not less than the bits of a: torch.bitwise_left_shift.
	"shift_left": elementwise(func(_ graph.Attrs, d tensor.DType) ops.Loops {
		width := int64(8 * d.Size())
		return ops.Loops{
			I64: map2(func(a, b int64) int64 {
				if b < 0 || b >= width {
					return 0
				}
				return a << uint(b)
			}),
			U64: map2(func(a, b uint64) uint64 { return a << b }),
		}
	}),
	// a ÷ 2^b rounded down; b that is negative or too large shifts all bits of a out: torch.bitwise_right_shift.
	"shift_right": elementwise(func(_ graph.Attrs, d tensor.DType) ops.Loops {
		width := int64(8 * d.Size())
		return ops.Loops{
			I64: map2(func(a, b int64) int64 {
				if b < 0 || b >= width {
					b = 63
				}
				return a >> uint(b)
			}),
			U64: map2(func(a, b uint64) uint64 { return a >> b }),
		}
	}),
	"gcd": fixed(ops.Loops{I64: map2(gcd)}),
	// |a × b| ÷ gcd(a, b): torch.lcm.
	"lcm": fixed(ops.Loops{I64: map2(func(a, b int64) int64 {
		g := gcd(a, b)
		if g == 0 {
			return 0
		}
		return magnitude(a / g * b)
	})}),

	// a + value × b × c: torch.addcmul.
	"addcmul": elementwise(func(at graph.Attrs, _ tensor.DType) ops.Loops {
		value := at.Float("value")
		l := real3(func(a, b, c float64) float64 { return a + float64(value*b*c) })
		v := float32(value)
		l.F32 = map3(func(a, b, c float32) float32 { return a + float32(float32(v*b)*c) })
		return l
	}, "value"),
	// a + value × b ÷ c: torch.addcdiv.
	"addcdiv": elementwise(func(at graph.Attrs, _ tensor.DType) ops.Loops {
		value := at.Float("value")
		l := real3(func(a, b, c float64) float64 { return a + float64(value*b/c) })
		v := float32(value)
		l.F32 = map3(func(a, b, c float32) float32 { return a + float32(v*b)/c })
		return l
	}, "value"),
	// a + w × (b − a), from the end that is nearer: torch.lerp.
	"lerp": fixed(ops.Loops{F32: map3(lerp[float32]), F64: map3(lerp[float64])}),
}

type floatNumber interface{ float32 | float64 }

// alphaOf returns the factor of the second operand of a sum.
func alphaOf(a graph.Attrs) float64 {
	if _, ok := a["alpha"]; !ok {
		return 1
	}
	return a.Float("alpha")
}

// addLoops: a + alpha × b, torch.add. Integers come with an alpha of one or minus one.
func addLoops(alpha float64) ops.Loops {
	if alpha == 1 {
		return ops.Loops{F32: add[float32], F64: add[float64], I64: add[int64], U64: add[uint64]}
	}
	narrow := float64(float32(alpha))
	l := ops.Loops{
		// One rounding, as with PyTorch's fused multiply-add: the product of two float32 is exact in float64.
		F32: func(dst []float32, in [][]float32) {
			b := in[1][:len(dst)]
			for i, x := range in[0][:len(dst)] {
				dst[i] = float32(float64(x) + float64(narrow*float64(b[i])))
			}
		},
		F64: map2(func(a, b float64) float64 { return a + float64(alpha*b) }),
	}
	if alpha == -1 {
		l.I64, l.U64 = sub[int64], sub[uint64]
	}
	return l
}

func add[T ops.Computed](dst []T, in [][]T) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		dst[i] = x + b[i]
	}
}

func sub[T ops.Computed](dst []T, in [][]T) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		dst[i] = x - b[i]
	}
}

func mul[T ops.Computed](dst []T, in [][]T) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		dst[i] = x * b[i]
	}
}

func div[T floatNumber](dst []T, in [][]T) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		dst[i] = x / b[i]
	}
}

func maximum[T ops.Computed](dst []T, in [][]T) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		if y := b[i]; y > x || y != y {
			x = y
		}
		dst[i] = x
	}
}

func minimum[T ops.Computed](dst []T, in [][]T) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		if y := b[i]; y < x || y != y {
			x = y
		}
		dst[i] = x
	}
}

func fmax[T floatNumber](a, b T) T {
	if b > a || a != a {
		return b
	}
	return a
}

func fmin[T floatNumber](a, b T) T {
	if b < a || a != a {
		return b
	}
	return a
}

// heaviside: 0 below zero, 1 above, b at zero: torch.heaviside.
func heaviside[T ops.Computed](a, b T) T {
	switch {
	case a == 0:
		return b
	case a > 0:
		return 1
	}
	return 0
}

// nextafterHalf returns the next number of half precision after a in the direction of b.
func nextafterHalf(bits func(float32) uint16, value func(uint16) float32) func(a, b float32) float32 {
	return func(a, b float32) float32 {
		switch {
		case a != a || b != b:
			return a + b
		case a == b:
			return b
		case a == 0:
			return value(1 | bits(b)&(1<<15))
		case (a < b) == (a > 0):
			return value(bits(a) + 1)
		}
		return value(bits(a) - 1)
	}
}

func prelu[T floatNumber](x, weight T) T {
	if x > 0 {
		return x
	}
	return x * weight
}

func lerp[T floatNumber](a, b, w T) T {
	if w < 0.5 && w > -0.5 {
		return a + T(w*(b-a))
	}
	return b - T((b-a)*(1-w))
}

// ErrDivisor is the error of integers that are divided by zero.
var ErrDivisor = errors.New("division of integers by zero")

// divisionLoops returns loops whose integer divisors must not be zero.
func divisionLoops(
	f32 func(a, b float32) float32, f64 func(a, b float64) float64,
	i64 func(dst []int64, in [][]int64), u64 func(dst []uint64, in [][]uint64),
) ops.Loops {
	return ops.Loops{F32: map2(f32), F64: map2(f64), I64: i64, U64: u64, Check: checkDivisors}
}

// quotients are a / b rounded towards zero, modulos what is left over.
func quotients[T int64 | uint64](dst []T, in [][]T) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		dst[i] = x / b[i]
	}
}

func modulos[T int64 | uint64](dst []T, in [][]T) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		dst[i] = x % b[i]
	}
}

// floorIntegers are a / b rounded down, moduloIntegers what is left over.
func floorIntegers(dst []int64, in [][]int64) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		q := x / b[i]
		if x%b[i] != 0 && (x < 0) != (b[i] < 0) {
			q--
		}
		dst[i] = q
	}
}

func moduloIntegers(dst []int64, in [][]int64) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		r := x % b[i]
		if r != 0 && (r < 0) != (b[i] < 0) {
			r += b[i]
		}
		dst[i] = r
	}
}

// checkDivisors returns an error where an element of the second operand is zero.
func checkDivisors(in []ops.View) error {
	switch in[1].DType.Size() {
	case 1:
		return checkElements[uint8](in[1])
	case 2:
		return checkElements[uint16](in[1])
	case 4:
		return checkElements[uint32](in[1])
	}
	return checkElements[uint64](in[1])
}

// checkElements is checkDivisors for elements of the size of T.
func checkElements[T uint8 | uint16 | uint32 | uint64](v ops.View) error {
	src, zeros := ops.Elements[T](v), 0
	ops.Lines(v.Layout, func(_, first, stride, n int) {
		if stride == 0 {
			n = 1 // all are one
		}
		for range n {
			if src[first] == 0 {
				zeros++
			}
			first += stride
		}
	})
	if zeros > 0 {
		return ErrDivisor
	}
	return nil
}

func fmod[T floatNumber](a, b T) T { return T(math.Mod(float64(a), float64(b))) }

func remainder[T floatNumber](a, b T) T {
	r := fmod(a, b)
	if r != 0 && (b < 0) != (r < 0) {
		r += b
	}
	return r
}

func truncDivide[T floatNumber](a, b T) T { return T(math.Trunc(float64(a / b))) }

// floorDivide is Python's a // b: the floor of the exact quotient, not that of the rounded one.
func floorDivide[T floatNumber](a, b T) T {
	if b == 0 {
		return a / b
	}
	r := fmod(a, b)
	q := (a - r) / b
	if r != 0 && (b < 0) != (r < 0) {
		q--
	}
	if q == 0 {
		return T(math.Copysign(0, float64(a/b)))
	}
	floor := T(math.Floor(float64(q)))
	if q-floor > 0.5 {
		floor++
	}
	return floor
}

// pow32: a^b, torch.pow; the exponents that networks have are products.
func pow32(dst []float32, in [][]float32) {
	b := in[1][:len(dst)]
	for i, x := range in[0][:len(dst)] {
		switch b[i] {
		case 1:
			dst[i] = x
		case 2:
			dst[i] = x * x
		case 3:
			dst[i] = x * x * x
		default:
			dst[i] = float32(math.Pow(float64(x), float64(b[i])))
		}
	}
}

// powInteger: a^b. A negative exponent gives 0 except for powers of one and minus one.
func powInteger(a, b int64) int64 {
	if b >= 0 {
		return powPositive(a, uint64(b))
	}
	switch {
	case a == 1, a == -1 && b&1 == 0:
		return 1
	case a == -1:
		return -1
	}
	return 0
}

func powPositive(a int64, b uint64) int64 {
	result := int64(1)
	for ; b != 0; b >>= 1 {
		if b&1 != 0 {
			result *= a
		}
		a *= a
	}
	return result
}

// logAddExp: log(e^a + e^b) for the base whose exponential and log(1 + x) are given: torch.logaddexp.
func logAddExp(a, b float64, exp, log1p func(float64) float64) float64 {
	if a == b && math.IsInf(a, 0) {
		return a
	}
	return math.Max(a, b) + log1p(exp(-math.Abs(a-b)))
}

func log2p1(x float64) float64 { return math.Log1p(x) / math.Ln2 }

func bits(f func(a, b uint64) uint64) ops.Loops {
	return ops.Loops{
		I64: map2(func(a, b int64) int64 { return int64(f(uint64(a), uint64(b))) }),
		U64: map2(f),
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return magnitude(a)
}

func magnitude(a int64) int64 {
	if a < 0 {
		return -a
	}
	return a
}
