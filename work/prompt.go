package work

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/serve"
)

// promptInput is what the input of a model that writes is called in notes.
const promptInput = "prompt"

// A prompt is what a model that writes is asked. What is not there is as the model's files say.
type prompt struct {
	Prompt      *string            `json:"prompt,omitempty"`
	Messages    []generate.Message `json:"messages,omitempty"`
	MaxTokens   int                `json:"max_tokens,omitempty"`
	Seed        uint64             `json:"seed"`
	Temperature *float64           `json:"temperature,omitempty"`
	TopK        *int               `json:"top_k,omitempty"`
	TopP        *float64           `json:"top_p,omitempty"`
	MinP        *float64           `json:"min_p,omitempty"`
	Stop        []string           `json:"stop,omitempty"`
	Schema      json.RawMessage    `json:"schema,omitempty"`
	Grammar     string             `json:"grammar,omitempty"`
}

// parsePrompt reads a prompt, which anybody may have sent.
func parsePrompt(data []byte) (*prompt, error) {
	var p struct {
		prompt
		ID json.RawMessage `json:"id"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("no prompt: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("no prompt: something follows the object")
	}
	if string(p.Schema) == "null" {
		p.Schema = nil
	}
	switch {
	case p.Prompt == nil && len(p.Messages) == 0:
		return nil, errors.New("neither a prompt nor messages")
	case p.Prompt != nil && len(p.Messages) > 0:
		return nil, errors.New("a prompt and messages")
	case p.MaxTokens < 0:
		return nil, fmt.Errorf("max_tokens is %d", p.MaxTokens)
	}
	return &p.prompt, nil
}

// canonical is the prompt as JSON: the same bytes for all that ask the same, whatever their id, order and spaces.
func (p *prompt) canonical() []byte {
	text, err := json.Marshal(p)
	if err != nil {
		panic("BUG: what was read from JSON is none: " + err.Error())
	}
	return text
}

// request is what the model's engine is asked. A prompt is what a user says, where the model has a chat template.
func (p *prompt) request(w serve.Writing) generate.TextRequest {
	r := generate.TextRequest{Messages: p.Messages, Stop: p.Stop, Schema: p.Schema, Grammar: p.Grammar}
	switch {
	case p.Prompt != nil && w.Chat:
		r.Messages = []generate.Message{{Role: "user", Content: *p.Prompt}}
	case p.Prompt != nil:
		r.Prompt = *p.Prompt
	}
	sampling := w.Defaults.Sampling
	override(&sampling.Temperature, p.Temperature)
	override(&sampling.TopK, p.TopK)
	override(&sampling.TopP, p.TopP)
	override(&sampling.MinP, p.MinP)
	r.Request = generate.Request{MaxTokens: cmp.Or(p.MaxTokens, w.Defaults.MaxTokens, generate.DefaultTokens),
		Seed: p.Seed, Sampling: sampling}
	return r
}

func override[T any](at, with *T) {
	if with != nil {
		*at = *with
	}
}

// An Answer is the output of an item of a model that writes.
type Answer struct {
	Text         string          `json:"text"`
	TokenIDs     []int           `json:"token_ids"`
	PromptTokens int             `json:"prompt_tokens"`
	FinishReason generate.Finish `json:"finish_reason"`
}

// line is the answer as a line of JSON.
func (a *Answer) line() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(a)
	return b.Bytes(), err
}

// write has the answer of a prompt in the store when it returns nil.
func (s *station) write(ctx context.Context, n *note, key string) error {
	if len(n.Inputs) != 1 || n.Inputs[0].Name != promptInput {
		return poison("the model writes: it takes one prompt")
	}
	data, err := s.q.readBytes(ctx, n.Inputs[0])
	if err != nil {
		return err
	}
	p, err := parsePrompt(data)
	if err != nil {
		return poison("%v", err)
	}
	result, err := s.registry.Write(ctx, s.model, p.request(s.writing))
	if err != nil {
		return err
	}
	a := Answer{Text: result.Text, TokenIDs: append([]int{}, result.Tokens...), PromptTokens: result.PromptTokens,
		FinishReason: result.Finish}
	line, err := a.line()
	if err != nil {
		return err
	}
	return s.q.out.putBytes(ctx, key, line)
}
