package template

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/optimem/optimem/text/template/internal/python"
)

// Values are nil, bool, int64, *big.Int beyond that, float64, string, *Object and the types below.
type (
	list  struct{ items []any }
	tuple struct{ items []any }

	// span is Python's range.
	span struct{ start, stop, step int64 }

	// view is what a dict's keys, values and items return.
	view struct {
		of   *Object
		what string // keys, values, items
	}

	// iterator is a generator: it is used up by whoever looks at it. next returns false at the end.
	iterator struct {
		next func() (any, bool, error)
		name string
	}

	undefined struct {
		text  string
		class error // nil is ErrRender
	}

	// function is what can be called: a filter's, a method's or a macro's body.
	function struct {
		name string
		call func(in *interp, args []any, kwargs *Object) (any, error)
	}

	namespace struct{ attrs *Object }

	cycler struct {
		items []any
		pos   int
	}
	joiner struct {
		sep  any
		used bool
	}
)

func isUndefined(v any) bool {
	_, ok := v.(*undefined)
	return ok
}

func (u *undefined) fail() error {
	if u.class != nil {
		return errorf(u.class, "%s", u.text)
	}
	return errorf(ErrRender, "%s", u.text)
}

func (r *span) len() int64 {
	switch {
	case r.step > 0 && r.stop > r.start:
		return (r.stop-r.start-1)/r.step + 1
	case r.step < 0 && r.stop < r.start:
		return (r.start-r.stop-1)/-r.step + 1
	}
	return 0
}

func (v *view) items() []any {
	switch v.what {
	case "keys":
		return v.of.keys
	case "values":
		return v.of.values
	}
	items := make([]any, len(v.of.keys))
	for i, k := range v.of.keys {
		items[i] = &tuple{[]any{k, v.of.values[i]}}
	}
	return items
}

// typeName is type(v).__name__.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *list:
		return "list"
	case *tuple:
		return "tuple"
	case *Object:
		return "dict"
	case *span:
		return "range"
	case *view:
		return "dict_" + v.what
	case *iterator:
		return v.name
	case *undefined:
		return "Undefined"
	case *function:
		return "function"
	case *macro:
		return "Macro"
	case *namespace:
		return "Namespace"
	case *loopContext:
		return "LoopContext"
	}
	return "object"
}

// truth is bool(v).
func truth(v any) (bool, error) {
	switch v := unmark(v).(type) {
	case nil, *undefined:
		return false, nil
	case bool:
		return v, nil
	case int64:
		return v != 0, nil
	case float64:
		return v != 0, nil
	case string:
		return v != "", nil
	case *list:
		return len(v.items) > 0, nil
	case *tuple:
		return len(v.items) > 0, nil
	case *Object:
		return len(v.keys) > 0, nil
	case *span:
		return v.len() > 0, nil
	case *view:
		return len(v.of.keys) > 0, nil
	case *loopContext:
		n, err := v.length()
		return n > 0, err
	}
	return true, nil
}

// length is len(v), and false for what has none.
func length(v any) (int64, bool, error) {
	switch v := unmark(v).(type) {
	case string:
		return int64(runeCount(v)), true, nil
	case *list:
		return int64(len(v.items)), true, nil
	case *tuple:
		return int64(len(v.items)), true, nil
	case *Object:
		return int64(len(v.keys)), true, nil
	case *span:
		return v.len(), true, nil
	case *view:
		return int64(len(v.of.keys)), true, nil
	case *undefined:
		return 0, true, nil
	case *loopContext:
		n, err := v.length()
		return n, true, err
	}
	return 0, false, nil
}

// str is str(v), within what memory is left.
func (in *interp) str(v any) (string, error) {
	if s, ok := unmark(v).(string); ok {
		return s, nil
	}
	if isUndefined(v) {
		return "", nil
	}
	return in.repr(v)
}

// repr is repr(v).
func (in *interp) repr(v any) (string, error) {
	var b strings.Builder
	if err := in.appendRepr(&b, v, 0); err != nil {
		return "", err
	}
	return b.String(), nil
}

func (in *interp) appendRepr(b *strings.Builder, v any, depth int) error {
	if depth > in.opts.Depth {
		return errorf(ErrLimit, "values %d deep", depth)
	}
	before := b.Len()
	series := func(open string, items []any, end string) error {
		b.WriteString(open)
		for i, e := range items {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := in.appendRepr(b, e, depth+1); err != nil {
				return err
			}
		}
		b.WriteString(end)
		return nil
	}
	switch v := v.(type) {
	case *list:
		if err := series("[", v.items, "]"); err != nil {
			return err
		}
	case *tuple:
		end := ")"
		if len(v.items) == 1 {
			end = ",)"
		}
		if err := series("(", v.items, end); err != nil {
			return err
		}
	case *view:
		if err := series("dict_"+v.what+"([", v.items(), "])"); err != nil {
			return err
		}
	case *Object:
		if err := in.appendDict(b, v, depth); err != nil {
			return err
		}
	case *namespace:
		b.WriteString("<Namespace ")
		if err := in.appendDict(b, v.attrs, depth); err != nil {
			return err
		}
		b.WriteByte('>')
	case *span:
		b.WriteString("range(" + strconv.FormatInt(v.start, 10) + ", " + strconv.FormatInt(v.stop, 10))
		if v.step != 1 {
			b.WriteString(", " + strconv.FormatInt(v.step, 10))
		}
		b.WriteByte(')')
	case *loopContext:
		n, err := v.length()
		if err != nil {
			return err
		}
		b.WriteString("<LoopContext " + strconv.FormatInt(v.index0+1, 10) + "/" + strconv.FormatInt(n, 10) + ">")
	default:
		b.WriteString(plainRepr(v))
	}
	return in.take(b.Len() - before)
}

