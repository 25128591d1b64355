package ptx

import (
	"math"
	"slices"
)

// comparisons are of integers and ordered floats; with a u behind, floats that are no numbers count too.
var comparisons = []string{
	"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan", "lo", "ls", "hi", "hs",
}

// decide makes a comparison of what way a is from b: -1, 0, 1, or 2 for not at all.
func decide(name string) (holds [4]bool) {
	set := map[string]string{
		"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "equ": "=?", "neu": "<>?", "ltu": "<?",
		"leu": "<=?", "gtu": ">?", "geu": ">=?", "num": "<=>", "nan": "?", "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
	}[name]
	for _, r := range set {
		switch r {
		case '<':
			holds[0] = true
		case '=':
			holds[1] = true
		case '>':
			holds[2] = true
		case '?':
			holds[3] = true
		}
	}
	return holds
}

// order says what way a is from b, from 0 on.
func order[T int64 | uint64 | float64](a, b T) int {
	switch {
	case a < b:
		return 0
	case a == b:
		return 1
	case a > b:
		return 2
	}
	return 3
}

// buildCompare makes setp.
func buildCompare(c *compiler, f *form, s *statement) action {
	at := slices.IndexFunc(comparisons, f.take)
	ftz := f.take("ftz")
	if at < 0 || len(f.types) != 1 || !f.types[0].integer() && f.types[0].kind != 'f' || f.types[0].bits == 17 ||
		ftz && f.types[0] != (scalar{'f', 32}) {
		return nil
	}
	holds := decide(comparisons[at])
	typ := f.types[0]
	join := slices.IndexFunc([]string{"and", "or", "xor"}, f.take)
	count, with := 3, -1
	if join >= 0 {
		count = 4
	}
	args := c.args(s, count)
	if join >= 0 {
		with = c.src(args[3])
	}
	d, not := -1, -1
	if args[0].kind == isPair {
		d, not = c.dst(args[0].args[0]).slot, c.dst(args[0].args[1]).slot
	} else {
		d = c.dst(args[0]).slot
	}
	a, b := c.src(args[1]), c.src(args[2])
	compare := func(t *thread) int { return order(typ.extend(t.r[a]), typ.extend(t.r[b])) }
	switch {
	case typ == scalar{'s', 32}:
		compare = func(t *thread) int { return order(int64(int32(t.r[a])), int64(int32(t.r[b]))) }
	case typ.kind == 's':
		compare = func(t *thread) int { return order(int64(typ.extend(t.r[a])), int64(typ.extend(t.r[b]))) }
	case typ.kind == 'f' && ftz:
		compare = func(t *thread) int {
			return order(float64(flush(float32of(t.r[a]))), float64(flush(float32of(t.r[b]))))
		}
	case typ == scalar{'f', 32}:
		compare = func(t *thread) int { return order(float64(float32of(t.r[a])), float64(float32of(t.r[b]))) }
	case typ.kind == 'f':
		compare = func(t *thread) int { return order(widened(typ, t.r[a]), widened(typ, t.r[b])) }
	}
	if join < 0 && not < 0 {
		return func(t *thread) { t.r[d] = truth(holds[compare(t)]) }
	}
	joined := func(x, y bool) bool {
		switch join {
		case 0:
			return x && y
		case 1:
			return x || y
		case 2:
			return x != y
		}
		return x
	}
	return func(t *thread) {
		is := holds[compare(t)]
		other := with >= 0 && t.r[with] != 0
		t.r[d] = truth(joined(is, other))
		if not >= 0 {
			t.r[not] = truth(joined(!is, other))
		}
	}
}

// buildSelect makes selp.
func buildSelect(c *compiler, f *form, s *statement) action {
	if len(f.types) != 1 {
		return nil
	}
	args := c.args(s, 4)
	d, a, b, p := c.dst(args[0]).slot, c.src(args[1]), c.src(args[2]), c.src(args[3])
	mask := uint64(math.MaxUint64) >> (64 - f.types[0].bits)
	return func(t *thread) {
		if t.r[p] != 0 {
			t.r[d] = t.r[a] & mask
		} else {
			t.r[d] = t.r[b] & mask
		}
	}
}

