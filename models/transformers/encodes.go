package transformers

import (
	"strings"

	"github.com/optimem/optimem/models/transformers/family"
)

// An Encoder is what a configuration says of the model that gives a state for every token of a text.
type Encoder struct {
	// Class is the name of the model's class: the base model of whatever head the configuration names.
	Class string
	// Positions is how many tokens a text may have, 0 where there is no bound.
	Positions int
	// Padding is the token that makes texts longer.
	Padding int
	// Causal says that the configuration names a causal language model, whose last token has seen all others.
	Causal bool
}

// EncoderOf returns the encoder that the text of a config.json describes. What is no model of texts is an
// [*UnsupportedError].
func EncoderOf(text []byte) (*Encoder, error) {
	c, err := parseConfig(text, nil)
	if err != nil {
		return nil, err
	}
	f, err := familyOf(c, c.Architecture())
	if err != nil {
		return nil, err
	}
	if f.Encodes == "" {
		return nil, &family.UnsupportedError{Type: f.Model, Class: c.Architecture(), Feature: "vectors of texts"}
	}
	e := &Encoder{
		Class: f.Encodes, Padding: max(c.Number("pad_token_id", f.Padding), 0),
		Causal: strings.HasSuffix(c.Architecture(), "ForCausalLM"),
	}
	if f.Positions > 0 {
		e.Positions = c.Size("max_position_embeddings|n_positions", f.Positions)
	}
	if f.AfterPadding {
		if e.Positions -= e.Padding + 1; c.Err == nil && e.Positions < 1 {
			c.Fail("max_position_embeddings", "leaves no position behind the padding's %d", e.Padding)
		}
	}
	return e, c.Err
}
