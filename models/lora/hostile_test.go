package lora_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/models/lora"
)

const projection = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"

// TestBadTensors: tensors that do not fit the model or the configuration are named, as errors of the file.
func TestBadTensors(t *testing.T) {
	shape := func(dims ...int) zoo.Filled { return zoo.Filled{DType: "float32", Shape: dims} }
	for name, c := range map[string]struct {
		of     string
		change func(tensors map[string]zoo.Filled)
		tensor string
		text   string
	}{
		"a rank that is not the configuration's": {"llama", func(f map[string]zoo.Filled) { f[projection] = shape(5, 48) }, projection, "[4 48] is wanted"},
		"inputs that the module does not have":   {"llama", func(f map[string]zoo.Filled) { f[projection] = shape(4, 47) }, projection, "[4 48] is wanted"},
		"more dimensions":                        {"llama", func(f map[string]zoo.Filled) { f[projection] = shape(4, 48, 1) }, projection, "[4 48] is wanted"},
		"one that is missing":                    {"llama", func(f map[string]zoo.Filled) { delete(f, projection) }, projection, "is missing"},
		"integers": {"llama", func(f map[string]zoo.Filled) {
			f[projection] = zoo.Filled{DType: "int64", Shape: []int{4, 48}, High: 3}
		}, projection, "int64"},
		"a layer that the model does not have": {"llama", func(f map[string]zoo.Filled) {
			f["base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight"] = shape(4, 48)
		}, "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight", "no module"},
		"a module that nothing names": {"llama", func(f map[string]zoo.Filled) {
			f["base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight"] = shape(4, 48)
		}, "base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight", "target_modules does not name"},
		"a parameter that nothing asks for": {"llama", func(f map[string]zoo.Filled) {
			f["base_model.model.lm_head.weight"] = shape(200, 48)
		}, "base_model.model.lm_head.weight", "modules_to_save"},
		"a parameter that there is not": {"llama", func(f map[string]zoo.Filled) {
			f["base_model.model.lm_head.bias"] = shape(200)
		}, "base_model.model.lm_head.bias", "no parameter"},
		"a magnitude without DoRA": {"llama", func(f map[string]zoo.Filled) {
			f["base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"] = shape(48)
		}, "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", "use_dora"},
		"DoRA without a magnitude": {"llama_dora", func(f map[string]zoo.Filled) {
			maps.DeleteFunc(f, func(name string, _ zoo.Filled) bool { return strings.HasSuffix(name, "lm_head.lora_magnitude_vector") })
		}, "base_model.model.lm_head.lora_magnitude_vector", "is missing"},
		"a bias without lora_bias": {"llama", func(f map[string]zoo.Filled) {
			f["base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias"] = shape(48)
		}, "base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias", "lora_bias"},
		"lora_bias without a bias": {"qwen3", func(f map[string]zoo.Filled) {
			delete(f, "base_model.model.model.layers.0.mlp.up_proj.lora_B.bias")
		}, "base_model.model.model.layers.0.mlp.up_proj.lora_B.bias", "is missing"},
		"rows for a linear module": {"llama", func(f map[string]zoo.Filled) {
			f["base_model.model.model.layers.0.self_attn.q_proj.lora_embedding_A"] = shape(4, 48)
		}, "base_model.model.model.layers.0.self_attn.q_proj.lora_embedding_A", "is not for"},
		"a copy of another shape": {"bert", func(f map[string]zoo.Filled) {
			f["base_model.model.classifier.weight"] = shape(6, 48)
		}, "base_model.model.classifier.weight", "[5 48] is wanted"},
		"a copy that is missing": {"bert", func(f map[string]zoo.Filled) {
			delete(f, "base_model.model.classifier.bias")
		}, "base_model.model.classifier.bias", "is missing"},
		"the same tensor under two names": {"llama", func(f map[string]zoo.Filled) {
			f[strings.TrimPrefix(projection, "base_model.model.")] = shape(4, 48)
		}, "", "is there twice"},
		"a name of nothing but an ending": {"llama", func(f map[string]zoo.Filled) { f[".lora_A.weight"] = shape(4, 48) }, ".lora_A.weight", "target_modules"},
		"a name without a dot":            {"llama", func(f map[string]zoo.Filled) { f["weight"] = shape(4) }, "weight", "no parameter"},
	} {
		t.Run(name, func(t *testing.T) {
			r := recordedAdapters(t, c.of)[0]
			c.change(r.Tensors)
			_, err := models.Build(r.base(t), models.Options{Adapters: []models.Adapter{r.adapter(t)}})
			var wrong *lora.Error
			if !errors.As(err, &wrong) || !errors.Is(err, loader.ErrFormat) || c.tensor != "" && wrong.Tensor != c.tensor ||
				!strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), c.tensor) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestBadConfigs: an entry that says what is not known, or nonsense, is named.
func TestBadConfigs(t *testing.T) {
	for name, c := range map[string]struct {
		entries     string
		field       string
		unsupported bool
	}{
		"another method":                {`{"peft_type": "LOHA"}`, "peft_type", true},
		"no method":                     {`{"peft_type": null}`, "peft_type", true},
		"what is not known":             {`{"use_more": true}`, "use_more", true},
		"tokens that invoke it":         {`{"alora_invocation_tokens": [1, 2]}`, "alora_invocation_tokens", true},
		"parameters":                    {`{"target_parameters": ["x"]}`, "target_parameters", true},
		"tokens":                        {`{"trainable_token_indices": {"embed_tokens": [1]}}`, "trainable_token_indices", true},
		"layers that are there twice":   {`{"layer_replication": [[0, 1], [0, 2]]}`, "layer_replication", true},
		"quantized":                     {`{"use_qalora": true}`, "use_qalora", true},
		"ties":                          {`{"ensure_weight_tying": true}`, "ensure_weight_tying", true},
		"principal components":          {`{"init_lora_weights": "pissa_niter_4"}`, "init_lora_weights", true},
		"a lookahead":                   {`{"target_modules": ".*(?=q_proj).*"}`, "target_modules", true},
		"a group that closes another's": {`{"target_modules": "q_proj)|(k_proj"}`, "target_modules", true},
		"a long expression":             {`{"target_modules": "` + strings.Repeat("a", 1<<15) + `"}`, "target_modules", true},
		"a pattern that is none":        {`{"rank_pattern": {"(": 4}}`, "rank_pattern", true},
		"an activation":                 {`{"target_modules": ["act_fn"]}`, "target_modules", true},
		"nothing that there is":         {`{"target_modules": ["nothing"]}`, "target_modules", false},
		"no module":                     {`{"target_modules": null}`, "target_modules", false},
		"a number of modules":           {`{"target_modules": 7}`, "target_modules", false},
		"many modules":                  {`{"target_modules": [` + strings.Repeat(`"a",`, 5000) + `"b"]}`, "target_modules", false},
		"no rank":                       {`{"r": 0}`, "r", false},
		"a rank that is a text":         {`{"r": "4"}`, "r", false},
		"a large rank":                  {`{"r": 1000000000}`, "r", false},
		"a large rank of a module":      {`{"rank_pattern": {"q_proj": 1e18}}`, "rank_pattern", false},
		"half a rank":                   {`{"rank_pattern": {"q_proj": 2.5}}`, "rank_pattern", false},
		"patterns in a list":            {`{"alpha_pattern": [1]}`, "alpha_pattern", false},
		"a bias of its own":             {`{"bias": "some"}`, "bias", false},
		"layers by name":                {`{"layers_to_transform": ["one"]}`, "layers_to_transform", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := recordedAdapters(t, "llama")[0]
			var fields map[string]json.RawMessage
			if err := errors.Join(json.Unmarshal([]byte(r.AdapterConfig), &fields), json.Unmarshal([]byte(c.entries), &fields)); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			r.AdapterConfig = string(text)
			_, err = models.Build(r.base(t), models.Options{Adapters: []models.Adapter{r.adapter(t)}})
			var wrong *lora.Error
			var unsupported *models.UnsupportedError
			if errors.As(err, &unsupported) != c.unsupported || errors.As(err, &wrong) == c.unsupported ||
				!strings.Contains(err.Error(), ": "+c.field+": ") {
				t.Errorf("got %v", err)
			}
			if wrong != nil && (wrong.Field != c.field || !errors.Is(err, loader.ErrFormat)) {
				t.Errorf("got %+v", wrong)
			}
		})
	}
}

// TestAdapterFolders: a folder opens in either format; one that lacks a file, or whose file leads out of it, does not.
func TestAdapterFolders(t *testing.T) {
	r := recordedAdapters(t, "llama")[0]
	for _, name := range []string{"adapter_model.safetensors", "adapter_model.bin"} {
		a := r.folder(t, name)
		if _, err := models.Build(r.base(t), models.Options{Adapters: []models.Adapter{a}}); err != nil {
			t.Error(name, err)
		}
	}
	opened := r.folder(t, "adapter_model.safetensors").Checkpoint.Path
	for name, c := range map[string]struct {
		make func(dir string) error
		want error
	}{
		"empty": {func(string) error { return nil }, loader.ErrUnsupported},
		"without weights": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte("{}"), 0o600)
		}, loader.ErrUnsupported},
		"a folder of weights": {func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte("{}"), 0o600),
				os.Mkdir(filepath.Join(dir, "adapter_model.bin"), 0o700))
		}, loader.ErrUnsupported},
		"a link to another's": {func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte("{}"), 0o600),
				os.Symlink(filepath.Join(opened, "adapter_model.safetensors"), filepath.Join(dir, "adapter_model.safetensors")))
		}, loader.ErrUnsafe},
		"not a tensor": {func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte("{}"), 0o600),
				os.WriteFile(filepath.Join(dir, "adapter_model.safetensors"), []byte("\x05\x00\x00\x00\x00\x00\x00\x00{}   "), 0o600))
		}, nil},
	} {
		dir := t.TempDir()
		if err := c.make(dir); err != nil {
			t.Fatal(err)
		}
		ckpt, err := loader.OpenAdapter(t.Context(), dir, loader.Options{})
		if err == nil {
			_, err = models.Build(r.base(t), models.Options{Adapters: []models.Adapter{{Name: "x", Checkpoint: ckpt}}})
			ckpt.Close()
		}
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := loader.OpenAdapter(t.Context(), filepath.Join(opened, "adapter_model.safetensors"), loader.Options{}); !errors.Is(err, loader.ErrUnsupported) {
		t.Errorf("a file: %v", err)
	}
}

// TestBadOptions: adapters have names of their own, and belong to models whose modules are known.
func TestBadOptions(t *testing.T) {
	r := recordedAdapters(t, "llama")[0]
	a := r.adapter(t)
	other := a
	other.Name = ""
	var unknown *models.AdapterError
	for name, opts := range map[string]models.Options{
		"two of a name": {Adapters: []models.Adapter{a, a}}, "no name": {Adapters: []models.Adapter{other}},
		"no checkpoint": {Adapters: []models.Adapter{{Name: "x"}}}, "another": {Adapters: []models.Adapter{a}, Adapter: "nobody"},
		"too many": {Adapters: make([]models.Adapter, 1000)},
	} {
		if _, err := models.Build(r.base(t), opts); err == nil || errors.As(err, &unknown) != (name == "another") {
			t.Errorf("%s: %v", name, err)
		}
	}
	program, err := loader.Open("../../models/testdata/autocast.pt2")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	var unsupported *models.UnsupportedError
	if _, err := models.Build(program, models.Options{Adapters: []models.Adapter{a}}); !errors.As(err, &unsupported) {
		t.Errorf("a program: %v", err)
	}
}
