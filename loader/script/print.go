package script

import (
	"math"
	"strconv"
	"strings"
)

// Format prints a part of the tree as canonical code: what [Parse] makes the same tree of, positions aside. Expressions
// and types come without a line end, everything else with one.
func Format(n Node) string {
	p := printer{}
	switch n := n.(type) {
	case *Class:
		p.class(n)
	case *Function:
		p.function(n, plainName(n.Name))
	case *Type:
		p.typ(n)
	case Stmt:
		p.stmt(n)
	case Expr:
		p.expr(n)
	}
	return p.String()
}

// String prints the file as canonical code.
func (f *File) String() string {
	var b strings.Builder
	for _, d := range f.Defs {
		b.WriteString(Format(d))
	}
	return b.String()
}

// String prints the type as the code spells it, such as "List[Tensor]".
func (t *Type) String() string { return Format(t) }

// plainName is the last word of a qualified name.
func plainName(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

type printer struct {
	strings.Builder
	level int
}

func (p *printer) indent() {
	for range p.level {
		p.WriteString("  ")
	}
}

// line prints a line at the current indentation; a part is a string, *Type or Expr.
func (p *printer) line(parts ...any) {
	p.indent()
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			p.WriteString(part)
		case *Type:
			p.typ(part)
		case Expr:
			p.expr(part)
		}
	}
	p.WriteByte('\n')
}

func (p *printer) class(c *Class) {
	base := ""
	if c.Kind != PlainClass {
		base = "(" + c.Kind.String() + ")"
	}
	p.line("class ", plainName(c.Name), base, ":")
	p.level++
	defer func() { p.level-- }()
	start := p.Len()
	if c.Kind == ModuleClass || len(c.Parameters) > 0 {
		p.names("__parameters__", c.Parameters)
	}
	if c.Kind == ModuleClass || len(c.Buffers) > 0 {
		p.names("__buffers__", c.Buffers)
	}
	if len(c.ForwardPreHooks) > 0 {
		p.names("__forward_pre_hooks__", c.ForwardPreHooks)
	}
	if len(c.ForwardHooks) > 0 {
		p.names("__forward_hooks__", c.ForwardHooks)
	}
	for _, a := range c.Attributes {
		if isIdentifier(a.Name) && !keywords[a.Name] && !strings.HasPrefix(a.Name, "__") {
			p.line(a.Name, " : ", a.Type)
		} else {
			p.line("__annotations__[", quote(a.Name), "] = ", a.Type)
		}
	}
	for _, f := range c.Finals {
		if f.Type == nil {
			p.line(f.Name, " = ", f.Value)
		} else {
			p.line(f.Name, " : Final[", f.Type, "] = ", f.Value)
		}
	}
	for _, m := range c.Methods {
		p.function(m, m.Name)
	}
	if p.Len() == start {
		p.line("pass")
	}
}

func (p *printer) names(list string, names []string) {
	p.indent()
	p.WriteString(list + " = [")
	for _, n := range names {
		p.WriteString(quote(n) + ", ")
	}
	p.WriteString("]\n")
}

// function prints a function, method or local function under the given name.
func (p *printer) function(f *Function, name string) {
	p.indent()
	p.WriteString("def " + name + "(")
	for i, a := range f.Args {
		if i > 0 {
			p.WriteString(",\n")
			p.indent()
			p.WriteString("    ")
		}
		p.WriteString(a.Name)
		if a.Type != nil {
			p.WriteString(": ")
			p.typ(a.Type)
		}
		if a.Default != nil {
			p.WriteByte('=')
			p.expr(a.Default)
		}
	}
	p.WriteByte(')')
	if f.Returns != nil {
		p.WriteString(" -> ")
		p.typ(f.Returns)
	}
	p.WriteString(":\n")
	p.block(f.Body)
}

