package blocked

import "github.com/optimem/optimem/internal/cpu/kernel"

// To writes a value in blocks that it reads by the strides of its four dimensions [N, C, H, W].
func To(pool Pool, n, channels, height, width int, src []float32, strides [4]int, dst []float32) {
	to(pool, best(), n, channels, height, width, src, strides, dst)
}

func to(
	pool Pool, set *kernel.ConvSet, n, channels, height, width int, src []float32, strides [4]int, dst []float32,
) {
	if strides[2] == width*strides[3] { // rows follow each other: an image is one
		height, width = 1, height*width
	}
	blocks := Blocks(channels)
	pieces := ceil(width, reorderPixels)
	pool.For(n*blocks*height*pieces, max(1, reorderPixels/width), func(from, to int) {
		for i := from; i < to; i++ {
			row, first := i/pieces, i%pieces*reorderPixels
			image, block, y := row/(blocks*height), row/height%blocks, row%height
			pixels := min(reorderPixels, width-first)
			at := image*strides[0] + block*Lanes*strides[1] + y*strides[2] + first*strides[3]
			toBlock(set, min(Lanes, channels-block*Lanes), pixels, src[at:], strides[1], strides[3],
				dst[(row*width+first)*Lanes:][:pixels*Lanes])
		}
	})
}

// reorderPixels is how many pixels of a block are reordered at a time.
const reorderPixels = 1024

// toBlock writes pixels of a block, whose channels and columns lie some distance apart.
func toBlock(set *kernel.ConvSet, channels, pixels int, src []float32, plane, column int, dst []float32) {
	if plane == 1 && channels == Lanes {
		for p := range pixels {
			copy(dst[p*Lanes:(p+1)*Lanes], src[p*column:])
		}
		return
	}
	done := 0 // channels
	whole := pixels &^ 7
	if set.Vectors != nil && column == 1 {
		for ; done+8 <= channels; done += 8 {
			set.Vectors.Transpose(whole/8, src[done*plane:], plane, dst[done:], Lanes)
			for lane := done; lane < done+8; lane++ {
				for p := whole; p < pixels; p++ {
					dst[p*Lanes+lane] = src[lane*plane+p]
				}
			}
		}
	}
	for lane := done; lane < Lanes; lane++ {
		for p := range pixels {
			v := float32(0)
			if lane < channels {
				v = src[lane*plane+p*column]
			}
			dst[p*Lanes+lane] = v
		}
	}
}

// From writes a value in blocks as contiguous [N, C, H, W].
func From(pool Pool, n, channels, height, width int, src, dst []float32) {
	from(pool, best(), n, channels, height, width, src, dst)
}

func from(pool Pool, set *kernel.ConvSet, n, channels, height, width int, src, dst []float32) {
	blocks, pixels := Blocks(channels), height*width
	pieces := ceil(pixels, reorderPixels)
	pool.For(n*blocks*pieces, max(1, reorderPixels/pixels), func(from, to int) {
		for i := from; i < to; i++ {
			image, block, first := i/pieces/blocks, i/pieces%blocks, i%pieces*reorderPixels
			count := min(reorderPixels, pixels-first)
			fromBlock(set, min(Lanes, channels-block*Lanes), count, src[(i/pieces*pixels+first)*Lanes:],
				dst[(image*channels+block*Lanes)*pixels+first:], pixels)
		}
	})
}

// fromBlock writes pixels of a block as planes some distance apart.
func fromBlock(set *kernel.ConvSet, channels, count int, src, dst []float32, plane int) {
	whole := 0 // pixels of which the channels in eights are done
	eights := channels / 8
	if set.Vectors != nil {
		for ; eights > 0 && whole+8 <= count; whole += 8 {
			set.Vectors.Transpose(eights, src[whole*Lanes:], Lanes, dst[whole:], plane)
		}
	}
	for c := range channels {
		first := whole
		if c >= 8*eights {
			first = 0
		}
		for p := first; p < count; p++ {
			dst[c*plane+p] = src[p*Lanes+c]
		}
	}
}
