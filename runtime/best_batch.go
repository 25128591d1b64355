package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// A BatchGoal says which size of micro-batches [Session.BestBatch] looks for. The zero value is the fastest of up to 128 rows.
type BatchGoal struct {
	// Largest looks for the most rows that fit, instead of those that take the least time each.
	Largest bool
	// PowerOfTwo admits 1, 2, 4, … rows only.
	PowerOfTwo bool
	// Max is the most rows looked at; 0 is 128.
	Max int
}

// mostLookedAt is how many rows are looked at where nobody says.
const mostLookedAt = 128

// A BatchSize is a pass of so many rows, as it is planned.
type BatchSize struct {
	Rows int
	// PeakBytes is what the pass takes on the device, OpBytes what an embedder's ops allocate besides, HostBytes what it takes
	// of the host's memory beside a device.
	PeakBytes, OpBytes, HostBytes int64
	// MovedBytes is what it brings, Seconds what it is expected to take.
	MovedBytes int64
	Seconds    float64
}

// RowSeconds is what a row is expected to take.
func (b BatchSize) RowSeconds() float64 { return b.Seconds / float64(b.Rows) }

// An UnstatedMemoryError says that an embedder's op does not say what memory it allocates ([graph.OpDef.Memory]).
type UnstatedMemoryError struct {
	Path string
	Kind graph.Kind
}

// Error names the op.
func (e *UnstatedMemoryError) Error() string {
	return fmt.Sprintf("%s: the op %s does not state what memory it takes", e.Path, e.Kind)
}

// Batches returns every number of rows that goes through one pass within the budget, in order, from shapes alone: nothing is
// read, run or allocated for it, and a pass takes exactly PeakBytes. How many rows the shapes have does not matter. Where none
// fits, the error is a [CapacityError]; a program that mixes rows is a [*graph.NotBatchableError], and one with an op that
// does not state its memory an [*UnstatedMemoryError].
func (s *Session) Batches(ctx context.Context, shapes map[string]tensor.Shape, goal BatchGoal) ([]BatchSize, error) {
	if err := s.wait(ctx, "plan"); err != nil {
		return nil, err
	}
	defer s.release()
	list, err := s.batchSizes(ctx, shapes, goal)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return list, nil
}

// BestBatch returns which of [Session.Batches] is the goal: the one whose rows are expected to take the least time each, the
// smaller one of two that take the same; or the largest.
func (s *Session) BestBatch(ctx context.Context, shapes map[string]tensor.Shape, goal BatchGoal) (BatchSize, error) {
	list, err := s.Batches(ctx, shapes, goal)
	if err != nil {
		return BatchSize{}, err
	}
	return goal.Best(list), nil
}

// Best returns which of several sizes, one at least, in order, is the goal.
func (g BatchGoal) Best(list []BatchSize) BatchSize {
	best := list[0]
	for _, b := range list[1:] {
		if g.Largest || b.RowSeconds() < best.RowSeconds()*(1-1e-9) { // sums of floats differ in the last digits
			best = b
		}
	}
	return best
}

// Fit returns a session in the mode auto within so many bytes on the CPU, 0 for what is free, whose [Session.RunBatch] cuts
// batches into the size that is expected to be the fastest. The model must tell the sizes of its inputs, but for their rows;
// where it does not, start a session and ask it for [Session.BestBatch].
func Fit(ctx context.Context, model *models.Model, memoryBytes int64) (*Session, error) {
	shapes := make(map[string]tensor.Shape)
	for _, port := range model.Inputs() {
		if port.Optional {
			continue
		}
		shape := slices.Clone(port.Shape)
		for d, n := range shape {
			if n < 0 && d == 0 {
				shape[d] = 1
			} else if n < 0 {
				return nil, &InputError{Input: port.Name, Msg: fmt.Sprintf("its size along axis %d is not known", d)}
			}
		}
		if shape == nil {
			return nil, &InputError{Input: port.Name, Msg: "its shape is not known"}
		}
		shapes[port.Name] = shape
	}
	s, err := Auto(ctx, model, AutoOptions{Memory: memoryBytes})
	if err != nil {
		return nil, err
	}
	best, err := s.BestBatch(ctx, shapes, BatchGoal{})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.opts.MicroBatch = best.Rows
	return s, nil
}

