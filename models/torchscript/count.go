package torchscript

import (
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/tensor"
)

// A counted is a number that only data says: how much there is of a tensor's dimension, as the recorder has it.
type counted struct{ n any }

// A countedList is a tensor of sizes, as traced code has them, one of which is such a number.
type countedList struct{ elems []any }

// An undecided is what a comparison of such a number gives that only data decides. Where none is set it is true just when there is
// nothing, where some is set when there is something, and where neither is, nobody knows.
type undecided struct {
	n          any
	none, some bool
}

// sizes returns the sizes of a tensor, of which one may be such a number.
func (m *machine) sizes(t layers.Tensor) []any {
	shape := t.Shape()
	m.grow(len(shape))
	list := make([]any, len(shape))
	for i, n := range shape {
		list[i] = n
	}
	if d, n := m.rows(t); d >= 0 {
		list[d] = &counted{n}
	}
	return list
}

// rows returns of which dimension of a tensor only data says how much there is, −1 for none, and that number.
func (m *machine) rows(t layers.Tensor) (dim int, number any) {
	dim, number, err := m.rec.Counted(t)
	if err != nil {
		panic(failure{err})
	}
	return dim, number
}

// certain fails where only data says the size of a tensor.
func (c *invocation) certain(t layers.Tensor) {
	if d, _ := c.rows(t); d >= 0 {
		c.unsupported(c.short(), onData)
	}
}

// elementCount is how many elements a tensor has.
func (m *machine) elementCount(t layers.Tensor) any {
	product := any(1)
	for _, n := range m.sizes(t) {
		product = m.counts("aten::mul", []any{product, n})
	}
	return product
}

// comparing are the operators that give a bool.
var comparing = []string{"aten::eq", "aten::ne", "aten::lt", "aten::le", "aten::gt", "aten::ge"}

// counting calls a function that has a number among its arguments that only data says. ok is unset where no rule of numbers is
// meant.
func (m *machine) counting(name string, args []any) (v any, ok bool) {
	if l, is := first(args).(*list); is && len(args) == 1 && (name == "prim::min" || name == "prim::max") &&
		len(l.elems) == 2 {
		args = l.elems
	}
	if v, is := m.countingLists(name, args); is {
		return v, true
	}
	if u, is := first(args).(*undecided); is {
		if name == "aten::__not__" {
			return &undecided{u.n, u.some, u.none}, true
		}
		m.unsupported(shortName(name), branchesOnData)
	}
	if !slices.ContainsFunc(args, isCounted) ||
		slices.ContainsFunc(args, func(a any) bool { _, is := a.(layers.Tensor); return is }) {
		return nil, false
	}
	switch name {
	case "prim::NumToTensor", "aten::Int", "aten::IntImplicit", "aten::ScalarImplicit", "prim::unchecked_cast":
		return args[0], true
	case "aten::__is__", "aten::__isnot__":
		return nil, false
	}
	_, onNumbers := numberFuncs[name]
	_, onAny := anyFuncs[name]
	if !onNumbers && !onAny {
		return nil, false // an op that takes a size
	}
	return m.counts(name, args), true
}

// countedSizes are sizes of which only data says some.
func (m *machine) countedSizes(elems []any) []any {
	sizes := make([]any, len(elems))
	for i, e := range elems {
		if t, ok := e.(layers.Tensor); ok { // as traced sizes are
			n, known := m.item(t)
			if !known {
				m.unsupported("a tensor as a size", onData)
			}
			e = n
		}
		sizes[i] = m.operand(e)
	}
	return sizes
}

// countingLists calls a function on tensors of sizes, as far as traced code takes the least of sizes and a number.
func (m *machine) countingLists(name string, args []any) (v any, ok bool) {
	parts, joins := first(args).(*list)
	if joins && name == "aten::cat" {
		return m.joinedSizes(parts.elems)
	}
	if isCounted(first(args)) {
		switch {
		case name == "aten::unsqueeze" && len(args) == 2 && args[1] == any(0):
			return &countedList{args[:1]}, true
		case name == "aten::detach":
			return args[0], true
		}
	}
	l, is := first(args).(*countedList)
	if !is {
		return nil, false
	}
	switch {
	case name == "aten::detach":
		return l, true
	case name == "aten::select" && len(args) == 3 && args[1] == any(0):
		if i, isInt := args[2].(int); isInt {
			e := l.elems[m.dim(i, len(l.elems))]
			if n, known := e.(int); known {
				return m.scalar(n, tensor.Int64), true
			}
			return e, true
		}
	case name == "aten::min" && len(args) == 1:
		least := l.elems[0]
		for _, e := range l.elems[1:] {
			least = m.counts("prim::min", []any{least, e})
		}
		return least, true
	}
	m.unsupported(shortName(name), onData)
	return nil, false
}

// joinedSizes joins lists of sizes, some of which are tensors of known contents.
func (m *machine) joinedSizes(parts []any) (v any, ok bool) {
	if !slices.ContainsFunc(parts, func(p any) bool { _, is := p.(*countedList); return is }) {
		return nil, false
	}
	joined := &countedList{}
	for _, p := range parts {
		switch p := p.(type) {
		case *countedList:
			joined.elems = append(joined.elems, p.elems...)
		case layers.Tensor:
			x, _, tensors, known := m.foldable([]any{p})
			if !known || !tensors {
				m.unsupported("torch.cat", onData)
			}
			joined.elems = append(joined.elems, x[0].values...)
		default:
			m.fail("%s among tensors", kindOf(p))
		}
	}
	m.grow(len(joined.elems))
	return joined, true
}

