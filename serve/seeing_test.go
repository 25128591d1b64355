package serve

import (
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/internal/fixtures"
)

// seeingFolder makes a folder with a tiny model that sees pictures in texts.
func seeingFolder(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := fixtures.Seeing(filepath.Join(root, "eyes"), "../models/testdata/families/hf/llava.heads.json.gz"); err != nil {
		t.Fatal(err)
	}
	return root
}

// pictureURL is a picture as a URL that has it.
func pictureURL(shade int) string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(fixtures.Picture(shade))
}

// TestPicturesInMessages: a model that sees is shown the pictures of messages; another one gives another answer, and a
// text without one its own; what is no picture, lies elsewhere, or is more than may be, is refused with its place.
func TestPicturesInMessages(t *testing.T) {
	h := open(t, seeingFolder(t), Options{Context: 128}).Handler()
	chat := func(urls ...string) (int, string) {
		t.Helper()
		parts := []any{}
		for _, url := range urls {
			parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]any{"url": url, "detail": "auto"}})
		}
		body, err := json.Marshal(map[string]any{
			"model": "eyes", "max_tokens": 8, "temperature": 2, "seed": 5,
			"messages": []any{map[string]any{"role": "user", "content": append(parts, map[string]any{"type": "text", "text": "w20 w21"})}},
		})
		if err != nil {
			t.Fatal(err)
		}
		status, _, text := ask(h, "POST", "/v1/chat/completions", string(body), "Content-Type", "application/json")
		return status, text
	}
	written := func(urls ...string) string {
		t.Helper()
		var a struct {
			Choices []struct{ Message struct{ Content string } }
			Usage   struct {
				Prompt int `json:"prompt_tokens"`
			}
		}
		status, text := chat(urls...)
		if err := json.Unmarshal([]byte(text), &a); status != 200 || err != nil || len(a.Choices) != 1 || a.Choices[0].Message.Content == "" {
			t.Fatalf("%d pictures: %d %s", len(urls), status, text)
		}
		if want := 3 + 25*len(urls); a.Usage.Prompt != want {
			t.Errorf("%d pictures: a prompt of %d tokens, not %d", len(urls), a.Usage.Prompt, want)
		}
		return a.Choices[0].Message.Content
	}
	cat, dog := pictureURL(1), pictureURL(7)
	first := written(cat)
	all := map[string]bool{first: true, written(dog): true, written(cat, dog): true, written(): true}
	if len(all) != 4 {
		t.Errorf("%d answers to four questions", len(all))
	}
	if written(cat) != first {
		t.Error("the same question has another answer")
	}
	for name, urls := range map[string][]string{
		"elsewhere": {"https://example.org/cat.png"}, "no base64": {"data:image/png,abc"}, "no picture": {"data:image/png;base64,AAAA"},
		"neither": {"data:image/png;base64,%%"}, "five": {cat, cat, cat, cat, cat},
	} {
		if status, text := chat(urls...); status != 400 || !strings.Contains(text, "invalid_request_error") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}
