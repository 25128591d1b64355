package template

import (
	"slices"
	"strings"

	"github.com/optimem/optimem/text/template/internal/python"
)

// A Chat is a model's chat template with the special tokens that the template may name.
type Chat struct {
	named  map[string]*Template
	tokens *Object
}

// ChatFiles are the contents of the files of a model's folder in which a template may stand. What is empty is not there.
type ChatFiles struct {
	// TokenizerConfig is tokenizer_config.json, which has the special tokens and, in chat_template, a template or several
	// with names.
	TokenizerConfig []byte
	// Jinja is chat_template.jinja, which comes before what the others have.
	Jinja string
	// JSON is chat_template.json, as processors have it.
	JSON []byte
	// Named are the further templates of the folder additional_chat_templates, by file name without .jinja.
	Named map[string]string
}

const (
	maxConfigBytes = 64 << 20
	maxTemplates   = 64
)

// specialTokens are the keys of tokenizer_config.json that a template sees as variables.
var specialTokens = []string{
	"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
}

// NewChat returns a chat of one template. tokens are variables such as bos_token, and may be nil.
func NewChat(source string, tokens *Object) (*Chat, error) {
	return ReadChat(ChatFiles{Jinja: source}, tokens)
}

// ReadChat parses the templates of a model's folder. tokens are added to the special tokens of the configuration and go before
// them; a GGUF file or a tokenizer knows them otherwise.
func ReadChat(files ChatFiles, tokens *Object) (*Chat, error) {
	c := &Chat{named: make(map[string]*Template), tokens: NewObject()}
	sources := NewObject()
	if len(files.TokenizerConfig) > 0 {
		config, err := configuration(files.TokenizerConfig)
		if err != nil {
			return nil, err
		}
		for _, name := range specialTokens {
			if v, ok := config.Get(name); ok {
				c.token(name, v)
			}
		}
		// A model's own tokens, such as image_token.
		extra, _ := config.Get("extra_special_tokens")
		if o, ok := extra.(*Object); ok {
			for i, name := range o.Keys() {
				c.token(name, o.values[i])
			}
		}
		if err := templates(config, sources); err != nil {
			return nil, err
		}
	}
	if len(files.JSON) > 0 {
		config, err := configuration(files.JSON)
		if err != nil {
			return nil, err
		}
		if err := templates(config, sources); err != nil {
			return nil, err
		}
	}
	for name, source := range files.Named {
		sources.Set(name, source)
	}
	if files.Jinja != "" {
		sources.Set("default", files.Jinja)
	}
	if tokens != nil {
		for i, k := range tokens.keys {
			c.tokens.Set(k.(string), tokens.values[i])
		}
	}
	if sources.Len() == 0 {
		return nil, errorf(ErrRender, "there is no chat template")
	}
	if sources.Len() > maxTemplates {
		return nil, errorf(ErrLimit, "%d templates", sources.Len())
	}
	for i, name := range sources.Keys() {
		t, err := Parse(sources.values[i].(string))
		if err != nil {
			return nil, err
		}
		c.named[name] = t
	}
	return c, nil
}

func configuration(doc []byte) (*Object, error) {
	if len(doc) > maxConfigBytes {
		return nil, errorf(ErrLimit, "a configuration of %d bytes", len(doc))
	}
	v, err := ParseJSON(doc)
	if err != nil {
		return nil, err
	}
	o, ok := v.(*Object)
	if !ok {
		return nil, errorf(ErrSyntax, "a configuration that is no JSON object")
	}
	return o, nil
}

// token keeps a special token: its text, or an object with more about it.
func (c *Chat) token(name string, v any) {
	if o, ok := v.(*Object); ok {
		v, _ = o.Get("content")
	}
	if s, ok := v.(string); ok {
		c.tokens.Set(name, s)
	}
}

// templates adds what stands under chat_template: a string, a list of objects with a name and a template, or an object.
func templates(config *Object, sources *Object) error {
	bad := errorf(ErrSyntax, "chat_template is neither a string nor a list of names and templates")
	v, ok := config.Get("chat_template")
	switch v := v.(type) {
	case string:
		sources.Set("default", v)
	case *Object:
		for i, name := range v.Keys() {
			s, ok := v.values[i].(string)
			if !ok {
				return bad
			}
			sources.Set(name, s)
		}
	case *list:
		for _, e := range v.items {
			o, isObject := e.(*Object)
			if !isObject {
				return bad
			}
			name, _ := o.Get("name")
			source, _ := o.Get("template")
			n, ok := name.(string)
			s, ok2 := source.(string)
			if !ok || !ok2 {
				return bad
			}
			sources.Set(n, s)
		}
	default:
		if ok && v != nil {
			return bad
		}
	}
	return nil
}

