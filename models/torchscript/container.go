package torchscript

import (
	"slices"
	"sort"
)

// listFuncs take a list first, dictFuncs a dictionary.
var listFuncs, dictFuncs map[string]builtin

func init() { listFuncs, dictFuncs = functionsOfLists(), functionsOfDicts() }

func functionsOfLists() map[string]builtin {
	return map[string]builtin{
		"aten::len":     func(c *invocation) (any, bool) { return len(c.self().elems), true },
		"aten::append":  appendList,
		"aten::extend":  extendList,
		"aten::add":     concatenate,
		"aten::add_":    extendList,
		"aten::mul":     func(c *invocation) (any, bool) { return c.repeat(c.self(), c.int(1, "n")), true },
		"aten::mul_":    repeatInPlace,
		"aten::insert":  insertList,
		"aten::pop":     popList,
		"aten::Delete":  deleteList,
		"aten::remove":  removeList,
		"aten::clear":   func(c *invocation) (any, bool) { c.self().elems = nil; return nil, true },
		"aten::reverse": func(c *invocation) (any, bool) { slices.Reverse(c.self().elems); return nil, true },
		"aten::copy":    copyList,
		"aten::list":    copyList,
		"aten::Size":    copyList,
		"aten::sort":    sortList,
		"aten::sorted":  sortedList,
		"aten::slice":   sliceFunc,
		"aten::select": func(
			c *invocation,
		) (any, bool) {
			return c.index(c.self(), c.must(1, "idx")), len(c.args) == 2
		},
		"aten::__getitem__": func(c *invocation) (any, bool) { return c.index(c.self(), c.must(1, "idx")), true },
		"aten::_set_item":   setItem,
		"aten::__contains__": func(
			c *invocation,
		) (any, bool) {
			return c.find(c.self(), c.must(1, "item")) >= 0, true
		},
		"aten::index":            indexOf,
		"aten::count":            countList,
		"aten::all":              func(c *invocation) (any, bool) { return c.every(true) },
		"aten::any":              func(c *invocation) (any, bool) { return c.every(false) },
		"aten::sum":              sumList,
		"aten::broadcast_shapes": broadcastShapes,
		"aten::_infer_size":      broadcastShapes,
		"aten::lt": func(
			c *invocation,
		) (any, bool) {
			return c.lexicalLess(c.self(), c.list(1, "b")), true
		},
		"aten::gt": func(c *invocation) (any, bool) { return c.lexicalLess(c.list(1, "b"), c.self()), true },
		"aten::le": func(c *invocation) (any, bool) { return !c.lexicalLess(c.list(1, "b"), c.self()), true },
		"aten::ge": func(c *invocation) (any, bool) { return !c.lexicalLess(c.self(), c.list(1, "b")), true },
	}
}

func functionsOfDicts() map[string]builtin {
	return map[string]builtin{
		"aten::len":    func(c *invocation) (any, bool) { return len(c.dict().keys), true },
		"aten::keys":   func(c *invocation) (any, bool) { return c.newList(c.dict().keys), true },
		"aten::values": func(c *invocation) (any, bool) { return c.newList(c.dict().values), true },
		"aten::items":  items,
		"aten::__contains__": func(c *invocation) (any, bool) {
			_, ok := c.dict().get(c.key(c.must(1, "key")))
			return ok, true
		},
		"aten::__getitem__": func(c *invocation) (any, bool) { return c.index(c.dict(), c.must(1, "key")), true },
		"aten::get": func(c *invocation) (any, bool) {
			if v, ok := c.dict().get(c.key(c.must(1, "key"))); ok {
				return v, true
			}
			v, _ := c.arg(2, "default_value")
			return v, true
		},
		"aten::setdefault": func(c *invocation) (any, bool) {
			k := c.key(c.must(1, "key"))
			if _, ok := c.dict().get(k); !ok {
				c.grow(2)
				c.dict().set(k, c.must(2, "default_value"))
			}
			v, _ := c.dict().get(k)
			return v, true
		},
		"aten::_set_item": func(c *invocation) (any, bool) {
			c.grow(2)
			c.dict().set(c.key(c.must(1, "idx")), c.must(2, "v"))
			return nil, true
		},
		"aten::Delete": func(c *invocation) (any, bool) { c.take(c.must(1, "key")); return nil, true },
		"aten::pop": func(c *invocation) (any, bool) {
			if other, ok := c.arg(2, "default_value"); ok {
				if _, has := c.dict().get(c.key(c.args[1])); !has {
					return other, true
				}
			}
			return c.take(c.must(1, "key")), true
		},
		"aten::popitem": func(c *invocation) (any, bool) {
			d := c.dict()
			if len(d.keys) == 0 {
				c.fail("popitem of an empty dictionary")
			}
			k := d.keys[0] // the first, unlike Python's
			return &tuple{elems: []any{k, c.take(k)}}, true
		},
		"aten::update": func(c *invocation) (any, bool) {
			other, ok := c.must(1, "to_add").(*dict)
			if !ok {
				c.wrong("to_add", c.args[1])
			}
			c.grow(2 * len(other.keys))
			for i, k := range other.keys {
				c.dict().set(k, other.values[i])
			}
			return nil, true
		},
		"aten::clear":  func(c *invocation) (any, bool) { *c.dict() = *newDict(); return nil, true },
		"aten::copy":   makeDict,
		"aten::list":   func(c *invocation) (any, bool) { return c.newList(c.dict().keys), true },
		"aten::__is__": same,
	}
}

