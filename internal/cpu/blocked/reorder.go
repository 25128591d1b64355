package blocked

import (
	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// A Size is that of a value: N images of some channels, each of Height × Width pixels.
type Size struct{ N, Channels, Height, Width int }

// To writes a value in blocks that it reads by the strides of its four dimensions [N, C, H, W].
func To(pool Pool, size Size, src []float32, strides [4]int, dst []float32) {
	to(pool, best(), size, src, strides, dst)
}

func to(pool Pool, set *kernel.ConvSet, size Size, src []float32, strides [4]int, dst []float32) {
	n, channels, height, width := size.N, size.Channels, size.Height, size.Width
	if strides[2] == width*strides[3] { // rows follow each other: an image is one
		height, width = 1, height*width
	}
	pieces := ceil(width, reorderPixels)
	tasks.Do(pool, n*Blocks(channels)*height*pieces, max(1, reorderPixels/width), toBlocks{
		set: set, channels: channels, height: height, width: width, pieces: pieces, src: src, strides: strides,
		dst: dst,
	})
}

// toBlocks is the task of [To]: a part is a piece of a row.
type toBlocks struct {
	set                             *kernel.ConvSet
	channels, height, width, pieces int
	src, dst                        []float32
	strides                         [4]int
}

// Run implements tasks.Task.
func (t *toBlocks) Run(from, to int) {
	blocks, strides := Blocks(t.channels), &t.strides
	for i := from; i < to; i++ {
		row, first := i/t.pieces, i%t.pieces*reorderPixels
		image, block, y := row/(blocks*t.height), row/t.height%blocks, row%t.height
		pixels := min(reorderPixels, t.width-first)
		at := image*strides[0] + block*Lanes*strides[1] + y*strides[2] + first*strides[3]
		toBlock(t.set, min(Lanes, t.channels-block*Lanes), pixels, t.src[at:], strides[1], strides[3],
			t.dst[(row*t.width+first)*Lanes:][:pixels*Lanes])
	}
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
func From(pool Pool, size Size, src, dst []float32) { from(pool, best(), size, src, dst) }

func from(pool Pool, set *kernel.ConvSet, size Size, src, dst []float32) {
	n, channels, pixels := size.N, size.Channels, size.Height*size.Width
	pieces := ceil(pixels, reorderPixels)
	tasks.Do(pool, n*Blocks(channels)*pieces, max(1, reorderPixels/pixels), fromBlocks{
		set: set, channels: channels, pixels: pixels, pieces: pieces, src: src, dst: dst,
	})
}

// fromBlocks is the task of [From]: a part is a piece of a plane.
type fromBlocks struct {
	set                      *kernel.ConvSet
	channels, pixels, pieces int
	src, dst                 []float32
}

// Run implements tasks.Task.
func (t *fromBlocks) Run(from, to int) {
	blocks := Blocks(t.channels)
	for i := from; i < to; i++ {
		image, block, first := i/t.pieces/blocks, i/t.pieces%blocks, i%t.pieces*reorderPixels
		count := min(reorderPixels, t.pixels-first)
		fromBlock(t.set, min(Lanes, t.channels-block*Lanes), count, t.src[(i/t.pieces*t.pixels+first)*Lanes:],
			t.dst[(image*t.channels+block*Lanes)*t.pixels+first:], t.pixels)
	}
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
