package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// An arrayFile is an open file of tensors.
type arrayFile struct {
	path string
	// names are those of the tensors, one empty name where the file holds one that has none.
	names []string
	// read reads a tensor after check has agreed to its dtype and shape, into memory from alloc or of its own.
	read  func(ctx context.Context, name string, alloc allocator, check specCheck) (*tensor.Tensor, error)
	close func() error
}

type (
	allocator func(bytes int64) ([]byte, error)
	specCheck func(d tensor.DType, shape tensor.Shape) error
)

// openArrays opens an input by its name, or by its content where the name says nothing.
func (r *run) openArrays(ctx context.Context, path string, limits loader.Limits) (*arrayFile, error) {
	switch ext := strings.ToLower(filepath.Ext(path)); {
	case ext == ".npy":
		return openNPY(path)
	case ext == ".npz":
		return openNPZ(path)
	}
	ckpt, err := loader.OpenWith(ctx, path, loader.Options{Limits: limits})
	if err != nil {
		return nil, err
	}
	f := &arrayFile{path: path, close: ckpt.Close}
	for _, w := range ckpt.Weights {
		f.names = append(f.names, w.Name)
	}
	if len(ckpt.Unreadable) > 0 {
		return nil, errors.Join(ckpt.Unreadable[0], ckpt.Close())
	}
	if len(f.names) == 0 {
		return nil, errors.Join(r.usage("", "%s holds no tensor", path), ckpt.Close())
	}
	f.read = func(ctx context.Context, name string, _ allocator, check specCheck) (*tensor.Tensor, error) {
		w, _ := ckpt.Weight(name)
		if err := check(w.DType, w.Layout.Shape); err != nil {
			return nil, err
		}
		return w.Contents(ctx)
	}
	return f, nil
}

// openSized opens a file whose size is known. Opening a named pipe would wait for somebody who writes to it.
func openSized(path string) (*os.File, int64, error) {
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

func openNPY(path string) (*arrayFile, error) {
	f, size, err := openSized(path)
	if err != nil {
		return nil, err
	}
	return &arrayFile{
		path:  path,
		names: []string{""},
		close: f.Close,
		read: func(ctx context.Context, _ string, alloc allocator, check specCheck) (*tensor.Tensor, error) {
			a, err := npy.Open(contextReader{ctx, f}, size)
			if err != nil {
				return nil, err
			}
			return readArray(a, alloc, check)
		},
	}, nil
}

func openNPZ(path string) (*arrayFile, error) {
	f, size, err := openSized(path)
	if err != nil {
		return nil, err
	}
	z, err := npy.OpenArchive(f, size)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return &arrayFile{
		path:  path,
		names: z.Names,
		close: f.Close,
		read: func(_ context.Context, name string, alloc allocator, check specCheck) (*tensor.Tensor, error) {
			a, closer, err := z.Open(name)
			if err != nil {
				return nil, err
			}
			t, err := readArray(a, alloc, check)
			return t, errors.Join(err, closer.Close())
		},
	}, nil
}

func readArray(a *npy.Array, alloc allocator, check specCheck) (*tensor.Tensor, error) {
	if err := check(a.DType, a.Layout.Shape); err != nil {
		return nil, err
	}
	data, err := alloc(a.Bytes)
	if err != nil {
		return nil, err
	}
	return &tensor.Tensor{DType: a.DType, Layout: a.Layout, Data: data}, a.ReadInto(data)
}

// A contextReader stops reading once its context is done, at the latest after a mebibyte.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p[:min(len(p), 1<<20)])
}
