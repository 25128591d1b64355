package torchscript

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/tensor"
)

// Arguments are those of forward by name.
type Arguments map[string]any

// A Tuple is a tuple among arguments; lists are []any, dictionaries layers.Fields.
type Tuple []any

// A Signature says what a program takes: the tensors among the arguments of forward, those within lists, tuples and
// dictionaries included.
type Signature struct {
	Ports []layers.Port
	args  []argument
	// sizes counts the sizes that have names.
	sizes int
}

// An argument is how one argument of forward is made of the tensors.
type argument struct {
	name string
	node node
	// fallback is set where the default is used unless all tensors are given.
	fallback bool
}

// A node is a tensor by its port, or a container of nodes: *seriesNode, *dictNode.
type node any

type seriesNode struct {
	elems []node
	tuple bool
	// open says that nobody knows how long the list is: as long as it is given.
	open bool
}

type dictNode struct {
	keys  []string
	elems []node
}

// Inspect returns what forward of the program's module takes. What a module was traced with tells dtypes and ranks; of
// others, the code does where a tensor is looked up in a table.
func Inspect(p *script.Program) (*Signature, error) {
	if p.Root == nil || p.Method(p.Root.Class, "forward") == nil {
		return nil, &UnsupportedError{"the module", "it has no forward"}
	}
	s := &Signature{}
	traced := tracedArgs(p)
	for i, a := range p.Inputs(p.Root.Class) {
		in := inspector{sig: s, program: p, arg: a}
		if i < len(traced) {
			in.traced = true
		}
		var example script.Value
		if in.traced {
			example = traced[i]
		}
		before := len(s.Ports)
		n, err := in.node(a.Name, a.Type, example, 0)
		if err != nil && !in.hasDefault() {
			return nil, err
		}
		if err != nil { // its default is used
			s.Ports = s.Ports[:before]
			continue
		}
		s.args = append(s.args, argument{name: a.Name, node: n, fallback: in.hasDefault()})
	}
	guessDTypes(p, s)
	return s, nil
}

// tracedArgs returns what forward was traced with, nil where it was not.
func tracedArgs(p *script.Program) []script.Value {
	for _, call := range p.Traced {
		if call.Method == "forward" {
			return call.Args
		}
	}
	return nil
}

// An inspector lists the tensors of one argument.
type inspector struct {
	sig     *Signature
	program *script.Program
	arg     script.Arg
	traced  bool
}

// hasDefault reports whether the argument can be left out.
func (in *inspector) hasDefault() bool {
	return in.arg.Default != nil || in.arg.Type != nil && in.arg.Type.Kind == script.OptionalType
}

// maxArgumentDepth bounds the containers within containers of an argument, maxPorts the tensors of all.
const (
	maxArgumentDepth = 8
	maxPorts         = 4096
)

func (in *inspector) node(name string, t *script.Type, example script.Value, depth int) (node, error) {
	unsupported := func(format string, args ...any) (node, error) {
		return nil, &UnsupportedError{"argument " + name + " of forward", fmt.Sprintf(format, args...)}
	}
	if t == nil || depth > maxArgumentDepth || len(in.sig.Ports) >= maxPorts {
		return unsupported("it is nested too deep")
	}
	if t.Kind == script.OptionalType {
		t = t.Args[0]
	}
	series := func(types []*script.Type, examples []script.Value, tuple bool) (node, error) {
		n := &seriesNode{tuple: tuple}
		for i, u := range types {
			var e script.Value
			if i < len(examples) {
				e = examples[i]
			}
			elem, err := in.node(layers.Join(name, fmt.Sprint(i)), u, e, depth+1)
			if err != nil {
				return nil, err
			}
			n.elems = append(n.elems, elem)
		}
		return n, nil
	}
	switch t.Kind {
	case script.IntType, script.FloatType, script.BoolType:
		d := map[script.Kind]tensor.DType{
			script.IntType: tensor.Int64, script.FloatType: tensor.Float64, script.BoolType: tensor.Bool,
		}[t.Kind]
		port := layers.Port{Name: name, DType: d, Shape: tensor.Shape{}, Optional: in.hasDefault(), Number: true}
		in.sig.Ports = append(in.sig.Ports, port)
		return len(in.sig.Ports) - 1, nil
	case script.TensorType:
		port := layers.Port{Name: name, DType: tensor.Float32, Optional: in.hasDefault(), Assumed: true}
		if shape, ok := example.(script.TracedTensor); ok {
			d, known := tensor.ParseDType(shape.DType)
			if !known {
				return unsupported("it was traced with a tensor of unknown dtype")
			}
			port.DType, port.Assumed, port.Shape = d, false, make(tensor.Shape, len(shape.Shape))
			for i := range shape.Shape {
				port.Shape[i] = -1
				port.Dims = append(port.Dims, fmt.Sprintf("s%d", in.sig.sizes))
				in.sig.sizes++
			}
		}
		in.sig.Ports = append(in.sig.Ports, port)
		return len(in.sig.Ports) - 1, nil
	case script.TupleType:
		examples, _ := example.(script.TupleValue)
		return series(t.Args, examples, true)
	case script.ListType:
		examples, ok := example.(script.ListValue)
		if !ok && t.Args[0].Kind == script.TensorType {
			return in.openList(name, t.Args[0], depth)
		}
		if !ok {
			return unsupported(
				"the length of the list is not known; trace the module, or give forward the tensors one by one",
			)
		}
		return series(slices.Repeat([]*script.Type{t.Args[0]}, len(examples)), examples, false)
	case script.DictType:
		return in.dict(name, t, example, depth)
	case script.ClassType:
		if c := in.program.Classes[t.Class]; c != nil && c.Kind == script.NamedTuple {
			types := make([]*script.Type, len(c.Attributes))
			for i, a := range c.Attributes {
				types[i] = a.Type
			}
			return series(types, nil, true)
		}
	}
	return unsupported("it is no tensor and has no default")
}

