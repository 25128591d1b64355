package torchscript

import (
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
)

// callExpr evaluates a call: of an op or function by its global name, of a method, or of a value.
func (m *machine) callExpr(f *frame, x *script.Call) any {
	var target any
	switch fn := x.Func.(type) {
	case *script.Attr:
		target = m.eval(f, fn.X)
	case *script.Name:
		if v, ok := f.vars[fn.Name]; ok {
			target = v
		}
	}
	args := m.evalAll(f, x.Args)
	var named map[string]any
	if len(x.Keywords) > 0 {
		m.grow(len(x.Keywords))
		named = make(map[string]any, len(x.Keywords))
		for _, k := range x.Keywords {
			named[k.Name] = m.eval(f, k.Value)
		}
	}
	m.pos = x.Pos()
	switch fn := x.Func.(type) {
	case *script.Path:
		m.number(fn.Name, x.Args, args)
		return m.callGlobal(fn.Name, args, named)
	case *script.Attr:
		return m.callMethod(target, fn.Name, args, named)
	case *script.Name:
		if target != nil {
			return m.callValue(target, args, named)
		}
		return m.callWord(fn.Name, args, named)
	}
	return m.callValue(m.eval(f, x.Func), args, named)
}

// numeric are the ops of which a trace writes a number as a constant without dimensions.
var numeric = map[string]bool{"torch.add": true, "torch.sub": true, "torch.mul": true, "torch.div": true}

// number makes such a constant a number again, as loading in PyTorch does: it counts less than any tensor where the dtype of the
// result is decided.
func (m *machine) number(name string, exprs []script.Expr, args []any) {
	if !numeric[name] || len(args) < 2 {
		return
	}
	if _, ok := exprs[1].(*script.ConstantRef); !ok {
		return
	}
	if t, ok := args[1].(layers.Tensor); ok && len(t.Shape()) == 0 {
		if v, ok := m.item(t); ok {
			args[1] = v
		}
	}
}

// words are the functions that the code calls by a single word.
var words = map[string]string{
	"int": "aten::Int", "float": "aten::Float", "bool": "aten::Bool", "complex": "aten::Complex", "str": "aten::str",
	"sorted": "aten::sorted", "print": "prim::Print", "len": "aten::len", "ord": "aten::ord", "chr": "aten::chr",
	"list": "aten::list", "dict": "aten::dict", "hash": "aten::hash",
}

func (m *machine) callWord(name string, args []any, named map[string]any) any {
	switch name {
	case "fork", "awaitable":
		if len(args) == 0 {
			m.fail("%s is given no function", name)
		}
		return &future{m.callValue(args[0], args[1:], named)}
	}
	op, ok := words[name]
	if !ok {
		m.fail("no function %s", name)
	}
	return m.function(op, args, named)
}

func (m *machine) callValue(v any, args []any, named map[string]any) any {
	fn, ok := v.(*function)
	switch {
	case !ok:
		m.fail("%s cannot be called", kindOf(v))
	case fn.self != nil:
		return m.method(fn.self, fn.fn, args, named)
	}
	return m.call(fn.fn, args, named, fn.outer)
}

func (m *machine) callMethod(v any, name string, args []any, named map[string]any) any {
	switch v := v.(type) {
	case *object:
		m.tick(len(v.class.Methods))
		if fn := v.class.Method(name); fn != nil {
			return m.method(v, fn, args, named)
		}
		if strings.HasPrefix(v.class.Name, "__torch__.torch.classes.") {
			m.unsupported(v.class.Name+"."+name, "the class is defined by PyTorch itself")
		}
		return m.callValue(m.field(v, name), args, named)
	case layers.Tensor:
		if name == "tolist" {
			return m.tolist(v)
		}
	}
	m.fail("%s has no method %s", kindOf(v), name)
	return nil
}

