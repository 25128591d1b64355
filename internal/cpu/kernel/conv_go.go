package kernel

import "unsafe"

// convGo is the kernels in Go, for processors and builds without assembly.
var convGo = func() *ConvSet {
	s := &ConvSet{Name: "go", Pixels: 4, Columns: 16, hardSwish: true}
	for pixels := range s.Pixels {
		s.depthwise = append(s.depthwise, func(t *byte) { depthwiseTiles((*ConvTile)(unsafe.Pointer(t)), pixels+1) })
		s.largest = append(s.largest, func(t *byte) { poolTiles((*ConvTile)(unsafe.Pointer(t)), pixels+1, true) })
		s.mean = append(s.mean, func(t *byte) { poolTiles((*ConvTile)(unsafe.Pointer(t)), pixels+1, false) })
		s.wide = append(s.wide, func(t *byte) { convTile((*ConvTile)(unsafe.Pointer(t)), pixels+1, false) })
		s.pairs = append(s.pairs, func(t *byte) { convTile((*ConvTile)(unsafe.Pointer(t)), pixels+1, true) })
	}
	s.narrow = s.wide
	s.pairHalves = func(count int, x, y *float32) {
		for i, v := range unsafe.Slice(x, 16*count) {
			at(y, 4*(i/16*16+i%8*2+i/8%2), 1)[0] = v
		}
	}
	s.norm = func(t *byte) { normTile((*NormTile)(unsafe.Pointer(t))) }
	s.sumWide = func(count int, x *float32, sums *float64) {
		to := unsafe.Slice(sums, 16)
		for i, v := range unsafe.Slice(x, 16*count) {
			to[i%16] += float64(v)
		}
	}
	for i, m := range []int{2, 4} {
		s.winogradIn[i] = func(t *byte) {
			winogradTiles(m+2, m+2, winogradInput, false, (*WinogradTile)(unsafe.Pointer(t)))
		}
		s.winogradOut[i] = func(t *byte) {
			winogradTiles(m+2, m, winogradOutput, true, (*WinogradTile)(unsafe.Pointer(t)))
		}
		s.winogradLine[i] = func(t *byte) { winogradLines(m, (*WinogradTile)(unsafe.Pointer(t))) }
		s.winogradWeights[i] = func(t *byte) {
			winogradTiles(3, m+2, winogradWeights, false, (*WinogradTile)(unsafe.Pointer(t)))
		}
	}
	return s
}()

// at returns n floats that begin a number of bytes behind a pointer.
func at(p *float32, bytes, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(p), bytes)), n)
}

// convTile computes a tile of sixteen channels, or of two halves with inputs of their own, all of which lie in pairs.
func convTile(t *ConvTile, pixels int, pairs bool) {
	depth := 4*t.Quads + t.Singles
	inputs := depth
	if pairs {
		inputs = 2 * depth
	}
	offsets := unsafe.Slice(t.Offsets, t.Steps)
	for p := range pixels {
		var sum [16]float32
		for step, offset := range offsets {
			x := at(t.X, offset+p*t.XPixel, inputs)
			w := at(t.W, step*depth*64, depth*16)
			for k := range depth {
				for o, u := range w[16*k : 16*k+16] {
					if pairs {
						sum[o%2*8+o/2] += x[2*k+o%2] * u
					} else {
						sum[o] += x[k] * u
					}
				}
			}
		}
		y := at(t.Y, p*t.YPixel, 16)
		if t.Flags&ConvAdd != 0 {
			for o := range sum {
				sum[o] += y[o]
			}
		}
		if t.Flags&ConvFinish != 0 {
			t.finish(p, &sum)
		}
		copy(y, sum[:])
	}
}

// depthwiseTiles computes rows of tiles of a block.
func depthwiseTiles(t *ConvTile, pixels int) {
	offsets := unsafe.Slice(t.Offsets, t.Steps)
	for row := range t.Rows {
		for p := range t.Tiles * pixels {
			var sum [16]float32
			for step, offset := range offsets {
				w := at(t.W, 64*step, 16)
				for o, v := range at(t.X, row*t.XRow+offset+p*t.XPixel, 16) {
					sum[o] += v * w[o]
				}
			}
			if t.Flags&ConvFinish != 0 {
				finish := *t
				if t.Flags&ConvResidual != 0 {
					finish.Residual = &at(t.Residual, row*t.YRow, 1)[0]
				}
				finish.finish(p, &sum)
			}
			copy(at(t.Y, row*t.YRow+p*t.YPixel, 16), sum[:])
		}
	}
}

// poolTiles computes rows of tiles of the largest elements, or of means.
func poolTiles(t *ConvTile, pixels int, largest bool) {
	offsets := unsafe.Slice(t.Offsets, t.Steps)
	for row := range t.Rows {
		for p := range t.Tiles * pixels {
			var to [16]float32
			if largest {
				for o := range to {
					to[o] = t.Low
				}
			}
			for _, offset := range offsets {
				for o, v := range at(t.X, row*t.XRow+offset+p*t.XPixel, 16) {
					switch {
					case !largest:
						to[o] += v
					case v > to[o] || v != v:
						to[o] = v
					}
				}
			}
			if !largest {
				for o := range to {
					to[o] /= t.High
				}
			}
			copy(at(t.Y, row*t.YRow+p*t.YPixel, 16), to[:])
		}
	}
}

// finish does what follows the sums of a pixel.
func (t *ConvTile) finish(p int, sum *[16]float32) {
	scale, shift := at(t.Scale, 0, 16), at(t.Shift, 0, 16)
	for o := range sum {
		sum[o] = sum[o]*scale[o] + shift[o]
	}
	if t.Flags&ConvResidual != 0 {
		for o, r := range at(t.Residual, p*t.YPixel, 16) {
			sum[o] += r
		}
	}
	if t.Flags&ConvLimit != 0 {
		for o, v := range sum {
			if v < t.Low {
				v = t.Low
			}
			if v > t.High {
				v = t.High
			}
			sum[o] = v
		}
	}
	if t.Flags&ConvHardSwish != 0 {
		for o, v := range sum {
			sum[o] = v * min(max(v+3, 0), 6) / 6
		}
	}
	if t.Flags&ConvClear != 0 {
		for o, m := range unsafe.Slice(t.Mask, 16) {
			if m == 0 {
				sum[o] = 0
			}
		}
	}
}
