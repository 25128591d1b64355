// Package quantize makes smaller folders of Hugging Face folders: the linear layers of a model's blocks as codes of 4 or 8 bits, in
// the format of Python's compressed-tensors, which vLLM, transformers and this module read. What it loses it says, for each layer.
//
// A scale is chosen for each group of numbers so that the squared error of the numbers is least. With a [Calibration],
// which knows what layers are given, codes of integers are chosen as GPTQ does, so that the squared error of what a
// layer computes is small. The same folder gives the same files, whatever memory and threads it is given.
//
// It knows which modules of a model are linear, and how compressed-tensors lays codes out. It does not know what
// modules compute: package quantize/moments runs models for calibration.
//
//	scheme, err := quantize.ParseScheme("int4:128")
//	f, err := quantize.Open(ctx, "Qwen3-4B", quantize.Options{Scheme: scheme}) // defer f.Close()
//	report, err := f.Write(ctx, "Qwen3-4B-int4", nil)
package quantize

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/transformers"
	"github.com/optimem/optimem/tensor"
)

// Options say how a folder is quantised.
type Options struct {
	Scheme Scheme
	// Keep are patterns, as [path.Match] has them, of modules that stay as they are, such as "model.layers.0.*".
	Keep []string
	// MemoryBytes bounds what is held of weights and their codes at a time; 0 is [DefaultMemoryBytes]. What Calibration
	// holds is not in it.
	MemoryBytes int64
	// Calibration, where it is not nil, knows what layers are given. ByUse then has columns in the order of how much
	// they are given, which is GPTQ's "act order"; groups stay as they are.
	Calibration Calibration
	ByUse       bool
	// Channels has columns scaled by how much they are given, before they become codes, and what makes their inputs by
	// the inverse, which is AWQ's way, instead of choosing codes as GPTQ does. Norms then change, too.
	Channels bool
	// Loader bounds the opening of the folder.
	Loader loader.Options
}

// A Calibration knows what the linear layers of a folder's model are given. Layers are named by the tensors of their
// weights.
type Calibration interface {
	// Input names what a layer is given: layers that are given the same have the same input. It is "" where that is not
	// known.
	Input(weight string) string
	// Sums returns, for as many of the inputs as memory allows, in order and one at least, the sum of x·xᵀ over all
	// that the layers are given: a matrix, row by row, that is the caller's. Matrices of heldBytes are held meanwhile.
	Sums(ctx context.Context, inputs []string, heldBytes int64) ([][]float64, error)
	// Routed returns how many rows the sums of an input are made of, once Sums has returned them, where the model sends
	// only some rows to a layer, as to experts. It is false of inputs that are all there is.
	Routed(input string) (rows int64, ok bool)
}

// ErrCalibration says that a scheme has no use for a calibration.
var ErrCalibration = errors.New("no calibration: it is for integers")

// DefaultMemoryBytes is what [Options.MemoryBytes] is where it says nothing.
const DefaultMemoryBytes = 64 << 20

// A Folder is a Hugging Face folder that can be quantised: what becomes of each tensor is decided, nothing of them is read.
type Folder struct {
	path   string
	opts   Options
	config []byte
	shards []*shard
	// kept are linear layers that stay as they are, and why; ignored the names of all of them, for readers.
	kept    []Kept
	ignored []string
	layers  int // that are quantised
	// stacks are the tensors of experts that become tensors of each, by their names.
	stacks map[string][]slice
	// inputs are those of layers that a calibration knows.
	inputs inputs
	// channels are how columns and rows are scaled.
	channels channels
	// InBytes and OutBytes are those of the tensors before and after; WorkBytes is what [Folder.Write] tells of in all.
	InBytes, OutBytes, WorkBytes int64
	// BeforeNamed, where it is not nil, is given the folder that [Folder.Write] wrote, whole but under another name,
	// before it gets its own: when it fails, nothing is left. It must leave no file of it open.
	BeforeNamed func(ctx context.Context, written string) error
}

