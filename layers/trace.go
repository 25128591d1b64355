package layers

import (
	"errors"
	"fmt"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// A Tensor is a tensor of a program that is being traced: its dtype and shape are known, its elements are not. A nil
// Tensor is Python's None.
type Tensor interface {
	DType() tensor.DType
	Shape() tensor.Shape
}

// A Recorder writes down what a trace calls. It gives PyTorch's ops their meaning; package models has it.
type Recorder interface {
	// Call records a call of an op of PyTorch, "aten.conv2d.default", with its arguments in the order of the op's schema
	// and further ones by name. Arguments are nil, Tensor, []Tensor, bool, int, []int, float64, []float64, string and
	// tensor.DType; results are those too.
	Call(op string, args []any, named Named) ([]any, error)
	// Weight returns a tensor of the checkpoint by its name there, in the dtype that the module declares for it.
	Weight(name string, dtype tensor.DType) (Tensor, error)
	// Constant returns a tensor that the program holds.
	Constant(t *tensor.Tensor) (Tensor, error)
	// Enter says to which module the calls that follow belong.
	Enter(path string)
	// Leave says that the module at path gave a result.
	Leave(path string, result any)
}

// Named are arguments by name: the last argument of a call that has some.
type Named map[string]any

// A Class says what the modules of a Python class compute.
type Class struct {
	// Forward is the class's forward: it calls PyTorch's ops through the trace, as the Python code does.
	Forward func(t *Trace, m *Module, args ...any) any
	// Inputs names the parameters of forward that a model takes when its root is of this class, optional ones last and
	// marked. Nil is one tensor.
	Inputs []Port
	// Defaults are attributes of modules that were pickled before the class had them.
	Defaults map[string]any
}

// Classes are classes by Python's qualified names.
type Classes map[string]Class

// Unary returns the class of modules that take one tensor and give one.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func Unary(forward func(t *Trace, m *Module, x Tensor) Tensor) Class {
	return oneTensor(func(t *Trace, m *Module, x Tensor) any { return forward(t, m, x) })
}

// oneTensor returns the class of modules that take one tensor.
func oneTensor(forward func(t *Trace, m *Module, x Tensor) any) Class {
	return Class{Forward: func(t *Trace, m *Module, args ...any) any {
		if len(args) != 1 {
			fail("%s takes one tensor, not %d arguments", m.Class, len(args))
		}
		x, ok := args[0].(Tensor)
		if !ok {
			fail("%s takes a tensor, not a %T", m.Class, args[0])
		}
		return forward(t, m, x)
	}}
}

// Fields is a dictionary or a dataclass with its fields in order: what models give that have named outputs.
type Fields []Field

// A Field is a named value.
type Field struct {
	Name  string
	Value any
}

// A Trace runs the forward of modules and records the ops that they call. Its methods end the trace where something is
// wrong, so that code which reads like the Python it stands for need not check every line: [Architecture.Trace] returns
// the error.
type Trace struct {
	recorder Recorder
	classes  Classes
	weights  map[string]string
	// wrap is the architecture's, replaced what stands for parameters at the moment: see [Trace.Replaced].
	wrap     Wrapper
	replaced map[string]string
	paths    map[*Module]string
	// path and class are those of the module that runs.
	path, class string
	depth       int
}

// maxTraceDepth bounds the nesting of modules.
const maxTraceDepth = 200

// A traceFailure carries an error from the depth of a trace to its start.
type traceFailure struct{ err error }

func fail(format string, args ...any) { panic(traceFailure{fmt.Errorf(format, args...)}) }

// Fail ends the trace with an error. It is for the forward of classes.
//
//go:noinline
func (t *Trace) Fail(format string, args ...any) { fail(format, args...) }

// A TraceError says in which module a trace failed.
type TraceError struct {
	Path, Class string
	Err         error
}

// Error reads outside-in.
func (e *TraceError) Error() string {
	if e.Path == "" {
		return e.Class + ": " + e.Err.Error()
	}
	return e.Path + ": " + e.Class + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *TraceError) Unwrap() error { return e.Err }

// Trace runs the forward of the architecture for the inputs, in the order of a.Inputs; an input that is not given is
// nil. The result is what forward returned: a Tensor, Fields, []any, ….
func (a *Architecture) Trace(r Recorder, inputs []any) (result any, err error) {
	t := &Trace{
		recorder: r, classes: a.Classes, weights: a.Weights, wrap: a.Wrap,
		paths: make(map[*Module]string),
	}
	a.Root.Walk(func(path string, m *Module) {
		if _, seen := t.paths[m]; !seen { // a module in two places goes by its first
			t.paths[m] = path
		}
	})
	defer func() {
		switch f := recover().(type) {
		case nil:
		case traceFailure:
			result, err = nil, &TraceError{t.path, t.class, f.err}
		default:
			panic(f)
		}
	}()
	return t.Run(a.Root, inputs...), nil
}

