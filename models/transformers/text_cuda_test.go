//go:build linux && (amd64 || arm64) && !nocuda

package transformers_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
)

// TestTextsOnGPU: the simulated GPU alone, too, writes what transformers writes, one prompt beside another.
func TestTextsOnGPU(t *testing.T) {
	const prompts, tokens = 3, 24
	for i, r := range recordedTexts(t) {
		if testing.Short() && i%4 != 0 {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			model, err := models.Build(r.folder(t), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			lib := sim.New(t, "memory=64M order=lazy:7")
			engine, err := generate.New(t.Context(), model, generate.Options{
				Session: optimem.Options{Device: "cuda", CUDALibrary: lib.Path, Mode: plan.Page}, Context: 352, Sequences: 2, Rows: 64,
			})
			if err != nil {
				t.Fatal(err)
			}
			var wait sync.WaitGroup
			for i, run := range r.Runs[:prompts] {
				wait.Go(func() {
					got, err := engine.Generate(t.Context(), generate.Request{Prompt: run.Prompt, MaxTokens: tokens}, nil)
					if err != nil {
						t.Errorf("prompt %d: %v", i, err)
						return
					}
					if want := run.Tokens[:min(tokens, len(run.Tokens))]; !slices.Equal(got.Tokens, want) {
						t.Errorf("prompt %d of %d tokens: %s", i, len(run.Prompt), firstOther(got.Tokens, want))
					}
				})
			}
			wait.Wait()
			if err := engine.Close(); err != nil {
				t.Error(err)
			}
			lib.Check(t)
		})
	}
}

// TestStepsOnGPU: so do the logits of texts that are read in parts, of families that attend in ways of their own: those without
// short are all.
func TestStepsOnGPU(t *testing.T) {
	few := []string{"bloom_six", "cohere2", "falcon_alibi", "gemma3", "mpt_clipped"}
	for _, r := range decodersIn(t, "decoders.json.gz") {
		if testing.Short() && !slices.Contains(few, r.Name) {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			model, err := models.Build(r.folder(t), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			tokens := make([]int64, 40)
			for i := range tokens {
				tokens[i] = int64(i*i*7+5*i) % 96
			}
			lib := sim.New(t, "memory=64M order=lazy:8")
			t.Cleanup(func() { lib.Check(t) }) // after the session is closed
			want := newStepper(t, model, 40, optimem.Options{}).feed(t, tokens)
			s := newStepper(t, model, 40, optimem.Options{Device: "cuda", CUDALibrary: lib.Path, Mode: plan.Page})
			var got []float32
			for _, part := range [][]int64{tokens[:21], tokens[21:22], tokens[22:]} {
				got = append(got, s.feed(t, part)...)
			}
			near(t, "40 tokens", got, want)
		})
	}
}

// TestExpertsOnGPU: layers of experts are the GPU's own, and what they give is near what the CPU computes.
func TestExpertsOnGPU(t *testing.T) {
	for _, kind := range []string{"gpt_oss", "deepseek_v3"} {
		t.Run(kind, func(t *testing.T) {
			r := &recordedOf(t, kind)[0]
			model, err := models.Build(r.folder(t), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			lib := sim.New(t, "memory=64M order=lazy:9")
			t.Cleanup(func() { lib.Check(t) }) // after the session is closed
			tokens := r.Greedy[:20]
			want := newStepper(t, model, 64, optimem.Options{}).feed(t, tokens)
			got := newStepper(t, model, 64, optimem.Options{Device: "cuda", CUDALibrary: lib.Path, Mode: plan.Page}).feed(t, tokens)
			near(t, "20 tokens", got, want)
		})
	}
}

// TestStatesOnGPU: layers that keep states are the GPU's own.
func TestStatesOnGPU(t *testing.T) {
	few := []string{"falcon_h1", "mamba2", "qwen3_next"}
	for _, r := range decodersIn(t, "recurrents.json.gz") {
		if testing.Short() && !slices.Contains(few, r.Name) {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			model, err := models.Build(r.folder(t), models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			lib := sim.New(t, "memory=64M order=lazy:10")
			t.Cleanup(func() { lib.Check(t) }) // after the session is closed
			tokens := make([]int64, 20)
			for i := range tokens {
				tokens[i] = int64(i*i*7+5*i) % 96
			}
			want := newStepper(t, model, 64, optimem.Options{}).feed(t, tokens)
			got := newStepper(t, model, 64, optimem.Options{Device: "cuda", CUDALibrary: lib.Path, Mode: plan.Page}).feed(t, tokens)
			near(t, "20 tokens", got, want)
		})
	}
}

// TestWindowsOnGPU: a simulated GPU whose layers with a window keep no more than what it sees gives the numbers that
// are near those of the CPU where all is kept, though the places of what is behind the window have been written to
// again.
func TestWindowsOnGPU(t *testing.T) {
	forEachWindow(t, func(t *testing.T, model *models.Model) {
		const context, sees, rows = 120, 24, 7
		tokens := make([]int64, context)
		for i := range tokens {
			tokens[i] = int64(i*i*7+5*i) % 96
		}
		want := newStepper(t, model, context, optimem.Options{}).feed(t, tokens)
		lib := sim.New(t, "memory=64M order=lazy:11")
		t.Cleanup(func() { lib.Check(t) }) // after the session is closed
		s := newStepper(t, model, context, optimem.Options{Device: "cuda", CUDALibrary: lib.Path}, (sees+rows-2+15)/16+1)
		var got []float32
		for at := 0; at < len(tokens); at += rows {
			got = append(got, s.feed(t, tokens[at:min(at+rows, len(tokens))])...)
		}
		near(t, "120 tokens", got, want)
	})
}
