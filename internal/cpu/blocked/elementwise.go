package blocked

import (
	"sync"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
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

// A Sum is of two values of equal shape, of the given channels, with an activation and what that takes. Y may be one of
// them. A nil X2 adds nothing.
type Sum struct {
	Channels, Pixels int
	X1, X2, Y        []float32
	Act              Act
	A, B             float32
}

// Add writes act(x1 + x2).
func Add(pool Pool, s Sum) { add(pool, best(), s) }

func add(pool Pool, set *kernel.ConvSet, s Sum) {
	t := adding{set: set, x1: s.X1, x2: s.X2, y: s.Y, act: s.Act, a: s.A, b: s.B}
	t.low, t.high, t.limits = s.Act.limits(s.A, s.B)
	tasks.Do(pool, len(s.Y)/Lanes, grain/Lanes, t)
	if s.Act.of(0, s.A, s.B) != 0 {
		clearPadding(pool, s.Channels, s.Pixels, s.Y)
	}
}

// adding is the task of [Add]. The activation may be one that limits.
type adding struct {
	set       *kernel.ConvSet
	x1, x2, y []float32
	act       Act
	a, b      float32
	low, high float32
	limits    bool
}

// Run implements tasks.Task.
func (j *adding) Run(from, to int) {
	t := kernel.ConvTile{Flags: kernel.ConvFinish, Low: j.low, High: j.high, Scale: &ones[0], Shift: &zeros[0]}
	t.X, t.Y = address(j.x1[:to*Lanes], from*Lanes), address(j.y[:to*Lanes], from*Lanes)
	if j.x2 != nil {
		t.Flags |= kernel.ConvResidual
		t.Residual = address(j.x2[:to*Lanes], from*Lanes)
	}
	if j.limits {
		t.Flags |= kernel.ConvLimit
	}
	each(j.set, to-from, ones[:], &t)
	if !j.limits && j.act != None {
		j.act.all(j.set, j.y[from*Lanes:to*Lanes], j.a, j.b)
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
	tasks.Do(pool, len(y)/image, 1, clearing{y: y, used: used, block: block, image: image})
}

// clearing makes lanes from used on zero, of the last block of images.
type clearing struct {
	y                  []float32
	used, block, image int
}

// Run implements tasks.Task.
func (t *clearing) Run(from, to int) {
	for n := from; n < to; n++ {
		last := t.y[(n+1)*t.image-t.block : (n+1)*t.image]
		for i := 0; i < len(last); i += Lanes {
			clear(last[i+t.used : i+Lanes])
		}
	}
}

// Multiply writes x times a number for each channel of each image: scale is [N, ⌈C/16⌉, 1, 1, 16]. y may be x.
func Multiply(pool Pool, pixels int, x, scale, y []float32) {
	multiply(pool, best(), pixels, x, scale, y)
}

func multiply(pool Pool, set *kernel.ConvSet, pixels int, x, scale, y []float32) {
	planes := len(y) / Lanes / pixels
	tasks.Do(
		pool, planes, max(1, grain/4/Lanes/pixels), multiplying{set: set, pixels: pixels, x: x, scale: scale, y: y},
	)
}

// multiplying is the task of [Multiply].
type multiplying struct {
	set         *kernel.ConvSet
	pixels      int
	x, scale, y []float32
}

// Run implements tasks.Task.
func (m *multiplying) Run(from, to int) {
	for i := from; i < to; i++ {
		at, end := i*m.pixels*Lanes, (i+1)*m.pixels*Lanes
		t := kernel.ConvTile{X: address(m.x[:end], at), Y: address(m.y[:end], at)}
		each(m.set, m.pixels, m.scale[i*Lanes:(i+1)*Lanes], &t)
	}
}

// Channels are those of a value from channel At on, of as many as it has in Of.
type Channels struct {
	Data   []float32
	Of, At int
}

// CopyChannels copies count channels of each of n images from one value to another. All but the ends of values are
// multiples of 16; see [CanCopy]. It is what concatenation and slices of channels are made of.
func CopyChannels(pool Pool, n, pixels, count int, src, dst Channels) {
	blocks := Blocks(count)
	tasks.Do(pool, n*blocks, max(1, grain/(pixels*Lanes)), channelCopy{
		blocks: blocks, size: pixels * Lanes,
		src: src.Data, srcBlocks: Blocks(src.Of), srcAt: src.At / Lanes,
		dst: dst.Data, dstBlocks: Blocks(dst.Of), dstAt: dst.At / Lanes,
	})
}

// A channelCopy is the task of [CopyChannels].
type channelCopy struct {
	// blocks are copied of each image, of size floats.
	blocks, size     int
	src, dst         []float32
	srcBlocks, srcAt int
	dstBlocks, dstAt int
}

// Run implements tasks.Task.
func (t *channelCopy) Run(from, to int) {
	for i := from; i < to; i++ {
		image, block := i/t.blocks, i%t.blocks
		s, d := (image*t.srcBlocks+t.srcAt+block)*t.size, (image*t.dstBlocks+t.dstAt+block)*t.size
		copy(t.dst[d:d+t.size], t.src[s:s+t.size])
	}
}

// CanCopy reports whether CopyChannels can copy these channels: both begin a block, and the last block is whole or ends
// both values.
func CanCopy(count, srcChannels, srcAt, dstChannels, dstAt int) bool {
	return srcAt%Lanes == 0 && dstAt%Lanes == 0 &&
		(count%Lanes == 0 || srcAt+count == srcChannels && dstAt+count == dstChannels)
}
