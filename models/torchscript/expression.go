package torchscript

import (
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
)

// eval evaluates an expression.
func (m *machine) eval(f *frame, x script.Expr) any {
	m.tick(1)
	switch x := x.(type) {
	case *script.Name:
		v, ok := f.vars[x.Name]
		if !ok {
			m.fail("no variable %s", x.Name)
		}
		return v
	case *script.Path:
		return m.global(x)
	case *script.Attr:
		return m.attribute(m.eval(f, x.X), x.Name)
	case *script.Call:
		return m.callExpr(f, x)
	case *script.Index:
		return m.index(m.eval(f, x.X), m.eval(f, x.Index))
	case *script.Slice:
		return m.sliceExpr(f, x)
	case *script.None:
		return nil
	case *script.Bool:
		return x.Value
	case *script.Int:
		return int(x.Value)
	case *script.Float:
		return x.Value
	case *script.Complex:
		return x.Value
	case *script.String:
		return x.Value
	case *script.List:
		return &list{elems: m.evalAll(f, x.Elems)}
	case *script.Tuple:
		return &tuple{elems: m.evalAll(f, x.Elems)}
	case *script.Dict:
		d := newDict()
		m.grow(2 * len(x.Entries))
		for _, e := range x.Entries {
			d.set(m.key(m.eval(f, e.Key)), m.eval(f, e.Value))
		}
		return d
	case *script.ConstantRef:
		return m.constant(x.Index)
	case *script.Annotate:
		return m.annotate(f, x)
	case *script.Uninitialized:
		return nil
	case *script.UncheckedCast:
		return m.typed(m.eval(f, x.X), x.Type)
	case *script.IsInstance:
		v := m.eval(f, x.X)
		for _, t := range x.Types {
			if m.isInstance(v, t, 0) {
				return true
			}
		}
		return false
	case *script.New:
		class := m.program.Classes[x.Class]
		if class == nil {
			m.unsupported(x.Class, "it is defined by PyTorch itself")
		}
		m.grow(len(class.Attributes) + 1)
		return &object{class: class, fields: make(map[string]any)}
	}
	m.fail("BUG: expression %T", x)
	return nil
}

func (m *machine) evalAll(f *frame, list []script.Expr) []any {
	m.grow(len(list))
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = m.eval(f, x)
	}
	return out
}

// key checks that a value can be the key of a dictionary.
func (m *machine) key(v any) any {
	switch v := v.(type) {
	case string:
		m.tick(len(v) / valueBytes)
		return v
	case bool, int, float64, complex128:
		return v
	}
	m.fail("%s is no key of a dictionary", kindOf(v))
	return nil
}

// annotate evaluates annotate(T, x). It also stands where the language turns a tensor into a number by itself.
func (m *machine) annotate(f *frame, x *script.Annotate) any {
	if c, ok := x.X.(*script.Call); ok {
		if a, ok := c.Func.(*script.Attr); ok && a.Name == "tolist" {
			if t, ok := m.eval(f, a.X).(layers.Tensor); ok {
				m.pos = x.Pos()
				return m.tolist(t)
			}
		}
	}
	v := m.eval(f, x.X)
	t, isTensor := v.(layers.Tensor)
	if !isTensor {
		return m.typed(v, x.Type)
	}
	m.pos = x.Pos()
	switch x.Type.Kind {
	case script.IntType, script.FloatType, script.BoolType, script.NumberType, script.ComplexType:
		n, ok := m.item(t)
		if !ok {
			m.unsupported("a tensor as a number", onData)
		}
		return n
	}
	return v
}

// global evaluates a dotted name: a member of an Enum, or a function as a value.
func (m *machine) global(x *script.Path) any {
	if dot := strings.LastIndexByte(x.Name, '.'); dot > 0 {
		if class := m.program.Classes[x.Name[:dot]]; class != nil && class.Kind == script.EnumClass {
			return m.member(class, x.Name[dot+1:])
		}
	}
	if fn := m.program.Functions[x.Name]; fn != nil {
		return &function{fn: fn}
	}
	m.fail("no value %s", x.Name)
	return nil
}

