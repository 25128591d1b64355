package transformers

import "strings"

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
	f, err := familyOf(c, c.architecture())
	if err != nil {
		return nil, err
	}
	if f.encodes == "" {
		return nil, &UnsupportedError{Type: f.model, Class: c.architecture(), Feature: "vectors of texts"}
	}
	e := &Encoder{
		Class: f.encodes, Padding: max(c.number("pad_token_id", f.padding), 0),
		Causal: strings.HasSuffix(c.architecture(), "ForCausalLM"),
	}
	if f.positions > 0 {
		e.Positions = c.size("max_position_embeddings|n_positions", f.positions)
	}
	if f.afterPadding {
		if e.Positions -= e.Padding + 1; c.err == nil && e.Positions < 1 {
			c.fail("max_position_embeddings", "leaves no position behind the padding's %d", e.Padding)
		}
	}
	return e, c.err
}
