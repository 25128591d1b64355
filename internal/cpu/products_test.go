package cpu

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// normal returns a tensor of normal numbers.
func normal(seed uint64, d tensor.DType, shape ...int) *tensor.Tensor {
	l := tensor.Contiguous(shape...)
	n, _ := l.NumElements()
	t := &tensor.Tensor{DType: d, Layout: l, Data: make([]byte, int(n)*d.Size())}
	ops.StoreReal(ops.View{Data: t.Data, DType: d, Layout: l}, 0, randoms[float64](seed, int(n)))
	return t
}

// exchanged returns a copy with the items 0 and i along dimension d exchanged.
func exchanged(t *tensor.Tensor, d, i int) *tensor.Tensor {
	c := t.Contiguous()
	data := bytes.Clone(c.Data[c.Layout.Offset*c.DType.Size():][:len(c.Data)-c.Layout.Offset*c.DType.Size()])
	inner := c.Layout.Strides[d] * c.DType.Size()
	for at := 0; at < len(data); at += inner * c.Layout.Shape[d] {
		first, other := data[at:at+inner], data[at+i*inner:at+(i+1)*inner]
		kept := bytes.Clone(first)
		copy(first, other)
		copy(other, kept)
	}
	return &tensor.Tensor{DType: t.DType, Layout: tensor.Contiguous(c.Layout.Shape...), Data: data}
}

func compute(t testing.TB, threads int, kind graph.Kind, a graph.Attrs, in ...*tensor.Tensor) []*tensor.Tensor {
	t.Helper()
	pool := ops.NewPool(threads)
	defer pool.Close()
	out, err := Compute(t.Context(), pool, graph.Standard(), kind, a, in...)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return out
}

// TestProductsDoNotDependOnThreadsOrPlace computes batches with several threads, and with each item in the first place.
func TestProductsDoNotDependOnThreadsOrPlace(t *testing.T) {
	f32, bf16 := tensor.Float32, tensor.BFloat16
	params := []*tensor.Tensor{
		normal(5, f32, 4*9, 7), normal(6, f32, 4*9, 9), normal(7, f32, 4*9), normal(8, f32, 4*9), nil,
	}
	gates := []*tensor.Tensor{normal(5, f32, 3*9, 7), normal(6, f32, 3*9, 9), nil, nil, nil}
	for _, c := range []struct {
		kind  graph.Kind
		attrs graph.Attrs
		in    []*tensor.Tensor
		// dims are the batch dimensions of the operands, −1 where one has none; outDim is that of the first result.
		dims   []int
		outDim int
	}{
		{"linear", nil, []*tensor.Tensor{normal(1, f32, 11, 300), normal(2, f32, 37, 300), normal(3, f32, 37)},
			[]int{0, -1, -1}, 0},
		{"linear", nil, []*tensor.Tensor{normal(1, bf16, 300, 40), normal(2, bf16, 5, 40), normal(3, bf16, 5)},
			[]int{0, -1, -1}, 0},
		{"linear", nil, []*tensor.Tensor{normal(1, f32, 6, 4, 300), normal(2, f32, 37, 300), nil}, []int{0, -1, -1}, 0},
		{"matmul", graph.Attrs{"alpha": 0.5, "beta": 2.0}, []*tensor.Tensor{
			normal(1, f32, 35, 9, 17), normal(2, f32, 35, 17, 6), normal(3, f32, 35, 9, 6),
		}, []int{0, 0, 0}, 0},
		{"matmul", graph.Attrs{"alpha": 1.0}, []*tensor.Tensor{normal(1, f32, 2, 90, 70), normal(2, f32, 2, 70, 95)},
			[]int{0, 0}, 0},
		{"scaled_dot_product_attention", graph.Attrs{"scale": 0.25, "is_causal": true}, []*tensor.Tensor{
			normal(1, f32, 5, 3, 70, 16), normal(2, f32, 5, 3, 70, 16), normal(3, f32, 5, 3, 70, 8),
		}, []int{0, 0, 0}, 0},
		{"scaled_dot_product_attention", graph.Attrs{"scale": 0.25}, []*tensor.Tensor{
			normal(1, bf16, 2, 131, 16), normal(2, bf16, 2, 300, 16), normal(3, bf16, 2, 300, 8),
		}, []int{1, -1, -1}, 1}, // a query alone
		{"lstm", nil, append([]*tensor.Tensor{
			normal(1, f32, 60, 6, 7), nil, normal(2, f32, 1, 6, 9), normal(3, f32, 1, 6, 9),
		}, params...), []int{1, -1, 1, 1, -1, -1, -1, -1, -1}, 1},
		{"gru", graph.Attrs{"reverse": true}, append([]*tensor.Tensor{
			normal(1, f32, 300, 2, 7), nil, normal(2, f32, 1, 2, 9), nil,
		}, gates...), []int{1, -1, 1, -1, -1, -1, -1, -1, -1}, 1},
	} {
		t.Run(fmt.Sprint(c.kind, c.in[0].Layout.Shape), func(t *testing.T) {
			whole := compute(t, 1, c.kind, c.attrs, c.in...)[0]
			for _, threads := range []int{2, 3, 16} {
				if again := compute(t, threads, c.kind, c.attrs, c.in...)[0]; !bytes.Equal(again.Data, whole.Data) {
					t.Fatalf("%d threads give other bits than one", threads)
				}
			}
			for i := range whole.Layout.Shape[c.outDim] {
				in := make([]*tensor.Tensor, len(c.in))
				for k, operand := range c.in {
					if in[k] = operand; operand != nil && c.dims[k] >= 0 {
						in[k] = exchanged(operand, c.dims[k], i)
					}
				}
				moved := compute(t, 2, c.kind, c.attrs, in...)[0]
				if !bytes.Equal(moved.Data, exchanged(whole, c.outDim, i).Data) {
					t.Fatalf("item %d of the batch has other bits in the first place", i)
				}
			}
		})
	}
}

