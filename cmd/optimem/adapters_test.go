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

// adapterFor writes an adapter of a Llama of two layers, whose products add much or little, and returns its folder.
func adapterFor(t *testing.T, hidden, queries int, strength float32) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "small")
	config := fmt.Sprintf(`{"peft_type": "LORA", "r": 2, "lora_alpha": %v, "target_modules": ["q_proj"], "layers_to_transform": [0]}`, strength)
	var list []loader.TensorData
	for name, shape := range map[string][]int{"A": {2, hidden}, "B": {queries, 2}} {
		data := make([]float32, shape[0]*shape[1])
		for i := range data {
			data[i] = float32(i*7%11)/5 - 1
		}
		x := tensor.Of(data, shape...)
		list = append(list, loader.TensorData{
			Name: "base_model.model.model.layers.0.self_attn.q_proj.lora_" + name + ".weight", DType: x.DType, Shape: shape,
			ReadAt: readerOf(x),
		})
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := loader.WriteSafetensors(t.Context(), f, list, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestAdaptersOfText: --lora changes what is written, --adapter says which one is used, and the lines of a batch may say it
// themselves; without one the text is the model's own.
func TestAdaptersOfText(t *testing.T) {
	loud, silent := adapterFor(t, 64, 64, 40), adapterFor(t, 64, 64, 0)
	question := []string{"generate", chatModel, "What is the capital of Peru?", "--quiet", "--max-tokens", "12"}
	own, _ := done(t, question...)
	changed, _ := done(t, append(question, "--lora", loud)...)
	if changed == own {
		t.Fatalf("the adapter changes nothing: %q", own)
	}
	both := append(question, "--lora", "loud="+loud, "--lora", "silent="+silent)
	for name, want := range map[string]string{"loud": changed, "silent": own, "none": own} {
		for _, mode := range []string{"page", "resident"} {
			if got, _ := done(t, append(both, "--adapter", name, "--mode", mode)...); got != want {
				t.Errorf("%s, %s: %q, want %q", name, mode, got, want)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "lines.jsonl")
	var lines []string
	for i, lora := range []string{"", `, "lora": "loud"`, `, "lora": "silent"`, `, "lora": "none"`, `, "lora": null`} {
		lines = append(lines, fmt.Sprintf(`{"id": %d, "prompt": "What is the capital of Peru?"%s}`, i, lora))
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := done(t, "generate", chatModel, "--batch", file, "--quiet", "--max-tokens", "12", "--lora", "loud="+loud, "--lora", "silent="+silent)
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var answer struct{ Text string }
		if err := json.Unmarshal([]byte(line), &answer); err != nil {
			t.Fatal(err)
		}
		want := own
		if i == 1 {
			want = changed
		}
		if answer.Text != strings.TrimSuffix(want, "\n") {
			t.Errorf("line %d: %q, want %q", i, answer.Text, want)
		}
	}
	if err := os.WriteFile(file, []byte(`{"prompt": "x", "lora": "nobody"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, text, code := execute(t, "generate", chatModel, "--batch", file, "--lora", loud); code != command.ExitUsage || !strings.Contains(text, "nobody") {
		t.Errorf("exit code %d, %s", code, text)
	}
}

// TestAdaptersOfRuns: run, plan and embed compute with an adapter, which is part of what the plan takes.
func TestAdaptersOfRuns(t *testing.T) {
	const llama = "../../models/testdata/families/hf/tiny_llama"
	loud, silent := adapterFor(t, 16, 16, 40), adapterFor(t, 16, 16, 0)
	outputs := func(args ...string) string {
		out, _ := done(t, append([]string{"run", llama, "--input", llama + "/ids.npy", "--json", "--quiet"}, args...)...)
		var all struct{ Outputs json.RawMessage }
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Fatal(err)
		}
		return string(all.Outputs)
	}
	own := outputs()
	if outputs("--lora", loud) == own || outputs("--lora", silent) != own || outputs("--lora", loud, "--adapter", "none") != own ||
		outputs("--lora", "a="+silent, "--lora", "b="+loud, "--adapter", "a") != own {
		t.Error("the outputs are not those of the adapter that was named")
	}
	least := func(args ...string) (bytes int64) {
		out, _ := done(t, append([]string{"plan", llama, "--json", "--quiet", "--mode", "page"}, args...)...)
		var plan struct {
			Moved int64 `json:"bytes_moved_per_run"`
		}
		if err := json.Unmarshal([]byte(out), &plan); err != nil {
			t.Fatal(err)
		}
		return plan.Moved
	}
	if base, with, without := least(), least("--lora", loud), least("--lora", loud, "--adapter", "none"); with <= base || without != base {
		t.Errorf("%d bytes are brought, %d with the adapter, %d where it is not used", base, with, without)
	}
	vectors := func(args ...string) string {
		out, _ := done(t, append([]string{"embed", chatModel, "Hello", "Count to ten.", "--json", "--quiet"}, args...)...)
		var all struct{ Embeddings json.RawMessage }
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Fatal(err)
		}
		return string(all.Embeddings)
	}
	if v := vectors(); vectors("--lora", adapterFor(t, 64, 64, 0)) != v || vectors("--lora", adapterFor(t, 64, 64, 40)) == v {
		t.Error("vectors are not those of the adapter")
	}
}

// TestAdapterErrors: each mistake has the exit code of its kind.
func TestAdapterErrors(t *testing.T) {
	good, other := adapterFor(t, 64, 64, 1), adapterFor(t, 48, 64, 1)
	empty := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--adapter", "small"}, command.ExitUsage, "--adapter small"},
		{[]string{"--lora", good, "--adapter", "large"}, command.ExitUsage, "--adapter large"},
		{[]string{"--lora", good, "--lora", other}, command.ExitUsage, "NAME=DIR"},
		{[]string{"--lora", "a=" + good, "--lora", "b=" + other}, command.ExitUsage, "--adapter a"},
		{[]string{"--lora", "none=" + good}, command.ExitUsage, "NAME=DIR"},
		{[]string{"--lora", "=" + good}, command.ExitUsage, "NAME=DIR"},
		{[]string{"--lora", filepath.Join(good, "missing")}, command.ExitFailed, "missing"},
		{[]string{"--lora", empty}, command.ExitUnsupported, "adapter_config.json"},
		{[]string{"--lora", other}, command.ExitUnsafe, "q_proj.lora_A.weight"},
	} {
		out, text, code := execute(t, append([]string{"generate", chatModel, "Hello"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(text, c.text) {
			t.Errorf("%q: exit code %d, want %d: %q %q", c.args, code, c.code, out, text)
		}
	}
}

func readerOf(x *tensor.Tensor) func(context.Context, []byte, int64) error {
	return func(_ context.Context, p []byte, at int64) error {
		copy(p, x.Data[at:])
		return nil
	}
}
