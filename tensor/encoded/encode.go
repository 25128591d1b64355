package encoded

import (
	"encoding/binary"
	"math"

	"github.com/optimem/optimem/tensor"
)

// encoders make blocks of numbers, by ggml's number of the encoding.
var encoders = map[uint32]func(b []byte, from []float32){
	2: encodeQ40, 3: encodeQ41, 6: encodeQ50, 8: encodeQ80, 12: encodeQ4K, 14: encodeQ6K,
}

// Encodes reports whether blocks can be made: of Q4_0, Q4_1, Q5_0, Q8_0, Q4_K and Q6_K.
func (e *Encoding) Encodes() bool { return encoders[e.ID] != nil && e.ID > 0 }

// Encode makes blocks of finite numbers, with the bits that ggml's reference computes without a matrix of importance
// and without fused multiply-adds. It returns how many of the numbers come before a block whose scale no float16
// holds: len(from) where there is none.
func (e *Encoding) Encode(blocks []byte, from []float32) (n int) {
	encode := encoders[e.ID]
	for ; n < len(from); n += int(e.Elements) {
		if far := abs(farthest(from[n:][:e.Elements])); far > beyond {
			return n
		}
		b := blocks[int64(n)/e.Elements*e.Bytes:][:e.Bytes]
		clear(b)
		encode(b, from[n:][:e.Elements])
		for _, at := range scalesAt[e.ID] {
			if binary.LittleEndian.Uint16(b[at:])&0x7C00 == 0x7C00 {
				return n
			}
		}
	}
	return n
}

// beyond is more than any scale of float16 has room for, and little enough for sums of cubes.
const beyond = 1e11

// scalesAt is where blocks have numbers of float16.
var scalesAt = map[uint32][]int{2: {0}, 3: {0, 2}, 6: {0}, 8: {0}, 12: {0, 2}, 14: {208}}

// putHalf writes a float16 and returns the number that it is.
func putHalf(b []byte, x float32) float32 {
	bits := tensor.Float16FromFloat32(x)
	binary.LittleEndian.PutUint16(b, bits)
	return tensor.Float16ToFloat32(bits)
}

// inverse is 1 ÷ x, 0 where that is no number: what is divided by x then is nothing beside what a float16 holds.
func inverse(x float32) float32 {
	if x == 0 || math.IsInf(float64(1/x), 0) {
		return 0
	}
	return 1 / x
}

// nearest rounds to an integer, halves to even ones, within bounds.
func nearest(x float32, least, most int) int {
	const far = 1 << 22
	if x != x { // of numbers that are next to nothing
		return min(max(0, least), most)
	}
	return min(max(int(math.RoundToEven(float64(min(max(x, -far), far)))), least), most)
}

// farthest is the number that is farthest from 0, the first of several.
func farthest(from []float32) (far float32) {
	for _, x := range from {
		if abs(x) > abs(far) {
			far = x
		}
	}
	return far
}

func abs(x float32) float32 { return max(x, -x) }

// trunc is the code of a number that was shifted so that codes begin at 0.
func trunc(x float32, most int) byte { return byte(min(max(int(min(max(x, 0), 255)), 0), most)) }

func encodeQ80(b []byte, from []float32) {
	d := abs(farthest(from)) / 127
	putHalf(b, d)
	by := inverse(d)
	for i, x := range from {
		b[2+i] = byte(int8(math.Round(float64(float32(x * by)))))
	}
}

func encodeQ40(b []byte, from []float32) {
	d := farthest(from) / -8
	putHalf(b, d)
	by := inverse(d)
	for i := range 16 {
		low, high := float32(from[i]*by)+8.5, float32(from[16+i]*by)+8.5
		b[2+i] = trunc(low, 15) | trunc(high, 15)<<4
	}
}

func encodeQ41(b []byte, from []float32) {
	low, high := from[0], from[0]
	for _, x := range from {
		low, high = min(low, x), max(high, x)
	}
	d := (high - low) / 15
	putHalf(b, d)
	putHalf(b[2:], low)
	by := inverse(d)
	for i := range 16 {
		x, y := float32((from[i]-low)*by)+0.5, float32((from[16+i]-low)*by)+0.5
		b[4+i] = trunc(x, 15) | trunc(y, 15)<<4
	}
}

func encodeQ50(b []byte, from []float32) {
	d := farthest(from) / -16
	putHalf(b, d)
	by := inverse(d)
	var fifth uint32
	for i := range 16 {
		low, high := trunc(float32(from[i]*by)+16.5, 31), trunc(float32(from[16+i]*by)+16.5, 31)
		b[6+i] = low&15 | high<<4
		fifth |= uint32(low>>4)<<i | uint32(high>>4)<<(16+i)
	}
	binary.LittleEndian.PutUint32(b[2:], fifth)
}

