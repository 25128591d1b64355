package generate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/optimem/optimem/text/template"
	"github.com/optimem/optimem/text/tokenizer"
)

// A Text is what makes tokens of text and text of tokens: the tokenizer, the chat template and the settings of a Hugging Face
// folder or a GGUF file. It may be shared between goroutines.
type Text struct {
	tokenizer *tokenizer.Tokenizer
	chat      *template.Chat
	chatError error
	defaults  Defaults
	grammars  grammars
	// parted says that the chat template takes the content of a message as a list of parts, not as a text.
	parted bool
	// folder is where the files are, "" of a GGUF file.
	folder string
}

// A Writer is an engine that takes text and gives text. It may be shared between goroutines.
type Writer struct {
	*Text
	engine *Engine
}

// A TextRequest is text that is to be gone on with.
type TextRequest struct {
	// Prompt is the text. It is encoded as the model expects the beginning of a text to be.
	Prompt string
	// Messages are those of a conversation, in the place of Prompt: what the chat template makes of them, and the words that
	// begin an answer.
	Messages []Message
	// Chat says more of what the template renders: tools, documents, variables. Its Messages go before those above where
	// there are any.
	Chat template.Request
	// Language is the code of the language that is spoken ("en"), for models that write what was spoken and know
	// several; "" has the model tell.
	Language string
	// Task is what such a model is to do, of those that know several: "transcribe", or "translate" into English; "" is
	// what the folder names, or to transcribe.
	Task string
	// Stop are texts before which the text ends.
	Stop []string
	// Keep are special tokens, as they are spelt, that are written as text all the same: those that begin a call of a tool.
	Keep []string
	// Schema is a JSON schema that the answer is a value of, Grammar is the GBNF text of a grammar that it follows. One of them
	// may be there. They bound what is written: the model does not see them.
	Schema  json.RawMessage
	Grammar string
	// Request says the rest. Its Prompt is what is made of the above; where End is nil it is the folder's.
	Request Request
}

// A Message is one of a conversation.
type Message struct {
	// Role is "system", "user", "assistant", or another that the template knows.
	Role    string `json:"role"`
	Content string `json:"content"`
	// Pictures is how many pictures of the request's source come with the message, before its text; those of all messages
	// are the source's, in their order.
	Pictures int `json:"pictures,omitempty"`
}

// A TextResult is what was written.
type TextResult struct {
	Result
	// Text is the text of the tokens, without the end and what stopped it.
	Text string
	// Incomplete says that it ended before it was what the request's Schema or Grammar asks for: it is the beginning of that.
	Incomplete bool
}

// OpenText reads what a Hugging Face folder or a GGUF file says of text. One without a chat template can write all the same, but
// not take messages.
func OpenText(folder string) (*Text, error) {
	info, err := os.Stat(folder)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return openGGUF(folder)
	}
	t := &Text{folder: folder}
	if t.tokenizer, err = tokenizer.Open(folder); err != nil {
		return nil, err
	}
	if t.defaults, err = FolderDefaults(folder); err != nil {
		return nil, err
	}
	if t.chat, t.chatError = openChat(folder); t.chatError != nil && !errors.Is(t.chatError, ErrNoChat) {
		return nil, t.chatError
	}
	t.parted = t.takesParts()
	return t, nil
}

// takesParts reports whether the chat template leaves out what a message says unless it is a list of parts.
func (t *Text) takesParts() bool {
	if t.chat == nil || t.defaults.Sees == nil {
		return false
	}
	const said = "optimem"
	message := Message{Role: "user", Content: said}.object(false)
	text, err := t.chat.Render(template.Request{Messages: []any{message}, AddGenerationPrompt: true}, template.Options{})
	return err != nil || !strings.Contains(text, said)
}

// object is a message as templates see it: its content a text, or parts.
func (m Message) object(parted bool) *template.Object {
	o := template.NewObject().Set("role", m.Role)
	if !parted && m.Pictures == 0 {
		return o.Set("content", m.Content)
	}
	var parts []any
	for range m.Pictures {
		parts = append(parts, template.NewObject().Set("type", "image"))
	}
	return o.Set("content", append(parts, template.NewObject().Set("type", "text").Set("text", m.Content)))
}

// NewWriter returns a writer of an engine, which the caller closes.
func NewWriter(text *Text, engine *Engine) *Writer { return &Writer{text, engine} }

// ErrNoChat is returned where a folder has no chat template.
var ErrNoChat = errors.New("the model has no chat template")

