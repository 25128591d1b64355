//go:build unix

package loader

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// writePipe makes a pipe that nobody writes to: whoever opens it waits.
func writePipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe.pt")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	return path
}
