package aten

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/optimem/optimem/tensor"
)

// Resolve finds the overload that a call means, as PyTorch does: the one whose parameters take the arguments.
func Resolve(op string, args []any, named map[string]any) (Target, error) {
	name := "torch.ops." + strings.Replace(op, "::", ".", 1)
	if t, ok := targets[name]; ok {
		if n := t.schema.positional(); len(args) > n {
			return Target{}, fmt.Errorf("%d arguments by position, of which it takes %d", len(args), n)
		}
		return t, nil
	}
	if strings.Contains(strings.TrimPrefix(op, "aten::"), ".") {
		return Target{}, &UnsupportedError{Missing: []Missing{{Name: name, Uses: 1}}}
	}
	candidates := overloads()[name]
	for _, convert := range []bool{false, true} {
		for _, c := range candidates {
			if c.takes(args, named, convert) {
				return c, nil
			}
		}
	}
	if len(candidates) > 0 {
		return Target{}, fmt.Errorf("no overload takes %s", kindsOf(args, named))
	}
	return Target{}, &UnsupportedError{Missing: []Missing{{Name: name, Uses: 1}}}
}

func kindsOf(args []any, named map[string]any) string {
	var list []string
	for _, a := range args {
		list = append(list, kindOf(a))
	}
	for name, a := range named {
		list = append(list, name+"="+kindOf(a))
	}
	return "(" + strings.Join(list, ", ") + ")"
}

func kindOf(a any) string {
	switch a := a.(type) {
	case nil:
		return "None"
	case *Ref, *Selection:
		return "Tensor"
	case []*Ref:
		return "Tensor[]"
	case float64:
		return "float"
	case string:
		return "str"
	case []int:
		return "int[]"
	case []float64:
		return "float[]"
	case tensor.DType:
		return "dtype"
	default:
		return fmt.Sprintf("%T", a)
	}
}

// overloads returns the targets of each name, the one without an overload name first. Most programs name their overloads and
// need none of it.
var overloads = sync.OnceValue(func() map[string][]Target {
	all := make(map[string][]Target)
	for name, t := range targets {
		base := name[:strings.LastIndexByte(name, '.')]
		all[base] = append(all[base], t)
		// The plain name stands for the default overload alone when there is one, which is in targets under ".default".
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b Target) int { return strings.Compare(overloadOrder(a), overloadOrder(b)) })
	}
	return all
})

// overloadOrder sorts the default overload before others, those of tensors before those of numbers.
func overloadOrder(t Target) string {
	_, name, _ := strings.Cut(strings.TrimPrefix(t.schema.target, "torch.ops."), ".")
	_, name, _ = strings.Cut(name, ".")
	switch {
	case name == "default":
		return "0"
	case strings.HasPrefix(name, "Tensor"), name == "self":
		return "1" + name
	case name == "correction": // takes what std.dim takes, which comes first
		return "3"
	}
	return "2" + name
}

// takes reports whether the arguments are of the types of the parameters, or can be converted to them.
func (t Target) takes(args []any, named map[string]any, convert bool) bool {
	params := t.schema.params
	positional := 0
	for i, p := range params {
		v, ok := named[p.name]
		if !ok && i < len(args) && !p.keywordOnly {
			v, ok = args[i], true
			positional++
		}
		if !ok {
			if p.required {
				return false
			}
			continue
		}
		if !p.accepts(v, convert) {
			return false
		}
	}
	if positional < len(args) {
		return false
	}
	for name := range named {
		if !slices.ContainsFunc(params, func(p param) bool { return p.name == name }) {
			return false
		}
	}
	return true
}

// element returns the parameter's type without what says that it may be None, a list or written to.
func (p param) element() (element string, optional, list, sized bool) {
	typ, optional := strings.CutSuffix(p.typ, "?")
	if i := strings.IndexByte(typ, '('); i >= 0 { // Tensor(a!)
		end := strings.IndexByte(typ, ')')
		typ = typ[:i] + typ[end+1:]
	}
	element = typ
	if i := strings.IndexByte(typ, '['); i >= 0 {
		element, list = typ[:i], true
		sized = len(typ) > i+2 // int[2] takes one integer for all
	}
	return strings.TrimSuffix(element, "?"), optional, list, sized
}

// accepts reports whether a value can be an argument for the parameter. A flag stands for a number; where conversions are
// allowed, so does a tensor without dimensions, and a number for a tensor.
func (p param) accepts(v any, convert bool) bool {
	element, optional, list, sized := p.element()
	isInt := element == "int" || element == "SymInt"
	isNumber := element == "Scalar" || element == "number"
	switch v := v.(type) {
	case nil:
		return optional
	case *Ref:
		return !list && (element == "Tensor" || convert && isNumber && v.rank() == 0)
	case *Selection:
		return !list && element == "Tensor"
	case []*Ref:
		return list && element == "Tensor"
	case int:
		switch {
		case list:
			return sized && isInt
		case element == "ScalarType", element == "Layout", element == "MemoryFormat":
			return true // as TorchScript has them
		}
		return isInt || isNumber || element == "float" || convert && element == "Tensor"
	case bool:
		return !list && (element == "bool" || isNumber || isInt || element == "float")
	case float64:
		return !list && (element == "float" || isNumber || convert && element == "Tensor") || sized && element == "float"
	case complex128:
		return !list && (element == "complex" || isNumber)
	case string:
		return !list && (element == "str" || element == "Device")
	case []int:
		return list && (isInt || isNumber || element == "float" || len(v) == 0 && element == "Tensor")
	case []float64:
		return list && (isNumber || element == "float")
	case []bool:
		return list && element == "bool"
	case tensor.DType:
		return !list && element == "ScalarType"
	case *Count:
		return !list && (isInt || isNumber) || list && sized && isInt
	case []any: // sizes, of which only data says some
		return list && isInt
	}
	return !list
}

// TakesDType reports whether a parameter is a dtype.
func (t Target) TakesDType(param string) bool {
	i := t.Position(param)
	if i < 0 {
		return false
	}
	element, _, _, _ := t.schema.params[i].element()
	return element == "ScalarType"
}

// HasMeaning reports whether a name is that of an overload, or of an op with overloads, that has a meaning here.
func HasMeaning(name string) bool {
	_, exact := Lookup(name)
	return exact || len(overloads()[name]) > 0
}

// List makes a list of one type, as arguments are, of a list of any.
func List(list []any) any {
	if len(list) == 0 {
		return []int{}
	}
	switch list[0].(type) {
	case *Ref:
		refs := make([]*Ref, len(list))
		for i, v := range list {
			refs[i], _ = v.(*Ref)
		}
		return refs
	case int:
		ints := make([]int, 0, len(list))
		for _, v := range list {
			if n, ok := v.(int); ok {
				ints = append(ints, n)
			}
		}
		if len(ints) == len(list) {
			return ints
		}
	}
	floats := make([]float64, 0, len(list))
	for _, v := range list {
		switch v := v.(type) {
		case float64:
			floats = append(floats, v)
		case int:
			floats = append(floats, float64(v))
		}
	}
	if len(floats) == len(list) {
		return floats
	}
	refs := make([]*Ref, len(list)) // optional tensors, the first of which is None
	for i, v := range list {
		r, ok := v.(*Ref)
		if !ok && v != nil {
			return list
		}
		refs[i] = r
	}
	return refs
}
