package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
)

// A Plan says how a model is divided over stages.
type Plan struct {
	Stages []Part
	// Alone is what the whole model would take on one machine, the one named: that on which a pass is shortest. It is nil
	// where the model does not fit on any.
	Alone        *Forecast
	AloneAddress string
}

// A Part is a stage of a plan.
type Part struct {
	Address string
	// From is the module that it begins with, "" for the first.
	From string
	// MemoryBytes is the stage's budget.
	MemoryBytes int64
	Forecast    Forecast
	// HopBytes is what goes to the next stage in a pass, HopSeconds how long that takes.
	HopBytes   int64
	HopSeconds float64
}

// PassSeconds is how long one pass takes from the first stage to the last.
func (p *Plan) PassSeconds() float64 {
	sum := 0.0
	for i := range p.Stages {
		sum += p.Stages[i].Forecast.Seconds + p.Stages[i].HopSeconds
	}
	return sum
}

// IntervalSeconds is how long it takes from the end of one pass to that of the next, where always some are under way.
func (p *Plan) IntervalSeconds() float64 {
	most := 0.0
	for i := range p.Stages {
		most = max(most, p.Stages[i].Forecast.Seconds, p.Stages[i].HopSeconds)
	}
	return most
}

// A SlowerError says that one machine would be faster by itself.
type SlowerError struct {
	// AloneSeconds is what a pass takes at Address, PassSeconds what it takes over all stages.
	Address                   string
	AloneSeconds, PassSeconds float64
}

// Error has both numbers.
func (e *SlowerError) Error() string {
	return fmt.Sprintf("a pass is expected to take %.4g s over the stages, and %.4g s on %s alone", e.PassSeconds, e.AloneSeconds, e.Address)
}

// Divide chooses where a model is divided over machines with so much memory, in order: each gets weights in proportion to
// its memory, as nearly as the places allow at which few bytes cross. It returns nil where there are too few places.
func Divide(seams []graph.Seam, weightBytes int64, memoryBytes []int64) []graph.Seam {
	if len(memoryBytes) < 2 || len(seams) < len(memoryBytes)-1 {
		return nil
	}
	least := seams[0].Bytes
	var total float64
	for _, s := range seams {
		least = min(least, s.Bytes)
	}
	for _, m := range memoryBytes {
		total += float64(max(m, 1))
	}
	narrow := slices.DeleteFunc(slices.Clone(seams), func(s graph.Seam) bool { return s.Bytes > 4*max(least, 1) })
	if len(narrow) < len(memoryBytes)-1 {
		narrow = seams
	}
	var chosen []graph.Seam
	share, next := 0.0, 0
	for i := range len(memoryBytes) - 1 {
		share += float64(max(memoryBytes[i], 1)) / total
		want := share * float64(weightBytes)
		left := len(memoryBytes) - 2 - i // places that those behind need
		best := next
		for k := next; k < len(narrow)-left; k++ {
			if distance(narrow[k], want) < distance(narrow[best], want) {
				best = k
			}
		}
		chosen = append(chosen, narrow[best])
		next = best + 1
	}
	return chosen
}

func distance(s graph.Seam, want float64) float64 {
	return max(float64(s.WeightBytes)-want, want-float64(s.WeightBytes))
}

// divide asks the stages what they would take and chooses where the model is divided.
func (p *Pipeline) divide(ctx context.Context) (*Plan, error) {
	shapes := p.opts.Typical
	made := &Plan{}
	var seams []graph.Seam
	var weights int64
	memories := make([]int64, len(p.peers))
	for i, one := range p.peers {
		memories[i] = one.said.BudgetBytes
		made.Stages = append(made.Stages, Part{Address: one.address, MemoryBytes: memories[i]})
		said, err := p.ask(ctx, i, ask{Forecast: &rangeAsk{Shapes: shapes, Steps: stepsOf(p.opts.Steps), Window: p.opts.Window}})
		var full *plan.CapacityError
		if err != nil && !errors.As(err, &full) {
			return nil, err
		}
		if i == 0 {
			seams, weights = said.Seams, said.WeightBytes
		}
		if f := said.Forecast; err == nil && f != nil && (made.Alone == nil || f.Seconds < made.Alone.Seconds) {
			made.Alone, made.AloneAddress = f, one.address
		}
	}
	at := p.opts.At
	if at == nil {
		for _, s := range Divide(seams, weights, memories) {
			at = append(at, s.Module)
		}
		if at == nil {
			return nil, fmt.Errorf("%w: a model with %d places to divide it, over %d stages", graph.ErrUnsupported, len(seams), len(p.peers))
		}
	}
	for i, module := range at {
		made.Stages[i+1].From = module
	}
	p.plan = made
	for i := range p.peers {
		r := p.rangeOf(i, shapes)
		said, err := p.ask(ctx, i, ask{Forecast: &r})
		if err != nil {
			return nil, err
		}
		if said.Forecast == nil {
			return nil, p.stageError(i, &ProtocolError{"no forecast"})
		}
		part := &made.Stages[i]
		part.Forecast, part.HopBytes = *said.Forecast, said.Forecast.AfterBytes
		if i < len(p.peers)-1 {
			latency := p.opts.LinkSeconds
			if latency == 0 {
				latency = p.peers[i+1].seconds / 2
			}
			part.HopSeconds = latency + float64(part.HopBytes)/p.opts.LinkBytes
		}
	}
	if made.Alone != nil && made.Alone.Seconds < made.PassSeconds() && !p.opts.Slower {
		return nil, &SlowerError{made.AloneAddress, made.Alone.Seconds, made.PassSeconds()}
	}
	return made, nil
}
