package adapt_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/optimem/optimem/adapt"
	"github.com/optimem/optimem/tensor"
)

// BenchmarkCall is what a call costs beside its function, which does nothing.
func BenchmarkCall(b *testing.B) {
	ctx := context.Background()
	nothing := func(context.Context, int) error { return nil }
	lowered := func(_ context.Context, n int) error {
		if n > 8 {
			return errShort
		}
		return nil
	}
	for _, c := range []struct {
		name string
		site *adapt.Site
		fn   func(context.Context, int) error
	}{
		{"NoSite", nil, nothing},
		{"Never", adapt.NewSite(adapt.Options{Remember: adapt.Never}), nothing},
		{"Always", adapt.NewSite(adapt.Options{Remember: adapt.Always}), nothing},
		{"AlwaysLearnt", adapt.NewSite(adapt.Options{Remember: adapt.Always}), lowered},
		{"ByFree", new(adapt.Site), nothing},
		{"ByFreeLearnt", new(adapt.Site), lowered},
		{"ByFreeGrow", adapt.NewSite(adapt.Options{Grow: true}), nothing},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := adapt.Batch(ctx, c.site, 64, c.fn); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFill is toma's own benchmark: a tensor of 32 MiB is filled in four chunks, by a loop and by Chunks. It tells the
// shortest and the median call besides. benchmarks/run_adapt.sh runs toma's beside it, each row as a process of its own.
func BenchmarkFill(b *testing.B) { compareChunks(b, fill) }

// BenchmarkNothing does nothing with the chunks: what is left is what cutting costs.
func BenchmarkNothing(b *testing.B) {
	compareChunks(b, func(context.Context, *tensor.Tensor, int, int) error { return nil })
}

// fill is tensor[:] = 1.0.
func fill(_ context.Context, part *tensor.Tensor, _, _ int) error {
	p, err := tensor.Slice[float32](part)
	p[0] = 1
	for n := 1; n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
	return err
}

func compareChunks(b *testing.B, fn func(context.Context, *tensor.Tensor, int, int) error) {
	const rows, step = 128, 32
	ctx := context.Background()
	whole := tensor.Of(make([]float32, rows*256*256), rows, 256, 256)
	chunks := func(site *adapt.Site) func() error {
		return func() error { return adapt.Chunks(ctx, site, whole, 0, step, fn) }
	}
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"Native", func() error {
			for lo := 0; lo < rows; lo += step {
				part := *whole
				part.Layout.Shape = tensor.Shape{step, 256, 256}
				part.Layout.Offset = lo * 256 * 256
				if err := fn(ctx, &part, lo, lo+step); err != nil {
					return err
				}
			}
			return nil
		}},
		{"NoSite", chunks(nil)},
		{"Never", chunks(adapt.NewSite(adapt.Options{Remember: adapt.Never}))},
		{"Always", chunks(adapt.NewSite(adapt.Options{Remember: adapt.Always}))},
		{"ByFree", chunks(new(adapt.Site))},
		{"ByFreeGrow", chunks(adapt.NewSite(adapt.Options{Grow: true}))},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if err := c.call(); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[0]), "min-ns")
			b.ReportMetric(float64(took[len(took)/2]), "median-ns")
		})
	}
}
