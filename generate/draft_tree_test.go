package generate_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// written makes a head of recorded weights.
func written(t *testing.T, head *fixtures.Eagle, model *models.Model) *models.Model {
	t.Helper()
	folder := t.TempDir()
	if err := head.Write(folder, 32); err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	draft, err := models.BuildHead(ckpt, model)
	if err != nil {
		t.Fatal(err)
	}
	return draft
}

// TestHeadTree: the tree that an engine guesses with a head is what the published code drafts. A text that is made to be one of
// its paths takes one pass behind the prompt, in which there are as many guesses as the tree has nodes.
func TestHeadTree(t *testing.T) {
	list, err := fixtures.Eagles("../models/testdata/families/hf/eagle.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	model := tinyModel(t)
	for _, head := range list {
		o := generate.Options{Draft: written(t, &head, model), Speculate: 4, Branches: 4, Context: 32, Rows: 1 + head.Nodes}
		e, err := generate.New(t.Context(), model, o)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		last := len(head.Tokens) - 1
		for _, path := range head.Tree {
			before := e.Stats()
			text := ending{append(head.Tokens[last:len(head.Tokens):len(head.Tokens)], path...)}
			r := generate.Request{Prompt: head.Tokens[:last], MaxTokens: 16, Constraint: &text}
			got, err := e.Generate(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := e.Stats()
			guessed, right := s.Guessed-before.Guessed, s.Accepted-before.Accepted
			if int(guessed) != head.Nodes || int(right) != len(path) || got.Passes != 2 {
				t.Errorf("%s, %v: %d of %d right in %d passes: %v, want %d guesses", head.Name, path, right, guessed, got.Passes,
					got.Tokens, head.Nodes)
			}
		}
	}
}

// An ending has some tokens come in turn, and one behind them.
type ending struct{ forced }

// Accept implements [generate.Constraint].
func (e *ending) Accept(id int) error {
	if len(e.forced) == 0 {
		return generate.ErrStop
	}
	return e.forced.Accept(id)
}

// TestHeadTreeAccepts: with a head that was trained, trees have the same texts in fewer passes than chains, since more of the
// guesses of a pass are right.
func TestHeadTreeAccepts(t *testing.T) {
	list, err := fixtures.Eagles("../models/testdata/families/hf/eagle.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	model := tinyModel(t)
	treeAccepts(t, model, written(t, &list[len(list)-1], model), 0)
}

// TestDraftTreeAccepts: so they do with a model that guesses, which is the model itself and knows nothing of a penalty.
func TestDraftTreeAccepts(t *testing.T) { treeAccepts(t, tinyModel(t), tinyModel(t), 0.6) }

func treeAccepts(t *testing.T, model, draft *models.Model, penalty float64) {
	t.Helper()
	ask := func(i int) generate.Request {
		r := generate.Request{MaxTokens: 24, Seed: uint64(i), Logprobs: 1}
		r.Prompt = []int{3 + i%29, 3 + i*7%29, 3 + i*5%29, 4 + i/29}
		r.Sampling.Temperature, r.Sampling.FrequencyPenalty = []float64{0, 0.3, 1}[i%3], penalty
		return r
	}
	texts := 60
	if testing.Short() {
		texts = 30
	}
	want := make([]string, texts)
	plain := engine(t, generate.Options{Speculate: generate.NoSpeculation, Context: 32})
	for i := range texts {
		got, err := plain.Generate(t.Context(), ask(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = fmt.Sprint(got.Likely)
	}
	one := runtime.Options{Mode: plan.Page, Threads: 1}
	passes, right := make(map[int]int), make(map[int]int)
	for _, c := range []struct {
		name string
		o    generate.Options
		as   int
	}{
		{"a chain", generate.Options{Branches: 1}, 1}, {"two", generate.Options{Branches: 2}, 2},
		{"four", generate.Options{Branches: 4}, 4}, {"eight", generate.Options{Branches: 8}, 8},
		{"page", generate.Options{Branches: 4, Session: one}, 4},
		{"emulated", generate.Options{Branches: 4, Session: runtime.Options{Device: "emu:memory=64MiB"}}, 4},
		{"float16", generate.Options{Branches: 4, KV: tensor.Float16}, 0},
		{"few rows", generate.Options{Branches: 3, Rows: 6, Sequences: 2}, 0},
		{"many", generate.Options{Branches: 3, Sequences: 5}, 0},
		{"long", generate.Options{Branches: 8, Speculate: 24}, 0},
		{"auto", generate.Options{Branches: 4, Speculate: 0}, 0},
	} {
		if testing.Short() && (c.name == "emulated" || c.name == "float16" || c.name == "long") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			c.o.Draft, c.o.Context = draft, 32
			if c.o.Speculate == 0 && c.name != "auto" {
				c.o.Speculate = 4
			}
			e, err := generate.New(t.Context(), model, c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			var group sync.WaitGroup
			var of [3]generate.Stats
			for i := range texts {
				each := func() {
					before := e.Stats()
					got, err := e.Generate(t.Context(), ask(i), nil)
					if err != nil {
						t.Error(err)
						return
					}
					if text := fmt.Sprint(got.Likely); text != want[i] && c.o.KV == tensor.Float32 {
						t.Errorf("text %d: %s, want %s", i, text, want[i])
					}
					if s := e.Stats(); c.o.Sequences < 2 {
						of[i%3].Passes += int64(got.Passes)
						of[i%3].Accepted += s.Accepted - before.Accepted
					}
				}
				if c.o.Sequences < 2 {
					each()
				} else {
					group.Go(each)
				}
			}
			group.Wait()
			flat, inner := e.Grown(t.Context())
			none := flat == 0 || c.o.Sequences < 2 && inner == 0
			if s := e.Stats(); c.name != "auto" && (s.Accepted == 0 || c.o.Branches > 1 && none) {
				t.Errorf("%d of %d guesses were right, %d and %d branches", s.Accepted, s.Guessed, flat, inner)
			}
			for k, s := range of {
				p, r := int(s.Passes), int(s.Accepted)
				at := 10*c.as + k
				if _, known := passes[at]; c.as > 0 && known && (p != passes[at] || r != right[at]) {
					t.Errorf("case %d: %d passes, %d right, want %d and %d", k, p, r, passes[at], right[at])
				}
				if c.as > 0 {
					passes[at], right[at] = p, r
				}
				half := 10*c.as/2 + k
				if c.as > 1 && (p > passes[half] || c.as < 8 && p == passes[half] || r < right[half]) {
					t.Errorf("case %d: %d passes, %d right; with half as many guesses %d, %d", k, p, r, passes[half], right[half])
				}
			}
		})
	}
}

// grouped notes how many passes an engine had run at each token.
type grouped struct {
	e  *generate.Engine
	at []int64
}

// Mask implements [generate.Constraint].
func (g *grouped) Mask([]uint64) error { return nil }

// Accept implements [generate.Constraint].
func (g *grouped) Accept(int) error { g.at = append(g.at, g.e.Stats().Passes); return nil }

// TestHeadTreeGoesOn: behind each pass of a text a head guesses what it would if all before had been the prompt, whichever guess
// was right: as many are right.
func TestHeadTreeGoesOn(t *testing.T) {
	list, err := fixtures.Eagles("../models/testdata/families/hf/eagle.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	model := tinyModel(t)
	head := written(t, &list[len(list)-1], model)
	for _, deep := range []int{4, 1} { // of one level nothing is copied while it guesses
		goesOn(t, model, generate.Options{Draft: head, Speculate: deep, Branches: 3, Context: 32})
	}
}

func goesOn(t *testing.T, model *models.Model, o generate.Options) {
	t.Helper()
	e, err := generate.New(t.Context(), model, o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const all = 31
	passes := func(prompt []int) (text []int, at []int64) {
		g := &grouped{e: e}
		got, err := e.Generate(t.Context(), generate.Request{Prompt: prompt, MaxTokens: all - len(prompt), Constraint: g}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return append(prompt[:len(prompt):len(prompt)], got.Tokens...), g.at
	}
	compared := 0
	for i := range 12 {
		begin := []int{3 + i, 20 - i, 5 + 2*i}
		text, at := passes(begin)
		for k := 1; k < len(at); k++ {
			if at[k] == at[k-1] {
				continue // the same pass
			}
			n, m := 0, 0
			for n = k; n < len(at) && at[n] == at[k]; n++ {
			}
			_, once := passes(text[:len(begin)+k-1])
			for m = 1; m < len(once) && once[m] == once[1]; m++ {
			}
			if compared++; n-k != m-1 {
				t.Errorf("text %d: %d tokens in the pass behind %d, want %d", i, n-k, len(begin)+k, m-1)
			}
		}
	}
	if flat, inner := e.Grown(t.Context()); compared < 60 || flat+inner < 100 {
		t.Errorf("%d passes, %d and %d branches", compared, flat, inner)
	}
}
