// Package lora has adapters of Python's peft: what a folder's adapter_config.json and the names of its tensors say of a
// model's modules, and what the modules compute with them. Nothing is merged: a module's own result stays what it is, and
// what the adapter adds is computed beside it.
//
// It knows modules, names, shapes and configurations. It does not know files, devices or the meaning of ops.
//
//	adapter, err := lora.Read("polite", config, stateDict, architecture)
//	adapted := lora.With(architecture, adapter)
package lora

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// An Adapter is what a folder changes of one architecture's modules.
type Adapter struct {
	// Name is what users call it.
	Name string
	// changes are products that are added to modules' results, by the modules' paths.
	changes map[string]*change
	// params are tensors that stand for parameters, by the parameters' paths; owners are the modules that have some.
	params map[string]string
	owners map[string]bool
}

// A change is what is added to the result of one module. The fields are names of tensors, "" for none.
type change struct {
	kind                     kind
	down, up, bias, strength string
	// stretch are factors that were computed, once for all passes: see [Adapter.Stretch].
	stretch string
	scale   float64
	// stored says that the module's weight is a tensor of float32 to it, of a file.
	stored bool
}

// A kind says what sort of module is changed.
type kind int

const (
	linear    kind = iota
	turned         // linear with a weight of [inputs outputs]
	embedding      // of which rows are taken
)

// TensorName is what a tensor of an adapter's file is called among the model's weights.
func TensorName(adapter, tensor string) string { return "lora." + adapter + "." + tensor }

// A Stretched module is one whose rows DoRA stretches: names of the tensors that the factors depend on, and their own.
type Stretched struct {
	// Path is the module's.
	Path string
	// Weight is the parameter that counts: that of an adapter where it has one, else the model's, by its path.
	Weight string
	// Down, Up and Strength are the adapter's.
	Down, Up, Strength string
	Scale              float64
	// Turned says that the weight is [inputs outputs].
	Turned bool
	// Factors is the name that their tensor has.
	Factors string
}

// Stretch calls f with every module whose rows the adapter stretches. Where f reports true, the model has the factors
// as a weight; the others are computed in every pass.
func (a *Adapter) Stretch(f func(Stretched) bool) {
	for _, path := range slices.Sorted(maps.Keys(a.changes)) {
		c := a.changes[path]
		if c.strength == "" || !c.stored {
			continue
		}
		weight, factors := layers.Join(path, "weight"), TensorName(a.Name, path+".lora_stretch")
		s := Stretched{path, cmp.Or(a.params[weight], weight), c.down, c.up, c.strength, c.scale,
			c.kind == turned, factors}
		if f(s) {
			c.stretch = factors
		}
	}
}

// An Error says what is wrong with the files of an adapter.
type Error struct {
	// Adapter is its name. Field is an entry of adapter_config.json, Tensor one of the file of weights; one of them is "".
	Adapter, Field, Tensor, Msg string
}

// Error names the adapter and the entry or the tensor.
func (e *Error) Error() string {
	return fmt.Sprintf("adapter %s: %s: %s", e.Adapter, e.Field+e.Tensor, e.Msg)
}

// An UnsupportedError says that an adapter asks for what is not known here.
type UnsupportedError struct {
	// Adapter is its name, Field the entry of adapter_config.json that asks for it.
	Adapter, Field, Msg string
}

// Error names the adapter and the entry.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("adapter %s: %s: %s", e.Adapter, e.Field, e.Msg)
}

// Read returns the adapter that a configuration and the names and shapes of tensors describe, for an architecture. Every
// module that the configuration names must have its tensors, and every tensor a module that wants it.
func Read(name string, config []byte, dict layers.StateDict, a *layers.Architecture) (*Adapter, error) {
	c, err := parseConfig(name, config)
	if err != nil {
		return nil, err
	}
	r := &reader{
		config: c, tree: treeOf(a), found: make(map[string]layers.Entry),
		adapter: &Adapter{
			Name: name, changes: make(map[string]*change), params: make(map[string]string),
			owners: make(map[string]bool),
		},
	}
	r.compare(dict)
	if err := r.target(); err != nil {
		return nil, err
	}
	for _, e := range dict {
		if err := r.take(e); err != nil {
			return nil, err
		}
	}
	if err := r.complete(); err != nil {
		return nil, err
	}
	return r.adapter, nil
}

// A reader is an adapter that is being read.
type reader struct {
	*config
	tree    *tree
	adapter *Adapter
	// found are the entries of the file, by the names that changes have for them.
	found map[string]layers.Entry
	// saved are the modules that the adapter has copies of.
	saved map[string]bool
	// more is what the adapter's names of the base model's modules have in front, less what those of the model have.
	more, less string
}

