//go:build linux && (amd64 || arm64) && !nocuda

package transformers_test

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
)

// TestLlavaOnGPU: the simulated GPU sees pictures and goes on as transformers does, whether weights stay or are paged.
func TestLlavaOnGPU(t *testing.T) {
	r := named(t, "llava", "clip")
	model, err := models.Build(r.folder(t), models.Options{Arch: r.Arch})
	if err != nil {
		t.Fatal(err)
	}
	prompts, sources := seenRows(t, filled(t, r.Reference.Cases[0].Inputs), 7)
	for _, mode := range []plan.Mode{plan.Resident, plan.Page} {
		if testing.Short() && mode == plan.Page {
			continue // a simulated GPU takes long
		}
		lib := sim.New(t, "memory=64M order=lazy:1")
		t.Cleanup(func() { lib.Check(t) }) // after the engine is closed
		e, err := generate.New(t.Context(), model, generate.Options{
			Context: 64 + 4, Session: optimem.Options{Device: "cuda", CUDALibrary: lib.Path, Mode: mode}, Speculate: generate.NoSpeculation,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		const most = 6
		got, err := e.Generate(t.Context(), generate.Request{Prompt: prompts[0], Source: sources[0], MaxTokens: most}, nil)
		if err != nil || !slices.Equal(got.Tokens, r.Written[0][0][:most]) {
			t.Errorf("%s: %v, want %v: %v", mode, got, r.Written[0][0][:most], err)
		}
	}
}
