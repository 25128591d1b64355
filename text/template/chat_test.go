package template

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const namedConfig = `{
	"bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null,
	"extra_special_tokens": {"image_token": "<img>"},
	"chat_template": [
		{"name": "default", "template": "{{ bos_token }}{{ image_token }}{{ pad_token }}{{ messages[0].content }}{{ eos_token }}"},
		{"name": "tool_use", "template": "tools {{ tools[0].name }} {{ documents }}"}
	]
}`

// TestNamedTemplatesAreChosen as get_chat_template of transformers chooses, and special tokens come in both forms.
func TestNamedTemplatesAreChosen(t *testing.T) {
	chat, err := ReadChat(ChatFiles{TokenizerConfig: []byte(namedConfig), Named: map[string]string{"rag": "rag {{ documents[0].text }}"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := chat.Names(); !slices.Equal(got, []string{"default", "rag", "tool_use"}) {
		t.Errorf("names %q", got)
	}
	message := []any{map[string]any{"role": "user", "content": "hi"}}
	for want, r := range map[string]Request{
		"<s><img>hi</s>": {Messages: message},
		"tools f None":   {Messages: message, Tools: []any{map[string]any{"name": "f"}}},
		"rag x":          {Messages: message, Template: "rag", Documents: []any{map[string]any{"text": "x"}}},
		"!<img>hi</s>":   {Messages: message, Extra: NewObject().Set("bos_token", "!")},
	} {
		if got, err := chat.Render(r, Options{}); err != nil || got != want {
			t.Errorf("got %q %v, want %q", got, err, want)
		}
	}
	if _, err := chat.Render(Request{Messages: message, Template: "none"}, Options{}); !errors.Is(err, ErrRender) {
		t.Errorf("an unknown name: %v", err)
	}
}

// TestTheFileChatTemplateJinjaGoesFirst, then chat_template.json, then tokenizer_config.json.
func TestTheFileChatTemplateJinjaGoesFirst(t *testing.T) {
	files := ChatFiles{TokenizerConfig: []byte(`{"chat_template": "config"}`)}
	for _, want := range []string{"config", "json", "jinja"} {
		switch want {
		case "json":
			files.JSON = []byte(`{"chat_template": "json"}`)
		case "jinja":
			files.Jinja = "jinja"
		}
		chat, err := ReadChat(files, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := chat.Render(Request{Messages: []any{}}, Options{}); err != nil || got != want {
			t.Errorf("got %q %v, want %q", got, err, want)
		}
	}
}

// TestBadChatsAreRefused: configurations and requests that are not what they should be.
func TestBadChatsAreRefused(t *testing.T) {
	for _, config := range []string{"", "[]", "{}", `{"chat_template": 5}`, `{"chat_template": [5]}`, `{"chat_template": {"default": 1}}`, `{"chat_template": [{"name": "x"}]}`, `{"chat_template": "{{"}`} {
		var e *Error
		if _, err := ReadChat(ChatFiles{TokenizerConfig: []byte(config)}, nil); !errors.As(err, &e) {
			t.Errorf("%s: %v", config, err)
		}
	}
	var many []string
	for i := range maxTemplates + 1 {
		many = append(many, fmt.Sprintf(`{"name": "%d", "template": ""}`, i))
	}
	if _, err := ReadChat(ChatFiles{TokenizerConfig: []byte(`{"chat_template": [` + strings.Join(many, ",") + `]}`)}, nil); !errors.Is(err, ErrLimit) {
		t.Errorf("many templates: %v", err)
	}
	chat, err := NewChat("{% for m in messages %}{{ m.role }}{% endfor %}", nil)
	if err != nil {
		t.Fatal(err)
	}
	user := []any{map[string]any{"role": "user", "content": "x"}}
	for name, r := range map[string]Request{
		"no list": {Messages: "x"}, "no object": {Messages: []any{5}}, "nothing to continue": {Messages: []any{}, ContinueFinalMessage: true},
		"both":               {Messages: user, ContinueFinalMessage: true, AddGenerationPrompt: true},
		"not in the text":    {Messages: user, ContinueFinalMessage: true},
		"no text to go on":   {Messages: []any{map[string]any{"role": "user"}}, ContinueFinalMessage: true},
		"no text in a part":  {Messages: []any{map[string]any{"content": []any{map[string]any{"type": "image"}}}}, ContinueFinalMessage: true},
		"a value of no kind": {Messages: []any{map[string]any{"role": func() {}}}},
	} {
		if _, err := chat.Render(r, Options{}); !errors.Is(err, ErrRender) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReasoningHasAllItsNames, as transformers gives them to a message that has one.
func TestReasoningHasAllItsNames(t *testing.T) {
	chat, err := NewChat("{% for m in messages %}{{ m.reasoning_content }},{{ m.thinking }},{{ m.reasoning }};{% endfor %}", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := chat.Render(Request{Messages: []any{
		map[string]any{"reasoning": "a"}, map[string]any{"thinking": "b"}, map[string]any{"reasoning_content": "c", "thinking": "d"},
		map[string]any{"reasoning_content": nil},
	}}, Options{})
	if want := "a,a,a;b,b,;c,d,;None,,;"; err != nil || got != want {
		t.Errorf("got %q %v, want %q", got, err, want)
	}
}

// TestTheFinalMessageStaysOpen: what follows it is cut off, and white space at its end where the template trims it.
func TestTheFinalMessageStaysOpen(t *testing.T) {
	messages := []any{map[string]any{"role": "user", "content": "x"}, map[string]any{"role": "assistant", "content": "so it is "}}
	for source, want := range map[string]string{
		"{% for m in messages %}[{{ m.content }}]{% endfor %}":        "[x][so it is ",
		"{% for m in messages %}[{{ m.content | trim }}]{% endfor %}": "[x][so it is",
	} {
		chat, err := NewChat(source, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := chat.Render(Request{Messages: messages, ContinueFinalMessage: true}, Options{}); err != nil || got != want {
			t.Errorf("%s: got %q %v, want %q", source, got, err, want)
		}
	}
}
