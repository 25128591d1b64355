package cpu

import (
	"context"
	"fmt"
	"slices"

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
	lowered, err := lower(g, ops, pool.Threads())
	if err != nil {
		return nil, err
	}
	d := &Device{pool: pool, ops: ops}
	var work []byte
	for i := range g.Ops {
		op := &g.Ops[i]
		if !m.holds(op.Guard) {
			continue
		}
		c := newCall()
		for _, o := range op.In {
			c.in = append(c.in, m.view(o))
		}
		for _, id := range op.Out {
			c.out = append(c.out, m.view(m.g.Whole(id)))
		}
		n := lowered.Steps[i].WorkBytes
		work = slices.Grow(work[:0], int(n))
		if err := d.run(ctx, op, c, work[:n]); err != nil {
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

// holds reports whether an op under guards runs.
func (m *interpreter) holds(guards []layers.Guard) bool {
	for _, c := range guards {
		if is := m.data[c.Predicate.Value][c.Predicate.Layout.Offset] != 0; is != c.Want {
			return false
		}
	}
	return true
}
