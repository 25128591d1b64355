package plan

import "github.com/optimem/optimem/layers"

// A Forecast is what a pass is expected to take once the session is warm.
type Forecast struct {
	Seconds float64
	// ComputeSeconds and LoadSeconds are what ops and loads take by themselves, StallSeconds how long ops wait for loads.
	ComputeSeconds, LoadSeconds, StallSeconds float64
	// Bound says what the time is bounded by: "compute", "transfer" or "disk".
	Bound string
	// Measured says that the rates were measured on the host and are not guesses.
	Measured bool
}

// StepSeconds returns what an op is expected to take the way that a step says.
func (r Rates) StepSeconds(
	ops *layers.Registry, step *layers.Step, op *layers.Op, in, out []layers.Spec,
) float64 {
	if step.Cost == (layers.Cost{}) {
		return r.Seconds(ops, op, in, out)
	}
	return r.withGuesses().opSeconds(op, in, out, step.Cost)
}

// stages returns the groups as a simulation sees them.
func (p *Plan) stages() []stage {
	list := make([]stage, len(p.Groups))
	for i := range p.Groups {
		group := &p.Groups[i]
		list[i] = stage{
			paged: group.Paged() && !group.OnHost, after: group.After,
			load: group.LoadSeconds, compute: group.Seconds * float64(p.Instances),
		}
	}
	return list
}

func (p *Plan) forecast(r Rates) {
	f := Forecast{Bound: "compute", Measured: r.Measured}
	fromDisk := false
	for i := range p.Groups {
		group := &p.Groups[i]
		f.ComputeSeconds += group.Seconds * float64(p.Instances)
		if group.Paged() && !group.OnHost {
			f.LoadSeconds += group.LoadSeconds
			fromDisk = fromDisk || p.Target.Direct || !group.Copied
		}
	}
	f.Seconds, f.StallSeconds = new(simulation).run(p.stages())
	if f.LoadSeconds > f.ComputeSeconds {
		f.Bound = "transfer"
		if fromDisk {
			f.Bound = "disk"
		}
	}
	p.Forecast = f
}
