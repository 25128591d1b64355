package elements

import (
	"fmt"
	"maps"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// What functions of complex numbers are in functions of their parts.

// Times returns the product of two tensors, of which one at least is complex.
func Times(b *cells.Builder, x, y cells.Argument) (*cells.Ref, error) {
	sub := &call.Call{Builder: b, Args: map[string]any{"self": x, "other": y}}
	if err := Product("self", "other")(
		sub, call.One("aten::mul(Tensor self, Tensor other) -> Tensor", call.Binary("mul")).Build,
	); err != nil {
		return nil, err
	}
	return call.Refs(sub.Results)[0], nil
}

// Magnitude returns |z|.
func Magnitude(b *cells.Builder, z *cells.Ref) (*cells.Ref, error) {
	return b.Combine("hypot", nil, b.Part(z, 0), b.Part(z, 1))
}

// Phase returns the angle of z.
func Phase(b *cells.Builder, z *cells.Ref) (*cells.Ref, error) {
	return b.Combine("atan2", nil, b.Part(z, 1), b.Part(z, 0))
}

// Conjugate returns z̄ as a tensor of its own.
func Conjugate(b *cells.Builder, z *cells.Ref) (*cells.Ref, error) {
	im, err := b.Apply("neg", nil, b.Part(z, 1))
	if err != nil {
		return nil, err
	}
	return b.OfParts(b.Part(z, 0), im)
}

// ConjugateView is Tensor.conj: writes to what it returns, and to z, are writes to both.
func ConjugateView(b *cells.Builder, z *cells.Ref) (*cells.Ref, error) {
	return b.TurnedView(z, Conjugate)
}

// Adjoint returns the conjugate of z with its last two dimensions exchanged.
func Adjoint(b *cells.Builder, z *cells.Ref) (*cells.Ref, error) {
	if z.Rank() < 2 {
		return nil, fmt.Errorf("adjoint of a tensor of rank %d", z.Rank())
	}
	return ConjugateView(b, b.Transpose(z, z.Rank()-2, z.Rank()-1))
}

// Negated returns −r.
func Negated(b *cells.Builder, r *cells.Ref) (*cells.Ref, error) { return b.Apply("neg", nil, r) }

// ComplexExp returns e to the power of z.
func ComplexExp(b *cells.Builder, z *cells.Ref) (*cells.Ref, error) {
	size, err := b.Apply("exp", nil, b.Part(z, 0))
	if err != nil {
		return nil, err
	}
	return b.Polar(size, b.Part(z, 1))
}

// ComplexLog returns the logarithm of z on its main branch.
func ComplexLog(b *cells.Builder, z *cells.Ref) (*cells.Ref, error) {
	size, err := Magnitude(b, z)
	if err != nil {
		return nil, err
	}
	if size, err = b.Apply("log", nil, size); err != nil {
		return nil, err
	}
	angle, err := Phase(b, z)
	if err != nil {
		return nil, err
	}
	return b.OfParts(size, angle)
}

// ComplexSqrt returns the root of z on its main branch.
func ComplexSqrt(b *cells.Builder, z *cells.Ref) (*cells.Ref, error) {
	size, err := Magnitude(b, z)
	if err != nil {
		return nil, err
	}
	if size, err = b.Apply("sqrt", nil, size); err != nil {
		return nil, err
	}
	angle, err := Phase(b, z)
	if err != nil {
		return nil, err
	}
	if angle, err = b.Combine("mul", nil, angle, 0.5); err != nil {
		return nil, err
	}
	return b.Polar(size, angle)
}

// Inverse returns z̄ / |z|², divided by |z| twice, whose square may overflow.
func Inverse(b *cells.Builder, z *cells.Ref) (*cells.Ref, error) {
	conj, err := Conjugate(b, z)
	if err != nil {
		return nil, err
	}
	size, err := Magnitude(b, z)
	if err != nil {
		return nil, err
	}
	for range 2 {
		if conj, err = over(b, conj, size); err != nil {
			return nil, err
		}
	}
	return conj, nil
}

// over returns complex numbers divided by real ones.
func over(b *cells.Builder, z *cells.Ref, by cells.Argument) (*cells.Ref, error) {
	re, err := b.CombineFloat("div", nil, b.Part(z, 0), by)
	if err != nil {
		return nil, err
	}
	im, err := b.CombineFloat("div", nil, b.Part(z, 1), by)
	if err != nil {
		return nil, err
	}
	return b.OfParts(re, im)
}

// Sign returns z / |z|, and zero for zero.
func Sign(b *cells.Builder, z *cells.Ref) (*cells.Ref, error) {
	size, err := Magnitude(b, z)
	if err != nil {
		return nil, err
	}
	zero, err := b.Combine("eq", nil, size, 0)
	if err != nil {
		return nil, err
	}
	if size, err = b.Choose(zero, size.DType(), 1, size); err != nil {
		return nil, err
	}
	return over(b, z, size)
}

// Quotient is the rule of divisions, which do not round complex numbers.
func Quotient(c *call.Call, _ func(c *call.Call) error) error {
	if c.Has("rounding_mode") {
		return c.Unsupported("complex numbers are not rounded")
	}
	x, y := c.Operand("self"), c.Operand("other")
	if c.Err != nil {
		return c.Err
	}
	d, err := cells.ResultType(y)
	if err != nil {
		return err
	}
	if z, ok := x.(*cells.Ref); ok && cells.IsComplex(z.DType()) && !cells.IsComplex(d) {
		return c.GiveRef(over(c.Builder, z, y))
	}
	if d, err = cells.ResultType(x, y); err != nil {
		return err
	}
	divisor, err := c.As(y, d)
	if err != nil {
		return err
	}
	inverse, err := Inverse(c.Builder, divisor)
	if err != nil {
		return err
	}
	return c.GiveRef(Times(c.Builder, x, inverse))
}

// ComplexPower is the rule of squares; other powers are not computed.
func ComplexPower(c *call.Call, _ func(c *call.Call) error) error {
	z, ok := c.Args["self"].(*cells.Ref)
	if n, is := c.Args["exponent"].(int); ok && is && cells.IsComplex(z.DType()) && n == 2 {
		return c.GiveRef(Times(c.Builder, z, z))
	}
	return c.Unsupported("of powers of complex numbers only squares are computed")
}

// Comparing is the rule of a comparison whose outcomes for the parts are joined.
func Comparing(kind, join graph.Kind) ComplexRule {
	return func(c *call.Call, _ func(c *call.Call) error) error {
		var outcomes [2]*cells.Ref
		for number := range outcomes {
			x, err := partOfArgument(c.Builder, c.Operand("self"), number)
			if err != nil {
				return err
			}
			y, err := partOfArgument(c.Builder, c.Operand("other"), number)
			if err != nil {
				return err
			}
			if outcomes[number], err = c.Combine(kind, nil, x, y); err != nil {
				return err
			}
		}
		return c.GiveRef(c.Apply(join, nil, outcomes[:]...))
	}
}

// EitherPart is the rule of a test of the numbers "self" whose outcomes for the parts are joined.
func EitherPart(join graph.Kind) ComplexRule {
	return func(c *call.Call, build func(c *call.Call) error) error {
		z := c.Tensor("self")
		var outcomes []*cells.Ref
		for number := range 2 {
			r, err := with(c, build, map[string]any{"self": c.Part(z, number)})
			if err != nil {
				return err
			}
			outcomes = append(outcomes, r...)
		}
		return c.GiveRef(c.Apply(join, nil, outcomes...))
	}
}

// ConjugatingFirst is the rule of products whose first factor is conjugated.
func ConjugatingFirst(first, second string) ComplexRule {
	return func(c *call.Call, build func(c *call.Call) error) error {
		if r := c.Tensor(first); cells.IsComplex(r.DType()) {
			var err error
			if c.Args[first], err = Conjugate(c.Builder, r); err != nil {
				return err
			}
		}
		return Product(first, second)(c, build)
	}
}

// LinearOfComplex is a product to which a bias is added.
func LinearOfComplex(c *call.Call, build func(c *call.Call) error) error {
	bias := c.OptTensor("bias")
	c.Args["bias"] = nil
	if err := Product("input", "weight")(c, build); err != nil || bias == nil {
		return err
	}
	sum := &call.Call{Builder: c.Builder, Args: map[string]any{"self": c.Results[0], "other": bias}}
	if err := ByParts("self", "other")(
		sum, call.One("aten::add(Tensor self, Tensor other) -> Tensor", call.Binary("add")).Build,
	); err != nil {
		return err
	}
	c.Results = sum.Results
	return nil
}

// ComplexOnly returns a view of "self", which must be complex.
func ComplexOnly(c *call.Call, view func(r *cells.Ref) *cells.Ref) (*cells.Ref, error) {
	r := c.Tensor("self")
	if !cells.IsComplex(r.DType()) {
		return nil, fmt.Errorf("%v is not complex", r.DType())
	}
	return view(r), nil
}

// A ComplexRule is what an op means where arguments or its result are complex, given what it means where none is. It
// sets the results of the call.
type ComplexRule func(c *call.Call, build func(c *call.Call) error) error

// with returns the results that a meaning gives where some arguments are others. Each is a tensor.
func with(c *call.Call, build func(c *call.Call) error, changed map[string]any) ([]*cells.Ref, error) {
	sub := &call.Call{Builder: c.Builder, Schema: c.Schema, Args: maps.Clone(c.Args)}
	maps.Copy(sub.Args, changed)
	if sub.IsComplex() {
		return nil, c.Unsupported("complex numbers in this place")
	}
	if err := build(sub); err != nil {
		return nil, err
	}
	return call.Refs(sub.Results), sub.Err
}

// Plain is the rule of ops that take complex tensors as they take others.
func Plain(c *call.Call, build func(c *call.Call) error) error { return build(c) }

// OfSelf is the rule of a function of the complex tensor "self".
func OfSelf(f func(b *cells.Builder, z *cells.Ref) (*cells.Ref, error)) ComplexRule {
	return func(c *call.Call, _ func(c *call.Call) error) error {
		z := c.Tensor("self")
		if c.Err != nil || !cells.IsComplex(z.DType()) {
			return c.Unsupported("it is not computed of complex numbers")
		}
		return c.GiveRef(f(c.Builder, z))
	}
}

// ByParts is the rule of ops that are linear in the named arguments together: the real parts of the results are those
// of the real parts, the imaginary ones those of the imaginary ones.
func ByParts(names ...string) ComplexRule {
	return func(c *call.Call, build func(c *call.Call) error) error {
		if how, ok := c.Args["reduce"].(string); ok && how != "add" && how != "sum" {
			return c.Unsupported("reduction %s of complex numbers", how)
		}
		halves := make([][]*cells.Ref, 2)
		for number := range halves {
			changed := make(map[string]any)
			for name, v := range c.Args {
				var err error
				if d, ok := v.(tensor.DType); ok && cells.IsComplex(d) {
					changed[name] = cells.PartOf(d)
				} else if slices.Contains(names, name) {
					if changed[name], err = partOfArgument(c.Builder, v, number); err != nil {
						return err
					}
				} else if z, ok := v.(complex128); ok {
					return c.Unsupported("argument %s is the complex number %v", name, z)
				}
			}
			var err error
			if halves[number], err = with(c, build, changed); err != nil {
				return err
			}
		}
		for i, re := range halves[0] {
			z, err := c.OfParts(re, halves[1][i])
			if err != nil {
				return err
			}
			c.Results = append(c.Results, z)
		}
		return nil
	}
}

// partOfArgument returns the real part of an argument, number 0, or the imaginary one, number 1.
func partOfArgument(b *cells.Builder, v any, number int) (any, error) {
	switch v := v.(type) {
	case *cells.Ref:
		switch {
		case cells.IsComplex(v.DType()):
			return b.Part(v, number), nil
		case number == 1:
			return b.Full(0, v.DType(), v.Shape())
		}
	case []*cells.Ref:
		list := make([]*cells.Ref, len(v))
		for i, r := range v {
			if r == nil {
				continue
			}
			part, err := partOfArgument(b, r, number)
			if err != nil {
				return nil, err
			}
			list[i], _ = part.(*cells.Ref)
		}
		return list, nil
	case complex128:
		if number == 1 {
			return imag(v), nil
		}
		return real(v), nil
	case float64:
		if number == 1 {
			return 0.0, nil
		}
	case int, bool:
		if number == 1 {
			return 0, nil
		}
	}
	return v, nil
}

// Product is the rule of ops with one result that are linear in each of the named arguments.
func Product(names ...string) ComplexRule {
	return func(c *call.Call, build func(c *call.Call) error) error {
		re, im, err := multilinear(c, build, names, nil)
		if err != nil {
			return err
		}
		if im == nil {
			return fmt.Errorf("no complex arguments")
		}
		return c.GiveRef(c.OfParts(re, im))
	}
}

// multilinear returns the parts of the result: of the first complex argument it takes the real and the imaginary part,
// and of both the result, in which the arguments after it may be complex. The imaginary part is nil where none is.
func multilinear(c *call.Call, build func(c *call.Call) error, names []string,
	changed map[string]any) (re, im *cells.Ref, err error) {
	for i, name := range names {
		v, ok := changed[name]
		if !ok {
			v = c.Args[name]
		}
		list, isList := v.([]*cells.Ref)
		at := slices.IndexFunc(list, func(r *cells.Ref) bool { return r != nil && cells.IsComplex(r.DType()) })
		switch v := v.(type) {
		case *cells.Ref:
			ok = cells.IsComplex(v.DType())
		case complex128:
			ok = true
		default:
			ok = at >= 0
		}
		if !ok {
			continue
		}
		var parts [2][2]*cells.Ref
		for number := range parts {
			half := maps.Clone(changed)
			if half == nil {
				half = make(map[string]any)
			}
			if isList {
				half[name] = slices.Concat(list[:at], []*cells.Ref{c.Part(list[at], number)}, list[at+1:])
			} else if half[name], err = partOfArgument(c.Builder, v, number); err != nil {
				return nil, nil, err
			}
			if parts[number][0], parts[number][1], err = multilinear(c, build, names[i:], half); err != nil {
				return nil, nil, err
			}
		}
		// (a + bi) + (c + di)·i = (a − d) + (b + c)·i
		re, im = parts[0][0], parts[1][0]
		if d := parts[1][1]; d != nil {
			if re, err = c.Combine("sub", nil, re, d); err != nil {
				return nil, nil, err
			}
		}
		if b := parts[0][1]; b != nil {
			if im, err = c.Combine("add", nil, b, im); err != nil {
				return nil, nil, err
			}
		}
		return re, im, nil
	}
	results, err := with(c, build, changed)
	if err != nil {
		return nil, nil, err
	}
	if len(results) != 1 {
		return nil, nil, fmt.Errorf("%d results of complex numbers", len(results))
	}
	return results[0], nil, nil
}