// buildBits makes what moves bits and bytes about.
func buildBits(c *compiler, f *form, s *statement) action {
	n := 4
	if f.name == "bfi" || f.name == "lop3" {
		n = 5
	}
	args := c.args(s, n)
	d := c.dst(args[0]).slot
	var from []int
	for _, o := range args[1:] {
		from = append(from, c.src(o))
	}
	width := 32
	if len(f.types) > 0 {
		width = f.types[0].bits
	}
	for _, t := range f.types {
		if !t.integer() {
			return nil
		}
	}
	if width != 32 && (width != 64 || f.name == "prmt" || f.name == "shf" || f.name == "lop3" || f.name == "dp4a") {
		return nil
	}
	mask := uint64(math.MaxUint64) >> (64 - width)
	var of func(x [4]uint64) uint64
	switch f.name {
	case "bfi":
		of = func(x [4]uint64) uint64 {
			at, count := x[2]&0xff, x[3]&0xff
			field := (uint64(1)<<count - 1) << at
			return x[1]&^field | x[0]<<at&field
		}
	case "bfe":
		signed := f.types[0].kind == 's'
		of = func(x [4]uint64) uint64 { return extract(x[0]&mask, int(x[1]&0xff), int(x[2]&0xff), width, signed) }
	case "prmt":
		of = func(x [4]uint64) uint64 { return permute(x[1]<<32|x[0]&(1<<32-1), x[2]) }
	case "shf":
		left, clamp := f.take("l"), f.take("clamp")
		if !left && !f.take("r") || !clamp && !f.take("wrap") {
			return nil
		}
		of = func(x [4]uint64) uint64 { return funnel(x[1]<<32|x[0]&(1<<32-1), x[2], left, clamp) }
	case "lop3":
		of = func(x [4]uint64) uint64 { return lookupBits(x) }
	case "dp4a":
		if len(f.types) != 2 || f.types[1].bits != 32 {
			return nil
		}
		x8, y8 := scalar{f.types[0].kind, 8}, scalar{f.types[1].kind, 8}
		of = func(x [4]uint64) uint64 {
			total := x[2]
			for i := range 4 {
				total += x8.extend(x[0]>>(8*i)) * y8.extend(x[1]>>(8*i))
			}
			return total
		}
	}
	if of == nil || len(f.types) == 0 {
		return nil
	}
	return func(t *thread) {
		var x [4]uint64
		for i, a := range from {
			x[i] = t.r[a]
		}
		t.r[d] = of(x) & mask
	}
}

// extract is a field of bits, widened.
func extract(x uint64, at, count, width int, signed bool) uint64 {
	top := min(at+count-1, width-1)
	var fill uint64
	if signed && count > 0 && x>>top&1 != 0 {
		fill = math.MaxUint64
	}
	if count == 0 {
		return 0
	}
	if at >= width {
		return fill
	}
	count = min(count, width-at)
	field := uint64(math.MaxUint64) >> (64 - count)
	return x>>at&field | fill&^field
}

// permute picks four of eight bytes; a selector's bit 3 asks for the byte's sign instead.
func permute(bytes, selectors uint64) uint64 {
	var all uint64
	for i := range 4 {
		sel := selectors >> (4 * i) & 15
		b := bytes >> (8 * (sel & 7)) & 0xff
		if sel&8 != 0 {
			b = uint64(int64(int8(b))>>7) & 0xff
		}
		all |= b << (8 * i)
	}
	return all
}

// funnel shifts 64 bits of which half is kept.
func funnel(x, by uint64, left, clamp bool) uint64 {
	by &= 1<<32 - 1
	if clamp {
		by = min(by, 32)
	} else {
		by &= 31
	}
	if left {
		return x << by >> 32
	}
	return x >> by
}

// lookupBits looks up each bit of three operands in a table of eight.
func lookupBits(x [4]uint64) uint64 {
	var all uint64
	for i := range 8 {
		if x[3]>>i&1 == 0 {
			continue
		}
		term := uint64(math.MaxUint64)
		for k := range 3 {
			if i>>(2-k)&1 != 0 {
				term &= x[k]
			} else {
				term &= ^x[k]
			}
		}
		all |= term
	}
	return all & (1<<32 - 1)
}