// plainRepr is repr of values that hold no others.
func plainRepr(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case *big.Int:
		return v.String()
	case float64:
		return python.FloatRepr(v)
	case string:
		return python.Quote(v)
	case markup:
		return "Markup(" + python.Quote(string(v)) + ")"
	case *undefined:
		return "Undefined"
	case *macro:
		return "<Macro " + python.Quote(v.name) + ">"
	}
	return "<" + typeName(v) + " object>" // Python prints an address
}

func (in *interp) appendDict(b *strings.Builder, o *Object, depth int) error {
	b.WriteByte('{')
	for i, k := range o.keys {
		if i > 0 {
			b.WriteString(", ")
		}
		if err := in.appendRepr(b, k, depth+1); err != nil {
			return err
		}
		b.WriteString(": ")
		if err := in.appendRepr(b, o.values[i], depth+1); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

// iterate calls f for each item of a value, as Python's for does, until it returns false.
func (in *interp) iterate(v any, f func(any) (bool, error)) error {
	it, err := in.iter(v)
	if err != nil {
		return err
	}
	for {
		item, ok, err := it.next()
		if err != nil || !ok {
			return err
		}
		if more, err := f(item); err != nil || !more {
			return err
		}
	}
}

// iter is iter(v). An iterator is its own.
func (in *interp) iter(v any) (*iterator, error) {
	i := 0
	over := func(items []any) *iterator {
		return &iterator{name: "list_iterator", next: func() (any, bool, error) {
			if i >= len(items) {
				return nil, false, nil
			}
			i++
			return items[i-1], true, in.step()
		}}
	}
	switch v := unmark(v).(type) {
	case *iterator:
		return v, nil
	case *list:
		return over(v.items), nil
	case *tuple:
		return over(v.items), nil
	case *Object:
		return over(v.keys), nil
	case *view:
		return over(v.items()), nil
	case *undefined:
		return over(nil), nil
	case string:
		return &iterator{name: "str_iterator", next: func() (any, bool, error) {
			for _, r := range v[i:] {
				s := v[i : i+runeBytes(v[i:], r)]
				i += len(s)
				return s, true, in.step()
			}
			return nil, false, nil
		}}, nil
	case *span:
		return &iterator{name: "range_iterator", next: func() (any, bool, error) {
			if int64(i) >= v.len() {
				return nil, false, nil
			}
			i++
			return v.start + int64(i-1)*v.step, true, in.step()
		}}, nil
	case *loopContext:
		return &iterator{name: "LoopContext", next: func() (any, bool, error) {
			item, ok, err := v.advance()
			return &tuple{[]any{item, v}}, ok, err
		}}, nil
	}
	return nil, errorf(ErrRender, "'%s' object is not iterable", typeName(v))
}

// collect is list(v), and charges the memory.
func (in *interp) collect(v any) ([]any, error) {
	var items []any
	err := in.iterate(v, func(e any) (bool, error) {
		items = append(items, e)
		return true, in.take(16)
	})
	return items, err
}

// plain copies what a caller gave into values of templates.
func (in *interp) plain(v any, depth int) (any, error) {
	if depth > in.opts.Depth {
		return nil, errorf(ErrLimit, "values %d deep", depth)
	}
	if err := in.take(16); err != nil {
		return nil, err
	}
	series := func(n int, at func(int) any) (any, error) {
		items := make([]any, n)
		var err error
		for i := range items {
			if items[i], err = in.plain(at(i), depth+1); err != nil {
				return nil, err
			}
		}
		return &list{items}, nil
	}
	switch v := v.(type) {
	case nil, bool, int64, float64, *big.Int:
		return v, nil
	case string:
		return strings.ToValidUTF8(v, "\ufffd"), in.take(len(v))
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case float32:
		return float64(v), nil
	case []any:
		return series(len(v), func(i int) any { return v[i] })
	case []string:
		return series(len(v), func(i int) any { return v[i] })
	case []*Object:
		return series(len(v), func(i int) any { return v[i] })
	case *list:
		return series(len(v.items), func(i int) any { return v.items[i] })
	case *Object:
		if v == nil {
			return nil, nil
		}
		o := NewObject()
		for i, k := range v.keys {
			e, err := in.plain(v.values[i], depth+1)
			if err != nil {
				return nil, err
			}
			s, ok := k.(string)
			if !ok {
				return nil, errorf(ErrRender, "a key of type %s", typeName(k))
			}
			s = strings.ToValidUTF8(s, "\ufffd")
			o.Set(s, e)
		}
		return o, nil
	case map[string]any:
		o := NewObject()
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			e, err := in.plain(v[k], depth+1)
			if err != nil {
				return nil, err
			}
			o.Set(strings.ToValidUTF8(k, "\ufffd"), e)
		}
		return o, nil
	}
	return nil, errorf(ErrRender, "a value of Go's type %T", v)
}

func runeCount(s string) int { return utf8.RuneCountInString(s) }

func runeBytes(s string, r rune) int {
	if r == utf8.RuneError {
		_, n := utf8.DecodeRuneInString(s)
		return n
	}
	return utf8.RuneLen(r)
}