// openChat reads the chat template of a folder, [ErrNoChat] where it has none.
func openChat(folder string) (*template.Chat, error) {
	var files template.ChatFiles
	config, err := readFile(folder, "tokenizer_config.json", maxChatFile)
	if err != nil {
		return nil, err
	}
	files.TokenizerConfig = config
	jinja, err := readFile(folder, "chat_template.jinja", maxChatFile)
	if err != nil {
		return nil, err
	}
	files.Jinja = string(jinja)
	if files.JSON, err = readFile(folder, "chat_template.json", maxChatFile); err != nil {
		return nil, err
	}
	more, _ := filepath.Glob(filepath.Join(folder, "additional_chat_templates", "*.jinja"))
	for _, path := range more {
		source, err := readFile(filepath.Dir(path), filepath.Base(path), maxChatFile)
		if err != nil {
			return nil, err
		}
		if files.Named == nil {
			files.Named = make(map[string]string)
		}
		files.Named[strings.TrimSuffix(filepath.Base(path), ".jinja")] = string(source)
	}
	chat, err := template.ReadChat(files, nil)
	if errors.Is(err, template.ErrRender) { // it has read nothing that could be rendered
		return nil, ErrNoChat
	}
	return chat, err
}

// maxChatFile bounds the files with a chat template.
const maxChatFile = 64 << 20

// Engine returns the engine that writes.
func (w *Writer) Engine() *Engine { return w.engine }

// Tokenizer returns the folder's tokenizer.
func (t *Text) Tokenizer() *tokenizer.Tokenizer { return t.tokenizer }

// Defaults returns how the folder says its model writes.
func (t *Text) Defaults() Defaults { return t.defaults }

// HasChat reports whether the folder has a chat template.
func (t *Text) HasChat() bool { return t.chat != nil }

// Render returns what the chat template makes of a request's messages, with the words that begin an answer.
func (t *Text) Render(r TextRequest) (string, error) {
	if t.chat == nil {
		return "", t.chatError
	}
	chat := r.Chat
	if chat.Messages == nil {
		list := make([]any, len(r.Messages))
		for i, m := range r.Messages {
			list[i] = m.object(t.parted)
		}
		chat.Messages = list
	} else if list, ok := chat.Messages.([]any); ok && t.parted {
		chat.Messages = parted(list)
	}
	chat.AddGenerationPrompt = !chat.ContinueFinalMessage
	return t.chat.Render(chat, template.Options{})
}

// parted returns messages with contents that are parts where they are texts.
func parted(messages []any) []any {
	list := slices.Clone(messages)
	for i, m := range list {
		o, ok := m.(*template.Object)
		if !ok {
			continue
		}
		content, _ := o.Get("content")
		text, ok := content.(string)
		if !ok {
			continue
		}
		with := template.NewObject()
		for _, key := range o.Keys() {
			value, _ := o.Get(key)
			with.Set(key, value)
		}
		list[i] = with.Set("content", []any{template.NewObject().Set("type", "text").Set("text", text)})
	}
	return list
}

// Tokens returns the tokens of a request's prompt, or those of the source of a model that reads one.
func (t *Text) Tokens(r TextRequest) ([]int, error) {
	options := tokenizer.Options{AddSpecial: true}
	text := r.Prompt
	if len(r.Messages) > 0 || r.Chat.Messages != nil {
		var err error
		if text, err = t.Render(r); err != nil {
			return nil, err
		}
		options.AddSpecial = false // the template writes them
	}
	encoded, err := t.tokenizer.Encode(text, options)
	if err != nil {
		return nil, err
	}
	ids := make([]int, len(encoded.IDs))
	for i, id := range encoded.IDs {
		ids[i] = int(id)
	}
	if len(ids) == 0 && t.defaults.Begin >= 0 { // nothing to go on with but the beginning of a text
		ids = []int{t.defaults.Begin}
	}
	return ids, nil
}

// Room returns how large a context has to be for a prompt of so many tokens and as many to be written as given:
// together, or of a model that reads a source for the one as for the other.
func (t *Text) Room(prompt, written int) int {
	if len(t.defaults.Start) == 0 {
		return prompt + written
	}
	begin := len(t.defaults.Start)
	if s := t.defaults.Speech; s != nil {
		begin += 1 + len(s.Named)
	}
	return max(prompt, begin+written)
}

// A Piece is text that is certain, and the tokens that begin in it.
type Piece struct {
	Text string
	// Tokens are those whose text begins in the piece, or that have none; those of the end and of what stopped the text are in
	// no piece.
	Tokens []Token
}

