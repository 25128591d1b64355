package script

import (
	"slices"
	"strconv"
)

// A Port is an output of a module.
type Port struct {
	Name string
	// Type is nil where the code tells the name only.
	Type *Type
}

// Inputs returns what forward of the given class takes, without the module itself; nil where there is no forward.
func (p *Program) Inputs(class string) []Arg {
	f := p.Method(class, "forward")
	if f == nil || len(f.Args) == 0 {
		return nil
	}
	return f.Args[1:]
}

// Outputs returns what forward of the given class gives, nested tuples flattened: the fields of a NamedTuple by their
// names, the entries of a dictionary that forward writes out by their keys, anything else as output_0, output_1, …
func (p *Program) Outputs(class string) []Port {
	f := p.Method(class, "forward")
	if f == nil {
		return nil
	}
	if keys := returnedKeys(f); keys != nil {
		ports := make([]Port, len(keys))
		for i, k := range keys {
			ports[i] = Port{Name: k, Type: f.Returns.Args[1]}
		}
		return ports
	}
	if f.Returns.Kind == NoneType {
		return nil
	}
	fl := flattener{prog: p, seen: make(map[string]bool)}
	fl.add("", f.Returns, 0)
	return fl.ports
}

// maxVisits and maxPortDepth keep NamedTuples that hold each other many times from multiplying.
const (
	maxVisits    = 10_000
	maxPortDepth = 16
)

// A flattener lists the leaves of a type.
type flattener struct {
	prog   *Program
	ports  []Port
	seen   map[string]bool
	visits int
}

// add lists the leaves of t; name is the field that holds it, "" for none.
func (fl *flattener) add(name string, t *Type, depth int) {
	if fl.visits++; fl.visits > maxVisits {
		return
	}
	if depth < maxPortDepth {
		if t.Kind == TupleType {
			for _, arg := range t.Args {
				fl.add("", arg, depth+1)
			}
			return
		}
		if c := fl.prog.Classes[t.Class]; c != nil && c.Kind == NamedTuple {
			for _, field := range c.Attributes {
				fl.add(field.Name, field.Type, depth+1)
			}
			return
		}
	}
	if name == "" || fl.seen[name] {
		name = "output_" + strconv.Itoa(len(fl.ports))
	}
	fl.seen[name] = true
	fl.ports = append(fl.ports, Port{Name: name, Type: t})
}

// returnedKeys returns the keys of the dictionary that f ends in returning, where the code shows them: as a literal, or
// as a variable that a literal was assigned to and that no call may have added to.
func returnedKeys(f *Function) []string {
	if f.Returns.Kind != DictType || f.Returns.Args[0].Kind != StringType || len(f.Body) == 0 {
		return nil
	}
	ret, ok := f.Body[len(f.Body)-1].(*Return)
	if !ok {
		return nil
	}
	x := ret.Value
	if name, ok := x.(*Name); ok {
		if isOperand(f.Body, name.Name) {
			return nil
		}
		for _, s := range f.Body {
			a, ok := s.(*Assign)
			if !ok || len(a.Targets) != 1 {
				continue
			}
			if target, ok := a.Targets[0].(*Name); ok && target.Name == name.Name {
				x = a.Values[0]
			}
		}
	}
	if a, ok := x.(*Annotate); ok {
		x = a.X
	}
	d, ok := x.(*Dict)
	if !ok {
		return nil
	}
	var keys []string
	for _, e := range d.Entries {
		key, ok := e.Key.(*String)
		if !ok {
			return nil
		}
		keys = append(keys, key.Value)
	}
	return keys
}

// isOperand reports whether a statement is a call with the variable as its first operand, such as torch._set_item(d, k, v).
func isOperand(body []Stmt, variable string) bool {
	takes := func(x Expr) bool {
		c, ok := x.(*Call)
		if !ok || len(c.Args) == 0 {
			return false
		}
		name, ok := c.Args[0].(*Name)
		return ok && name.Name == variable
	}
	return slices.ContainsFunc(body, func(s Stmt) bool {
		switch s := s.(type) {
		case *ExprStmt:
			return takes(s.X)
		case *Assign:
			return slices.ContainsFunc(s.Values, takes)
		case *If:
			return isOperand(s.Then, variable) || isOperand(s.Else, variable)
		case *For:
			return isOperand(s.Body, variable)
		case *While:
			return isOperand(s.Body, variable)
		case *With:
			return isOperand(s.Body, variable)
		}
		return false
	})
}
