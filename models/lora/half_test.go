package lora_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestHalfWeights: weights that are stored in half precision are widened as they are read, also where DoRA wants the
// lengths of their rows in the pass, as it does where not all of an adapter is half or single precision: nothing that
// is computed is as large as one of them.
func TestHalfWeights(t *testing.T) {
	for _, name := range []string{"llama_dora", "gpt2_dora", "llama_embedding"} {
		for _, strength := range []string{"bfloat16", "float64"} {
			r := recordedAdapters(t, name)[0]
			for _, table := range []map[string]zoo.Filled{r.Reference.Weights, r.Tensors} {
				for key, f := range table {
					if f.DType = "bfloat16"; strings.Contains(key, "lora_magnitude_vector") {
						f.DType = strength
					}
					table[key] = f
				}
			}
			halfWeights(t, r, strength != "bfloat16" && name != "llama_embedding")
		}
	}
}

// halfWeights computes with an adapter whose numbers were rounded.
func halfWeights(t *testing.T, r recorded, inPass bool) {
	t.Helper()
	model := r.model(t, models.Options{Adapters: []models.Adapter{r.adapter(t)}, Adapter: r.Name})
	s := session(t, model, optimem.Options{Mode: plan.Page})
	const rounded = 0.05 // eight bits of precision, through two layers
	if err := sampled(compute(t, s, r.inputs(t))["logits"], r.Reference.Cases[0].Outputs[0], rounded); err != nil {
		t.Errorf("%s: %v", r.Name, err)
	}
	p := planned(t, s, optimem.Values{"input_ids": tensor.Of(make([]int64, 18), 2, 9)})
	g, lengths := p.Lowered.Graph, false
	for _, op := range g.Ops {
		for _, id := range op.Out {
			if shape := g.Values[id].Shape; len(shape) == 2 && shape[0] >= 48 && shape[1] >= 48 {
				t.Errorf("%s: %s computes a %v", r.Name, op.Kind, shape)
			}
		}
		for _, o := range op.In {
			lengths = lengths || o.Value >= 0 && strings.Contains(g.Values[o.Value].Weight.Name, "lora_magnitude_vector")
		}
	}
	if lengths != inPass {
		t.Errorf("%s: lengths are computed in the pass: %t", r.Name, lengths)
	}
}

// TestLengthsInThePass: where lengths cannot be computed ahead, a pass computes them, and gives the numbers of peft
// too.
func TestLengthsInThePass(t *testing.T) {
	for _, name := range []string{"llama_dora", "gpt2_dora"} {
		r := recordedAdapters(t, name)[0]
		for key, f := range r.Tensors {
			if strings.Contains(key, "lora_magnitude_vector") {
				f.DType = "float64"
				r.Tensors[key] = f
			}
		}
		model := r.model(t, models.Options{Adapters: []models.Adapter{r.adapter(t)}, Adapter: r.Name})
		out := compute(t, session(t, model, optimem.Options{Mode: plan.Page}), r.inputs(t))
		for _, want := range r.Reference.Cases[0].Outputs {
			if err := sampled(out[want.Name], want, 2e-6+4**r.Reference.Cases[0].Err64); err != nil {
				t.Errorf("%s, %s: %v", name, want.Name, err)
			}
		}
	}
}

// TestComputedWithin: a module whose parameters another one reads does not run, so that nothing can be added to its result. An
// adapter that changes it is refused, not forgotten.
func TestComputedWithin(t *testing.T) {
	classes := layers.NN()
	classes["Outer"] = layers.Unary(func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
		return t.Child(m, "last", t.Op("linear", x, t.Param(m.Child("inner"), "weight"), nil))
	})
	a := &layers.Architecture{
		Name: "outer", Classes: classes, Inputs: []layers.Port{{Name: "x", DType: tensor.Float32}},
		Root: layers.New("Outer", nil).Add("inner", layers.Linear(4, 4, layers.NoBias)).Add("last", layers.Linear(4, 4, layers.NoBias)),
	}
	filled := func(name string, shape ...int) map[string]zoo.Filled {
		return map[string]zoo.Filled{name: {DType: "float32", Shape: shape}}
	}
	base := filled("inner.weight", 4, 4)
	base["last.weight"] = base["inner.weight"]
	for _, module := range []string{"inner", "last"} {
		tensors := filled(module+".lora_A.weight", 2, 4)
		tensors[module+".lora_B.weight"] = zoo.Filled{DType: "float32", Shape: []int{4, 2}}
		config := strings.Replace(`{"peft_type": "LORA", "r": 2, "target_modules": ["NAME"]}`, "NAME", module, 1)
		model, err := models.Build(checkpoint(t, "base", base, ""), models.Options{
			Architecture: a, Adapter: "small",
			Adapters: []models.Adapter{{Name: "small", Checkpoint: checkpoint(t, "small", tensors, config)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var unsupported *models.UnsupportedError
		_, err = model.Graph(map[string]tensor.Shape{"x": {3, 4}})
		if errors.As(err, &unsupported) != (module == "inner") || errors.Is(err, loader.ErrFormat) {
			t.Errorf("%s: %v", module, err)
		}
	}
}
