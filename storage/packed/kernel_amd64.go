//go:build amd64 && !noasm

package packed

import "golang.org/x/sys/cpu"

// haveKernels says that the processor has what the kernels take: AVX-512 for bytes, with VBMI2 to put exponents that
// are elsewhere to their places.
var haveKernels = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VBMI2 && cpu.X86.HasPOPCNT

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

// fast is plain with the processor's vectors.
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

// joinSingles writes groups of 64 float32 as join does; lowest and second are nil where there are no such bytes.
//
//go:noescape
func joinSingles(dst, halves, lowest, second *byte, groups int)

// fastJoin is join with the processor's vectors.
func (b *parts) fastJoin(p, halves []byte) {
	var lower [2]*byte
	for i, bytes := range b.lower {
		if bytes != nil {
			_ = bytes[b.groups*group-1]
			lower[i] = &bytes[0]
		}
	}
	_, _ = p[4*b.groups*group-1], halves[2*b.groups*group-1]
	joinSingles(&p[0], &halves[0], lower[0], lower[1], b.groups)
}
