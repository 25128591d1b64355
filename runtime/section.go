package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// ErrRange is returned by runs of a whole model where the session has a range of it.
var ErrRange = errors.New("the session computes a range of the model")

// ErrWhole is returned by what is for a range where the session has the whole model.
var ErrWhole = errors.New("the session computes the whole model")

// Section returns what the session computes, of a model with inputs of these shapes, where [Options.Range] is a part of
// it. The model's inputs among those of its graph, and what crosses its beginning and is used, are what
// [Session.RunSection] takes.
func (s *Session) Section(ctx context.Context, shapes map[string]tensor.Shape) (*graph.Section, error) {
	if err := s.wait(ctx, "section"); err != nil {
		return nil, err
	}
	defer s.release()
	p, err := s.sectionFor(ctx, shapes)
	if err != nil {
		return nil, fmt.Errorf("section: %w", err)
	}
	return p.section, nil
}

// sectionFor returns the program of the range for inputs of the whole model of these shapes.
func (s *Session) sectionFor(ctx context.Context, shapes map[string]tensor.Shape) (*program, error) {
	if s.opts.Range == (graph.Range{}) {
		return nil, ErrWhole
	}
	g, err := s.model.GraphOf(ctx, models.Call{Inputs: shapes})
	if err != nil {
		return nil, err
	}
	for _, id := range g.Inputs {
		if v := &g.Values[id]; v.Number != nil {
			return nil, fmt.Errorf("%w: a range of a model whose graph depends on the value of %s",
				graph.ErrUnsupported, v.Name)
		}
	}
	return s.program(ctx, g)
}

// RunSection computes the session's range of the model, where the whole model's inputs have these shapes. It takes the
// inputs of [graph.Section], the model's and what crosses the beginning, and puts results into contiguous tensors of
// the caller's, as [Session.RunInto] does. Its bits are those that the whole model computes there, on the same kind of
// device.
func (s *Session) RunSection(ctx context.Context, shapes map[string]tensor.Shape, in, out Values) error {
	if err := s.wait(ctx, "run"); err != nil {
		return err
	}
	defer s.release()
	if s.opts.PlanOnly {
		return ErrPlanOnly
	}
	p, err := s.sectionFor(ctx, shapes)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if !p.takes(in) {
		return p.refusal(in)
	}
	if out == nil {
		out = Values{}
	}
	var x exchange
	if err := x.begin(p, in, out); err != nil {
		return err
	}
	if err := s.alone(ctx, p, &x); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	s.mu.Lock()
	s.metrics.Calls++
	s.mu.Unlock()
	return nil
}

// refusal says which input is not as the program wants it.
func (p *program) refusal(in Values) error {
	for _, id := range p.graph.Inputs {
		v := &p.graph.Values[id]
		t := in[v.Name]
		switch {
		case t == nil:
			return &InputError{Input: v.Name, Msg: fmt.Sprintf("is missing: %v %v is wanted", v.DType, v.Shape)}
		case t.DType != v.DType || !t.Layout.Shape.Equal(v.Shape):
			return &InputError{Input: v.Name,
				Msg: fmt.Sprintf("%v %v, and %v %v is wanted", t.DType, t.Layout.Shape, v.DType, v.Shape)}
		}
	}
	return &InputError{Input: "", Msg: fmt.Sprintf("%d inputs, and %d are wanted", len(in), len(p.graph.Inputs))}
}

// Seams returns where the model can be divided into ranges for inputs of these shapes, in order, as the session's
// device computes it, and how many bytes of weights it reads; none where it cannot be.
func (s *Session) Seams(ctx context.Context, shapes map[string]tensor.Shape) (list []graph.Seam, weightBytes int64,
	err error) {
	if err := s.wait(ctx, "seams"); err != nil {
		return nil, 0, err
	}
	defer s.release()
	if s.opts.Range != (graph.Range{}) {
		return nil, 0, ErrRange
	}
	g, err := s.model.GraphOf(ctx, models.Call{Inputs: shapes})
	if err != nil {
		return nil, 0, fmt.Errorf("seams: %w", err)
	}
	p, err := s.program(ctx, g)
	if err != nil {
		return nil, 0, fmt.Errorf("seams: %w", err)
	}
	list, weightBytes = p.graph.Seams()
	return list, weightBytes, nil
}
