package rewrite_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// numbers returns n elements of a dtype that are different from each other and of moderate size.
func numbers(d tensor.DType, n int) []byte {
	out := make([]byte, 0, n*d.Size())
	for i := range n {
		x := float32(int32(uint32(i)*2654435761)%2003) / 501
		switch d {
		case tensor.Float64:
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(float64(x)/3))
		case tensor.Float32:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x/3))
		case tensor.BFloat16:
			out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(x)>>16))
		case tensor.Float16:
			out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(x)>>19)&0x83ff|0x3800)
		case tensor.Int8:
			out = append(out, byte(int8(x*31)))
		case tensor.Int32:
			out = binary.LittleEndian.AppendUint32(out, uint32(int32(x*100)))
		}
	}
	return out
}

// addWeight adds a weight whose rows are stride elements apart.
func addWeight(g *graph.Graph, d tensor.DType, rows, columns, stride, offset int) graph.Operand {
	n := int64(offset + rows*stride)
	w := g.AddWeight(tensor.Weight{
		Name: "w", DType: d, Extent: storage.Extent{Bytes: n * int64(d.Size())},
	}, graph.Weight)
	return graph.Operand{Value: w, Layout: tensor.Layout{
		Shape: tensor.Shape{rows, columns}, Strides: []int{stride, 1}, Offset: offset,
	}}
}

// interpret computes the only output of a graph over weights that [numbers] makes.
func interpret(t *rapid.T, pool *cpu.Pool, g *graph.Graph, x *tensor.Tensor) ([]byte, error) {
	out, err := cpu.Interpret(t.Context(), pool, graph.Standard(), g, func(v graph.Value) ([]byte, error) {
		return numbers(v.DType, int(v.Bytes())/v.DType.Size()), nil
	}, map[string]*tensor.Tensor{"x": x})
	if err != nil {
		return nil, err
	}
	return out["y"].Contiguous().Data, nil
}

// TestSplitLinear: a linear layer in parts gives the same bits, whatever the dtype, the layout and the number of rows.
func TestSplitLinear(t *testing.T) {
	pool := cpu.NewPool(2)
	defer pool.Close()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]tensor.DType{
			tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16, tensor.Int32,
		}).Draw(t, "dtype")
		m, k := rapid.SampledFrom([]int{1, 3, 4, 5, 40}).Draw(t, "m"), rapid.IntRange(1, 600).Draw(t, "k")
		n := rapid.IntRange(2, 200).Draw(t, "n")
		g := &graph.Graph{}
		in := []graph.Operand{
			g.Whole(g.AddInput("x", d, tensor.Shape{m, k})),
			addWeight(g, d, n, k, k+rapid.IntRange(0, 3).Draw(t, "gap"), rapid.IntRange(0, 2).Draw(t, "offset")),
		}
		if rapid.Bool().Draw(t, "bias") {
			bias := addWeight(g, d, n, 1, 2, 1)
			in = append(in, graph.Operand{Value: bias.Value, Layout: tensor.Layout{
				Shape: tensor.Shape{n}, Strides: []int{2}, Offset: 1,
			}})
		}
		if d == tensor.Float32 && rapid.Bool().Draw(t, "residual") {
			for len(in) < 3 {
				in = append(in, graph.Absent)
			}
			added := addWeight(g, d, m, n, n, 0)
			in = append(in, graph.Operand{Value: added.Value, Layout: tensor.Contiguous(m, n)})
		}
		y, err := g.Emit(graph.Standard(), graph.Op{Kind: "linear", Path: "l", In: in})
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(y[0])}}
		most := int64(rapid.IntRange(0, n-1).Draw(t, "rows")) * int64(in[1].Layout.Strides[0]*d.Size())
		split, from := rewrite.SplitRows(g, most)
		checkParts(t, g, split, from, most)
		if len(split.Ops) < 3 || split.Ops[len(split.Ops)-1].Kind != "cat" || len(g.Ops) != 1 || len(g.Values) > 5 {
			t.Fatalf("%d ops became %d", len(g.Ops), len(split.Ops))
		}
		x := &tensor.Tensor{DType: d, Layout: tensor.Contiguous(m, k), Data: numbers(d, m*k)}
		want, err := interpret(t, pool, g, x)
		if err != nil {
			t.Fatal(err)
		}
		got, err := interpret(t, pool, split, x)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatal("other bits")
		}
	})
}

