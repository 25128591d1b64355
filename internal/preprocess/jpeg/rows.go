package jpeg

// An upsampling makes rows as wide as the picture of a component that has fewer samples.
type upsampling struct {
	across, down int // pixels to a sample
	smooth       bool
}

// chooseUpsampling does as libjpeg-turbo: it interpolates where there are half as many samples in one direction or
// both, but not if only columns are halved to two or fewer; otherwise samples are repeated.
func (c *component) chooseUpsampling(maxAcross, maxDown int) error {
	if maxAcross%c.across != 0 || maxDown%c.down != 0 {
		return UnsupportedError("components whose samplings do not divide each other")
	}
	u := upsampling{across: maxAcross / c.across, down: maxDown / c.down}
	switch {
	case u.across == 2 && u.down <= 2:
		u.smooth = c.width > 2
	case u.across == 1 && u.down == 2:
		u.smooth = true
	}
	c.upsampling = u
	return nil
}

// upsampledWidth is how long rows get that are made for a picture of so many columns.
func (c *component) upsampledWidth(width int) int { return max(width, c.width*c.upsampling.across) }

func (c *component) line(y int) []byte { return c.samples[y*c.stride():][:c.width] }

// line returns row y of component i, as wide as the picture or wider.
func (m *Image) line(i, y int) []byte {
	c := &m.components[i]
	u := c.upsampling
	near := c.line(y / u.down)
	if u.across == 1 && u.down == 1 {
		return near
	}
	dst := m.rows[i]
	if !u.smooth {
		if u.across == 1 {
			return near
		}
		for x := range m.Width {
			dst[x] = near[x/u.across]
		}
		return dst
	}
	if u.down == 1 {
		widen(dst, near)
		return dst
	}
	// Three parts of the row that y lies in, one of the next nearest.
	far := c.line(min(max(y/2-1+2*(y%2), 0), c.height-1))[:len(near)]
	if u.across == 1 {
		round := 1 + int32(y%2)
		for x, v := range near {
			dst[x] = byte((3*int32(v) + int32(far[x]) + round) >> 2)
		}
		return dst
	}
	sums := m.sums[:len(near)]
	for x, v := range near {
		sums[x] = 3*int32(v) + int32(far[x])
	}
	widenSums(dst, sums)
	return dst
}

// widen doubles a row: three parts of the nearer sample, one of the farther. What is just between is rounded down and up
// in turn.
func widen(dst, samples []byte) {
	left := int32(samples[0])
	v := left
	last := len(samples) - 1
	dst = dst[:2*len(samples)]
	for x, next := range samples[1:] {
		right := int32(next)
		dst[2*x], dst[2*x+1] = byte((3*v+left+1)>>2), byte((3*v+right+2)>>2)
		left, v = v, right
	}
	dst[2*last], dst[2*last+1] = byte((3*v+left+1)>>2), byte(v)
}

// widenSums does so with sums of two rows, four parts of each.
func widenSums(dst []byte, sums []int32) {
	left := sums[0]
	v := left
	last := len(sums) - 1
	dst = dst[:2*len(sums)]
	for x, right := range sums[1:] {
		dst[2*x], dst[2*x+1] = byte((3*v+left+8)>>4), byte((3*v+right+7)>>4)
		left, v = v, right
	}
	dst[2*last], dst[2*last+1] = byte((3*v+left+8)>>4), byte((4*v+7)>>4)
}

// colours says what the components are.
type colours int

const (
	gray colours = iota
	rgb
	ycc // luminance, and how much bluer and redder
	inks
	yccInks
)

// chooseColours guesses as libjpeg does.
func (d *decoder) chooseColours() {
	m := &d.image
	switch len(m.components) {
	case 1:
		m.colours = gray
	case 3:
		m.colours = ycc
		ids := [3]byte{m.components[0].id, m.components[1].id, m.components[2].id}
		if !d.jfif && (d.adobe && d.transform == 0 || !d.adobe && ids == [3]byte{'R', 'G', 'B'}) {
			m.colours = rgb
		}
	case 4:
		m.colours = inks
		if d.adobe && d.transform != 0 {
			m.colours = yccInks
		}
	}
}

// Row writes red, green and blue of each pixel of row y to dst.
func (m *Image) Row(y int, dst []byte) {
	dst = dst[:3*m.Width]
	var lines [4][]byte
	for i := range m.components {
		lines[i] = m.line(i, y)[:m.Width]
	}
	a, b, c, k := lines[0], lines[1], lines[2], lines[3]
	switch m.colours {
	case gray:
		for x, v := range a {
			p := dst[3*x:][:3]
			p[0], p[1], p[2] = v, v, v
		}
	case rgb:
		for x, v := range a {
			p := dst[3*x:][:3]
			p[0], p[1], p[2] = v, b[x], c[x]
		}
	case ycc:
		mixRow(dst, a, b, c)
	case inks:
		for x, v := range a {
			p := dst[3*x:][:3]
			p[0], p[1], p[2] = 255-v, 255-b[x], 255-c[x]
		}
		printRow(dst, k)
	case yccInks:
		mixRow(dst, a, b, c)
		printRow(dst, k)
	}
}

// The weights of colours, with 16 bits behind the point.
const (
	weightBits  = 16
	redOfRed    = 91881  // 1.402
	greenOfBlue = 22554  // 0.34414
	greenOfRed  = 46802  // 0.71414
	blueOfBlue  = 116130 // 1.772
)

// mixRow makes red, green and blue of luminance and chroma.
func mixRow(dst, luma, blue, red []byte) {
	const half = 1 << (weightBits - 1)
	blue, red = blue[:len(luma)], red[:len(luma)]
	for x, v := range luma {
		p := dst[3*x:][:3]
		l, b, r := int32(v), int32(blue[x])-128, int32(red[x])-128
		p[0] = clip(l + (redOfRed*r+half)>>weightBits)
		p[1] = clip(l + (half-greenOfBlue*b-greenOfRed*r)>>weightBits)
		p[2] = clip(l + (blueOfBlue*b+half)>>weightBits)
	}
}

func clip(v int32) byte {
	if uint32(v) > 255 {
		v = ^(v >> 31)
	}
	return byte(v)
}

// printRow makes colours of inks: what an ink leaves of the light that black leaves. Files have the complement of black,
// so as Adobe's do, and Pillow supposes that of all.
func printRow(inks, light []byte) {
	for x, v := range light {
		p := inks[3*x:][:3]
		l := int32(v)
		for i, ink := range p {
			// The product over 255, rounded.
			t := int32(ink)*l + 128
			p[i] = byte(max(l-(t>>8+t)>>8, 0))
		}
	}
}
