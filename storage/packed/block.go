package packed

import (
	"encoding/binary"
	"math/bits"
)

// How a block is written: its first byte.
const (
	// asIs has the bytes as they are, each turned over, so that what other formats end in is not found at the end of a
	// file.
	asIs = iota
	// kindBF16 has words of sign, 8 bits of exponent and 7 of fraction; kindF16 those of sign, 5 and 10; kindF32 has
	// what kindBF16 has of the upper halves of numbers, and their lower bytes where they are not all zero.
	kindBF16
	kindF16
	kindF32
	methods
)

// A block of numbers is:
//
//	 0  method
//	 1  how many bits a code has, 0 to 4
//	 2  of float32: which of the two lower bytes of numbers there are, bit 0 the lowest
//	 3  0
//	 4  uint32: how many exponents are written elsewhere; where there are some, the code whose bits are all set says so
//	 8  16 exponents that codes stand for; of float16 they are shifted to where they are in the upper byte
//	24  planes of bits: for each 64 numbers a word for each bit of their codes, the lowest first, then for float16 the signs and
//	    the two upper bits of the fractions
//	    a byte for each number: sign and fraction of bfloat16, the lower byte of float16
//	    exponents that are written elsewhere, in order
//	    of float32: the lower bytes, those of all numbers together
//	    what is left of a block of which the length is no multiple of 256, as it is
const (
	blockHead  = 24
	dictionary = 16
	group      = 64
	// wholeBytes is what the numbers of a block are a multiple of: whole groups of every kind.
	wholeBytes = 256
	mostBits   = 4
)

// parts are those of a block of numbers.
type parts struct {
	method, bits int
	dictionary   *[dictionary]byte
	groups       int
	planes, low  []byte
	escapes      []byte
	lower        [2][]byte
	tail         []byte
}

// planeWords is how many words each group has.
func (b *parts) planeWords() int {
	if b.method == kindF16 {
		return b.bits + 3
	}
	return b.bits
}

// split returns the parts of a block that stands for n bytes.
func split(stored []byte, n int) (b parts, err error) {
	if len(stored) < blockHead {
		return b, corrupt("%d bytes are too few for a block of numbers", len(stored))
	}
	b.method, b.bits = int(stored[0]), int(stored[1])
	escapes := binary.LittleEndian.Uint32(stored[4:])
	switch {
	case b.method >= methods:
		return b, corrupt("it is written in a way %d that is not known", b.method)
	case b.bits > mostBits || stored[2] > 3 || stored[2] != 0 && b.method != kindF32 || stored[3] != 0:
		return b, corrupt("a head of % x", stored[:4])
	case int64(escapes) > int64(len(stored)) || escapes > 0 && b.bits == 0:
		return b, corrupt("%d exponents are elsewhere", escapes)
	}
	whole := n &^ (wholeBytes - 1)
	b.groups = whole / 2 / group
	if b.method == kindF32 {
		b.groups = whole / 4 / group
	}
	b.dictionary = (*[dictionary]byte)(stored[8:])
	rest := stored[blockHead:]
	take := func(size int) (part []byte) {
		if size > len(rest) {
			size, err = len(rest), corrupt("a block of %d bytes ends too early", len(stored))
		}
		part, rest = rest[:size], rest[size:]
		return part
	}
	b.planes = take(b.groups * b.planeWords() * 8)
	b.low = take(b.groups * group)
	b.escapes = take(int(escapes))
	for i := range b.lower {
		if stored[2]>>i&1 != 0 {
			b.lower[i] = take(b.groups * group)
		}
	}
	b.tail = take(n - whole)
	if b.method == kindF16 && err == nil && !onlyExponents(b.dictionary[:], b.escapes) {
		err = corrupt("exponents with other bits")
	}
	if len(rest) > 0 && err == nil {
		err = corrupt("%d bytes behind the end of a block", len(rest))
	}
	return b, err
}

// onlyExponents reports whether exponents of float16 have no bit that is not theirs.
func onlyExponents(lists ...[]byte) bool {
	var all uint64
	for _, list := range lists {
		for ; len(list) >= 8; list = list[8:] {
			all |= binary.LittleEndian.Uint64(list)
		}
		for _, e := range list {
			all |= uint64(e)
		}
	}
	return all&^0x7C7C7C7C7C7C7C7C == 0
}

