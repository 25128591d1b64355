package models_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestStaticCache: a language model that transformers exported with its cache, by the newest PyTorch, remembers what it
// was given: token by token its logits are PyTorch's, in every mode, and a new session remembers nothing.
func TestStaticCache(t *testing.T) {
	text, err := os.ReadFile("testdata/static.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Text   []int64
		Logits [][]float32
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"static.pt2", "static_core.pt2"} {
		ckpt, err := loader.Open("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer ckpt.Close()
		model, err := models.Build(ckpt, models.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var first []float32
		for _, o := range []optimem.Options{
			{Mode: plan.Resident, Threads: 1}, {Mode: plan.Page}, {Mode: plan.Chunk}, {Device: "emu:memory=64MiB"},
		} {
			all := staticSteps(t, model, o, recorded.Text)
			if first == nil {
				first = all
			}
			if !slices.Equal(all, first) {
				t.Errorf("%s, %v on %q: other bits", name, o.Mode, o.Device)
			}
			vocabulary := len(all) / len(recorded.Text)
			for i, row := range recorded.Logits {
				for k, want := range row {
					if got := all[i*vocabulary+k]; !(math.Abs(float64(got-want)) <= 1e-5) {
						t.Fatalf("%s, %v: token %d, logit %d: %v, want %v", name, o.Mode, i, k, got, want)
					}
				}
			}
		}
	}
}

// staticSteps are the logits of a text that a session is given token by token.
func staticSteps(t *testing.T, model *models.Model, o optimem.Options, text []int64) []float32 {
	t.Helper()
	s, err := optimem.Start(t.Context(), model, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all []float32
	for i, token := range text {
		out, err := s.Run(t.Context(), optimem.Values{"input_ids": tensor.Of([]int64{token}, 1, 1), "cache_position": tensor.Of([]int64{int64(i)}, 1)})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range out {
			logits, err := tensor.Slice[float32](x.Contiguous())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, logits...)
		}
	}
	return all
}
