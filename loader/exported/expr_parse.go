package exported

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
)

// Expressions come in two notations. PyTorch 2.6 and later write sympy's repr: Add(Symbol('s0', positive=True,
// integer=True), Integer(1)). Before, it was infix: s0 + 1. The parser takes any mixture.

const (
	maxExprBytes = 64 << 10
	maxExprDepth = 100
	exprBytes    = 88
)

// aliases maps sympy's other names of functions to ours.
var aliases = map[string]Fn{
	"Equality": FnEq, "Unequality": FnNe, "StrictLessThan": FnLt, "LessThan": FnLe, "StrictGreaterThan": FnGt,
	"GreaterThan": FnGe, "Half": FnRational,
}

// constants are the names that are no symbols.
var constants = map[string]*Expr{
	"true": {Fn: FnBool, Int: 1, Den: 1}, "True": {Fn: FnBool, Int: 1, Den: 1},
	"false": {Fn: FnBool, Den: 1}, "False": {Fn: FnBool, Den: 1},
	"oo": {Fn: FnInfinity}, "int_oo": {Fn: FnInfinity}, "zoo": {Fn: FnInfinity}, "nan": {Fn: FnNaN},
}

// parseExpr parses an expression. Its error has no place and, for bad syntax, no class.
func parseExpr(text string, o Options) (*Expr, error) {
	if len(text) > maxExprBytes {
		return nil, fault.New(fault.ErrLimit, -1, "longer than %d bytes", maxExprBytes)
	}
	p := exprParser{text: text, opts: o}
	p.scan()
	e, err := p.binary(0, 0)
	if err != nil {
		return nil, err
	}
	if p.kind != tokenEnd {
		return nil, p.unexpected()
	}
	return e, nil
}

// exprError places an error of parseExpr.
func (d *decoder) exprError(text string, err error) error {
	class := fault.ErrFormat
	for _, c := range []error{fault.ErrLimit, fault.ErrUnsupported} {
		if errors.Is(err, c) {
			class = c
		}
	}
	return d.Errorf(class, "the expression %s: %v", quote(text), err)
}

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenName
	tokenNumber
	tokenString
	tokenSymbol // an operator or punctuation
	tokenBad
)

type exprParser struct {
	text  string
	opts  Options
	pos   int // after the token
	kind  tokenKind
	token string
}

// symbolTokens has the longer ones first.
var symbolTokens = []string{
	"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "<", ">", "&", "|", "~", "(", ")", ",", "=",
}

