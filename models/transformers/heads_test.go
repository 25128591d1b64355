package transformers_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A recorded model is one that the zoo does not have: its configuration, and what PyTorch computed.
type recorded struct {
	Name      string
	Config    string
	Reference zoo.Reference
	// Arch is the class, where the folder is taken for a part of it otherwise.
	Arch string
	// Greedy are tokens that are given, and the likeliest ones after them; empty where there are none.
	Greedy []int64
	// Caption are the tokens that a model writes of the first picture of its first case; empty where it writes none.
	Caption []int
	// Written are the tokens that a model that sees writes behind the texts of its cases, with the pictures that are in them.
	Written [][][]int
}

// recordedModels reads the recorded models of all types, by type.
func recordedModels(t testing.TB) map[string][]recorded {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(configFolder, "*.heads.json.gz"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no recorded models: %v", err)
	}
	all := make(map[string][]recorded)
	for _, path := range paths {
		kind := strings.TrimSuffix(filepath.Base(path), ".heads.json.gz")
		all[kind] = recordedOf(t, kind)
	}
	return all
}

// recordedOf reads the recorded models of one type.
func recordedOf(t testing.TB, kind string) []recorded {
	t.Helper()
	var list []recorded
	decode := func(r io.Reader) error { return json.NewDecoder(r).Decode(&list) }
	if err := zoo.Unzip(filepath.Join(configFolder, kind+".heads.json.gz"), decode); err != nil {
		t.Fatal(err)
	}
	return list
}

// folder returns a checkpoint as a folder with the configuration and the weights of a recorded model gives it.
func (r *recorded) folder(t testing.TB) *loader.Checkpoint {
	t.Helper()
	filled := make(map[string]zoo.Filled)
	for name, f := range r.Reference.Weights {
		if f.Data == nil && f.Gzip == nil { // a buffer that is computed
			filled[name] = f
		}
	}
	weights, err := zoo.Weights(filled)
	if err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.NewCheckpoint(r.Name, weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	ckpt.Config = []byte(r.Config)
	return ckpt
}

// TestHeads runs every recorded model and compares it with PyTorch: names of outputs, shapes and sampled values.
func TestHeads(t *testing.T) {
	for kind, list := range recordedModels(t) {
		for i := range list {
			r := &list[i]
			t.Run(kind+"/"+r.Name, func(t *testing.T) {
				t.Parallel()
				runRecorded(t, r, r.folder(t))
			})
		}
	}
}

func runRecorded(t *testing.T, r *recorded, ckpt *loader.Checkpoint) {
	t.Helper()
	model, err := models.Build(ckpt, models.Options{Arch: r.Arch})
	if err != nil {
		t.Fatal(err)
	}
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for k, c := range r.Reference.Cases {
		in := make(optimem.Values)
		for name, f := range c.Inputs {
			if in[name], err = f.Tensor(name); err != nil {
				t.Fatal(err)
			}
		}
		out, err := session.Run(t.Context(), in)
		if err != nil {
			t.Fatalf("case %d: %v", k, err)
		}
		if len(out) != len(c.Outputs) {
			t.Errorf("case %d: %d outputs, want %d", k, len(out), len(c.Outputs))
		}
		tolerance := 2e-6
		if c.Err64 != nil {
			tolerance += 4 * *c.Err64
		}
		for _, want := range c.Outputs {
			if err := sampled(out[want.Name], want, tolerance); err != nil {
				t.Errorf("case %d: %s: %v", k, want.Name, err)
			}
		}
	}
}

// sampled compares the recorded values of an output: tolerance is a part of its largest magnitude.
func sampled(got *tensor.Tensor, want zoo.Output, tolerance float64) error {
	if got == nil {
		return fmt.Errorf("is missing")
	}
	if !got.Layout.Shape.Equal(want.Shape) {
		return fmt.Errorf("shape %v, want %v", got.Layout.Shape, want.Shape)
	}
	values, err := tensor.Slice[float32](got.Contiguous())
	if err != nil {
		return err
	}
	for i, w := range want.Values {
		g := float64(values[i*len(values)/len(want.Values)])
		if !(math.Abs(g-float64(w)) <= tolerance*want.MaxAbs) {
			return fmt.Errorf("sample %d is %v, want %v (tolerance %v of %v)", i, g, w, tolerance, want.MaxAbs)
		}
	}
	return nil
}

// TestLyingHeads changes every entry of recorded configurations, and of the parts in them, to values that do not fit
// the weights: there is a graph, where the entry does not matter, or an error.
func TestLyingHeads(t *testing.T) {
	for _, kind := range []string{"deberta-v2", "siglip", "siglip2", "dinov3_vit", "wavlm", "blip", "chinese_clip", "llava"} {
		for i := range recordedOf(t, kind) {
			r := &recordedOf(t, kind)[i]
			t.Run(kind+"/"+r.Name, func(t *testing.T) {
				t.Parallel()
				refused := 0
				for _, text := range lyingTexts(t, r.Config) {
					ckpt := r.folder(t)
					ckpt.Config = text
					shapes := make(map[string]tensor.Shape)
					for name, f := range r.Reference.Cases[0].Inputs {
						shapes[name] = f.Shape
					}
					if err := buildGraph(ckpt, r.Arch, shapes); err != nil {
						refused++
					}
				}
				if refused < 30 {
					t.Errorf("only %d of the lies were refused", refused)
				}
			})
		}
	}
}

// lyingTexts returns the text of a configuration with one entry after the other changed to one value after the other.
func lyingTexts(t *testing.T, text string) [][]byte {
	t.Helper()
	var all [][]byte
	var whole map[string]any
	if err := json.Unmarshal([]byte(text), &whole); err != nil {
		t.Fatal(err)
	}
	var change func(fields map[string]any)
	change = func(fields map[string]any) {
		for key, was := range maps.Clone(fields) {
			for _, lie := range []any{nil, 0, -1, 3, 1 << 30, 1e300, true, "", []any{1 << 30, 2}, map[string]any{}} {
				fields[key] = lie
				changed, err := json.Marshal(whole)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, changed)
			}
			fields[key] = was
			if part, ok := was.(map[string]any); ok && strings.HasSuffix(key, "_config") {
				change(part)
			}
		}
	}
	change(whole)
	return all
}