// callGlobal calls what has a dotted name: an op, a function of the program, or a named tuple's class.
func (m *machine) callGlobal(name string, args []any, named map[string]any) any {
	if rest, ok := strings.CutPrefix(name, "torch."); ok {
		return m.function("aten::"+rest, args, named)
	}
	if rest, ok := strings.CutPrefix(name, "ops."); ok {
		space, op, _ := strings.Cut(rest, ".")
		return m.function(space+"::"+op, args, named)
	}
	if fn := m.program.Functions[name]; fn != nil {
		return m.call(fn, args, named, nil)
	}
	class := m.program.Classes[name]
	if class == nil || class.Kind != script.NamedTuple {
		m.fail("no function %s", name)
	}
	t := &tuple{class: class}
	for i, a := range class.Attributes {
		v, ok := named[a.Name]
		if !ok && i < len(args) {
			v, ok = args[i], true
		}
		if !ok {
			m.fail("field %s of %s is missing", a.Name, name)
		}
		t.elems = append(t.elems, m.typed(v, a.Type))
	}
	if len(args)+len(named) != len(class.Attributes) {
		m.fail("%s takes %d fields", name, len(class.Attributes))
	}
	return t
}

// function calls an op or one of the language's functions: the same names stand for both, and the arguments decide.
func (m *machine) function(name string, args []any, named map[string]any) any {
	if v, ok := m.counting(name, args); ok {
		return v
	}
	c := &invocation{machine: m, name: name, args: args, named: named}
	tables := []map[string]builtin{anyFuncs}
	if len(args) > 0 {
		switch args[0].(type) {
		case layers.Tensor:
			tables = append(tables, tensorFuncs)
		case *list:
			tables = append(tables, listFuncs)
		case *dict:
			tables = append(tables, dictFuncs)
		case string:
			tables = append(tables, stringFuncs)
		case int, float64, bool, complex128:
			tables = append(tables, numberFuncs)
		}
	}
	for _, table := range tables {
		if f, ok := table[name]; ok {
			if v, done := f(c); done {
				return v
			}
		}
	}
	if v, ok := m.fold(name, args, named); ok {
		return v
	}
	return m.op(name, args, named)
}

// A builtin is a function of the language. done is unset where the arguments are not for it, but for an op of that name.
type builtin func(c *invocation) (v any, done bool)

// An invocation is a call of a builtin.
type invocation struct {
	*machine
	name  string
	args  []any
	named map[string]any
}

// short is the function's name as the code has it.
func (c *invocation) short() string { return shortName(c.name) }

func shortName(op string) string {
	if rest, ok := strings.CutPrefix(op, "aten::"); ok {
		return "torch." + rest
	}
	return "ops." + strings.Replace(op, "::", ".", 1)
}

// arg returns an argument by its place or name.
func (c *invocation) arg(i int, name string) (any, bool) {
	if i < len(c.args) {
		return c.args[i], true
	}
	v, ok := c.named[name]
	return v, ok
}

// must returns an argument that has no default.
func (c *invocation) must(i int, name string) any {
	v, ok := c.arg(i, name)
	if !ok {
		c.fail("%s: argument %s is missing", c.short(), name)
	}
	return v
}

// wrong fails on an argument of another type than the function takes.
func (c *invocation) wrong(name string, v any) {
	c.fail("%s: argument %s is %s", c.short(), name, kindOf(v))
}

func (c *invocation) int(i int, name string) int {
	v := c.must(i, name)
	n, ok := v.(int)
	if !ok {
		c.wrong(name, v)
	}
	return n
}

// intOr returns an argument that may be left out.
func (c *invocation) intOr(i int, name string, other int) int {
	if v, ok := c.arg(i, name); !ok || v == nil {
		return other
	}
	return c.int(i, name)
}

func (c *invocation) str(i int, name string) string {
	v := c.must(i, name)
	s, ok := v.(string)
	if !ok {
		c.wrong(name, v)
	}
	return s
}

func (c *invocation) list(i int, name string) *list {
	v := c.must(i, name)
	l, ok := v.(*list)
	if !ok {
		c.wrong(name, v)
	}
	return l
}

// flag returns a bool that may be left out.
func (c *invocation) flag(i int, name string) bool {
	v, ok := c.arg(i, name)
	if !ok || v == nil {
		return false
	}
	b, ok := v.(bool)
	if !ok {
		c.wrong(name, v)
	}
	return b
}

// op calls an op of PyTorch.
func (m *machine) op(name string, args []any, named map[string]any) any {
	m.charge(opBytes)
	m.calls++
	in := make([]any, len(args))
	for i, a := range args {
		if o, ok := a.(*object); ok {
			m.unsupported(shortName(name), "it is given an object of "+o.class.Name)
		}
		in[i] = m.operand(a)
	}
	var keywords layers.Named
	if len(named) > 0 {
		keywords = make(layers.Named, len(named))
		for k, a := range named {
			keywords[k] = m.operand(a)
		}
	}
	m.rec.At(m.source())
	out, err := m.rec.Call(name, in, keywords)
	if err != nil {
		panic(failure{&Error{Path: m.path, Source: m.source(), Err: &OpError{name, err}}})
	}
	values := make([]any, len(out))
	for i, v := range out {
		values[i] = m.result(v)
	}
	switch len(values) {
	case 0:
		return nil
	case 1:
		return values[0]
	}
	return &tuple{elems: values}
}