// Names returns the names of the templates, sorted.
func (c *Chat) Names() []string {
	var names []string
	for name := range c.named {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A Request is what a chat renders.
type Request struct {
	// Messages, Tools and Documents are lists of objects, as [ParseJSON] returns them or as Go's values. Tools and documents
	// may be nil.
	Messages, Tools, Documents any
	// AddGenerationPrompt asks for the words that begin the model's answer.
	AddGenerationPrompt bool
	// ContinueFinalMessage leaves the last message open at its end, for the model to go on with.
	ContinueFinalMessage bool
	// Template names a template. Empty: tool_use if there are tools and such a template, else default.
	Template string
	// Extra are further variables, such as enable_thinking.
	Extra *Object
}

// choose picks a template as transformers' get_chat_template does.
func (c *Chat) choose(r *Request) (*Template, error) {
	name := r.Template
	if name == "" {
		name = "default"
		if r.Tools != nil && c.named["tool_use"] != nil {
			name = "tool_use"
		}
	}
	t := c.named[name]
	if t == nil {
		return nil, errorf(ErrRender, "no template is named '%s': there are %s", name, strings.Join(c.Names(), ", "))
	}
	return t, nil
}

const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

// reasoningFields are the names under which a message has its reasoning.
var reasoningFields = []string{"reasoning_content", "thinking", "reasoning"}

// Render renders a conversation as transformers' apply_chat_template does without tokenizing.
func (c *Chat) Render(r Request, o Options) (string, error) {
	t, err := c.choose(&r)
	if err != nil {
		return "", err
	}
	in := &interp{opts: o.withDefaults()}
	copied, err := in.plain(r.Messages, 0)
	if err != nil {
		return "", err
	}
	messages, ok := copied.(*list)
	if !ok {
		return "", errorf(ErrRender, "messages must be a list")
	}
	for i, m := range messages.items {
		o, ok := m.(*Object)
		if !ok {
			return "", errorf(ErrRender, "message %d is no object", i)
		}
		messages.items[i] = aliased(o)
	}
	final := ""
	if r.ContinueFinalMessage {
		if r.AddGenerationPrompt {
			return "", errorf(ErrRender, "a message that is continued and a prompt for another exclude each other")
		}
		if final, err = leaveOpen(messages); err != nil {
			return "", err
		}
	}
	vars := NewObject()
	for _, more := range []*Object{c.tokens, r.Extra} {
		if more != nil {
			for i, k := range more.keys {
				vars.Set(k.(string), more.values[i])
			}
		}
	}
	vars.Set("messages", messages).Set("tools", r.Tools).Set("documents", r.Documents)
	vars.Set("add_generation_prompt", r.AddGenerationPrompt)
	text, err := t.Render(vars, o)
	if err != nil || !r.ContinueFinalMessage {
		return text, err
	}
	bare := strings.TrimFunc(continueTag, python.IsSpace)
	i := strings.LastIndex(text, bare)
	if i < 0 || !strings.Contains(text, strings.TrimFunc(final, python.IsSpace)) {
		return "", errorf(ErrRender, "the final message does not appear in the text, so it cannot be continued")
	}
	if strings.HasPrefix(text[i:], continueTag) {
		return text[:i], nil
	}
	return strings.TrimRightFunc(text[:i], python.IsSpace), nil
}

// aliased gives a message its reasoning under the names that templates read.
func aliased(m *Object) *Object {
	for _, name := range reasoningFields {
		v, ok := m.Get(name)
		if !ok || v == nil {
			continue
		}
		a := NewObject().Set("thinking", v)
		for i, k := range m.keys {
			a.Set(k.(string), m.values[i])
		}
		return a.Set("reasoning_content", v)
	}
	return m
}

// leaveOpen marks the end of the last message, and returns its text.
func leaveOpen(messages *list) (string, error) {
	if len(messages.items) == 0 {
		return "", errorf(ErrRender, "there is no final message to continue")
	}
	last := messages.items[len(messages.items)-1].(*Object)
	v, _ := last.Get("content")
	switch v := v.(type) {
	case string:
		last.Set("content", v+continueTag)
		return v, nil
	case *list:
		for _, part := range slices.Backward(v.items) {
			if o, ok := part.(*Object); ok {
				if s, ok := o.Get("text"); ok {
					if text, ok := s.(string); ok {
						o.Set("text", text+continueTag)
						return text, nil
					}
				}
			}
		}
	}
	return "", errorf(ErrRender, "the final message has no text to continue")
}
