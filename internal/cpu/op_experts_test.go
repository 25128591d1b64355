package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// mixed are operands of a call of "experts" with the attributes for them.
func mixed(rows, named, all, hidden, inner int, d tensor.DType, a graph.Attrs) ([]*tensor.Tensor, graph.Attrs) {
	attrs := graph.Attrs{"experts": all, "act": "silu"}
	for name, v := range a {
		attrs[name] = v
	}
	ids := make([]int64, rows*named)
	for i := range ids { // the names of a row differ, and rows have different ones
		ids[i] = int64((i/named*7 + i%named*(all/named) + i/named%3) % all)
	}
	in := []*tensor.Tensor{
		normal(1, tensor.Float32, rows, hidden), tensor.Of(ids, rows, named), normal(2, tensor.Float32, rows, named),
	}
	for e := range all {
		seed := uint64(10 * (e + 1))
		in = append(in, normal(seed, d, inner, hidden), normal(seed+1, d, inner, hidden), normal(seed+2, d, hidden, inner))
		if attrs.Bool("biased") {
			in = append(in, normal(seed+3, d, inner), normal(seed+4, d, inner), normal(seed+5, d, hidden))
		}
	}
	return in, attrs
}

// TestExpertsRowsAlone: a row of experts has the same bits on any number of threads, with any other rows and without.
func TestExpertsRowsAlone(t *testing.T) {
	for _, c := range []struct {
		rows, named, all, hidden, inner int
		dtype                           tensor.DType
		attrs                           graph.Attrs
	}{
		{9, 2, 4, 64, 96, tensor.Float32, nil},
		{70, 3, 5, 37, 300, tensor.Float32, nil},
		{130, 1, 2, 64, 33, tensor.BFloat16, nil}, // more rows than a tile has
		{9, 4, 8, 300, 64, tensor.BFloat16, graph.Attrs{"biased": true, "act": "clamped", "alpha": 1.702, "limit": 7.0}},
		{40, 8, 8, 1 << 14, 1, tensor.Float32, nil}, // more rows than are computed before their sums are
		{9, 2, 4, 64, 64, tensor.Float16, graph.Attrs{"weigh_input": true, "act": "gelu_tanh"}},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			in, attrs := mixed(c.rows, c.named, c.all, c.hidden, c.inner, c.dtype, c.attrs)
			whole := compute(t, 1, "experts", attrs, in...)[0]
			for _, threads := range []int{2, 3, 16} {
				if again := compute(t, threads, "experts", attrs, in...)[0]; !bytes.Equal(again.Data, whole.Data) {
					t.Fatalf("%d threads give other bits than one", threads)
				}
			}
			part := func(x *tensor.Tensor, from, to int) *tensor.Tensor {
				each := len(x.Data) / x.Layout.Shape[0]
				return &tensor.Tensor{
					DType: x.DType, Layout: tensor.Contiguous(to-from, x.Layout.Shape[1]), Data: x.Data[from*each : to*each],
				}
			}
			for _, n := range []int{1, 2, 5, 8} {
				for from := 0; from < c.rows; from += n {
					to := min(from+n, c.rows)
					some := append([]*tensor.Tensor{part(in[0], from, to), part(in[1], from, to), part(in[2], from, to)}, in[3:]...)
					got := compute(t, 2, "experts", attrs, some...)[0]
					if !bytes.Equal(got.Data, part(whole, from, to).Data) {
						t.Fatalf("rows %d to %d have other bits alone", from, to)
					}
				}
			}
		})
	}
}

// TestExpertsInOrder: what experts give is summed in the router's order, not in that of their numbers.
func TestExpertsInOrder(t *testing.T) {
	in, attrs := mixed(1, 3, 3, 4, 1, tensor.Float32, graph.Attrs{"act": "relu"})
	for e, value := range []float32{1e8, 1, -1e8} { // each gives its value: 1 · 1 · value
		x := tensor.Of([]float32{1, 0, 0, 0}, 1, 4)
		in[0], in[3+3*e], in[4+3*e] = x, x, x
		in[5+3*e] = tensor.Of([]float32{value, 0, 0, 0}, 4, 1)
	}
	in[2] = tensor.Of([]float32{1, 1, 1}, 1, 3)
	for _, c := range []struct {
		ids  []int64
		want float32
	}{{[]int64{0, 1, 2}, 0}, {[]int64{0, 2, 1}, 1}, {[]int64{1, 0, 2}, 0}, {[]int64{2, 0, 1}, 1}, {[]int64{-1, 1, -1}, 1}} {
		in[1] = tensor.Of(c.ids, 1, 3)
		got := compute(t, 2, "experts", attrs, in...)[0]
		if x := ops.Elements[float32](ops.View{Data: got.Data})[0]; x != c.want {
			t.Errorf("%v: %v, want %v", c.ids, x, c.want)
		}
	}
}

