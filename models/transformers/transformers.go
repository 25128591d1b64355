// Package transformers has models of Python's transformers: their classes and forwards, and which one with which sizes
// a folder's config.json describes.
//
// Forward is that of a model that is evaluated with use_cache=False: there are no past keys and values, neither in nor
// out. Whatever dtype the weights have, the computation is in float32. The graphs are those that torch.export records
// of the same models.
//
// Decoders of texts are described here; other models are in packages of their own, and package family has what all share.
//
// It knows modules, shapes and configurations. It does not know files, devices or the meaning of ops.
//
//	a, err := transformers.FromConfig(config, stateDict)
package transformers

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/encoders"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/models/transformers/pictures"
	"github.com/optimem/optimem/models/transformers/seq2seq"
	"github.com/optimem/optimem/models/transformers/sounds"
)

// mostPictures bounds the pictures of a text.
const mostPictures = 256

// families is every family of the package.
var families = slices.Concat(decoders, mixtures, recurrents,
	encoders.Families, seq2seq.Families, pictures.Families, sounds.Families,
	[]*family.Family{modernBert, gpt2, opt, llama, mistral, qwen2, qwen3, gemma, gemma2, phi3})

// Classes are the package's classes.
var Classes = func() layers.Classes {
	all := maps.Clone(family.SharedClasses)
	all[xieluClass] = layers.Unary(xieluForward)
	for _, f := range families {
		maps.Copy(all, f.Classes)
	}
	return all
}()

// runnable are all classes that the models consist of.
var runnable = func() layers.Classes {
	all := maps.Clone(layers.NN())
	maps.Copy(all, Classes)
	return all
}()

// FromConfig returns the model that the text of a config.json describes, for the weights of a state dict.
func FromConfig(text []byte, dict layers.StateDict) (*layers.Architecture, error) {
	return Named("", text, dict)
}

// Named is FromConfig for another class than the one that the configuration names, such as "BertModel", or for another family,
// such as "llama": a model of a type that is not known here, and that is of a known family by its weights and all that its
// configuration says.
func Named(class string, text []byte, dict layers.StateDict) (*layers.Architecture, error) {
	parse := parseConfig
	if seeing(class) {
		parse = parseWhole
	}
	c, err := parse(text, dict)
	if err != nil {
		return nil, err
	}
	f, h, err := choose(c, class)
	if err != nil {
		if class != "" {
			return nil, err
		}
		return nil, explain(err, text, dict)
	}
	if q := c.Fields["quantization_config"]; q != nil {
		return nil, &family.UnsupportedError{Type: f.Model, Class: h.Class, Feature: "quantized weights (quantization_config)"}
	}
	var names map[string]string
	if c.Part != "" {
		dict, names = textDict(dict)
		c.Dict = dict
	}
	a, err := architecture(f, h, c)
	if err != nil {
		return nil, err
	}
	a.Weights, err = f.Bind(h, c, a.Root, dict)
	if err != nil {
		return nil, err
	}
	if list := unexplained(c); c.As != "" && len(list) > 0 {
		return nil, &family.UnsupportedError{
			Type: f.Model, Class: h.Class, Feature: "a configuration that says " + strings.Join(list, ", ") + ", which that type has not",
		}
	}
	if c.Part != "" {
		for _, e := range a.Root.StateDict() {
			name := e.Name
			if other, ok := a.Weights[name]; ok {
				name = other
			}
			a.Weights[e.Name] = names[name]
		}
	}
	a.Note = asNote(c, h)
	return a, nil
}

// architecture returns a model of the family as its configuration describes it, under the names of its own weights.
func architecture(f *family.Family, h *family.Head, c *family.Config) (*layers.Architecture, error) {
	root := h.Make(c)
	if c.Err != nil {
		return nil, c.Err
	}
	inputs := h.Inputs
	if inputs == nil {
		inputs = f.Inputs
	}
	a := &layers.Architecture{Name: h.Class, Root: root, Inputs: inputs(c), Classes: runnable}
	if h.Context != nil {
		a.Context = h.Context(c)
		if h.Source != nil {
			a.Source = h.Source(c)
		}
		if h.Pictures != nil {
			a.Pictures = h.Pictures(c)
			a.Source = mostPictures * a.Pictures.Places
		}
		root.Walk(func(_ string, m *layers.Module) {
			if context, ok := m.Attrs["context"].(int); ok && context > 0 { // a rotary embedding's
				a.Stretch, a.Restarts = context, m.Attrs["factor"] == 0.0
			}
			if window, ok := m.Attrs["window"].(int); ok && m.Attrs["embedding_multiplier"] == nil { // an attention's, no model's
				a.Window = max(a.Window, window)
			}
			if m.Attrs["recurrent"] == true {
				a.Recurrent, a.Keyless = true, m.Attrs["keyless"] == true
			}
		})
	}
	return a, c.Err
}

// choose returns the family and the model that a configuration names.
func choose(c *family.Config, class string) (*family.Family, *family.Head, error) {
	if class == "" {
		class = c.Architecture()
	}
	if f := familyNamed(class); f != nil && c.Fields["model_type"] != nil && f.Model != c.Fields["model_type"] {
		h, err := takeAs(c, f)
		return f, h, err
	} else if f != nil {
		class = c.Architecture()
	}
	f, err := familyOf(c, class)
	if err != nil {
		return nil, nil, err
	}
	if class == "" {
		return f, &f.Heads[0], nil
	}
	for k := range f.Heads {
		if f.Heads[k].Class == class {
			return f, &f.Heads[k], nil
		}
	}
	if f.Model != c.Fields["model_type"] && strings.HasSuffix(class, "ForCausalLM") { // of a type with another name, as its class
		for k := range f.Heads {
			if f.Heads[k].Context != nil && c.Fields["clip_qkv"] == nil && c.Fields["use_sliding_window"] != true {
				return f, &f.Heads[k], nil
			}
		}
	}
	unknown := &family.UnsupportedError{Type: f.Model, Class: class}
	for _, h := range f.Heads {
		unknown.Known = append(unknown.Known, h.Class)
	}
	return nil, nil, unknown
}

// familyOf returns the family that a configuration names; class is for its error.
func familyOf(c *family.Config, class string) (*family.Family, error) {
	model := c.Text("model_type", "")
	if c.Err != nil {
		return nil, c.Err
	}
	if model == "" {
		return nil, ErrNoType
	}
	f := familyNamed(model)
	if f == nil {
		return nil, &family.UnsupportedError{Type: model, Class: class}
	}
	return f, nil
}

// sameAs are model types that are another by a name of their own: their folders name that one's classes.
var sameAs = map[string]string{
	"kimi_k2": "deepseek_v3", "qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3",
	"qwen3_vl_moe_text": "qwen3_moe", "internlm3": "llama", "iquestcoder": "llama",
}

// familyNamed returns the family of a model_type, nil where there is none.
func familyNamed(model string) *family.Family {
	if same, ok := sameAs[model]; ok {
		model = same
	}
	if i := slices.IndexFunc(families, func(f *family.Family) bool { return f.Model == model }); i >= 0 {
		return families[i]
	}
	return nil
}

// Errors about a config.json.
type (
	// A ConfigError says what is wrong in it.
	ConfigError = family.ConfigError
	// An UnsupportedError says that it asks for what is not known here.
	UnsupportedError = family.UnsupportedError
)

// ErrNoType is returned for a configuration without a model_type: one of another library.
var ErrNoType = errors.New("config.json names no model_type")