// A Kept is a linear layer that stays as it is.
type Kept struct{ Module, Reason string }

// A shard is a file of tensors.
type shard struct {
	name     string // in the folder
	ckpt     *loader.Checkpoint
	metadata map[string]string
	items    []item
}

// An item is a tensor of the old file, with what it becomes: itself, or the parts of a quantised weight.
type item struct {
	weight  tensor.Weight
	module  string // "" where the tensor stays
	columns int64
	rows    int64
	parts   []part
}

// The files that hold weights, in the order in which the loader prefers them.
const (
	oneFile   = "model.safetensors"
	indexFile = oneFile + ".index.json"
)

// Open looks at a folder. The caller closes it.
func Open(ctx context.Context, folder string, opts Options) (f *Folder, err error) {
	for _, pattern := range opts.Keep {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%w: the pattern %q", err, pattern)
		}
	}
	if opts.Calibration != nil && opts.Scheme.isFloat() {
		return nil, fmt.Errorf("%s: %w", opts.Scheme.Kind, ErrCalibration)
	}
	if opts.Channels && opts.Calibration == nil {
		return nil, fmt.Errorf("scales of channels: %w", ErrCalibration)
	}
	opts.MemoryBytes = cmp.Or(opts.MemoryBytes, DefaultMemoryBytes)
	whole, err := loader.OpenWith(ctx, folder, opts.Loader)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, whole.Close()) }()
	if whole.Format != loader.FormatHuggingFace || whole.Config == nil {
		return nil, fmt.Errorf("%s: %w: no Hugging Face folder with a config.json", folder, loader.ErrUnsupported)
	}
	f = &Folder{path: folder, opts: opts, config: whole.Config}
	if err := f.look(ctx, whole); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// look decides what becomes of each tensor.
func (f *Folder) look(ctx context.Context, whole *loader.Checkpoint) error {
	linears, err := f.linears(whole)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if err := f.openShards(ctx); err != nil {
		return err
	}
	for _, s := range f.shards {
		if err := f.decide(s, linears); err != nil {
			return err
		}
	}
	slices.Sort(f.ignored)
	f.ignored = slices.Compact(f.ignored)
	if f.layers == 0 {
		return f.nothing()
	}
	return nil
}

// nothing says why no layer is quantised.
func (f *Folder) nothing() error {
	why := "it has no linear layers in blocks"
	if len(f.kept) > 0 {
		why = fmt.Sprintf("of %d linear layers none can be, such as %s: %s", len(f.kept), f.kept[0].Module, f.kept[0].Reason)
	}
	return fmt.Errorf("%s: %w: nothing to quantise: %s", f.path, loader.ErrUnsupported, why)
}

// Close closes the folder's files.
func (f *Folder) Close() error {
	var err error
	for _, s := range f.shards {
		err = cmp.Or(err, s.ckpt.Close())
	}
	return err
}

// A linear is a linear layer: its name by the file, and in the tree of the model's modules, which may have a prefix more.
type linear struct{ module, path string }

