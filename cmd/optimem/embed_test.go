//go:build !files

package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/tensor"
)

// An embedJSON is what embed prints with --json.
type embedJSON struct {
	Dim        int
	Tokens     []int
	Cut        int
	Seconds    float64
	Peak       int64 `json:"peak_device_bytes"`
	Moved      int64 `json:"bytes_moved"`
	Embeddings [][]float32
	Name       string `json:"similarity_fn_name"`
	Similarity [][]float64
}

func embedded(t *testing.T, args ...string) embedJSON {
	t.Helper()
	out, _ := done(t, append([]string{"embed", chatModel, "--json"}, args...)...)
	var all embedJSON
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return all
}

// TestEmbed: vectors are the same bits however texts come and vectors go, and in every mode and budget.
func TestEmbed(t *testing.T) {
	texts := []string{"What is the capital of Peru?", "Count to ten.", "Lima"}
	want := embedded(t, texts...)
	if want.Dim != 64 || len(want.Tokens) != 3 || want.Peak == 0 || want.Seconds <= 0 || len(want.Embeddings) != 3 {
		t.Fatalf("%+v", want)
	}
	dir := t.TempDir()
	lines := filepath.Join(dir, "texts.txt")
	if err := os.WriteFile(lines, []byte(strings.Join(texts, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	array := filepath.Join(dir, "out.npy")
	out, facts := done(t, "embed", chatModel, "--input", lines, "-o", array, "--mode", "page", "--memory", "1MiB")
	x := readNPY(t, array)
	values, err := tensor.Slice[float32](x)
	if err != nil || !x.Layout.Shape.Equal(tensor.Shape{3, 64}) || !slices.Equal(values, slices.Concat(want.Embeddings...)) {
		t.Errorf("from a file to a file: %v, %v", x.Layout.Shape, err)
	}
	if out != "" || !strings.Contains(facts, "3 vectors of 64 numbers") || !strings.Contains(facts, "moved") {
		t.Errorf("printed %q and %q", out, facts)
	}
	given := filepath.Join(dir, "texts.jsonl")
	if err := os.WriteFile(given, []byte(`{"id": 7, "text": "Lima"}`+"\n\n"+`"Count to ten."`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	answers := filepath.Join(dir, "out.jsonl")
	done(t, "embed", chatModel, "--input", given, "-o", answers, "--quiet")
	text, err := os.ReadFile(answers)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for line := range strings.Lines(string(text)) {
		var a struct {
			ID        json.RawMessage
			Tokens    int
			Embedding []float32
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		if i := 2 - len(ids); !slices.Equal(a.Embedding, want.Embeddings[i]) || a.Tokens != want.Tokens[i] {
			t.Errorf("line %d: %+v", len(ids), a)
		}
		ids = append(ids, string(a.ID))
	}
	if !slices.Equal(ids, []string{"7", "null"}) {
		t.Errorf("ids %q", ids)
	}
}

// TestEmbedFlags: flags cut texts and vectors, put a prompt before texts, and compare.
func TestEmbedFlags(t *testing.T) {
	whole := embedded(t, "Count to ten.")
	cut := embedded(t, "Count to ten.", "--dim", "5", "--max-tokens", "2", "--normalize")
	if cut.Dim != 5 || cut.Tokens[0] != 2 || cut.Cut != 1 || len(cut.Embeddings[0]) != 5 {
		t.Errorf("%+v", cut)
	}
	n := 0.0
	for _, x := range cut.Embeddings[0] {
		n += float64(x) * float64(x)
	}
	if math.Abs(n-1) > 1e-6 {
		t.Errorf("the length is %v", math.Sqrt(n))
	}
	if got := embedded(t, "to ten.", "--prompt", "Count "); !slices.Equal(got.Embeddings[0], whole.Embeddings[0]) {
		t.Error("a prompt is not what texts begin with")
	}
	alike := embedded(t, "Count to ten.", "Lima", "Count to ten.", "--similarity")
	s := alike.Similarity
	if alike.Name != "cosine" || len(s) != 3 || math.Abs(s[0][2]-1) > 1e-6 || s[0][1] != s[1][0] || s[0][1] > 0.999 {
		t.Errorf("%v", s)
	}
	out, facts := done(t, "embed", chatModel, "Count to ten.", "Lima", "--similarity", "--max-tokens", "3")
	if !strings.Contains(out, "1  Count to ten.  1.0000") || !strings.Contains(facts, "1 text cut to 3 tokens") {
		t.Errorf("%s%s", out, facts)
	}
	if out, _ := done(t, "embed", chatModel, "Count to ten."); !strings.Contains(out, "vector") || !strings.Contains(out, "…") {
		t.Errorf("%s", out)
	}
}

// TestEmbedRefusals: what cannot be done has an exit code and says which flag or file it is, and leaves no file.
func TestEmbedRefusals(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bad := filepath.Dir(file("bad/modules.json", "[]"))
	foreign := filepath.Dir(file("foreign/modules.json", `[{"type": "my.Module"}]`))
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, command.ExitUsage, "no model"},
		{[]string{chatModel, "x", "--input", "f"}, command.ExitUsage, "both given"},
		{[]string{chatModel, "x", "--prompt", "f", "--prompt-name", "query"}, command.ExitUsage, "both given"},
		{[]string{chatModel, "x", "--prompt-name", "other"}, command.ExitUsage, "--prompt-name"},
		{[]string{chatModel, "x", "--dim", "0"}, command.ExitUsage, "--dim"},
		{[]string{chatModel, "x", "--dim", "65"}, command.ExitUsage, "--dim"},
		{[]string{chatModel, "x", "--max-tokens", "0"}, command.ExitUsage, "--max-tokens"},
		{[]string{chatModel, "x", "--max-tokens", "1000000"}, command.ExitUsage, "--max-tokens"},
		{[]string{chatModel, "x", "-o", filepath.Join(dir, "out.txt")}, command.ExitUsage, ".jsonl"},
		{[]string{chatModel, "--input", file("empty.txt", "")}, command.ExitUsage, "no text"},
		{[]string{chatModel, "--input", file("bad.jsonl", "\"x\"\n{}\n"), "-o", filepath.Join(dir, "out.npy")}, command.ExitUsage, "bad.jsonl:2"},
		{[]string{chatModel, "--input", file("worse.jsonl", "\"x\n")}, command.ExitUsage, "worse.jsonl:1"},
		{[]string{chatModel, "--input", file("numbers.jsonl", "7\n")}, command.ExitUsage, "numbers.jsonl:1"},
		{[]string{chatModel, "x", "--mode", "fast"}, command.ExitUsage, "unknown mode"},
		{[]string{chatModel, "x", "--memory", "10KiB", "-o", filepath.Join(dir, "out.npy")}, running.ExitDoesNotFit, "--memory"},
		{[]string{filepath.Join(chatModel, "tokenizer.json"), "x"}, command.ExitUsage, "is a file"},
		{[]string{filepath.Join(chatModel, "missing"), "x"}, command.ExitFailed, ""},
		{[]string{bad, "x"}, command.ExitUnsafe, "modules.json"},
		{[]string{foreign, "x"}, command.ExitUnsupported, "my.Module"},
		{[]string{dir, "x"}, command.ExitUnsupported, "neither modules.json nor config.json"},
	} {
		_, text, code := execute(t, append([]string{"embed"}, c.args...)...)
		if code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.code, text)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "out*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}
