package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader/internal/fault"
)

// TestExpressions has every form of expression with its tree and its canonical text ("" where the text is canonical).
func TestExpressions(t *testing.T) {
	for _, tt := range []struct{ src, tree, text string }{
		{`x`, `x`, ``},
		{`(x)`, `x`, `x`},
		{`self.a.b`, `(. (. self a) b)`, ``},
		{`(self.a).forward(x, )`, `(call (. (. self a) forward) [x] [])`, `self.a.forward(x)`},
		{`getattr(self, "0")`, `(call getattr [self (str 30)] [])`, ``},
		{`getattr(self, "a")`, `(. self a)`, `self.a`},
		{`self.torch.x`, `(. (. self torch) x)`, ``},
		{`(torch).x`, `(. torch x)`, ``},
		{`torch.add(x, 1, alpha=2)`, `(call (. torch add) [x (int 1)] [alpha=(int 2)])`, ``},
		{`ops.prim.dtype(x)`, `(call (. (. ops prim) dtype) [x] [])`, ``},
		{`__torch__.a.___torch_mangle_12.F(x, )`, `(call (. (. (. __torch__ a) ___torch_mangle_12) F) [x] [])`,
			`__torch__.a.___torch_mangle_12.F(x)`},
		{`(__torch__.Color.RED).value`, `(. (. (. __torch__ Color) RED) value)`, ``},
		{`CONSTANTS.c12`, `(. CONSTANTS c12)`, ``},
		{`annotate(List[Optional[int]], [1, None])`,
			`(call annotate [(sub List (sub Optional int)) (list [(int 1) (None)])] [])`, ``},
		{`uninitialized(Tensor)`, `(call uninitialized [Tensor] [])`, ``},
		{`unchecked_cast(Tuple[int, str], x)`, `(call unchecked_cast [(sub Tuple (tuple [int str])) x] [])`, ``},
		{`isinstance(x, Tensor)`, `(call isinstance [x Tensor] [])`, ``},
		{`isinstance(x, (int, Dict[str, Any]))`, `(call isinstance [x (tuple [int (sub Dict (tuple [str Any]))])] [])`, ``},
		{`__torch__.C.__new__(__torch__.C)`, `(call (. (. __torch__ C) __new__) [(. __torch__ C)] [])`, ``},
		{`fork(f)`, `(call fork [f] [])`, ``},
		{`x[0]`, `(sub x (int 0))`, ``},
		{`(x)[1:2]`, `(sub x (slice (int 1) (int 2) -))`, `x[1:2]`},
		{`x[:]`, `(sub x (slice - - -))`, ``},
		{`x[y:]`, `(sub x (slice y - -))`, ``},
		{`x[-2:-1]`, `(sub x (slice (int -2) (int -1) -))`, ``},
		{`x[y::2]`, `(sub x (slice y - (int 2)))`, ``},
		{`x[:y]`, `(sub x (slice - y -))`, ``},
		{`x[::2]`, `(sub x (slice - - (int 2)))`, ``},
		{`(1, 2)[0]`, `(sub (tuple [(int 1) (int 2)]) (int 0))`, `((1, 2))[0]`},
		{`f(x)(y)`, `(call (call f [x] []) [y] [])`, ``},
		{`()`, `(tuple [])`, ``},
		{`(x,)`, `(tuple [x])`, ``},
		{`(x, y, )`, `(tuple [x y])`, `(x, y)`},
		{`[]`, `(list [])`, ``},
		{"[x,\n  y,\n]", `(list [x y])`, `[x, y]`},
		{`{}`, `(dict [] [])`, ``},
		{`{"a": x, 1: y, }`, `(dict [(str 61) (int 1)] [x y])`, `{"a": x, 1: y}`},
		{`None`, `(None)`, ``},
		{`True`, `(True)`, ``},
		{`False`, `(False)`, ``},
		{`0`, `(int 0)`, ``},
		{`9223372036854775807`, `(int 9223372036854775807)`, ``},
		{`-9223372036854775808`, `(int -9223372036854775808)`, ``},
		{`- 1`, `(int -1)`, `-1`},
		{`1.`, `(float 3ff0000000000000)`, ``},
		{`-0.`, `(float 8000000000000000)`, ``},
		{`0.10000000000000001`, `(float 3fb999999999999a)`, `0.1`},
		{`1.0000000000000001e-05`, `(float 3ee4f8b588e368f1)`, `1e-05`},
		{`1e+300`, `(float 7e37e43c8800759c)`, ``},
		{`5e-324`, `(float 0000000000000001)`, ``},
		{`inf`, `(float 7ff0000000000000)`, ``},
		{`-inf`, `(float fff0000000000000)`, ``},
		{`nan`, `(float nan)`, ``},
		{`2.j`, `(complex 0000000000000000 4000000000000000)`, `0.+2.j`},
		{`1.-2.j`, `(complex 3ff0000000000000 c000000000000000)`, ``},
		{`-1.5+infj`, `(complex bff8000000000000 7ff0000000000000)`, ``},
		{`nan-nanj`, `(complex nan nan)`, `nan+nanj`},
		{`1000000000000000.-1.j`, `(complex 430c6bf526340000 bff0000000000000)`, `1e+15-1.j`},
		{`""`, `(str )`, ``},
		{`'a"'`, `(str 6122)`, `"a\""`},
		{`"\001\t\"\'\\\377"`, `(str 010922275cff)`, ``},
		{`"é"`, `(str c3a9)`, `"\303\251"`},
	} {
		x, err := parseExpr(tt.src)
		if err != nil {
			t.Errorf("%s: %v", tt.src, err)
			continue
		}
		if got := sexp(x); got != tt.tree {
			t.Errorf("%s: tree %s, want %s", tt.src, got, tt.tree)
		}
		want := tt.text
		if want == "" {
			want = tt.src
		}
		if got := Format(x); got != want {
			t.Errorf("%s is printed %s, want %s", tt.src, got, want)
		}
	}
}

