package quantize

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader"
)

// A Report says what became of a folder's linear layers.
type Report struct {
	// Layers are those that were quantised, in the order of the files; Kept those that stayed as they are.
	Layers []Layer
	Kept   []Kept
	// Copied are the files beside the weights that were copied, NotCopied those that were not.
	Copied, NotCopied []string
	// BytesBefore and BytesAfter are those of all tensors.
	BytesBefore, BytesAfter int64
	// Error is the relative error of all layers together: see [Layer.Error]; OutputError that of what those that were
	// calibrated compute.
	Error, OutputError float64
}

// A Layer is a linear layer that was quantised.
type Layer struct {
	Module        string
	Rows, Columns int64
	// BitsPerWeight counts all that the file has of it: codes, scales, zero points, the shape.
	BitsPerWeight float64
	// Error is the root of the squared error of all numbers by that of their squares.
	Error float64
	// Calibrated says that codes were chosen by what the layer is given. OutputError is then the root of the squared
	// error of what it computes of that, by the squares of what it computed before.
	Calibrated  bool
	OutputError float64
	// Routed says that the model sends the layer only some rows of the text that it was to be calibrated with, RoutedRows
	// how many. With too few it is not calibrated.
	Routed                  bool
	RoutedRows              int64
	BytesBefore, BytesAfter int64
	errors, squares         float64
	outErrors, outSquares   float64
}

// Write makes the quantised folder at dir, which must not exist. It is written under another name beside it and renamed once all
// is on the disk: when Write fails or ctx is done, nothing is left. progress, which may be nil, is told the bytes of the
// folder's tensors as they are done, [Folder.WorkBytes] in all.
func (f *Folder) Write(ctx context.Context, dir string, progress func(nBytes int64)) (report *Report, err error) {
	dir = filepath.Clean(dir)
	if err := CheckNew(dir); err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(int64) {}
	}
	parent, name := filepath.Split(dir)
	const most = 100 // bytes of the name: a long one leaves no room for what is added
	short := strings.ToValidUTF8(name[:min(len(name), most)], "")
	temporary := filepath.Join(parent, fmt.Sprintf(".%s.%s.tmp", short, rand.Text()[:8]))
	if err := os.Mkdir(temporary, 0o777); err != nil {
		var placed *fs.PathError
		if errors.As(err, &placed) {
			placed.Path = dir // the one that the caller knows
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			report, err = nil, errors.Join(err, os.RemoveAll(temporary))
		}
	}()
	report = &Report{Kept: f.kept, BytesBefore: f.InBytes, BytesAfter: f.OutBytes}
	if err := f.writeAll(ctx, temporary, report, progress); err != nil {
		return nil, err
	}
	var lost, all, outLost, outAll float64
	for _, l := range report.Layers {
		lost, all = lost+l.errors, all+l.squares
		outLost, outAll = outLost+l.outErrors, outAll+l.outSquares
	}
	report.Error, report.OutputError = relative(lost, all), relative(outLost, outAll)
	if f.BeforeNamed != nil {
		if err := f.BeforeNamed(ctx, temporary); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := CheckNew(dir); err != nil {
		return nil, err
	}
	syncFolder(temporary)
	if err := os.Rename(temporary, dir); err != nil {
		return nil, err
	}
	syncFolder(filepath.Dir(dir))
	return report, nil
}

// syncFolder brings a folder's names to the disk, where the system does so.
func syncFolder(name string) {
	if folder, err := os.Open(name); err == nil {
		_ = folder.Sync() // folders cannot be synced everywhere; their files have been
		_ = folder.Close()
	}
}

