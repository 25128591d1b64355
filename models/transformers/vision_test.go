package transformers_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// exportedMore are the models of the zoo that see, hear, or read and write.
var exportedMore = []string{
	"vit", "deit", "dinov2", "clip_text", "clip_vision", "t5", "bart", "whisper-tiny", "wav2vec2", "hubert",
}

// TestGraphsMore is TestGraphs for those.
func TestGraphsMore(t *testing.T) {
	for _, name := range exportedMore {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sameGraphs(t, name, readConfig(t, name))
		})
	}
}

// TestSavedNames runs folders whose weights have the names that save_pretrained gives them, not those of the modules; of
// the gated DINOv2 one tensor is two weights.
func TestSavedNames(t *testing.T) {
	for _, name := range []string{"tiny_vit", "tiny_dinov2"} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(configFolder, name)
			ckpt, err := loader.Open(folder)
			if err != nil {
				t.Fatal(err)
			}
			defer ckpt.Close()
			model, err := models.Build(ckpt, models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			out, err := session.Run(t.Context(), optimem.Values{"pixel_values": readArray(t, folder, "pixels.npy")})
			if err != nil {
				t.Fatal(err)
			}
			got, err := tensor.Slice[float32](out["logits"])
			if err != nil {
				t.Fatal(err)
			}
			want, err := tensor.Slice[float32](readArray(t, folder, "logits.npy"))
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(want) {
				t.Fatalf("%d logits, want %d", len(got), len(want))
			}
			for i := range want {
				if math.Abs(float64(got[i]-want[i])) > 2e-6 {
					t.Errorf("logit %d is %v, want %v", i, got[i], want[i])
				}
			}
		})
	}
}

func readArray(t *testing.T, folder, name string) *tensor.Tensor {
	t.Helper()
	f, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	a, err := npy.Open(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	x, err := a.Read()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestLyingConfigs changes every entry of the configurations to values that do not fit the weights: there is a graph,
// where the entry does not matter, or an error.
func TestLyingConfigs(t *testing.T) {
	for i, name := range exportedMore {
		if testing.Short() && i%3 != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ckpt, ref, err := zoo.Load(zooFolder, "hf/"+name, "aten")
			if err != nil {
				t.Fatal(err)
			}
			weights, err := bare(name, ckpt, ref)
			if err != nil {
				t.Fatal(err)
			}
			shapes := make(map[string]tensor.Shape)
			for input, f := range ref.Cases[0].Inputs {
				shapes[input] = f.Shape
			}
			var fields map[string]any
			if err := json.Unmarshal(readConfig(t, name), &fields); err != nil {
				t.Fatal(err)
			}
			refused := 0
			for _, key := range slices.Sorted(maps.Keys(fields)) {
				for _, lie := range []any{
					nil, 0, -1, 1, 3, 1 << 20, 1 << 30, 1e300, 0.5, true, false, "gated-gelu", "", []any{}, []any{1 << 30, 2},
					map[string]any{},
				} {
					changed := maps.Clone(fields)
					changed[key] = lie
					if weights.Config, err = json.Marshal(changed); err != nil {
						t.Fatal(err)
					}
					if err := buildGraph(weights, "", shapes); err != nil {
						refused++
					}
				}
			}
			if refused < 50 {
				t.Errorf("only %d of the lies were refused", refused)
			}
		})
	}
}

func buildGraph(ckpt *loader.Checkpoint, arch string, shapes map[string]tensor.Shape) error {
	m, err := models.Build(ckpt, models.Options{Arch: arch})
	if err != nil {
		return err
	}
	if _, err := m.Graph(shapes); err != nil {
		return fmt.Errorf("graph: %w", err)
	}
	return nil
}
