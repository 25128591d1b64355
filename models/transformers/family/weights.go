package family

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// unread matches the keys that older checkpoints hold and nothing reads: buffers that are computed.
var unread = []string{`(^|\.)position_ids$`, `rotary_emb\.inv_freq$`}

// Bind finds the checkpoint's weights for the names of a module, as from_pretrained does: with or without the prefix of
// the base model, under the names of older versions, tied ones under either name. It returns the names that differ, or
// a [*layers.MismatchError].
func (f *Family) Bind(h *Head, c *Config, root *layers.Module, dict layers.StateDict) (map[string]string, error) {
	prefix := f.Prefix
	if h.Prefix != "" {
		prefix = h.Prefix
	}
	module := root.StateDict()
	wanted := make(map[string]bool, len(module))
	for _, e := range module {
		wanted[e.Name] = true
	}
	have := make(map[string]layers.Entry, len(dict)) // by the module's names
	var rest []layers.Entry
	for _, e := range dict { // exact names come first, whatever the order
		if wanted[e.Name] {
			have[e.Name] = e
		} else {
			rest = append(rest, e)
		}
	}
	ignored := f.compile()
	var unexpected []string
	for _, e := range rest {
		name := f.translate(prefix, e.Name, wanted)
		if _, taken := have[name]; name != "" && !taken {
			have[name] = e
		} else if !ignored(e.Name) && !f.otherHead(prefix, e.Name, root) {
			unexpected = append(unexpected, e.Name)
		}
	}
	if c.Flag("tie_word_embeddings", f.Ties) || f.AlwaysTied {
		for _, pair := range f.Tied {
			tie(have, wanted, pair[0], pair[1])
			tie(have, wanted, pair[1], pair[0])
		}
	}
	if c.Err != nil {
		return nil, c.Err
	}
	names := make(map[string]string)
	found := make(layers.StateDict, 0, len(have))
	for _, w := range module {
		e, ok := have[w.Name]
		if !ok {
			continue
		}
		if w.Name != e.Name {
			names[w.Name] = e.Name
		}
		switch e.DType {
		case tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.Float64:
		default:
			return nil, &UnsupportedError{Type: f.Model, Class: h.Class, Feature: e.Name + " is of " + e.DType.String()}
		}
		found = append(found, layers.Entry{Name: w.Name, DType: e.DType, Shape: e.Shape})
	}
	err := root.Check(h.Class, found)
	if len(unexpected) > 0 {
		var mismatch *layers.MismatchError
		if !errors.As(err, &mismatch) {
			mismatch = &layers.MismatchError{Arch: h.Class}
		}
		mismatch.Unexpected = append(mismatch.Unexpected, unexpected...)
		err = mismatch
	}
	return names, err
}

// tie gives a weight that the checkpoint lacks that of the other name.
func tie(have map[string]layers.Entry, wanted map[string]bool, name, other string) {
	_, there := have[name]
	if e, ok := have[other]; ok && !there && wanted[name] {
		have[name] = e
	}
}

// legacy are the names that the first checkpoints of BERT have, from TensorFlow.
var legacy = strings.NewReplacer("LayerNorm.gamma", "LayerNorm.weight", "LayerNorm.beta", "LayerNorm.bias")

// translate returns the module's name for a key of the checkpoint, "" where it has none.
func (f *Family) translate(prefix, key string, wanted map[string]bool) string {
	names := []string{key, legacy.Replace(key)}
	if f.Renames != nil {
		names = append(names, f.Renames.Replace(key))
	}
	for _, name := range names {
		bare, _ := strings.CutPrefix(name, f.Prefix+".")
		for _, name := range []string{name, bare, prefix + "." + name, prefix + "." + bare} {
			if wanted[name] {
				return name
			}
		}
	}
	return ""
}

// otherHead reports whether a key belongs to a head that the model does not have: transformers leaves those unread.
func (f *Family) otherHead(prefix, key string, root *layers.Module) bool {
	base := root
	if within := root.Child(prefix); within != nil {
		base = within
	}
	first, _, _ := strings.Cut(key, ".")
	return first != f.Prefix && first != prefix && !base.Has(first) && !root.Has(first)
}

// compile returns what tells whether a key is one that nothing reads.
func (f *Family) compile() func(key string) bool {
	all := regexp.MustCompile(strings.Join(slices.Concat(unread, f.Ignored), "|"))
	return all.MatchString
}
