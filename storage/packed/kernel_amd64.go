//go:build amd64 && !noasm

package packed

import "golang.org/x/sys/cpu"

// level is the best way to decode that the processor has.
var level = func() int {
	x := &cpu.X86
	switch {
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512VBMI2 && x.HasPOPCNT:
		return withExpand
	case x.HasAVX2:
		return withVectors
	}
	return inGo
}()

// unpackBFloat16 writes groups of 64 words as plain does, and returns how many of the n exponents at escapes it used,
// less than 0 where there were too few. dictionary has 16 bytes; what the pointers lead to is as long as groups and
// codeBits say.
//
//go:noescape
func unpackBFloat16(dst, planes, low *byte, groups, codeBits int, dictionary, escapes *byte, n int) (used int)

// unpackFloat16 is unpackBFloat16 for float16.
//
//go:noescape
func unpackFloat16(dst, planes, low *byte, groups, codeBits int, dictionary, escapes *byte, n int) (used int)

// fast is plain and placeEscapes with vectors of AVX-512.
func (b *parts) fast(p []byte) (used int, ok bool) {
	var planes, escapes *byte
	if len(b.planes) > 0 {
		planes = &b.planes[0]
	}
	if len(b.escapes) > 0 {
		escapes = &b.escapes[0]
	}
	_, _ = b.low[b.groups*group-1], p[2*b.groups*group-1]
	unpack := unpackBFloat16
	if b.method == kindF16 {
		unpack = unpackFloat16
	}
	used = unpack(&p[0], planes, &b.low[0], b.groups, b.bits, &b.dictionary[0], escapes, len(b.escapes))
	return used, used >= 0
}

// nameBFloat16 writes groups of 64 words as plain does, with vectors of AVX2. upper and lower have for each code the
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

// joinSingles256 is joinSingles with vectors of AVX2.
//
//go:noescape
func joinSingles256(dst, halves, lowest, second *byte, groups int)

// fastJoin is join with the processor's vectors.
func (b *parts) fastJoin(p, halves []byte) {
	lower := b.lowerBytes(p, halves)
	if level == withExpand {
		joinSingles(&p[0], &halves[0], lower[0], lower[1], b.groups)
		return
	}
	joinSingles256(&p[0], &halves[0], lower[0], lower[1], b.groups)
}
