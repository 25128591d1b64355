package template

import (
	"errors"
	"strings"
	"testing"
)

func render(t *testing.T, source string, vars *Object, o Options) (string, error) {
	t.Helper()
	parsed, err := Parse(source)
	if err != nil {
		return "", err
	}
	return parsed.Render(vars, o)
}

// TestErrorsHaveAClassAndALine: every way to fail is told apart, and says where.
func TestErrorsHaveAClassAndALine(t *testing.T) {
	for _, c := range []struct {
		source string
		class  error
		line   int
	}{
		{"a\n{% if %}", ErrSyntax, 2},
		{"\n\n{{ 'x }}", ErrSyntax, 3},
		{"{% for x in y %}\n", ErrSyntax, 1},
		{"{% nothing %}", ErrSyntax, 1},
		{"{% break %}", ErrSyntax, 1},
		{"{{ (1] }}", ErrSyntax, 1},
		{"\n{{ 1 | nothing }}", ErrSyntax, 2},
		{"\n{{ 1 is nothing }}", ErrSyntax, 2},
		{"{{ '\\ud800' }}", ErrSyntax, 1},
		{"\n{{ a.b.c }}", ErrRender, 2},
		{"\n\n{{ 1 + 'a' }}", ErrRender, 3},
		{"{% for a in 5 %}{% endfor %}", ErrRender, 1},
		{"{{ 1 // 0 }}", ErrRender, 1},
		{"\n{{ raise_exception('no ' ~ 1) }}", ErrRaised, 2},
		{"{{ [].append(1) }}", ErrUnsafe, 1},
		{"{{ {}.update({}) }}", ErrUnsafe, 1},
		{"{% set n = namespace() %}{% set n._x = 1 %}", ErrUnsafe, 1},
		{"{{ namespace(_x=1) }}", ErrUnsafe, 1},
		{"{% include 'x' %}", ErrUnsupported, 1},
		{"{% autoescape true %}{% endautoescape %}", ErrUnsupported, 1},
		{"{{ 'a' | urlize }}", ErrUnsupported, 1},
		{"{{ lipsum() }}", ErrUnsupported, 1},
	} {
		_, err := render(t, c.source, nil, Options{})
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, c.class) || e.Line != c.line {
			t.Errorf("%q: %v, want %v on line %d", c.source, err, c.class, c.line)
		}
	}
	if _, err := render(t, "{{ raise_exception('no ' ~ 1) }}", nil, Options{}); err == nil || !strings.HasSuffix(err.Error(), ": no 1") {
		t.Errorf("the template's own words are missing: %v", err)
	}
}

// TestHostileTemplatesEndAtALimit: each would take for ever, or all memory.
func TestHostileTemplatesEndAtALimit(t *testing.T) {
	nested := strings.Repeat
	for name, source := range map[string]string{
		"loops in loops":       "{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}{% endfor %}",
		"a far range":          "{% for a in range(10**12) %}{% endfor %}",
		"a long string":        "{% set a = 'x' * 10**8 %}",
		"many long strings":    "{% for i in range(99) %}{% set a = 'x' * 10**6 %}{% endfor %}",
		"doubling":             "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(22) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
		"a long list":          "{{ ([1] * 10**8) | length }}",
		"a wide field":         "{{ '%999999999d' % 1 }}",
		"a wide field 2":       "{{ '{:999999999}'.format('a') }}",
		"a precision":          "{{ '%.99999999f' % 1 }}",
		"centred":              "{{ 'a'.center(10**10) }}",
		"replaced":             "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
		"joined":               "{{ range(90000) | join('x' * 90000) }}",
		"indented":             "{{ [1] | tojson(indent=10**9) }}",
		"a huge power":         "{{ 9 ** (9 ** 9) }}",
		"a huge product":       "{% set n = namespace(v=9) %}{% for i in range(99) %}{% set n.v = n.v * n.v %}{% endfor %}",
		"a macro in itself":    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"a deep macro":         "{% macro m() %}{{ " + nested("1 + (", 100) + "m()" + nested(" + 1", 1500) + nested(")", 100) + " }}{% endmacro %}{{ m() }}",
		"a loop in itself":     "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
		"a block in itself":    "{% block b %}{{ self.b() }}{% endblock %}",
		"a list in itself":     "{% set n = namespace(l=[]) %}{% for i in range(999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
		"equal deep lists":     "{% set n = namespace(l=[], m=[]) %}{% for i in range(999) %}{% set n.l = [n.l] %}{% set n.m = [n.m] %}{% endfor %}{{ n.l == n.m }}",
		"much output":          "{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
		"batches":              "{{ [1] | batch(10**12, 'x') | list }}",
		"slices":               "{{ [1] | slice(10**12) | list }}",
		"nested brackets":      "{{ " + nested("[", 5000) + nested("]", 5000) + " }}",
		"nested parentheses":   "{{ " + nested("(", 5000) + "1" + nested(")", 5000) + " }}",
		"nested negations":     "{{ " + nested("not ", 5000) + "1 }}",
		"nested signs":         "{{ " + nested("-", 5000) + "1 }}",
		"nested targets":       "{% set " + nested("(", 5000) + "a" + nested(")", 5000) + " = 1 %}",
		"nested blocks":        nested("{% if 1 %}", 5000) + nested("{% endif %}", 5000),
		"a chain of sums":      "{{ 1" + nested(" + 1", 50000) + " }}",
		"a chain of filters":   "{{ 1" + nested(" | abs", 50000) + " }}",
		"a chain of filters 2": "{% set x" + nested(" | abs", 50000) + " %}{% endset %}",
		"a chain of keys":      "{{ a" + nested(".b", 50000) + " }}",
		"a chain of ifs":       "{{ 1" + nested(" if 1", 50000) + " }}",
		"a long number":        "{{ " + nested("9", 5000) + " }}",
		"a long source":        nested("x", maxSourceBytes+1),
		"doubling by percent":  "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(22) %}{% set n.s = '%s%s' % (n.s, n.s) %}{% endfor %}",
		"doubling by macro":    "{% macro m(s) %}{{ s }}{{ s }}{% endmacro %}{% set n = namespace(s='xxxxxxxx') %}{% for i in range(22) %}{% set n.s = m(n.s) %}{% endfor %}",
	} {
		if _, err := render(t, source, nil, Options{MemoryBytes: 8 << 20, OutputBytes: 1 << 20, Steps: 300_000}); !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v, want a limit", name, err)
		}
	}
}

