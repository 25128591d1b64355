//go:build !race

package runtime_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// The race detector drops some of what a sync.Pool keeps, so that allocations mean nothing with it.

// room returns tensors that RunInto can fill for given inputs, after a call that tells their shapes.
func room(t *testing.T, s *optimem.Session, in optimem.Values) optimem.Values {
	t.Helper()
	out, err := s.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	into := make(optimem.Values, len(out))
	for name, y := range out {
		into[name] = &tensor.Tensor{
			DType: y.DType, Layout: tensor.Contiguous(y.Layout.Shape...), Data: make([]byte, len(y.Data)),
		}
	}
	return into
}

// allocsOf returns how often a pass over the inputs takes memory from Go's heap after the first.
func allocsOf(t *testing.T, s *optimem.Session, in optimem.Values) float64 {
	t.Helper()
	into := room(t, s, in)
	return testing.AllocsPerRun(50, func() {
		if err := s.RunInto(t.Context(), in, into); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRunIntoAllocatesNothingOnTheCPU: after the first call nothing is taken from Go's heap, by kernels neither, with a
// thread or more, whether weights stay or are paged.
func TestRunIntoAllocatesNothingOnTheCPU(t *testing.T) {
	model := build(t, digitsModel, nil)
	for _, threads := range []int{1, 2} {
		for name, mode := range map[string]func(context.Context, *models.Model, optimem.Options) (*optimem.Session, error){
			"resident": optimem.Resident, "page": optimem.Page,
		} {
			t.Run(fmt.Sprintf("%s/%d threads", name, threads), func(t *testing.T) {
				s, err := mode(t.Context(), model, optimem.Options{Threads: threads})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if n := allocsOf(t, s, digitsInput(pictures(33))); n != 0 {
					t.Errorf("%v allocations a call", n)
				}
			})
		}
	}
}