// decode fills p with what a block stands for. halves has room for half of it.
func decode(p, stored, halves []byte) error {
	if stored[0] == asIs {
		if len(stored)-1 != len(p) {
			return corrupt("%d bytes as they are, for %d", len(stored)-1, len(p))
		}
		turnOver(p, stored[1:])
		return nil
	}
	b, err := split(stored, len(p))
	if err != nil {
		return err
	}
	copy(p[len(p)-len(b.tail):], b.tail)
	p = p[:len(p)-len(b.tail)]
	if b.groups == 0 {
		if len(b.escapes) > 0 {
			return corrupt("%d exponents of no numbers", len(b.escapes))
		}
		return nil
	}
	if b.method != kindF32 {
		return b.words(p)
	}
	halves = halves[:len(p)/2]
	if err := b.words(halves); err != nil {
		return err
	}
	if level == inGo {
		b.join(p, halves)
	} else {
		b.fastJoin(p, halves)
	}
	return nil
}

// turnOver writes bytes with all their bits turned over.
func turnOver(p, from []byte) {
	for ; len(from) >= 8; p, from = p[8:], from[8:] {
		binary.LittleEndian.PutUint64(p, ^binary.LittleEndian.Uint64(from))
	}
	for i, c := range from {
		p[i] = ^c
	}
}

// words fills p with words of 16 bits.
func (b *parts) words(p []byte) error {
	used, ok := 0, false
	switch level {
	case withExpand:
		used, ok = b.fast(p)
	case withVectors:
		b.named(p)
		used, ok = b.placeEscapes(p)
	default:
		b.plain(p)
		used, ok = b.placeEscapes(p)
	}
	if !ok || used != len(b.escapes) {
		return corrupt("the codes do not name the %d exponents that are elsewhere", len(b.escapes))
	}
	return nil
}

// spread has bit i of its index in byte i.
var spread = func() (t [256]uint64) {
	for v := range t {
		for i := range 8 {
			t[v] |= uint64(v>>i&1) << (8 * i)
		}
	}
	return t
}()

// shift is where the exponents begin that the dictionary has, in a word.
func (b *parts) shift() int {
	if b.method == kindF16 {
		return 8
	}
	return 7
}

// plain fills p in plain Go, with the exponent of the last code where one is elsewhere.
func (b *parts) plain(p []byte) {
	shift := b.shift()
	var pairs [256]uint32 // what two codes, of 4 bits each, stand for
	for i := range pairs {
		pairs[i] = uint32(b.dictionary[i&15])<<shift | uint32(b.dictionary[i>>4])<<(16+shift)
	}
	step := b.planeWords() * 8
	for g := range b.groups {
		planes, low := b.planes[g*step:][:step], (*[group]byte)(b.low[g*group:])
		out := (*[2 * group]byte)(p[2*g*group:])
		if b.method == kindF16 {
			plainF16(out, planes, low, &pairs, b.bits)
		} else {
			plainBF16(out, planes, low, &pairs, b.bits)
		}
	}
}

// placeEscapes puts exponents that are elsewhere to their places, instead of that of the last code, which is there. It
// returns how many it used; false where there were too few.
func (b *parts) placeEscapes(p []byte) (used int, ok bool) {
	if len(b.escapes) == 0 {
		return 0, true
	}
	shift, step, last := b.shift(), b.planeWords()*8, b.dictionary[1<<b.bits-1]
	for g := range b.groups {
		elsewhere := ^uint64(0)
		for k := range b.bits {
			elsewhere &= binary.LittleEndian.Uint64(b.planes[g*step+8*k:])
		}
		for ; elsewhere != 0; elsewhere &= elsewhere - 1 {
			if used == len(b.escapes) {
				return used, false
			}
			word := p[2*(g*group+bits.TrailingZeros64(elsewhere)):][:2]
			e := uint16(b.escapes[used]^last) << shift
			binary.LittleEndian.PutUint16(word, binary.LittleEndian.Uint16(word)^e)
			used++
		}
	}
	return used, true
}

