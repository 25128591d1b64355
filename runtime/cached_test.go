package runtime_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// What the host holds of a file is expected at the rate of its memory, not at the disk's, where both are known.
func TestForecastOfCachedFile(t *testing.T) {
	data, err := os.ReadFile(digitsModel)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "digits.pt2")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	ckpt, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	var cached, total int64
	for _, w := range ckpt.Weights {
		src, ok := w.Extent.Source.(tensor.CachedSource)
		if !ok {
			t.Skip("nobody tells what is in memory here")
		}
		n, _ := src.CachedBytes(w.Extent.Offset, w.Extent.Bytes)
		cached, total = cached+n, total+w.Extent.Bytes
	}
	if cached < total {
		t.Skip("a file that was just written is not in memory here")
	}
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	load := func(r plan.Rates) float64 {
		s, err := optimem.Page(context.Background(), model, optimem.PageOptions{Rates: r})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p, err := s.Plan(context.Background(), map[string]tensor.Shape{"input": {1, 1, 8, 8}})
		if err != nil {
			t.Fatal(err)
		}
		return p.Forecast.LoadSeconds
	}
	slow := plan.Rates{DiskBytes: 1e6, ReadSeconds: 1e-9}
	fast := slow
	fast.CachedBytes = 1e9
	if disk, memory := load(slow), load(fast); memory > disk/900 || memory < disk/1100 {
		t.Errorf("%v s from the disk, %v s from memory", disk, memory)
	}
}
