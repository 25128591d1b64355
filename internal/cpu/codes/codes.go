// Package codes makes codes of 8 bits with scales of what products of integers are of: a weight's blocks, of the
// encodings whose codes are integers, and inputs; and multiplies rows of inputs by them.
//
// It knows what blocks mean, and how numbers are rounded. It does not know threads, nor where an op's operands lie.
//
//	expand := codes.Of("Q4_K") // nil for an encoding without integers
//	expand(set, line, &weight)
//	codes.Round(set, inputs, &x)
package codes

import (
	"encoding/binary"
	"math"
	"strings"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// An Expansion writes the codes of a line's blocks, n bytes each, one after the other, as codes with signs of 32
// numbers each with their scale and their minimum:
//
//	number ≈ scale · code + minimum
//
// That is the encoding's number but for roundings of the last bits.
type Expansion func(set *simd.Set, line []byte, to *simd.Codes)

// expansions has the encodings whose codes are integers, with a scale for each 32 or more.
var expansions = makeExpansions()

func makeExpansions() map[string]Expansion {
	all := map[string]Expansion{
		"Q4_0":   expandQ40,
		"Q4_1":   expandQ41,
		"Q8_0":   expandQ80,
		"Q4_K":   expandQ4K,
		"IQ4_NL": func(set *simd.Set, line []byte, to *simd.Codes) { expandTable(set, line, to, 2, &codesIQ4, halfAt) },
		"MXFP4": func(set *simd.Set, line []byte, to *simd.Codes) {
			expandTable(set, line, to, 1, &codesMXFP4, halfPowerAt)
		},
	}
	for _, e := range encoded.Own() {
		kind, rest, _ := strings.Cut(e.Name, "/")
		_, name, _ := strings.Cut(rest, " ")
		dtype, ok := tensor.ParseDType(name)
		if !ok {
			continue
		}
		o := ownBlocks{n: int(e.Elements), size: int(e.Bytes), dtype: dtype}
		switch kind {
		case "INT4":
			all[e.Name] = o.int4
		case "INT8":
			all[e.Name] = o.int8
		case "SINT8":
			all[e.Name] = o.signed8
		case "LLMINT8":
			all[e.Name] = o.of127
		}
	}
	return all
}

// Of returns the expansion of an encoding's blocks, nil where it has none.
func Of(encoding string) Expansion { return expansions[encoding] }

// Minima reports whether blocks of an encoding may have minima other than nothing.
func Minima(encoding string) bool {
	switch kind, _, _ := strings.Cut(encoding, "/"); kind {
	case "Q4_0", "Q8_0", "IQ4_NL", "MXFP4", "SINT8", "LLMINT8":
		return false
	}
	return true
}

// Round rounds numbers to codes from −127 to 127, halves to even ones, with a scale for each 32, and the codes' sum
// times the scale. Where one of 32 is no finite number, the scale is none.
func Round(set *simd.Set, x []float32, to *simd.Codes) {
	if set.RoundCodes(x, to) {
		return
	}
	for b := range to.Scales {
		x, codes := x[b*simd.CodeBlock:][:simd.CodeBlock], to.Codes[b*simd.CodeBlock:][:simd.CodeBlock]
		most, bad := float32(0), false
		for _, v := range x {
			most = max(most, v, -v)
			bad = bad || v-v != 0
		}
		scale := most / 127
		inverse := 1 / scale
		if bad {
			scale = float32(math.NaN())
		}
		if bad || inverse > math.MaxFloat32 { // below the least normal numbers they are nothing
			clear(codes)
			to.Scales[b], to.Extra[b] = scale, scale
			if !bad {
				to.Scales[b], to.Extra[b] = 0, 0
			}
			continue
		}
		sum := int32(0)
		for i, v := range x {
			const magic = 3 << 22
			c := int32(float32(float32(v*inverse)+magic) - magic)
			codes[i] = int8(min(max(c, -127), 127))
			sum += int32(codes[i])
		}
		to.Scales[b], to.Extra[b] = scale, scale*float32(sum)
	}
}

// Numbers of codes of half a byte.
var (
	codesOwn   = [16]int8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	codesLess8 = [16]int8{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}
	codesIQ4   = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	codesMXFP4 = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12} // twice their numbers
)

func halfAt(b []byte) float32 {
	const without, infinite, shift = 0x7fff, 0x7c00, 13
	h := binary.LittleEndian.Uint16(b)
	if h&infinite == infinite {
		return tensor.Float16ToFloat32(h)
	}
	// Of the same digits, and an exponent that begins 112 lower, also of denormal ones.
	f := math.Float32frombits(uint32(h&without)<<shift) * 0x1p112
	return math.Float32frombits(math.Float32bits(f) | uint32(h&^without)<<16)
}

// halfPowerAt is half of the power of two that a byte stands for.
func halfPowerAt(b []byte) float32 { return float32(math.Ldexp(1, int(b[0])-128)) }

// expandTable is for blocks of a scale, head bytes, and 16 bytes of codes.
func expandTable(set *simd.Set, line []byte, to *simd.Codes, head int, table *[16]int8, scale func([]byte) float32) {
	size := head + 16
	for b := range len(line) / size {
		to.Scales[b], to.Extra[b] = scale(line[b*size:]), 0
	}
	set.Nibbles(len(line)/size, 1, line[head:], size, table, to.Codes)
}

