package preprocess

import "image"

// A chroma makes rows of colour as wide as the picture from planes that may have fewer columns and rows. What lies
// between samples is interpolated: three parts of the nearer to one of the farther, in each direction.
type chroma struct {
	m             *image.YCbCr
	height, width int // of the planes
	across, down  int // the picture's columns and rows to one of the planes
	sums          []int
	blue, red     []byte
}

func newChroma(m *image.YCbCr) *chroma {
	c := &chroma{m: m, across: 1, down: 1}
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		c.across = 2
	case image.YCbCrSubsampleRatio420:
		c.across, c.down = 2, 2
	case image.YCbCrSubsampleRatio440:
		c.down = 2
	case image.YCbCrSubsampleRatio411:
		c.across = 4
	case image.YCbCrSubsampleRatio410:
		c.across, c.down = 4, 2
	}
	c.height, c.width = (m.Rect.Dy()+c.down-1)/c.down, (m.Rect.Dx()+c.across-1)/c.across
	c.sums = make([]int, c.width)
	c.blue, c.red = make([]byte, c.width*c.across), make([]byte, c.width*c.across)
	return c
}

// lines returns the row of a plane that row y of the picture lies in, and the next nearest.
func (c *chroma) lines(plane []byte, y int) (near, far []byte) {
	n := y / c.down
	f := n
	if c.down == 2 {
		f = min(max(n-1+2*(y%2), 0), c.height-1)
	}
	line := func(i int) []byte { return plane[i*c.m.CStride:][:c.width] }
	return line(n), line(f)
}

// jpegRow reads row y as libjpeg does with "fancy upsampling".
func (c *chroma) jpegRow(dst, plane []byte, y int) {
	near, far := c.lines(plane, y)
	switch {
	case c.across == 1 && c.down == 1:
		copy(dst, near)
	case c.across == 1:
		for i := range near {
			dst[i] = byte((3*int(near[i]) + int(far[i]) + 1 + y%2) >> 2)
		}
	case c.across == 2 && c.width > 2:
		shift, even, odd := 2, 1, 2
		for i := range near {
			c.sums[i] = int(near[i])
		}
		if c.down == 2 {
			shift, even, odd = 4, 8, 7
			for i := range far {
				c.sums[i] = 3*c.sums[i] + int(far[i])
			}
		}
		left := c.sums[0]
		for i, s := range c.sums {
			right := c.sums[min(i+1, len(c.sums)-1)]
			dst[2*i], dst[2*i+1] = byte((3*s+left+even)>>shift), byte((3*s+right+odd)>>shift)
			left = s
		}
	default: // rare ratios and pictures of a few columns: repeated
		for i := range dst {
			dst[i] = near[i/c.across]
		}
	}
}

// jpegRows converts JPEG's colours, which use all levels, as libjpeg does.
func jpegRows(m *image.YCbCr) func(y int, dst []byte) {
	c := newChroma(m)
	const bits = 16
	fixed := func(x float64) int { return int(x*(1<<bits) + 0.5) }
	redOfRed, greenOfRed, greenOfBlue, blueOfBlue := fixed(1.402), fixed(0.71414), fixed(0.34414), fixed(1.772)
	return func(y int, dst []byte) {
		c.jpegRow(c.blue, m.Cb, y)
		c.jpegRow(c.red, m.Cr, y)
		line := m.Y[y*m.YStride:]
		for i := 0; 3*i < len(dst); i++ {
			l, b, r := int(line[i]), int(c.blue[i])-128, int(c.red[i])-128
			dst[3*i] = clip(l + (redOfRed*r+1<<(bits-1))>>bits)
			dst[3*i+1] = clip(l + (1<<(bits-1)-greenOfBlue*b-greenOfRed*r)>>bits)
			dst[3*i+2] = clip(l + (blueOfBlue*b+1<<(bits-1))>>bits)
		}
	}
}

// webpRow reads row y as libwebp does: nine parts of the nearest sample, three of the two beside, one of the farthest,
// rounded in between.
func (c *chroma) webpRow(dst, plane []byte, y int) {
	near, far := c.lines(plane, y)
	edge := func(i int) byte { return byte((3*int(near[i]) + int(far[i]) + 2) >> 2) }
	dst[0] = edge(0)
	for i := range c.width - 1 {
		n, n1, f, f1 := int(near[i]), int(near[i+1]), int(far[i]), int(far[i+1])
		sum := n + n1 + f + f1 + 8
		dst[2*i+1] = byte(((sum+2*(n1+f))>>3 + n) >> 1)
		dst[2*i+2] = byte(((sum+2*(n+f1))>>3 + n1) >> 1)
	}
	dst[2*c.width-1] = edge(c.width - 1)
}

// webpRows converts WebP's colours, which use the levels of video, as libwebp does.
func webpRows(m *image.YCbCr) func(y int, dst []byte) {
	if m.SubsampleRatio != image.YCbCrSubsampleRatio420 {
		return nil
	}
	c := newChroma(m)
	times := func(v byte, weight int) int { return int(v) * weight >> 8 }
	return func(y int, dst []byte) {
		c.webpRow(c.blue, m.Cb, y)
		c.webpRow(c.red, m.Cr, y)
		line := m.Y[y*m.YStride:]
		for i := 0; 3*i < len(dst); i++ {
			l, b, r := times(line[i], 19077), c.blue[i], c.red[i]
			dst[3*i] = clip((l + times(r, 26149) - 14234) >> 6)
			dst[3*i+1] = clip((l - times(b, 6419) - times(r, 13320) + 8708) >> 6)
			dst[3*i+2] = clip((l + times(b, 33050) - 17685) >> 6)
		}
	}
}

func clip(v int) byte { return byte(min(max(v, 0), 255)) }
