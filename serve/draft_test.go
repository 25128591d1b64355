package serve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/internal/fixtures"
)

// TestDraft: a model with a draft in its model.json writes the text that it writes without one, within the same share of memory.
func TestDraft(t *testing.T) {
	const prompt = `{"model":"chat","messages":[{"role":"user","content":"What is the capital of Norway?"}],"max_tokens":24,"temperature":0}`
	served := func(settings string, opts Options) (text string, draft, budget int64) {
		dir := t.TempDir()
		for _, to := range []string{"chat", filepath.Join("chat", "guesses")} {
			if err := os.CopyFS(filepath.Join(dir, to), os.DirFS(chat)); err != nil {
				t.Fatal(err)
			}
		}
		if err := fixtures.SmallEagle(64, 420, nil, fixtures.Every(420, 1)).Write(filepath.Join(dir, "chat", "head"), 420); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "chat", "model.json"), []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		r := open(t, dir, opts)
		status, _, answer := ask(r.Handler(), "POST", "/v1/chat/completions", prompt, "Content-Type", "application/json")
		var got struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if status != 200 || json.Unmarshal([]byte(answer), &got) != nil || len(got.Choices) != 1 {
			t.Fatalf("%s: %d, %s", settings, status, answer)
		}
		v, err := r.find("chat", "")
		if err != nil {
			t.Fatal(err)
		}
		x, release, err := v.use(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		runner := x.runner.(*textRunner)
		if peak := runner.Engine().Session().Metrics().PeakBytes + runner.Engine().DraftBytes(); peak > runner.budgetBytes {
			t.Errorf("%s: %d bytes, of a share of %d", settings, peak, runner.budgetBytes)
		}
		return got.Choices[0].Message.Content, runner.Engine().DraftBytes(), runner.budgetBytes
	}
	want, none, _ := served(`{}`, Options{Memory: 64 << 20})
	got, bytes, budget := served(`{"draft": "guesses"}`, Options{Memory: 64 << 20})
	if got != want || want == "" || none != 0 || bytes <= 0 || bytes >= budget {
		t.Errorf("with a draft of %d bytes in %d: %q, without one (%d) %q", bytes, budget, got, none, want)
	}
	if got, bytes, _ := served(`{"draft": "head"}`, Options{Memory: 64 << 20}); got != want || bytes <= 0 {
		t.Errorf("with a head of %d bytes: %q, want %q", bytes, got, want)
	}
	if got, bytes, _ := served(`{"draft": "guesses"}`, Options{Memory: 64 << 20, Speculate: -1}); got != want || bytes != 0 {
		t.Errorf("where nothing is to be guessed: %q, a draft of %d bytes", got, bytes)
	}
}

// TestDraftFolders: a draft is a folder or a file beside model.json that is a model, and nowhere else.
func TestDraftFolders(t *testing.T) {
	for settings, want := range map[string]string{
		`{"draft": "../x"}`: "no name", `{"draft": "nothere"}`: "draft:", `{"draft": "empty"}`: "draft:", `{"draft": "config.json"}`: "draft:",
	} {
		dir := t.TempDir()
		if err := os.CopyFS(filepath.Join(dir, "chat"), os.DirFS(chat)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, "chat", "empty"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "chat", "model.json"), []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, m := range open(t, dir, Options{}).Models() {
			if m.State == Ready || !strings.Contains(m.Reason, want) {
				t.Errorf("%s: %v, %q", settings, m.State, m.Reason)
			}
		}
	}
}
