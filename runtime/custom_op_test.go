package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/pager"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// mixOps is a registry with the op of testdata/mix.pt2, which only the CPU computes.
func mixOps(t *testing.T) *graph.Registry { return mixOpsCalling(t, func() {}) }

// mixOpsCalling is mixOps with a function that the op calls.
func mixOpsCalling(t *testing.T, called func()) *graph.Registry {
	t.Helper()
	ops, err := graph.Standard().With(graph.OpDef{
		Kind: "test::mix",
		Shape: func(in []graph.Spec, a graph.Attrs) ([]graph.Spec, error) {
			if n := a.Int("parts"); len(in) != n+2 || a.Int("arg1") != n || a.Int("arg2") != a.Int("times") || len(a) != 5 {
				return nil, fmt.Errorf("%d operands, attributes %v", len(in), a)
			}
			return in[1 : len(in)-1], nil
		},
		Reference: func(in, out []*tensor.Tensor, a graph.Attrs) error {
			called()
			all := make([][]float32, len(in))
			for i, x := range in {
				values, err := tensor.Slice[float32](x)
				if err != nil {
					return err
				}
				all[i] = values
			}
			scale := all[len(all)-1]
			for k := range out {
				y, err := tensor.Slice[float32](out[k])
				if err != nil {
					return err
				}
				for i := range y {
					y[i] = float32(a.Int("times"))*all[0][i] + all[1+k][i]*scale[i%len(scale)] + float32(a.Float("shift"))
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// An op of an embedder's gets tensors in lists and by keyword as operands, and everything else as attributes.
func TestCustomOpArguments(t *testing.T) {
	ops := mixOps(t)
	s := start(t, build(t, "testdata/mix.pt2", ops), optimem.ResidentOptions{Ops: ops})
	want := recorded(t, "mix")[0]
	got, err := s.Run(t.Context(), want.input())
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, want)
}

// TestPanics: an op that panics ends the run with an error that names it and its group, for all who share the pass; the
// session goes on and leaves nothing behind. So it is with an observer.
func TestPanics(t *testing.T) {
	cause := errors.New("thrown")
	var panics atomic.Bool
	throw := func() {
		if panics.Load() {
			panic(cause)
		}
	}
	ops := mixOpsCalling(t, throw)
	model := build(t, "testdata/mix.pt2", ops)
	want := recorded(t, "mix")[0]
	modes := map[string]func(context.Context, *models.Model, optimem.Options) (*optimem.Session, error){
		"resident": optimem.Resident, "page": optimem.Page, "chunk": optimem.Chunk, "auto": optimem.Auto,
	}
	for name, begin := range modes {
		for _, from := range []string{"op", "observer"} {
			for _, device := range []string{"cpu", "emu:memory=64MiB"} {
				t.Run(name+"/"+from+"/"+device, func(t *testing.T) {
					before := offHeap()
					o := optimem.Options{Ops: ops, Device: device}
					if from == "observer" {
						o.Ops = mixOps(t)
						o.Observe = func(optimem.Event) { throw() }
					}
					s, err := begin(t.Context(), model, o)
					if err != nil {
						t.Fatal(err)
					}
					for range 3 {
						panics.Store(true)
						var all sync.WaitGroup
						for range 4 {
							all.Go(func() {
								_, err := s.Run(t.Context(), want.input())
								var panicked *optimem.PanicError
								if !errors.Is(err, cause) || !errors.As(err, &panicked) || len(panicked.Stack) == 0 {
									t.Errorf("got %v, want what was thrown", err)
								}
								var op *optimem.OpError
								var group *pager.GroupError
								if from == "op" && (!errors.As(err, &op) || op.Kind != "test::mix" || !errors.As(err, &group)) {
									t.Errorf("%v does not name the op and its group", err)
								}
							})
						}
						all.Wait()
						panics.Store(false)
						got, err := s.Run(t.Context(), want.input())
						if err != nil {
							t.Fatal(err)
						}
						compare(t, got, want)
					}
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					if left := offHeap() - before; left != 0 {
						t.Errorf("%d bytes are left", left)
					}
				})
			}
		}
	}
}
