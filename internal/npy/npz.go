package npy

import (
	"archive/zip"
	"fmt"
	"io"
	"strings"
)

// maxArrays bounds the arrays of one .npz file.
const maxArrays = 10_000

// An Archive is an .npz file.
type Archive struct {
	// Names are those of the arrays, in the order of the file.
	Names []string
	files map[string]*zip.File
}

// OpenArchive lists an .npz file.
func OpenArchive(r io.ReaderAt, sizeBytes int64) (*Archive, error) {
	z, err := zip.NewReader(r, sizeBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if len(z.File) > maxArrays {
		return nil, fmt.Errorf("%w: %d arrays", ErrUnsupported, len(z.File))
	}
	a := &Archive{files: make(map[string]*zip.File)}
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, ".npy")
		if !ok {
			return nil, fmt.Errorf("%w: %s is not an array", ErrFormat, excerpt(f.Name))
		}
		if a.files[name] != nil {
			return nil, fmt.Errorf("%w: two arrays are called %s", ErrFormat, excerpt(name))
		}
		a.files[name] = f
		a.Names = append(a.Names, name)
	}
	return a, nil
}

// Open reads the header of an array. The caller closes the array's file after reading it.
func (a *Archive) Open(name string) (*Array, io.Closer, error) {
	f, ok := a.files[name]
	if !ok {
		return nil, nil, fmt.Errorf("no array is called %q", name)
	}
	r, err := f.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if f.UncompressedSize64 > 1<<62 {
		r.Close()
		return nil, nil, fmt.Errorf("%w: %d bytes", ErrFormat, f.UncompressedSize64)
	}
	array, err := Open(zipped{r}, int64(f.UncompressedSize64))
	if err != nil {
		r.Close()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return array, r, nil
}

// zipped says of what does not decompress, or has the wrong checksum, what class of error that is.
type zipped struct{ r io.Reader }

func (z zipped) Read(p []byte) (int, error) {
	n, err := z.r.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return n, err
}
