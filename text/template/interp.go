package template

import "strings"

// An interp is one rendering.
type interp struct {
	opts     Options
	template *Template
	root     *scope
	out      strings.Builder
	buffer   *strings.Builder // what a macro or a block writes to; nil: out

	steps, taken, written int64
	depth, evals          int
	escaping              bool // what % inserts is escaped for HTML
}

// A scope is a frame of names. {% if %} has none, so what is set in it stays.
type scope struct {
	vars   map[string]any
	parent *scope
}

func (s *scope) inner() *scope { return &scope{parent: s} }

// open returns a frame inside another for what a statement opens. What is hidden in it is undefined.
func (in *interp) open(parent *scope, owner any) *scope {
	sc := parent.inner()
	for _, name := range in.template.hidden[owner] {
		sc.set(name, &undefined{text: "'" + name + "' is undefined"})
	}
	return sc
}

func (s *scope) set(name string, v any) {
	if s.vars == nil {
		s.vars = make(map[string]any)
	}
	s.vars[name] = v
}

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

func (in *interp) step() error {
	if in.steps++; in.steps > in.opts.Steps {
		return errorf(ErrLimit, "more than %d steps", in.opts.Steps)
	}
	return nil
}

// take counts bytes of values. What is freed again is not counted back.
func (in *interp) take(n int) error {
	if in.taken += int64(n); in.taken > in.opts.MemoryBytes {
		return errorf(ErrLimit, "values of more than %d bytes", in.opts.MemoryBytes)
	}
	return nil
}

func (in *interp) enter() error {
	if in.depth++; in.depth > in.opts.Depth {
		return errorf(ErrLimit, "more than %d levels of macros, loops and blocks", in.opts.Depth)
	}
	return nil
}

func (in *interp) leave() { in.depth-- }

func (in *interp) write(s string) error {
	if in.buffer != nil {
		in.buffer.WriteString(s)
		return in.take(len(s))
	}
	if in.written += int64(len(s)); in.written > in.opts.OutputBytes {
		return errorf(ErrLimit, "more than %d bytes of output", in.opts.OutputBytes)
	}
	in.out.WriteString(s)
	return nil
}

// capture returns what f writes.
func (in *interp) capture(f func() error) (string, error) {
	var b strings.Builder
	old := in.buffer
	in.buffer = &b
	err := f()
	in.buffer = old
	return b.String(), err
}

// A jump is what ends a loop's body before its end.
type jump uint8

const (
	onward jump = iota
	breakLoop
	continueLoop
)

func (in *interp) run(body []stmt, sc *scope) (jump, error) {
	if err := in.enter(); err != nil {
		return onward, err
	}
	defer in.leave()
	for _, s := range body {
		if err := in.step(); err != nil {
			return onward, err
		}
		if j, err := in.statement(s, sc); err != nil || j != onward {
			return j, err
		}
	}
	return onward, nil
}

func (in *interp) statement(s stmt, sc *scope) (jump, error) {
	switch s := s.(type) {
	case *textStmt:
		return onward, in.write(s.text)
	case *outputStmt:
		v, err := in.eval(s.of, sc)
		if err != nil {
			return onward, at(s.line, err)
		}
		text, err := in.str(v)
		if err != nil {
			return onward, at(s.line, err)
		}
		return onward, at(s.line, in.write(text))
	case *setStmt:
		v, err := in.eval(s.value, sc)
		if err != nil {
			return onward, at(s.line, err)
		}
		return onward, at(s.line, in.assign(s.target, v, sc))
	case *ifStmt:
		for i, test := range s.tests {
			if ok, err := in.test(test, sc); err != nil {
				return onward, err
			} else if ok {
				return in.run(s.bodies[i], sc)
			}
		}
		return in.run(s.otherwise, sc)
	case *forStmt:
		return onward, at(s.line, in.loop(s, sc))
	case *macroStmt:
		sc.set(s.name, &macro{name: s.name, signature: &s.signature, body: s.body, scope: sc})
		return onward, nil
	case *jumpStmt:
		if s.again {
			return continueLoop, nil
		}
		return breakLoop, nil
	case *scopeStmt:
		// A call block in jinja2: a frame of its own, and no way to jump out of it.
		text, err := in.capture(func() error {
			_, err := in.run(s.body, in.open(sc, s))
			return err
		})
		if err != nil {
			return onward, err
		}
		return onward, in.write(text)
	case *refuseStmt:
		return onward, at(s.line, errorf(ErrUnsupported, "%s", s.text))
	}
	return onward, in.blockStatement(s, sc)
}

