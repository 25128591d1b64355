// Package cpu implements package device for the CPU: kernels for every op, and the thread pool that they share. It is
// the reference for other devices.
//
// It knows ops and buffers. It does not know models, plans or files.
//
// It also has kernels for kinds that are in no registry, over values in blocks of channels: conv16, pool16, conv32 …
// Package arrange substitutes such ops for others, and describes the layout.
package cpu

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A view is an operand in memory: the bytes of the whole value and the layout over them.
type view struct {
	data   []byte
	dtype  tensor.DType
	layout tensor.Layout
	// packed says that data is the operand in the form that the kernel's pack says.
	packed bool
}

// absent reports whether an optional operand was not given.
func (v view) absent() bool { return v.dtype == tensor.Invalid }

// shape returns the view's dimensions.
func (v view) shape() tensor.Shape { return v.layout.Shape }

// size returns the number of elements.
func (v view) size() int {
	n, err := v.layout.NumElements()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return int(n)
}

// contiguous reports whether the elements lie in order without gaps.
func (v view) contiguous() bool { return v.layout.IsContiguous() }

// elements returns all of a value's elements as T, from the start of its memory: index with the view's layout. The
// memory need not be aligned for T.
func elements[T any](v view) []T {
	var zero T
	n := len(v.data) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(v.data))), n)
}

// row returns the elements of a contiguous view.
func row[T any](v view) []T {
	n := v.size()
	if n == 0 {
		return nil
	}
	return elements[T](v)[v.layout.Offset : v.layout.Offset+n]
}

// A call is an op to compute. Out views are contiguous and hold no defined bytes.
type call struct {
	ctx   context.Context
	attrs graph.Attrs
	in    []view
	out   []view
	// work is the scratch memory that the kernel asked for.
	work []byte
	// pool is that of the call, own, in a call of a device; meanwhile is what that calls.
	pool      *Pool
	own       Pool
	meanwhile func()
	// lender has the operands that are lent while the op runs; nil is none.
	lender device.Lender
	// weights has the dimensions of weights that kernels view in others.
	weights [2]weightRoom
}

// A kernel computes one kind of op.
type kernel struct {
	// name is what reports say.
	name string
	// work returns the scratch memory needed for given operands; nil is none.
	work func(in, out []graph.Spec, a graph.Attrs) int64
	// supports returns why given operands cannot be computed; nil takes all that the shape rule takes.
	supports func(in, out []graph.Spec, a graph.Attrs) error
	// packs returns which operands the kernel also takes packed; nil is none. Layouts are not known: pack takes any view.
	packs func(in, out []graph.Spec, a graph.Attrs) []graph.Pack
	// pack writes the packed form of an operand to dst.
	pack func(pool *Pool, a graph.Attrs, p graph.Pack, raw view, dst []byte) error
	run  func(c *call) error
	// workOn is work for kernels whose scratch memory depends on how many threads there are, cost what an op does of which
	// no registry knows, label the name for reports where that depends on attributes.
	workOn func(threads int, in, out []graph.Spec, a graph.Attrs) int64
	cost   func(in, out []graph.Spec, a graph.Attrs) graph.Cost
	label  func(a graph.Attrs) string
	// product is an op of which no registry knows as a product; nil is none.
	product func(in, out []graph.Spec, a graph.Attrs) graph.Product
	// inPlace returns the operands over which the kernel may write its first result, as graph.Step says; nil is none.
	inPlace func(in, out []graph.Spec, a graph.Attrs) []int
	// loops are those of an elementwise kind, for kernels that have it as a part; nil for others.
	loops func(a graph.Attrs, d tensor.DType) loops
}

// kernels is put together from the families, one file each.
var kernels = func() map[graph.Kind]kernel {
	all := make(map[graph.Kind]kernel)
	for _, family := range []map[graph.Kind]kernel{
		reductionKernels, softmaxKernels, normKernels, indexKernels, sortKernels,
		linearKernels, decodeKernels, expertsKernels, factorKernels, attentionKernels, attendKernels, recurrentKernels,
		elementwiseKernels, chainKernels, rotaryKernels, castKernels, createKernels, copyKernels,
		convKernels, blockedKernels, unitKernels, unitRowKernels, unitAttentionKernels, poolKernels, resampleKernels, padKernels,
		regionKernels,
	} {
		for kind, k := range family {
			if _, dup := all[kind]; dup {
				panic("BUG: two kernels for " + string(kind))
			}
			if k.name == "" {
				k.name = string(kind)
			}
			all[kind] = k
		}
	}
	return all
}()

// lookup returns how a kind is computed: by a kernel of this package, or by the one that an embedder gave with an op of
// its own.
func lookup(ops *graph.Registry, kind graph.Kind) (kernel, error) {
	if k, ok := kernels[kind]; ok {
		return k, nil
	}
	if def, known := ops.Lookup(kind); known && def.Reference != nil {
		return kernel{name: "reference", run: func(c *call) error { return runReference(c, def) }}, nil
	}
	return kernel{}, fmt.Errorf("the CPU has no kernel for %s", kind)
}

