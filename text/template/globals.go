package template

import (
	"strings"

	"github.com/optimem/optimem/text/template/internal/python"
)

// maxRange is what jinja2's sandbox allows.
const maxRange = 100_000

var globals map[string]*function

func init() {
	globals = map[string]*function{
		"range":           {"range", rangeGlobal},
		"dict":            {"dict", dictGlobal},
		"namespace":       {"namespace", namespaceGlobal},
		"cycler":          {"cycler", cyclerGlobal},
		"joiner":          {"joiner", joinerGlobal},
		"raise_exception": {"raise_exception", raiseGlobal},
		"strftime_now":    {"strftime_now", strftimeGlobal},
		"lipsum": {"lipsum", func(*interp, []any, *Object) (any, error) {
			return nil, errorf(ErrUnsupported, "lipsum, whose text is random")
		}},
	}
}

func rangeGlobal(_ *interp, args []any, kwargs *Object) (any, error) {
	if len(args) == 0 || len(args) > 3 || kwargs.Len() > 0 {
		return nil, errorf(ErrRender, "range expects one to three arguments")
	}
	var n [3]int64
	for i, a := range args {
		var err error
		if n[i], err = wantInt("range", a); err != nil {
			return nil, err
		}
	}
	r := &span{n[0], n[1], n[2]}
	switch len(args) {
	case 1:
		r = &span{0, n[0], 1}
	case 2:
		r.step = 1
	}
	if r.step == 0 {
		return nil, errorf(ErrRender, "range() arg 3 must not be zero")
	}
	const far = 1 << 60
	if max(r.start, r.stop, r.step) > far || min(r.start, r.stop, r.step) < -far || r.len() > maxRange {
		return nil, errorf(ErrLimit, "a range of more than %d numbers", maxRange)
	}
	return r, nil
}

// dictOf is dict(…): a mapping or pairs, and keywords.
func dictOf(in *interp, args []any, kwargs *Object) (*Object, error) {
	o := NewObject()
	if len(args) > 1 {
		return nil, errorf(ErrRender, "dict expected at most 1 argument, got %d", len(args))
	}
	if len(args) == 1 {
		if from, ok := args[0].(*Object); ok {
			o = from.clone()
		} else {
			err := in.iterate(args[0], func(e any) (bool, error) {
				pair, err := in.collect(e)
				if err != nil {
					return false, err
				}
				if len(pair) != 2 {
					return false, errorf(ErrRender, "a dict is made of pairs")
				}
				return true, in.put(o, pair[0], pair[1])
			})
			if err != nil {
				return nil, err
			}
		}
	}
	for i, k := range kwargs.keys {
		if err := in.put(o, k, kwargs.values[i]); err != nil {
			return nil, err
		}
	}
	return o, in.take(64 * len(o.keys))
}

func dictGlobal(in *interp, args []any, kwargs *Object) (any, error) {
	o, err := dictOf(in, args, kwargs)
	if err != nil {
		return nil, err
	}
	return o, nil
}

func namespaceGlobal(in *interp, args []any, kwargs *Object) (any, error) {
	o, err := dictOf(in, args, kwargs)
	if err != nil {
		return nil, err
	}
	for _, k := range o.Keys() {
		if strings.HasPrefix(k, "_") {
			return nil, errorf(ErrUnsafe, "an attribute '%s' of a namespace", k)
		}
	}
	return &namespace{o}, nil
}

func cyclerGlobal(_ *interp, args []any, kwargs *Object) (any, error) {
	if len(args) == 0 || kwargs.Len() > 0 {
		return nil, errorf(ErrRender, "at least one item has to be provided")
	}
	return &cycler{items: args}, nil
}

func (c *cycler) attr(name string) (any, bool, error) {
	switch name {
	case "current":
		return c.items[c.pos], true, nil
	case "next":
		return &function{name, func(*interp, []any, *Object) (any, error) {
			v := c.items[c.pos]
			c.pos = (c.pos + 1) % len(c.items)
			return v, nil
		}}, true, nil
	case "reset":
		return &function{name, func(*interp, []any, *Object) (any, error) {
			c.pos = 0
			return nil, nil
		}}, true, nil
	}
	return nil, false, nil
}

func joinerGlobal(_ *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("joiner", args, kwargs, "/ sep")
	if err != nil {
		return nil, err
	}
	return &joiner{sep: or(p[0], ", ")}, nil
}

func raiseGlobal(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("raise_exception", args, kwargs, "message")
	if err != nil {
		return nil, err
	}
	text, err := in.str(p[0])
	if err != nil {
		return nil, err
	}
	return nil, errorf(ErrRaised, "%s", text)
}

func strftimeGlobal(in *interp, args []any, kwargs *Object) (any, error) {
	p, err := bind("strftime_now", args, kwargs, "format")
	if err != nil {
		return nil, err
	}
	format, err := wantString("strftime_now", p[0])
	if err != nil {
		return nil, err
	}
	s, err := python.Strftime(in.opts.Now(), format)
	if err != nil {
		return nil, errorf(ErrUnsupported, "%v", err)
	}
	return s, in.take(len(s))
}
