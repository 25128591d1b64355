//go:build !files

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/optimem/optimem/cmd/optimem/internal/command"

	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
)

// batchOf writes a file of so many prompts.
func batchOf(t *testing.T, prompts int) string {
	t.Helper()
	var text bytes.Buffer
	for i := range prompts {
		fmt.Fprintf(&text, "{\"id\": %d, \"prompt\": \"Count to %d.\", \"max_tokens\": %d, \"seed\": %d}\n", i, i/2, 4+i%3, i)
	}
	path := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// answersOf returns what a file of answers says, without what differs from run to run.
func answersOf(t *testing.T, path string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var a batchAnswer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s %q %v %d %s", a.ID, a.Text, a.TokenIDs, a.PromptTokens, a.FinishReason))
	}
	return list
}

// TestBatchGoesOn: from whatever a run that did not end has left of its journal, the next one goes on, to the same
// answers: those that are whole are not given again, and what is cut off, damaged or another request's is.
func TestBatchGoesOn(t *testing.T) {
	const prompts = 6
	in, out := batchOf(t, prompts), filepath.Join(t.TempDir(), "out.jsonl")
	args := []string{"generate", chatModel, "--batch", in, "-o", out, "--temperature", "0.7"}
	_, text := done(t, args...)
	if !strings.Contains(text, " at once, about ") {
		t.Errorf("what it is expected to take is not said: %q", text)
	}
	want := answersOf(t, out)
	if _, err := os.Stat(out + journalSuffix); len(want) != prompts || !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%q, and the journal: %v", want, err)
	}
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	placeAnswers = func(string, func(*os.File) error) error { return errors.New("no room") }
	_, text, code := execute(t, args...)
	if placeAnswers = newfile.Write; code != command.ExitFailed || !strings.Contains(text, "6 answers in ") {
		t.Fatalf("exit code %d: %q", code, text)
	}
	all, err := os.ReadFile(out + journalSuffix)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(string(all)))
	if len(lines) != prompts {
		t.Fatalf("%d lines", len(lines))
	}
	flipped := bytes.Clone(all)
	flipped[len(lines[0])+len(lines[1])/2] ^= 1
	for _, c := range []struct {
		journal string
		there   int
		more    []string
	}{
		{"", 0, nil}, {string(all), 6, nil}, {lines[0][:5], 0, nil}, {lines[0] + lines[1][:len(lines[1])-1], 1, nil}, {lines[3] + lines[1], 2, nil},
		{string(flipped), 1, nil}, {lines[2] + "\x00\xff{\n" + lines[3], 1, nil}, {strings.Repeat(lines[2], 3), 1, nil},
		{string(all), 0, []string{"--temperature", "0.8"}}, {string(all), 0, []string{"--kv", "bf16"}},
	} {
		if err := os.WriteFile(out+journalSuffix, []byte(c.journal), 0o600); err != nil {
			t.Fatal(err)
		}
		_, text := done(t, append(slices.Clone(args), c.more...)...)
		if said := strings.Contains(text, fmt.Sprintf("%d of 6 answers were in ", c.there)); said != (c.there > 0) {
			t.Errorf("%d answers were there: %q", c.there, text)
		}
		if got := answersOf(t, out); c.more == nil && !slices.Equal(got, want) {
			t.Errorf("with %d answers: %q, want %q", c.there, got, want)
		}
		if _, err := os.Stat(out + journalSuffix); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the journal is still there: %v", err)
		}
	}
}

// TestBatchKilled: a process that is killed amid a batch leaves nothing that looks like its answers, and the same
// execute gives them.
func TestBatchKilled(t *testing.T) {
	batchKilled(t, chatModel, 60, 3)
}

// TestBatchAwayKilled: so it is where keys and values wait in a file, of which nothing is left.
func TestBatchAwayKilled(t *testing.T) {
	folder := t.TempDir()
	batchKilled(t, deepModel(t), 30, 2, "--mode", "page", "--memory", "900KiB", "--context", "128", "--swap", "1GiB", "--swap-folder", folder)
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 && goruntime.GOOS != "windows" {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

// batchKilled kills the command that answers prompts with a model after more and more answers, and gives it again.
func batchKilled(t *testing.T, model string, prompts, times int, flags ...string) {
	t.Helper()
	in, whole := batchOf(t, prompts), filepath.Join(t.TempDir(), "out.jsonl")
	done(t, "generate", model, "--batch", in, "-o", whole, "--quiet", "--context", "128")
	want := answersOf(t, whole)
	for at := range times {
		out := filepath.Join(t.TempDir(), "out.jsonl")
		args := append([]string{"generate", model, "--batch", in, "-o", out, "--threads", "1", "--quiet"}, flags...)
		cmd := exec.Command("optimem", args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		for killed := false; ; {
			journal, _ := os.ReadFile(out + journalSuffix)
			if !killed && bytes.Count(journal, []byte("\n")) > 10*at {
				killed = true
				_ = cmd.Process.Kill() // it may have ended
			}
			select {
			case <-ended:
			case <-time.After(time.Millisecond):
				continue
			}
			break
		}
		if _, err := os.Stat(out); err == nil && !slices.Equal(answersOf(t, out), want) {
			t.Error("a part of the answers")
		}
		done(t, args...)
		if got := answersOf(t, out); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if there, err := filepath.Glob(out + "*"); err != nil || len(there) != 1 && goruntime.GOOS != "windows" {
			t.Errorf("left: %q", there)
		}
	}
}

// TestBatchWide: where passes bring weights, more than sixteen prompts are answered at once if that is expected to be
// faster and fits, and the texts are the same.
func TestBatchWide(t *testing.T) {
	in, dir := batchOf(t, 40), t.TempDir()
	var want []string
	atOnce := regexp.MustCompile(` (\d+) at once, `)
	for i, c := range []struct {
		flags       []string
		least, most int
	}{
		{[]string{"--mode", "resident"}, 16, 16}, {[]string{"--mode", "page", "--memory", "4MiB"}, 17, 40},
		{[]string{"--mode", "page", "--memory", "300KiB"}, 1, 16},
	} {
		out := filepath.Join(dir, fmt.Sprint(i))
		_, text := done(t, append([]string{"generate", chatModel, "--batch", in, "-o", out}, c.flags...)...)
		if said := atOnce.FindStringSubmatch(text); said == nil {
			t.Errorf("%q: %q", c.flags, text)
		} else if n, err := strconv.Atoi(said[1]); err != nil || n < c.least || n > c.most {
			t.Errorf("%q: %d prompts at once, %d to %d are to be", c.flags, n, c.least, c.most)
		}
		got := answersOf(t, out)
		if i == 0 {
			want = got
		}
		if len(got) != 40 || !slices.Equal(got, want) {
			t.Errorf("%q: other answers", c.flags)
		}
	}
}
