package cpu

import (
	"context"
	"fmt"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// Interpret runs a graph op by op, each value in memory of its own, with no plan. It is for tests of ops and graphs; a
// session runs a plan.
//
// Storage gives the bytes of a weight or state; inputs are contiguous, by name.
func Interpret(
	ctx context.Context, pool *Pool, ops *layers.Registry, g *layers.Graph,
	storage func(layers.Value) ([]byte, error), inputs map[string]*tensor.Tensor,
) (map[string]*tensor.Tensor, error) {
	m := &interpreter{g: g, data: make([][]byte, len(g.Values))}
	for i, v := range g.Values {
		switch v.Role {
		case layers.Input:
			t, ok := inputs[v.Name]
			if !ok || t.DType != v.DType || !t.Layout.Shape.Equal(v.Shape) {
				return nil, fmt.Errorf("input %s is missing or is not %v %v", v.Name, v.DType, v.Shape)
			}
			t = t.Contiguous()
			m.data[i] = t.Data[t.Layout.Offset*v.DType.Size():]
		case layers.Const:
			m.data[i] = v.Const
		case layers.Weight, layers.State:
			data, err := storage(v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v.Name, err)
			}
			m.data[i] = data
		case layers.Computed:
			m.data[i] = make([]byte, v.Bytes())
		}
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", op.Path, err)
		}
		if err := m.run(ctx, pool, ops, op); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", op.Path, op.Kind, err)
		}
	}
	out := make(map[string]*tensor.Tensor, len(g.Outputs))
	for _, o := range g.Outputs {
		v := m.view(o.Operand)
		l := tensor.Contiguous(v.shape()...)
		data := make([]byte, v.size()*v.dtype.Size())
		gather(pool, data, v)
		out[o.Name] = &tensor.Tensor{DType: v.dtype, Layout: l, Data: data}
	}
	return out, nil
}

type interpreter struct {
	g    *layers.Graph
	data [][]byte
}

func (m *interpreter) view(o layers.Operand) view {
	if o.Value == layers.NoValue {
		return view{}
	}
	return view{data: m.data[o.Value], dtype: m.g.Values[o.Value].DType, layout: o.Layout}
}

func (m *interpreter) run(ctx context.Context, pool *Pool, ops *layers.Registry, op *layers.Op) error {
	c := &call{ctx: ctx, attrs: op.Attrs, pool: pool}
	for _, o := range op.In {
		c.in = append(c.in, m.view(o))
	}
	for _, id := range op.Out {
		c.out = append(c.out, m.view(m.g.Whole(id)))
	}
	k, ok := kernels[op.Kind]
	if !ok {
		return m.reference(c, ops, op)
	}
	in, out := specs(m.g, *op)
	if k.supports != nil {
		if err := k.supports(in, out, op.Attrs); err != nil {
			return err
		}
	}
	if k.work != nil {
		c.work = make([]byte, k.work(in, out, op.Attrs))
	}
	return k.run(c)
}

// reference runs the kernel that an embedder gave with an op of its own.
func (m *interpreter) reference(c *call, ops *layers.Registry, op *layers.Op) error {
	def, ok := ops.Lookup(op.Kind)
	if !ok || def.Reference == nil {
		return fmt.Errorf("the CPU has no kernel")
	}
	return runReference(c, def)
}

// runReference gives an embedder's kernel contiguous operands.
func runReference(c *call, def layers.OpDef) error {
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