// isCounted reports whether a value is a number that only data says.
func isCounted(v any) bool {
	_, is := v.(*counted)
	return is
}

func first(args []any) any {
	if len(args) == 0 {
		return nil
	}
	return args[0]
}

// counts computes with numbers, some of which only data says.
func (m *machine) counts(name string, args []any) any {
	given := make([]any, len(args))
	var n any
	for i, a := range args {
		given[i] = a
		if c, is := a.(*counted); is {
			given[i], n = c.n, c.n
		}
	}
	if n == nil {
		return m.function(name, args, nil)
	}
	v, ok, err := m.rec.CountOf(name, given)
	switch {
	case err != nil:
		panic(failure{err})
	case ok:
		if _, is := v.(bool); is {
			return v
		}
		return &counted{v}
	case !slices.Contains(comparing, name):
		m.unsupported(shortName(name), onData)
	}
	u := &undecided{n: n}
	if _, is := args[0].(*counted); is && len(args) == 2 {
		switch [2]any{strings.TrimPrefix(name, "aten::"), args[1]} {
		case [2]any{"eq", 0}, [2]any{"lt", 1}, [2]any{"le", 0}:
			u.none = true
		case [2]any{"ne", 0}, [2]any{"ge", 1}, [2]any{"gt", 0}:
			u.some = true
		}
	}
	return u
}

// either runs an if that asks whether there is anything. The way that is right where there is something is taken for both, which
// must give what the other gives where there is nothing: tensors without elements.
func (m *machine) either(f *frame, s *script.If, u *undecided) (v any, done bool) {
	none, some := s.Then, s.Else
	if u.some {
		none, some = some, none
	}
	if !u.none && !u.some || !harmless(none) {
		m.unsupported("if", branchesOnData)
	}
	empty := &frame{vars: maps.Clone(f.vars)}
	if _, done = m.block(empty, none); done {
		m.unsupported("if", branchesOnData)
	}
	before := maps.Clone(f.vars)
	if v, done = m.block(f, some); done {
		m.unsupported("if", branchesOnData)
	}
	m.pos = s.Pos()
	for name, a := range empty.vars {
		b, set := f.vars[name]
		if was, old := before[name]; old && identical(was, a) && set && identical(was, b) {
			continue
		}
		if set && !m.agree(a, b, u) {
			m.unsupported("if", branchesOnData)
		}
	}
	return nil, false
}

// identical reports whether two values are one, where that can be told by comparing them.
func identical(a, b any) bool {
	switch a.(type) {
	case nil, bool, int, float64, string, layers.Tensor, *list, *tuple, *dict, *object, *enum, *function, *counted:
		return a == b
	}
	return false
}

// agree reports whether a value is the same as another where there is nothing. Tensors are where both are empty then: the way that
// is right where there is something may give another shape of nothing.
func (m *machine) agree(none, some any, u *undecided) bool {
	a, ok1 := none.(layers.Tensor)
	b, ok2 := some.(layers.Tensor)
	if !ok1 || !ok2 {
		return identical(none, some)
	}
	if d, _ := m.rows(a); d < 0 && m.elementsOf(a) > 0 || d >= 0 && m.rec.EmptyWith(a, u.n) < 0 {
		return false
	}
	return a.DType() == b.DType() && m.rec.EmptyWith(b, u.n) >= 0
}

// harmless reports whether statements only set names to what ops give.
func harmless(body []script.Stmt) bool {
	return !slices.ContainsFunc(body, func(s script.Stmt) bool {
		a, ok := s.(*script.Assign)
		return !ok ||
			slices.ContainsFunc(a.Targets, func(x script.Expr) bool { _, is := x.(*script.Name); return !is }) ||
			slices.ContainsFunc(a.Values, func(x script.Expr) bool { return !readsOnly(x) })
	})
}

// readsOnly reports whether an expression calls nothing but ops that make a tensor or ask for something of one.
func readsOnly(x script.Expr) bool {
	switch x := x.(type) {
	case *script.Name, *script.Path, *script.None, *script.Bool, *script.Int, *script.Float, *script.String,
		*script.ConstantRef:
		return true
	case *script.Attr:
		return readsOnly(x.X)
	case *script.List:
		return !slices.ContainsFunc(x.Elems, func(e script.Expr) bool { return !readsOnly(e) })
	case *script.Annotate:
		return readsOnly(x.X)
	case *script.Call:
		fn, ok := x.Func.(*script.Path)
		if !ok {
			return false
		}
		switch strings.TrimPrefix(fn.Name, "torch.") {
		case "empty", "zeros", "ones", "full", "size", "tensor", "to", "slice", "select", "view", "reshape",
			"unsqueeze", "squeeze":
		default:
			if !strings.HasPrefix(fn.Name, "ops.prim.") {
				return false
			}
		}
		return !slices.ContainsFunc(x.Args, func(e script.Expr) bool { return !readsOnly(e) }) &&
			!slices.ContainsFunc(x.Keywords, func(k script.Keyword) bool { return !readsOnly(k.Value) })
	}
	return false
}
