package exported

import (
	"strconv"

	"github.com/optimem/optimem/tensor"
)

// A Port is an input or output of the program as its user sees it.
type Port struct {
	// Name is unique among the inputs or the outputs. Of nested arguments and results it is the path of keys and
	// positions, joined by dots.
	Name string
	// Value is the name of the value in the graph, "" for a constant.
	Value string
	// Tag says what it is, mostly Tensor.
	Tag Tag
	// DType and Shape are those of a tensor.
	DType tensor.DType
	Shape []SymInt
}

// Inputs returns the inputs that a user gives, in the order of the program's arguments. Arguments that were constant
// when the program was exported are not among them.
func (p *Program) Inputs() []Port {
	paths := p.inputPaths()
	var ports []Port
	leaf := 0
	for _, spec := range p.Signature.Inputs {
		if spec.Kind != UserInput && spec.Kind != ConstantInput {
			continue
		}
		name := ""
		if leaf < len(paths) {
			name = paths[leaf]
		}
		leaf++
		if spec.Kind == ConstantInput || spec.Arg.constant() {
			continue
		}
		if name == "" {
			name = spec.Arg.Name
		}
		ports = append(ports, p.port(name, spec.Arg))
	}
	fallback := "input_"
	if len(ports) == 1 {
		fallback = "x"
	}
	unique(ports, fallback)
	return ports
}

// Outputs returns what the program gives back, in order, without the buffers and inputs that it changes.
func (p *Program) Outputs() []Port {
	var paths []string
	if s := p.callSignature(); s != nil && s.Out != nil {
		s.Out.paths("", false, func(path string, named bool) {
			if !named {
				path = ""
			}
			paths = append(paths, path)
		})
	}
	var outputs []Argument
	for _, spec := range p.Signature.Outputs {
		if spec.Kind == UserOutput || spec.Kind == LossOutput {
			outputs = append(outputs, spec.Arg)
		}
	}
	if len(paths) != len(outputs) {
		paths = make([]string, len(outputs))
	}
	ports := make([]Port, 0, len(outputs))
	for i, arg := range outputs {
		name := paths[i]
		if name == "" && !arg.constant() {
			name = arg.Name
		}
		ports = append(ports, p.port(name, arg))
	}
	unique(ports, "output_")
	return ports
}

func (p *Program) callSignature() *CallSignature {
	if len(p.ModuleCalls) == 0 || p.ModuleCalls[0].FQN != "" {
		return nil
	}
	return p.ModuleCalls[0].Signature
}

// inputPaths names the leaves of the arguments: by the parameters of forward and the keywords, with the path below.
// It is nil where the structure is not recorded or is not that of the signature.
func (p *Program) inputPaths() []string {
	s := p.callSignature()
	if s == nil || s.In == nil || len(s.In.Children) != 2 {
		return nil
	}
	args, kwargs := s.In.Children[0], s.In.Children[1]
	var paths []string
	add := func(path string, _ bool) { paths = append(paths, path) }
	for i, c := range args.Children {
		if i < len(s.ArgNames) {
			c.paths(s.ArgNames[i], true, add)
			continue
		}
		for range c.Leaves() {
			paths = append(paths, "") // the value's own name is better than a position
		}
	}
	kwargs.paths("", true, add)
	n := 0
	for _, spec := range p.Signature.Inputs {
		if spec.Kind == UserInput || spec.Kind == ConstantInput {
			n++
		}
	}
	if n != len(paths) {
		return nil
	}
	return paths
}

// constant reports whether the argument stands for no value of the graph.
func (a Argument) constant() bool {
	switch a.Tag {
	case Tensor, CustomObj:
		return false
	case SymbolicInt, SymbolicFloat, SymbolicBool:
		return a.Name == ""
	}
	return true
}

func (p *Program) port(name string, a Argument) Port {
	port := Port{Name: name, Tag: a.Tag}
	if !a.constant() {
		port.Value = a.Name
	}
	if m := p.Graph.TensorValues[a.Name]; a.Tag == Tensor && m != nil {
		port.DType, port.Shape = m.DType, m.Sizes
	}
	return port
}

// unique gives ports without a name, and those whose name another has, the name fallback with their position.
func unique(ports []Port, fallback string) {
	taken := make(map[string]bool, len(ports))
	for i := range ports {
		name := ports[i].Name
		if name == "" || taken[name] {
			name = fallback + strconv.Itoa(i)
			if fallback == "x" {
				name = fallback
			}
			for taken[name] {
				name += "_"
			}
			ports[i].Name = name
		}
		taken[name] = true
	}
}
