package torchscript

import (
	"maps"
	"math"
	"math/bits"
	"math/cmplx"
	"strconv"
	"strings"
)

// numberFuncs take a number first.
var numberFuncs map[string]builtin

func init() {
	numberFuncs = make(map[string]builtin)
	for _, table := range []map[string]builtin{operators(), functionsOfReals(), functionsOfNumbers()} {
		maps.Copy(numberFuncs, table)
	}
}

// operators are Python's.
func operators() map[string]builtin {
	return map[string]builtin{
		"aten::add": arithmetic(func(a, b int) int { return a + b },
			func(a, b float64) float64 { return a + b }, func(a, b complex128) complex128 { return a + b }),
		"aten::sub": arithmetic(func(a, b int) int { return a - b },
			func(a, b float64) float64 { return a - b }, func(a, b complex128) complex128 { return a - b }),
		"aten::mul":      multiply,
		"aten::div":      divide,
		"aten::floordiv": whole(floorDiv, func(a, b float64) float64 { return math.Floor(a / b) }),
		"aten::__round_to_zero_floordiv": whole(func(a, b int) int { return a / b },
			func(a, b float64) float64 { return math.Trunc(a / b) }),
		"aten::remainder":     whole(func(a, b int) int { return a - floorDiv(a, b)*b }, remainder),
		"aten::fmod":          floats2(math.Mod),
		"aten::mathremainder": floats2(math.Remainder),
		"aten::pow":           power,
		"aten::neg":           unary(func(a int) any { return -a }, func(a float64) any { return -a }),
		"prim::abs":           unary(func(a int) any { return max(a, -a) }, func(a float64) any { return math.Abs(a) }),
		"aten::lt":            ordered(func(c *invocation, a, b any) bool { return c.less(a, b) }),
		"aten::gt":            ordered(func(c *invocation, a, b any) bool { return c.less(b, a) }),
		"aten::le":            ordered(func(c *invocation, a, b any) bool { return c.less(a, b) || c.equal(a, b, 0) }),
		"aten::ge":            ordered(func(c *invocation, a, b any) bool { return c.less(b, a) || c.equal(a, b, 0) }),
		"aten::__and__":       bitwise(func(a, b int) int { return a & b }),
		"aten::__or__":        bitwise(func(a, b int) int { return a | b }),
		"aten::__xor__":       bitwise(func(a, b int) int { return a ^ b }),
		"aten::__lshift__": bitwise(func(a, b int) int {
			if b < 0 || b >= bits.UintSize {
				return 0
			}
			return a << b
		}),
		"aten::__rshift__": bitwise(func(a, b int) int {
			if b < 0 {
				return 0
			}
			return a >> min(b, bits.UintSize-1)
		}),
	}
}

// functionsOfReals are those of math that give a number for one or two.
func functionsOfReals() map[string]builtin {
	return map[string]builtin{
		"aten::floor":    toInt(math.Floor),
		"aten::ceil":     toInt(math.Ceil),
		"aten::round":    floats(math.RoundToEven),
		"aten::trunc":    toInt(math.Trunc),
		"aten::sqrt":     floats(math.Sqrt),
		"aten::exp":      floats(math.Exp),
		"aten::expm1":    floats(math.Expm1),
		"aten::log":      logarithm,
		"aten::log10":    floats(math.Log10),
		"aten::log1p":    floats(math.Log1p),
		"aten::log2":     floats(math.Log2),
		"aten::sin":      floats(math.Sin),
		"aten::cos":      floats(math.Cos),
		"aten::tan":      floats(math.Tan),
		"aten::asin":     floats(math.Asin),
		"aten::acos":     floats(math.Acos),
		"aten::atan":     floats(math.Atan),
		"aten::sinh":     floats(math.Sinh),
		"aten::cosh":     floats(math.Cosh),
		"aten::tanh":     floats(math.Tanh),
		"aten::asinh":    floats(math.Asinh),
		"aten::acosh":    floats(math.Acosh),
		"aten::atanh":    floats(math.Atanh),
		"aten::erf":      floats(math.Erf),
		"aten::erfc":     floats(math.Erfc),
		"aten::gamma":    floats(math.Gamma),
		"aten::lgamma":   floats(func(x float64) float64 { y, _ := math.Lgamma(x); return y }),
		"aten::fabs":     floats(math.Abs),
		"aten::degrees":  floats(func(x float64) float64 { return x * 180 / math.Pi }),
		"aten::radians":  floats(func(x float64) float64 { return x * math.Pi / 180 }),
		"aten::atan2":    floats2(math.Atan2),
		"aten::copysign": floats2(math.Copysign),
	}
}

