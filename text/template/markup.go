package template

import "slices"

// A markup is a string that the filters safe and escape made: what is added to it is escaped for HTML. Nothing else escapes.
type markup string

// unmark returns a markup's text, and every other value as it is.
func unmark(v any) any {
	if m, ok := v.(markup); ok {
		return string(m)
	}
	return v
}

// remark makes texts, and those in a list or a tuple, markup again.
func remark(v any) any {
	switch v := v.(type) {
	case string:
		return markup(v)
	case *list:
		return &list{remarkAll(v.items)}
	case *tuple:
		return &tuple{remarkAll(v.items)}
	}
	return v
}

func remarkAll(items []any) []any {
	marked := make([]any, len(items))
	for i, e := range items {
		marked[i] = remark(e)
	}
	return marked
}

// escaped is markupsafe's escape.
func (in *interp) escaped(v any) (string, error) {
	if m, ok := v.(markup); ok {
		return string(m), nil
	}
	s, err := in.str(v)
	if err != nil {
		return "", err
	}
	s = escaper.Replace(s)
	return s, in.take(len(s))
}

// plainMethods are the methods that markup has from str.
var plainMethods = []string{
	"count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower",
	"isnumeric", "isprintable", "isspace", "istitle", "isupper", "rfind", "rindex", "startswith",
}

// markupMethod is a method of markup: a string's, with markup as its result.
func markupMethod(m markup, name string) any {
	f := method(string(m), name)
	if f == nil || slices.Contains(plainMethods, name) {
		return f
	}
	escapes := map[string]int{"replace": 1, "ljust": 1, "rjust": 1, "center": 1} // which argument
	return &function{name, func(in *interp, args []any, kwargs *Object) (any, error) {
		switch name {
		case "format", "format_map":
			old := in.escaping
			in.escaping = true
			defer func() { in.escaping = old }()
		case "join":
			if len(args) == 1 {
				items, err := in.collect(args[0])
				if err != nil {
					return nil, err
				}
				for i, e := range items {
					if items[i], err = in.escaped(e); err != nil {
						return nil, err
					}
				}
				args = []any{&list{items}}
			}
		}
		if i, ok := escapes[name]; ok && i < len(args) {
			s, err := in.escaped(args[i])
			if err != nil {
				return nil, err
			}
			args = slices.Clone(args)
			args[i] = s
		}
		v, err := f.(*function).call(in, args, kwargs)
		return remark(v), err
	}}
}

// binaryMarkup is an operator of which an operand is markup. false: it is one of str's.
func (in *interp) binaryMarkup(op string, left, right any) (any, bool, error) {
	l, leftMarked := left.(markup)
	_, rightMarked := right.(markup)
	if !leftMarked && !rightMarked {
		return nil, false, nil
	}
	switch op {
	case "+":
		_, leftText := unmark(left).(string)
		_, rightText := unmark(right).(string)
		if !leftText || !rightText {
			return nil, false, nil
		}
		a, err := in.escaped(left)
		if err != nil {
			return nil, true, err
		}
		b, err := in.escaped(right)
		if err != nil {
			return nil, true, err
		}
		return markup(a + b), true, in.take(len(a) + len(b))
	case "*":
		v, err := in.binary(op, unmark(left), unmark(right))
		return remark(v), true, err
	case "%":
		if !leftMarked {
			return nil, false, nil
		}
		old := in.escaping
		in.escaping = true
		v, err := in.percent(string(l), right)
		in.escaping = old
		return remark(v), true, err
	}
	return nil, false, nil
}
