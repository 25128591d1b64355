package transformers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/transformers"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// named returns a recorded model.
func named(t testing.TB, kind, name string) *recorded {
	t.Helper()
	list := recordedOf(t, kind)
	i := slices.IndexFunc(list, func(r recorded) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no recorded %s/%s", kind, name)
	}
	return &list[i]
}

// stateDict returns the entries of a checkpoint.
func stateDict(ckpt *loader.Checkpoint) layers.StateDict {
	var dict layers.StateDict
	for _, w := range ckpt.Weights {
		dict = append(dict, layers.Entry{Name: w.Name, DType: w.DType, Shape: w.Layout.Shape})
	}
	return dict
}

// renamed returns a state dict with other names; entries renamed to "" are left out.
func renamed(dict layers.StateDict, rename func(name string) string) layers.StateDict {
	var out layers.StateDict
	for _, e := range dict {
		if e.Name = rename(e.Name); e.Name != "" {
			out = append(out, e)
		}
	}
	return out
}

// TestFolder opens a folder that save_pretrained wrote, in shards, and runs it.
func TestFolder(t *testing.T) {
	ckpt, err := loader.Open(filepath.Join(configFolder, "tiny_llama"))
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if model.Arch() != "LlamaForCausalLM" {
		t.Errorf("the model is a %s", model.Arch())
	}
	var inputs []string
	for _, p := range model.Inputs() {
		inputs = append(inputs, fmt.Sprintf("%s %v %v %v %v", p.Name, p.DType, p.Shape, p.Dims, p.Optional))
	}
	want := []string{
		"input_ids int64 [-1 -1] [batch sequence] false", "attention_mask int64 [-1 -1] [batch sequence] true",
		"position_ids int64 [-1 -1] [batch sequence] true",
	}
	if !slices.Equal(inputs, want) {
		t.Errorf("inputs %q, want %q", inputs, want)
	}
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	out, err := session.Run(t.Context(), optimem.Values{"input_ids": array(t, "ids.npy")})
	if err != nil {
		t.Fatal(err)
	}
	got, err := tensor.Slice[float32](out["logits"])
	if err != nil {
		t.Fatal(err)
	}
	logits, err := tensor.Slice[float32](array(t, "logits.npy"))
	if err != nil || len(got) != len(logits) {
		t.Fatalf("%d logits, want %d: %v", len(got), len(logits), err)
	}
	for i, w := range logits {
		if !(math.Abs(float64(got[i]-w)) < 5e-6) {
			t.Fatalf("logit %d is %v, want %v", i, got[i], w)
		}
	}
}

// array reads an array of the folder.
func array(t *testing.T, name string) *tensor.Tensor {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(configFolder, "tiny_llama", name))
	if err != nil {
		t.Fatal(err)
	}
	a, err := npy.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return &tensor.Tensor{DType: a.DType, Layout: a.Layout, Data: data[int64(len(data))-a.Bytes:]}
}

