package pipeline_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/pipeline"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// prompt is a request, the same for the same number.
func prompt(i int) generate.Request {
	rng := rand.New(rand.NewPCG(uint64(i), 4))
	r := generate.Request{Seed: uint64(i), MaxTokens: 1 + rng.IntN(8)}
	for k := range 1 + rng.IntN(20) {
		if r.Prompt = append(r.Prompt, rng.IntN(32)); k < 17 {
			r.Prompt[k] = 7 * k % 32 // prompts begin alike
		}
	}
	if i%3 != 0 {
		r.Sampling = generate.Sampling{Temperature: 0.5 + rng.Float64(), TopK: rng.IntN(20), TopP: rng.Float64()}
	}
	return r
}

// remote has an engine's passes run over stages.
func remote(opts pipeline.Options) func(context.Context, generate.RemoteModel) (generate.Remote, error) {
	return func(ctx context.Context, m generate.RemoteModel) (generate.Remote, error) {
		opts.Steps, opts.Typical, opts.Slower = &m.Steps, m.Least, true
		p, err := pipeline.Open(ctx, m.Model, m.Largest, opts)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}

// TestSameText: what is written over stages, each of which keeps the keys and values of its layers, is what one machine
// writes, for many requests at once, in small passes and large ones, with guesses and without.
func TestSameText(t *testing.T) {
	const requests = 24
	model := open(t, llama)
	one, err := generate.New(t.Context(), model, generate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	var want [requests][]int
	for i := range want {
		got, err := one.Generate(t.Context(), prompt(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = got.Tokens
	}
	for name, opts := range map[string]generate.Options{
		"one sequence":    {},
		"several":         {Sequences: 6},
		"small passes":    {Sequences: 4, Rows: 4},
		"guesses":         {Sequences: 3, Speculate: 3},
		"a short context": {Sequences: 2, KV: tensor.Float32, Context: 32},
	} {
		t.Run(name, func(t *testing.T) {
			over := pipeline.Options{}
			for range 2 {
				over.Stages = append(over.Stages, serve(t, model, pipeline.StageOptions{}).address)
			}
			opts.Remote = remote(over)
			e, err := generate.New(t.Context(), model, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			together(t, e, prompt, want[:])
			gone, cancel := context.WithCancel(t.Context())
			_, err = e.Generate(gone, prompt(1), func(generate.Token) error {
				cancel()
				return nil
			})
			cancel()
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if _, err := e.Save(t.Context(), nil, prompt(0)); err == nil {
				t.Error("what lies elsewhere is saved")
			}
		})
	}
}

// TestWritingEnds: a stage that goes away ends the requests that are written with an error that says so.
func TestWritingEnds(t *testing.T) {
	model := open(t, llama)
	first, second := serve(t, model, pipeline.StageOptions{}), serve(t, model, pipeline.StageOptions{})
	e, err := generate.New(t.Context(), model, generate.Options{Remote: remote(pipeline.Options{Stages: []string{first.address, second.address}})})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r := generate.Request{Prompt: []int{1, 2, 3}, MaxTokens: 25}
	var stage *pipeline.StageError
	if _, err = e.Generate(t.Context(), r, func(generate.Token) error {
		second.stop()
		return nil
	}); err != nil && !errors.As(err, &stage) { // all may have been written by then
		t.Errorf("got %v", err)
	}
	if _, err := e.Generate(t.Context(), r, nil); !errors.As(err, &stage) {
		t.Errorf("afterwards: %v", err)
	}
	small := serve(t, model, pipeline.StageOptions{Session: runtime.Options{Memory: 1 << 12}})
	var full *runtime.CapacityError
	_, err = generate.New(t.Context(), model, generate.Options{Remote: remote(pipeline.Options{Stages: []string{first.address, small.address}})})
	if err == nil || errors.As(err, &full) && full.MinBytes == 0 {
		t.Errorf("too little memory: %v", err)
	}
}

// together has an engine answer requests at the same time, and compares the tokens.
func together(t *testing.T, e *generate.Engine, request func(int) generate.Request, want [][]int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range want {
		all.Go(func() {
			got, err := e.Generate(t.Context(), request(i), nil)
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			} else if !slices.Equal(got.Tokens, want[i]) {
				t.Errorf("request %d: %v, want %v", i, got.Tokens, want[i])
			}
		})
	}
	all.Wait()
}
