package torchscript

import (
	"strings"

	"github.com/optimem/optimem/layers"
)

// anyFuncs take arguments of any type.
var anyFuncs map[string]builtin

func init() { // the table's functions call others by the table
	anyFuncs = map[string]builtin{
		"aten::__is__":    func(c *invocation) (any, bool) { return c.must(0, "self") == c.must(1, "obj"), true },
		"aten::__isnot__": func(c *invocation) (any, bool) { return c.must(0, "self") != c.must(1, "obj"), true },
		"aten::__not__": func(c *invocation) (any, bool) {
			b, ok := c.must(0, "self").(bool)
			return !b, ok
		},
		"aten::eq":             func(c *invocation) (any, bool) { return c.compare(true) },
		"aten::ne":             func(c *invocation) (any, bool) { return c.compare(false) },
		"aten::str":            func(c *invocation) (any, bool) { return c.text(c.must(0, "elem")), true },
		"aten::format":         format,
		"aten::percentFormat":  percentFormat,
		"aten::warn":           ignored,
		"prim::Print":          ignored,
		"aten::_print":         ignored,
		"aten::manual_seed":    ignored,
		"aten::wait":           wait,
		"prim::awaitable_wait": wait,
		"prim::awaitable_nowait": func(c *invocation) (any, bool) {
			return &future{c.must(0, "self")}, true
		},
		"prim::RaiseException":                 raise,
		"aten::_assert":                        assert,
		"prim::unchecked_cast":                 same,
		"prim::unchecked_unwrap_optional":      unwrap,
		"aten::_unwrap_optional":               unwrap,
		"aten::is_grad_enabled":                func(c *invocation) (any, bool) { return c.grad, true },
		"aten::set_grad_enabled":               setGrad,
		"aten::is_scripting":                   func(*invocation) (any, bool) { return true, true },
		"aten::is_autocast_enabled":            never,
		"aten::is_autocast_cpu_enabled":        never,
		"aten::has_torch_function":             never,
		"aten::_get_tracing_state":             never,
		"aten::_is_tracing":                    never,
		"aten::is_vulkan_available":            never,
		"prim::NumToTensor":                    numToTensor,
		"aten::tensor":                         newTensor,
		"aten::as_tensor":                      newTensor,
		"aten::_list_to_tensor":                newTensor,
		"aten::device":                         newDevice,
		"prim::type":                           deviceType,
		"prim::index":                          deviceIndex,
		"aten::dict":                           makeDict,
		"prim::min":                            func(c *invocation) (any, bool) { return c.extreme(true) },
		"prim::max":                            func(c *invocation) (any, bool) { return c.extreme(false) },
		"profiler::_record_function_enter":     ignored,
		"profiler::_record_function_enter_new": ignored,
		"profiler::_record_function_exit":      ignored,
	}
}

func ignored(*invocation) (any, bool) { return nil, true }
func never(*invocation) (any, bool)   { return false, true }
func same(c *invocation) (any, bool)  { return c.must(0, "self"), true }

// compare is == or != of anything but tensors.
func (c *invocation) compare(want bool) (any, bool) {
	a, b := c.must(0, "a"), c.must(1, "b")
	_, isTensor := a.(layers.Tensor)
	_, isTensor2 := b.(layers.Tensor)
	if isTensor || isTensor2 {
		return nil, false
	}
	return c.equal(a, b, 0) == want, true
}

func wait(c *invocation) (any, bool) {
	f, ok := c.must(0, "self").(*future)
	if !ok {
		c.wrong("self", c.args[0])
	}
	return f.value, true
}

func unwrap(c *invocation) (any, bool) {
	v := c.must(0, "optional")
	if v == nil {
		c.fail("unwrapping None")
	}
	return v, true
}

func setGrad(c *invocation) (any, bool) {
	b, ok := c.must(0, "val").(bool)
	if !ok {
		c.wrong("val", c.args[0])
	}
	c.grad = b
	return nil, true
}

// raise is the program's own error.
func raise(c *invocation) (any, bool) {
	e := &RaisedError{Message: c.text(c.must(0, "msg"))}
	if v, ok := c.arg(1, "cls"); ok && v != nil {
		e.Class = c.text(v)
	}
	panic(failure{e})
}

func assert(c *invocation) (any, bool) {
	cond := c.must(0, "condition")
	if t, ok := cond.(layers.Tensor); ok {
		cond = c.truth(t)
	}
	if cond == true {
		return nil, true
	}
	e := &RaisedError{Class: "AssertionError"}
	if v, ok := c.arg(1, "message"); ok {
		e.Message = c.text(v)
	}
	panic(failure{e})
}

// format puts the arguments in the places of a text that are marked {}.
func format(c *invocation) (any, bool) {
	var b strings.Builder
	rest, next := c.str(0, "self"), 1
	c.charge(int64(len(rest)))
	for {
		before, after, found := strings.Cut(rest, "{}")
		b.WriteString(before)
		if !found || next >= len(c.args) {
			if found {
				c.fail("torch.format: too few arguments for %.100q", c.args[0])
			}
			return b.String(), true
		}
		c.write(&b, c.args[next], 0)
		next++
		rest = after
	}
}

