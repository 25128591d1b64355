package transformers_test

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestCaption: a model that writes of a picture gives transformers' tokens, in any mode; what is no picture of its size
// is refused.
func TestCaption(t *testing.T) {
	r := named(t, "blip", "written")
	model, err := models.Build(r.folder(t), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pixels, err := r.Reference.Cases[0].Inputs["pixel_values"].Tensor("pixel_values")
	if err != nil {
		t.Fatal(err)
	}
	all, err := tensor.Slice[float32](pixels)
	if err != nil {
		t.Fatal(err)
	}
	source := &generate.Source{Features: all[:len(all)/2]}
	for _, opts := range []generate.Options{
		{Session: optimem.Options{Mode: plan.Resident, Threads: 1}},
		{Session: optimem.Options{Mode: plan.Page, Threads: 2}, Speculate: generate.NoSpeculation},
	} {
		e := seq2seqEngine(t, model, opts)
		got, err := e.Generate(t.Context(), generate.Request{Prompt: r.Caption[:1], Source: source, MaxTokens: len(r.Caption) - 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Tokens, r.Caption[1:]) {
			t.Errorf("%v, want %v", got.Tokens, r.Caption[1:])
		}
		short := &generate.Source{Features: all[1 : len(all)/2]}
		if _, err := e.Generate(t.Context(), generate.Request{Prompt: r.Caption[:1], Source: short, MaxTokens: 3}, nil); err == nil {
			t.Error("a part of a picture is none")
		}
	}
}
