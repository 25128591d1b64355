// Package layers represents PyTorch's nn as data: trees of [Module]s with their parameters, and for each class the ops
// that its forward calls, recorded by a [Trace].
//
// It knows modules. It does not know files, devices or graphs: a Trace passes the calls on to the builder of the graph.
//
//	net := layers.Sequential(layers.Linear(784, 64), layers.ReLU(), layers.Linear(64, 10))
//	for _, p := range net.StateDict() {
//		fmt.Println(p.Name, p.Shape)
//	}
package layers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// A Module is a torch.nn.Module as data: the name of its class, its attributes, its parameters and its children, as
// Python's __init__ leaves them. What it computes is known of its class ([Class]), not of the module.
type Module struct {
	// Class is Python's qualified name, such as "torch.nn.modules.conv.Conv2d".
	Class string
	// Attrs are the attributes by their names in Python: nil, bool, int, float64, string, []any for lists and tuples,
	// map[string]any for dictionaries with text keys.
	Attrs map[string]any
	// Params are the parameters and then the buffers, in the order of the state dict.
	Params   []Param
	Children []Child
}

// A Param is a parameter or a buffer of a module.
type Param struct {
	Name  string
	DType tensor.DType
	Shape tensor.Shape
	// None is set for a parameter that the class has and this module does not: bias=False.
	None bool
	// Buffer is set for what is not trained; Transient for a buffer that the state dict leaves out.
	Buffer, Transient bool
	// Value is what a transient buffer holds. Others are read from the checkpoint.
	Value *tensor.Tensor
	// Init returns what Python's __init__ puts into a buffer that has one right value, such as a table of positions: for
	// writing a checkpoint. It is nil for others.
	Init func() *tensor.Tensor
}

// A Child is a submodule. Module is nil where Python has None.
type Child struct {
	Name   string
	Module *Module
}

// Add appends a child and returns m.
//
//go:noinline
func (m *Module) Add(name string, child *Module) *Module {
	m.Children = append(m.Children, Child{name, child})
	return m
}

// Param appends a parameter of float32 and returns m.
//
//go:noinline
func (m *Module) Param(name string, shape ...int) *Module {
	m.Params = append(m.Params, Param{Name: name, DType: tensor.Float32, Shape: shape})
	return m
}

// param returns a parameter or buffer by name, nil where there is none.
func (m *Module) param(name string) *Param {
	if i := slices.IndexFunc(m.Params, func(p Param) bool { return p.Name == name }); i >= 0 {
		return &m.Params[i]
	}
	return nil
}

// Child returns a submodule by name, or by a path such as "layer1.0.conv1"; nil where there is none.
func (m *Module) Child(path string) *Module {
	for path != "" && m != nil {
		name, rest, _ := strings.Cut(path, ".")
		i := slices.IndexFunc(m.Children, func(c Child) bool { return c.Name == name })
		if i < 0 {
			return nil
		}
		m, path = m.Children[i].Module, rest
	}
	return m
}

// Has reports whether the module has a submodule of that name that is not None.
//
//go:noinline
func (m *Module) Has(name string) bool { return m.Child(name) != nil }

// Walk calls visit for every module of the tree with its path, parents first, in the order of the state dict.
func (m *Module) Walk(visit func(path string, m *Module)) { m.walk("", visit) }

func (m *Module) walk(path string, visit func(string, *Module)) {
	visit(path, m)
	for _, c := range m.Children {
		if c.Module != nil {
			c.Module.walk(Join(path, c.Name), visit)
		}
	}
}

// Join returns the path of a member of the module at path.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// StateDict lists what the state dict of the module holds: names, dtypes and shapes, in PyTorch's order.
func (m *Module) StateDict() StateDict {
	var dict StateDict
	m.Walk(func(path string, m *Module) {
		for _, p := range m.Params {
			if !p.None && !p.Transient {
				dict = append(dict, Entry{Join(path, p.Name), p.DType, p.Shape})
			}
		}
	})
	return dict
}

