// Package preprocess turns a picture into a model's input: a PNG, JPEG or WebP is decoded to RGB, resized,
// centre-cropped and normalised, with exactly the values of Pillow and torchvision.
//
// Conversion follows Pillow's convert("RGB"): alpha is dropped, not blended, and the EXIF orientation is not applied,
// as in torchvision's loader. Resizing has Pillow's antialiasing and its rounding to eight bits after each direction.
// Pixels equal Pillow's, and values equal torchvision's bit for bit. A damaged file, of which Pillow may decode a part,
// is an error. The package does not know models, files or tensors; the specification says which numbers a model was
// trained with.
//
//	spec, err := preprocess.Parse("imagenet")
//	picture, err := preprocess.Decode(file, preprocess.Limits{})
//	height, width, err := spec.Size(picture.Height, picture.Width)
//	err = spec.Apply(ctx, picture, values)   // 3 × height × width
package preprocess

import (
	"context"
	"errors"
	"fmt"
	"math"
)

var (
	// ErrFormat: the bytes are no picture, or a damaged one.
	ErrFormat = errors.New("not a valid picture")
	// ErrUnsupported: a picture of a kind that is not decoded.
	ErrUnsupported = errors.New("unsupported picture")
	// ErrLimit: decoding or resizing would take more memory than is allowed.
	ErrLimit = errors.New("picture exceeds the limit")
	// ErrSize: the crop does not lie in the resized picture.
	ErrSize = errors.New("picture does not fit")
)

// A MemoryError is an [ErrLimit] that says what decoding would take.
type MemoryError struct {
	format        string
	height, width int
	// NeedBytes is what it may take, AllowedBytes what it may.
	NeedBytes, AllowedBytes int64
}

// Error says how large the picture is.
func (e *MemoryError) Error() string {
	return fmt.Sprintf("%v: a %s of %d × %d pixels may take %d bytes to decode, and %d are allowed",
		ErrLimit, e.format, e.height, e.width, e.NeedBytes, e.AllowedBytes)
}

// Unwrap returns [ErrLimit].
func (e *MemoryError) Unwrap() error { return ErrLimit }

// Limits bound what a picture may cost. The zero value means the defaults.
type Limits struct {
	// MemoryBytes bounds what decoding may take, judged by the picture's header, and what resizing may: 1 GiB if 0.
	MemoryBytes int64
}

func (l Limits) memoryBytes() int64 {
	if l.MemoryBytes == 0 {
		return 1 << 30
	}
	return l.MemoryBytes
}

// Size returns the size that a picture of the given size gets.
func (s Spec) Size(height, width int) (outHeight, outWidth int, err error) {
	g, err := s.geometry(height, width)
	return g.rows.length, g.columns.length, err
}

// Apply writes the picture, prepared, to dst: the red plane, the green, the blue, each of Size's height × width.
func (s Spec) Apply(ctx context.Context, p *Picture, dst []float32) error {
	g, err := s.geometry(p.Height, p.Width)
	if err != nil {
		return err
	}
	if need := s.resizeBytes(p, g); need > float64(p.limits.memoryBytes()) {
		return fmt.Errorf("%w: to make %d × %d pixels of %d × %d takes %.0f bytes",
			ErrLimit, g.rows.length, g.columns.length, p.Height, p.Width, need)
	}
	n := g.rows.length * g.columns.length
	if len(dst) != 3*n {
		return fmt.Errorf("BUG: %d values for a picture of 3 × %d × %d", len(dst), g.rows.length, g.columns.length)
	}
	if s.early {
		return s.applyEarly(ctx, p, g, dst)
	}
	levels, err := s.levels(ctx, p, g)
	if err != nil {
		return err
	}
	for c := range 3 {
		plane, mean, deviation := dst[c*n:][:n], s.mean[c], s.deviation[c]
		for i := range plane {
			// torchvision rounds to float32 after each step, and so do Hugging Face's processors.
			v := float32(levels[3*i+c])
			switch {
			case s.raw:
			case s.factor > 0: // NumPy multiplies as float64
				v = float32(float64(v) * s.factor)
			default:
				v /= 255
			}
			if s.scaled {
				v = float32(v-mean) / deviation
			}
			plane[i] = v
		}
	}
	return nil
}

// A geometry says where the prepared picture lies in the resized one, and that in the original.
type geometry struct{ rows, columns extent }

// An extent is one direction of a geometry: of size, resized to resized, length are kept from offset on.
type extent struct{ size, resized, offset, length int }

// maxSide bounds the sides of resized pictures, so that sizes may be multiplied.
const maxSide = 1 << 31

func (s Spec) geometry(height, width int) (geometry, error) {
	g := geometry{
		rows:    extent{size: height, resized: height},
		columns: extent{size: width, resized: width},
	}
	switch {
	case s.side > 0:
		// The longer side is cut to an integer, as int(size * long / short) is in Python.
		short, long := &g.columns, &g.rows
		if height < width {
			short, long = long, short
		}
		short.resized = s.side
		exact := math.Trunc(float64(s.side) * float64(long.size) / float64(short.size))
		if exact > maxSide {
			return geometry{}, fmt.Errorf("%w: %d × %d resized would be %.0f long", ErrLimit, height, width, exact)
		}
		long.resized = int(exact)
	case s.height > 0:
		g.rows.resized, g.columns.resized = s.height, s.width
	}
	for _, e := range []*extent{&g.rows, &g.columns} {
		e.length = e.resized
		if s.crop == 0 {
			continue
		}
		if s.crop > e.resized {
			return geometry{}, fmt.Errorf("%w: %d × %d resized is %d × %d, smaller than the crop of %d",
				ErrSize, height, width, g.rows.resized, g.columns.resized, s.crop)
		}
		e.length = s.crop
		if e.offset = (e.resized - s.crop) / 2; !s.floored {
			e.offset = int(math.RoundToEven(float64(e.resized-s.crop) / 2))
		}
	}
	return g, nil
}
