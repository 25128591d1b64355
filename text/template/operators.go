package template

import (
	"math"
	"math/big"
	"math/bits"
	"strings"
)

// integer returns the value of an int or a bool that fits.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// bigInteger returns the value of any int or bool.
func bigInteger(v any) (*big.Int, bool) {
	if b, ok := v.(*big.Int); ok {
		return b, true
	}
	i, ok := integer(v)
	return big.NewInt(i), ok
}

// small returns an int as a value.
func small(v *big.Int) any {
	if v.IsInt64() {
		return v.Int64()
	}
	return v
}

// number returns the value of an int, a bool or a float as a float.
func number(v any) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	b, ok := bigInteger(v)
	if !ok {
		return 0, false
	}
	f, _ := new(big.Float).SetInt(b).Float64()
	return f, true
}

const maxIntBits = 1 << 14

func bounded(v *big.Int) (any, error) {
	if v.BitLen() > maxIntBits {
		return nil, errorf(ErrLimit, "an integer of %d bits", v.BitLen())
	}
	return small(v), nil
}

func unary(op string, v any) (any, error) {
	switch n := v.(type) {
	case *undefined:
		return nil, n.fail()
	case float64:
		if op == "-" {
			return -n, nil
		}
		return n, nil
	}
	b, ok := bigInteger(v)
	if !ok {
		return nil, errorf(ErrRender, "bad operand type for unary %s: '%s'", op, typeName(v))
	}
	if op == "-" {
		b = new(big.Int).Neg(b)
	}
	return small(b), nil
}

func (in *interp) binary(op string, left, right any) (any, error) {
	if v, ok, err := in.binaryMarkup(op, left, right); ok || err != nil {
		return v, err
	}
	if l, ok := unmark(left).(string); ok && op == "%" {
		return in.percent(l, right)
	}
	left, right = unmark(left), unmark(right)
	for _, v := range []any{left, right} {
		if u, ok := v.(*undefined); ok {
			return nil, u.fail()
		}
	}
	mismatch := func() (any, error) {
		return nil, errorf(ErrRender, "unsupported operand types for %s: '%s' and '%s'", op, typeName(left), typeName(right))
	}
	switch op {
	case "+":
		switch l := left.(type) {
		case string:
			r, ok := right.(string)
			if !ok {
				return mismatch()
			}
			return l + r, in.take(len(l) + len(r))
		case *list:
			r, ok := right.(*list)
			if !ok {
				return mismatch()
			}
			return &list{join(l.items, r.items)}, in.take(16 * (len(l.items) + len(r.items)))
		case *tuple:
			r, ok := right.(*tuple)
			if !ok {
				return mismatch()
			}
			return &tuple{join(l.items, r.items)}, in.take(16 * (len(l.items) + len(r.items)))
		}
	case "*":
		if n, ok := integer(right); ok {
			if v, ok, err := in.repeat(left, n); ok {
				return v, err
			}
		}
		if n, ok := integer(left); ok {
			if v, ok, err := in.repeat(right, n); ok {
				return v, err
			}
		}
	}
	_, leftFloat := left.(float64)
	_, rightFloat := right.(float64)
	if leftFloat || rightFloat || op == "/" {
		l, ok := number(left)
		r, ok2 := number(right)
		if !ok || !ok2 {
			return mismatch()
		}
		if op == "/" && !leftFloat && !rightFloat {
			return divide(left, right)
		}
		return float(op, l, r)
	}
	if l, ok := left.(int64); ok {
		if r, ok := right.(int64); ok {
			if v, ok := fast(op, l, r); ok {
				return v, nil
			}
		}
	}
	l, ok := bigInteger(left)
	r, ok2 := bigInteger(right)
	if !ok || !ok2 {
		return mismatch()
	}
	return whole(op, l, r)
}

func join(a, b []any) []any {
	return append(append(make([]any, 0, len(a)+len(b)), a...), b...)
}

// fast does what cannot overflow.
func fast(op string, l, r int64) (int64, bool) {
	switch op {
	case "+":
		s := l + r
		return s, (s > l) == (r > 0)
	case "-":
		s := l - r
		return s, (s < l) == (r > 0)
	case "*":
		hi, lo := bits.Mul64(uint64(max(l, -l)), uint64(max(r, -r)))
		return l * r, hi == 0 && lo < 1<<62
	}
	return 0, false
}