// A StateDict is a list of named tensors, of which only dtypes and shapes are known.
type StateDict []Entry

// An Entry is one tensor of a state dict.
type Entry struct {
	Name  string
	DType tensor.DType
	Shape tensor.Shape
}

// Shapes returns the shapes by name.
func (d StateDict) Shapes() map[string]tensor.Shape {
	shapes := make(map[string]tensor.Shape, len(d))
	for _, e := range d {
		shapes[e.Name] = e.Shape
	}
	return shapes
}

// A MismatchError says how a state dict differs from what a module wants, as load_state_dict does.
type MismatchError struct {
	// Arch is what the state dict was taken for.
	Arch string
	// Missing are keys that the module wants, Unexpected keys that it does not have.
	Missing, Unexpected []string
	Misshaped           []Misshaped
}

// A Misshaped key has another shape in the checkpoint than in the module.
type Misshaped struct {
	Name      string
	Got, Want tensor.Shape
}

// Count returns the number of differences.
func (e *MismatchError) Count() int { return len(e.Missing) + len(e.Unexpected) + len(e.Misshaped) }

// Error lists every key, in PyTorch's words.
func (e *MismatchError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the state dict does not fit %s:", e.Arch)
	list := func(what string, keys []string) {
		if len(keys) > 0 {
			fmt.Fprintf(&b, "\n  %s key(s): %q", what, keys)
		}
	}
	list("missing", e.Missing)
	list("unexpected", e.Unexpected)
	for _, m := range e.Misshaped {
		fmt.Fprintf(&b, "\n  size mismatch for %s: %v in the checkpoint, %v in the model", m.Name, m.Got, m.Want)
	}
	return b.String()
}

// Pictures says how pictures come into a text: what an encoder makes of one stands in the places of so many tokens.
// Steps read them as a source: see [Trace.KeepSeen] and [Trace.Seen].
type Pictures struct {
	// Input is the input that takes them, [pictures channels height width]; Token is what stands for a part of one in a
	// text, and Places how many of them do for each.
	Input         string
	Token, Places int
}

// Check compares a state dict with what the module wants. It returns nil or a [*MismatchError].
func (m *Module) Check(arch string, dict StateDict) error { return check(arch, m.StateDict(), dict) }

func check(arch string, want, dict StateDict) error {
	e := &MismatchError{Arch: arch}
	have := dict.Shapes()
	wanted := make(map[string]bool)
	for _, w := range want {
		wanted[w.Name] = true
		got, ok := have[w.Name]
		switch {
		case !ok && strings.HasSuffix(w.Name, "num_batches_tracked"): // older checkpoints lack it, and nothing reads it
		case !ok:
			e.Missing = append(e.Missing, w.Name)
		case !got.Equal(w.Shape):
			e.Misshaped = append(e.Misshaped, Misshaped{w.Name, got, w.Shape})
		}
	}
	for _, d := range dict {
		if !wanted[d.Name] {
			e.Unexpected = append(e.Unexpected, d.Name)
		}
	}
	if e.Count() == 0 {
		return nil
	}
	return e
}

// A Port is an input of a model.
type Port struct {
	Name  string
	DType tensor.DType
	// Shape holds −1 for a dimension that may vary; nil is any shape.
	Shape tensor.Shape
	// Dims names the dimensions that vary, "" for the fixed ones.
	Dims []string
	// Optional is set for an input that need not be given.
	Optional bool
	// Assumed is set where nothing says which dtype the input has: the model takes others too.
	Assumed bool
	// Number is set for an input without dimensions that is a number of the program: a graph is built for one of its values.
	Number bool
}

