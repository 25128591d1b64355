package quantize_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/quantize"
	"github.com/optimem/optimem/tensor"
)

// inGGUF makes a GGUF file of a folder.
func inGGUF(t *testing.T, folder string, opts quantize.GGUFOptions) (string, *quantize.Report) {
	t.Helper()
	g, err := quantize.OpenGGUF(t.Context(), folder, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	to, told := filepath.Join(t.TempDir(), "out.gguf"), int64(0)
	report, err := g.Write(t.Context(), to, func(n int64) { told += n })
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(to); err != nil || told != g.WorkBytes || info.Size() != g.OutBytes {
		t.Errorf("%d bytes of %d were told of, %v: %v", told, g.WorkBytes, info, err)
	}
	return to, report
}

// ggufFolder is the chat model's folder in a dtype, with its tokenizer.
func ggufFolder(t *testing.T, dtype tensor.DType, change func(map[string]any)) string {
	t.Helper()
	folder := write(t, map[string][]loader.TensorData{"model.safetensors": chatTensors(t, dtype)}, change)
	putTokenizer(t, folder)
	return folder
}

// putTokenizer puts the chat model's tokenizer into a folder.
func putTokenizer(t *testing.T, folder string) {
	t.Helper()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
		text, err := os.ReadFile(filepath.Join(chat, name))
		if err != nil {
			t.Fatal(err)
		}
		put(t, folder, name, string(text))
	}
}

// chatWords is how many tokens the chat model has.
const chatWords = 420

// TestGGUFOfExperts: of folders with experts in one tensor and one by one the same file is made, off by what is told and no more; one
// that keeps all computes the same.
func TestGGUFOfExperts(t *testing.T) {
	for _, kind := range []string{"qwen3_moe", "mixtral"} {
		k := stackKinds[kind]
		k.words = chatWords
		stacked, apart := k.folder(t, true), k.folder(t, false)
		putTokenizer(t, stacked)
		putTokenizer(t, apart)
		for _, to := range []string{"q8_0", "q4_k"} {
			want, report := inGGUF(t, apart, quantize.GGUFOptions{Kind: to})
			got, _ := inGGUF(t, stacked, quantize.GGUFOptions{Kind: to, MemoryBytes: 8 << 10})
			for name, bits := range contents(t, want) {
				if contents(t, got)[name] != bits {
					t.Errorf("%s as %s: %s is another", kind, to, name)
				}
			}
			if want := stackLayers*(4+3) + 2; len(report.Layers) != want || len(report.Kept) > 0 {
				t.Errorf("%s as %s: %d layers, want %d; kept %v", kind, to, len(report.Layers), want, report.Kept)
			}
			var lost, all float64
			original := open(t, stacked)
			for _, w := range build(t, want).Weights() {
				base, which, of := strings.Cut(w.Name, ".experts.")
				if !of {
					continue
				}
				stack, half := which, 0
				if which != "down_proj" {
					stack = "gate_up_proj"
				}
				if which == "up_proj" {
					half = 1
				}
				from, ok := original.Weight(base + ".experts." + stack)
				if !ok {
					t.Fatalf("%s: no tensor for %s", kind, w.Name)
				}
				x, y := numbersOf(t, from), numbersOf(t, w)
				const size = stackInner * stackHidden
				parts := len(x) / len(y)
				for i := range y {
					v := x[(i/size*parts+half)*size+i%size]
					lost, all = lost+math.Pow(float64(v-y[i]), 2), all+float64(v)*float64(v)
				}
			}
			if off := math.Sqrt(lost / all); !(off > 0 && off < map[string]float64{"q8_0": 0.006, "q4_k": 0.06}[to]) {
				t.Errorf("%s as %s: experts are off by %v", kind, to, off)
			}
		}
		kept, report := inGGUF(t, stacked, quantize.GGUFOptions{Kind: "q8_0", Keep: []string{"*"}})
		if !slices.Contains(report.Kept, quantize.Kept{Module: "model.layers.1.mlp.experts.up_proj", Reason: "--keep *"}) {
			t.Errorf("%s: kept %v", kind, report.Kept)
		}
		if !bytes.Equal(logits(t, build(t, stacked)), logits(t, build(t, kept))) {
			t.Errorf("%s: a file that keeps all computes something else", kind)
		}
	}
}

