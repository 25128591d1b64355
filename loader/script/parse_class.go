package script

import "github.com/optimem/optimem/loader/internal/fault"

// parseDefs parses a whole file.
func (p *parser) parseDefs() {
	for p.tok.kind != tokEOF {
		switch {
		case p.isKeyword("class"):
			c := p.class()
			p.define(c.Name, c.Pos())
			p.prog.Classes[c.Name] = c
			p.file.Defs = push[Node](p, p.file.Defs, c)
		case p.isKeyword("def"):
			f := p.function(false)
			f.Name = p.qualified(f.Name)
			p.define(f.Name, f.Pos())
			p.prog.Functions[f.Name] = f
			p.file.Defs = push[Node](p, p.file.Defs, f)
		case p.isKeyword("import"), p.tok.kind == tokIdent && p.tok.text == "op_version_set":
			// Headers of PyTorch 1.4 and earlier, of which nothing depends.
			for !p.got(tokNewline) {
				p.advance()
			}
		default:
			if p.tok.kind == tokIdent || p.tok.kind == tokKeyword || p.tok.kind == tokPath {
				p.fail(fault.ErrUnsupported, p.tok.off, "top-level statement %s", p.tok)
			}
			p.unexpected("a class or function")
		}
	}
}

// define claims a qualified name, which only one class or function may have.
func (p *parser) define(name string, pos Pos) {
	p.charge(mapEntryBytes)
	if p.prog.Classes[name] != nil || p.prog.Functions[name] != nil {
		p.fail(fault.ErrFormat, int(pos-p.file.base), "%.200q is defined twice", name)
	}
}

func (p *parser) class() *Class {
	c := keep(p, Class{at: p.at(p.advance().off)})
	c.Name = p.qualified(p.expect(tokIdent, "a class's name").text)
	if p.got('(') {
		base := p.expect(tokIdent, "a base class")
		for k := ModuleClass; k <= ModuleInterface; k++ {
			if k.String() == base.text {
				c.Kind = k
			}
		}
		if c.Kind == PlainClass {
			p.fail(fault.ErrUnsupported, base.off, "base class %s", base)
		}
		p.expect(')', `")"`)
	}
	p.openBlock()
	p.enter()
	defer p.leave()
	members := make(map[string]bool)
	for !p.got(tokDedent) {
		off := p.tok.off
		name := p.member(c)
		p.charge(mapEntryBytes)
		if name != "" && members[name] {
			p.fail(fault.ErrFormat, off, "%.60q is declared twice in a class", name)
		}
		members[name] = true
	}
	return c
}

// member parses one declaration of a class and returns the name that it declares, "" for none.
func (p *parser) member(c *Class) string {
	here := p.at(p.tok.off)
	if p.isKeyword("def") {
		f := p.function(true)
		c.Methods = push(p, c.Methods, f)
		return f.Name
	}
	if p.isKeyword("pass") {
		p.advance()
		p.endLine()
		return ""
	}
	if p.tok.kind != tokIdent && p.tok.kind != tokKeyword {
		p.unexpected("a declaration")
	}
	name := p.advance().text
	switch name {
	case "__parameters__":
		c.Parameters = p.names()
	case "__buffers__":
		c.Buffers = p.names()
	case "__forward_pre_hooks__":
		c.ForwardPreHooks = p.names()
	case "__forward_hooks__":
		c.ForwardHooks = p.names()
	case "__annotations__":
		return p.annotation(c, here)
	default:
		if c.Kind == EnumClass {
			p.expect('=', `"="`)
			c.Finals = push(p, c.Finals, Final{at: here, Name: name, Value: p.literal()})
		} else {
			p.declaration(c, here, name)
		}
	}
	p.endLine()
	return name
}

// declaration parses ": T" or ": Final[T] = value".
func (p *parser) declaration(c *Class, here at, name string) {
	p.expect(':', `":"`)
	if p.tok.kind != tokIdent || p.tok.text != "Final" {
		p.attribute(c, here, name)
		return
	}
	p.advance()
	p.expect('[', `"["`)
	typ := p.typ()
	p.expect(']', `"]"`)
	p.expect('=', `"="`)
	c.Finals = push(p, c.Finals, Final{here, name, typ, p.expr()})
}

// annotation parses the declaration of an attribute whose name is no identifier, __annotations__["0"] = T, and the
// "__annotations__ = []" that precedes the first of them.
func (p *parser) annotation(c *Class, here at) string {
	if p.got('=') {
		p.expect('[', `"[]"`)
		p.expect(']', `"[]"`)
		p.endLine()
		return ""
	}
	p.expect('[', `"["`)
	if p.tok.kind != tokString {
		p.unexpected("an attribute's name")
	}
	name := p.string()
	if name == "" || c.Kind == EnumClass {
		p.fail(fault.ErrFormat, int(here.pos-p.file.base), "attribute without a name, or of an Enum")
	}
	p.expect(']', `"]"`)
	p.expect('=', `"="`)
	p.attribute(c, here, name)
	p.endLine()
	return name
}

func (p *parser) attribute(c *Class, here at, name string) {
	c.Attributes = push(p, c.Attributes, Attribute{here, name, p.typ()})
}

// names parses = ["a", "b", ].
func (p *parser) names() []string {
	p.expect('=', `"="`)
	p.expect('[', `"["`)
	var list []string
	for p.tok.kind != ']' {
		if p.tok.kind != tokString {
			p.unexpected("a string")
		}
		list = push(p, list, p.string())
		if !p.got(',') {
			break
		}
	}
	p.expect(']', `"," or "]"`)
	return list
}

// literal parses the value of an Enum's member.
func (p *parser) literal() Expr {
	off := p.tok.off
	x := p.expr()
	switch x.(type) {
	case *Int, *Float, *String:
	default:
		p.fail(fault.ErrUnsupported, off, "member that is no number or string")
	}
	return x
}

// function parses a function or method, whose name it leaves plain.
func (p *parser) function(method bool) *Function {
	f := keep(p, Function{at: p.at(p.advance().off)})
	f.Name = p.expect(tokIdent, "a function's name").text
	p.expect('(', `"("`)
	names := make(map[string]bool)
	for p.tok.kind != ')' {
		a := Arg{at: p.at(p.tok.off)}
		a.Name = p.expect(tokIdent, "an argument's name").text
		if p.got(':') {
			a.Type = p.typ()
		} else if !method || len(f.Args) > 0 {
			p.fail(fault.ErrUnsupported, int(a.pos-p.file.base), "argument %.60q without a type", a.Name)
		}
		if p.got('=') {
			a.Default = p.expr()
		}
		if names[a.Name] {
			p.fail(fault.ErrFormat, int(a.pos-p.file.base), "two arguments are named %.60q", a.Name)
		}
		names[a.Name] = true
		p.charge(mapEntryBytes)
		f.Args = push(p, f.Args, a)
		if !p.got(',') {
			break
		}
	}
	p.expect(')', `"," or ")"`)
	if method && len(f.Args) == 0 {
		p.fail(fault.ErrFormat, int(f.pos-p.file.base), "method without an object to work on")
	}
	if p.tok.kind != tokArrow {
		p.fail(fault.ErrUnsupported, p.tok.off, "function without a result type")
	}
	p.advance()
	f.Returns = p.typ()
	f.Body = p.block()
	return f
}