// scan reads the next token.
func (p *exprParser) scan() {
	rest := strings.TrimLeft(p.text[p.pos:], " ")
	p.pos = len(p.text) - len(rest)
	n := 0
	switch {
	case rest == "":
		p.kind, p.token = tokenEnd, ""
		return
	case isLetter(rest[0]):
		for n < len(rest) && (isLetter(rest[n]) || isDigit(rest[n]) || rest[n] == '.') {
			n++
		}
		p.kind = tokenName
	case isDigit(rest[0]) || rest[0] == '.':
		for n < len(rest) && (isDigit(rest[n]) || rest[n] == '.' || isExponent(rest, n)) {
			n++
		}
		p.kind = tokenNumber
	case rest[0] == '\'' || rest[0] == '"':
		end := strings.IndexByte(rest[1:], rest[0])
		if end < 0 || strings.ContainsRune(rest[1:1+end], '\\') {
			p.kind, p.token = tokenBad, rest[:1]
			return
		}
		p.kind, p.token = tokenString, rest[1:1+end]
		p.pos += end + 2
		return
	default:
		p.kind = tokenBad
		n = 1
		for _, s := range symbolTokens {
			if strings.HasPrefix(rest, s) {
				p.kind, n = tokenSymbol, len(s)
				break
			}
		}
	}
	p.token = rest[:n]
	p.pos += n
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// isExponent reports whether rest[n] belongs to the exponent of a number.
func isExponent(rest string, n int) bool {
	switch rest[n] {
	case 'e', 'E':
		return n+1 < len(rest) && (isDigit(rest[n+1]) || rest[n+1] == '-' || rest[n+1] == '+')
	case '-', '+':
		return rest[n-1] == 'e' || rest[n-1] == 'E'
	}
	return false
}

func (p *exprParser) unexpected() error {
	if p.kind == tokenEnd {
		return errors.New("it ends early")
	}
	return fmt.Errorf("unexpected %s", quote(p.token))
}

func (p *exprParser) is(symbol string) bool { return p.kind == tokenSymbol && p.token == symbol }

// node makes an expression, which is charged.
func (p *exprParser) node(e Expr) (*Expr, error) {
	if err := p.opts.Meter.Charge(exprBytes + 8*int64(len(e.Args))); err != nil {
		return nil, err
	}
	return &e, nil
}

// infixTokens are the binary operators: how strongly they bind, and their function.
var infixTokens = map[string]struct {
	level int
	fn    Fn
}{
	"|": {1, FnOr}, "&": {2, FnAnd},
	"==": {3, FnEq}, "!=": {3, FnNe}, "<": {3, FnLt}, "<=": {3, FnLe}, ">": {3, FnGt}, ">=": {3, FnGe},
	"+": {4, FnAdd}, "-": {4, FnAdd}, "*": {5, FnMul}, "/": {5, FnMul}, "//": {5, FnFloorDiv}, "%": {5, FnMod},
	"**": {7, FnPow},
}

// binary parses operators that bind at least as strongly as level.
func (p *exprParser) binary(level, depth int) (*Expr, error) {
	left, err := p.unary(depth)
	if err != nil {
		return nil, err
	}
	for chain := depth; p.kind == tokenSymbol; {
		op, ok := infixTokens[p.token]
		if !ok || op.level < level {
			break
		}
		if left.Fn != op.fn || !op.fn.flat() {
			if chain++; chain > maxExprDepth {
				return nil, fault.New(fault.ErrLimit, -1, "nested deeper than %d", maxExprDepth)
			}
		}
		symbol := p.token
		p.scan()
		next := op.level + 1
		if symbol == "**" {
			next = unaryLevel // to the right, and −1 may follow
		}
		right, err := p.binary(next, depth+1)
		if err != nil {
			return nil, err
		}
		switch symbol {
		case "-":
			right, err = p.negate(right)
		case "/":
			if left.Fn == FnInteger && right.Fn == FnInteger && right.Int > 0 {
				left, err = p.node(Expr{Fn: FnRational, Int: left.Int, Den: right.Int})
				if err != nil {
					return nil, err
				}
				continue
			}
			right, err = p.node(Expr{Fn: FnPow, Args: []*Expr{right, integer(-1)}})
		}
		if err != nil {
			return nil, err
		}
		if left, err = p.join(op.fn, left, right); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// flat reports whether a chain of the operator makes one list of arguments.
func (f Fn) flat() bool { return f == FnAdd || f == FnMul || f == FnAnd || f == FnOr }

// join makes fn(left, right), one flat list where fn is a sum, a product or a conjunction.
func (p *exprParser) join(fn Fn, left, right *Expr) (*Expr, error) {
	if left.Fn == fn && fn.flat() {
		if err := p.opts.Meter.Charge(16); err != nil {
			return nil, err
		}
		left.Args = append(left.Args, right)
		return left, nil
	}
	return p.node(Expr{Fn: fn, Args: []*Expr{left, right}})
}

func (p *exprParser) negate(e *Expr) (*Expr, error) {
	if e.Fn == FnInteger && e.Int != -e.Int {
		return p.node(Expr{Fn: FnInteger, Int: -e.Int, Den: 1})
	}
	return p.node(Expr{Fn: FnMul, Args: []*Expr{integer(-1), e}})
}

func (p *exprParser) unary(depth int) (*Expr, error) {
	if depth > min(maxExprDepth, p.opts.Depth) {
		return nil, fault.New(fault.ErrLimit, -1, "nested deeper than %d", min(maxExprDepth, p.opts.Depth))
	}
	switch {
	case p.is("-"):
		p.scan()
		e, err := p.binary(unaryLevel, depth+1)
		if err != nil {
			return nil, err
		}
		return p.negate(e)
	case p.is("~"):
		p.scan()
		e, err := p.binary(unaryLevel, depth+1)
		if err != nil {
			return nil, err
		}
		return p.node(Expr{Fn: FnNot, Args: []*Expr{e}})
	case p.is("("):
		p.scan()
		e, err := p.binary(0, depth+1)
		if err != nil {
			return nil, err
		}
		if !p.is(")") {
			return nil, p.unexpected()
		}
		p.scan()
		return e, nil
	}
	switch p.kind {
	case tokenNumber:
		return p.number()
	case tokenName:
		name := p.token
		p.scan()
		if p.is("(") {
			return p.call(name, depth)
		}
		if c, ok := constants[name]; ok {
			return c, nil
		}
		return p.node(Expr{Fn: FnSymbol, Name: name})
	}
	return nil, p.unexpected()
}

func (p *exprParser) number() (*Expr, error) {
	text := p.token
	p.scan()
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return p.node(Expr{Fn: FnInteger, Int: n, Den: 1})
	}
	if !strings.ContainsAny(text, ".eE") {
		return nil, fmt.Errorf("%s does not fit 64 bits", quote(text))
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("%s is not a number", quote(text))
	}
	return p.node(Expr{Fn: FnFloat, Float: f})
}

// call parses the arguments of a function, whose opening parenthesis is the token.
func (p *exprParser) call(name string, depth int) (*Expr, error) {
	p.scan()
	var args []*Expr
	var text string // of the first argument if that is a string
	hasText := false
	for !p.is(")") {
		switch {
		case p.kind == tokenString:
			text, hasText = p.token, true
			p.scan()
		default:
			e, err := p.binary(0, depth+1)
			if err != nil {
				return nil, err
			}
			if p.is("=") { // an assumption, such as positive=True
				p.scan()
				if _, err := p.binary(0, depth+1); err != nil {
					return nil, err
				}
				break
			}
			if err := p.opts.Meter.Charge(16); err != nil {
				return nil, err
			}
			args = append(args, e)
		}
		if p.is(",") {
			p.scan()
		} else if !p.is(")") {
			return nil, p.unexpected()
		}
	}
	p.scan()
	return p.apply(name, args, text, hasText)
}

// apply makes the call of a function, or the leaf that it stands for.
func (p *exprParser) apply(name string, args []*Expr, text string, hasText bool) (*Expr, error) {
	fn := Fn(name)
	if alias, ok := aliases[name]; ok {
		fn = alias
	}
	wrong := fmt.Errorf("%s with arguments that it cannot have", quote(name))
	switch fn {
	case FnSymbol, "Dummy":
		if !hasText || text == "" || len(args) != 0 {
			return nil, wrong
		}
		return p.node(Expr{Fn: FnSymbol, Name: text})
	case FnInteger:
		if len(args) != 1 || args[0].Fn != FnInteger {
			return nil, wrong
		}
		return args[0], nil
	case FnRational:
		if len(args) == 0 && name == "Half" {
			return p.node(Expr{Fn: FnRational, Int: 1, Den: 2})
		}
		if len(args) != 2 || args[0].Fn != FnInteger || args[1].Fn != FnInteger || args[1].Int <= 0 {
			return nil, wrong
		}
		return p.node(Expr{Fn: FnRational, Int: args[0].Int, Den: args[1].Int})
	case FnFloat:
		f, err := strconv.ParseFloat(text, 64)
		if !hasText || err != nil {
			return nil, wrong
		}
		return p.node(Expr{Fn: FnFloat, Float: f})
	case FnBool, FnInfinity, FnNaN: // leaves, which have no arguments
		return nil, wrong
	case FnEq, FnNe, FnLt, FnLe, FnGt, FnGe, FnPow, FnMod, FnFloorDiv:
		if len(args) != 2 {
			return nil, wrong
		}
	case FnNot:
		if len(args) != 1 {
			return nil, wrong
		}
	case FnAdd, FnMul, FnMax, FnMin, FnAnd, FnOr:
		if len(args) == 0 {
			return nil, wrong
		}
		if len(args) == 1 {
			return args[0], nil
		}
	}
	if hasText {
		return nil, wrong
	}
	return p.node(Expr{Fn: fn, Args: args})
}