// functionsOfNumbers are the others, and what makes other values of numbers.
func functionsOfNumbers() map[string]builtin {
	return map[string]builtin{
		"aten::isnan": func(c *invocation) (any, bool) {
			x, ok := number(c.args[0])
			return cmplx.IsNaN(x), ok
		},
		"aten::isinf": func(c *invocation) (any, bool) {
			x, ok := number(c.args[0])
			return cmplx.IsInf(x), ok
		},
		"aten::isfinite": func(c *invocation) (any, bool) {
			x, ok := number(c.args[0])
			return !cmplx.IsInf(x) && !cmplx.IsNaN(x), ok
		},
		"aten::modf": func(c *invocation) (any, bool) {
			whole, part := math.Modf(c.float(0, "a"))
			return &tuple{elems: []any{part, whole}}, true
		},
		"aten::frexp": func(c *invocation) (any, bool) {
			part, exponent := math.Frexp(c.float(0, "a"))
			return &tuple{elems: []any{part, exponent}}, true
		},
		"aten::ldexp": func(c *invocation) (any, bool) {
			return math.Ldexp(c.float(0, "x"), c.int(1, "i")), true
		},
		"aten::gcd": func(c *invocation) (any, bool) {
			a, b := c.int(0, "a"), c.int(1, "b")
			for b != 0 {
				a, b = b, a%b
			}
			return max(a, -a), true
		},
		"aten::factorial": factorial,
		"aten::divmod": func(c *invocation) (any, bool) {
			q, ok := numberFuncs["aten::floordiv"](c)
			r, ok2 := numberFuncs["aten::remainder"](c)
			return &tuple{elems: []any{q, r}}, ok && ok2
		},
		"aten::Int":            func(c *invocation) (any, bool) { return c.toInt(c.args[0]), true },
		"aten::IntImplicit":    func(c *invocation) (any, bool) { return c.toInt(c.args[0]), true },
		"aten::Float":          func(c *invocation) (any, bool) { return c.float(0, "a"), true },
		"aten::FloatImplicit":  func(c *invocation) (any, bool) { return c.float(0, "a"), true },
		"aten::ScalarImplicit": func(c *invocation) (any, bool) { return c.args[0], true },
		"aten::Bool": func(c *invocation) (any, bool) {
			x, ok := number(c.args[0])
			return x != 0, ok
		},
		"aten::Complex": makeComplex,
		"aten::hex":     func(c *invocation) (any, bool) { return based(c.int(0, "i"), "0x", 16), true },
		"aten::oct":     func(c *invocation) (any, bool) { return based(c.int(0, "i"), "0o", 8), true },
		"aten::bin":     func(c *invocation) (any, bool) { return based(c.int(0, "i"), "0b", 2), true },
		"aten::chr": func(c *invocation) (any, bool) {
			n := c.int(0, "i")
			if n < 0 || n > 255 {
				c.fail("chr of %d", n)
			}
			return string([]byte{byte(n)}), true
		},
		"aten::__range_length": rangeLength,
		"aten::__derive_index": func(c *invocation) (any, bool) {
			return c.int(1, "start") + c.int(0, "index")*c.int(2, "step"), true
		},
		"prim::rangelist": func(c *invocation) (any, bool) {
			n := max(c.int(0, "n"), 0)
			c.grow(n)
			l := &list{}
			for i := range n {
				l.elems = append(l.elems, i)
			}
			return l, true
		},
	}
}

