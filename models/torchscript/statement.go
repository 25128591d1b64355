package torchscript

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
)

// block runs statements. done is set where one of them returned.
func (m *machine) block(f *frame, body []script.Stmt) (v any, done bool) {
	for _, s := range body {
		if v, done = m.statement(f, s); done {
			return v, true
		}
	}
	return nil, false
}

func (m *machine) statement(f *frame, s script.Stmt) (v any, done bool) {
	m.tick(1)
	m.pos = s.Pos()
	switch s := s.(type) {
	case *script.Assign:
		m.assign(f, s)
	case *script.ExprStmt:
		m.eval(f, s.X)
	case *script.Return:
		if s.Value == nil {
			return nil, true
		}
		return m.eval(f, s.Value), true
	case *script.If:
		v := m.eval(f, s.Cond)
		if u, ok := v.(*undecided); ok {
			return m.either(f, s, u)
		}
		if m.holds(v) {
			return m.block(f, s.Then)
		}
		return m.block(f, s.Else)
	case *script.For:
		count := m.eval(f, s.Count)
		if _, is := count.(*counted); is {
			m.unsupported("for", branchesOnData)
		}
		n, ok := count.(int)
		if !ok {
			m.fail("range is not given an int")
		}
		for i := range n {
			m.tick(1)
			f.set(s.Var, i)
			if v, done = m.block(f, s.Body); done {
				return v, true
			}
		}
	case *script.While:
		for m.condition(f, s.Cond) {
			m.tick(1)
			if v, done = m.block(f, s.Body); done {
				return v, true
			}
			m.pos = s.Pos()
		}
	case *script.With:
		return m.with(f, s)
	case *script.Function:
		f.set(s.Name, &function{fn: s, outer: f})
	default:
		m.fail("BUG: statement %T", s)
	}
	return nil, false
}

// condition evaluates what a while asks.
func (m *machine) condition(f *frame, x script.Expr) bool { return m.holds(m.eval(f, x)) }

// holds reports whether what an if or while asks is so.
func (m *machine) holds(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case *undecided:
		m.unsupported("while", branchesOnData)
	case layers.Tensor:
		return m.truth(v)
	default:
		m.fail("a condition is %s, not bool", kindOf(v))
	}
	return false
}

func (m *machine) assign(f *frame, s *script.Assign) {
	values := make([]any, len(s.Values))
	for i, x := range s.Values {
		values[i] = m.eval(f, x)
	}
	if s.Unpack {
		values = m.elements(values[0])
		m.tick(len(values))
	}
	if len(values) != len(s.Targets) {
		m.fail("%d values for %d names", len(values), len(s.Targets))
	}
	for i, target := range s.Targets {
		v := m.typed(values[i], s.Type)
		switch t := target.(type) {
		case *script.Name:
			f.set(t.Name, v)
		case *script.Attr:
			o, ok := m.eval(f, t.X).(*object)
			if !ok {
				m.fail("attribute %s of what is no object", t.Name)
			}
			m.setField(o, t.Name, v)
		default:
			m.fail("BUG: assignment to %T", t)
		}
	}
}

// elements returns what a value is unpacked to.
func (m *machine) elements(v any) []any {
	switch v := v.(type) {
	case *list:
		return v.elems
	case *tuple:
		return v.elems
	}
	m.fail("%s cannot be unpacked", kindOf(v))
	return nil
}

// with runs a block inside of a context. An error ends the evaluation, so the context is only left in order.
func (m *machine) with(f *frame, s *script.With) (any, bool) {
	o, ok := m.eval(f, s.X).(*object)
	if !ok {
		m.fail("with is given no object")
	}
	enter, exit := o.class.Method("__enter__"), o.class.Method("__exit__")
	if enter == nil || exit == nil {
		m.fail("%s is no context", o.class.Name)
	}
	entered := m.method(o, enter, nil, nil)
	if s.As != "" {
		f.set(s.As, entered)
	}
	v, done := m.block(f, s.Body)
	m.method(o, exit, []any{nil, nil, nil}, nil)
	return v, done
}
