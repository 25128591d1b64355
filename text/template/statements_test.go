package template

import "testing"

// TestStatements compares what templates of every construct give with what jinja2 gave.
func TestStatements(t *testing.T) {
	for _, c := range [][2]string{
		{"{% set a = 1 %}{% set b %}{% set a = 2 %}x{% endset %}{{ a }}{{ b }}", "1x"},
		{"{% for x in [1, 2] %}{% continue %}{% else %}none{% endfor %}|{% for x in [1] %}{% break %}{% else %}none{% endfor %}|{% for x in [1] %}{% else %}none{% endfor %}", "none|none|"},
		{"{% for x in [1, 2, 3] | map('abs') %}{{ loop.last }}{{ loop.length }}{{ loop.revindex }} {% endfor %}", "False33 False32 True31 "},
		{"{% for x in [[1, [2, 3]], [4]] recursive %}{{ loop.depth }}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}", "1(212(3233))1(24)"},
		{"{% set s = 1 %}{% for x in [1] %}{% set s = 2 %}{% endfor %}{{ s }}{% if true %}{% set s = 3 %}{% endif %}{{ s }}", "13"},
		{"{% macro m(a, b=a ~ '!') %}{{ a }}{{ b }}{{ caller(1) if caller }}{% endmacro %}", ""},
		{"{% macro m(a, b=a ~ '!') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, 2, 3, d=4) }}", "11!(){}12(3,){'d': 4}"},
		{"{% macro m(a) %}[{{ caller(a, 2) }}]{% endmacro %}{% call(x, y) m(1) %}{{ x }}{{ y }}{% endcall %}", "[12]"},
		{"  {% if true %}\n  a\n  {%- endif %}\n{{ 1 }}\n  {%+ if true %}b{% endif +%}\n c {# d #}\n{#- e -#} f", "  a1\n  b\n c f"},
		{"{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% set x, y = 1, 2 %}{{ x }}{{ y }}", "12312"},
		{"{% set n = namespace(a=1) %}{% for i in range(3) if not n.done %}{{ i }}{% if i == 1 %}{% set n.done = true %}{% endif %}{% endfor %}{{ n.a }}", "011"},
		{"{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner('; ') %}{{ j() }}{{ j() }}", "abab; "},
		{"{% block b %}{% set z = 1 %}B{{ z }}{% endblock %}{{ self.b() }}{{ z }}", "B1B1"},
		{"{% filter upper | replace('B', 'x') %}abc{% endfilter %}{% set v | upper %}v{% endset %}{{ v }}", "AxCV"},
		{"{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "12"},
		{"{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ -7.5 % 2 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7 / 2 }} {{ 1e16 }} {{ 123456789012345.0 }} {{ 1e-5 }} {{ true + 1 }} {{ 10 ** 20 + 1 }}", "-4 2 -2 0.5 64 4 3.5 1e+16 123456789012345.0 1e-05 2 100000000000000000001"},
		{"{{ ['B', 'a', 'C'] | sort | join }} {{ ['B', 'a', 'C'] | sort(true) | join }} {{ {'B': 1, 'a': 0} | dictsort }} {{ ['a', 'A', 'b'] | unique | list }}", "aBC CBa [('a', 0), ('B', 1)] ['a', 'b']"},
		{"{{ 'grüße🐝'[-1] }}{{ 'grüße'[2:4] }}{{ 'grüße'[::-1] }}{{ 'grüße' | length }}{{ 'grüße'.find('e') }}{{ 'ab'[5] is defined }}", "🐝üßeßürg54False"},
		{"{{ ('<' | e) + '<' }}{{ '<' | safe ~ '<' }}{{ ('<%s>' | safe) % '<' }}{{ ('a' | safe).upper() + '<' }}{{ ('<b>' | e) | e }}", "&lt;&lt;<<<&lt;>A&lt;&lt;b&gt;"},
		{"{% raw %}{{ x }}{% endraw %}\n  {%- raw -%}  {% y %}  {%- endraw %}!", "{{ x }}{% y %}!"},
		{"{{ {'items': 1}.items() | list }}{{ {'items': 1}['items'] }}{{ {'a': {'b': [1]}}.a.b.0 }}", "[('items', 1)]11"},
		{"{{ 0 | default('x') }}{{ 0 | default('x', true) }}{{ nope | default('x') }}{{ none | default('x') }}", "0xxNone"},
		{"{{ 'a' if nope }}|{{ nope }}|{{ nope is defined }}|{{ nope == other }}|{{ 1 < 2 < 3 }}|{{ 1 < 2 > 3 }}|{{ 1 in [1, 2] and not 'a' in 'b' }}", "||False|True|True|False|True"},
		{"{{ [1, 2] | tojson(indent=2) }}{{ {'b': 'ü<', 'a': none} | tojson }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}{{ 'ü' | tojson(ensure_ascii=true) }}", "[\n  1,\n  2\n]{\"b\": \"ü<\", \"a\": null}{\"a\":2,\"b\":1}\"\\u00fc\""},
		{"{{ {'a': {'b': 1}}['a']}}|{{ [1, {'a': '}}'}]}}|{% if {'a': {}} == {'a': {}}%}y{% endif %}", "{'b': 1}|[1, {'a': '}}'}]|y"},
		{"a  {%+ if true %}b{% endif %}\n   {%+ if true %}c{% endif %}\n  {% if true %}d{% endif %}\n  {{- 1 }}\n   {#+ x #}e", "a  b   cd1\n   e"},
		{"{{ loop is defined }}{% for x in 'ab' %}{{ loop.index }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.first }}{{ loop.changed(1) }}{{ loop.cycle(1, 2) }};{% endfor %}", "False1bTrueTrue1;2aFalseFalse2;"},
		{"{% generation %}{% set a = 1 %}{{ a }}{% endgeneration %}{{ a }}", "1"},
		{"{{ '%-5s|%05.1f|%x|%r' % ('a', 2.25, 255, 'b') }}{{ '{0:>4}{1!r}{a[b]}'.format(1, 'x', a={'b': 2}) }}{{ '%s' | format('z') }}", "a    |002.2|ff|'b'   1'x'2z"},
	} {
		if got, err := render(t, c[0], nil, Options{}); err != nil || got != c[1] {
			t.Errorf("%s\n got %q %v\nwant %q", c[0], got, err, c[1])
		}
	}
}

// TestNamesThatAreSetLater compares with jinja2: what a frame sets without a condition, before it reads it, is undefined in the
// frames inside it until then, also where a variable of that name was passed in.
func TestNamesThatAreSetLater(t *testing.T) {
	vars := NewObject().Set("s", "S")
	for _, c := range [][2]string{
		{"{% for i in [1] %}[{{ s }}]{% endfor %}{% set s = 1 %}{{ s }}", "[]1"},
		{"{{ s }}{% for i in [1] %}[{{ s }}]{% endfor %}{% set s = 1 %}{{ s }}", "S[S]1"},
		{"{% for i in [1] %}[{{ s }}]{% endfor %}{% if true %}{% set s = 1 %}{% endif %}{{ s }}", "[S]1"},
		{"{% macro m() %}<{{ s }}>{% endmacro %}{{ m() }}{% set s = 1 %}{{ m() }}", "<><1>"},
		{"{% for i in [1] %}{% for j in [1] %}[{{ s }}]{% endfor %}{% set s = 1 %}{{ s }}{% endfor %}{{ s }}", "[S]1S"},
		{"{% filter upper %}a{{ s }}{% endfilter %}{% set s = s ~ 1 %}{{ s }}", "ASS1"},
		{"{% for s in [1] %}[{{ s }}]{% endfor %}{{ s }}", "[1]S"},
	} {
		if got, err := render(t, c[0], vars, Options{}); err != nil || got != c[1] {
			t.Errorf("%s\n got %q %v\nwant %q", c[0], got, err, c[1])
		}
	}
}
