package ptx

import (
	"math"
	"math/bits"
)

// buildUnary makes what has one operand and a result.
func buildUnary(c *compiler, f *form, s *statement) action {
	if len(f.types) != 1 {
		return nil
	}
	typ := f.types[0]
	args := c.args(s, 2)
	d, a := c.dst(args[0]).slot, c.src(args[1])
	if typ.kind == 'f' {
		return buildFunction(f, typ, d, a)
	}
	if !typ.integer() && !(f.name == "not" && typ.kind == 'p') {
		return nil
	}
	var of func(x uint64) uint64
	width := typ.bits
	switch f.name {
	case "abs":
		of = func(x uint64) uint64 {
			if int64(x) < 0 {
				return -x
			}
			return x
		}
	case "neg":
		of = func(x uint64) uint64 { return -x }
	case "not":
		of = func(x uint64) uint64 { return ^x }
	case "clz":
		of = func(x uint64) uint64 { return uint64(bits.LeadingZeros64(x) - 64 + width) }
	case "popc":
		of = func(x uint64) uint64 { return uint64(bits.OnesCount64(x)) }
	case "brev":
		of = func(x uint64) uint64 { return bits.Reverse64(x) >> (64 - width) }
	}
	if of == nil {
		return nil
	}
	mask := uint64(math.MaxUint64) >> (64 - width)
	return func(t *thread) { t.r[d] = of(typ.extend(t.r[a])) & mask }
}

// functions are of one float, computed in 64 bits. Those that are not marked exact are approximations of the ISA's,
// whose bounds a result of 64 bits that is rounded keeps.
var functions = map[string]func(x float64) float64{
	"sqrt": math.Sqrt, "rcp": func(x float64) float64 { return 1 / x },
	"rsqrt": func(x float64) float64 { return 1 / math.Sqrt(x) },
	"ex2":   math.Exp2, "lg2": math.Log2, "sin": math.Sin, "cos": math.Cos, "tanh": math.Tanh,
}

func buildFunction(f *form, typ scalar, d, a int) action {
	how, integer, rounded := f.rounding()
	ftz, approx := f.take("ftz"), f.take("approx")
	if integer || how != toNearest {
		return nil
	}
	if typ.bits < 32 {
		return nil
	}
	// abs and neg are on the sign alone.
	sign := uint64(1) << (typ.bits - 1)
	switch f.name {
	case "abs", "neg":
		if rounded || approx {
			return nil
		}
		bits := func(x uint64) uint64 { return x &^ sign }
		if f.name == "neg" {
			bits = func(x uint64) uint64 { return x ^ sign }
		}
		if ftz {
			return func(t *thread) { t.r[d] = bits(uint64(math.Float32bits(flush(float32of(t.r[a]))))) }
		}
		return func(t *thread) { t.r[d] = bits(t.r[a]) }
	}
	of := functions[f.name]
	if of == nil || rounded == approx || rounded && f.name != "sqrt" && f.name != "rcp" {
		return nil
	}
	switch {
	case typ.bits == 64 && rounded && !ftz:
		return func(t *thread) { t.r[d] = math.Float64bits(of(math.Float64frombits(t.r[a]))) }
	case typ.bits == 64 && approx && (f.name == "rcp" || f.name == "rsqrt"):
		return func(t *thread) { t.r[d] = gross(of, t.r[a], ftz) }
	case typ.bits == 32:
		return func(t *thread) {
			x := float32of(t.r[a])
			if ftz {
				x = flush(x)
			}
			if x = float32(of(float64(x))); ftz {
				x = flush(x)
			}
			t.r[d] = bits32(x)
		}
	}
	return nil
}

// gross is an approximation of 64 bits: with ftz the lower 32 bits of the operand do not count and those of the result
// are zero, and numbers too small to be normal are zero. Without, it is the value.
func gross(of func(x float64) float64, operand uint64, ftz bool) uint64 {
	const lower, exponent = 1<<32 - 1, 0x7ff << 52
	if !ftz {
		return math.Float64bits(of(math.Float64frombits(operand)))
	}
	if operand&exponent == 0 {
		operand &= 1 << 63
	}
	x := of(math.Float64frombits(operand &^ lower))
	if x != x {
		return 0x7fffffff00000000
	}
	y := math.Float64bits(x)
	if y&exponent == 0 {
		return y & (1 << 63)
	}
	return y &^ lower
}

