package preprocess

import "image"

// A chroma makes rows of colour as wide as the picture from planes that have half as many columns and rows.
type chroma struct {
	m             *image.YCbCr
	height, width int // of the planes
	blue, red     []byte
}

func newChroma(m *image.YCbCr) *chroma {
	c := &chroma{m: m, height: (m.Rect.Dy() + 1) / 2, width: (m.Rect.Dx() + 1) / 2}
	c.blue, c.red = make([]byte, 2*c.width), make([]byte, 2*c.width)
	return c
}

// lines returns the row of a plane that row y of the picture lies in, and the next nearest.
func (c *chroma) lines(plane []byte, y int) (near, far []byte) {
	line := func(i int) []byte { return plane[i*c.m.CStride:][:c.width] }
	return line(y / 2), line(min(max(y/2-1+2*(y%2), 0), c.height-1))
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
