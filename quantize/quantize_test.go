package quantize_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/quantize"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const chat = "../generate/testdata/chat"

// dataOf is a tensor in memory.
func dataOf(name string, dtype tensor.DType, shape tensor.Shape, raw []byte) loader.TensorData {
	return loader.TensorData{Name: name, DType: dtype, Shape: shape, ReadAt: func(_ context.Context, p []byte, off int64) error {
		copy(p, raw[off:])
		return nil
	}}
}

// numbersOf reads a weight as float32.
func numbersOf(t *testing.T, w tensor.Weight) []float32 {
	t.Helper()
	c, err := w.Contents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	numbers := make([]float32, w.NumElements())
	for i := range numbers {
		switch w.DType {
		case tensor.BFloat16:
			numbers[i] = tensor.BFloat16ToFloat32(binary.NativeEndian.Uint16(c.Data[2*i:]))
		case tensor.Float16:
			numbers[i] = tensor.Float16ToFloat32(binary.NativeEndian.Uint16(c.Data[2*i:]))
		default:
			numbers[i] = math.Float32frombits(binary.NativeEndian.Uint32(c.Data[4*i:]))
		}
	}
	return numbers
}

// bytesOf are numbers in a dtype.
func bytesOf(numbers []float32, dtype tensor.DType) []byte {
	var raw []byte
	for _, x := range numbers {
		switch dtype {
		case tensor.BFloat16:
			raw = binary.LittleEndian.AppendUint16(raw, tensor.BFloat16FromFloat32(x))
		case tensor.Float16:
			raw = binary.LittleEndian.AppendUint16(raw, tensor.Float16FromFloat32(x))
		default:
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
	}
	return raw
}

func open(t *testing.T, path string) *loader.Checkpoint {
	t.Helper()
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	return ckpt
}

// write puts a folder together: the chat model's files beside weights, its configuration changed.
func write(t *testing.T, files map[string][]loader.TensorData, change func(config map[string]any)) string {
	t.Helper()
	folder := t.TempDir()
	for name, tensors := range files {
		var b bytes.Buffer
		if err := loader.WriteSafetensors(t.Context(), &b, tensors, map[string]string{"format": "pt", "made": "here"}); err != nil {
			t.Fatal(err)
		}
		put(t, folder, name, b.String())
	}
	text, err := os.ReadFile(filepath.Join(chat, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	change(config)
	text, err = json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	put(t, folder, "config.json", string(text))
	return folder
}

func put(t *testing.T, folder, name, text string) {
	t.Helper()
	name = filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// chatTensors are the chat model's weights in a dtype.
func chatTensors(t *testing.T, dtype tensor.DType) []loader.TensorData {
	t.Helper()
	var tensors []loader.TensorData
	for _, w := range open(t, chat).Weights {
		tensors = append(tensors, dataOf(w.Name, dtype, w.Layout.Shape, bytesOf(numbersOf(t, w), dtype)))
	}
	return tensors
}

func chatFolder(t *testing.T, dtype tensor.DType) string {
	t.Helper()
	return write(t, map[string][]loader.TensorData{"model.safetensors": chatTensors(t, dtype)}, func(c map[string]any) { c["dtype"] = dtype.String() })
}

func quantised(t *testing.T, folder, scheme string, opts quantize.Options) (string, *quantize.Report) {
	t.Helper()
	minimum := opts.Scheme.Minimum
	var err error
	if opts.Scheme, err = quantize.ParseScheme(scheme); err != nil {
		t.Fatal(err)
	}
	opts.Scheme.Minimum = minimum
	f, err := quantize.Open(t.Context(), folder, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	to := filepath.Join(t.TempDir(), "out")
	told := int64(0)
	report, err := f.Write(t.Context(), to, func(n int64) { told += n })
	if err != nil {
		t.Fatal(err)
	}
	if told != f.WorkBytes || f.OutBytes != report.BytesAfter {
		t.Errorf("%d bytes of %d were told of, %d of %d written", told, f.WorkBytes, report.BytesAfter, f.OutBytes)
	}
	return to, report
}

func build(t *testing.T, folder string) *models.Model {
	t.Helper()
	model, err := models.Build(open(t, folder), models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func logits(t *testing.T, model *models.Model) []byte {
	t.Helper()
	session, err := optimem.Resident(t.Context(), model, optimem.ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	out, err := session.Run(t.Context(), optimem.Values{"input_ids": tensor.Of([]int64{3, 1, 4, 1, 5, 9, 2, 6}, 1, 8)})
	if err != nil {
		t.Fatal(err)
	}
	return out["logits"].Data
}

// TestGolden: what this module reads of a folder that it quantised are the bits that compressed-tensors makes of it, with the error
// that is told, which is less than that of scales of the least and greatest number; it computes what the dequantised weights do.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			DType, Scheme, SHA256 string
			Minimum               bool
			Error                 float64
			Plain                 float64 `json:"plain_error"`
		}
	}
	if err := json.Unmarshal(text, &golden); err != nil || len(golden.Cases) != 15 {
		t.Fatalf("%d cases: %v", len(golden.Cases), err)
	}
	for _, c := range golden.Cases {
		t.Run(c.DType+" "+c.Scheme, func(t *testing.T) {
			dtype, _ := tensor.ParseDType(c.DType)
			to, report := quantised(t, chatFolder(t, dtype), c.Scheme, quantize.Options{Scheme: quantize.Scheme{Minimum: c.Minimum}})
			if math.Abs(report.Error-c.Error) > 1e-9 || report.Error >= c.Plain {
				t.Errorf("an error of %v, want %v, less than %v", report.Error, c.Error, c.Plain)
			}
			model := build(t, to)
			weights := make(map[string][]float32)
			var plain []loader.TensorData
			for _, w := range model.Weights() {
				weights[w.Name] = numbersOf(t, w)
				plain = append(plain, dataOf(w.Name, dtype, w.Layout.Shape, bytesOf(weights[w.Name], dtype)))
			}
			digest := sha256.New()
			var names []string
			for _, l := range report.Layers {
				names = append(names, l.Module+".weight")
			}
			slices.Sort(names)
			for _, name := range names {
				digest.Write(bytesOf(weights[name], tensor.Float32))
			}
			if got := hex.EncodeToString(digest.Sum(nil)); got != c.SHA256 {
				t.Errorf("other numbers than those of compressed-tensors: %s", got)
			}
			reference := write(t, map[string][]loader.TensorData{"model.safetensors": plain}, func(config map[string]any) { config["dtype"] = c.DType })
			if !bytes.Equal(logits(t, model), logits(t, build(t, reference))) {
				t.Error("it computes other than the dequantised weights")
			}
		})
	}
}

// tree returns the files of a folder.
func tree(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.Walk(folder, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(folder, path)
		files[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestShards: files stay apart, the index says where tensors are now, and what is beside weights comes along.
func TestShards(t *testing.T) {
	files, index := make(map[string][]loader.TensorData), make(map[string]string)
	for i, x := range chatTensors(t, tensor.BFloat16) {
		name := []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}[i%2]
		files[name] = append(files[name], x)
		index[x.Name] = name
	}
	folder := write(t, files, func(map[string]any) {})
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": 1, "by": "someone"}, "weight_map": index})
	if err != nil {
		t.Fatal(err)
	}
	put(t, folder, "model.safetensors.index.json", string(text))
	beside := map[string]string{"tokenizer.json": "{}", "chat_template.jinja": "x", "LICENSE": "all", "1_Pooling/config.json": `{"a": 1}`}
	for name, text := range beside {
		put(t, folder, name, text)
	}
	put(t, folder, "pytorch_model.bin", "old")
	put(t, folder, "onnx/model.onnx", "old")
	put(t, folder, ".git/config.json", "{}")
	opts := quantize.Options{Keep: []string{"*.layers.0.self_attn.*", "*.down_proj"}}
	to, report := quantised(t, folder, "int4:32", opts)

	got := tree(t, to)
	for name, text := range beside {
		if got[name] != text {
			t.Errorf("%s: %q", name, got[name])
		}
		delete(got, name)
	}
	want := []string{"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("written: %v", names)
	}
	if want := []string{".git", "onnx/model.onnx", "pytorch_model.bin"}; !slices.Equal(report.NotCopied, want) {
		t.Errorf("not copied: %v", report.NotCopied)
	}
	if len(report.Layers) != 8 || len(report.Kept) != 6 {
		t.Errorf("%d layers, %d kept", len(report.Layers), len(report.Kept))
	}
	var written struct {
		Metadata  map[string]any    `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal([]byte(got["model.safetensors.index.json"]), &written); err != nil {
		t.Fatal(err)
	}
	if total := written.Metadata["total_size"]; total != float64(report.BytesAfter) || written.Metadata["by"] != "someone" {
		t.Errorf("metadata %v, %d bytes", written.Metadata, report.BytesAfter)
	}
	const module = "model.layers.1.mlp.up_proj"
	for _, kind := range []string{".weight_packed", ".weight_scale", ".weight_shape"} {
		if written.WeightMap[module+kind] != index[module+".weight"] {
			t.Errorf("%s is in %q", kind, written.WeightMap[module+kind])
		}
	}
	// What stays has the same bits; what is said of a file stays too.
	ckpt := open(t, to)
	for _, x := range slices.Concat(files[want[1]], files[want[2]]) {
		w, ok := ckpt.Weight(x.Name)
		if !ok {
			continue
		}
		before, after := make([]byte, w.Bytes()), make([]byte, w.Bytes())
		if err := errors.Join(x.ReadAt(t.Context(), before, 0), w.Span().ReadAt(t.Context(), after, 0)); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s is other than it was: %v", x.Name, err)
		}
	}
	if !slices.Contains(open(t, filepath.Join(to, want[1])).Values, loader.Value{Name: "__metadata__.made", Text: "here"}) {
		t.Error("the metadata of a file are gone")
	}
	// Those that stay are named, for readers that look for the others' codes.
	var config struct {
		Q struct {
			Ignore []string `json:"ignore"`
			Method string   `json:"quant_method"`
		} `json:"quantization_config"`
		Hidden int `json:"hidden_size"`
	}
	if err := json.Unmarshal([]byte(got["config.json"]), &config); err != nil {
		t.Fatal(err)
	}
	ignored := []string{
		"lm_head", "model.layers.0.mlp.down_proj", "model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.o_proj",
		"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj", "model.layers.1.mlp.down_proj",
	}
	if d := cmp.Diff(ignored, config.Q.Ignore); d != "" || config.Q.Method != "compressed-tensors" || config.Hidden != 64 {
		t.Errorf("%+v: %s", config, d)
	}
	build(t, to)
}

// TestSameBits: memory and threads change nothing.
func TestSameBits(t *testing.T) {
	folder := chatFolder(t, tensor.BFloat16)
	for _, scheme := range []string{"int4:32", "fp8"} {
		opts := quantize.Options{Scheme: quantize.Scheme{Minimum: scheme != "fp8"}}
		whole, _ := quantised(t, folder, scheme, opts)
		opts.MemoryBytes = 14 << 10 // eight rows
		parts, _ := quantised(t, folder, scheme, opts)
		if !maps.Equal(tree(t, whole), tree(t, parts)) {
			t.Errorf("%s: other files with little memory", scheme)
		}
	}
}

// TestBeforeNamed: who looks at what was written gets all of it, before it has its name; what they do not like, or when
// the run is cancelled meanwhile, leaves nothing.
func TestBeforeNamed(t *testing.T) {
	scheme, err := quantize.ParseScheme("int8")
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	for _, c := range []struct {
		name string
		look func(cancel func()) error
		want error
	}{
		{"liked", func(func()) error { return nil }, nil},
		{"refused", func(func()) error { return refused }, refused},
		{"cancelled", func(cancel func()) error { cancel(); return nil }, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f, err := quantize.Open(ctx, chat, quantize.Options{Scheme: scheme})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			parent := t.TempDir()
			to, looks := filepath.Join(parent, "out"), 0
			f.BeforeNamed = func(_ context.Context, written string) error {
				looks++
				if err := quantize.CheckNew(to); err != nil {
					t.Error(err)
				}
				ckpt, err := loader.Open(written)
				if err != nil {
					return err
				}
				if err := ckpt.Close(); err != nil {
					return err
				}
				if _, err := os.Stat(filepath.Join(written, "tokenizer.json")); err != nil {
					t.Error(err)
				}
				return c.look(cancel)
			}
			if _, err := f.Write(ctx, to, nil); !errors.Is(err, c.want) || looks != 1 {
				t.Errorf("%v after %d looks, want %v", err, looks, c.want)
			}
			left, err := os.ReadDir(parent)
			if err != nil || (len(left) == 1) != (c.want == nil) || len(left) > 1 {
				t.Errorf("%v is left: %v", left, err)
			}
		})
	}
}

// TestRefuses: what cannot be quantised is said before anything is written, or leaves nothing.
func TestRefuses(t *testing.T) {
	with := func(value float32) func(t *testing.T) string {
		return func(t *testing.T) string {
			tensors := chatTensors(t, tensor.Float32)
			i := slices.IndexFunc(tensors, func(x loader.TensorData) bool { return x.Name == "model.layers.1.mlp.up_proj.weight" })
			raw := make([]byte, 160*64*4)
			binary.LittleEndian.PutUint32(raw[4*(64*37+5):], math.Float32bits(value))
			tensors[i] = dataOf(tensors[i].Name, tensor.Float32, tensors[i].Shape, raw)
			return write(t, map[string][]loader.TensorData{"model.safetensors": tensors}, func(map[string]any) {})
		}
	}
	changed := func(change func(map[string]any)) func(t *testing.T) string {
		return func(t *testing.T) string {
			return write(t, map[string][]loader.TensorData{"model.safetensors": chatTensors(t, tensor.BFloat16)}, change)
		}
	}
	nothing := func(map[string]any) {}
	for name, c := range map[string]struct {
		folder func(t *testing.T) string
		scheme string
		opts   quantize.Options
		class  error
		want   string
	}{
		"NaN":             {with(float32(math.NaN())), "int8", quantize.Options{MemoryBytes: 14 << 10}, loader.ErrFormat, "model.layers.1.mlp.up_proj.weight: malformed file: row 37, column 5 is NaN"},
		"infinity":        {with(float32(math.Inf(-1))), "fp8", quantize.Options{}, loader.ErrFormat, "row 37, column 5 is -Inf"},
		"no group":        {changed(nothing), "int4", quantize.Options{}, loader.ErrUnsupported, "no multiple of 128"},
		"nothing is left": {changed(nothing), "int8", quantize.Options{Keep: []string{"*"}}, loader.ErrUnsupported, "nothing to quantise"},
		"memory":          {changed(nothing), "int8", quantize.Options{MemoryBytes: 1 << 10}, loader.ErrLimit, "bytes of memory"},
		"quantised already": {changed(func(c map[string]any) { c["quantization_config"] = map[string]any{"quant_method": "awq"} }), "int8",
			quantize.Options{}, loader.ErrUnsupported, "quantised already"},
		"unknown": {changed(func(c map[string]any) { c["model_type"], c["architectures"] = "nobody", nil }), "int8", quantize.Options{},
			loader.ErrUnsupported, "nobody"},
		"a pattern": {changed(nothing), "int8", quantize.Options{Keep: []string{"[a"}}, nil, "[a"},
		"no safetensors": {func(t *testing.T) string {
			folder := changed(nothing)(t)
			if err := os.Rename(filepath.Join(folder, "model.safetensors"), filepath.Join(folder, "other.safetensors")); err != nil {
				t.Fatal(err)
			}
			return folder
		}, "int8", quantize.Options{}, loader.ErrUnsupported, "neither model.safetensors nor its index"},
	} {
		t.Run(name, func(t *testing.T) {
			folder, parent := c.folder(t), t.TempDir()
			var err error
			if c.opts.Scheme, err = quantize.ParseScheme(c.scheme); err != nil {
				t.Fatal(err)
			}
			f, err := quantize.Open(t.Context(), folder, c.opts)
			if err == nil {
				defer f.Close()
				_, err = f.Write(t.Context(), filepath.Join(parent, "out"), nil)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || c.class != nil && !errors.Is(err, c.class) {
				t.Errorf("want …%s… of class %v, got %v", c.want, c.class, err)
			}
			if left := tree(t, parent); len(left) > 0 {
				t.Errorf("left: %v", slices.Sorted(maps.Keys(left)))
			}
		})
	}
}

// TestLeavesNothing: a folder that is there is not touched, and one that is cancelled is not there.
func TestLeavesNothing(t *testing.T) {
	scheme, _ := quantize.ParseScheme("int8")
	f, err := quantize.Open(t.Context(), chat, quantize.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := f.Write(ctx, filepath.Join(parent, "out"), func(int64) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := os.Mkdir(filepath.Join(parent, "there"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(t.Context(), filepath.Join(parent, "there"), func(int64) { t.Error("work was done") }); !errors.Is(err, os.ErrExist) {
		t.Errorf("a folder that is there: %v", err)
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// TestSchemes: what can be written on the command line, and what not.
func TestSchemes(t *testing.T) {
	for text, want := range map[string]quantize.Scheme{
		"int8": {Kind: "int8"}, "int4": {Kind: "int4", Group: 128}, "int4:32": {Kind: "int4", Group: 32}, "int8:64": {Kind: "int8", Group: 64}, "fp8": {Kind: "fp8"},
	} {
		if got, err := quantize.ParseScheme(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "int5", "INT4", "int4:", "int4:0", "int4:12", "int4:-32", "int4:99999999999", "fp8:32", "int4:32:1"} {
		if got, err := quantize.ParseScheme(text); !errors.Is(err, quantize.ErrScheme) {
			t.Errorf("%q is %+v: %v", text, got, err)
		}
	}
}

// TestExperts: experts are quantised, in files that have each by itself, and what chooses among them is not.
func TestExperts(t *testing.T) {
	var tensors []loader.TensorData
	seed := uint32(1)
	add := func(name string, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		numbers := make([]float32, n)
		for i := range numbers {
			seed = seed*1664525 + 1013904223
			numbers[i] = float32(int32(seed)>>16) / (1 << 18)
		}
		tensors = append(tensors, dataOf(name+".weight", tensor.Float16, shape, bytesOf(numbers, tensor.Float16)))
	}
	add("model.embed_tokens", 32, 64)
	add("lm_head", 32, 64)
	add("model.norm", 64)
	const layer = "model.layers.0."
	for name, rows := range map[string]int{"q_proj": 64, "k_proj": 32, "v_proj": 32, "o_proj": 64} {
		add(layer+"self_attn."+name, rows, 64)
	}
	for _, name := range []string{"self_attn.q_norm", "self_attn.k_norm"} {
		add(layer+name, 16)
	}
	for _, name := range []string{"input_layernorm", "post_attention_layernorm"} {
		add(layer+name, 64)
	}
	add(layer+"mlp.gate", 2, 64)
	for _, expert := range []string{"0", "1"} {
		add(layer+"mlp.experts."+expert+".gate_proj", 32, 64)
		add(layer+"mlp.experts."+expert+".up_proj", 32, 64)
		add(layer+"mlp.experts."+expert+".down_proj", 64, 32)
	}
	change := func(c map[string]any) {
		maps.Copy(c, map[string]any{
			"architectures": []string{"Qwen3MoeForCausalLM"}, "model_type": "qwen3_moe", "num_hidden_layers": 1, "num_experts": 2,
			"num_experts_per_tok": 1, "moe_intermediate_size": 32, "vocab_size": 32, "tie_word_embeddings": false, "dtype": "float16",
		})
	}
	to, report := quantised(t, write(t, map[string][]loader.TensorData{"model.safetensors": tensors}, change), "int4:32", quantize.Options{})
	want := []quantize.Kept{{Module: "lm_head", Reason: "in no block"}, {Module: layer + "mlp.gate", Reason: "chooses experts"}}
	if d := cmp.Diff(want, report.Kept); d != "" || len(report.Layers) != 10 {
		t.Errorf("%d layers, kept: %s", len(report.Layers), d)
	}
	if text := tree(t, to)["config.json"]; !strings.Contains(text, `"`+layer+`mlp.gate"`) {
		t.Errorf("readers are not told that the router stays: %s", text)
	}
	model := build(t, to)
	var plain []loader.TensorData
	for _, w := range model.Weights() {
		plain = append(plain, dataOf(w.Name, tensor.Float16, w.Layout.Shape, bytesOf(numbersOf(t, w), tensor.Float16)))
	}
	if reference := write(t, map[string][]loader.TensorData{"model.safetensors": plain}, change); !bytes.Equal(logits(t, model), logits(t, build(t, reference))) {
		t.Error("it computes other than the dequantised weights")
	}
}
