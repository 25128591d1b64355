// Package torchscript evaluates the code of a TorchScript archive for inputs of known shapes: control flow, lists,
// dictionaries and calls of submodules are resolved, and only the calls of ops remain.
//
// It knows the language and PyTorch's functions on numbers, strings and containers. It does not know what ops compute:
// a [Recorder] does. Code from a file is never executed: it is interpreted, within limits of time and memory, and code
// that depends on the contents of a tensor is an [UnsupportedError].
//
//	sig, err := torchscript.Inspect(program)
//	result, err := torchscript.Evaluate(program, recorder, sig.Arguments(tensors), torchscript.Options{})
package torchscript

import (
	"errors"
	"fmt"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/tensor"
)

// A Recorder is what programs write to. A size of a tensor is −1 where only data says it, as of what a mask selects; Layout and
// Known are not asked of such tensors.
type Recorder interface {
	layers.Recorder
	// Known returns what a tensor holds where that does not depend on inputs, nil where it does.
	Known(t layers.Tensor) (*tensor.Tensor, error)
	// Depends reports whether what a tensor holds depends on inputs, on buffers that the program changed, or on another
	// tensor, which may be nil.
	Depends(t, other layers.Tensor) bool
	// Counted returns of which dimension of a tensor only data says how much there is, −1 for none, and what stands for that
	// number in calls.
	Counted(t layers.Tensor) (dim int, number any, err error)
	// CountOf returns what an operator gives of numbers, one of which is such a one: another of them, or a bool. ok is unset where
	// only data says.
	CountOf(operator string, args []any) (v any, ok bool, err error)
	// EmptyWith returns the dimension of which a tensor has nothing whenever such a number is 0, −1 where that is not known.
	EmptyWith(t layers.Tensor, number any) (dim int)
	// Layout returns where the elements of a tensor lie.
	Layout(t layers.Tensor) tensor.Layout
	// Kept returns a tensor that an attribute holds from one call to the next. One name, dtype and shape is one tensor.
	Kept(k Kept) (layers.Tensor, error)
	// At says on which line the calls that follow stand.
	At(source string)
}

// Options bound an evaluation. The zero value is right.
type Options struct {
	// Steps is the number of expressions and statements evaluated; 0 is ten million.
	Steps int64
	// Bytes is the memory that lists, texts and the graph may take; 0 is 256 MiB.
	Bytes int64
	// Depth is how deep calls may be nested; 0 is 200.
	Depth int
	// Stop is asked now and then; an error of it ends the evaluation. Nil never does.
	Stop func() error
	// Attributes are what the call before left, those of its Result; nil before the first.
	Attributes Attributes
}

const (
	defaultSteps = 10_000_000
	defaultBytes = 256 << 20
	defaultDepth = 200
)

// A Result is what an evaluation gave.
type Result struct {
	// Value is what forward returned: nil, a layers.Tensor, bool, int, float64, complex128, string, []any for lists and
	// tuples, layers.Fields for dictionaries and named tuples.
	Value any
	// Updates lists the tensors of the module that forward set to others.
	Updates []Update
	// Attributes are what the next call finds.
	Attributes Attributes
}

// An Update is a tensor of the module that became another: a weight of the checkpoint, or one that is kept, where Kept is not nil.
type Update struct {
	Weight string
	Kept   *Kept
	Value  layers.Tensor
}

// ErrLimit is wrapped where a program takes more steps, memory or calls within calls than the options allow.
var ErrLimit = errors.New("limit reached")

// ErrMalformed is wrapped where a program is none that PyTorch's compiler writes, whatever its inputs: a function that calls
// itself.
var ErrMalformed = errors.New("malformed program")

// An Error says where in the code an evaluation failed.
type Error struct {
	// Path is the module that ran, Source its line: "code/__torch__.py:12".
	Path, Source string
	Err          error
}

// Error reads outside-in.
func (e *Error) Error() string {
	s := e.Err.Error()
	if e.Source != "" {
		s = e.Source + ": " + s
	}
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// An UnsupportedError says what a program does that has no meaning before a run.
type UnsupportedError struct {
	// What is the function or expression, as the code writes it.
	What string
	// Reason says why not.
	Reason string
}

// Error joins both.
func (e *UnsupportedError) Error() string { return "unsupported: " + e.What + ": " + e.Reason }

// OfData reports whether only the contents of a tensor tell what the program does there.
func (e *UnsupportedError) OfData() bool { return e.Reason == onData || e.Reason == branchesOnData }

// OfState reports whether it is an attribute that forward changes.
func (e *UnsupportedError) OfState() bool { return e.Reason == changesState || e.Reason == addsState }

// A RaisedError is an exception that the program raised.
type RaisedError struct {
	// Class is the exception's qualified name, "" where the code does not say.
	Class, Message string
}

// Error returns the message.
func (e *RaisedError) Error() string {
	if e.Class == "" {
		return "the program raised: " + e.Message
	}
	return fmt.Sprintf("the program raised %s: %s", e.Class, e.Message)
}

// failure carries an error from the depth of an evaluation to its start.
type failure struct{ err error }

// Evaluate runs forward of the program's module. args are the arguments by name; those that are not there have their
// defaults.
func Evaluate(p *script.Program, r Recorder, args Arguments, opts Options) (result *Result, err error) {
	m := newMachine(p, r, opts)
	defer func() {
		switch f := recover().(type) {
		case nil:
		case failure:
			result, err = nil, m.locate(f.err)
		default:
			panic(f)
		}
	}()
	root := m.root()
	m.restore(opts.Attributes)
	named := make(map[string]any, len(args))
	for name, v := range args {
		named[name] = m.inward(v)
	}
	forward := p.Method(root.class.Name, "forward")
	if forward == nil {
		m.fail("%s has no forward", root.class.Name)
	}
	m.pos = forward.Pos()
	value := m.outward(m.hooked(root, forward, named), 0)
	updates, left := m.updates()
	return &Result{Value: value, Updates: updates, Attributes: left}, nil
}

// hooked runs forward of the root with its hooks, which the code itself calls for submodules only.
func (m *machine) hooked(root *object, forward *script.Function, named map[string]any) any {
	if len(root.class.ForwardPreHooks)+len(root.class.ForwardHooks) == 0 {
		return m.method(root, forward, nil, named)
	}
	input := &tuple{}
	for _, a := range forward.Args[min(1, len(forward.Args)):] {
		v, ok := named[a.Name]
		if !ok && a.Default != nil {
			v, ok = m.eval(&frame{}, a.Default), true
		}
		if !ok {
			m.fail("argument %s is missing", a.Name)
		}
		input.elems = append(input.elems, v)
	}
	hook := func(name string) *script.Function {
		f := root.class.Method(name)
		if f == nil {
			m.fail("%s has no hook %s", root.class.Name, name)
		}
		return f
	}
	for _, name := range root.class.ForwardPreHooks {
		switch v := m.method(root, hook(name), []any{input}, nil).(type) {
		case nil:
		case *tuple:
			input = v
		default:
			input = &tuple{elems: []any{v}}
		}
	}
	out := m.method(root, forward, input.elems, nil)
	for _, name := range root.class.ForwardHooks {
		if v := m.method(root, hook(name), []any{input, out}, nil); v != nil {
			out = v
		}
	}
	return out
}
