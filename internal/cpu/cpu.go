// Package cpu implements package device for the CPU: kernels for every op, and the thread pool that they share. It is
// the reference for other devices.
//
// It knows ops and buffers. It does not know models, plans or files.
//
// It also has kernels for kinds that are in no registry, over values in blocks of channels: conv16, pool16, conv32 …
// Package arrange substitutes such ops for others, and describes the layout.
//
// Products, convolutions and attention are here; other families of ops have packages below, which are written with what
// package ops has.
//
//	d := cpu.New(0, graph.Standard()) // a device.Device with a thread for each processor; defer d.Close()
package cpu

import (
	"context"
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/axes"
	"github.com/optimem/optimem/internal/cpu/elementwise"
	"github.com/optimem/optimem/internal/cpu/images"
	"github.com/optimem/optimem/internal/cpu/index"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/states"
	"github.com/optimem/optimem/tensor"
)

// kernels is put together from the families: a file each here, and the packages below.
var kernels = func() map[graph.Kind]ops.Kernel {
	all := make(map[graph.Kind]ops.Kernel)
	own := []map[graph.Kind]ops.Kernel{
		linearKernels, expertsKernels, attentionKernels, attendKernels, states.Kernels, recurrentKernels,
		convKernels, blockedKernels, unitKernels, unitRowKernels, unitAttentionKernels,
	}
	for _, family := range slices.Concat(own, axes.Kernels, elementwise.Kernels, images.Kernels, index.Kernels) {
		for kind, k := range family {
			if _, dup := all[kind]; dup {
				panic("BUG: two kernels for " + string(kind))
			}
			if k.Name == "" {
				k.Name = string(kind)
			}
			all[kind] = k
		}
	}
	return all
}()

// lookup returns how a kind is computed: by a kernel of this package, or by the one that an embedder gave with an op of
// its own.
func lookup(registry *graph.Registry, kind graph.Kind) (ops.Kernel, error) {
	if k, ok := kernels[kind]; ok {
		return k, nil
	}
	if def, known := registry.Lookup(kind); known && def.Reference != nil {
		return ops.Kernel{Name: "reference", Run: func(c *ops.Call) error { return runReference(c, def) }}, nil
	}
	return ops.Kernel{}, fmt.Errorf("the CPU has no kernel for %s", kind)
}

// runReference gives an embedder's kernel contiguous operands.
func runReference(c *ops.Call, def graph.OpDef) error {
	in := make([]*tensor.Tensor, len(c.In))
	for i, v := range c.In {
		if v.Absent() {
			continue
		}
		data := make([]byte, v.Size()*v.DType.Size())
		ops.Gather(c.Pool, data, v)
		in[i] = &tensor.Tensor{DType: v.DType, Layout: tensor.Contiguous(v.Shape()...), Data: data}
	}
	out := make([]*tensor.Tensor, len(c.Out))
	for i, v := range c.Out {
		out[i] = &tensor.Tensor{DType: v.DType, Layout: v.Layout, Data: v.Data}
	}
	return def.Reference(in, out, c.Attrs)
}

// lower decides how every op of a graph is computed on a number of threads.
func lower(g *graph.Graph, registry *graph.Registry, threads int) (*graph.Lowered, error) {
	l := &graph.Lowered{Graph: g, Steps: make([]graph.Step, len(g.Ops))}
	for i, op := range g.Ops {
		in, out := g.Specs(&op, nil, nil)
		k, err := lookup(registry, op.Kind)
		if err == nil {
			err = k.Take(in, out, op.Attrs)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w: %w%s", op.Path, op.Kind, graph.ErrUnsupported, err, inSource(op))
		}
		l.Steps[i] = graph.Step{Kernel: k.Name, WorkBytes: k.ThreadsWorkBytes(threads, in, out, op.Attrs)}
		if k.Label != nil {
			l.Steps[i].Kernel = k.Label(op.Attrs)
		}
		if k.Cost != nil {
			l.Steps[i].Cost = k.Cost(in, out, op.Attrs)
		}
		if k.Product != nil {
			l.Steps[i].Product = k.Product(in, out, op.Attrs)
		}
		if k.Packs != nil {
			l.Steps[i].Packs = k.Packs(in, out, op.Attrs)
		}
		if k.InPlace != nil {
			l.Steps[i].InPlace = k.InPlace(in, out, op.Attrs)
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
	ctx context.Context, pool *Pool, registry *graph.Registry, kind graph.Kind, attrs graph.Attrs, in ...*tensor.Tensor,
) ([]*tensor.Tensor, error) {
	def, ok := registry.Lookup(kind)
	if !ok {
		return nil, fmt.Errorf("no op %q", kind)
	}
	c := &ops.Call{Ctx: ctx, Attrs: attrs, Pool: pool}
	inSpecs := make([]graph.Spec, len(in))
	for i, t := range in {
		if t == nil {
			c.In = append(c.In, ops.View{})
			continue
		}
		inSpecs[i] = graph.Spec{DType: t.DType, Shape: t.Layout.Shape}
		c.In = append(c.In, ops.View{Data: t.Data, DType: t.DType, Layout: t.Layout})
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
		c.Out = append(c.Out, ops.View{Data: out[i].Data, DType: s.DType, Layout: l})
	}
	k, err := lookup(registry, kind)
	if err != nil {
		return nil, err
	}
	if err := k.Take(inSpecs, outSpecs, attrs); err != nil {
		return nil, err
	}
	c.Work = make([]byte, k.ThreadsWorkBytes(pool.Threads(), inSpecs, outSpecs, attrs))
	return out, k.Run(c)
}