// repeat is a string or a list times a number. false: neither.
func (in *interp) repeat(v any, n int64) (any, bool, error) {
	n = max(n, 0)
	var size int64
	switch v := v.(type) {
	case string:
		size = int64(len(v))
	case *list:
		size = 16 * int64(len(v.items))
	case *tuple:
		size = 16 * int64(len(v.items))
	default:
		return nil, false, nil
	}
	if size > 0 && n > in.opts.MemoryBytes/size {
		return nil, true, in.take(int(in.opts.MemoryBytes) + 1)
	}
	if err := in.take(int(size * n)); err != nil {
		return nil, true, err
	}
	series := func(items []any) []any {
		var all []any
		if len(items) == 0 {
			return nil
		}
		for range n {
			all = append(all, items...)
		}
		return all
	}
	switch v := v.(type) {
	case *list:
		return &list{series(v.items)}, true, nil
	case *tuple:
		return &tuple{series(v.items)}, true, nil
	}
	if size == 0 {
		return "", true, nil
	}
	return strings.Repeat(v.(string), int(n)), true, nil
}

var errZero = errorf(ErrRender, "division by zero")

// divide is the true division of ints, rounded once.
func divide(left, right any) (any, error) {
	l, _ := bigInteger(left)
	r, _ := bigInteger(right)
	if r.Sign() == 0 {
		return nil, errZero
	}
	f, _ := new(big.Rat).SetFrac(l, r).Float64()
	if math.IsInf(f, 0) {
		return nil, errorf(ErrRender, "integer division result too large for a float")
	}
	if f == 0 && r.Sign() < 0 && l.Sign() == 0 {
		return math.Copysign(0, -1), nil
	}
	return f, nil
}

