package lora_test

import (
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
)

func engine(t testing.TB, model *models.Model, opts generate.Options) *generate.Engine {
	t.Helper()
	e, err := generate.New(t.Context(), model, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// TestWritten: the most likely tokens are those of peft, with every recorded adapter of a model that writes.
func TestWritten(t *testing.T) {
	for _, r := range recordedAdapters(t) {
		if r.Runs == nil {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			e := engine(t, r.model(t, models.Options{Adapters: []models.Adapter{r.adapter(t)}}), generate.Options{})
			for i, run := range r.Runs {
				got, err := e.Generate(t.Context(), generate.Request{
					Prompt: run.Prompt, MaxTokens: len(run.Tokens), Adapter: r.Name,
				}, nil)
				if err != nil || !slices.Equal(got.Tokens, run.Tokens) {
					t.Errorf("run %d: %v, %v, want %v", i, got, err, run.Tokens)
				}
			}
		})
	}
}

// TestRequestsBesideEachOther: what a request gives with an adapter, or without one, are the same bits alone and beside
// requests with others, in every mode; without one they are those of the model that was opened without adapters. A beginning
// that two requests have in common is shared only where the adapter is the same.
func TestRequestsBesideEachOther(t *testing.T) {
	list := recordedAdapters(t, "llama", "llama_embedding")
	opts := models.Options{Adapters: []models.Adapter{list[0].adapter(t), list[1].adapter(t)}}
	var requests []generate.Request
	for i := range 12 {
		r := generate.Request{MaxTokens: 6, Logprobs: 3, Adapter: []string{"", list[0].Name, list[1].Name}[i%3]}
		for k := range 18 + i/3 {
			r.Prompt = append(r.Prompt, (7*k+3)%200)
		}
		requests = append(requests, r)
	}
	write := func(e *generate.Engine, r generate.Request) []generate.Token {
		got, err := e.Generate(t.Context(), r, nil)
		if err != nil {
			t.Error(err)
			return nil
		}
		return got.Likely
	}
	want := make([][]generate.Token, len(requests))
	base := engine(t, list[0].model(t, models.Options{}), generate.Options{Context: 32})
	for i, r := range requests {
		alone := base
		if r.Adapter != "" { // without a beginning that is shared
			alone = engine(t, list[0].model(t, opts), generate.Options{Context: 32})
		}
		want[i] = write(alone, r)
	}
	if sameTokens(want[0], want[1]) || sameTokens(want[1], want[2]) || sameTokens(want[0], want[2]) {
		t.Fatal("the adapters make no difference")
	}
	for _, o := range []generate.Options{
		{Sequences: 12}, {Sequences: 12, Rows: 16, Session: optimem.Options{Mode: plan.Page, Threads: 1}},
		{Sequences: 3, Session: optimem.Options{Mode: plan.Resident}},
	} {
		o.Context = 32
		e := engine(t, list[0].model(t, opts), o)
		got := make([][]generate.Token, len(requests))
		var wait sync.WaitGroup
		for i := range requests {
			wait.Go(func() { got[i] = write(e, requests[i]) })
		}
		wait.Wait()
		for i := range requests {
			if !sameTokens(got[i], want[i]) {
				t.Errorf("%+v: request %d, %q: %v, alone %v", o, i, requests[i].Adapter, got[i], want[i])
			}
		}
	}
}

func sameTokens(a, b []generate.Token) bool {
	bits := func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) }
	return slices.EqualFunc(a, b, func(a, b generate.Token) bool {
		return a.ID == b.ID && bits(a.Logprob, b.Logprob) && slices.EqualFunc(a.Top, b.Top, func(a, b generate.Candidate) bool {
			return a.ID == b.ID && bits(a.Logprob, b.Logprob)
		})
	})
}