// parseExpr parses an expression as the operand of a return.
func parseExpr(src string) (Expr, error) {
	p, err := Parse(one("__torch__.py", "def f(x: Tensor) -> Tensor:\n  return "+src+"\n"), Options{})
	if err != nil {
		return nil, err
	}
	return p.Functions["__torch__.f"].Body[0].(*Return).Value, nil
}

// TestStatements has every form of statement, in canonical text unless the tree tells otherwise.
func TestStatements(t *testing.T) {
	for _, tt := range []struct{ src, tree string }{
		{"a = x", `(= a x)`},
		{"a : List[int] = x", `(: a (sub List int) x)`},
		{"self.a = x", `(= (. self a) x)`},
		{"a, b = x, y", `(= (tuple [a b]) (tuple [x y]))`},
		{"a, b, = x", `(= (tuple [a b]) x)`},
		{"a, = x", `(= (tuple [a]) x)`},
		{"print(x)", `(expr (call print [x] []))`},
		{"return", `(return -)`},
		{"return x", `(return x)`},
		{"if x:\n  a = x\nelse:\n  if y:\n    pass", `(if x [(= a x)] [(if y [] [])])`},
		{"for i in range(torch.len(x)):\n  pass", `(for i (call range [(call (. torch len) [x] [])] []) [])`},
		{"while x:\n  x = y", `(while x [(= x y)] [])`},
		{"with x as y:\n  z = y", `(with x y [(= z y)])`},
		{"with x:\n  pass", `(with x - [])`},
		{"def f():\n  return x", `(def f [] - [(return x)])`},
	} {
		src := "def f(x: Tensor) -> Tensor:\n  " + strings.ReplaceAll(tt.src, "\n", "\n  ") + "\n"
		body := parse(t, src).Functions["__torch__.f"].Body
		if got := each(body); got != "["+tt.tree+"]" {
			t.Errorf("%s: tree %s, want [%s]", tt.src, got, tt.tree)
		}
		if got := Format(body[0]); got != tt.src+"\n" {
			t.Errorf("%s is printed %s", tt.src, got)
		}
	}
	a := parse(t, "def f(x: Tensor) -> Tensor:\n  a, b = x\n").Functions["__torch__.f"].Body[0].(*Assign)
	if !a.Unpack {
		t.Error("two names for one value are not an unpacking")
	}
}