// self is the list that a function is called on, dict the dictionary.
func (c *invocation) self() *list { return c.args[0].(*list) }
func (c *invocation) dict() *dict { return c.args[0].(*dict) }

// newList returns a list of its own with the given elements.
func (m *machine) newList(elems []any) *list {
	m.grow(len(elems))
	return &list{elems: slices.Clone(elems)}
}

func appendList(c *invocation) (any, bool) {
	c.grow(1)
	l := c.self()
	l.elems = append(l.elems, c.must(1, "el"))
	return l, true
}

func extendList(c *invocation) (any, bool) {
	l, other := c.self(), c.list(1, "other")
	c.grow(len(other.elems))
	l.elems = append(l.elems, other.elems...)
	return l, true
}

func concatenate(c *invocation) (any, bool) {
	l := c.self()
	other, ok := c.must(1, "b").(*list)
	if !ok {
		return nil, false
	}
	c.grow(len(l.elems) + len(other.elems))
	return &list{elems: slices.Concat(l.elems, other.elems), elem: l.elem}, true
}

// repeat returns n copies of a list, one after the other.
func (m *machine) repeat(l *list, n int) *list {
	out := &list{elem: l.elem}
	if n <= 0 || len(l.elems) == 0 {
		return out
	}
	if int64(n) > m.steps {
		m.limit("a list repeated %d times", n)
	}
	for range n {
		m.grow(len(l.elems))
		out.elems = append(out.elems, l.elems...)
	}
	return out
}

func repeatInPlace(c *invocation) (any, bool) {
	c.self().elems = c.repeat(c.self(), c.int(1, "n")).elems
	return c.self(), true
}

func insertList(c *invocation) (any, bool) {
	l, i := c.self(), c.int(1, "idx")
	if i < 0 {
		i += len(l.elems)
	}
	i = max(0, min(i, len(l.elems)))
	c.grow(1)
	c.tick(len(l.elems) - i)
	l.elems = slices.Insert(l.elems, i, c.must(2, "el"))
	return nil, true
}

// place returns the place of an element that must be there.
func (c *invocation) place(l *list, i int) int {
	n := len(l.elems)
	if i < -n || i >= n {
		c.fail("index %d of %d elements", i, n)
	}
	if i < 0 {
		i += n
	}
	return i
}

func popList(c *invocation) (any, bool) {
	l := c.self()
	i := c.place(l, c.intOr(1, "idx", -1))
	v := l.elems[i]
	c.tick(len(l.elems) - i)
	l.elems = slices.Delete(l.elems, i, i+1)
	return v, true
}

func deleteList(c *invocation) (any, bool) {
	l := c.self()
	i := c.place(l, c.int(1, "idx"))
	c.tick(len(l.elems) - i)
	l.elems = slices.Delete(l.elems, i, i+1)
	return nil, true
}