// encodeQ4K finds for each of 8 groups the scale and the minimum with the least squared error, in which large numbers
// weigh more, and rounds these to 6 bits; codes are then the nearest ones.
func encodeQ4K(b []byte, from []float32) {
	var codes [256]byte
	var scales, minima [8]float32
	var mostScale, mostMinimum float32
	for g := range scales {
		x := from[32*g:][:32]
		var squares float32
		for _, v := range x {
			squares += float32(v * v)
		}
		average := float32(math.Sqrt(float64(squares / 32)))
		var weights [32]float32
		for i, v := range x {
			weights[i] = average + abs(v)
		}
		scales[g], minima[g] = fitMinimum(x, weights[:], codes[32*g:][:32])
		mostScale, mostMinimum = max(mostScale, scales[g]), max(mostMinimum, minima[g])
	}
	var byScale, byMinimum float32
	if mostScale > 0 {
		byScale = 63 / mostScale
	}
	if mostMinimum > 0 {
		byMinimum = 63 / mostMinimum
	}
	for g := range scales {
		s, m := byte(nearest(byScale*scales[g], 0, 63)), byte(nearest(byMinimum*minima[g], 0, 63))
		if g < 4 {
			b[4+g], b[8+g] = s, m
			continue
		}
		b[8+g] = s&15 | m<<4
		b[g] |= s >> 4 << 6
		b[4+g] |= m >> 4 << 6
	}
	d, least := putHalf(b, mostScale/63), putHalf(b[2:], mostMinimum/63)
	scales, minima = scalesK(b[4:16], d, least)
	for g, s := range scales {
		for i, x := range from[32*g:][:32] {
			if s != 0 {
				codes[32*g+i] = byte(nearest((x+minima[g])/s, 0, 15))
			}
		}
	}
	for i := range 128 {
		k := i/32*64 + i%32
		b[16+i] = codes[k] | codes[k+32]<<4
	}
}

// fitMinimum finds a scale and what is taken from every number, 0 or more, for codes of 4 bits: of the codes for 21
// ranges those whose best scale and minimum have the least weighted squared error.
func fitMinimum(x, weights []float32, codes []byte) (scale, minimum float32) {
	const most, tries = 15, 21
	low, high := x[0], x[0]
	var all, sum float32
	for i, v := range x {
		low, high = min(low, v), max(high, v)
		all += weights[i]
		sum += float32(weights[i] * v)
	}
	if low = min(low, 0); low == high {
		return 0, -low
	}
	lost := func(of []byte, s, m float32) (e float32) {
		for i, v := range x {
			d := float32(s*float32(of[i])) + m - v
			e += float32(weights[i] * float32(d*d))
		}
		return e
	}
	name := func(of []byte, by float32) {
		for i, v := range x {
			of[i] = byte(nearest(by*(v-low), 0, most))
		}
	}
	by := most / (high - low)
	scale = 1 / by
	name(codes, by)
	best := lost(codes, scale, low)
	var trial [32]byte
	for k := range tries {
		name(trial[:], (float32(-1+float32(float32(0.1)*float32(k)))+most)/(high-low))
		var l, l2, xl float32
		for i, v := range x {
			wl := float32(weights[i] * float32(trial[i]))
			l += wl
			l2 += float32(wl * float32(trial[i]))
			xl += float32(wl * v)
		}
		determinant := float32(all*l2) - float32(l*l)
		if !(determinant > 0) {
			continue
		}
		s := (float32(all*xl) - float32(sum*l)) / determinant
		m := (float32(l2*sum) - float32(l*xl)) / determinant
		if m > 0 {
			s, m = xl/l2, 0
		}
		if e := lost(trial[:], s, m); e < best {
			best, scale, low = e, s, m // and ranges begin there from now on
			copy(codes, trial[:])
		}
	}
	return scale, -low
}

// encodeQ6K finds for each of 16 groups the scale with the least squared error, in which the squares of numbers are the
// weights, and rounds these to 8 bits; codes are then the nearest ones.
func encodeQ6K(b []byte, from []float32) {
	var codes [256]byte
	var scales [16]float32
	for g := range scales {
		scales[g] = fitScale(from[16*g:][:16], codes[16*g:][:16])
	}
	most := farthest(scales[:])
	if abs(most) < nothing {
		return
	}
	by := -128 / most
	d := putHalf(b[208:], 1/by)
	for g, s := range scales {
		b[192+g] = byte(int8(nearest(by*s, -128, 127)))
		s = float32(d * float32(int8(b[192+g])))
		for i, x := range from[16*g:][:16] {
			if s != 0 {
				codes[16*g+i] = byte(nearest(x/s, -32, 31) + 32)
			}
		}
	}
	for i := range 64 { // two halves of 32 times four numbers
		k := i/32*128 + i%32
		low, high := b[i/32*64+i%32:], b[128+i:]
		low[0] = codes[k]&15 | codes[k+64]<<4
		low[32] = codes[k+32]&15 | codes[k+96]<<4
		high[0] = codes[k]>>4 | codes[k+32]>>4<<2 | codes[k+64]>>4<<4 | codes[k+96]>>4<<6
	}
}

// nothing is what groups whose numbers are below it are taken for.
const nothing = 1e-15

// fitScale finds a scale for codes from −32 to 31, which are written with 32 more: of the codes for 19 ranges those
// whose best scale explains most.
func fitScale(x []float32, codes []byte) (scale float32) {
	const most = 32
	far := farthest(x)
	if abs(far) < nothing {
		clear(codes)
		return 0
	}
	sums := func(by float32) (xl, l2 float32) {
		for _, v := range x {
			l, w := float32(nearest(by*v, -most, most-1)), float32(v*v)
			xl += float32(float32(w*v) * l)
			l2 += float32(float32(w*l) * l)
		}
		return xl, l2
	}
	name := func(by float32) {
		for i, v := range x {
			codes[i] = byte(nearest(by*v, -most, most-1) + most)
		}
	}
	xl, l2 := sums(-most / far)
	name(-most / far)
	if l2 != 0 {
		scale = xl / l2
	}
	best := float32(scale * xl)
	for k := -9; k <= 9; k++ {
		by := -(most + float32(float32(0.1)*float32(k))) / far
		if k == 0 {
			continue
		}
		if xl, l2 := sums(by); l2 > 0 && float32(xl*xl) > float32(best*l2) {
			name(by)
			scale = xl / l2
			best = float32(scale * xl)
		}
	}
	return scale
}
