package encoded

import "math"

// Blocks of 256 have scales, and perhaps minima, of groups of 16 or 32, as codes themselves.

// halfPower is 2^(e − 128).
func halfPower(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// decodeQ2K has 16 groups of 16, each with a scale and a minimum of 4 bits.
func decodeQ2K(to []float32, b []byte) {
	scales, codes := b[:16], b[16:80]
	d, least := half(b[80:]), half(b[82:])
	for i := range to {
		s := scales[i/16]
		c := codes[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3
		to[i] = float32(d*float32(s&15)*float32(c)) - float32(least*float32(s>>4))
	}
}

// decodeQ3K has 16 groups of 16 with scales of 6 bits. The third bit of a code is taken off where it is not set.
func decodeQ3K(to []float32, b []byte) {
	high, codes, packed, d := b[:32], b[32:96], b[96:108], half(b[108:])
	var scales [16]float32
	for i := range scales {
		low := packed[i%8] >> (i / 8 * 4) & 15
		scales[i] = d * float32(int8(low|packed[8+i%4]>>(i/4*2)&3<<4)-32)
	}
	for i := range to {
		c := int8(codes[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3)
		if high[i%32]>>(i/32)&1 == 0 {
			c -= 4
		}
		to[i] = scales[i/16] * float32(c)
	}
}

// scalesK are the scales and minima, of 6 bits each, of the 8 groups of Q4_K and Q5_K.
func scalesK(b []byte, d, least float32) (scales, minima [8]float32) {
	for i := range 4 {
		scales[i], minima[i] = d*float32(b[i]&63), least*float32(b[4+i]&63)
		scales[4+i] = d * float32(b[8+i]&15|b[i]>>2&48)
		minima[4+i] = least * float32(b[8+i]>>4|b[4+i]>>2&48)
	}
	return scales, minima
}

// decodeQ4K has 8 groups of 32.
func decodeQ4K(to []float32, b []byte) {
	scales, minima := scalesK(b[4:16], half(b), half(b[2:]))
	for g := range 8 {
		codes, shift := b[16+g/2*32:][:32], g%2*4
		for i, c := range codes {
			to[g*32+i] = float32(scales[g]*float32(c>>shift&15)) - minima[g]
		}
	}
}

// decodeQ5K is decodeQ4K with fifth bits, a byte of which has those of 8 groups.
func decodeQ5K(to []float32, b []byte) {
	scales, minima := scalesK(b[4:16], half(b), half(b[2:]))
	high := b[16:48]
	for g := range 8 {
		codes, shift := b[48+g/2*32:][:32], g%2*4
		for i, c := range codes {
			to[g*32+i] = float32(scales[g]*float32(c>>shift&15|high[i]>>g&1<<4)) - minima[g]
		}
	}
}

// decodeQ6K has 16 groups of 16. Halves of 128 interleave: four runs of 32 share 64 bytes of low and 32 of high bits.
func decodeQ6K(to []float32, b []byte) {
	low, high, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for i := range to {
		part, run, k := i/128, i%128/32, i%32
		c := low[part*64+run%2*32+k] >> (run / 2 * 4) & 15
		c |= high[part*32+k] >> (run * 2) & 3 << 4
		to[i] = d * float32(int8(scales[i/16])) * float32(int8(c)-32)
	}
}

// decodeIQ4XS has 8 groups of 32 with scales of 6 bits.
func decodeIQ4XS(to []float32, b []byte) {
	d, high, low := half(b), word(b[2:]), b[4:8]
	for g := range 8 {
		s := low[g/2]>>(g%2*4)&15 | uint8(high>>(2*g)&3)<<4
		lookUp(to[g*32:][:32], b[8+g*16:][:16], d*float32(int8(s)-32), &tableIQ4)
	}
}

// decodeTQ10 has digits of base three, five to a byte and, in the last bytes, four. A byte is a fraction of 256: times 3^n,
// its whole part modulo 3 is a digit.
func decodeTQ10(to []float32, b []byte) {
	d, at := half(b[52:]), 0
	for _, run := range []struct{ from, bytes, digits int }{{0, 32, 5}, {32, 16, 5}, {48, 4, 4}} {
		power := uint8(1)
		for range run.digits {
			for _, c := range b[run.from:][:run.bytes] {
				to[at] = d * float32(int8(uint16(c*power)*3>>8)-1)
				at++
			}
			power *= 3
		}
	}
}

// decodeTQ20 is d × (code − 1), of codes of 2 bits.
func decodeTQ20(to []float32, b []byte) {
	d := half(b[64:])
	for i := range to {
		to[i] = d * float32(int8(b[i/128*32+i%32]>>(i%128/32*2)&3)-1)
	}
}
