package main

import (
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/tensor"
)

// sourceModel makes the folder of a tiny model that reads before it writes, with weights that follow from their names.
func sourceModel(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open("../../models/testdata/families/hf/seq2seq.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Name, Config string
		State        map[string][]int
		Text         struct{ Generation string }
	}
	if err := json.NewDecoder(z).Decode(&list); err != nil {
		t.Fatal(err)
	}
	r := list[slices.IndexFunc(list, func(r struct {
		Name, Config string
		State        map[string][]int
		Text         struct{ Generation string }
	}) bool {
		return r.Name == name
	})]
	header, data := make(map[string]any), []byte(nil)
	for _, key := range slices.Sorted(maps.Keys(r.State)) {
		shape, begin := r.State[key], len(data)
		n := 1
		for _, d := range shape {
			n *= d
		}
		h := fnv.New64()
		_, _ = h.Write([]byte(key))
		random := rand.New(rand.NewPCG(h.Sum64(), 3))
		for range n {
			x := random.NormFloat64() / 2
			if len(shape) == 1 {
				x = 1 + x/4
			}
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(x)))
		}
		header[key] = map[string]any{"dtype": "F32", "shape": shape, "data_offsets": []int{begin, len(data)}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	words := make(map[string]int)
	for id := range 96 {
		words[fmt.Sprintf("w%d", id)] = id
	}
	tokens, err := json.Marshal(map[string]any{
		"version": "1.0", "pre_tokenizer": map[string]any{"type": "WhitespaceSplit"},
		"model": map[string]any{"type": "WordLevel", "vocab": words, "unk_token": "w3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for file, content := range map[string][]byte{
		"config.json": []byte(r.Config), "generation_config.json": []byte(r.Text.Generation), "tokenizer.json": tokens,
		"model.safetensors": append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), data...),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestGenerateFromASource: a model that reads a text writes the same of it in every mode, alone and in a batch; the
// folder's settings and flags hold, beams are found, and plan says what reading takes.
func TestGenerateFromASource(t *testing.T) {
	dir := sourceModel(t, "t5_gated")
	ask := []string{"generate", dir, "w5 w60 w44 w12 w81", "--quiet", "--max-tokens", "12"}
	want, _ := done(t, ask...)
	if n := len(strings.Fields(want)); n < 8 || n > 12 {
		t.Errorf("%d words: %q", n, want)
	}
	for _, mode := range []string{"page", "resident", "chunk"} {
		if got, _ := done(t, append(ask, "--mode", mode, "--threads", "1")...); got != want {
			t.Errorf("--mode %s: %q, want %q", mode, got, want)
		}
	}
	if other, _ := done(t, "generate", dir, "w5 w61 w44 w12 w81", "--quiet", "--max-tokens", "12"); other == want {
		t.Error("another text gives the same")
	}
	if drawn, _ := done(t, append(ask, "--temperature", "2", "--seed", "4")...); drawn == want {
		t.Error("nothing is drawn")
	}
	batch, out := filepath.Join(t.TempDir(), "in.jsonl"), filepath.Join(t.TempDir(), "out.jsonl")
	lines := `{"id": "b", "prompt": "w9 w9 w30", "max_tokens": 5}` + "\n" + `{"id": "a", "prompt": "w5 w60 w44 w12 w81", "max_tokens": 12}` + "\n"
	if err := os.WriteFile(batch, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "generate", dir, "--batch", batch, "-o", out, "--quiet")
	answers, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(answers), strings.TrimSpace(want)) {
		t.Errorf("the batch has %q, %v: want %q in it", answers, err, want)
	}
	if found, _ := done(t, append(ask, "--beams", "3", "-n", "2")...); strings.Count(found, "---") != 1 {
		t.Errorf("beams: %q", found)
	}
	planned, _ := done(t, "plan", dir, "--context", "50", "--sequences", "2")
	if !strings.Contains(planned, "50 positions each") {
		t.Errorf("the plan is\n%s", planned)
	}
}

// TestGenerateFromASound: features are read from a file of NumPy's; another shape, a prompt beside them, and a language
// that the model does not know are refused.
func TestGenerateFromASound(t *testing.T) {
	dir := sourceModel(t, "whisper")
	write := func(shape ...int) string {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		path := filepath.Join(t.TempDir(), "features.npy")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := npy.Write(f, tensor.Of(x, shape...)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	features := write(1, 6, 40)
	want, _ := done(t, "generate", dir, "--sound", features, "--quiet", "--language", "de", "--max-tokens", "9")
	if want == "" {
		t.Error("nothing is written")
	}
	if got, _ := done(t, "generate", dir, "--sound", features, "--quiet", "--language", "de", "--max-tokens", "9", "--mode", "page"); got != want {
		t.Errorf("--mode page: %q, want %q", got, want)
	}
	for _, args := range [][]string{
		{"w5", "--sound", features}, {"w5", "--language", "de"}, {"--sound", features, "--language", "tlh"},
		{"--sound", write(1, 6, 41)}, {"w5"},
	} {
		if out, text, code := command(t, append([]string{"generate", dir}, args...)...); code != exitUsage || out != "" {
			t.Errorf("%v: exit code %d: %q", args, code, text)
		}
	}
}
