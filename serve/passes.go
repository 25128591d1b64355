package serve

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/otlp"
)

// A ride is the way of one call of a model through its passes. Parts of a request that was cut share it.
type ride struct {
	passage *passage

	mu sync.Mutex
	// begin and end are those of the passes together.
	begin, end time.Time
	// passes are their spans.
	passes []otlp.Context
}

type rideKey struct{}

// passed notes a pass.
func (w *ride) passed(e runtime.Event, span otlp.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begin.IsZero() || e.Begin.Before(w.begin) {
		w.begin = e.Begin
	}
	if e.End.After(w.end) {
		w.end = e.End
	}
	if !span.IsZero() {
		w.passes = append(w.passes, span)
	}
}

// times says how long a call that asked then, and was answered now, waited and ran.
func (w *ride) times(asked, answered time.Time) (queue, infer time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begin.IsZero() {
		return 0, answered.Sub(asked)
	}
	queue = max(w.begin.Sub(asked), 0)
	return queue, answered.Sub(asked) - queue
}

// tell sends what a request waited and ran, linked to the passes that it shared.
func (w *ride) tell(r *Registry, asked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.begin.IsZero() {
		r.child(w.passage, "queue", asked, w.begin, nil)
		r.child(w.passage, "infer", w.begin, w.end, w.passes)
	}
}

// observe is told of passes, one after another.
func (m *tensorRunner) observe(e runtime.Event) {
	r := m.version.registry
	traces, logs := r.opts.Traces != nil, r.log.Enabled(context.Background(), slog.LevelDebug)
	switch e.Kind {
	case runtime.GroupDone:
		if logs {
			r.log.Debug("a group is done", "model", m.version.name(), "pass", m.passes+1, "group", e.Path, "stall", e.Stall, "compute", e.Compute)
		}
		if traces && len(m.groups) < maxEvents {
			m.groups = append(m.groups, otlp.Event{Name: "group", At: e.End, Attributes: []otlp.Attribute{
				{Name: "path", Value: e.Path}, {Name: "loaded_bytes", Value: e.LoadedBytes}, {Name: "stall_seconds", Value: e.Stall.Seconds()},
				{Name: "compute_seconds", Value: e.Compute.Seconds()},
			}})
		}
	case runtime.PassDone:
		m.lastPass.Store(int64(e.Took))
		m.passes++
		m.tellPass(e, logs)
		m.groups = nil
	}
}

// tellPass tells the calls of a pass that it is over, and sends its span, linked to theirs.
func (m *tensorRunner) tellPass(e runtime.Event, logs bool) {
	r := m.version.registry
	var span otlp.Context
	var links []otlp.Context
	var ids []string
	var rides []*ride
	if e.Calls == nil {
		return
	}
	for _, ctx := range e.Calls.Contexts {
		w, ok := ctx.Value(rideKey{}).(*ride)
		if !ok {
			continue
		}
		rides = append(rides, w)
		if w.passage.traced() {
			links = append(links, w.passage.span)
		}
		if logs && w.passage != nil {
			ids = append(ids, w.passage.id)
		}
	}
	if len(links) > 0 {
		span = otlp.NewContext()
		r.opts.Traces.Add(otlp.Span{
			Context: span, Name: "pass " + m.version.model, Begin: e.Begin, End: e.End, Links: links, Events: m.groups,
			Attributes: []otlp.Attribute{
				{Name: "optimem.model", Value: m.version.model}, {Name: "optimem.version", Value: m.version.number},
				{Name: "optimem.instances", Value: e.Instances}, {Name: "optimem.moved_bytes", Value: e.Plan.MovedBytes},
			},
		})
	}
	for _, w := range rides {
		w.passed(e, span)
	}
	if logs {
		r.log.Debug("a pass is done", "model", m.version.name(), "pass", m.passes, "took", e.Took, "instances", e.Instances, "requests", ids)
	}
}
