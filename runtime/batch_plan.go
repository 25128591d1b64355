package runtime

import (
	"context"
	"errors"
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
	// FileBytes is what files give for MovedBytes.
	MovedBytes, FileBytes int64
	Seconds               float64
}

// PlanBatch returns what [Session.RunBatch] would do with inputs of the given shapes. Nothing is read or allocated for
// it.
func (s *Session) PlanBatch(ctx context.Context, shapes map[string]tensor.Shape) (*BatchPlan, error) {
	if err := s.wait(ctx, "plan"); err != nil {
		return nil, err
	}
	defer s.release()
	d, err := s.divide(ctx, shapes)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	budgetBytes := s.batchBudget()
	p, err := s.planWithin(ctx, d.main, d.instances, budgetBytes)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	b := &BatchPlan{
		Plan: p, Rows: d.rows, MicroRows: d.micro, Passes: (d.full + d.instances - 1) / d.instances, Seconds: d.seconds,
	}
	b.MovedBytes, b.FileBytes = int64(b.Passes)*p.MovedBytes, int64(b.Passes)*p.FileBytes()
	if d.last != nil {
		rest, err := s.planWithin(ctx, d.last, 1, budgetBytes)
		if err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		b.Passes++
		b.MovedBytes += rest.MovedBytes
		b.FileBytes += rest.FileBytes()
	}
	return b, nil
}

// LeastForBatch returns the smallest budget with which [Session.RunBatch] computes inputs of the given shapes: in the smallest
// micro-batches that the program takes, and as few at a time as need be. It is 0 where nothing is held on the device.
func (s *Session) LeastForBatch(ctx context.Context, shapes map[string]tensor.Shape) (int64, error) {
	if err := s.wait(ctx, "plan"); err != nil {
		return 0, err
	}
	defer s.release()
	// What is refused within a byte says what would do. Such plans are not kept: others would be taken for them.
	_, err := s.newDivision(ctx, shapes, func(p *program, instances int) (*plan.Plan, error) {
		return s.newPlan(ctx, p, instances, 1)
	})
	var capacity *plan.CapacityError
	switch {
	case errors.As(err, &capacity) && !capacity.Host:
		return capacity.MinBytes, nil
	case err != nil:
		return 0, fmt.Errorf("plan: %w", err)
	}
	return 0, nil
}
