package aten

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/optimem/optimem/models/aten/cells"
)

// scalarTargets are the operators on numbers with which programs compute shapes. Shapes are concrete when a graph is
// built, so numbers are computed here and leave no op.
var scalarTargets = map[string]func(args []any) (any, error){
	"_operator.add": arithmetic(
		func(a, b int) (int, error) { return a + b, nil }, func(a, b float64) float64 { return a + b },
	),
	"_operator.sub": arithmetic(
		func(a, b int) (int, error) { return a - b, nil }, func(a, b float64) float64 { return a - b },
	),
	"_operator.mul": arithmetic(
		func(a, b int) (int, error) { return a * b, nil }, func(a, b float64) float64 { return a * b },
	),
	"_operator.floordiv": dividing(arithmetic(floorDiv, func(a, b float64) float64 { q, _ := divMod(a, b); return q })),
	"_operator.mod":      dividing(arithmetic(floorMod, func(a, b float64) float64 { _, r := divMod(a, b); return r })),
	"_operator.pow":      arithmetic(power, math.Pow),
	"_operator.truediv": dividing(func(args []any) (any, error) {
		a, b, err := twoFloats(args)
		return a / b, err
	}),
	"_operator.neg": func(args []any) (any, error) {
		switch v := firstOf(args).(type) {
		case int:
			return -v, nil
		case float64:
			return -v, nil
		}
		return nil, errNumber
	},
	"_operator.eq":      comparison(func(a, b float64) bool { return a == b }),
	"_operator.ne":      comparison(func(a, b float64) bool { return a != b }),
	"_operator.lt":      comparison(func(a, b float64) bool { return a < b }),
	"_operator.le":      comparison(func(a, b float64) bool { return a <= b }),
	"_operator.gt":      comparison(func(a, b float64) bool { return a > b }),
	"_operator.ge":      comparison(func(a, b float64) bool { return a >= b }),
	"_operator.and_":    logical(func(a, b bool) bool { return a && b }),
	"_operator.or_":     logical(func(a, b bool) bool { return a || b }),
	"_operator.getitem": getItem,
	"torch.sym_max":     arithmetic(func(a, b int) (int, error) { return max(a, b), nil }, math.Max),
	"torch.sym_min":     arithmetic(func(a, b int) (int, error) { return min(a, b), nil }, math.Min),
	"torch.sym_float":   func(args []any) (any, error) { return floatOf(firstOf(args)) },
	"torch.sym_int":     rounded(math.Trunc),
	"math.trunc":        rounded(math.Trunc),
	"math.ceil":         rounded(math.Ceil),
	"math.floor":        rounded(math.Floor),
	"builtins.round":    rounded(math.RoundToEven),
	"torch._sym_sqrt":   floatFunc(math.Sqrt),
	"math.sqrt":         floatFunc(math.Sqrt),
	"torch.sym_not": func(
		args []any,
	) (any, error) {
		b, ok := firstOf(args).(bool)
		return !b, check(ok)
	},
	"torch.sym_ite":                                          chosen,
	"torch.sym_sum":                                          sum,
	"torch.ops.aten.sym_size.int":                            tensorSize,
	"torch.ops.aten.size.int":                                tensorSize, // in functions that were scripted
	"torch.ops.aten.sym_stride.int":                          tensorStride,
	"torch.ops.aten.sym_numel.default":                       tensorNumel,
	"torch.ops.aten.sym_constrain_range.default":             nothing,
	"torch.ops.aten.sym_constrain_range_for_size.default":    nothing,
	"torch.ops.aten._assert_scalar.default":                  nothing,
	"torch.ops.aten._assert_async.msg":                       nothing,
	"torch.ops.aten._assert_async.default":                   nothing,
	"torch.ops.aten._assert_tensor_metadata.default":         nothing,
	"torch.ops.aten._functional_sym_constrain_range.default": nothing,
}

var (
	errNumber   = errors.New("an argument is not a number")
	errDivision = errors.New("division by zero")
)

func check(ok bool) error {
	if !ok {
		return errNumber
	}
	return nil
}

func firstOf(args []any) any {
	v, _ := at(args, 0)
	return v
}

func floatOf(v any) (float64, error) {
	switch v := v.(type) {
	case int:
		return float64(v), nil
	case float64:
		return v, nil
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	}
	return 0, errNumber
}

func twoFloats(args []any) (a, b float64, err error) {
	x, err1 := at(args, 0)
	y, err2 := at(args, 1)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, err
	}
	if a, err = floatOf(x); err == nil {
		b, err = floatOf(y)
	}
	return a, b, err
}

// arithmetic is on integers where both are, else on floats.
func arithmetic(ints func(a, b int) (int, error), floats func(a, b float64) float64) func([]any) (any, error) {
	return func(args []any) (any, error) {
		a, b, err := twoFloats(args)
		if err != nil {
			return nil, err
		}
		i, ok1 := args[0].(int)
		j, ok2 := args[1].(int)
		if ok1 && ok2 {
			n, err := ints(i, j)
			return n, err
		}
		return floats(a, b), nil
	}
}

