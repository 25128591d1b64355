package torchscript

import (
	"math"
	"slices"
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
	"max":          {2, math.Max, func(a, b int) int { return max(a, b) }, 0},
	"min":          {2, math.Min, func(a, b int) int { return min(a, b) }, 0},
	"reciprocal":   {1, func(a, _ float64) float64 { return 1 / a }, nil, 0},
	"pow":          {2, nil, powInt, 0},
	"neg":          {1, func(a, _ float64) float64 { return -a }, func(a, _ int) int { return -a }, 0},
	"abs":          {1, func(a, _ float64) float64 { return math.Abs(a) }, func(a, _ int) int { return max(a, -a) }, 0},
	"floor":        {1, func(a, _ float64) float64 { return math.Floor(a) }, func(a, _ int) int { return a }, 0},
	"ceil":         {1, func(a, _ float64) float64 { return math.Ceil(a) }, func(a, _ int) int { return a }, 0},
	"trunc":        {1, func(a, _ float64) float64 { return math.Trunc(a) }, func(a, _ int) int { return a }, 0},
	"round":        {1, func(a, _ float64) float64 { return math.RoundToEven(a) }, func(a, _ int) int { return a }, 0},
	"log2":         {1, func(a, _ float64) float64 { return math.Log2(a) }, nil, 0}, // of a power of two exact, else rounded
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

// powInt is a to the power of b, which is not negative.
func powInt(a, b int) int {
	n := 1
	for range b {
		n *= a
	}
	return n
}

func truth(f func(a, b float64) bool) func(a, b float64) float64 {
	return func(a, b float64) float64 {
		if f(a, b) {
			return 1
		}
		return 0
	}
}

// fold computes an op whose operands are numbers and tensors of known contents: without dimensions, or whole numbers with.
func (m *machine) fold(name string, args []any, named map[string]any) (any, bool) {
	short, ok := strings.CutPrefix(name, "aten::")
	if !ok {
		return nil, false
	}
	if target, is := castTo(short, args, named); is {
		v, d, _, ok := m.foldable(args[:1])
		if !ok || !exactDType(d) || len(v[0].values) != 1 {
			return nil, false
		}
		to := m.dtype(target)
		if x, isFloat := v[0].values[0].(float64); isFloat && !(math.Abs(x) < 1<<53) || !exactDType(to) {
			return nil, false
		}
		return m.newConstant(v[0].values, v[0].shape, to), true
	}
	if (short == "stack" || short == "cat") && len(args) == 1 {
		return m.foldJoined(args[0], short == "cat")
	}
	if short == "clone" && len(args) == 1 {
		v, d, _, ok := m.foldable(args)
		if !ok {
			return nil, false
		}
		return m.newConstant(v[0].values, v[0].shape, d), true
	}
	if v, ok := m.foldAll(short, args, named); ok {
		return v, true
	}
	op, ok := foldOps[short]
	inPlace := false
	if base, cut := strings.CutSuffix(short, "_"); !ok && cut {
		op, ok = foldOps[base]
		short, inPlace = base, true
	}
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
	result, ok := m.elementwise(op, v, d, short)
	if !inPlace || !ok {
		return result, ok
	}
	self, isTensor := args[0].(layers.Tensor)
	if !isTensor || result.DType() != self.DType() || !result.Shape().Equal(self.Shape()) {
		return nil, false
	}
	return m.op("aten::copy_", []any{self, result}, nil), true // every view of it sees the new number
}

// castTo returns the dtype that x.to(…) asks for, where it asks for nothing else but a device or a copy.
func castTo(short string, args []any, named map[string]any) (dtype any, is bool) {
	if short != "to" || len(args) < 2 || len(named) > 0 {
		return nil, false
	}
	at := 1
	if _, onDevice := args[1].(device); onDevice && len(args) > 2 {
		at = 2
	}
	if _, ok := args[at].(int); !ok || len(args) > at+3 {
		return nil, false
	}
	for _, flag := range args[at+1:] {
		if _, ok := flag.(bool); !ok {
			return nil, false
		}
	}
	return args[at], true
}

// foldJoined makes a list of known numbers, or of the elements of known lists.
func (m *machine) foldJoined(arg any, ofLists bool) (any, bool) {
	l, ok := arg.(*list)
	if !ok || len(l.elems) == 0 || len(l.elems) > maxFolded {
		return nil, false
	}
	var values []any
	dtype := tensor.Invalid
	for _, e := range l.elems {
		v, d, tensors, ok := m.foldable([]any{e})
		if !ok || !tensors || (len(v[0].shape) == 1) != ofLists || len(v[0].shape) > 1 || !exactDType(d) ||
			isFloat(d) && len(l.elems) > 1 || dtype != tensor.Invalid && d != dtype {
			return nil, false
		}
		values, dtype = append(values, v[0].values...), d
	}
	if len(values) > maxFolded {
		return nil, false
	}
	return m.newConstant(values, tensor.Shape{len(values)}, dtype), true
}

// elementwise computes an op element by element. Operands of one element go with those of several.
func (m *machine) elementwise(op foldOp, operands []folded, d tensor.DType, name string) (layers.Tensor, bool) {
	longest := operands[0]
	for _, o := range operands[1:] {
		switch {
		case len(o.shape) > len(longest.shape):
			longest = o
		case len(o.shape) > 0 && !o.shape.Equal(longest.shape):
			return nil, false
		}
	}
	if len(longest.values) == 0 {
		return nil, false
	}
	m.grow(len(longest.values))
	out := make([]any, len(longest.values))
	for i := range out {
		at := make([]any, len(operands))
		for k, o := range operands {
			at[k] = o.values[0]
			if len(o.shape) > 0 {
				if !o.shape.Equal(longest.shape) {
					return nil, false
				}
				at[k] = o.values[i]
			}
		}
		v, to, ok := m.computed(op, at, d, name)
		if !ok {
			return nil, false
		}
		if out[i] = v; i == len(out)-1 {
			d = to
		}
	}
	return m.newConstant(out, longest.shape, d), true
}

// foldAll computes the sum, product or extreme of all whole numbers in a tensor of known contents, as of a shape.
func (m *machine) foldAll(name string, args []any, named map[string]any) (any, bool) {
	if len(args) != 1 || len(named) > 0 {
		return nil, false
	}
	var join func(a, b int) int
	start, empty := 0, true
	switch name {
	case "sum":
		join = func(a, b int) int { return a + b }
	case "prod":
		join, start = func(a, b int) int { return a * b }, 1
	case "max":
		join, empty = func(a, b int) int { return max(a, b) }, false
	case "min":
		join, empty = func(a, b int) int { return min(a, b) }, false
	default:
		return nil, false
	}
	v, d, tensors, ok := m.foldable(args)
	if ok && tensors && len(v[0].values) == 1 && exactDType(d) && !empty {
		return m.scalar(v[0].values[0], d), true
	}
	if !ok || !tensors || d != tensor.Int64 || len(v[0].values) == 0 && !empty {
		return nil, false
	}
	for i, x := range v[0].values {
		n, isInt := x.(int)
		if !isInt {
			return nil, false
		}
		if i == 0 && !empty {
			start = n
		}
		start = join(start, n)
	}
	return m.scalar(start, d), true
}

// computed returns a number and its dtype.
func (m *machine) computed(op foldOp, v []any, d tensor.DType, name string) (any, tensor.DType, bool) {
	v = append(v, v[0]) // one operand counts as two
	i, isInt := integer(v[0])
	j, isInt2 := integer(v[1])
	if op.ints != nil && isInt && isInt2 {
		divides := name == "div" || name == "floor_divide" || name == "remainder"
		if divides && j == 0 {
			m.fail("division by zero")
		}
		if name == "pow" && (j < 0 || j > 63) || d == tensor.Bool { // PyTorch has its own rules for bools
			return nil, d, false
		}
		return op.ints(i, j), d, true
	}
	if op.floats == nil {
		return nil, d, false
	}
	x, _ := number(v[0])
	y, _ := number(v[1])
	if isInt && (i > 1<<53 || i < -1<<53) || isInt2 && (j > 1<<53 || j < -1<<53) {
		return nil, d, false
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
	return op.floats(a, b), d, true
}

// maxFolded bounds the elements of a tensor that is computed with here: a shape, not data.
const maxFolded = 64

// A folded is a tensor of known contents, or a number, which has no dimensions.
type folded struct {
	values []any
	shape  tensor.Shape
}

// foldable returns operands as numbers and the dtype that PyTorch computes in, where all are known and exact.
func (m *machine) foldable(args []any) (values []folded, d tensor.DType, tensors, ok bool) {
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
	ranked := tensor.Invalid // the dtype of what has dimensions
	for _, a := range args {
		t, isTensor := a.(layers.Tensor)
		if !isTensor {
			if _, isNumber := number(a); !isNumber {
				return nil, 0, false, false
			}
			plain = append(plain, a)
			values = append(values, folded{values: []any{a}})
			continue
		}
		if !exactDType(t.DType()) || slices.ContainsFunc(t.Shape(), ofData) ||
			len(t.Shape()) > 0 && m.elementsOf(t) > 1 && (isFloat(t.DType()) || m.elementsOf(t) > maxFolded) {
			return nil, 0, false, false
		}
		x := m.known(t)
		if x == nil {
			return nil, 0, false, false
		}
		f := folded{shape: t.Shape()}
		if !elements(x, 0, x.Layout.Offset, &f.values) {
			return nil, 0, false, false
		}
		if ranked != 0 && len(f.shape) > 0 && t.DType() != ranked {
			return nil, 0, false, false // what has dimensions decides the dtype
		}
		if len(f.shape) > 0 {
			ranked = t.DType()
		}
		values, tensors = append(values, f), true
		if rank(t.DType()) > rank(d) {
			d = t.DType()
		}
	}
	if ranked != tensor.Invalid && ranked != d {
		return nil, 0, false, false
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

// ofData reports whether only data says a size.
func ofData(size int) bool { return size < 0 }

// elements lists what a tensor holds from a dimension on, in order.
func elements(x *tensor.Tensor, dim, at int, list *[]any) bool {
	if dim == len(x.Layout.Shape) {
		v, ok := decode(x, at)
		*list = append(*list, v)
		return ok
	}
	for i := range x.Layout.Shape[dim] {
		if !elements(x, dim+1, at+i*x.Layout.Strides[dim], list) {
			return false
		}
	}
	return true
}

// exactDType reports whether numbers of a dtype are computed with here.
func exactDType(d tensor.DType) bool {
	switch d {
	case tensor.Bool, tensor.Int32, tensor.Int64, tensor.Float32, tensor.Float64:
		return true
	}
	return false
}
