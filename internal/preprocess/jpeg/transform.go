package jpeg

import "encoding/binary"

// A block is 64 coefficients, row after row.
type block [64]int16

// zigzag says where the coefficients of a file lie in a block.
var zigzag = [64]byte{
	0, 1, 8, 16, 9, 2, 3, 10,
	17, 24, 32, 25, 18, 11, 4, 5,
	12, 19, 26, 33, 40, 48, 41, 34,
	27, 20, 13, 6, 7, 14, 21, 28,
	35, 42, 49, 56, 57, 50, 43, 36,
	29, 22, 15, 23, 30, 37, 44, 51,
	58, 59, 52, 45, 38, 31, 39, 46,
	53, 60, 61, 54, 47, 55, 62, 63,
}

// mask has a bit for each coefficient that is not zero.
func (b *block) mask() (mask uint64) {
	for i, v := range b {
		if v != 0 {
			mask |= 1 << i
		}
	}
	return mask
}

// The transform is that of Loeffler, Ligtenberg and Moschytz (1989): 11 multiplications and 29 additions for 8 values.
// Its constants have constBits behind the point, and between columns and rows samples have extraBits.
const (
	constBits = 13
	extraBits = 2

	c0298 = 2446 // 0.298631336
	c0390 = 3196 // 0.390180644
	c0541 = 4433
	c0765 = 6270
	c0899 = 7373
	c1175 = 9633
	c1501 = 12299
	c1847 = 15137
	c1961 = 16069
	c2053 = 16819
	c2562 = 20995
	c3072 = 25172
)

// eight transforms values in one direction; they come back with constBits more behind the point. Sums that libjpeg-turbo's
// vector code takes in 16 bits wrap here too, which damaged pictures show.
func eight(v0, v1, v2, v3, v4, v5, v6, v7 int16) (o0, o1, o2, o3, o4, o5, o6, o7 int32) {
	// Even values: a rotation and two sums.
	a, b := int32(v2), int32(v6)
	turned := (a + b) * c0541
	low, high := turned-b*c1847, turned+a*c0765
	sum, difference := int32(v0+v4)<<constBits, int32(v0-v4)<<constBits
	e0, e3 := sum+high, sum-high
	e1, e2 := difference+low, difference-low

	// Odd values.
	s73, s51 := int32(v7+v3), int32(v5+v1)
	both := (s73 + s51) * c1175
	s73, s51 = both-s73*c1961, both-s51*c0390
	i1, i3, i5, i7 := int32(v1), int32(v3), int32(v5), int32(v7)
	s71, s53 := (i7+i1)*c0899, (i5+i3)*c2562
	d0 := i1*c1501 - s71 + s51
	d1 := i3*c3072 - s53 + s73
	d2 := i5*c2053 - s53 + s51
	d3 := i7*c0298 - s71 + s73

	return e0 + d0, e1 + d1, e2 + d2, e3 + d3, e3 - d3, e2 - d2, e1 - d1, e0 - d0
}

// column rounds what columns give.
func column(v int32) int16 {
	v = (v + 1<<(constBits-extraBits-1)) >> (constBits - extraBits)
	return int16(min(max(v, -1<<15), 1<<15-1))
}

// rowBits is how much rows have behind the point: the transform's factor of 8 is part of it.
const rowBits = constBits + extraBits + 3

// level rounds what rows give to a sample.
func level(v int32) byte {
	v = (v+1<<(rowBits-1))>>rowBits + 128
	if uint32(v) > 255 {
		v = ^(v >> 31) // all ones, or none
	}
	return byte(v)
}

// transform makes samples of a block. The mask tells which coefficients are not zero.
func transform(b *block, mask uint64, quant *[64]uint16, dst []byte, stride int) {
	var work block
	if mask>>8 == 0 {
		// Only the first row: all rows become the same.
		for x := range 8 {
			work[x] = b[x] * int16(quant[x]) << extraBits
		}
		row(work[:8], dst)
		for y := range 7 {
			copy(dst[(y+1)*stride:][:8], dst[:8])
		}
		return
	}
	for x := range 8 {
		v0 := b[x] * int16(quant[x])
		if mask>>x&0x0101010101010100 == 0 {
			v := column(int32(v0) << constBits)
			for y := range 8 {
				work[8*y+x] = v
			}
			continue
		}
		in, q, out := b[x:x+57], quant[x:x+57], work[x:x+57]
		o0, o1, o2, o3, o4, o5, o6, o7 := eight(v0, in[8]*int16(q[8]), in[16]*int16(q[16]), in[24]*int16(q[24]),
			in[32]*int16(q[32]), in[40]*int16(q[40]), in[48]*int16(q[48]), in[56]*int16(q[56]))
		out[0], out[8], out[16], out[24] = column(o0), column(o1), column(o2), column(o3)
		out[32], out[40], out[48], out[56] = column(o4), column(o5), column(o6), column(o7)
	}
	for y := range 8 {
		row(work[8*y:8*y+8], dst[y*stride:])
	}
}

// row makes eight samples.
func row(in []int16, dst []byte) {
	in, dst = in[:8], dst[:8]
	if in[1]|in[2]|in[3]|in[4]|in[5]|in[6]|in[7] == 0 {
		l := level(int32(in[0]) << constBits)
		binary.NativeEndian.PutUint64(dst, uint64(l)*0x0101010101010101)
		return
	}
	o0, o1, o2, o3, o4, o5, o6, o7 := eight(in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7])
	dst[0], dst[1], dst[2], dst[3] = level(o0), level(o1), level(o2), level(o3)
	dst[4], dst[5], dst[6], dst[7] = level(o4), level(o5), level(o6), level(o7)
}
