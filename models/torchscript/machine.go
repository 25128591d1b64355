package torchscript

import (
	"errors"
	"fmt"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
)

// A machine evaluates one call of a program. Where something is wrong it panics with a failure, which [Evaluate] makes
// an error: code that evaluates expressions within expressions need not check every one.
type machine struct {
	program *script.Program
	rec     Recorder
	// steps and bytes are what is left.
	steps, bytes int64
	depth        int
	// calls counts the ops called.
	calls int
	// active are the functions that run: none calls itself, not even by others.
	active map[*script.Function]bool

	objects   map[*script.Object]*object
	touched   []*object // those of the archive with attributes that were read, in order
	weights   map[string]layers.Tensor
	names     map[layers.Tensor]string
	constants map[int]any
	enums     map[string]*enum
	// types are the declared types of attributes.
	types map[*script.Class]map[string]*script.Type

	// path is the module that runs, pos the place in the code.
	path string
	pos  script.Pos
	// stop is Options.Stop, asked again after untilAsked steps.
	stop       func() error
	untilAsked int
	// grad is what the program set with set_grad_enabled. It changes no number, only what it reads back.
	grad bool
	// began is what an earlier call left in attributes, kept are the tensors of it that were looked at, with their names.
	began Attributes
	kept  map[layers.Tensor]string
}

func newMachine(p *script.Program, r Recorder, opts Options) *machine {
	m := &machine{
		program: p, rec: r, stop: opts.Stop,
		steps: opts.Steps, bytes: opts.Bytes, depth: opts.Depth,
		active:    make(map[*script.Function]bool),
		objects:   make(map[*script.Object]*object),
		weights:   make(map[string]layers.Tensor),
		names:     make(map[layers.Tensor]string),
		constants: make(map[int]any),
		kept:      make(map[layers.Tensor]string),
		enums:     make(map[string]*enum),
		types:     make(map[*script.Class]map[string]*script.Type),
	}
	if m.steps == 0 {
		m.steps = defaultSteps
	}
	if m.bytes == 0 {
		m.bytes = defaultBytes
	}
	if m.depth == 0 {
		m.depth = defaultDepth
	}
	return m
}

// fail ends the evaluation.
func (m *machine) fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (m *machine) limit(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: %s", ErrLimit, fmt.Sprintf(format, args...))})
}

// The reasons of what would need the contents of a tensor, and of state that nothing keeps.
const (
	onData         = "it needs the contents of a tensor, and programs are fixed before a run"
	branchesOnData = "the code branches on the contents of a tensor"
	changesState   = "forward changes it, and only tensors, numbers, texts and lists of them are kept between runs"
	addsState      = "forward adds it, and only what was there before is kept between runs"
)

func (m *machine) unsupported(what, reason string) { panic(failure{&UnsupportedError{what, reason}}) }

// locate says where an error came up.
func (m *machine) locate(err error) error {
	var placed *Error
	if errors.As(err, &placed) {
		return err
	}
	return &Error{Path: m.path, Source: m.source(), Err: err}
}

// source returns the line that is evaluated.
func (m *machine) source() string { return sourceOf(m.program, m.pos) }

// tick takes n steps.
func (m *machine) tick(n int) {
	if m.steps -= int64(n); m.steps < 0 {
		m.limit("the program takes too many steps")
	}
	if m.untilAsked -= n; m.stop != nil && m.untilAsked < 0 {
		m.untilAsked = askSteps
		if err := m.stop(); err != nil {
			panic(failure{err})
		}
	}
}

// askSteps is after how many steps the machine asks whether it is to stop: less than a millisecond's.
const askSteps = 1 << 10

// charge pays for memory.
func (m *machine) charge(bytes int64) {
	if m.bytes -= bytes; m.bytes < 0 {
		m.limit("the program takes too much memory")
	}
}

// valueBytes is what an element of a list is charged, opBytes what an op is: an estimate of what a graph takes for one.
const (
	valueBytes = 16
	opBytes    = 4 << 10
)

// grow pays for n elements of a container, and for making them.
func (m *machine) grow(n int) {
	m.tick(n)
	m.charge(int64(n) * valueBytes)
}

// A frame holds the local variables of a call.
type frame struct{ vars map[string]any }

func (f *frame) set(name string, v any) {
	if f.vars == nil {
		f.vars = make(map[string]any)
	}
	f.vars[name] = v
}

