package torchscript

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/tensor"
)

// Attributes are what the attributes of a program hold between two calls where that is neither what the archive says nor what
// a buffer of the same shape keeps: by the path of the object and the name, joined. Values are nil, bool, int, float64, string,
// [Kept], []any for lists and [Tuple]. Equal ones are equal texts ([Attributes.String]).
type Attributes map[string]any

// A Kept is a tensor that an attribute holds from one call to the next.
type Kept struct {
	// Name is the attribute's path, with the places of what is within lists and tuples.
	Name  string
	DType tensor.DType
	Shape tensor.Shape
}

// String returns a text that others have only where they are equal.
func (a Attributes) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(a)) {
		fmt.Fprintf(&b, "%q=", name)
		writeKept(&b, a[name])
		b.WriteByte(';')
	}
	return b.String()
}

func writeKept(b *strings.Builder, v any) {
	series := func(kind string, elems []any) {
		b.WriteString(kind + "(")
		for _, e := range elems {
			writeKept(b, e)
			b.WriteByte(',')
		}
		b.WriteByte(')')
	}
	switch v := v.(type) {
	case string:
		fmt.Fprintf(b, "%q", v)
	case Kept:
		fmt.Fprintf(b, "%v%v", v.DType, v.Shape)
	case []any:
		series("list", v)
	case Tuple:
		series("tuple", v)
	default:
		fmt.Fprintf(b, "%T(%v)", v, v)
	}
}

// Changed names an attribute that two calls leave differently, "" where there is none.
func (a Attributes) Changed(before Attributes) string {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if was, ok := before[name]; !ok || (Attributes{"": was}).String() != (Attributes{"": a[name]}).String() {
			return name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := a[name]; !ok {
			return name
		}
	}
	return ""
}

// restored is an attribute of which an earlier call left something and that was not looked at yet.
type restored struct{ value any }

// restore puts into the objects of the archive what an earlier call left.
func (m *machine) restore(attributes Attributes) {
	if len(attributes) == 0 {
		return
	}
	m.began = attributes
	for _, o := range m.objects {
		m.tick(len(o.origin.Attributes))
		for _, a := range o.origin.Attributes {
			if v, ok := attributes[layers.Join(o.path, a.Name)]; ok {
				o.fields[a.Name] = restored{v}
			}
		}
	}
}

// keptValue makes a value of what an earlier call left.
func (m *machine) keptValue(v any, t *script.Type) any {
	m.grow(1)
	arg := func(i int) *script.Type {
		if t != nil && i < len(t.Args) {
			return t.Args[i]
		}
		return nil
	}
	if t != nil && t.Kind == script.OptionalType {
		t = t.Args[0]
	}
	switch v := v.(type) {
	case Kept:
		m.charge(opBytes)
		x, err := m.rec.Kept(v)
		if err != nil {
			panic(failure{err})
		}
		m.kept[x] = v.Name
		return x
	case []any:
		l := &list{elem: arg(0)}
		for _, e := range v {
			l.elems = append(l.elems, m.keptValue(e, l.elem))
		}
		return l
	case Tuple:
		p := &tuple{}
		for i, e := range v {
			p.elems = append(p.elems, m.keptValue(e, arg(i)))
		}
		return m.typed(p, t)
	}
	return v
}

// keep returns what an attribute leaves for the next call, and adds the tensors that are to be stored. ok is unset where it holds
// what no call can find again.
func (m *machine) keep(name string, v any, updates *[]Update, depth int) (left any, ok bool) {
	m.tick(1)
	if depth > maxTextDepth {
		m.limit("a value nested more than %d deep", maxTextDepth)
	}
	series := func(elems []any) ([]any, bool) {
		m.grow(len(elems))
		list := make([]any, len(elems))
		for i, e := range elems {
			if list[i], ok = m.keep(layers.Join(name, fmt.Sprint(i)), e, updates, depth+1); !ok {
				return nil, false
			}
		}
		return list, true
	}
	switch v := v.(type) {
	case nil, bool, int, float64, string:
		return v, true
	case layers.Tensor:
		if d, _ := m.rows(v); d >= 0 {
			m.unsupported("attribute "+name, onData)
		}
		if isComplex(v.DType()) {
			return nil, false
		}
		k := Kept{Name: name, DType: v.DType(), Shape: slices.Clone(v.Shape())}
		if m.kept[v] != name {
			*updates = append(*updates, Update{Kept: &k, Value: v})
		}
		return k, true
	case *list:
		return series(v.elems)
	case *tuple:
		if v.class != nil {
			return nil, false
		}
		elems, ok := series(v.elems)
		return Tuple(elems), ok
	}
	return nil, false
}

// updates compares the objects of the archive with what they were. It returns the tensors that became others, and what attributes
// hold that the next call finds; what else changed would have to outlive the run.
func (m *machine) updates() (updates []Update, left Attributes) {
	left = make(Attributes)
	done := make(map[*object]bool)
	for _, o := range m.touched {
		if done[o] {
			continue
		}
		done[o] = true
		for _, a := range o.origin.Attributes {
			m.tick(1)
			m.leave(o, a, &updates, left)
		}
		if len(o.fields) > len(o.origin.Attributes) {
			m.tick(len(o.fields))
			for name := range o.fields {
				if !slices.ContainsFunc(o.origin.Attributes, func(a script.Field) bool { return a.Name == name }) {
					m.unsupported("attribute "+layers.Join(o.path, name), addsState)
				}
			}
		}
	}
	if len(m.began) > 0 {
		for _, o := range m.objects { // what this call has not looked at is there for the next
			for _, a := range o.origin.Attributes {
				if v, ok := o.fields[a.Name].(restored); ok {
					left[layers.Join(o.path, a.Name)] = v.value
				}
			}
		}
	}
	return updates, left
}

// leave is updates for one attribute of an object that was touched.
func (m *machine) leave(o *object, a script.Field, updates *[]Update, left Attributes) {
	now := o.fields[a.Name]
	switch now.(type) {
	case unread, restored:
		return
	}
	key := layers.Join(o.path, a.Name)
	_, wasRestored := m.began[key]
	name, wasTensor := a.Value.(script.Tensor)
	t, isTensor := now.(layers.Tensor)
	if wasTensor && isTensor && !wasRestored {
		w := m.weight(string(name))
		same := w.Shape().Equal(t.Shape()) && w.DType() == t.DType()
		switch {
		case w == t, !same && m.isCache(t, w, 0):
			return
		case same:
			*updates = append(*updates, Update{Weight: string(name), Value: t})
			return
		}
	} else if m.unchanged(now, a.Value, 0) || m.isCache(now, nil, 0) {
		return
	}
	scratch := o.scratch[a.Name]
	if scratch && !m.program.Reads(a.Name) {
		return
	}
	if o.path == "" && o.origin != m.program.Root { // it is within a list: nothing finds it again
		m.unsupported("attribute "+a.Name+" of "+o.class.Name, changesState)
	}
	before := len(*updates)
	v, ok := m.keep(key, now, updates, 0)
	switch {
	case ok:
		left[key] = v
	case scratch: // what it was does not matter, so neither does what it becomes
		*updates = (*updates)[:before]
	default:
		m.unsupported("attribute "+key, changesState)
	}
}
