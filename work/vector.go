package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// VectorOutput is what the output of a model that makes vectors is called: a row for each text.
const VectorOutput = "embedding"

// maxTexts is how many texts an item has at most.
const maxTexts = 1 << 12

// texts are what a model that makes vectors is asked.
type texts struct {
	Texts []string `json:"texts"`
	// Prompt goes before each, or names one of the model's.
	Prompt string `json:"prompt,omitempty"`
}

// parseTexts reads texts, which anybody may have sent. One text may be called text.
func parseTexts(data []byte) (*texts, error) {
	var t struct {
		texts
		Text *string         `json:"text"`
		ID   json.RawMessage `json:"id"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return nil, fmt.Errorf("no texts: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("no texts: something follows the object")
	}
	switch {
	case t.Text != nil && t.Texts != nil:
		return nil, errors.New("a text and texts")
	case t.Text != nil:
		t.Texts = []string{*t.Text}
	case len(t.Texts) == 0:
		return nil, errors.New("neither a text nor texts")
	}
	if len(t.Texts) > maxTexts {
		return nil, fmt.Errorf("%d texts: %d are the most", len(t.Texts), maxTexts)
	}
	return &t.texts, nil
}

// canonical is the texts as JSON: the same bytes for all that ask the same.
func (t *texts) canonical() []byte {
	text, err := json.Marshal(t)
	if err != nil {
		panic("BUG: what was read from JSON is none: " + err.Error())
	}
	return text
}

// embed has the vectors of texts in the store when it returns nil.
func (s *station) embed(ctx context.Context, n *note, key string) error {
	if len(n.Inputs) != 1 || n.Inputs[0].Name != promptInput {
		return poison("the model makes vectors: it takes texts")
	}
	data, err := s.q.readBytes(ctx, n.Inputs[0])
	if err != nil {
		return err
	}
	t, err := parseTexts(data)
	if err != nil {
		return poison("%v", err)
	}
	result, err := s.registry.Embed(ctx, s.model, embed.Request{Texts: t.Texts, Prompt: t.Prompt})
	if err != nil {
		return err
	}
	return s.q.write(ctx, key, false, runtime.Values{VectorOutput: tensor.Of(result.Data, len(t.Texts), result.Dim)})
}
