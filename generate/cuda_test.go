//go:build linux && (amd64 || arm64) && !nocuda

package generate_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
)

// TestTextOnGPU: the simulated GPU gives the CPU's tokens, whatever requests are beside them, whether weights stay or are paged,
// and attends itself; nothing races.
func TestTextOnGPU(t *testing.T) {
	const requests = 12
	var want [requests][]int
	alone := engine(t, generate.Options{})
	for i := range want {
		got, err := alone.Generate(t.Context(), request(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = got.Tokens
	}
	for _, c := range []struct {
		mode     plan.Mode
		settings string
		rows     int
	}{{plan.Resident, "order=lazy:1", 0}, {plan.Page, "order=lazy:2", 5}, {plan.Auto, "order=threads", 0}} {
		t.Run(string(c.mode), func(t *testing.T) {
			lib := sim.New(t, "memory=64M "+c.settings)
			t.Cleanup(func() { lib.Check(t) }) // after the engine is closed
			e := engine(t, generate.Options{
				Session: runtime.Options{Device: "cuda", CUDALibrary: lib.Path, Mode: c.mode}, Sequences: 3, Rows: c.rows,
			})
			var wait sync.WaitGroup
			for i := range want {
				wait.Go(func() {
					got, err := e.Generate(t.Context(), request(i), nil)
					if err != nil {
						t.Errorf("request %d: %v", i, err)
					} else if !slices.Equal(got.Tokens, want[i]) {
						t.Errorf("request %d: %v, want %v", i, got.Tokens, want[i])
					}
				})
			}
			wait.Wait()
		})
	}
}
