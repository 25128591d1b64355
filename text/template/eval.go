package template

import (
	"slices"
	"strings"

	"github.com/optimem/optimem/text/template/internal/python"
)

// eval evaluates an expression.
func (in *interp) eval(e expr, sc *scope) (any, error) {
	if err := in.step(); err != nil {
		return nil, err
	}
	if in.evals++; in.evals > maxEvals {
		return nil, errorf(ErrLimit, "more than %d expressions inside each other", maxEvals)
	}
	defer func() { in.evals-- }()
	switch e := e.(type) {
	case *constExpr:
		return e.value, nil
	case *nameExpr:
		v, _ := in.name(e.name, sc)
		return v, nil
	case *concatExpr:
		return in.concat(e, sc)
	case *listExpr:
		items, err := in.evalAll(e.items, sc)
		return &list{items}, err
	case *tupleExpr:
		items, err := in.evalAll(e.items, sc)
		return &tuple{items}, err
	case *dictExpr:
		return in.dict(e, sc)
	case *notExpr:
		ok, err := in.test(e.of, sc)
		return !ok, err
	case *logicalExpr:
		left, err := in.eval(e.left, sc)
		if err != nil {
			return nil, err
		}
		if ok, err := truth(left); err != nil || ok != e.and {
			return left, err
		}
		return in.eval(e.right, sc)
	case *condExpr:
		return in.choose(e, sc)
	case *compareExpr:
		v, err := in.compare(e, sc)
		return v, at(e.line, err)
	case *binaryExpr:
		return in.combine(e, sc)
	case *unaryExpr:
		v, err := in.eval(e.of, sc)
		if err == nil {
			v, err = unary(e.op, v)
		}
		return v, at(e.line, err)
	case *attrExpr:
		of, err := in.eval(e.of, sc)
		if err != nil {
			return nil, err
		}
		v, err := in.attr(of, e.name)
		return v, at(e.line, err)
	case *itemExpr:
		v, err := in.item(e, sc)
		return v, at(e.line, err)
	case *callExpr:
		v, err := in.callExpr(e, sc, nil)
		return v, at(e.line, err)
	case *filterExpr:
		v, err := in.eval(e.of, sc)
		if err != nil {
			return nil, err
		}
		return in.applyFilter(e, v, sc)
	case *testExpr:
		return in.testOf(e, sc)
	}
	return nil, errorf(ErrSyntax, "a slice outside a subscript")
}