func TestClasses(t *testing.T) {
	src := `class M(Module):
  __parameters__ = ["w", "in", ]
  __buffers__ = ["b", ]
  __forward_pre_hooks__ = ["pre", ]
  __forward_hooks__ = ["post", "post", ]
  w : Tensor
  __annotations__["in"] = Optional[Tensor]
  __annotations__["0"] = Future[Tensor]
  __annotations__["pass"] = Await[int]
  __annotations__["__x"] = RRef[Union[int, str]]
  t : Tuple[()]
  d : Device
  c : Final[List[int]] = annotate(List[int], [])
  def forward(self: __torch__.M,
      x: Tensor,
      k: int=3,
      e: __torch__.E=__torch__.E.A) -> NoneType:
    return None
class E(Enum):
  A = 1
  B = "x"
  C = -0.5
class T(NamedTuple):
  a : int
class I(Interface):
  def f(self,
      x: Tensor) -> Tensor:
    pass
class P:
  pass
def g() -> number:
  pass
`
	p := parse(t, src)
	if got := p.Files[0].String(); got != src {
		t.Errorf("printed:\n%s", got)
	}
	var names []string
	for _, a := range p.Classes["__torch__.M"].Attributes {
		names = append(names, a.Name)
	}
	if got, want := strings.Join(names, " "), "w in 0 pass __x t d"; got != want {
		t.Errorf("attributes %s, want %s", got, want)
	}
	if a := parse(t, "class A:\n  in : int\n").Classes["__torch__.A"].Attributes[0]; a.Name != "in" {
		t.Errorf("attribute %+v named by a keyword", a)
	}
	old := "op_version_set = 1\nimport __torch__\nimport __torch__.a.b\n" +
		"class A:\n  __annotations__ = []\n  a : None\n\n# end"
	if a := parse(t, old).Classes["__torch__.A"]; a.Attributes[0].Type.Kind != NoneType {
		t.Errorf("headers of old files: %+v", a)
	}
}

