package runtime_test

import (
	"math"
	"testing"
	"time"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// TestClockAgreesWithForecast: what a plan expects of an emulated device is what its clock says, whether the device's
// bus has a rate or copies take no time.
func TestClockAgreesWithForecast(t *testing.T) {
	model := build(t, digitsModel, nil)
	shapes := map[string]tensor.Shape{"input": {3, 1, 8, 8}}
	for _, e := range []emulated.Options{
		{MemoryBytes: 64 << 20},
		{MemoryBytes: 64 << 20, CopyBytes: 1e9, CopyLatency: 10 * time.Microsecond},
		{MemoryBytes: 64 << 20, CopyBytes: 10e6},
	} {
		for _, mode := range []plan.Mode{plan.Resident, plan.Page, plan.Auto} {
			s, dev := emulate(t, model, mode, optimem.Options{}, e)
			pl, err := s.Plan(t.Context(), shapes)
			if err != nil {
				t.Fatal(err)
			}
			var took time.Duration
			for range 4 {
				begin := dev.Elapsed()
				runDigits(t, s, pictures(3))
				took = dev.Elapsed() - begin
			}
			if pl.Forecast.Seconds <= 0 || math.Abs(took.Seconds()/pl.Forecast.Seconds-1) > 0.01 {
				t.Errorf("%s at %g bytes a second: %v on the clock, %g s were expected",
					mode, e.CopyBytes, took, pl.Forecast.Seconds)
			}
		}
	}
}