// compare finds out whether the adapter was made for the model with a head, or without one, where this one is the other.
func (r *reader) compare(dict layers.StateDict) {
	for _, e := range dict {
		path, _, ok := strings.Cut(strings.TrimPrefix(e.Name, prefix), ".lora_")
		if found, there := r.tree.find(path); ok && there && found != path {
			r.more, _ = strings.CutSuffix(path, found)
			r.less, _ = strings.CutSuffix(found, path)
			if r.more == path {
				r.more = ""
			}
			if r.less == found {
				r.less = ""
			}
			return
		}
	}
}

// named returns what the adapter's configuration calls the module at a path.
func (r *reader) named(path string) string {
	if path == "" || r.more == "" {
		return strings.TrimPrefix(path, r.less)
	}
	return r.more + path
}

// target finds the modules that the configuration names.
func (r *reader) target() error {
	r.saved = make(map[string]bool)
	for _, path := range r.tree.paths {
		m, named := r.tree.modules[path], r.named(path)
		if r.saves(named) {
			r.saved[path] = true
		}
		if path == "" || !r.targets(named, m) {
			continue
		}
		k, ok := kindOf(m)
		if !ok {
			return r.unsupported("target_modules", "names %s, which is a %s", path, m.Class)
		}
		if k == embedding && r.dora {
			return r.unsupported("use_dora", "with an embedding, %s", path)
		}
		rank, alpha := r.ranks.of(named, float64(r.rank)), r.alphas.of(named, r.alpha)
		w := weightOf(m)
		c := &change{kind: k, scale: r.scaling(rank, alpha), stored: w.Value == nil && w.DType == tensor.Float32}
		if int(rank) < 1 || float64(int(rank)) != rank || rank > maxRank {
			return r.fail("rank_pattern", "%v for %s", rank, path)
		}
		r.adapter.changes[path] = c
	}
	if len(r.adapter.changes) == 0 && len(r.saved) == 0 {
		return r.fail("target_modules", "names no module of the model")
	}
	return nil
}

// maxRank bounds ranks.
const maxRank = 1 << 16

// prefix begins the names of an adapter's tensors.
const prefix = "base_model.model."

// The endings of an adapter's tensors.
const (
	downEnding      = ".lora_A.weight"
	upEnding        = ".lora_B.weight"
	biasEnding      = ".lora_B.bias"
	rowsEnding      = ".lora_embedding_A"
	columnsEnding   = ".lora_embedding_B"
	strengthEnding  = ".lora_magnitude_vector"
	strengthEnding2 = ".lora_magnitude_vector.weight"
)

// take finds the place of a tensor of the file.
func (r *reader) take(e layers.Entry) error {
	if strings.Contains(e.Name, ".original_module.") { // the base model's, which bias="all" lets through
		return nil
	}
	key := strings.TrimPrefix(e.Name, prefix)
	for _, ending := range []string{
		downEnding, upEnding, biasEnding, rowsEnding, columnsEnding, strengthEnding, strengthEnding2,
	} {
		path, ok := strings.CutSuffix(key, ending)
		if !ok {
			continue
		}
		path, there := r.tree.find(path)
		if !there {
			return r.wrong(e.Name, "the model has no module %s", path)
		}
		c := r.adapter.changes[path]
		if c == nil {
			return r.wrong(e.Name, "target_modules does not name %s", path)
		}
		return r.takeChange(e, path, c, ending)
	}
	return r.takeParam(e, key)
}

// takeChange takes a tensor of a module that is changed, whose shape has to be right.
func (r *reader) takeChange(e layers.Entry, path string, c *change, ending string) error {
	in, out := sizesOf(r.tree.modules[path], c.kind)
	rank := int(r.ranks.of(r.named(path), float64(r.rank)))
	var place *string
	var want []int
	of := []kind{linear, turned}
	switch ending {
	case downEnding:
		place, want = &c.down, []int{rank, in}
	case upEnding:
		place, want = &c.up, []int{out, rank}
	case biasEnding:
		place, want = &c.bias, []int{out}
		if !r.upBias {
			return r.wrong(e.Name, "is there, and lora_bias is not set")
		}
	case rowsEnding:
		place, want, of = &c.down, []int{rank, in}, []kind{embedding}
	case columnsEnding:
		place, want, of = &c.up, []int{out, rank}, []kind{embedding}
	default:
		place, want = &c.strength, []int{out}
		if !r.dora {
			return r.wrong(e.Name, "is there, and use_dora is not set")
		}
	}
	switch {
	case !slices.Contains(of, c.kind):
		return r.wrong(e.Name, "is not for a %s", r.tree.modules[path].Class)
	case *place != "":
		return r.wrong(e.Name, "is there twice")
	case !slices.Equal(e.Shape, want):
		return r.wrong(e.Name, "has the shape %v where %v is wanted", e.Shape, want)
	case !isFloat(e.DType):
		return r.wrong(e.Name, "is of %v", e.DType)
	}
	*place = TensorName(r.adapter.Name, e.Name)
	return nil
}

