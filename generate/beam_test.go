package generate_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
)

// A beamCase is what transformers' beam search finds: testdata/record_beams.py.
type beamCase struct {
	Prompt    []int
	Beams     int
	Penalty   float64
	Early     string
	End       []int
	MaxTokens int `json:"max_tokens"`
	Found     []struct {
		Tokens []int
		Score  float64
	}
}

func (c *beamCase) search() (generate.Request, generate.Beams) {
	b := generate.Beams{Width: c.Beams, LengthPenalty: c.Penalty}
	if c.Penalty == 0 {
		b.LengthPenalty = generate.NoLengthPenalty
	}
	b.Early = map[string]generate.Early{"False": generate.EarlyLikely, "True": generate.EarlyFull, "never": generate.EarlyNever}[c.Early]
	return generate.Request{Prompt: c.Prompt, MaxTokens: c.MaxTokens, End: c.End}, b
}

func beamCases(t *testing.T) []beamCase {
	t.Helper()
	f, err := os.Open("testdata/beams.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var cases []beamCase
	if err := json.NewDecoder(z).Decode(&cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// TestBeams: texts and scores are those of transformers, with every way to end and penalty for length, whatever else is in the
// passes and however the model is run.
func TestBeams(t *testing.T) {
	cases := beamCases(t)
	if len(cases) < 90 {
		t.Fatalf("%d cases", len(cases))
	}
	for name, opts := range map[string]generate.Options{
		"resident": {Sequences: 5, Context: 128},
		"page":     {Sequences: 2, Context: 128, Rows: 8, Session: runtime.Options{Mode: plan.Page}},
	} {
		e := longEngine(t, chatFolder, opts)
		var wait sync.WaitGroup
		for i, c := range cases {
			if name == "page" && i%5 != 0 {
				continue
			}
			wait.Add(1)
			go func() {
				defer wait.Done()
				r, b := c.search()
				found, err := e.Beam(t.Context(), r, b)
				if err != nil {
					t.Error(err)
					return
				}
				for k, want := range c.Found {
					if want.Score < -1e8 { // the place of one that was not found
						c.Found = c.Found[:k]
						break
					}
					if k < len(found) && (!slices.Equal(found[k].Tokens, want.Tokens) || math.Abs(found[k].Score-want.Score) > 2e-4*max(1, math.Abs(want.Score))) {
						t.Errorf("%s: case %d, %d beams, penalty %v, early %s: text %d is %v, %v, want %v, %v", name, i, c.Beams, c.Penalty, c.Early, k,
							found[k].Tokens, found[k].Score, want.Tokens, want.Score)
					}
					if last := want.Tokens[len(want.Tokens)-1]; k < len(found) && (found[k].Finish == generate.FinishStop) != slices.Contains(c.End, last) {
						t.Errorf("case %d: text %d ends by %s", i, k, found[k].Finish)
					}
				}
				if len(found) != len(c.Found) {
					t.Errorf("%s: case %d: %d texts, want %d", name, i, len(found), len(c.Found))
				}
			}()
		}
		wait.Wait()
		s := e.Stats() // what a search gave up leaves with the next pass
		for end := time.Now().Add(time.Minute); s.Running+s.Waiting > 0 && time.Now().Before(end); s = e.Stats() {
			time.Sleep(time.Millisecond)
		}
		if s.Running+s.Waiting > 0 {
			t.Errorf("%s: still at work: %+v", name, s)
		}
	}
}

// TestBeamsErrors: what cannot be searched is refused, and a caller who goes away ends the search.
func TestBeamsErrors(t *testing.T) {
	e := longEngine(t, chatFolder, generate.Options{Context: 64})
	good, wide := generate.Request{Prompt: []int{5, 6}, MaxTokens: 5}, generate.Beams{Width: 2}
	for field, c := range map[string]struct {
		change func(r *generate.Request, b *generate.Beams)
	}{
		"Beams.Width":         {func(_ *generate.Request, b *generate.Beams) { b.Width = 51 }},
		"Beams.LengthPenalty": {func(_ *generate.Request, b *generate.Beams) { b.LengthPenalty = math.NaN() }},
		"Beams.Early":         {func(_ *generate.Request, b *generate.Beams) { b.Early = "soon" }},
		"Beams.Sampling":      {func(r *generate.Request, _ *generate.Beams) { r.Sampling.Temperature = 1 }},
		"Beams.Constraint":    {func(r *generate.Request, _ *generate.Beams) { r.Constraint = &hangUp{} }},
		"Prompt":              {func(r *generate.Request, _ *generate.Beams) { r.Prompt = nil }},
	} {
		r, b := good, wide
		c.change(&r, &b)
		var bad *generate.RequestError
		if _, err := e.Beam(t.Context(), r, b); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Beam(gone, good, wide); !errors.Is(err, context.Canceled) {
		t.Errorf("of a caller who went away: %v", err)
	}
	if found, err := e.Beam(t.Context(), good, wide); err != nil || len(found) != 2 {
		t.Errorf("the next one: %v: %v", found, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Beam(t.Context(), good, wide); !errors.Is(err, generate.ErrClosed) {
		t.Errorf("of a closed engine: %v", err)
	}
}