// CheckNew refuses what exists, as [Folder.Write] and [GGUF.Write] do, with an [fs.ErrExist].
func CheckNew(dir string) error {
	dir = filepath.Clean(dir)
	_, err := os.Lstat(dir)
	switch {
	case err == nil:
		return &fs.PathError{Op: "write", Path: dir, Err: fs.ErrExist}
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

func relative(lost, all float64) float64 {
	if all == 0 {
		return 0
	}
	return math.Sqrt(lost / all)
}

// writeAll writes the folder's files.
func (f *Folder) writeAll(ctx context.Context, to string, report *Report, progress func(int64)) error {
	f.inputs, f.channels = inputs{}, channels{}
	if f.opts.Channels {
		if err := f.findChannels(ctx); err != nil {
			return err
		}
	}
	for _, s := range f.shards {
		err := writeNew(filepath.Join(to, s.name), func(file *os.File) error { return f.writeShard(ctx, s, file, report, progress) })
		if err != nil {
			return err
		}
	}
	if err := f.writeIndex(to); err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(f.config, &fields); err != nil {
		return err
	}
	quantization, err := json.Marshal(f.opts.Scheme.configuration(append([]string{}, f.ignored...)))
	if err != nil {
		return err
	}
	fields["quantization_config"] = quantization
	if err := writeJSON(filepath.Join(to, "config.json"), fields); err != nil {
		return err
	}
	return f.copyOthers(ctx, to, "", report)
}

// writeNew writes a file through to the disk.
func writeNew(name string, write func(file *os.File) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// writeJSON writes an object as transformers does: keys in order, two spaces.
func writeJSON(name string, value any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(value); err != nil {
		return err
	}
	return writeNew(name, func(file *os.File) error { _, err := file.Write(b.Bytes()); return err })
}

// writeIndex writes the index of several files, with the names and bytes that there are now.
func (f *Folder) writeIndex(to string) error {
	if f.shards[0].name == oneFile {
		return nil
	}
	index, err := f.readIndex()
	if err != nil {
		return err
	}
	files := make(map[string]string)
	for _, s := range f.shards {
		for _, it := range s.items {
			for _, name := range it.names() {
				files[name] = s.name
			}
		}
	}
	metadata := make(map[string]json.RawMessage)
	if json.Unmarshal(index.fields["metadata"], &metadata) != nil || metadata == nil {
		metadata = make(map[string]json.RawMessage)
	}
	metadata["total_size"] = json.RawMessage(fmt.Sprint(f.OutBytes))
	return writeJSON(filepath.Join(to, indexFile), map[string]any{"metadata": metadata, "weight_map": files})
}

// names are those of the tensors that a tensor becomes.
func (it *item) names() []string {
	if it.module == "" {
		return []string{it.weight.Name}
	}
	var names []string
	for _, p := range it.parts {
		names = append(names, it.module+"."+p.kind)
	}
	return names
}

// writeShard writes a file of tensors.
func (f *Folder) writeShard(ctx context.Context, s *shard, file *os.File, report *Report, progress func(int64)) error {
	var tensors []loader.TensorData
	first := make([]int, len(s.items))
	for i, it := range s.items {
		first[i] = len(tensors)
		if it.module == "" {
			tensors = append(tensors, loader.TensorData{Name: it.weight.Name, DType: it.weight.DType, Shape: it.weight.Layout.Shape})
			continue
		}
		for _, p := range it.parts {
			tensors = append(tensors, loader.TensorData{Name: it.module + "." + p.kind, DType: p.dtype, Shape: p.shape})
		}
	}
	head, offsets, err := loader.LayOutSafetensors(tensors, s.metadata)
	if err != nil {
		return err
	}
	if _, err := file.WriteAt(head, 0); err != nil {
		return err
	}
	for i := range s.items {
		it := &s.items[i]
		at := offsets[first[i]:]
		if it.module == "" {
			if err := f.copyTensor(ctx, it, file, at[0], progress); err != nil {
				return err
			}
			continue
		}
		layer, err := f.quantise(ctx, it, file, at, progress)
		if err != nil {
			return err
		}
		report.Layers = append(report.Layers, layer)
	}
	return nil
}

// copyTensor copies a tensor that stays as it is.
func (f *Folder) copyTensor(ctx context.Context, it *item, file *os.File, at int64, progress func(int64)) error {
	if divide := f.channels.rows[it.weight.Name]; divide != nil {
		return f.copyDivided(ctx, it, file, at, divide, progress)
	}
	if !it.weight.Layout.IsContiguous() {
		return f.copyRows(ctx, it, file, at, progress)
	}
	span := it.weight.Span()
	const most = 1 << 20
	buf := make([]byte, min(span.Bytes, most, f.opts.MemoryBytes))
	for off := int64(0); off < span.Bytes; off += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), span.Bytes-off)]
		if err := span.ReadAt(ctx, p, off); err != nil {
			return fmt.Errorf("%s: %w", it.weight.Name, err)
		}
		if _, err := file.WriteAt(p, at+off); err != nil {
			return err
		}
		progress(int64(len(p)))
	}
	return nil
}

// chunkRows is what the rows that are quantised together are a multiple of, so that no word of zero points is of two chunks.
const chunkRows = 8

// chunkBytes is what rows that are quantised together take: the file's bytes, the numbers of a row for each, and what is written.
func (f *Folder) chunkBytes(it *item, rows int64) int64 {
	groups := f.opts.Scheme.groups(it.columns)
	return rows * (it.columns*(int64(it.weight.DType.Size())+4+1) + groups*(4+4) + runBytes(it.weight))
}

// roomBytes is what a worker takes beside the rows where layers are calibrated.
func (f *Folder) roomBytes(it *item) int64 {
	if f.opts.Calibration == nil || f.opts.Channels || f.opts.Calibration.Input(it.weight.Name) == "" {
		return 0
	}
	return feedbackBytes*it.columns + 8*togetherRows*f.opts.Scheme.groups(it.columns)
}

