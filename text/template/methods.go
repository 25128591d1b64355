package template

import (
	"math"
	"strings"
	"unicode"

	"github.com/optimem/optimem/text/template/internal/python"
)

type methodFunc func(in *interp, args []any, kwargs *Object) (any, error)

// method returns a method of a built-in type, nil if there is none.
func method(of any, name string) any {
	var f methodFunc
	switch of := of.(type) {
	case string:
		if m := stringMethods[name]; m != nil {
			f = func(in *interp, args []any, kwargs *Object) (any, error) { return m(in, of, args, kwargs) }
		}
	case *Object:
		f = dictMethod(of, name)
	case *list:
		f = seriesMethod(of.items, name)
		if name == "copy" {
			f = func(in *interp, _ []any, _ *Object) (any, error) {
				return &list{join(of.items, nil)}, in.take(16 * len(of.items))
			}
		}
	case *tuple:
		f = seriesMethod(of.items, name)
	case *span:
		if name == "count" || name == "index" {
			f = func(in *interp, args []any, kwargs *Object) (any, error) {
				items, err := in.collect(of)
				if err != nil {
					return nil, err
				}
				return seriesMethod(items, name)(in, args, kwargs)
			}
		}
	case float64:
		if name == "is_integer" {
			f = func(*interp, []any, *Object) (any, error) { return of == math.Trunc(of), nil }
		}
	}
	if f == nil {
		return nil
	}
	return &function{name, f}
}

func dictMethod(o *Object, name string) methodFunc {
	switch name {
	case "keys", "values", "items":
		return func(_ *interp, args []any, kwargs *Object) (any, error) {
			_, err := bind(name, args, kwargs, "")
			return &view{o, name}, err
		}
	case "copy":
		return func(in *interp, _ []any, _ *Object) (any, error) { return o.clone(), in.take(64 * len(o.keys)) }
	case "get":
		return func(_ *interp, args []any, kwargs *Object) (any, error) {
			if kwargs.Len() > 0 {
				return nil, errorf(ErrRender, "get takes no keyword arguments")
			}
			p, err := bind(name, args, kwargs, "key / default")
			if err != nil {
				return nil, err
			}
			v, ok, err := o.lookup(p[0])
			if !ok {
				v = or(p[1], nil)
			}
			return v, err
		}
	}
	return nil
}

func seriesMethod(items []any, name string) methodFunc {
	switch name {
	case "count":
		return func(in *interp, args []any, kwargs *Object) (any, error) {
			p, err := bind(name, args, kwargs, "value")
			if err != nil {
				return nil, err
			}
			n := int64(0)
			for _, e := range items {
				ok, err := in.equal(e, p[0], 0)
				if err != nil {
					return nil, err
				}
				if ok {
					n++
				}
			}
			return n, nil
		}
	case "index":
		return func(in *interp, args []any, kwargs *Object) (any, error) {
			p, err := bind(name, args, kwargs, "value / start stop")
			if err != nil {
				return nil, err
			}
			r, err := window(p[1:], len(items))
			if err != nil {
				return nil, err
			}
			for i := r.start; i < r.stop; i++ {
				if ok, err := in.equal(items[i], p[0], 0); err != nil || ok {
					return i, err
				}
			}
			return nil, errorf(ErrRender, "a value is not in the list")
		}
	}
	return nil
}

// window is what start and stop of find and its like select.
func window(p []any, n int) (*span, error) {
	var bounds [3]*int64
	for i, v := range p {
		if v = or(v, nil); v == nil {
			continue
		}
		b, err := wantInt("a position", v)
		if err != nil {
			return nil, err
		}
		bounds[i] = &b
	}
	return sliceOf(bounds, int64(n))
}

var stringMethods map[string]func(in *interp, s string, args []any, kwargs *Object) (any, error)

// whole methods take no argument.
func nullary(f func(s string) any) func(*interp, string, []any, *Object) (any, error) {
	return func(in *interp, s string, args []any, kwargs *Object) (any, error) {
		if _, err := bind("the method", args, kwargs, ""); err != nil {
			return nil, err
		}
		return f(s), in.take(2 * len(s))
	}
}

