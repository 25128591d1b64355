package transformers_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
)

// TestWindowsDraft: a draft with windows keeps what they see, and its guesses are still what it would choose: a model that is
// its own draft is right nearly always, however long the text, and the text is that of the model alone.
func TestWindowsDraft(t *testing.T) {
	for _, r := range recordedTexts(t) {
		if r.Name != "mistral" && (r.Name != "gemma2" || testing.Short()) {
			continue
		}
		model, err := models.Build(r.folder(t), models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		const requests = 6
		plain := recurrentEngine(t, model, generate.Options{Context: 200, Speculate: generate.NoSpeculation})
		want := make([]string, requests)
		for i := range want {
			got, err := plain.Generate(t.Context(), draftedRequest(i), nil)
			if err != nil {
				t.Fatal(err)
			}
			want[i] = fmt.Sprint(got.Tokens)
		}
		for name, o := range map[string]generate.Options{
			"alone":    {Speculate: 4},
			"few rows": {Speculate: 7, Rows: 8},
			"together": {Speculate: 3, Sequences: 3},
		} {
			o.Context, o.Draft = 200, model
			e := recurrentEngine(t, model, o)
			var group sync.WaitGroup
			for i := range want {
				each := func() {
					got, err := e.Generate(t.Context(), draftedRequest(i), nil)
					if err != nil || fmt.Sprint(got.Tokens) != want[i] {
						t.Errorf("%s, %s: request %d: %v, want %v: %v", r.Name, name, i, got.Tokens, want[i], err)
					}
				}
				if o.Sequences < 2 {
					each()
				} else {
					group.Go(each)
				}
			}
			group.Wait()
			if s := e.Stats(); s.Guessed < 100 || s.Accepted < s.Guessed*9/10 {
				t.Errorf("%s, %s: %d of %d guesses were right", r.Name, name, s.Accepted, s.Guessed)
			}
		}
	}
}

// draftedRequest is a text that becomes longer than a window.
func draftedRequest(i int) generate.Request {
	r := recurrentRequest(i)
	r.MaxTokens, r.Logprobs, r.Sampling = 100, 0, generate.Sampling{}
	if i%2 == 0 {
		r.Sampling.Temperature = 0.9
	}
	return r
}

// TestWindowsDraftMemory: a draft all of whose layers see a window takes no more for a longer context but what its tables
// do.
func TestWindowsDraftMemory(t *testing.T) {
	for _, r := range recordedTexts(t) {
		if r.Name != "mistral" {
			continue
		}
		model, err := models.Build(r.folder(t), models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		const all = 64 << 20
		takes := func(context int) int64 {
			o := generate.Options{Context: context, Rows: 4, Draft: model, Speculate: 4, Session: runtime.Options{Memory: all}}
			left, _ := recurrentEngine(t, model, o).Session().Budget()
			return all - left
		}
		// Keys and values of 432 tokens more would be 240 KiB.
		short, long := takes(64), takes(496)
		if long-short > 16<<10 {
			t.Errorf("it takes %d bytes for 64 tokens, and %d for 496", short, long)
		}
	}
}