// floorDiv and floorMod round towards minus infinity, as Python does.
func floorDiv(a, b int) (int, error) {
	if b == 0 {
		return 0, errDivision
	}
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q, nil
}

func floorMod(a, b int) (int, error) {
	q, err := floorDiv(a, b)
	return a - q*b, err
}

// dividing is an operator that fails on a divisor of zero.
func dividing(f func([]any) (any, error)) func([]any) (any, error) {
	return func(args []any) (any, error) {
		if _, b, err := twoFloats(args); err == nil && b == 0 {
			return nil, errDivision
		}
		return f(args)
	}
}

// divMod is Python's divmod of floats: the remainder is exact and has the divisor's sign, which the quotient is made from.
func divMod(a, b float64) (quotient, remainder float64) {
	remainder = math.Mod(a, b)
	quotient = (a - remainder) / b
	if remainder == 0 {
		return math.RoundToEven(quotient), math.Copysign(0, b)
	}
	if (remainder < 0) != (b < 0) {
		remainder += b
		quotient--
	}
	if quotient == 0 {
		return math.Copysign(0, a/b), remainder
	}
	return math.RoundToEven(quotient), remainder
}

func power(a, b int) (int, error) {
	x := math.Pow(float64(a), float64(b))
	if b < 0 || math.Abs(x) > 1<<53 {
		return 0, fmt.Errorf("%d to the power of %d", a, b)
	}
	return int(x), nil
}

func comparison(holds func(a, b float64) bool) func([]any) (any, error) {
	return func(args []any) (any, error) {
		a, b, err := twoFloats(args)
		return holds(a, b), err
	}
}

func logical(op func(a, b bool) bool) func([]any) (any, error) {
	return func(args []any) (any, error) {
		a, b, err := twoFloats(args)
		return op(a != 0, b != 0), err
	}
}

func rounded(round func(float64) float64) func([]any) (any, error) {
	return func(args []any) (any, error) {
		v := firstOf(args)
		if n, ok := v.(int); ok {
			return n, nil
		}
		x, err := floatOf(v)
		if err == nil && !(math.Abs(x) < 1<<62) {
			err = fmt.Errorf("%v is no size", x)
		}
		if err != nil {
			return nil, err
		}
		return int(round(x)), nil
	}
}

func floatFunc(f func(float64) float64) func([]any) (any, error) {
	return func(args []any) (any, error) {
		x, err := floatOf(firstOf(args))
		if y := f(x); err == nil && y == y {
			return y, nil
		}
		return nil, cmp.Or(err, fmt.Errorf("no function value at %v", x))
	}
}

func chosen(args []any) (any, error) {
	if len(args) != 3 {
		return nil, errNumber
	}
	b, ok := args[0].(bool)
	if b {
		return args[1], check(ok)
	}
	return args[2], check(ok)
}

func sum(args []any) (any, error) {
	list, ok := firstOf(args).([]int)
	total := 0
	for _, n := range list {
		total += n
	}
	return total, check(ok)
}

// getItem takes one of several results.
func getItem(args []any) (any, error) {
	i, err := at(args, 1)
	n, ok := i.(int)
	if err != nil || !ok {
		return nil, errNumber
	}
	switch v := firstOf(args).(type) {
	case []*cells.Ref:
		if n >= 0 && n < len(v) {
			return v[n], nil
		}
	case []any:
		if n >= 0 && n < len(v) {
			return v[n], nil
		}
	case []int:
		if n >= 0 && n < len(v) {
			return v[n], nil
		}
	}
	return nil, fmt.Errorf("no result %d", n)
}

func tensorAnd(args []any) (*cells.Ref, int, error) {
	r, ok := firstOf(args).(*cells.Ref)
	if !ok {
		return nil, 0, errors.New("an argument is not a tensor")
	}
	v, err := at(args, 1)
	d, ok := v.(int)
	if err != nil || !ok || d < -r.Rank() || d >= r.Rank() {
		return nil, 0, fmt.Errorf("dimension %v of a tensor of rank %d", v, r.Rank())
	}
	if d < 0 {
		d += r.Rank()
	}
	return r, d, nil
}

func tensorSize(args []any) (any, error) {
	r, d, err := tensorAnd(args)
	if err != nil {
		return nil, err
	}
	return r.Shape()[d], nil
}

func tensorStride(args []any) (any, error) {
	r, d, err := tensorAnd(args)
	if err != nil {
		return nil, err
	}
	return r.Layout().Strides[d], nil
}

func tensorNumel(args []any) (any, error) {
	r, ok := firstOf(args).(*cells.Ref)
	if !ok {
		return nil, errors.New("an argument is not a tensor")
	}
	return int(cells.NumElements(r.Shape())), nil
}

// nothing is what checks of a program leave: shapes are checked while the graph is built.
func nothing([]any) (any, error) { return nil, nil }

// at returns argument i.
func at(args []any, i int) (any, error) {
	if i >= len(args) {
		return nil, fmt.Errorf("argument %d is missing", i)
	}
	return args[i], nil
}