// TestNames binds state dicts whose names are not those of the module.
func TestNames(t *testing.T) {
	tests := []struct {
		about, kind, model, class string
		rename                    func(name string) string
		add                       []string
		want                      map[string]string
	}{
		{
			about: "GPT-2 as published: no prefix, no head, masks", kind: "gpt2", model: "causal",
			rename: func(name string) string {
				if name == "lm_head.weight" {
					return ""
				}
				return strings.TrimPrefix(name, "transformer.")
			},
			add:  []string{"h.0.attn.bias", "h.1.attn.masked_bias"},
			want: map[string]string{"transformer.wte.weight": "wte.weight", "lm_head.weight": "wte.weight"},
		},
		{
			about: "the head's weight in place of the embeddings'", kind: "llama", model: "tied_biased",
			rename: func(name string) string { return strings.Replace(name, "model.embed_tokens.weight", "", 1) },
			want:   map[string]string{"model.embed_tokens.weight": "lm_head.weight"},
		},
		{
			about: "the base model out of one with a head", kind: "bert", model: "masked_lm", class: "BertModel",
			want: map[string]string{"embeddings.LayerNorm.bias": "bert.embeddings.LayerNorm.bias"},
		},
		{
			about: "BERT as first published", kind: "bert", model: "masked_lm",
			rename: func(name string) string {
				if name == "cls.predictions.decoder.bias" {
					return ""
				}
				return strings.NewReplacer("LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias", "LayerNorm.beta").Replace(name)
			},
			add: []string{
				"bert.pooler.dense.weight", "bert.pooler.dense.bias", "cls.seq_relationship.weight", "bert.embeddings.position_ids",
			},
			want: map[string]string{
				"bert.encoder.layer.1.output.LayerNorm.weight": "bert.encoder.layer.1.output.LayerNorm.gamma",
				"cls.predictions.decoder.bias":                 "cls.predictions.bias",
			},
		},
		{
			about: "frequencies of older versions", kind: "llama", model: "eager",
			add:  []string{"model.layers.0.self_attn.rotary_emb.inv_freq"},
			want: map[string]string{"lm_head.weight": ""},
		},
		{
			about: "a base model under another name", kind: "llama", model: "spans",
			rename: func(name string) string { return strings.Replace(name, "transformer.", "model.", 1) },
			want:   map[string]string{"transformer.norm.weight": "model.norm.weight"},
		},
	}
	for _, test := range tests {
		r := named(t, test.kind, test.model)
		dict := stateDict(r.folder(t))
		if test.rename != nil {
			dict = renamed(dict, test.rename)
		}
		for _, name := range test.add {
			dict = append(dict, layers.Entry{Name: name, DType: tensor.Float32, Shape: tensor.Shape{1}})
		}
		slices.Reverse(dict) // the order says nothing
		a, err := transformers.Named(test.class, []byte(r.Config), dict)
		if err != nil {
			t.Errorf("%s: %v", test.about, err)
			continue
		}
		for name, want := range test.want {
			if a.Weights[name] != want {
				t.Errorf("%s: %s is %q, want %q", test.about, name, a.Weights[name], want)
			}
		}
	}
}

// TestMismatch lists what does not fit, as PyTorch does.
func TestMismatch(t *testing.T) {
	r := named(t, "llama", "eager")
	dict := renamed(stateDict(r.folder(t)), func(name string) string {
		switch name {
		case "lm_head.weight", "model.layers.1.mlp.up_proj.weight":
			return ""
		}
		return name
	})
	dict = append(dict, layers.Entry{Name: "model.layers.2.mlp.up_proj.weight", DType: tensor.Float32, Shape: tensor.Shape{80, 48}})
	for i := range dict {
		if dict[i].Name == "model.norm.weight" {
			dict[i].Shape = tensor.Shape{49}
		}
	}
	_, err := transformers.FromConfig([]byte(r.Config), dict)
	var mismatch *layers.MismatchError
	if !errors.As(err, &mismatch) {
		t.Fatalf("got %v, want a MismatchError", err)
	}
	want := &layers.MismatchError{
		Arch: "LlamaForCausalLM", Missing: []string{"model.layers.1.mlp.up_proj.weight", "lm_head.weight"},
		Unexpected: []string{"model.layers.2.mlp.up_proj.weight"},
		Misshaped:  []layers.Misshaped{{Name: "model.norm.weight", Got: tensor.Shape{49}, Want: tensor.Shape{48}}},
	}
	if mismatch.Error() != want.Error() {
		t.Errorf("got  %v\nwant %v", mismatch, want)
	}
}

// TestEveryKeyMatters leaves out, in turn, each weight of a model, and gives each another shape.
func TestEveryKeyMatters(t *testing.T) {
	for kind, list := range recordedModels(t) {
		r := &list[0]
		dict := stateDict(r.folder(t))
		for i, e := range dict {
			if slices.ContainsFunc([]string{"mask_token", "masked_spec_embed", "objective.weight"}, func(end string) bool {
				return strings.HasSuffix(e.Name, end)
			}) {
				continue // which training alone reads
			}
			without := slices.Delete(slices.Clone(dict), i, i+1)
			if _, err := transformers.Named(r.Arch, []byte(r.Config), without); err == nil && !excused(e.Name) {
				t.Errorf("%s/%s: nothing is said when %s is missing", kind, r.Name, e.Name)
			}
			other := slices.Clone(dict)
			other[i].Shape = append(slices.Clone(e.Shape), 2)
			if _, err := transformers.Named(r.Arch, []byte(r.Config), other); err == nil {
				t.Errorf("%s/%s: nothing is said when %s has another shape", kind, r.Name, e.Name)
			}
		}
	}
}

