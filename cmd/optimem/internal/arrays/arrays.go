// Package arrays reads and writes files of tensors: NumPy's, safetensors and JSON.
//
//	f, err := arrays.OpenNPZ("inputs.npz") // defer f.Close()
//	t, err := f.Read(ctx, "x", alloc, check)
//
// It does not know models, nor which tensor is for which input.
package arrays

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/tensor"
)

// A File is an open file of tensors.
type File struct {
	// Path is as it was opened.
	Path string
	// Names are those of the tensors, one empty name where the file holds one that has none.
	Names []string
	// Read reads a tensor after check has agreed to its dtype and shape, into memory from alloc or of its own.
	Read func(ctx context.Context, name string, alloc Allocator, check Check) (*tensor.Tensor, error)
	// Close closes it.
	Close func() error
}

// An Allocator returns memory for a tensor, a Check says whether a tensor of a dtype and shape is wanted.
type (
	Allocator func(bytes int64) ([]byte, error)
	Check     func(d tensor.DType, shape tensor.Shape) error
)

// OpenFile opens a file whose size is known. Opening a named pipe would wait for somebody who writes to it.
func OpenFile(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err == nil {
		err = regular(path, info) // the path may name something else by now
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func regular(path string, info os.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return &os.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
}

// OpenNPY opens a file of one array, which has no name.
func OpenNPY(path string) (*File, error) {
	f, size, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	return &File{
		Path:  path,
		Names: []string{""},
		Close: f.Close,
		Read: func(ctx context.Context, _ string, alloc Allocator, check Check) (*tensor.Tensor, error) {
			a, err := npy.Open(Reader(ctx, f), size)
			if err != nil {
				return nil, err
			}
			return readArray(a, alloc, check)
		},
	}, nil
}

// OpenNPZ opens an archive of arrays.
func OpenNPZ(path string) (*File, error) {
	f, size, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	z, err := npy.OpenArchive(f, size)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return &File{
		Path:  path,
		Names: z.Names,
		Close: f.Close,
		Read: func(_ context.Context, name string, alloc Allocator, check Check) (*tensor.Tensor, error) {
			a, closer, err := z.Open(name)
			if err != nil {
				return nil, err
			}
			t, err := readArray(a, alloc, check)
			return t, errors.Join(err, closer.Close())
		},
	}, nil
}

func readArray(a *npy.Array, alloc Allocator, check Check) (*tensor.Tensor, error) {
	if err := check(a.DType, a.Layout.Shape); err != nil {
		return nil, err
	}
	data, err := alloc(a.Bytes)
	if err != nil {
		return nil, err
	}
	return &tensor.Tensor{DType: a.DType, Layout: a.Layout, Data: data}, a.ReadInto(data)
}

// Reader returns a reader that stops once a context is done, at the latest after a mebibyte.
func Reader(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

// A contextReader stops reading once its context is done, at the latest after a mebibyte.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements [io.Reader].
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p[:min(len(p), 1<<20)])
}