// TestErrors has every refusal with its class and the line and column that it names.
func TestErrors(t *testing.T) {
	format, unsupported, limit := fault.ErrFormat, fault.ErrUnsupported, fault.ErrLimit
	body := func(s string) string { return "def f(x: Tensor) -> Tensor:\n  " + s + "\n" }
	for _, tt := range []struct {
		src   string
		class error
		place string
	}{
		{body("return x +"), unsupported, "2:12"},
		{body("return x * y"), unsupported, "2:12"},
		{body("return x @ y"), unsupported, "2:12"},
		{body("return x == y"), unsupported, "2:12"},
		{body("return x if y else z"), unsupported, "2:12"},
		{body("return [a for a in x]"), unsupported, "2:13"},
		{body("return not x"), unsupported, "2:10"},
		{body("return lambda: x"), unsupported, "2:10"},
		{body("return -x"), unsupported, "2:10"},
		{body("return 1 + 2"), unsupported, "2:12"},
		{body("return 1.+-2.j"), unsupported, "2:12"},
		{body("return x[1, 2]"), unsupported, "2:13"},
		{body("return x[...]"), unsupported, "2:12"},
		{body("return x, y"), unsupported, "2:11"},
		{body(`return f"a"`), unsupported, "2:10"},
		{body(`return """a"""`), unsupported, "2:10"},
		{body(`return "a" "b"`), unsupported, "2:14"},
		{body("return (annotate)(x)"), unsupported, "2:20"},
		{body("raise x"), unsupported, "2:3"},
		{body("assert x"), unsupported, "2:3"},
		{body("break"), unsupported, "2:3"},
		{body("del x"), unsupported, "2:3"},
		{body("a += 1"), unsupported, "2:5"},
		{body("a = b = c"), unsupported, "2:9"},
		{body("a = b, c"), unsupported, "2:3"},
		{body("a, b"), unsupported, "2:3"},
		{body("x[0] = 1"), unsupported, "2:3"},
		{body("x.a, b = x, y"), unsupported, "2:3"},
		{body("a, x.b = x, y"), unsupported, "2:6"},
		{body("if x: y = 1"), unsupported, "2:9"},
		{body("for i in x:\n    pass"), unsupported, "2:12"},
		{body("for i in range(1, x):\n    pass"), unsupported, "2:12"},
		{body("for i in range():\n    pass"), unsupported, "2:12"},
		{body("for i in range(stop=x):\n    pass"), unsupported, "2:12"},
		{body("def g(y):\n    pass"), unsupported, "2:9"},
		{body("# type: (Tensor) -> Tensor"), unsupported, "2:3"},
		{body("class A:\n    pass"), unsupported, "2:3"},
		{"def f(x) -> Tensor:\n  pass\n", unsupported, "1:7"},
		{"def f(*, x: int) -> Tensor:\n  pass\n", unsupported, "1:7"},
		{"def f(x: Tensor):\n  pass\n", unsupported, "1:17"},
		{"class A(B):\n  a : int\n", unsupported, "1:9"},
		{"class A(Enum):\n  A = [1]\n", unsupported, "2:7"},
		{"class A:\n  a : Foo\n", unsupported, "2:7"},
		{body("return annotate(x, x)"), unsupported, "2:19"},
		{"@x\nclass A:\n  a : int\n", unsupported, "1:1"},
		{"x = 1\n", unsupported, "1:1"},
		{"while x:\n  pass\n", unsupported, "1:1"},

		{body("return ("), format, "3:1"},
		{body("return )"), format, "2:10"},
		{body("return (x]"), format, "2:12"},
		{body("return [x y]"), format, "2:13"},
		{body("return x y"), format, "2:12"},
		{body("return x[]"), format, "2:12"},
		{body("return {x}"), format, "2:12"},
		{body("return x."), format, "2:12"},
		{body("return 1x"), format, "2:10"},
		{body("return 0x10"), format, "2:10"},
		{body("return 010"), format, "2:10"},
		{body("return 1e"), format, "2:10"},
		{body("return 1e999"), format, "2:10"},
		{body("return 9223372036854775808"), format, "2:10"},
		{body("return -9223372036854775809"), format, "2:10"},
		{body(`return "a`), format, "2:12"},
		{body(`return "\x41"`), format, "2:11"},
		{body(`return "\18"`), format, "2:11"},
		{body(`return "\400"`), format, "2:11"},
		{body(`return "\1"`), format, "2:11"},
		{body(`return "\12"`), format, "2:11"},
		{body(`return "a\0"`), format, "2:12"},
		{body("return \x00"), format, "2:10"},
		{body("return é"), format, "2:10"},
		{body("return f(a=1, b)"), format, "2:17"},
		{body("return f(a=1, a=2)"), format, "2:17"},
		{body("return CONSTANTS.x"), format, "2:10"},
		{body("return CONSTANTS.c01"), format, "2:10"},
		{body("return CONSTANTS.c99999999999"), format, "2:10"},
		{body("return __torch__.A.__new__(__torch__.B)"), format, "2:10"},
		{body("return annotate(Tensor)"), format, "2:25"},
		{body("return annotate(List, x)"), format, "2:19"},
		{body("return annotate(List[int, int], x)"), format, "2:19"},
		{body("return annotate(Dict[int], x)"), format, "2:19"},
		{body("return annotate(Tuple[], x)"), format, "2:19"},
		{body("return annotate(int[int], x)"), format, "2:22"},
		{body("return getattr(x, y)"), format, "2:21"},
		{body("a, b, c = x, y"), format, "2:3"},
		{body("a ="), format, "2:6"},
		{body("else:\n    pass"), format, "2:3"},
		{body("if x:\n  pass"), format, "3:3"},
		{body("if x:\n    a = 1\n   b = 1"), format, "4:4"},
		{body("a = 1\n   b = 1"), format, "3:4"},
		{body("\ta = 1"), format, "2:3"},
		{"def f(x: Tensor) -> Tensor:\n", format, "2:1"},
		{"def f(x: Tensor, x: Tensor) -> Tensor:\n  pass\n", format, "1:18"},
		{body("pass") + body("pass"), format, "3:1"},
		{"class A:\n  a : int\n  a : int\n", format, "3:3"},
		{"class A:\n  def f() -> int:\n    pass\n", format, "2:3"},
		{"class A:\n  def f(self, x: int, x: int) -> int:\n    pass\n", format, "2:23"},
		{"class A:\n  def f(x, x: int) -> int:\n    pass\n", format, "2:12"},
		{"import a)\nclass A:\n  a : int\n", format, "1:9"},
		{"import (a\n", format, "2:1"},
		{"op_version_set = [1\n", format, "2:1"},
		{"class A:\n  __annotations__[\"\"] = int\n", format, "2:3"},
		{"  class A:\n    a : int\n", format, "1:3"},
		{"class A:\n", format, "2:1"},

		{body("return " + strings.Repeat("(", 300) + "x" + strings.Repeat(")", 300)), limit, "2:"},
		{body("return " + strings.Repeat("[", 1e6)), limit, "2:"},
		{body("return x" + strings.Repeat(".a", 300)), limit, "2:"},
		{body("return x" + strings.Repeat("()", 300)), limit, "2:"},
		{body("return annotate(" + strings.Repeat("List[", 300)), limit, "2:"},
		{nested(300), limit, "20"},
		{body("return f(" + strings.Repeat("a=1, ", 2)), format, "2:"},
		{body("return f(" + keywordArgs(256) + ")"), limit, "2:"},
	} {
		_, err := Parse(one("__torch__.py", tt.src), Options{})
		var f *fault.Error
		if !errors.As(err, &f) || f.Class != tt.class {
			t.Errorf("%.80q: error %v, want class %v", tt.src, err, tt.class)
			continue
		}
		place := "__torch__.py:" + tt.place
		if !strings.HasSuffix(place, ":") && strings.Count(tt.place, ":") == 1 {
			place += ": "
		}
		if !strings.HasPrefix(f.Msg, place) {
			t.Errorf("%.80q: error %q, want it at %s", tt.src, f.Msg, tt.place)
		}
		if f.Offset < 0 || f.Offset > int64(len(tt.src)) {
			t.Errorf("%.80q: offset %d of %d bytes", tt.src, f.Offset, len(tt.src))
		}
	}
}

