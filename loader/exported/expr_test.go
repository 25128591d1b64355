package exported

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader/internal/fault"
)

func TestExpr(t *testing.T) {
	values := map[string]int64{"s0": 7, "s1": 3, "u0": 0}
	tests := []struct {
		text, want string
		value      int64
	}{
		{"Symbol('s0', positive=True, integer=True)", "s0", 7},
		{"Integer(5)", "5", 5},
		{"Integer(-5)", "-5", -5},
		{"Add(Mul(Integer(2), Symbol('s0')), Integer(-1))", "2*s0 - 1", 13},
		{"Add(Symbol('s0'), Mul(Integer(-1), Symbol('s1')))", "s0 - s1", 4},
		{"Mul(Integer(2), Add(Symbol('s0'), Symbol('s1')))", "2*(s0 + s1)", 20},
		{"FloorDiv(Symbol('s0'), Integer(2))", "s0//2", 3},
		{"FloorDiv(Add(Symbol('s0'), Integer(1)), Integer(2))", "(s0 + 1)//2", 4},
		{"FloorDiv(Integer(-7), Integer(2))", "(-7)//2", -4},
		{"FloorDiv(Symbol('s0'), FloorDiv(Symbol('s0'), Integer(2)))", "s0//(s0//2)", 2},
		{"Mod(Integer(-7), Integer(4))", "(-7) % 4", 1},
		{"PythonMod(Symbol('s0'), Integer(-4))", "s0 % (-4)", -1},
		{"Mul(Rational(1, 2), Add(Symbol('s0'), Integer(1)))", "(1/2)*(s0 + 1)", 4},
		{"Pow(Symbol('s1'), Integer(4))", "s1**4", 81},
		{"Pow(Pow(Symbol('s1'), Integer(2)), Integer(2))", "(s1**2)**2", 81},
		{"Mul(Symbol('s0'), Symbol('s0'), Pow(Symbol('s0'), Integer(-1)))", "s0*s0*s0**(-1)", 7},
		{"Max(Integer(1), Symbol('s0'), Symbol('s1'))", "Max(1, s0, s1)", 7},
		{"Min(Symbol('s0'), Symbol('s1'))", "Min(s0, s1)", 3},
		{"CeilDiv(Symbol('s0'), Integer(2))", "CeilDiv(s0, 2)", 4},
		{"CleanDiv(Integer(6), Symbol('s1'))", "6//s1", 2},
		{"TruncToInt(IntTrueDiv(Integer(-7), Integer(2)))", "TruncToInt((-7)/2)", -3},
		{"CeilToInt(IntTrueDiv(ToFloat(Symbol('s0')), Integer(2)))", "CeilToInt(ToFloat(s0)/2)", 4},
		{"RoundToInt(Rational(5, 2))", "RoundToInt((5/2))", 2},
		{"RoundToInt(Rational(7, 2))", "RoundToInt((7/2))", 4},
		{"ModularIndexing(Symbol('s0'), Integer(2), Integer(2))", "ModularIndexing(s0, 2, 2)", 1},
		{"Equality(Symbol('s0'), Integer(7))", "s0 == 7", 1},
		{"And(StrictGreaterThan(Symbol('s0'), Integer(1)), Not(LessThan(Symbol('s0'), Integer(7))))", "s0 > 1 & ~(s0 <= 7)", 0},
		{"Or(false, Unequality(Symbol('s0'), Integer(0)))", "False | s0 != 0", 1},
		{"Where(true, Symbol('s0'), FloorDiv(Integer(1), Symbol('u0')))", "Where(True, s0, 1//u0)", 7},
		{"Piecewise(ExprCondPair(Integer(1), Equality(Symbol('s0'), Integer(0))), ExprCondPair(Integer(2), true))",
			"Piecewise(ExprCondPair(1, s0 == 0), ExprCondPair(2, True))", 2},
		{"LShift(Symbol('s1'), Integer(4))", "LShift(s1, 4)", 48},
		{"Float('4.0', precision=53)", "4", 4},
		{"s0 + 1", "s0 + 1", 8},
		{"2*s0 - s1*s0 + 1", "2*s0 - s1*s0 + 1", -6},
		{"-s0 + 3", "-s0 + 3", -4},
		{"-s0**2", "-s0**2", -49},
		{"(s0 + 1)//2", "(s0 + 1)//2", 4},
		{"s0 % 4", "s0 % 4", 3},
		{"s0**2**0", "s0**(2**0)", 7},
		{"2**-1*s0*2", "2**(-1)*s0*2", 7},
		{"((s0)//(2*s1))", "s0//(2*s1)", 1},
		{"4/2", "4/2", 2},
		{"s0*s1/7", "s0*s1*7**(-1)", 3},
		{"s0 >= 7", "s0 >= 7", 1},
		{"(s0 > 1) & (s1 < 2)", "s0 > 1 & s1 < 2", 0},
	}
	o := Options{}.withDefaults()
	for _, test := range tests {
		e, err := parseExpr(test.text, o)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if got := e.String(); got != test.want && !(test.want == "4/2" && got == "(4/2)") {
			t.Errorf("%s is written %s, want %s", test.text, got, test.want)
		}
		if got, err := e.Eval(values); err != nil || got != test.value {
			t.Errorf("%s is %d, %v; want %d", test.text, got, err, test.value)
		}
		again, err := parseExpr(e.String(), o)
		if err != nil {
			t.Errorf("%s: %v", e, err)
		} else if got, err := again.Eval(values); err != nil || got != test.value {
			t.Errorf("%s, read again, is %d, %v; want %d", e, got, err, test.value)
		}
	}
}

