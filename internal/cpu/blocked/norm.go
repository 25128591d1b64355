package blocked

import (
	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// A Normed value is Y = (X − mean)·W ÷ √(variance + Eps) + B, where mean and variance are those of a pixel of one of N
// images over its channels, of which there are a multiple of sixteen. Y may be X.
type Normed struct {
	N, Channels, Pixels int
	X, Y, W, B          []float32
	Eps                 float32
}

// Norm normalises each pixel over its channels.
func Norm(pool Pool, v Normed) { norm(pool, best(), v) }

func norm(pool Pool, set *kernel.ConvSet, v Normed) {
	n, channels, pixels, x, y, w, b := v.N, v.Channels, v.Pixels, v.X, v.Y, v.W, v.B
	blocks := channels / Lanes
	if size := Elements(n, channels, 1, pixels); channels%Lanes != 0 || len(x) < size || len(y) < size ||
		len(w) < channels || len(b) < channels {
		panic("BUG: blocked: an operand is smaller than its norm")
	}
	// As many pixels as take a few microseconds.
	each := max(4, grain/4/channels&^3)
	parts := ceil(pixels, each)
	tasks.Do(pool, n*parts, 1, normParts{
		set: set, x: x, y: y, w: w, b: b, channels: channels, blocks: blocks, pixels: pixels, each: each, parts: parts,
		eps: v.Eps,
	})
}

// normParts is the task of [Norm]: a part is some pixels of an image.
type normParts struct {
	set                                   *kernel.ConvSet
	x, y, w, b                            []float32
	channels, blocks, pixels, each, parts int
	eps                                   float32
}

// Run implements tasks.Task.
func (t *normParts) Run(from, to int) {
	for i := from; i < to; i++ {
		first := i % t.parts * t.each
		at := (i/t.parts*t.blocks*t.pixels + first) * Lanes
		t.set.Norm(&kernel.NormTile{
			X: &t.x[at], Y: &t.y[at], Pixels: min(t.each, t.pixels-first), Blocks: t.blocks,
			Plane:  4 * Lanes * t.pixels,
			Weight: &t.w[0], Bias: &t.b[0], Inverse: 1 / float32(t.channels), Eps: t.eps,
		})
	}
}

// NormScales computes what a batch norm does to each channel: scale = w ÷ √(variance + ε), shift = b − mean·scale.
func NormScales(scale, shift, w, b, mean, variance []float32, eps float64) {
	best().Scales(scale, shift, w, b, mean, variance, eps)
}