// TestGroupsMustBeInOrder checks what only the data says.
func TestGroupsMustBeInOrder(t *testing.T) {
	pool := ops.NewPool(1)
	defer pool.Close()
	x, w := normal(1, tensor.Float32, 4, 3), normal(2, tensor.Float32, 2, 3, 5)
	for _, ends := range [][]int64{{3, 2}, {2, 5}, {-1, 2}} {
		offsets := &tensor.Tensor{DType: tensor.Int64, Layout: tensor.Contiguous(2), Data: asBytes(ends)}
		if _, err := Compute(t.Context(), pool, graph.Standard(), "grouped_matmul", nil, x, w, offsets); err == nil {
			t.Errorf("groups that end at %v of 4 rows are computed", ends)
		}
	}
	params := []*tensor.Tensor{normal(5, tensor.Float32, 9, 3), normal(6, tensor.Float32, 9, 3), nil, nil, nil}
	for _, sizes := range [][]int64{{1, 2, 1}, {3, 1, 0}, {2, 1, 0}, {2, 2, 1}, {5, -1, 0}} {
		batch := &tensor.Tensor{DType: tensor.Int64, Layout: tensor.Contiguous(3), Data: asBytes(sizes)}
		in := append([]*tensor.Tensor{x, batch, normal(3, tensor.Float32, 1, 2, 3), nil}, params...)
		if _, err := Compute(t.Context(), pool, graph.Standard(), "gru", nil, in...); err == nil {
			t.Errorf("a packed sequence of 4 rows with %v at its steps is computed", sizes)
		}
	}
}

func BenchmarkProducts(b *testing.B) {
	f32 := tensor.Float32
	for _, c := range []struct {
		name  string
		kind  graph.Kind
		attrs graph.Attrs
		in    []*tensor.Tensor
	}{
		{"linear-128x768x3072", "linear", nil, []*tensor.Tensor{normal(1, f32, 128, 768), normal(2, f32, 3072, 768), nil}},
		{"linear-1x4096x4096", "linear", nil, []*tensor.Tensor{normal(1, f32, 1, 4096), normal(2, f32, 4096, 4096), nil}},
		{"linear-bf16-1x4096x1024", "linear", nil, []*tensor.Tensor{
			normal(1, tensor.BFloat16, 1, 4096), normal(2, tensor.BFloat16, 1024, 4096), nil,
		}},
		{"matmul-144x64x32x64", "matmul", graph.Attrs{"alpha": 1.0}, []*tensor.Tensor{
			normal(1, f32, 144, 64, 32), normal(2, f32, 144, 32, 64),
		}},
		{"attention-12x512x64", "scaled_dot_product_attention", graph.Attrs{"scale": 0.125}, []*tensor.Tensor{
			normal(1, f32, 12, 512, 64), normal(2, f32, 12, 512, 64), normal(3, f32, 12, 512, 64),
		}},
		{"lstm-64x8x256", "lstm", nil, []*tensor.Tensor{
			normal(1, f32, 64, 8, 256), nil, normal(2, f32, 1, 8, 256), normal(3, f32, 1, 8, 256),
			normal(4, f32, 1024, 256), normal(5, f32, 1024, 256), nil, nil, nil,
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			pool := ops.NewPool(0)
			defer pool.Close()
			specs := make([]graph.Spec, len(c.in))
			for i, t := range c.in {
				if t != nil {
					specs[i] = graph.Spec{DType: t.DType, Shape: t.Layout.Shape}
				}
			}
			def, _ := graph.Standard().Lookup(c.kind)
			for b.Loop() {
				out, err := Compute(b.Context(), pool, graph.Standard(), c.kind, c.attrs, c.in...)
				if err != nil {
					b.Fatal(err)
				}
				result := graph.Spec{DType: out[0].DType, Shape: out[0].Layout.Shape}
				b.ReportMetric(float64(def.FLOPs(specs, []graph.Spec{result}, c.attrs))/1e9, "GFLOP/op")
			}
		})
	}
}
