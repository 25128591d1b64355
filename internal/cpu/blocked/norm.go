package blocked

import "github.com/optimem/optimem/internal/cpu/kernel"

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
	pool.For(n*parts, 1, func(from, to int) {
		for i := from; i < to; i++ {
			first := i % parts * each
			at := (i/parts*blocks*pixels + first) * Lanes
			set.Norm(&kernel.NormTile{
				X: &x[at], Y: &y[at], Pixels: min(each, pixels-first), Blocks: blocks, Plane: 4 * Lanes * pixels,
				Weight: &w[0], Bias: &b[0], Inverse: 1 / float32(channels), Eps: eps,
			})
		}
	})
}

// NormScales computes what a batch norm does to each channel: scale = w ÷ √(variance + ε), shift = b − mean·scale.
func NormScales(scale, shift, w, b, mean, variance []float32, eps float64) {
	best().Scales(scale, shift, w, b, mean, variance, eps)
}
