package transformers_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
)

// A recordedText is a model with the text that transformers writes with it: testdata/make_text.py.
type recordedText struct {
	recorded
	Runs []struct {
		Prompt, Tokens []int
	}
}

func recordedTexts(t testing.TB) []recordedText {
	t.Helper()
	var list []recordedText
	decode := func(r io.Reader) error { return json.NewDecoder(r).Decode(&list) }
	if err := zoo.Unzip(filepath.Join(configFolder, "text.json.gz"), decode); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestTexts: the most likely tokens, one after the other, are those that transformers writes, with many prompts at once.
func TestTexts(t *testing.T) {
	for _, r := range recordedTexts(t) {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			model, err := models.Build(r.folder(t), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			runs, most := r.Runs, math.MaxInt
			if testing.Short() {
				runs, most = runs[:6], 48
			}
			engine, err := generate.New(t.Context(), model, generate.Options{
				Session: optimem.Options{Mode: plan.Resident, Threads: 1}, Context: 352, Sequences: 8, Rows: 64,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Close()
			var wait sync.WaitGroup
			for i, run := range runs {
				wait.Add(1)
				want := run.Tokens[:min(len(run.Tokens), most)]
				go func() {
					defer wait.Done()
					got, err := engine.Generate(t.Context(), generate.Request{Prompt: run.Prompt, MaxTokens: len(want)}, nil)
					if err != nil {
						t.Errorf("prompt %d: %v", i, err)
						return
					}
					if !slices.Equal(got.Tokens, want) {
						t.Errorf("prompt %d of %d tokens: %s", i, len(run.Prompt), firstOther(got.Tokens, want))
					}
				}()
			}
			wait.Wait()
		})
	}
}

// firstOther says where two lists part.
func firstOther(got, want []int) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("token %d is %d, want %d", i, got[i], want[i])
		}
	}
	return fmt.Sprintf("%d tokens, want %d", len(got), len(want))
}