// Write writes what follows a text. It calls got, which may be nil, with each piece of text that is certain, on the caller's
// goroutine; an error of got ends the request.
func (w *Writer) Write(ctx context.Context, r TextRequest, got func(piece string) error) (*TextResult, error) {
	return w.Pieces(ctx, r, func(p Piece) error {
		if p.Text == "" || got == nil {
			return nil
		}
		return got(p.Text)
	})
}

// Pieces is Write for who wants to know the tokens of each piece. Where [TextRequest.Request] has a prompt of tokens and there
// is no text, they are the prompt.
func (w *Writer) Pieces(ctx context.Context, r TextRequest, got func(Piece) error) (*TextResult, error) {
	if err := w.begin(ctx, &r); err != nil {
		return nil, err
	}
	r.Request.End = w.end(r)
	if slices.Contains(r.Stop, "") {
		return nil, &RequestError{"Stop", "has an empty text"}
	}
	bounds, err := w.grammar(r)
	if err != nil {
		return nil, err
	}
	if bounds != nil {
		r.Request.Constraint = bounds.constraint(r.Request.End)
	}
	out := &pieces{stopper: stopper{stops: r.Stop}, decode: w.decoder(r.Keep), got: got}
	result, err := w.engine.Generate(ctx, r.Request, func(t Token) error {
		if slices.Contains(r.Request.End, t.ID) {
			return nil // is no text
		}
		return out.token(t)
	})
	if result == nil {
		return nil, err
	}
	if err == nil {
		err = out.end()
	}
	if out.stopped {
		result.Finish = FinishStop
	}
	text := out.text.String()
	return &TextResult{Result: *result, Text: text, Incomplete: bounds != nil && !bounds.complete(text)}, err
}

// begin makes the tokens of a request's prompt, or the source of a model that reads one and how the decoder begins.
func (w *Writer) begin(ctx context.Context, r *TextRequest) error {
	q := &r.Request
	if _, places := w.engine.Pictures(); w.engine.Source() == 0 || places > 0 {
		if !r.isTokens() {
			var err error
			if q.Prompt, err = w.Tokens(*r); err != nil {
				return err
			}
		}
		q.Prompt = w.engine.WithPlaces(q.Prompt, q.Source)
		return nil
	}
	if q.Source == nil {
		ids, err := w.Tokens(*r)
		if err != nil {
			return err
		}
		q.Source = &Source{Tokens: ids}
	}
	if len(q.Prompt) > 0 {
		return nil
	}
	if len(w.defaults.Start) == 0 {
		return &RequestError{"Prompt", "is empty, and the model's files do not say with which token its decoder begins"}
	}
	q.Prompt = w.defaults.Start
	if w.defaults.Speech == nil {
		return nil
	}
	return w.beginSpeech(ctx, r)
}

// beginSpeech adds to a decoder's beginning the language, where there are several, and what stands behind it.
func (w *Writer) beginSpeech(ctx context.Context, r *TextRequest) error {
	q, speech := &r.Request, w.defaults.Speech
	prompt := slices.Clone(q.Prompt)
	behind := speech.Behind
	if len(speech.Languages) > 0 {
		language, known := speech.Languages[r.Language]
		switch {
		case known:
			behind = speech.Named
		case r.Language == "" && speech.Language >= 0:
			language = speech.Language
		case r.Language == "":
			all := slices.Collect(maps.Values(speech.Languages))
			heard, err := w.engine.Generate(ctx, Request{Prompt: prompt, Source: q.Source, MaxTokens: 1, Constraint: oneOf(all), Priority: q.Priority}, nil)
			if err != nil {
				return err
			}
			language = heard.Tokens[0]
		default:
			return &RequestError{"Language", fmt.Sprintf("is %.20q, which the model does not know", r.Language)}
		}
		prompt = append(prompt, language)
	} else if r.Language != "" {
		return &RequestError{"Language", "is given, and the model knows one"}
	}
	behind, err := speech.task(behind, r.Task)
	q.Prompt = append(prompt, behind...)
	return err
}

// oneOf is a constraint that leaves some tokens.
type oneOf []int

// Mask implements [Constraint].
func (o oneOf) Mask(allowed []uint64) error {
	clear(allowed)
	for _, id := range o {
		if id >= 0 && id/64 < len(allowed) {
			allowed[id/64] |= 1 << (id % 64)
		}
	}
	return nil
}

// Accept implements [Constraint].
func (o oneOf) Accept(int) error { return nil }

