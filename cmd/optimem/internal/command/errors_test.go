package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
)

// TestMoreMemory: the hint names what is enough, in whole gibibytes.
func TestMoreMemory(t *testing.T) {
	for bytes, want := range map[int64]string{0: "1GiB", 1: "1GiB", 1 << 30: "1GiB", 1<<30 + 1: "2GiB", 7_200_000_000: "7GiB"} {
		if got := MoreMemory(bytes); !strings.HasSuffix(got, " --open-memory "+want) {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	refused := func(path string, class error) error {
		return fmt.Errorf("open: %w", &loader.Error{Path: path, Offset: -1, Err: fmt.Errorf("%w: because", class)})
	}
	html := file("a.pt", "\n<!DOCTYPE html><html>")
	tar := file("b.pt", strings.Repeat("\x00", 257)+"ustar"+strings.Repeat("\x00", 250))
	pointer := file("e.pt", "version https://git-lfs.github.com/spec/v1\n")
	tests := []struct {
		name string
		ctx  context.Context
		err  error
		code int
		want string // part of what is printed
	}{
		{"done", context.Background(), nil, 0, ""},
		{"failed", context.Background(), errors.New("broken"), 1, "optimem: error: broken\n"},
		{"usage", context.Background(), UsageError(nil, errors.New("what?")), 2, "optimem: hint: 'optimem help'"},
		{"unsupported", context.Background(), refused("x", loader.ErrUnsupported), 4, "because"},
		{"format", context.Background(), refused("x", loader.ErrFormat), 5, "because"},
		{"unsafe", context.Background(), refused("x", loader.ErrUnsafe), 5, "optimem: hint: unpickling this file may"},
		{"limit", context.Background(), refused("x", loader.ErrLimit), 5, "because"},
		{"memory", context.Background(), refused("x", loader.ErrMemory), 5, "--open-memory 1GiB"},
		{"interrupted", cancelled, fmt.Errorf("open: %w", context.Canceled), 130, "optimem: error: interrupted\n"},
		{"failed while interrupted", cancelled, errors.New("broken"), 1, "optimem: error: broken\n"},
		{"not interrupted by that", context.Background(), context.Canceled, 1, "canceled"},
		{"answered", context.Background(), &Failure{Code: 5}, 5, ""},
		{"escapes", context.Background(), errors.New("\x1b[2Jx\ny"), 1, `optimem: error: \x1b[2Jx\ny` + "\n"},
		{"web page", context.Background(), refused(html, loader.ErrUnsupported), 4, "/resolve/"},
		{"tar", context.Background(), refused(tar, loader.ErrUnsupported), 4, `torch.load("b.pt", weights_only=False)`},
		{"empty", context.Background(), refused(file("c", ""), loader.ErrFormat), 5, "did not finish"},
		{"cut", context.Background(), refused(file("d", "PK\x03\x04"), loader.ErrFormat), 5, "stopped early"},
		{"packed", context.Background(), refused(file("f.pt.gz", "\x1f\x8b\x08\x00"), loader.ErrUnsupported), 4, "gunzip"},
		{"pointer", context.Background(), refused(pointer, loader.ErrUnsupported), 4, "git lfs pull"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stderr strings.Builder
			c := &Line{Stderr: &stderr}
			if code := c.Report(tt.ctx, tt.err); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if got := stderr.String(); !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("printed %q, want %q", got, tt.want)
			}
			if got := stderr.String(); strings.Contains(got, "--open-memory") && !strings.Contains(tt.want, "--open-memory") {
				t.Errorf("printed %q: more memory would not help", got)
			}
		})
	}
}
