package rewrite

import (
	"slices"
	"strconv"

	"github.com/optimem/optimem/graph"
)

// The bounds of what is folded: of a constant and of the elements that it is computed from, of all constants, and of what is
// computed for them.
const (
	foldedBytes    = 1 << 20
	allFoldedBytes = 8 << 20
	foldedFLOPs    = 1 << 26
)

// foldConstants returns the graph in which results that depend on constants alone are constants, as compute computes
// them: all outputs of a graph that has neither inputs nor weights. Ops under guards and those of an embedder stay.
// Where compute fails, the graph stays as it is: the error is the run's to tell.
func foldConstants(g *graph.Graph, r *graph.Registry, compute func(*graph.Graph) ([][]byte, error)) *graph.Graph {
	folded := make([]bool, len(g.Ops))
	known := make([]bool, len(g.Values))
	for id := range g.Values {
		known[id] = g.Values[id].Role == graph.Const
	}
	var bytes, flops int64
	for i := range g.Ops {
		op := &g.Ops[i]
		def, _ := r.Lookup(op.Kind)
		if def.Reference != nil || len(op.Guard) > 0 ||
			slices.ContainsFunc(op.In, func(o graph.Operand) bool {
				return o.Value != graph.NoValue &&
					!known[o.Value]
			}) {
			continue
		}
		in, out := specsOf(g, op)
		var each, all int64
		for _, id := range op.Out {
			n := g.Values[id].Bytes()
			each, all = max(each, n), all+n
		}
		for _, x := range in { // one element may stand for any number of them
			each = max(each, graph.Elements(x.Shape))
		}
		n := def.Cost(in, out, op.Attrs).FLOPs
		if each > foldedBytes || all > allFoldedBytes-bytes || n > foldedFLOPs-flops {
			continue
		}
		bytes, flops = bytes+all, flops+n
		folded[i] = true
		for _, id := range op.Out {
			known[id] = true
		}
	}
	if !slices.Contains(folded, true) {
		return g
	}
	part := constantPart(g, folded)
	results, err := compute(Prune(part))
	if err != nil || len(results) != len(part.Outputs) {
		return g
	}
	h := *g
	h.Values, h.Ops = slices.Clone(g.Values), nil
	for k, o := range part.Outputs {
		v := &h.Values[o.Operand.Value]
		v.Role, v.Const = graph.Const, results[k]
	}
	for i := range g.Ops {
		if !folded[i] {
			h.Ops = append(h.Ops, g.Ops[i])
		}
	}
	return &h
}

// constantPart returns the graph of the ops that are folded. Its outputs are what others need of them.
func constantPart(g *graph.Graph, folded []bool) *graph.Graph {
	part := &graph.Graph{Values: g.Values}
	makes := make([]bool, len(g.Values))
	for i, op := range g.Ops {
		if folded[i] {
			part.Ops = append(part.Ops, op)
			for _, id := range op.Out {
				makes[id] = true
			}
		}
	}
	need := func(id graph.ValueID) {
		if id != graph.NoValue && makes[id] {
			makes[id] = false // once
			part.Outputs = append(part.Outputs, graph.Output{Name: strconv.Itoa(int(id)), Operand: g.Whole(id)})
		}
	}
	for i, op := range g.Ops {
		if folded[i] {
			continue
		}
		for _, o := range op.In {
			need(o.Value)
		}
		for _, c := range op.Guard {
			need(c.Predicate.Value)
		}
	}
	for _, o := range g.Outputs {
		need(o.Operand.Value)
	}
	for _, u := range g.Updates {
		need(u.Operand.Value)
	}
	return part
}

// specsOf returns the dtypes and shapes of an op's operands and results.
func specsOf(g *graph.Graph, op *graph.Op) (in, out []graph.Spec) {
	for _, o := range op.In {
		in = append(in, g.Spec(o))
	}
	for _, id := range op.Out {
		out = append(out, graph.Spec{DType: g.Values[id].DType, Shape: g.Values[id].Shape})
	}
	return in, out
}