func expandQ40(set *simd.Set, line []byte, to *simd.Codes) {
	expandTable(set, line, to, 2, &codesLess8, halfAt)
}

func expandQ41(set *simd.Set, line []byte, to *simd.Codes) {
	const size = 20
	for b := range len(line) / size {
		to.Scales[b], to.Extra[b] = halfAt(line[b*size:]), halfAt(line[b*size+2:])
	}
	set.Nibbles(len(line)/size, 1, line[4:], size, &codesOwn, to.Codes)
}

func expandQ80(_ *simd.Set, line []byte, to *simd.Codes) {
	const size, head = 34, 2
	signed := ops.Elements[int8](ops.View{Data: line})
	for b := range len(line) / size {
		to.Scales[b], to.Extra[b] = halfAt(line[b*size:]), 0
		*(*[simd.CodeBlock]int8)(to.Codes[b*simd.CodeBlock:]) = [simd.CodeBlock]int8(signed[b*size+head:])
	}
}

// copyCodes copies codes of bytes with some of their bits turned. It takes multiples of 8.
func copyCodes(to []int8, from []byte, turned uint64) {
	for i := 0; i+8 <= len(to); i += 8 {
		x := binary.LittleEndian.Uint64(from[i:]) ^ turned
		t := to[i : i+8 : i+8]
		t[0], t[1], t[2], t[3] = int8(x), int8(x>>8), int8(x>>16), int8(x>>24)
		t[4], t[5], t[6], t[7] = int8(x>>32), int8(x>>40), int8(x>>48), int8(x>>56)
	}
}

func expandQ4K(set *simd.Set, line []byte, to *simd.Codes) {
	const size, groups = 144, 8
	for b := range len(line) / size {
		block := line[b*size:][:size]
		d, least, q := halfAt(block), halfAt(block[2:]), block[4:16]
		for g := range groups {
			scale, minimum := q[g%4]&63, q[g%4+4]&63
			if g >= 4 {
				scale, minimum = q[g+4]&15|q[g-4]>>6<<4, q[g+4]>>4|q[g]>>6<<4
			}
			to.Scales[b*groups+g], to.Extra[b*groups+g] = d*float32(scale), -least*float32(minimum)
		}
		set.Nibbles(4, 2, block[16:], 32, &codesOwn, to.Codes[b*groups*simd.CodeBlock:])
	}
}

// ownBlocks are blocks of an own make: n numbers, rounded to a dtype.
type ownBlocks struct {
	n, size int
	dtype   tensor.DType
}

// scale reads a block's scale.
func (o *ownBlocks) scale(b []byte, dtype tensor.DType) float32 {
	switch dtype {
	case tensor.Float16:
		return halfAt(b)
	case tensor.BFloat16:
		return tensor.BFloat16ToFloat32(binary.LittleEndian.Uint16(b))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}

// fill gives all blocks of 32 of one block its scale and minimum.
func (o *ownBlocks) fill(to *simd.Codes, block int, scale, minimum float32) {
	each := o.n / simd.CodeBlock
	for i := block * each; i < (block+1)*each; i++ {
		to.Scales[i], to.Extra[i] = scale, minimum
	}
}

// int4 is for a scale, the code that stands for nothing, and codes of half a byte.
func (o *ownBlocks) int4(set *simd.Set, line []byte, to *simd.Codes) {
	head := o.dtype.Size() + 1
	for b := range len(line) / o.size {
		block := line[b*o.size:]
		s := o.scale(block, o.dtype)
		o.fill(to, b, s, s*float32(8-int(block[head-1])))
	}
	set.Nibbles(len(line)/o.size, o.n/32, line[head:], o.size, &codesLess8, to.Codes)
}

// int8 is int4 for codes of a byte.
func (o *ownBlocks) int8(_ *simd.Set, line []byte, to *simd.Codes) {
	head := o.dtype.Size() + 1
	for b := range len(line) / o.size {
		block := line[b*o.size:]
		s := o.scale(block, o.dtype)
		o.fill(to, b, s, s*float32(128-int(block[head-1])))
		copyCodes(to.Codes[b*o.n:][:o.n], block[head:], 0x8080808080808080)
	}
}

// signed8 is for a scale of float32 and codes with a sign.
func (o *ownBlocks) signed8(_ *simd.Set, line []byte, to *simd.Codes) { o.signed(line, to, 1) }

// of127 is signed8 for scales that are what 127 stands for.
func (o *ownBlocks) of127(_ *simd.Set, line []byte, to *simd.Codes) { o.signed(line, to, 1./127) }

func (o *ownBlocks) signed(line []byte, to *simd.Codes, factor float32) {
	const head = 4
	for b := range len(line) / o.size {
		block := line[b*o.size:]
		o.fill(to, b, o.scale(block, tensor.Float32)*factor, 0)
		copy(to.Codes[b*o.n:][:o.n], ops.Elements[int8](ops.View{Data: block[head:o.size]}))
	}
}
