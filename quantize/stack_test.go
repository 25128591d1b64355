package quantize_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/quantize"
	"github.com/optimem/optimem/quantize/moments"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// The sizes of small models of experts.
const stackHidden, stackInner, stackExperts, stackLayers, stackWords = 64, 96, 5, 2, 40

// A stackKind is a type of model whose folders may have all experts in one tensor.
type stackKind struct {
	// turned has tensors [experts, in, out] whose gates and ups take turns, and biases.
	turned bool
	// bare has no norms of heads.
	bare bool
	// words are those of its vocabulary, 0 for stackWords.
	words  int
	config map[string]any
}

var stackKinds = map[string]stackKind{
	"qwen3_moe": {config: map[string]any{
		"architectures": []string{"Qwen3MoeForCausalLM"}, "model_type": "qwen3_moe", "num_experts": stackExperts,
		"moe_intermediate_size": stackInner, "norm_topk_prob": true,
	}},
	"mixtral": {bare: true, config: map[string]any{
		"architectures": []string{"MixtralForCausalLM"}, "model_type": "mixtral", "num_local_experts": stackExperts,
		"intermediate_size": stackInner, "sliding_window": nil,
	}},
	"gpt_oss": {turned: true, config: map[string]any{
		"architectures": []string{"GptOssForCausalLM"}, "model_type": "gpt_oss", "num_local_experts": stackExperts,
		"intermediate_size": stackInner, "sliding_window": 4, "swiglu_limit": 2.0,
	}},
}

// folder makes a model with random weights, with the weights of experts in one tensor or one by one. They are the same numbers.
func (k stackKind) folder(t *testing.T, stacked bool) string {
	t.Helper()
	if k.words == 0 {
		k.words = stackWords
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var list []loader.TensorData
	add := func(name string, numbers []float32, shape ...int) {
		list = append(list, dataOf(name, tensor.BFloat16, shape, bytesOf(numbers, tensor.BFloat16)))
	}
	random := func(mean, spread float32, n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = mean + spread*(2*rng.Float32()-1)
		}
		return x
	}
	plain := func(name string, mean, spread float32, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		add(name, random(mean, spread, n), shape...)
	}
	plain("model.embed_tokens.weight", 0, 1, k.words, stackHidden)
	plain("lm_head.weight", 0, 0.3, k.words, stackHidden)
	plain("model.norm.weight", 1, 0.1, stackHidden)
	for i := range stackLayers {
		p := fmt.Sprintf("model.layers.%d.", i)
		plain(p+"input_layernorm.weight", 1, 0.1, stackHidden)
		plain(p+"post_attention_layernorm.weight", 1, 0.1, stackHidden)
		for j, name := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
			n := []int{64, 32, 32, 64}[j]
			plain(p+"self_attn."+name+".weight", 0, 0.2, n, stackHidden)
			if k.turned {
				plain(p+"self_attn."+name+".bias", 0, 0.1, n)
			}
		}
		if k.turned {
			plain(p+"self_attn.sinks", 0, 1, 4)
			plain(p+"mlp.router.weight", 0, 0.3, stackExperts, stackHidden)
			plain(p+"mlp.router.bias", 0, 0.1, stackExperts)
		} else {
			if !k.bare {
				plain(p+"self_attn.q_norm.weight", 1, 0.1, 16)
				plain(p+"self_attn.k_norm.weight", 1, 0.1, 16)
			}
			plain(p+"mlp.gate.weight", 0, 0.3, stackExperts, stackHidden)
		}
		const size = stackInner * stackHidden
		both, down := make([]float32, stackExperts*2*size), make([]float32, stackExperts*size)
		bothBias, downBias := make([]float32, stackExperts*2*stackInner), make([]float32, stackExperts*stackHidden)
		for e := range stackExperts {
			of := map[string][]float32{"gate_proj": random(0, 0.3, size), "up_proj": random(0, 0.3, size), "down_proj": random(0, 0.3, size)}
			bias := map[string][]float32{
				"gate_proj": random(0, 0.1, stackInner), "up_proj": random(0, 0.1, stackInner), "down_proj": random(0, 0.1, stackHidden),
			}
			for half, name := range []string{"gate_proj", "up_proj"} {
				for r := range stackInner {
					row := half*stackInner + r
					if k.turned {
						row = 2*r + half
					}
					bothBias[e*2*stackInner+row] = bias[name][r]
					for c := range stackHidden {
						at := row*stackHidden + c
						if k.turned {
							at = c*2*stackInner + row
						}
						both[e*2*size+at] = of[name][r*stackHidden+c]
					}
				}
			}
			copy(downBias[e*stackHidden:], bias["down_proj"])
			for r := range stackHidden {
				for c := range stackInner {
					at := r*stackInner + c
					if k.turned {
						at = c*stackHidden + r
					}
					down[e*size+at] = of["down_proj"][r*stackInner+c]
				}
			}
			for _, name := range []string{"gate_proj", "up_proj", "down_proj"} {
				rows, columns := stackInner, stackHidden
				if name == "down_proj" {
					rows, columns = columns, rows
				}
				one := fmt.Sprintf("%smlp.experts.%d.%s", p, e, name)
				if !stacked {
					add(one+".weight", of[name], rows, columns)
				}
				if !stacked && k.turned {
					add(one+".bias", bias[name], rows)
				}
			}
		}
		switch {
		case stacked && k.turned:
			add(p+"mlp.experts.gate_up_proj", both, stackExperts, stackHidden, 2*stackInner)
			add(p+"mlp.experts.gate_up_proj_bias", bothBias, stackExperts, 2*stackInner)
			add(p+"mlp.experts.down_proj", down, stackExperts, stackInner, stackHidden)
			add(p+"mlp.experts.down_proj_bias", downBias, stackExperts, stackHidden)
		case stacked:
			add(p+"mlp.experts.gate_up_proj", both, stackExperts, 2*stackInner, stackHidden)
			add(p+"mlp.experts.down_proj", down, stackExperts, stackHidden, stackInner)
		}
	}
	return write(t, map[string][]loader.TensorData{"model.safetensors": list}, func(c map[string]any) {
		maps.Copy(c, map[string]any{
			"num_experts_per_tok": 2, "vocab_size": k.words, "num_hidden_layers": stackLayers, "tie_word_embeddings": false, "dtype": "bfloat16",
			"attention_bias": k.turned, "hidden_size": stackHidden, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
		})
		maps.Copy(c, k.config)
	})
}

