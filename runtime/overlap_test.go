package runtime_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestBatchOnBothSides cuts a batch so that the device and the CPU compute at the same time where the device holds a part
// of the model: in less time than the whole batch at once takes, and with the bits of the same micro-batches alone.
func TestBatchOnBothSides(t *testing.T) {
	const rows = 64
	model := build(t, digitsModel, nil)
	rates := cost.Rates{FLOPs: 1e9, MemoryBytes: 1e12, OpSeconds: 1e-7}
	o := optimem.Options{Capacity: plan.Limit{N: 5000, Unit: plan.Params}, Rates: rates, HostRates: rates}
	e := emulated.Options{MemoryBytes: 64 << 20, CopyBytes: 12e9}
	clock := func(o optimem.Options) (*optimem.BatchPlan, time.Duration, []byte) {
		t.Helper()
		s, dev := emulate(t, model, plan.Chunk, o, e)
		b, err := s.PlanBatch(t.Context(), map[string]tensor.Shape{"input": {rows, 1, 8, 8}})
		if err != nil {
			t.Fatal(err)
		}
		var took time.Duration
		var data []byte
		for range 3 {
			begin := dev.Elapsed()
			out, err := s.RunBatch(t.Context(), digitsInput(pictures(rows)))
			if err != nil {
				t.Fatal(err)
			}
			took = dev.Elapsed() - begin
			data = out[model.Outputs()[0]].Data
		}
		return b, took, data
	}
	b, took, got := clock(o)
	if b.Plan.Sides == nil || !b.Plan.Sides.Overlaps || b.MicroRows >= rows || b.Passes != 1 {
		t.Fatalf("micro-batches of %d rows in %d passes\n%v", b.MicroRows, b.Passes, b.Plan)
	}
	o.MicroBatch = rows
	whole, alone, _ := clock(o)
	if whole.MicroRows != rows || float64(took) > 0.8*float64(alone) {
		t.Errorf("%v, and all rows at once take %v", took, alone)
	}
	s, _ := emulate(t, model, plan.Chunk, o, e)
	var want []byte
	x := pictures(rows)
	for from := 0; from < rows; from += b.MicroRows {
		want = append(want, runDigits(t, s, x[from*64:min(from+b.MicroRows, rows)*64])...)
	}
	if !bytes.Equal(got, want) {
		t.Error("other bits than the micro-batches by themselves")
	}
}
