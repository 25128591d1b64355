//go:build !files

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/runtime"
)

// openTerminal returns the end of a new terminal that a program writes to, and a function that closes that end and returns all
// that was written to it.
func openTerminal(t *testing.T) (*os.File, func() string) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	fd := int(control.Fd()) // which makes reads wait, too
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan string)
	go func() {
		var b bytes.Buffer
		_, _ = io.Copy(&b, control) // ends with an error once the other end is closed
		written <- b.String()
	}()
	return terminal, func() string {
		if err := terminal.Close(); err != nil {
			t.Error(err)
		}
		text := <-written
		if err := control.Close(); err != nil {
			t.Error(err)
		}
		return text
	}
}

// screen returns the lines that a terminal shows after a text without escape sequences.
func screen(text string) []string {
	lines, column := [][]rune{nil}, 0
	for _, r := range text {
		last := &lines[len(lines)-1]
		switch r {
		case '\r':
			column = 0
		case '\n':
			lines, column = append(lines, nil), 0
		default:
			for len(*last) <= column {
				*last = append(*last, ' ')
			}
			(*last)[column] = r
			column++
		}
	}
	var shown []string
	for _, line := range lines {
		shown = append(shown, strings.TrimRight(string(line), " "))
	}
	return shown
}

// TestProgress: what takes long draws on a terminal how far it has come, and leaves nothing of that behind. It draws on standard
// error alone, and nothing with --quiet.
func TestProgress(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "mlp.pt")
	for _, tt := range []struct {
		title string
		args  []string
	}{
		{"mlp.pt", []string{"synth", "mlp", "--layers", "4", "--width", "256", "-o", model}},
		{"run", []string{"run", model, "--device", "cpu", "--mode", "page", "--input", "random", "--shape", "1,256"}},
		{"bench", []string{"bench", model, "--device", "cpu", "--mode", "page", "--shape", "1,256", "--runs", "1"}},
	} {
		bar := "optimem: " + tt.title + " "
		var stdout, stderr strings.Builder
		terminal, written := openTerminal(t)
		if code := doMain(tt.args, &stdout, terminal); code != command.ExitDone {
			t.Fatalf("%v: exit code %d: %s", tt.args, code, written())
		}
		text := written()
		if !strings.Contains(text, bar) || !strings.Contains(text, "%") {
			t.Errorf("%v: no progress is drawn: %q", tt.args, text)
		}
		for _, line := range screen(text) {
			if strings.Contains(line, bar) || strings.Contains(line, "| (") {
				t.Errorf("%v: the bar stays: %q", tt.args, line)
			}
		}

		terminal, written = openTerminal(t)
		if code := doMain(append(tt.args, "--quiet"), &stdout, terminal); code != command.ExitDone {
			t.Errorf("%v --quiet: exit code %d", tt.args, code)
		}
		if text := written(); text != "" {
			t.Errorf("%v --quiet draws %q", tt.args, text)
		}

		terminal, written = openTerminal(t)
		if code := doMain(tt.args, terminal, &stderr); code != command.ExitDone {
			t.Errorf("%v: exit code %d", tt.args, code)
		}
		if text := written() + stderr.String(); strings.Contains(text, bar) {
			t.Errorf("%v draws progress where only standard output is a terminal: %q", tt.args, text)
		}
	}
}

// TestWritingProgress: what goes on before a text begins is drawn on a terminal and removed, nothing with --quiet, and nothing where
// only the text goes there.
func TestWritingProgress(t *testing.T) {
	question := []string{"generate", chatModel, "What is the capital of Peru?"}
	for _, c := range []struct {
		args  []string
		drawn bool
	}{{nil, true}, {[]string{"--json"}, true}, {[]string{"--quiet"}, false}} {
		args := append(question[:3:3], c.args...)
		var stdout strings.Builder
		terminal, written := openTerminal(t)
		if code := doMain(args, &stdout, terminal); code != command.ExitDone {
			t.Fatalf("%v: exit code %d: %s", args, code, written())
		}
		text := written()
		if c.drawn != strings.Contains(text, "optimem: prompt: ") {
			t.Errorf("%v draws %q", args, text)
		}
		for _, line := range screen(text) {
			if strings.Contains(line, "loaded") || strings.Contains(line, "prompt: ") {
				t.Errorf("%v: %q stays", args, line)
			}
		}
		if !strings.Contains(stdout.String(), "The capital of Peru is Lima.") {
			t.Errorf("%v: %q", args, stdout.String())
		}
	}
	var errs strings.Builder
	terminal, written := openTerminal(t)
	if code := doMain(question, terminal, &errs); code != command.ExitDone {
		t.Fatalf("exit code %d", code)
	}
	if text := written() + errs.String(); strings.Contains(text, "loaded ") || strings.Contains(text, "prompt: ") {
		t.Errorf("drawn where only the text goes to a terminal: %q", text)
	}
	for _, c := range []struct {
		read, tokens, lately int
		took                 time.Duration
		want                 string
	}{
		{0, 900, 0, 0, "prompt: 0 of 900 tokens"},
		{512, 1024, 256, 8 * time.Second, "prompt: 512 of 1024 tokens, 32.0 a second, 16 s to go"},
		{40, 40, 40, time.Second, "prompt: 40 of 40 tokens, 40.0 a second"},
	} {
		if got := promptText(c.read, c.tokens, c.lately, c.took); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	// Weights are counted up to what stays, and not any more once a text has begun.
	var line strings.Builder
	w := &writingWatch{to: &line, weights: 3 << 20}
	w.observe(runtime.Event{Kind: runtime.WeightsLoaded, LoadedBytes: 1 << 20})
	w.end()
	w.drawn = time.Time{}
	w.observe(runtime.Event{Kind: runtime.GroupDone, LoadedBytes: 1 << 20})
	if got := screen(line.String()); !strings.Contains(line.String(), "loaded 1.00 MiB of 3.00 MiB") || len(got) != 1 || got[0] != "" {
		t.Errorf("drew %q", line.String())
	}
}
