package cpu

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// TestConvolutionsOfFloatsAndIntegersAgree compares the products and the loops that compute floats with the plain loop
// over integers, on whole numbers, for random geometries.
func TestConvolutionsOfFloatsAndIntegersAgree(t *testing.T) {
	pool := ops.NewPool(3)
	defer pool.Close()
	r := rand.New(rand.NewPCG(5, 6))
	compared := 0
	for compared < 400 {
		rank := 1 + r.IntN(3)
		pick := func(low, high int) []int {
			out := make([]int, rank)
			for i := range out {
				out[i] = low + r.IntN(high-low+1)
			}
			return out
		}
		groups := []int{1, 1, 2, 3, 5}[r.IntN(5)]
		inputs, outputs := 1+r.IntN(3), 1+r.IntN(3)
		transposed := r.IntN(3) == 0
		x := append([]int{1 + r.IntN(2), groups * inputs}, pick(1, 9)...)
		w := append([]int{groups * outputs, inputs}, pick(1, 4)...)
		if transposed {
			w[0], w[1] = groups*inputs, outputs
		}
		attrs := graph.Attrs{
			"stride": pick(1, 3), "padding": pick(0, 3), "padding_end": pick(0, 3), "dilation": pick(1, 3), "groups": groups,
			"transposed": transposed, "output_padding": pick(0, 1),
		}
		whole := func(shape []int) (*tensor.Tensor, *tensor.Tensor) {
			n := ops.Volume(shape)
			f, i := make([]float32, n), make([]int32, n)
			for k := range f {
				i[k] = int32(r.IntN(9) - 4)
				f[k] = float32(i[k])
			}
			return tensor.Of(f, shape...), tensor.Of(i, shape...)
		}
		fx, ix := whole(x)
		fw, iw := whole(w)
		fb, ib := whole([]int{groups * outputs})
		ctx := context.Background()
		want, err := Compute(ctx, oneThread, graph.Standard(), "conv", attrs, ix, iw, ib)
		if err != nil {
			continue // the window does not fit
		}
		compared++
		got, err := Compute(ctx, pool, graph.Standard(), "conv", attrs, fx, fw, fb)
		if err != nil {
			t.Fatalf("%v %v %v: %v", x, w, attrs, err)
		}
		a, _ := tensor.Slice[float32](got[0])
		b, _ := tensor.Slice[int32](want[0])
		for k := range b {
			if a[k] != float32(b[k]) {
				t.Fatalf("input %v, weight %v, %v: element %d is %v, want %v", x, w, attrs, k, a[k], b[k])
			}
		}
	}
}

// oneThread is a pool of one thread, which needs no closing.
var oneThread = ops.NewPool(1)

// TestImagesDoNotDependOnThreadsOrPlace runs ops on a batch with several threads and on each image by itself with one:
// the bits are the same.
func TestImagesDoNotDependOnThreadsOrPlace(t *testing.T) {
	pool := ops.NewPool(3)
	defer pool.Close()
	two := func(a, b int) []int { return []int{a, b} }
	windows := func(extra graph.Attrs) graph.Attrs {
		a := graph.Attrs{
			"stride": two(1, 2), "padding": two(1, 1), "dilation": two(1, 1), "kernel": two(3, 3), "groups": 1,
		}
		for k, v := range extra {
			a[k] = v
		}
		return a
	}
	x := tensor.Of(randoms[float32](1, 3*12*19*21), 3, 12, 19, 21)
	weights := func(shape ...int) *tensor.Tensor { return tensor.Of(randoms[float32](2, ops.Volume(shape)), shape...) }
	for name, op := range map[string]struct {
		kind  graph.Kind
		attrs graph.Attrs
		rest  []*tensor.Tensor
	}{
		"convolution": {"conv", windows(nil), []*tensor.Tensor{weights(40, 12, 3, 3), weights(40)}},
		"groups":      {"conv", windows(graph.Attrs{"groups": 4}), []*tensor.Tensor{weights(8, 3, 3, 3), nil}},
		"depthwise":   {"conv", windows(graph.Attrs{"groups": 12}), []*tensor.Tensor{weights(12, 1, 3, 3), weights(12)}},
		"transposed": {
			"conv", windows(graph.Attrs{"transposed": true, "output_padding": two(0, 1)}),
			[]*tensor.Tensor{weights(12, 7, 3, 3), weights(7)},
		},
		"max_pool":          {"max_pool", windows(nil), nil},
		"avg_pool":          {"avg_pool", windows(nil), nil},
		"adaptive_avg_pool": {"adaptive_avg_pool", graph.Attrs{"size": two(1, 1)}, nil},
		"bilinear":          {"interpolate", graph.Attrs{"mode": "linear", "size": two(40, 33)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(p *ops.Pool, x *tensor.Tensor) []byte {
				in := append([]*tensor.Tensor{x}, op.rest...)
				out, err := Compute(t.Context(), p, graph.Standard(), op.kind, op.attrs, in...)
				if err != nil {
					t.Fatal(err)
				}
				return out[0].Data
			}
			all := run(pool, x)
			each, size := len(all)/3, len(x.Data)/3
			for i := range 3 {
				image := &tensor.Tensor{
					DType: x.DType, Layout: tensor.Contiguous(1, 12, 19, 21), Data: x.Data[i*size : (i+1)*size],
				}
				if !bytes.Equal(run(oneThread, image), all[i*each:(i+1)*each]) {
					t.Errorf("image %d alone gives other bits", i)
				}
			}
		})
	}
}

// TestScalesOfAnySize gives interpolations factors that no image has: they read within the image.
func TestScalesOfAnySize(t *testing.T) {
	x := tensor.Of(randoms[float32](1, 2*5*4), 1, 2, 5, 4)
	for _, mode := range []string{"nearest", "nearest-exact", "linear", "cubic"} {
		for _, scale := range []float64{1e-300, 1e-9, 1e-3, 1e9, 1e300} {
			for _, antialias := range []bool{false, mode == "linear" || mode == "cubic"} {
				attrs := graph.Attrs{
					"mode": mode, "size": []int{7, 3}, "scale0": scale, "scale1": scale, "antialias": antialias,
				}
				if _, err := Compute(t.Context(), oneThread, graph.Standard(), "interpolate", attrs, x); err != nil {
					t.Errorf("%v: %v", attrs, err)
				}
			}
		}
	}
}

// TestConvolutionsThatNoMachineComputesAreRefused are those of expanded operands.
func TestConvolutionsThatNoMachineComputesAreRefused(t *testing.T) {
	one := make([]byte, 4)
	x := &tensor.Tensor{DType: tensor.Float32, Data: one, Layout: tensor.Layout{
		Shape: []int{1, 1 << 30, 1 << 30}, Strides: []int{0, 0, 0},
	}}
	w := &tensor.Tensor{DType: tensor.Float32, Data: one, Layout: tensor.Layout{
		Shape: []int{1, 1 << 30, 1 << 30}, Strides: []int{0, 0, 0},
	}}
	attrs := graph.Attrs{"stride": []int{1}, "padding": []int{0}, "dilation": []int{1}, "groups": 1}
	if _, err := Compute(t.Context(), oneThread, graph.Standard(), "conv", attrs, x, w, nil); err == nil {
		t.Error("computed")
	}
}
