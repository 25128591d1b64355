package openai

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/text/template"
	"github.com/optimem/optimem/text/tokenizer"
)

// A chatRequest is one for /v1/chat/completions.
type chatRequest struct {
	common
	messages []any
	// pictures are those that come with them.
	pictures []picture
	tools    *toolset
	format   format
	// top is how many rivals of each token are told, −1 where nothing is told of tokens.
	top int
	// untold says that the request does not say whether it wants to be told.
	untold bool
	// extra are further variables of the template.
	extra *template.Object
}

// chatRequest takes a request apart.
func (h *Handler) chatRequest(p *params) (*chatRequest, error) {
	r := &chatRequest{common: h.common(p), top: -1}
	r.messages, r.pictures = messages(p)
	r.tools = tools(p)
	r.format = takeFormat(p)
	if r.format.schema != nil && r.tools != nil {
		p.fail(unsupported("response_format", "response_format is not supported here together with tools"))
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens"} { // the later name goes first
		if x, ok := p.integer(name, 1, maxInteger); ok {
			r.most = int(x)
		}
	}
	r.untold = !p.has("logprobs")
	if p.boolean("logprobs") {
		r.top = 0
	}
	if x, ok := p.integer("top_logprobs", 0, maxTop); ok && r.top < 0 && x > 0 {
		p.fail(invalid("top_logprobs", "top_logprobs is only for requests with logprobs"))
	} else if ok && r.top >= 0 {
		r.top = int(x)
	}
	if raw, ok := p.take("chat_template_kwargs"); ok {
		v, err := template.ParseJSON(raw)
		if r.extra, ok = v.(*template.Object); err != nil || !ok {
			p.fail(invalid("chat_template_kwargs", "chat_template_kwargs must be an object"))
		}
	}
	var modalities []string
	if p.decode("modalities", "a list of texts", &modalities); len(modalities) > 1 || len(modalities) == 1 && modalities[0] != "text" {
		p.fail(unsupported("modalities", "modalities: only text is supported here"))
	}
	p.only("verbosity", "medium") // which is what is there where nobody says
	p.drop("prediction")          // a guess that makes answers faster, and not other ones
	p.refuse("audio", "")
	p.refuse("web_search_options", "")
	p.refuse("reasoning_effort", ": a template may take such a word in chat_template_kwargs")
	p.refuse("moderation", "")
	return r, p.done()
}

// chat answers POST /v1/chat/completions.
func (h *Handler) chat(w http.ResponseWriter, r *http.Request) error {
	p, err := h.body(w, r)
	if err != nil {
		return err
	}
	request, err := h.chatRequest(p)
	if err != nil {
		return err
	}
	lease, err := h.writer(r.Context(), request.model, request.n)
	if err != nil {
		return err
	}
	defer lease.Release()
	seen, free, err := request.seen(r.Context(), lease)
	if err != nil {
		return err
	}
	defer free()
	a, err := h.chatAnswer(request, lease)
	if err != nil {
		return err
	}
	for i := range a.requests {
		a.requests[i].Request.Source = seen
	}
	a.room, err = h.newRoom(r.Context(), a.writer, a.requests, request.top, request.stream)
	defer a.room.free()
	if err != nil {
		return err
	}
	return a.run(r.Context(), w)
}

// seen makes the source of the pictures of a request, nil of one without.
func (r *chatRequest) seen(ctx context.Context, lease *WriterLease) (*generate.Source, func(), error) {
	if len(r.pictures) == 0 {
		return nil, func() {}, nil
	}
	if lease.Pictures == nil {
		at := strings.TrimSuffix(r.pictures[0].at, ".image_url")
		return nil, nil, unsupported(at+".type", "%s is a part of the type image_url, and the model %q sees no pictures", at, r.model)
	}
	files := make([][]byte, len(r.pictures))
	for i, p := range r.pictures {
		var err error
		if files[i], err = p.file(); err != nil {
			return nil, nil, err
		}
	}
	return lease.Pictures(ctx, files)
}

// writer lends a model that writes. What it returns is complete.
func (h *Handler) writer(ctx context.Context, model string, sequences int) (*WriterLease, error) {
	lent, err := h.models.Writer(ctx, Need{model, sequences})
	if err != nil {
		return nil, err
	}
	lease := *lent
	if lease.Release == nil {
		lease.Release = func() {}
	}
	if lease.Defaults == nil {
		d := lease.Writer.Defaults()
		lease.Defaults = &d
	}
	return &lease, nil
}

