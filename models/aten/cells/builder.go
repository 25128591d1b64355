// Package cells holds the tensors of a program while its graph is written.
//
// A [Ref] is a view of memory, a [Cell]; a view adds no op, and a write gives the memory a new value, so that ops stay
// functional. A [Builder] appends the ops: its methods promote, broadcast, cast, fold and move, by PyTorch's rules. A
// [Count] is a size that only data says, a [Selection] what a mask selects as long as nobody needs it as a tensor.
//
//	sum, err := b.Combine("add", nil, x, 1) // x + 1 in PyTorch's dtype
//	err = b.Write(b.SelectAt(x, 0, 3), sum) // x[3] = sum, seen by all views of x
//
// It does not know overloads, their arguments, or which op a program calls.
package cells

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A Builder writes a graph. Its methods are what the meanings of ops are made of.
type Builder struct {
	// Ctx ends the building; nil never does.
	Ctx context.Context
	// Graph is what is written, of ops that Ops knows.
	Graph *graph.Graph
	Ops   *graph.Registry
	// Path and Source are those of the node being built.
	Path, Source string
	// Guard is the guard of the ops being built: the branches of conditionals that they are in.
	Guard []graph.Guard
	// TableElements counts what tables of indices have that the graph holds.
	TableElements int
	// links are between cells that PyTorch has as one, for each of the two.
	links map[*Cell][]link
	// turned are the cells of PyTorch's memory seen as conjugates or negatives.
	turned map[*Cell]bool
	// Followed counts the writes that went along links.
	Followed int
	// Shared are constants that calls alike have together, by what describes them.
	Shared map[any]*Ref
	// Reads says that small weights may be read; known are those that were, and whether they hold nothing but zeros.
	Reads bool
	known map[graph.ValueID]bool
	// found are the places where masks are true, by mask.
	found map[string]*Places
	// makers are the places of the ops that made values, of the first makersOf ops.
	makers   map[graph.ValueID]int
	makersOf int
	// RowsJoined are the masks of rows that count in what was put together, by the counts of the parts.
	RowsJoined map[string]*Ref
	// fourierBytes is what constants of Fourier transforms take so far.
	fourierBytes int64
}

// maxOps bounds the ops of a graph. A call of a few bytes may be a hundred of them, and each takes kilobytes.
const maxOps = 1 << 18

// Emit appends an op and returns its results as tensors of their own.
func (b *Builder) Emit(kind graph.Kind, attrs graph.Attrs, in ...graph.Operand) ([]*Ref, error) {
	if len(b.Graph.Ops) >= maxOps {
		return nil, fmt.Errorf("more than %d ops", maxOps)
	}
	if err := b.Stopped(); err != nil {
		return nil, err
	}
	ids, err := b.Graph.Emit(b.Ops, graph.Op{
		Kind: kind, Path: b.Path, Source: b.Source, Attrs: attrs, In: in, Guard: b.Guard,
	})
	if errors.Is(err, graph.ErrDType) {
		return nil, b.Unsupported("%v", err)
	}
	if err != nil {
		return nil, err
	}
	refs := make([]*Ref, len(ids))
	for i, id := range ids {
		refs[i] = b.Own(id)
	}
	return refs, nil
}

// Stopped returns the error of a context that is done.
func (b *Builder) Stopped() error {
	if b.Ctx == nil {
		return nil
	}
	return b.Ctx.Err()
}

// Emit1 is emit for ops with one result.
func (b *Builder) Emit1(kind graph.Kind, attrs graph.Attrs, in ...graph.Operand) (*Ref, error) {
	refs, err := b.Emit(kind, attrs, in...)
	if err != nil {
		return nil, err
	}
	return refs[0], nil
}

// Cast returns r in another dtype: r itself where it has it.
func (b *Builder) Cast(r *Ref, d tensor.DType) (*Ref, error) {
	if r.dtype == d {
		return r, nil
	}
	if r.IsCounted() {
		cast, err := b.Cast(Bare(r), d)
		if err != nil {
			return nil, err
		}
		return r.counted.Of(cast, r.counted.Dim), nil
	}
	if IsComplex(r.dtype) || IsComplex(d) {
		return b.castComplex(r, d)
	}
	if r.cell.uniform { // one element is cast for all
		one, err := b.Emit1("cast", graph.Attrs{"dtype": d}, b.element(r.cell))
		if err != nil {
			return nil, err
		}
		return b.uniform(one.cell.value, r.Shape()), nil
	}
	return b.Emit1("cast", graph.Attrs{"dtype": d}, b.Read(r))
}

