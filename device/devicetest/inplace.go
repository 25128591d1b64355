package devicetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A Lowerer decides how a device computes a graph.
type Lowerer func(g *graph.Graph) (*graph.Lowered, error)

// InPlace runs the ops of a graph one by one, each value in memory of its own. An op that may write over an operand runs
// again over each of those, and where that operand was one value with others, over all of them at once: the bits must be
// the same. Operands that are views are put in order first, so that they can be written over. Storage gives the bytes of
// the values that no op makes. It returns how often ops of each kind ran in place.
func InPlace(
	ctx context.Context, dev device.Device, lower Lowerer, g *graph.Graph, storage func(v graph.Value) []byte,
) (map[graph.Kind]int, error) {
	x := &inPlace{ctx: ctx, dev: dev, lower: lower, ran: make(map[graph.Kind]int)}
	values := make([][]byte, len(g.Values))
	for id := range g.Values {
		switch v := &g.Values[id]; v.Role {
		case graph.Computed:
		case graph.Const:
			values[id] = v.Const
		default:
			values[id] = storage(*v)
		}
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		in := make([]*tensor.Tensor, len(op.In))
		for k, o := range op.In {
			if o.Value != graph.NoValue {
				in[k] = (&tensor.Tensor{DType: g.Values[o.Value].DType, Layout: o.Layout,
					Data: values[o.Value]}).Contiguous()
			}
		}
		out, err := x.op(g, op, in)
		if err != nil {
			return nil, fmt.Errorf("op %d, %s: %w", i, op.Kind, err)
		}
		for k, id := range op.Out {
			values[id] = out[k]
		}
	}
	return x.ran, nil
}

type inPlace struct {
	ctx   context.Context
	dev   device.Device
	lower Lowerer
	ran   map[graph.Kind]int
}

// op runs an op apart from its operands and over those that it may write over, and returns its results.
func (x *inPlace) op(g *graph.Graph, op *graph.Op, in []*tensor.Tensor) ([][]byte, error) {
	apart, err := x.alone(g, op, in, nil)
	if err != nil {
		return nil, err
	}
	want, err := x.run(apart, in, -1)
	if err != nil {
		return nil, err
	}
	for _, k := range apart.Steps[0].InPlace {
		if !apart.Graph.CanOverlay(&apart.Graph.Ops[0], k) {
			continue
		}
		same := []int{k}
		for other := range in { // operands that could be one value with this one
			if other != k && slices.Contains(apart.Steps[0].InPlace, other) && alike(in[k], in[other]) {
				same = append(same, other)
			}
		}
		for _, joined := range [][]int{same[:1], same} {
			values := slices.Clone(in)
			for _, other := range joined {
				values[other] = in[k]
			}
			l, expected := apart, want
			if len(joined) > 1 {
				if l, err = x.alone(g, op, values, joined); err != nil {
					return nil, err
				}
				if expected, err = x.run(l, values, -1); err != nil {
					break // such as a remainder of zero and zero
				}
			}
			got, err := x.run(l, values, k)
			if err != nil {
				return nil, fmt.Errorf("over operand %d: %w", k, err)
			}
			for n := range got {
				if !bytes.Equal(got[n], expected[n]) {
					return nil, fmt.Errorf("over operand %d: result %d has other bits", k, n)
				}
			}
			x.ran[op.Kind]++
			if len(same) == 1 {
				break
			}
		}
	}
	return want, nil
}

// alike reports whether two operands could be one.
func alike(a, b *tensor.Tensor) bool {
	return a != nil && b != nil && a.DType == b.DType && slices.Equal(a.Layout.Shape, b.Layout.Shape)
}

// alone lowers a graph of one op. The joined operands are one value.
func (x *inPlace) alone(g *graph.Graph, op *graph.Op, in []*tensor.Tensor, joined []int) (*graph.Lowered, error) {
	one := &graph.Graph{}
	own := *op
	own.In, own.Out, own.Guard = make([]graph.Operand, len(in)), nil, nil
	for k, v := range in {
		switch {
		case v == nil:
			own.In[k] = graph.Absent
		case slices.Contains(joined, k) && k != slices.Min(joined):
			own.In[k] = own.In[slices.Min(joined)]
		default:
			shape := v.Layout.Shape
			own.In[k] = one.Whole(one.AddInput(fmt.Sprint(k), v.DType, shape))
		}
	}
	for _, id := range op.Out {
		v := &g.Values[id]
		one.Values = append(one.Values, graph.Value{DType: v.DType, Shape: v.Shape})
		own.Out = append(own.Out, graph.ValueID(len(one.Values)-1))
	}
	one.Ops = []graph.Op{own}
	return x.lower(one)
}

// run runs a graph of one op and returns its results: each in memory of its own, or the first over an operand.
func (x *inPlace) run(l *graph.Lowered, in []*tensor.Tensor, over int) (out [][]byte, err error) {
	g, op, step := l.Graph, &l.Graph.Ops[0], l.Steps[0]
	stream, err := x.dev.NewStream()
	if err != nil {
		return nil, err
	}
	defer func() { err = firstError(err, stream.Close()) }()
	regions := make([]device.Region, len(g.Values))
	take := func(n int64) (device.Region, error) {
		m, err := x.dev.Alloc(max(n, 1))
		return device.Region{Memory: m, Bytes: n}, err
	}
	var work device.Region
	defer func() {
		for _, r := range append(regions, work) {
			if r.Memory != nil {
				err = firstError(err, r.Memory.Free())
			}
		}
	}()
	for id := range g.Values {
		if over >= 0 && graph.ValueID(id) == op.Out[0] {
			continue
		}
		if regions[id], err = take(g.Values[id].Bytes()); err != nil {
			return nil, err
		}
	}
	if work, err = take(step.WorkBytes); err != nil {
		return nil, err
	}
	launch := device.Launch{Step: step, Op: *op, Work: work}
	for k, o := range op.In {
		if o.Value == graph.NoValue {
			launch.In = append(launch.In, device.Argument{Operand: graph.Absent})
			continue
		}
		if err := stream.CopyIn(regions[o.Value], in[k].Data); err != nil {
			return nil, err
		}
		launch.In = append(launch.In, device.Argument{Region: regions[o.Value], Operand: o, Spec: g.Spec(o)})
	}
	where := slices.Clone(regions)
	if over >= 0 {
		where[op.Out[0]] = regions[op.In[over].Value]
	}
	for k, id := range op.Out {
		if over < 0 || k > 0 { // what is left out must not pass by luck
			if err := stream.CopyIn(where[id], bytes.Repeat([]byte{0xa5}, int(where[id].Bytes))); err != nil {
				return nil, err
			}
		}
		launch.Out = append(launch.Out, device.Argument{
			Region: where[id], Operand: g.Whole(id),
			Spec: graph.Spec{DType: g.Values[id].DType, Shape: g.Values[id].Shape},
		})
	}
	if err := stream.Run(x.ctx, launch); err != nil {
		return nil, err
	}
	for _, id := range op.Out {
		data := make([]byte, where[id].Bytes)
		if err := stream.CopyOut(data, where[id]); err != nil {
			return nil, err
		}
		out = append(out, data)
	}
	return out, stream.Sync(x.ctx)
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
