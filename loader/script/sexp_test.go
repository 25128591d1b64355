package script

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
)

// sexp writes a tree as testdata/make_scripts.py writes that of Python's parser.
func sexp(n Node) string {
	switch n := n.(type) {
	case *Class:
		return sexpClass(n)
	case *Function:
		return sexpFunction(n)
	case *Type:
		return sexpType(n)
	case *Assign:
		return sexpAssign(n)
	case *ExprStmt:
		return "(expr " + sexp(n.X) + ")"
	case *Return:
		return "(return " + optional(n.Value) + ")"
	case *If:
		return "(if " + sexp(n.Cond) + " " + each(n.Then) + " " + each(n.Else) + ")"
	case *While:
		return "(while " + sexp(n.Cond) + " " + each(n.Body) + " [])"
	case *For:
		return "(for " + n.Var + " (call range [" + sexp(n.Count) + "] []) " + each(n.Body) + ")"
	case *With:
		as := n.As
		if as == "" {
			as = "-"
		}
		return "(with " + sexp(n.X) + " " + as + " " + each(n.Body) + ")"
	}
	return sexpExpr(n)
}

func sexpExpr(n Node) string {
	switch n := n.(type) {
	case *Name:
		return n.Name
	case *Path:
		return sexpPath(n.Name)
	case *ConstantRef:
		return fmt.Sprintf("(. CONSTANTS c%d)", n.Index)
	case *Attr:
		if !isIdentifier(n.Name) {
			return "(call getattr [" + sexp(n.X) + " " + sexpString(n.Name) + "] [])"
		}
		return "(. " + sexp(n.X) + " " + n.Name + ")"
	case *Call:
		var keywords []string
		for _, k := range n.Keywords {
			keywords = append(keywords, k.Name+"="+sexp(k.Value))
		}
		return "(call " + sexp(n.Func) + " " + each(n.Args) + " [" + strings.Join(keywords, " ") + "])"
	case *Index:
		return "(sub " + sexp(n.X) + " " + sexp(n.Index) + ")"
	case *Slice:
		return "(sub " + sexp(n.X) + " (slice " + optional(n.Low) + " " + optional(n.High) + " " + optional(n.Step) + "))"
	case *List:
		return "(list " + each(n.Elems) + ")"
	case *Tuple:
		return "(tuple " + each(n.Elems) + ")"
	case *Dict:
		var keys, values []Expr
		for _, e := range n.Entries {
			keys, values = append(keys, e.Key), append(values, e.Value)
		}
		return "(dict " + each(keys) + " " + each(values) + ")"
	case *Annotate:
		return "(call annotate [" + sexp(n.Type) + " " + sexp(n.X) + "] [])"
	case *UncheckedCast:
		return "(call unchecked_cast [" + sexp(n.Type) + " " + sexp(n.X) + "] [])"
	case *Uninitialized:
		return "(call uninitialized [" + sexp(n.Type) + "] [])"
	case *IsInstance:
		types := each(n.Types)
		if len(n.Types) == 1 {
			types = sexp(n.Types[0])
		} else {
			types = "(tuple " + types + ")"
		}
		return "(call isinstance [" + sexp(n.X) + " " + types + "] [])"
	case *New:
		class := sexpPath(n.Class)
		return "(call (. " + class + " __new__) [" + class + "] [])"
	case *None:
		return "(None)"
	case *Bool:
		return map[bool]string{true: "(True)", false: "(False)"}[n.Value]
	case *Int:
		return fmt.Sprintf("(int %d)", n.Value)
	case *Float:
		return "(float " + bits(n.Value) + ")"
	case *Complex:
		return "(complex " + bits(real(n.Value)) + " " + bits(imag(n.Value)) + ")"
	case *String:
		return sexpString(n.Value)
	}
	panic(fmt.Sprintf("node %T", n))
}

func sexpClass(c *Class) string {
	var body []string
	names := func(list string, names []string) {
		var quoted []string
		for _, n := range names {
			quoted = append(quoted, sexpString(n))
		}
		body = append(body, "(= "+list+" (list ["+strings.Join(quoted, " ")+"]))")
	}
	if c.Kind == ModuleClass {
		names("__parameters__", c.Parameters)
		names("__buffers__", c.Buffers)
	}
	if c.ForwardPreHooks != nil {
		names("__forward_pre_hooks__", c.ForwardPreHooks)
	}
	if c.ForwardHooks != nil {
		names("__forward_hooks__", c.ForwardHooks)
	}
	for i, a := range c.Attributes {
		if isIdentifier(a.Name) {
			body = append(body, "(: "+a.Name+" "+sexp(a.Type)+" -)")
			continue
		}
		if i == 0 {
			body = append(body, "(= __annotations__ (list []))")
		}
		body = append(body, "(= (sub __annotations__ "+sexpString(a.Name)+") "+sexp(a.Type)+")")
	}
	for _, f := range c.Finals {
		if f.Type == nil {
			body = append(body, "(= "+f.Name+" "+sexp(f.Value)+")")
		} else {
			body = append(body, "(: "+f.Name+" (sub Final "+sexp(f.Type)+") "+sexp(f.Value)+")")
		}
	}
	for _, m := range c.Methods {
		body = append(body, sexp(m))
	}
	return "(class " + plainName(c.Name) + " [" + c.Kind.String() + "] [" + strings.Join(body, " ") + "])"
}

func sexpFunction(f *Function) string {
	var args []string
	for _, a := range f.Args {
		typ := "-"
		if a.Type != nil {
			typ = sexp(a.Type)
		}
		args = append(args, "("+a.Name+" "+typ+" "+optional(a.Default)+")")
	}
	returns := "-"
	if f.Returns != nil {
		returns = sexp(f.Returns)
	}
	return "(def " + plainName(f.Name) + " [" + strings.Join(args, " ") + "] " + returns + " " + each(f.Body) + ")"
}

func sexpType(t *Type) string {
	if t.Kind == ClassType {
		return sexpPath(t.Class)
	}
	spec := typeNames[t.Kind]
	switch {
	case spec.maxArgs == 0:
		return spec.name
	case len(t.Args) == 0:
		return "(sub Tuple (tuple []))"
	case len(t.Args) == 1:
		return "(sub " + spec.name + " " + sexp(t.Args[0]) + ")"
	}
	return "(sub " + spec.name + " (tuple " + each(t.Args) + "))"
}

func sexpAssign(a *Assign) string {
	target, value := each(a.Targets), each(a.Values)
	if len(a.Targets) > 1 || a.Unpack {
		target = "(tuple " + target + ")"
	} else {
		target = sexp(a.Targets[0])
	}
	if len(a.Values) > 1 {
		value = "(tuple " + value + ")"
	} else {
		value = sexp(a.Values[0])
	}
	if a.Type != nil {
		return "(: " + target + " " + sexp(a.Type) + " " + value + ")"
	}
	return "(= " + target + " " + value + ")"
}

func sexpPath(path string) string {
	words := strings.Split(path, ".")
	s := words[0]
	for _, w := range words[1:] {
		s = "(. " + s + " " + w + ")"
	}
	return s
}

func sexpString(s string) string { return "(str " + hex.EncodeToString([]byte(s)) + ")" }

func optional(x Expr) string {
	if x == nil {
		return "-"
	}
	return sexp(x)
}

func each[N Node](list []N) string {
	var parts []string
	for _, n := range list {
		parts = append(parts, sexp(n))
	}
	return "[" + strings.Join(parts, " ") + "]"
}

func bits(v float64) string {
	if math.IsNaN(v) {
		return "nan"
	}
	return fmt.Sprintf("%016x", math.Float64bits(v))
}