// find returns the place of a value in a list, −1 where it is not there.
func (m *machine) find(l *list, v any) int {
	for i, e := range l.elems {
		if m.equal(e, v, 0) {
			return i
		}
	}
	return -1
}

func removeList(c *invocation) (any, bool) {
	l := c.self()
	i := c.find(l, c.must(1, "el"))
	if i < 0 {
		c.fail("remove: %.100q is not in the list", c.text(c.args[1]))
	}
	c.tick(len(l.elems) - i)
	l.elems = slices.Delete(l.elems, i, i+1)
	return nil, true
}

func indexOf(c *invocation) (any, bool) {
	i := c.find(c.self(), c.must(1, "el"))
	if i < 0 {
		c.fail("index: %.100q is not in the list", c.text(c.args[1]))
	}
	return i, true
}

func countList(c *invocation) (any, bool) {
	n := 0
	for _, e := range c.self().elems {
		if c.equal(e, c.must(1, "el"), 0) {
			n++
		}
	}
	return n, true
}

func copyList(c *invocation) (any, bool) {
	l := c.newList(c.self().elems)
	l.elem = c.self().elem
	return l, true
}

func (c *invocation) sortElems(elems []any, reverse bool) {
	sort.SliceStable(elems, func(i, j int) bool {
		c.tick(1)
		if reverse {
			return c.less(elems[j], elems[i])
		}
		return c.less(elems[i], elems[j])
	})
}

func sortList(c *invocation) (any, bool) {
	c.sortElems(c.self().elems, c.flag(1, "reverse"))
	return nil, true
}

func sortedList(c *invocation) (any, bool) {
	l := c.newList(c.self().elems)
	c.sortElems(l.elems, c.flag(1, "reverse"))
	return l, true
}

func sliceFunc(c *invocation) (any, bool) {
	start, _ := c.arg(1, "start")
	end, _ := c.arg(2, "end")
	step, _ := c.arg(3, "step")
	return c.slice(c.args[0], start, end, step), true
}

func setItem(c *invocation) (any, bool) {
	l := c.self()
	l.elems[c.place(l, c.int(1, "idx"))] = c.must(2, "el")
	return l, true
}

// every is all and any of a list of numbers.
func (c *invocation) every(all bool) (any, bool) {
	for _, e := range c.self().elems {
		c.tick(1)
		if s, ok := e.(string); ok {
			e = s != ""
		}
		x, ok := number(e)
		if !ok {
			return nil, false
		}
		if x == 0 == all {
			return !all, true
		}
	}
	return all, true
}

func sumList(c *invocation) (any, bool) {
	var total any = 0
	add := numberFuncs["aten::add"]
	for _, e := range c.self().elems {
		c.tick(1)
		if _, ok := number(e); !ok {
			return nil, false
		}
		total, _ = add(&invocation{machine: c.machine, name: c.name, args: []any{total, e}})
	}
	return total, true
}

// broadcastShapes returns the shape that two expand to.
func broadcastShapes(c *invocation) (any, bool) {
	a, b := c.self().elems, c.list(1, "b").elems
	if len(a) < len(b) {
		a, b = b, a
	}
	out := c.newList(a)
	for i, e := range b {
		at := len(a) - len(b) + i
		switch {
		case out.elems[at] == e, e == any(1):
		case out.elems[at] == any(1):
			out.elems[at] = e
		default:
			c.fail("sizes %s and %s do not broadcast", c.text(c.args[0]), c.text(c.args[1]))
		}
	}
	return out, true
}

func items(c *invocation) (any, bool) {
	d := c.dict()
	c.grow(3 * len(d.keys))
	l := &list{}
	for i, k := range d.keys {
		l.elems = append(l.elems, &tuple{elems: []any{k, d.values[i]}})
	}
	return l, true
}

// take removes a key that must be there and returns its value.
func (c *invocation) take(key any) any {
	d := c.dict()
	v, ok := d.get(c.key(key))
	if !ok {
		c.fail("no key %.100q", c.text(key))
	}
	c.tick(len(d.keys))
	d.remove(key)
	return v
}
