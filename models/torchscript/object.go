package torchscript

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/tensor"
)

// root makes the objects of the archive, with the paths by which modules go. A module in two places goes by its first.
func (m *machine) root() *object {
	if m.program.Root == nil {
		m.fail("there is no module")
	}
	return m.object(m.program.Root, "")
}

// object returns the object that an archive's one is. Its submodules are made with it, its other attributes when they
// are first read.
func (m *machine) object(o *script.Object, path string) *object {
	if made, ok := m.objects[o]; ok {
		return made
	}
	m.grow(len(o.Attributes) + 1)
	class := m.program.Classes[o.Class]
	if class == nil { // a class of PyTorch's own: nothing but its name is known
		class = &script.Class{Name: o.Class}
	}
	made := &object{class: class, fields: make(map[string]any, len(o.Attributes)), path: path, origin: o}
	m.objects[o] = made
	for _, a := range o.Attributes {
		child, ok := a.Value.(*script.Object)
		if !ok {
			made.fields[a.Name] = unread{a.Value}
			continue
		}
		made.fields[a.Name] = m.object(child, layers.Join(path, a.Name))
	}
	return made
}

// children lists the submodules of a container by their names.
func (m *machine) children(o *object) []string {
	var names []string
	if o.origin != nil {
		m.tick(len(o.origin.Attributes))
		for _, a := range o.origin.Attributes {
			if child, ok := o.fields[a.Name].(*object); ok && child.isModule() {
				names = append(names, a.Name)
			}
		}
	}
	return names
}

// field returns an attribute of an object: what it holds, a constant of its class, or a method.
func (m *machine) field(o *object, name string) any {
	v, ok := o.fields[name]
	switch raw := v.(type) {
	case unread:
		v = m.value(raw.value, m.declared(o.class, name))
		o.fields[name] = v
		m.touch(o)
	case restored:
		v = m.keptValue(raw.value, m.declared(o.class, name))
		o.fields[name] = v
		m.touch(o)
	}
	if ok {
		return v
	}
	m.tick(len(o.class.Finals) + len(o.class.Methods))
	for _, final := range o.class.Finals {
		if final.Name == name {
			return m.typed(m.eval(&frame{}, final.Value), final.Type)
		}
	}
	if fn := o.class.Method(name); fn != nil {
		return &function{fn: fn, self: o}
	}
	m.fail("%s has no attribute %s", o.class.Name, name)
	return nil
}

func (m *machine) setField(o *object, name string, v any) {
	switch o.fields[name].(type) {
	case unread, restored:
		if o.scratch == nil {
			o.scratch = make(map[string]bool)
		}
		o.scratch[name] = true
	}
	o.fields[name] = m.typed(v, m.declared(o.class, name))
	m.touch(o)
}

// touch notes that an object of the archive may be changed.
func (m *machine) touch(o *object) {
	if o.origin != nil && (len(m.touched) == 0 || m.touched[len(m.touched)-1] != o) {
		m.charge(valueBytes)
		m.touched = append(m.touched, o)
	}
}

// declared returns the declared type of an attribute, nil where there is none.
func (m *machine) declared(class *script.Class, name string) *script.Type {
	types, ok := m.types[class]
	if !ok {
		m.grow(len(class.Attributes))
		types = make(map[string]*script.Type, len(class.Attributes))
		for _, a := range class.Attributes {
			types[a.Name] = a.Type
		}
		m.types[class] = types
	}
	return types[name]
}

