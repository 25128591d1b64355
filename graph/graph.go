// Package graph represents a program as data: a [Graph] of ops over values, the rules for an op's result shapes and
// cost, and the registry that holds them.
//
// It knows shapes and ops. It does not know files, PyTorch's modules, devices or how an op is computed: a device's
// package lowers a graph ([Lowered]) and computes it.
//
// Views are not ops. PyTorch's transpose, slice, expand, reshape and the like only change where a tensor's elements are
// found, so they are part of the reading op's [Operand]: a value and a layout over it. In-place ops are not ops either:
// the builder of a graph gives every write a new value.
//
//	g := &graph.Graph{}
//	x := g.AddInput("x", tensor.Float32, tensor.Shape{1, 8})
//	y, err := g.Emit(graph.Standard(), graph.Op{Kind: "relu", In: []graph.Operand{g.Whole(x)}})
//	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(y[0])}}
//
// # Rows of a batch
//
// A graph has concrete shapes, and views are folded into operands, so rows are tracked as offsets, not as dimensions:
// the elements of an input [2 7 64] with batch axis 0 belong to row offset ÷ 448 mod 2, and so do those of every
// reshape. Each kind's [AxisRule] says along which dimensions it treats indices independently and alike; [Batched]
// follows the rows through a graph op by op and names the op that mixes them. [BatchedPair] proves a symbolic batch at
// two sizes.
package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// A ValueID is an index into a graph's values.
type ValueID int32

// NoValue stands for an optional operand that is absent, such as the bias of a linear layer without one.
const NoValue ValueID = -1

// A Role says where a value's bytes come from.
type Role uint8

// The roles.
const (
	// Computed values are the results of ops.
	Computed Role = iota
	// Input values come from the caller.
	Input
	// Weight values are storages of the checkpoint. The value is the whole storage, one-dimensional; operands view it.
	Weight
	// Const values are in the graph.
	Const
	// State values are buffers that the program changes; they begin as the checkpoint has them.
	State
	// Cache values are memory that outlives passes and that ops write in place: what an "attend" remembers of the tokens
	// that it has seen. Graphs of one model that name the same cache share it. It begins as zeros, no operand views a part
	// of it, no result of an op lies in it, and its contents are nobody's output: tables among the inputs say what of it is
	// meant, so that a pass that fails has changed nothing that a later one reads.
	Cache
)

// String names the role.
func (r Role) String() string {
	names := [...]string{Computed: "computed", Input: "input", Weight: "weight", Const: "const", State: "state",
		Cache: "cache"}
	if int(r) < len(names) {
		return names[r]
	}
	return "role(?)"
}

// A Value is a contiguous run of elements that ops read and one op at most writes.
type Value struct {
	// Name is the input's or weight's name, or what the program calls the value; it may be empty and need not be unique.
	Name  string
	Role  Role
	DType tensor.DType
	Shape tensor.Shape
	// Weight is set for weights and for states that begin as one; its Extent is the whole value.
	Weight tensor.Weight
	// Const holds the bytes of a constant.
	Const []byte
	// Encoding is set for weights whose elements, of uint8, are the bytes of blocks of codes.
	Encoding *encoded.Encoding
	// Number holds the bytes that an input must have where the graph was built for one value of it.
	Number []byte
}

// Bytes returns the size of the value.
func (v Value) Bytes() int64 {
	n, err := v.Shape.NumElements()
	if err != nil {
		panic("BUG: value " + v.Name + ": " + err.Error())
	}
	return n * int64(v.DType.Size())
}

// Params returns how many numbers so many bytes of the value are.
func (v *Value) Params(bytes int64) int64 {
	if v.Encoding != nil {
		return v.Encoding.Numbers(bytes)
	}
	return bytes / int64(v.DType.Size())
}

// An Operand is a strided view of a value.
type Operand struct {
	Value  ValueID
	Layout tensor.Layout
}

// Absent is the operand of an optional input that is not given.
var Absent = Operand{Value: NoValue}

// A Kind names an op. Kinds are lower case and follow PyTorch's names where they mean the same.
type Kind string

// An Op is one step: what to compute, from which operands, into which values.
type Op struct {
	Kind Kind
	// Path is the path of the PyTorch module that the op belongs to, "" for the root. A module called again has a
	// suffix: "encoder.layer@1".
	Path string
	// Source is the line of Python that made the op, "" where it is not known.
	Source string
	Attrs  Attrs
	In     []Operand
	Out    []ValueID
	// Guard says when the op runs: when all of its conditions hold, the outer ones first. An op without any always runs.
	// What an op that did not run would have written is undefined, and only ops under the same guard read it, or a
	// "choose" that does not pick it.
	Guard []Guard
}

// A Guard is a condition on data: the branch of a conditional that an op belongs to. It can be read once the ops before
// it ran and the guards before it hold.
type Guard struct {
	// Predicate is one bool.
	Predicate Operand
	// Want is what it must be.
	Want bool
}