// chatAnswer prepares the answers to a request: renders the conversation and makes a request of each answer.
func (h *Handler) chatAnswer(request *chatRequest, lease *WriterLease) (*chatAnswer, error) {
	w := lease.Writer
	if !w.HasChat() {
		return nil, invalid("model", "the model %q has no chat template: /v1/completions takes its texts", request.model)
	}
	a := &chatAnswer{h: h, request: request, writer: w, spell: speller{w.Tokenizer()}, head: h.head("chatcmpl-", "chat.completion", request.model)}
	one := request.request(lease)
	if request.format.given || request.tools != nil {
		one.Schema, one.Grammar = nil, ""
	}
	if request.untold && lease.Logprobs > 0 {
		request.top = min(lease.Logprobs, maxTop)
	}
	one.Chat = template.Request{Messages: request.messages, Tools: request.tools.objects(), Extra: request.extra}
	text, err := w.Render(one)
	var wrong *template.Error
	if errors.As(err, &wrong) {
		return nil, invalid("messages", "the model's chat template does not take the messages: %v", wrong)
	}
	if err != nil {
		return nil, err
	}
	one.Chat = template.Request{}
	if request.format.schema != nil {
		one.Schema = request.format.schema
	}
	if request.tools != nil {
		if a.family, err = familyOf(w, request.tools); err != nil {
			return nil, err
		}
		begin, err := request.tools.bound(a.family, w, &one)
		if err != nil {
			return nil, err
		}
		text += begin
		one.Keep = markers
	}
	if one.Request.Prompt, err = encode(w, text, "messages"); err != nil {
		return nil, err
	}
	if one.Request.Logprobs = 0; request.top >= 0 {
		one.Request.Logprobs = max(request.top, 1)
	}
	for _, seed := range h.seeds(&request.common, request.n) {
		one.Request.Seed = seed
		if late, ok := one.Request.Constraint.(*lateConstraint); ok { // each answer has its own
			own := *late
			one.Request.Constraint = &own
		}
		a.requests = append(a.requests, one)
	}
	return a, nil
}

// encode returns the tokens of a text that has its special tokens, where there is room for them.
func encode(w Writer, text, param string) ([]int, error) {
	if err := surelyFits(w, text, param); err != nil {
		return nil, err
	}
	ids, err := tokens(w, text)
	if err != nil {
		return nil, invalid(param, "%s: %v", param, err)
	}
	return ids, fits(w, len(ids), "", param)
}

func tokens(w Writer, text string) ([]int, error) {
	encoded, err := w.Tokenizer().Encode(text, tokenizer.Options{})
	if err != nil {
		return nil, err
	}
	ids := make([]int, len(encoded.IDs))
	for i, id := range encoded.IDs {
		ids[i] = int(id)
	}
	return ids, nil
}

// beginBytes is how many bytes for each token of the context are looked at before a longer text is encoded.
const beginBytes = 16

// surelyFits returns an error where the beginning of a text is far too long already, so that nobody has seconds of encoding for
// a text that is refused.
func surelyFits(w Writer, text, param string) error {
	for n := beginBytes * w.Context(); n < len(text); n *= 4 {
		begin := strings.ToValidUTF8(text[:n], "")
		if ids, err := tokens(w, begin); err == nil && len(ids) >= 2*w.Context() { // a word that is cut has a few more
			return fits(w, len(ids), "more than ", param)
		}
	}
	return nil
}

// fits returns an error where a prompt leaves no room in the context.
func fits(w Writer, n int, more, param string) error {
	if n < w.Context() {
		return nil
	}
	e := invalid(param, "This model's maximum context length is %d tokens. However, your %s resulted in %s%d tokens. Please reduce "+
		"the length of the %s.", w.Context(), param, more, n, param)
	e.Code = "context_length_exceeded"
	return e
}

// A chatAnswer is being written.
type chatAnswer struct {
	h        *Handler
	request  *chatRequest
	writer   Writer
	spell    speller
	head     head
	family   family
	requests []generate.TextRequest
	room     *room
	choices  []chatState
	stream   *stream
}

