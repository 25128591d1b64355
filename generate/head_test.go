package generate_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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

// headOn is a head of a model of so many words, of EAGLE where no layers are named.
func headOn(t *testing.T, model *models.Model, hidden, words int, layers ...int) *models.Model {
	t.Helper()
	known := fixtures.Every(words, 1)
	if layers != nil {
		known = fixtures.Every(words, 2)
	}
	folder := filepath.Join(t.TempDir(), "head")
	if err := fixtures.SmallEagle(hidden, words, layers, known).Write(folder, words); err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	head, err := models.BuildHead(ckpt, model)
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// TestHead: what heads guess changes no bit of a text, in every mode, beside others and with branches; some guesses are right,
// and some are not.
func TestHead(t *testing.T) {
	requests := 20
	if testing.Short() {
		requests = 8
	}
	model := folderModel(t, chatFolder)
	heads := map[string]*models.Model{
		"EAGLE": headOn(t, model, 64, 420), "EAGLE-3": headOn(t, model, 64, 420, 0, 1, 2),
	}
	ask := func(i int) generate.Request {
		r := branching(i)
		if i%4 == 3 { // as likely as not: then who draws with the same numbers often draws the same
			r.Sampling.Temperature, r.Sampling.TopK = 8, 0
		}
		return r
	}
	want := make([]string, requests)
	plain := longEngine(t, chatFolder, generate.Options{Context: 200, Speculate: generate.NoSpeculation})
	for i := range want {
		got, err := plain.Generate(t.Context(), ask(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = fmt.Sprint(got.Likely)
	}
	paged := runtime.Options{Mode: plan.Page, Threads: 1}
	var accepted int64
	for kind, head := range heads {
		for _, c := range []struct {
			name string
			o    generate.Options
		}{
			{"one", generate.Options{Speculate: 1}},
			{"four", generate.Options{Speculate: 4}},
			{"most", generate.Options{Speculate: 31}},
			{"auto", generate.Options{}},
			{"branches", generate.Options{Speculate: 3, Branches: 4}},
			{"long branches", generate.Options{Speculate: 31, Branches: 8}},
			{"branches, auto", generate.Options{Branches: 3}},
			{"many", generate.Options{Speculate: 3, Branches: 2, Sequences: 5}},
			{"few rows", generate.Options{Speculate: 4, Rows: 4, Sequences: 2}},
			{"page", generate.Options{Speculate: 3, Sequences: 2, Branches: 3, Session: paged}},
			{"emulated", generate.Options{Speculate: 5, Branches: 4, Session: runtime.Options{Device: "emu:memory=64MiB"}}},
			{"off", generate.Options{Speculate: generate.NoSpeculation}},
		} {
			if testing.Short() && kind == "EAGLE" && c.name != "four" && c.name != "many" {
				continue
			}
			t.Run(kind+", "+c.name, func(t *testing.T) {
				c.o.Context, c.o.Draft = 200, head
				e, err := generate.New(t.Context(), model, c.o)
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				var group sync.WaitGroup
				for i := range requests {
					each := func() {
						got, err := e.Generate(t.Context(), ask(i), nil)
						if err != nil {
							t.Error(err)
						} else if text := fmt.Sprint(got.Likely); text != want[i] {
							t.Errorf("request %d: %.300s, want %.300s", i, text, want[i])
						}
					}
					if c.o.Sequences < 2 {
						each()
					} else {
						group.Go(each)
					}
				}
				group.Wait()
				s := e.Stats()
				some := s.Accepted > 0 && s.Accepted < s.Guessed
				if accepted += s.Accepted; testing.Short() { // of few texts a case can have none
					some = s.Accepted < s.Guessed
				}
				if c.o.Speculate > 1 && !some || c.o.Speculate < 0 && s.Guessed > 0 {
					t.Errorf("%d of %d guesses were right", s.Accepted, s.Guessed)
				}
			})
		}
	}
	if accepted == 0 {
		t.Error("no guess was right")
	}
}

// TestHeadSelf: a head guesses the same whether a prompt is read in one pass or in many, and whether it reads what the model saw
// at once or later: as many guesses are right.
func TestHeadSelf(t *testing.T) {
	model := folderModel(t, chatFolder)
	head := headOn(t, model, 64, 420, 0, 1, 2)
	var first generate.Stats
	for k, o := range []generate.Options{{}, {Rows: 8}, {Rows: 64, Session: runtime.Options{Mode: plan.Page}}} {
		o.Context, o.Draft, o.Speculate = 200, head, 3
		e, err := generate.New(t.Context(), model, o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			r := branching(2 + 3*i)
			r.Sampling.Temperature, r.Sampling.TopK = 8, 0
			r.Prompt[0] = 40 + i // none begins as another does
			if _, err := e.Generate(t.Context(), r, nil); err != nil {
				t.Fatal(err)
			}
		}
		s := e.Stats()
		if e.Close(); k == 0 {
			first = s
		}
		if s.Guessed != first.Guessed || s.Accepted != first.Accepted || s.Accepted == 0 {
			t.Errorf("%d rows: %d of %d right, want %d of %d", o.Rows, s.Accepted, s.Guessed, first.Accepted, first.Guessed)
		}
	}
}

// TestHeadBudget: what a head takes is part of the budget; it is one for its model alone.
func TestHeadBudget(t *testing.T) {
	model := tinyModel(t)
	head := headOn(t, model, 16, 32)
	opts := generate.Options{Draft: head, Context: 32, Rows: 4, Session: runtime.Options{Memory: 1 << 20}}
	var takes []int64
	for _, opts.Branches = range []int{4, 1} {
		e, err := generate.New(t.Context(), model, opts)
		if err != nil {
			t.Fatal(err)
		}
		budget, _ := e.Session().Budget()
		if budget+e.DraftBytes() != 1<<20 || e.DraftBytes() < 1<<13 {
			t.Errorf("%d bytes are left of %d, and the head takes %d", budget, 1<<20, e.DraftBytes())
		}
		takes = append(takes, e.DraftBytes())
		e.Close()
	}
	if more := takes[0] - takes[1]; more < 2*3*2*2*16*8*4 { // keys and values of two heads of eight in six blocks
		t.Errorf("a tree of four guesses takes %d bytes more", more)
	}
	opts.Session.Memory = 1 << 13
	_, err := generate.New(t.Context(), model, opts)
	var full *runtime.CapacityError
	if !errors.As(err, &full) || full.MinBytes <= 1<<13 {
		t.Fatalf("in %d bytes: %v", opts.Session.Memory, err)
	}
	opts.Session.Memory = full.MinBytes
	e, err := generate.New(t.Context(), model, opts)
	if err != nil {
		t.Fatalf("in the %d bytes that are said to do: %v", full.MinBytes, err)
	}
	e.Close()
	_, err = generate.New(t.Context(), tinyModel(t), opts)
	var wrong *generate.RequestError
	if !errors.As(err, &wrong) || wrong.Field != "Draft" || !strings.Contains(wrong.Msg, "another model") {
		t.Errorf("on another model: %v", err)
	}
	opts.KV = tensor.Int8
	if e, err = generate.New(t.Context(), model, opts); err == nil {
		e.Close()
	}
}

// TestHeadOfCodes: a head may have its last layer from a model whose weights are codes, and may see what that saw.
func TestHeadOfCodes(t *testing.T) {
	model := folderModel(t, filepath.Join(fixtures.Folder("../loader/testdata/valid.tar.bz2"), "gguf_llama.gguf"))
	for _, layers := range [][]int{nil, {1, 0, 1}} {
		var texts []string
		for _, head := range []*models.Model{nil, headOn(t, model, 32, 268, layers...)} {
			e, err := generate.New(t.Context(), model, generate.Options{Draft: head, Speculate: 3, Context: 64})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			r := generate.Request{Prompt: []int{3, 17, 9, 30, 4}, MaxTokens: 40, Seed: 5, Logprobs: 1}
			r.Sampling.Temperature = 3
			got, err := e.Generate(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if texts = append(texts, fmt.Sprint(got.Likely)); head != nil && e.Stats().Guessed < 40 {
				t.Errorf("%d guesses", e.Stats().Guessed)
			}
		}
		if texts[0] != texts[1] {
			t.Errorf("layers %v: %s, want %s", layers, texts[1], texts[0])
		}
	}
}

// forced has some tokens come in turn.
type forced []int

// Mask implements [generate.Constraint].
func (f *forced) Mask(allowed []uint64) error {
	if len(*f) > 0 {
		clear(allowed)
		allowed[(*f)[0]/64] |= 1 << ((*f)[0] % 64)
	}
	return nil
}

// Accept implements [generate.Constraint].
func (f *forced) Accept(int) error { *f = (*f)[min(1, len(*f)):]; return nil }

// TestHeadGuesses: what an engine guesses with a head is what the published code guesses, whether a prompt is read at once or in
// parts: a text that is made to be those guesses takes one pass behind the prompt.
func TestHeadGuesses(t *testing.T) {
	list, err := fixtures.Eagles("../models/testdata/families/hf/eagle.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	model := tinyModel(t)
	for _, head := range list {
		folder := t.TempDir()
		if err := head.Write(folder, 32); err != nil {
			t.Fatal(err)
		}
		ckpt, err := loader.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		defer ckpt.Close()
		draft, err := models.BuildHead(ckpt, model)
		if err != nil {
			t.Fatal(err)
		}
		for _, rows := range []int{0, 4} {
			e, err := generate.New(t.Context(), model, generate.Options{Draft: draft, Speculate: 3, Context: 32, Rows: rows})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			last := len(head.Tokens) - 1
			text := forced(append(head.Tokens[last:len(head.Tokens):len(head.Tokens)], head.Guesses...))
			passes, want := 2, len(text)+1
			if rows > 0 {
				passes = 1 + (last+rows-1)/rows
			}
			got, err := e.Generate(t.Context(), generate.Request{Prompt: head.Tokens[:last], MaxTokens: want, Constraint: &text}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if s := e.Stats(); s.Guessed != 3 || s.Accepted != 3 || got.Passes != passes {
				t.Errorf("%s, %d rows: %d of %d right, %d passes: %v", head.Name, rows, s.Accepted, s.Guessed, got.Passes, got.Tokens)
			}
		}
	}
}

// TestHeadGoesOn: behind guesses that were right a head guesses what it would if they had been in the prompt. A text in which
// that token comes next shows which it is: one guess more is right.
func TestHeadGoesOn(t *testing.T) {
	list, err := fixtures.Eagles("../models/testdata/families/hf/eagle.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	model := tinyModel(t)
	for _, head := range list[:2] {
		folder := t.TempDir()
		if err := head.Write(folder, 32); err != nil {
			t.Fatal(err)
		}
		ckpt, err := loader.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		defer ckpt.Close()
		draft, err := models.BuildHead(ckpt, model)
		if err != nil {
			t.Fatal(err)
		}
		e, err := generate.New(t.Context(), model, generate.Options{Draft: draft, Speculate: 3, Context: 32})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		guessed := func(whole []int, prompt int) int {
			for id := range 32 {
				before := e.Stats().Accepted
				text := forced(append(whole[prompt:len(whole):len(whole)], id))
				r := generate.Request{Prompt: whole[:prompt], MaxTokens: len(text) + 1, Constraint: &text}
				if _, err := e.Generate(t.Context(), r, nil); err != nil {
					t.Fatal(err)
				}
				if int(e.Stats().Accepted-before) == (len(whole)-1-prompt)/4*3+1 {
					return id
				}
			}
			return -1
		}
		for x := range 12 {
			whole := slices.Concat(head.Tokens, head.Guesses, []int{x})
			parts, once := guessed(whole, len(head.Tokens)-1), guessed(whole, len(whole)-1)
			if parts != once || once < 0 && head.Name == "eagle" { // the other one does not choose from all tokens
				t.Errorf("%s: %d behind what it guessed and %d, but %d behind the same prompt", head.Name, parts, x, once)
			}
		}
	}
}
