package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A target is a file to write. Its module is that of --dump, which may be the root, "".
type target struct {
	path   string
	dump   bool
	module string
}

// key is the name of a dump among the outputs of a session.
func (t target) key() string { return "dump:" + t.module }

// A namedTensor is a tensor in an output file.
type namedTensor struct {
	name   string
	tensor *tensor.Tensor
}

// outputFormats maps the suffix of an output file to what writes it.
var outputFormats = map[string]func(ctx context.Context, w io.Writer, tensors []namedTensor) error{
	".safetensors": writeOutputSafetensors,
	".npy":         writeOutputNPY,
	".json":        writeOutputJSON,
}

func formatOf(path string) string { return strings.ToLower(filepath.Ext(path)) }

// targets lists the files that will be written and the modules to dump, before anything is computed.
func (r *run) targets(outputs []string) (files []target, modules []string, err error) {
	if r.cmd.Flags().Changed("output") {
		files = append(files, target{path: r.output})
		if outputs != nil { // else a run tells
			if err := r.holds(r.output, len(outputs)); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, text := range r.dumps {
		module, path, ok := strings.Cut(text, "=")
		if !ok || path == "" {
			return nil, nil, r.usage("write it as --dump layer3.0=file.npy", "--dump %s names no file", text)
		}
		files = append(files, target{path: path, dump: true, module: module})
		if !slices.Contains(modules, module) {
			modules = append(modules, module)
		}
	}
	for i, f := range files {
		if outputFormats[formatOf(f.path)] == nil {
			return nil, nil, r.usage("the name ends in .safetensors, .npy or .json",
				"%s: no format goes by that name", f.path)
		}
		for _, g := range files[:i] {
			if filepath.Clean(f.path) == filepath.Clean(g.path) {
				return nil, nil, r.usage("", "%s would be written twice", f.path)
			}
		}
		if sameFile(f.path, r.model) {
			return nil, nil, r.usage("", "%s is the model itself", f.path)
		}
		if _, err := os.Stat(filepath.Dir(f.path)); err != nil {
			return nil, nil, err
		}
	}
	return files, modules, nil
}

// holds says whether a file can hold so many tensors.
func (r *run) holds(path string, n int) error {
	if formatOf(path) == ".npy" && n != 1 {
		return r.usage("write .safetensors or .json", "%s: one array cannot hold %d outputs", path, n)
	}
	return nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// write writes the files of a run. None takes its name before all are on the disk, so that those that were there before stay
// if something goes wrong.
func (r *run) write(ctx context.Context, files []target, results []runOutput, out runtime.Values) (err error) {
	if err := r.checkLabels(results); err != nil {
		return err
	}
	tensors := make([][]namedTensor, len(files))
	for i, f := range files {
		if f.dump {
			tensors[i] = []namedTensor{{f.module, out[f.key()]}}
		} else {
			for _, res := range results {
				tensors[i] = append(tensors[i], namedTensor{res.name, res.tensor})
			}
		}
		if err := r.writable(f, tensors[i]); err != nil {
			return err
		}
	}
	var written []*newfile.File
	defer func() {
		for _, f := range written {
			err = errors.Join(err, f.Drop())
		}
	}()
	for i, f := range files {
		format := outputFormats[formatOf(f.path)]
		fresh, err := newfile.New(f.path, func(file *os.File) error {
			b := bufio.NewWriterSize(contextWriter{ctx, file}, 1<<20)
			if err := format(ctx, b, tensors[i]); err != nil {
				return err
			}
			return b.Flush()
		})
		if err != nil {
			return err
		}
		written = append(written, fresh)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for len(written) > 0 {
		f := written[0]
		written = written[1:]
		if err := f.Place(); err != nil {
			return err
		}
	}
	return nil
}

// writable says beforehand what a format cannot hold.
func (r *run) writable(f target, tensors []namedTensor) error {
	if err := r.holds(f.path, len(tensors)); err != nil {
		return err
	}
	var total int64
	for _, t := range tensors {
		total += int64(len(t.tensor.Data))
		var err error
		switch formatOf(f.path) {
		case ".npy":
			err = npy.Writable(t.tensor.DType)
		case ".safetensors":
			if t.tensor.DType == tensor.Complex32 || t.tensor.DType == tensor.Complex128 || t.tensor.DType.Quantized() {
				err = fmt.Errorf("safetensors has no dtype %v", t.tensor.DType)
			}
		}
		if err != nil {
			other := ".safetensors"
			if formatOf(f.path) == other {
				other = ".json"
			}
			return r.usage(fmt.Sprintf("write it to a file that ends in %s", other), "%s: %s: %v", f.path, t.name, err)
		}
	}
	return newfile.CheckRoom(f.path, total)
}

func writeOutputSafetensors(ctx context.Context, w io.Writer, tensors []namedTensor) error {
	data := make([]loader.TensorData, len(tensors))
	for i, t := range tensors {
		x := t.tensor.Contiguous()
		data[i] = loader.TensorData{
			Name: t.name, DType: x.DType, Shape: x.Layout.Shape,
			ReadAt: func(ctx context.Context, p []byte, off int64) error {
				copy(p, x.Data[off:])
				return ctx.Err()
			},
		}
	}
	return loader.WriteSafetensors(ctx, w, data, map[string]string{"format": "pt"})
}

func writeOutputNPY(_ context.Context, w io.Writer, tensors []namedTensor) error {
	return npy.Write(w, tensors[0].tensor)
}

// writeOutputJSON writes {"outputs": [{"name", "dtype", "shape", "data"}]}, the elements in row-major order.
func writeOutputJSON(_ context.Context, w io.Writer, tensors []namedTensor) error {
	b := bufio.NewWriter(w)
	_, _ = b.WriteString(`{"outputs": [`)
	for i, t := range tensors {
		separator := "\n"
		if i > 0 {
			separator = ",\n"
		}
		dims := make([]string, len(t.tensor.Layout.Shape))
		for k, d := range t.tensor.Layout.Shape {
			dims[k] = strconv.Itoa(d)
		}
		name, err := json.Marshal(t.name)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(b, `%s{"name": %s, "dtype": "%v", "shape": [%s], "data": [`,
			separator, name, t.tensor.DType, strings.Join(dims, ", "))
		e := elementsOf(t.tensor)
		for k := range e.n {
			if k > 0 {
				_, _ = b.WriteString(", ")
			}
			if _, err := b.WriteString(e.jsonText(k)); err != nil {
				return err
			}
		}
		_, _ = b.WriteString("]}")
	}
	_, _ = b.WriteString("\n]}\n")
	return b.Flush()
}

// A contextWriter stops writing once its context is done.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}

// moduleHint names modules that can be dumped.
func (r *run) moduleHint(model *models.Model, shapes map[string]tensor.Shape) string {
	g, err := model.Graph(shapes)
	if err != nil || len(g.Modules) == 0 {
		return "the program names no modules"
	}
	var paths []string
	for path := range g.Modules {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return "there are: " + listed(paths)
}
