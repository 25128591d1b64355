// Package transformers has models of Python's transformers: their classes and forwards, and which one with which sizes
// a folder's config.json describes.
//
// Forward is that of a model that is evaluated with use_cache=False: there are no past keys and values, neither in nor
// out. Whatever dtype the weights have, the computation is in float32. The graphs are those that torch.export records
// of the same models.
//
// It knows modules, shapes and configurations. It does not know files, devices or the meaning of ops.
//
//	a, err := transformers.FromConfig(config, stateDict)
package transformers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// A family is the models of one model_type.
type family struct {
	// model is the model_type.
	model string
	// prefix is base_model_prefix: the name of the base model within the models that have a head.
	prefix string
	// classes are the family's own, by Python's qualified names.
	classes layers.Classes
	// heads are the models, by the names of their classes. The first is the base model.
	heads []head
	// inputs are forward's arguments that a caller may give, in order, where a head does not have its own.
	inputs func(c *config) []layers.Port
	// tied are pairs of names that share a weight where tie_word_embeddings is set; ties says whether it is where the
	// configuration does not have it. Names that a model does not have are passed over.
	tied [][2]string
	ties bool
	// alwaysTied is set where the configuration does not decide.
	alwaysTied bool
	// ignored matches keys of checkpoints that transformers leaves unread too.
	ignored []string
	// encodes is the class that gives the last hidden state of the tokens of a text alone, "" where there is none; positions is the
	// default of max_position_embeddings there, 0 where lengths have no bound. afterPadding is set where positions are numbered
	// from behind the padding's number, padding is the default of that.
	encodes      string
	positions    int
	afterPadding bool
	padding      int
	// renames turns the names that checkpoints have into those of the modules, nil where they are the same.
	renames *strings.Replacer
}

// A head is a model of a family: the base model, or one with a head on it.
type head struct {
	class string
	// prefix is the name of the base model within, where it is not the family's.
	prefix string
	// make returns the module for a configuration.
	make func(c *config) *layers.Module
	// inputs are forward's arguments, where they are not the family's.
	inputs func(c *config) []layers.Port
	// context is how many positions a sequence may have, of a model that can be run step by step; nil for others.
	context func(c *config) int
	// source is how many positions a text or a sound may have that it reads before it writes; nil where it reads none.
	source func(c *config) int
	// pictures says how pictures come into a text, of a model that sees step by step; nil of others.
	pictures func(c *config) *layers.Pictures
}

// generating is a head that predicts the next token, of a model whose modules can be run step by step: they attend by
// [attention.run], with positions that the caller gives.
func generating(context func(c *config) int, h head) head {
	h.context = context
	return h
}

// transducing is a head that reads a source and then predicts tokens one after the other: its decoder's modules attend
// by [attention.run] and [attention.recall], and read sources by [keepSource].
func transducing(context, source func(c *config) int, h head) head {
	h.context, h.source = context, source
	return h
}

// seeingSteps is a head that predicts the next token of texts with pictures, each of which stands in the places of some
// tokens: [pictured.place].
func seeingSteps(context func(c *config) int, pictures func(c *config) *layers.Pictures, h head) head {
	h.context, h.pictures = context, pictures
	return h
}

// mostPictures bounds the pictures of a text.
const mostPictures = 256

// families is every family of the package.
var families = slices.Concat(decoders, mixtures, recurrents, siglipFamilies, speechFamilies, []*family{
	bert, roberta, xlmRoberta, camembert, distilbert, albert, electra, mpnet, debertaV2, modernBert, gpt2, opt, llama, mistral, qwen2, qwen3, gemma, gemma2, phi3,
	vit, deit, dinov2, dinov3, clip, clipText, clipVision, t5, bart, mbart, pegasus, marian, whisper, llava, chineseClip, blip,
})