// dict is a dictionary with the keys that it was traced with.
func (in *inspector) dict(name string, t *script.Type, example script.Value, depth int) (node, error) {
	refused := func(why string) (node, error) {
		return nil, &UnsupportedError{"argument " + name + " of forward", why}
	}
	examples, ok := example.(script.DictValue)
	if !ok || t.Args[0].Kind != script.StringType {
		return refused(
			"the keys of the dictionary are not known; trace the module, or give forward the tensors one by one",
		)
	}
	n := &dictNode{}
	for _, item := range examples {
		key, ok := item.Key.(string)
		if !ok {
			return refused("a key is no text")
		}
		elem, err := in.node(layers.Join(name, key), t.Args[1], item.Value, depth+1)
		if err != nil {
			return nil, err
		}
		n.keys, n.elems = append(n.keys, key), append(n.elems, elem)
	}
	return n, nil
}

// maxOpenList is how many tensors a list may be given that has no length of its own.
const maxOpenList = 8

// openList is a list of tensors of which only the first has to be given.
func (in *inspector) openList(name string, elem *script.Type, depth int) (node, error) {
	n := &seriesNode{open: true}
	for i := range maxOpenList {
		e, err := in.node(layers.Join(name, fmt.Sprint(i)), elem, nil, depth+1)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			in.sig.Ports[e.(int)].Optional = true
		}
		n.elems = append(n.elems, e)
	}
	return n, nil
}

// Number returns the number that a tensor without dimensions holds.
func Number(t *tensor.Tensor) (any, bool) {
	if t == nil || len(t.Layout.Shape) > 0 {
		return nil, false
	}
	return decode(t, t.Layout.Offset)
}

// Arguments makes forward's arguments of tensors and numbers, in the order of the ports; nil is one that is not given.
func (s *Signature) Arguments(values []any) Arguments {
	args := make(Arguments, len(s.args))
	for _, a := range s.args {
		v, complete := s.value(a.node, values)
		if !complete && a.fallback {
			continue
		}
		args[a.name] = v
	}
	return args
}

// Gap returns the port of a tensor that is not given in a list of which later ones are, −1 for none.
func (s *Signature) Gap(values []any) int {
	var in func(n node) int
	in = func(n node) int {
		var elems []node
		switch n := n.(type) {
		case *dictNode:
			elems = n.elems
		case *seriesNode:
			elems = n.elems
			missing := -1
			for _, e := range elems {
				at, is := e.(int)
				switch {
				case !n.open || !is:
				case missing >= 0 && values[at] != nil:
					return missing
				case missing < 0 && values[at] == nil:
					missing = at
				}
			}
		}
		for _, e := range elems {
			if at := in(e); at >= 0 {
				return at
			}
		}
		return -1
	}
	for _, a := range s.args {
		if at := in(a.node); at >= 0 {
			return at
		}
	}
	return -1
}

// value makes one argument; complete is unset where a tensor of it is not given.
func (s *Signature) value(n node, values []any) (v any, complete bool) {
	complete = true
	each := func(elems []node) []any {
		var out []any
		for _, e := range elems {
			v, ok := s.value(e, values)
			complete = complete && ok
			out = append(out, v)
		}
		return out
	}
	switch n := n.(type) {
	case int:
		if n >= len(values) || values[n] == nil {
			return nil, false
		}
		return values[n], true
	case *seriesNode:
		elems := n.elems
		for i, e := range elems { // a list ends where nothing is given
			if at, is := e.(int); n.open && is && i > 0 && (at >= len(values) || values[at] == nil) {
				elems = elems[:i]
				break
			}
		}
		given := each(elems)
		if n.tuple {
			return Tuple(given), complete
		}
		return given, complete
	case *dictNode:
		var fields layers.Fields
		for i, v := range each(n.elems) {
			fields = append(fields, layers.Field{Name: n.keys[i], Value: v})
		}
		return fields, complete
	}
	return nil, false
}
