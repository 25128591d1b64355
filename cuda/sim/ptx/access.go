package ptx

import (
	"encoding/binary"
	"math"
	"slices"
)

// spaceOf takes the space of an instruction.
func (f *form) space() space {
	in := inGeneric
	for name, s := range map[string]space{
		"global": inGlobal, "shared": inShared, "local": inLocal, "param": inParameter, "const": inGlobal,
		"shared::cta": inShared,
	} {
		if f.take(name) {
			in = s
		}
	}
	return in
}

// vector takes the number of elements of an instruction.
func (f *form) vector() int {
	switch {
	case f.take("v2"):
		return 2
	case f.take("v4"):
		return 4
	}
	return 1
}

func get(p []byte) uint64 {
	switch len(p) {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(p))
	case 4:
		return uint64(binary.LittleEndian.Uint32(p))
	}
	return binary.LittleEndian.Uint64(p)
}

func put(p []byte, x uint64) {
	switch len(p) {
	case 1:
		p[0] = byte(x)
	case 2:
		binary.LittleEndian.PutUint16(p, uint16(x))
	case 4:
		binary.LittleEndian.PutUint32(p, uint32(x))
	default:
		binary.LittleEndian.PutUint64(p, x)
	}
}

// accessed reads what loads and stores have in common.
func (f *form) accessed() (in space, t scalar, n int, ok bool) {
	in, n = f.space(), f.vector()
	for _, flag := range []string{
		"nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "volatile", "relaxed", "weak", "gpu", "sys",
	} {
		f.take(flag) // caches are not modelled, and no order but that of barriers
	}
	if len(f.types) != 1 {
		return in, t, n, false
	}
	t = f.types[0]
	return in, t, n, t.bits >= 8 && t.bits%8 == 0 && n*t.bits <= 128
}

// loaded returns the n registers that an instruction loads, and the address.
func (c *compiler) loaded(s *statement, n int) (to []register, base int, offset uint64) {
	args := c.args(s, 2)
	to = c.registers(args[0])
	base, offset = c.address(args[1])
	if len(to) != n {
		c.fail("%s of %d registers", s.op, len(to))
	}
	return to, base, offset
}

func buildLoad(c *compiler, f *form, s *statement) action {
	in, typ, n, ok := f.accessed()
	if !ok {
		return nil
	}
	to, base, offset := c.loaded(s, n)
	size := typ.bits / 8
	d := to[0].slot
	switch {
	case n == 1 && typ.kind != 's' && size == 4:
		return func(t *thread) {
			if p := t.bytes(in, t.r[base]+offset, 4, toRead); p != nil {
				t.r[d] = uint64(binary.LittleEndian.Uint32(p))
			}
		}
	case n == 1 && typ.kind != 's' && size == 8:
		return func(t *thread) {
			if p := t.bytes(in, t.r[base]+offset, 8, toRead); p != nil {
				t.r[d] = binary.LittleEndian.Uint64(p)
			}
		}
	}
	return func(t *thread) {
		p := t.bytes(in, t.r[base]+offset, n*size, toRead)
		if p == nil {
			return
		}
		for i, r := range to {
			t.r[r.slot] = r.fit(typ.extend(get(p[i*size : (i+1)*size])))
		}
	}
}

// fit cuts bits to what a register holds.
func (r register) fit(x uint64) uint64 {
	if r.bits < 64 {
		return x & (1<<r.bits - 1)
	}
	return x
}

func buildStore(c *compiler, f *form, s *statement) action {
	in, typ, n, ok := f.accessed()
	if !ok {
		return nil
	}
	args := c.args(s, 2)
	base, offset := c.address(args[0])
	from := c.sources(args[1])
	if len(from) != n {
		c.fail("%s of %d registers", s.op, len(from))
	}
	size := typ.bits / 8
	return func(t *thread) {
		p := t.bytes(in, t.r[base]+offset, n*size, toWrite)
		if p == nil {
			return
		}
		for i, a := range from {
			put(p[i*size:(i+1)*size], t.r[a])
		}
	}
}

