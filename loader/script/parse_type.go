package script

import (
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
)

// typ parses a type annotation.
func (p *parser) typ() *Type {
	p.enter()
	defer p.leave()
	here := p.at(p.tok.off)
	switch {
	case p.isKeyword("None"):
		p.advance()
		return keep(p, Type{at: here, Kind: NoneType})
	case p.tok.kind == tokPath && strings.HasPrefix(p.tok.text, "__torch__."):
		return keep(p, Type{at: here, Kind: ClassType, Class: p.advance().text})
	case p.tok.kind != tokIdent:
		p.unexpected("a type")
	}
	t := p.tok
	kind := kindOf(t.text)
	if kind == 0 {
		p.fail(fault.ErrUnsupported, t.off, "type %s", t)
	}
	p.advance()
	typ := keep(p, Type{at: here, Kind: kind})
	spec := typeNames[kind]
	if p.tok.kind != '[' {
		if spec.maxArgs != 0 {
			p.fail(fault.ErrFormat, t.off, "type %s without operands", t)
		}
		return typ
	}
	if spec.maxArgs == 0 {
		p.fail(fault.ErrFormat, p.tok.off, "type %s with operands", t)
	}
	p.advance()
	if kind == TupleType && p.got('(') { // Tuple[()]
		p.expect(')', `")"`)
		p.expect(']', `"]"`)
		return typ
	}
	typ.Args = p.types(']')
	if n := len(typ.Args); n < max(spec.minArgs, 1) || spec.maxArgs > 0 && n > spec.maxArgs {
		p.fail(fault.ErrFormat, t.off, "type %s with %d operands", t, n)
	}
	return typ
}

// types parses types up to the closing bracket, which it takes.
func (p *parser) types(end tokenKind) []*Type {
	var list []*Type
	for p.tok.kind != end {
		list = push(p, list, p.typ())
		if !p.got(',') {
			break
		}
	}
	p.expect(end, `"," or "`+string(rune(end))+`"`)
	return list
}

// typeOrTypes parses T or (T, U).
func (p *parser) typeOrTypes() []*Type {
	if p.got('(') {
		return p.types(')')
	}
	p.charge(slotBytes)
	return []*Type{p.typ()}
}
