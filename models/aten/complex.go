package aten

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// complexTargets are the ops that make complex tensors of real ones, or the reverse. What a tensor's dtype decides, as
// of "abs", is among complexRules.
var complexTargets = slices.Concat(
	[]atenOp{
		op(
			"aten::view_as_real(Tensor(a) self) -> Tensor(a)",
			func(c *call) (*Ref, error) { return complexOnly(c, c.pairs) },
		),
		op("aten::view_as_complex(Tensor(a) self) -> Tensor(a)", func(c *call) (*Ref, error) {
			return c.OfPairs(c.tensor("self"))
		}),
		op("aten::complex(Tensor real, Tensor imag) -> Tensor", func(c *call) (*Ref, error) {
			parts, err := c.broadcast(c.tensor("real"), c.tensor("imag"))
			if err != nil {
				return nil, err
			}
			return c.ofParts(parts[0], parts[1])
		}),
		op("aten::polar(Tensor abs, Tensor angle) -> Tensor", func(c *call) (*Ref, error) {
			return c.polar(c.tensor("abs"), c.tensor("angle"))
		}),
		op("aten::imag(Tensor(a) self) -> Tensor(a)", func(c *call) (*Ref, error) {
			return complexOnly(c, func(r *Ref) *Ref { return c.part(r, 1) })
		}),
		op("aten::angle(Tensor self) -> Tensor", func(c *call) (*Ref, error) {
			x, err := c.combine("add", nil, c.tensor("self"), 0) // no angle of −0
			if err != nil {
				return nil, err
			}
			return c.combineFloat("atan2", nil, 0, x)
		}),
		op("aten::_neg_view(Tensor(a) self) -> Tensor(a)", func(c *call) (*Ref, error) {
			return c.turnedView(c.tensor("self"), (*Builder).negated)
		}),
		inPlace(
			"aten::conj_physical_(Tensor self) -> Tensor", func(c *call) (*Ref, error) { return c.tensor("self"), nil },
		),
	},
	realTargets("real(Tensor(a) self) -> Tensor(a)", "conj(Tensor(a) self) -> Tensor(a)", "_conj(Tensor(a) self) -> Tensor(a)",
		"_conj_physical(Tensor self) -> Tensor", "conj_physical(Tensor self) -> Tensor"),
)

// realTargets are the overloads that leave a real tensor as it is.
func realTargets(schemas ...string) []atenOp {
	all := make([]atenOp, len(schemas))
	for i, s := range schemas {
		all[i] = atenOp{"aten::" + s, sameView}
	}
	return all
}

// complexOnly returns a view of "self", which must be complex.
func complexOnly(c *call, view func(r *Ref) *Ref) (*Ref, error) {
	r := c.tensor("self")
	if !IsComplex(r.dtype) {
		return nil, fmt.Errorf("%v is not complex", r.dtype)
	}
	return view(r), nil
}

// A complexRule is what an op means where arguments or its result are complex, given what it means where none is. It
// sets the results of the call.
type complexRule func(c *call, build func(c *call) error) error

