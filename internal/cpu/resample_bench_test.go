package cpu

import (
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// BenchmarkImages runs pools, resampling and padding at sizes that networks have.
func BenchmarkImages(b *testing.B) {
	pool := ops.NewPool(0)
	defer pool.Close()
	two := func(n int) []int { return []int{n, n} }
	image, scores := benchTensor(1, 64, 256, 256), benchTensor(1, 21, 64, 64)
	for name, op := range map[string]struct {
		kind  graph.Kind
		attrs graph.Attrs
		in    []*tensor.Tensor
	}{
		"max_pool3x3s2": {"max_pool", graph.Attrs{
			"kernel": two(3), "stride": two(2), "padding": two(1), "dilation": two(1),
		}, []*tensor.Tensor{image}},
		"avg_pool2x2s2": {"avg_pool", graph.Attrs{
			"kernel": two(2), "stride": two(2), "padding": two(0),
		}, []*tensor.Tensor{image}},
		"global_avg": {"adaptive_avg_pool", graph.Attrs{"size": two(1)}, []*tensor.Tensor{image}},
		"nearest":    {"interpolate", graph.Attrs{"mode": "nearest", "size": two(512)}, []*tensor.Tensor{scores}},
		"bilinear":   {"interpolate", graph.Attrs{"mode": "linear", "size": two(512)}, []*tensor.Tensor{scores}},
		"bicubic":    {"interpolate", graph.Attrs{"mode": "cubic", "size": two(512)}, []*tensor.Tensor{scores}},
		"grid_sample": {"grid_sample", graph.Attrs{"mode": "linear", "padding_mode": "zeros"}, []*tensor.Tensor{
			image, benchTensor(1, 128, 128, 2),
		}},
		"reflect": {"pad", graph.Attrs{
			"mode": "reflect", "before": []int{0, 0, 1, 1}, "after": []int{0, 0, 1, 1},
		}, []*tensor.Tensor{image, nil}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Compute(b.Context(), pool, graph.Standard(), op.kind, op.attrs, op.in...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
