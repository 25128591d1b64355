package transformers_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
)

// forEachRecurrent runs a test for the recorded models that keep states, of each family the one with its name. Short
// are three: one of states alone, and two kinds of states beside attention.
func forEachRecurrent(t *testing.T, test func(t *testing.T, model *models.Model)) {
	t.Helper()
	for _, r := range decodersIn(t, "recurrents.json.gz") {
		if testing.Short() && !slices.Contains([]string{"falcon_h1", "mamba2", "qwen3_next"}, r.Name) {
			continue
		}
		model, err := models.Build(r.folder(t), models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, states := model.Keeps(); states && !strings.HasSuffix(r.Name, "_biased") {
			t.Run(r.Name, func(t *testing.T) { test(t, model) })
		}
	}
}

func recurrentEngine(t *testing.T, model *models.Model, o generate.Options) *generate.Engine {
	t.Helper()
	e, err := generate.New(t.Context(), model, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// recurrentRequest is one of many, the same for the same number. Some texts repeat themselves, so that guesses are
// right.
func recurrentRequest(i int) generate.Request {
	rng := rand.New(rand.NewPCG(uint64(i), 8))
	r := generate.Request{Seed: uint64(i), MaxTokens: 1 + rng.IntN(30), Logprobs: 2}
	for k := range 1 + rng.IntN(70) {
		r.Prompt = append(r.Prompt, 3+(5*k+i%3)%90)
	}
	r.Prompt = append(r.Prompt, rng.IntN(90), rng.IntN(90))
	switch i % 3 {
	case 0:
		r.MaxTokens = 60
		r.Sampling = generate.Sampling{RepetitionPenalty: 0.02}
	case 1:
		r.Sampling = generate.Sampling{Temperature: 1}
	}
	return r
}

// TestRecurrentSameText: what a request gives of a model that keeps states is the same bits in every mode, for any rows
// of a pass, requests beside it and guesses.
func TestRecurrentSameText(t *testing.T) {
	requests := 12
	if testing.Short() {
		requests = 5
	}
	forEachRecurrent(t, func(t *testing.T, model *models.Model) {
		want := make([]string, requests)
		alone := recurrentEngine(t, model, generate.Options{Session: optimem.Options{Mode: plan.Resident, Threads: 1}, Context: 160})
		for i := range want {
			got, err := alone.Generate(t.Context(), recurrentRequest(i), nil)
			if err != nil {
				t.Fatal(err)
			}
			want[i] = fmt.Sprint(got.Likely)
		}
		for name, o := range map[string]generate.Options{
			"page":        {Session: optimem.Options{Mode: plan.Page, Threads: 2}, Sequences: 4},
			"few rows":    {Session: optimem.Options{Mode: plan.Resident}, Sequences: 5, Rows: 3},
			"one row":     {Rows: 1},
			"many":        {Sequences: 12, Rows: 40},
			"guesses":     {Sequences: 3, Speculate: 6},
			"guess":       {Speculate: 1, Rows: 2},
			"guess alone": {Speculate: 6},
			"chunk":       {Session: optimem.Options{Mode: plan.Chunk, Capacity: plan.Limit{N: 20000}}, Sequences: 3},
			"emulated":    {Session: optimem.Options{Device: "emu:memory=64MiB,bandwidth=12GB/s"}, Sequences: 3, Speculate: 2},
			"drafted":     {Draft: model, Sequences: 2},
		} {
			if testing.Short() && !slices.Contains([]string{"page", "few rows", "guesses", "emulated"}, name) {
				continue
			}
			o.Context = 160
			if o.Draft != nil {
				o.Draft = tinyDraft(t)
			}
			e := recurrentEngine(t, model, o)
			var wait sync.WaitGroup
			for i := range want {
				each := func() {
					got, err := e.Generate(t.Context(), recurrentRequest(i), nil)
					if err != nil {
						t.Errorf("%s: request %d: %v", name, i, err)
					} else if text := fmt.Sprint(got.Likely); text != want[i] {
						t.Errorf("%s: request %d: %s, want %s", name, i, text, want[i])
					}
				}
				if name == "guess alone" { // whose guesses are the same every time
					each()
				} else {
					wait.Go(each)
				}
			}
			wait.Wait()
			s := e.Stats()
			if name == "guess alone" && (s.Accepted == 0 || s.Accepted == s.Guessed) {
				t.Errorf("%s: %d of %d guesses were right: some are, and some are not", name, s.Accepted, s.Guessed)
			}
			if o.Speculate == 0 && o.Draft == nil && s.Guessed > 0 {
				t.Errorf("%s: %d tokens were guessed, and nobody asked for that", name, s.Guessed)
			}
		}
	})
}

// tinyDraft is a model with the vocabulary of the recorded ones that keeps keys and values.
func tinyDraft(t *testing.T) *models.Model {
	t.Helper()
	for _, r := range recordedDecoders(t) {
		if r.Name == "glm" {
			model, err := models.Build(r.folder(t), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return model
		}
	}
	t.Fatal("no model to draft with")
	return nil
}

// TestRecurrentDraft: a model that keeps states is no draft, and the error says so.
func TestRecurrentDraft(t *testing.T) {
	forEachRecurrent(t, func(t *testing.T, model *models.Model) {
		e, err := generate.New(t.Context(), tinyDraft(t), generate.Options{Draft: model})
		if err == nil {
			e.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "keeps states") {
			t.Errorf("got %v", err)
		}
	})
}

// spread is a prompt of so many tokens.
func spread(n, seed int) []int {
	rng := rand.New(rand.NewPCG(uint64(seed), 2))
	list := make([]int, n)
	for i := range list {
		list[i] = 3 + rng.IntN(90)
	}
	return list
}

// TestRecurrentShares: a prompt goes on behind the last token of a beginning whose state was kept, and nowhere else;
// the text is what it is without.
func TestRecurrentShares(t *testing.T) {
	forEachRecurrent(t, func(t *testing.T, model *models.Model) {
		e := recurrentEngine(t, model, generate.Options{Context: 200, Sequences: 2})
		ask := func(name string, prompt []int, shared int) []int {
			t.Helper()
			r := generate.Request{Prompt: prompt, MaxTokens: 20}
			got, err := e.Generate(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			fresh := recurrentEngine(t, model, generate.Options{Context: 200})
			want, err := fresh.Generate(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got.SharedTokens != shared || !slices.Equal(got.Tokens, want.Tokens) {
				t.Errorf("%s: %d tokens were there, want %d; %v, want %v", name, got.SharedTokens, shared, got.Tokens, want.Tokens)
			}
			return append(slices.Clone(prompt), got.Tokens...)
		}
		first := spread(50, 1)
		all := ask("first", first, 0)
		ask("again", first, 48)
		ask("further", append(slices.Clone(all), spread(9, 2)...), 64)
		// Where another prompt parts from it there is no state, until one came by.
		ask("parted", append(slices.Clone(first[:40]), spread(20, 3)...), 0)
		ask("parted again", append(slices.Clone(first[:40]), spread(20, 4)...), 32)
		ask("short", first[:8], 0)
	})
}

// TestRecurrentSaved: a text goes on from a file with the same bits; a file that is not whole leaves nothing.
func TestRecurrentSaved(t *testing.T) {
	forEachRecurrent(t, func(t *testing.T, model *models.Model) {
		first := recurrentEngine(t, model, generate.Options{Context: 200, Sequences: 3})
		// What is saved lies behind the states of others.
		for seed := range 2 {
			if _, err := first.Generate(t.Context(), generate.Request{Prompt: spread(40, 50+seed), MaxTokens: 20}, nil); err != nil {
				t.Fatal(err)
			}
		}
		prompt := spread(50, 5)
		got, err := first.Generate(t.Context(), generate.Request{Prompt: prompt, MaxTokens: 20}, nil)
		if err != nil {
			t.Fatal(err)
		}
		all := append(slices.Clone(prompt), got.Tokens...)
		var file bytes.Buffer
		if n, err := first.Save(t.Context(), &file, generate.Request{Prompt: all}); err != nil || n != 64 {
			t.Fatalf("saved %d tokens: %v", n, err)
		}
		r := generate.Request{Prompt: append(slices.Clone(all), 7, 8, 9), MaxTokens: 30, Logprobs: 2, Sampling: generate.Sampling{Temperature: 1}}
		want, err := first.Generate(t.Context(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, o := range map[string]generate.Options{
			"same":     {},
			"page":     {Session: optimem.Options{Mode: plan.Page, Threads: 1}, Sequences: 3, Rows: 5},
			"emulated": {Session: optimem.Options{Device: "emu:memory=64MiB"}, Speculate: 2},
		} {
			o.Context = 160
			e := recurrentEngine(t, model, o)
			for _, at := range []int{40, file.Len() / 2, file.Len() - 40} {
				broken := slices.Clone(file.Bytes())
				broken[at] ^= 1
				if list, err := e.Restore(t.Context(), bytes.NewReader(broken)); err == nil || len(list) > 0 {
					t.Errorf("%s: byte %d is another: %d tokens: %v", name, at, len(list), err)
				}
			}
			if list, err := e.Restore(t.Context(), bytes.NewReader(file.Bytes()[:file.Len()-33])); err == nil || len(list) > 0 {
				t.Errorf("%s: without its end: %d tokens: %v", name, len(list), err)
			}
			list, err := e.Restore(t.Context(), bytes.NewReader(file.Bytes()))
			if err != nil || !slices.Equal(list, all[:64]) {
				t.Fatalf("%s: restored %v: %v", name, list, err)
			}
			if o.Session.Device != "" {
				if err := e.Session().GiveBack(t.Context(), optimem.Everything); err != nil {
					t.Fatal(err)
				}
			}
			var again bytes.Buffer
			if n, err := e.Save(t.Context(), &again, generate.Request{Prompt: all}); err != nil || n != 64 || !bytes.Equal(again.Bytes(), file.Bytes()) {
				t.Errorf("%s: what was restored is saved otherwise, %d tokens: %v", name, n, err)
			}
			after, err := e.Generate(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if after.SharedTokens != 64 || fmt.Sprint(after.Likely) != fmt.Sprint(want.Likely) {
				t.Errorf("%s: %d tokens were there; %v, want %v", name, after.SharedTokens, after.Likely, want.Likely)
			}
		}
	})
}

// TestRecurrentPlanned: the plan has states to the byte. They do not grow with the context; keys and values do, where
// there are some.
func TestRecurrentPlanned(t *testing.T) {
	forEachRecurrent(t, func(t *testing.T, model *models.Model) {
		keys, _ := model.Keeps()
		sizes := make(map[int]int64)
		for _, context := range []int{64, 512} {
			e := recurrentEngine(t, model, generate.Options{Context: context, Sequences: 2, Speculate: 3, Rows: 32})
			p, err := e.Forecast(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			g := p.Lowered.Graph
			var states, all int64
			places := 3*2 + 3*2 + 1
			for i := range g.Ops {
				op := &g.Ops[i]
				in, ok := op.Kind.StateOperand()
				if !ok {
					continue
				}
				v := &g.Values[op.In[in].Value]
				if v.Role != graph.Cache || v.Shape[0] != places {
					t.Fatalf("%s has %d places for states, want %d", v.Name, v.Shape[0], places)
				}
				states += plan.AlignUp(v.Bytes(), p.Target.AlignBytes)
			}
			all = p.CacheBytes
			if !keys && all != states || states == 0 {
				t.Errorf("context %d: %d bytes of caches, %d of states", context, all, states)
			}
			sizes[context] = all
			if keys {
				sizes[context] = states
			}
			if _, err := e.Generate(t.Context(), generate.Request{Prompt: spread(20, 1), MaxTokens: 9}, nil); err != nil {
				t.Fatal(err)
			}
			if m := e.Session().Metrics(); m.CacheBytes != all {
				t.Errorf("context %d: caches have %d bytes, and %d are planned", context, m.CacheBytes, all)
			}
		}
		if sizes[64] != sizes[512] {
			t.Errorf("states have %d bytes for 64 tokens and %d for 512", sizes[64], sizes[512])
		}
	})
}