// member returns a member of an Enum by its name.
func (m *machine) member(class *script.Class, name string) *enum {
	full := class.Name + "." + name
	if e, ok := m.enums[full]; ok {
		return e
	}
	for _, final := range class.Finals {
		m.tick(1)
		if final.Name == name {
			e := &enum{class: class.Name, name: name, value: m.eval(&frame{}, final.Value)}
			m.enums[full] = e
			return e
		}
	}
	m.fail("%s has no member %s", class.Name, name)
	return nil
}

// attribute returns v.name.
func (m *machine) attribute(v any, name string) any {
	switch v := v.(type) {
	case *object:
		return m.field(v, name)
	case *tuple:
		if v.class != nil {
			for i, a := range v.class.Attributes {
				m.tick(1)
				if a.Name == name {
					return v.elems[i]
				}
			}
		}
	case *enum:
		switch name {
		case "value":
			return v.value
		case "name":
			return v.name
		}
	}
	m.fail("%s has no attribute %s", kindOf(v), name)
	return nil
}

// index returns v[i].
func (m *machine) index(v, i any) any {
	at := func(n int) int {
		k, ok := i.(int)
		if !ok {
			m.fail("index of type %s", kindOf(i))
		}
		if k < 0 {
			k += n
		}
		if k < 0 || k >= n {
			m.fail("index %d of %d elements", i, n)
		}
		return k
	}
	switch v := v.(type) {
	case *list:
		return v.elems[at(len(v.elems))]
	case *tuple:
		return v.elems[at(len(v.elems))]
	case *dict:
		e, ok := v.get(m.key(i))
		if !ok {
			m.fail("no key %.100q", m.text(i))
		}
		return e
	case string:
		k := at(len(v))
		return v[k : k+1]
	case layers.Tensor:
		if _, isInt := i.(int); isInt {
			return m.op("aten::select", []any{v, 0, i}, nil)
		}
		return m.op("aten::index", []any{v, &list{elems: []any{i}}}, nil)
	case *object: // a ModuleList or ModuleDict
		if key, ok := i.(string); ok {
			return m.field(v, key)
		}
		children := m.children(v)
		return m.field(v, children[at(len(children))])
	}
	m.fail("%s cannot be indexed", kindOf(v))
	return nil
}

// sliceExpr returns v[low:high:step].
func (m *machine) sliceExpr(f *frame, x *script.Slice) any {
	v := m.eval(f, x.X)
	bound := func(b script.Expr) any {
		if b == nil {
			return nil
		}
		return m.eval(f, b)
	}
	return m.slice(v, bound(x.Low), bound(x.High), bound(x.Step))
}

// slice returns the elements of a list, tuple or text that a slice has.
func (m *machine) slice(v, low, high, step any) any {
	elems := func(e []any) []any {
		out := []any{}
		m.overSlice(len(e), low, high, step, func(i int) { out = append(out, e[i]) })
		return out
	}
	switch v := v.(type) {
	case *list:
		return &list{elems: elems(v.elems), elem: v.elem}
	case *tuple:
		return &tuple{elems: elems(v.elems)}
	case string:
		out := []byte{}
		m.overSlice(len(v), low, high, step, func(i int) { out = append(out, v[i]) })
		return string(out)
	}
	m.fail("%s cannot be sliced", kindOf(v))
	return nil
}

