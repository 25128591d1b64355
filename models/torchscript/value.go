package torchscript

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/script"
)

// A value is one of: nil (None), bool, int, float64, complex128, string, device, layers.Tensor, *list, *tuple, *dict,
// *object, *enum, *function, unread. Integers stand for dtypes, layouts and memory formats too, as in the language.

// A device is a torch.device. Where tensors are is not the program's business here, so it is only carried along.
type device string

// A list is a Python list. elem is its elements' type where the code tells, so that an empty one has a type.
type list struct {
	elems []any
	elem  *script.Type
}

// A tuple is a tuple, or a named one with its class.
type tuple struct {
	elems []any
	class *script.Class
}

// A dict is a dictionary in the order of insertion.
type dict struct {
	keys, values []any
	index        map[any]int
}

func newDict() *dict { return &dict{index: make(map[any]int)} }

func (d *dict) get(key any) (any, bool) {
	i, ok := d.index[key]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

func (d *dict) set(key, value any) {
	if i, ok := d.index[key]; ok {
		d.values[i] = value
		return
	}
	d.index[key] = len(d.keys)
	d.keys, d.values = append(d.keys, key), append(d.values, value)
}

// remove takes a key out; the caller pays for the keys behind it.
func (d *dict) remove(key any) {
	i, ok := d.index[key]
	if !ok {
		return
	}
	delete(d.index, key)
	d.keys = append(d.keys[:i], d.keys[i+1:]...)
	d.values = append(d.values[:i], d.values[i+1:]...)
	for ; i < len(d.keys); i++ {
		d.index[d.keys[i]] = i
	}
}

// An object is an instance of a class: of a module, or of a class of the program's own.
type object struct {
	class  *script.Class
	fields map[string]any
	// path and origin are those of the object in the archive; objects made by the program have none.
	path   string
	origin *script.Object
	// scratch are the attributes that were set before they were ever read.
	scratch map[string]bool
}

func (o *object) isModule() bool { return o.class.Kind == script.ModuleClass }

// unread is an attribute of the archive that was not looked at yet.
type unread struct{ value script.Value }

// An enum is a member of an Enum. There is one for each member, so that they compare by identity.
type enum struct {
	class, name string
	value       any
}

// A function is one used as a value: a hook, a bound method, or a local function with the variables around it.
type function struct {
	fn    *script.Function
	self  *object
	outer *frame
}

// A future is the result of a fork, which ran at once.
type future struct{ value any }

// kindOf names the type of a value as Python does.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int:
		return "int"
	case float64:
		return "float"
	case complex128:
		return "complex"
	case string:
		return "str"
	case device:
		return "Device"
	case layers.Tensor:
		return "Tensor"
	case *list:
		return "list"
	case *tuple:
		return "tuple"
	case *dict:
		return "dict"
	case *object:
		return v.class.Name
	case *enum:
		return v.class
	case *function:
		return "function"
	case *future:
		return "Future"
	case *counted:
		return "int that depends on data"
	case *countedList:
		return "Tensor of sizes that depend on data"
	case *undecided:
		return "bool that depends on data"
	}
	return fmt.Sprintf("%T", v)
}

// maxTextDepth bounds the containers within containers that are written out or compared.
const maxTextDepth = 50

// text writes a value as str() does. Everything written is paid for.
func (m *machine) text(v any) string {
	var b strings.Builder
	m.write(&b, v, 0)
	return b.String()
}

func (m *machine) write(b *strings.Builder, v any, depth int) {
	m.tick(1)
	if depth > maxTextDepth {
		m.limit("a value nested more than %d deep", maxTextDepth)
	}
	before := b.Len()
	series := func(open, end string, elems []any) {
		b.WriteString(open)
		for i, e := range elems {
			if i > 0 {
				b.WriteString(", ")
			}
			m.write(b, e, depth+1)
		}
		b.WriteString(end)
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case int:
		b.WriteString(strconv.Itoa(v))
	case float64:
		b.WriteString(floatText(v))
	case complex128:
		b.WriteString(floatText(real(v)) + "+" + floatText(imag(v)) + "j")
	case string:
		b.WriteString(v) // within containers too
		m.charge(int64(len(v)))
		return
	case device:
		b.WriteString(string(v))
	case *list:
		series("[", "]", v.elems)
	case *tuple:
		end := ")"
		if len(v.elems) == 1 {
			end = ",)"
		}
		series("(", end, v.elems)
	case *dict:
		b.WriteString("{")
		for i, k := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			m.write(b, k, depth+1)
			b.WriteString(": ")
			m.write(b, v.values[i], depth+1)
		}
		b.WriteString("}")
	case *enum:
		b.WriteString("Enum<" + v.class + "." + v.name + ">")
	case layers.Tensor:
		x, ok := m.item(v)
		if !ok {
			m.unsupported("str(Tensor)", onData)
		}
		m.write(b, x, depth)
	default:
		b.WriteString("<" + kindOf(v) + ">")
	}
	m.charge(int64(b.Len() - before))
}

