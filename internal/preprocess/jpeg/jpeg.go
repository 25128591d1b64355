// Package jpeg decodes JPEG pictures to exactly the pixels of libjpeg-turbo with its defaults, and therefore of Pillow.
//
// The standard leaves three things to a decoder: the rounding of the inverse cosine transform, the interpolation of
// subsampled colours, and the colour conversion. This package follows libjpeg-turbo on x86-64: the integer transform
// with 13-bit constants, fancy upsampling, and 16-bit fixed-point colours. CMYK and YCCK become RGB as in Pillow's
// convert("RGB").
//
// It supports baseline, extended and progressive pictures, Huffman coded, 8 bits, with 1, 3 or 4 components, any
// sampling that divides evenly, and restart intervals. It refuses arithmetic coding, lossless and 12-bit pictures, and
// progressive pictures that end before the low frequencies are complete, which libjpeg would smooth. Missing or corrupt
// scan data is an error; libjpeg would go on with gray. EXIF orientations and colour profiles are not applied.
//
//	m, err := jpeg.Decode(file, 1<<30)
//	row := make([]byte, 3*m.Width)
//	for y := range m.Height {
//		m.Row(y, row)
//	}
package jpeg

import (
	"fmt"
	"io"
)

// A FormatError says why a file is no valid JPEG.
type FormatError string

func (e FormatError) Error() string { return string(e) }

// An UnsupportedError names a feature of JPEG that is not decoded.
type UnsupportedError string

func (e UnsupportedError) Error() string { return string(e) }

// A LimitError says what would cost too much.
type LimitError string

func (e LimitError) Error() string { return string(e) }

// An Image is a decoded picture. Its samples are kept as they were coded; Row makes colours of them, and uses memory of
// the Image's for that, so that only one goroutine may call it at a time.
type Image struct {
	Height, Width int

	colours    colours
	components []component
	rows       [][]byte // of each component, as wide as the picture
	sums       []int32
}

// A component is a plane of samples.
type component struct {
	id            byte
	across, down  int // sampling factors
	table         int // of quantisation
	quant         *[64]uint16
	width, height int // in samples, without what fills blocks
	blocks, lines int // blocks in a row of an MCU row's width, and rows of blocks
	upsampling    upsampling

	samples []byte  // lines × 8 rows of blocks × 8
	coefs   []block // if there are several scans
	exact   [64]int // of a progressive picture: bits of a coefficient yet to come, or unseen
}

// unseen marks coefficients that no scan has had yet.
const unseen = -1

// maxScans is far more than encoders write. Each scan goes through all blocks, however few bytes it has.
const maxScans = 100

// Decode reads a picture. Samples and coefficients take no more than limitBytes; buffers, tables and lines of pixels come
// to less than a megabyte.
func Decode(r io.Reader, limitBytes int64) (*Image, error) {
	d := decoder{in: newSource(r), limitBytes: limitBytes}
	if err := d.decode(); err != nil {
		return nil, err
	}
	return &d.image, nil
}

// A decoder is what the segments of a file have said so far.
type decoder struct {
	in         *source
	limitBytes int64

	image       Image
	progressive bool
	mcusAcross  int
	mcusDown    int
	scans       int

	quants   [4]*[64]uint16
	huffman  [2][4]*table // for the first coefficient, for the others
	restarts int          // MCUs between restarts; 0: none
	jfif     bool
	adobe    bool
	// transform is what Adobe's segment says of the colours.
	transform byte
}

func (d *decoder) decode() error {
	if first, err := d.in.byte(); err != nil || first != 0xff {
		return orFormat(err, "it does not begin with an SOI marker")
	}
	if second, err := d.in.byte(); err != nil || second != mSOI {
		return orFormat(err, "it does not begin with an SOI marker")
	}
	for {
		marker, err := d.in.marker()
		if err != nil {
			return err
		}
		if marker == mEOI {
			break
		}
		if err := d.segment(marker); err != nil {
			return err
		}
	}
	return d.finish()
}

func orFormat(err error, text string) error {
	if err != nil {
		return err
	}
	return FormatError(text)
}

// finish makes samples of the coefficients, and checks that there are all.
func (d *decoder) finish() error {
	if d.image.components == nil || d.scans == 0 {
		return FormatError("there is no picture in it")
	}
	m := &d.image
	for i := range m.components {
		c := &m.components[i]
		if c.quant == nil {
			return FormatError(fmt.Sprintf("component %d has no scan", i))
		}
		if d.progressive {
			if err := c.checkExact(); err != nil {
				return err
			}
		}
		for j := range c.coefs {
			b := &c.coefs[j]
			transform(b, b.mask(), c.quant, c.at(j%c.blocks, j/c.blocks), c.stride())
		}
		c.coefs = nil
		m.rows = append(m.rows, make([]byte, c.upsampledWidth(m.Width)))
	}
	m.sums = make([]int32, m.Width+1)
	return nil
}

// checkExact looks for what would make libjpeg smooth a picture: its nine lowest frequencies are not complete.
func (c *component) checkExact() error {
	if c.exact[0] == unseen {
		return FormatError("a component lacks its first coefficients")
	}
	for _, bits := range c.exact[1:10] {
		if bits != 0 {
			return UnsupportedError("a progressive picture that lacks scans")
		}
	}
	return nil
}

func (c *component) stride() int { return 8 * c.blocks }

// at returns the samples from a block's first on.
func (c *component) at(x, y int) []byte { return c.samples[8*(y*c.stride()+x):] }
