"""Records what jinja2 makes of random templates: python expressions.py --out FILE --count N --seed S.

Half of the templates are expressions over a few variables, half have statements around them. The environment is that of
transformers, as in record.py. Each line is {"source": template, "want": text} or has "error" instead of "want".
"""
import argparse, gzip, json, random

from transformers.utils import chat_template_utils as u

VARS = {
    "s": "Hello, World", "t": "  two  words\n", "z": "", "w": "straße ΑΣ ŉ éÀ", "q": "it's \"q\" <b>&\t\\", "h": "12.50", "x": "-7", "b": "🐝 bee",
    "i": 7, "j": -3, "k": 0, "big": 123456789012345678901234567890, "f": 2.5, "g": -0.1, "e": 1e22, "o": True, "p": False, "n": None,
    "l": [3, 1, 2], "m": ["b", "A", "c", "a"], "y": [], "v": [1, "1", 2.0, None, [4, [5]]],
    "d": {"b": 1, "a": "x", "items": [1], "C": None}, "c": {},
    "r": [{"role": "user", "content": "hi", "n": 2}, {"role": "tool", "content": None, "n": 1}, {"role": "user", "content": "yo", "n": 2.0}],
}
STRINGS = ["", "a", "l", "o, ", " ", "\n", "Hello", "%s-%s", "{}{}", "{0!r:>6}", "%05.1f", "role", "b", "words", "🐝", "é", "x y  z", "A,b,,c", "1_0", "0x1f", "<i>"]
FILTERS = ["abs", "capitalize", "center(14)", "count", "default('D')", "default('D', true)", "dictsort", "dictsort(true)", "dictsort(by='value')",
    "dictsort(reverse=true)", "e", "first", "float", "float(1.5)", "forceescape", "indent", "indent(2, true)", "indent('> ', blank=true)", "int", "int(9)",
    "int(base=16)", "items|list", "join", "join(', ')", "join('-', attribute='role')", "last", "length", "list", "lower", "map('upper')|list",
    "map(attribute='role')|list", "map(attribute='zz', default=1)|list", "max", "min", "max(attribute='n')", "reject('none')|list", "rejectattr('content')|list",
    "replace('l', 'LL')", "replace('o', '0', 1)", "reverse|list", "round", "round(1)", "round(1, 'floor')", "round(0, 'ceil')", "round(-1)", "safe",
    "select('string')|list", "selectattr('role', 'equalto', 'user')|list", "selectattr('n', 'gt', 1)|map(attribute='content')|list", "sort",
    "sort(reverse=true)", "sort(case_sensitive=true)", "sort(attribute='n')", "sort(attribute='role,n')", "string", "sum", "sum(attribute='n')",
    "sum(start=2)", "title", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))", "tojson(sort_keys=true)",
    "tojson(indent=1, separators=('; ', '='))", "trim", "trim('Hd ')", "truncate(8)", "truncate(9, true, '~', 0)", "unique|list", "upper", "wordcount",
    "batch(2)|list", "batch(2, 'z')|map('list')|list", "slice(2)|list", "groupby('role')|list", "groupby('n')|map('first')|list", "attr('role')", "format(1, 2)", "nosuch"]
TESTS = ["defined", "undefined", "none", "boolean", "false", "true", "integer", "float", "number", "string", "mapping", "sequence", "iterable", "callable",
    "lower", "upper", "odd", "even", "divisibleby 3", "sameas none", "in [1, 'a', none]", "eq 2", "ne 'a'", "gt 1", "le 2.5", "escaped", "equalto('a')"]
METHODS = ["upper()", "lower()", "strip()", "strip('Hd')", "lstrip()", "rstrip('\\n')", "split()", "split('l')", "split(' ', 1)", "rsplit('o', 1)",
    "splitlines()", "title()", "capitalize()", "swapcase()", "casefold()", "startswith('H')", "endswith(('d', 'x'))", "find('o')", "rfind('o')",
    "index('o')", "count('l')", "replace('l', 'r', 1)", "join(m)", "join('ab')", "partition(', ')", "rpartition('o')", "isdigit()", "isalpha()", "isupper()",
    "islower()", "isspace()", "isalnum()", "istitle()", "zfill(9)", "center(15, '*')", "ljust(14)", "rjust(14, '.')", "removeprefix('He')",
    "removesuffix('ld')", "expandtabs(4)", "format(1, 'a')", "get('a')", "get('zz', 5)", "items()", "keys()", "values()", "items()|list", "copy()", "append(1)",
    "pop()", "update(c)", "index(1)", "count(1)", "isidentifier()", "splitlines(true)", "isnumeric()", "nosuch()"]