func (p *printer) block(body []Stmt) {
	p.level++
	for _, s := range body {
		p.stmt(s)
	}
	if len(body) == 0 {
		p.line("pass")
	}
	p.level--
}

func (p *printer) stmt(s Stmt) {
	switch s := s.(type) {
	case *Assign:
		p.assign(s)
	case *ExprStmt:
		p.line(s.X)
	case *Return:
		if s.Value == nil {
			p.line("return")
		} else {
			p.line("return ", s.Value)
		}
	case *If:
		p.line("if ", s.Cond, ":")
		p.block(s.Then)
		if len(s.Else) > 0 {
			p.line("else:")
			p.block(s.Else)
		}
	case *For:
		p.line("for ", s.Var, " in range(", s.Count, "):")
		p.block(s.Body)
	case *While:
		p.line("while ", s.Cond, ":")
		p.block(s.Body)
	case *With:
		as := ""
		if s.As != "" {
			as = " as " + s.As
		}
		p.line("with ", s.X, as, ":")
		p.block(s.Body)
	case *Function:
		p.function(s, s.Name)
	}
}

func (p *printer) assign(s *Assign) {
	p.indent()
	p.list(s.Targets)
	if s.Unpack {
		p.WriteByte(',')
	}
	if s.Type != nil {
		p.WriteString(" : ")
		p.typ(s.Type)
	}
	p.WriteString(" = ")
	p.list(s.Values)
	p.WriteByte('\n')
}

func (p *printer) typ(t *Type) {
	if t.Kind == ClassType {
		p.WriteString(t.Class)
		return
	}
	spec := typeNames[t.Kind]
	p.WriteString(spec.name)
	if spec.maxArgs == 0 {
		return
	}
	p.WriteByte('[')
	p.types(t.Args)
	if len(t.Args) == 0 {
		p.WriteString("()")
	}
	p.WriteByte(']')
}

func (p *printer) types(list []*Type) {
	for i, t := range list {
		if i > 0 {
			p.WriteString(", ")
		}
		p.typ(t)
	}
}

func (p *printer) list(list []Expr) {
	for i, x := range list {
		if i > 0 {
			p.WriteString(", ")
		}
		p.expr(x)
	}
}

func (p *printer) expr(x Expr) {
	switch x := x.(type) {
	case *Name:
		p.WriteString(x.Name)
	case *Path:
		p.WriteString(x.Name)
	case *ConstantRef:
		p.WriteString("CONSTANTS.c" + strconv.Itoa(x.Index))
	case *Attr:
		p.attr(x)
	case *Call:
		p.call(x)
	case *Index:
		p.base(x.X)
		p.WriteByte('[')
		p.expr(x.Index)
		p.WriteByte(']')
	case *Slice:
		p.slice(x)
	case *List:
		p.WriteByte('[')
		p.list(x.Elems)
		p.WriteByte(']')
	case *Tuple:
		p.WriteByte('(')
		p.list(x.Elems)
		if len(x.Elems) == 1 {
			p.WriteByte(',')
		}
		p.WriteByte(')')
	case *Dict:
		p.WriteByte('{')
		for i, e := range x.Entries {
			if i > 0 {
				p.WriteString(", ")
			}
			p.expr(e.Key)
			p.WriteString(": ")
			p.expr(e.Value)
		}
		p.WriteByte('}')
	default:
		p.form(x)
	}
}

