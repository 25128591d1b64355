package generate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// branching is one of many requests whose texts repeat themselves, with now this and now that behind the same tokens.
func branching(i int) generate.Request {
	rng := rand.New(rand.NewPCG(uint64(i), 6))
	r := generate.Request{Seed: uint64(i), Logprobs: 2, MaxTokens: 40 + rng.IntN(60)}
	for len(r.Prompt) < 20+rng.IntN(60) {
		r.Prompt = append(r.Prompt, 5, 6, 7+rng.IntN(4), 9+rng.IntN(3))
	}
	switch r.Sampling.RepetitionPenalty = 0.2; i % 3 {
	case 1:
		r.Sampling.Temperature = 0.3
	case 2:
		r.Sampling.Temperature, r.Sampling.TopK = 1.2, 4
	}
	return r
}

// TestBranches: several guesses at once change how many passes a text takes, and no bit of it, in every mode, beside
// others and with a model that guesses; there are those where one that was not the first is right.
func TestBranches(t *testing.T) {
	requests := 30
	if testing.Short() {
		requests = 12
	}
	for _, kv := range []tensor.DType{tensor.Float32, tensor.Int8} {
		want := make([]string, requests)
		plain := longEngine(t, chatFolder, generate.Options{Context: 200, Speculate: generate.NoSpeculation, KV: kv})
		for i := range want {
			got, err := plain.Generate(t.Context(), branching(i), nil)
			if err != nil {
				t.Fatal(err)
			}
			want[i] = fmt.Sprint(got.Likely)
		}
		passes := make(map[string]int)
		for _, c := range []struct {
			name string
			o    generate.Options
		}{
			{"one", generate.Options{Speculate: 4}},
			{"two", generate.Options{Speculate: 4, Branches: 2}},
			{"eight", generate.Options{Speculate: 4, Branches: 8}},
			{"long", generate.Options{Speculate: 15, Branches: 2}},
			{"auto", generate.Options{Branches: 4}},
			{"many", generate.Options{Speculate: 3, Branches: 3, Sequences: 5}},
			{"page", generate.Options{Speculate: 3, Branches: 3, Sequences: 2, Session: runtime.Options{Mode: plan.Page, Threads: 1}}},
			{"emulated", generate.Options{Speculate: 5, Branches: 4, Session: runtime.Options{Device: "emu:memory=64MiB"}}},
			{"drafted", generate.Options{Speculate: 3, Branches: 3, Draft: folderModel(t, chatFolder), Sequences: 2}},
		} {
			if testing.Short() && kv == tensor.Int8 && c.name != "eight" {
				continue
			}
			c.o.Context, c.o.KV = 200, kv
			e := longEngine(t, chatFolder, c.o)
			var group sync.WaitGroup
			var mu sync.Mutex
			each := func(i int) {
				got, err := e.Generate(t.Context(), branching(i), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if text := fmt.Sprint(got.Likely); text != want[i] {
					t.Errorf("%s, %v: request %d: %.300s, want %.300s", c.name, kv, i, text, want[i])
				}
				mu.Lock()
				passes[c.name] += got.Passes
				mu.Unlock()
			}
			for i := range requests {
				if c.o.Sequences < 2 {
					each(i)
				} else {
					group.Go(func() { each(i) })
				}
			}
			group.Wait()
			// No row is there twice: each is a token of a prompt, one that was written, or a guess that was wrong.
			if more := e.Stats().Rows - plain.Stats().Rows; c.o.Sequences < 2 && more != e.Stats().Guessed-e.Stats().Accepted {
				t.Errorf("%s, %v: %d rows more, and %d of %d guesses were right", c.name, kv, more, e.Stats().Accepted, e.Stats().Guessed)
			}
			if flat, inner := e.Grown(t.Context()); !testing.Short() && c.o.Branches == 8 && (flat == 0 || inner == 0) {
				t.Errorf("%s, %v: %d branches from the first guess were right, and %d from a later one", c.name, kv, flat, inner)
			}
		}
		if one, two, eight := passes["one"], passes["two"], passes["eight"]; eight == 0 || !testing.Short() && !(two < one && eight < two) {
			t.Errorf("%d passes with one guess, %d with two, %d with eight", one, two, eight)
		}
	}
}

// TestBranchesDraws: thousands of tokens that are drawn where several guesses are verified are those that are drawn
// without guesses, from the same stream of each text, and so have their distribution; among them are texts for which
// guesses that were not the first were right, and others.
func TestBranchesDraws(t *testing.T) {
	texts, tokens := 400, 24
	if testing.Short() {
		texts = 40
	}
	plain := longEngine(t, chatFolder, generate.Options{Context: 200, Speculate: generate.NoSpeculation})
	one := longEngine(t, chatFolder, generate.Options{Context: 200, Speculate: 4})
	several := longEngine(t, chatFolder, generate.Options{Context: 200, Speculate: 4, Branches: 4})
	draws, fewer, same := 0, 0, 0
	for i := range texts {
		r := branching(i)
		r.Seed, r.MaxTokens = uint64(i), tokens
		r.Sampling.Temperature = 0.3 + 0.1*float64(i%12)
		var got [3]*generate.Result
		for k, e := range []*generate.Engine{plain, one, several} {
			var err error
			if got[k], err = e.Generate(t.Context(), r, nil); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got[2].Tokens, got[0].Tokens) {
			t.Errorf("text %d: %v, drawn without guesses %v", i, got[2].Tokens, got[0].Tokens)
		}
		draws += len(got[2].Tokens)
		switch {
		case got[2].Passes < got[1].Passes:
			fewer++
		case got[2].Passes == got[1].Passes:
			same++
		}
	}
	if least := texts * 8; draws < least || !testing.Short() && (fewer == 0 || same == 0) {
		t.Errorf("%d tokens were drawn; %d texts took fewer passes with several guesses, %d as many", draws, fewer, same)
	}
}

// TestBranchesPlanned: the blocks of branches are in the plan, and a number that cannot be is refused.
func TestBranchesPlanned(t *testing.T) {
	bytes := func(o generate.Options) int64 {
		o.Context, o.Sequences = 64, 3
		p, err := longEngine(t, chatFolder, o).Forecast(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p.CacheBytes
	}
	one, three := bytes(generate.Options{}), bytes(generate.Options{Branches: 3})
	if block := one / (3 * 4); three != one+2*2*3*block {
		t.Errorf("%d bytes with one guess, %d with three", one, three)
	}
	if off := bytes(generate.Options{Branches: 3, Speculate: generate.NoSpeculation}); off != one {
		t.Errorf("%d bytes without guesses, want %d", off, one)
	}
	for _, n := range []int{-1, generate.MostBranches + 1} {
		var wrong *generate.RequestError
		if _, err := generate.New(t.Context(), tinyModel(t), generate.Options{Branches: n}); !errors.As(err, &wrong) || wrong.Field != "Branches" {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// TestTree: guesses that begin alike have their common tokens in the same rows, and none has rows of its own that is
// the beginning of another, or goes on where another ends.
func TestTree(t *testing.T) {
	for _, c := range []struct {
		name    string
		text    []int
		hope    float64
		luck    [2]float64
		guesses int
		rows    int
		want    generate.Tree
	}{
		{"from the first guess", []int{1, 2, 5, 6, 1, 2, 3, 4, 1, 2}, 0.7, [2]float64{0.3, 0.3}, 4, 32,
			generate.Tree{Guesses: [][]int{{3, 4, 1}, {5, 6, 1}}, Rows: [][]int{{1, 2, 3}, {4, 5, 6}}}},
		{"from inside", []int{1, 2, 3, 5, 8, 1, 2, 3, 4, 9, 1, 2}, 0.7, [2]float64{0.3, 0.3}, 4, 32,
			generate.Tree{Guesses: [][]int{{3, 4, 9}, {3, 5, 8}}, Rows: [][]int{{1, 2, 3}, {1, 4, 5}}}},
		{"from inside a branch", []int{1, 2, 7, 8, 6, 1, 2, 7, 5, 8, 1, 2, 3, 4, 9, 1, 2}, 0.7, [2]float64{0.3, 0.3}, 4, 32,
			generate.Tree{Guesses: [][]int{{3, 4, 9}, {7, 5, 8}, {7, 8, 6}}, Rows: [][]int{{1, 2, 3}, {4, 5, 6}, {4, 7, 8}}}},
		{"twice the same", []int{1, 2, 3, 4, 9, 1, 2, 3, 4, 9, 1, 2}, 0.7, [2]float64{0.3, 0.3}, 4, 32,
			generate.Tree{Guesses: [][]int{{3, 4, 9}}, Rows: [][]int{{1, 2, 3}}}},
		{"where it is likelier", []int{1, 2, 7, 7, 7, 1, 2, 3, 5, 8, 1, 2, 3, 4, 9, 1, 2}, 0.9, [2]float64{0.1, 0.5}, 2, 32,
			generate.Tree{Guesses: [][]int{{3, 4, 9}, {3, 5, 8}}, Rows: [][]int{{1, 2, 3}, {1, 4, 5}}}},
		{"not where one ends", []int{7, 7, 7, 7, 7, 8, 3, 7, 7, 7, 7, 7}, 0.7, [2]float64{0.3, 0.3}, 4, 32,
			generate.Tree{Guesses: [][]int{{7}, {8, 3, 7}}, Rows: [][]int{{1}, {2, 3, 4}}}},
		{"as room allows", []int{1, 2, 3, 5, 8, 1, 2, 3, 4, 9, 1, 2}, 0.7, [2]float64{0.3, 0.3}, 4, 5,
			generate.Tree{Guesses: [][]int{{3, 4, 9}, {3, 5}}, Rows: [][]int{{1, 2, 3}, {1, 4}}}},
	} {
		if got := generate.TreeOf(c.text, c.hope, c.luck, c.guesses, 3, c.rows); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
