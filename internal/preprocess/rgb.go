package preprocess

import (
	"image"
	"image/color"
)

// rows returns what reads an image as RGB, as Pillow's convert("RGB") does: alpha is dropped, of 16 bits the upper
// eight remain. Of images that no decoder returns it is nil.
func rows(model color.Model, img image.Image) func(y int, dst []byte) {
	switch m := img.(type) {
	case *image.Gray:
		return grayRows(m)
	case *image.Gray16:
		return gray16Rows(m.Pix, m.Stride, 2)
	case *image.RGBA:
		return packedRows(m.Pix, m.Stride, 4, 1)
	case *image.NRGBA:
		return packedRows(m.Pix, m.Stride, 4, 1)
	case *image.RGBA64:
		return packedRows(m.Pix, m.Stride, 8, 2)
	case *image.NRGBA64:
		if model == color.Gray16Model { // one level of gray is transparent
			return gray16Rows(m.Pix, m.Stride, 8)
		}
		return packedRows(m.Pix, m.Stride, 8, 2)
	case *image.Paletted:
		return palettedRows(m)
	case *image.YCbCr:
		return webpRows(m)
	case *image.NYCbCrA:
		return webpRows(&m.YCbCr)
	}
	return nil
}

func grayRows(m *image.Gray) func(y int, dst []byte) {
	return func(y int, dst []byte) {
		row := m.Pix[y*m.Stride:]
		for i := 0; 3*i < len(dst); i++ {
			v := row[i]
			dst[3*i], dst[3*i+1], dst[3*i+2] = v, v, v
		}
	}
}

// gray16Rows cuts levels off at 255: unlike colours of 16 bits, Pillow does not scale them.
func gray16Rows(pix []byte, stride, pixel int) func(y int, dst []byte) {
	return func(y int, dst []byte) {
		row := pix[y*stride:]
		for i := 0; 3*i < len(dst); i++ {
			v := row[pixel*i+1]
			if row[pixel*i] > 0 {
				v = 255
			}
			dst[3*i], dst[3*i+1], dst[3*i+2] = v, v, v
		}
	}
}

// packedRows reads pixels of some bytes, with the first byte of a sample every step bytes.
func packedRows(pix []byte, stride, pixel, step int) func(y int, dst []byte) {
	return func(y int, dst []byte) {
		row := pix[y*stride:]
		for i := 0; 3*i < len(dst); i++ {
			p := row[i*pixel:][:2*step+1]
			dst[3*i], dst[3*i+1], dst[3*i+2] = p[0], p[step], p[2*step]
		}
	}
}

func palettedRows(m *image.Paletted) func(y int, dst []byte) {
	var palette [256][3]byte
	for i, c := range m.Palette {
		switch c := c.(type) {
		case color.RGBA:
			palette[i] = [3]byte{c.R, c.G, c.B}
		case color.NRGBA:
			palette[i] = [3]byte{c.R, c.G, c.B}
		}
	}
	return func(y int, dst []byte) {
		row := m.Pix[y*m.Stride:]
		for i := 0; 3*i < len(dst); i++ {
			copy(dst[3*i:3*i+3], palette[row[i]][:])
		}
	}
}
