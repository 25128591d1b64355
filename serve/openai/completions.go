package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/optimem/optimem/generate"
)

// A completionRequest is one for /v1/completions.
type completionRequest struct {
	common
	prompts []prompt
	echo    bool
	// top is how many rivals of each token are told, −1 where nothing is told of tokens.
	top int
	// untold says that the request does not say whether it wants to be told.
	untold bool
}

// A prompt is a text, or tokens.
type prompt struct {
	text   string
	tokens []int
}

// The bounds and the default that OpenAI documents for completions.
const (
	maxCompletionTop      = 5
	defaultCompletionMost = 16
)

// completionRequest takes a request apart.
func (h *Handler) completionRequest(p *params) (*completionRequest, error) {
	r := &completionRequest{common: h.common(p), top: -1}
	r.most = defaultCompletionMost
	r.prompts = prompts(p, "prompt")
	if n := len(r.prompts) * r.n; n > h.opts.MaxChoices {
		p.fail(invalid("prompt", "the request asks for %d texts: %d at once are possible", n, h.opts.MaxChoices))
	}
	if x, ok := p.integer("max_tokens", 0, maxInteger); ok {
		r.most = int(x)
	}
	r.untold = !p.has("logprobs")
	if x, ok := p.integer("logprobs", 0, maxCompletionTop); ok {
		r.top = int(x)
	}
	r.echo = p.boolean("echo")
	if r.echo && r.top >= 0 {
		p.fail(unsupported("echo", "echo is not supported here together with logprobs: those of prompts are not computed"))
	}
	if r.most == 0 && !r.echo {
		p.fail(invalid("max_tokens", "max_tokens is 0, which only goes with echo"))
	}
	if x, ok := p.integer("best_of", 1, maxInteger); ok && int(x) != r.n {
		p.fail(unsupported("best_of", "best_of is not supported here but where it is n"))
	}
	if p.text("suffix") != "" {
		p.fail(unsupported("suffix", "suffix is not supported here"))
	}
	return r, p.done()
}

// prompts takes a text, texts, tokens, or lists of tokens.
func prompts(p *params, name string) []prompt {
	raw, ok := p.take(name)
	if !ok {
		p.fail(invalid(name, "you must provide a %s parameter", name))
		return nil
	}
	var text string
	var texts []string
	var tokens []int
	var lists [][]int
	var list []prompt
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return []prompt{{text: text}}
	case bytes.Contains(raw, []byte("null")): // in a list, where it would be read as nothing
	case json.Unmarshal(raw, &texts) == nil:
		for _, text := range texts {
			list = append(list, prompt{text: text})
		}
	case json.Unmarshal(raw, &tokens) == nil:
		list = []prompt{{tokens: tokens}}
	case json.Unmarshal(raw, &lists) == nil:
		for _, tokens := range lists {
			if len(tokens) == 0 {
				p.fail(invalid(name, "%s has an empty list of tokens", name))
			}
			list = append(list, prompt{tokens: tokens})
		}
	}
	if len(list) == 0 {
		p.fail(invalid(name, "%s must be a text, a list of texts, a list of tokens or a list of such lists, and not empty", name))
	}
	return list
}

// completions answers POST /v1/completions.
func (h *Handler) completions(w http.ResponseWriter, r *http.Request) error {
	p, err := h.body(w, r)
	if err != nil {
		return err
	}
	request, err := h.completionRequest(p)
	if err != nil {
		return err
	}
	lease, err := h.writer(r.Context(), request.model, len(request.prompts)*request.n)
	if err != nil {
		return err
	}
	defer lease.Release()
	a := &completion{h: h, request: request, writer: lease.Writer, spell: speller{lease.Writer.Tokenizer()}}
	a.head = h.head("cmpl-", "text_completion", request.model)
	if request.untold && !request.echo && lease.Logprobs > 0 {
		request.top = min(lease.Logprobs, maxCompletionTop)
	}
	if err := a.prepare(request.request(lease)); err != nil {
		return err
	}
	a.room, err = h.newRoom(r.Context(), a.writer, a.requests, request.top, request.stream)
	defer a.room.free()
	if err != nil {
		return err
	}
	return a.run(r.Context(), w)
}

// A completion is being written.
type completion struct {
	h        *Handler
	request  *completionRequest
	writer   Writer
	spell    speller
	head     head
	requests []generate.TextRequest
	room     *room
	choices  []completionState
	stream   *stream
}

// A completionState is what one of the texts came to.
type completionState struct {
	// echo is the text of the prompt, where it is wanted.
	echo   string
	text   []byte
	tokens []generate.Token
	// given is how many characters a stream had.
	given  int
	result *generate.TextResult
}