// value makes a value of what the archive holds.
func (m *machine) value(v script.Value, t *script.Type) any {
	m.tick(1)
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
	case int64:
		return m.typed(int(v), t)
	case script.Tensor:
		return m.weight(string(v))
	case script.Device:
		return device(v)
	case script.ListValue:
		m.grow(len(v))
		l := &list{elem: arg(0)}
		for _, e := range v {
			l.elems = append(l.elems, m.value(e, l.elem))
		}
		return l
	case script.TupleValue:
		m.grow(len(v))
		p := &tuple{}
		for i, e := range v {
			p.elems = append(p.elems, m.value(e, arg(i)))
		}
		return m.typed(p, t)
	case script.DictValue:
		m.grow(2 * len(v))
		d := newDict()
		for _, item := range v {
			d.set(m.key(m.value(item.Key, arg(0))), m.value(item.Value, arg(1)))
		}
		return d
	case script.EnumValue:
		class := m.program.Classes[v.Class]
		want := m.value(v.Value, nil)
		for _, final := range class.Finals {
			if e := m.member(class, final.Name); m.equal(e.value, want, 0) {
				return e
			}
		}
		m.fail("%s has no such member", v.Class)
	case *script.Object:
		return m.object(v, "")
	}
	return v
}

// weight returns a tensor of the checkpoint. One name is one tensor.
func (m *machine) weight(name string) layers.Tensor {
	if t, ok := m.weights[name]; ok {
		return t
	}
	m.charge(opBytes)
	t, err := m.rec.Weight(name, tensor.Invalid)
	if err != nil {
		panic(failure{err})
	}
	m.weights[name], m.names[t] = t, name
	return t
}

// constant returns an entry of the table of constants.
func (m *machine) constant(i int) any {
	if v, ok := m.constants[i]; ok {
		return v
	}
	if i < 0 || i >= len(m.program.Constants) {
		m.fail("no constant %d", i)
	}
	v := m.value(m.program.Constants[i], nil)
	switch v.(type) {
	case *list, *dict: // each use has its own, which it may change
	default:
		m.constants[i] = v
	}
	return v
}

// isCache reports whether a value is tensors, or containers of them, that every run computes again from the same: not
// from inputs, nor from what the attribute was.
func (m *machine) isCache(v any, was layers.Tensor, depth int) bool {
	m.tick(1)
	if depth > maxTextDepth {
		m.limit("a value nested more than %d deep", maxTextDepth)
	}
	var elems []any
	switch v := v.(type) {
	case layers.Tensor:
		m.tick(m.calls)
		return !m.rec.Depends(v, was)
	case *list:
		elems = v.elems
	case *tuple:
		elems = v.elems
	case *dict:
		elems = v.values
	}
	for _, e := range elems {
		if !m.isCache(e, was, depth+1) {
			return false
		}
	}
	return len(elems) > 0
}

// unchanged reports whether a value is what the archive holds.
func (m *machine) unchanged(now any, was script.Value, depth int) bool {
	m.tick(1)
	if depth > maxTextDepth {
		m.limit("a value nested more than %d deep", maxTextDepth)
	}
	series := func(elems []any, was []script.Value) bool {
		if len(elems) != len(was) {
			return false
		}
		for i, e := range elems {
			if !m.unchanged(e, was[i], depth+1) {
				return false
			}
		}
		return true
	}
	switch was := was.(type) {
	case int64:
		if x, ok := now.(float64); ok {
			return x == float64(was)
		}
		return now == any(int(was))
	case float64:
		x, ok := now.(float64)
		return ok && (x == was || x != x && was != was)
	case script.Tensor:
		t, ok := now.(layers.Tensor)
		return ok && m.names[t] == string(was)
	case script.Device:
		return now == any(device(was))
	case script.ListValue:
		l, ok := now.(*list)
		return ok && series(l.elems, was)
	case script.TupleValue:
		p, ok := now.(*tuple)
		return ok && series(p.elems, was)
	case script.DictValue:
		d, ok := now.(*dict)
		if !ok || len(d.keys) != len(was) {
			return false
		}
		for i, item := range was {
			if !m.unchanged(d.keys[i], item.Key, depth+1) || !m.unchanged(d.values[i], item.Value, depth+1) {
				return false
			}
		}
		return true
	case script.EnumValue:
		e, ok := now.(*enum)
		return ok && e.class == was.Class && m.unchanged(e.value, was.Value, depth+1)
	case *script.Object:
		o, ok := now.(*object)
		return ok && o.origin == was
	}
	return now == any(was)
}
