package rewrite

import (
	"maps"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// KeepEncoded returns the graph in which a weight that lies in its file as blocks of codes lies so in memory, too, where all
// that read it are linears, experts and embeddings: linears and experts get the encoding as an attribute, and of an embedding the rows that were
// picked are decoded. What else reads such a weight has its numbers, which the source makes of the blocks as it reads them.
//
// The results are the same to the bit on a device whose products sum numbers that it decodes in the order in which it sums
// numbers that lie in memory. A device must have such products to be given the result.
func KeepEncoded(g *graph.Graph) *graph.Graph {
	return KeepEncodedOf(g, func(string) bool { return true })
}

// KeepEncodedOf is [KeepEncoded] for a device that reads blocks of some encodings, those of which takes says so. Of others it is
// given the numbers.
func KeepEncodedOf(g *graph.Graph, takes func(encoding string) bool) *graph.Graph {
	all := blocksOf(g)
	maps.DeleteFunc(all, func(_ graph.ValueID, b *blocks) bool { return !takes(b.run.Encoding.Name) })
	for i := range g.Ops {
		for k, o := range g.Ops[i].In {
			if b, ok := all[o.Value]; ok && !b.reads(g, &g.Ops[i], k) {
				delete(all, o.Value)
			}
		}
	}
	sameForAllExperts(g, all)
	if len(all) == 0 {
		return g
	}
	h := *g
	h.Values, h.Ops = slices.Clone(g.Values), make([]graph.Op, 0, len(g.Ops))
	for id, b := range all {
		v := &h.Values[id]
		v.DType, v.Shape, v.Encoding = tensor.UInt8, tensor.Shape{int(b.extent.Bytes)}, b.run.Encoding
		v.Weight.DType, v.Weight.Extent, v.Weight.Layout = tensor.UInt8, b.extent, tensor.Contiguous(v.Shape...)
	}
	for _, op := range g.Ops {
		if op.Kind == "experts" {
			h.Ops = append(h.Ops, encodedExperts(op, all))
			continue
		}
		k := 1
		if op.Kind == "embedding" {
			k = 0
		}
		var b *blocks
		if op.Kind == "embedding" || op.Kind == "linear" {
			b = all[op.In[k].Value]
		}
		if b == nil {
			h.Ops = append(h.Ops, op)
			continue
		}
		op.In = slices.Clone(op.In)
		op.In[k].Layout = b.rows(op.In[k].Layout)
		attrs := maps.Clone(op.Attrs)
		if attrs == nil {
			attrs = make(graph.Attrs)
		}
		attrs[graph.EncodingAttr] = b.run.Encoding.Name
		if op.Kind == "linear" {
			op.Attrs = attrs
			h.Ops = append(h.Ops, op)
			continue
		}
		rows, decode := op, op
		v := h.Values[op.Out[0]]
		v.Name, v.DType, v.Shape = "", tensor.UInt8, slices.Clone(v.Shape)
		v.Shape[len(v.Shape)-1] = int(b.rowBytes)
		rows.Out = []graph.ValueID{h.AddValue(v)}
		decode.Kind, decode.In = "decode", []graph.Operand{h.Whole(rows.Out[0])}
		decode.Attrs = graph.Attrs{graph.EncodingAttr: b.run.Encoding.Name}
		h.Ops = append(h.Ops, rows, decode)
	}
	return &h
}

// blocks are a weight as it lies in its file.
type blocks struct {
	run      encoded.Run
	extent   storage.Extent
	rowBytes int64
}

// blocksOf returns the weights of a graph that lie as blocks in their file and that ops alone read.
func blocksOf(g *graph.Graph) map[graph.ValueID]*blocks {
	all := make(map[graph.ValueID]*blocks)
	for id := range g.Values {
		v := &g.Values[id]
		source, ok := v.Weight.Extent.Source.(*encoded.Source)
		if !ok || v.Role != graph.Weight || v.DType != tensor.Float32 {
			continue
		}
		run, extent, ok := source.Blocks(v.Weight.Extent.Offset)
		if ok && run.Rows*run.RowElements*4 == v.Weight.Extent.Bytes {
			bytes, whole := run.Encoding.BlockBytes(int(run.RowElements))
			if whole && bytes > 0 {
				all[graph.ValueID(id)] = &blocks{run, extent, int64(bytes)}
			}
		}
	}
	for _, o := range g.Outputs {
		delete(all, o.Operand.Value)
	}
	for _, u := range g.Updates {
		delete(all, u.Operand.Value)
	}
	for i := range g.Ops {
		for _, c := range g.Ops[i].Guard {
			delete(all, c.Predicate.Value)
		}
	}
	return all
}

// reads reports whether an op can read the blocks as its operand k: whole rows of them, as a linear of float32 or an
// embedding does.
func (b *blocks) reads(g *graph.Graph, op *graph.Op, k int) bool {
	l := op.In[k].Layout
	if len(l.Shape) != 2 || int64(l.Shape[1]) != b.run.RowElements || l.Strides[1] != 1 ||
		int64(l.Strides[0])%b.run.RowElements != 0 || int64(l.Offset)%b.run.RowElements != 0 {
		return false
	}
	switch op.Kind {
	case "linear":
		return k == 1 && g.Spec(op.In[0]).DType == tensor.Float32 &&
			operandAt(op, graph.LinearScales).Value == graph.NoValue
	case "embedding":
		return k == 0
	case "experts":
		return k >= graph.ExpertsFirst &&
			(k-graph.ExpertsFirst)%graph.ExpertOperands(op.Attrs) < len(graph.ExpertEncodings)
	}
	return false
}

// sameForAllExperts leaves out weights of experts where not all gates, ups or downs of an op are blocks of one encoding.
func sameForAllExperts(g *graph.Graph, all map[graph.ValueID]*blocks) {
	for changed := len(all) > 0; changed; {
		changed = false
		for i := range g.Ops {
			op := &g.Ops[i]
			if op.Kind != "experts" {
				continue
			}
			for role := range graph.ExpertEncodings {
				same, first := true, all[op.In[graph.ExpertsFirst+role].Value]
				each := graph.ExpertOperands(op.Attrs)
				for k := graph.ExpertsFirst + role; k < len(op.In); k += each {
					b := all[op.In[k].Value]
					same = same && b != nil && first != nil && b.run.Encoding == first.run.Encoding
				}
				for k := graph.ExpertsFirst + role; k < len(op.In) && !same; k += each {
					if _, ok := all[op.In[k].Value]; ok {
						delete(all, op.In[k].Value)
						changed = true
					}
				}
			}
		}
	}
}

// encodedExperts returns the op with experts that are blocks as blocks.
func encodedExperts(op graph.Op, all map[graph.ValueID]*blocks) graph.Op {
	in, attrs := slices.Clone(op.In), maps.Clone(op.Attrs)
	each := graph.ExpertOperands(op.Attrs)
	for k := graph.ExpertsFirst; k < len(in); k++ {
		if b := all[in[k].Value]; b != nil {
			in[k].Layout = b.rows(in[k].Layout)
			attrs[graph.ExpertEncodings[(k-graph.ExpertsFirst)%each]] = b.run.Encoding.Name
		}
	}
	op.In, op.Attrs = in, attrs
	return op
}

// rows returns a layout of whole rows of numbers over the bytes of the blocks.
func (b *blocks) rows(l tensor.Layout) tensor.Layout {
	return tensor.Layout{
		Shape:   tensor.Shape{l.Shape[0], int(b.rowBytes)},
		Strides: []int{l.Strides[0] / int(b.run.RowElements) * int(b.rowBytes), 1},
		Offset:  l.Offset / int(b.run.RowElements) * int(b.rowBytes),
	}
}
