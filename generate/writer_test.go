package generate_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// chatFolder is a tiny model that answers a few questions: testdata/make_chat.py.
const chatFolder = "testdata/chat"

// A chatCase is what transformers makes of a conversation.
type chatCase struct {
	Messages       []generate.Message
	Rendered, Text string
	Prompt, Tokens []int
}

func chatCases(t testing.TB) []chatCase {
	t.Helper()
	f, err := os.Open("testdata/chat.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var cases []chatCase
	if err := json.NewDecoder(z).Decode(&cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func chatWriter(t testing.TB, opts generate.Options) *generate.Writer {
	t.Helper()
	text, err := generate.OpenText(chatFolder)
	if err != nil {
		t.Fatal(err)
	}
	e, err := generate.New(t.Context(), folderModel(t, chatFolder), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return generate.NewWriter(text, e)
}

// TestAnswers: prompts, tokens and text are those of transformers, from messages to an answer.
func TestAnswers(t *testing.T) {
	w := chatWriter(t, generate.Options{Sequences: 4})
	for _, c := range chatCases(t) {
		r := generate.TextRequest{Messages: c.Messages}
		r.Request.MaxTokens = w.Defaults().MaxTokens
		rendered, err := w.Render(r)
		if err != nil || rendered != c.Rendered {
			t.Fatalf("rendered %q, want %q: %v", rendered, c.Rendered, err)
		}
		prompt, err := w.Tokens(r)
		if err != nil || !slices.Equal(prompt, c.Prompt) {
			t.Fatalf("%q: tokens %v, want %v: %v", rendered, prompt, c.Prompt, err)
		}
		var pieces []string
		got, err := w.Write(t.Context(), r, func(piece string) error {
			pieces = append(pieces, piece)
			return nil
		})
		if err != nil || !slices.Equal(got.Tokens, c.Tokens) || got.Text != c.Text || strings.Join(pieces, "") != c.Text {
			t.Errorf("%q: %q %v, want %q %v: %v", rendered, got.Text, got.Tokens, c.Text, c.Tokens, err)
		}
		for _, piece := range pieces {
			if strings.ContainsRune(piece, '\uFFFD') {
				t.Errorf("a piece has half a character: %q", piece)
			}
		}
	}
}

// TestAnswersAtOnce: many conversations at once, their weights paged, get the answers that each gets alone.
func TestAnswersAtOnce(t *testing.T) {
	w := chatWriter(t, generate.Options{Session: runtime.Options{Mode: plan.Page}, Sequences: 8, Context: 128})
	var wait sync.WaitGroup
	for _, c := range chatCases(t) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			r := generate.TextRequest{Messages: c.Messages}
			r.Request.MaxTokens = w.Defaults().MaxTokens
			if got, err := w.Write(t.Context(), r, nil); err != nil || got.Text != c.Text {
				t.Errorf("%q, want %q: %v", got.Text, c.Text, err)
			}
		}()
	}
	wait.Wait()
}

// TestStopText: a text ends before a stop, and says so.
func TestStopText(t *testing.T) {
	w := chatWriter(t, generate.Options{})
	r := generate.TextRequest{Messages: []generate.Message{{Role: "user", Content: "Count to ten."}}, Stop: []string{", four"}}
	got, err := w.Write(t.Context(), r, nil)
	if err != nil || got.Text != "One, two, three" || got.Finish != generate.FinishStop {
		t.Errorf("got %+v: %v", got, err)
	}
	r.Stop = []string{""}
	var bad *generate.RequestError
	if _, err := w.Write(t.Context(), r, nil); !errors.As(err, &bad) || bad.Field != "Stop" {
		t.Errorf("an empty stop: %v", err)
	}
}

// TestFolderWithoutChat: a folder without a template writes, and takes no messages.
func TestFolderWithoutChat(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tokenizer.json", "config.json"} {
		text, err := os.ReadFile(filepath.Join(chatFolder, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := generate.OpenText(dir)
	if err != nil {
		t.Fatal(err)
	}
	if text.HasChat() {
		t.Error("there is a chat template")
	}
	if _, err := text.Tokens(generate.TextRequest{Messages: []generate.Message{{Role: "user", Content: "x"}}}); !errors.Is(err, generate.ErrNoChat) {
		t.Errorf("messages: %v", err)
	}
	ids, err := text.Tokens(generate.TextRequest{Prompt: ""})
	if err != nil || !slices.Equal(ids, []int{0}) {
		t.Errorf("nothing begins with %v, want the token of the beginning: %v", ids, err)
	}
}

// TestTemplateBegins: what a chat template wrote has its special tokens, and gets none a second time; a bare prompt gets them.
func TestTemplateBegins(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja"} {
		text, err := os.ReadFile(filepath.Join(chatFolder, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "tokenizer.json" {
			var file map[string]any
			if err := json.Unmarshal(text, &file); err != nil {
				t.Fatal(err)
			}
			begin := map[string]any{"SpecialToken": map[string]any{"id": "<|endoftext|>", "type_id": 0}}
			all := map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}
			second := map[string]any{"Sequence": map[string]any{"id": "B", "type_id": 0}}
			file["post_processor"] = map[string]any{
				"type": "TemplateProcessing", "single": []any{begin, all}, "pair": []any{begin, all, second},
				"special_tokens": map[string]any{"<|endoftext|>": map[string]any{
					"id": "<|endoftext|>", "ids": []int{0}, "tokens": []string{"<|endoftext|>"},
				}},
			}
			if text, err = json.Marshal(file); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := generate.OpenText(dir)
	if err != nil {
		t.Fatal(err)
	}
	chat, err := text.Tokens(generate.TextRequest{Messages: []generate.Message{{Role: "user", Content: "Hello"}}})
	if err != nil || chat[0] != 1 || slices.Contains(chat, 0) {
		t.Errorf("a conversation is %v: %v", chat, err)
	}
	bare, err := text.Tokens(generate.TextRequest{Prompt: "Hello"})
	if err != nil || bare[0] != 0 {
		t.Errorf("a bare prompt is %v: %v", bare, err)
	}
}

// TestRoundedKeysAndValues: of int8 they take a row's bytes and four more, the same text comes in every mode and beside others, and a
// model that was sure stays so.
func TestRoundedKeysAndValues(t *testing.T) {
	const token = 2 * 2 * 2 * (16 + 4) // layers, keys and values, heads
	alone := chatWriter(t, generate.Options{KV: tensor.Int8, Context: 128})
	if got := alone.Engine().Session().Metrics().CacheBytes; got != 0 {
		t.Errorf("%d bytes before anything runs", got)
	}
	paged := chatWriter(t, generate.Options{KV: tensor.Int8, Context: 128, Sequences: 4, Rows: 8, Session: runtime.Options{Mode: plan.Page}})
	p, err := paged.Engine().Forecast(t.Context())
	if err != nil || p.CacheBytes != 4*128*token {
		t.Fatalf("%d bytes of keys and values, want %d: %v", p.CacheBytes, 4*128*token, err)
	}
	var wait sync.WaitGroup
	for _, c := range chatCases(t) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			r := generate.TextRequest{Messages: c.Messages}
			r.Request.MaxTokens = 40
			want, err := alone.Write(t.Context(), r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			got, err := paged.Write(t.Context(), r, nil)
			if err != nil || got.Text != want.Text {
				t.Errorf("%q, want %q: %v", got.Text, want.Text, err)
			}
			if sure := strings.HasPrefix(c.Messages[len(c.Messages)-1].Content, "What is the capital of"); sure && got.Text != c.Text {
				t.Errorf("%q, in full precision %q", got.Text, c.Text)
			}
		}()
	}
	wait.Wait()
}
