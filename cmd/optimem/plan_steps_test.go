//go:build !files

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
)

// TestPlanText: plan says what writing text takes: keys and values to the byte as generate takes them, the peak that it has, and how
// many tokens a second to expect, more for several texts where weights are paged.
func TestPlanText(t *testing.T) {
	type planned struct {
		Context, Sequences int
		KV                 string
		KVBytes            int64   `json:"kv_bytes"`
		Peak               int64   `json:"peak_device_bytes"`
		Least              int64   `json:"min_memory_bytes"`
		PerPass            int64   `json:"bytes_moved_per_pass"`
		PerToken           float64 `json:"bytes_moved_per_token"`
		Rate               float64 `json:"expected_tokens_per_second"`
		Prompt             float64 `json:"expected_prompt_tokens_per_second"`
		Seconds            float64 `json:"expected_seconds_per_token"`
		Bound              string
		Groups             []struct{ Path string }
	}
	of := func(args ...string) (p planned) {
		t.Helper()
		out, _ := done(t, append([]string{"plan", chatModel, "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	one := of("--mode", "page", "--context", "128")
	four := of("--mode", "page", "--context", "128", "--sequences", "4")
	wide := of("--mode", "page", "--context", "128", "--sequences", "4", "--kv", "fp32")
	// Two layers of two heads of 16 numbers, keys and values.
	const token = 2 * 2 * 2 * 16
	if one.KVBytes != 128*token*2 || four.KVBytes != 4*one.KVBytes || wide.KVBytes != 2*four.KVBytes || one.KV != "bfloat16" || wide.KV != "float32" {
		t.Errorf("keys and values take %d, %d, %d bytes: %+v", one.KVBytes, four.KVBytes, wide.KVBytes, one)
	}
	if rounded := of("--context", "128", "--kv", "int8"); rounded.KVBytes != 128*(token+2*2*2*4) || rounded.KV != "int8" {
		t.Errorf("as int8: %+v", rounded)
	}
	if one.Context != 128 || one.Sequences != 1 || four.Sequences != 4 || len(one.Groups) < 20 || one.PerPass == 0 ||
		four.PerToken*4 != float64(four.PerPass) || one.PerToken != float64(one.PerPass) || one.Bound != "disk" {
		t.Errorf("%+v %+v", one, four)
	}
	if !(one.Rate > 0 && four.Rate > 2*one.Rate && four.Prompt > four.Rate) || one.Seconds*one.Rate < 0.999 || one.Seconds*one.Rate > 1.001 {
		t.Errorf("%v, %v tokens a second; a prompt's %v; a token in %v s", one.Rate, four.Rate, four.Prompt, one.Seconds)
	}
	out, _ := done(t, "generate", chatModel, "Hello", "--mode", "page", "--context", "128", "--json")
	var ran struct {
		KV   int64 `json:"kv_bytes"`
		Peak int64 `json:"peak_device_bytes"`
	}
	if err := json.Unmarshal([]byte(out), &ran); err != nil || ran.KV != one.KVBytes || ran.Peak > one.Peak {
		t.Errorf("%+v where %+v was planned: %v", ran, one, err)
	}
	if again := of("--mode", "page", "--context", "128", "--memory", fmt.Sprint(one.Least)); again.Peak > one.Least {
		t.Errorf("the least, %d, does not do: %+v", one.Least, again)
	}
	text, _ := done(t, "plan", chatModel, "--context", "128", "--sequences", "4", "--mode", "page")
	for _, want := range []string{"4 of 128 tokens, their keys and values 128.00 KiB as bfloat16", "a second of all 4 texts", "for a token of each text", "bound by disk"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nhas no %q", text, want)
		}
	}
}

// TestPlanWindows: what layers with a window keep does not grow with the context, and plan says so; generate takes as
// much.
func TestPlanWindows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "windows")
	if err := os.CopyFS(dir, os.DirFS(chatModel)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.json")
	config, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(
		`"LlamaForCausalLM"`, `"MistralForCausalLM"`, `"model_type": "llama"`, `"model_type": "mistral", "sliding_window": 64`,
		`"max_position_embeddings": 256`, `"max_position_embeddings": 4096`,
	).Replace(string(config))
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	// Two layers of two heads of 16 numbers, keys and values in bfloat16; 64 positions are seen by each of 256 rows.
	const kept = ((64+256-2+15)/16 + 1) * 16 * 2 * 2 * 2 * 16 * 2
	for _, context := range []string{"1024", "4096"} {
		var p struct {
			KV int64 `json:"kv_bytes"`
		}
		out, _ := done(t, "plan", dir, "--json", "--context", context)
		if err := json.Unmarshal([]byte(out), &p); err != nil || p.KV != kept {
			t.Errorf("keys and values of %s tokens take %d bytes, want %d: %v", context, p.KV, kept, err)
		}
		out, _ = done(t, "generate", dir, "Hello", "--json", "--context", context, "--max-tokens", "3")
		if err := json.Unmarshal([]byte(out), &p); err != nil || p.KV != kept {
			t.Errorf("%s: generate takes %d bytes, want %d: %v", context, p.KV, kept, err)
		}
	}
	if text, _ := done(t, "plan", dir, "--context", "4096"); !strings.Contains(text, "of them in windows, at any length") {
		t.Errorf("%s\nsays nothing of windows", text)
	}
}

// TestPlanTextErrors: flags that do not go together, models that write no text and budgets that are too small end as elsewhere.
func TestPlanTextErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{chatModel, "--context", "0"}, command.ExitUsage, "--context"},
		{[]string{chatModel, "--context", "1000"}, command.ExitUsage, "256 tokens"},
		{[]string{chatModel, "--sequences", "0"}, command.ExitUsage, "--sequences"},
		{[]string{chatModel, "--kv", "int4"}, command.ExitUsage, running.KVNames},
		{[]string{chatModel, "--context", "64", "--batch", "3"}, command.ExitUsage, "--batch"},
		{[]string{chatModel, "--context", "64", "--memory", "10KiB"}, running.ExitDoesNotFit, "--memory"},
		{[]string{chatModel, "--context", "64", "--assert-peak", "10KiB"}, running.ExitDoesNotFit, "--assert-peak"},
		{[]string{digitsFolder + "digits.pt2", "--context", "64"}, command.ExitUnsupported, "causal"},
	} {
		out, text, code := execute(t, append([]string{"plan"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(text, c.text) {
			t.Errorf("%q: exit code %d, want %d: %q %q", c.args, code, c.code, out, text)
		}
	}
}
