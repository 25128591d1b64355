package generate_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
)

// TestSpeculation: guesses change how many passes a text takes, and no token of it.
func TestSpeculation(t *testing.T) {
	const requests = 60
	var want [requests][]generate.Token
	plain := engine(t, generate.Options{Speculate: generate.NoSpeculation})
	ask := func(i int) generate.Request {
		r := request(i)
		r.Logprobs = 3
		if i%4 == 0 { // a text that repeats itself
			r.Prompt = append(r.Prompt[:1:1], 5, 6, 7, 5, 6, 7, 5)
			r.MaxTokens = 20
			r.Sampling = generate.Sampling{RepetitionPenalty: 0.5}
		}
		if i%5 == 0 {
			r.End = []int{3, 9}
		}
		return r
	}
	for i := range want {
		got, err := plain.Generate(t.Context(), ask(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = got.Likely
		if got.Passes != len(got.Tokens) {
			t.Fatalf("request %d: %d passes for %d tokens", i, got.Passes, len(got.Tokens))
		}
	}
	if s := plain.Stats(); s.Guessed != 0 {
		t.Errorf("%d tokens guessed, none are to be", s.Guessed)
	}
	for name, opts := range map[string]generate.Options{
		"one":   {Speculate: 1},
		"five":  {Speculate: 5},
		"most":  {Speculate: 31},
		"many":  {Speculate: 4, Sequences: 7},
		"paged": {Speculate: 3, Session: runtime.Options{Mode: plan.Page}},
		"auto":  {Sequences: 2},
	} {
		t.Run(name, func(t *testing.T) {
			e := engine(t, opts)
			var group sync.WaitGroup
			passes, tokens := [requests]int{}, [requests]int{}
			each := func(i int) {
				got, err := e.Generate(t.Context(), ask(i), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if !slices.EqualFunc(got.Likely, want[i], func(a, b generate.Token) bool {
					return a.ID == b.ID && a.Logprob == b.Logprob && slices.Equal(a.Top, b.Top)
				}) {
					t.Errorf("request %d: %v, want %v", i, got.Likely, want[i])
				}
				passes[i], tokens[i] = got.Passes, len(got.Tokens)
			}
			for i := range requests {
				if opts.Sequences < 2 {
					each(i)
					continue
				}
				group.Go(func() { each(i) })
			}
			group.Wait()
			s := e.Stats()
			if opts.Speculate > 0 && (s.Accepted == 0 || s.Accepted >= s.Guessed) {
				t.Errorf("%d of %d guesses were right: some are, and some are not", s.Accepted, s.Guessed)
			}
			if more := s.Rows - plain.Stats().Rows; opts.Sequences < 2 && more != s.Guessed-s.Accepted {
				t.Errorf("%d rows more, and %d guesses were wrong", more, s.Guessed-s.Accepted)
			}
			saved := int64(0)
			for i := range passes {
				saved += int64(tokens[i] - passes[i])
			}
			if saved > s.Accepted || opts.Sequences < 2 && saved != s.Accepted {
				t.Errorf("%d right guesses saved %d passes", s.Accepted, saved)
			}
		})
	}
}

// TestSpeculationFits: what guesses need is no reason to refuse what runs without them.
func TestSpeculationFits(t *testing.T) {
	for i, speculate := range []int{generate.NoSpeculation, 0, 31, generate.NoSpeculation, 0, 31} {
		opts := generate.Options{Speculate: generate.NoSpeculation, Rows: 2, Context: 32}
		if i >= 3 {
			opts.Rows = 16
		}
		opts.Session = runtime.Options{Memory: 1, Mode: plan.Page}
		_, err := generate.New(t.Context(), tinyModel(t), opts)
		var full *runtime.CapacityError
		if !errors.As(err, &full) {
			t.Fatal(err)
		}
		opts.Session.Memory, opts.Speculate = full.MinBytes, speculate
		e := engine(t, opts)
		got, err := e.Generate(t.Context(), generate.Request{Prompt: []int{5, 6, 5, 6, 5, 6, 5}, MaxTokens: 20, Sampling: generate.Sampling{RepetitionPenalty: 0.1}}, nil)
		if err != nil || len(got.Tokens) != 20 {
			t.Errorf("%d tokens ahead: %v, %v", speculate, got, err)
		}
	}
}
