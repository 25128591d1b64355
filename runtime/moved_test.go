package runtime_test

import (
	"context"
	"math"
	"testing"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestPlansSayWhatMoves: a plan has the bytes that a pass brings, on both sides, and on a clock that is simulated what it
// takes.
func TestPlansSayWhatMoves(t *testing.T) {
	model := build(t, digitsModel, nil)
	for _, c := range []struct {
		name  string
		start func(ctx context.Context, model *models.Model, o optimem.Options) (*optimem.Session, error)
		o     optimem.Options
		moves bool
	}{
		{"page", optimem.Page, optimem.Options{}, true},
		{"auto", optimem.Auto, optimem.Options{Memory: 400_000}, true},
		{"chunk", optimem.Chunk, optimem.Options{Capacity: plan.Limit{N: 40_000, Unit: plan.Bytes}}, true},
		{"page beside copies", optimem.Page, optimem.Options{Device: "emu:memory=1GiB,bandwidth=1GB/s"}, true},
		{"page from the disk", optimem.Page, optimem.Options{Device: "emu:memory=1GiB,bandwidth=1GB/s", HostMemory: 400_000}, true},
		{"chunk beside the CPU", optimem.Chunk, optimem.Options{
			Device: "emu:memory=1GiB", Capacity: plan.Limit{N: 40_000, Unit: plan.Bytes}}, false},
		{"chunk beside a CPU that pages", optimem.Chunk, optimem.Options{
			Device: "emu:memory=1GiB", Capacity: plan.Limit{N: 40_000, Unit: plan.Bytes}, HostMemory: 350_000}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := c.start(t.Context(), model, c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			const rows = 3
			p, err := s.Plan(t.Context(), map[string]tensor.Shape{"input": {rows, 1, 8, 8}})
			if err != nil {
				t.Fatal(err)
			}
			if (p.MovedBytes > 0) != c.moves {
				t.Errorf("%d bytes are to be moved\n%v", p.MovedBytes, p)
			}
			var begin, end optimem.Metrics
			took := 0.0
			for range 3 {
				begin = s.Metrics()
				from, simulated := s.Clock()
				if _, err := s.Run(t.Context(), digitsInput(pictures(rows))); err != nil {
					t.Fatal(err)
				}
				end = s.Metrics()
				to, _ := s.Clock()
				if simulated {
					took = (to - from).Seconds()
				}
			}
			if n := end.MovedBytes - begin.MovedBytes; n != p.MovedBytes {
				t.Errorf("%d bytes were to be moved, and %d were\n%v", p.MovedBytes, n, p)
			}
			if f := p.Forecast.Seconds; took > 0 && math.Abs(f/took-1) > 0.02 {
				t.Errorf("%g s were expected, and it took %g\n%v", f, took, p)
			}
		})
	}
}