// TestExpertsOfNobody: a row that names no expert is zero, whatever the memory held in which experts are computed.
func TestExpertsOfNobody(t *testing.T) {
	in, attrs := mixed(2, 2, 3, 8, 8, tensor.Float32, nil)
	g, inputs := &graph.Graph{}, make(map[string]*tensor.Tensor)
	var operands []graph.Operand
	for i, x := range append(in, tensor.Of([]int64{-1, -1, -1, -1}, 2, 2)) {
		name := fmt.Sprint(i)
		inputs[name] = x
		operands = append(operands, g.Whole(g.AddInput(name, x.DType, x.Layout.Shape)))
	}
	last := len(operands) - 1
	for _, ids := range []graph.Operand{operands[1], operands[last]} {
		op := graph.Op{Kind: "experts", Attrs: attrs, In: slices.Clone(operands[:last])}
		op.In[1] = ids
		out, err := g.Emit(graph.Standard(), op)
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = append(g.Outputs, graph.Output{Name: fmt.Sprint(len(g.Outputs)), Operand: g.Whole(out[0])})
	}
	pool := ops.NewPool(1)
	defer pool.Close()
	out, err := Interpret(t.Context(), pool, graph.Standard(), g, nil, inputs)
	if err != nil {
		t.Fatal(err)
	}
	if none := make([]byte, len(out["1"].Data)); bytes.Equal(out["0"].Data, none) || !bytes.Equal(out["1"].Data, none) {
		t.Errorf("some experts give %v, none give %v", out["0"].Data, out["1"].Data)
	}
}

// TestExpertsThatAreNotThere names an expert that there is not.
func TestExpertsThatAreNotThere(t *testing.T) {
	pool := ops.NewPool(1)
	defer pool.Close()
	for _, id := range []int64{-2, 4, 1 << 40} {
		in, attrs := mixed(1, 1, 4, 8, 8, tensor.Float32, nil)
		in[1] = tensor.Of([]int64{id}, 1, 1)
		_, err := Compute(t.Context(), pool, graph.Standard(), "experts", attrs, in...)
		var index *graph.IndexError
		if !errors.As(err, &index) || index.Index != id || index.Size != 4 {
			t.Errorf("%d: %v", id, err)
		}
	}
}

// TestExpertsNamedAlone: a row that names 8 of 64 experts takes an eighth of the products of one that goes through all, and
// nothing is computed of the others: whatever they hold, its bits are the same. BenchmarkExperts has what this is worth.
func TestExpertsNamedAlone(t *testing.T) {
	pool := ops.NewPool(2)
	defer pool.Close()
	const all, named, hidden, inner = 64, 8, 48, 24
	in, attrs := mixed(1, named, all, hidden, inner, tensor.Float32, nil)
	whole, _ := mixed(1, all, all, hidden, inner, tensor.Float32, nil)
	flops := func(in []*tensor.Tensor) int64 {
		specs := make([]graph.Spec, len(in))
		for i, x := range in {
			specs[i] = graph.Spec{DType: x.DType, Shape: x.Layout.Shape}
		}
		def, ok := graph.Standard().Lookup("experts")
		if !ok {
			t.Fatal("no op for experts")
		}
		return def.FLOPs(specs, nil, attrs)
	}
	const products = named * 3 * 2 * hidden * inner // gate, up and down; a product and a sum
	if one, every := flops(in), flops(whole); one != products || every != all/named*one {
		t.Errorf("%d operations for the experts that are named, want %d; %d for all", one, products, every)
	}
	want, err := Compute(t.Context(), pool, graph.Standard(), "experts", attrs, in...)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tensor.Slice[int64](in[1])
	if err != nil {
		t.Fatal(err)
	}
	for e := range all {
		if slices.Contains(ids, int64(e)) {
			continue
		}
		for k := range 3 {
			x, err := tensor.Slice[float32](in[graph.ExpertsFirst+3*e+k])
			if err != nil {
				t.Fatal(err)
			}
			for i := range x {
				x[i] = float32(math.NaN())
			}
		}
	}
	got, err := Compute(t.Context(), pool, graph.Standard(), "experts", attrs, in...)
	if err != nil || !bytes.Equal(got[0].Data, want[0].Data) {
		t.Errorf("experts that no row names were computed: %v", err)
	}
}

// BenchmarkExperts has one row go through 8 of 64 experts, and through all of them as a model would that computes all and weighs
// those that are not named with nothing.
func BenchmarkExperts(b *testing.B) {
	pool := ops.NewPool(2)
	defer pool.Close()
	const all, named, hidden, inner = 64, 8, 512, 256
	in, attrs := mixed(1, named, all, hidden, inner, tensor.BFloat16, nil)
	whole, _ := mixed(1, all, all, hidden, inner, tensor.BFloat16, nil)
	for _, c := range []struct {
		name string
		in   []*tensor.Tensor
	}{{"named", in}, {"all", whole}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Compute(b.Context(), pool, graph.Standard(), "experts", attrs, c.in...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