func init() {
	stringMethods = map[string]func(*interp, string, []any, *Object) (any, error){
		"upper":      nullary(func(s string) any { return python.Upper(s) }),
		"lower":      nullary(func(s string) any { return python.Lower(s) }),
		"title":      nullary(func(s string) any { return python.Title(s) }),
		"capitalize": nullary(func(s string) any { return python.Capitalize(s) }),
		"swapcase":   nullary(func(s string) any { return python.SwapCase(s) }),
		"casefold":   nullary(func(s string) any { return python.CaseFold(s) }),
		"isalpha":    nullary(func(s string) any { return python.Every(s, unicode.IsLetter) }),
		"isalnum": nullary(func(s string) any {
			return python.Every(s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
		}),
		"isascii":      nullary(func(s string) any { return python.IsASCII(s) }),
		"isdecimal":    nullary(func(s string) any { return python.Every(s, python.IsDecimal) }),
		"isdigit":      nullary(func(s string) any { return python.Every(s, python.IsDigit) }),
		"isnumeric":    nullary(func(s string) any { return python.Every(s, unicode.IsNumber) }),
		"isspace":      nullary(func(s string) any { return python.Every(s, python.IsSpace) }),
		"isprintable":  nullary(func(s string) any { return s == "" || python.Every(s, unicode.IsPrint) }),
		"islower":      nullary(func(s string) any { return python.CasedAs(s, unicode.IsLower) }),
		"isupper":      nullary(func(s string) any { return python.CasedAs(s, unicode.IsUpper) }),
		"istitle":      nullary(func(s string) any { return python.IsTitle(s) }),
		"isidentifier": nullary(func(s string) any { return python.IsIdentifier(s) }),
		"strip":        stripper(strings.TrimFunc),
		"lstrip":       stripper(strings.TrimLeftFunc),
		"rstrip":       stripper(strings.TrimRightFunc),
		"startswith":   affix(strings.HasPrefix),
		"endswith":     affix(strings.HasSuffix),
		"removeprefix": remover(strings.TrimPrefix),
		"removesuffix": remover(strings.TrimSuffix),
		"find":         finder(strings.Index, false),
		"rfind":        finder(strings.LastIndex, false),
		"index":        finder(strings.Index, true),
		"rindex":       finder(strings.LastIndex, true),
		"split":        splitMethod,
		"rsplit":       rsplitMethod,
		"splitlines":   splitlinesMethod,
		"replace":      replaceMethod,
		"join":         joinMethod,
		"count":        countMethod,
		"partition":    partition(strings.Index, false),
		"rpartition":   partition(strings.LastIndex, true),
		"center":       justify(true, true),
		"ljust":        justify(false, true),
		"rjust":        justify(true, false),
		"zfill":        zfillMethod,
		"expandtabs":   expandtabsMethod,
		"format":       formatMethod,
		"format_map":   formatMapMethod,
	}
}

func stripper(trim func(string, func(rune) bool) string) func(*interp, string, []any, *Object) (any, error) {
	return func(_ *interp, s string, args []any, kwargs *Object) (any, error) {
		if kwargs.Len() > 0 {
			return nil, errorf(ErrRender, "strip takes no keyword arguments")
		}
		p, err := bind("strip", args, kwargs, "/ chars")
		if err != nil {
			return nil, err
		}
		chars := or(p[0], nil)
		if chars == nil {
			return trim(s, python.IsSpace), nil
		}
		set, err := wantString("strip", chars)
		return trim(s, func(r rune) bool { return strings.ContainsRune(set, r) }), err
	}
}

// positional refuses keyword arguments, which most methods of Python's strings do not take.
func positional(what string, args []any, kwargs *Object, params string) ([]any, error) {
	if kwargs.Len() > 0 {
		return nil, errorf(ErrRender, "%s takes no keyword arguments", what)
	}
	return bind(what, args, kwargs, params)
}

// cut returns the part of a string between two positions of characters, and whether start lies within it.
func cut(s string, p []any) (string, int, bool, error) {
	n := runeCount(s)
	r, err := window(p, n)
	if err != nil {
		return "", 0, false, err
	}
	within := true
	if start, ok := integer(or(p[0], nil)); ok && start > int64(n) {
		within = false
	}
	if r.stop < r.start {
		return "", int(r.start), false, nil
	}
	return s[python.RuneOffset(s, r.start):python.RuneOffset(s, r.stop)], int(r.start), within, nil
}

func affix(has func(s, affix string) bool) func(*interp, string, []any, *Object) (any, error) {
	return func(_ *interp, s string, args []any, kwargs *Object) (any, error) {
		p, err := positional("startswith", args, kwargs, "prefix / start end")
		if err != nil {
			return nil, err
		}
		part, _, within, err := cut(s, p[1:])
		if err != nil {
			return nil, err
		}
		some := []any{p[0]}
		if t, ok := p[0].(*tuple); ok {
			some = t.items
		}
		for _, a := range some {
			a, err := wantString("startswith and endswith", a)
			if err != nil {
				return nil, err
			}
			if within && has(part, a) {
				return true, nil
			}
		}
		return false, nil
	}
}

func remover(trim func(s, affix string) string) func(*interp, string, []any, *Object) (any, error) {
	return func(_ *interp, s string, args []any, kwargs *Object) (any, error) {
		p, err := positional("removeprefix", args, kwargs, "affix")
		if err != nil {
			return nil, err
		}
		a, err := wantString("removeprefix and removesuffix", p[0])
		return trim(s, a), err
	}
}

func finder(find func(s, sub string) int, must bool) func(*interp, string, []any, *Object) (any, error) {
	return func(_ *interp, s string, args []any, kwargs *Object) (any, error) {
		p, err := positional("find", args, kwargs, "sub / start end")
		if err != nil {
			return nil, err
		}
		sub, err := wantString("find", p[0])
		if err != nil {
			return nil, err
		}
		part, start, within, err := cut(s, p[1:])
		if err != nil {
			return nil, err
		}
		i := find(part, sub)
		if i < 0 || !within {
			if must {
				return nil, errorf(ErrRender, "substring not found")
			}
			return int64(-1), nil
		}
		return int64(start + runeCount(part[:i])), nil
	}
}

func texts(parts []string) any {
	items := make([]any, len(parts))
	for i, p := range parts {
		items[i] = p
	}
	return &list{items}
}

// splitParams returns the separator, "" for white space, and how often to split, -1 for always.
func splitParams(args []any, kwargs *Object) (string, int, error) {
	p, err := bind("split", args, kwargs, "/ sep maxsplit")
	if err != nil {
		return "", 0, err
	}
	limit, err := wantInt("split", or(p[1], int64(-1)))
	if err != nil {
		return "", 0, err
	}
	limit = max(-1, min(limit, math.MaxInt32))
	sep := or(p[0], nil)
	if sep == nil {
		return "", int(limit), nil
	}
	s, err := wantString("split", sep)
	if err == nil && s == "" {
		err = errorf(ErrRender, "empty separator")
	}
	return s, int(limit), err
}

func splitMethod(in *interp, s string, args []any, kwargs *Object) (any, error) {
	sep, limit, err := splitParams(args, kwargs)
	if err != nil {
		return nil, err
	}
	if sep != "" {
		n := strings.Count(s, sep)
		if limit >= 0 {
			n = min(n, limit)
		}
		return texts(strings.SplitN(s, sep, n+1)), in.take(16*n + len(s))
	}
	var parts []string
	for s = strings.TrimLeftFunc(s, python.IsSpace); s != ""; s = strings.TrimLeftFunc(s, python.IsSpace) {
		end := strings.IndexFunc(s, python.IsSpace)
		if end < 0 || limit >= 0 && len(parts) == limit {
			end = len(s)
		}
		parts = append(parts, s[:end])
		s = s[end:]
	}
	return texts(parts), in.take(16*len(parts) + len(s))
}

func rsplitMethod(in *interp, s string, args []any, kwargs *Object) (any, error) {
	sep, limit, err := splitParams(args, kwargs)
	if err != nil {
		return nil, err
	}
	var parts []string
	done := false
	for !done {
		full := limit >= 0 && len(parts) == limit
		var part string
		if sep == "" {
			s = strings.TrimRightFunc(s, python.IsSpace)
			if s == "" {
				break
			}
			i := strings.LastIndexFunc(s, python.IsSpace)
			if done = i < 0 || full; done {
				part = s
			} else {
				_, n := python.FirstRune(s[i:])
				part, s = s[i+n:], s[:i]
			}
		} else {
			i := strings.LastIndex(s, sep)
			if done = i < 0 || full; done {
				part = s
			} else {
				part, s = s[i+len(sep):], s[:i]
			}
		}
		parts = append(parts, part)
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return texts(parts), in.take(16*len(parts) + len(s))
}

func splitlinesMethod(in *interp, s string, args []any, kwargs *Object) (any, error) {
	p, err := bind("splitlines", args, kwargs, "/ keepends")
	if err != nil {
		return nil, err
	}
	keep, err := truth(or(p[0], false))
	if err != nil {
		return nil, err
	}
	lines := python.SplitLines(s, keep)
	return texts(lines), in.take(16 * len(lines))
}

// replace is str.replace within what memory is left.
func (in *interp) replace(s, old, new string, n int64) (any, error) {
	count := int64(strings.Count(s, old))
	if n >= 0 && n < count {
		count = n
	}
	if size := count*int64(len(new)-len(old)) + int64(len(s)); size > in.opts.MemoryBytes {
		return nil, in.take(int(size))
	}
	if err := in.take(len(s) + int(count)*max(0, len(new)-len(old))); err != nil {
		return nil, err
	}
	return strings.Replace(s, old, new, int(count)), nil
}

func replaceMethod(in *interp, s string, args []any, kwargs *Object) (any, error) {
	p, err := positional("replace", args, kwargs, "old new / count")
	if err != nil {
		return nil, err
	}
	old, err := wantString("replace", p[0])
	if err != nil {
		return nil, err
	}
	with, err := wantString("replace", p[1])
	if err != nil {
		return nil, err
	}
	n, err := wantInt("replace", or(p[2], int64(-1)))
	if err != nil {
		return nil, err
	}
	return in.replace(s, old, with, n)
}

func joinMethod(in *interp, s string, args []any, kwargs *Object) (any, error) {
	p, err := positional("join", args, kwargs, "iterable")
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	first := true
	err = in.iterate(p[0], func(e any) (bool, error) {
		t, err := wantString("join", e)
		if err != nil {
			return false, err
		}
		if !first {
			b.WriteString(s)
		}
		first = false
		b.WriteString(t)
		return true, in.take(len(s) + len(t))
	})
	return b.String(), err
}

func countMethod(_ *interp, s string, args []any, kwargs *Object) (any, error) {
	p, err := positional("count", args, kwargs, "sub / start end")
	if err != nil {
		return nil, err
	}
	sub, err := wantString("count", p[0])
	if err != nil {
		return nil, err
	}
	part, _, within, err := cut(s, p[1:])
	if err != nil || !within {
		return int64(0), err
	}
	return int64(strings.Count(part, sub)), nil
}

func partition(find func(s, sep string) int, last bool) func(*interp, string, []any, *Object) (any, error) {
	return func(_ *interp, s string, args []any, kwargs *Object) (any, error) {
		p, err := positional("partition", args, kwargs, "sep")
		if err != nil {
			return nil, err
		}
		sep, err := wantString("partition", p[0])
		if err != nil {
			return nil, err
		}
		if sep == "" {
			return nil, errorf(ErrRender, "empty separator")
		}
		switch i := find(s, sep); {
		case i >= 0:
			return &tuple{[]any{s[:i], sep, s[i+len(sep):]}}, nil
		case last:
			return &tuple{[]any{"", "", s}}, nil
		}
		return &tuple{[]any{s, "", ""}}, nil
	}
}

// pad adds fill on both sides up to a width, as str.center does if both are wanted.
func (in *interp) pad(s string, width int64, fill string, left, right bool) (string, error) {
	n := width - int64(runeCount(s))
	if n <= 0 {
		return s, nil
	}
	if n > in.opts.MemoryBytes {
		return "", in.take(int(in.opts.MemoryBytes) + 1)
	}
	if err := in.take(len(s) + int(n)*len(fill)); err != nil {
		return "", err
	}
	before := n
	switch {
	case left && right:
		before = n/2 + (n & width & 1)
	case right:
		before = 0
	}
	return strings.Repeat(fill, int(before)) + s + strings.Repeat(fill, int(n-before)), nil
}

func justify(left, right bool) func(*interp, string, []any, *Object) (any, error) {
	return func(in *interp, s string, args []any, kwargs *Object) (any, error) {
		p, err := positional("center", args, kwargs, "width / fillchar")
		if err != nil {
			return nil, err
		}
		width, err := wantInt("center", p[0])
		if err != nil {
			return nil, err
		}
		fill, err := wantString("center", or(p[1], " "))
		if err != nil {
			return nil, err
		}
		if runeCount(fill) != 1 {
			return nil, errorf(ErrRender, "the fill character must be exactly one character long")
		}
		return in.pad(s, width, fill, left, right)
	}
}

func zfillMethod(in *interp, s string, args []any, kwargs *Object) (any, error) {
	p, err := positional("zfill", args, kwargs, "width")
	if err != nil {
		return nil, err
	}
	width, err := wantInt("zfill", p[0])
	if err != nil {
		return nil, err
	}
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	padded, err := in.pad(s, width-int64(len(sign)), "0", true, false)
	return sign + padded, err
}

func expandtabsMethod(in *interp, s string, args []any, kwargs *Object) (any, error) {
	p, err := bind("expandtabs", args, kwargs, "/ tabsize")
	if err != nil {
		return nil, err
	}
	size, err := wantInt("expandtabs", or(p[0], int64(8)))
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	column := int64(0)
	for _, r := range s {
		switch r {
		case '\t':
			if size > 0 {
				n := size - column%size
				if n > in.opts.MemoryBytes {
					return nil, in.take(int(in.opts.MemoryBytes) + 1)
				}
				if err := in.take(int(n)); err != nil {
					return nil, err
				}
				b.WriteString(strings.Repeat(" ", int(n)))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1
		}
		column++
		b.WriteRune(r)
	}
	return b.String(), in.take(len(s))
}