func TestExprSymbols(t *testing.T) {
	e, err := parseExpr("Add(Symbol('s1'), Mul(Symbol('s0'), Symbol('s1')), Max(Symbol('u0'), int_oo))", Options{}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"s1", "s0", "u0"}, e.Symbols()); diff != "" {
		t.Error(diff)
	}
}

func TestExprRefused(t *testing.T) {
	for _, text := range []string{
		"", " ", "1 +", "(1", "1)", "f(", "f(1", "f(1 2)", "s0 s1", "Symbol()", "Symbol(s0)", "Symbol('')", "Integer('x')",
		"Integer(1, 2)", "Rational(1, 0)", "Rational(1, -2)", "Float('x')", "Not()", "Add()", "Mod(1)", "99999999999999999999",
		"1..2", "'s0'", "Symbol('s0", `Symbol('s\'0')`, "s0 @ s1", "#", "é", "f('x')", "-", "~",
	} {
		if e, err := parseExpr(text, Options{}.withDefaults()); err == nil {
			t.Errorf("%q read as %s", text, e)
		}
	}
}

func TestEvalFails(t *testing.T) {
	tests := map[string]error{
		"s0 + s9":                        nil,
		"FloorDiv(s0, 0)":                errZero,
		"CeilDiv(s0, 0)":                 errZero,
		"Mod(s0, 0)":                     errZero,
		"RShift(s0, 1//0)":               errZero,
		"0**-1":                          errZero,
		"s0**100":                        errOverflow,
		"9223372036854775807 + 1":        errOverflow,
		"9223372036854775807 * 2":        errOverflow,
		"-9223372036854775807 - 2":       errOverflow,
		"LShift(1, 9223372036854775807)": errOverflow,
		"7/2":                            nil,
		"oo":                             fault.ErrUnsupported,
		"OpaqueUnaryFn_sqrt(s0)":         fault.ErrUnsupported,
		"Float('0.5')":                   fault.ErrUnsupported,
		"Piecewise(ExprCondPair(1, Equality(1, 2)))": fault.ErrUnsupported,
	}
	for text, want := range tests {
		e, err := parseExpr(text, Options{}.withDefaults())
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := e.Eval(map[string]int64{"s0": 7}); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s is %d, %v; want the error %v", text, got, err, want)
		}
	}
}
