package ptx

import (
	"math"
	"math/bits"
)

// lift makes an action of a function of two operands, which get and give the bits of a type.
func lift(typ scalar, d, a, b int, of func(x, y uint64) uint64) action {
	switch {
	case typ.bits == 64:
		return func(t *thread) { t.r[d] = of(t.r[a], t.r[b]) }
	case typ.bits == 32 && typ.kind == 's':
		return func(t *thread) {
			t.r[d] = uint64(uint32(of(uint64(int32(t.r[a])), uint64(int32(t.r[b])))))
		}
	case typ.bits == 32:
		return func(t *thread) { t.r[d] = uint64(uint32(of(uint64(uint32(t.r[a])), uint64(uint32(t.r[b]))))) }
	}
	mask := uint64(1)<<typ.bits - 1
	return func(t *thread) { t.r[d] = of(typ.extend(t.r[a]), typ.extend(t.r[b])) & mask }
}

// buildBinary makes what has two operands and a result.
func buildBinary(c *compiler, f *form, s *statement) action {
	if len(f.types) != 1 {
		return nil
	}
	typ := f.types[0]
	if typ.kind == 'f' {
		return buildFloat(c, f, s)
	}
	if logic := f.name == "and" || f.name == "or" || f.name == "xor"; !typ.integer() && !(logic && typ.kind == 'p') {
		return nil
	}
	args := c.args(s, 3)
	d, a, b := c.dst(args[0]).slot, c.src(args[1]), c.src(args[2])
	carries := f.take("cc")
	if carries {
		return carry(f.name, typ, d, a, b, false, true)
	}
	if f.name == "mul" {
		return buildMul(f, typ, d, a, b)
	}
	switch typ.bits {
	case 32:
		switch f.name {
		case "add":
			return func(t *thread) { t.r[d] = uint64(uint32(t.r[a]) + uint32(t.r[b])) }
		case "and":
			return func(t *thread) { t.r[d] = uint64(uint32(t.r[a]) & uint32(t.r[b])) }
		}
	case 64:
		switch f.name {
		case "add":
			return func(t *thread) { t.r[d] = t.r[a] + t.r[b] }
		case "sub":
			return func(t *thread) { t.r[d] = t.r[a] - t.r[b] }
		case "or":
			return func(t *thread) { t.r[d] = t.r[a] | t.r[b] }
		}
	}
	of := integers(f.name, typ)
	if of == nil {
		return nil
	}
	if f.name == "shl" || f.name == "shr" {
		// The second operand is 32 unsigned bits whatever the type.
		mask := uint64(math.MaxUint64) >> (64 - typ.bits)
		return func(t *thread) { t.r[d] = of(typ.extend(t.r[a]), uint64(uint32(t.r[b]))) & mask }
	}
	return lift(typ, d, a, b, of)
}

// integers returns an operation on integers that were widened to 64 bits.
func integers(name string, typ scalar) func(x, y uint64) uint64 {
	signed := typ.kind == 's'
	switch name {
	case "add":
		return func(x, y uint64) uint64 { return x + y }
	case "sub":
		return func(x, y uint64) uint64 { return x - y }
	case "and":
		return func(x, y uint64) uint64 { return x & y }
	case "or":
		return func(x, y uint64) uint64 { return x | y }
	case "xor":
		return func(x, y uint64) uint64 { return x ^ y }
	case "min":
		if signed {
			return func(x, y uint64) uint64 { return uint64(min(int64(x), int64(y))) }
		}
		return func(x, y uint64) uint64 { return min(x, y) }
	case "max":
		if signed {
			return func(x, y uint64) uint64 { return uint64(max(int64(x), int64(y))) }
		}
		return func(x, y uint64) uint64 { return max(x, y) }
	case "shl":
		return func(x, y uint64) uint64 { return x << y }
	case "shr":
		if signed {
			return func(x, y uint64) uint64 { return uint64(int64(x) >> y) }
		}
		return func(x, y uint64) uint64 { return x >> y }
	case "div", "rem":
		return divided(name == "rem", signed)
	}
	return nil
}