// buildAtomic makes atom, and red, which gives nothing back.
func buildAtomic(c *compiler, f *form, s *statement) action {
	in := f.space()
	for _, flag := range []string{"relaxed", "gpu", "sys"} {
		f.take(flag)
	}
	names := []string{"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}
	op := slices.IndexFunc(names, f.take)
	if op < 0 || names[op] == "inc" || names[op] == "dec" || len(f.types) != 1 {
		return nil
	}
	typ := f.types[0]
	if typ.bits != 32 && typ.bits != 64 || typ.kind == 't' || typ.kind == 'f' && names[op] != "add" {
		return nil
	}
	args := s.args
	d := -1
	if f.name == "atom" && len(args) > 0 {
		d = c.dst(args[0]).slot
		args = args[1:]
	}
	want := 2
	if names[op] == "cas" {
		want = 3
	}
	if len(args) != want {
		c.fail("%s has %d operands", s.op, len(s.args))
	}
	base, offset := c.address(args[0])
	a, b := c.src(args[1]), c.src(args[want-1])
	next := map[string]func(old, a, b uint64) uint64{
		"add": func(old, a, _ uint64) uint64 { return old + a },
		"min": func(old, a, _ uint64) uint64 { return lesser(typ, old, a) },
		"max": func(old, a, _ uint64) uint64 { return old ^ a ^ lesser(typ, old, a) },
		"and": func(old, a, _ uint64) uint64 { return old & a }, "or": func(old, a, _ uint64) uint64 { return old | a },
		"xor": func(old, a, _ uint64) uint64 { return old ^ a }, "exch": func(_, a, _ uint64) uint64 { return a },
		"cas": func(old, a, b uint64) uint64 {
			if old == a {
				return b
			}
			return old
		},
	}[names[op]]
	if typ.kind == 'f' {
		next = func(old, a, _ uint64) uint64 {
			if typ.bits == 32 {
				return bits32(float32of(old) + float32of(a))
			}
			return math.Float64bits(math.Float64frombits(old) + math.Float64frombits(a))
		}
	}
	mask := uint64(math.MaxUint64) >> (64 - typ.bits)
	return func(t *thread) {
		p := t.bytes(in, t.r[base]+offset, typ.bits/8, toUpdate)
		if p == nil {
			return
		}
		old := get(p)
		put(p, next(old, t.r[a]&mask, t.r[b]&mask))
		if d >= 0 {
			t.r[d] = old
		}
	}
}

// lesser returns the lesser of two values without the bits above their type.
func lesser(typ scalar, a, b uint64) uint64 {
	x, y := typ.extend(a), typ.extend(b)
	if typ.kind == 's' && int64(x) < int64(y) || typ.kind != 's' && x < y {
		return a
	}
	return b
}

// buildAddress makes cvta: a window's address from the generic one, or the other way.
func buildAddress(c *compiler, f *form, s *statement) action {
	to := f.take("to")
	in := f.space()
	if len(f.types) != 1 || f.types[0].bits != 64 {
		return nil
	}
	args := c.args(s, 2)
	d, a := c.dst(args[0]).slot, c.src(args[1])
	bases := map[space]uint64{inGlobal: 0, inShared: sharedBase, inLocal: localBase, inParameter: parameterBase}
	by, ok := bases[in]
	if !ok {
		return nil
	}
	if to {
		by = -by
	}
	return func(t *thread) { t.r[d] = t.r[a] + by }
}

// buildMove makes mov, which also packs and unpacks.
func buildMove(c *compiler, f *form, s *statement) action {
	if len(f.types) != 1 {
		return nil
	}
	args := c.args(s, 2)
	width := f.types[0].bits
	if args[0].kind != isVector && args[1].kind != isVector {
		to, a := c.dst(args[0]), c.src(args[1])
		d := to.slot
		if width >= 64 {
			return func(t *thread) { t.r[d] = t.r[a] }
		}
		mask := uint64(1)<<width - 1
		return func(t *thread) { t.r[d] = t.r[a] & mask }
	}
	to, from := c.registers(args[0]), c.sources(args[1])
	n := max(len(to), len(from))
	if min(len(to), len(from)) != 1 || n > 4 || width%n != 0 {
		c.fail("%s of %d registers to %d", s.op, len(from), len(to))
	}
	part := width / n
	mask := uint64(1)<<part - 1
	return func(t *thread) {
		var x uint64
		if len(from) == 1 {
			x = t.r[from[0]]
		} else {
			for i, a := range from {
				x |= t.r[a] & mask << (part * i)
			}
		}
		if len(to) == 1 {
			t.r[to[0].slot] = x
			return
		}
		for i, r := range to {
			t.r[r.slot] = x >> (part * i) & mask
		}
	}
}