// float returns a number as a float.
func (c *invocation) float(i int, name string) float64 {
	v := c.must(i, name)
	x, ok := number(v)
	if !ok || imag(x) != 0 {
		c.wrong(name, v)
	}
	return real(x)
}

// A pair is the two arguments of an operator of numbers.
type pair struct {
	a, b any
	// x and y are their numbers.
	x, y complex128
}

// pair returns the two arguments where both are numbers.
func (c *invocation) pair() (p pair, ok bool) {
	if len(c.args) != 2 || len(c.named) > 0 {
		return pair{}, false
	}
	p.a, p.b = c.args[0], c.args[1]
	x, ok1 := number(p.a)
	y, ok2 := number(p.b)
	p.x, p.y = x, y
	return p, ok1 && ok2
}

// integers returns both where Python counts both as integers.
func (p pair) integers() (i, j int, ok bool) {
	i, ok1 := integer(p.a)
	j, ok2 := integer(p.b)
	return i, j, ok1 && ok2
}

// complex reports whether one of them is of the complex type; imaginary whether one has an imaginary part.
func (p pair) complex() bool {
	_, ok1 := p.a.(complex128)
	_, ok2 := p.b.(complex128)
	return ok1 || ok2
}

func (p pair) imaginary() bool { return imag(p.x) != 0 || imag(p.y) != 0 }

