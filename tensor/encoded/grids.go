package encoded

import (
	_ "embed" // the grids
	"encoding/binary"
	"math/bits"
)

// Blocks of IQ1 to IQ3 have numbers of groups of 8 or 4 values, which are in a grid, scales, and signs. The grids are ggml's;
// testdata/make_grids.py took them from Python's package gguf.

//go:embed grids.bin
var gridBytes string

// Grids of groups of 8 have a byte for 4 values, those of 4 a byte for 2.
var (
	grid2XXS = gridBytes[:512]
	grid2XS  = gridBytes[512:1536]
	grid2S   = gridBytes[1536:3584]
	grid3XXS = gridBytes[3584:4096]
	grid3S   = gridBytes[4096:5120]
	grid1    = gridBytes[5120:9216]
)

// Values of the codes in grids.
var (
	values2    = [4]float32{8, 25, 43}
	values1    = [4]float32{-1, 0, 1}
	values3XXS = [8]float32{4, 12, 20, 28, 36, 44, 52, 62}
	values3S   = [8]float32{1, 3, 5, 7, 9, 11, 13, 15}
)

// eight is value j of a group of 8.
func eight(grid string, values *[4]float32, group, j int) float32 {
	return values[grid[2*group+j/4]>>(j%4*2)&3]
}

// signed writes 8 values times d, negative where a bit of signs is set.
func signed(to []float32, d float32, signs uint8, value func(j int) float32) {
	for j := range 8 {
		x := d * value(j)
		if signs>>j&1 != 0 {
			x = -x
		}
		to[j] = x
	}
}

// evenSigns has the eighth bit that makes the number of bits even.
func evenSigns(seven uint32) uint8 { return uint8(seven | uint32(bits.OnesCount32(seven)&1)<<7) }

// decodeIQ2XXS has 8 groups of 32: four numbers of groups of 8, four times 7 signs and a scale of 4 bits.
func decodeIQ2XXS(to []float32, b []byte) {
	d := half(b)
	for g := range 8 {
		groups := b[2+8*g:][:4]
		rest := double(b[6+8*g:])
		scale := d * (0.5 + float32(rest>>28)) * 0.25
		for k, group := range groups {
			signed(to[32*g+8*k:], scale, evenSigns(rest>>(7*k)&127), func(j int) float32 {
				return eight(grid2XXS, &values2, int(group), j)
			})
		}
	}
}

// decodeIQ2XS has 32 words, each the number of a group of 8 and 7 signs, and a scale of 4 bits for every two.
func decodeIQ2XS(to []float32, b []byte) {
	d, scales := half(b), b[66:74]
	for i := range 32 {
		w := word(b[2+2*i:])
		scale := d * (0.5 + float32(scales[i/4]>>(i/2%2*4)&15)) * 0.25
		signed(to[8*i:], scale, evenSigns(uint32(w>>9)), func(j int) float32 {
			return eight(grid2XS, &values2, int(w&511), j)
		})
	}
}

// decodeIQ2S has numbers of 10 bits, 8 signs for each, and scales as IQ2_XS.
func decodeIQ2S(to []float32, b []byte) {
	d, low, signs, high, scales := half(b), b[2:34], b[34:66], b[66:74], b[74:82]
	for i := range 32 {
		group := int(low[i]) | int(high[i/4]>>(i%4*2)&3)<<8
		scale := d * (0.5 + float32(scales[i/4]>>(i/2%2*4)&15)) * 0.25
		signed(to[8*i:], scale, signs[i], func(j int) float32 { return eight(grid2S, &values2, group, j) })
	}
}

// four is value j of a group of 4.
func four(grid string, values *[8]float32, group, j int) float32 {
	return values[grid[2*group+j/2]>>(j%2*4)&7]
}

// decodeIQ3XXS has 8 groups of 32: eight numbers of groups of 4, four times 7 signs and a scale of 4 bits.
func decodeIQ3XXS(to []float32, b []byte) {
	d, low := half(b), b[2:66]
	for g := range 8 {
		rest := double(b[66+4*g:])
		scale := d * (0.5 + float32(rest>>28)) * 0.5
		for k := range 4 {
			groups := low[8*g+2*k:][:2]
			signed(to[32*g+8*k:], scale, evenSigns(rest>>(7*k)&127), func(j int) float32 {
				return four(grid3XXS, &values3XXS, int(groups[j/4]), j%4)
			})
		}
	}
}

// decodeIQ3S has numbers of 9 bits, a sign for each value, and a scale of 4 bits for every 32.
func decodeIQ3S(to []float32, b []byte) {
	d, low, high, signs, scales := half(b), b[2:66], b[66:74], b[74:106], b[106:110]
	for i := range 32 {
		scale := d * float32(1+2*(scales[i/8]>>(i/4%2*4)&15))
		signed(to[8*i:], scale, signs[i], func(j int) float32 {
			k := 2*i + j/4
			return four(grid3S, &values3S, int(low[k])|int(high[k/8]>>(k%8)&1)<<8, j%4)
		})
	}
}

// deltaIQ1 is added to the values of IQ1, or taken off.
const deltaIQ1 = 0.125

// decodeIQ1S has 8 groups of 32: four numbers of 11 bits, a scale of 3 bits and a sign of what is added.
func decodeIQ1S(to []float32, b []byte) {
	d, low := half(b), b[2:34]
	for g := range 8 {
		high := word(b[34+2*g:])
		scale, delta := d*float32(2*(high>>12&7)+1), float32(deltaIQ1)
		if high&0x8000 != 0 {
			delta = -delta
		}
		for k := range 4 {
			group := int(low[4*g+k]) | int(high>>(3*k)&7)<<8
			for j := range 8 {
				to[32*g+8*k+j] = scale * (eight(grid1, &values1, group, j) + delta)
			}
		}
	}
}

// decodeIQ1M has 32 numbers of 11 bits, each with a sign of what is added, 16 scales of 3 bits, and the scale of the block in the
// upper bits of those.
func decodeIQ1M(to []float32, b []byte) {
	low, high, scales := b[:32], b[32:48], b[48:56]
	var bits [2]byte
	binary.LittleEndian.PutUint16(
		bits[:], word(scales)>>12|word(scales[2:])>>12<<4|word(scales[4:])>>12<<8|word(scales[6:])>>12<<12,
	)
	d := half(bits[:])
	for i := range 32 {
		h := high[i/2] >> (i % 2 * 4)
		scale, delta := d*float32(2*(word(scales[i/8*2:])>>(i/2%4*3)&7)+1), float32(deltaIQ1)
		if h&8 != 0 {
			delta = -delta
		}
		group := int(low[i]) | int(h&7)<<8
		for j := range 8 {
			to[8*i+j] = scale * (eight(grid1, &values1, group, j) + delta)
		}
	}
}
