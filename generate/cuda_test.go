//go:build linux && (amd64 || arm64) && !nocuda

package generate_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestTextOnGPU: the simulated GPU gives the CPU's tokens, whatever requests are beside them, whether weights stay or are paged,
// and attends itself, to bytes, too; nothing races.
func TestTextOnGPU(t *testing.T) {
	const requests = 12
	want := make(map[tensor.DType][][]int)
	for _, kv := range []tensor.DType{tensor.Float32, tensor.Int8} {
		alone := engine(t, generate.Options{KV: kv})
		for i := range requests {
			got, err := alone.Generate(t.Context(), request(i), nil)
			if err != nil {
				t.Fatal(err)
			}
			want[kv] = append(want[kv], got.Tokens)
		}
	}
	for _, c := range []struct {
		mode     plan.Mode
		settings string
		rows     int
		kv       tensor.DType
		away     bool
	}{
		{plan.Resident, "order=lazy:1", 0, tensor.Float32, false}, {plan.Page, "order=lazy:2", 5, tensor.Float32, false},
		{plan.Auto, "order=threads", 0, tensor.Float32, false}, {plan.Page, "order=lazy:3", 0, tensor.Int8, false},
		{plan.Resident, "order=lazy:4", 0, tensor.Float32, true}, {plan.Page, "order=threads", 5, tensor.Int8, true},
	} {
		t.Run(fmt.Sprintf("%s %v %v", c.mode, c.kv, c.away), func(t *testing.T) {
			lib := sim.New(t, "memory=64M "+c.settings)
			t.Cleanup(func() { lib.Check(t) }) // after the engine is closed
			e := engine(t, generate.Options{
				Session: runtime.Options{Device: "cuda", CUDALibrary: lib.Path, Mode: c.mode, CachesAway: c.away}, Sequences: 3, Rows: c.rows, KV: c.kv,
			})
			var wait sync.WaitGroup
			for i, want := range want[c.kv] {
				wait.Go(func() {
					got, err := e.Generate(t.Context(), request(i), nil)
					if err != nil {
						t.Errorf("request %d: %v", i, err)
					} else if !slices.Equal(got.Tokens, want) {
						t.Errorf("request %d: %v, want %v", i, got.Tokens, want)
					}
				})
			}
			wait.Wait()
			if n := e.Session().Metrics().CacheInBytes; (n > 0) != c.away {
				t.Errorf("%d bytes of keys and values came", n)
			}
		})
	}
}

// TestBranchesOnGPU: so it is where a pass verifies several guesses, whose beginnings are copied in the GPU's memory.
func TestBranchesOnGPU(t *testing.T) {
	plain := longEngine(t, chatFolder, generate.Options{Context: 120, Speculate: generate.NoSpeculation})
	lib := sim.New(t, "memory=64M order=lazy:4")
	t.Cleanup(func() { lib.Check(t) }) // after the engine is closed
	e := longEngine(t, chatFolder, generate.Options{
		Session: runtime.Options{Device: "cuda", CUDALibrary: lib.Path}, Context: 120, Speculate: 4, Branches: 4,
	})
	for i := range 4 {
		r := branching(i)
		r.Prompt, r.MaxTokens = r.Prompt[:min(len(r.Prompt), 60)], 30
		want, err := plain.Generate(t.Context(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Generate(t.Context(), r, nil)
		if err != nil || !slices.Equal(got.Tokens, want.Tokens) {
			t.Errorf("request %d: %v, want %v: %v", i, got, want.Tokens, err)
		}
	}
	if s := e.Stats(); s.Accepted == 0 {
		t.Error("no guess was right")
	}
}

// TestTreeOnGPU: with trees of a head and of a model that guess on a GPU, texts are those of the CPU without guesses, and some of
// what was right was not the first guess.
func TestTreeOnGPU(t *testing.T) {
	list, err := fixtures.Eagles("../models/testdata/families/hf/eagle.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	model := tinyModel(t)
	plain := engine(t, generate.Options{Speculate: generate.NoSpeculation, Context: 32})
	for name, draft := range map[string]*models.Model{"head": written(t, &list[len(list)-1], model), "model": tinyModel(t)} {
		t.Run(name, func(t *testing.T) {
			lib := sim.New(t, "memory=64M order=lazy:5")
			t.Cleanup(func() { lib.Check(t) }) // after the engine is closed
			e, err := generate.New(t.Context(), model, generate.Options{
				Session: runtime.Options{Device: "cuda", CUDALibrary: lib.Path}, Draft: draft, Speculate: 3, Branches: 3, Context: 32,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() })
			for i := range 6 {
				r := generate.Request{Prompt: []int{3 + i, 20 - i, 5 + 2*i}, MaxTokens: 20, Seed: uint64(i)}
				r.Sampling.FrequencyPenalty, r.Sampling.Temperature = 0.6, float64(i%2)
				want, err := plain.Generate(t.Context(), r, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := e.Generate(t.Context(), r, nil); err != nil || !slices.Equal(got.Tokens, want.Tokens) {
					t.Fatalf("text %d: %v, %v, want %v", i, got, err, want.Tokens)
				}
			}
			if flat, inner := e.Grown(t.Context()); flat+inner == 0 {
				t.Error("no guess that was not the first one was right")
			}
		})
	}
}