// percentFormat is the % operator of texts, of one value or a tuple of them: %s and %d, and %% for itself.
func percentFormat(c *invocation) (any, bool) {
	var b strings.Builder
	text := c.str(0, "self")
	c.charge(int64(len(text)))
	values := c.args[1:]
	if len(values) == 1 {
		if t, ok := values[0].(*tuple); ok {
			values = t.elems
		}
	}
	for {
		before, after, found := strings.Cut(text, "%")
		b.WriteString(before)
		if !found {
			if len(values) > 0 {
				c.fail("too many arguments for %.100q", c.args[0])
			}
			return b.String(), true
		}
		switch {
		case strings.HasPrefix(after, "%"):
			b.WriteByte('%')
		case len(values) > 0 &&
			(strings.HasPrefix(after, "s") || strings.HasPrefix(after, "d") || strings.HasPrefix(after, "i")):
			v := values[0]
			if x, ok := v.(float64); ok && after[0] != 's' {
				v = c.toInt(x)
			}
			c.write(&b, v, 0)
			values = values[1:]
		default:
			c.unsupported("the format "+c.text(c.args[0]), "only %s, %d and %% are known")
		}
		text = after[1:]
	}
}

// newDevice is torch.device(type) or torch.device(type, index).
func newDevice(c *invocation) (any, bool) {
	v := c.must(0, "type")
	if d, ok := v.(device); ok {
		return d, true
	}
	d := c.str(0, "type")
	if i, ok := c.arg(1, "index"); ok && i != nil {
		d += ":" + c.text(i)
	}
	return device(d), true
}

func deviceType(c *invocation) (any, bool) {
	d, ok := c.must(0, "self").(device)
	if !ok {
		return nil, false
	}
	kind, _, _ := strings.Cut(string(d), ":")
	return kind, true
}

func deviceIndex(c *invocation) (any, bool) {
	d, ok := c.must(0, "self").(device)
	if !ok {
		return nil, false
	}
	_, index, has := strings.Cut(string(d), ":")
	if !has {
		return nil, true
	}
	return c.parseInt(index), true
}

// makeDict is dict() of nothing, of a dictionary, or of pairs.
func makeDict(c *invocation) (any, bool) {
	d := newDict()
	if len(c.args) == 0 {
		return d, true
	}
	switch v := c.args[0].(type) {
	case *dict:
		c.grow(2 * len(v.keys))
		for i, k := range v.keys {
			d.set(k, v.values[i])
		}
	case *list:
		c.grow(2 * len(v.elems))
		for _, e := range v.elems {
			pair := c.elements(e)
			if len(pair) != 2 {
				c.fail("torch.dict: not a pair")
			}
			d.set(c.key(pair[0]), pair[1])
		}
	default:
		c.wrong("self", v)
	}
	return d, true
}

// extreme is min or max of two numbers, of a list, or of two lists element by element.
func (c *invocation) extreme(smallest bool) (any, bool) {
	better := func(a, b any) bool { return c.less(a, b) == smallest && !c.equal(a, b, 0) }
	if len(c.args) == 2 {
		if l, ok := c.args[0].(*list); ok {
			r := c.list(1, "r")
			if c.lexicalLess(r, l) == smallest {
				return r, true
			}
			return l, true
		}
		a, b := c.args[0], c.args[1]
		_, af := a.(float64)
		_, bf := b.(float64)
		if af != bf { // both become floats
			x, _ := number(a)
			y, _ := number(b)
			a, b = real(x), real(y)
		}
		if better(b, a) {
			return b, true
		}
		return a, true
	}
	l := c.list(0, "self")
	if len(l.elems) == 0 {
		c.fail("%s of nothing", c.short())
	}
	best := l.elems[0]
	c.tick(len(l.elems))
	for _, e := range l.elems[1:] {
		if better(e, best) {
			best = e
		}
	}
	return best, true
}

// lexicalLess compares two lists as Python does.
func (c *invocation) lexicalLess(a, b *list) bool {
	c.tick(min(len(a.elems), len(b.elems)))
	for i := range min(len(a.elems), len(b.elems)) {
		if !c.equal(a.elems[i], b.elems[i], 0) {
			return c.less(a.elems[i], b.elems[i])
		}
	}
	return len(a.elems) < len(b.elems)
}

// less is a < b of numbers, texts and pairs of them.
func (m *machine) less(a, b any) bool {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			m.tick(min(len(x), len(y)) / valueBytes)
			return x < y
		}
	}
	if x, ok := a.(int); ok {
		if y, ok := b.(int); ok {
			return x < y
		}
	}
	if p, ok := a.(*tuple); ok {
		q, ok := b.(*tuple)
		for i := 0; ok && i < len(p.elems) && i < len(q.elems); i++ {
			m.tick(1)
			if !m.equal(p.elems[i], q.elems[i], 0) {
				return m.less(p.elems[i], q.elems[i])
			}
		}
		return ok && len(p.elems) < len(q.elems)
	}
	x, ok := number(a)
	y, ok2 := number(b)
	if !ok || !ok2 || imag(x) != 0 || imag(y) != 0 {
		m.fail("%s and %s have no order", kindOf(a), kindOf(b))
	}
	return real(x) < real(y)
}
