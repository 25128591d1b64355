package runtime_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A countdown is a context that is done once it was asked a number of times, with the error of one that was cancelled.
type countdown struct {
	context.Context
	left atomic.Int64
}

func (c *countdown) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// until returns a context that is done when it was asked n times.
func until(n int64) *countdown {
	c := &countdown{Context: context.Background()}
	c.left.Store(n)
	return c
}

// TestPlanningIsCancelled: whenever its context ends, planning ends with its error and nothing else, in whichever form
// the model is; the session goes on, and its plan is that of one that nobody cancelled.
func TestPlanningIsCancelled(t *testing.T) {
	shapes := map[string]tensor.Shape{"input": {6, 1, 8, 8}}
	for _, path := range []string{digitsModel, "../examples/digits/digits_script.pt", "../examples/digits/digits_module.pt"} {
		whole, err := optimem.Auto(t.Context(), build(t, path, nil), optimem.Options{Memory: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer whole.Close()
		want, err := whole.Plan(t.Context(), shapes)
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for done := false; !done; n++ {
			// Of the same model the graph would be there.
			s, err := optimem.Auto(t.Context(), build(t, path, nil), optimem.Options{Memory: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.Plan(until(n), shapes)
			if done = err == nil; !done {
				var program *models.ProgramError
				if !errors.Is(err, context.Canceled) || errors.As(err, &program) {
					t.Fatalf("%s: cancelled at question %d: %v", path, n, err)
				}
				if p, err = s.Plan(t.Context(), shapes); err != nil {
					t.Fatalf("%s: after a planning that was cancelled at question %d: %v", path, n, err)
				}
			}
			if p.String() != want.String() {
				t.Fatalf("%s: cancelled at question %d, the plan is another:\n%s\nwant\n%s", path, n, p, want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if n < 6 {
			t.Errorf("%s: planning asks only %d times whether it is to end", path, n-1)
		}
	}
}

// TestBatchPlanningIsCancelled is the same for batches, whose sizes are searched.
func TestBatchPlanningIsCancelled(t *testing.T) {
	shapes := map[string]tensor.Shape{"input": {64, 1, 8, 8}}
	model := build(t, digitsModel, nil)
	for n := int64(0); n < 1<<12; n += 1 + n/8 {
		s, err := optimem.Page(t.Context(), model, optimem.Options{Memory: 256 << 10})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.PlanBatch(until(n), shapes)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err == nil {
			if n < 4 {
				t.Errorf("planning a batch asks only %d times whether it is to end", n)
			}
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled at question %d: %v", n, err)
		}
	}
	t.Error("planning a batch is never done")
}

// TestRunAsksWhileItBuilds: the first run with inputs of some shapes builds their graph, and asks its context on the
// way, which one that finds the graph does not.
func TestRunAsksWhileItBuilds(t *testing.T) {
	model := build(t, "../examples/digits/digits_script.pt", nil)
	asked := func() int64 {
		s, err := optimem.Resident(t.Context(), model, optimem.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		const most = 1 << 40
		ctx := until(most)
		if _, err := s.Run(ctx, digitsInput(pictures(3))); err != nil {
			t.Fatal(err)
		}
		return most - ctx.left.Load()
	}
	first := asked()
	if again := asked(); first < again+5 {
		t.Errorf("the run that built the graph asked %d times, the next one %d times", first, again)
	}
}
