package grammar

import (
	"bytes"
	"encoding/json"
	"io"
	"math/big"
	"strconv"
	"strings"
)

// A value is a JSON value: nil, bool, json.Number, string, []any or *members.

// members is an object whose keys keep their order.
type members struct {
	keys   []string
	values map[string]any
}

func (o *members) get(key string) (any, bool) {
	v, ok := o.values[key]
	return v, ok
}

func parseJSON(doc []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	v, err := decodeJSON(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errorf(ErrSyntax, "", "JSON goes on after its value")
	}
	return v, nil
}

func decodeJSON(d *json.Decoder, depth int) (any, error) {
	if depth > maxNesting {
		return nil, errorf(ErrLimit, "", "JSON %d deep", depth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, errorf(ErrSyntax, "", "JSON: %v", err)
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	var items []any
	o := &members{values: make(map[string]any)}
	for d.More() {
		if delim == '[' {
			v, err := decodeJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			items = append(items, v)
			continue
		}
		key, err := d.Token()
		if err != nil {
			return nil, errorf(ErrSyntax, "", "JSON: %v", err)
		}
		k := key.(string)
		if _, twice := o.values[k]; twice {
			return nil, errorf(ErrSyntax, "", "the key %q stands twice", k)
		}
		v, err := decodeJSON(d, depth+1)
		if err != nil {
			return nil, err
		}
		o.keys = append(o.keys, k)
		o.values[k] = v
	}
	if _, err := d.Token(); err != nil {
		return nil, errorf(ErrSyntax, "", "JSON: %v", err)
	}
	if delim == '[' {
		return items, nil
	}
	return o, nil
}

// rational is the exact value of a number whose exponent is of a sane size.
func rational(n json.Number) (*big.Rat, bool) {
	s := strings.ToLower(n.String())
	if _, exponent, ok := strings.Cut(s, "e"); ok {
		if e, err := strconv.Atoi(exponent); err != nil || e > 400 || e < -400 {
			return nil, false
		}
	}
	if len(s) > 1000 {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// sameJSON compares values as JSON schemas do: numbers by value, objects without order.
func sameJSON(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		if !ok {
			return false
		}
		x, ok := rational(a)
		y, ok2 := rational(b)
		return ok && ok2 && x.Cmp(y) == 0
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameJSON(a[i], b[i]) {
				return false
			}
		}
		return true
	case *members:
		b, ok := b.(*members)
		if !ok || len(a.keys) != len(b.keys) {
			return false
		}
		for _, k := range a.keys {
			v, ok := b.values[k]
			if !ok || !sameJSON(a.values[k], v) {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case []any, *members:
		return false
	}
	return a == b
}

// typeOf is the name of a value's type in schemas.
func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		if r, ok := rational(v); ok && r.IsInt() {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}
