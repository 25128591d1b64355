//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestHalves runs products of half floats, with tensor cores and without.
func TestHalves(t *testing.T) {
	for _, capability := range []string{"70", "75", "80"} {
		t.Run(capability, func(t *testing.T) {
			dev, _ := open(t, "order=lazy:5 memory=64M cc="+capability)
			compareHalves(t, dev)
		})
	}
}

// compareHalves compares products of half floats with those of the CPU: aligned along the terms, across them and not at all.
func compareHalves(t *testing.T, dev device.Device) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	one := graph.Attrs{"alpha": 1.0}
	for d, bound := range map[tensor.DType]float64{tensor.Float16: 1e-3, tensor.BFloat16: 8e-3} {
		for name, c := range map[string]struct {
			kind  graph.Kind
			attrs graph.Attrs
			in    []*tensor.Tensor
		}{
			"linear":              {"linear", nil, []*tensor.Tensor{numbers(d, 70, 72), numbers(d, 132, 72), numbers(d, 132)}},
			"linear, not aligned": {"linear", nil, []*tensor.Tensor{numbers(d, 15, 37), numbers(d, 9, 37), numbers(d, 9)}},
			"linear, parts":       {"linear", nil, []*tensor.Tensor{numbers(d, 10, 1096), numbers(d, 31, 1096), numbers(d, 31)}},
			"linear of no terms":  {"linear", nil, []*tensor.Tensor{numbers(d, 10, 0), numbers(d, 31, 0), numbers(d, 31)}},
			"matmul":              {"matmul", one, []*tensor.Tensor{numbers(d, 3, 20, 40), numbers(d, 3, 40, 72)}},
			"matmul, not aligned": {"matmul", one, []*tensor.Tensor{numbers(d, 2, 3, 13), numbers(d, 2, 13, 7)}},
			"sum": {"matmul", graph.Attrs{"alpha": 0.5, "beta": 2.0}, []*tensor.Tensor{
				numbers(d, 2, 3, 16), numbers(d, 2, 16, 7), numbers(d, 2, 3, 7),
			}},
		} {
			t.Run(d.String()+", "+name, func(t *testing.T) {
				compareOp(t, dev, pool, graph.Op{Kind: c.kind, Attrs: c.attrs}, c.in, bound)
			})
		}
	}
}