// codesOf returns the codes of eight numbers, of two in every second byte.
func codesOf(planes []byte, codeBits, i int) uint64 {
	var codes uint64
	switch codeBits {
	case 4:
		codes = spread[planes[i]] | spread[planes[8+i]]<<1 | spread[planes[16+i]]<<2 | spread[planes[24+i]]<<3
	case 3:
		codes = spread[planes[i]] | spread[planes[8+i]]<<1 | spread[planes[16+i]]<<2
	case 2:
		codes = spread[planes[i]] | spread[planes[8+i]]<<1
	case 1:
		codes = spread[planes[i]]
	}
	return codes | codes>>4
}

// apart gives four bytes two bytes each.
func apart(bytes uint32) uint64 {
	x := uint64(bytes)
	x = (x | x<<16) & 0x0000FFFF0000FFFF
	return (x | x<<8) & 0x00FF00FF00FF00FF
}

func plainBF16(out *[2 * group]byte, planes []byte, low *[group]byte, pairs *[256]uint32, codeBits int) {
	const fraction, sign = 0x007F007F007F007F, 0x0080008000800080
	for i := range group / 8 {
		codes := codesOf(planes, codeBits, i)
		a, b := apart(binary.LittleEndian.Uint32(low[8*i:])), apart(binary.LittleEndian.Uint32(low[8*i+4:]))
		a = a&fraction | a&sign<<8 | uint64(pairs[codes&0xFF]) | uint64(pairs[codes>>16&0xFF])<<32
		b = b&fraction | b&sign<<8 | uint64(pairs[codes>>32&0xFF]) | uint64(pairs[codes>>48&0xFF])<<32
		binary.LittleEndian.PutUint64(out[16*i:], a)
		binary.LittleEndian.PutUint64(out[16*i+8:], b)
	}
}

func plainF16(out *[2 * group]byte, planes []byte, low *[group]byte, pairs *[256]uint32, codeBits int) {
	more := (*[24]byte)(planes[8*codeBits:])
	for i := range group / 8 {
		codes := codesOf(planes, codeBits, i)
		rest := spread[more[i]]<<7 | spread[more[8+i]]<<1 | spread[more[16+i]]
		a, b := apart(binary.LittleEndian.Uint32(low[8*i:])), apart(binary.LittleEndian.Uint32(low[8*i+4:]))
		a |= apart(uint32(rest))<<8 | uint64(pairs[codes&0xFF]) | uint64(pairs[codes>>16&0xFF])<<32
		b |= apart(uint32(rest>>32))<<8 | uint64(pairs[codes>>32&0xFF]) | uint64(pairs[codes>>48&0xFF])<<32
		binary.LittleEndian.PutUint64(out[16*i:], a)
		binary.LittleEndian.PutUint64(out[16*i+8:], b)
	}
}

// join puts upper halves and lower bytes together, in plain Go.
func (b *parts) join(p, halves []byte) {
	for g := range b.groups {
		from, to := (*[2 * group]byte)(halves[2*g*group:]), (*[4 * group]byte)(p[4*g*group:])
		for i := range group / 4 {
			h := binary.LittleEndian.Uint64(from[8*i:])
			binary.LittleEndian.PutUint64(to[16*i:], h&0xFFFF<<16|h&0xFFFF0000<<32)
			binary.LittleEndian.PutUint64(to[16*i+8:], h>>16&0xFFFF0000|h>>48<<48)
		}
		for k, lower := range b.lower {
			if lower == nil {
				continue
			}
			one := (*[group]byte)(lower[g*group:])
			for i := range group / 4 {
				x := apart(binary.LittleEndian.Uint32(one[4*i:])) << (8 * k)
				low, high := x&0xFFFFFFFF, x>>32
				low, high = (low|low<<16)&0x0000FFFF0000FFFF, (high|high<<16)&0x0000FFFF0000FFFF
				binary.LittleEndian.PutUint64(to[16*i:], binary.LittleEndian.Uint64(to[16*i:])|low)
				binary.LittleEndian.PutUint64(to[16*i+8:], binary.LittleEndian.Uint64(to[16*i+8:])|high)
			}
		}
	}
}