// TestVariablesAreCopied: Go's values come in, keep their order, and rendering changes none of them.
func TestVariablesAreCopied(t *testing.T) {
	vars := NewObject().Set("z", 1).Set("m", map[string]any{"b": []string{"x"}, "a": int32(2)}).Set("f", float32(0.5)).
		Set("o", []*Object{NewObject().Set("y", nil).Set("x", true)}).Set("bad", "a\xff")
	got, err := render(t, "{{ z }} {{ m }} {{ f }} {{ o }} {{ bad }}{% set z = 2 %}", vars, Options{})
	if want := "1 {'a': 2, 'b': ['x']} 0.5 [{'y': None, 'x': True}] a\ufffd"; err != nil || got != want {
		t.Errorf("got %q %v, want %q", got, err, want)
	}
	if v, _ := vars.Get("z"); v != 1 {
		t.Errorf("z became %v", v)
	}
	if _, err := render(t, "", NewObject().Set("x", struct{}{}), Options{}); !errors.Is(err, ErrRender) {
		t.Errorf("a struct: %v", err)
	}
	deep := []any{}
	for range 300 {
		deep = []any{deep}
	}
	if _, err := render(t, "", NewObject().Set("x", deep), Options{}); !errors.Is(err, ErrLimit) {
		t.Errorf("a deep value: %v", err)
	}
}

// TestParseJSON keeps order, tells integers from floats and refuses what is no JSON.
func TestParseJSON(t *testing.T) {
	v, err := ParseJSON([]byte(`{"b": 1, "a": 1.0, "c": [null, true, "x"], "b": 12345678901234567890}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := render(t, "{{ v }}|{{ v | tojson }}", NewObject().Set("v", v), Options{})
	want := `{'b': 12345678901234567890, 'a': 1.0, 'c': [None, True, 'x']}|{"b": 12345678901234567890, "a": 1.0, "c": [null, true, "x"]}`
	if err != nil || got != want {
		t.Errorf("got %s %v\nwant %s", got, err, want)
	}
	for doc, class := range map[string]error{
		"": ErrSyntax, "{": ErrSyntax, "[1,]": ErrSyntax, "1 2": ErrSyntax, "nul": ErrSyntax,
		strings.Repeat("[", 1000): ErrLimit, strings.Repeat("9", 5000): ErrLimit,
	} {
		if _, err := ParseJSON([]byte(doc)); !errors.Is(err, class) {
			t.Errorf("%.20q: %v, want %v", doc, err, class)
		}
	}
}

func FuzzRender(f *testing.F) {
	for _, line := range recorded(f, "testdata/expressions.jsonl.gz")[1:] {
		f.Add(field[string](line, "source"))
	}
	vars := field[*Object](recorded(f, "testdata/expressions.jsonl.gz")[0], "vars")
	f.Fuzz(func(t *testing.T, source string) {
		parsed, err := Parse(source)
		if err == nil {
			var out string
			out, err = parsed.Render(vars, Options{Steps: 20000, MemoryBytes: 1 << 20, OutputBytes: 1 << 16})
			if len(out) > 1<<16 {
				t.Errorf("%d bytes of output", len(out))
			}
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("an error without a class: %v", err)
		}
	})
}