// quantise writes the parts of a weight, whose places in the file are at.
func (f *Folder) quantise(ctx context.Context, it *item, file *os.File, at []int64, progress func(int64)) (Layer, error) {
	layer := Layer{
		Module: it.module, Rows: it.rows, Columns: it.columns, BytesBefore: it.weight.Bytes(), BytesAfter: it.outBytes(),
	}
	hessian, err := f.inputs.hessian(ctx, f, it)
	if err != nil {
		return layer, fmt.Errorf("%s: %w", it.weight.Name, err)
	}
	room := f.roomBytes(it)
	rows := min((f.opts.MemoryBytes-room)/f.chunkBytes(it, 1)/chunkRows*chunkRows, (it.rows+chunkRows-1)/chunkRows*chunkRows)
	const most = 32 << 20 // bytes of a chunk: more is not faster
	rows = max(min(rows, most/f.chunkBytes(it, 1)/chunkRows*chunkRows), chunkRows)
	c := newChunk(f.opts.Scheme, it, rows)
	c.turned = f.channels.of(it)
	encode := c.encode
	if hessian != nil {
		workers := max((f.opts.MemoryBytes-f.chunkBytes(it, rows))/room, 1)
		c.numbers = c.numbers[:min(int64(len(c.numbers)), workers)]
		encode = func(ctx context.Context, n int64) error { return c.encodeCalibrated(ctx, n, hessian) }
	}
	r := rowReader{weight: it.weight}
	for first := int64(0); first < it.rows; first += rows {
		n := min(rows, it.rows-first)
		c.first = first
		raw := c.raw[:n*c.rowBytes]
		if err := r.read(ctx, raw, first, n); err != nil {
			return layer, fmt.Errorf("%s: %w", it.weight.Name, err)
		}
		if err := encode(ctx, n); err != nil {
			var bad *notFinite
			if errors.As(err, &bad) {
				bad.row += first
				bad.name = it.weight.Name
			}
			return layer, err
		}
		for r := range n {
			layer.errors, layer.squares = layer.errors+c.errors[r], layer.squares+c.squares[r]
			layer.outErrors, layer.outSquares = layer.outErrors+c.outErrors[r], layer.outSquares+c.outSquares[r]
		}
		if err := c.write(file, at, first, n); err != nil {
			return layer, err
		}
		progress(int64(len(raw)))
	}
	if len(it.parts) > shapePart {
		shape := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(it.rows)), uint64(it.columns))
		if _, err := file.WriteAt(shape, at[shapePart]); err != nil {
			return layer, err
		}
	}
	f.inputs.done(f, it)
	layer.Calibrated = hessian != nil || c.turned != nil && c.turned.squares != nil
	if f.opts.Calibration != nil {
		if input := f.opts.Calibration.Input(it.weight.Name); layer.Calibrated || f.inputs.few[input] ||
			f.channels.few[input] {
			layer.RoutedRows, layer.Routed = f.opts.Calibration.Routed(input)
		}
	}
	layer.Error, layer.OutputError = relative(layer.errors, layer.squares), relative(layer.outErrors, layer.outSquares)
	layer.BitsPerWeight = 8 * float64(layer.BytesAfter) / (float64(it.rows) * float64(it.columns))
	return layer, nil
}

// copied are the endings of files beside weights that belong to a model: its tokenizer, templates, settings and texts about it.
var copied = []string{".json", ".txt", ".model", ".jinja", ".tiktoken", ".md", ".py"}

// weightFiles are endings of files that hold weights, or say where they are.
var weightFiles = []string{".index.json"}

// copyOthers copies the files beside the weights, also those of folders in the folder, such as 1_Pooling.
func (f *Folder) copyOthers(ctx context.Context, to, within string, report *Report) error {
	entries, err := os.ReadDir(filepath.Join(f.path, within))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(within, e.Name())
		ends := func(ending string) bool { return strings.HasSuffix(name, ending) }
		isLicence := strings.HasPrefix(strings.ToUpper(e.Name()), "LICEN")
		switch {
		case name == "config.json" || slices.ContainsFunc(f.shards, func(s *shard) bool { return s.name == name }), name == indexFile:
		case e.IsDir() && within == "" && !strings.HasPrefix(name, "."):
			if err := f.copyOthers(ctx, to, name, report); err != nil {
				return err
			}
		case e.IsDir() || !isLicence && !slices.ContainsFunc(copied, ends) || slices.ContainsFunc(weightFiles, ends):
			report.NotCopied = append(report.NotCopied, filepath.ToSlash(name))
		default:
			if err := f.copyFile(ctx, to, name); err != nil {
				return err
			}
			report.Copied = append(report.Copied, filepath.ToSlash(name))
		}
	}
	return nil
}

// copyFile copies a file beside the weights.
func (f *Folder) copyFile(ctx context.Context, to, name string) error {
	from := filepath.Join(f.path, name)
	if err := loader.CheckInFolder(filepath.Dir(from), from); err != nil {
		return err
	}
	if info, err := os.Stat(from); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w: no regular file", from, loader.ErrUnsupported)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o777); err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return writeNew(filepath.Join(to, name), func(file *os.File) error { _, err := io.Copy(file, source); return err })
}
