//go:build linux && (amd64 || arm64) && !nocuda

package models_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestGGUFOnGPU: weights of GGUF files lie on a simulated GPU as blocks of codes; a plan counts those, and the numbers are
// transformers', with the same bits where weights are paged.
func TestGGUFOnGPU(t *testing.T) {
	all := readGGUFCases(t)
	for k, c := range all.Cases {
		if testing.Short() && k%5 != 0 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			ckpt, err := loader.Open(c.file(t, all.Masks))
			if err != nil {
				t.Fatal(err)
			}
			defer ckpt.Close()
			model, err := models.Build(ckpt, models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			lib := sim.New(t, "memory=256M order=lazy:5")
			t.Cleanup(func() { lib.Check(t) }) // after the sessions are closed
			var first []byte
			for _, mode := range []plan.Mode{plan.Resident, plan.Page} {
				logits := gpuLogits(t, model, lib.Path, mode, all.IDs)
				if first == nil {
					first = logits.Data
				}
				if !bytes.Equal(first, logits.Data) {
					t.Error("other bits where weights are paged")
				}
				vocabulary := logits.Layout.Shape[2]
				for k, row := range []int{0, 4, len(all.IDs) - 1} {
					for i, want := range c.Logits[k] {
						bits := binary.NativeEndian.Uint32(logits.Data[4*(row*vocabulary+i):])
						if got := math.Float32frombits(bits); math.Abs(float64(got-want)) > 1e-4*max(1, math.Abs(float64(want))) {
							t.Errorf("%s: row %d, logit %d: %v, want %v", mode, row, i, got, want)
						}
					}
				}
			}
		})
	}
}

// gpuLogits runs a model on a simulated GPU.
func gpuLogits(t *testing.T, model *models.Model, library string, mode plan.Mode, ids []int64) *tensor.Tensor {
	t.Helper()
	session, err := optimem.Start(t.Context(), model, optimem.Options{Device: "cuda", CUDALibrary: library, Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	p, err := session.Plan(t.Context(), map[string]tensor.Shape{"input_ids": {1, len(ids)}})
	if err != nil {
		t.Fatal(err)
	}
	checkEncodings(t, p, true)
	coded := 0
	for _, op := range p.Lowered.Graph.Ops {
		if op.Kind == "linear" && graph.IsEncoded(op.Attrs) {
			coded++
		}
	}
	if coded == 0 {
		t.Error("no linear reads blocks")
	}
	out, err := session.Run(t.Context(), optimem.Values{"input_ids": tensor.Of(ids, 1, len(ids))})
	if err != nil {
		t.Fatal(err)
	}
	return out["logits"]
}
