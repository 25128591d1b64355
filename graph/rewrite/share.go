package rewrite

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
)

const (
	// sharedElements is how large a value may be that is kept from its first reader to one much further on.
	sharedElements = 1 << 18
	// sharedReach is how many ops are not much.
	sharedReach = 32
)

// shareEqual returns the graph in which ops that compute what an op before them computed are not there: ops of the same
// kind, attributes, operands and guards. What an embedder's op computes is its own affair.
func shareEqual(g *graph.Graph, r *graph.Registry) *graph.Graph {
	ids := make([]graph.ValueID, len(g.Values))
	for i := range ids {
		ids[i] = graph.ValueID(i)
	}
	kept := make(map[graph.ValueID]bool)
	for _, o := range g.Outputs {
		kept[o.Operand.Value] = true
	}
	for _, u := range g.Updates {
		kept[u.Operand.Value] = true
	}
	moved := func(o graph.Operand) graph.Operand {
		if o.Value != graph.NoValue {
			o.Value = ids[o.Value]
		}
		return o
	}
	h := *g
	h.Ops = nil
	first := make(map[string]int)
	for i, op := range g.Ops {
		op = renamed(op, ids, moved)
		op.Out = g.Ops[i].Out
		def, _ := r.Lookup(op.Kind)
		if def.Reference == nil && !g.WritesCache(&op) &&
			!slices.ContainsFunc(op.Out, func(id graph.ValueID) bool { return kept[id] }) {
			key := opKey(g, &op)
			if k, found := first[key]; !found {
				first[key] = len(h.Ops)
			} else if same := h.Ops[k]; len(h.Ops)-k <= sharedReach ||
				graph.Elements(g.Values[op.Out[0]].Shape) <= sharedElements {
				for n, id := range op.Out {
					ids[id] = same.Out[n]
				}
				continue
			} else {
				first[key] = len(h.Ops)
			}
		}
		h.Ops = append(h.Ops, op)
	}
	h.Modules = make(map[string]graph.Operand, len(g.Modules))
	for path, o := range g.Modules {
		h.Modules[path] = moved(o)
	}
	return &h
}

// opKey returns a text that ops have in common if they compute the same.
func opKey(g *graph.Graph, op *graph.Op) string {
	b := append(make([]byte, 0, 256), op.Kind...)
	operand := func(o graph.Operand) {
		b = append(b, '|')
		if o.Value == graph.NoValue {
			return
		}
		if v := &g.Values[o.Value]; v.Role == graph.Const && len(v.Const) <= 16 { // programs make the same numbers again and again
			b = fmt.Appendf(b, "%v%v=%x", v.DType, v.Shape, v.Const)
		} else {
			b = binary.AppendVarint(b, int64(o.Value))
		}
		b = binary.AppendVarint(b, int64(o.Layout.Offset))
		for d, n := range o.Layout.Shape {
			b = binary.AppendVarint(binary.AppendVarint(append(b, ','), int64(n)), int64(o.Layout.Strides[d]))
		}
	}
	for _, o := range op.In {
		operand(o)
	}
	for _, c := range op.Guard {
		operand(c.Predicate)
		b = fmt.Appendf(b, "%t", c.Want)
	}
	names := make([]string, 0, 8)
	for name := range op.Attrs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b = append(append(append(b, ';'), name...), '=')
		switch v := op.Attrs[name].(type) {
		case int:
			b = binary.AppendVarint(append(b, 'i'), int64(v))
		case []int:
			b = append(b, '[')
			for _, n := range v {
				b = binary.AppendVarint(b, int64(n))
			}
		case float64:
			b = binary.LittleEndian.AppendUint64(append(b, 'f'), math.Float64bits(v))
		case string:
			b = append(append(b, '"'), v...)
		default:
			b = fmt.Appendf(b, "%T%v", v, v)
		}
	}
	return string(b)
}