// complexRules holds them by the op's name without its overload. An op that writes to self has the rule of its twin that
// does not.
var complexRules = func() map[string]complexRule {
	all := map[string]complexRule{
		"abs": ofSelf((*Builder).magnitude), "absolute": ofSelf((*Builder).magnitude),
		"angle":         ofSelf((*Builder).phase),
		"real":          ofSelf(func(b *Builder, z *Ref) (*Ref, error) { return b.part(z, 0), nil }),
		"conj":          ofSelf((*Builder).conjugateView),
		"_conj":         ofSelf((*Builder).conjugateView),
		"conj_physical": ofSelf((*Builder).conjugate), "_conj_physical": ofSelf((*Builder).conjugate),
		"adjoint": ofSelf((*Builder).adjoint), "mH": ofSelf((*Builder).adjoint),
		"exp":        ofSelf((*Builder).complexExp),
		"log":        ofSelf((*Builder).complexLog),
		"sqrt":       ofSelf((*Builder).complexSqrt),
		"reciprocal": ofSelf((*Builder).inverse),
		"square":     ofSelf(func(b *Builder, z *Ref) (*Ref, error) { return b.times(z, z) }),
		"sgn":        ofSelf((*Builder).sign),
		"div":        quotient, "divide": quotient, "true_divide": quotient,
		"pow":    complexPower,
		"eq":     comparing("eq", "bitwise_and"),
		"ne":     comparing("ne", "bitwise_or"),
		"linear": linearOfComplex,
		"isnan":  eitherPart("bitwise_or"), "isinf": eitherPart("bitwise_or"), "isfinite": eitherPart("bitwise_and"),
		"vdot":            conjugatingFirst("self", "other"),
		"linalg_vecdot":   conjugatingFirst("x", "y"),
		"view_as_real":    plain,
		"imag":            plain,
		"view_as_complex": plain,
		"polar":           plain,
	}
	// Ops that know nothing of elements, or only copy and convert them, and those that are about complex numbers.
	for _, family := range [][]atenOp{viewTargets, castTargets, fourierTargets} {
		for _, op := range family {
			name := baseName(parseSchema(op.schema).target)
			if _, ok := all[name]; !ok && name != "as_strided" {
				all[name] = plain
			}
		}
	}
	for _, name := range []string{
		"full", "full_like", "new_full", "scalar_tensor", "empty", "empty_permuted", "empty_strided",
		"new_empty_strided",
		"zeros", "ones", "new_zeros", "new_ones", "new_empty", "zeros_like", "ones_like", "empty_like", "fill", "zero",
	} {
		all[name] = plain
	}
	// Ops that treat the parts alike and by themselves.
	for names, args := range map[string][]string{
		"cat concat concatenate stack hstack vstack dstack column_stack block_diag": {"tensors"},
		"neg negative positive sum mean cumsum flip fliplr flipud rot90 roll gather take take_along_dim index_select" +
			" index repeat_interleave tril triu diag trace _unsafe_index": {"self"},
		"add sub subtract where index_add":              {"self", "other", "source"},
		"rsub":                                          {"self", "other"},
		"masked_fill constant_pad_nd pad":               {"self", "value"},
		"scatter scatter_add index_fill":                {"self", "src", "value"},
		"index_put _index_put_impl _unsafe_index_put":   {"self", "values"},
		"index_copy put masked_scatter":                 {"self", "source"},
		"select_scatter slice_scatter diagonal_scatter": {"self", "src"},
		"embedding":                         {"weight"},
		"lerp":                              {"self", "end"},
		"diff":                              {"self", "prepend", "append"},
		"reflection_pad1d reflection_pad2d": {"self"},
		"replication_pad1d replication_pad2d _pad_circular": {"self"},
	} {
		for _, name := range strings.Fields(names) {
			all[name] = byParts(args...)
		}
	}
	// Ops that are linear in each of their arguments.
	for names, args := range map[string][]string{
		"mul multiply matmul linalg_matmul kron inner tensordot": {"self", "other"},
		"mm bmm":           {"self", "mat2"},
		"mv":               {"self", "vec"},
		"dot":              {"self", "tensor"},
		"outer ger":        {"self", "vec2"},
		"einsum":           {"tensors"},
		"linalg_multi_dot": {"tensors"},
		"chain_matmul":     {"matrices"},
	} {
		for _, name := range strings.Fields(names) {
			all[name] = product(args...)
		}
	}
	return all
}()

// baseName returns the name of an overload without its namespace and the overload's own: "mul".
func baseName(target string) string {
	name := target[:strings.LastIndexByte(target, '.')]
	return name[strings.LastIndexByte(name, '.')+1:]
}

// run builds the call.
func (t Target) run(c *call) error {
	if s := c.selected(); s != nil {
		return t.ofSelected(c, s)
	}
	if c.hasCounted() {
		return t.ofCounted(c)
	}
	build := t.build
	if c.isComplex() {
		rule, ok := complexRules[baseName(t.schema.target)]
		switch twin, is := t.twin(); {
		case ok:
		case is:
			if rule, ok = complexRules[baseName(twin.schema.target)]; ok {
				return c.intoSelf(twin, rule)
			}
		}
		if !ok {
			return c.Unsupported("it is not computed of complex numbers")
		}
		build = func(c *call) error { return rule(c, t.build) }
	}
	if err := build(c); err != nil {
		return err
	}
	return c.err
}

// twin returns the overload that gives what t writes to self, if there is one.
func (t Target) twin() (Target, bool) {
	base := baseName(t.schema.target)
	name, ok := strings.CutSuffix(base, "_")
	twin, found := targets[strings.Replace(t.schema.target, "."+base+".", "."+name+".", 1)]
	return twin, ok && found
}

// intoSelf writes what a rule gives for the twin of an op to self.
func (c *call) intoSelf(twin Target, rule complexRule) error {
	self := c.tensor("self")
	if err := rule(c, twin.build); err != nil || c.err != nil {
		return cmp.Or(err, c.err)
	}
	r, ok := c.results[0].(*Ref)
	if !ok || IsComplex(r.dtype) && !IsComplex(self.dtype) {
		return fmt.Errorf("complex numbers are written to %v", self.dtype)
	}
	if err := c.Write(self, r); err != nil {
		return err
	}
	c.set(self)
	return nil
}

// isComplex reports whether an argument of the call is complex, or says that a result is.
func (c *call) isComplex() bool {
	for _, v := range c.args {
		switch v := v.(type) {
		case *Ref:
			if v != nil && IsComplex(v.dtype) {
				return true
			}
		case []*Ref:
			if slices.ContainsFunc(v, func(r *Ref) bool { return r != nil && IsComplex(r.dtype) }) {
				return true
			}
		case tensor.DType:
			if IsComplex(v) {
				return true
			}
		case complex128:
			return true
		}
	}
	return false
}