// keywordArgs returns n named arguments.
func keywordArgs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d=1, ", i)
	}
	return b.String()
}

// nested returns a function with n blocks inside each other.
func nested(n int) string {
	var b strings.Builder
	b.WriteString("def f(x: Tensor) -> Tensor:\n")
	for i := range n {
		b.WriteString(strings.Repeat(" ", i+1) + "if x:\n")
	}
	b.WriteString(strings.Repeat(" ", n+1) + "pass\n")
	return b.String()
}

func TestFileNames(t *testing.T) {
	src := "def f(x: Tensor) -> Tensor:\n  return x\n"
	p, err := Parse(one("__torch__/a/___torch_mangle_1.py", src), Options{})
	if err != nil || p.Functions["__torch__.a.___torch_mangle_1.f"] == nil {
		t.Errorf("%v, %v", p, err)
	}
	for _, name := range []string{"", ".py", "a", "a/.py", "/a.py", "a//b.py", "../a.py", "a.b/c.py", `a\b.py`} {
		if _, err := Parse(one(name, src), Options{}); !errors.Is(err, fault.ErrFormat) {
			t.Errorf("%q: %v", name, err)
		}
	}
	twice := func(yield func(string, string) bool) {
		for range 2 {
			if !yield("__torch__.py", src) {
				return
			}
		}
	}
	if _, err := Parse(twice, Options{}); !errors.Is(err, fault.ErrFormat) {
		t.Errorf("the same file twice: %v", err)
	}
}