// contents are the tensors of a folder by name, their dtypes and shapes with them.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, w := range open(t, folder).Weights {
		c, err := w.Contents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all[w.Name] = fmt.Sprint(w.DType, w.Layout.Shape, " ") + string(c.Data)
	}
	return all
}

// sameContents compares the tensors of two folders.
func sameContents(t *testing.T, got, want map[string]string) {
	t.Helper()
	if d := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); d != "" {
		t.Fatalf("other tensors: %s", d)
	}
	for name, bits := range want {
		if got[name] != bits {
			t.Errorf("%s is another", name)
		}
	}
}

// TestStackedExperts: of experts in one tensor, as they lie or turned, become the codes, the scales and the errors that experts have
// which are tensors of their own, whatever the memory; and the model has their bits, also where only some are in memory.
func TestStackedExperts(t *testing.T) {
	for kind, k := range stackKinds {
		stacked, apart := k.folder(t, true), k.folder(t, false)
		if !bytes.Equal(logits(t, build(t, stacked)), logits(t, build(t, apart))) {
			t.Fatalf("%s: the test's experts one by one are others than those in one tensor", kind)
		}
		for _, scheme := range []string{"int8", "int4:32", "fp8"} {
			t.Run(kind+"/"+scheme, func(t *testing.T) {
				want, wantReport := quantised(t, apart, scheme, quantize.Options{})
				got, report := quantised(t, stacked, scheme, quantize.Options{MemoryBytes: 20 << 10})
				sameContents(t, contents(t, got), contents(t, want))
				for _, r := range []*quantize.Report{report, wantReport} {
					slices.SortFunc(r.Layers, func(a, b quantize.Layer) int { return strings.Compare(a.Module, b.Module) })
					slices.SortFunc(r.Kept, func(a, b quantize.Kept) int { return strings.Compare(a.Module, b.Module) })
				}
				if d := cmp.Diff(wantReport.Layers, report.Layers, cmp.FilterPath(func(p cmp.Path) bool {
					return strings.ToLower(p.Last().String()) == p.Last().String() // fields that are not exported
				}, cmp.Ignore())); d != "" || len(report.Layers) != stackLayers*(4+3*stackExperts) {
					t.Errorf("%d layers: %s", len(report.Layers), d)
				}
				if d := cmp.Diff(wantReport.Kept, report.Kept); d != "" || report.BytesBefore != wantReport.BytesBefore {
					t.Errorf("%d bytes before, kept: %s", report.BytesBefore, d)
				}
				if a, b := tree(t, got)["config.json"], tree(t, want)["config.json"]; a != b {
					t.Errorf("the configuration is %s, want %s", a, b)
				}
				checkSlots(t, build(t, got))
			})
		}
	}
}

