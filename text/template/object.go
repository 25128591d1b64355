package template

import (
	"math"
	"math/big"
	"slices"
	"strconv"
)

// An Object is a Python dict: keys in the order in which they came.
type Object struct {
	keys   []any
	values []any
	index  map[any]int
}

// NewObject returns an empty object.
func NewObject() *Object { return &Object{} }

// Set gives a key a value, and returns the object. A key that is there keeps its place.
func (o *Object) Set(key string, value any) *Object {
	o.put(key, key, value)
	return o
}

// Get returns the value of a key.
func (o *Object) Get(key string) (any, bool) {
	if o == nil {
		return nil, false
	}
	i, ok := o.index[key]
	if !ok {
		return nil, false
	}
	return o.values[i], true
}

// Len returns the number of keys.
func (o *Object) Len() int {
	if o == nil {
		return 0
	}
	return len(o.keys)
}

// Keys returns the keys that are strings, in order. JSON has no others.
func (o *Object) Keys() []string {
	var keys []string
	for _, k := range o.keys {
		if s, ok := k.(string); ok {
			keys = append(keys, s)
		}
	}
	return keys
}

// put stores under a hash that hashable returned.
func (o *Object) put(hash, key, value any) {
	if i, ok := o.index[hash]; ok {
		o.values[i] = value
		return
	}
	if o.index == nil {
		o.index = make(map[any]int)
	}
	o.index[hash] = len(o.keys)
	o.keys = append(o.keys, key)
	o.values = append(o.values, value)
}

func (o *Object) clone() *Object {
	c := &Object{keys: slices.Clone(o.keys), values: slices.Clone(o.values), index: make(map[any]int, len(o.keys))}
	for k, i := range o.index {
		c.index[k] = i
	}
	return c
}

// lookup finds a key of any kind. An unhashable one is a TypeError in Python.
func (o *Object) lookup(key any) (any, bool, error) {
	h, err := hashable(key)
	if err != nil {
		return nil, false, err
	}
	i, ok := o.index[h]
	if !ok {
		return nil, false, nil
	}
	return o.values[i], true, nil
}

type (
	noneKey      struct{}
	undefinedKey struct{}
	tupleKey     string
	identity     struct{ p any }
)

// hashable returns what stands for a value in a map of Go: equal values of Python have equal ones, so True is 1 and 1.0 too.
func hashable(v any) (any, error) {
	switch v := unmark(v).(type) {
	case nil:
		return noneKey{}, nil
	case string:
		return v, nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case int64:
		return v, nil
	case *big.Int:
		return tupleKey("i" + v.String()), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int64(v), nil
		}
		return v, nil
	case *tuple:
		key := "("
		for _, e := range v.items {
			h, err := hashable(e)
			if err != nil {
				return nil, err
			}
			switch h := h.(type) {
			case string:
				key += "s" + strconv.Quote(h)
			case int64:
				key += "i" + strconv.FormatInt(h, 10)
			case float64:
				key += "f" + strconv.FormatFloat(h, 'g', -1, 64)
			case tupleKey:
				key += string(h)
			case noneKey:
				key += "n"
			default:
				return nil, errorf(ErrUnsupported, "a tuple with %s in it as a key", typeName(e))
			}
			key += ","
		}
		return tupleKey(key + ")"), nil
	case *list, *Object, *namespace:
		return nil, errorf(ErrRender, "unhashable type: '%s'", typeName(v))
	case *undefined:
		return undefinedKey{}, nil
	}
	return identity{v}, nil
}