// overAny is the inPlace of kernels that compute each element from the elements at the same place.
func overAny(in, _ []graph.Spec, _ graph.Attrs) []int {
	all := make([]int, len(in))
	for i := range all {
		all[i] = i
	}
	return all
}

// overFirst is the inPlace of kernels that read each row, plane or element of the first operand for the last time before
// they write what takes its place.
func overFirst([]graph.Spec, []graph.Spec, graph.Attrs) []int { return []int{0} }

// take returns why given operands cannot be computed.
func (k kernel) take(in, out []graph.Spec, a graph.Attrs) error {
	if k.supports == nil {
		return nil
	}
	return k.supports(in, out, a)
}

// workBytes returns the scratch memory that given operands need.
func (k kernel) workBytes(in, out []graph.Spec, a graph.Attrs) int64 {
	if k.work == nil {
		return 0
	}
	return k.work(in, out, a)
}

// threadsWorkBytes is workBytes on a number of threads.
func (k kernel) threadsWorkBytes(threads int, in, out []graph.Spec, a graph.Attrs) int64 {
	if k.workOn != nil {
		return k.workOn(threads, in, out, a)
	}
	return k.workBytes(in, out, a)
}

// runReference gives an embedder's kernel contiguous operands.
func runReference(c *call, def graph.OpDef) error {
	in := make([]*tensor.Tensor, len(c.in))
	for i, v := range c.in {
		if v.absent() {
			continue
		}
		data := make([]byte, v.size()*v.dtype.Size())
		gather(c.pool, data, v)
		in[i] = &tensor.Tensor{DType: v.dtype, Layout: tensor.Contiguous(v.shape()...), Data: data}
	}
	out := make([]*tensor.Tensor, len(c.out))
	for i, v := range c.out {
		out[i] = &tensor.Tensor{DType: v.dtype, Layout: v.layout, Data: v.data}
	}
	return def.Reference(in, out, c.attrs)
}

// lower decides how every op of a graph is computed on a number of threads.
func lower(g *graph.Graph, ops *graph.Registry, threads int) (*graph.Lowered, error) {
	l := &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}
	for i, op := range g.Ops {
		in, out := g.Specs(&op, nil, nil)
		k, err := lookup(ops, op.Kind)
		if err == nil {
			err = k.take(in, out, op.Attrs)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w: %w%s", op.Path, op.Kind, graph.ErrUnsupported, err, inSource(op))
		}
		l.Steps[i] = graph.Step{Kernel: k.name, WorkBytes: k.threadsWorkBytes(threads, in, out, op.Attrs)}
		if k.label != nil {
			l.Steps[i].Kernel = k.label(op.Attrs)
		}
		if k.cost != nil {
			l.Steps[i].Cost = k.cost(in, out, op.Attrs)
		}
		if k.product != nil {
			l.Steps[i].Product = k.product(in, out, op.Attrs)
		}
		if k.packs != nil {
			l.Steps[i].Packs = k.packs(in, out, op.Attrs)
		}
		if k.inPlace != nil {
			l.Steps[i].InPlace = k.inPlace(in, out, op.Attrs)
		}
	}
	return l, nil
}

// inSource returns the line of Python that made an op as the end of an error's text.
func inSource(op graph.Op) string {
	if op.Source == "" {
		return ""
	}
	return " (" + op.Source + ")"
}

// Compute runs one op over tensors in memory, which may be strided; a nil tensor is an absent operand. It is how ops are
// tested by themselves.
func Compute(
	ctx context.Context, pool *Pool, ops *graph.Registry, kind graph.Kind, attrs graph.Attrs, in ...*tensor.Tensor,
) ([]*tensor.Tensor, error) {
	def, ok := ops.Lookup(kind)
	if !ok {
		return nil, fmt.Errorf("no op %q", kind)
	}
	c := &call{ctx: ctx, attrs: attrs, pool: pool}
	inSpecs := make([]graph.Spec, len(in))
	for i, t := range in {
		if t == nil {
			c.in = append(c.in, view{})
			continue
		}
		inSpecs[i] = graph.Spec{DType: t.DType, Shape: t.Layout.Shape}
		c.in = append(c.in, view{data: t.Data, dtype: t.DType, layout: t.Layout})
	}
	outSpecs, err := def.Shape(inSpecs, attrs)
	if err != nil {
		return nil, err
	}
	out := make([]*tensor.Tensor, len(outSpecs))
	for i, s := range outSpecs {
		l := tensor.Contiguous(s.Shape...)
		n, _ := l.NumElements()
		out[i] = &tensor.Tensor{DType: s.DType, Layout: l, Data: make([]byte, n*int64(s.DType.Size()))}
		for k := range out[i].Data {
			out[i].Data[k] = 0xa5 // a kernel that leaves elements out must not pass by luck
		}
		c.out = append(c.out, view{data: out[i].Data, dtype: s.DType, layout: l})
	}
	k, err := lookup(ops, kind)
	if err != nil {
		return nil, err
	}
	if err := k.take(inSpecs, outSpecs, attrs); err != nil {
		return nil, err
	}
	c.work = make([]byte, k.threadsWorkBytes(pool.Threads(), inSpecs, outSpecs, attrs))
	return out, k.run(c)
}
