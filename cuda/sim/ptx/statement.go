package ptx

import "strings"

type statementKind uint8

const (
	isInstruction statementKind = iota
	isLabel
	isOpen
	isClose
	isDeclaration
)

// A statement is a part of a function's body.
type statement struct {
	kind   statementKind
	negate bool
	line   int
	op     string // an instruction's, or a label
	guard  string
	args   []operand
	decl   declaration
}

type operandKind uint8

const (
	isName operandKind = iota
	isNumber
	isAddress // of args[0], offset bits
	isVector  // {a, b}
	isList    // (a, b)
	isPair    // a|b
)

// An operand is a part of an instruction.
type operand struct {
	kind operandKind
	name string
	bits uint64
	args []operand
}

// statement reads one statement of a function.
func (p *parser) statement(f *function) {
	s := statement{line: int(p.peek().line)}
	if p.take('@') {
		s.negate = p.take('!')
		s.guard = p.word()
	}
	word := p.word()
	switch word {
	case ".reg", ".local", ".shared", ".param":
		for d := p.declaration(word); ; d.name = p.word() {
			f.body = append(f.body, statement{kind: isDeclaration, line: s.line, decl: d})
			if d.ranged || !p.take(',') {
				break
			}
		}
		p.want(';')
		return
	case ".pragma", ".loc", ".file":
		for p.peek().kind != ';' && p.peek().kind != tokenEnd && int(p.peek().line) == s.line {
			p.next()
		}
		p.take(';')
		return
	}
	if s.guard == "" && p.take(':') {
		s.kind, s.op = isLabel, word
		f.body = append(f.body, s)
		return
	}
	s.op = word
	p.m.grouped = p.m.grouped || strings.HasPrefix(word, "wgmma")
	for p.peek().kind != ';' {
		s.args = append(s.args, p.operand(0))
		if !p.take(',') {
			break
		}
	}
	p.want(';')
	f.body = append(f.body, s)
}

// operand reads an operand.
func (p *parser) operand(depth int) operand {
	if depth > 2 {
		p.fail("too deep")
	}
	group := func(kind operandKind, end byte) operand {
		o := operand{kind: kind}
		for p.peek().kind != end {
			o.args = append(o.args, p.operand(depth+1))
			if !p.take(',') {
				break
			}
		}
		p.want(end)
		return o
	}
	switch {
	case p.take('{'):
		return group(isVector, '}')
	case p.take('('):
		return group(isList, ')')
	case p.take('['):
		o := operand{kind: isAddress, args: []operand{p.operand(depth + 1)}}
		if plus := p.take('+'); plus || p.peek().kind == '-' {
			n := p.operand(depth + 1)
			if n.kind != isNumber {
				p.fail("an offset that is no number")
			}
			o.bits = n.bits
		}
		if p.take(',') {
			o.args = append(o.args, p.operand(depth+1)) // where a box begins
		}
		p.want(']')
		return o
	}
	negative := p.take('-')
	if p.peek().kind == tokenNumber {
		v, ok := number(p.peek().text)
		if !ok {
			p.fail("%q is no number", p.peek().text)
		}
		p.next()
		if negative {
			v = -v
		}
		return operand{kind: isNumber, bits: v}
	}
	if negative {
		p.fail("a sign without a number")
	}
	o := operand{kind: isName, name: p.word()}
	if p.take('|') {
		return operand{kind: isPair, args: []operand{o, {kind: isName, name: p.word()}}}
	}
	return o
}