// blockStatement runs the rarer statements that have a body.
func (in *interp) blockStatement(s stmt, sc *scope) error {
	inside := func(body []stmt, sc *scope) (string, error) {
		return in.capture(func() error {
			_, err := in.run(body, sc)
			return err
		})
	}
	switch s := s.(type) {
	case *setBlockStmt:
		text, err := inside(s.body, in.open(sc, s))
		if err != nil {
			return at(s.line, err)
		}
		var v any = text
		if s.filter != nil {
			if v, err = in.filtered(s.filter, text, sc); err != nil {
				return at(s.line, err)
			}
		}
		return at(s.line, in.assign(s.target, v, sc))
	case *filterStmt:
		text, err := inside(s.body, in.open(sc, s))
		if err != nil {
			return at(s.line, err)
		}
		v, err := in.filtered(s.filter, text, sc)
		if err != nil {
			return at(s.line, err)
		}
		if text, err = wantString("a filter block", v); err != nil {
			return at(s.line, err)
		}
		return at(s.line, in.write(text))
	case *withStmt:
		inner := in.open(sc, s)
		for i, target := range s.targets {
			v, err := in.eval(s.values[i], sc)
			if err == nil {
				err = in.assign(target, v, inner)
			}
			if err != nil {
				return at(s.line, err)
			}
		}
		_, err := in.run(s.body, inner)
		return err
	case *callStmt:
		caller := &macro{name: "caller", signature: &s.signature, body: s.body, scope: sc}
		v, err := in.callExpr(s.call, sc, caller)
		if err != nil {
			return at(s.line, err)
		}
		text, err := wantString("a call block", v)
		if err != nil {
			return at(s.line, err)
		}
		return at(s.line, in.write(text))
	case *blockStmt:
		outer := in.root
		if s.scoped {
			outer = sc
		}
		_, err := in.run(s.body, in.open(outer, s))
		return err
	}
	panic("BUG: a statement that is not known")
}

func (in *interp) test(e expr, sc *scope) (bool, error) {
	v, err := in.eval(e, sc)
	if err != nil {
		return false, err
	}
	return truth(v)
}

// assign binds a target.
func (in *interp) assign(target expr, v any, sc *scope) error {
	switch t := target.(type) {
	case *nameExpr:
		sc.set(t.name, v)
		return nil
	case *attrTarget:
		of, _ := in.name(t.name, sc)
		ns, ok := of.(*namespace)
		if !ok {
			return at(t.line, errorf(ErrRender, "cannot assign an attribute of '%s', which is no namespace", t.name))
		}
		if strings.HasPrefix(t.attr, "_") {
			return at(t.line, errorf(ErrUnsafe, "an attribute '%s' of a namespace", t.attr))
		}
		ns.attrs.Set(t.attr, v)
		return in.take(32)
	case *tupleExpr:
		var items []any
		err := in.iterate(v, func(e any) (bool, error) {
			items = append(items, e)
			return len(items) <= len(t.items), nil
		})
		if err != nil {
			return err
		}
		if len(items) != len(t.items) {
			return errorf(ErrRender, "cannot unpack %s into %d names", typeName(v), len(t.items))
		}
		for i, e := range t.items {
			if err := in.assign(e, items[i], sc); err != nil {
				return err
			}
		}
		return nil
	}
	panic("BUG: a target that is not known")
}

// loop runs a {% for %}.
func (in *interp) loop(s *forStmt, sc *scope) error {
	over, err := in.eval(s.over, sc)
	if err != nil {
		return err
	}
	if !s.recursive {
		return in.loopOver(s, over, sc, 0, nil)
	}
	var recurse func(v any, depth int64) (string, error)
	recurse = func(v any, depth int64) (string, error) {
		return in.capture(func() error { return in.loopOver(s, v, sc, depth, recurse) })
	}
	text, err := recurse(over, 0)
	if err != nil {
		return err
	}
	return in.write(text)
}

func (in *interp) loopOver(s *forStmt, over any, sc *scope, depth int64, recurse func(any, int64) (string, error)) error {
	it, err := in.iter(over)
	if err != nil {
		return err
	}
	l := &loopContext{in: in, over: over, it: it, index0: -1, depth0: depth, recurse: recurse}
	if s.test != nil {
		// Tested one by one as the loop goes on, since the body may change what the test looks at.
		l.over = nil
		l.it = &iterator{name: "generator", next: func() (any, bool, error) {
			for {
				item, ok, err := it.next()
				if err != nil || !ok {
					return nil, false, err
				}
				inner := sc.inner()
				if err := in.assign(s.target, item, inner); err != nil {
					return nil, false, err
				}
				if ok, err := in.test(s.test, inner); err != nil || ok {
					return item, ok, err
				}
			}
		}}
	}
	completed := false
	for {
		item, ok, err := l.advance()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		inner := in.open(sc, s)
		inner.set("loop", l)
		if err := in.assign(s.target, item, inner); err != nil {
			return err
		}
		j, err := in.run(s.body, inner)
		if err != nil {
			return err
		}
		if j == breakLoop {
			break
		}
		// As in the code that jinja2 generates, a pass that continue ended does not count.
		completed = completed || j == onward
	}
	if !completed {
		_, err = in.run(s.otherwise, in.open(sc, &s.otherwise))
	}
	return err
}

