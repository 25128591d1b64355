package models_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// TestPickledWithAnotherCode: a module that was pickled whole and whose classes are not known runs by a configuration,
// or by another file with the code, as its state dict does: without the buffers that are in none.
func TestPickledWithAnotherCode(t *testing.T) {
	ckpt, err := loader.Open("testdata/pickled_bert.pt")
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	var unsupported *models.UnsupportedError
	if _, err := models.Build(ckpt, models.Options{}); !errors.As(err, &unsupported) || len(unsupported.Missing) != 11 {
		t.Fatalf("by itself: %v", err)
	}
	config, err := os.ReadFile("testdata/pickled_bert.config.json")
	if err != nil {
		t.Fatal(err)
	}
	model, err := models.Build(ckpt, models.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/pickled_bert.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Ids     [][]int64 `json:"input_ids"`
		Outputs map[string][]float64
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	s, err := runtime.Page(t.Context(), model, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.Run(t.Context(), runtime.Values{"input_ids": tensor.Of(slices.Concat(recorded.Ids...), 2, 4)})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != len(recorded.Outputs) {
		t.Errorf("%d outputs, want %d", len(out), len(recorded.Outputs))
	}
	for name, want := range recorded.Outputs {
		got, err := tensor.Slice[float32](out[name])
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if math.Abs(float64(got[i])-want[i]) > 1e-5 {
				t.Fatalf("%s is %v, in PyTorch %v", name, got, want)
			}
		}
	}

	// What does not fit is told as it is of a state dict, and a name of an architecture is not passed over.
	for name, o := range map[string]models.Options{
		"another family": {Config: []byte(`{"model_type": "gpt2", "architectures": ["GPT2Model"], "n_layer": 1}`)},
		"another size":   {Arch: "bert-base"},
	} {
		if _, err := models.Build(ckpt, o); err == nil || errors.As(err, &unsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, config := range map[string]string{"no configuration": "{", "no type": "{}", "unknown": `{"model_type": "fancy"}`} {
		_, err := models.Build(ckpt, models.Options{Config: []byte(config)})
		if !errors.As(err, &unsupported) && !errors.Is(err, loader.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPickledWithAProgram: the weights are those of the module, the code that of an exported program.
func TestPickledWithAProgram(t *testing.T) {
	folder := fixturesFolder()
	ckpt, err := loader.Open(folder + "mod_mlp.pt")
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	code, err := loader.Open(folder + "pt2_mlp.pt2")
	if err != nil {
		t.Fatal(err)
	}
	defer code.Close()
	model, err := models.Build(ckpt, models.Options{Code: code})
	if err != nil {
		t.Fatal(err)
	}
	g, err := model.Graph(map[string]tensor.Shape{model.Inputs()[0].Name: {2, 4}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range g.Values {
		if v.Weight.Name == "" {
			continue
		}
		if own, ok := ckpt.Weight(v.Weight.Name); !ok || own.Extent.Source != v.Weight.Extent.Source {
			t.Errorf("weight %s is not the module's", v.Weight.Name)
		}
	}
}

// TestTransientBuffers: buffers of a pickled module that are not persistent are not part of its state dict, and others
// are.
func TestTransientBuffers(t *testing.T) {
	weights := append(bareWeights(t, "resnet18"), tensor.Weight{
		Name: "table", DType: tensor.Float32, Layout: tensor.Contiguous(2),
		Extent: storage.Extent{Source: noSource{}, Offset: 1 << 30, Bytes: 8},
	})
	for _, transient := range []bool{true, false} {
		ckpt := checkpointOf(t, weights)
		ckpt.Module = &loader.Module{
			Class: "mine.Net", Buffers: []loader.Member{{Name: "table", Weight: "table", Transient: transient}},
		}
		_, err := models.Build(ckpt, models.Options{Arch: "resnet18"})
		var mismatch *layers.MismatchError
		if transient && err != nil || !transient && !errors.As(err, &mismatch) {
			t.Errorf("a buffer that is left out of state dicts (%t): %v", transient, err)
		}
	}
}
