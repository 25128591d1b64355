package aten

import (
	"fmt"

	"github.com/optimem/optimem/graph"
)

// What functions of complex numbers are in functions of their parts.

// times returns the product of two tensors, of which one at least is complex.
func (b *Builder) times(x, y operandArg) (*Ref, error) {
	sub := &call{Builder: b, args: map[string]any{"self": x, "other": y}}
	if err := product("self", "other")(
		sub, op("aten::mul(Tensor self, Tensor other) -> Tensor", binary("mul")).build,
	); err != nil {
		return nil, err
	}
	return Refs(sub.results)[0], nil
}

func (b *Builder) magnitude(z *Ref) (*Ref, error) {
	return b.combine("hypot", nil, b.part(z, 0), b.part(z, 1))
}

func (b *Builder) phase(z *Ref) (*Ref, error) {
	return b.combine("atan2", nil, b.part(z, 1), b.part(z, 0))
}

func (b *Builder) conjugate(z *Ref) (*Ref, error) {
	im, err := b.apply("neg", nil, b.part(z, 1))
	if err != nil {
		return nil, err
	}
	return b.ofParts(b.part(z, 0), im)
}

// conjugateView is Tensor.conj: writes to what it returns, and to z, are writes to both.
func (b *Builder) conjugateView(z *Ref) (*Ref, error) {
	return b.turnedView(z, (*Builder).conjugate)
}

func (b *Builder) adjoint(z *Ref) (*Ref, error) {
	if z.rank() < 2 {
		return nil, fmt.Errorf("adjoint of a tensor of rank %d", z.rank())
	}
	return b.conjugateView(b.transpose(z, z.rank()-2, z.rank()-1))
}

func (b *Builder) negated(r *Ref) (*Ref, error) { return b.apply("neg", nil, r) }

func (b *Builder) complexExp(z *Ref) (*Ref, error) {
	size, err := b.apply("exp", nil, b.part(z, 0))
	if err != nil {
		return nil, err
	}
	return b.polar(size, b.part(z, 1))
}

func (b *Builder) complexLog(z *Ref) (*Ref, error) {
	size, err := b.magnitude(z)
	if err != nil {
		return nil, err
	}
	if size, err = b.apply("log", nil, size); err != nil {
		return nil, err
	}
	angle, err := b.phase(z)
	if err != nil {
		return nil, err
	}
	return b.ofParts(size, angle)
}

func (b *Builder) complexSqrt(z *Ref) (*Ref, error) {
	size, err := b.magnitude(z)
	if err != nil {
		return nil, err
	}
	if size, err = b.apply("sqrt", nil, size); err != nil {
		return nil, err
	}
	angle, err := b.phase(z)
	if err != nil {
		return nil, err
	}
	if angle, err = b.combine("mul", nil, angle, 0.5); err != nil {
		return nil, err
	}
	return b.polar(size, angle)
}

// inverse returns z̄ / |z|², divided by |z| twice, whose square may overflow.
func (b *Builder) inverse(z *Ref) (*Ref, error) {
	conj, err := b.conjugate(z)
	if err != nil {
		return nil, err
	}
	size, err := b.magnitude(z)
	if err != nil {
		return nil, err
	}
	for range 2 {
		if conj, err = b.over(conj, size); err != nil {
			return nil, err
		}
	}
	return conj, nil
}

// over returns complex numbers divided by real ones.
func (b *Builder) over(z *Ref, by operandArg) (*Ref, error) {
	re, err := b.combineFloat("div", nil, b.part(z, 0), by)
	if err != nil {
		return nil, err
	}
	im, err := b.combineFloat("div", nil, b.part(z, 1), by)
	if err != nil {
		return nil, err
	}
	return b.ofParts(re, im)
}

// sign returns z / |z|, and zero for zero.
func (b *Builder) sign(z *Ref) (*Ref, error) {
	size, err := b.magnitude(z)
	if err != nil {
		return nil, err
	}
	zero, err := b.combine("eq", nil, size, 0)
	if err != nil {
		return nil, err
	}
	if size, err = b.choose(zero, size.dtype, 1, size); err != nil {
		return nil, err
	}
	return b.over(z, size)
}

func quotient(c *call, _ func(c *call) error) error {
	if c.has("rounding_mode") {
		return c.Unsupported("complex numbers are not rounded")
	}
	x, y := c.operand("self"), c.operand("other")
	if c.err != nil {
		return c.err
	}
	d, err := resultType(y)
	if err != nil {
		return err
	}
	if z, ok := x.(*Ref); ok && IsComplex(z.dtype) && !IsComplex(d) {
		return c.giveRef(c.over(z, y))
	}
	if d, err = resultType(x, y); err != nil {
		return err
	}
	divisor, err := c.as(y, d)
	if err != nil {
		return err
	}
	inverse, err := c.inverse(divisor)
	if err != nil {
		return err
	}
	return c.giveRef(c.times(x, inverse))
}

// complexPower is the rule of squares; other powers are not computed.
func complexPower(c *call, _ func(c *call) error) error {
	z, ok := c.args["self"].(*Ref)
	if n, is := c.args["exponent"].(int); ok && is && IsComplex(z.dtype) && n == 2 {
		return c.giveRef(c.times(z, z))
	}
	return c.Unsupported("of powers of complex numbers only squares are computed")
}

// comparing is the rule of a comparison whose outcomes for the parts are joined.
func comparing(kind, join graph.Kind) complexRule {
	return func(c *call, _ func(c *call) error) error {
		var outcomes [2]*Ref
		for number := range outcomes {
			x, err := c.partOfArgument(c.operand("self"), number)
			if err != nil {
				return err
			}
			y, err := c.partOfArgument(c.operand("other"), number)
			if err != nil {
				return err
			}
			if outcomes[number], err = c.combine(kind, nil, x, y); err != nil {
				return err
			}
		}
		return c.giveRef(c.apply(join, nil, outcomes[:]...))
	}
}

// eitherPart is the rule of a test of the numbers "self" whose outcomes for the parts are joined.
func eitherPart(join graph.Kind) complexRule {
	return func(c *call, build func(c *call) error) error {
		z := c.tensor("self")
		var outcomes []*Ref
		for number := range 2 {
			r, err := c.with(build, map[string]any{"self": c.part(z, number)})
			if err != nil {
				return err
			}
			outcomes = append(outcomes, r...)
		}
		return c.giveRef(c.apply(join, nil, outcomes...))
	}
}

// conjugatingFirst is the rule of products whose first factor is conjugated.
func conjugatingFirst(first, second string) complexRule {
	return func(c *call, build func(c *call) error) error {
		if r := c.tensor(first); IsComplex(r.dtype) {
			var err error
			if c.args[first], err = c.conjugate(r); err != nil {
				return err
			}
		}
		return product(first, second)(c, build)
	}
}

// linearOfComplex is a product to which a bias is added.
func linearOfComplex(c *call, build func(c *call) error) error {
	bias := c.optTensor("bias")
	c.args["bias"] = nil
	if err := product("input", "weight")(c, build); err != nil || bias == nil {
		return err
	}
	sum := &call{Builder: c.Builder, args: map[string]any{"self": c.results[0], "other": bias}}
	if err := byParts("self", "other")(
		sum, op("aten::add(Tensor self, Tensor other) -> Tensor", binary("add")).build,
	); err != nil {
		return err
	}
	c.results = sum.results
	return nil
}
