package generate

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/text/template"
)

// fixturesFolder is the folder of files that PyTorch wrote.
func fixturesFolder() string { return fixtures.Folder("../loader/testdata/valid.tar.bz2") + "/" }

func ggufFixture() string { return fixturesFolder() + "gguf_llama.gguf" }

// TestGGUFWritesWhatTransformersWrites: from one file come the model, its words, its template and where answers end; tokens are
// those of transformers.
func TestGGUFWritesWhatTransformersWrites(t *testing.T) {
	var golden struct {
		Text struct {
			Prompt    string
			Raw, Chat struct{ IDs, Told []int }
		}
	}
	data, err := os.ReadFile(ggufFixture() + ".golden.json")
	if err == nil {
		err = json.Unmarshal(data, &golden)
	}
	if err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open(ggufFixture())
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := New(t.Context(), model, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	text, err := OpenText(ggufFixture())
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(text, engine)
	want := golden.Text
	for name, c := range map[string]struct {
		request   TextRequest
		ids, told []int
	}{
		"raw":  {TextRequest{Prompt: want.Prompt}, want.Raw.IDs, want.Raw.Told},
		"chat": {TextRequest{Messages: []Message{{Role: "user", Content: want.Prompt}}}, want.Chat.IDs, want.Chat.Told},
	} {
		ids, err := text.Tokens(c.request)
		if err != nil || !slices.Equal(ids, c.ids) {
			t.Errorf("%s: the prompt is %v, %v; want %v", name, ids, err, c.ids)
		}
		c.request.Request.MaxTokens = len(c.told)
		got, err := w.Write(t.Context(), c.request, nil)
		if err != nil || !slices.Equal(got.Tokens, c.told) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.told)
		}
	}
	if d := text.Defaults(); !slices.Equal(d.End, []int{265, 267}) || d.Begin != 266 {
		t.Errorf("texts end with %v and begin with %d", d.End, d.Begin)
	}
}

// ggufMeta is what a file says of text, with changes: of key, value, key, value.
func ggufMeta(changes ...any) map[string]any {
	meta := map[string]any{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": []string{"a", "b", "<s>", "</s>", "<|im_end|>", "<|eot_id|>"},
		"tokenizer.ggml.token_type": []int32{1, 1, 3, 3, 3, 1}, "tokenizer.ggml.merges": []string{},
		"tokenizer.ggml.bos_token_id": uint32(2), "tokenizer.ggml.eos_token_id": uint32(3),
	}
	for i := 0; i < len(changes); i += 2 {
		meta[changes[i].(string)] = changes[i+1]
	}
	return meta
}

// TestGGUFEnds: texts end where the file says; where it has a template and names no end of a turn, the control tokens that are
// known as one end texts too.
func TestGGUFEnds(t *testing.T) {
	for _, c := range []struct {
		meta  map[string]any
		end   []int
		begin int
	}{
		{ggufMeta(), []int{3}, 2},
		{ggufMeta("tokenizer.chat_template", "x"), []int{3, 4}, 2}, // <|eot_id|> is no control token there
		{ggufMeta("tokenizer.chat_template", "x", "tokenizer.ggml.eot_token_id", int32(5)), []int{3, 5}, 2},
		{ggufMeta("tokenizer.ggml.eot_token_id", uint32(3), "tokenizer.ggml.eom_token_id", uint32(4)), []int{3, 4}, 2},
		{ggufMeta("tokenizer.ggml.eos_token_id", uint32(6), "tokenizer.ggml.bos_token_id", int32(-1)), nil, -1},
	} {
		if d := ggufDefaults(c.meta); !slices.Equal(d.End, c.end) || d.Begin != c.begin {
			t.Errorf("texts end with %v and begin with %d, want %v and %d", d.End, d.Begin, c.end, c.begin)
		}
	}
}

// TestGGUFTemplates: templates see the special tokens by their names, a file may have several, and one without any cannot take
// messages.
func TestGGUFTemplates(t *testing.T) {
	chat, err := ggufChat(ggufMeta("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
		"tokenizer.chat_templates", []string{"loud", "lost"}, "tokenizer.chat_template.loud", "{{ messages[0].content|upper }}"))
	if err != nil {
		t.Fatal(err)
	}
	messages := []any{template.NewObject().Set("role", "user").Set("content", "hi")}
	for name, want := range map[string]string{"": "<s>hi</s>", "loud": "HI"} {
		got, err := chat.Render(template.Request{Messages: messages, Template: name}, template.Options{})
		if err != nil || got != want {
			t.Errorf("template %q: %q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := ggufChat(ggufMeta()); !errors.Is(err, ErrNoChat) {
		t.Errorf("without a template: %v", err)
	}
	if _, err := ggufChat(ggufMeta("tokenizer.chat_template", "{% if %}")); err == nil || errors.Is(err, ErrNoChat) {
		t.Errorf("a broken template: %v", err)
	}
}

// TestFilesWithoutText: a file that says nothing of text, or is none of a model, is refused, and so is one whose words are not
// known.
func TestFilesWithoutText(t *testing.T) {
	if _, err := OpenText(fixturesFolder() + "safetensors_mlp.safetensors"); !errors.Is(err, ErrNoText) {
		t.Errorf("weights alone: %v", err)
	}
	path := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(path, []byte("hello, world"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenText(path); !errors.Is(err, loader.ErrUnsupported) {
		t.Errorf("notes: %v", err)
	}
	data, err := os.ReadFile(ggufFixture())
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(data), "smollm", "strang", 1)
	if err := os.WriteFile(path, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenText(path); err == nil || !strings.Contains(err.Error(), `"strang"`) {
		t.Errorf("unknown words: %v", err)
	}
}
