//go:build !files

package running

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/arrays"
	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/internal/npy"
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

// targets lists the files that will be written and the modules to dump, before anything is computed.
func (r *Run) targets(outputs []string) (files []target, modules []string, err error) {
	if r.Cmd.Flags().Changed("output") {
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
			return nil, nil, r.Usage("write it as --dump layer3.0=file.npy", "--dump %s names no file", text)
		}
		files = append(files, target{path: path, dump: true, module: module})
		if !slices.Contains(modules, module) {
			modules = append(modules, module)
		}
	}
	for i, f := range files {
		if arrays.Formats[arrays.FormatOf(f.path)] == nil {
			return nil, nil, r.Usage("the name ends in .safetensors, .npy or .json",
				"%s: no format goes by that name", f.path)
		}
		for _, g := range files[:i] {
			if filepath.Clean(f.path) == filepath.Clean(g.path) {
				return nil, nil, r.Usage("", "%s would be written twice", f.path)
			}
		}
		if sameFile(f.path, r.Model) {
			return nil, nil, r.Usage("", "%s is the model itself", f.path)
		}
		if _, err := os.Stat(filepath.Dir(f.path)); err != nil {
			return nil, nil, err
		}
	}
	return files, modules, nil
}

// holds says whether a file can hold so many tensors.
func (r *Run) holds(path string, n int) error {
	if arrays.FormatOf(path) == ".npy" && n != 1 {
		return r.Usage("write .safetensors or .json", "%s: one array cannot hold %d outputs", path, n)
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
func (r *Run) write(ctx context.Context, files []target, results []runOutput, out runtime.Values) (err error) {
	if err := r.checkLabels(results); err != nil {
		return err
	}
	tensors := make([][]arrays.Named, len(files))
	for i, f := range files {
		if f.dump {
			tensors[i] = []arrays.Named{{Name: f.module, Tensor: out[f.key()]}}
		} else {
			for _, res := range results {
				tensors[i] = append(tensors[i], arrays.Named{Name: res.Name, Tensor: res.tensor})
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
		format := arrays.Formats[arrays.FormatOf(f.path)]
		fresh, err := newfile.New(f.path, func(file *os.File) error {
			b := bufio.NewWriterSize(arrays.Writer(ctx, file), 1<<20)
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
func (r *Run) writable(f target, tensors []arrays.Named) error {
	if err := r.holds(f.path, len(tensors)); err != nil {
		return err
	}
	var total int64
	for _, t := range tensors {
		total += int64(len(t.Tensor.Data))
		var err error
		switch arrays.FormatOf(f.path) {
		case ".npy":
			err = npy.Writable(t.Tensor.DType)
		case ".safetensors":
			if t.Tensor.DType == tensor.Complex32 || t.Tensor.DType == tensor.Complex128 || t.Tensor.DType.Quantized() {
				err = fmt.Errorf("safetensors has no dtype %v", t.Tensor.DType)
			}
		}
		if err != nil {
			other := ".safetensors"
			if arrays.FormatOf(f.path) == other {
				other = ".json"
			}
			return r.Usage(fmt.Sprintf("write it to a file that ends in %s", other), "%s: %s: %v", f.path, t.Name, err)
		}
	}
	return newfile.CheckRoom(f.path, total)
}

// moduleHint names modules that can be dumped.
func (r *Run) moduleHint(model *models.Model, shapes map[string]tensor.Shape) string {
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
