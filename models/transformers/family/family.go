// Package family has what the families of transformers' models share: what a family and its models are, the reader of their
// config.json, the names that checkpoints have for their weights, and the building blocks of many: attention, masks, heads,
// activations.
//
// It knows modules, shapes and configurations. It does not know any one family, nor which there are.
//
//	var tiny = &family.Family{
//		Model: "tiny", Prefix: "model", Inputs: family.TokenInputs("attention_mask"),
//		Heads: []family.Head{{Class: "TinyModel", Make: func(c *family.Config) *layers.Module {
//			return layers.New("tiny.TinyModel", nil).Add("words", layers.Embedding(c.Size("vocab_size", 100), c.Size("hidden_size", 8)))
//		}}},
//	}
package family

import (
	"fmt"
	"strings"

	"github.com/optimem/optimem/layers"
)

// A Family is the models of one model_type.
type Family struct {
	// Model is the model_type.
	Model string
	// Prefix is base_model_prefix: the name of the base model within the models that have a head.
	Prefix string
	// Classes are the family's own, by Python's qualified names.
	Classes layers.Classes
	// Heads are the models, by the names of their classes. The first is the base model.
	Heads []Head
	// Inputs are forward's arguments that a caller may give, in order, where a head does not have its own.
	Inputs func(c *Config) []layers.Port
	// Tied are pairs of names that share a weight where tie_word_embeddings is set; Ties says whether it is where the
	// configuration does not have it. Names that a model does not have are passed over.
	Tied [][2]string
	Ties bool
	// AlwaysTied is set where the configuration does not decide.
	AlwaysTied bool
	// Ignored matches keys of checkpoints that transformers leaves unread too.
	Ignored []string
	// Encodes is the class that gives the last hidden state of the tokens of a text alone, "" where there is none; Positions is the
	// default of max_position_embeddings there, 0 where lengths have no bound. AfterPadding is set where positions are numbered
	// from behind the padding's number, Padding is the default of that.
	Encodes      string
	Positions    int
	AfterPadding bool
	Padding      int
	// Renames turns the names that checkpoints have into those of the modules, nil where they are the same.
	Renames *strings.Replacer
}

// A Head is a model of a family: the base model, or one with a head on it.
type Head struct {
	// Class is the name of the class in Python, without its module.
	Class string
	// Prefix is the name of the base model within, where it is not the family's.
	Prefix string
	// Make returns the module for a configuration.
	Make func(c *Config) *layers.Module
	// Inputs are forward's arguments, where they are not the family's.
	Inputs func(c *Config) []layers.Port
	// Context is how many positions a sequence may have, of a model that can be run step by step; nil for others.
	Context func(c *Config) int
	// Source is how many positions a text or a sound may have that it reads before it writes; nil where it reads none.
	Source func(c *Config) int
	// Pictures says how pictures come into a text, of a model that sees step by step; nil of others.
	Pictures func(c *Config) *layers.Pictures
}

// Generating is a head that predicts the next token, of a model whose modules can be run step by step: they attend by
// [Attention.Run], with positions that the caller gives.
func Generating(context func(c *Config) int, h Head) Head {
	h.Context = context
	return h
}

// Transducing is a head that reads a source and then predicts tokens one after the other: its decoder's modules attend
// by [Attention.Run] and [Attention.Recall], and read sources by [KeepSource].
func Transducing(context, source func(c *Config) int, h Head) Head {
	h.Context, h.Source = context, source
	return h
}

// SeeingSteps is a head that predicts the next token of texts with pictures, each of which stands in the places of some
// tokens: [Pictured.Place].
func SeeingSteps(context func(c *Config) int, pictures func(c *Config) *layers.Pictures, h Head) Head {
	h.Context, h.Pictures = context, pictures
	return h
}

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
