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
	"github.com/optimem/optimem/tensor"
)

// TestSeq2SeqOnGPU: the simulated GPU reads sources and writes what transformers writes, whether weights stay or are
// paged; keys and values of bytes are attended to by the CPU beside it.
func TestSeq2SeqOnGPU(t *testing.T) {
	forEachSeq2Seq(t, func(t *testing.T, r *seq2seqRecord, model *models.Model) {
		if testing.Short() && r.Name != "t5" {
			t.Skip("a simulated GPU takes long")
		}
		for _, c := range []struct {
			mode plan.Mode
			kv   tensor.DType
		}{{plan.Resident, tensor.Float32}, {plan.Page, tensor.Float32}, {plan.Auto, tensor.Int8}} {
			lib := sim.New(t, "memory=64M order=lazy:1")
			t.Cleanup(func() { lib.Check(t) }) // after the engine is closed
			e := seq2seqEngine(t, model, generate.Options{
				Session: optimem.Options{Device: "cuda", CUDALibrary: lib.Path, Mode: c.mode}, KV: c.kv,
			})
			for i := range r.Runs {
				q := r.Runs[i].request()
				q.MaxTokens = 12
				got, err := e.Generate(t.Context(), q, nil)
				if err != nil {
					t.Fatalf("%s %v: %v", c.mode, c.kv, err)
				}
				if want := r.Runs[i].Tokens[1:13]; c.kv == tensor.Float32 && !slices.Equal(got.Tokens, want) {
					t.Errorf("%s: source %d: %s", c.mode, i, firstOther(got.Tokens, want))
				}
			}
		}
	})
}