// A loopContext is the variable loop.
type loopContext struct {
	in      *interp
	over    any // nil: a generator
	it      *iterator
	index0  int64
	count   int64 // length + 1 once it is known
	after   any
	peeked  bool
	before  any
	current any
	depth0  int64
	recurse func(any, int64) (string, error)
	changed *tuple
}

func (l *loopContext) length() (int64, error) {
	if l.count > 0 {
		return l.count - 1, nil
	}
	n, ok, err := length(l.over)
	if err != nil {
		return 0, err
	}
	if !ok {
		rest, err := l.in.collect(l.it)
		if err != nil {
			return 0, err
		}
		if l.it, err = l.in.iter(&list{rest}); err != nil {
			return 0, err
		}
		n = int64(len(rest)) + l.index0 + 1
		if l.peeked {
			n++
		}
	}
	l.count = n + 1
	return n, nil
}

func (l *loopContext) peek() (any, bool, error) {
	if !l.peeked {
		var err error
		if l.after, l.peeked, err = l.it.next(); err != nil {
			return nil, false, err
		}
	}
	return l.after, l.peeked, nil
}

func (l *loopContext) advance() (any, bool, error) {
	item, ok, err := l.peek()
	l.peeked = false
	if err != nil || !ok {
		return nil, false, err
	}
	l.index0++
	l.before, l.current = l.current, item
	return item, true, nil
}

// attr returns an attribute of loop.
func (l *loopContext) attr(name string) (any, bool, error) {
	switch name {
	case "index":
		return l.index0 + 1, true, nil
	case "index0":
		return l.index0, true, nil
	case "depth":
		return l.depth0 + 1, true, nil
	case "depth0":
		return l.depth0, true, nil
	case "first":
		return l.index0 == 0, true, nil
	case "last":
		_, more, err := l.peek()
		return !more, true, err
	case "length":
		n, err := l.length()
		return n, true, err
	case "revindex", "revindex0":
		n, err := l.length()
		if name == "revindex0" {
			n--
		}
		return n - l.index0, true, err
	case "previtem":
		if l.index0 == 0 {
			return &undefined{text: "there is no previous item"}, true, nil
		}
		return l.before, true, nil
	case "nextitem":
		item, more, err := l.peek()
		if err == nil && !more {
			item = &undefined{text: "there is no next item"}
		}
		return item, true, err
	case "cycle":
		return &function{"cycle", func(_ *interp, args []any, _ *Object) (any, error) {
			if len(args) == 0 {
				return nil, errorf(ErrRender, "no items for cycling given")
			}
			return args[l.index0%int64(len(args))], nil
		}}, true, nil
	case "changed":
		return &function{"changed", func(in *interp, args []any, _ *Object) (any, error) {
			now := &tuple{args}
			if l.changed != nil {
				if same, err := in.equal(l.changed, now, 0); err != nil || same {
					return false, err
				}
			}
			l.changed = now
			return true, nil
		}}, true, nil
	}
	return nil, false, nil
}

// A macro is a template's function, or the body of a call block.
type macro struct {
	name      string
	signature *signature
	body      []stmt
	scope     *scope
}

func (m *macro) call(in *interp, args []any, kwargs *Object) (any, error) {
	sig := m.signature
	sc := in.open(m.scope, sig)
	rest := kwargs.clone()
	pull := func(name string) (any, bool) {
		v, ok := rest.Get(name)
		if ok {
			rest = rest.without(name)
		}
		return v, ok
	}
	declared := false
	for i, name := range sig.names {
		declared = declared || name == "caller"
		d := i - (len(sig.names) - len(sig.defaults))
		var v any
		var ok bool
		if i < len(args) {
			v, ok = args[i], true
		} else {
			v, ok = pull(name)
		}
		switch {
		case ok:
		case d >= 0:
			var err error
			if v, err = in.eval(sig.defaults[d], sc); err != nil {
				return nil, err
			}
		default:
			v = &undefined{text: "parameter '" + name + "' was not provided"}
		}
		sc.set(name, v)
	}
	if sig.caller && !declared {
		v, ok := pull("caller")
		if !ok {
			v = &undefined{text: "No caller defined"}
		}
		sc.set("caller", v)
	}
	if sig.kwargs {
		sc.set("kwargs", rest)
	} else if rest.Len() > 0 {
		return nil, errorf(ErrRender, "macro '%s' takes no keyword argument '%s'", m.name, rest.Keys()[0])
	}
	if sig.varargs {
		sc.set("varargs", &tuple{args[min(len(args), len(sig.names)):]})
	} else if len(args) > len(sig.names) {
		return nil, errorf(ErrRender, "macro '%s' takes not more than %d arguments", m.name, len(sig.names))
	}
	return in.capture(func() error {
		_, err := in.run(m.body, sc)
		return err
	})
}
