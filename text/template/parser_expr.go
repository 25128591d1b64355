package template

import (
	"slices"
	"strings"
)

func (p *parser) tupleEnd(ends []string) bool {
	t := p.current()
	return t.kind == tokenVariableEnd || t.kind == tokenBlockEnd || p.op(")") ||
		t.kind == tokenName && slices.Contains(ends, t.text)
}

// tuple parses an expression, or several with commas between them. cond allows an inline if at the top.
func (p *parser) tuple(cond bool, ends ...string) (expr, error) {
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
		e, err := p.expression(cond)
		if err != nil {
			return nil, err
		}
		items = append(items, e)
		if !p.op(",") {
			break
		}
		isTuple = true
	}
	if isTuple {
		return &tupleExpr{items}, nil
	}
	if len(items) == 0 {
		return nil, p.fail("expected an expression, got %v", p.current())
	}
	return items[0], nil
}

func (p *parser) expression(cond bool) (expr, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer p.shallower()
	mark := len(p.unknown)
	e, err := p.or()
	for n := 0; cond && err == nil && p.skipWord("if"); n++ {
		if err := p.chained(n); err != nil {
			return nil, err
		}
		c := &condExpr{then: e}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipWord("else") {
			c.otherwise, err = p.expression(true)
		}
		p.branch(mark)
		e = c
	}
	return e, err
}

func (p *parser) chained(n int) error {
	if n > maxChain {
		return at(p.current().line, errorf(ErrLimit, "more than %d operators in a row", maxChain))
	}
	return nil
}

func (p *parser) or() (expr, error) {
	left, err := p.and()
	for n := 0; err == nil && p.skipWord("or"); n++ {
		if err := p.chained(n); err != nil {
			return nil, err
		}
		l := &logicalExpr{left: left}
		l.right, err = p.and()
		left = l
	}
	return left, err
}

func (p *parser) and() (expr, error) {
	left, err := p.not()
	for n := 0; err == nil && p.skipWord("and"); n++ {
		if err := p.chained(n); err != nil {
			return nil, err
		}
		l := &logicalExpr{and: true, left: left}
		l.right, err = p.not()
		left = l
	}
	return left, err
}

func (p *parser) not() (expr, error) {
	if !p.skipWord("not") {
		return p.compare()
	}
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer p.shallower()
	e, err := p.not()
	return &notExpr{e}, err
}

func (p *parser) compare() (expr, error) {
	line := p.current().line
	left, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compareExpr{left: left, line: line}
	for {
		op := ""
		switch t := p.current(); {
		case t.kind == tokenOperator && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
			op = t.text
			p.next()
		case p.skipWord("in"):
			op = "in"
		case p.word("not") && p.peek().kind == tokenName && p.peek().text == "in":
			op = "not in"
			p.pos += 2
		}
		if op == "" {
			break
		}
		right, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.ops, c.right = append(c.ops, op), append(c.right, right)
	}
	if len(c.ops) == 0 {
		return left, nil
	}
	return c, nil
}

func (p *parser) binary(operand func() (expr, error), ops ...string) (expr, error) {
	line := p.current().line
	left, err := operand()
	for n := 0; err == nil && p.current().kind == tokenOperator && slices.Contains(ops, p.current().text); n++ {
		if err := p.chained(n); err != nil {
			return nil, err
		}
		b := &binaryExpr{op: p.next().text, left: left, line: line}
		b.right, err = operand()
		left = b
	}
	return left, err
}

func (p *parser) sum() (expr, error) { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() (expr, error) {
	first, err := p.product()
	if err != nil || !p.op("~") {
		return first, err
	}
	c := &concatExpr{[]expr{first}}
	for p.skipOp("~") {
		e, err := p.product()
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, e)
	}
	return c, nil
}