// Expand returns a view of r with the given shape, by PyTorch's rules of broadcasting.
func (b *Builder) Expand(r *Ref, shape tensor.Shape) (*Ref, error) {
	if r.Shape().Equal(shape) {
		return r, nil
	}
	if _, err := shape.NumElements(); err != nil {
		return nil, err
	}
	lead := len(shape) - r.Rank()
	if lead < 0 {
		return nil, fmt.Errorf("shape %v does not expand to %v", r.Shape(), shape)
	}
	l := tensor.Layout{Shape: shape, Strides: make([]int, len(shape)), Offset: r.layout.Offset}
	for i, d := range r.Shape() {
		switch {
		case d == shape[lead+i]:
			l.Strides[lead+i] = r.layout.Strides[i]
		case d != 1:
			return nil, fmt.Errorf("shape %v does not expand to %v", r.Shape(), shape)
		}
	}
	return b.View(r, l), nil
}

// Broadcast returns the shape that all of the given shapes expand to.
func Broadcast(shapes ...tensor.Shape) (tensor.Shape, error) {
	var out tensor.Shape
	for _, s := range shapes {
		if len(s) > len(out) {
			grown := make(tensor.Shape, len(s))
			for i := range grown {
				grown[i] = 1
			}
			copy(grown[len(s)-len(out):], out)
			out = grown
		}
		for i, d := range s {
			at := len(out) - len(s) + i
			switch {
			case out[at] == 1:
				out[at] = d
			case d != 1 && d != out[at]:
				return nil, fmt.Errorf("shapes %v do not broadcast", shapes)
			}
		}
	}
	if out == nil {
		out = tensor.Shape{}
	}
	return out, nil
}

// Unsupported returns the error that says what of an op optimem lacks.
//
//go:noinline
func (b *Builder) Unsupported(format string, args ...any) error {
	return &UnsupportedError{What: fmt.Sprintf(format, args...)}
}

// Scalar returns a 0-dimensional tensor that holds a number.
func (b *Builder) Scalar(n Number, d tensor.DType) (*Ref, error) {
	if IsComplex(d) {
		return b.complexConstant(n, d)
	}
	data, err := encodeNumber(n, d)
	if err != nil {
		return nil, b.Unsupported("%v", err)
	}
	id := b.Graph.AddConst(&tensor.Tensor{DType: d, Layout: tensor.Contiguous(), Data: data})
	return b.Own(id), nil
}

// Full returns a tensor of the given shape that holds one number throughout, as a view of a constant.
func (b *Builder) Full(n Number, d tensor.DType, shape tensor.Shape) (*Ref, error) {
	c, err := b.Scalar(n, d)
	if err != nil {
		return nil, err
	}
	return b.Expand(c, shape)
}

// encodeNumber writes a number as one element.
func encodeNumber(n Number, d tensor.DType) ([]byte, error) {
	var x float64
	var i int64
	switch n := n.(type) {
	case int:
		x, i = float64(n), int64(n)
	case float64:
		x, i = n, Truncate(n)
	case bool:
		if n {
			x, i = 1, 1
		}
	default:
		return nil, fmt.Errorf("a %T is not a number", n)
	}
	p := make([]byte, d.Size())
	put := func(bits uint64) []byte {
		for k := range p {
			p[k] = byte(bits >> (8 * k))
		}
		return p
	}
	switch d {
	case tensor.Float32:
		return put(uint64(math.Float32bits(float32(x)))), nil
	case tensor.Float64:
		return put(math.Float64bits(x)), nil
	case tensor.Float16:
		return put(uint64(tensor.Float16FromFloat32(float32(x)))), nil
	case tensor.BFloat16:
		return put(uint64(tensor.BFloat16FromFloat32(float32(x)))), nil
	case tensor.Bool:
		if x != 0 { // NaN is true
			i = 1
		} else {
			i = 0
		}
		return put(uint64(i)), nil
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64, tensor.UInt8, tensor.UInt16, tensor.UInt32,
		tensor.UInt64:
		return put(uint64(i)), nil
	}
	return nil, fmt.Errorf("a constant of %v", d)
}

// Truncate converts as C does on x86, where what does not fit becomes the smallest integer.
func Truncate(x float64) int64 {
	if math.IsNaN(x) || x >= math.MaxInt64 || x <= math.MinInt64 {
		return math.MinInt64
	}
	return int64(x)
}

// NumElements returns the product of a shape. A view may have more elements than can be counted, which no op takes; it
// has the largest number here, which no value has.
func NumElements(s tensor.Shape) int64 {
	n, err := s.NumElements()
	if err != nil {
		return math.MaxInt64
	}
	return n
}
