package blocked

import (
	"sync"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
)

// grain is how many floats a part of elementwise work has.
const grain = 1 << 14

// best is the kernels that everything but a convolution in a test uses.
var best = sync.OnceValue(func() *kernel.ConvSet { return kernel.ConvSets()[0] })

// ones and zeros are a block's.
var (
	ones  = [Lanes]float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	zeros [Lanes]float32
)

// offset0 is the one step of work on pixels by themselves.
var offset0 = [1]int{}

// Add writes act(x1 + x2). Values are of equal shape, of the given channels; y may be one of them. A nil x2 adds nothing.
func Add(pool Pool, channels, pixels int, x1, x2, y []float32, act Act, a, b float32) {
	add(pool, best(), channels, pixels, x1, x2, y, act, a, b)
}

func add(pool Pool, set *kernel.ConvSet, channels, pixels int, x1, x2, y []float32, act Act, a, b float32) {
	low, high, limits := act.limits(a, b)
	pool.For(len(y)/Lanes, grain/Lanes, func(from, to int) {
		t := kernel.ConvTile{Flags: kernel.ConvFinish, Low: low, High: high, Scale: &ones[0], Shift: &zeros[0]}
		t.X, t.Y = address(x1[:to*Lanes], from*Lanes), address(y[:to*Lanes], from*Lanes)
		if x2 != nil {
			t.Flags |= kernel.ConvResidual
			t.Residual = address(x2[:to*Lanes], from*Lanes)
		}
		if limits {
			t.Flags |= kernel.ConvLimit
		}
		each(set, to-from, ones[:], &t)
		if !limits && act != None {
			act.all(set, y[from*Lanes:to*Lanes], a, b)
		}
	})
	if act.of(0, a, b) != 0 {
		clearPadding(pool, channels, pixels, y)
	}
}

// each multiplies consecutive pixels with a vector, and does what t says then.
func each(set *kernel.ConvSet, pixels int, by []float32, t *kernel.ConvTile) {
	t.W, t.Offsets, t.Steps, t.XPixel, t.YPixel, t.Rows = &by[0], &offset0[0], 1, 4*Lanes, 4*Lanes, 1
	most := set.DepthwisePixels()
	if t.Tiles = pixels / most; t.Tiles > 0 {
		set.Depthwise(most, t)
	}
	if left := pixels % most; left > 0 {
		done := t.Tiles * most * 4 * Lanes
		t.Tiles = 1
		t.X = (*float32)(unsafe.Add(unsafe.Pointer(t.X), done))
		t.Y = (*float32)(unsafe.Add(unsafe.Pointer(t.Y), done))
		if t.Residual != nil {
			t.Residual = (*float32)(unsafe.Add(unsafe.Pointer(t.Residual), done))
		}
		set.Depthwise(left, t)
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
	multiply(pool, best(), pixels, x, scale, y)
}

func multiply(pool Pool, set *kernel.ConvSet, pixels int, x, scale, y []float32) {
	planes := len(y) / Lanes / pixels
	pool.For(planes, max(1, grain/4/Lanes/pixels), func(from, to int) {
		for i := from; i < to; i++ {
			at, end := i*pixels*Lanes, (i+1)*pixels*Lanes
			t := kernel.ConvTile{X: address(x[:end], at), Y: address(y[:end], at)}
			each(set, pixels, scale[i*Lanes:(i+1)*Lanes], &t)
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