func (p *parser) product() (expr, error) { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() (expr, error) {
	return p.binary(func() (expr, error) { return p.unary(true) }, "**")
}

func (p *parser) unary(filters bool) (expr, error) {
	line := p.current().line
	var e expr
	var err error
	if p.op("-") || p.op("+") {
		u := &unaryExpr{op: p.next().text, line: line}
		if err := p.deeper(); err != nil {
			return nil, err
		}
		u.of, err = p.unary(false)
		p.shallower()
		e = u
	} else {
		e, err = p.primary()
	}
	if err != nil {
		return nil, err
	}
	if e, err = p.postfix(e); err != nil || !filters {
		return e, err
	}
	for n := 0; err == nil; n++ {
		if err := p.chained(n); err != nil {
			return nil, err
		}
		switch {
		case p.op("|"):
			e, err = p.filter(e, false)
		case p.skipWord("is"):
			e, err = p.test(e)
		case p.op("("):
			e, err = p.callOf(e)
		default:
			return e, nil
		}
	}
	return e, err
}

func (p *parser) primary() (expr, error) {
	t := p.next()
	switch t.kind {
	case tokenName:
		switch t.text {
		case "true", "True":
			return &constExpr{true}, nil
		case "false", "False":
			return &constExpr{false}, nil
		case "none", "None":
			return &constExpr{nil}, nil
		}
		return &nameExpr{t.text, t.line}, nil
	case tokenString:
		text := t.text
		for p.current().kind == tokenString {
			var b strings.Builder
			b.WriteString(text)
			for p.current().kind == tokenString {
				b.WriteString(p.next().text)
			}
			text = b.String()
		}
		return &constExpr{text}, nil
	case tokenNumber:
		return &constExpr{t.value}, nil
	case tokenOperator:
		switch t.text {
		case "(":
			if p.skipOp(")") {
				return &tupleExpr{}, nil
			}
			e, err := p.tuple(true)
			if err != nil {
				return nil, err
			}
			return e, p.wantOp(")")
		case "[":
			items, err := p.series("]", func() (expr, error) { return p.expression(true) })
			return &listExpr{items}, err
		case "{":
			d := &dictExpr{}
			_, err := p.series("}", func() (expr, error) {
				key, err := p.expression(true)
				if err != nil {
					return nil, err
				}
				if err := p.wantOp(":"); err != nil {
					return nil, err
				}
				value, err := p.expression(true)
				d.keys, d.values = append(d.keys, key), append(d.values, value)
				return value, err
			})
			return d, err
		}
	}
	return nil, at(t.line, errorf(ErrSyntax, "unexpected %v", t))
}

// series parses items with commas between them, and perhaps after the last, up to the end, which it takes.
func (p *parser) series(end string, item func() (expr, error)) ([]expr, error) {
	var items []expr
	for !p.op(end) {
		if len(items) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
			if p.op(end) {
				break
			}
		}
		e, err := item()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	return items, p.wantOp(end)
}

func (p *parser) postfix(e expr) (expr, error) {
	var err error
	for n := 0; err == nil; n++ {
		if err := p.chained(n); err != nil {
			return nil, err
		}
		switch {
		case p.op("."):
			line := p.next().line
			t := p.next()
			switch _, integer := t.value.(int64); {
			case t.kind == tokenName:
				e = &attrExpr{e, t.text, line}
			case t.kind == tokenNumber && integer:
				e = &itemExpr{e, &constExpr{t.value}, line}
			default:
				return nil, at(line, errorf(ErrSyntax, "expected a name or a number after '.', got %v", t))
			}
		case p.op("["):
			e, err = p.subscript(e)
		case p.op("("):
			e, err = p.callOf(e)
		default:
			return e, nil
		}
	}
	return e, err
}

func (p *parser) subscript(of expr) (expr, error) {
	line := p.next().line
	var keys []expr
	for !p.op("]") {
		if len(keys) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
		}
		key, err := p.subscribed()
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	p.next()
	if len(keys) == 1 {
		return &itemExpr{of, keys[0], line}, nil
	}
	return &itemExpr{of, &tupleExpr{keys}, line}, nil
}

func (p *parser) subscribed() (expr, error) {
	s := &sliceExpr{}
	var err error
	if !p.op(":") {
		if s.start, err = p.expression(true); err != nil || !p.op(":") {
			return s.start, err
		}
	}
	p.next()
	if !p.op(":") && !p.op("]") && !p.op(",") {
		if s.stop, err = p.expression(true); err != nil {
			return nil, err
		}
	}
	if p.skipOp(":") && !p.op("]") && !p.op(",") {
		s.step, err = p.expression(true)
	}
	return s, err
}

func (p *parser) callOf(of expr) (expr, error) {
	c := &callExpr{of: of, line: p.current().line}
	var err error
	c.args, err = p.arguments()
	return c, err
}

func (p *parser) arguments() (arguments, error) {
	var a arguments
	if err := p.wantOp("("); err != nil {
		return a, err
	}
	bad := func() (arguments, error) { return a, p.fail("arguments in an order that Python does not allow") }
	for first := true; !p.op(")"); first = false {
		if !first {
			if err := p.wantOp(","); err != nil {
				return a, err
			}
			if p.op(")") {
				break
			}
		}
		var err error
		switch {
		case p.op("*"):
			if a.star != nil || a.starStar != nil {
				return bad()
			}
			p.next()
			a.star, err = p.expression(true)
		case p.op("**"):
			if a.starStar != nil {
				return bad()
			}
			p.next()
			a.starStar, err = p.expression(true)
		case p.current().kind == tokenName && p.peek().kind == tokenOperator && p.peek().text == "=":
			if a.starStar != nil {
				return bad()
			}
			name := p.next().text
			p.next()
			if slices.Contains(a.names, name) {
				return a, p.fail("keyword argument repeated: %s", name)
			}
			var e expr
			e, err = p.expression(true)
			a.names, a.named = append(a.names, name), append(a.named, e)
		default:
			if a.star != nil || a.starStar != nil || len(a.names) > 0 {
				return bad()
			}
			var e expr
			e, err = p.expression(true)
			a.positional = append(a.positional, e)
		}
		if err != nil {
			return a, err
		}
	}
	return a, p.wantOp(")")
}

func (p *parser) dotted() (string, error) {
	t, err := p.want(tokenName)
	name := t.text
	for err == nil && p.skipOp(".") {
		t, err = p.want(tokenName)
		name += "." + t.text
	}
	return name, err
}

// filter parses filters as long as there are any. first: the name of one is next, without the bar before it.
func (p *parser) filter(of expr, first bool) (expr, error) {
	for n := 0; p.op("|") || first; n++ {
		if err := p.chained(n); err != nil {
			return nil, err
		}
		if !first {
			p.next()
		}
		first = false
		f := &filterExpr{of: of, line: p.current().line}
		var err error
		if f.name, err = p.dotted(); err != nil {
			return nil, err
		}
		if filters[f.name] == nil {
			p.unknown = append(p.unknown, unknown{p.frames, at(f.line, noFilter(f.name))})
		}
		if p.op("(") {
			if f.args, err = p.arguments(); err != nil {
				return nil, err
			}
		}
		of = f
	}
	return of, nil
}

func (p *parser) test(of expr) (expr, error) {
	t := &testExpr{of: of, line: p.current().line}
	negated := p.skipWord("not")
	var err error
	if t.name, err = p.dotted(); err != nil {
		return nil, err
	}
	if tests[t.name].f == nil {
		p.unknown = append(p.unknown, unknown{p.frames, at(t.line, noTest(t.name))})
	}
	switch c := p.current(); {
	case p.op("("):
		if t.args, err = p.arguments(); err != nil {
			return nil, err
		}
	case c.kind == tokenName && (c.text == "else" || c.text == "or" || c.text == "and"):
	case c.kind == tokenName && c.text == "is":
		return nil, p.fail("tests cannot be chained with is")
	case c.kind == tokenName, c.kind == tokenString, c.kind == tokenNumber, p.op("["), p.op("{"):
		arg, err := p.primary()
		if err != nil {
			return nil, err
		}
		if arg, err = p.postfix(arg); err != nil {
			return nil, err
		}
		t.args.positional = []expr{arg}
	}
	if negated {
		return &notExpr{t}, nil
	}
	return t, nil
}
