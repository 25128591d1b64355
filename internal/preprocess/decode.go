package preprocess

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"

	"golang.org/x/image/webp"

	"github.com/optimem/optimem/internal/preprocess/jpeg"
)

// A Picture is a decoded picture.
type Picture struct {
	Height, Width int

	limits Limits
	// row writes red, green and blue of each pixel of row y to dst.
	row func(y int, dst []byte)
}

// A codec is a format of pictures. JPEG has a decoder of its own, which looks at the limits itself.
type codec struct {
	name   string
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error)
}

var codecs = map[string]codec{
	"jpeg": {name: "JPEG"},
	"png":  {"PNG", png.DecodeConfig, png.Decode},
	"webp": {"WebP", webp.DecodeConfig, webp.Decode},
}

// headBytes is enough of a file to tell its format, and whether a WebP file is animated.
const headBytes = 21

// identify tells the format of a picture by its first bytes, or why it is not decoded.
func identify(head []byte) (codec, error) {
	has := func(prefix string) bool { return bytes.HasPrefix(head, []byte(prefix)) }
	at := func(offset int, text string) bool {
		return len(head) >= offset && bytes.HasPrefix(head[offset:], []byte(text))
	}
	refused := ""
	switch {
	case has("\xff\xd8\xff"):
		return codecs["jpeg"], nil
	case has("\x89PNG\r\n\x1a\n"):
		return codecs["png"], nil
	case has("RIFF") && at(8, "WEBP"):
		const animated = 1 << 1
		if !at(12, "VP8X") || len(head) < headBytes || head[20]&animated == 0 {
			return codecs["webp"], nil
		}
		refused = "an animated WebP file"
	case has("GIF8"):
		refused = "GIF"
	case has("BM"):
		refused = "BMP"
	case has("II*\x00"), has("MM\x00*"):
		refused = "TIFF"
	case at(4, "ftyp"):
		refused = "HEIF or AVIF"
	case has("\x00\x00\x00\x0cjP  "), has("\xff\x0a"), has("\x00\x00\x00\x0cJXL "):
		refused = "JPEG 2000 or JPEG XL"
	default:
		return codec{}, fmt.Errorf("%w: it begins as none of PNG, JPEG and WebP", ErrFormat)
	}
	return codec{}, fmt.Errorf("%w: %s", ErrUnsupported, refused)
}

// maxPictureSide is JPEG's largest; WebP's is less, and PNG's would be 2³¹.
const maxPictureSide = 1 << 16

// Decode reads a picture. What the header announces is held against the limits before anything is decoded.
func Decode(r io.ReadSeeker, limits Limits) (_ *Picture, err error) {
	in := &reader{r: r}
	name := "picture"
	defer func() {
		// The decoders are other people's: one that panics has met a damaged file.
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %s: %v", ErrFormat, name, r)
		}
	}()
	head := make([]byte, headBytes)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	c, err := identify(head[:n])
	if err != nil {
		return nil, err
	}
	name = c.name
	if c.config == nil {
		return decodeJPEG(in, c, limits)
	}
	config, err := again(in, c.config)
	if err != nil {
		return nil, in.explain(c, err)
	}
	if config.Width < 1 || config.Height < 1 {
		return nil, fmt.Errorf("%w: %s of %d × %d pixels", ErrFormat, c.name, config.Height, config.Width)
	}
	need := int64(config.Width) * int64(config.Height) * pixelBytes(config.ColorModel)
	if max(config.Width, config.Height) > maxPictureSide {
		return nil, fmt.Errorf("%w: a %s of %d × %d pixels, where a side has at most %d", ErrLimit, c.name,
			config.Height, config.Width,
			maxPictureSide)
	}
	if need > limits.memoryBytes() {
		return nil, &MemoryError{c.name, config.Height, config.Width, need, limits.memoryBytes()}
	}
	img, err := again(in, c.decode)
	if err != nil {
		return nil, in.explain(c, err)
	}
	// An extended WebP file gives its size twice.
	if b := img.Bounds(); b.Dx() != config.Width || b.Dy() != config.Height {
		return nil, fmt.Errorf("%w: %s: the header says %d × %d pixels, and there are %d × %d",
			ErrFormat, c.name, config.Height, config.Width, b.Dy(), b.Dx())
	}
	p := &Picture{Height: config.Height, Width: config.Width, limits: limits}
	if p.row = rows(config.ColorModel, img); p.row == nil {
		return nil, fmt.Errorf("%w: %s with %T", ErrUnsupported, c.name, img)
	}
	return p, nil
}

func decodeJPEG(in *reader, c codec, limits Limits) (*Picture, error) {
	m, err := again(in, func(r io.Reader) (*jpeg.Image, error) { return jpeg.Decode(r, limits.memoryBytes()) })
	if err != nil {
		return nil, in.explain(c, err)
	}
	return &Picture{Height: m.Height, Width: m.Width, limits: limits, row: m.Row}, nil
}

// pixelBytes is the most that a decoder holds for a pixel.
func pixelBytes(m color.Model) int64 {
	// What the decoder returns; the same again while it puts an interlaced or transformed picture together.
	if m == color.RGBA64Model || m == color.NRGBA64Model {
		return 2 * 8
	}
	return 2 * 4
}

func again[T any](in *reader, read func(io.Reader) (T, error)) (T, error) {
	if _, err := in.r.Seek(0, io.SeekStart); err != nil {
		var none T
		return none, err
	}
	return read(in)
}

// A reader remembers that reading failed, which is not the picture's fault.
type reader struct {
	r   io.ReadSeeker
	err error
}

func (in *reader) Read(p []byte) (int, error) {
	n, err := in.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		in.err = err
	}
	return n, err
}

// explain gives an error of a decoder its class.
func (in *reader) explain(c codec, err error) error {
	var (
		jpegLacks jpeg.UnsupportedError
		pngLacks  png.UnsupportedError
		large     jpeg.LimitError
	)
	switch {
	case in.err != nil:
		return in.err
	case errors.As(err, &jpegLacks), errors.As(err, &pngLacks):
		return fmt.Errorf("%w: %s: %w", ErrUnsupported, c.name, err)
	case errors.As(err, &large):
		return fmt.Errorf("%w: %s: %w", ErrLimit, c.name, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %s: it ends too early", ErrFormat, c.name)
	}
	return fmt.Errorf("%w: %s: %w", ErrFormat, c.name, err)
}
