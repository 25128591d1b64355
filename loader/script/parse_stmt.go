package script

import "github.com/optimem/optimem/loader/internal/fault"

// block parses ": NEWLINE INDENT statements DEDENT".
func (p *parser) block() []Stmt {
	p.openBlock()
	p.enter()
	defer p.leave()
	mark := len(p.stmts)
	for !p.got(tokDedent) {
		if p.isKeyword("pass") {
			p.advance()
			p.endLine()
			continue
		}
		p.stmts = append(p.stmts, p.stmt())
	}
	return p.popStmts(mark)
}

func (p *parser) openBlock() {
	p.expect(':', `":"`)
	if p.tok.kind != tokNewline {
		p.fail(fault.ErrUnsupported, p.tok.off, "block on the line that opens it")
	}
	p.advance()
	p.expect(tokIndent, "an indented block")
}

func (p *parser) endLine() { p.expect(tokNewline, "the end of the line") }

func (p *parser) stmt() Stmt {
	here := p.at(p.tok.off)
	if p.tok.kind == tokKeyword {
		switch p.tok.text {
		case "return":
			p.advance()
			r := keep(p, Return{at: here})
			if p.tok.kind != tokNewline {
				r.Value = p.expr()
			}
			if p.tok.kind == ',' {
				p.fail(fault.ErrUnsupported, p.tok.off, "return of several values")
			}
			p.endLine()
			return r
		case "if":
			p.advance()
			s := keep(p, If{at: here, Cond: p.expr()})
			s.Then = p.block()
			if p.isKeyword("else") {
				p.advance()
				s.Else = p.block()
			}
			return s
		case "for":
			return p.forLoop()
		case "while":
			p.advance()
			s := keep(p, While{at: here, Cond: p.expr()})
			s.Body = p.block()
			return s
		case "with":
			p.advance()
			s := keep(p, With{at: here, X: p.expr()})
			if p.isKeyword("as") {
				p.advance()
				s.As = p.expect(tokIdent, "a name").text
			}
			s.Body = p.block()
			return s
		case "def":
			return p.localFunction()
		case "None", "True", "False": // begin an expression
		case "and", "as", "else", "except", "finally", "in", "is", "or":
			p.unexpected("a statement")
		default:
			p.fail(fault.ErrUnsupported, p.tok.off, "statement %s", p.tok)
		}
	}
	return p.assignment()
}

// forLoop parses "for i in range(n)", the only loop over something that is written.
func (p *parser) forLoop() Stmt {
	f := keep(p, For{at: p.at(p.advance().off)})
	f.Var = p.expect(tokIdent, "a name").text
	p.expectKeyword("in")
	off := p.tok.off
	call, ok := p.expr().(*Call)
	if ok {
		var fn *Name
		fn, ok = call.Func.(*Name)
		ok = ok && fn.Name == "range" && len(call.Args) == 1 && len(call.Keywords) == 0
	}
	if !ok {
		p.fail(fault.ErrUnsupported, off, "loop over something other than range(n)")
	}
	f.Count = call.Args[0]
	f.Body = p.block()
	return f
}

// localFunction parses the function that a fork runs: it has no types and takes its values from around it.
func (p *parser) localFunction() Stmt {
	f := keep(p, Function{at: p.at(p.advance().off)})
	f.Name = p.expect(tokIdent, "a function's name").text
	p.expect('(', `"("`)
	if p.tok.kind != ')' {
		p.fail(fault.ErrUnsupported, p.tok.off, "local function with arguments")
	}
	p.advance()
	f.Body = p.block()
	return f
}

// assignment parses the forms of [Assign], or an expression that stands for itself.
func (p *parser) assignment() Stmt {
	off := p.tok.off
	targets, comma := p.exprList()
	if p.tok.kind == tokNewline {
		if comma {
			p.fail(fault.ErrUnsupported, off, "tuple that is not assigned")
		}
		p.advance()
		return keep(p, ExprStmt{targets[0]})
	}
	a := keep(p, Assign{at: p.at(off), Targets: targets})
	for _, x := range targets {
		_, isName := x.(*Name)
		_, isAttr := x.(*Attr)
		if !isName && (!isAttr || comma || p.tok.kind == ':') {
			p.fail(fault.ErrUnsupported, int(x.Pos()-p.file.base), "assignment to something other than a name")
		}
	}
	if !comma && p.got(':') {
		a.Type = p.typ()
	}
	p.expect('=', `"="`)
	values, valueComma := p.exprList()
	if p.tok.kind == '=' {
		p.fail(fault.ErrUnsupported, p.tok.off, "chained assignment")
	}
	p.endLine()
	a.Values = values
	switch {
	case valueComma && (len(values) == 1 || !comma):
		p.fail(fault.ErrUnsupported, off, "tuple without parentheses")
	case comma && len(values) == 1:
		a.Unpack = true
	case len(values) != len(targets):
		p.fail(fault.ErrFormat, off, "%d values for %d names", len(values), len(targets))
	}
	return a
}

// exprList parses expressions with commas between and perhaps one at the end; comma tells whether there was any.
func (p *parser) exprList() (list []Expr, comma bool) {
	mark := len(p.exprs)
	for {
		p.exprs = append(p.exprs, p.expr())
		if !p.got(',') {
			break
		}
		comma = true
		if p.tok.kind == '=' || p.tok.kind == tokNewline {
			break
		}
	}
	return p.popExprs(mark), comma
}
