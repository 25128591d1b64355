package runtime

import (
	"errors"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/tensor"
)

// A blamedError is what a pass ended with because of what an input holds.
type blamedError struct {
	input *InputError
	err   error
}

// Error names the input, then the op.
func (e *blamedError) Error() string { return "input " + e.input.Input + ": " + e.err.Error() }

// Unwrap returns the input's error and the op's.
func (e *blamedError) Unwrap() []error { return []error{e.input, e.err} }

// blame makes the error of an op that was given an index out of range that of the input which holds it, where only one can.
func (p *program) blame(err error) error {
	var index *graph.IndexError
	if !errors.As(err, &index) {
		return err
	}
	if name, ok := p.indexInput(err, index.Operand); ok {
		return &blamedError{&InputError{Input: name, Msg: index.Error()}, err}
	}
	return err
}

// indexInput returns the one input of integers that an op's integers follow from: of the op that failed where the error says
// which that is, else of all, and of one operand where it says that, else of all.
func (p *program) indexInput(err error, operand int) (name string, ok bool) {
	g := p.source
	var where *pager.OpError
	located := errors.As(err, &where)
	producers := make(map[graph.ValueID]*graph.Op)
	for i := range g.Ops {
		for _, id := range g.Ops[i].Out {
			producers[id] = &g.Ops[i]
		}
	}
	seen := make(map[graph.ValueID]bool)
	var inputs []graph.ValueID
	var follow func(o graph.Operand)
	follow = func(o graph.Operand) {
		if o.Value == graph.NoValue {
			return
		}
		v := &g.Values[o.Value]
		if v.DType != tensor.Int64 && v.DType != tensor.Int32 || seen[o.Value] {
			return
		}
		seen[o.Value] = true
		if v.Role == graph.Input {
			inputs = append(inputs, o.Value)
		}
		if op := producers[o.Value]; op != nil {
			for _, in := range op.In {
				follow(in)
			}
		}
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		if located && op.Path != where.Path {
			continue
		}
		for k, in := range op.In {
			if operand == 0 || k == operand && located && string(op.Kind) == where.Kind {
				follow(in)
			}
		}
	}
	if len(inputs) != 1 {
		return "", false
	}
	return g.Values[inputs[0]].Name, true
}