// excused reports whether a model does without a weight: a pooler, or one that is tied to another.
func excused(name string) bool {
	return strings.HasPrefix(name, "pooler.") || strings.Contains(name, "decoder.") || strings.HasSuffix(name, "predictions.bias") ||
		strings.HasSuffix(name, "word_embeddings.weight") || strings.HasSuffix(name, "shared.weight") ||
		strings.HasSuffix(name, "embed_tokens.weight") || name == "lm_head.weight" || name == "lm_head.bias"
}

// lies are configurations that are not those of the weights, and the words of the errors.
var lies = []struct{ key, value, want string }{
	{"num_attention_heads", "5", "not a multiple"},
	{"num_attention_heads", "0", "num_attention_heads is 0, not positive"},
	{"num_attention_heads", "-4", "not positive"},
	{"num_attention_heads", "1e300", "not an integer"},
	{"num_attention_heads", "4.5", "not an integer"},
	{"num_attention_heads", `"4"`, "not an integer"},
	{"hidden_size", "1152921504606846976", "not an integer of at most"},
	{"hidden_size", "1073741824", "size mismatch"},
	{"hidden_size", "[]", "not an integer"},
	{"vocab_size", "201", "size mismatch for bert.embeddings.word_embeddings.weight"},
	{"num_hidden_layers", "3", "bert.encoder.layer.2.attention.self.query.weight"},
	{"num_hidden_layers", "1", "unexpected"},
	{"num_hidden_layers", "1000000", "1000000 layers of 16 weights each"},
	{"num_hidden_layers", "1073741824", "layers of 16 weights each"},
	{"max_position_embeddings", "1073741823", "more than 1048576"},
	{"max_position_embeddings", "65", "size mismatch"},
	{"hidden_act", `"softsign"`, "activation softsign"},
	{"hidden_act", "7", "not a text"},
	{"layer_norm_eps", `"x"`, "not a number"},
	{"is_decoder", "3", "not true or false"},
	{"add_cross_attention", "true", "add_cross_attention"},
	{"position_embedding_type", `"relative_key"`, "relative_key"},
	{"architectures", `["BertForMultipleChoice"]`, "(BertForMultipleChoice); of that type there are BertModel, BertForMaskedLM,"},
	{"model_type", `"mamba"`, "model type mamba"},
	{"model_type", "1", "not a text"},
	{"quantization_config", `{"bits": 4}`, "quantized"},
}

// TestLies gives a model configurations that are not its own.
func TestLies(t *testing.T) {
	r := named(t, "bert", "masked_lm")
	dict := stateDict(r.folder(t))
	for _, lie := range lies {
		_, err := transformers.FromConfig(changed(t, r.Config, lie.key, lie.value), dict)
		if err == nil || !strings.Contains(err.Error(), lie.want) {
			t.Errorf("%s %s: got %v, want %q", lie.key, lie.value, err, lie.want)
		}
	}
	for _, text := range []string{
		"", "{", "[]", "null", "7", `{"model_type": "bert"} x`, `{"model_type": "bert"`, "{}", "\xff\xfe{}",
		strings.Repeat(`{"a":`, 1000), strings.Repeat("[", 100000), `{"model_type": "` + strings.Repeat("x", 9<<20) + `"}`,
	} {
		if _, err := transformers.FromConfig([]byte(text), dict); err == nil {
			t.Errorf("%.40q: no error", text)
		}
	}
}