// linears returns the linear layers whose weights are tensors of the folder, by the tensors' names.
func (f *Folder) linears(whole *loader.Checkpoint) (map[string]linear, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(f.config, &fields); err != nil {
		return nil, fmt.Errorf("%w: config.json: %w", loader.ErrFormat, err)
	}
	if q := fields["quantization_config"]; q != nil && string(q) != "null" {
		return nil, fmt.Errorf("%w: its weights are quantised already", loader.ErrUnsupported)
	}
	dict := make(layers.StateDict, len(whole.Weights))
	for i, w := range whole.Weights {
		dict[i] = layers.Entry{Name: w.Name, DType: w.DType, Shape: w.Layout.Shape}
	}
	a, err := transformers.Named("", f.config, dict)
	var config *transformers.ConfigError
	switch {
	case errors.As(err, &config):
		return nil, fmt.Errorf("%w: %w", loader.ErrFormat, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", loader.ErrUnsupported, err)
	}
	linears, others := make(map[string]linear), make(map[string]bool)
	a.Root.Walk(func(at string, m *layers.Module) {
		for _, p := range m.Params {
			name := layers.Join(at, p.Name)
			name = cmp.Or(a.Weights[name], name)
			if m.Class == linearClass && p.Name == "weight" {
				linears[name] = linear{strings.TrimSuffix(name, ".weight"), at}
				f.ignored = append(f.ignored, at) // until it is quantised
			} else {
				others[name] = true
			}
		}
	})
	for name := range others {
		delete(linears, name) // such as an embedding that is the last layer too
	}
	// Today's transformers has experts and what chooses among them in modules of its own; they are linear layers for other readers.
	for _, w := range whole.Weights {
		if module, ok := strings.CutSuffix(w.Name, ".weight"); ok && (isExpert(w.Name) || isRouter(module)) {
			linears[w.Name] = linear{module, module}
		}
	}
	f.findStacks(whole, a, linears)
	return linears, nil
}

const linearClass = "torch.nn.modules.linear.Linear"

// isExpert reports whether a tensor is the weight of an expert that has a module of its own in the file, while the model of
// today's transformers has one tensor of all.
func isExpert(name string) bool {
	steps := strings.Split(name, ".")
	for i := 0; i+3 < len(steps); i++ {
		if _, err := strconv.Atoi(steps[i+1]); err == nil && steps[i] == "experts" {
			return i+4 == len(steps) && steps[i+3] == "weight"
		}
	}
	return false
}

// isRouter reports whether a module is what chooses among experts.
func isRouter(module string) bool {
	return slices.Contains(routers, module[strings.LastIndexByte(module, '.')+1:])
}

// openShards opens the files of the folder, which the loader has found in order.
func (f *Folder) openShards(ctx context.Context) error {
	names := []string{oneFile}
	if _, err := os.Stat(filepath.Join(f.path, oneFile)); err != nil {
		index, err := f.readIndex()
		if err != nil {
			return err
		}
		names = names[:0]
		for _, name := range index.files {
			names = append(names, name)
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	for _, name := range names {
		file := filepath.Join(f.path, name)
		if err := loader.CheckInFolder(f.path, file); err != nil {
			return err
		}
		ckpt, err := loader.OpenWith(ctx, file, f.opts.Loader)
		if err != nil {
			return err
		}
		f.shards = append(f.shards, &shard{name: name, ckpt: ckpt})
		if ckpt.Format != loader.FormatSafetensors || len(ckpt.Unreadable) > 0 {
			return fmt.Errorf("%s: %w: no safetensors file whose dtypes are all known", file, loader.ErrUnsupported)
		}
	}
	return nil
}

// A weightIndex is the index of shards.
type weightIndex struct {
	fields map[string]json.RawMessage
	files  map[string]string // of tensors
}

// readIndex reads the index, which the loader has checked.
func (f *Folder) readIndex() (*weightIndex, error) {
	name := filepath.Join(f.path, indexFile)
	if err := loader.CheckInFolder(f.path, name); err != nil {
		return nil, fmt.Errorf("%s: %w: it has neither %s nor its index: %w", f.path, loader.ErrUnsupported, oneFile, err)
	}
	const most = 100_000_000 // bytes, as the loader has it
	text, err := readSmall(name, most)
	if err != nil {
		return nil, err
	}
	x := &weightIndex{}
	err = json.Unmarshal(text, &x.fields)
	if err == nil {
		err = json.Unmarshal(x.fields["weight_map"], &x.files)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, loader.ErrFormat, err)
	}
	for _, file := range x.files {
		if !filepath.IsLocal(file) || strings.ContainsAny(file, `/\:`) {
			return nil, fmt.Errorf("%s: %w: the shard %.100q does not lie beside the index", name, loader.ErrUnsafe, file)
		}
	}
	return x, nil
}

// readSmall reads a file of at most so many bytes.
func readSmall(name string, most int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: %w: more than %d bytes", name, loader.ErrLimit, most)
	}
	return text, err
}

// decide says what becomes of a shard's tensors.
func (f *Folder) decide(s *shard, linears map[string]linear) error {
	s.metadata = map[string]string{"format": "pt"}
	for _, v := range s.ckpt.Values {
		if key, ok := strings.CutPrefix(v.Name, "__metadata__."); ok {
			s.metadata[key] = v.Text
		}
	}
	stored := make(map[int64]bool, len(s.ckpt.Weights))
	for _, w := range s.ckpt.Weights {
		if w.Extent.Bytes > 0 && stored[w.Extent.Offset] {
			continue // another name of what is stored, which the metadata keep
		}
		stored[w.Extent.Offset] = true
		parts := f.stacks[w.Name]
		if parts == nil {
			if err := f.decideOne(s, w, linears); err != nil {
				return err
			}
		}
		for i := range parts {
			if err := f.decideOne(s, parts[i].of(w), linears); err != nil {
				return err
			}
		}
	}
	return nil
}

// decideOne says what becomes of a tensor.
func (f *Folder) decideOne(s *shard, w tensor.Weight, linears map[string]linear) error {
	it := item{weight: w}
	if l, ok := linears[w.Name]; ok {
		module := l.module
		if why := f.keeps(module, w); why != "" {
			f.kept, f.ignored = append(f.kept, Kept{module, why}), append(f.ignored, module)
		} else {
			it.module = module
			it.rows, it.columns = int64(w.Layout.Shape[0]), int64(w.Layout.Shape[1])
			it.parts = f.opts.Scheme.parts(it.rows, it.columns, w.DType)
			f.ignored = slices.DeleteFunc(f.ignored, func(name string) bool { return name == l.path })
			f.layers++
			if need := f.chunkBytes(&it, chunkRows) + f.roomBytes(&it); need > f.opts.MemoryBytes {
				return fmt.Errorf("%s: %w: rows of %d numbers take %d bytes of memory", w.Name, loader.ErrLimit, it.columns, need)
			}
		}
	}
	f.InBytes, f.OutBytes, f.WorkBytes = f.InBytes+w.Bytes(), f.OutBytes+it.outBytes(), f.WorkBytes+w.Bytes()
	s.items = append(s.items, it)
	return nil
}

// routers are the names of linear layers that choose among experts, where small errors choose others.
var routers = []string{"gate", "router", "shared_expert_gate"}

// keeps says why a linear layer stays as it is, "" where it does not.
func (f *Folder) keeps(module string, w tensor.Weight) string {
	steps := strings.Split(module, ".")
	inBlock := slices.ContainsFunc(steps, func(s string) bool { _, err := strconv.Atoi(s); return err == nil })
	for _, pattern := range f.opts.Keep {
		if ok, _ := path.Match(pattern, module); ok {
			return "--keep " + pattern
		}
	}
	switch {
	case !inBlock:
		return "in no block"
	case isRouter(module):
		return "chooses experts"
	case w.DType != tensor.Float32 && !w.DType.IsHalf():
		return fmt.Sprintf("of %v", w.DType)
	case len(w.Layout.Shape) != 2 || w.NumElements() == 0:
		return fmt.Sprintf("of the shape %v", w.Layout.Shape)
	}
	return f.opts.Scheme.refuses(int64(w.Layout.Shape[1]))
}

// outBytes are those of what a tensor becomes.
func (it *item) outBytes() int64 {
	if it.module == "" {
		return it.weight.Bytes()
	}
	sum := int64(0)
	for _, p := range it.parts {
		sum += p.bytes()
	}
	return sum
}

func (p part) bytes() int64 {
	n, _ := p.shape.NumElements() // less than the weight's
	return n * int64(p.dtype.Size())
}
