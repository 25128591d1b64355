package runtime

import (
	"context"
	"fmt"

	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// A BatchPlan is how [Session.RunBatch] cuts a batch.
type BatchPlan struct {
	// Plan is that of a pass of whole micro-batches, as many as go through it.
	Plan *plan.Plan
	// Rows is how many rows the batch has, MicroRows how many a micro-batch, and Passes how often the weights pass by.
	Rows, MicroRows, Passes int
	// MovedBytes is what all passes bring, Seconds what they are expected to take.
	MovedBytes int64
	Seconds    float64
}

// PlanBatch returns what [Session.RunBatch] would do with inputs of the given shapes. Nothing is read or allocated for
// it.
func (s *Session) PlanBatch(ctx context.Context, shapes map[string]tensor.Shape) (*BatchPlan, error) {
	if err := s.wait(ctx, "run"); err != nil {
		return nil, err
	}
	defer s.release()
	d, err := s.divide(shapes)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	budgetBytes := s.batchBudget()
	p, err := s.planWithin(d.main, d.instances, budgetBytes)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	b := &BatchPlan{
		Plan: p, Rows: d.rows, MicroRows: d.micro, Passes: (d.full + d.instances - 1) / d.instances, Seconds: d.seconds,
	}
	b.MovedBytes = int64(b.Passes) * moved(p)
	if d.last != nil {
		rest, err := s.planWithin(d.last, 1, budgetBytes)
		if err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		b.Passes++
		b.MovedBytes += moved(rest)
	}
	return b, nil
}
