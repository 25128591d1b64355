//go:build !files

package running

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/values"
	"github.com/optimem/optimem/tensor"
)

// A lateContext is done once a folder holds a file that is not empty.
type lateContext struct {
	context.Context
	dir string
}

func (c lateContext) Err() error {
	entries, _ := os.ReadDir(c.dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Size() > 0 {
			return context.Canceled
		}
	}
	return nil
}

// Who interrupts a run while its outputs are written is left without them, even after the last byte.
func TestRunWriteInterruptedAtItsEnd(t *testing.T) {
	dir := t.TempDir()
	ctx := lateContext{t.Context(), dir}
	var r Run
	y := tensor.Of([]float32{1, 2}, 2)
	results := []runOutput{{values.Summarize("y", y), y}}
	err := r.write(ctx, []target{{path: filepath.Join(dir, "y.json")}}, results, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v are left, %v", entries, err)
	}
}
