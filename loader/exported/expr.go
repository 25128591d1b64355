package exported

import (
	"strconv"
	"strings"
)

// An Fn is the function at the top of an [Expr].
type Fn string

// The leaves of expressions, and the functions that [Expr.Eval] computes. Files may have others.
const (
	FnInteger  Fn = "Integer"  // Int
	FnRational Fn = "Rational" // Int / Den
	FnFloat    Fn = "Float"    // Float
	FnSymbol   Fn = "Symbol"   // Name
	FnBool     Fn = "Bool"     // Int: 0 or 1
	FnInfinity Fn = "Infinity"
	FnNaN      Fn = "NaN"

	FnAdd      Fn = "Add"
	FnMul      Fn = "Mul"
	FnPow      Fn = "Pow"
	FnFloorDiv Fn = "FloorDiv"
	FnMod      Fn = "Mod"
	FnMax      Fn = "Max"
	FnMin      Fn = "Min"

	FnEq  Fn = "Eq"
	FnNe  Fn = "Ne"
	FnLt  Fn = "Lt"
	FnLe  Fn = "Le"
	FnGt  Fn = "Gt"
	FnGe  Fn = "Ge"
	FnAnd Fn = "And"
	FnOr  Fn = "Or"
	FnNot Fn = "Not"
)

// An Expr is a symbolic expression: a leaf, or a function of other expressions. Expressions are shared and not
// modified.
type Expr struct {
	Fn   Fn
	Name string
	// Int and Den are the value of an integer (Den is 1), rational or truth value.
	Int, Den int64
	Float    float64
	Args     []*Expr
}

func integer(n int64) *Expr { return &Expr{Fn: FnInteger, Int: n, Den: 1} }

// Symbols returns the names of the symbols in the expression, each once, in the order in which they occur.
func (e *Expr) Symbols() []string {
	var names []string
	seen := make(map[string]bool)
	e.walk(func(leaf *Expr) {
		if leaf.Fn == FnSymbol && !seen[leaf.Name] {
			seen[leaf.Name] = true
			names = append(names, leaf.Name)
		}
	})
	return names
}

func (e *Expr) walk(visit func(*Expr)) {
	visit(e)
	for _, a := range e.Args {
		a.walk(visit)
	}
}

// infix lists the functions that are written between their arguments, with how strongly they bind.
var infix = map[Fn]struct {
	symbol string
	level  int
}{
	FnOr: {" | ", 1}, FnAnd: {" & ", 2},
	FnEq: {" == ", 3}, FnNe: {" != ", 3}, FnLt: {" < ", 3}, FnLe: {" <= ", 3}, FnGt: {" > ", 3}, FnGe: {" >= ", 3},
	FnAdd: {" + ", 4}, FnMul: {"*", 5}, FnFloorDiv: {"//", 5}, FnMod: {" % ", 5}, FnPow: {"**", 7},
	"CleanDiv": {"//", 5}, "PythonMod": {" % ", 5}, "IntTrueDiv": {"/", 5},
}

// unaryLevel is that of a sign.
const unaryLevel = 6

// String writes the expression as Python would: "2*s77 + 1", "s77//2", "Max(1, s0)".
func (e *Expr) String() string {
	var b strings.Builder
	e.write(&b, 0)
	return b.String()
}

// write writes the expression, in parentheses where it binds less strongly than level.
func (e *Expr) write(b *strings.Builder, level int) {
	op, ok := infix[e.Fn]
	if ok && len(e.Args) >= 2 {
		if positive := e.negated(); positive != nil && level <= infix[FnAdd].level {
			b.WriteByte('-')
			if positive.beginsWithQuotient() { // the sign would go to what is divided
				positive.write(b, unaryLevel)
			} else {
				positive.write(b, infix[FnMul].level)
			}
			return
		}
		if op.level < level {
			b.WriteByte('(')
			defer b.WriteByte(')')
		}
		for i, a := range e.Args {
			inner := op.level
			if i > 0 && e.Fn != FnAdd && e.Fn != FnMul && e.Fn != FnAnd && e.Fn != FnOr || e.Fn == FnPow {
				inner++
			}
			if i > 0 {
				if positive := a.negated(); e.Fn == FnAdd && positive != nil {
					b.WriteString(" - ")
					positive.write(b, op.level+1)
					continue
				}
				b.WriteString(op.symbol)
				if e.Fn == FnMul && a.beginsWithQuotient() { // the product would be what is divided
					inner = op.level + 1
				}
			}
			a.write(b, inner)
		}
		return
	}
	switch e.Fn {
	case FnSymbol:
		b.WriteString(e.Name)
	case FnInteger:
		writeSigned(b, strconv.FormatInt(e.Int, 10), level)
	case FnRational:
		writeSigned(b, strconv.FormatInt(e.Int, 10)+"/"+strconv.FormatInt(e.Den, 10), max(level, 6))
	case FnFloat:
		writeSigned(b, strconv.FormatFloat(e.Float, 'g', -1, 64), level)
	case FnBool:
		b.WriteString([]string{"False", "True"}[e.Int])
	case FnInfinity:
		b.WriteString("oo")
	case FnNaN:
		b.WriteString("nan")
	case FnNot:
		b.WriteByte('~')
		e.Args[0].write(b, unaryLevel)
	default:
		b.WriteString(string(e.Fn))
		b.WriteByte('(')
		for i, a := range e.Args {
			if i > 0 {
				b.WriteString(", ")
			}
			a.write(b, 0)
		}
		b.WriteByte(')')
	}
}

// beginsWithQuotient reports whether the expression, written without parentheses, begins with a quotient or remainder.
func (e *Expr) beginsWithQuotient() bool {
	for e.Fn == FnMul && len(e.Args) >= 2 {
		e = e.Args[0]
	}
	return e.Fn != FnMul && len(e.Args) >= 2 && infix[e.Fn].level == infix[FnMul].level
}

// writeSigned writes a number, in parentheses where a sign or a slash would be misread.
func writeSigned(b *strings.Builder, text string, level int) {
	if level > 4 && (text[0] == '-' || strings.Contains(text, "/")) {
		b.WriteString("(" + text + ")")
		return
	}
	b.WriteString(text)
}

// negated returns −e where e is a negative number or a product with one in front, nil otherwise.
func (e *Expr) negated() *Expr {
	switch {
	case e.Fn == FnInteger && e.Int < 0 && e.Int != -e.Int:
		return integer(-e.Int)
	case e.Fn == FnMul && len(e.Args) >= 2 && e.Args[0].Fn == FnInteger:
		first := e.Args[0].negated()
		if first == nil {
			return nil
		}
		rest := e.Args[1:]
		if first.Int != 1 {
			rest = append([]*Expr{first}, rest...)
		}
		if len(rest) == 1 {
			return rest[0]
		}
		return &Expr{Fn: FnMul, Args: rest}
	}
	return nil
}