// changed returns a configuration with another entry.
func changed(t testing.TB, config, key, value string) []byte {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(config), &fields); err != nil {
		t.Fatal(err)
	}
	fields[key] = json.RawMessage(value)
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRotaryRefused names the rotary embeddings that are not known, and those that make no sense.
func TestRotaryRefused(t *testing.T) {
	r := named(t, "llama", "base")
	dict := stateDict(r.folder(t))
	for _, test := range []struct{ params, want string }{
		{`{"rope_type": "axial", "factor": 2}`, "type axial"},
		{`{"rope_type": "dynamic"}`, "factor 0"},
		{`{"rope_type": "longrope"}`, "long_factor has 0 numbers, not 6"},
		{`{"rope_type": "longrope", "long_factor": [1, 1, 1, 1, 1, 1], "short_factor": [1, 1, 1, 1, 1, 0]}`, "has 0, not"},
		{`{"rope_type": "longrope", "long_factor": [1, 1, 1, 1, 1, "x"]}`, `has "x", not a positive number`},
		{`{"rope_type": "longrope", "original_max_position_embeddings": 1}`, "not more than 1"},
		{`{"rope_type": "linear"}`, "factor 0"},
		{`{"rope_type": "linear", "factor": -1}`, "factor -1"},
		{`{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1}`, "low_freq_factor 4"},
		{`{"rope_theta": 0}`, "base 0"},
		{`{"rope_theta": "x"}`, "not a number"},
		{`{"partial_rotary_factor": 0.5}`, "a part of the heads"},
		{`7`, "not an object"},
	} {
		_, err := transformers.FromConfig(changed(t, r.Config, "rope_parameters", test.params), dict)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.params, err, test.want)
		}
	}
}