// concat joins the texts of expressions: a ~ b.
func (in *interp) concat(e *concatExpr, sc *scope) (any, error) {
	var b strings.Builder
	for _, part := range e.parts {
		v, err := in.eval(part, sc)
		if err != nil {
			return nil, err
		}
		s, err := in.str(v)
		if err != nil {
			return nil, err
		}
		if err := in.take(len(s)); err != nil {
			return nil, err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// choose is a if test else b.
func (in *interp) choose(e *condExpr, sc *scope) (any, error) {
	ok, err := in.test(e.test, sc)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return in.eval(e.then, sc)
	case e.otherwise != nil:
		return in.eval(e.otherwise, sc)
	}
	return &undefined{text: "the inline if-expression evaluated to false and no else section was defined"}, nil
}

// combine is an operator of two operands.
func (in *interp) combine(e *binaryExpr, sc *scope) (any, error) {
	left, err := in.eval(e.left, sc)
	if err != nil {
		return nil, err
	}
	right, err := in.eval(e.right, sc)
	if err != nil {
		return nil, err
	}
	v, err := in.binary(e.op, left, right)
	return v, at(e.line, err)
}

// testOf is a test by name: a is defined.
func (in *interp) testOf(e *testExpr, sc *scope) (any, error) {
	v, err := in.eval(e.of, sc)
	if err != nil {
		return nil, err
	}
	args, kwargs, err := in.arguments(&e.args, sc)
	if err != nil {
		return nil, err
	}
	ok, err := in.testNamed(e.name, v, args, kwargs)
	return ok, at(e.line, err)
}

func (in *interp) evalAll(es []expr, sc *scope) ([]any, error) {
	items := make([]any, len(es))
	var err error
	for i, e := range es {
		if items[i], err = in.eval(e, sc); err != nil {
			return nil, err
		}
	}
	return items, in.take(16 * len(es))
}

func (in *interp) dict(e *dictExpr, sc *scope) (any, error) {
	o := NewObject()
	for i := range e.keys {
		key, err := in.eval(e.keys[i], sc)
		if err != nil {
			return nil, err
		}
		v, err := in.eval(e.values[i], sc)
		if err != nil {
			return nil, err
		}
		if err := in.put(o, key, v); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (in *interp) put(o *Object, key, v any) error {
	h, err := hashable(key)
	if err != nil {
		return err
	}
	o.put(h, key, v)
	return in.take(64)
}

// name looks a name up, among the globals last. What is nowhere is undefined.
func (in *interp) name(name string, sc *scope) (any, bool) {
	if v, ok := sc.get(name); ok {
		return v, true
	}
	if f, ok := globals[name]; ok {
		return f, true
	}
	if name == "self" {
		return &blocksRef{}, true
	}
	return &undefined{text: "'" + name + "' is undefined"}, false
}

// arguments evaluates what a call passes.
func (in *interp) arguments(a *arguments, sc *scope) ([]any, *Object, error) {
	args, err := in.evalAll(a.positional, sc)
	if err != nil {
		return nil, nil, err
	}
	kwargs := NewObject()
	for i, name := range a.names {
		v, err := in.eval(a.named[i], sc)
		if err != nil {
			return nil, nil, err
		}
		kwargs.Set(name, v)
	}
	if a.star != nil {
		v, err := in.eval(a.star, sc)
		if err != nil {
			return nil, nil, err
		}
		more, err := in.collect(v)
		if err != nil {
			return nil, nil, err
		}
		args = append(args, more...)
	}
	if a.starStar != nil {
		v, err := in.eval(a.starStar, sc)
		if err != nil {
			return nil, nil, err
		}
		o, ok := v.(*Object)
		if !ok {
			return nil, nil, errorf(ErrRender, "argument after ** must be a mapping, not %s", typeName(v))
		}
		for i, k := range o.keys {
			s, ok := k.(string)
			if !ok {
				return nil, nil, errorf(ErrRender, "keywords must be strings")
			}
			if _, twice := kwargs.Get(s); twice {
				return nil, nil, errorf(ErrRender, "multiple values for keyword argument '%s'", s)
			}
			kwargs.Set(s, o.values[i])
		}
	}
	return args, kwargs, nil
}

// callExpr calls; caller is passed along if there is one.
func (in *interp) callExpr(e *callExpr, sc *scope, caller *macro) (any, error) {
	f, err := in.eval(e.of, sc)
	if err != nil {
		return nil, err
	}
	args, kwargs, err := in.arguments(&e.args, sc)
	if err != nil {
		return nil, err
	}
	if caller != nil {
		kwargs.Set("caller", caller)
	}
	return in.callValue(f, args, kwargs)
}

func (in *interp) callValue(f any, args []any, kwargs *Object) (any, error) {
	if err := in.enter(); err != nil {
		return nil, err
	}
	defer in.leave()
	switch f := f.(type) {
	case *function:
		return f.call(in, args, kwargs)
	case *macro:
		return f.call(in, args, kwargs)
	case *undefined:
		return nil, f.fail()
	case *loopContext:
		if f.recurse == nil {
			return nil, errorf(ErrRender, "the loop must be marked recursive to be called")
		}
		if len(args) != 1 || kwargs.Len() > 0 {
			return nil, errorf(ErrRender, "loop takes one argument")
		}
		return f.recurse(args[0], f.depth0+1)
	case *joiner:
		if !f.used {
			f.used = true
			return "", nil
		}
		return f.sep, nil
	}
	return nil, errorf(ErrRender, "'%s' object is not callable", typeName(f))
}

func callable(v any) bool {
	switch v := v.(type) {
	case *function, *macro, *joiner, *undefined:
		return true
	case *loopContext:
		return true
	default:
		_ = v
	}
	return false
}

// blocksRef is self, whose attributes are the template's blocks.
type blocksRef struct{}

// attr is obj.name: an attribute of Python's object first, then a key.
func (in *interp) attr(of any, name string) (any, error) {
	switch of := of.(type) {
	case *undefined:
		if strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") {
			break
		}
		return nil, of.fail()
	case *blocksRef:
		if b := in.template.blocks[name]; b != nil {
			return &function{name, func(in *interp, _ []any, _ *Object) (any, error) {
				return in.capture(func() error {
					_, err := in.run(b.body, in.open(in.root, b))
					return err
				})
			}}, nil
		}
	}
	if v, ok, err := in.pythonAttr(of, name); ok || err != nil {
		return v, err
	}
	if o, ok := of.(*Object); ok {
		if v, ok := o.Get(name); ok {
			return v, nil
		}
	}
	return missing(of, name), nil
}

// pythonAttr is getattr, false for an AttributeError.
func (in *interp) pythonAttr(of any, name string) (any, bool, error) {
	switch of := of.(type) {
	case *namespace:
		v, ok := of.attrs.Get(name)
		return v, ok, nil
	case *loopContext:
		return of.attr(name)
	case *cycler:
		return of.attr(name)
	case *macro:
		if name == "name" {
			return of.name, true, nil
		}
	}
	if slices.Contains(changing[typeName(of)], name) {
		return &undefined{class: ErrUnsafe, text: "attribute '" + name + "' of '" + typeName(of) + "'"}, true, nil
	}
	if m, ok := of.(markup); ok {
		f := markupMethod(m, name)
		return f, f != nil, nil
	}
	if f := method(of, name); f != nil {
		return f, true, nil
	}
	return nil, false, nil
}

// changing are the methods that the sandbox forbids, since they change a value.
var changing = map[string][]string{
	"dict": {"clear", "pop", "popitem", "setdefault", "update"},
	"list": {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"},
}

func missing(of, key any) *undefined {
	what := typeName(of) + " object"
	if of == nil {
		what = "None"
	}
	if s, ok := key.(string); ok {
		return &undefined{text: "'" + what + "' has no attribute '" + s + "'"}
	}
	return &undefined{text: what + " has no such element"}
}

// item is obj[key]: a key first, then an attribute.
func (in *interp) item(e *itemExpr, sc *scope) (any, error) {
	of, err := in.eval(e.of, sc)
	if err != nil {
		return nil, err
	}
	if s, ok := e.key.(*sliceExpr); ok {
		return in.slice(of, s, sc)
	}
	key, err := in.eval(e.key, sc)
	if err != nil {
		return nil, err
	}
	return in.getItem(of, key)
}

func (in *interp) getItem(of, key any) (any, error) {
	key = unmark(key)
	if m, ok := of.(markup); ok {
		if i, ok := integer(key); ok {
			v, err := in.runeAt(string(m), i)
			return remark(v), err
		}
	}
	if i, ok := integer(key); ok {
		switch of := of.(type) {
		case string:
			return in.runeAt(of, i)
		case *list:
			return indexed(of, of.items, i)
		case *tuple:
			return indexed(of, of.items, i)
		case *span:
			n := of.len()
			if i < 0 {
				i += n
			}
			if i < 0 || i >= n {
				return missing(of, key), nil
			}
			return of.start + i*of.step, nil
		}
	}
	switch of := of.(type) {
	case *undefined:
		return nil, of.fail()
	case *Object:
		if v, ok, err := of.lookup(key); err == nil && ok {
			return v, nil
		}
	}
	if s, ok := key.(string); ok {
		if v, ok, err := in.pythonAttr(of, s); ok || err != nil {
			return v, err
		}
	}
	return missing(of, key), nil
}

func indexed(of any, items []any, i int64) (any, error) {
	if i < 0 {
		i += int64(len(items))
	}
	if i < 0 || i >= int64(len(items)) {
		return missing(of, i), nil
	}
	return items[i], nil
}

func (in *interp) runeAt(s string, i int64) (any, error) {
	if err := in.take(1); err != nil {
		return nil, err
	}
	if python.IsASCII(s) {
		if i < 0 {
			i += int64(len(s))
		}
		if i < 0 || i >= int64(len(s)) {
			return missing(s, i), nil
		}
		return s[i : i+1], nil
	}
	runes := []rune(s)
	if err := in.take(4 * len(runes)); err != nil {
		return nil, err
	}
	if i < 0 {
		i += int64(len(runes))
	}
	if i < 0 || i >= int64(len(runes)) {
		return missing(s, i), nil
	}
	return string(runes[i]), nil
}

// slice is obj[start:stop:step].
func (in *interp) slice(of any, s *sliceExpr, sc *scope) (any, error) {
	var bounds [3]*int64
	for i, e := range []expr{s.start, s.stop, s.step} {
		if e == nil {
			continue
		}
		v, err := in.eval(e, sc)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		n, ok := integer(v)
		if !ok {
			return nil, errorf(ErrRender, "slice indices must be integers or None, not %s", typeName(v))
		}
		bounds[i] = &n
	}
	_, marked := of.(markup)
	of = unmark(of)
	var n int64
	var runes []rune
	switch of := of.(type) {
	case *undefined:
		return nil, of.fail()
	case string:
		runes = []rune(of)
		n = int64(len(runes))
	case *list:
		n = int64(len(of.items))
	case *tuple:
		n = int64(len(of.items))
	case *span:
		n = of.len()
	default:
		return nil, errorf(ErrRender, "'%s' object cannot be sliced", typeName(of))
	}
	r, err := sliceOf(bounds, n)
	if err != nil {
		return nil, err
	}
	count := int(r.len())
	if err := in.take(16*count + 4*len(runes)); err != nil {
		return nil, err
	}
	pick := func(items []any) []any {
		picked := make([]any, count)
		for i := range picked {
			picked[i] = items[r.start+int64(i)*r.step]
		}
		return picked
	}
	switch of := of.(type) {
	case *list:
		return &list{pick(of.items)}, nil
	case *tuple:
		return &tuple{pick(of.items)}, nil
	case *span:
		return &span{of.start + r.start*of.step, of.start + r.stop*of.step, of.step * r.step}, nil
	}
	picked := make([]rune, count)
	for i := range picked {
		picked[i] = runes[r.start+int64(i)*r.step]
	}
	if marked {
		return markup(picked), nil
	}
	return string(picked), nil
}

// sliceOf is Python's slice.indices.
func sliceOf(bounds [3]*int64, n int64) (*span, error) {
	step := int64(1)
	if bounds[2] != nil {
		step = *bounds[2]
	}
	if step == 0 {
		return nil, errorf(ErrRender, "slice step cannot be zero")
	}
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	clamp := func(p *int64, otherwise int64) int64 {
		if p == nil {
			return otherwise
		}
		v := *p
		if v < 0 {
			v += n
		}
		return max(low, min(v, high))
	}
	if step < 0 {
		return &span{clamp(bounds[0], high), clamp(bounds[1], low), step}, nil
	}
	return &span{clamp(bounds[0], low), clamp(bounds[1], high), step}, nil
}
