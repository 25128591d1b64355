// Package runtime runs models: it puts a model, a plan and a device together and hides them behind a [Session]. It is
// the public face of optimem and holds no algorithm.
//
// Outside this module it is imported under the project's name:
//
//	import optimem "github.com/optimem/optimem/runtime"
//
//	ckpt, err := loader.Open("model.pt2")                                // defer ckpt.Close()
//	model, err := models.Build(ckpt, models.Options{})
//	session, err := optimem.Resident(ctx, model, optimem.ResidentOptions{}) // defer session.Close()
//	out, err := session.Run(ctx, optimem.Values{"x": tensor.Of(pixels, 1, 1, 8, 8)})
//
// What there is today is the resident mode on the CPU: the whole model in memory. Page, Chunk and Auto follow.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// Values are tensors by name.
type Values map[string]*tensor.Tensor

// An InputError says that the inputs of a run do not fit the model.
type InputError struct {
	Input string
	Msg   string
}

// Error names the input.
func (e *InputError) Error() string { return "input " + e.Input + ": " + e.Msg }

// Metrics count what a session did.
type Metrics struct {
	// Runs counts passes that ended without an error.
	Runs int64
	// WeightBytes, ActivationBytes and WorkBytes are the memory held now, by purpose; PeakBytes the most that was held.
	WeightBytes, ActivationBytes, WorkBytes, PeakBytes int64
	// LoadedBytes counts bytes of weights read from the checkpoint.
	LoadedBytes int64
}

// A Session is a model ready to run. It may be shared between goroutines: passes take turns. The checkpoint must stay
// open until the session was closed.
type Session struct {
	model *models.Model
	dev   *cpu.Device
	dump  []string

	// turn holds one token while no pass runs; whoever has it owns what follows. A lock could not be waited for with a
	// context.
	turn    chan struct{}
	closed  bool
	stream  device.Stream
	weights map[tensor.Extent]*held
	metrics Metrics
	// programs holds what was planned for a graph; arena and work are shared by all, as large as the largest needs.
	programs    map[*layers.Graph]*program
	arena, work device.Memory
}

// held is a storage of the checkpoint on the device.
type held struct {
	memory device.Memory
	region device.Region
}

// A program is a graph planned for the device.
type program struct {
	graph  *layers.Graph
	plan   *plan.Plan
	consts device.Memory
	// regions has one entry for each value.
	regions  []device.Region
	launches []device.Launch
}

// ErrClosed is returned by the methods of a closed session.
var ErrClosed = errors.New("session is closed")

// Run computes one pass. Inputs are read during the call and not kept; the outputs are the caller's. A cancelled run
// returns within one op's work with an error that wraps ctx's and names the op, and the session stays usable.
func (s *Session) Run(ctx context.Context, in Values) (Values, error) {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("run: waiting for another pass: %w", ctx.Err())
	}
	defer s.release()
	if s.closed {
		return nil, ErrClosed
	}
	shapes, err := s.shapes(in)
	if err != nil {
		return nil, err
	}
	g, err := s.model.Graph(shapes)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	p, err := s.program(ctx, g)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	out, err := s.pass(ctx, p, in)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	s.metrics.Runs++
	return out, nil
}

func (s *Session) acquire() { <-s.turn }
func (s *Session) release() { s.turn <- struct{}{} }

// shapes checks that the inputs are those of the model and returns their shapes.
func (s *Session) shapes(in Values) (map[string]tensor.Shape, error) {
	shapes := make(map[string]tensor.Shape, len(in))
	for _, port := range s.model.Inputs() {
		t, ok := in[port.Name]
		if t == nil && port.Optional {
			continue
		}
		if !ok || t == nil {
			return nil, &InputError{port.Name, fmt.Sprintf("is missing: %v %v is wanted", port.DType, port.Shape)}
		}
		if t.DType != port.DType {
			return nil, &InputError{port.Name, fmt.Sprintf("%v %v, and %v is wanted", t.DType, t.Layout.Shape, port.DType)}
		}
		_, end, err := t.Layout.Span()
		if err == nil && end > int64(len(t.Data)/max(t.DType.Size(), 1)) {
			err = fmt.Errorf("%d elements in %d bytes", end, len(t.Data))
		}
		if err != nil {
			return nil, &InputError{port.Name, err.Error()}
		}
		shapes[port.Name] = slices.Clone(t.Layout.Shape) // a graph keeps it, and the tensor is the caller's
	}
	for name := range in {
		if _, ok := shapes[name]; !ok {
			return nil, &InputError{name, "the model has no such input"}
		}
	}
	return shapes, nil
}