// with returns the results that a meaning gives where some arguments are others. Each is a tensor.
func (c *call) with(build func(c *call) error, changed map[string]any) ([]*Ref, error) {
	sub := &call{Builder: c.Builder, schema: c.schema, args: maps.Clone(c.args)}
	maps.Copy(sub.args, changed)
	if sub.isComplex() {
		return nil, c.Unsupported("complex numbers in this place")
	}
	if err := build(sub); err != nil {
		return nil, err
	}
	return Refs(sub.results), sub.err
}

// plain is the rule of ops that take complex tensors as they take others.
func plain(c *call, build func(c *call) error) error { return build(c) }

// ofSelf is the rule of a function of the complex tensor "self".
func ofSelf(f func(b *Builder, z *Ref) (*Ref, error)) complexRule {
	return func(c *call, _ func(c *call) error) error {
		z := c.tensor("self")
		if c.err != nil || !IsComplex(z.dtype) {
			return c.Unsupported("it is not computed of complex numbers")
		}
		return c.giveRef(f(c.Builder, z))
	}
}

// byParts is the rule of ops that are linear in the named arguments together: the real parts of the results are those of
// the real parts, the imaginary ones those of the imaginary ones.
func byParts(names ...string) complexRule {
	return func(c *call, build func(c *call) error) error {
		if how, ok := c.args["reduce"].(string); ok && how != "add" && how != "sum" {
			return c.Unsupported("reduction %s of complex numbers", how)
		}
		halves := make([][]*Ref, 2)
		for number := range halves {
			changed := make(map[string]any)
			for name, v := range c.args {
				var err error
				if d, ok := v.(tensor.DType); ok && IsComplex(d) {
					changed[name] = PartOf(d)
				} else if slices.Contains(names, name) {
					if changed[name], err = c.partOfArgument(v, number); err != nil {
						return err
					}
				} else if z, ok := v.(complex128); ok {
					return c.Unsupported("argument %s is the complex number %v", name, z)
				}
			}
			var err error
			if halves[number], err = c.with(build, changed); err != nil {
				return err
			}
		}
		for i, re := range halves[0] {
			z, err := c.ofParts(re, halves[1][i])
			if err != nil {
				return err
			}
			c.results = append(c.results, z)
		}
		return nil
	}
}

// partOfArgument returns the real part of an argument, number 0, or the imaginary one, number 1.
func (b *Builder) partOfArgument(v any, number int) (any, error) {
	switch v := v.(type) {
	case *Ref:
		switch {
		case IsComplex(v.dtype):
			return b.part(v, number), nil
		case number == 1:
			return b.full(0, v.dtype, v.shape())
		}
	case []*Ref:
		list := make([]*Ref, len(v))
		for i, r := range v {
			if r == nil {
				continue
			}
			part, err := b.partOfArgument(r, number)
			if err != nil {
				return nil, err
			}
			list[i], _ = part.(*Ref)
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

// product is the rule of ops with one result that are linear in each of the named arguments.
func product(names ...string) complexRule {
	return func(c *call, build func(c *call) error) error {
		re, im, err := c.multilinear(build, names, nil)
		if err != nil {
			return err
		}
		if im == nil {
			return fmt.Errorf("no complex arguments")
		}
		return c.giveRef(c.ofParts(re, im))
	}
}

// multilinear returns the parts of the result: of the first complex argument it takes the real and the imaginary part,
// and of both the result, in which the arguments after it may be complex. The imaginary part is nil where none is.
func (c *call) multilinear(build func(c *call) error, names []string, changed map[string]any) (re, im *Ref, err error) {
	for i, name := range names {
		v, ok := changed[name]
		if !ok {
			v = c.args[name]
		}
		list, isList := v.([]*Ref)
		at := slices.IndexFunc(list, func(r *Ref) bool { return r != nil && IsComplex(r.dtype) })
		switch v := v.(type) {
		case *Ref:
			ok = IsComplex(v.dtype)
		case complex128:
			ok = true
		default:
			ok = at >= 0
		}
		if !ok {
			continue
		}
		var parts [2][2]*Ref
		for number := range parts {
			half := maps.Clone(changed)
			if half == nil {
				half = make(map[string]any)
			}
			if isList {
				half[name] = slices.Concat(list[:at], []*Ref{c.part(list[at], number)}, list[at+1:])
			} else if half[name], err = c.partOfArgument(v, number); err != nil {
				return nil, nil, err
			}
			if parts[number][0], parts[number][1], err = c.multilinear(build, names[i:], half); err != nil {
				return nil, nil, err
			}
		}
		// (a + bi) + (c + di)·i = (a − d) + (b + c)·i
		re, im = parts[0][0], parts[1][0]
		if d := parts[1][1]; d != nil {
			if re, err = c.combine("sub", nil, re, d); err != nil {
				return nil, nil, err
			}
		}
		if b := parts[0][1]; b != nil {
			if im, err = c.combine("add", nil, b, im); err != nil {
				return nil, nil, err
			}
		}
		return re, im, nil
	}
	results, err := c.with(build, changed)
	if err != nil {
		return nil, nil, err
	}
	if len(results) != 1 {
		return nil, nil, fmt.Errorf("%d results of complex numbers", len(results))
	}
	return results[0], nil, nil
}
