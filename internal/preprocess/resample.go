package preprocess

import (
	"context"
	"math"
)

// A filter is a curve that pixels are weighed by.
type filter int

const (
	bilinear filter = iota
	bicubic
	lanczos
)

// reach is how far from its middle the curve is not zero.
func (f filter) reach() float64 {
	switch f {
	case bicubic:
		return 2
	case lanczos:
		return 3
	}
	return 1
}

// at is the height of the curve. The bicubic one is Keys' with a = -1/2.
func (f filter) at(x float64) float64 {
	x = math.Abs(x)
	switch {
	case f == lanczos && x < 3:
		return sinc(x) * sinc(x/3)
	case f == lanczos:
		return 0
	case f == bilinear && x < 1:
		return 1 - x
	case f == bilinear:
		return 0
	case x < 1:
		return float64(float64((float64(1.5*x)-2.5)*x)*x) + 1
	case x < 2:
		return float64((float64(float64(float64(x-5)*x)+8)*x)-4) * -0.5
	}
	return 0
}

// sinc is sin(πx)/πx.
func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// weightBits is the number of bits behind the point of a weight: 32, less 8 of a grey level, less 2 of headroom.
const weightBits = 32 - 8 - 2

// A window is the pixels that one resized pixel is made of: from first on, times the weights.
type window struct {
	first   int
	weights []int32
}

// windows returns the window of each pixel that an extent keeps, with weights rounded as Pillow's.
func (f filter) windows(e extent) []window {
	all := make([]window, e.length)
	for i := range all {
		c := f.curve(e, i)
		weights := make([]int32, len(c.weights))
		for k, w := range c.weights {
			weights[k] = int32(math.Copysign(0.5, w) + float64(w*(1<<weightBits)))
		}
		all[i] = window{c.first, weights}
	}
	return all
}

// curves returns the window of each pixel that an extent keeps.
func (f filter) curves(e extent) []curve {
	all := make([]curve, e.length)
	for i := range all {
		all[i] = f.curve(e, i)
	}
	return all
}

// curve returns the window of a pixel. A picture that shrinks is filtered with the curve stretched accordingly, as
// Pillow does and torchvision's antialias=True. Conversions to float64 keep products from being fused with sums, which
// would round otherwise than Pillow.
func (f filter) curve(e extent, i int) curve {
	scale := float64(e.size) / float64(e.resized)
	stretch := max(scale, 1)
	reach := float64(f.reach() * stretch)
	center := float64((float64(i+e.offset) + 0.5) * scale)
	first := max(int(center-reach+0.5), 0)
	last := min(int(center+reach+0.5), e.size)
	exact := make([]float64, last-first)
	sum := 0.0
	for k := range exact {
		exact[k] = f.at(float64((float64(k+first) - center + 0.5) * (1 / stretch)))
		sum += exact[k]
	}
	for k := range exact {
		if sum != 0 {
			exact[k] /= sum
		}
	}
	return curve{first, exact}
}

// level rounds a weighed sum to a grey level.
func level(sum int32) byte { return byte(min(max(sum>>weightBits, 0), 255)) }

const half = 1 << (weightBits - 1)

// rowsFirst reports whether rows are resized before columns. Pillow did columns first up to version 12; since then it
// begins with rows where that leaves less to do. A grey level between the two directions is rounded, so that the order
// may show in the last bit.
func (g geometry) rowsFirst() bool {
	fewer := g.rows.size - g.rows.resized
	return fewer > 0 && fewer > 2*(g.columns.size-g.columns.resized)
}

