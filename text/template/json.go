package template

import (
	"bytes"
	"encoding/json"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/optimem/optimem/text/template/internal/python"
)

const maxJSONDepth = 200

// ParseJSON reads one JSON value for a template: objects keep the order of their keys, and 1 is no 1.0.
func ParseJSON(doc []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	v, err := decode(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errorf(ErrSyntax, "JSON goes on after its value")
	}
	return v, nil
}

func decode(d *json.Decoder, depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, errorf(ErrLimit, "JSON %d deep", depth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, errorf(ErrSyntax, "JSON: %v", err)
	}
	switch t := t.(type) {
	case json.Number:
		return parseNumber(t.String())
	case json.Delim:
		if t == '[' {
			var items []any
			for d.More() {
				v, err := decode(d, depth+1)
				if err != nil {
					return nil, err
				}
				items = append(items, v)
			}
			_, err := d.Token()
			return &list{items}, jsonError(err)
		}
		o := NewObject()
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, jsonError(err)
			}
			v, err := decode(d, depth+1)
			if err != nil {
				return nil, err
			}
			o.Set(key.(string), v)
		}
		_, err := d.Token()
		return o, jsonError(err)
	}
	return t, nil
}

func jsonError(err error) error {
	if err == nil {
		return nil
	}
	return errorf(ErrSyntax, "JSON: %v", err)
}

func parseNumber(s string) (any, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !isRange(err) {
			return nil, jsonError(err)
		}
		return f, nil
	}
	if len(s) > 4300 {
		return nil, errorf(ErrLimit, "an integer of %d digits", len(s))
	}
	b, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil, errorf(ErrSyntax, "JSON: %q is not a number", s)
	}
	return small(b), nil
}

// A jsonWriter is Python's json.dumps.
type jsonWriter struct {
	in       *interp
	b        strings.Builder
	indent   string
	lines    bool // indent is given
	item     string
	key      string
	ascii    bool
	sortKeys bool
}

func (w *jsonWriter) value(v any, depth int) error {
	if depth > w.in.opts.Depth {
		return errorf(ErrLimit, "values %d deep", depth)
	}
	if err := w.in.step(); err != nil {
		return err
	}
	before := w.b.Len()
	switch v := unmark(v).(type) {
	case nil:
		w.b.WriteString("null")
	case bool:
		w.b.WriteString(strconv.FormatBool(v))
	case int64:
		w.b.WriteString(strconv.FormatInt(v, 10))
	case *big.Int:
		w.b.WriteString(v.String())
	case float64:
		w.b.WriteString(python.FloatJSON(v))
	case string:
		w.str(v)
	case *list:
		return w.series(v.items, depth)
	case *tuple:
		return w.series(v.items, depth)
	case *Object:
		return w.object(v, depth)
	default:
		return errorf(ErrRender, "an object of type %s is not JSON serializable", typeName(v))
	}
	return w.in.take(w.b.Len() - before)
}

func (w *jsonWriter) newline(depth int) error {
	if !w.lines {
		return nil
	}
	w.b.WriteByte('\n')
	for range depth {
		w.b.WriteString(w.indent)
	}
	return w.in.take(1 + depth*len(w.indent))
}

func (w *jsonWriter) series(items []any, depth int) error {
	if len(items) == 0 {
		w.b.WriteString("[]")
		return w.in.take(2)
	}
	w.b.WriteByte('[')
	for i, e := range items {
		if i > 0 {
			w.b.WriteString(w.item)
		}
		if err := w.newline(depth + 1); err != nil {
			return err
		}
		if err := w.value(e, depth+1); err != nil {
			return err
		}
	}
	if err := w.newline(depth); err != nil {
		return err
	}
	w.b.WriteByte(']')
	return w.in.take(len(w.item) * len(items))
}