// A chatState is what one of the answers came to.
type chatState struct {
	calls   callReader
	content []byte
	made    []callObject
	tokens  []generate.Token
	result  *generate.TextResult
	// begun tells that the stream has the role, enough that further calls are dropped.
	begun, enough bool
}

// run writes all answers.
func (a *chatAnswer) run(ctx context.Context, w http.ResponseWriter) error {
	a.choices = make([]chatState, len(a.requests))
	for i := range a.choices {
		if a.request.tools != nil {
			a.choices[i].calls = a.request.tools.reader(a.family)
		}
	}
	x := writing{writer: a.writer, requests: a.requests, alike: a.request.n, got: a.got, idle: a.h.opts.KeepAlive}
	if a.request.stream {
		a.stream = &stream{w: w}
		x.tick = a.stream.wait
		return a.streamed(ctx, &x)
	}
	if err := x.run(ctx); err != nil {
		return err
	}
	list := make([]chatChoice, len(a.choices))
	for i := range a.choices {
		list[i] = a.choice(i)
	}
	answer(w, http.StatusOK, answerObject{a.head, list, a.usage()})
	return nil
}

// choice is an answer as a whole.
func (a *chatAnswer) choice(i int) chatChoice {
	s := &a.choices[i]
	c := chatChoice{Index: i, Message: chatMessage{Role: "assistant", Calls: s.made}, Finish: a.finish(s)}
	if content := string(s.content); content != "" || len(s.made) == 0 {
		c.Message.Content = &content
	}
	if a.request.top >= 0 {
		c.Logprobs = a.spell.chat(s.tokens, a.request.top)
	}
	return c
}

// finish is why an answer ended.
func (a *chatAnswer) finish(s *chatState) string {
	forced, ok := s.calls.(*forcedReader)
	switch {
	case len(s.made) > 0 && a.request.tools.choice != toolsNamed && !(ok && forced.cut()):
		return "tool_calls"
	case s.result.Finish == generate.FinishLength:
		return "length"
	}
	return "stop"
}

// got takes what an answer came to.
func (a *chatAnswer) got(e event) error {
	s := &a.choices[e.choice]
	content, tokens := e.piece.Text, e.piece.Tokens
	var calls []call
	switch {
	case s.calls == nil:
	case e.result != nil:
		content, calls = s.calls.end()
	default:
		content, calls = s.calls.write(content)
	}
	if a.request.top < 0 {
		tokens = nil
	}
	parts := a.made(s, calls)
	s.result = e.result
	if a.stream != nil {
		return a.chunks(e.choice, content, tokens, parts)
	}
	if err := a.room.takes(e.piece.Text, tokens, a.request.top, a.spell); err != nil {
		return err
	}
	s.content, s.tokens = append(s.content, content...), append(s.tokens, tokens...)
	return nil
}

// made notes calls, and returns the parts that a stream has of them.
func (a *chatAnswer) made(s *chatState, calls []call) (parts []callObject) {
	for _, c := range calls {
		if c.name != "" {
			if s.enough = len(s.made) > 0 && !a.request.tools.parallel; !s.enough { // one was asked for
				o := callObject{ID: a.family.id(), Type: "function", Function: functionObject{Name: c.name}}
				s.made = append(s.made, o)
				index := len(s.made) - 1
				o.Index = &index
				parts = append(parts, o)
			}
		}
		if s.enough || c.arguments == "" {
			continue
		}
		index := len(s.made) - 1
		s.made[index].Function.Arguments += c.arguments
		parts = append(parts, callObject{Index: &index, Function: functionObject{Arguments: c.arguments}})
	}
	return parts
}

// usage counts the tokens of all answers; the prompt is counted once.
func (a *chatAnswer) usage() *usage {
	u := &usage{}
	for i := range a.choices {
		u.add(a.choices[i].result, i == 0)
	}
	return u
}

// add counts an answer, and its prompt where no other answer to it was counted.
func (u *usage) add(r *generate.TextResult, first bool) {
	if first {
		u.Prompt += r.PromptTokens
		u.Details.Cached += r.SharedTokens
	}
	u.Completion += len(r.Tokens)
	u.Total = u.Prompt + u.Completion
}
