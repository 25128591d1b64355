// Package loader opens the files that PyTorch users have (checkpoints in the zip and the legacy format, pickled
// modules, TorchScript and torch.export archives, safetensors, GGUF, sharded and Hugging Face folders) and says what is in
// them without reading a weight: names, dtypes, layouts, and the extents in the file where the bytes lie.
//
// Files are untrusted. Nothing in a file is executed, imported or called; every length is checked against what the
// file holds before memory is taken for it; [Limits] bound memory and nesting; what is wrong is reported as an
// [*Error] of one of four classes.
//
// The loader knows bytes and names. It does not know ops, models or devices: a graph or code leaves it as a parsed
// [Program], and package models turns that into something that runs.
//
//	ckpt, err := loader.Open("model.pt")
//	if err != nil {
//		return err
//	}
//	defer ckpt.Close()
//	for _, w := range ckpt.Weights {
//		fmt.Println(w.Name, w.DType, w.Layout.Shape)
//	}
package loader

import (
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/tensor"
)

// A Format is the kind of file that a checkpoint came from.
type Format string

// The formats. One checkpoint has one: a whole pickled module in a zip file is FormatTorchZip with a Module.
const (
	FormatTorchZip    Format = "torch-zip"    // torch.save since 1.6
	FormatTorchLegacy Format = "torch-legacy" // torch.save before 1.6
	FormatTorchScript Format = "torchscript"  // torch.jit.save
	FormatExported    Format = "torch-export" // torch.export.save, the archive layout since 2.8
	FormatExportedOld Format = "torch-export-old"
	FormatSafetensors Format = "safetensors"
	FormatSharded     Format = "sharded" // an index file and its shards
	FormatHuggingFace Format = "huggingface"
	FormatGGUF        Format = "gguf"
)

// A Checkpoint is an open file: what it holds, nothing of it read. It keeps the files open until [Checkpoint.Close];
// weights may be read from many goroutines until then.
type Checkpoint struct {
	// Path is what was opened.
	Path string
	// Format says what it is.
	Format Format
	// Weights lists every tensor under its full path in the file ("state_dict.layer1.0.conv1.weight",
	// "optimizer.state.0.exp_avg"), in the file's order. Names are unique.
	Weights []tensor.Weight
	// Unreadable lists the tensors that optimem cannot represent (sparse layouts, unknown dtypes); each wraps
	// ErrUnsupported and names its tensor in Record. The rest of the file is usable.
	Unreadable []*Error
	// Module is the tree of a whole pickled module (torch.save(model)), nil otherwise.
	Module *Module
	// Program is the code of a torch.export or TorchScript archive, nil otherwise.
	Program *Program
	// Config is the text of config.json beside the weights of a Hugging Face folder, nil otherwise.
	Config []byte
	// Metadata is what a GGUF file says of its model, by key, nil otherwise: integers, float32, float64, bool, string, and
	// slices of one of these.
	Metadata map[string]any
	// Values holds the plain values (numbers, strings, flags) that lie beside the tensors of a training checkpoint,
	// by full path, as text: "epoch" → "90". At most 1,000 are kept.
	Values []Value
	// Classes names the classes, outside PyTorch's own data types, of objects in the file. They are inert here, but a
	// loader that unpickles would import them.
	Classes []string

	byName  map[string]int
	repeats map[string]int // the last number that uniqueName gave to a name
	dicts   []dictNode
	closers []func() error
	closed  bool
}

// A Value is a plain value beside the tensors.
type Value struct {
	Name, Text string
}

// A Program is the code that a checkpoint carries, parsed and not evaluated. Exactly one of its fields is set.
type Program struct {
	// Exported is the program of a torch.export archive.
	Exported *exported.Program
	// Script is the code of a TorchScript archive.
	Script *script.Program
}

// A Module is one node of a pickled module tree. It is inert: the class is a name.
type Module struct {
	// Class is the qualified name, such as "torch.nn.modules.conv.Conv2d".
	Class string
	// Path is where the module sits in the tree ("layer1.0.conv1"; "" for the root).
	Path string
	// Training is the module's training flag when it was saved.
	Training bool
	// Attrs are the plain attributes (stride, padding, eps, …) in the order of the file: nil, bool, int64, float64,
	// string, []any of these, map[string]any, or a [ClassName].
	Attrs []Attr
	// Params and Buffers name entries of Checkpoint.Weights; a nil parameter (bias=False) has Weight "".
	Params, Buffers []Member
	// Hooks are the classes and functions that PyTorch calls before and after forward.
	Hooks []ClassName
	// Children are the submodules in order.
	Children []*Module
}

// An Attr is a plain attribute of a pickled module.
type Attr struct {
	Name  string
	Value any
}

// A ClassName is a class or function that an attribute refers to, or the class of an object that is not plain data.
type ClassName string

// A Member is a parameter or buffer of a module.
type Member struct {
	Name string
	// Weight is the name in Checkpoint.Weights, "" where the member is None.
	Weight string
	// Transient marks a buffer that the state dict leaves out (persistent=False).
	Transient bool
}

// Weight returns the weight with the given full path.
func (c *Checkpoint) Weight(name string) (tensor.Weight, bool) {
	i, ok := c.byName[name]
	if !ok {
		return tensor.Weight{}, false
	}
	return c.Weights[i], true
}

// Close closes the files. Reading a weight afterwards fails. A second Close returns nil.
func (c *Checkpoint) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	var errs []error
	for _, f := range c.closers {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// uniqueName returns name, or name with a number where another tensor has it: a checkpoint may hold both "a.b" and, in
// the dictionary "a", a tensor "b".
func (c *Checkpoint) uniqueName(name string) string {
	if _, taken := c.byName[name]; !taken {
		return name
	}
	if c.repeats == nil {
		c.repeats = make(map[string]int)
	}
	for n := max(c.repeats[name], 1) + 1; ; n++ {
		unique := fmt.Sprintf("%s#%d", name, n)
		if _, taken := c.byName[unique]; !taken {
			c.repeats[name] = n
			return unique
		}
	}
}

// weightBytes estimates what a weight takes in a checkpoint: a place in Weights, which grows by a quarter, and one in
// the index. Its name and the sizes of its dimensions come on top.
const weightBytes = 224

// grow makes room for n more weights.
func (c *Checkpoint) grow(n int) {
	c.Weights = slices.Grow(c.Weights, n)
	if c.byName == nil {
		c.byName = make(map[string]int, n)
	}
}

// addWeight appends a weight after checking that it lies inside its storage and that its name is new.
func (c *Checkpoint) addWeight(w tensor.Weight) error {
	if err := w.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if c.byName == nil {
		c.byName = make(map[string]int)
	}
	if _, dup := c.byName[w.Name]; dup {
		return fmt.Errorf("%w: two tensors are named %q", ErrFormat, w.Name)
	}
	c.byName[w.Name] = len(c.Weights)
	c.Weights = append(c.Weights, w)
	return nil
}

// NewCheckpoint returns a checkpoint of weights and a program that do not come from a file of ours: weights in an object
// store behind a [storage.Source], a graph made elsewhere. The weights are checked as those of a file are.
func NewCheckpoint(name string, weights []tensor.Weight, program *Program) (*Checkpoint, error) {
	c := &Checkpoint{Path: name, Format: FormatExported, Program: program}
	for _, w := range weights {
		if err := c.addWeight(w); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, w.Name, err)
		}
	}
	return c, nil
}
