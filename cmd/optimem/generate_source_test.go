//go:build !files

package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/internal/fixtures"
	"github.com/optimem/optimem/internal/npy"
	"github.com/optimem/optimem/tensor"
)

// sourceModel makes the folder of a tiny model that reads before it writes, with weights that follow from their names.
func sourceModel(t *testing.T, name string) string {
	t.Helper()
	var list []struct {
		Name, Config string
		State        map[string][]int
		Text         struct{ Generation string }
	}
	recordedIn(t, "../../models/testdata/families/hf/seq2seq.json.gz", &list)
	r := list[slices.IndexFunc(list, func(r struct {
		Name, Config string
		State        map[string][]int
		Text         struct{ Generation string }
	}) bool {
		return r.Name == name
	})]
	return folderOf(t, map[string]string{
		"config.json": r.Config, "generation_config.json": r.Text.Generation, "tokenizer.json": fixtures.Words(96), "model.safetensors": fixtures.Weights(r.State),
	})
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
		if out, text, code := execute(t, append([]string{"generate", dir}, args...)...); code != command.ExitUsage || out != "" {
			t.Errorf("%v: exit code %d: %q", args, code, text)
		}
	}
}

// wavOf is a WAV file of samples of 16 bits.
func wavOf(channels, rate, n int) []byte {
	b := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00")
	b = binary.LittleEndian.AppendUint16(b, uint16(channels))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate*channels*2))
	b = binary.LittleEndian.AppendUint32(b, uint32(channels*2)|16<<16)
	b = binary.LittleEndian.AppendUint32(append(b, "data"...), uint32(n*channels*2))
	for i := range n {
		for range channels {
			b = binary.LittleEndian.AppendUint16(b, uint16(int16(i*i%9000-4500)))
		}
	}
	return b
}

// TestGenerateFromWAV: a WAV file is what the features of it are, as a prompt and with --sound, in stereo too; what the
// model reads no more of is said; the task changes how the text begins; other files are refused, with what would help.
func TestGenerateFromWAV(t *testing.T) {
	dir, to := sourceModel(t, "whisper"), t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(to, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := write("one.wav", wavOf(1, 16000, 12000))
	if _, text, code := execute(t, "generate", dir, one); code != command.ExitUnsafe || !strings.Contains(text, "preprocessor_config.json") {
		t.Errorf("without a configuration: exit code %d: %q", code, text)
	}
	config := `{"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 6, "hop_length": 400, "chunk_length": 1}`
	if err := os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := []string{"--quiet", "--language", "de", "--max-tokens", "9"}
	want, _ := done(t, append([]string{"generate", dir, one}, ask...)...)
	if want == "" {
		t.Error("nothing is written")
	}
	for _, args := range [][]string{{"--sound", one}, {write("two.wav", wavOf(2, 16000, 12000))}, {one, "--task", "transcribe", "--mode", "page"}} {
		if got, _ := done(t, slices.Concat([]string{"generate", dir}, args, ask)...); got != want {
			t.Errorf("%v: %q, want %q", args, got, want)
		}
	}
	if other, _ := done(t, append([]string{"generate", dir, write("other.wav", wavOf(1, 16000, 3000))}, ask...)...); other == want {
		t.Error("another sound gives the same")
	}
	if other, _ := done(t, append([]string{"generate", dir, one, "--task", "translate"}, ask...)...); other == want {
		t.Error("another task gives the same")
	}
	out, text := done(t, "generate", dir, write("long.wav", wavOf(1, 16000, 40000)), "--max-tokens", "3")
	if out == "" || !strings.Contains(text, "has 2.5 s, and the model reads the first 1.0") {
		t.Errorf("of a longer sound: %q", text)
	}
	for name, c := range map[string]struct {
		file []byte
		code int
		says string
	}{
		"44100": {wavOf(1, 44100, 100), command.ExitUnsupported, "-ar 16000"}, "six": {wavOf(6, 16000, 100), command.ExitUnsupported, "-ac 1"},
		"mp3": {[]byte("ID3\x04\x00\x00\x00\x00\x00\x00\x00\x00"), command.ExitUnsupported, "ffmpeg"},
		"cut": {wavOf(1, 16000, 100)[:90], command.ExitUnsafe, "it ends in the samples"}, "empty": {nil, command.ExitUnsafe, "it ends in the head"},
	} {
		if out, text, code := execute(t, "generate", dir, write(name, c.file)); code != c.code || out != "" || !strings.Contains(text, c.says) {
			t.Errorf("%s: exit code %d: %q", name, code, text)
		}
	}
	for _, args := range [][]string{{one, "--sound", one}, {one, "--task", "sing"}, {one, "--language", "tlh"}, {filepath.Join(to, "none.wav")}} {
		if out, text, code := execute(t, append([]string{"generate", dir}, args...)...); code != command.ExitUsage || out != "" {
			t.Errorf("%v: exit code %d: %q", args, code, text)
		}
	}
}