// floatText writes a number as the interpreter of TorchScript does.
func floatText(x float64) string {
	switch {
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	case math.IsNaN(x):
		return "nan"
	case math.Abs(x) < 1<<63 && x == math.Trunc(x):
		return strconv.FormatInt(int64(x), 10) + "."
	}
	const digits = 17
	s := strconv.FormatFloat(x, 'g', digits, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	if strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	if exponent == "" {
		return mantissa
	}
	return mantissa + "e" + exponent
}

// equal compares two values as == does.
func (m *machine) equal(a, b any, depth int) bool {
	m.tick(1)
	if depth > maxTextDepth {
		m.limit("a value nested more than %d deep", maxTextDepth)
	}
	if isCounted(a) || isCounted(b) {
		m.unsupported("a comparison of sizes", branchesOnData)
	}
	all := func(a, b []any) bool {
		if len(a) != len(b) {
			return false
		}
		for i := range a {
			if !m.equal(a[i], b[i], depth+1) {
				return false
			}
		}
		return true
	}
	switch a := a.(type) {
	case string:
		m.tick(len(a) / valueBytes)
		return b == any(a)
	case *list:
		b, ok := b.(*list)
		return ok && all(a.elems, b.elems)
	case *tuple:
		b, ok := b.(*tuple)
		return ok && all(a.elems, b.elems)
	case *dict:
		b, ok := b.(*dict)
		if !ok || len(a.keys) != len(b.keys) {
			return false
		}
		for i, k := range a.keys {
			v, ok := b.get(k)
			if !ok || !m.equal(a.values[i], v, depth+1) {
				return false
			}
		}
		return true
	case layers.Tensor:
		if b == any(a) {
			return true
		}
		m.unsupported("comparing tensors in a container", onData)
	}
	if _, isInt := a.(int); isInt {
		if _, isInt := b.(int); isInt {
			return a == b
		}
	}
	x, ok := number(a)
	y, ok2 := number(b)
	if ok && ok2 {
		return x == y
	}
	return a == b
}

// number returns a number as a complex one. Integers beyond 2^53 are rounded.
func number(v any) (complex128, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int:
		return complex(float64(v), 0), true
	case float64:
		return complex(v, 0), true
	case complex128:
		return v, true
	}
	return 0, false
}

// outward returns a value as a result holds it.
func (m *machine) outward(v any, depth int) any {
	m.tick(1)
	if depth > maxTextDepth {
		m.limit("a result nested more than %d deep", maxTextDepth)
	}
	switch v := v.(type) {
	case *list:
		out := make([]any, len(v.elems))
		for i, e := range v.elems {
			out[i] = m.outward(e, depth+1)
		}
		return out
	case *tuple:
		if v.class != nil {
			fields := make(layers.Fields, len(v.elems))
			for i, e := range v.elems {
				fields[i] = layers.Field{Name: v.class.Attributes[i].Name, Value: m.outward(e, depth+1)}
			}
			return fields
		}
		return m.outward(&list{elems: v.elems}, depth)
	case *dict:
		fields := make(layers.Fields, len(v.keys))
		for i, k := range v.keys {
			fields[i] = layers.Field{Name: m.text(k), Value: m.outward(v.values[i], depth+1)}
		}
		return fields
	case *enum:
		return m.outward(v.value, depth+1)
	case device:
		return string(v)
	case *counted:
		return v.n
	case *undecided:
		m.unsupported("a result", branchesOnData)
	case *countedList:
		m.unsupported("a result", onData)
	case *object, *function, *future:
		m.unsupported("a result of type "+kindOf(v), "outputs are tensors, numbers, and containers of them")
	}
	return v
}

// inward makes a value of what a caller gave: the reverse of outward.
func (m *machine) inward(v any) any {
	switch v := v.(type) {
	case []any:
		l := &list{}
		for _, e := range v {
			l.elems = append(l.elems, m.inward(e))
		}
		return l
	case Tuple:
		t := &tuple{}
		for _, e := range v {
			t.elems = append(t.elems, m.inward(e))
		}
		return t
	case layers.Fields:
		d := newDict()
		for _, f := range v {
			d.set(f.Name, m.inward(f.Value))
		}
		return d
	}
	return v
}
