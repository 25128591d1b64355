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
	"time"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/pager"
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
	// WeightBytes are the weights that stay, RingBytes the memory that paged ones pass through, ActivationBytes and
	// WorkBytes those of inputs, results and scratch; PeakBytes is the most that was held of everything.
	WeightBytes, RingBytes, ActivationBytes, WorkBytes, PeakBytes int64
	// HostPeakBytes is the most that was held in the host's memory beside a device with memory of its own, for groups that
	// the CPU computes.
	HostPeakBytes int64
	// LoadedBytes counts bytes read from the checkpoint, MovedBytes those of them that were brought for a pass and not to
	// stay.
	LoadedBytes, MovedBytes int64
	// Stall is how long ops waited for weights.
	Stall time.Duration
}

// A Session is a model ready to run. It may be shared between goroutines: passes take turns. The checkpoint must stay
// open until the session was closed.
type Session struct {
	model *models.Model
	mode  plan.Mode
	opts  Options
	// machine is what passes run on.
	machine *machine

	// turn holds one token while no pass runs; whoever has it owns what follows. A lock could not be waited for with a
	// context.
	turn   chan struct{}
	closed bool
	runs   int64
	// peak and hostPeak are the most that was held on the device and beside it.
	peak, hostPeak int64
	// programs holds what was planned for a graph; current is what ran last.
	programs map[*layers.Graph]*program
	current  *program
}

// ErrClosed is returned by the methods of a closed session.
var ErrClosed = errors.New("session is closed")

// Run computes one pass. Inputs are read during the call and not kept; the outputs are the caller's. A cancelled run
// returns within one op's work with an error that wraps ctx's and names the op, and the session stays usable.
func (s *Session) Run(ctx context.Context, in Values) (Values, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	defer s.release()
	if s.closed {
		return nil, ErrClosed
	}
	p, err := s.planned(in)
	if err != nil {
		return nil, err
	}
	out, err := s.pass(ctx, p, in)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	return out, nil
}

// planned returns the program for the shapes of inputs.
func (s *Session) planned(in Values) (*program, error) {
	if s.current != nil && s.current.takes(in) {
		return s.current, nil
	}
	shapes, err := s.shapes(in)
	if err != nil {
		return nil, err
	}
	g, err := s.model.Graph(shapes)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	p, err := s.program(g)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	return p, nil
}

// pass runs a program once.
func (s *Session) pass(ctx context.Context, p *program, in Values) (Values, error) {
	x := &exchange{p: p, in: in, out: make(Values, len(p.graph.Outputs)), raw: make([][]byte, len(p.graph.Outputs))}
	err := s.machine.pass(ctx, p.plan, x)
	held, host := s.machine.held()
	s.peak, s.hostPeak = max(s.peak, held.Total()), max(s.hostPeak, host.Total())
	if err != nil {
		s.current = nil
		return nil, err
	}
	s.current = p
	s.runs++
	x.finish()
	return x.out, nil
}

// wait waits for the turn.
func (s *Session) wait(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("run: waiting for another pass: %w", ctx.Err())
	}
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

// An OpError says which op of a model failed.
type OpError = pager.OpError

// Metrics returns what the session did so far.
func (s *Session) Metrics() Metrics {
	s.acquire()
	defer s.release()
	held, _ := s.machine.held()
	stats, host := s.machine.stats()
	m := Metrics{
		Runs:      s.runs,
		RingBytes: held.RingBytes, ActivationBytes: held.ActivationBytes, WorkBytes: held.WorkBytes, PeakBytes: s.peak,
		HostPeakBytes: s.hostPeak,
		LoadedBytes:   stats.ReadBytes + host.ReadBytes, MovedBytes: stats.MovedBytes, Stall: stats.Stall + host.Stall,
	}
	if s.current != nil {
		m.WeightBytes = s.current.plan.Fixed.WeightBytes
	}
	return m
}

// Close frees everything. It waits for a running pass. A second Close returns nil.
func (s *Session) Close() error {
	s.acquire()
	defer s.release()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.machine.close()
}