// TestGGUFOfExpertsRefuses: experts that are missing, of other sizes, or that the file would not say.
func TestGGUFOfExpertsRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		set   map[string]any
		class error
		want  string
	}{
		"fewer":          {map[string]any{"num_experts": stackExperts - 1}, loader.ErrFormat, "does not fit 4 experts"},
		"more":           {map[string]any{"num_experts": stackExperts + 1}, loader.ErrFormat, "expert 5 is missing"},
		"none":           {map[string]any{"num_experts": 0}, loader.ErrFormat, "0 experts"},
		"not normalized": {map[string]any{"norm_topk_prob": false}, loader.ErrUnsupported, "not normalized"},
		"dense layers":   {map[string]any{"mlp_only_layers": []int{1}}, loader.ErrUnsupported, "without experts"},
		"few layers":     {map[string]any{"num_hidden_layers": 1}, loader.ErrFormat, "in block 1 of 1"},
		"many layers":    {map[string]any{"num_hidden_layers": 3}, loader.ErrFormat, "6 tensors of experts, of 9"},
	} {
		k := stackKinds["qwen3_moe"]
		k.words = chatWords
		k.config = maps.Clone(k.config)
		maps.Copy(k.config, c.set)
		folder := k.folder(t, true)
		putTokenizer(t, folder)
		if _, err := quantize.OpenGGUF(t.Context(), folder, quantize.GGUFOptions{Kind: "q8_0"}); !errors.Is(err, c.class) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want …%s… of class %v, got %v", name, c.want, c.class, err)
		}
	}
}

// TestGGUF: the weights of a file that is read as the model are those of the folder, off by what is told and no more,
// under the same names, and rows lie where they were; the file is the same whatever the memory, and what is kept has
// every bit.
func TestGGUF(t *testing.T) {
	for _, dtype := range []tensor.DType{tensor.BFloat16, tensor.Float32, tensor.Float16} {
		folder := ggufFolder(t, dtype, func(map[string]any) {})
		original := open(t, folder)
		for kind, most := range map[string]float64{"q8_0": 0.006, "q6_k": 0.006, "q4_k": 0.06, "q4_1": 0.09, "q4_0": 0.11} {
			to, report := inGGUF(t, folder, quantize.GGUFOptions{Kind: kind})
			if len(report.Layers) != 15 || len(report.Kept) != 0 || !(report.Error > 0 && report.Error < most) {
				t.Errorf("%s: %d layers are off by %.4f", kind, len(report.Layers), report.Error)
			}
			model := build(t, to)
			var lost, all float64
			for _, w := range model.Weights() {
				from, ok := original.Weight(w.Name)
				if !ok {
					t.Fatalf("%s: no tensor of the folder is %s", kind, w.Name)
				}
				x, y := numbersOf(t, from), numbersOf(t, w)
				if len(w.Layout.Shape) == 1 {
					for i := range x {
						if x[i] != y[i] {
							t.Fatalf("%s: %s changed", kind, w.Name)
						}
					}
					continue
				}
				for i := range x {
					d := float64(x[i]) - float64(y[i])
					lost, all = lost+d*d, all+float64(x[i])*float64(x[i])
				}
			}
			if got := math.Sqrt(lost / all); math.Abs(got-report.Error) > 1e-4*got {
				t.Errorf("%s: off by %.6f, and %.6f is told", kind, got, report.Error)
			}
			little, _ := inGGUF(t, folder, quantize.GGUFOptions{Kind: kind, MemoryBytes: 8 << 10})
			a, err := os.ReadFile(to)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(little); err != nil || !bytes.Equal(a, b) {
				t.Errorf("%s: another file with little memory, %v", kind, err)
			}
		}
		kept, report := inGGUF(t, folder, quantize.GGUFOptions{Kind: "q8_0", Keep: []string{"*"}})
		if len(report.Kept) != 15 || len(report.Layers) != 0 {
			t.Errorf("%v: %d layers are kept", dtype, len(report.Kept))
		}
		if !bytes.Equal(logits(t, build(t, folder)), logits(t, build(t, kept))) {
			t.Errorf("%v: a file that keeps all computes something else", dtype)
		}
	}
}