// takeParam takes a tensor that stands for a parameter.
func (r *reader) takeParam(e layers.Entry, key string) error {
	plain := strings.Replace(strings.Replace(key, ".base_layer.", ".", 1), ".modules_to_save.", ".", 1)
	owner, name := "", plain
	if i := strings.LastIndexByte(plain, '.'); i >= 0 {
		owner, name = plain[:i], plain[i+1:]
	}
	owner, there := r.tree.find(owner)
	if !there {
		return r.wrong(e.Name, "the model has no module %s", owner)
	}
	path := layers.Join(owner, name)
	p, there := r.tree.params[path]
	switch _, taken := r.adapter.params[path]; {
	case !there:
		return r.wrong(e.Name, "the model has no parameter %s", path)
	case !r.mayReplace(owner, name, key != plain):
		return r.wrong(e.Name, "neither modules_to_save nor bias nor target_modules asks for it")
	case !e.Shape.Equal(p.Shape):
		return r.wrong(e.Name, "has the shape %v where %v is wanted", e.Shape, p.Shape)
	case !isFloat(e.DType):
		return r.wrong(e.Name, "is of %v", e.DType)
	case taken && key == plain || !taken: // the plain name is the one that peft reads
		r.replace(path, e.Name)
	}
	return nil
}

// replace has a tensor stand for the parameter at a path. One that is not a copy of the adapter's own is the model's, and so
// are those that are tied to it.
func (r *reader) replace(path, tensor string) {
	tied := []string{path}
	if !r.inSaved(r.tree.owner[path]) {
		tied = r.tree.tied[path]
	}
	for _, path := range tied {
		r.adapter.params[path] = TensorName(r.adapter.Name, tensor)
		r.adapter.owners[r.tree.owner[path]] = true
	}
}

// mayReplace reports whether the file may have a parameter of the module at a path. inner says that its name is that of the
// module within the adapted one.
func (r *reader) mayReplace(owner, name string, inner bool) bool {
	if r.inSaved(owner) {
		return true
	}
	c := r.adapter.changes[owner]
	k, known := kindOf(r.tree.modules[owner])
	switch {
	case name == "weight" && (known && k == embedding || owner == "lm_head" || c != nil && inner): // save_embedding_layers
		return true
	case strings.Contains(layers.Join(owner, name), "bias"):
		return r.bias == "all" || r.bias == "lora_only" && c != nil
	}
	return false
}

// inSaved reports whether a module is one that the adapter has a copy of, or lies in one.
func (r *reader) inSaved(path string) bool {
	for {
		if r.saved[path] {
			return true
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return false
		}
		path = path[:i]
	}
}

// complete checks that nothing is missing.
func (r *reader) complete() error {
	for _, path := range slices.Sorted(maps.Keys(r.adapter.changes)) {
		c := r.adapter.changes[path]
		down, up := downEnding, upEnding
		if c.kind == embedding {
			down, up = rowsEnding, columnsEnding
		}
		missing := ""
		switch {
		case c.down == "":
			missing = down
		case c.up == "":
			missing = up
		case r.dora && c.strength == "":
			missing = strengthEnding
		case r.upBias && c.bias == "" && c.kind != embedding:
			missing = biasEnding
		}
		if missing != "" {
			return r.wrong(prefix+r.named(path)+missing, "is missing, and target_modules names its module")
		}
	}
	for _, path := range slices.Sorted(maps.Keys(r.tree.params)) {
		owner := r.tree.owner[path]
		if _, there := r.adapter.params[path]; !there && r.inSaved(owner) && !r.tree.params[path].Transient {
			return r.wrong(prefix+r.named(path), "is missing, and modules_to_save names its module")
		}
	}
	return nil
}

// isFloat reports whether a tensor may be of a dtype.
func isFloat(d tensor.DType) bool {
	return d.IsHalf() || d == tensor.Float32 || d == tensor.Float64
}

func (r *reader) wrong(tensor, format string, args ...any) error {
	return &Error{Adapter: r.adapter.Name, Tensor: tensor, Msg: fmt.Sprintf(format, args...)}
}
