package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/runtime"
)

// writes asks a model for a text of so many tokens.
func writes(t *testing.T, r *Registry, model string, text string, tokens int) string {
	t.Helper()
	request := fmt.Sprintf(`{"model":%q,"prompt":%q,"temperature":0,"max_tokens":%d}`, model, text, tokens)
	status, _, body := ask(r.Handler(), "POST", "/v1/completions", request, "Content-Type", "application/json")
	var a struct{ Choices []struct{ Text string } }
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 || len(a.Choices) != 1 {
		t.Errorf("%s: %d %s", model, status, body)
		return ""
	}
	return a.Choices[0].Text
}

// TestTextsGrow: models that write side by side give memory of keys and values to weights while texts are short, each within its
// share at every pass, whatever the others do, and write what they do in a budget in which nothing has to give way.
func TestTextsGrow(t *testing.T) {
	if !hostmem.CanResize {
		t.Skip("memory does not grow where it is")
	}
	if testing.Short() {
		t.Skip("two servers of models with sixteen layers")
	}
	from, names := t.TempDir(), []string{"one", "two"}
	if err := fixtures.Deeper(from, chat, 16); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(from, "config.json")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	further := regexp.MustCompile(`"max_position_embeddings":\s*\d+`).ReplaceAll(text, []byte(`"max_position_embeddings":1024`))
	if err := os.WriteFile(config, further, 0o600); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"digits.pt2": digits}
	for _, name := range names {
		files[name] = from
	}
	dir := directory(t, files)
	long := strings.Repeat("a b c d e f g ", 43) // more tokens than there is memory for at first
	var want map[string]string
	for i, memory := range []int64{256 << 20, 8000000} {
		var mu sync.Mutex
		var most int64
		opts := Options{Memory: memory, Context: 1024, Speculate: generate.NoSpeculation}
		opts.Session.Threads = 1
		opts.Session.Observe = func(e runtime.Event) {
			if e.Kind == runtime.PassDone {
				mu.Lock()
				most = max(most, e.Plan.PeakBytes())
				mu.Unlock()
			}
		}
		r := open(t, dir, opts)
		got := make(map[string]string)
		var shares int64
		var all sync.WaitGroup
		for _, name := range names {
			all.Go(func() {
				text := writes(t, r, name, long, 4)
				for k := range 6 {
					text += writes(t, r, name, fmt.Sprint("x", k), 40)
				}
				text += writes(t, r, name, "y"+long, 4)
				mu.Lock()
				defer mu.Unlock()
				got[name] = text
			})
		}
		all.Wait()
		for _, name := range names {
			v, err := r.find(name, "")
			if err != nil {
				t.Fatal(err)
			}
			x, release, err := v.use(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			model := x.runner.(*textRunner)
			stats, m := model.Engine().Stats(), model.Engine().Session().Metrics()
			shares += model.budgetBytes
			if m.PeakBytes > model.budgetBytes || most > model.budgetBytes {
				t.Errorf("%s holds %d bytes, and plans %d, of a share of %d", name, m.PeakBytes, most, model.budgetBytes)
			}
			if grows := stats.Grown > 0 && stats.Shrunk > 0; grows != (i == 1) {
				t.Errorf("%s in %d bytes: %+v", name, memory, stats)
			}
			release()
		}
		if shares > memory {
			t.Errorf("the shares are %d of %d bytes", shares, memory)
		}
		if i == 0 {
			want = got
			continue
		}
		for key, text := range want {
			if got[key] != text {
				t.Errorf("%s: %q, want %q", key, got[key], text)
			}
		}
	}
}
