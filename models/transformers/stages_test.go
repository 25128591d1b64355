package transformers_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/pipeline"
	optimem "github.com/optimem/optimem/runtime"
)

// overStages begins so many stages of a model on this host, and has an engine's passes run over them.
func overStages(t *testing.T, model *models.Model, n int) func(context.Context, generate.RemoteModel) (generate.Remote, error) {
	t.Helper()
	var opts pipeline.Options
	for range n {
		stage, err := pipeline.NewStage(t.Context(), model, pipeline.StageOptions{Session: optimem.Options{Memory: 64 << 20, Threads: 1}})
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- stage.Serve(ctx, listener) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		opts.Stages = append(opts.Stages, listener.Addr().String())
	}
	return func(ctx context.Context, m generate.RemoteModel) (generate.Remote, error) {
		opts.Steps, opts.Typical, opts.Slower = &m.Steps, m.Least, true
		p, err := pipeline.Open(ctx, m.Model, m.Largest, opts)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}

// stageRequest is one of some, the same for the same number: prompts of up to 60 tokens, more than a window sees, which
// begin alike.
func stageRequest(i int) generate.Request {
	rng := rand.New(rand.NewPCG(uint64(i), 31))
	r := generate.Request{Seed: uint64(i), MaxTokens: 4 + rng.IntN(24), Prompt: slices.Clone(spread(20, 1)[:10*(i%3)])}
	for range 1 + rng.IntN(40) {
		r.Prompt = append(r.Prompt, 3+rng.IntN(60))
	}
	if i%2 == 1 {
		r.Sampling = generate.Sampling{Temperature: 0.5 + rng.Float64(), TopK: rng.IntN(20)}
	}
	return r
}

// TestStagesSameText: models whose layers see a window and keep a ring, that keep states, that choose experts, write
// over stages what they write on one machine, several requests at once.
func TestStagesSameText(t *testing.T) {
	forEachStaged(t, func(t *testing.T, model *models.Model) {
		opts := generate.Options{Context: 100, Sequences: 3, Session: optimem.Options{Threads: 1}}
		const requests = 6
		var want [requests][]int
		one, err := generate.New(t.Context(), model, opts)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			got, err := one.Generate(t.Context(), stageRequest(i), nil)
			if err != nil {
				t.Fatal(err)
			}
			want[i] = got.Tokens
		}
		if err := one.Close(); err != nil {
			t.Error(err)
		}
		opts.Remote = overStages(t, model, 2)
		e, err := generate.New(t.Context(), model, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		var all sync.WaitGroup
		for i := range want {
			all.Go(func() {
				got, err := e.Generate(t.Context(), stageRequest(i), nil)
				if err != nil || !slices.Equal(got.Tokens, want[i]) {
					t.Errorf("request %d: %v, want %v: %v", i, got.Tokens, want[i], err)
				}
			})
		}
		all.Wait()
	})
}

// forEachStaged runs a test for models of several kinds: with windows, with states, with experts.
func forEachStaged(t *testing.T, test func(t *testing.T, model *models.Model)) {
	t.Helper()
	for _, r := range recordedDecoders(t) {
		if testing.Short() && !slices.Contains([]string{"gemma3", "starcoder2", "mamba", "mamba2", "olmo2"}, r.Name) {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			model, err := models.Build(r.folder(t), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			test(t, model)
		})
	}
	for _, r := range recordedTexts(t) {
		if r.Name == "mistral" {
			t.Run(r.Name, func(t *testing.T) {
				model, err := models.Build(r.folder(t), models.Options{})
				if err != nil {
					t.Fatal(err)
				}
				test(t, model)
			})
		}
	}
	for _, kind := range []string{"mixtral", "gpt_oss"} {
		t.Run(kind, func(t *testing.T) {
			model, err := models.Build(recordedOf(t, kind)[0].folder(t), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			test(t, model)
		})
	}
}

// TestStagesRefuse: a model that reads a source is refused over stages, with what to do instead.
func TestStagesRefuse(t *testing.T) {
	forEachSeq2Seq(t, func(t *testing.T, r *seq2seqRecord, model *models.Model) {
		remote := func(context.Context, generate.RemoteModel) (generate.Remote, error) {
			t.Error("passes of it begin elsewhere")
			return nil, errors.New("no")
		}
		_, err := generate.New(t.Context(), model, generate.Options{Remote: remote})
		var unsupported *models.UnsupportedError
		if !errors.As(err, &unsupported) || unsupported.Hint == "" {
			t.Errorf("got %v", err)
		}
	})
}
