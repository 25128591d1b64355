package template

import "slices"

// A parser follows jinja2's Parser, rule by rule.
type parser struct {
	tokens  []token
	pos     int
	nesting int
	loops   int // {% for %} around, within this macro
	blocks  map[string]*blockStmt

	frames  int       // frames of names around
	unknown []unknown // filters and tests that do not exist
}

// An unknown filter or test is an error of the template, unless it stands in a branch of the frame that it belongs to:
// then it is an error only if it is reached.
type unknown struct {
	frames int
	err    error
}

// branch forgives what was unknown in this frame from a mark on.
func (p *parser) branch(mark int) {
	kept := p.unknown[:mark:mark]
	for _, u := range p.unknown[mark:] {
		if u.frames != p.frames {
			kept = append(kept, u)
		}
	}
	p.unknown = kept
}

func (p *parser) current() token { return p.tokens[p.pos] }

func (p *parser) peek() token { return p.tokens[min(p.pos+1, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokenEOF {
		p.pos++
	}
	return t
}

func (p *parser) fail(format string, args ...any) error {
	return at(p.current().line, errorf(ErrSyntax, format, args...))
}

func (p *parser) is(kind tokenKind, text string) bool {
	t := p.current()
	return t.kind == kind && t.text == text
}

func (p *parser) op(text string) bool   { return p.is(tokenOperator, text) }
func (p *parser) word(text string) bool { return p.is(tokenName, text) }

func (p *parser) skipOp(text string) bool {
	if p.op(text) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) skipWord(text string) bool {
	if p.word(text) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) wantOp(text string) error {
	if !p.skipOp(text) {
		return p.fail("expected '%s', got %v", text, p.current())
	}
	return nil
}

func (p *parser) wantWord(text string) error {
	if !p.skipWord(text) {
		return p.fail("expected '%s', got %v", text, p.current())
	}
	return nil
}

func (p *parser) want(kind tokenKind) (token, error) {
	if t := p.current(); t.kind != kind {
		return t, p.fail("expected %v, got %v", token{kind: kind, text: "a name"}, t)
	}
	return p.next(), nil
}

// deeper guards the recursion of the parser. The caller calls shallower when it is done.
func (p *parser) deeper() error {
	if p.nesting++; p.nesting > maxNesting {
		return at(p.current().line, errorf(ErrLimit, "more than %d levels of nesting", maxNesting))
	}
	return nil
}

func (p *parser) shallower() { p.nesting-- }

// body parses statements up to one of the words that end it, which becomes the current token; without words, to the end.
func (p *parser) body(ends ...string) ([]stmt, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer p.shallower()
	var body []stmt
	for {
		t := p.next()
		switch t.kind {
		case tokenEOF:
			if len(ends) > 0 {
				return nil, p.fail("the template ends before '%s'", ends[len(ends)-1])
			}
			return body, nil
		case tokenData:
			body = append(body, &textStmt{t.text})
		case tokenVariableBegin:
			e, err := p.tuple(true)
			if err != nil {
				return nil, err
			}
			if _, err := p.want(tokenVariableEnd); err != nil {
				return nil, err
			}
			body = append(body, &outputStmt{e, t.line})
		case tokenBlockBegin:
			if p.current().kind == tokenName && slices.Contains(ends, p.current().text) {
				return body, nil
			}
			s, err := p.statement()
			if err != nil {
				return nil, err
			}
			if _, err := p.want(tokenBlockEnd); err != nil {
				return nil, err
			}
			body = append(body, s...)
		default:
			return nil, p.fail("unexpected %v", t)
		}
	}
}

// block parses the end of a tag and what follows it.
func (p *parser) block(ends ...string) ([]stmt, error) {
	p.skipOp(":")
	if _, err := p.want(tokenBlockEnd); err != nil {
		return nil, err
	}
	return p.body(ends...)
}

// closed is block with one end, which it takes.
func (p *parser) closed(end string) ([]stmt, error) {
	p.frames++
	body, err := p.block(end)
	p.frames--
	p.next()
	return body, err
}

func (p *parser) statement() ([]stmt, error) {
	t, err := p.want(tokenName)
	if err != nil {
		return nil, err
	}
	one := func(s stmt, err error) ([]stmt, error) { return []stmt{s}, err }
	switch t.text {
	case "set":
		return one(p.set(t.line))
	case "if":
		return one(p.ifs())
	case "for":
		return one(p.loop(t.line))
	case "macro":
		return one(p.macro(t.line))
	case "call":
		return one(p.call(t.line))
	case "filter":
		f, err := p.filter(nil, true)
		if err != nil {
			return nil, err
		}
		body, err := p.closed("endfilter")
		return one(&filterStmt{f, body, t.line}, err)
	case "with":
		return one(p.with(t.line))
	case "print":
		return p.print(t.line)
	case "block":
		return one(p.named(t.line))
	case "generation":
		body, err := p.closed("endgeneration")
		return one(&scopeStmt{body}, err)
	case "break", "continue":
		if p.loops == 0 {
			return nil, p.fail("'%s' outside a loop", t.text)
		}
		return one(&jumpStmt{t.text == "continue"}, nil)
	case "include", "import", "extends", "from":
		for p.current().kind != tokenBlockEnd && p.current().kind != tokenEOF {
			p.next()
		}
		return one(&refuseStmt{"'" + t.text + "': a chat template is alone", t.line}, nil)
	case "autoescape":
		return nil, at(t.line, errorf(ErrUnsupported, "'autoescape'"))
	}
	return nil, at(t.line, errorf(ErrSyntax, "unknown tag '%s'", t.text))
}

func (p *parser) set(line int) (stmt, error) {
	target, err := p.target(true)
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		value, err := p.tuple(true)
		return &setStmt{target, value, line}, err
	}
	var f expr
	if p.op("|") {
		if f, err = p.filter(nil, false); err != nil {
			return nil, err
		}
	}
	body, err := p.closed("endset")
	return &setBlockStmt{target, f, body, line}, err
}

func (p *parser) ifs() (stmt, error) {
	s := &ifStmt{}
	mark := len(p.unknown)
	defer func() { p.branch(mark) }()
	for {
		test, err := p.tuple(false)
		if err != nil {
			return nil, err
		}
		body, err := p.block("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.tests, s.bodies = append(s.tests, test), append(s.bodies, body)
		switch p.next().text {
		case "elif":
			continue
		case "else":
			s.otherwise, err = p.block("endif")
			p.next()
		}
		return s, err
	}
}

func (p *parser) loop(line int) (stmt, error) {
	s := &forStmt{line: line}
	var err error
	if s.target, err = p.target(false, "in"); err != nil {
		return nil, err
	}
	if err := noLoop(s.target); err != nil {
		return nil, at(line, err)
	}
	if err := p.wantWord("in"); err != nil {
		return nil, err
	}
	if s.over, err = p.tuple(false, "recursive"); err != nil {
		return nil, err
	}
	if p.skipWord("if") {
		if s.test, err = p.expression(true); err != nil {
			return nil, err
		}
	}
	s.recursive = p.skipWord("recursive")
	p.loops++
	p.frames++
	s.body, err = p.block("endfor", "else")
	p.frames--
	p.loops--
	if err != nil {
		return nil, err
	}
	if p.next().text == "else" {
		s.otherwise, err = p.closed("endfor")
	}
	return s, err
}

func noLoop(target expr) error {
	switch t := target.(type) {
	case *nameExpr:
		if t.name == "loop" {
			return errorf(ErrSyntax, "can't assign to the special loop variable")
		}
	case *tupleExpr:
		for _, e := range t.items {
			if err := noLoop(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *parser) signature() (signature, error) {
	var s signature
	if err := p.wantOp("("); err != nil {
		return s, err
	}
	for !p.op(")") {
		if len(s.names) > 0 {
			if err := p.wantOp(","); err != nil {
				return s, err
			}
		}
		name, err := p.want(tokenName)
		if err != nil {
			return s, err
		}
		if slices.Contains(s.names, name.text) {
			return s, p.fail("duplicate argument '%s'", name.text)
		}
		if p.skipOp("=") {
			e, err := p.expression(true)
			if err != nil {
				return s, err
			}
			s.defaults = append(s.defaults, e)
		} else if len(s.defaults) > 0 {
			return s, p.fail("an argument without a default after one that has it")
		}
		s.names = append(s.names, name.text)
	}
	return s, p.wantOp(")")
}

// routine parses the body of a macro or of a call block.
func (p *parser) routine(s *signature, end string) ([]stmt, error) {
	from, loops := p.pos, p.loops
	p.loops = 0
	body, err := p.closed(end)
	p.loops = loops
	s.varargs = mentions(p.tokens[from:p.pos], "varargs")
	s.kwargs = mentions(p.tokens[from:p.pos], "kwargs")
	s.caller = mentions(p.tokens[from:p.pos], "caller")
	return body, err
}

func (p *parser) macro(line int) (stmt, error) {
	name, err := p.want(tokenName)
	if err != nil {
		return nil, err
	}
	s := &macroStmt{name: name.text, line: line}
	if s.signature, err = p.signature(); err != nil {
		return nil, err
	}
	s.body, err = p.routine(&s.signature, "endmacro")
	return s, err
}

func (p *parser) call(line int) (stmt, error) {
	s := &callStmt{line: line}
	var err error
	if p.op("(") {
		if s.signature, err = p.signature(); err != nil {
			return nil, err
		}
	}
	e, err := p.expression(true)
	if err != nil {
		return nil, err
	}
	call, ok := e.(*callExpr)
	if !ok {
		return nil, at(line, errorf(ErrSyntax, "expected a call"))
	}
	s.call = call
	s.body, err = p.routine(&s.signature, "endcall")
	return s, err
}

func (p *parser) with(line int) (stmt, error) {
	s := &withStmt{line: line}
	for p.current().kind != tokenBlockEnd {
		if len(s.targets) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
		}
		target, err := p.target(false)
		if err != nil {
			return nil, err
		}
		if err := p.wantOp("="); err != nil {
			return nil, err
		}
		value, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, target), append(s.values, value)
	}
	var err error
	s.body, err = p.closed("endwith")
	return s, err
}

func (p *parser) print(line int) ([]stmt, error) {
	var out []stmt
	for p.current().kind != tokenBlockEnd {
		if len(out) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
		}
		e, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		out = append(out, &outputStmt{e, line})
	}
	return out, nil
}

func (p *parser) named(line int) (stmt, error) {
	name, err := p.want(tokenName)
	if err != nil {
		return nil, err
	}
	s := &blockStmt{name: name.text, line: line}
	s.scoped = p.skipWord("scoped")
	if p.word("required") {
		return nil, at(line, errorf(ErrUnsupported, "a required block"))
	}
	if p.blocks[s.name] != nil {
		return nil, at(line, errorf(ErrSyntax, "block '%s' defined twice", s.name))
	}
	p.blocks[s.name] = s
	loops := p.loops
	p.loops = 0
	s.body, err = p.closed("endblock")
	p.loops = loops
	p.skipWord(s.name)
	return s, err
}

// target parses what is assigned to.
func (p *parser) target(attrs bool, ends ...string) (expr, error) {
	line := p.current().line
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
		}
		if p.tupleEnd(ends) {
			break
		}
		e, err := p.targetItem(attrs)
		if err != nil {
			return nil, err
		}
		items = append(items, e)
		if !p.op(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) == 0 {
			return nil, at(line, errorf(ErrSyntax, "expected a name, got %v", p.current()))
		}
		return items[0], nil
	}
	return &tupleExpr{items}, nil
}

func (p *parser) targetItem(attrs bool) (expr, error) {
	if p.skipOp("(") {
		if err := p.deeper(); err != nil {
			return nil, err
		}
		defer p.shallower()
		e, err := p.target(attrs)
		if err != nil {
			return nil, err
		}
		return e, p.wantOp(")")
	}
	t, err := p.want(tokenName)
	if err != nil {
		return nil, err
	}
	if attrs && p.skipOp(".") {
		attr, err := p.want(tokenName)
		return &attrTarget{t.text, attr.text, t.line}, err
	}
	switch t.text {
	case "true", "false", "True", "False", "none", "None":
		return nil, at(t.line, errorf(ErrSyntax, "can't assign to '%s'", t.text))
	}
	return &nameExpr{t.text, t.line}, nil
}
