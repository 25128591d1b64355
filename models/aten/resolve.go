package aten

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// Resolve finds the overload that a call means, as PyTorch does: the one whose parameters take the arguments.
func Resolve(op string, args []any, named map[string]any) (Target, error) {
	name := "torch.ops." + strings.Replace(op, "::", ".", 1)
	if t, ok := targets[name]; ok {
		if n := t.schema.Positional(); len(args) > n {
			return Target{}, fmt.Errorf("%d arguments by position, of which it takes %d", len(args), n)
		}
		return t, nil
	}
	if strings.Contains(strings.TrimPrefix(op, "aten::"), ".") {
		return Target{}, &cells.UnsupportedError{Missing: []cells.Missing{{Name: name, Uses: 1}}}
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
	return Target{}, &cells.UnsupportedError{Missing: []cells.Missing{{Name: name, Uses: 1}}}
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
	case *cells.Ref, *cells.Selection:
		return "Tensor"
	case []*cells.Ref:
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
	_, name, _ := strings.Cut(strings.TrimPrefix(t.schema.Target, "torch.ops."), ".")
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
	params := t.schema.Params
	positional := 0
	for i, p := range params {
		v, ok := named[p.Name]
		if !ok && i < len(args) && !p.KeywordOnly {
			v, ok = args[i], true
			positional++
		}
		if !ok {
			if p.Required {
				return false
			}
			continue
		}
		if !accepts(p, v, convert) {
			return false
		}
	}
	if positional < len(args) {
		return false
	}
	for name := range named {
		if !slices.ContainsFunc(params, func(p call.Param) bool { return p.Name == name }) {
			return false
		}
	}
	return true
}

// element returns the parameter's type without what says that it may be None, a list or written to.
func element(p call.Param) (element string, optional, list, sized bool) {
	typ, optional := strings.CutSuffix(p.Type, "?")
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
func accepts(p call.Param, v any, convert bool) bool {
	element, optional, list, sized := element(p)
	switch {
	case v == nil:
		return optional
	case list:
		return acceptsList(v, element, sized)
	}
	return acceptsOne(v, element, convert)
}

func isInt(element string) bool    { return element == "int" || element == "SymInt" }
func isNumber(element string) bool { return element == "Scalar" || element == "number" }

// acceptsOne reports whether a value can be an element that is no list.
func acceptsOne(v any, element string, convert bool) bool {
	switch v := v.(type) {
	case *cells.Ref:
		return element == "Tensor" || convert && isNumber(element) && v.Rank() == 0
	case *cells.Selection:
		return element == "Tensor"
	case int:
		switch element {
		case "ScalarType", "Layout", "MemoryFormat":
			return true // as TorchScript has them
		}
		return isInt(element) || isNumber(element) || element == "float" || convert && element == "Tensor"
	case bool:
		return element == "bool" || isNumber(element) || isInt(element) || element == "float"
	case float64:
		return element == "float" || isNumber(element) || convert && element == "Tensor"
	case complex128:
		return element == "complex" || isNumber(element)
	case string:
		return element == "str" || element == "Device"
	case tensor.DType:
		return element == "ScalarType"
	case *cells.Count:
		return isInt(element) || isNumber(element)
	case []*cells.Ref, []int, []float64, []bool, []any:
		return false
	}
	return true
}

// acceptsList reports whether a value can be a list of elements; one number can be where the list's length is known.
func acceptsList(v any, element string, sized bool) bool {
	switch v := v.(type) {
	case []*cells.Ref:
		return element == "Tensor"
	case int, *cells.Count:
		return sized && isInt(element)
	case float64:
		return sized && element == "float"
	case []int:
		return isInt(element) || isNumber(element) || element == "float" || len(v) == 0 && element == "Tensor"
	case []float64:
		return isNumber(element) || element == "float"
	case []bool:
		return element == "bool"
	case []any: // sizes, of which only data says some
		return isInt(element)
	}
	return false
}

// TakesDType reports whether a parameter is a dtype.
func (t Target) TakesDType(param string) bool {
	i := t.Position(param)
	if i < 0 {
		return false
	}
	element, _, _, _ := element(t.schema.Params[i])
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
	case *cells.Ref:
		refs := make([]*cells.Ref, len(list))
		for i, v := range list {
			refs[i], _ = v.(*cells.Ref)
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
	refs := make([]*cells.Ref, len(list)) // optional tensors, the first of which is None
	for i, v := range list {
		r, ok := v.(*cells.Ref)
		if !ok && v != nil {
			return list
		}
		refs[i] = r
	}
	return refs
}
