package runtime_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// What the host holds of a file is expected at the rate of its memory, not at the disk's, where both are known.
func TestForecastOfCachedFile(t *testing.T) {
	model, _ := cachedModel(t)
	load := func(r cost.Rates) float64 {
		return forecastOfPaging(t, model, optimem.PageOptions{Rates: r}, 1).LoadSeconds
	}
	slow := cost.Rates{DiskBytes: 1e6, ReadSeconds: 1e-9}
	fast := slow
	fast.CachedBytes = 1e9
	if disk, memory := load(slow), load(fast); memory > disk/900 || memory < disk/1100 {
		t.Errorf("%v s from the disk, %v s from memory", disk, memory)
	}
}

// cachedModel returns a model of which the host holds the file in memory, and says so.
func cachedModel(t *testing.T) (*models.Model, *loader.Checkpoint) {
	t.Helper()
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
	t.Cleanup(func() { ckpt.Close() })
	var cached, total int64
	for _, w := range ckpt.Weights {
		src, ok := w.Extent.Source.(storage.CachedSource)
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
	return model, ckpt
}

// TestPastCache: where copying out of the page cache is known to take longer than the disk does, a pass reads the disk, and computes
// the same bits; where there is no disk, or it takes longer, the plan says nothing.
func TestPastCache(t *testing.T) {
	model, ckpt := cachedModel(t)
	file, ok := ckpt.Weights[0].Extent.Source.(storage.PastSource)
	onDisk := ok && file.ReadsPast()
	x := make([]float32, 16*64)
	for i := range x {
		x[i] = float32(i%37) / 37
	}
	in := optimem.Values{"input": tensor.Of(x, 16, 1, 8, 8)}
	run := func(o optimem.Options) (past bool, out []byte) {
		t.Helper()
		s, err := optimem.Start(t.Context(), model, o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {16, 1, 8, 8}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			values, err := s.Run(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			out = values[model.Outputs()[0]].Data
		}
		return p.PastCache, out
	}
	_, want := run(optimem.Options{Mode: plan.Resident})
	slow := cost.Rates{FLOPs: 1e9, DiskBytes: 1e12, ReadSeconds: 1e-9, CachedBytes: 1e6, Measured: true}
	quick := slow
	quick.CachedBytes, quick.DiskBytes = 1e12, 1e6
	for _, c := range []struct {
		rates cost.Rates
		past  bool
	}{{slow, onDisk}, {quick, false}} {
		past, out := run(optimem.Options{Mode: plan.Page, Rates: c.rates, HostRates: c.rates})
		if past != c.past {
			t.Errorf("copies of %g bytes a second: past the page cache %v", c.rates.CachedBytes, past)
		}
		if !bytes.Equal(out, want) {
			t.Errorf("copies of %g bytes a second: other bits", c.rates.CachedBytes)
		}
	}
}

// forecastOfPaging returns what a pass of some digits is expected to take.
func forecastOfPaging(t *testing.T, model *models.Model, o optimem.PageOptions, rows int) plan.Forecast {
	t.Helper()
	s, err := optimem.Page(context.Background(), model, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := s.Plan(context.Background(), map[string]tensor.Shape{"input": {rows, 1, 8, 8}})
	if err != nil {
		t.Fatal(err)
	}
	return p.Forecast
}

// TestGuessedRates: without measured rates ops are expected to take what the CPU's kernels and threads make of them; measured rates are
// what counts where they are known.
func TestGuessedRates(t *testing.T) {
	model := build(t, digitsModel, nil)
	compute := func(threads int, r cost.Rates) float64 {
		return forecastOfPaging(t, model, optimem.PageOptions{Threads: threads, Rates: r}, 64).ComputeSeconds
	}
	if procs := goruntime.GOMAXPROCS(0); procs > 1 && compute(1, cost.Rates{}) <= compute(2, cost.Rates{}) {
		t.Error("a second thread is not expected to help")
	}
	known := cost.Rates{FLOPs: 1e9, MemoryBytes: 1e9, Measured: true}
	if one, two := compute(1, known), compute(2, known); one != two {
		t.Errorf("what was measured gives %g s on one thread and %g on two", one, two)
	}
}
