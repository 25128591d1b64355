package lora_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A recorded adapter is what peft saved, and what it computed.
type recorded struct {
	Name, Config  string
	AdapterConfig string `json:"adapter_config"`
	Tensors       map[string]zoo.Filled
	Reference     zoo.Reference
	Runs          []struct{ Prompt, Tokens []int }
}

// recordedAdapters reads all of them, or those of some names.
func recordedAdapters(t testing.TB, names ...string) []recorded {
	t.Helper()
	var all []recorded
	decode := func(r io.Reader) error { return json.NewDecoder(r).Decode(&all) }
	if err := zoo.Unzip("../testdata/lora.json.gz", decode); err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		return all
	}
	var some []recorded
	for _, name := range names {
		i := slices.IndexFunc(all, func(r recorded) bool { return r.Name == name })
		if i < 0 {
			t.Fatalf("nothing recorded of %s", name)
		}
		some = append(some, all[i])
	}
	return some
}

// base returns the checkpoint of the model without the adapter.
func (r *recorded) base(t testing.TB) *loader.Checkpoint {
	t.Helper()
	filled := make(map[string]zoo.Filled)
	for name, f := range r.Reference.Weights {
		if f.Data == nil && f.Gzip == nil { // a buffer that is computed
			filled[name] = f
		}
	}
	return checkpoint(t, r.Name, filled, r.Config)
}

// adapter returns that of the folder which peft saved.
func (r *recorded) adapter(t testing.TB) models.Adapter {
	t.Helper()
	return models.Adapter{Name: r.Name, Checkpoint: checkpoint(t, r.Name, r.Tensors, r.AdapterConfig)}
}

// folder writes the adapter as peft does, in a folder of its own, and opens it. name is that of the file of weights.
func (r *recorded) folder(t testing.TB, name string) models.Adapter {
	t.Helper()
	dir := t.TempDir()
	var list []loader.TensorData
	for _, w := range r.adapter(t).Checkpoint.Weights {
		list = append(list, loader.TensorData{Name: w.Name, DType: w.DType, Shape: w.Layout.Shape, ReadAt: w.Extent.ReadAt})
	}
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(name) == ".bin" {
		err = loader.WriteTorchZip(t.Context(), f, "adapter_model", list)
	} else {
		err = loader.WriteSafetensors(t.Context(), f, list, nil)
	}
	if err = errors.Join(err, f.Close(), os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(r.AdapterConfig), 0o600)); err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.OpenAdapter(t.Context(), dir, loader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	return models.Adapter{Name: r.Name, Checkpoint: ckpt}
}

func checkpoint(t testing.TB, name string, filled map[string]zoo.Filled, config string) *loader.Checkpoint {
	t.Helper()
	weights, err := zoo.Weights(filled)
	if err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.NewCheckpoint(name, weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	ckpt.Config = []byte(config)
	return ckpt
}

func (r *recorded) model(t testing.TB, opts models.Options) *models.Model {
	t.Helper()
	model, err := models.Build(r.base(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func (r *recorded) inputs(t testing.TB) optimem.Values {
	t.Helper()
	in := make(optimem.Values)
	for name, f := range r.Reference.Cases[0].Inputs {
		x, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		in[name] = x
	}
	return in
}

func session(t testing.TB, model *models.Model, opts optimem.Options) *optimem.Session {
	t.Helper()
	s, err := optimem.Start(t.Context(), model, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func compute(t testing.TB, s *optimem.Session, in optimem.Values) optimem.Values {
	t.Helper()
	out, err := s.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sampled compares the recorded values of an output: tolerance is a part of its largest magnitude.
func sampled(got *tensor.Tensor, want zoo.Output, tolerance float64) error {
	if got == nil || !got.Layout.Shape.Equal(want.Shape) {
		return fmt.Errorf("got %v, want %v", got, want.Shape)
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

// TestRecorded: with every recorded adapter the outputs are those of peft, and the same bits whether weights stay or are brought.
func TestRecorded(t *testing.T) {
	for _, r := range recordedAdapters(t) {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			model := r.model(t, models.Options{Adapters: []models.Adapter{r.adapter(t)}, Adapter: r.Name})
			c, in := r.Reference.Cases[0], r.inputs(t)
			out := compute(t, session(t, model, optimem.Options{Mode: plan.Resident}), in)
			paged := compute(t, session(t, model, optimem.Options{Mode: plan.Page}), in)
			for _, want := range c.Outputs {
				if err := sampled(out[want.Name], want, 2e-6+4**c.Err64); err != nil {
					t.Errorf("%s: %v", want.Name, err)
				}
				if !sameBits(out[want.Name], paged[want.Name]) {
					t.Errorf("%s: other bits where weights are brought", want.Name)
				}
			}
		})
	}
}

func sameBits(a, b *tensor.Tensor) bool {
	return a != nil && b != nil && a.Layout.Shape.Equal(b.Layout.Shape) && slices.Equal(a.Contiguous().Data, b.Contiguous().Data)
}
