package adapt_test

import (
	"context"
	"testing"

	"github.com/optimem/optimem/adapt"
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