// form prints the importer's forms and the literals of one word.
func (p *printer) form(x Expr) {
	switch x := x.(type) {
	case *Annotate:
		p.typed("annotate", x.Type, x.X)
	case *UncheckedCast:
		p.typed("unchecked_cast", x.Type, x.X)
	case *Uninitialized:
		p.typed("uninitialized", x.Type, nil)
	case *IsInstance:
		p.WriteString("isinstance(")
		p.expr(x.X)
		p.WriteString(", ")
		if len(x.Types) == 1 {
			p.typ(x.Types[0])
		} else {
			p.WriteByte('(')
			p.types(x.Types)
			p.WriteByte(')')
		}
		p.WriteByte(')')
	case *New:
		p.WriteString(x.Class + ".__new__(" + x.Class + ")")
	case *None:
		p.WriteString("None")
	case *Bool:
		if x.Value {
			p.WriteString("True")
		} else {
			p.WriteString("False")
		}
	case *Int:
		p.WriteString(strconv.FormatInt(x.Value, 10))
	case *Float:
		p.WriteString(formatFloat(x.Value))
	case *Complex:
		im := formatFloat(imag(x.Value))
		if im[0] != '-' {
			im = "+" + im
		}
		p.WriteString(formatFloat(real(x.Value)) + im + "j")
	case *String:
		p.WriteString(quote(x.Value))
	}
}

func (p *printer) typed(form string, t *Type, x Expr) {
	p.WriteString(form + "(")
	p.typ(t)
	if x != nil {
		p.WriteString(", ")
		p.expr(x)
	}
	p.WriteByte(')')
}

func (p *printer) attr(x *Attr) {
	if !isIdentifier(x.Name) {
		p.WriteString("getattr(")
		p.expr(x.X)
		p.WriteString(", " + quote(x.Name) + ")")
		return
	}
	switch base := x.X.(type) {
	case *Path: // without parentheses the attribute would belong to the path
		p.WriteString("(" + base.Name + ")")
	case *Name:
		if isRoot(base.Name) {
			p.WriteString("(" + base.Name + ")")
		} else {
			p.WriteString(base.Name)
		}
	default:
		p.base(base)
	}
	p.WriteString("." + x.Name)
}

func (p *printer) call(x *Call) {
	p.base(x.Func)
	p.WriteByte('(')
	p.list(x.Args)
	for i, k := range x.Keywords {
		if i > 0 || len(x.Args) > 0 {
			p.WriteString(", ")
		}
		p.WriteString(k.Name + "=")
		p.expr(k.Value)
	}
	p.WriteByte(')')
}

func (p *printer) slice(x *Slice) {
	p.base(x.X)
	p.WriteByte('[')
	for i, part := range []Expr{x.Low, x.High, x.Step} {
		if i == 1 || i == 2 && part != nil {
			p.WriteByte(':')
		}
		if part != nil {
			p.expr(part)
		}
	}
	p.WriteByte(']')
}

// base prints what an attribute, call or subscript is of, in parentheses where it could be read otherwise.
func (p *printer) base(x Expr) {
	switch x := x.(type) {
	case *Name, *Path, *Attr, *Call, *Index, *Slice:
		p.expr(x)
		return
	}
	p.WriteByte('(')
	p.expr(x)
	p.WriteByte(')')
}

// isIdentifier reports whether a name can stand after a dot.
func isIdentifier(s string) bool {
	if s == "" || !isLetter(s[0]) {
		return false
	}
	for i := range len(s) {
		if !isLetter(s[i]) && !isDigit(s[i]) {
			return false
		}
	}
	return true
}

// formatFloat writes a double so that it reads as one, not as an integer, and comes back exactly.
func formatFloat(v float64) string {
	switch {
	case math.IsNaN(v):
		return "nan"
	case math.IsInf(v, 1):
		return "inf"
	case math.IsInf(v, -1):
		return "-inf"
	}
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += "."
	}
	return s
}

// quote writes a string literal as PyTorch does: what is not printable ASCII as three octal digits.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		c := s[i]
		if j := strings.IndexByte("\a\b\f\n\r\t\v\\'\"", c); j >= 0 {
			b.WriteByte('\\')
			b.WriteByte(`abfnrtv\'"`[j])
		} else if c < ' ' || c > '~' {
			b.WriteByte('\\')
			b.WriteByte('0' + c>>6)
			b.WriteByte('0' + c>>3&7)
			b.WriteByte('0' + c&7)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
