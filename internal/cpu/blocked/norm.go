package blocked

import (
	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// Norm normalises each pixel over its channels, of which there are a multiple of sixteen: y = (x − mean)·w ÷ √(variance + ε) + b.
// y may be x.
func Norm(pool Pool, n, channels, pixels int, x, y, w, b []float32, eps float32) {
	norm(pool, best(), n, channels, pixels, x, y, w, b, eps)
}

func norm(pool Pool, set *kernel.ConvSet, n, channels, pixels int, x, y, w, b []float32, eps float32) {
	blocks := channels / Lanes
	if size := Elements(n, channels, 1, pixels); channels%Lanes != 0 || len(x) < size || len(y) < size ||
		len(w) < channels || len(b) < channels {
		panic("BUG: blocked: an operand is smaller than its norm")
	}
	// As many pixels as take a few microseconds.
	each := max(4, grain/4/channels&^3)
	parts := ceil(pixels, each)
	tasks.Do(pool, n*parts, 1, normParts{
		set: set, x: x, y: y, w: w, b: b, channels: channels, blocks: blocks, pixels: pixels, each: each, parts: parts, eps: eps,
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
			X: &t.x[at], Y: &t.y[at], Pixels: min(t.each, t.pixels-first), Blocks: t.blocks, Plane: 4 * Lanes * t.pixels,
			Weight: &t.w[0], Bias: &t.b[0], Inverse: 1 / float32(t.channels), Eps: t.eps,
		})
	}
}

// NormScales computes what a batch norm does to each channel: scale = w ÷ √(variance + ε), shift = b − mean·scale.
func NormScales(scale, shift, w, b, mean, variance []float32, eps float64) {
	best().Scales(scale, shift, w, b, mean, variance, eps)
}
