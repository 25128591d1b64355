package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A Plan says how a model is divided over stages.
type Plan struct {
	Stages []Part
	// Alone is what the whole model would take on one machine, the one named: that on which a pass is shortest. It is nil
	// where the model does not fit on any.
	Alone        *Forecast
	AloneAddress string
	// InSeconds is how long a pass's inputs take from the head to the first stage, OutSeconds how long its outputs take
	// from the last one to the head.
	InSeconds, OutSeconds float64
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

// PassSeconds is how long one pass takes by itself, from the head through all stages and back.
func (p *Plan) PassSeconds() float64 {
	sum := p.InSeconds + p.OutSeconds
	for i := range p.Stages {
		sum += p.Stages[i].Forecast.Seconds + p.Stages[i].HopSeconds
	}
	return sum
}

// IntervalSeconds is how long it takes from the end of one pass to that of the next, where always some are under way.
func (p *Plan) IntervalSeconds() float64 {
	most := max(p.InSeconds, p.OutSeconds)
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
	return fmt.Sprintf("a pass is expected to take %.4g s over the stages, and %.4g s on %s alone", e.PassSeconds,
		e.AloneSeconds, e.Address)
}

// Divide chooses where a model is divided over machines with so much memory, in order: each gets weights in proportion
// to its memory, but for a little, by which fewer bytes cross. It returns nil where there are too few places.
func Divide(seams []graph.Seam, weightBytes int64, memoryBytes []int64) []graph.Seam {
	if len(memoryBytes) < 2 || len(seams) < len(memoryBytes)-1 {
		return nil
	}
	var total float64
	for _, m := range memoryBytes {
		total += float64(max(m, 1))
	}
	little := float64(weightBytes) / float64(16*len(memoryBytes))
	var chosen []graph.Seam
	share, next := 0.0, 0
	for i := range len(memoryBytes) - 1 {
		share += float64(max(memoryBytes[i], 1)) / total
		left := len(memoryBytes) - 2 - i // places that those behind need
		best := narrowest(seams[next:len(seams)-left], share*float64(weightBytes), little)
		chosen = append(chosen, seams[next+best])
		next += best + 1
	}
	return chosen
}

// narrowest returns the place at which the fewest bytes cross of those that are hardly farther from what is wanted than
// the nearest one, of equals the nearest.
func narrowest(seams []graph.Seam, want, little float64) int {
	away := func(s graph.Seam) float64 { return math.Abs(float64(s.WeightBytes) - want) }
	near := math.Inf(1)
	for _, s := range seams {
		near = min(near, away(s))
	}
	best := -1
	for i, s := range seams {
		if away(s) > near+little {
			continue
		}
		if best < 0 || s.Bytes < seams[best].Bytes || s.Bytes == seams[best].Bytes && away(s) < away(seams[best]) {
			best = i
		}
	}
	return best
}

// A Machine is one that a plan is for.
type Machine struct {
	Name        string
	MemoryBytes int64
}

// PlanMachines divides a model over machines that need not be there: of this one's kind, with so much memory. What the
// links between them give is in the options, as are the shapes of a usual pass.
func PlanMachines(
	ctx context.Context, model *models.Model, shapes map[string]tensor.Shape, machines []Machine,
	session runtime.Options, opts Options,
) (*Plan, error) {
	d := &dividing{opts: opts}
	d.opts.settle(len(machines), shapes)
	var stages []*Stage
	for _, m := range machines {
		session.Memory, session.MemoryShare = m.MemoryBytes, 0
		stages = append(stages, &Stage{model: model, opts: StageOptions{Session: session}})
		d.names, d.memories = append(d.names, m.Name), append(d.memories, m.MemoryBytes)
		d.seconds = append(d.seconds, d.opts.LinkSeconds)
	}
	d.forecast = func(ctx context.Context, i int, ask *rangeAsk) (*answer, error) {
		said, err := stages[i].forecast(ctx, ask)
		if err != nil {
			err = &StageError{Stage: i, Address: machines[i].Name, Err: err}
		}
		return said, err
	}
	if err := d.opts.check(len(machines)); err != nil {
		return nil, err
	}
	return d.divide(ctx)
}

// A dividing is what dividing a model asks of machines.
type dividing struct {
	opts     Options
	names    []string
	memories []int64
	// seconds is how long the first byte takes to a machine.
	seconds  []float64
	forecast func(ctx context.Context, i int, ask *rangeAsk) (*answer, error)
}

// ask is what a range is asked with.
func (d *dividing) ask(r graph.Range) *rangeAsk {
	return &rangeAsk{From: r.From, To: r.To, Shapes: d.opts.Typical, Steps: stepsOf(d.opts.Steps),
		Window: d.opts.Window}
}

// divide asks machines what they would take and chooses where the model is divided.
func (d *dividing) divide(ctx context.Context) (*Plan, error) {
	made := &Plan{}
	var seams []graph.Seam
	var weights int64
	for i, name := range d.names {
		made.Stages = append(made.Stages, Part{Address: name, MemoryBytes: d.memories[i]})
		said, err := d.forecast(ctx, i, d.ask(graph.Range{}))
		var full *plan.CapacityError
		if err != nil && !errors.As(err, &full) {
			return nil, err
		}
		if i == 0 {
			seams, weights = said.Seams, said.WeightBytes
		}
		if f := said.Forecast; err == nil && f != nil && (made.Alone == nil || f.Seconds < made.Alone.Seconds) {
			made.Alone, made.AloneAddress = f, name
		}
	}
	at := d.opts.At
	if at == nil {
		for _, s := range Divide(seams, weights, d.memories) {
			at = append(at, s.Module)
		}
		if at == nil {
			return nil, fmt.Errorf("%w: a model with %d places to divide it, over %d stages", graph.ErrUnsupported,
				len(seams), len(d.names))
		}
	}
	for i, module := range at {
		made.Stages[i+1].From = module
	}
	for i := range made.Stages {
		said, err := d.forecast(ctx, i, d.ask(made.rangeOf(i)))
		if err != nil {
			return nil, err
		}
		if said.Forecast == nil {
			return nil, &StageError{i, d.names[i], &ProtocolError{"no forecast"}}
		}
		part := &made.Stages[i]
		part.Forecast = *said.Forecast
		if i < len(made.Stages)-1 {
			part.HopBytes = said.Forecast.AfterBytes
			part.HopSeconds = d.seconds[i+1] + float64(part.HopBytes)/d.opts.LinkBytes // as from the head
		}
	}
	link := func(stage int, bytes int64) float64 { return d.seconds[stage] + float64(bytes)/d.opts.LinkBytes }
	last := len(made.Stages) - 1
	made.InSeconds = link(0, made.Stages[0].Forecast.InputBytes)
	made.OutSeconds = link(last, made.Stages[last].Forecast.OutputBytes)
	if made.Alone != nil && made.Alone.Seconds < made.PassSeconds() && !d.opts.Slower {
		return nil, &SlowerError{made.AloneAddress, made.Alone.Seconds, made.PassSeconds()}
	}
	return made, nil
}

// rangeOf is the range of a stage.
func (p *Plan) rangeOf(i int) graph.Range {
	r := graph.Range{From: p.Stages[i].From}
	if i < len(p.Stages)-1 {
		r.To = p.Stages[i+1].From
	}
	return r
}