// overSlice calls visit for the indices of a slice of n elements, as Python counts them.
func (m *machine) overSlice(n int, low, high, step any, visit func(i int)) {
	by := 1
	if step != nil {
		s, ok := step.(int)
		if !ok || s == 0 {
			m.fail("a slice in steps of %s", m.text(step))
		}
		by = s
	}
	first, last := 0, n
	if by < 0 {
		first, last = n-1, -1
	}
	clip := func(v any, other int) int {
		if v == nil {
			return other
		}
		i, ok := v.(int)
		if !ok {
			m.fail("a slice from or to %s", kindOf(v))
		}
		if i < 0 {
			i += n
		}
		if by < 0 {
			return max(-1, min(i, n-1))
		}
		return max(0, min(i, n))
	}
	first, last = clip(low, first), clip(high, last)
	for i := first; by > 0 && i < last || by < 0 && i > last; i += by {
		m.grow(1)
		visit(i)
		if by > 0 && i > last-by || by < 0 && i < last-by { // the next would overflow or be past the end
			break
		}
	}
}

// maxTypeDepth bounds the types within types that isinstance compares.
const maxTypeDepth = 50

// isInstance reports whether a value is of a type.
func (m *machine) isInstance(v any, t *script.Type, depth int) bool {
	m.tick(1)
	if depth > maxTypeDepth {
		m.limit("a type nested more than %d deep", maxTypeDepth)
	}
	any1 := func(list []*script.Type) bool {
		for _, u := range list {
			if m.isInstance(v, u, depth+1) {
				return true
			}
		}
		return false
	}
	is := false
	switch t.Kind {
	case script.AnyType:
		return true
	case script.OptionalType:
		return v == nil || any1(t.Args)
	case script.UnionType:
		return any1(t.Args)
	case script.TensorType:
		_, is = v.(layers.Tensor)
	case script.IntType:
		_, is = v.(int)
	case script.FloatType:
		_, is = v.(float64)
	case script.ComplexType:
		_, is = v.(complex128)
	case script.BoolType:
		_, is = v.(bool)
	case script.NumberType:
		_, is = number(v)
		if _, isBool := v.(bool); isBool {
			is = false
		}
	case script.StringType:
		_, is = v.(string)
	case script.NoneType:
		is = v == nil
	case script.DeviceType:
		_, is = v.(device)
	case script.AnyListType:
		_, is = v.(*list)
	case script.AnyTupleType:
		_, is = v.(*tuple)
	case script.ListType, script.TupleType, script.DictType:
		return m.isContainer(v, t, depth)
	case script.FutureType:
		_, is = v.(*future)
	case script.ClassType:
		switch v := v.(type) {
		case *object:
			is = v.class.Name == t.Class || m.implements(v.class, t.Class)
		case *tuple:
			is = v.class != nil && v.class.Name == t.Class
		case *enum:
			is = v.class == t.Class
		}
	}
	return is
}

// isContainer is isInstance for containers of a type.
func (m *machine) isContainer(v any, t *script.Type, depth int) bool {
	each := func(elems []any, t *script.Type) bool {
		for _, e := range elems {
			if !m.isInstance(e, t, depth+1) {
				return false
			}
		}
		return true
	}
	switch t.Kind {
	case script.ListType:
		l, ok := v.(*list)
		if ok && len(l.elems) == 0 && l.elem != nil {
			return l.elem.Equal(t.Args[0])
		}
		return ok && each(l.elems, t.Args[0])
	case script.TupleType:
		p, ok := v.(*tuple)
		is := ok && len(p.elems) == len(t.Args)
		for i := 0; is && i < len(t.Args); i++ {
			is = m.isInstance(p.elems[i], t.Args[i], depth+1)
		}
		return is
	}
	d, ok := v.(*dict)
	return ok && each(d.keys, t.Args[0]) && each(d.values, t.Args[1])
}

// implements reports whether a class has the methods of an interface.
func (m *machine) implements(class *script.Class, name string) bool {
	iface := m.program.Classes[name]
	if iface == nil || iface.Kind != script.Interface && iface.Kind != script.ModuleInterface {
		return false
	}
	for _, method := range iface.Methods {
		m.tick(len(class.Methods))
		if class.Method(method.Name) == nil {
			return false
		}
	}
	return true
}
