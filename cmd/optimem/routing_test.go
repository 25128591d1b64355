//go:build !files

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// mixtureFolder writes a folder of a small Qwen-MoE with random weights: 3 layers of 16 experts, of which a token goes
// through 4.
func mixtureFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
		text, err := os.ReadFile(filepath.Join(chatModel, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	const layers, experts, named, hidden, inner, vocabulary = 3, 16, 4, 64, 96, 420
	config := fmt.Sprintf(`{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": %d, "num_hidden_layers": %d,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_experts": %d, "num_experts_per_tok": %d,
		"moe_intermediate_size": %d, "intermediate_size": 128, "vocab_size": %d, "max_position_embeddings": 256, "norm_topk_prob": true,
		"tie_word_embeddings": false, "bos_token_id": 0}`, hidden, layers, experts, named, inner, vocabulary)
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	var list []loader.TensorData
	add := func(name string, middle, scale float64, shape ...int) {
		list = append(list, loader.TensorData{Name: name, DType: tensor.BFloat16, Shape: shape, ReadAt: loader.Random{
			Seed: 1, Tensor: uint64(len(list)), DType: tensor.BFloat16, Offset: middle, Scale: scale,
		}.ReadAt})
	}
	add("model.embed_tokens.weight", 0, 1, vocabulary, hidden)
	for l := range layers {
		at := fmt.Sprintf("model.layers.%d.", l)
		add(at+"input_layernorm.weight", 1, 0.1, hidden)
		add(at+"post_attention_layernorm.weight", 1, 0.1, hidden)
		for _, x := range []struct {
			name      string
			rows, ins int
		}{{"q", 64, hidden}, {"k", 32, hidden}, {"v", 32, hidden}, {"o", hidden, 64}} {
			add(at+"self_attn."+x.name+"_proj.weight", 0, 0.2, x.rows, x.ins)
		}
		add(at+"self_attn.q_norm.weight", 1, 0.1, 16)
		add(at+"self_attn.k_norm.weight", 1, 0.1, 16)
		add(at+"mlp.gate.weight", 0, 0.3, experts, hidden)
		for e := range experts {
			add(fmt.Sprintf("%smlp.experts.%d.gate_proj.weight", at, e), 0, 0.2, inner, hidden)
			add(fmt.Sprintf("%smlp.experts.%d.up_proj.weight", at, e), 0, 0.2, inner, hidden)
			add(fmt.Sprintf("%smlp.experts.%d.down_proj.weight", at, e), 0, 0.2, hidden, inner)
		}
	}
	add("model.norm.weight", 1, 0.1, hidden)
	add("lm_head.weight", 0, 0.3, vocabulary, hidden)
	f, err := os.Create(filepath.Join(folder, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if err := loader.WriteSafetensors(context.Background(), f, list, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestRouting: a model with experts writes the same text in less memory, says how many experts were there, and keeps
// what its passes have shown; a trace of it is played again with the counts of the run that wrote it.
func TestRouting(t *testing.T) {
	folder, kept := mixtureFolder(t), t.TempDir()
	t.Setenv("OPTIMEM_CALIBRATION", filepath.Join(kept, "calibration.json"))
	base := []string{"generate", folder, "--raw", "Once upon a time", "--max-tokens", "40", "--context", "96", "--temperature", "1", "--json", "--quiet"}
	type answer struct {
		Text     string
		Peak     int64   `json:"peak_device_bytes"`
		Hits     int64   `json:"expert_hits"`
		Reads    int64   `json:"expert_reads"`
		Moved    float64 `json:"bytes_moved_per_token"`
		Guessed  int     `json:"guessed_tokens"`
		NumToken int     `json:"tokens"`
	}
	write := func(more ...string) (a answer) {
		out, _ := done(t, append(base[:len(base):len(base)], more...)...)
		if err := json.Unmarshal([]byte(out), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	all := write()
	if all.Hits+all.Reads != 0 {
		t.Errorf("where all is in memory %d experts were read", all.Reads)
	}
	trace := filepath.Join(kept, "routing.jsonl")
	budget := fmt.Sprint(all.Peak * 6 / 10)
	some := write("--memory", budget, "--routing", trace)
	if some.Text != all.Text || some.Peak > all.Peak*6/10 || some.Hits == 0 || some.Reads == 0 || some.Guessed != 0 {
		t.Errorf("in less memory %+v, in all %+v", some, all)
	}
	found, err := filepath.Glob(filepath.Join(kept, "routing", "*.json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("kept are %v: %v", found, err)
	}
	type planned struct {
		Slots    int     `json:"expert_slots"`
		Known    bool    `json:"expert_hits_known"`
		Needs    int64   `json:"trace_needs"`
		Reads    int64   `json:"trace_reads"`
		Least    int64   `json:"trace_least_reads"`
		Best     float64 `json:"best_seconds"`
		Expected float64 `json:"expected_seconds_per_token"`
		Worst    float64 `json:"worst_seconds"`
	}
	out, _ := done(t, "plan", folder, "--memory", budget, "--context", "96", "--trace", trace, "--json", "--quiet")
	var p planned
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatal(err)
	}
	if !p.Known || p.Needs != some.Hits+some.Reads || p.Reads != some.Reads || p.Least > p.Reads || p.Least == 0 || p.Slots < 4 ||
		!(p.Best < p.Expected && p.Expected < p.Worst) {
		t.Errorf("%+v, and the run had %+v", p, some)
	}
	out, _ = done(t, "plan", folder, "--memory", budget, "--context", "96", "--trace", trace)
	for _, want := range []string{"experts read", "at worst", "Belady", "16 in each of 3 layers"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if again := write("--memory", budget); again.Text != all.Text || again.Reads != some.Reads {
		t.Errorf("once more %+v, before %+v", again, some)
	}

	// Where layers share slots, how many are there is known, too.
	sharing := false
	for percent := int64(59); percent > 20 && !sharing; percent -= 3 {
		few := fmt.Sprint(all.Peak * percent / 100)
		var q struct {
			Slots int     `json:"expert_slots"`
			Known bool    `json:"expert_hits_known"`
			Hits  float64 `json:"expert_hits_expected"`
		}
		out, _, code := execute(t, "plan", folder, "--memory", few, "--context", "96", "--json", "--quiet")
		if code != 0 {
			break
		}
		if err := json.Unmarshal([]byte(out), &q); err != nil {
			t.Fatal(err)
		}
		if sharing = q.Slots < 3*4; sharing && (!q.Known || q.Hits < 0 || q.Hits > 0.75) {
			t.Errorf("with %d slots %+v", q.Slots, q)
		}
	}
	if !sharing {
		t.Error("no budget has layers share slots")
	}

	// A record as versions before wrote it still says how many are there.
	var record map[string]map[string]any
	text, err := os.ReadFile(found[0])
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	if err != nil || len(record) != 3 {
		t.Fatalf("%d layers in the record: %v", len(record), err)
	}
	for _, layer := range record {
		layer["distances"] = layer["ranks"]
		delete(layer, "ranks")
	}
	if text, err = json.Marshal(record); err == nil {
		err = os.WriteFile(found[0], text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	var earlier planned
	out, _ = done(t, "plan", folder, "--memory", budget, "--context", "96", "--trace", trace, "--json", "--quiet")
	if err := json.Unmarshal([]byte(out), &earlier); err != nil || !earlier.Known || earlier.Slots != p.Slots {
		t.Errorf("with an earlier record %+v, before %+v: %v", earlier, p, err)
	}

	// What is no trace, and no record of routing.
	bad := filepath.Join(kept, "bad.jsonl")
	for text, code := range map[string]int{"{": command.ExitUnsafe, `{"layer":"x","experts":[1]}`: command.ExitUnsafe, `{"layer":"x","experts":[99999]}`: command.ExitUnsafe} {
		if err := os.WriteFile(bad, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, stderr, got := execute(t, "plan", folder, "--memory", budget, "--context", "96", "--trace", bad); got != code || !strings.Contains(stderr, "bad.jsonl") && !strings.Contains(stderr, "layers") {
			t.Errorf("%s: exit code %d: %s", text, got, stderr)
		}
	}
	for _, text := range []string{"[", `{"x": {"distances": [-1]}}`, `{"x": {"first": -3}}`, `{"x": {"ranks": [1], "distances": [1, 2]}}`} {
		if err := os.WriteFile(found[0], []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		_, stderr := done(t, "plan", folder, "--memory", budget, "--context", "96")
		if !strings.Contains(stderr, "no record of routing") {
			t.Errorf("%s: %s", text, stderr)
		}
	}
}
