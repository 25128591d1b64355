package cpu

import (
	"context"
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// Interpret runs a graph op by op, each value in memory of its own, with no plan. It is for tests of ops and graphs; a
// session runs a plan.
//
// Storage gives the bytes of a weight or state, and those of a cache, which ops write to; inputs are contiguous, by name.
func Interpret(
	ctx context.Context, pool *Pool, registry *graph.Registry, g *graph.Graph,
	storage func(graph.Value) ([]byte, error), inputs map[string]*tensor.Tensor,
) (map[string]*tensor.Tensor, error) {
	m, err := newInterpreter(pool, registry, g, storage, inputs)
	if err != nil {
		return nil, err
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		if !m.holds(op.Guard) {
			continue
		}
		in, out := m.operands(i)
		if err := m.run(ctx, i, in, out); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", op.Path, op.Kind, err)
		}
	}
	out := make(map[string]*tensor.Tensor, len(g.Outputs))
	for _, o := range g.Outputs {
		v := m.view(o.Operand)
		l := tensor.Contiguous(v.Shape()...)
		data := make([]byte, v.Size()*v.DType.Size())
		ops.Gather(pool, data, v)
		out[o.Name] = &tensor.Tensor{DType: v.DType, Layout: l, Data: data}
	}
	graph.Cut(g.Outputs, out)
	return out, nil
}

type interpreter struct {
	g       *graph.Graph
	lowered *graph.Lowered
	data    [][]byte
	work    []byte
	device  *Device
}

func newInterpreter(
	pool *Pool, registry *graph.Registry, g *graph.Graph, storage func(graph.Value) ([]byte, error),
	inputs map[string]*tensor.Tensor,
) (*interpreter, error) {
	m := &interpreter{g: g, data: make([][]byte, len(g.Values)), device: &Device{pool: pool, registry: registry}}
	for i, v := range g.Values {
		switch v.Role {
		case graph.Input:
			t, ok := inputs[v.Name]
			if !ok || t.DType != v.DType || !t.Layout.Shape.Equal(v.Shape) {
				return nil, fmt.Errorf("input %s is missing or is not %v %v", v.Name, v.DType, v.Shape)
			}
			t = t.Contiguous()
			m.data[i] = t.Data[t.Layout.Offset*v.DType.Size():]
		case graph.Const:
			m.data[i] = v.Const
		case graph.Weight, graph.State, graph.Cache:
			data, err := storage(v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v.Name, err)
			}
			m.data[i] = data
		case graph.Computed:
			m.data[i] = slices.Repeat([]byte{0xff}, int(v.Bytes())) // NaN: what a kernel leaves out must not pass by luck
		}
	}
	var err error
	m.lowered, err = lower(g, registry, pool.Threads())
	return m, err
}

// operands returns the operands and results of op i.
func (m *interpreter) operands(i int) (in, out []ops.View) {
	for _, o := range m.g.Ops[i].In {
		in = append(in, m.view(o))
	}
	for _, id := range m.g.Ops[i].Out {
		out = append(out, m.view(m.g.Whole(id)))
	}
	return in, out
}

// run computes op i.
func (m *interpreter) run(ctx context.Context, i int, in, out []ops.View) error {
	c := ops.NewCall()
	c.In, c.Out = append(c.In, in...), append(c.Out, out...)
	n := int(m.lowered.Steps[i].WorkBytes)
	m.work = slices.Grow(m.work[:0], n)[:n]
	return m.device.run(ctx, &m.g.Ops[i], c, m.work)
}

func (m *interpreter) view(o graph.Operand) ops.View {
	if o.Value == graph.NoValue {
		return ops.View{}
	}
	return ops.View{Data: m.data[o.Value], DType: m.g.Values[o.Value].DType, Layout: o.Layout}
}

// holds reports whether an op under guards runs.
func (m *interpreter) holds(guards []graph.Guard) bool {
	for _, c := range guards {
		if is := m.data[c.Predicate.Value][c.Predicate.Layout.Offset] != 0; is != c.Want {
			return false
		}
	}
	return true
}