// Classes are the package's classes.
var Classes = func() layers.Classes {
	all := maps.Clone(sharedClasses)
	for _, f := range families {
		maps.Copy(all, f.classes)
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
	if q := c.fields["quantization_config"]; q != nil {
		return nil, &UnsupportedError{Type: f.model, Class: h.class, Feature: "quantized weights (quantization_config)"}
	}
	var names map[string]string
	if c.part != "" {
		dict, names = textDict(dict)
		c.dict = dict
	}
	a, err := f.architecture(h, c)
	if err != nil {
		return nil, err
	}
	a.Weights, err = f.bind(h, c, a.Root, dict)
	if err != nil {
		return nil, err
	}
	if list := c.unexplained(); c.as != "" && len(list) > 0 {
		return nil, &UnsupportedError{
			Type: f.model, Class: h.class, Feature: "a configuration that says " + strings.Join(list, ", ") + ", which that type has not",
		}
	}
	if c.part != "" {
		for _, e := range a.Root.StateDict() {
			name := e.Name
			if other, ok := a.Weights[name]; ok {
				name = other
			}
			a.Weights[e.Name] = names[name]
		}
	}
	a.Note = c.asNote(h)
	return a, nil
}

// architecture returns a model of the family as its configuration describes it, under the names of its own weights.
func (f *family) architecture(h *head, c *config) (*layers.Architecture, error) {
	root := h.make(c)
	if c.err != nil {
		return nil, c.err
	}
	inputs := h.inputs
	if inputs == nil {
		inputs = f.inputs
	}
	a := &layers.Architecture{Name: h.class, Root: root, Inputs: inputs(c), Classes: runnable}
	if h.context != nil {
		a.Context = h.context(c)
		if h.source != nil {
			a.Source = h.source(c)
		}
		if h.pictures != nil {
			a.Pictures = h.pictures(c)
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
	return a, c.err
}

// choose returns the family and the model that a configuration names.
func choose(c *config, class string) (*family, *head, error) {
	if class == "" {
		class = c.architecture()
	}
	if f := familyNamed(class); f != nil && c.fields["model_type"] != nil && f.model != c.fields["model_type"] {
		h, err := c.takeAs(f)
		return f, h, err
	} else if f != nil {
		class = c.architecture()
	}
	f, err := familyOf(c, class)
	if err != nil {
		return nil, nil, err
	}
	if class == "" {
		return f, &f.heads[0], nil
	}
	for k := range f.heads {
		if f.heads[k].class == class {
			return f, &f.heads[k], nil
		}
	}
	if f.model != c.fields["model_type"] && strings.HasSuffix(class, "ForCausalLM") { // of a type with another name, as its class
		for k := range f.heads {
			if f.heads[k].context != nil && c.fields["clip_qkv"] == nil && c.fields["use_sliding_window"] != true {
				return f, &f.heads[k], nil
			}
		}
	}
	unknown := &UnsupportedError{Type: f.model, Class: class}
	for _, h := range f.heads {
		unknown.Known = append(unknown.Known, h.class)
	}
	return nil, nil, unknown
}

// familyOf returns the family that a configuration names; class is for its error.
func familyOf(c *config, class string) (*family, error) {
	model := c.text("model_type", "")
	if c.err != nil {
		return nil, c.err
	}
	if model == "" {
		return nil, ErrNoType
	}
	f := familyNamed(model)
	if f == nil {
		return nil, &UnsupportedError{Type: model, Class: class}
	}
	return f, nil
}

// sameAs are model types that are another by a name of their own: their folders name that one's classes.
var sameAs = map[string]string{
	"kimi_k2": "deepseek_v3", "qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3",
	"qwen3_vl_moe_text": "qwen3_moe", "internlm3": "llama", "iquestcoder": "llama",
}

// familyNamed returns the family of a model_type, nil where there is none.
func familyNamed(model string) *family {
	if same, ok := sameAs[model]; ok {
		model = same
	}
	if i := slices.IndexFunc(families, func(f *family) bool { return f.model == model }); i >= 0 {
		return families[i]
	}
	return nil
}

// ErrNoType is returned for a configuration without a model_type: one of another library.
var ErrNoType = errors.New("config.json names no model_type")

// An UnsupportedError says that a configuration asks for what is not known here.
type UnsupportedError struct {
	// Type is the model_type; Class the model's class, "" where the configuration names none.
	Type, Class string
	// Known are the classes of that type that are known, where it is the class that is not.
	Known []string
	// Feature is what of the model is not known; "" is all of it.
	Feature string
	// Code is the class whose code the folder brings, which is not run, and Loader the class of transformers that would load it;
	// "" where there is none. Like is the family that the model is by its weights and its configuration, "" for none.
	Code, Loader, Like string
}

// Error names the model.
func (e *UnsupportedError) Error() string {
	what := "model type " + e.Type
	if e.Class != "" {
		what += fmt.Sprintf(" (%s)", e.Class)
	}
	if e.Feature != "" {
		what += ": " + e.Feature
	}
	if e.Code != "" {
		what += "; its code comes with the folder (" + e.Code + ") and is not run"
	}
	if len(e.Known) > 0 {
		what += "; of that type there are " + strings.Join(e.Known, ", ")
	}
	return what
}

// tokens is an input of one number for each token.
func tokens(name string, optional bool) layers.Port {
	return layers.Port{
		Name: name, DType: tensor.Int64, Shape: tensor.Shape{-1, -1}, Dims: []string{"batch", "sequence"}, Optional: optional,
	}
}

// tokenInputs returns what makes the inputs input_ids and, optional ones, those named.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func tokenInputs(optional ...string) func(*config) []layers.Port {
	return func(*config) []layers.Port {
		ports := []layers.Port{tokens("input_ids", false)}
		for _, name := range optional {
			ports = append(ports, tokens(name, true))
		}
		return ports
	}
}