func float(op string, l, r float64) (any, error) {
	switch op {
	case "+":
		return l + r, nil
	case "-":
		return l - r, nil
	case "*":
		return l * r, nil
	case "**":
		if l == 0 && r < 0 {
			return nil, errZero
		}
		if l < 0 && r != math.Trunc(r) {
			return nil, errorf(ErrUnsupported, "complex numbers")
		}
		p := math.Pow(l, r)
		if math.IsInf(p, 0) && !math.IsInf(l, 0) && !math.IsInf(r, 0) {
			return nil, errorf(ErrRender, "result too large")
		}
		return p, nil
	}
	if r == 0 {
		return nil, errZero
	}
	if op == "/" {
		return l / r, nil
	}
	mod := math.Mod(l, r)
	div := (l - mod) / r
	if mod == 0 {
		mod = math.Copysign(0, r)
	} else if (r < 0) != (mod < 0) {
		mod += r
		div--
	}
	if op == "%" {
		return mod, nil
	}
	if div == 0 {
		return math.Copysign(0, l/r), nil
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return floor, nil
}

func whole(op string, l, r *big.Int) (any, error) {
	z := new(big.Int)
	switch op {
	case "+":
		return bounded(z.Add(l, r))
	case "-":
		return bounded(z.Sub(l, r))
	case "*":
		return bounded(z.Mul(l, r))
	case "**":
		if r.Sign() < 0 {
			lf, _ := number(l)
			rf, _ := number(r)
			return float(op, lf, rf)
		}
		if l.BitLen() > 1 && (!r.IsInt64() || r.Int64() > maxIntBits || int64(l.BitLen()-1)*r.Int64() > maxIntBits) {
			return nil, errorf(ErrLimit, "an integer of more than %d bits", maxIntBits)
		}
		if !r.IsInt64() || r.Int64() > maxIntBits { // of 0, 1 or -1
			r = new(big.Int).Add(big.NewInt(2), new(big.Int).And(r, big.NewInt(1)))
		}
		return bounded(z.Exp(l, r, nil))
	}
	if r.Sign() == 0 {
		return nil, errZero
	}
	m := new(big.Int)
	z.QuoRem(l, r, m)
	if m.Sign() != 0 && m.Sign() != r.Sign() {
		z.Sub(z, big.NewInt(1))
		m.Add(m, r)
	}
	if op == "%" {
		return small(m), nil
	}
	return small(z), nil
}

// compare evaluates a chain of comparisons, each operand once.
func (in *interp) compare(e *compareExpr, sc *scope) (any, error) {
	left, err := in.eval(e.left, sc)
	if err != nil {
		return nil, err
	}
	for i, op := range e.ops {
		right, err := in.eval(e.right[i], sc)
		if err != nil {
			return nil, err
		}
		ok, err := in.related(op, left, right)
		if err != nil || !ok {
			return false, err
		}
		left = right
	}
	return true, nil
}

func (in *interp) related(op string, left, right any) (bool, error) {
	switch op {
	case "==":
		return in.equal(left, right, 0)
	case "!=":
		ok, err := in.equal(left, right, 0)
		return !ok, err
	case "in":
		return in.contains(right, left)
	case "not in":
		ok, err := in.contains(right, left)
		return !ok, err
	}
	return in.ordered(op, left, right, 0)
}

// compareNumbers orders ints and floats exactly. ok is false for other values, nan for what has no order.
func compareNumbers(a, b any) (c int, ok, nan bool) {
	x, okX := exact(a)
	y, okY := exact(b)
	if !okX || !okY {
		return 0, false, false
	}
	if x == nil || y == nil {
		return 0, true, true
	}
	return x.Cmp(y), true, false
}

// exact is nil for nan.
func exact(v any) (*big.Float, bool) {
	if f, ok := v.(float64); ok {
		if math.IsNaN(f) {
			return nil, true
		}
		return big.NewFloat(f), true
	}
	b, ok := bigInteger(v)
	if !ok {
		return nil, false
	}
	return new(big.Float).SetPrec(uint(max(64, b.BitLen()))).SetInt(b), true
}

// equal is ==, which never fails in Python but for what is nested too deep.
func (in *interp) equal(a, b any, depth int) (bool, error) {
	if depth > in.opts.Depth {
		return false, errorf(ErrLimit, "values %d deep", depth)
	}
	if err := in.step(); err != nil {
		return false, err
	}
	a, b = unmark(a), unmark(b)
	if s, ok := a.(string); ok {
		t, ok := b.(string)
		return ok && s == t, nil
	}
	if i, ok := a.(int64); ok {
		if j, ok := b.(int64); ok {
			return i == j, nil
		}
	}
	if c, ok, nan := compareNumbers(a, b); ok {
		return c == 0 && !nan, nil
	}
	series := func(x, y []any) (bool, error) {
		if len(x) != len(y) {
			return false, nil
		}
		for i := range x {
			if ok, err := in.equal(x[i], y[i], depth+1); err != nil || !ok {
				return false, err
			}
		}
		return true, nil
	}
	switch a := a.(type) {
	case *list:
		if b, ok := b.(*list); ok {
			return series(a.items, b.items)
		}
		return false, nil
	case *tuple:
		if b, ok := b.(*tuple); ok {
			return series(a.items, b.items)
		}
		return false, nil
	case *Object:
		b, ok := b.(*Object)
		if !ok || len(a.keys) != len(b.keys) {
			return false, nil
		}
		for h, i := range a.index {
			j, ok := b.index[h]
			if !ok {
				return false, nil
			}
			if ok, err := in.equal(a.values[i], b.values[j], depth+1); err != nil || !ok {
				return false, err
			}
		}
		return true, nil
	case *span:
		if b, ok := b.(*span); ok {
			n := a.len()
			return n == b.len() && (n == 0 || a.start == b.start && (n == 1 || a.step == b.step)), nil
		}
		return false, nil
	case *undefined:
		return isUndefined(b), nil
	}
	return a == b, nil
}

// contains is key in of.
func (in *interp) contains(of, key any) (bool, error) {
	of, key = unmark(of), unmark(key)
	switch of := of.(type) {
	case string:
		s, ok := key.(string)
		if !ok {
			return false, errorf(ErrRender, "'in <string>' requires a string, not %s", typeName(key))
		}
		return strings.Contains(of, s), nil
	case *Object:
		_, ok, err := of.lookup(key)
		return ok, err
	case *view:
		if of.what == "keys" {
			_, ok, err := of.of.lookup(key)
			return ok, err
		}
	}
	found := false
	err := in.iterate(of, func(e any) (bool, error) {
		var err error
		found, err = in.equal(e, key, 0)
		return !found, err
	})
	return found, err
}

// ordered is <, <=, > and >=.
func (in *interp) ordered(op string, a, b any, depth int) (bool, error) {
	if depth > in.opts.Depth {
		return false, errorf(ErrLimit, "values %d deep", depth)
	}
	a, b = unmark(a), unmark(b)
	for _, v := range []any{a, b} {
		if u, ok := v.(*undefined); ok {
			return false, u.fail()
		}
	}
	c, ok, nan := compareNumbers(a, b)
	if nan {
		return false, nil
	}
	if s, isString := a.(string); isString {
		if t, isString := b.(string); isString {
			c, ok = strings.Compare(s, t), true
		}
	}
	var x, y []any
	var isSeries bool
	switch s := a.(type) {
	case *list:
		if t, ok := b.(*list); ok {
			x, y, isSeries = s.items, t.items, true
		}
	case *tuple:
		if t, ok := b.(*tuple); ok {
			x, y, isSeries = s.items, t.items, true
		}
	}
	if isSeries {
		for i := range min(len(x), len(y)) {
			if same, err := in.equal(x[i], y[i], depth+1); err != nil {
				return false, err
			} else if !same {
				return in.ordered(op, x[i], y[i], depth+1)
			}
		}
		c, ok = len(x)-len(y), true
	}
	if !ok {
		return false, errorf(ErrRender, "'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	}
	return c >= 0, nil
}
