//go:build amd64 && !noasm && !race

package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// The race detector drops some of what a sync.Pool keeps, so that allocations mean nothing with it. Without assembly, the
// tiles of Winograd's convolutions are made by Go functions that allocate.

// needVectors skips a test on processors that kernels in assembly are not for.
func needVectors(t *testing.T) {
	t.Helper()
	if simd.Best() == nil {
		t.Skip("no kernels for this processor")
	}
}

// room returns tensors that RunInto can fill for given inputs, after a call that tells their shapes.
func room(t *testing.T, s *optimem.Session, in optimem.Values) optimem.Values {
	t.Helper()
	out, err := s.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	into := make(optimem.Values, len(out))
	for name, y := range out {
		into[name] = &tensor.Tensor{
			DType: y.DType, Layout: tensor.Contiguous(y.Layout.Shape...), Data: make([]byte, len(y.Data)),
		}
	}
	return into
}

// allocsOf returns how often a pass over the inputs takes memory from Go's heap after the first.
func allocsOf(t *testing.T, s *optimem.Session, in optimem.Values) float64 {
	t.Helper()
	into := room(t, s, in)
	return testing.AllocsPerRun(50, func() {
		if err := s.RunInto(t.Context(), in, into); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRunIntoAllocatesNothingOnTheCPU: after the first call nothing is taken from Go's heap, by kernels neither, with a
// thread or more, whether weights stay or are paged.
func TestRunIntoAllocatesNothingOnTheCPU(t *testing.T) {
	needVectors(t)
	model := build(t, digitsModel, nil)
	for _, threads := range []int{1, 2} {
		for name, mode := range map[string]func(context.Context, *models.Model, optimem.Options) (*optimem.Session, error){
			"resident": optimem.Resident, "page": optimem.Page,
		} {
			t.Run(fmt.Sprintf("%s/%d threads", name, threads), func(t *testing.T) {
				s, err := mode(t.Context(), model, optimem.Options{Threads: threads})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if n := allocsOf(t, s, digitsInput(pictures(33))); n != 0 {
					t.Errorf("%v allocations a call", n)
				}
			})
		}
	}
}

// TestRunIntoAllocatesNothingOfModels is the same for common models, some of their usual size. Package models holds every
// program that PyTorch exported to it, and package cpu every kernel.
func TestRunIntoAllocatesNothingOfModels(t *testing.T) {
	needVectors(t)
	ids := make([]int64, 7)
	pixels := func(side int) *tensor.Tensor { return tensor.Of(make([]float32, 3*side*side), 1, 3, side, side) }
	const folder = "../models/testdata/families/hf/"
	for path, x := range map[string]*tensor.Tensor{
		folder + "tiny_llama": tensor.Of(ids, 1, len(ids)), folder + "tiny_vit": pixels(8), folder + "tiny_dinov2": pixels(28),
		"mobilenet_v3_small": pixels(64), "shufflenet_v2_x0_5": pixels(64), "squeezenet1_1": pixels(64),
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if !strings.HasPrefix(path, folder) {
				if testing.Short() {
					t.Skip("writes the weights of a whole model")
				}
				path = synthesized(t, path)
			}
			model := build(t, path, nil)
			s := start(t, model, optimem.ResidentOptions{Threads: 2})
			if n := allocsOf(t, s, optimem.Values{model.Inputs()[0].Name: x}); n != 0 {
				t.Errorf("%v allocations a call", n)
			}
		})
	}
}

// synthesized writes a checkpoint of an architecture with random weights.
func synthesized(t *testing.T, name string) string {
	t.Helper()
	a, err := models.NewArchitecture(name)
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := models.Synthesize(a, 1, tensor.Float32)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+".safetensors")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(loader.WriteSafetensors(t.Context(), f, tensors, nil), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}
