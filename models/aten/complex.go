package aten

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/aten/elements"
	"github.com/optimem/optimem/models/aten/signals"
	"github.com/optimem/optimem/models/aten/views"
)

// complexTargets are the ops that make complex tensors of real ones, or the reverse. What a tensor's dtype decides, as
// of "abs", is among complexRules.
var complexTargets = slices.Concat(
	[]call.Overload{
		call.One(
			"aten::view_as_real(Tensor(a) self) -> Tensor(a)",
			func(c *call.Call) (*cells.Ref, error) { return elements.ComplexOnly(c, c.Pairs) },
		),
		call.One("aten::view_as_complex(Tensor(a) self) -> Tensor(a)", func(c *call.Call) (*cells.Ref, error) {
			return c.OfPairs(c.Tensor("self"))
		}),
		call.One("aten::complex(Tensor real, Tensor imag) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
			parts, err := c.Broadcast(c.Tensor("real"), c.Tensor("imag"))
			if err != nil {
				return nil, err
			}
			return c.OfParts(parts[0], parts[1])
		}),
		call.One("aten::polar(Tensor abs, Tensor angle) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
			return c.Polar(c.Tensor("abs"), c.Tensor("angle"))
		}),
		call.One("aten::imag(Tensor(a) self) -> Tensor(a)", func(c *call.Call) (*cells.Ref, error) {
			return elements.ComplexOnly(c, func(r *cells.Ref) *cells.Ref { return c.Part(r, 1) })
		}),
		call.One("aten::angle(Tensor self) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
			x, err := c.Combine("add", nil, c.Tensor("self"), 0) // no angle of −0
			if err != nil {
				return nil, err
			}
			return c.CombineFloat("atan2", nil, 0, x)
		}),
		call.One("aten::_neg_view(Tensor(a) self) -> Tensor(a)", func(c *call.Call) (*cells.Ref, error) {
			return c.TurnedView(c.Tensor("self"), elements.Negated)
		}),
		call.InPlace(
			"aten::conj_physical_(Tensor self) -> Tensor",
			func(c *call.Call) (*cells.Ref, error) { return c.Tensor("self"), nil },
		),
	},
	realTargets("real(Tensor(a) self) -> Tensor(a)", "conj(Tensor(a) self) -> Tensor(a)",
		"_conj(Tensor(a) self) -> Tensor(a)",
		"_conj_physical(Tensor self) -> Tensor", "conj_physical(Tensor self) -> Tensor"),
)

// realTargets are the overloads that leave a real tensor as it is.
func realTargets(schemas ...string) []call.Overload {
	all := make([]call.Overload, len(schemas))
	for i, s := range schemas {
		all[i] = call.Several("aten::"+s, views.SameView)
	}
	return all
}

// complexRules holds them by the op's name without its overload. An op that writes to self has the rule of its twin that
// does not.
var complexRules = func() map[string]elements.ComplexRule {
	all := map[string]elements.ComplexRule{
		"abs": elements.OfSelf(elements.Magnitude), "absolute": elements.OfSelf(elements.Magnitude),
		"angle":         elements.OfSelf(elements.Phase),
		"real":          elements.OfSelf(func(b *cells.Builder, z *cells.Ref) (*cells.Ref, error) { return b.Part(z, 0), nil }),
		"conj":          elements.OfSelf(elements.ConjugateView),
		"_conj":         elements.OfSelf(elements.ConjugateView),
		"conj_physical": elements.OfSelf(elements.Conjugate), "_conj_physical": elements.OfSelf(elements.Conjugate),
		"adjoint": elements.OfSelf(elements.Adjoint), "mH": elements.OfSelf(elements.Adjoint),
		"exp":        elements.OfSelf(elements.ComplexExp),
		"log":        elements.OfSelf(elements.ComplexLog),
		"sqrt":       elements.OfSelf(elements.ComplexSqrt),
		"reciprocal": elements.OfSelf(elements.Inverse),
		"square":     elements.OfSelf(func(b *cells.Builder, z *cells.Ref) (*cells.Ref, error) { return elements.Times(b, z, z) }),
		"sgn":        elements.OfSelf(elements.Sign),
		"div":        elements.Quotient, "divide": elements.Quotient, "true_divide": elements.Quotient,
		"pow":    elements.ComplexPower,
		"eq":     elements.Comparing("eq", "bitwise_and"),
		"ne":     elements.Comparing("ne", "bitwise_or"),
		"linear": elements.LinearOfComplex,
		"isnan":  elements.EitherPart("bitwise_or"), "isinf": elements.EitherPart("bitwise_or"),
		"isfinite":        elements.EitherPart("bitwise_and"),
		"vdot":            elements.ConjugatingFirst("self", "other"),
		"linalg_vecdot":   elements.ConjugatingFirst("x", "y"),
		"view_as_real":    elements.Plain,
		"imag":            elements.Plain,
		"view_as_complex": elements.Plain,
		"polar":           elements.Plain,
	}
	// Ops that know nothing of elements, or only copy and convert them, and those that are about complex numbers.
	for _, family := range [][]call.Overload{views.ViewTargets, views.CastTargets, signals.FourierTargets} {
		for _, op := range family {
			name := call.BaseName(call.ParseSchema(op.Schema).Target)
			if _, ok := all[name]; !ok && name != "as_strided" {
				all[name] = elements.Plain
			}
		}
	}
	for _, name := range []string{
		"full", "full_like", "new_full", "scalar_tensor", "empty", "empty_permuted", "empty_strided",
		"new_empty_strided",
		"zeros", "ones", "new_zeros", "new_ones", "new_empty", "zeros_like", "ones_like", "empty_like", "fill", "zero",
	} {
		all[name] = elements.Plain
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
			all[name] = elements.ByParts(args...)
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
			all[name] = elements.Product(args...)
		}
	}
	return all
}()

// run builds the call.
func (t Target) run(c *call.Call) error {
	if s := selected(c); s != nil {
		return t.ofSelected(c, s)
	}
	if hasCounted(c) {
		return t.ofCounted(c)
	}
	build := t.build
	if c.IsComplex() {
		rule, ok := complexRules[call.BaseName(t.schema.Target)]
		switch twin, is := t.twin(); {
		case ok:
		case is:
			if rule, ok = complexRules[call.BaseName(twin.schema.Target)]; ok {
				return intoSelf(c, twin, rule)
			}
		}
		if !ok {
			return c.Unsupported("it is not computed of complex numbers")
		}
		build = func(c *call.Call) error { return rule(c, t.build) }
	}
	if err := build(c); err != nil {
		return err
	}
	return c.Err
}

// twin returns the overload that gives what t writes to self, if there is one.
func (t Target) twin() (Target, bool) {
	base := call.BaseName(t.schema.Target)
	name, ok := strings.CutSuffix(base, "_")
	twin, found := targets[strings.Replace(t.schema.Target, "."+base+".", "."+name+".", 1)]
	return twin, ok && found
}

// intoSelf writes what a rule gives for the twin of an op to self.
func intoSelf(c *call.Call, twin Target, rule elements.ComplexRule) error {
	self := c.Tensor("self")
	if err := rule(c, twin.build); err != nil || c.Err != nil {
		return cmp.Or(err, c.Err)
	}
	r, ok := c.Results[0].(*cells.Ref)
	if !ok || cells.IsComplex(r.DType()) && !cells.IsComplex(self.DType()) {
		return fmt.Errorf("complex numbers are written to %v", self.DType())
	}
	if err := c.Write(self, r); err != nil {
		return err
	}
	c.Set(self)
	return nil
}