// divided is a quotient or a remainder. What a division by zero gives is the machine's to say; here as on GPUs all bits.
func divided(rest, signed bool) func(x, y uint64) uint64 {
	return func(x, y uint64) uint64 {
		switch {
		case y == 0 && rest:
			return x
		case y == 0:
			return math.MaxUint64
		case signed && rest:
			return uint64(int64(x) % int64(y))
		case signed:
			return uint64(int64(x) / int64(y))
		case rest:
			return x % y
		}
		return x / y
	}
}

func buildMul(f *form, typ scalar, d, a, b int) action {
	switch {
	case f.take("lo"):
		return lift(typ, d, a, b, func(x, y uint64) uint64 { return x * y })
	case f.take("wide") && typ.bits <= 32:
		mask := uint64(math.MaxUint64) >> (64 - 2*typ.bits)
		return func(t *thread) { t.r[d] = typ.extend(t.r[a]) * typ.extend(t.r[b]) & mask }
	case f.take("hi"):
		return lift(typ, d, a, b, high(typ))
	}
	return nil
}

// high is the upper half of a product.
func high(typ scalar) func(x, y uint64) uint64 {
	if typ.bits < 64 {
		return func(x, y uint64) uint64 { return x * y >> typ.bits }
	}
	return func(x, y uint64) uint64 {
		h, _ := bits.Mul64(x, y)
		if typ.kind == 's' {
			if int64(x) < 0 {
				h -= y
			}
			if int64(y) < 0 {
				h -= x
			}
		}
		return h
	}
}

// carry makes sums and differences with a carry that comes in, goes out, or both.
func carry(name string, typ scalar, d, a, b int, in, out bool) action {
	if typ.bits != 32 && typ.bits != 64 || name != "add" && name != "sub" {
		return nil
	}
	return func(t *thread) {
		var with, left uint64
		if in {
			with = t.carry
		}
		x, y := t.r[a], t.r[b]
		switch {
		case typ.bits == 64 && name == "add":
			t.r[d], left = bits.Add64(x, y, with)
		case typ.bits == 64:
			t.r[d], left = bits.Sub64(x, y, with)
		case name == "add":
			x = uint64(uint32(x)) + uint64(uint32(y)) + with
			t.r[d], left = uint64(uint32(x)), x>>32
		default:
			x = uint64(uint32(x)) - uint64(uint32(y)) - with
			t.r[d], left = uint64(uint32(x)), x>>63
		}
		if out {
			t.carry = left
		}
	}
}

// buildCarry makes addc, subc and madc.
func buildCarry(c *compiler, f *form, s *statement) action {
	if len(f.types) != 1 || !f.types[0].integer() {
		return nil
	}
	out := f.take("cc")
	if f.name == "madc" {
		return buildMulCarry(c, f, s, true, out)
	}
	args := c.args(s, 3)
	return carry(f.name[:3], f.types[0], c.dst(args[0]).slot, c.src(args[1]), c.src(args[2]), true, out)
}

// buildMulCarry makes mad and madc of half of a product, with carries.
func buildMulCarry(c *compiler, f *form, s *statement, in, out bool) action {
	typ := f.types[0]
	half := func(x, y uint64) uint64 { return x * y }
	if f.take("hi") {
		half = high(typ)
	} else if !f.take("lo") {
		return nil
	}
	args := c.args(s, 4)
	d, a, b := c.dst(args[0]).slot, c.src(args[1]), c.src(args[2])
	between := c.slot()
	multiply := lift(typ, between, a, b, half)
	add := carry("add", typ, d, between, c.src(args[3]), in, out)
	if add == nil {
		return nil
	}
	return func(t *thread) {
		multiply(t)
		add(t)
	}
}

