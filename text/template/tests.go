package template

import (
	"math/big"
	"unicode"

	"github.com/optimem/optimem/text/template/internal/python"
)

// testNamed applies a test, what follows is.
func (in *interp) testNamed(name string, v any, args []any, kwargs *Object) (bool, error) {
	test, ok := tests[name]
	if !ok {
		return false, noTest(name)
	}
	if name != "escaped" {
		v = unmark(v)
	}
	p, err := bind("the test "+name, args, kwargs, test.params)
	if err != nil {
		return false, err
	}
	return test.f(in, v, p)
}

func noTest(name string) error { return errorf(ErrSyntax, "no test named '%s'", name) }

type test struct {
	params string
	f      func(in *interp, v any, p []any) (bool, error)
}

var tests map[string]test

// ask makes a test that cannot fail.
func ask(f func(v any) bool) test {
	return test{f: func(_ *interp, v any, _ []any) (bool, error) { return f(v), nil }}
}

func relation(op string) test {
	return test{"b", func(in *interp, v any, p []any) (bool, error) { return in.related(op, v, p[0]) }}
}

// remains tests what is left after a division.
func remains(by, left int64) test {
	return test{f: func(in *interp, v any, _ []any) (bool, error) {
		m, err := in.binary("%", v, by)
		if err != nil {
			return false, err
		}
		return in.equal(m, left, 0)
	}}
}

func caseTest(is func(rune) bool) test {
	return test{f: func(in *interp, v any, _ []any) (bool, error) {
		s, err := in.str(v)
		return python.CasedAs(s, is), err
	}}
}

func isA[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func init() {
	integral := func(v any) bool { return isA[int64](v) || isA[*big.Int](v) }
	tests = map[string]test{
		"odd": remains(2, 1), "even": remains(2, 0),
		"divisibleby": {"num", func(in *interp, v any, p []any) (bool, error) {
			m, err := in.binary("%", v, p[0])
			if err != nil {
				return false, err
			}
			return in.equal(m, int64(0), 0)
		}},
		"defined":   ask(func(v any) bool { return !isUndefined(v) }),
		"undefined": ask(isUndefined),
		"filter":    ask(func(v any) bool { s, _ := v.(string); return filters[s] != nil }),
		"test":      ask(func(v any) bool { s, _ := v.(string); return tests[s].f != nil }),
		"none":      ask(func(v any) bool { return v == nil }),
		"boolean":   ask(isA[bool]),
		"false":     ask(func(v any) bool { return v == false }),
		"true":      ask(func(v any) bool { return v == true }),
		"integer":   ask(integral),
		"float":     ask(isA[float64]),
		"number":    ask(func(v any) bool { return integral(v) || isA[bool](v) || isA[float64](v) }),
		"lower":     caseTest(unicode.IsLower),
		"upper":     caseTest(unicode.IsUpper),
		"string":    ask(isA[string]),
		"mapping":   ask(isA[*Object]),
		"sequence": ask(func(v any) bool {
			return isA[string](v) || isA[*list](v) || isA[*tuple](v) || isA[*Object](v) || isA[*span](v) || isUndefined(v)
		}),
		"iterable": {f: func(in *interp, v any, _ []any) (bool, error) {
			_, err := in.iter(v)
			return err == nil, nil
		}},
		"callable": ask(callable),
		"sameas":   {"other", func(_ *interp, v any, p []any) (bool, error) { return same(v, p[0]), nil }},
		"escaped":  ask(isA[markup]),
		"in":       {"seq", func(in *interp, v any, p []any) (bool, error) { return in.contains(p[0], v) }},
	}
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto"}, "!=": {"!=", "ne"}, ">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"},
		"<": {"<", "lt", "lessthan"}, "<=": {"<=", "le"},
	} {
		for _, name := range names {
			tests[name] = relation(op)
		}
	}
}

// same is Python's is. Equal numbers and strings are taken to be one object.
func same(a, b any) bool {
	if x, ok := a.(*big.Int); ok {
		y, ok := b.(*big.Int)
		return ok && x.Cmp(y) == 0
	}
	return a == b
}
