//go:build !files

package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
)

// A cancelling writer cancels once a text passes by.
type cancelling struct {
	strings.Builder
	text   string
	cancel func()
}

func (c *cancelling) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.text) {
		c.cancel()
	}
	return c.Builder.Write(p)
}

// TestProfileInterrupted: who interrupts the command before the picture is written is left without one, and with that of
// before where there was one.
func TestProfileInterrupted(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.html")
	for _, before := range []string{"", "an older picture"} {
		if before != "" {
			if err := os.WriteFile(report, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var stdout strings.Builder
		stderr := &cancelling{text: "with each op waited for", cancel: cancel}
		c := &command.Line{Stdout: &stdout, Stderr: stderr}
		root := root(c)
		root.SetArgs([]string{"profile", "../../examples/digits/digits.pt2", "--device", "cpu", "--runs", "1", "--html", report})
		if code := c.Report(ctx, root.ExecuteContext(ctx)); code != command.ExitInterrupted || stdout.Len() > 0 {
			t.Errorf("exit code %d, and printed %q; %s", code, stdout.String(), stderr.String())
		}
		got, err := os.ReadFile(report)
		if string(got) != before || (before == "") != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("there is %q, want %q: %v", got, before, err)
		}
		left, err := os.ReadDir(filepath.Dir(report))
		if err != nil || len(left) > 1 {
			t.Errorf("%v is left: %v", left, err)
		}
	}
}
