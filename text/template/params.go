package template

import "strings"

// absent is a parameter that a call did not pass.
type absent struct{}

// bind is bindRaw with plain strings for markup.
func bind(what string, args []any, kwargs *Object, params string) ([]any, error) {
	p, err := bindRaw(what, args, kwargs, params)
	for i := range p {
		p[i] = unmark(p[i])
	}
	return p, err
}

// bindRaw puts a call's arguments in the order of its parameters. Those after "/" are optional.
func bindRaw(what string, args []any, kwargs *Object, params string) ([]any, error) {
	names := strings.Fields(params)
	required := len(names)
	for i, n := range names {
		if n == "/" {
			required = i
			names = append(names[:i:i], names[i+1:]...)
			break
		}
	}
	if len(args) > len(names) {
		return nil, errorf(ErrRender, "%s takes at most %d arguments (%d given)", what, len(names), len(args))
	}
	bound := make([]any, len(names))
	for i := range bound {
		bound[i] = absent{}
		if i < len(args) {
			bound[i] = args[i]
		}
	}
	for _, k := range kwargs.Keys() {
		i := -1
		for j, n := range names {
			if n == k {
				i = j
			}
		}
		if i < 0 {
			return nil, errorf(ErrRender, "%s got an unexpected keyword argument '%s'", what, k)
		}
		if i < len(args) {
			return nil, errorf(ErrRender, "%s got multiple values for argument '%s'", what, k)
		}
		bound[i], _ = kwargs.Get(k)
	}
	for i := range required {
		if isAbsent(bound[i]) {
			return nil, errorf(ErrRender, "%s is missing argument '%s'", what, names[i])
		}
	}
	return bound, nil
}

func isAbsent(v any) bool {
	_, ok := v.(absent)
	return ok
}

func or(v, otherwise any) any {
	if isAbsent(v) {
		return otherwise
	}
	return v
}

// wantString and the like take a parameter that must have a type.
func wantString(what string, v any) (string, error) {
	if s, ok := unmark(v).(string); ok {
		return s, nil
	}
	return "", errorf(ErrRender, "%s needs a string, not %s", what, typeName(v))
}

func wantInt(what string, v any) (int64, error) {
	if i, ok := integer(v); ok {
		return i, nil
	}
	if u, ok := v.(*undefined); ok {
		return 0, u.fail()
	}
	return 0, errorf(ErrRender, "%s needs an integer, not %s", what, typeName(v))
}

// without returns the object less a key.
func (o *Object) without(key string) *Object {
	c := NewObject()
	for i, k := range o.keys {
		if k != any(key) {
			h, err := hashable(k)
			if err != nil {
				panic("BUG: a key that is unhashable")
			}
			c.put(h, k, o.values[i])
		}
	}
	return c
}