// TestGGUFRefuses: what a file would not say, or would say wrongly, is refused, and nothing is left.
func TestGGUFRefuses(t *testing.T) {
	with := func(key string, value any) func(map[string]any) { return func(c map[string]any) { c[key] = value } }
	for name, c := range map[string]struct {
		change func(map[string]any)
		remove string
		opts   quantize.GGUFOptions
		class  error
		want   string
	}{
		"a type":       {change: with("model_type", "gemma3_text"), class: loader.ErrUnsupported, want: "gemma3_text"},
		"quantised":    {change: with("quantization_config", map[string]any{"quant_method": "awq"}), class: loader.ErrUnsupported, want: "already"},
		"a window":     {change: with("sliding_window", 16), class: loader.ErrUnsupported, want: "sliding window"},
		"an ending":    {change: with("hidden_act", "gelu"), class: loader.ErrUnsupported, want: "gelu"},
		"angles":       {change: with("rope_parameters", map[string]any{"rope_type": "longrope"}), class: loader.ErrUnsupported, want: "longrope"},
		"heads":        {change: with("num_attention_heads", 3), class: loader.ErrFormat, want: "rows for 3 heads"},
		"no heads":     {change: with("num_attention_heads", 0), class: loader.ErrFormat, want: "sizes that no model has"},
		"few layers":   {change: with("num_hidden_layers", 1), class: loader.ErrFormat, want: "in block 1 of 1"},
		"few tokens":   {change: with("vocab_size", 100), class: loader.ErrUnsupported, want: "of 100"},
		"no tokenizer": {remove: "tokenizer.json", class: loader.ErrUnsupported, want: "tokenizer"},
		"a kind":       {opts: quantize.GGUFOptions{Kind: "q9"}, class: quantize.ErrScheme, want: "q9"},
		"a pattern":    {opts: quantize.GGUFOptions{Kind: "q8_0", Keep: []string{"[a"}}, want: "[a"},
		"memory":       {opts: quantize.GGUFOptions{Kind: "q8_0", MemoryBytes: 100}, class: loader.ErrLimit, want: "bytes of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(map[string]any) {}
			}
			folder, parent := ggufFolder(t, tensor.BFloat16, c.change), t.TempDir()
			if c.remove != "" {
				if err := os.Remove(filepath.Join(folder, c.remove)); err != nil {
					t.Fatal(err)
				}
			}
			if c.opts.Kind == "" {
				c.opts.Kind = "q4_0"
			}
			g, err := quantize.OpenGGUF(t.Context(), folder, c.opts)
			if err == nil {
				defer g.Close()
				_, err = g.Write(t.Context(), filepath.Join(parent, "out.gguf"), nil)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || c.class != nil && !errors.Is(err, c.class) {
				t.Errorf("want …%s… of class %v, got %v", c.want, c.class, err)
			}
			if left := tree(t, parent); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
	g, err := quantize.OpenGGUF(t.Context(), ggufFolder(t, tensor.BFloat16, func(map[string]any) {}), quantize.GGUFOptions{Kind: "q8_0"})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := g.Write(ctx, filepath.Join(parent, "out.gguf"), func(int64) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	failed := errors.New("not measured")
	g.BeforeNamed = func(_ context.Context, written string) error {
		if _, err := os.Stat(written); err != nil {
			t.Error(err)
		}
		return failed
	}
	if _, err := g.Write(t.Context(), filepath.Join(parent, "out.gguf"), nil); !errors.Is(err, failed) {
		t.Errorf("not measured: %v", err)
	}
	if left := tree(t, parent); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	put(t, parent, "out.gguf", "mine")
	if _, err := g.Write(t.Context(), filepath.Join(parent, "out.gguf"), nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that is there: %v", err)
	}
}

// TestGGUFAngles: the factors of Llama 3's rotary embeddings are written, and a model that has them computes what the
// folder's does.
func TestGGUFAngles(t *testing.T) {
	folder := ggufFolder(t, tensor.Float32, func(c map[string]any) {
		c["rope_parameters"] = map[string]any{
			"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
			"original_max_position_embeddings": 64,
		}
	})
	to, _ := inGGUF(t, folder, quantize.GGUFOptions{Kind: "q8_0", Keep: []string{"*"}})
	if w, ok := open(t, to).Weight("rope_freqs.weight"); !ok || w.NumElements() != 8 {
		t.Fatalf("no factors: %v", w)
	}
	want, got := logits(t, build(t, folder)), logits(t, build(t, to))
	for i := 0; i < len(want); i += 4 {
		a := math.Float32frombits(binary.NativeEndian.Uint32(want[i:]))
		b := math.Float32frombits(binary.NativeEndian.Uint32(got[i:]))
		if math.Abs(float64(a-b)) > 1e-3*(1+math.Abs(float64(a))) {
			t.Fatalf("number %d is %v, not %v", i/4, b, a)
		}
	}
}
