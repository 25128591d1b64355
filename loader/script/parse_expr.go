package script

import (
	"math"
	"strconv"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
)

// expr parses an expression.
func (p *parser) expr() Expr {
	p.enter()
	defer p.leave()
	depth := p.depth
	x := p.operand()
	// Every attribute, call and subscript nests the tree one level, though it needs no recursion here.
	for {
		switch p.tok.kind {
		case '.':
			p.advance()
			if p.tok.kind != tokIdent && p.tok.kind != tokKeyword {
				p.unexpected("an attribute's name")
			}
			x = keep(p, Attr{X: x, Name: p.advance().text})
		case '(':
			x = p.call(x)
		case '[':
			x = p.subscript(x)
		default:
			p.depth = depth
			return x
		}
		p.enter()
	}
}

// operand parses what stands before the first dot, call or subscript.
func (p *parser) operand() Expr {
	here := p.at(p.tok.off)
	switch p.tok.kind {
	case tokIdent:
		if isNumberWord(p.tok.text) {
			return p.number()
		}
		return p.name()
	case tokPath:
		return p.path()
	case tokNumber, '-':
		return p.number()
	case tokString:
		return keep(p, String{here, p.string()})
	case '[':
		p.advance()
		return keep(p, List{here, p.list(']', p.expr)})
	case '{':
		return p.dict()
	case '(':
		return p.parens()
	case tokKeyword:
		switch p.tok.text {
		case "None":
			p.advance()
			return keep(p, None{here})
		case "True", "False":
			return keep(p, Bool{here, p.advance().text == "True"})
		}
	}
	p.unexpected("an expression")
	return nil
}

// parens parses (x), which leaves no trace, and the tuples (), (x,) and (x, y).
func (p *parser) parens() Expr {
	here := p.at(p.advance().off)
	if p.got(')') {
		return keep(p, Tuple{at: here})
	}
	x := p.expr()
	if p.got(')') {
		return x
	}
	p.expect(',', `"," or ")"`)
	mark := len(p.exprs)
	p.exprs = append(p.exprs, x)
	for p.tok.kind != ')' {
		p.exprs = append(p.exprs, p.expr())
		if !p.got(',') {
			break
		}
	}
	p.expect(')', `"," or ")"`)
	return keep(p, Tuple{here, p.popExprs(mark)})
}

func (p *parser) dict() Expr {
	d := keep(p, Dict{at: p.at(p.advance().off)})
	mark := len(p.exprs)
	for p.tok.kind != '}' {
		key := p.expr()
		p.expect(':', `":"`)
		p.exprs = append(p.exprs, key, p.expr())
		if !p.got(',') {
			break
		}
	}
	p.expect('}', `"," or "}"`)
	if pairs := p.exprs[mark:]; len(pairs) > 0 {
		d.Entries = make([]DictEntry, 0, len(pairs)/2)
		for i := 0; i < len(pairs); i += 2 {
			d.Entries = append(d.Entries, DictEntry{pairs[i], pairs[i+1]})
		}
	}
	p.popExprs(mark)
	return d
}

// name parses a local variable or one of the importer's forms, which are only known by being called.
func (p *parser) name() Expr {
	t := p.advance()
	here := p.at(t.off)
	if p.tok.kind != '(' {
		return keep(p, Name{here, t.text})
	}
	switch t.text {
	case "annotate":
		typ := p.openType()
		return keep(p, Annotate{here, typ, p.closeOperand()})
	case "unchecked_cast":
		typ := p.openType()
		return keep(p, UncheckedCast{here, typ, p.closeOperand()})
	case "uninitialized":
		typ := p.openType()
		p.got(',')
		p.expect(')', `")"`)
		return keep(p, Uninitialized{here, typ})
	case "isinstance":
		p.advance()
		x := p.expr()
		p.expect(',', `","`)
		types := p.typeOrTypes()
		p.got(',')
		p.expect(')', `")"`)
		return keep(p, IsInstance{here, x, types})
	case "getattr":
		p.advance()
		x := p.expr()
		p.expect(',', `","`)
		if p.tok.kind != tokString {
			p.unexpected("an attribute's name")
		}
		attr := keep(p, Attr{x, p.string()})
		p.got(',')
		p.expect(')', `")"`)
		return attr
	}
	return keep(p, Name{here, t.text})
}

