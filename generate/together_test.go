package generate_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
)

// TestSixteenTogether: sixteen texts that are written at once, where each pass brings all weights, take as many passes
// as one does and bring as many bytes: a sixteenth for each token. Their tokens are those of each alone.
func TestSixteenTogether(t *testing.T) {
	const texts, tokens = 16, 24
	ask := func(i int) generate.Request {
		return generate.Request{Prompt: []int{5, 6 + i, 7, 9}, MaxTokens: tokens, Seed: uint64(i), Sampling: generate.Sampling{Temperature: 0.8}}
	}
	open := func(sequences int) *generate.Engine {
		return longEngine(t, chatFolder, generate.Options{
			Context: 64, Sequences: sequences, Rows: 64, Speculate: generate.NoSpeculation,
			Session: runtime.Options{Mode: plan.Page, Threads: 1},
		})
	}
	one := open(1)
	var want [texts]string
	for i := range want {
		got, err := one.Generate(t.Context(), ask(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = fmt.Sprint(got.Tokens)
	}
	all := open(texts)
	begin, err := all.SetClock(t.Context(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range texts {
		group.Go(func() {
			got, err := all.Generate(t.Context(), ask(i), nil)
			if err != nil || fmt.Sprint(got.Tokens) != want[i] {
				t.Errorf("text %d: %v, want %s: %v", i, got, want[i], err)
			}
		})
	}
	if err := all.WaitFor(t.Context(), texts); err != nil {
		t.Fatal(err)
	}
	if err := begin(); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	passes, moved := all.Stats().Passes, all.Session().Metrics().MovedBytes
	if each := one.Stats().Passes / texts; passes != each || passes != tokens {
		t.Errorf("%d passes, one text takes %d, for %d tokens", passes, each, tokens)
	}
	if each := one.Session().Metrics().MovedBytes / texts; moved != each || moved == 0 {
		t.Errorf("%d bytes were brought, for one text %d", moved, each)
	}
}
