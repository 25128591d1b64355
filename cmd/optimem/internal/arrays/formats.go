package arrays

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/values"
	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// A Named is a tensor in an output file.
type Named struct {
	// Name is what the file calls it.
	Name   string
	Tensor *tensor.Tensor
}

// Formats maps the suffix of an output file to what writes it.
var Formats = map[string]func(ctx context.Context, w io.Writer, tensors []Named) error{
	".safetensors": writeSafetensors,
	".npy":         writeNPY,
	".json":        writeJSON,
}

// FormatOf returns the suffix of a file's name that says its format.
func FormatOf(path string) string { return strings.ToLower(filepath.Ext(path)) }

func writeSafetensors(ctx context.Context, w io.Writer, tensors []Named) error {
	data := make([]loader.TensorData, len(tensors))
	for i, t := range tensors {
		x := t.Tensor.Contiguous()
		data[i] = loader.TensorData{
			Name: t.Name, DType: x.DType, Shape: x.Layout.Shape,
			ReadAt: func(ctx context.Context, p []byte, off int64) error {
				copy(p, x.Data[off:])
				return ctx.Err()
			},
		}
	}
	return loader.WriteSafetensors(ctx, w, data, map[string]string{"format": "pt"})
}

func writeNPY(_ context.Context, w io.Writer, tensors []Named) error {
	return npy.Write(w, tensors[0].Tensor)
}

// writeJSON writes {"outputs": [{"name", "dtype", "shape", "data"}]}, the elements in row-major order.
func writeJSON(_ context.Context, w io.Writer, tensors []Named) error {
	b := bufio.NewWriter(w)
	_, _ = b.WriteString(`{"outputs": [`)
	for i, t := range tensors {
		separator := "\n"
		if i > 0 {
			separator = ",\n"
		}
		dims := make([]string, len(t.Tensor.Layout.Shape))
		for k, d := range t.Tensor.Layout.Shape {
			dims[k] = strconv.Itoa(d)
		}
		name, err := json.Marshal(t.Name)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(b, `%s{"name": %s, "dtype": "%v", "shape": [%s], "data": [`,
			separator, name, t.Tensor.DType, strings.Join(dims, ", "))
		e := values.Of(t.Tensor)
		for k := range e.N {
			if k > 0 {
				_, _ = b.WriteString(", ")
			}
			if _, err := b.WriteString(e.JSON(k)); err != nil {
				return err
			}
		}
		_, _ = b.WriteString("]}")
	}
	_, _ = b.WriteString("\n]}\n")
	return b.Flush()
}

// Writer returns a writer that stops once a context is done.
func Writer(ctx context.Context, w io.Writer) io.Writer { return contextWriter{ctx, w} }

// A contextWriter stops writing once its context is done.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

// Write implements [io.Writer].
func (c contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}
