package packed

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// A counting is what a block has as numbers of one kind.
type counting struct {
	method  int
	numbers int
	count   [256]int
	// lower says which of the lower bytes of float32 are not all zero.
	lower [2]bool
}

// exponent returns the exponent of a word as the dictionary has it.
func exponent(method int, word uint16) byte {
	if method == kindF16 {
		return byte(word >> 8 & 0x7C)
	}
	return byte(word >> 7)
}

// width is how many bytes a number has.
func width(method int) int {
	if method == kindF32 {
		return 4
	}
	return 2
}

// upper is where the upper halves of numbers begin in the bytes of one.
func upper(method int) int { return width(method) - 2 }

// countAll looks at whole bytes as numbers of each kind.
func countAll(whole []byte) [methods]counting {
	var all [methods]counting
	for m := range all {
		all[m].method = m
		if m != asIs {
			all[m].numbers = len(whole) / width(m)
		}
	}
	half, single := &all[kindF16], &all[kindF32]
	var lower [2]byte
	for i := 0; i < len(whole); i += 4 {
		a, b := binary.LittleEndian.Uint16(whole[i:]), binary.LittleEndian.Uint16(whole[i+2:])
		all[kindBF16].count[byte(a>>7)]++
		single.count[byte(b>>7)]++
		half.count[a>>8&0x7C]++
		half.count[b>>8&0x7C]++
		lower[0] |= byte(a)
		lower[1] |= byte(a >> 8)
	}
	for e, n := range single.count {
		all[kindBF16].count[e] += n
	}
	single.lower = [2]bool{lower[0] != 0, lower[1] != 0}
	return all
}

// A choice is how long codes are, and what they stand for.
type choice struct {
	bits       int
	dictionary [dictionary]byte
	// codes has the code of each exponent; elsewhere is how many numbers have one without.
	codes     [256]byte
	elsewhere int
	// bytes is what the block takes, but for its tail.
	bytes int
}

// choose returns the codes that take the least.
func (c *counting) choose() choice {
	var room [256]int
	order := room[:0]
	for e, n := range c.count {
		if n > 0 {
			order = append(order, e)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.count[b], c.count[a]) })
	var best choice
	for bits := range mostBits + 1 {
		if bits == 0 && len(order) > 1 {
			continue
		}
		named := 1 << bits
		if len(order) > named {
			named--
		}
		elsewhere := 0
		for _, e := range order[min(named, len(order)):] {
			elsewhere += c.count[e]
		}
		words := bits
		if c.method == kindF16 {
			words += 3
		}
		bytes := blockHead + c.numbers*words/8 + c.numbers + elsewhere
		for _, there := range c.lower {
			if there {
				bytes += c.numbers
			}
		}
		if best.bytes != 0 && best.bytes <= bytes {
			continue
		}
		best = choice{bits: bits, elsewhere: elsewhere, bytes: bytes}
		for e := range best.codes {
			best.codes[e] = byte(1<<bits - 1)
		}
		for k, e := range order[:min(named, len(order))] {
			best.dictionary[k], best.codes[e] = byte(e), byte(k)
		}
	}
	return best
}

// least is the share of a block that must be gained for it to be written as numbers: decoding costs time.
const least = 1.0 / 32

// encode appends a block for p to stored, and returns it with the way it is written.
func encode(stored, p []byte) ([]byte, int) {
	whole := p[:len(p)&^(wholeBytes-1)]
	tail := p[len(whole):]
	method, pick := asIs, choice{}
	if len(whole) > 0 {
		all := countAll(whole)
		limit := len(p) - int(float64(len(p))*least)
		for m := kindBF16; m < methods; m++ {
			if c := all[m].choose(); c.bytes+len(tail) < limit {
				method, pick, limit = m, c, c.bytes+len(tail)
			}
		}
		if method != asIs {
			return append(pick.write(stored, whole, &all[method]), tail...), method
		}
	}
	stored = append(stored, asIs)
	n := len(stored)
	stored = append(stored, p...)
	turnOver(stored[n:], p)
	return stored, asIs
}

// write appends the block of whole groups.
func (pick *choice) write(stored, whole []byte, c *counting) []byte {
	flags := byte(0)
	for i, there := range c.lower {
		if there {
			flags |= 1 << i
		}
	}
	stored = append(stored, byte(c.method), byte(pick.bits), flags, 0)
	stored = binary.LittleEndian.AppendUint32(stored, uint32(pick.elsewhere))
	stored = append(stored, pick.dictionary[:]...)
	size, at := width(c.method), upper(c.method)
	stored = slices.Grow(stored, pick.bytes)
	begin, perGroup := len(stored), pick.bits
	if c.method == kindF16 {
		perGroup += 3
	}
	groups := c.numbers / group
	stored = stored[:len(stored)+groups*(perGroup*8+group)]
	planes, low := stored[begin:][:groups*perGroup*8], stored[begin+groups*perGroup*8:]
	last := byte(1<<pick.bits - 1)
	var codes, more [group]byte
	for g := range groups {
		for i := range group {
			w := binary.LittleEndian.Uint16(whole[(g*group+i)*size+at:])
			e := exponent(c.method, w)
			codes[i], more[i] = pick.codes[e], byte(w>>8)
			if pick.elsewhere > 0 && codes[i] == last {
				stored = append(stored, e)
			}
			if c.method == kindF16 {
				low[g*group+i] = byte(w)
			} else {
				low[g*group+i] = byte(w>>8&0x80 | w&0x7F)
			}
		}
		for k := range perGroup {
			plane := planes[(g*perGroup+k)*8:][:8]
			switch k - pick.bits {
			case 0:
				gatherBits(plane, &more, 7)
			case 1:
				gatherBits(plane, &more, 1)
			case 2:
				gatherBits(plane, &more, 0)
			default:
				gatherBits(plane, &codes, k)
			}
		}
	}
	for i, there := range c.lower {
		for k := i; there && k < len(whole); k += 4 {
			stored = append(stored, whole[k])
		}
	}
	return stored
}

// gatherBits writes a bit of each byte of a group.
func gatherBits(plane []byte, from *[group]byte, bit int) {
	const lowest, gathered = 0x0101010101010101, 0x0102040810204080
	for i := range plane[:group/8] {
		plane[i] = byte(binary.LittleEndian.Uint64(from[8*i:]) >> bit & lowest * gathered >> 56)
	}
}