// openType parses the "(T" with which a form begins.
func (p *parser) openType() *Type {
	p.advance()
	return p.typ()
}

// closeOperand parses the ", x)" with which a form ends.
func (p *parser) closeOperand() Expr {
	p.expect(',', `","`)
	x := p.expr()
	p.got(',')
	p.expect(')', `")"`)
	return x
}

// path parses a global name, an index into the table of constants, or the making of an object.
func (p *parser) path() Expr {
	t := p.advance()
	here := p.at(t.off)
	if entry, ok := strings.CutPrefix(t.text, "CONSTANTS."); ok {
		digits, ok := strings.CutPrefix(entry, "c")
		n, err := strconv.ParseInt(digits, 10, 32)
		if !ok || err != nil || n < 0 || strconv.Itoa(int(n)) != digits {
			p.fail(fault.ErrFormat, t.off, "constants are named c0, c1, …")
		}
		ref := keep(p, ConstantRef{here, int(n)})
		if highest := p.prog.HighestConstant; highest == nil || highest.Index < ref.Index {
			p.prog.HighestConstant = ref
		}
		return ref
	}
	if class, ok := strings.CutSuffix(t.text, ".__new__"); ok {
		p.expect('(', `"("`)
		if typ := p.typ(); typ.Kind != ClassType || typ.Class != class {
			p.fail(fault.ErrFormat, t.off, "__new__ is given another class than its own")
		}
		p.got(',')
		p.expect(')', `")"`)
		return keep(p, New{here, class})
	}
	return keep(p, Path{here, t.text})
}

// maxKeywords is the number of named arguments of a call: several times what any operator has.
const maxKeywords = 255

func (p *parser) call(fn Expr) Expr {
	if name, ok := fn.(*Name); ok {
		switch name.Name {
		case "annotate", "unchecked_cast", "uninitialized", "isinstance", "getattr":
			p.fail(fault.ErrUnsupported, p.tok.off, "%s in parentheses", name.Name)
		}
	}
	p.advance()
	c := keep(p, Call{Func: fn})
	mark := len(p.exprs)
	for p.tok.kind != ')' {
		x := p.expr()
		switch name, ok := x.(*Name); {
		case ok && p.tok.kind == '=':
			p.advance()
			for _, k := range c.Keywords {
				if k.Name == name.Name {
					p.fail(fault.ErrFormat, int(name.pos-p.file.base), "argument %.60q is given twice", k.Name)
				}
			}
			if len(c.Keywords) == maxKeywords {
				p.fail(fault.ErrLimit, p.tok.off, "call with more than %d named arguments", maxKeywords)
			}
			c.Keywords = push(p, c.Keywords, Keyword{name.at, name.Name, p.expr()})
		case len(c.Keywords) > 0:
			p.fail(fault.ErrFormat, int(x.Pos()-p.file.base), "positional argument after a named one")
		default:
			p.exprs = append(p.exprs, x)
		}
		if !p.got(',') {
			break
		}
	}
	p.expect(')', `"," or ")"`)
	c.Args = p.popExprs(mark)
	return c
}

// subscript parses [i] or [low:high:step].
func (p *parser) subscript(x Expr) Expr {
	p.advance()
	var parts [3]Expr
	colons := 0
	for p.tok.kind != ']' {
		if p.tok.kind == ':' && colons < 2 {
			colons++
			p.advance()
			continue
		}
		if parts[colons] != nil {
			break
		}
		parts[colons] = p.expr()
	}
	if p.tok.kind == ',' {
		p.fail(fault.ErrUnsupported, p.tok.off, "subscript with several indices")
	}
	if p.tok.kind == ']' && colons == 0 && parts[0] == nil {
		p.unexpected("an index")
	}
	p.expect(']', `"]"`)
	if colons == 0 {
		return keep(p, Index{x, parts[0]})
	}
	return keep(p, Slice{x, parts[0], parts[1], parts[2]})
}