// buildMulAdd makes mad of integers and fma.
func buildMulAdd(c *compiler, f *form, s *statement) action {
	if len(f.types) != 1 {
		return nil
	}
	typ := f.types[0]
	if typ.kind != 'f' {
		if f.name != "mad" || !typ.integer() {
			return nil
		}
		if f.take("cc") {
			return buildMulCarry(c, f, s, false, true)
		}
		args := c.args(s, 4)
		d, a, b, x := c.dst(args[0]).slot, c.src(args[1]), c.src(args[2]), c.src(args[3])
		wide := f.flags["wide"]
		between := c.slot()
		multiply := buildMul(f, typ, between, a, b)
		if multiply == nil {
			return nil
		}
		width := typ.bits
		if wide {
			width *= 2
		}
		mask := uint64(math.MaxUint64) >> (64 - width)
		return func(t *thread) {
			multiply(t)
			t.r[d] = (t.r[between] + t.r[x]) & mask
		}
	}
	args := c.args(s, 4)
	d, a, b, x := c.dst(args[0]).slot, c.src(args[1]), c.src(args[2]), c.src(args[3])
	how, _, given := f.rounding()
	ftz := f.take("ftz")
	if !given {
		return nil
	}
	switch typ.bits {
	case 64:
		if how != toNearest || ftz {
			return nil
		}
		return func(t *thread) {
			t.r[d] = math.Float64bits(math.FMA(math.Float64frombits(t.r[a]), math.Float64frombits(t.r[b]),
				math.Float64frombits(t.r[x])))
		}
	case 32:
		if ftz {
			return func(t *thread) {
				t.r[d] = bits32(
					flush(fused(flush(float32of(t.r[a])), flush(float32of(t.r[b])), flush(float32of(t.r[x])), how)),
				)
			}
		}
		return func(t *thread) {
			t.r[d] = bits32(fused(float32of(t.r[a]), float32of(t.r[b]), float32of(t.r[x]), how))
		}
	}
	return nil
}

// buildFloat makes what has two floats for operands.
func buildFloat(c *compiler, f *form, s *statement) action {
	args := c.args(s, 3)
	d, a, b := c.dst(args[0]).slot, c.src(args[1]), c.src(args[2])
	how, integer, _ := f.rounding()
	ftz, sat, approx := f.take("ftz"), f.take("sat"), f.take("approx") || f.take("full")
	if integer || approx && f.name != "div" {
		return nil
	}
	if f.types[0].bits == 64 {
		of := doubles[f.name]
		if of == nil || how != toNearest || ftz || sat || approx {
			return nil
		}
		return func(t *thread) {
			t.r[d] = math.Float64bits(of(math.Float64frombits(t.r[a]), math.Float64frombits(t.r[b])))
		}
	}
	var of func(x, y float32) float32
	switch f.name {
	case "add":
		of = func(x, y float32) float32 { return sum(x, y, how) }
	case "sub":
		of = func(x, y float32) float32 { return sum(x, -y, how) }
	case "mul":
		of = func(x, y float32) float32 { return product(x, y, how) }
	case "div":
		if how != toNearest {
			return nil
		}
		of = func(x, y float32) float32 { return x / y }
	case "min":
		of = least[float32]
	case "max":
		of = most[float32]
	}
	if of == nil || f.types[0].bits != 32 {
		return nil
	}
	if !ftz && !sat {
		return func(t *thread) { t.r[d] = bits32(of(float32of(t.r[a]), float32of(t.r[b]))) }
	}
	return func(t *thread) {
		x, y := float32of(t.r[a]), float32of(t.r[b])
		if ftz {
			x, y = flush(x), flush(y)
		}
		if x = of(x, y); ftz {
			x = flush(x)
		}
		if sat {
			x = saturate(x)
		}
		t.r[d] = bits32(x)
	}
}

var doubles = map[string]func(x, y float64) float64{
	"add": func(x, y float64) float64 { return x + y }, "sub": func(x, y float64) float64 { return x - y },
	"mul": func(x, y float64) float64 { return x * y }, "div": func(x, y float64) float64 { return x / y },
	"min": least[float64], "max": most[float64],
}

// least and most pass over what is no number, and order the zeros.
func least[T float32 | float64](x, y T) T {
	switch {
	case x != x:
		return y
	case y != y:
		return x
	}
	return min(x, y)
}

func most[T float32 | float64](x, y T) T {
	switch {
	case x != x:
		return y
	case y != y:
		return x
	}
	return max(x, y)
}
