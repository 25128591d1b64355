package pickle

import (
	"math/big"

	"github.com/nlpodyssey/gopickle/types"
)

// An Object is an instance of a class that is only a name here, or of a Python type beyond the plain ones. It holds
// what the pickle said about it and does nothing.
type Object struct {
	class *class
	args  []any
	body  *objectBody
}

type objectBody struct {
	state any
	items []any
	dict  *table
}

// Class returns the object's class.
func (o *Object) Class() Global { return o.class.global }

// Args returns what the object was made with. NEWOBJ_EX adds the dict of keywords as the last one.
func (o *Object) Args() []any { return o.args }

// State returns the argument of the last BUILD, nil without one.
func (o *Object) State() any {
	if o.body == nil {
		return nil
	}
	return o.body.state
}

// Items returns what was appended or added to the object, in order: the items of a list, deque or set subclass.
func (o *Object) Items() []any {
	if o.body == nil {
		return nil
	}
	return o.body.items
}

// Entries returns the items that were set on the object, as Dict does: those of a dict subclass.
func (o *Object) Entries() []Entry {
	if o.body == nil || o.body.dict == nil {
		return nil
	}
	return o.body.dict.entries
}

// Attrs returns the attributes that the state sets as Python would without a __setstate__: the items of a dict, or of
// both dicts of a pair (instance and slots). For any other state it is nil.
func (o *Object) Attrs() []Entry {
	state := o.State()
	if d, ok := Dict(state); ok {
		return d
	}
	if t, ok := Tuple(state); ok && len(t) == 2 {
		instance, ok1 := Dict(t[0])
		slots, ok2 := Dict(t[1])
		if (ok1 || t[0] == nil) && (ok2 || t[1] == nil) {
			return append(instance[:len(instance):len(instance)], slots...)
		}
	}
	return nil
}

// IsNone tells whether v is None.
func IsNone(v any) bool { return v == nil }

// Bool returns a bool.
func Bool(v any) (bool, bool) {
	b, ok := v.(bool)
	return b, ok
}

// Int returns an int that fits in 64 bits. A bool is not an int here.
func Int(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case *big.Int:
		return v.Int64(), v.IsInt64()
	}
	return 0, false
}

// bigInt returns an int of any size.
func bigInt(v any) (*big.Int, bool) {
	switch v := v.(type) {
	case int:
		return big.NewInt(int64(v)), true
	case *big.Int:
		return v, true
	}
	return nil, false
}

// Float returns a float. An int is not a float here.
func Float(v any) (float64, bool) {
	f, ok := v.(float64)
	return f, ok
}

// String returns a str. One that Python 3 wrote is UTF-8; Python 2's str, which may be text or bytes, comes as it is.
func String(v any) (string, bool) {
	s, ok := v.(string)
	return s, ok
}

// Bytes returns bytes or a bytearray.
func Bytes(v any) ([]byte, bool) {
	switch v := v.(type) {
	case []byte:
		return v, true
	case *types.ByteArray:
		return *v, true
	}
	return nil, false
}

// Tuple returns the items of a tuple.
func Tuple(v any) ([]any, bool) {
	if t, ok := v.(*types.Tuple); ok {
		return *t, true
	}
	return nil, false
}

// List returns the items of a list.
func List(v any) ([]any, bool) {
	if l, ok := v.(*types.List); ok {
		return *l, true
	}
	return nil, false
}

// Set returns the items of a set or frozenset, in the order of the file.
func Set(v any) ([]any, bool) {
	if s, ok := v.(*set); ok {
		return s.items, true
	}
	return nil, false
}

// Dict returns the items of a dict, OrderedDict, defaultdict or Counter as Python would hold them: in the order of
// insertion, the last of several values for a key. Keys that are bytes, tuples or objects count as different unless
// they are the same object.
func Dict(v any) ([]Entry, bool) {
	switch v := v.(type) {
	case *table:
		return v.entries, true
	case *inert:
		if v.class.builtin != nil && v.class.builtin.kind == kindMapping {
			return v.Entries(), true
		}
	}
	return nil, false
}

// AsObject returns an inert object; OrderedDict and its kin are objects too, whose attributes are in State.
func AsObject(v any) (*Object, bool) {
	if o, ok := v.(*inert); ok {
		return &o.Object, true
	}
	return nil, false
}

// AsGlobal returns a global that stands as a value.
func AsGlobal(v any) (Global, bool) {
	if c, ok := v.(*class); ok {
		return c.global, true
	}
	return Global{}, false
}

// Result returns what a hook made.
func Result(v any) (any, bool) {
	if r, ok := v.(*result); ok {
		return r.value, true
	}
	return nil, false
}
