package loader

import (
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/tensor"
)

// A Port is an input or output of a program, named as the command line names it.
type Port struct {
	Name string
	// Type is "Tensor", or the type of an argument that is none, such as "int" or "Dict[str, Tensor]".
	Type string
	// DType is PyTorch's name of the dtype, "" where the program does not tell.
	DType string
	// Shape holds a number or a symbol ("s77") for each dimension; nil where the program does not tell.
	Shape []string
}

// Inputs returns what the program takes from its caller, in order.
func (p *Program) Inputs() []Port {
	if p.Exported != nil {
		return exportedPorts(p.Exported.Inputs())
	}
	if p.Script == nil || p.Script.Root == nil {
		return nil
	}
	var ports []Port
	for _, arg := range p.Script.Inputs(p.Script.Root.Class) {
		ports = append(ports, scriptPort(arg.Name, arg.Type))
	}
	return ports
}

// Outputs returns what the program gives, in order.
func (p *Program) Outputs() []Port {
	if p.Exported != nil {
		return exportedPorts(p.Exported.Outputs())
	}
	if p.Script == nil || p.Script.Root == nil {
		return nil
	}
	var ports []Port
	for _, out := range p.Script.Outputs(p.Script.Root.Class) {
		ports = append(ports, scriptPort(out.Name, out.Type))
	}
	return ports
}

func exportedPorts(from []exported.Port) []Port {
	ports := make([]Port, 0, len(from))
	for _, e := range from {
		p := Port{Name: e.Name, Type: e.Tag.String()}
		if e.DType != tensor.Invalid {
			p.Type, p.DType, p.Shape = "Tensor", e.DType.String(), make([]string, 0, len(e.Shape))
			for _, s := range e.Shape {
				p.Shape = append(p.Shape, s.String())
			}
		}
		ports = append(ports, p)
	}
	return ports
}

func scriptPort(name string, t *script.Type) Port {
	p := Port{Name: name}
	if t != nil {
		p.Type = t.String()
	}
	return p
}