// TestOlderRotary reads the entries under the names of older versions: the graph is the same.
func TestOlderRotary(t *testing.T) {
	r := named(t, "llama", "rope_llama3")
	older := changed(t, r.Config, "rope_parameters", "null")
	older = changed(t, string(older), "rope_theta", "10000.0")
	older = changed(t, string(older), "rope_scaling", `{"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
		"high_freq_factor": 4.0, "original_max_position_embeddings": 32}`)
	graphs := make([][]string, 2)
	for i, text := range [][]byte{[]byte(r.Config), older} {
		ckpt := r.folder(t)
		ckpt.Config = text
		model, err := models.Build(ckpt, models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		graphs[i] = lines(t, model, map[string]tensor.Shape{"input_ids": {1, 9}}, &r.Reference)
	}
	if diff := cmp.Diff(graphs[0], graphs[1]); diff != "" {
		t.Errorf("the graphs differ (-newer +older):\n%.2000s", diff)
	}
}

// TestUnknownFolder says how a model that is not known can be exported.
func TestUnknownFolder(t *testing.T) {
	r := named(t, "bert", "masked_lm")
	ckpt := r.folder(t)
	ckpt.Config = []byte(`{"model_type": "rwkv", "architectures": ["RwkvForCausalLM"]}`)
	_, err := models.Build(ckpt, models.Options{})
	var unsupported *models.UnsupportedError
	if !errors.As(err, &unsupported) {
		t.Fatalf("got %v, want an UnsupportedError", err)
	}
	for _, want := range []string{"transformers.RwkvForCausalLM.from_pretrained(", "torch.export.export(model"} {
		if !strings.Contains(unsupported.Hint, want) {
			t.Errorf("the hint lacks %q: %s", want, unsupported.Hint)
		}
	}
}

// TestMasksThatDoNotFit are refused before anything runs.
func TestMasksThatDoNotFit(t *testing.T) {
	for _, kind := range []string{"bert", "gpt2", "llama", "opt", "roberta", "distilbert"} {
		list := recordedOf(t, kind)
		model, err := models.Build(list[0].folder(t), models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, mask := range []tensor.Shape{{2, 8}, {1, 9}, {9}, {2, 1, 9, 9}, {2, 10}} {
			_, err := model.Graph(map[string]tensor.Shape{"input_ids": {2, 9}, "attention_mask": mask})
			if err == nil {
				t.Errorf("%s: a mask of %v for tokens of [2 9]", kind, mask)
			}
		}
		for _, ids := range []tensor.Shape{{9}, {2, 9, 1}, nil} {
			if _, err := model.Graph(map[string]tensor.Shape{"input_ids": ids}); err == nil {
				t.Errorf("%s: tokens of %v", kind, ids)
			}
		}
	}
}

// TestTooManyTokens refuses a sequence that is longer than a table of positions.
func TestTooManyTokens(t *testing.T) {
	model, err := models.Build(named(t, "bert", "masked_lm").folder(t), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = model.Graph(map[string]tensor.Shape{"input_ids": {1, 65}})
	if err == nil || !strings.Contains(err.Error(), "65 tokens, and the model has 64 positions") {
		t.Errorf("got %v", err)
	}
}

// TestHalf runs weights of half precision: they give what the same numbers in single precision give.
func TestHalf(t *testing.T) {
	r := named(t, "llama", "eager")
	wide := r.folder(t)
	for _, dtype := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		var half, same []tensor.Weight
		for _, w := range wide.Weights {
			data := make([]byte, w.Extent.Bytes)
			if err := w.Extent.Source.ReadAt(t.Context(), data, w.Extent.Offset); err != nil {
				t.Fatal(err)
			}
			narrow, back := narrowed(t, data, w.Layout.Shape, dtype)
			half, same = append(half, weight(w.Name, narrow)), append(same, weight(w.Name, back))
		}
		var outs []*tensor.Tensor
		for _, weights := range [][]tensor.Weight{half, same} {
			ckpt, err := loader.NewCheckpoint("half", weights, nil)
			if err != nil {
				t.Fatal(err)
			}
			ckpt.Config = []byte(r.Config)
			outs = append(outs, runOnce(t, ckpt, r, "logits"))
		}
		if string(outs[0].Data) != string(outs[1].Data) {
			t.Errorf("%v: other numbers than from the same weights in float32", dtype)
		}
	}
}

// runOnce runs the first case of a recorded model.
func runOnce(t *testing.T, ckpt *loader.Checkpoint, r *recorded, output string) *tensor.Tensor {
	t.Helper()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	in := make(optimem.Values)
	for name, f := range r.Reference.Cases[0].Inputs {
		if in[name], err = f.Tensor(name); err != nil {
			t.Fatal(err)
		}
	}
	out, err := session.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out[output]
}

// narrowed returns float32 elements in a half type, and those again as float32.
func narrowed(t *testing.T, data []byte, shape tensor.Shape, dtype tensor.DType) (narrow, back *tensor.Tensor) {
	t.Helper()
	values, err := tensor.Slice[float32](&tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(shape...), Data: data})
	if err != nil {
		t.Fatal(err)
	}
	bits, wide := make([]uint16, len(values)), make([]float32, len(values))
	for i, v := range values {
		if dtype == tensor.BFloat16 {
			bits[i] = tensor.BFloat16FromFloat32(v)
			wide[i] = tensor.BFloat16ToFloat32(bits[i])
		} else {
			bits[i] = tensor.Float16FromFloat32(v)
			wide[i] = tensor.Float16ToFloat32(bits[i])
		}
	}
	narrow, back = tensor.Of(bits, shape...), tensor.Of(wide, shape...)
	narrow.DType = dtype
	return narrow, back
}

// weight returns a weight in memory.
func weight(name string, x *tensor.Tensor) tensor.Weight {
	return tensor.Weight{
		Name: name, DType: x.DType, Layout: x.Layout,
		Extent: storage.Extent{Source: &inMemory{x.Data}, Bytes: int64(len(x.Data))},
	}
}

type inMemory struct{ data []byte }

func (m *inMemory) Size() int64 { return int64(len(m.data)) }

func (m *inMemory) ReadAt(_ context.Context, p []byte, off int64) error {
	copy(p, m.data[off:])
	return nil
}

// FuzzConfig reads any text as the configuration of real weights: it may fail, in bounded time, and not panic.
func FuzzConfig(f *testing.F) {
	all := recordedModels(f)
	var dict layers.StateDict
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		for i := range all[kind] {
			if testing.Short() && i > 0 {
				break
			}
			f.Add([]byte(all[kind][i].Config))
		}
		dict = append(dict, stateDict(all[kind][0].folder(f))...)
	}
	for _, lie := range lies {
		f.Add(changed(f, all["bert"][0].Config, lie.key, lie.value))
	}
	f.Fuzz(func(_ *testing.T, text []byte) {
		_, _ = transformers.FromConfig(text, dict)
	})
}