// method calls a method of an object. The ops that a module's methods call belong to the module.
func (m *machine) method(self *object, fn *script.Function, args []any, named map[string]any) any {
	args = append([]any{self}, args...)
	if !self.isModule() || self.origin == nil {
		return m.call(fn, args, named, nil)
	}
	outer := m.path
	m.path = self.path
	m.rec.Enter(m.path)
	v := m.call(fn, args, named, nil)
	if fn.Name == "forward" || strings.HasPrefix(fn.Name, "forward__") { // overloads are numbered
		if t := firstTensor(v); t != nil {
			m.rec.Leave(m.path, t)
		}
	}
	m.path = outer
	m.rec.Enter(outer)
	return v
}

// firstTensor returns the tensor of a module's result, of several the first.
func firstTensor(v any) layers.Tensor {
	switch v := v.(type) {
	case layers.Tensor:
		return v
	case *tuple:
		if len(v.elems) > 0 {
			t, _ := v.elems[0].(layers.Tensor)
			return t
		}
	}
	return nil
}

// call calls a function. outer holds the variables around a local one.
func (m *machine) call(fn *script.Function, args []any, named map[string]any, outer *frame) any {
	m.tick(1)
	if m.active[fn] {
		m.fail("%w: %s calls itself", ErrMalformed, fn.Name)
	}
	if m.depth--; m.depth < 0 {
		m.limit("calls nested too deep")
	}
	m.active[fn] = true
	pos := m.pos
	f := &frame{vars: make(map[string]any, len(fn.Args)+8)}
	if outer != nil {
		m.tick(len(outer.vars))
		for name, v := range outer.vars {
			f.vars[name] = v
		}
	}
	m.bind(f, fn, args, named)
	v, done := m.ofDetector(fn, f.vars)
	if !done {
		v, _ = m.block(f, fn.Body)
	}
	v = m.typed(v, fn.Returns)
	m.pos = pos
	delete(m.active, fn)
	m.depth++
	return v
}

// bind gives the arguments of a call their names.
func (m *machine) bind(f *frame, fn *script.Function, args []any, named map[string]any) {
	if len(args) > len(fn.Args) {
		m.fail("%s takes %d arguments, not %d", fn.Name, len(fn.Args), len(args))
	}
	used := 0
	for i, a := range fn.Args {
		v, isNamed := named[a.Name]
		switch {
		case isNamed && i < len(args):
			m.fail("argument %s of %s is given twice", a.Name, fn.Name)
		case isNamed:
			used++
		case i < len(args):
			v = args[i]
		case a.Default != nil:
			v = m.eval(&frame{}, a.Default)
		default:
			m.fail("argument %s of %s is missing", a.Name, fn.Name)
		}
		f.vars[a.Name] = m.typed(v, a.Type)
	}
	if used < len(named) {
		for name := range named {
			m.tick(len(fn.Args))
			if !hasArg(fn, name) {
				m.fail("%s has no argument %s", fn.Name, name)
			}
		}
	}
}

func hasArg(fn *script.Function, name string) bool {
	for _, a := range fn.Args {
		if a.Name == name {
			return true
		}
	}
	return false
}

// typed gives a value what its declared type adds to it: the type of an empty list's elements, the class of a named
// tuple, and floats to numbers that are printed like integers.
func (m *machine) typed(v any, t *script.Type) any {
	if t == nil {
		return v
	}
	switch t.Kind {
	case script.OptionalType:
		if v == nil {
			return nil
		}
		return m.typed(v, t.Args[0])
	case script.FloatType:
		if n, ok := v.(int); ok {
			return float64(n)
		}
	case script.ListType:
		if l, ok := v.(*list); ok && l.elem == nil {
			l.elem = t.Args[0]
		}
	case script.ClassType:
		class := m.program.Classes[t.Class]
		if p, ok := v.(*tuple); ok && p.class == nil && class != nil && class.Kind == script.NamedTuple &&
			len(class.Attributes) == len(p.elems) {
			return &tuple{p.elems, class}
		}
	case script.TupleType:
		p, ok := v.(*tuple)
		if !ok || p.class != nil || len(p.elems) != len(t.Args) {
			return v
		}
		m.tick(len(p.elems))
		for i, e := range p.elems {
			p.elems[i] = m.typed(e, t.Args[i])
		}
	}
	return v
}