// number parses a numeric literal with its sign, the two parts of a complex one included.
func (p *parser) number() Expr {
	here := p.at(p.tok.off)
	text, off := p.signed()
	if imaginary(text) {
		return keep(p, Complex{here, complex(0, p.float(text[:len(text)-1], off))})
	}
	if p.tok.kind == '+' || p.tok.kind == '-' {
		re := p.float(text, off)
		plus := p.tok.kind == '+'
		op := p.tok.off
		if plus {
			p.advance()
		}
		if p.tok.kind == '-' && plus {
			p.fail(fault.ErrUnsupported, op, "arithmetic between numbers")
		}
		text, off := p.signed()
		if !imaginary(text) {
			p.fail(fault.ErrUnsupported, op, "arithmetic between numbers")
		}
		return keep(p, Complex{here, complex(re, p.float(text[:len(text)-1], off))})
	}
	if strings.ContainsAny(text, ".eEn") { // n as in inf and nan
		return keep(p, Float{here, p.float(text, off)})
	}
	if unsigned := strings.TrimPrefix(text, "-"); len(unsigned) > 1 && unsigned[0] == '0' {
		p.fail(fault.ErrFormat, off, "integer with a leading zero")
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		p.fail(fault.ErrFormat, off, "integer does not fit 64 bits")
	}
	return keep(p, Int{here, n})
}

// signed takes an optional minus and an unsigned number, and returns them as one text.
func (p *parser) signed() (text string, off int) {
	off = p.tok.off
	minus := p.got('-')
	switch {
	case p.tok.kind == tokNumber:
	case p.tok.kind == tokIdent && isNumberWord(p.tok.text):
	case minus:
		p.fail(fault.ErrUnsupported, off, `operator "-"`)
	default:
		p.unexpected("a number")
	}
	t := p.advance()
	if !minus {
		return t.text, off
	}
	if t.off == off+1 {
		return p.src[off : t.off+len(t.text)], off
	}
	p.charge(int64(len(t.text)))
	return "-" + t.text, off
}

// isNumberWord reports whether an identifier stands for a number, real or imaginary.
func isNumberWord(text string) bool {
	return text == "inf" || text == "nan" || text == "infj" || text == "nanj"
}

func imaginary(text string) bool { return strings.HasSuffix(text, "j") }

func (p *parser) float(text string, off int) float64 {
	switch text {
	case "nan", "-nan":
		return math.NaN()
	case "inf":
		return math.Inf(1)
	case "-inf":
		return math.Inf(-1)
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		p.fail(fault.ErrFormat, off, "malformed number, or one that no double can hold")
	}
	return v
}

// string takes a string literal and returns its bytes.
func (p *parser) string() string {
	t := p.advance()
	if p.tok.kind == tokString {
		p.fail(fault.ErrUnsupported, p.tok.off, "adjacent strings")
	}
	body := t.text[1 : len(t.text)-1]
	if strings.IndexByte(body, '\\') < 0 {
		return body
	}
	p.charge(int64(len(body)))
	out := make([]byte, 0, len(body))
	for i := 0; i < len(body); i++ {
		c := body[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++
		off := t.off + i
		c = body[i]
		if j := strings.IndexByte(`abfnrtv\'"`, c); j >= 0 {
			out = append(out, "\a\b\f\n\r\t\v\\'\""[j])
			continue
		}
		if i+2 >= len(body) || !octal(c) || !octal(body[i+1]) || !octal(body[i+2]) || c > '3' {
			p.fail(fault.ErrFormat, off, `unknown escape in a string`)
		}
		out = append(out, (c-'0')<<6|(body[i+1]-'0')<<3|(body[i+2]-'0'))
		i += 2
	}
	return string(out)
}

func octal(c byte) bool { return '0' <= c && c <= '7' }
