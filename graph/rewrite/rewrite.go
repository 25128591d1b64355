// Package rewrite turns a graph into one with the same outputs that is cheaper to compute, by the passes that suit
// every device.
//
// It knows graphs. It does not know devices, plans or models; a device's own choice of layouts comes after it.
//
// Each pass is a bit of [Passes] and can be switched off. Common subexpressions are computed once. Constants are
// folded, with the CPU's kernels. An int8 weight that a program dequantises becomes an operand of linear with its
// scales, if the device supports that. Activations, RMS norms and attention that are written out as single ops become
// one kind each; an activation is recognised by its values at some fifty points, however it is written. Batch norm,
// residual and activation become the epilogue of the conv or linear before them. The remaining elementwise ops become
// chains, one pass over memory. Nothing is fused across an output, a state, a second reader or a guard, nor across a
// rounding to half precision. A fused op belongs to the module of its first op. The original graph is kept, to track
// rows of a batch and to dump modules.
//
//	faster := rewrite.Optimise(g, graph.Standard(), 0, nil)
package rewrite

import (
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// Passes are steps that make an equal graph which is cheaper to compute. None reads weights, and none needs a device
// but FoldConstants, which is given one.
type Passes uint

// The passes, in the order in which they run. [Prune] runs after them.
const (
	// ShareEqual computes what several ops compute in the same way once.
	ShareEqual Passes = 1 << iota
	// FoldConstants computes what depends on constants alone, once and for all.
	FoldConstants
	// ScaleSums makes linears of int8 weights and scales of what widens and scales such weights.
	ScaleSums
	// FindWhole puts together what a program computes in parts: activations, norms, attention,
	// rotary embeddings.
	FindWhole
	// FuseEpilogues makes batch norms, additions and activations the ends of convs and linears.
	FuseEpilogues
	// FuseChains makes one op of elementwise ops that only read each other.
	FuseChains
	allPasses = FuseChains<<1 - 1
	// ArrangeLayouts is a device's own step after these: layouts of values that suit its kernels. [Optimise] has no part
	// in it.
	ArrangeLayouts Passes = 1 << 16
	// KeepEncodings leaves weights in memory as the blocks of codes that lie in their file ([KeepEncoded]), on devices whose
	// products read those. [Optimise] has no part in it either.
	KeepEncodings Passes = 1 << 17
)

// Optimise returns the graph after all passes but those left out. compute computes a graph without inputs and weights;
// nil folds no constants. The graph itself does not change.
//
// The result gives the same outputs: to the bit where nothing but chains and constants changed, else within rounding.
// Ops that become one are under the same guards, and what an output, an update of a state or two ops need stays a
// value.
func Optimise(
	g *graph.Graph, r *graph.Registry, without Passes, compute func(*graph.Graph) ([][]byte, error),
) *graph.Graph {
	with := allPasses &^ without
	if with&ShareEqual != 0 {
		g = shareEqual(g, r)
	}
	if with&FoldConstants != 0 && compute != nil {
		g = Prune(foldConstants(g, r, compute))
	}
	w := newRewriting(g)
	if with&ScaleSums != 0 {
		w.scales()
	}
	if with&FindWhole != 0 {
		w.wholes()
	}
	if with&FuseEpilogues != 0 {
		w.epilogues()
	}
	if with&FuseChains != 0 {
		w.chains()
	}
	return Prune(w.g)
}

// A rewriting is a graph whose ops are replaced one by one. An op that becomes part of another is left where it is,
// with nobody to read it.
type rewriting struct {
	g *graph.Graph
	// uses counts who reads a value: operands, guards, outputs and updates.
	uses []int
	// kept are values that must stay: outputs, and what states become.
	kept []bool
	// from is the op that computes a value, −1 for none.
	from []int
	gone []bool
}

func newRewriting(g *graph.Graph) *rewriting {
	h := *g
	h.Values, h.Ops = slices.Clone(g.Values), slices.Clone(g.Ops)
	w := &rewriting{
		g: &h, uses: make([]int, len(g.Values)), kept: make([]bool, len(g.Values)), from: make([]int, len(g.Values)),
		gone: make([]bool, len(g.Ops)),
	}
	for id := range w.from {
		w.from[id] = -1
	}
	for i := range h.Ops {
		w.count(&h.Ops[i], 1)
		for _, id := range h.Ops[i].Out {
			w.from[id] = i
		}
	}
	keep := func(id graph.ValueID) {
		if id != graph.NoValue {
			w.uses[id]++
			w.kept[id] = true
		}
	}
	for _, o := range h.Outputs {
		keep(o.Operand.Value)
	}
	for _, u := range h.Updates {
		keep(u.Operand.Value)
	}
	return w
}

// count adds to the uses of what an op reads.
func (w *rewriting) count(op *graph.Op, n int) {
	for _, o := range op.In {
		if o.Value != graph.NoValue {
			w.uses[o.Value] += n
		}
	}
	for _, c := range op.Guard {
		w.uses[c.Predicate.Value] += n
	}
}

// replace puts another op in the place of op i, which computes the same value, of the given shape: a value's shape may
// change with what computes it, since operands have layouts of their own over its elements in order. Ops that nobody
// reads then are gone.
func (w *rewriting) replace(i int, op graph.Op, shape tensor.Shape) {
	old := w.g.Ops[i]
	op.Out, op.Guard = old.Out, old.Guard
	w.g.Ops[i] = op
	w.count(&op, 1)
	w.g.Values[op.Out[0]].Shape = shape
	w.drop(&old)
}

// drop takes back what an op reads.
func (w *rewriting) drop(op *graph.Op) {
	w.count(op, -1)
	for _, o := range op.In {
		if o.Value == graph.NoValue || w.uses[o.Value] > 0 {
			continue
		}
		k := w.from[o.Value]
		if k < 0 || w.gone[k] ||
			slices.ContainsFunc(w.g.Ops[k].Out, func(id graph.ValueID) bool { return w.uses[id] > 0 }) {
			continue
		}
		w.gone[k] = true
		w.drop(&w.g.Ops[k])
	}
}

// maker returns the op that computes what an operand shows, and its index, where it is one that may become part of
// another op under the same guards: the operand shows all of its only result, in order. Else the index is −1.
func (w *rewriting) maker(o graph.Operand, guards []graph.Guard) (*graph.Op, int) {
	if o.Value == graph.NoValue || w.kept[o.Value] || !w.whole(o) {
		return nil, -1
	}
	i := w.from[o.Value]
	if i < 0 || len(w.g.Ops[i].Out) != 1 || !sameGuards(w.g.Ops[i].Guard, guards) {
		return nil, -1
	}
	return &w.g.Ops[i], i
}

// only is maker for values that nobody else reads.
func (w *rewriting) only(o graph.Operand, guards []graph.Guard) (*graph.Op, int) {
	if o.Value == graph.NoValue || w.uses[o.Value] != 1 {
		return nil, -1
	}
	return w.maker(o, guards)
}

// whole reports whether an operand shows all elements of its value in order.
func (w *rewriting) whole(o graph.Operand) bool {
	return o.Layout.Offset == 0 && o.Layout.IsContiguous() &&
		graph.Elements(o.Layout.Shape) == graph.Elements(w.g.Values[o.Value].Shape)
}

// are reports whether operands are given and of a dtype.
func (w *rewriting) are(d tensor.DType, operands ...graph.Operand) bool {
	for _, o := range operands {
		if o.Value == graph.NoValue || w.g.Values[o.Value].DType != d {
			return false
		}
	}
	return true
}

// isFloat32 reports whether an operand is given and of float32.
func (w *rewriting) isFloat32(o graph.Operand) bool { return w.are(tensor.Float32, o) }

func sameGuards(a, b []graph.Guard) bool {
	return slices.EqualFunc(a, b, func(x, y graph.Guard) bool {
		return x.Want == y.Want && x.Predicate.Value == y.Predicate.Value &&
			x.Predicate.Layout.Offset == y.Predicate.Layout.Offset
	})
}