// buildConvert makes cvt.
func buildConvert(c *compiler, f *form, s *statement) action {
	how, integer, given := f.rounding()
	if f.take("rna") {
		how, given = 'a', true
	}
	ftz, sat := f.take("ftz"), f.take("sat")
	if len(f.types) != 2 {
		return nil
	}
	dt, st := f.types[0], f.types[1]
	if dt.bits == 17 { // two halves of two floats, the first one above
		return packed(c, s, dt, st, how == toNearest && given && !integer && !ftz && !sat)
	}
	args := c.args(s, 2)
	to, a := c.dst(args[0]), c.src(args[1])
	d := to.slot
	isFloat := func(t scalar) bool { return (t.kind == 'f' || t.kind == 'h') && t.bits != 17 }
	switch {
	case !isFloat(st) && !st.integer() || !isFloat(dt) && !dt.integer() && dt.kind != 't':
		return nil
	case dt.kind == 't':
		if how != 'a' || st != (scalar{'f', 32}) || ftz || sat {
			return nil
		}
		return func(t *thread) { t.r[d] = uint64(tensorFloat(uint32(t.r[a]))) }
	case isFloat(dt) && isFloat(st):
		return floatToFloat(dt, st, d, a, narrowing{how, integer, given, ftz, sat})
	case isFloat(dt):
		if how != toNearest || !given || integer || sat || ftz || dt.bits < 32 {
			return nil
		}
		return integerToFloat(dt, st, d, a)
	case isFloat(st):
		if !integer || ftz && st.bits != 32 {
			return nil
		}
		return floatToInteger(dt, st, to, a, how, ftz)
	}
	if given {
		return nil
	}
	least, most := limits(dt)
	return func(t *thread) {
		x := st.extend(t.r[a])
		if sat {
			x = within(x, st.kind == 's', dt.kind == 's', least, most)
		}
		t.r[d] = to.fit(dt.extend(x))
	}
}

// limits are the least and the most that an integer of a type is.
func limits(t scalar) (least int64, most uint64) {
	if t.kind == 's' {
		return math.MinInt64 >> (64 - t.bits), math.MaxInt64 >> (64 - t.bits)
	}
	return 0, math.MaxUint64 >> (64 - t.bits)
}

// within keeps an integer to what a type holds.
func within(x uint64, signed, toSigned bool, least int64, most uint64) uint64 {
	if signed && int64(x) < 0 {
		return uint64(max(int64(x), least))
	}
	return min(x, most)
}

func integerToFloat(dt, st scalar, d, a int) action {
	signed := st.kind == 's'
	return func(t *thread) {
		x := st.extend(t.r[a])
		switch {
		case dt.bits == 32 && signed:
			t.r[d] = bits32(float32(int64(x)))
		case dt.bits == 32:
			t.r[d] = bits32(float32(x))
		case signed:
			t.r[d] = math.Float64bits(float64(int64(x)))
		default:
			t.r[d] = math.Float64bits(float64(x))
		}
	}
}

// widened is a float's value.
func widened(st scalar, bits uint64) float64 {
	switch {
	case st.bits == 64:
		return math.Float64frombits(bits)
	case st.bits == 32:
		return float64(float32of(bits))
	case st.kind == 'h':
		return float64(brainOf(uint16(bits)))
	}
	return float64(halfOf(uint16(bits)))
}

func floatToInteger(dt, st scalar, to register, a int, how rounding, ftz bool) action {
	least, most := limits(dt)
	return func(t *thread) {
		x := widened(st, t.r[a])
		if ftz {
			x = float64(flush(float32(x)))
		}
		var n uint64
		switch x = whole(x, how); {
		case x != x:
			if st.bits == 64 || dt.bits == 64 {
				n = 1 << (dt.bits - 1)
			}
		case x < float64(least):
			n = uint64(least)
		case x >= float64(most):
			n = most
		case dt.kind == 's':
			n = uint64(int64(x))
		default:
			n = uint64(x)
		}
		t.r[to.slot] = to.fit(dt.extend(n))
	}
}

// narrowing is what modifiers say of a conversion: how it rounds, whether to an integer, and whether that was given;
// whether subnormal numbers become zero; and whether the result is brought into [0, 1].
type narrowing struct {
	how                      rounding
	integer, given, ftz, sat bool
}

// floatToFloat converts register a to register d, nil where PTX has no such conversion.
func floatToFloat(dt, st scalar, d, a int, n narrowing) action {
	how, integer, ftz, sat := n.how, n.integer, n.ftz, n.sat
	narrows := dt.bits < st.bits
	if n.given != (narrows || integer) || integer && dt != st || dt.bits == 16 && (how != toNearest || st.bits != 32) ||
		ftz && st.bits > 32 && dt.bits > 32 {
		return nil
	}
	return func(t *thread) {
		x := widened(st, t.r[a])
		if ftz && st.bits == 32 {
			x = float64(flush(float32(x)))
		}
		if integer {
			x = whole(x, how)
		}
		if sat {
			x = saturate(x)
		}
		switch {
		case dt.bits == 64:
			t.r[d] = math.Float64bits(x)
		case dt.bits == 32:
			y := narrow(x, how)
			if ftz {
				y = flush(y)
			}
			t.r[d] = bits32(y)
		case dt.kind == 'h':
			t.r[d] = uint64(brainBits(float32(x)))
		default:
			t.r[d] = uint64(halfBits(float32(x)))
		}
	}
}

// packed makes two halves of two floats.
func packed(c *compiler, s *statement, dt, st scalar, known bool) action {
	if !known || st != (scalar{'f', 32}) {
		return nil
	}
	args := c.args(s, 3)
	d, a, b := c.dst(args[0]).slot, c.src(args[1]), c.src(args[2])
	half := halfBits
	if dt.kind == 'h' {
		half = brainBits
	}
	return func(t *thread) { t.r[d] = uint64(half(float32of(t.r[a])))<<16 | uint64(half(float32of(t.r[b]))) }
}

// tensorFloat rounds to the 10 bits of a fraction that tensor cores take, ties away from zero.
func tensorFloat(bits uint32) uint32 {
	if bits&0x7f800000 == 0x7f800000 {
		return bits
	}
	return (bits + 0x1000) &^ 0x1fff
}
