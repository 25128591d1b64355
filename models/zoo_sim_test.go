//go:build linux && (amd64 || arm64) && !nocuda

package models_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
)

var (
	simZoo   = flag.String("sim-zoo", "", "run the models that begin so on the simulated GPU, all: every one")
	onDriver = flag.Bool("gpu", false, "run them on OPTIMEM_LIBCUDA's or the system's driver, once")
	zooFile  = flag.String("results", "", "write what they gave to `FILE`, a JSON object on each line")
)

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
			if slices.Contains(seeded, name) && !*onDriver {
				seeds = simSeeds
			}
			for seed := range seeds {
				library, check := os.Getenv("OPTIMEM_LIBCUDA"), func(testing.TB) {}
				if !*onDriver {
					lib := sim.New(t, fmt.Sprintf("memory=16G order=lazy:%d", seed))
					library, check = lib.Path, lib.Check
				}
				worst, err := runZooWith(t.Context(), name, "aten", func(m *models.Model) (*optimem.Session, error) {
					return optimem.Page(t.Context(), m, optimem.PageOptions{Device: "cuda", CUDALibrary: library})
				}, func(n int, out optimem.Values) { record(t, name, n, out) })
				if errors.Is(err, graph.ErrUnsupported) {
					t.Skip("NOT ON THE GPU: ", err)
				}
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				check(t)
				if seed == 0 {
					t.Logf("off by %.1e of the largest", worst)
				}
			}
			ran++
		})
	}
	t.Logf("%d of %d models ran", ran, len(names))
}

// record appends the outputs of a case to the file of results where there is one, for a comparison with PyTorch on the same
// GPU.
func record(t *testing.T, name string, n int, out optimem.Values) {
	t.Helper()
	if *zooFile == "" {
		return
	}
	type output struct {
		Name  string `json:"name"`
		DType string `json:"dtype"`
		Shape []int  `json:"shape"`
		Data  []byte `json:"data"`
	}
	r := struct {
		Name    string   `json:"name"`
		Case    int      `json:"case"`
		Outputs []output `json:"outputs"`
	}{Name: name, Case: n}
	for _, key := range slices.Sorted(maps.Keys(out)) {
		if y := out[key]; y != nil {
			y = y.Contiguous()
			r.Outputs = append(r.Outputs, output{key, y.DType.String(), append([]int{}, y.Layout.Shape...), y.Data})
		}
	}
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(*zooFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
