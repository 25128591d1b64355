//go:build linux && (amd64 || arm64) && !nocuda

package models_test

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
)

var simZoo = flag.String("sim-zoo", "", "run the models that begin so on the simulated GPU, all: every one")

// onSim are the models that the simulated GPU runs always: one of each kind, as far as they are small.
var onSim = []string{
	"extra/cond", "extra/buffer_mutation", "extra/float16", "extra/views", "extra/index_put", "hf/bert_mask", "hf/gpt2",
	"hf/llama", "nn/lstm", "timm/lcnet_050", "tv/mobilenet_v2", "tv/squeezenet1_1",
}

// seeded are run in this many random orders of execution each.
var seeded = []string{"extra/buffer_mutation", "nn/lstm", "hf/llama"}

const simSeeds = 20

// TestZooOnGPU runs models of the zoo on the simulated GPU, paged, and compares sampled outputs with PyTorch's. Models
// with ops that have no kernel there are listed.
func TestZooOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	names := onSim
	if *simZoo != "" {
		all, err := zoo.Names(zooFolder)
		if err != nil {
			t.Fatal(err)
		}
		names = slices.DeleteFunc(all, func(name string) bool { return *simZoo != "all" && !strings.HasPrefix(name, *simZoo) })
	}
	ran := 0
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			seeds := 1
			if slices.Contains(seeded, name) {
				seeds = simSeeds
			}
			for seed := range seeds {
				lib := sim.New(t, fmt.Sprintf("memory=16G order=lazy:%d", seed))
				worst, err := runZooWith(t.Context(), name, "aten", func(m *models.Model) (*optimem.Session, error) {
					return optimem.Page(t.Context(), m, optimem.PageOptions{Device: "cuda", CUDALibrary: lib.Path})
				})
				if errors.Is(err, layers.ErrUnsupported) {
					t.Skip("NOT ON THE GPU: ", err)
				}
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				lib.Check(t)
				if seed == 0 {
					t.Logf("off by %.1e of the largest", worst)
				}
			}
			ran++
		})
	}
	t.Logf("%d of %d models ran", ran, len(names))
}