// levels returns the picture resized and cropped: red, green and blue of each pixel, row after row.
//
// A row of the original adds to the sums of all rows that need it, so that only one of them is held at a time.
func (s Spec) levels(ctx context.Context, p *Picture, g geometry) ([]byte, error) {
	height, width := g.rows.length, 3*g.columns.length
	across, down := s.filter.windows(g.columns), s.filter.windows(g.rows)
	narrow := func(dst, src []byte) {
		if g.columns.size == g.columns.resized {
			copy(dst, src[3*g.columns.offset:])
		} else {
			resizeRow(dst, src, across)
		}
	}
	sumWidth := width
	rowsFirst := g.rowsFirst()
	if rowsFirst {
		sumWidth = 3 * p.Width
	}
	out := make([]byte, height*width)
	original := make([]byte, 3*p.Width)
	if g.rows.size == g.rows.resized {
		for y := range height {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p.row(g.rows.offset+y, original)
			narrow(out[y*width:][:width], original)
		}
		return out, nil
	}
	sums := make([]int32, height*sumWidth)
	for i := range sums {
		sums[i] = half
	}
	line := make([]byte, sumWidth)
	done := 0 // rows that are finished
	for y := down[0].first; done < height; y++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.row(y, original)
		row := original
		if !rowsFirst {
			row = line
			narrow(row, original)
		}
		for i := done; i < height && down[i].first <= y; i++ {
			if w := down[i]; y-w.first < len(w.weights) {
				weigh(sums[i*sumWidth:][:sumWidth], row, w.weights[y-w.first])
			}
		}
		for ; done < height && y+1 >= down[done].first+len(down[done].weights); done++ {
			for i, sum := range sums[done*sumWidth:][:sumWidth] {
				line[i] = level(sum)
			}
			if rowsFirst {
				narrow(out[done*width:][:width], line)
			} else {
				copy(out[done*width:][:width], line)
			}
		}
	}
	return out, nil
}

// resizeBytes is the most memory that levels takes, or applyEarly.
func (s Spec) resizeBytes(p *Picture, g geometry) float64 {
	height, width, sumBytes := float64(g.rows.length), 3*float64(g.columns.length), 4.0
	if s.early {
		sumBytes = 8
	}
	sumWidth := width
	if g.rowsFirst() {
		sumWidth = 3 * float64(p.Width)
	}
	const weightBytes = 4 * 2 * 6 // bytes of a weight × pixels in reach of Lanczos' curve, with room to spare
	return height*width + sumBytes*height*sumWidth +
		weightBytes*(float64(p.Width)+float64(p.Height)+width+height)
}

func resizeRow(dst, src []byte, windows []window) {
	for i, w := range windows {
		var r, g, b int32 = half, half, half
		pixels := src[3*w.first:][:3*len(w.weights)]
		for k, weight := range w.weights {
			pixel := pixels[3*k:][:3]
			r += int32(pixel[0]) * weight
			g += int32(pixel[1]) * weight
			b += int32(pixel[2]) * weight
		}
		dst[3*i], dst[3*i+1], dst[3*i+2] = level(r), level(g), level(b)
	}
}

func weigh(sums []int32, row []byte, weight int32) {
	for i, v := range row {
		sums[i] += int32(v) * weight
	}
}

// applyEarly is Apply for numbers that are resized: levels become numbers first, as DINOv3's processor has it. They are
// summed in float64, where torchvision sums float32.
func (s Spec) applyEarly(ctx context.Context, p *Picture, g geometry, dst []float32) error {
	height, width := g.rows.length, 3*g.columns.length
	across, down := s.filter.curves(g.columns), s.filter.curves(g.rows)
	sums := make([]float64, height*width)
	original, line := make([]byte, 3*p.Width), make([]float64, width)
	for y, done := down[0].first, 0; done < height; y++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.row(y, original)
		for i, w := range across {
			var sum [3]float64
			for k, weight := range w.weights {
				for c := range sum {
					sum[c] += weight * float64(original[3*(w.first+k)+c])
				}
			}
			copy(line[3*i:], sum[:])
		}
		for i := done; i < height && down[i].first <= y; i++ {
			if w := down[i]; y-w.first < len(w.weights) {
				weight := w.weights[y-w.first]
				for k, v := range line {
					sums[i*width+k] += weight * v
				}
			}
		}
		for done < height && y+1 >= down[done].first+len(down[done].weights) {
			done++
		}
	}
	n := height * width / 3
	for c := range 3 {
		for i := range n {
			v := float32(sums[3*i+c] * s.factor)
			if s.scaled {
				v = (v - s.mean[c]) / s.deviation[c]
			}
			dst[c*n+i] = v
		}
	}
	return nil
}

// A curve is a window with weights that are not rounded.
type curve struct {
	first   int
	weights []float64
}