// An Architecture is a model whose code is known: the tree of its modules and what its forward takes.
type Architecture struct {
	// Name is what users call it: "resnet101".
	Name   string
	Root   *Module
	Inputs []Port
	// Classes says what the classes of the tree compute.
	Classes Classes
	// Weights maps names of the module's state dict to the checkpoint's where they differ: renamed and tied ones.
	Weights map[string]string
	// Context is how many positions a sequence may have where the architecture can be run step by step, its keys and values
	// kept: see [Stepper]. 0 is one that cannot.
	Context int
	// Stretch is the number of positions beyond which what a step makes of a token depends on how long the token's sequence is
	// ([Trace.Lengths]), 0 where it never does. Restarts says that then it is another for all tokens of the sequence, and what was
	// kept of them before is of no use.
	Stretch  int
	Restarts bool
	// Window is how many positions modules see at most that see no more than so many, 0 where all see all: what they keep
	// of those before is of no use.
	Window int
	// Recurrent says that a step keeps states of a fixed size ([Trace.Recur]), Keyless that it keeps no keys and values
	// beside them.
	Recurrent, Keyless bool
	// Source is how many positions a source may have that steps attend to, of an encoder and a decoder: [SourceReader].
	// It is the first of the inputs. 0 is a model that has none.
	Source int
	// Pictures says that some tokens of a text stand for a picture, of an architecture that sees; nil of others. Source
	// is then how many there are for all pictures of a text at most.
	Pictures *Pictures
	// Note says what a state dict did not tell and was assumed, "" where nothing was.
	Note string
	// Wrap changes what modules compute; nil changes nothing.
	Wrap Wrapper
}

// Check compares a state dict with what the architecture wants, under the names of a.Weights. It returns nil or a
// [*MismatchError].
func (a *Architecture) Check(dict StateDict) error {
	want := a.Root.StateDict()
	for i, w := range want {
		if other, ok := a.Weights[w.Name]; ok {
			want[i].Name = other
		}
	}
	return check(a.Name, want, dict)
}

// Int returns an integer attribute.
func (m *Module) Int(name string) int {
	switch v := m.Attrs[name].(type) {
	case int:
		return v
	case bool:
		if v {
			return 1
		}
		return 0
	}
	m.lacks(name, "an integer")
	return 0
}

// Ints returns an attribute of n integers; a single integer stands for n equal ones.
func (m *Module) Ints(name string, n int) []int {
	switch v := m.Attrs[name].(type) {
	case int:
		return slices.Repeat([]int{v}, n)
	case []int:
		if len(v) == n {
			return v
		}
	case []any:
		out := make([]int, 0, n)
		for _, x := range v {
			if i, ok := x.(int); ok {
				out = append(out, i)
			}
		}
		if len(out) == n && len(v) == n {
			return out
		}
	}
	m.lacks(name, fmt.Sprintf("%d integers", n))
	return nil
}

// Float returns a number attribute.
func (m *Module) Float(name string) float64 {
	switch v := m.Attrs[name].(type) {
	case float64:
		return v
	case int:
		return float64(v)
	}
	m.lacks(name, "a number")
	return 0
}

// Floats returns an attribute of n numbers; a single number stands for n equal ones.
func (m *Module) Floats(name string, n int) []float64 {
	list, ok := m.Attrs[name].([]any)
	if !ok {
		return slices.Repeat([]float64{m.Float(name)}, n)
	}
	out := make([]float64, 0, n)
	for _, x := range list {
		switch x := x.(type) {
		case float64:
			out = append(out, x)
		case int:
			out = append(out, float64(x))
		}
	}
	if len(out) != n || len(list) != n {
		m.lacks(name, fmt.Sprintf("%d numbers", n))
	}
	return out
}

// Bool returns a flag; one that is not there is false.
func (m *Module) Bool(name string) bool {
	switch v := m.Attrs[name].(type) {
	case nil:
		return false
	case bool:
		return v
	case int:
		return v != 0
	}
	m.lacks(name, "a flag")
	return false
}

// Text returns a text attribute, "" for one that is None or not there.
func (m *Module) Text(name string) string {
	switch v := m.Attrs[name].(type) {
	case nil:
		return ""
	case string:
		return v
	}
	m.lacks(name, "a text")
	return ""
}

// lacks fails the trace: attributes come from files too.
func (m *Module) lacks(name, what string) {
	fail("attribute %s of %s is %v, not %s", name, m.Class, m.Attrs[name], what)
}