// integer returns a number that Python counts as an integer.
func integer(v any) (int, bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// arithmetic is an operator of two numbers: on integers where both are, else on floats, else on complex numbers.
func arithmetic(
	ints func(a, b int) int, floats func(a, b float64) float64, complexes func(a, b complex128) complex128,
) builtin {
	return func(c *invocation) (any, bool) {
		p, ok := c.pair()
		if !ok {
			return nil, false
		}
		if i, j, ok := p.integers(); ok {
			return ints(i, j), true
		}
		if p.complex() {
			return complexes(p.x, p.y), true
		}
		return floats(real(p.x), real(p.y)), true
	}
}

// multiply is also the repetition of a list or text.
func multiply(c *invocation) (any, bool) {
	if len(c.args) == 2 {
		switch v := c.args[1].(type) {
		case *list:
			return c.repeat(v, c.int(0, "n")), true
		case string:
			return c.repeatText(v, c.int(0, "n")), true
		}
	}
	return arithmetic(func(a, b int) int { return a * b }, func(a, b float64) float64 { return a * b },
		func(a, b complex128) complex128 { return a * b })(c)
}

func divide(c *invocation) (any, bool) {
	p, ok := c.pair()
	if !ok {
		return nil, false
	}
	if p.y == 0 {
		c.fail("division by zero")
	}
	if p.imaginary() {
		return p.x / p.y, true
	}
	return real(p.x) / real(p.y), true
}

// whole is arithmetic that fails on a divisor of zero.
func whole(ints func(a, b int) int, floats func(a, b float64) float64) builtin {
	f := arithmetic(ints, floats, nil)
	return func(c *invocation) (any, bool) {
		p, ok := c.pair()
		if !ok {
			return nil, false
		}
		if p.y == 0 {
			c.fail("division by zero")
		}
		if p.complex() {
			c.fail("%s of complex numbers", c.short())
		}
		return f(c)
	}
}

// floorDiv rounds towards minus infinity, as Python does. b is not zero.
func floorDiv(a, b int) int {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// remainder is % of floats as the language has it: it rounds otherwise than Python, and than the op on tensors.
func remainder(a, b float64) float64 { return math.Mod(b+math.Mod(a, b), b) }

// floorMod is the remainder of tensors.
func floorMod(a, b float64) float64 {
	r := math.Mod(a, b)
	if r != 0 && (r < 0) != (b < 0) {
		r += b
	}
	return r
}

// power gives a float even of integers, as ** does in the language.
func power(c *invocation) (any, bool) {
	p, ok := c.pair()
	if !ok {
		return nil, false
	}
	if p.imaginary() {
		return cmplx.Pow(p.x, p.y), true
	}
	return math.Pow(real(p.x), real(p.y)), true
}

func unary(ints func(a int) any, floats func(a float64) any) builtin {
	return func(c *invocation) (any, bool) {
		if n, ok := integer(c.args[0]); ok {
			return ints(n), true
		}
		return floats(c.float(0, "a")), true
	}
}

func floats(f func(float64) float64) builtin {
	return func(c *invocation) (any, bool) {
		if len(c.args) != 1 || len(c.named) > 0 {
			return nil, false
		}
		return f(c.float(0, "a")), true
	}
}

func floats2(f func(a, b float64) float64) builtin {
	return func(c *invocation) (any, bool) {
		if _, ok := c.pair(); !ok {
			return nil, false
		}
		return f(c.float(0, "a"), c.float(1, "b")), true
	}
}

func ordered(holds func(c *invocation, a, b any) bool) builtin {
	return func(c *invocation) (any, bool) {
		p, ok := c.pair()
		return ok && holds(c, p.a, p.b), ok
	}
}

func bitwise(f func(a, b int) int) builtin {
	return func(c *invocation) (any, bool) {
		p, ok := c.pair()
		if !ok {
			return nil, false
		}
		i, j, ok := p.integers()
		if !ok {
			return nil, false
		}
		_, bool1 := p.a.(bool)
		_, bool2 := p.b.(bool)
		if bool1 && bool2 {
			return f(i, j) != 0, true
		}
		return f(i, j), true
	}
}

// toInt rounds to an integer.
func toInt(round func(float64) float64) builtin {
	return func(c *invocation) (any, bool) {
		if n, ok := integer(c.args[0]); ok {
			return n, true
		}
		return c.toInt(round(c.float(0, "a"))), true
	}
}

// toInt is int(v).
func (m *machine) toInt(v any) int {
	if n, ok := integer(v); ok {
		return n
	}
	if s, ok := v.(string); ok {
		return m.parseInt(s)
	}
	x, ok := v.(float64)
	if !ok {
		m.fail("int of %s", kindOf(v))
	}
	if !(math.Abs(x) < 1<<63) {
		m.fail("int of %v", x)
	}
	return int(x)
}

func (m *machine) parseInt(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		m.fail("int of %.100q", s)
	}
	return n
}

func logarithm(c *invocation) (any, bool) {
	if len(c.args) == 2 {
		return math.Log(c.float(0, "a")) / math.Log(c.float(1, "b")), true
	}
	return math.Log(c.float(0, "a")), true
}

func factorial(c *invocation) (any, bool) {
	n := c.int(0, "a")
	if n < 0 {
		c.fail("factorial of %d", n)
	}
	product := 1
	const most = 66 // 2^64 divides all that follow, and integers wrap around
	for i := 2; i <= min(n, most); i++ {
		product *= i
	}
	return product, true
}

func makeComplex(c *invocation) (any, bool) {
	if len(c.args) == 1 {
		x, ok := number(c.args[0])
		return x, ok
	}
	return complex(c.float(0, "x"), c.float(1, "y")), true
}

// based writes an integer as hex, oct and bin do.
func based(n int, prefix string, base int) string {
	if n < 0 {
		return "-" + prefix + strconv.FormatUint(-uint64(n), base)
	}
	return prefix + strconv.FormatInt(int64(n), base)
}

func rangeLength(c *invocation) (any, bool) {
	low, high, step := c.int(0, "lo"), c.int(1, "hi"), c.int(2, "step")
	switch {
	case step == 0:
		c.fail("range in steps of 0")
	case step > 0 && low < high:
		return 1 + (high-1-low)/step, true
	case step < 0 && low > high:
		return 1 + (low-1-high)/-step, true
	}
	return 0, true
}
