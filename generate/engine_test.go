package generate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// tiny is a folder of a Llama of 32 tokens and as many positions.
const tiny = "../models/testdata/families/hf/tiny_llama"

func tinyModel(t testing.TB) *models.Model {
	t.Helper()
	return folderModel(t, tiny)
}

// folderModel is the model of a folder.
func folderModel(t testing.TB, folder string) *models.Model {
	t.Helper()
	ckpt, err := loader.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func engine(t testing.TB, opts generate.Options) *generate.Engine {
	t.Helper()
	e, err := generate.New(t.Context(), tinyModel(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// request is one of many kinds, the same for the same number.
func request(i int) generate.Request {
	rng := rand.New(rand.NewPCG(uint64(i), 4))
	r := generate.Request{Seed: uint64(i)}
	begin := rng.IntN(3) // some prompts begin alike
	for k := range 1 + rng.IntN(24) {
		id := rng.IntN(32)
		if k < 17 {
			id = (7*k + begin) % 32
		}
		r.Prompt = append(r.Prompt, id)
	}
	r.MaxTokens = 1 + rng.IntN(31-len(r.Prompt)+1)
	if i%3 != 0 {
		r.Sampling = generate.Sampling{Temperature: 0.5 + rng.Float64(), TopK: rng.IntN(20), TopP: rng.Float64()}
	}
	return r
}

// TestText: the most likely tokens are those of the whole forward, computed anew for each token.
func TestText(t *testing.T) {
	model := tinyModel(t)
	session, err := runtime.Resident(t.Context(), model, runtime.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	e := engine(t, generate.Options{})
	for i := range 10 {
		r := request(3 * i)
		got, err := e.Generate(t.Context(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		var text []int64
		for _, id := range r.Prompt {
			text = append(text, int64(id))
		}
		for k, id := range got.Tokens {
			out, err := session.Run(t.Context(), runtime.Values{"input_ids": tensor.Of(text, 1, len(text))})
			if err != nil {
				t.Fatal(err)
			}
			logits, err := tensor.Slice[float32](out["logits"])
			if err != nil {
				t.Fatal(err)
			}
			last := logits[len(logits)-32:]
			if want := slices.Index(last, slices.Max(last)); id != want {
				t.Fatalf("request %d: token %d is %d, want %d", i, k, id, want)
			}
			text = append(text, int64(id))
		}
		if len(got.Tokens) != r.MaxTokens || got.Finish != generate.FinishLength {
			t.Errorf("request %d: %d tokens of %d, %s", i, len(got.Tokens), r.MaxTokens, got.Finish)
		}
	}
}

// TestSameText: what a request gives does not depend on the mode, the budget, the rows of a pass, the threads or the requests
// beside it, also where factors of products are rounded.
func TestSameText(t *testing.T) {
	for _, precision := range []string{"fp32", "bf16"} {
		t.Run(precision, func(t *testing.T) { sameText(t, precision) })
	}
}

func sameText(t *testing.T, precision string) {
	t.Helper()
	const requests = 24
	var want [requests][]int
	first := generate.Options{Session: runtime.Options{Mode: plan.Resident, Threads: 1, Precision: precision}}
	alone, err := generate.New(t.Context(), tinyModel(t), first)
	if errors.Is(err, graph.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { alone.Close() })
	for i := range want {
		got, err := alone.Generate(t.Context(), request(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = got.Tokens
	}
	for name, opts := range map[string]generate.Options{
		"page":     {Session: runtime.Options{Mode: plan.Page, Threads: 2}, Sequences: 4},
		"few rows": {Session: runtime.Options{Mode: plan.Resident}, Sequences: 5, Rows: 3},
		"one row":  {Session: runtime.Options{Mode: plan.Auto}, Sequences: 2, Rows: 1},
		"many":     {Session: runtime.Options{Mode: plan.Auto}, Sequences: 16},
		"chunk":    {Session: runtime.Options{Mode: plan.Chunk, Capacity: plan.Limit{N: 1000}}, Sequences: 3},
		"emulated": {Session: runtime.Options{Device: "emu:memory=64MiB,bandwidth=12GB/s"}, Sequences: 3},
		"host":     {Session: runtime.Options{Device: "emu:memory=64MiB,bandwidth=12GB/s", CachesAway: true}, Sequences: 4},
		"host chunk": {
			Session:   runtime.Options{Device: "emu:memory=64MiB", Mode: plan.Chunk, Capacity: plan.Limit{N: 20000, Unit: plan.Params}, CachesAway: true},
			Sequences: 3,
		},
		"host auto": {
			Session:   runtime.Options{Device: "emu:memory=320KiB,bandwidth=100MB/s", Mode: plan.Auto, CachesAway: true, HostMemory: 4 << 20},
			Sequences: 3,
		},
		"file":       {Session: runtime.Options{Mode: plan.Page, CachesAway: true, SwapFolder: t.TempDir()}, Sequences: 5},
		"small page": {Session: runtime.Options{Mode: plan.Page, MaxGroup: plan.Limit{}}, Sequences: 1, Rows: 7},
	} {
		t.Run(name, func(t *testing.T) {
			opts.Session.Precision = precision
			e := engine(t, opts)
			var wait sync.WaitGroup
			for i := range want {
				wait.Add(1)
				go func() {
					defer wait.Done()
					got, err := e.Generate(t.Context(), request(i), nil)
					if err != nil {
						t.Errorf("request %d: %v", i, err)
					} else if !slices.Equal(got.Tokens, want[i]) {
						t.Errorf("request %d: %v, want %v", i, got.Tokens, want[i])
					}
				}()
			}
			wait.Wait()
			if s := e.Stats(); s.Running+s.Waiting > 0 {
				t.Errorf("still at work: %+v", s)
			}
		})
	}
}

// TestSharedBeginning: a prompt that begins as an earlier one reads only what is new, and gives the same.
func TestSharedBeginning(t *testing.T) {
	e := engine(t, generate.Options{Sequences: 2})
	r := request(0)
	r.Prompt, r.MaxTokens = nil, 4
	for k := range 25 {
		r.Prompt = append(r.Prompt, (5*k)%32)
	}
	first, err := e.Generate(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := e.Generate(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if first.SharedTokens != 0 || second.SharedTokens != 16 || !slices.Equal(first.Tokens, second.Tokens) {
		t.Errorf("%d and %d shared; %v and %v", first.SharedTokens, second.SharedTokens, first.Tokens, second.Tokens)
	}
}

// TestEnds: an end token ends a text and is its last, a caller may have enough, and what was written stays.
func TestEnds(t *testing.T) {
	e := engine(t, generate.Options{})
	r := request(0)
	r.MaxTokens = 5
	all, err := e.Generate(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.End = []int{all.Tokens[2]}
	at := slices.Index(all.Tokens, all.Tokens[2])
	got, err := e.Generate(t.Context(), r, nil)
	if err != nil || got.Finish != generate.FinishStop || !slices.Equal(got.Tokens, all.Tokens[:at+1]) {
		t.Errorf("got %+v: %v", got, err)
	}
	r.End = nil
	n := 0
	got, err = e.Generate(t.Context(), r, func(generate.Token) error {
		if n++; n == 2 {
			return fmt.Errorf("enough: %w", generate.ErrStop)
		}
		return nil
	})
	if err != nil || got.Finish != generate.FinishStop || len(got.Tokens) != 2 {
		t.Errorf("got %+v: %v", got, err)
	}
	broken := errors.New("broken pipe")
	if _, err = e.Generate(t.Context(), r, func(generate.Token) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// TestCancelled: a request that is cancelled is out, whether it is being written or waits, and others go on.
func TestCancelled(t *testing.T) {
	e := engine(t, generate.Options{Sequences: 1, Rows: 1})
	ctx, cancel := context.WithCancel(t.Context())
	r := request(0)
	r.Prompt, r.MaxTokens = []int{1}, 31
	_, err := e.Generate(ctx, r, func(generate.Token) error {
		cancel()
		time.Sleep(time.Millisecond)
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := e.Generate(t.Context(), r, nil); err != nil {
		t.Errorf("the next request: %v", err)
	}
	done, stop := context.WithCancel(t.Context())
	stop()
	if _, err := e.Generate(done, r, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("of a context that is done: %v", err)
	}
}

// TestClosed: closing ends what is being written, and later requests.
func TestClosed(t *testing.T) {
	e, err := generate.New(t.Context(), tinyModel(t), generate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := request(0)
	r.Prompt, r.MaxTokens = []int{1}, 31
	closing := make(chan error, 1)
	_, err = e.Generate(t.Context(), r, func(generate.Token) error {
		if closing != nil {
			go func(c chan error) { c <- e.Close() }(closing)
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	})
	if err != nil && !errors.Is(err, generate.ErrClosed) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := <-closing; err != nil {
		t.Error(err)
	}
	if _, err := e.Generate(t.Context(), r, nil); !errors.Is(err, generate.ErrClosed) {
		t.Errorf("after that: %v", err)
	}
}

// TestBadRequests: what cannot be written is refused with the field that is wrong, and nothing else suffers.
func TestBadRequests(t *testing.T) {
	e := engine(t, generate.Options{})
	for field, r := range map[string]generate.Request{
		"Prompt":               {},
		"MaxTokens":            {Prompt: []int{1}, MaxTokens: -1},
		"Logprobs":             {Prompt: []int{1}, Logprobs: 1000},
		"Sampling.TopP":        {Prompt: []int{1}, Sampling: generate.Sampling{TopP: 2}},
		"Sampling.BadWords":    {Prompt: []int{1}, Sampling: generate.Sampling{BadWords: [][]int{{99}}}},
		"Sampling.TopK":        {Prompt: []int{1}, Sampling: generate.Sampling{TopK: -1}},
		"Sampling.MinP":        {Prompt: []int{1}, Sampling: generate.Sampling{MinP: -0.1}},
		"Sampling.Typical":     {Prompt: []int{1}, Sampling: generate.Sampling{Typical: 1.1}},
		"Sampling.Temperature": {Prompt: []int{1}, Sampling: generate.Sampling{Temperature: -1}},
	} {
		var bad *generate.RequestError
		if _, err := e.Generate(t.Context(), r, nil); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, prompt := range [][]int{{32}, {-1}, make([]int, 32)} {
		var bad *generate.RequestError
		if _, err := e.Generate(t.Context(), generate.Request{Prompt: prompt}, nil); !errors.As(err, &bad) || bad.Field != "Prompt" {
			t.Errorf("%v: %v", prompt, err)
		}
	}
}

// TestBudgetOfEngine: an engine takes no more than its budget, the caches among it, and a budget that admits no short context
// is an error that says what would do.
func TestBudgetOfEngine(t *testing.T) {
	_, err := generate.New(t.Context(), tinyModel(t), generate.Options{Session: runtime.Options{Memory: 2000}})
	var full *runtime.CapacityError
	if !errors.As(err, &full) || full.MinBytes <= 2000 {
		t.Fatalf("got %v", err)
	}
	e := engine(t, generate.Options{Session: runtime.Options{Memory: full.MinBytes}, Context: 32, Rows: 16})
	if _, err := e.Generate(t.Context(), request(0), nil); err != nil {
		t.Fatal(err)
	}
	if peak := e.Session().Metrics().PeakBytes; peak > full.MinBytes {
		t.Errorf("took %d of %d bytes", peak, full.MinBytes)
	}
}

// hangUp is a caller that goes away when the first token was chosen.
type hangUp struct {
	cancel context.CancelFunc
	tokens int
}

func (h *hangUp) Mask([]uint64) error { return nil }

func (h *hangUp) Accept(int) error {
	h.tokens++
	h.cancel()
	return nil
}

// TestGone: a request whose caller went away is in no later pass, and its blocks are free again.
func TestGone(t *testing.T) {
	e := engine(t, generate.Options{Sequences: 1})
	ctx, cancel := context.WithCancel(t.Context())
	gone := &hangUp{cancel: cancel}
	_, err := e.Generate(ctx, generate.Request{Prompt: []int{1}, MaxTokens: 31, Constraint: gone}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	soon, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	if _, err := e.Generate(soon, generate.Request{Prompt: []int{2}, MaxTokens: 31}, nil); err != nil {
		t.Fatalf("the next one: %v", err)
	}
	if gone.tokens != 1 {
		t.Errorf("%d tokens were written for who is gone", gone.tokens)
	}
}
