//go:build !files

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/internal/fixtures"
)

// seeingModel makes the folder of a tiny model that sees pictures in texts, whose chat template takes parts.
func seeingModel(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := fixtures.Seeing(dir, "../../models/testdata/families/hf/llava.heads.json.gz"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// drawn is the file of a picture.
func drawn(t *testing.T, shade int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "picture.png")
	if err := os.WriteFile(path, fixtures.Picture(shade), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestGenerateWithImages: a model that sees is shown pictures by generate and chat, the same text in every mode; another
// picture gives another text, two are another question than one, and none is asked of the text part.
func TestGenerateWithImages(t *testing.T) {
	dir, cat, dog := seeingModel(t), drawn(t, 1), drawn(t, 7)
	ask := func(more ...string) string {
		t.Helper()
		out, _ := done(t, append([]string{"generate", dir, "w20 w21", "--quiet", "--max-tokens", "16", "--temperature", "20", "--seed", "1"}, more...)...)
		if n := len(strings.Fields(out)); n < 1 || n > 16 {
			t.Errorf("%v: %d words: %q", more, n, out)
		}
		return out
	}
	want := ask("--image", cat)
	if got := ask("--image", cat, "--mode", "page", "--threads", "1"); got != want {
		t.Errorf("--mode page: %q, want %q", got, want)
	}
	for _, other := range [][]string{{"--image", dog}, {"--image", cat, "--image", dog}, nil} {
		if got := ask(other...); got == want {
			t.Errorf("%v gives the same as one picture: %q", other, got)
		}
	}
	if raw := ask("--raw"); raw == ask() {
		t.Error("the chat template makes nothing of a message")
	}
	for name, args := range map[string][]string{
		"no picture":     {"generate", dir, "w20", "--image", filepath.Join(dir, "tokenizer.json")},
		"no file":        {"generate", dir, "w20", "--image", filepath.Join(dir, "none.png")},
		"no place":       {"generate", dir, "w20", "--raw", "--image", cat},
		"with a draft":   {"generate", dir, "w20", "--draft", dir, "--image", cat},
		"with a batch":   {"generate", dir, "--batch", cat, "--image", cat},
		"with a history": {"chat", dir, "--history", cat, "--image", cat},
	} {
		if out, _, code := execute(t, args...); code == 0 || out != "" {
			t.Errorf("%s: exit code %d: %q", name, code, out)
		}
	}
	blind := captionModel(t)
	if _, text, code := execute(t, "generate", blind, "w20", "--image", cat); code != command.ExitUsage || !strings.Contains(text, "sees no pictures") {
		t.Errorf("of a model that sees none: exit code %d: %q", code, text)
	}
}

// TestChatWithImages: the first message comes with the pictures, also after /reset; what follows goes on with them.
func TestChatWithImages(t *testing.T) {
	dir, cat := seeingModel(t), drawn(t, 1)
	talk := func(input string, args ...string) []string {
		t.Helper()
		var out, text bytes.Buffer
		c := &command.Line{Stdout: &out, Stderr: &text}
		chat := chatting{writing: writing{Run: running.Run{Line: c}}, stdin: strings.NewReader(input)}
		cmd := chat.command()
		cmd.SetArgs(append([]string{dir, "--quiet", "--max-tokens", "8", "--temperature", "20", "--seed", "1"}, args...))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("%v: %s", err, text.String())
		}
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}
	seen := talk("w20 w21\nw22\n/reset\nw20 w21\n", "--image", cat)
	blind := talk("w20 w21\n")
	if len(seen) != 3 || seen[0] == "" || seen[2] != seen[0] || seen[1] == seen[0] {
		t.Errorf("answers %q", seen)
	}
	if len(blind) != 1 || blind[0] == seen[0] {
		t.Errorf("without a picture %q, with one %q", blind, seen)
	}
}