// TestSplitProduct: so does a product with a matrix whose columns lie one after the other, with an addend or without.
func TestSplitProduct(t *testing.T) {
	pool := cpu.NewPool(2)
	defer pool.Close()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]tensor.DType{
			tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16, tensor.Int32,
		}).Draw(t, "dtype")
		m, k := rapid.SampledFrom([]int{1, 3, 4, 5, 40}).Draw(t, "m"), rapid.IntRange(1, 600).Draw(t, "k")
		n := rapid.IntRange(2, 200).Draw(t, "n")
		g := &graph.Graph{}
		w := addWeight(g, d, n, k, k+rapid.IntRange(0, 3).Draw(t, "gap"), rapid.IntRange(0, 2).Draw(t, "offset"))
		w.Layout.Shape, w.Layout.Strides = tensor.Shape{k, n}, []int{1, w.Layout.Strides[0]}
		in := []graph.Operand{g.Whole(g.AddInput("x", d, tensor.Shape{m, k})), w}
		a := graph.Attrs{"alpha": 1.0}
		if rapid.Bool().Draw(t, "addend") {
			addend := addWeight(g, d, m, n, n, 0)
			in = append(in, graph.Operand{Value: addend.Value, Layout: tensor.Contiguous(m, n)})
			a["alpha"], a["beta"] = 2.0, 3.0
		}
		y, err := g.Emit(graph.Standard(), graph.Op{Kind: "matmul", Path: "l", Attrs: a, In: in})
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(y[0])}}
		most := int64(rapid.IntRange(0, n-1).Draw(t, "columns")) * int64(w.Layout.Strides[1]*d.Size())
		split, from := rewrite.SplitRows(g, most)
		checkParts(t, g, split, from, most)
		if len(split.Ops) < 3 || split.Ops[len(split.Ops)-1].Kind != "cat" || len(g.Ops) != 1 {
			t.Fatalf("%d ops became %d", len(g.Ops), len(split.Ops))
		}
		x := &tensor.Tensor{DType: d, Layout: tensor.Contiguous(m, k), Data: numbers(d, m*k)}
		want, err := interpret(t, pool, g, x)
		if err != nil {
			t.Fatal(err)
		}
		got, err := interpret(t, pool, split, x)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatal("other bits")
		}
	})
	// Rows that lie interleaved stay together.
	g := &graph.Graph{}
	x := g.Whole(g.AddInput("x", tensor.Float32, tensor.Shape{1, 40}))
	y, err := g.Emit(graph.Standard(), graph.Op{
		Kind: "matmul", Attrs: graph.Attrs{"alpha": 1.0}, In: []graph.Operand{x, addWeight(g, tensor.Float32, 40, 60, 60, 0)},
	})
	if err != nil {
		t.Fatal(err)
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(y[0])}}
	if split, _ := rewrite.SplitRows(g, 400); split != g {
		t.Error("a matrix whose columns are interleaved was divided")
	}
}

// checkParts checks that the weights of parts are within the limit and that ops say where they come from.
func checkParts(t *rapid.T, g, split *graph.Graph, from []int, most int64) {
	if len(from) != len(split.Ops) {
		t.Fatalf("%d ops of %d say where they come from", len(from), len(split.Ops))
	}
	for i, op := range split.Ops {
		if from[i] != 0 || op.Path != g.Ops[0].Path {
			t.Fatalf("op %d comes from %d and is of %q", i, from[i], op.Path)
		}
		if op.Kind == "linear" || op.Kind == "matmul" {
			whole, part := g.Values[g.Ops[0].Out[0]].Shape, split.Values[op.Out[0]].Shape
			columns := part[len(part)-1]
			if got, want := rewrite.WholeColumns(op.Attrs, columns), whole[len(whole)-1]; got != want {
				t.Fatalf("a part of %d columns says that there are %d, not %d", columns, got, want)
			}
		}
		if rows, rowBytes := rewrite.SplittableRows(split, &op); rows > 1 && int64(rows)*rowBytes > most {
			t.Fatalf("a part of %d rows of %d bytes, where %d are allowed", rows, rowBytes, most)
		}
	}
}

// TestSplitEmbedding: an embedding in parts gives the same rows, and the same error for an index that is none.
func TestSplitEmbedding(t *testing.T) {
	pool := cpu.NewPool(2)
	defer pool.Close()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16}).Draw(t, "dtype")
		rows, columns := rapid.IntRange(2, 60).Draw(t, "rows"), rapid.IntRange(1, 20).Draw(t, "columns")
		index := rapid.SliceOfN(rapid.Int64Range(0, int64(rows-1)), 1, 30).Draw(t, "index")
		g := &graph.Graph{}
		id := g.AddInput("x", tensor.Int64, tensor.Shape{len(index)})
		table := addWeight(g, d, rows, columns, columns+rapid.IntRange(0, 2).Draw(t, "gap"), 0)
		y, err := g.Emit(graph.Standard(), graph.Op{Kind: "embedding", Path: "e", In: []graph.Operand{table, g.Whole(id)}})
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(y[0])}}
		most := int64(rapid.IntRange(0, rows-1).Draw(t, "most")) * int64(table.Layout.Strides[0]*d.Size())
		split, from := rewrite.SplitRows(g, most)
		checkParts(t, g, split, from, most)
		if len(split.Ops) < 2 {
			t.Fatal("nothing was split")
		}
		x := tensor.Of(index, len(index))
		want, err := interpret(t, pool, g, x)
		if err != nil {
			t.Fatal(err)
		}
		got, err := interpret(t, pool, split, x)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatal("other bits")
		}
		index[len(index)-1] = rapid.SampledFrom([]int64{-1, int64(rows), math.MaxInt64, math.MinInt64}).Draw(t, "bad")
		_, err = interpret(t, pool, split, x)
		_, wantErr := interpret(t, pool, g, x)
		if err == nil || !strings.HasSuffix(err.Error(), wantErr.Error()[strings.Index(wantErr.Error(), "index"):]) {
			t.Fatalf("got %v, want %v", err, wantErr)
		}
	})
}

// TestSplitNothing leaves alone what is small, what is no weight, and weights whose rows lie among each other.
func TestSplitNothing(t *testing.T) {
	g := &graph.Graph{}
	x := g.Whole(g.AddInput("x", tensor.Float32, tensor.Shape{4, 8}))
	w := addWeight(g, tensor.Float32, 64, 1, 1, 0)
	for _, op := range []graph.Op{
		{Kind: "linear", In: []graph.Operand{x, x}},
		{Kind: "linear", In: []graph.Operand{x, {Value: w.Value, Layout: tensor.Layout{
			Shape: tensor.Shape{8, 8}, Strides: []int{1, 8},
		}}}},
		{Kind: "relu", In: []graph.Operand{x}},
	} {
		if _, err := g.Emit(graph.Standard(), op); err != nil {
			t.Fatal(err)
		}
	}
	if split, from := rewrite.SplitRows(g, 0); split != g || len(from) != 3 {
		t.Errorf("%d ops became %d", len(g.Ops), len(split.Ops))
	}
}
