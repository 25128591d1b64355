package script

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

// Blocks, expressions and types count together, each level once, and the option is the deepest that is read.
func TestDepthIsWhatTheOptionSays(t *testing.T) {
	block := func(indent int) string { return strings.Repeat(" ", indent) }
	for name, nest := range map[string]func(levels int) string{
		"parentheses": func(n int) string { return "  return " + strings.Repeat("(", n) + "x" + strings.Repeat(")", n) },
		"lists":       func(n int) string { return "  return " + strings.Repeat("[", n) + "x" + strings.Repeat("]", n) },
		"calls":       func(n int) string { return "  return x" + strings.Repeat("(y)", n) },
		"attributes":  func(n int) string { return "  return x" + strings.Repeat(".y", n) },
		"subscripts":  func(n int) string { return "  return x" + strings.Repeat("[0]", n) },
		"types": func(n int) string {
			return "  return annotate(" + strings.Repeat("List[", n-1) + "int" + strings.Repeat("]", n-1) + ", x)"
		},
		"blocks": func(n int) string {
			var b strings.Builder
			for i := range n {
				b.WriteString(block(2+i) + "if x:\n")
			}
			return b.String() + block(2+n) + "return x"
		},
	} {
		for _, levels := range []int{2, 3, 10} {
			src := "def f(x: Tensor) -> Tensor:\n" + nest(levels) + "\n"
			need := 2 + levels // the function's body, and the expression
			if _, err := Parse(one("__torch__.py", src), Options{Depth: need}); err != nil {
				t.Errorf("%d %s: %v", levels, name, err)
			}
			if _, err := Parse(one("__torch__.py", src), Options{Depth: need - 1}); !errors.Is(err, fault.ErrLimit) {
				t.Errorf("%d %s in a depth of %d: %v", levels, name, need-1, err)
			}
			// What is beside counts for nothing.
			twice := src + strings.Replace(src, "def f", "def g", 1)
			if _, err := Parse(one("__torch__.py", twice), Options{Depth: need}); err != nil {
				t.Errorf("%d %s, one after the other: %v", levels, name, err)
			}
		}
	}
}

func TestCallsTake255NamedArguments(t *testing.T) {
	c, err := parseExpr("f(" + keywordArgs(255) + ")")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.(*Call).Keywords); n != 255 {
		t.Errorf("%d named arguments of 255", n)
	}
}

// Of a string without escapes the tree keeps a part of the text; one with escapes is a copy, which the budget pays for.
func TestEscapedStringsAreCharged(t *testing.T) {
	charged := func(literal string) int64 {
		meter := limit.New(1 << 30)
		src := "def f(x: Tensor) -> Tensor:\n  return \"" + literal + "\"\n"
		if _, err := Parse(one("__torch__.py", src), Options{Meter: meter}); err != nil {
			t.Fatal(err)
		}
		return meter.Used()
	}
	const n = 1 << 16
	plain, escaped := charged(strings.Repeat("a", n)), charged(`\n`+strings.Repeat("a", n))
	if escaped < plain+n {
		t.Errorf("%d bytes charged with a copy of %d, %d without", escaped, n, plain)
	}
}

// Positions have 31 bits.
func TestMoreThan2GiBOfCodeAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("reserves a GiB of memory, though it touches none")
	}
	b := make([]byte, math.MaxInt32/2+1)
	b[0] = '#'
	src := unsafe.String(&b[0], len(b))
	files := func(yield func(name, src string) bool) { _ = yield("a.py", src) && yield("b.py", src) }
	if p, err := Parse(files, Options{}); !errors.Is(err, fault.ErrLimit) {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := Parse(one("a.py", src), Options{}); err != nil {
		t.Error(err)
	}
}

func TestTheHighestConstantIsKept(t *testing.T) {
	highest := func(src string) *ConstantRef {
		return parse(t, "def f(x: Tensor) -> Tensor:\n"+src+"  return x\n").HighestConstant
	}
	if ref := highest(""); ref != nil {
		t.Errorf("code without constants needs %d", ref.Index)
	}
	for src, want := range map[string]int{
		"  a = CONSTANTS.c0\n": 0,
		"  a = CONSTANTS.c3\n  b = CONSTANTS.c12\n  c = CONSTANTS.c7\n": 12,
		"  a = f(CONSTANTS.c5, b=[CONSTANTS.c2])\n":                     5,
	} {
		if ref := highest(src); ref == nil || ref.Index != want {
			t.Errorf("%s: %+v, want %d", src, ref, want)
		}
	}
}

// Two types are equal where the code spells them alike.
func TestTypesAreEqualAsSpelled(t *testing.T) {
	spelled := []string{
		"int", "Tensor", "NoneType", "List[int]", "List[Tensor]", "List[List[int]]", "List[List[float]]", "Optional[int]",
		"Dict[str, int]", "Dict[str, Tensor]", "Dict[int, str]", "Tuple[()]", "Tuple[int]", "Tuple[int, int]",
		"Tuple[int, Tensor]", "Union[int, Tensor]", "Future[int]", "__torch__.A", "__torch__.B", "List[__torch__.A]",
		"List[__torch__.B]",
	}
	typ := func(s string) *Type {
		return parse(t, "def f(x: "+s+") -> Tensor:\n  return x\n").Functions["__torch__.f"].Args[0].Type
	}
	for i, s := range spelled {
		for j, u := range spelled {
			if got := typ(s).Equal(typ(u)); got != (i == j) {
				t.Errorf("%s and %s: equal is %t", s, u, got)
			}
		}
		if typ(s).Equal(nil) || (*Type)(nil).Equal(typ(s)) {
			t.Errorf("%s is equal to no type", s)
		}
	}
}

func TestObjectsHaveTheirAttributes(t *testing.T) {
	o := &Object{Attributes: []Field{{"a", int64(1)}, {"", "state"}, {"b", nil}}}
	for name, want := range map[string]Value{"a": int64(1), "": "state", "b": nil} {
		if v, ok := o.Attribute(name); !ok || v != want {
			t.Errorf("%q is %v, %t", name, v, ok)
		}
	}
	if v, ok := o.Attribute("c"); ok {
		t.Errorf("an attribute that is not there is %v", v)
	}
}