ATTRS = ["role", "items", "a", "b", "zz", "content", "keys", "0", "1", "__class__", "_x"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "|", "|"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def atom(self):
        c = self.r.random()
        if c < 0.55:
            return self.r.choice(list(VARS))
        if c < 0.7:
            return repr(self.r.choice(STRINGS)).replace("'", "'")
        if c < 0.8:
            return self.r.choice(["0", "1", "2", "-1", "10", "3.0", "0.5", "1e3", "255", "1_000"])
        if c < 0.85:
            return self.r.choice(["true", "false", "none", "True", "None"])
        if c < 0.88:
            return self.r.choice(["nope", "nope2"])
        if c < 0.91:
            return self.r.choice(["range(3)", "range(5, 1, -2)", "namespace(a=1)", "dict(a=1, b='x')", "r[0]", "r[0].content", "d.a"])
        if c < 0.95:
            return "[" + ", ".join(self.atom() for _ in range(self.r.randrange(4))) + "]"
        if c < 0.97:
            return "(" + "".join(self.atom() + ", " for _ in range(self.r.randrange(3))) + ")"
        return "{" + ", ".join(repr(self.r.choice(STRINGS)) + ": " + self.atom() for _ in range(self.r.randrange(3))) + "}"

    def expr(self, depth=2):
        if depth == 0:
            return self.atom()
        c = self.r.random()
        sub = lambda: self.expr(depth - 1)
        if c < 0.25:
            op = self.r.choice(BINARY)
            if op == "|":
                return self.post(sub()) + "|" + self.r.choice(FILTERS)
            if op in ("**", "*"):
                return "(" + sub() + ")" + op + self.r.choice(["2", "3", "-1", "0", "0.5"])
            return "(" + sub() + " " + op + " " + sub() + ")"
        if c < 0.45:
            return self.post(sub()) + "|" + self.r.choice(FILTERS)
        if c < 0.6:
            return self.post(sub()) + "." + self.r.choice(METHODS)
        if c < 0.66:
            return self.post(sub()) + "." + self.r.choice(ATTRS)
        if c < 0.68:
            return self.post(sub()) + "[" + self.r.choice(["0", "-1", "'a'", "'role'", "9", "true"]) + "]"
        if c < 0.72:  # of variables: what jinja2 computes while it compiles has rules of its own
            return self.r.choice(list(VARS)) + "[" + self.r.choice(["1:", ":-1", "::-1", "1:9:2", ":2", "-3:", "none:1", "i:k:j"]) + "]"
        if c < 0.8:
            return "(" + sub() + (" is " if self.r.random() < 0.6 else " is not ") + self.r.choice(TESTS) + ")"
        if c < 0.86:
            return "(" + sub() + " if " + sub() + (" else " + sub() if self.r.random() < 0.8 else "") + ")"
        if c < 0.89:
            return "(not " + sub() + ")"
        if c < 0.92:
            return "(" + self.r.choice("-+") + self.post(sub()) + ")"
        if c < 0.96:
            return "(" + self.r.choice(["'%s'", "'%d|%s'", "'%5.2f'", "'%r'", "'%x'", "'%-6s|'", "'%+03d'", "'%e'", "'%g'", "'%(a)s'", "'%c'", "'%%'"]) + " % " + self.post(sub()) + ")"
        return self.r.choice(["'{:>8}'", "'{:^9}|'", "'{:,}'", "'{:05d}'", "'{:.2f}'", "'{0}-{0!r}'", "'{:x}'", "'{:+}'", "'{:e}'", "'{:.3}'", "'{0[a]}'", "'{:%}'", "'{:*<7}'", "'{:g}'"]) + ".format(" + sub() + ")"

    def post(self, e):
        return e if e.replace("_", "a").isalnum() and not e[0].isdigit() else "(" + e + ")"

    def statement(self, depth):
        e = lambda: self.expr(self.r.randrange(1, 3))
        body = lambda: self.template(depth - 1)
        d = lambda: self.r.choice(["", "-", "", "+" if False else ""])
        seq = lambda: self.r.choice(["l", "m", "r", "d", "d.items()", "range(3)", "y", "s", "r|selectattr('content')", "m|map('upper')", "v", "nope", "l[::-1]", "[1, 2] + l"])
        c = self.r.randrange(15)
        if c < 3:
            return "{%" + d() + " if " + e() + " " + d() + "%}" + body() + ("{% elif " + e() + " %}" + body() if self.r.random() < 0.3 else "") + ("{%- else %}" + body() if self.r.random() < 0.6 else "") + "{%" + d() + " endif %}"
        if c < 6:
            tgt = "it"
            src = seq()
            if src == "d.items()" or self.r.random() < 0.05:
                tgt = "ka, it"
            loop = self.r.choice(["", "{{ loop.index }}", "{{ loop.last }}", "{{ loop.length }}/{{ loop.revindex0 }}", "{{ loop.previtem }}", "{{ loop.nextitem is defined }}", "{{ loop.cycle('a', 'b') }}", "{{ loop.changed(it) }}", "{% if loop.index > 2 %}{% break %}{% endif %}", "{% if loop.first %}{% continue %}{% endif %}"])
            cond = self.r.choice(["", "", " if it", " if it is string", " if it != 1"])
            return "{%" + d() + " for " + tgt + " in " + src + cond + " %}" + loop + "{{ it }}" + body() + ("{% else %}none" if self.r.random() < 0.3 else "") + "{%" + d() + " endfor " + d() + "%}"
        if c < 8:
            return "{%" + d() + " set " + self.r.choice(["aa", "s", "i", "aa, bb"]) + " = " + e() + " %}{{ aa }}|{{ s }}"
        if c == 8:
            return "{% set aa %}" + body() + "{% endset %}[{{ aa|length }}]{{ aa }}"
        if c == 9:
            return "{% set ns = namespace(c=0) %}{% for it in " + seq() + " %}{% set ns.c = ns.c + 1 %}" + body() + "{% endfor %}{{ ns.c }}"
        if c == 10:
            args = self.r.choice(["(x)", "(x, y=2)", "(x, y=x)", "()"])
            return "{% macro mm" + args + " %}<{{ x }}{{ y }}" + self.r.choice(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller is defined }}"]) + ">{% endmacro %}{{ mm(" + self.r.choice(["", "1", e(), "1, 2", "x=3", "1, 2, 3", "y=1", "1, zz=2"]) + ") }}"
        if c == 11:
            return "{% filter " + self.r.choice(["upper", "trim", "replace('a', 'b')", "indent(2)", "length"]) + " %}" + body() + "{% endfilter %}"
        if c == 12:
            return "{% with aa = " + e() + ", i = 5 %}{{ i }}" + body() + "{% endwith %}{{ i }}"
        if c == 13:
            return "{% macro cc(a) %}({{ caller(a) }}){% endmacro %}{% call(q) cc(" + e() + ") %}{{ q }}" + body() + "{% endcall %}"
        return "{% generation %}" + body() + "{% endgeneration %}" if self.r.random() < 0.5 else "{% raw %}{{ no }}{% endraw %}\n" + "{#- c -#}\n  {% print " + e() + " %}"

    def template(self, depth):
        out = ""
        for _ in range(self.r.randrange(1, 3)):
            c = self.r.random()
            if depth > 0 and c < 0.45:
                out += self.statement(depth)
            elif c < 0.85:
                e = self.expr(self.r.randrange(1, 3))
                out += self.r.choice(["{{ %s }}", "{{- %s -}}", "{{%s}}", "{{ %s -}}"]) % (" " + e if e[0] in "-+" else e)
            out += self.r.choice(["", " ", "\n", "  \n  ", "text"])
        return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True)
    p.add_argument("--count", type=int, default=400)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--kept", type=int, default=0, help="keep so many cases that render, and a third of them that fail")
    a = p.parse_args()
    maker = Maker(a.seed)
    lines = [{"vars": VARS}]
    failed = 0
    for n in range(a.count):
        source = maker.template(2) if n % 2 else "{{ " + maker.expr(3) + " }}"
        try:
            want = u._cached_compile_jinja_template(source).render(**json.loads(json.dumps(VARS)))
            want.encode()
        except Exception as e:
            failed += 1
            if a.kept and failed > a.kept // 3:
                continue
            lines.append({"source": source, "error": type(e).__name__ + ": " + str(e)[:80]})
            continue
        if " at 0x" in want or len(want) > 5000:
            continue
        if a.kept and len(lines) > a.kept:
            break
        lines.append({"source": source, "want": want})
    with gzip.GzipFile(a.out, "wb", 9, mtime=0) as z:
        z.write("".join(json.dumps(l) + "\n" for l in lines).encode())


main()
