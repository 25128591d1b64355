package kernel

import (
	"math"
	"unsafe"
)

// A NormTile is pixels that are normalised over their channels, in blocks of sixteen:
//
//	y = (x − mean)·w ÷ √(variance + ε) + b
//
// Distances are in bytes.
type NormTile struct {
	X, Y *float32
	// Pixels are one behind the other; their Blocks lie Plane apart.
	Pixels, Blocks, Plane int
	// Weight and Bias have a number for each channel.
	Weight, Bias *float32
	// Inverse is 1 ÷ channels.
	Inverse, Eps, one float32
}

// Norm normalises pixels. Each has the same bits whatever is computed beside it.
func (s *ConvSet) Norm(t *NormTile) {
	t.one = 1
	s.norm.run(unsafe.Pointer(t))
}

// normTile is Norm in Go.
func normTile(t *NormTile) {
	w, b := at(t.Weight, 0, 16*t.Blocks), at(t.Bias, 0, 16*t.Blocks)
	for p := range t.Pixels {
		var sum, squares float64
		for block := range t.Blocks {
			for _, v := range at(t.X, block*t.Plane+64*p, 16) {
				sum += float64(v)
			}
		}
		mean := sum * float64(t.Inverse)
		for block := range t.Blocks {
			for _, v := range at(t.X, block*t.Plane+64*p, 16) {
				squares += (float64(v) - mean) * (float64(v) - mean)
			}
		}
		scale := 1 / math.Sqrt(squares*float64(t.Inverse)+float64(t.Eps))
		for block := range t.Blocks {
			y := at(t.Y, block*t.Plane+64*p, 16)
			for i, v := range at(t.X, block*t.Plane+64*p, 16) {
				y[i] = float32(float32((float64(v)-mean)*scale)*w[16*block+i]) + b[16*block+i]
			}
		}
	}
}

// Scales computes what a batch norm does to each channel: scale = w ÷ √(variance + ε), shift = b − mean·scale. It rounds
// once.
func (s *ConvSet) Scales(scale, shift, w, b, mean, variance []float32, eps float64) {
	n := len(scale)
	shift, w, b, mean, variance = shift[:n], w[:n], b[:n], mean[:n], variance[:n]
	from := 0
	if s.scales != nil && n >= s.scaleLanes {
		from = n / s.scaleLanes * s.scaleLanes
		s.scales(n/s.scaleLanes, &scale[0], &shift[0], &w[0], &b[0], &mean[0], &variance[0], eps)
	}
	for i := from; i < n; i++ {
		v := float64(w[i]) / math.Sqrt(float64(variance[i])+eps)
		scale[i], shift[i] = float32(v), float32(float64(b[i])-float64(float64(mean[i])*v))
	}
}
