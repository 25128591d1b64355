package template

import (
	"strconv"
	"strings"
	"unicode"
)

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

// getter returns what looks an attribute of items up, such as "a.b.0" or a number. nil is the item itself.
func (in *interp) getter(attribute any, fallback any) (func(any) (any, error), error) {
	var parts []any
	switch a := attribute.(type) {
	case nil:
	case string:
		for part := range strings.SplitSeq(a, ".") {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil && n >= 0 && part[0] != '+' {
				parts = append(parts, n)
			} else {
				parts = append(parts, part)
			}
		}
	default:
		parts = []any{a}
	}
	return func(item any) (any, error) {
		var err error
		for _, part := range parts {
			if item, err = in.getItem(item, part); err != nil {
				return nil, err
			}
			if fallback != nil && isUndefined(item) {
				item = fallback
			}
		}
		return item, nil
	}, in.step()
}

// keyed returns the items of a value and what an attribute of them is, in lower case unless case matters.
func (in *interp) keyed(v, attribute, fallback, sensitive any) (items, keys []any, err error) {
	exactly, err := truth(sensitive)
	if err != nil {
		return nil, nil, err
	}
	get, err := in.getter(attribute, fallback)
	if err != nil {
		return nil, nil, err
	}
	if items, err = in.collect(v); err != nil {
		return nil, nil, err
	}
	keys = make([]any, len(items))
	for i, item := range items {
		if keys[i], err = get(item); err != nil {
			return nil, nil, err
		}
		if !exactly {
			keys[i] = ignoreCase(keys[i])
		}
	}
	return items, keys, in.take(16 * len(items))
}

func sortFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("sort", args, kwargs, "value / reverse case_sensitive attribute")
	if err != nil {
		return nil, err
	}
	reverse, err := truth(or(p[1], false))
	if err != nil {
		return nil, err
	}
	items, err := in.collect(p[0])
	if err != nil {
		return nil, err
	}
	keys := make([]any, len(items))
	for i := range keys {
		keys[i] = &list{}
	}
	// Several attributes, with commas between them, make a key of several values.
	attributes := []any{or(p[3], nil)}
	if s, ok := attributes[0].(string); ok {
		attributes = nil
		for part := range strings.SplitSeq(s, ",") {
			attributes = append(attributes, part)
		}
	}
	for _, a := range attributes {
		_, some, err := in.keyed(&list{items}, a, nil, or(p[2], false))
		if err != nil {
			return nil, err
		}
		for i, k := range some {
			l := keys[i].(*list)
			l.items = append(l.items, k)
		}
	}
	sorted, err := in.sortBy(items, keys, reverse)
	if err != nil {
		return nil, err
	}
	return &list{sorted}, nil
}

// generate makes a generator of items that are there already.
func (in *interp) generate(items []any) (any, error) {
	it, err := in.iter(&list{items})
	if err != nil {
		return nil, err
	}
	it.name = "generator"
	return it, nil
}

func uniqueFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("unique", args, kwargs, "value / case_sensitive attribute")
	if err != nil {
		return nil, err
	}
	items, keys, err := in.keyed(p[0], or(p[2], nil), nil, or(p[1], false))
	if err != nil {
		return nil, err
	}
	seen := make(map[any]bool)
	var kept []any
	for i, k := range keys {
		h, err := hashable(k)
		if err != nil {
			return nil, err
		}
		if !seen[h] {
			seen[h] = true
			kept = append(kept, items[i])
		}
	}
	return in.generate(kept)
}

// extreme is min and max.
func extreme(op string) filterFunc {
	return func(in *interp, args []any, kwargs *Object) (any, error) {
		p, err := bind("min and max", args, kwargs, "value / case_sensitive attribute")
		if err != nil {
			return nil, err
		}
		items, keys, err := in.keyed(p[0], or(p[2], nil), nil, or(p[1], false))
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return &undefined{text: "no aggregated item, sequence was empty"}, nil
		}
		best := 0
		for i := 1; i < len(items); i++ {
			ok, err := in.ordered(op, keys[i], keys[best], 0)
			if err != nil {
				return nil, err
			}
			if ok {
				best = i
			}
		}
		return items[best], nil
	}
}

func groupbyFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("groupby", args, kwargs, "value attribute / default case_sensitive")
	if err != nil {
		return nil, err
	}
	attribute, fallback := p[1], or(p[2], nil)
	items, keys, err := in.keyed(p[0], attribute, fallback, or(p[3], false))
	if err != nil {
		return nil, err
	}
	pairs := make([]any, len(items))
	for i := range items {
		pairs[i] = &tuple{[]any{keys[i], items[i]}}
	}
	if pairs, err = in.sortBy(pairs, keys, false); err != nil {
		return nil, err
	}
	get, err := in.getter(attribute, fallback)
	if err != nil {
		return nil, err
	}
	var groups []any
	var last any
	var members *list
	for i, e := range pairs {
		pair := e.(*tuple).items
		same := false
		if i > 0 {
			if same, err = in.equal(last, pair[0], 0); err != nil {
				return nil, err
			}
		}
		if !same {
			key, err := get(pair[1])
			if err != nil {
				return nil, err
			}
			members = &list{}
			groups = append(groups, &tuple{[]any{key, members}})
		}
		last = pair[0]
		members.items = append(members.items, pair[1])
	}
	return &list{groups}, in.take(64 * len(groups))
}

func sumFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("sum", args, kwargs, "iterable / attribute start")
	if err != nil {
		return nil, err
	}
	get, err := in.getter(or(p[1], nil), nil)
	if err != nil {
		return nil, err
	}
	total := or(p[2], int64(0))
	if _, ok := total.(string); ok {
		return nil, errorf(ErrRender, "sum() can't sum strings")
	}
	err = in.iterate(p[0], func(e any) (bool, error) {
		v, err := get(e)
		if err == nil {
			total, err = in.binary("+", total, v)
		}
		return true, err
	})
	return total, err
}

func listFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("list", args, kwargs, "value")
	if err != nil {
		return nil, err
	}
	items, err := in.collect(p[0])
	return &list{items}, err
}

func joinFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("join", args, kwargs, "value / d attribute")
	if err != nil {
		return nil, err
	}
	get, err := in.getter(or(p[2], nil), nil)
	if err != nil {
		return nil, err
	}
	d, err := in.str(or(p[1], ""))
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	first := true
	err = in.iterate(p[0], func(e any) (bool, error) {
		v, err := get(e)
		if err != nil {
			return false, err
		}
		s, err := in.str(v)
		if err != nil {
			return false, err
		}
		if !first {
			b.WriteString(d)
		}
		first = false
		b.WriteString(s)
		return true, in.take(len(d) + len(s))
	})
	return b.String(), err
}

// mapFilter looks up an attribute of every item, or applies a filter to it, as the items are asked for.
func mapFilter(in *interp, args []any, kwargs *Object) (any, error) {
	if ok, err := truth(args[0]); err != nil || !ok {
		return &iterator{name: "generator", next: func() (any, bool, error) { return nil, false, nil }}, err
	}
	var apply func(any) (any, error)
	attribute, ok := kwargs.Get("attribute")
	switch {
	case len(args) == 1 && ok:
		fallback, _ := kwargs.Get("default")
		if rest := kwargs.without("attribute").without("default"); rest.Len() > 0 {
			return nil, errorf(ErrRender, "unexpected keyword argument '%s'", rest.Keys()[0])
		}
		var err error
		if apply, err = in.getter(attribute, fallback); err != nil {
			return nil, err
		}
	case len(args) < 2:
		return nil, errorf(ErrRender, "map requires a filter argument")
	default:
		name, err := wantString("map", args[1])
		if err != nil {
			return nil, err
		}
		apply = func(v any) (any, error) { return in.filter(name, v, args[2:], kwargs) }
	}
	it, err := in.iter(args[0])
	if err != nil {
		return nil, err
	}
	return &iterator{name: "generator", next: func() (any, bool, error) {
		v, ok, err := it.next()
		if err != nil || !ok {
			return nil, false, err
		}
		v, err = apply(v)
		return v, err == nil, err
	}}, nil
}

// selectFilter is select and reject, with attr on an attribute of the items.
func selectFilter(keep, attr bool) filterFunc {
	return func(in *interp, args []any, kwargs *Object) (any, error) {
		if ok, err := truth(args[0]); err != nil || !ok {
			return &iterator{name: "generator", next: func() (any, bool, error) { return nil, false, nil }}, err
		}
		rest := args[1:]
		var attribute any
		if attr {
			if len(rest) == 0 {
				return nil, errorf(ErrRender, "missing parameter for attribute name")
			}
			attribute, rest = rest[0], rest[1:]
		}
		get, err := in.getter(attribute, nil)
		if err != nil {
			return nil, err
		}
		name := ""
		if len(rest) > 0 {
			if name, err = wantString("a test's name", rest[0]); err != nil {
				return nil, err
			}
			rest = rest[1:]
		}
		it, err := in.iter(args[0])
		if err != nil {
			return nil, err
		}
		return &iterator{name: "generator", next: func() (any, bool, error) {
			for {
				item, ok, err := it.next()
				if err != nil || !ok {
					return nil, false, err
				}
				v, err := get(item)
				if err != nil {
					return nil, false, err
				}
				if name == "" {
					ok, err = truth(v)
				} else {
					ok, err = in.testNamed(name, v, rest, kwargs)
				}
				if err != nil {
					return nil, false, err
				}
				if ok == keep {
					return item, true, nil
				}
			}
		}}, nil
	}
}

func batchFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("batch", args, kwargs, "value linecount / fill_with")
	if err != nil {
		return nil, err
	}
	n, err := wantInt("batch", p[1])
	if err != nil {
		return nil, err
	}
	items, err := in.collect(p[0])
	if err != nil {
		return nil, err
	}
	var rows []any
	var row []any
	for _, e := range items {
		if int64(len(row)) == n {
			rows = append(rows, &list{row})
			row = nil
		}
		row = append(row, e)
	}
	if len(row) > 0 {
		if fill := or(p[2], nil); fill != nil && int64(len(row)) < n {
			if n > in.opts.MemoryBytes/16 {
				return nil, in.take(int(in.opts.MemoryBytes) + 1)
			}
			if err := in.take(16 * int(n)); err != nil {
				return nil, err
			}
			for int64(len(row)) < n {
				row = append(row, fill)
			}
		}
		rows = append(rows, &list{row})
	}
	return in.generate(rows)
}

func sliceFilter(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("slice", args, kwargs, "value slices / fill_with")
	if err != nil {
		return nil, err
	}
	n, err := wantInt("slice", p[1])
	if err != nil {
		return nil, err
	}
	items, err := in.collect(p[0])
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errZero
	}
	if n > in.opts.MemoryBytes/64 {
		return nil, in.take(int(in.opts.MemoryBytes) + 1)
	}
	if err := in.take(64 * int(max(n, 0))); err != nil {
		return nil, err
	}
	var parts []any
	per, extra := int64(len(items))/n, int64(len(items))%n
	from := int64(0)
	for i := range n {
		end := from + per
		if i < extra {
			end++
		}
		part := join(items[from:end], nil)
		if fill := or(p[2], nil); fill != nil && i >= extra {
			part = append(part, fill)
		}
		parts = append(parts, &list{part})
		from = end
	}
	return in.generate(parts)
}