func (s *Session) batchSizes(ctx context.Context, shapes map[string]tensor.Shape, goal BatchGoal) ([]BatchSize, error) {
	of, err := s.undivided(ctx, shapes)
	if err != nil {
		return nil, err
	}
	if goal.Max == 0 {
		goal.Max = mostLookedAt
	}
	if goal.Max < 0 || goal.Max > maxRows {
		return nil, &OptionError{"BatchGoal.Max", fmt.Sprintf("%d rows", goal.Max)}
	}
	budgetBytes := s.batchBudget()
	var list []BatchSize
	var refused error
	for n := 1; n <= goal.Max; n++ {
		if goal.PowerOfTwo && n&(n-1) != 0 || of.micro > 0 && n%of.micro != 0 {
			continue
		}
		b, err := s.batchSize(ctx, of, shapes, n, budgetBytes)
		var capacity *plan.CapacityError
		var input *models.InputError
		switch {
		case err == nil:
			list = append(list, b)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.As(err, &capacity) && !errors.As(err, &input): // the latter: so many rows are not taken
			return nil, err
		default:
			refused = lesser(refused, err)
		}
	}
	switch {
	case len(list) > 0:
		return list, nil
	case refused == nil:
		return nil, &RowsError{Rows: goal.Max, Micro: of.micro,
			Err: fmt.Errorf("the program takes %d rows at a time", of.micro)}
	}
	return nil, refused
}

// batchSize plans a pass of n rows: one micro-batch, or as many as a program needs that takes a given number of rows.
func (s *Session) batchSize(
	ctx context.Context, of division, shapes map[string]tensor.Shape, n int, budgetBytes int64,
) (b BatchSize, err error) {
	micro := n
	if of.micro > 0 {
		micro = of.micro
	}
	p, err := s.forRows(ctx, &of, shapes, micro)
	if err != nil {
		return b, err
	}
	if b.OpBytes, err = s.opBytes(p.graph); err != nil {
		return b, err
	}
	left := budgetBytes
	if left > 0 {
		left = max(budgetBytes-b.OpBytes, 1)
	}
	pl, err := s.newPlan(ctx, p, n/micro, left)
	if err != nil {
		return b, err
	}
	b.Rows, b.PeakBytes, b.HostBytes = n, pl.PeakBytes(), pl.HostBytes()
	b.MovedBytes, b.Seconds = pl.MovedBytes, pl.Forecast.Seconds
	return b, nil
}

// opBytes is the most that one of an embedder's ops allocates.
func (s *Session) opBytes(g *graph.Graph) (most int64, err error) {
	specs := func(ids []graph.ValueID, at func(int) tensor.Shape) (list []graph.Spec) {
		for i, id := range ids {
			var spec graph.Spec
			if id >= 0 {
				spec = graph.Spec{DType: g.Values[id].DType, Shape: at(i)}
			}
			list = append(list, spec)
		}
		return list
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		def, ok := s.opts.Ops.Lookup(op.Kind)
		if !ok || def.Reference == nil {
			continue
		}
		if def.Memory == nil {
			return 0, &UnstatedMemoryError{op.Path, op.Kind}
		}
		var ids []graph.ValueID
		for _, in := range op.In {
			ids = append(ids, in.Value)
		}
		in := specs(ids, func(i int) tensor.Shape { return op.In[i].Layout.Shape })
		out := specs(op.Out, func(i int) tensor.Shape { return g.Values[op.Out[i]].Shape })
		most = max(most, def.Memory(in, out, op.Attrs))
	}
	return most, nil
}
