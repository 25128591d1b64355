package blocked

// grain is how many floats a part of elementwise work has.
const grain = 1 << 14

// Add writes act(x1 + x2). Values are of equal shape, of the given channels; y may be one of them. A nil x2 adds nothing.
func Add(pool Pool, channels, pixels int, x1, x2, y []float32, act Act, a, b float32) {
	pool.For(len(y), grain, func(from, to int) {
		for i := from; i < to; i++ {
			v := x1[i]
			if x2 != nil {
				v += x2[i]
			}
			y[i] = act.of(v, a, b)
		}
	})
	if act.of(0, a, b) != 0 {
		clearPadding(pool, channels, pixels, y)
	}
}

// clearPadding makes the lanes beyond the channels zero again.
func clearPadding(pool Pool, channels, pixels int, y []float32) {
	used := channels % Lanes
	if used == 0 {
		return
	}
	block := pixels * Lanes
	image := Blocks(channels) * block
	pool.For(len(y)/image, 1, func(from, to int) {
		for n := from; n < to; n++ {
			last := y[(n+1)*image-block : (n+1)*image]
			for i := 0; i < len(last); i += Lanes {
				clear(last[i+used : i+Lanes])
			}
		}
	})
}

// Multiply writes x times a number for each channel of each image: scale is [N, ⌈C/16⌉, 1, 1, 16]. y may be x.
func Multiply(pool Pool, pixels int, x, scale, y []float32) {
	pool.For(len(y)/Lanes, grain/Lanes, func(from, to int) {
		for i := from; i < to; i++ {
			s := scale[i/pixels*Lanes:][:Lanes]
			out := y[i*Lanes:][:Lanes]
			for j, v := range x[i*Lanes:][:Lanes] {
				out[j] = v * s[j]
			}
		}
	})
}

// CopyChannels copies count channels of each of n images: from channel srcAt on of a value with srcChannels channels to
// channel dstAt on of one with dstChannels. All but the ends of values are multiples of 16; see [CanCopy]. It is what
// concatenation and slices of channels are made of.
func CopyChannels(pool Pool, n, pixels, count int, src []float32, srcChannels, srcAt int, dst []float32, dstChannels, dstAt int) {
	blocks := Blocks(count)
	pool.For(n*blocks, max(1, grain/(pixels*Lanes)), func(from, to int) {
		for i := from; i < to; i++ {
			image, block := i/blocks, i%blocks
			s := ((image*Blocks(srcChannels) + srcAt/Lanes) + block) * pixels * Lanes
			d := ((image*Blocks(dstChannels) + dstAt/Lanes) + block) * pixels * Lanes
			copy(dst[d:d+pixels*Lanes], src[s:s+pixels*Lanes])
		}
	})
}

// CanCopy reports whether CopyChannels can copy these channels: both begin a block, and the last block is whole or ends
// both values.
func CanCopy(count, srcChannels, srcAt, dstChannels, dstAt int) bool {
	return srcAt%Lanes == 0 && dstAt%Lanes == 0 &&
		(count%Lanes == 0 || srcAt+count == srcChannels && dstAt+count == dstChannels)
}