// prepare makes a request of each text: n of the first prompt, then n of the second, and so on.
func (a *completion) prepare(one generate.TextRequest) error {
	if one.Request.Logprobs = 0; a.request.top >= 0 {
		one.Request.Logprobs = max(a.request.top, 1)
	}
	for _, p := range a.request.prompts {
		ids := p.tokens
		if ids == nil {
			err := surelyFits(a.writer, p.text, "prompt")
			if err != nil {
				return err
			}
			if ids, err = a.writer.Tokens(generate.TextRequest{Prompt: p.text}); err != nil {
				return invalid("prompt", "prompt: %v", err)
			}
		}
		for _, id := range ids {
			if id < 0 || id >= a.writer.Vocabulary() {
				return invalid("prompt", "prompt has token %d, and the model has %d", id, a.writer.Vocabulary())
			}
		}
		if len(ids) == 0 {
			return invalid("prompt", "prompt is empty, and the model names no token that texts begin with")
		}
		if err := fits(a.writer, len(ids), "", "prompt"); err != nil {
			return err
		}
		one.Request.Prompt = ids
		state := completionState{}
		if a.request.echo {
			if state.echo = p.text; p.tokens != nil {
				state.echo = a.decode(ids)
			}
		}
		for _, seed := range a.h.seeds(&a.request.common, a.request.n) {
			one.Request.Seed = seed
			a.requests, a.choices = append(a.requests, one), append(a.choices, state)
		}
	}
	return nil
}

func (a *completion) decode(ids []int) string {
	list := make([]uint32, len(ids))
	for i, id := range ids {
		list[i] = uint32(id)
	}
	return a.writer.Tokenizer().Decode(list, false)
}

// run writes all texts.
func (a *completion) run(ctx context.Context, w http.ResponseWriter) error {
	x := writing{writer: a.writer, requests: a.requests, alike: a.request.n, got: a.got, idle: a.h.opts.KeepAlive}
	if a.request.stream {
		a.stream = &stream{w: w}
		x.tick = a.stream.wait
	}
	if err := a.write(ctx, &x); err != nil {
		return err
	}
	if a.stream != nil {
		if a.request.usage {
			if err := a.stream.send(answerObject{a.head, []textChoice{}, a.usage()}); err != nil {
				return err
			}
		}
		return a.stream.done()
	}
	list := make([]textChoice, len(a.choices))
	for i := range a.choices {
		s := &a.choices[i]
		why := string(s.result.Finish)
		list[i] = textChoice{Index: i, Text: string(s.text), Finish: &why}
		if a.request.top >= 0 {
			list[i].Logprobs = a.spell.completion(s.tokens, a.request.top, 0)
		}
	}
	answer(w, http.StatusOK, answerObject{a.head, list, a.usage()})
	return nil
}

// write begins with the prompts where they are wanted, and goes on unless nothing more is.
func (a *completion) write(ctx context.Context, x *writing) error {
	for i := range a.choices {
		if a.choices[i].echo == "" {
			continue
		}
		if err := a.got(event{choice: i, piece: generate.Piece{Text: a.choices[i].echo}}); err != nil {
			return err
		}
	}
	if a.request.most > 0 {
		return x.run(ctx)
	}
	for i, r := range a.requests {
		result := &generate.TextResult{}
		result.Finish, result.PromptTokens = generate.FinishLength, len(r.Request.Prompt)
		if err := a.got(event{choice: i, result: result}); err != nil {
			return err
		}
	}
	return nil
}

// got takes what a text came to.
func (a *completion) got(e event) error {
	s := &a.choices[e.choice]
	s.result = e.result
	if a.stream == nil {
		tokens := e.piece.Tokens
		if a.request.top < 0 {
			tokens = nil
		}
		if err := a.room.takes(e.piece.Text, tokens, a.request.top, a.spell); err != nil {
			return err
		}
		s.text, s.tokens = append(s.text, e.piece.Text...), append(s.tokens, e.piece.Tokens...)
		return nil
	}
	c := textChoice{Index: e.choice, Text: e.piece.Text}
	if a.request.top >= 0 && len(e.piece.Tokens) > 0 {
		c.Logprobs = a.spell.completion(e.piece.Tokens, a.request.top, s.given)
	}
	s.given += utf8.RuneCountInString(e.piece.Text)
	if e.result != nil {
		why := string(e.result.Finish)
		c.Finish = &why
	} else if c.Text == "" && c.Logprobs == nil {
		return nil
	}
	o := answerObject{head: a.head, Choices: []textChoice{c}}
	if a.request.usage {
		o.Usage = null
	}
	return a.stream.send(o)
}

// usage counts the tokens of all texts, and each prompt once.
func (a *completion) usage() *usage {
	u := &usage{}
	for i := range a.choices {
		u.add(a.choices[i].result, i%a.request.n == 0)
	}
	return u
}
