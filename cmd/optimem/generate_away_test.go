//go:build !files

package main

import (
	"os"
	"path/filepath"
	"regexp"

	"github.com/optimem/optimem/cmd/optimem/internal/command"

	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/optimem/optimem/internal/fixtures"
)

// deepModel is the tiny model with twelve layers.
func deepModel(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := fixtures.Deeper(dir, chatModel, 12); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestBatchAway: more prompts share passes than there is memory for the keys and values of, if these may wait in a file, and
// the answers are the same. The file has no name, and what is used is within the budget.
func TestBatchAway(t *testing.T) {
	model, in, dir, folder := deepModel(t), batchOf(t, 40), t.TempDir(), t.TempDir()
	atOnce, peak := regexp.MustCompile(` (\d+) at once, `), regexp.MustCompile(`, peak ([0-9.]+) KiB`)
	var want []string
	var widths []int
	for i, flags := range [][]string{
		{"--mode", "page", "--memory", "900KiB"},
		{"--mode", "page", "--memory", "900KiB", "--swap", "1GiB", "--swap-folder", folder},
		{"--mode", "auto", "--memory", "900KiB", "--swap", "1GiB", "--swap-folder", folder},
		{"--mode", "page", "--memory", "900KiB", "--swap", "1KiB", "--swap-folder", folder},
	} {
		out := filepath.Join(dir, strconv.Itoa(i))
		_, text := done(t, append([]string{"generate", model, "--batch", in, "-o", out, "--context", "128"}, flags...)...)
		said, used := atOnce.FindStringSubmatch(text), peak.FindStringSubmatch(text)
		if said == nil || used == nil {
			t.Fatalf("%q: %q", flags, text)
		}
		n, _ := strconv.Atoi(said[1])
		widths = append(widths, n)
		if bytes, err := strconv.ParseFloat(used[1], 64); err != nil || bytes > 900 {
			t.Errorf("%q: %s KiB are used of 900", flags, used[1])
		}
		if waits := strings.Contains(text, "wait in a file of "); waits != (i == 1 || i == 2) {
			t.Errorf("%q: %q", flags, text)
		}
		got := answersOf(t, out)
		if i == 0 {
			want = got
		}
		if len(got) != 40 || !slices.Equal(got, want) {
			t.Errorf("%q: other answers", flags)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%q: in the folder: %v, %v", flags, left, err)
		}
	}
	if widths[1] < 2*widths[0] || widths[3] != widths[0] {
		t.Errorf("%v prompts at once", widths)
	}
}

// TestBatchAwayOnDevice: beside a device with memory of its own keys and values wait in the host's, if they may and there is room, and the
// answers are the same.
func TestBatchAwayOnDevice(t *testing.T) {
	model, in, dir := deepModel(t), batchOf(t, 40), t.TempDir()
	atOnce := regexp.MustCompile(` (\d+) at once, `)
	var want []string
	var widths []int
	for i, flags := range [][]string{
		{"--mode", "page"},
		{"--mode", "page", "--swap", "host:1GiB"},
		{"--mode", "auto", "--swap", "host:1GiB", "--host-memory", "1GiB"},
		{"--mode", "page", "--swap", "host:1KiB"},
		{"--mode", "page", "--swap", "host:1GiB", "--host-memory", "1MiB"},
	} {
		out := filepath.Join(dir, strconv.Itoa(i))
		_, text := done(t, append([]string{
			"generate", model, "--batch", in, "-o", out, "--context", "128", "--device", "emu:memory=64MiB,bandwidth=12GB/s", "--memory", "900KiB",
		}, flags...)...)
		said := atOnce.FindStringSubmatch(text)
		if said == nil {
			t.Fatalf("%q: %q", flags, text)
		}
		n, _ := strconv.Atoi(said[1])
		widths = append(widths, n)
		if waits := strings.Contains(text, "of the host's memory while"); waits != (i == 1 || i == 2) {
			t.Errorf("%q: %q", flags, text)
		}
		got := answersOf(t, out)
		if i == 0 {
			want = got
		}
		if len(got) != 40 || !slices.Equal(got, want) {
			t.Errorf("%q: other answers", flags)
		}
	}
	if widths[1] < 2*widths[0] || widths[3] != widths[0] {
		t.Errorf("%v prompts at once", widths)
	}
}

// TestBatchAwayWithoutAPlace: a folder that is not there for the file is an error that says which and what helps, and no answer is
// written.
func TestBatchAwayWithoutAPlace(t *testing.T) {
	if goruntime.GOOS == "windows" {
		t.Skip("how much room a folder has that is not there is not known")
	}
	model, in := deepModel(t), batchOf(t, 40)
	folder, out := filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "out.jsonl")
	_, text, code := execute(t, "generate", model, "--batch", in, "-o", out, "--mode", "page", "--memory", "900KiB", "--context", "128",
		"--swap", "1GiB", "--swap-folder", folder)
	if code != command.ExitFailed || !strings.Contains(text, folder) || !strings.Contains(text, "--swap-folder names") {
		t.Errorf("%d: %q", code, text)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("there are answers")
	}
}