// checkSlots runs a model with all experts in memory and with few.
func checkSlots(t *testing.T, model *models.Model) {
	t.Helper()
	want := logits(t, model)
	run := func(memory int64) (*plan.Plan, optimem.Metrics) {
		session, err := optimem.Start(t.Context(), model, optimem.Options{Mode: plan.Page, Memory: memory})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		p, err := session.Plan(t.Context(), map[string]tensor.Shape{"input_ids": {1, 8}})
		if err != nil {
			t.Fatal(err)
		}
		out, err := session.Run(t.Context(), optimem.Values{"input_ids": tensor.Of([]int64{3, 1, 4, 1, 5, 9, 2, 6}, 1, 8)})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out["logits"].Data, want) {
			t.Errorf("other bits in %d bytes", memory)
		}
		return p, session.Metrics()
	}
	p, _ := run(0)
	if _, m := run(p.MinBytes); m.ExpertReads == 0 {
		t.Error("no experts are in slots")
	}
}

// TestStackedExpertsCalibrated: with a calibration, too, they have the codes of experts which are tensors of their own.
func TestStackedExpertsCalibrated(t *testing.T) {
	words := make([]uint32, 300)
	for i := range words {
		words[i] = uint32(i*i+i/7) % 40
	}
	for kind, k := range stackKinds {
		var folders []string
		for _, stacked := range []bool{false, true} {
			folder := k.folder(t, stacked)
			text, err := moments.Of(build(t, folder), words, moments.Options{Context: 100})
			if err != nil {
				t.Fatal(err)
			}
			to, report := quantised(t, folder, "int4:32", quantize.Options{Calibration: text})
			folders = append(folders, to)
			for _, l := range report.Layers {
				if strings.Contains(l.Module, "experts") && (!l.Routed || l.Calibrated != (l.RoutedRows >= l.Columns/4)) {
					t.Errorf("%s: %+v", kind, l)
				}
			}
		}
		sameContents(t, contents(t, folders[1]), contents(t, folders[0]))
	}
}

// TestStackedExpertsThatStay: layers of experts that stay are tensors of each where others become codes, and one tensor where none does.
func TestStackedExpertsThatStay(t *testing.T) {
	for kind, k := range stackKinds {
		keep := quantize.Options{Keep: []string{"*.1.down_proj", "*.gate_proj"}}
		want, _ := quantised(t, k.folder(t, false), "int4:32", keep)
		got, report := quantised(t, k.folder(t, true), "int4:32", keep)
		sameContents(t, contents(t, got), contents(t, want))
		if kept := len(report.Kept) - 1 - stackLayers; kept != stackLayers*(stackExperts+1) {
			t.Errorf("%s: %d layers of experts are kept", kind, kept)
		}
		if !bytes.Equal(logits(t, build(t, got)), logits(t, build(t, want))) {
			t.Errorf("%s: other bits than those of experts one by one", kind)
		}
		keep.Keep = []string{"*.experts.*"}
		folder := k.folder(t, true)
		got, report = quantised(t, folder, "int4:32", keep)
		before := contents(t, folder)
		for name, bits := range contents(t, got) {
			if strings.Contains(name, "experts") && before[name] != bits {
				t.Errorf("%s: %s is another", kind, name)
			}
		}
		reason := quantize.Kept{Module: "model.layers.0.mlp.experts.down_proj", Reason: "--keep *.experts.*"}
		if !slices.Contains(report.Kept, reason) || len(report.Layers) != 4*stackLayers {
			t.Errorf("%s: %d layers, kept %v", kind, len(report.Layers), report.Kept)
		}
	}
}

// TestStackedGranite: tensors of all experts may have other names.
func TestStackedGranite(t *testing.T) {
	k := stackKinds["qwen3_moe"]
	folder := k.folder(t, true)
	var list []loader.TensorData
	names := strings.NewReplacer(".mlp.experts.gate_up_proj", ".block_sparse_moe.input_linear.weight",
		".mlp.experts.down_proj", ".block_sparse_moe.output_linear.weight", ".mlp.gate.", ".block_sparse_moe.router.layer.")
	for _, w := range open(t, folder).Weights {
		if strings.Contains(w.Name, "_norm.") {
			continue
		}
		c, err := w.Contents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, dataOf(names.Replace(w.Name), w.DType, w.Layout.Shape, c.Data))
	}
	granite := write(t, map[string][]loader.TensorData{"model.safetensors": list}, func(c map[string]any) {
		maps.Copy(c, map[string]any{
			"architectures": []string{"GraniteMoeForCausalLM"}, "model_type": "granitemoe", "num_local_experts": stackExperts,
			"intermediate_size": stackInner, "num_experts_per_tok": 2, "vocab_size": stackWords, "num_hidden_layers": stackLayers,
			"tie_word_embeddings": false, "dtype": "bfloat16", "hidden_size": stackHidden, "num_attention_heads": 4,
			"num_key_value_heads": 2, "max_position_embeddings": 128,
		})
	})
	to, report := quantised(t, granite, "int4:32", quantize.Options{})
	if len(report.Layers) != stackLayers*(4+3*stackExperts) {
		t.Errorf("%d layers", len(report.Layers))
	}
	checkSlots(t, build(t, to))
}
