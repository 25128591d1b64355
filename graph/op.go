package graph

import (
	"fmt"
	"maps"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// A Spec is what a shape rule knows of a tensor.
type Spec struct {
	DType tensor.DType
	Shape tensor.Shape
}

// A Cost is what an op does, for planning.
type Cost struct {
	// FLOPs counts additions and multiplications; a fused multiply-add is two.
	FLOPs int64
	// Bytes counts what is read and written when every operand is moved once.
	Bytes int64
}

// An OpDef is what is known of an op without a device.
type OpDef struct {
	Kind Kind
	// Shape returns the results for given operands, or an error that says what does not fit, both shapes included. An
	// absent operand is the zero Spec.
	Shape func(in []Spec, a Attrs) ([]Spec, error)
	// FLOPs counts the arithmetic; nil counts one for each element of the results.
	FLOPs func(in, out []Spec, a Attrs) int64
	// Bytes counts what is read and written; nil counts every operand once.
	Bytes func(in, out []Spec) int64
	// Axes says along which dimensions the op treats every index by itself; nil says that it mixes along all.
	Axes AxisRule
	// Reference computes the op for contiguous operands; only ops that an embedder adds have it, and only the CPU runs
	// them. Out is allocated to the shapes that Shape gave.
	Reference func(in, out []*tensor.Tensor, a Attrs) error
	// Memory counts the bytes that Reference allocates while it computes, 0 for one that allocates nothing; nil is not known,
	// and what has to know refuses the op.
	Memory func(in, out []Spec, a Attrs) int64
}

// Cost returns the cost of an op.
func (d OpDef) Cost(in, out []Spec, a Attrs) Cost {
	var c Cost
	if d.Bytes != nil {
		c.Bytes = d.Bytes(in, out)
	} else {
		c.Bytes = movedBytes(in) + movedBytes(out)
	}
	if d.FLOPs != nil {
		c.FLOPs = d.FLOPs(in, out, a)
		return c
	}
	for _, s := range out {
		n, _ := s.Shape.NumElements()
		c.FLOPs += n
	}
	return c
}

// movedBytes is what tensors take together.
func movedBytes(list []Spec) int64 {
	var sum int64
	for _, s := range list {
		if n, err := s.Shape.NumElements(); err == nil && s.DType != tensor.Invalid {
			sum += n * int64(s.DType.Size())
		}
	}
	return sum
}

// A Registry holds the ops that a graph may use. It is not changed after it was built.
type Registry struct {
	defs map[Kind]OpDef
}

// Standard returns the registry of the ops that optimem has.
func Standard() *Registry { return standard }

// With returns a registry with further ops, which must have new kinds, a shape rule and a reference.
func (r *Registry) With(defs ...OpDef) (*Registry, error) {
	extended := &Registry{defs: maps.Clone(r.defs)}
	for _, d := range defs {
		if _, taken := extended.defs[d.Kind]; taken || d.Kind == "" {
			return nil, fmt.Errorf("an op %q exists", d.Kind)
		}
		if d.Shape == nil || d.Reference == nil {
			return nil, fmt.Errorf("op %q lacks a shape rule or a reference", d.Kind)
		}
		extended.defs[d.Kind] = d
	}
	return extended, nil
}

// Lookup returns the definition of an op.
func (r *Registry) Lookup(k Kind) (OpDef, bool) {
	d, ok := r.defs[k]
	return d, ok
}

// Kinds returns all kinds, sorted.
func (r *Registry) Kinds() []Kind { return slices.Sorted(maps.Keys(r.defs)) }

// standard is put together from the families, one file each.
var standard = func() *Registry {
	r := &Registry{defs: make(map[Kind]OpDef)}
	for _, family := range [][]OpDef{
		reductionOps, normOps, indexOps, sortOps,
		linearOps, decodeOps, expertsOps, factorOps, attentionOps, attendOps, stateOps, recurrentOps,
		elementwiseOps, chainOps, createOps, copyOps, chooseOps,
		convOps, poolOps, resampleOps, padOps, regionOps,
	} {
		for _, d := range family {
			if _, dup := r.defs[d.Kind]; dup || d.Shape == nil {
				panic("BUG: op " + string(d.Kind) + " is defined twice or has no shape rule")
			}
			r.defs[d.Kind] = d
		}
	}
	return r
}()

// Attrs are an op's attributes by name: int, []int, float64, bool, string, tensor.DType, Program.
type Attrs map[string]any

// Int returns an integer attribute, 0 where there is none.
//
//go:noinline
func (a Attrs) Int(name string) int { return attr[int](a, name) }

// Ints returns a list attribute, nil where there is none.
//
//go:noinline
func (a Attrs) Ints(name string) []int { return attr[[]int](a, name) }

// Float returns a number attribute, 0 where there is none.
//
//go:noinline
func (a Attrs) Float(name string) float64 { return attr[float64](a, name) }

// Bool returns a flag, false where there is none.
//
//go:noinline
func (a Attrs) Bool(name string) bool { return attr[bool](a, name) }

// String returns a text attribute, "" where there is none.
//
//go:noinline
func (a Attrs) String(name string) string { return attr[string](a, name) }

// DType returns a dtype attribute, Invalid where there is none.
func (a Attrs) DType(name string) tensor.DType { return attr[tensor.DType](a, name) }

func attr[T any](a Attrs, name string) T {
	var zero T
	v, ok := a[name]
	if !ok {
		return zero
	}
	t, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("BUG: attribute %s is a %T, not a %T", name, v, zero))
	}
	return t
}