// pass runs a program once.
func (s *Session) pass(ctx context.Context, p *program, in Values) (Values, error) {
	for _, id := range p.graph.Inputs {
		v := p.graph.Values[id]
		t := in[v.Name].Contiguous()
		off := int64(t.Layout.Offset * t.DType.Size())
		if err := s.stream.CopyIn(p.regions[id], t.Data[off:off+v.Bytes()]); err != nil {
			return nil, err
		}
	}
	taken := &branches{decided: make(map[predicate]bool), skipped: make(map[layers.ValueID]bool)}
	for i := range p.launches {
		l := &p.launches[i]
		if len(l.Op.Guard) > 0 {
			switch runs, err := s.holds(ctx, p, taken, l.Op.Guard); {
			case err != nil:
				return nil, &OpError{Path: l.Op.Path, Kind: string(l.Op.Kind), Source: l.Op.Source, Err: err}
			case !runs:
				for _, id := range l.Op.Out {
					taken.skipped[id] = true
				}
				continue
			}
		}
		if err := s.stream.Run(ctx, *l); err != nil {
			return nil, &OpError{Path: l.Op.Path, Kind: string(l.Op.Kind), Source: l.Op.Source, Err: err}
		}
	}
	if err := s.stream.Sync(ctx); err != nil {
		return nil, err
	}
	out := make(Values, len(p.graph.Outputs))
	for _, o := range p.graph.Outputs {
		if taken.skipped[o.Operand.Value] {
			continue // a dump out of a branch that was not taken
		}
		t, err := s.copyOut(p, o.Operand)
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", o.Name, err)
		}
		out[o.Name] = t
	}
	// All are read before one is written: a state may become what another was.
	states := make([]*tensor.Tensor, len(p.graph.Updates))
	for i, u := range p.graph.Updates {
		var err error
		if states[i], err = s.copyOut(p, u.Operand); err != nil {
			return nil, err
		}
	}
	for i, u := range p.graph.Updates {
		if err := s.stream.CopyIn(p.regions[u.State], states[i].Data); err != nil {
			return nil, err
		}
	}
	return out, s.stream.Sync(ctx)
}

// branches is what a pass knows of its conditionals.
type branches struct {
	// decided holds the predicates that were read.
	decided map[predicate]bool
	// skipped lists the results of the ops that were not run.
	skipped map[layers.ValueID]bool
}

// A predicate is one element of a value.
type predicate struct {
	value  layers.ValueID
	offset int
}

// holds reports whether an op under guards runs. A predicate is waited for and read once.
func (s *Session) holds(ctx context.Context, p *program, taken *branches, guards []layers.Guard) (bool, error) {
	for _, c := range guards {
		at := predicate{c.Predicate.Value, c.Predicate.Layout.Offset}
		is, ok := taken.decided[at]
		if !ok {
			if err := s.stream.Sync(ctx); err != nil {
				return false, err
			}
			region := p.regions[at.value]
			region.Offset, region.Bytes = region.Offset+int64(at.offset), 1
			var b [1]byte
			if err := s.stream.CopyOut(b[:], region); err != nil {
				return false, err
			}
			is = b[0] != 0
			taken.decided[at] = is
		}
		if is != c.Want {
			return false, nil
		}
	}
	return true, nil
}

// copyOut returns an operand as a contiguous tensor of its own.
func (s *Session) copyOut(p *program, o layers.Operand) (*tensor.Tensor, error) {
	v := p.graph.Values[o.Value]
	raw := make([]byte, p.regions[o.Value].Bytes)
	if err := s.stream.CopyOut(raw, p.regions[o.Value]); err != nil {
		return nil, err
	}
	layout := o.Layout
	layout.Shape = slices.Clone(layout.Shape) // the graph's stays as it is, whatever becomes of the tensor
	t := (&tensor.Tensor{DType: v.DType, Layout: layout, Data: raw}).Contiguous()
	if len(t.Data) < len(raw) {
		t.Data = slices.Clone(t.Data) // a view of a few elements does not hold on to all
	}
	return t, nil
}

// An OpError says which op of a model failed.
type OpError struct {
	// Path is the module, Kind the op, Source the line of Python where known.
	Path, Kind, Source string
	Err                error
}

// Error reads outside-in.
func (e *OpError) Error() string {
	s := e.Kind + ": " + e.Err.Error()
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	if e.Source != "" {
		s += " (" + e.Source + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// Metrics returns what the session did so far.
func (s *Session) Metrics() Metrics {
	s.acquire()
	defer s.release()
	return s.metrics
}

// Close frees everything. It waits for a running pass. A second Close returns nil.
func (s *Session) Close() error {
	s.acquire()
	defer s.release()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	free := func(m device.Memory) {
		if m != nil {
			errs = append(errs, m.Free())
		}
	}
	for _, w := range s.weights {
		free(w.memory)
	}
	for _, p := range s.programs {
		free(p.consts)
	}
	free(s.arena)
	free(s.work)
	if s.stream != nil {
		errs = append(errs, s.stream.Close())
	}
	return errors.Join(append(errs, s.dev.Close())...)
}