// An OpError says which op could not be recorded.
type OpError struct {
	// Op is its name, "aten::conv2d".
	Op  string
	Err error
}

// Error names the op as the code does.
func (e *OpError) Error() string { return shortName(e.Op) + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// maxRank is the number of dimensions that PyTorch's tensors may have.
const maxRank = 64

// result returns what an op gave as a value.
func (m *machine) result(v any) any {
	var elems []any
	switch v := v.(type) {
	case layers.Tensor:
		if len(v.Shape()) > maxRank {
			m.limit("a tensor of %d dimensions", len(v.Shape()))
		}
	case []layers.Tensor:
		m.grow(len(v))
		m.chargeParts(v)
		elems = make([]any, 0, len(v))
		for _, t := range v {
			if t == nil {
				elems = append(elems, nil)
				continue
			}
			elems = append(elems, m.result(t))
		}
	case []int:
		m.grow(len(v))
		elems = make([]any, 0, len(v))
		for _, n := range v {
			elems = append(elems, n)
		}
	}
	if elems == nil {
		return v
	}
	return &list{elems: elems}
}

// chargeParts pays for tensors in a list that an op takes or gives: each is an operand or a view with a layout of its own.
func (m *machine) chargeParts(list []layers.Tensor) {
	const partBytes, dimBytes = 256, 16
	for _, t := range list {
		if m.charge(partBytes); t != nil {
			m.charge(int64(len(t.Shape())) * dimBytes)
		}
	}
}

// operand returns a value as a recorder takes it.
func (m *machine) operand(v any) any {
	switch v := v.(type) {
	case *list:
		return m.operands(v.elems, v.elem)
	case *tuple:
		return m.operands(v.elems, nil)
	case device:
		return string(v)
	case string:
		m.tick(len(v)) // the op reads it
		return v
	case nil, bool, int, float64, complex128, layers.Tensor:
		return v
	case *counted:
		return v.n
	case *undecided:
		m.unsupported("a comparison of sizes", branchesOnData)
	}
	m.fail("%s is no argument of an op", kindOf(v))
	return nil
}

// operands returns the elements of a list in a slice of their type.
func (m *machine) operands(elems []any, elem *script.Type) any {
	m.grow(len(elems))
	if len(elems) == 0 {
		if elem == nil {
			return []any{}
		}
		switch elem.Kind {
		case script.TensorType, script.OptionalType:
			return []layers.Tensor{}
		case script.FloatType:
			return []float64{}
		case script.BoolType:
			return []bool{}
		}
		return []int{}
	}
	var tensors []layers.Tensor
	var ints []int
	var floats []float64
	var bools []bool
	for _, e := range elems {
		switch e := e.(type) {
		case nil:
			tensors = append(tensors, nil)
		case layers.Tensor:
			tensors = append(tensors, e)
		case int:
			ints, floats = append(ints, e), append(floats, float64(e))
		case float64:
			floats = append(floats, e)
		case bool:
			bools = append(bools, e)
		case *counted:
			return m.countedSizes(elems)
		default:
			m.fail("a list with %s is no argument of an op", kindOf(e))
		}
	}
	switch n := len(elems); {
	case len(tensors) == n:
		m.chargeParts(tensors)
		return tensors
	case len(ints) == n:
		return ints
	case len(floats) == n:
		return floats
	case len(bools) == n:
		return bools
	}
	if len(tensors)+len(ints) == len(elems) { // numbers among tensors, as traced sizes are
		elems = slices.Clone(elems)
		for i, e := range elems {
			if t, ok := e.(layers.Tensor); ok {
				n, known := m.item(t)
				k, isInt := n.(int)
				if !known || !isInt {
					m.unsupported("a tensor as a size", onData)
				}
				elems[i] = k
			}
		}
		return m.operands(elems, nil)
	}
	m.fail("a list of several types is no argument of an op")
	return nil
}
