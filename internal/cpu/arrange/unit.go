package arrange

import (
	"maps"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu/blocked"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// byUnits returns an arranged graph with the convolutions that may round their factors to bfloat16 as the matrix unit
// computes them: over values [N, ⌈C/32⌉, H, W, 32] of bfloat16, as ops "conv32", with "max32" for the pools between them.
// "to32" and "from32" stand where another op reads or makes a value. Values between two such convolutions are rounded
// once, where they are made; a residual is what was rounded.
//
// The values of the graph given keep their ids; those that nobody makes any longer are left out.
func byUnits(g *graph.Graph, set *simd.UnitSet) *graph.Graph {
	if !slices.ContainsFunc(g.Ops, func(op graph.Op) bool { return unitConv(&op, set) != nil }) {
		return g
	}
	out := *g
	out.Values, out.Ops = slices.Clone(g.Values), nil
	n := &narrower{
		g: g, out: &out, set: set, halves: make(map[graph.ValueID]graph.ValueID), made: make(map[graph.ValueID]bool),
		makers: make(map[graph.ValueID]*graph.Op),
	}
	for i := range g.Ops {
		n.op(&g.Ops[i])
	}
	for _, o := range g.Outputs {
		n.needSingle(o.Operand.Value)
	}
	for _, u := range g.Updates {
		n.needSingle(u.Operand.Value)
	}
	out.Modules = make(map[string]graph.Operand, len(g.Modules))
	for path, o := range g.Modules {
		if half, ok := n.halves[o.Value]; ok && !n.made[o.Value] {
			o = out.Whole(half)
		}
		out.Modules[path] = o
	}
	return rewrite.Prune(&out)
}

// rounds reports whether an op may round its factors to bfloat16.
func rounds(a graph.Attrs) bool { return a.String("precision") == "bf16" }

// unitConv returns the convolution of an op by a matrix unit, nil where it is none.
func unitConv(op *graph.Op, set *simd.UnitSet) *blocked.UnitConv {
	if op.Kind != "conv16" || !rounds(op.Attrs) {
		return nil
	}
	if g := convOf(op.Attrs).Geometry; blocked.UnitSupports(g) == nil {
		return blocked.NewUnit(g, set)
	}
	return nil
}

// A narrower is a graph being made.
type narrower struct {
	g, out *graph.Graph
	set    *simd.UnitSet
	// halves are the values in blocks of 32, by what they are of; made are the values of g that are computed besides.
	halves map[graph.ValueID]graph.ValueID
	made   map[graph.ValueID]bool
	// makers are the ops of g.
	makers map[graph.ValueID]*graph.Op
}

// op adds an op.
func (n *narrower) op(op *graph.Op) {
	for _, id := range op.Out {
		n.makers[id] = op
	}
	for _, c := range op.Guard {
		n.needSingle(c.Predicate.Value)
	}
	if conv := unitConv(op, n.set); conv != nil {
		n.conv(op, conv)
		return
	}
	if op.Kind == "pool16" && op.Attrs.String("pool") == "max_pool" {
		if x, ok := n.halves[op.In[0].Value]; ok {
			n.emit(op, "max32", n.attrs(op), n.out.Whole(x))
			return
		}
	}
	for _, o := range op.In {
		n.needSingle(o.Value)
	}
	n.out.Ops = append(n.out.Ops, *op)
	for _, id := range op.Out {
		n.made[id] = true
	}
}

// attrs returns an op's attributes with the kernels.
func (n *narrower) attrs(op *graph.Op) graph.Attrs {
	a := maps.Clone(op.Attrs)
	if a == nil {
		a = make(graph.Attrs)
	}
	a["set"] = n.set
	return a
}

// conv adds a convolution.
func (n *narrower) conv(op *graph.Op, conv *blocked.UnitConv) {
	attrs := n.attrs(op)
	attrs["conv"] = conv
	in := slices.Clone(op.In)
	if !conv.Planar {
		in[0] = n.needHalf(in[0].Value, conv.In)
	} else {
		n.needSingle(in[0].Value)
	}
	if len(in) > 7 && in[7].Value != graph.NoValue {
		in[7] = n.needHalf(in[7].Value, conv.Out)
	}
	n.emit(op, "conv32", attrs, in...)
}

// emit adds an op whose result is that of an op of g in blocks of 32.
func (n *narrower) emit(like *graph.Op, kind graph.Kind, attrs graph.Attrs, in ...graph.Operand) {
	id := n.value(like.Out[0])
	op := *like
	op.Kind, op.Attrs, op.In, op.Out = kind, attrs, in, []graph.ValueID{id}
	n.out.Ops = append(n.out.Ops, op)
}

// value adds a value that is one of g in blocks of 32.
func (n *narrower) value(of graph.ValueID) graph.ValueID {
	s := n.g.Values[of].Shape // images, blocks of sixteen, rows, columns
	n.out.Values = append(n.out.Values, graph.Value{
		DType: tensor.BFloat16,
		Shape: tensor.Shape{s[0], (s[1] + 1) / 2, s[2], s[3], blocked.UnitLanes},
	})
	id := graph.ValueID(len(n.out.Values) - 1)
	n.halves[of] = id
	return id
}

// needHalf returns a value of g in blocks of 32, which it makes if it is not there.
func (n *narrower) needHalf(id graph.ValueID, channels int) graph.Operand {
	if half, ok := n.halves[id]; ok {
		return n.out.Whole(half)
	}
	n.border(id, "to32", channels, n.out.Whole(id))
	n.out.Ops[len(n.out.Ops)-1].Out = []graph.ValueID{n.value(id)}
	return n.out.Whole(n.halves[id])
}

// needSingle makes a value of g as g has it, if it is there in blocks of 32 only.
func (n *narrower) needSingle(id graph.ValueID) {
	half, ok := n.halves[id]
	if id == graph.NoValue || !ok || n.made[id] {
		return
	}
	n.made[id] = true
	n.border(id, "from32", n.channels(id), n.out.Whole(half))
	n.out.Ops[len(n.out.Ops)-1].Out = []graph.ValueID{id}
}

// border adds an op without a result yet, like the one that made a value of g.
func (n *narrower) border(id graph.ValueID, kind graph.Kind, channels int, in graph.Operand) {
	maker := n.makers[id]
	n.out.Ops = append(n.out.Ops, graph.Op{
		Kind: kind, Path: maker.Path, Source: maker.Source, Guard: maker.Guard,
		Attrs: graph.Attrs{"channels": channels, "set": n.set}, In: []graph.Operand{in},
	})
}

// channels returns how many channels a value has that a convolution or a pool makes.
func (n *narrower) channels(id graph.ValueID) int {
	if op := n.makers[id]; op.Kind == "conv16" {
		return convOf(op.Attrs).Out
	}
	return n.makers[id].Attrs.Int("channels")
}