// Run runs a module.
func (t *Trace) Run(m *Module, args ...any) any {
	if m == nil {
		fail("a module is None")
	}
	outerPath, outerClass := t.path, t.class
	t.path, t.class = t.paths[m], m.Class
	c, ok := t.classes[m.Class]
	if !ok {
		panic(traceFailure{ErrClass})
	}
	if t.depth++; t.depth > maxTraceDepth {
		fail("modules nested more than %d deep", maxTraceDepth)
	}
	t.recorder.Enter(t.path)
	var result any
	if t.wrap == nil {
		result = c.Forward(t, m, args...)
	} else {
		result = t.wrap.Wrap(t, t.path, m, args, func(args ...any) any { return c.Forward(t, m, args...) })
	}
	t.recorder.Leave(t.path, result)
	t.path, t.class = outerPath, outerClass
	t.recorder.Enter(t.path)
	t.depth--
	return result
}

// ErrClass is wrapped where the forward of a class is not known.
var ErrClass = errors.New("the code of this class is not known")

// Child runs a submodule, by its name or path, on one tensor.
func (t *Trace) Child(m *Module, name string, x Tensor) Tensor {
	return t.tensor(t.Run(t.child(m, name), x))
}

// ChildOf runs a submodule, by its name or path, on any arguments.
func (t *Trace) ChildOf(m *Module, name string, args ...any) any {
	return t.Run(t.child(m, name), args...)
}

func (t *Trace) child(m *Module, name string) *Module {
	c := m.Child(name)
	if c == nil {
		fail("%s has no module %s", m.Class, name)
	}
	return c
}

// Each runs the children of a module one after the other, as a Sequential does.
func (t *Trace) Each(m *Module, x Tensor) Tensor {
	for _, c := range m.Children {
		x = t.tensor(t.Run(c.Module, x))
	}
	return x
}

// Param returns a parameter or buffer of a module, nil for one that is None.
func (t *Trace) Param(m *Module, name string) Tensor {
	for _, p := range m.Params {
		if p.Name != name {
			continue
		}
		if p.None {
			return nil
		}
		if path := t.paths[m]; t.wrap != nil && path != t.path {
			if err := t.wrap.Read(path); err != nil {
				panic(traceFailure{err})
			}
		}
		x, err := t.param(Join(t.paths[m], name), p)
		if err != nil {
			panic(traceFailure{fmt.Errorf("%s: %w", name, err)})
		}
		return x
	}
	if v, ok := m.Attrs[name]; ok && v == nil { // an attribute that was set to None before it was a parameter
		return nil
	}
	if g := m.param(name + "_g"); g != nil && m.param(name+"_v") != nil {
		return t.weightNormed(m, name, g.Shape)
	}
	fail("no parameter %s", name)
	return nil
}

// weightNormed returns a parameter that torch.nn.utils.weight_norm split into magnitudes and directions. The magnitudes
// have one element for each place along one dimension, or one element in all.
func (t *Trace) weightNormed(m *Module, name string, magnitudes tensor.Shape) Tensor {
	direction := t.Param(m, name+"_v")
	dim := -1
	for d, n := range magnitudes {
		if len(magnitudes) == len(direction.Shape()) && n == direction.Shape()[d] {
			dim = d
			if n != 1 {
				break
			}
		}
	}
	return t.Op("_weight_norm", direction, t.Param(m, name+"_g"), dim)
}

func (t *Trace) param(name string, p Param) (Tensor, error) {
	if p.Value != nil {
		return t.recorder.Constant(p.Value)
	}
	if other, ok := t.replaced[name]; ok {
		return t.recorder.Weight(other, p.DType)
	}
	if other, ok := t.weights[name]; ok {
		name = other
	}
	return t.recorder.Weight(name, p.DType)
}

// Constant returns a tensor with the given contents.
func (t *Trace) Constant(x *tensor.Tensor) Tensor {
	c, err := t.recorder.Constant(x)
	if err != nil {
		panic(traceFailure{err})
	}
	return c
}

// Op calls an op of PyTorch that gives one tensor: t.Op("conv2d", x, weight, bias, stride) is torch.conv2d. An overload
// follows a dot, "add.Tensor"; without one the overload is "default". Arguments are in the order of the op's schema, and
// Named ones may come last.
func (t *Trace) Op(op string, args ...any) Tensor {
	results := t.Ops(op, args...)
	if len(results) == 0 {
		fail("%s gives nothing", op)
	}
	return t.tensor(results[0])
}

// Ops is Op for ops with several results or other ones.
func (t *Trace) Ops(op string, args ...any) []any {
	var named Named
	if n := len(args); n > 0 {
		if last, ok := args[n-1].(Named); ok {
			named, args = last, args[:n-1]
		}
	}
	if !strings.Contains(op, "::") {
		op = "aten::" + op
	}
	results, err := t.recorder.Call(op, args, named)
	if err != nil {
		panic(traceFailure{fmt.Errorf("%s: %w", strings.TrimPrefix(op, "aten::"), err)})
	}
	return results
}

// Tensors calls an op that gives a list of tensors, such as chunk.
func (t *Trace) Tensors(op string, args ...any) []Tensor {
	results := t.Ops(op, args...)
	if len(results) == 1 {
		if list, ok := results[0].([]Tensor); ok {
			return list
		}
	}
	list := make([]Tensor, len(results))
	for i, r := range results {
		list[i] = t.tensor(r)
	}
	return list
}

func (t *Trace) tensor(v any) Tensor {
	x, ok := v.(Tensor)
	if !ok {
		fail("got a %T where a tensor was expected", v)
	}
	return x
}