func (w *jsonWriter) object(o *Object, depth int) error {
	if len(o.keys) == 0 {
		w.b.WriteString("{}")
		return w.in.take(2)
	}
	order := make([]int, len(o.keys))
	for i := range order {
		order[i] = i
	}
	if w.sortKeys {
		var failed error
		slices.SortStableFunc(order, func(i, j int) int {
			less, err := w.in.ordered("<", o.keys[i], o.keys[j], 0)
			if err == nil && less {
				return -1
			}
			more, err2 := w.in.ordered(">", o.keys[i], o.keys[j], 0)
			if failed == nil && err != nil {
				failed = err
			}
			if err2 == nil && more {
				return 1
			}
			return 0
		})
		if failed != nil {
			return failed
		}
	}
	w.b.WriteByte('{')
	for n, i := range order {
		if n > 0 {
			w.b.WriteString(w.item)
		}
		if err := w.newline(depth + 1); err != nil {
			return err
		}
		switch k := o.keys[i].(type) {
		case string:
			w.str(k)
		case float64:
			w.str(python.FloatJSON(k))
		case nil:
			w.str("null")
		case bool:
			w.str(strconv.FormatBool(k))
		case int64:
			w.str(strconv.FormatInt(k, 10))
		default:
			return errorf(ErrRender, "keys must be str, int, float, bool or None, not %s", typeName(k))
		}
		w.b.WriteString(w.key)
		if err := w.value(o.values[i], depth+1); err != nil {
			return err
		}
	}
	if err := w.newline(depth); err != nil {
		return err
	}
	w.b.WriteByte('}')
	return w.in.take((len(w.item) + len(w.key)) * len(order))
}

func (w *jsonWriter) str(s string) {
	const digits = "0123456789abcdef"
	unit := func(u uint16) {
		w.b.WriteString(`\u`)
		for shift := 12; shift >= 0; shift -= 4 {
			w.b.WriteByte(digits[u>>shift&15])
		}
	}
	w.b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.b.WriteByte('\\')
			w.b.WriteByte(byte(r))
		case r == '\n':
			w.b.WriteString(`\n`)
		case r == '\r':
			w.b.WriteString(`\r`)
		case r == '\t':
			w.b.WriteString(`\t`)
		case r == '\b':
			w.b.WriteString(`\b`)
		case r == '\f':
			w.b.WriteString(`\f`)
		case r < ' ' || w.ascii && r == 0x7f:
			unit(uint16(r))
		case w.ascii && r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			unit(uint16(hi))
			unit(uint16(lo))
		case w.ascii && r > 0x7f:
			unit(uint16(r))
		default:
			w.b.WriteRune(r)
		}
	}
	w.b.WriteByte('"')
}

// toJSON is the filter tojson of transformers.
func toJSON(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("tojson", args, kwargs, "value / ensure_ascii indent separators sort_keys")
	if err != nil {
		return nil, err
	}
	w := &jsonWriter{in: in, item: ", ", key: ": "}
	if w.ascii, err = truth(or(p[1], false)); err != nil {
		return nil, err
	}
	if w.sortKeys, err = truth(or(p[4], false)); err != nil {
		return nil, err
	}
	switch indent := or(p[2], nil).(type) {
	case nil:
	case string:
		w.lines, w.indent, w.item = true, indent, ","
	default:
		n, err := wantInt("tojson", indent)
		if err != nil {
			return nil, err
		}
		if n > maxPrecision {
			return nil, errorf(ErrLimit, "an indent of %d", n)
		}
		w.lines, w.indent, w.item = true, strings.Repeat(" ", int(max(n, 0))), ","
	}
	if separators := or(p[3], nil); separators != nil {
		pair, err := in.collect(separators)
		if err != nil {
			return nil, err
		}
		if len(pair) != 2 {
			return nil, errorf(ErrRender, "separators must be two")
		}
		if w.item, err = wantString("separators", pair[0]); err != nil {
			return nil, err
		}
		if w.key, err = wantString("separators", pair[1]); err != nil {
			return nil, err
		}
	}
	if err := w.value(p[0], 0); err != nil {
		return nil, err
	}
	return w.b.String(), nil
}
