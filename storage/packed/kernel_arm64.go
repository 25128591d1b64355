//go:build !noasm

package packed

// level is the best way to decode that the processor has: all of arm64 have NEON.
var level = withVectors

// nameBFloat16 writes groups of 64 words as plain does, with vectors of NEON. upper and lower have for each code the
// bits of its exponent that are in a word's upper and in its lower byte.
//
//go:noescape
func nameBFloat16(dst, planes, low *byte, groups, codeBits int, upper, lower *[dictionary]byte)

// nameFloat16 is nameBFloat16 for float16, of whose exponents nothing is in the lower byte.
//
//go:noescape
func nameFloat16(dst, planes, low *byte, groups, codeBits int, upper *[dictionary]byte)

// joinSingles writes groups of 64 float32 as join does; lowest and second are nil where there are no such bytes.
//
//go:noescape
func joinSingles(dst, halves, lowest, second *byte, groups int)

func (b *parts) fast(p []byte) (used int, ok bool) {
	b.named(p)
	return b.placeEscapes(p)
}

// fastJoin is join with the processor's vectors.
func (b *parts) fastJoin(p, halves []byte) {
	lower := b.lowerBytes(p, halves)
	joinSingles(&p[0], &halves[0], lower[0], lower[1], b.groups)
}
