//go:build !files

package main

import (
	"encoding/json"
	"image"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/internal/fixtures"
)

// spellingModel makes the folder of a tiny model that says letters of a sound, with weights that follow from their
// names.
func spellingModel(t *testing.T) string {
	t.Helper()
	var list []struct {
		Config string
		Files  map[string]string
		State  map[string][]int
	}
	recordedIn(t, "../../models/testdata/families/hf/speech.json.gz", &list)
	r := list[0]
	files := maps.Clone(r.Files)
	files["config.json"], files["model.safetensors"] = r.Config, fixtures.Weights(r.State)
	return folderOf(t, files)
}

// TestGenerateLetters: a model for CTC writes what it hears, as PROMPT or with --sound, in any mode, as text or JSON;
// flags of models that write token by token, and sounds that are none, are refused.
func TestGenerateLetters(t *testing.T) {
	dir, to := spellingModel(t), t.TempDir()
	sound := filepath.Join(to, "speech.wav")
	if err := os.WriteFile(sound, wavOf(1, 16000, 6000), 0o600); err != nil {
		t.Fatal(err)
	}
	want, said := done(t, "generate", dir, sound)
	if strings.TrimSpace(want) == "" || !strings.Contains(said, "a sound of 0.4 s in") {
		t.Errorf("%q, and %q", want, said)
	}
	for _, args := range [][]string{{"--sound", sound}, {sound, "--mode", "page", "--threads", "2"}, {sound, "--memory", "200MiB"}} {
		if got, _ := done(t, slices.Concat([]string{"generate", dir, "--quiet"}, args)...); got != want {
			t.Errorf("%v: %q, want %q", args, got, want)
		}
	}
	out, _ := done(t, "generate", dir, sound, "--json")
	var answer struct {
		Text    string
		Seconds float64 `json:"sound_seconds"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || answer.Text != strings.TrimSuffix(want, "\n") || answer.Seconds != 0.375 {
		t.Errorf("%s: %v", out, err)
	}
	for _, args := range [][]string{
		nil, {sound, "--temperature", "1"}, {sound, "--max-tokens", "3"}, {sound, "-n", "2"}, {sound, "--language", "en"},
		{sound, "--json", "--logprobs", "2"}, {filepath.Join(to, "none.wav")}, {sound, "--sound", sound},
	} {
		if out, text, code := execute(t, append([]string{"generate", dir}, args...)...); code != command.ExitUsage || out != "" {
			t.Errorf("%v: exit code %d: %q", args, code, text)
		}
	}
	fast := filepath.Join(to, "fast.wav")
	if err := os.WriteFile(fast, wavOf(1, 44100, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, text, code := execute(t, "generate", dir, fast); code != command.ExitUnsupported || !strings.Contains(text, "-ar 16000") {
		t.Errorf("another rate: exit code %d: %q", code, text)
	}
	if err := os.Remove(filepath.Join(dir, "vocab.json")); err != nil {
		t.Fatal(err)
	}
	if _, text, code := execute(t, "generate", dir, sound); code != command.ExitUnsafe || !strings.Contains(text, "vocab.json") {
		t.Errorf("without letters: exit code %d: %q", code, text)
	}
}

// captionModel makes the folder of a tiny model that writes of pictures, with weights that follow from their names.
func captionModel(t *testing.T) string {
	t.Helper()
	text, weights, err := fixtures.Heads("../../models/testdata/families/hf/blip.heads.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	maps.Copy(config["text_config"].(map[string]any), map[string]any{"bos_token_id": 5, "sep_token_id": 199})
	changed, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return folderOf(t, map[string]string{
		"config.json": string(changed), "model.safetensors": fixtures.Weights(weights), "tokenizer.json": fixtures.Words(200),
		"preprocessor_config.json": `{"image_processor_type": "BlipImageProcessor", "size": {"height": 40, "width": 40}, "do_pad": true}`,
	})
}

// TestGenerateOfAPicture: a model that writes of a picture takes its file as PROMPT, in any mode; another picture gives
// another text; what is no file or no picture is refused.
func TestGenerateOfAPicture(t *testing.T) {
	dir, to := captionModel(t), t.TempDir()
	draw := func(name string, shade int) string {
		p := image.NewGray(image.Rect(0, 0, 60, 50))
		for i := range p.Pix {
			p.Pix[i] = byte(i*i*shade%251 + i%5)
		}
		f, err := os.Create(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := png.Encode(f, p); err != nil {
			t.Fatal(err)
		}
		return f.Name()
	}
	cat := draw("cat.png", 1)
	ask := []string{"--quiet", "--max-tokens", "20", "--temperature", "20", "--seed", "1"}
	want, _ := done(t, append([]string{"generate", dir, cat}, ask...)...)
	if n := len(strings.Fields(want)); n < 1 || n > 20 {
		t.Errorf("%d words: %q", n, want)
	}
	if got, _ := done(t, append([]string{"generate", dir, cat, "--mode", "page", "--threads", "1"}, ask...)...); got != want {
		t.Errorf("--mode page: %q, want %q", got, want)
	}
	if other, _ := done(t, append([]string{"generate", dir, draw("dog.png", 7)}, ask...)...); other == want {
		t.Errorf("another picture gives the same: %q", want)
	}
	if out, text, code := execute(t, "generate", dir, "a cat"); code != command.ExitUsage || out != "" || !strings.Contains(text, "writes of a picture") {
		t.Errorf("no file: exit code %d: %q", code, text)
	}
	if out, text, code := execute(t, "generate", dir, filepath.Join(dir, "tokenizer.json")); code == 0 || out != "" {
		t.Errorf("no picture: exit code %d: %q", code, text)
	}
}