// end are the tokens that end the answer to a request.
func (t *Text) end(r TextRequest) []int {
	if r.Request.End == nil {
		return t.defaults.End
	}
	return r.Request.End
}

// isTokens reports whether the prompt is tokens already.
func (r *TextRequest) isTokens() bool {
	return r.Prompt == "" && len(r.Messages) == 0 && r.Chat.Messages == nil && len(r.Request.Prompt) > 0
}

// Context returns how many tokens a sequence has at most, Vocabulary how many tokens there are.
func (w *Writer) Context() int { return w.engine.Context() }

// Vocabulary returns how many tokens the model chooses from.
func (w *Writer) Vocabulary() int { return w.engine.Vocabulary() }

// A decoder makes text of tokens as they come.
type decoder struct {
	tokenizer *tokenizer.Tokenizer
	stream    *tokenizer.Stream
	// kept are the texts of special tokens that are text all the same.
	kept map[uint32]string
}

// decoder returns one that leaves special tokens out, but for some.
func (t *Text) decoder(keep []string) *decoder {
	d := &decoder{tokenizer: t.tokenizer, stream: t.tokenizer.Stream(true)}
	if len(keep) == 0 {
		return d
	}
	d.kept = make(map[uint32]string)
	for id, token := range t.tokenizer.AddedTokens() {
		if token.Special && slices.Contains(keep, token.Content) {
			d.kept[id] = token.Content
		}
	}
	return d
}

// write takes a token and returns the text that is certain.
func (d *decoder) write(id uint32) string {
	text, ok := d.kept[id]
	if !ok {
		return d.stream.Write(id)
	}
	text = d.stream.Flush() + text
	d.stream = d.tokenizer.Stream(true)
	return text
}

// pieces gives text and tokens on.
type pieces struct {
	stopper
	decode *decoder
	got    func(Piece) error
	// decoded is how many bytes were decoded, given how many were given on.
	decoded, given int
	// tokens are those that were not given, starts the places where their texts begin.
	tokens []Token
	starts []int
}

// token takes a token.
func (p *pieces) token(t Token) error {
	p.tokens, p.starts = append(p.tokens, t), append(p.starts, p.decoded)
	text := p.decode.write(uint32(t.ID))
	p.decoded += len(text)
	return p.give(p.stopper.write(text))
}

// give gives on a piece, and the tokens that begin in it.
func (p *pieces) give(text string, stopped bool) error {
	p.given += len(text)
	n := 0
	for n < len(p.starts) && p.starts[n] < p.given {
		n++
	}
	if err := p.piece(text, n); err != nil {
		return err
	}
	if stopped {
		return ErrStop
	}
	return nil
}

// piece gives on a text with the first n tokens that were not given.
func (p *pieces) piece(text string, n int) error {
	if text == "" && n == 0 {
		return nil
	}
	tokens := slices.Clone(p.tokens[:n])
	p.tokens, p.starts = slices.Delete(p.tokens, 0, n), slices.Delete(p.starts, 0, n)
	if p.got == nil {
		return nil
	}
	return p.got(Piece{text, tokens})
}

// end gives on what was held back, where nothing follows it.
func (p *pieces) end() error {
	if p.stopped {
		return nil
	}
	if err := p.give(p.stopper.write(p.decode.stream.Flush())); err != nil {
		if errors.Is(err, ErrStop) {
			return nil
		}
		return err
	}
	return p.piece(p.stopper.flush(), len(p.tokens))
}

// A stopper lets text through up to the first of some texts, and holds back what may be the beginning of one.
type stopper struct {
	stops   []string
	held    string
	text    strings.Builder
	stopped bool
}

// write takes text and returns what is certain to stand before a stop.
func (s *stopper) write(text string) (piece string, stopped bool) {
	if s.stopped {
		return "", true
	}
	s.held += text
	end := -1
	for _, stop := range s.stops {
		if i := strings.Index(s.held, stop); i >= 0 && (end < 0 || i < end) {
			end = i
		}
	}
	if end >= 0 {
		piece, s.held, s.stopped = s.held[:end], "", true
		s.text.WriteString(piece)
		return piece, true
	}
	keep := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(s.held)); n > keep; n-- {
			if strings.HasSuffix(s.held, stop[:n]) {
				keep = n
				break
			}
		}
	}
	piece, s.held = s.held[:len(s.held)-keep], s.held[len(s.held)-keep:]
	s.text.WriteString(piece)
	return piece, false
}

// flush returns what was held back, where nothing follows it.
func (s *stopper) flush() string {
	rest := s.held
	s.held = ""
	s.text.WriteString(rest)
	return rest
}
