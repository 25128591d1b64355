package torchscript

import (
	"math"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// foldOps are the ops that are computed here when all that they are given is known: the arithmetic of sizes in traced
// code, where every number is a tensor without dimensions. All are exact, so that nothing depends on where they are
// computed. The functions compute in float64 or on integers.
var foldOps = map[string]foldOp{
	"add":          {2, func(a, b float64) float64 { return a + b }, func(a, b int) int { return a + b }, 0},
	"sub":          {2, func(a, b float64) float64 { return a - b }, func(a, b int) int { return a - b }, 0},
	"rsub":         {2, func(a, b float64) float64 { return b - a }, func(a, b int) int { return b - a }, 0},
	"mul":          {2, func(a, b float64) float64 { return a * b }, func(a, b int) int { return a * b }, 0},
	"div":          {2, func(a, b float64) float64 { return a / b }, nil, 0},
	"floor_divide": {2, func(a, b float64) float64 { return math.Floor(a / b) }, floorDiv, 0},
	"remainder":    {2, floorMod, func(a, b int) int { return a - floorDiv(a, b)*b }, 0},
	"maximum":      {2, math.Max, func(a, b int) int { return max(a, b) }, 0},
	"minimum":      {2, math.Min, func(a, b int) int { return min(a, b) }, 0},
	"neg":          {1, func(a, _ float64) float64 { return -a }, func(a, _ int) int { return -a }, 0},
	"abs":          {1, func(a, _ float64) float64 { return math.Abs(a) }, func(a, _ int) int { return max(a, -a) }, 0},
	"floor":        {1, func(a, _ float64) float64 { return math.Floor(a) }, func(a, _ int) int { return a }, 0},
	"ceil":         {1, func(a, _ float64) float64 { return math.Ceil(a) }, func(a, _ int) int { return a }, 0},
	"trunc":        {1, func(a, _ float64) float64 { return math.Trunc(a) }, func(a, _ int) int { return a }, 0},
	"round":        {1, func(a, _ float64) float64 { return math.RoundToEven(a) }, func(a, _ int) int { return a }, 0},
	"sqrt":         {1, func(a, _ float64) float64 { return math.Sqrt(a) }, nil, 0},
	"eq":           {2, truth(func(a, b float64) bool { return a == b }), nil, tensor.Bool},
	"ne":           {2, truth(func(a, b float64) bool { return a != b }), nil, tensor.Bool},
	"lt":           {2, truth(func(a, b float64) bool { return a < b }), nil, tensor.Bool},
	"le":           {2, truth(func(a, b float64) bool { return a <= b }), nil, tensor.Bool},
	"gt":           {2, truth(func(a, b float64) bool { return a > b }), nil, tensor.Bool},
	"ge":           {2, truth(func(a, b float64) bool { return a >= b }), nil, tensor.Bool},
	"logical_and":  {2, truth(func(a, b float64) bool { return a != 0 && b != 0 }), nil, tensor.Bool},
	"logical_or":   {2, truth(func(a, b float64) bool { return a != 0 || b != 0 }), nil, tensor.Bool},
	"logical_not":  {1, truth(func(a, _ float64) bool { return a == 0 }), nil, tensor.Bool},
}

// A foldOp is how an op on numbers is computed.
type foldOp struct {
	operands int
	floats   func(a, b float64) float64
	// ints is nil where the result is a float even of integers.
	ints func(a, b int) int
	// dtype is the result's where it does not follow from the operands'.
	dtype tensor.DType
}

func truth(f func(a, b float64) bool) func(a, b float64) float64 {
	return func(a, b float64) float64 {
		if f(a, b) {
			return 1
		}
		return 0
	}
}

// fold computes an op whose operands are tensors without dimensions of known contents, and numbers.
func (m *machine) fold(name string, args []any, named map[string]any) (any, bool) {
	short, ok := strings.CutPrefix(name, "aten::")
	if !ok {
		return nil, false
	}
	if short == "to" && len(args) == 2 {
		v, d, _, ok := m.foldable(args[:1])
		if !ok || !exactDType(d) {
			return nil, false
		}
		to := m.dtype(args[1])
		if x, isFloat := v[0].(float64); isFloat && !(math.Abs(x) < 1<<53) || !exactDType(to) {
			return nil, false
		}
		return m.scalar(v[0], to), true
	}
	op, ok := foldOps[short]
	rounding := ""
	switch mode, has := named["rounding_mode"]; {
	case !ok, len(args) < op.operands:
		return nil, false
	case has && short == "div" && mode != nil:
		rounding, _ = mode.(string)
	case len(named) > 0:
		return nil, false
	}
	for _, extra := range args[op.operands:] { // alpha
		if extra != any(1) {
			return nil, false
		}
	}
	v, d, tensors, ok := m.foldable(args[:op.operands])
	if !ok || !tensors {
		return nil, false
	}
	switch rounding {
	case "floor":
		op = foldOps["floor_divide"]
	case "trunc":
		op = foldOp{2, func(a, b float64) float64 { return math.Trunc(a / b) }, func(a, b int) int { return a / b }, 0}
	case "":
	default:
		return nil, false
	}
	return m.computed(op, v, d, short)
}

func (m *machine) computed(op foldOp, v []any, d tensor.DType, name string) (any, bool) {
	v = append(v, v[0]) // one operand counts as two
	i, isInt := integer(v[0])
	j, isInt2 := integer(v[1])
	if op.ints != nil && isInt && isInt2 {
		divides := name == "div" || name == "floor_divide" || name == "remainder"
		if divides && j == 0 {
			m.fail("division by zero")
		}
		if d == tensor.Bool { // PyTorch has its own rules for bools
			return nil, false
		}
		return m.scalar(op.ints(i, j), d), true
	}
	x, _ := number(v[0])
	y, _ := number(v[1])
	if isInt && (i > 1<<53 || i < -1<<53) || isInt2 && (j > 1<<53 || j < -1<<53) {
		return nil, false
	}
	if op.dtype == tensor.Invalid && !isFloat(d) {
		d = tensor.Float32
	}
	a, b := real(x), real(y)
	if d == tensor.Float32 { // what is computed or compared in float32 is given in float32
		a, b = float64(float32(a)), float64(float32(b))
	}
	if op.dtype != tensor.Invalid {
		d = op.dtype
	}
	return m.scalar(op.floats(a, b), d), true
}

// foldable returns operands as numbers and the dtype that PyTorch computes in, where all are known and exact.
func (m *machine) foldable(args []any) (values []any, d tensor.DType, tensors, ok bool) {
	rank := func(d tensor.DType) int {
		switch d {
		case tensor.Bool:
			return 1
		case tensor.Int32:
			return 2
		case tensor.Int64:
			return 3
		case tensor.Float32:
			return 4
		case tensor.Float64:
			return 5
		}
		return 0
	}
	var plain []any
	for _, a := range args {
		t, isTensor := a.(layers.Tensor)
		if !isTensor {
			if _, isNumber := number(a); !isNumber {
				return nil, 0, false, false
			}
			plain = append(plain, a)
			values = append(values, a)
			continue
		}
		if len(t.Shape()) > 0 || !exactDType(t.DType()) {
			return nil, 0, false, false
		}
		x := m.known(t)
		if x == nil {
			return nil, 0, false, false
		}
		v, decoded := decode(x, x.Layout.Offset)
		if !decoded {
			return nil, 0, false, false
		}
		values, tensors = append(values, v), true
		if rank(t.DType()) > rank(d) {
			d = t.DType()
		}
	}
	for _, n := range plain {
		switch n.(type) {
		case float64:
			if !isFloat(d) {
				d = tensor.Float32
			}
		case int:
			if d == tensor.Bool {
				d = tensor.Int64
			}
		case complex128:
			return nil, 0, false, false
		}
	}
	return values, d, tensors, true
}

// exactDType reports whether numbers of a dtype are computed with here.
func exactDType(d tensor.DType) bool {
	switch d {
	case tensor.Bool, tensor.Int32, tensor.Int64, tensor.Float32, tensor.Float64:
		return true
	}
	return false
}
