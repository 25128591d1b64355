package exported

import (
	"errors"
	"fmt"
	"math"
	"math/big"

	"github.com/optimem/optimem/loader/internal/fault"
)

var (
	errOverflow = errors.New("the value does not fit 64 bits")
	errZero     = errors.New("division by zero")
)

// Eval computes the expression for the given values of its symbols. The result is an integer; a truth value is 0 or 1.
// It fails where a symbol has no value, a step does not fit 64 bits, the result is not an integer, or a function is
// one that Eval does not know.
func (e *Expr) Eval(values map[string]int64) (int64, error) {
	r, err := e.eval(values)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", e, err)
	}
	if r.den != 1 {
		return 0, fmt.Errorf("%s: the value %d/%d is not an integer", e, r.num, r.den)
	}
	return r.num, nil
}

// A ratio is a fraction in lowest terms; den is positive.
type ratio struct{ num, den int64 }

func whole(n int64) ratio { return ratio{n, 1} }

func truth(b bool) ratio {
	if b {
		return whole(1)
	}
	return whole(0)
}

// fromBig returns n/d in lowest terms.
func fromBig(n, d *big.Int) (ratio, error) {
	if d.Sign() == 0 {
		return ratio{}, errZero
	}
	q := new(big.Rat).SetFrac(n, d)
	if !q.Num().IsInt64() || !q.Denom().IsInt64() {
		return ratio{}, errOverflow
	}
	return ratio{q.Num().Int64(), q.Denom().Int64()}, nil
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

func (a ratio) add(b ratio) (ratio, error) {
	return fromBig(new(big.Int).Add(product(a.num, b.den), product(b.num, a.den)), product(a.den, b.den))
}

func (a ratio) mul(b ratio) (ratio, error) {
	return fromBig(product(a.num, b.num), product(a.den, b.den))
}

func (a ratio) div(b ratio) (ratio, error) {
	return fromBig(product(a.num, b.den), product(a.den, b.num))
}

func (a ratio) cmp(b ratio) int { return product(a.num, b.den).Cmp(product(b.num, a.den)) }

func (a ratio) floor() ratio {
	n := a.num / a.den
	if a.num%a.den < 0 {
		n--
	}
	return whole(n)
}

func (a ratio) ceil() ratio {
	n := a.num / a.den
	if a.num%a.den > 0 {
		n++
	}
	return whole(n)
}

// mod has the sign of b, as in Python.
func (a ratio) mod(b ratio) (ratio, error) {
	q, err := a.div(b)
	if err != nil {
		return ratio{}, err
	}
	if q, err = q.floor().mul(b); err != nil {
		return ratio{}, err
	}
	if q, err = q.mul(whole(-1)); err != nil {
		return ratio{}, err
	}
	return a.add(q)
}

func (a ratio) pow(b ratio) (ratio, error) {
	if b.den != 1 {
		return ratio{}, errors.New("a root")
	}
	base, n := a, b.num
	if n < 0 {
		var err error
		if base, err = whole(1).div(a); err != nil {
			return ratio{}, err
		}
		if n = -n; n < 0 {
			return ratio{}, errOverflow
		}
	}
	if base.num == 0 || base == whole(1) {
		if n == 0 {
			return whole(1), nil
		}
		return base, nil
	}
	r, err := whole(1), error(nil)
	for ; n > 0 && err == nil; n >>= 1 {
		if n&1 == 1 {
			if r, err = r.mul(base); err != nil {
				break
			}
		}
		if n > 1 {
			base, err = base.mul(base)
		}
	}
	return r, err
}

// round rounds half to even, as Python does.
func (a ratio) round() (ratio, error) {
	f := a.floor()
	twice, err := whole(2).mul(ratio{a.num - f.num*a.den, a.den})
	if err != nil {
		return ratio{}, err
	}
	if c := twice.cmp(whole(1)); c > 0 || c == 0 && f.num%2 != 0 {
		return f.add(whole(1))
	}
	return f, nil
}

func (e *Expr) eval(values map[string]int64) (ratio, error) {
	switch e.Fn {
	case FnInteger, FnBool:
		return whole(e.Int), nil
	case FnRational:
		return whole(e.Int).div(whole(e.Den))
	case FnFloat:
		if e.Float == math.Trunc(e.Float) && math.Abs(e.Float) < 1<<53 {
			return whole(int64(e.Float)), nil
		}
		return ratio{}, fmt.Errorf("%w: the float %g in a size", fault.ErrUnsupported, e.Float)
	case FnSymbol:
		v, ok := values[e.Name]
		if !ok {
			return ratio{}, fmt.Errorf("no value for %s", e.Name)
		}
		return whole(v), nil
	case "Piecewise", "ITE", "Where":
		return e.evalChoice(values)
	}
	args := make([]ratio, len(e.Args))
	for i, a := range e.Args {
		var err error
		if args[i], err = a.eval(values); err != nil {
			return ratio{}, err
		}
	}
	return e.Fn.apply(args)
}

// evalChoice computes only the branch that is taken.
func (e *Expr) evalChoice(values map[string]int64) (ratio, error) {
	if e.Fn == "Piecewise" {
		for _, pair := range e.Args {
			if pair.Fn != "ExprCondPair" && pair.Fn != "Tuple" || len(pair.Args) != 2 {
				break
			}
			if c, err := pair.Args[1].eval(values); err != nil {
				return ratio{}, err
			} else if c.num != 0 {
				return pair.Args[0].eval(values)
			}
		}
	} else if len(e.Args) == 3 {
		c, err := e.Args[0].eval(values)
		if err != nil {
			return ratio{}, err
		}
		if c.num != 0 {
			return e.Args[1].eval(values)
		}
		return e.Args[2].eval(values)
	}
	return ratio{}, fmt.Errorf("%w: no case of %s applies", fault.ErrUnsupported, e.Fn)
}

// apply computes a function of numbers.
func (f Fn) apply(args []ratio) (ratio, error) {
	switch f {
	case FnAdd, FnMul, FnMax, FnMin, FnAnd, FnOr:
		return f.fold(args)
	}
	switch len(args) {
	case 1:
		return f.apply1(args[0])
	case 2:
		return f.apply2(args[0], args[1])
	case 3:
		if f == "ModularIndexing" {
			q, err := args[0].div(args[1])
			if err != nil {
				return ratio{}, err
			}
			return q.floor().mod(args[2])
		}
	}
	return ratio{}, f.unknown()
}

func (f Fn) unknown() error {
	return fmt.Errorf("%w: the function %s in a size", fault.ErrUnsupported, string(f))
}

func (f Fn) fold(args []ratio) (r ratio, err error) {
	for i, a := range args {
		switch {
		case i == 0:
			r = a
		case f == FnAdd:
			r, err = r.add(a)
		case f == FnMul:
			r, err = r.mul(a)
		case f == FnMax && a.cmp(r) > 0, f == FnMin && a.cmp(r) < 0:
			r = a
		case f == FnAnd:
			r = truth(r.num != 0 && a.num != 0)
		case f == FnOr:
			r = truth(r.num != 0 || a.num != 0)
		}
		if err != nil {
			return ratio{}, err
		}
	}
	return r, nil
}

func (f Fn) apply1(a ratio) (ratio, error) {
	switch f {
	case FnNot:
		return truth(a.num == 0), nil
	case "ToFloat", "Identity", "TruncToFloat":
		return a, nil
	case "floor", "FloorToInt":
		return a.floor(), nil
	case "ceiling", "CeilToInt":
		return a.ceil(), nil
	case "TruncToInt":
		return whole(a.num / a.den), nil
	case "RoundToInt":
		return a.round()
	case "Abs":
		if a.num < 0 {
			return a.mul(whole(-1))
		}
		return a, nil
	}
	return ratio{}, f.unknown()
}

func (f Fn) apply2(a, b ratio) (ratio, error) {
	switch f {
	case FnPow, "PowByNatural":
		return a.pow(b)
	case "IntTrueDiv", "FloatTrueDiv":
		return a.div(b)
	case FnFloorDiv, "CleanDiv":
		q, err := a.div(b)
		return q.orOne().floor(), err
	case "CeilDiv":
		q, err := a.div(b)
		return q.orOne().ceil(), err
	case FnMod, "PythonMod":
		return a.mod(b)
	case FnEq:
		return truth(a.cmp(b) == 0), nil
	case FnNe:
		return truth(a.cmp(b) != 0), nil
	case FnLt:
		return truth(a.cmp(b) < 0), nil
	case FnLe:
		return truth(a.cmp(b) <= 0), nil
	case FnGt:
		return truth(a.cmp(b) > 0), nil
	case FnGe:
		return truth(a.cmp(b) >= 0), nil
	case "LShift", "RShift":
		p, err := whole(2).pow(b)
		if err != nil {
			return ratio{}, err
		}
		if f == "LShift" {
			return a.mul(p)
		}
		q, err := a.div(p)
		return q.orOne().floor(), err
	}
	return ratio{}, f.unknown()
}

// orOne replaces the zero ratio, which comes with an error, by a number.
func (a ratio) orOne() ratio {
	if a.den == 0 {
		return whole(1)
	}
	return a
}
