package models_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestAdaptersOfGGUF: adapters are for the modules that a GGUF file's tensors are the weights of, encoded ones too. One that adds
// nothing leaves the bits what they are; DoRA with the lengths that rows have, of what their codes stand for, nearly so.
func TestAdaptersOfGGUF(t *testing.T) {
	all := readGGUFCases(t)
	i := slices.IndexFunc(all.Cases, func(c ggufCase) bool { return c.Name == "linear scaling" })
	ckpt, err := loader.Open(all.Cases[i].file(t, all.Masks))
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	base, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const module = "model.layers.0.self_attn.q_proj"
	at := slices.IndexFunc(base.Weights(), func(w tensor.Weight) bool { return w.Name == module+".weight" })
	w, err := base.Weights()[at].Contents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows, columns := w.Layout.Shape[0], w.Layout.Shape[1]
	values, err := tensor.Slice[float32](w.Contiguous())
	if err != nil {
		t.Fatal(err)
	}
	var lengths []byte
	for r := range rows {
		sum := 0.0
		for _, x := range values[r*columns : (r+1)*columns] {
			sum += float64(x) * float64(x)
		}
		lengths = binary.LittleEndian.AppendUint32(lengths, math.Float32bits(float32(math.Sqrt(sum))))
	}
	inputs := optimem.Values{"input_ids": tensor.Of(all.IDs, 1, len(all.IDs))}
	zero := base64.StdEncoding.EncodeToString(make([]byte, 4*2*rows))
	long := base64.StdEncoding.EncodeToString(lengths)
	logits := func(entries string, up zoo.Filled, more map[string]zoo.Filled, page bool) *tensor.Tensor {
		tensors := map[string]zoo.Filled{
			"base_model.model." + module + ".lora_A.weight": {DType: "float32", Shape: []int{2, columns}, Data: new(string)},
			"base_model.model." + module + ".lora_B.weight": up,
		}
		down := make([]byte, 0, 4*2*columns)
		for k := range 2 * columns {
			down = binary.LittleEndian.AppendUint32(down, math.Float32bits(float32(k%7)-3))
		}
		*tensors["base_model.model."+module+".lora_A.weight"].Data = base64.StdEncoding.EncodeToString(down)
		for name, f := range more {
			tensors["base_model.model."+module+name] = f
		}
		weights, err := zoo.Weights(tensors)
		if err != nil {
			t.Fatal(err)
		}
		adapter, err := loader.NewCheckpoint("small", weights, nil)
		if err != nil {
			t.Fatal(err)
		}
		adapter.Config = []byte(`{"peft_type": "LORA", "r": 2, "target_modules": "model\\.layers\\.0\\.self_attn\\.q_proj"` + entries + `}`)
		model, err := models.Build(ckpt, models.Options{Adapters: []models.Adapter{{Name: "small", Checkpoint: adapter}}, Adapter: "small"})
		if err != nil {
			t.Fatal(err)
		}
		return ggufLogits(t, model, inputs, page)
	}
	half := json.Number("0.5")
	want := ggufLogits(t, base, inputs, false)
	nothing := zoo.Filled{DType: "float32", Shape: []int{rows, 2}, Data: &zero}
	for _, page := range []bool{false, true} {
		if got := logits("", nothing, nil, page); !bytes.Equal(got.Data, want.Data) {
			t.Error("an adapter that adds nothing changes bits")
		}
		magnitude := map[string]zoo.Filled{".lora_magnitude_vector": {DType: "float32", Shape: []int{rows}, Data: &long}}
		if far := farthest(t, logits(`, "use_dora": true`, nothing, magnitude, page), want); far > 1e-4 {
			t.Errorf("DoRA with the lengths that rows have changes logits by %v", far)
		}
		added := zoo.Filled{DType: "float32", Shape: []int{rows, 2}, Offset: &half, Scale: &half}
		if far := farthest(t, logits("", added, nil, page), want); far < 1e-2 {
			t.Errorf("an adapter changes logits by no more than %v", far)
		}
	}
}

// farthest is the largest difference of two outputs.
func farthest(t *testing.T, a, b *tensor.Tensor) (far float64) {
	t.Helper()
	x, err := tensor.Slice[float32](a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := tensor.Slice[float32](b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x {
		far = max(far, math.Abs(float64(x[i]-y[i])))
	}
	return far
}