// An Output is a named result of a graph.
type Output struct {
	Name    string
	Operand Operand
	// Count names the output that says how much of this one there is, where only data does: of dimension Dim, whose size is the
	// most that can be, as much is as that one int64 says. The rest holds anything. "" is all.
	Count string
	Dim   int
	// Counts says that the output is such a count and of interest to nobody else.
	Counts bool
}

// A StateUpdate says what a state holds after a pass: all of a value that an op computed, or what another state held
// before.
type StateUpdate struct {
	State   ValueID
	Operand Operand
}

// A Graph is a program for concrete shapes: ops in the order of execution.
type Graph struct {
	Values  []Value
	Ops     []Op
	Inputs  []ValueID
	Outputs []Output
	Updates []StateUpdate
	// Finds and Leaves name what a program keeps from call to call besides what its states hold, in words of whoever made the
	// graph: what it is for a call that this graph computes, and what it is afterwards. Where they differ, another graph is the
	// next call's. "" is what every program begins with.
	Finds, Leaves string
	// SourceBytes is host memory that sources of the model's weights take, whichever of them the graph reads: what they
	// keep of what they computed, and what computing it takes.
	SourceBytes int64
	// Modules maps a module path to its output, for those whose output is a tensor: what a user can look at.
	Modules map[string]Operand
}

// add appends a value.
func (g *Graph) AddValue(v Value) ValueID {
	g.Values = append(g.Values, v)
	return ValueID(len(g.Values) - 1)
}

// AddInput appends an input.
func (g *Graph) AddInput(name string, dtype tensor.DType, shape tensor.Shape) ValueID {
	id := g.AddValue(Value{Name: name, Role: Input, DType: dtype, Shape: shape})
	g.Inputs = append(g.Inputs, id)
	return id
}

// AddWeight appends the storage that a weight is a view of. It is the caller's to add each storage once.
func (g *Graph) AddWeight(w tensor.Weight, role Role) ValueID {
	n := w.Extent.Bytes / int64(max(w.DType.Size(), 1))
	return g.AddValue(Value{Name: w.Name, Role: role, DType: w.DType, Shape: tensor.Shape{int(n)}, Weight: w})
}

// AddCache appends a cache.
func (g *Graph) AddCache(name string, dtype tensor.DType, shape tensor.Shape) ValueID {
	return g.AddValue(Value{Name: name, Role: Cache, DType: dtype, Shape: shape})
}

// AddConst appends a constant.
func (g *Graph) AddConst(t *tensor.Tensor) ValueID {
	return g.AddValue(Value{Role: Const, DType: t.DType, Shape: t.Layout.Shape, Const: t.Data})
}

// Spec returns the dtype of an operand and its shape; the zero Spec for an absent one.
func (g *Graph) Spec(o Operand) Spec {
	if o.Value == NoValue {
		return Spec{}
	}
	return Spec{DType: g.Values[o.Value].DType, Shape: o.Layout.Shape}
}

// Specs appends the dtypes and shapes of an op's operands and results to two lists.
func (g *Graph) Specs(op *Op, in, out []Spec) (allIn, allOut []Spec) {
	for _, o := range op.In {
		in = append(in, g.Spec(o))
	}
	for _, id := range op.Out {
		out = append(out, Spec{DType: g.Values[id].DType, Shape: g.Values[id].Shape})
	}
	return in, out
}

// Whole returns the operand that is all of a value.
func (g *Graph) Whole(id ValueID) Operand {
	return Operand{Value: id, Layout: tensor.Contiguous(g.Values[id].Shape...)}
}

// Emit appends an op after asking its shape rule for the results, which it adds as values. op.Out is ignored.
func (g *Graph) Emit(r *Registry, op Op) ([]ValueID, error) {
	def, ok := r.Lookup(op.Kind)
	if !ok {
		return nil, fmt.Errorf("no op %q", op.Kind)
	}
	in := make([]Spec, len(op.In))
	for i, o := range op.In {
		in[i] = g.Spec(o)
	}
	out, err := def.Shape(in, op.Attrs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op.Kind, err)
	}
	op.Out = make([]ValueID, len(out))
	for i, s := range out {
		if n, err := s.Shape.NumElements(); err != nil {
			return nil, fmt.Errorf("%s: %w", op.Kind, err)
		} else if _, ok := tensor.MulBytes(n, int64(s.DType.Size())); !ok || s.DType == tensor.Invalid {
			return nil, fmt.Errorf("%s: a result of %v %v cannot be", op.Kind, s.DType, s.Shape)
		}
		op.Out[i] = g.AddValue(Value{DType: s.DType, Shape: s.Shape})
	}
	g.Ops = append(g.Ops, op)
	return op.Out, nil
}
