package rewrite_test

import (
	"context"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// noBytes is a source that nothing is read of.
type noBytes struct{ storage.Source }

func (noBytes) Size() int64 { return 1 << 20 }

func (noBytes) ReadAt(context.Context, []byte, int64) error { panic("a pass reads no weight") }

// TestKeepEncoded: linears and embeddings over whole rows get blocks, at the bytes where those rows begin; a weight that something
// else reads, or of which a linear reads parts of rows, stays numbers for all.
func TestKeepEncoded(t *testing.T) {
	e, _ := encoded.ByName("Q4_0")
	const rows, columns, rowBytes = 6, 64, 36
	var runs []encoded.Run
	for i := range int64(4) {
		runs = append(runs, encoded.Run{Encoding: e, Offset: 1000 * i, Rows: rows, RowElements: columns})
	}
	source, offsets := encoded.New(noBytes{}, runs)
	g := &graph.Graph{}
	weight := func(i int) graph.Operand {
		w := tensor.Weight{
			Name: string(rune('a' + i)), DType: tensor.Float32, Layout: tensor.Contiguous(rows, columns),
			Extent: storage.Extent{Source: source, Offset: offsets[i], Bytes: 4 * rows * columns},
		}
		return graph.Operand{Value: g.AddWeight(w, graph.Weight), Layout: w.Layout}
	}
	emit := func(kind graph.Kind, in ...graph.Operand) graph.Operand {
		t.Helper()
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, In: in})
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = append(g.Outputs, graph.Output{Name: string(kind) + string(rune('0'+len(g.Outputs))), Operand: g.Whole(out[0])})
		return g.Whole(out[0])
	}
	x := g.Whole(g.AddInput("x", tensor.Float32, tensor.Shape{2, columns}))
	narrow := g.Whole(g.AddInput("narrow", tensor.Float32, tensor.Shape{2, columns / 2}))
	ids := g.Whole(g.AddInput("ids", tensor.Int64, tensor.Shape{3}))
	kept, added, cut, table := weight(0), weight(1), weight(2), weight(3)
	some := kept
	some.Layout = tensor.Layout{Shape: tensor.Shape{3, columns}, Strides: []int{columns, 1}, Offset: 2 * columns}
	emit("linear", x, some)
	emit("linear", x, added)
	emit("neg", added)
	half := cut
	half.Layout = tensor.Layout{Shape: tensor.Shape{rows, columns / 2}, Strides: []int{columns, 1}}
	emit("linear", narrow, half)
	emit("embedding", table, ids)

	before := len(g.Ops)
	h := rewrite.KeepEncoded(g)
	if len(g.Ops) != before || g.Values[kept.Value].DType != tensor.Float32 {
		t.Error("the graph itself has changed")
	}
	for _, c := range []struct {
		of   graph.Operand
		kept bool
	}{{kept, true}, {added, false}, {cut, false}, {table, true}} {
		v := &h.Values[c.of.Value]
		if got := v.Encoding == e && v.DType == tensor.UInt8 && v.Bytes() == rows*rowBytes && v.Params(v.Bytes()) == rows*columns; got != c.kept {
			t.Errorf("%s: %+v, want blocks: %v", v.Name, v, c.kept)
		}
	}
	first := h.Ops[0]
	if l := first.In[1].Layout; first.Attrs.String(graph.EncodingAttr) != "Q4_0" || l.Offset != 2*rowBytes ||
		!l.Shape.Equal(tensor.Shape{3, rowBytes}) || l.Strides[0] != rowBytes {
		t.Errorf("the first linear is %+v", first)
	}
	if h.Values[kept.Value].Weight.Extent != (storage.Extent{Source: noBytes{}, Bytes: rows * rowBytes}) {
		t.Errorf("its blocks are at %+v", h.Values[kept.Value].Weight.Extent)
	}
	last, rowsOf := h.Ops[len(h.Ops)-1], h.Ops[len(h.Ops)-2]
	if rowsOf.Kind != "embedding" || last.Kind != "decode" || !h.Values[rowsOf.Out[0]].Shape.Equal(tensor.Shape{3, rowBytes}) ||
		last.Out[0] != g.Ops[len(g.Ops)-1].Out[0] {
		t.Errorf("the embedding is %+v and %+v", rowsOf, last)
	}
	for i := range h.Ops { // each op's rule gives what its results are
		def, _ := graph.Standard().Lookup(h.Ops[i].Kind)
		in, out := h.Specs(&h.Ops[i], nil, nil)
		got, err := def.Shape(in, h.Ops[i].Attrs)
		if err != nil || !got[0].Shape.Equal(out[0].Shape) || got[0].DType != out[0].DType {
			t.Errorf("op %d, %s: %v, %v, want %v", i, h.Ops[i].Kind, got, err, out)
		}
	}
	if same := rewrite.KeepEncoded(h); same != h {
		t.Error("a second time changes something")
	}
}
