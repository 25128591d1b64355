//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestRows compares rows that are held by a warp or by a block, that are too long for that, and that are cut into parts,
// with the CPU's.
func TestRows(t *testing.T) {
	dev, _ := open(t, "order=lazy:6 memory=64M")
	compareRows(t, dev)
}

func compareRows(t *testing.T, dev device.Device) {
	const f32, f16, bf16, u8 = tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.UInt8
	pool := cpu.NewPool(1)
	defer pool.Close()
	along := func(d tensor.DType, dims ...int) graph.Attrs {
		return graph.Attrs{"dims": dims, "keepdim": false, "dtype": d}
	}
	norm := graph.Attrs{"dims": 1, "eps": 1e-5}
	of := func(d tensor.DType, shape ...int) []*tensor.Tensor { return []*tensor.Tensor{numbers(d, shape...)} }
	for name, c := range map[string]struct {
		kind  graph.Kind
		attrs graph.Attrs
		in    []*tensor.Tensor
		bound float64
	}{
		"softmax, a warp":         {"softmax", graph.Attrs{"dim": 1}, of(f32, 5, 300), 1e-6},
		"softmax, a block":        {"softmax", graph.Attrs{"dim": 1}, of(bf16, 2, 1500), 8e-3},
		"log softmax, a block":    {"log_softmax", graph.Attrs{"dim": 1}, of(f16, 2, 516), 1e-3},
		"softmax, too long":       {"softmax", graph.Attrs{"dim": 1}, of(f32, 1, 8196), 1e-5},
		"softmax, across":         {"softmax", graph.Attrs{"dim": 0}, of(f32, 40, 70), 1e-6},
		"softmax, a thread":       {"softmax", graph.Attrs{"dim": 1}, of(f32, 2, 7, 70), 1e-6},
		"layer norm, a warp":      {"layer_norm", norm, append(of(f32, 5, 132), numbers(f32, 132), numbers(f32, 132)), 1e-5},
		"layer norm, a block":     {"layer_norm", norm, append(of(f16, 2, 1028), numbers(f16, 1028), numbers(f16, 1028)), 2e-3},
		"rms norm":                {"rms_norm", norm, append(of(bf16, 3, 520), numbers(bf16, 520)), 8e-3},
		"group norm":              {"group_norm", graph.Attrs{"groups": 2, "eps": 1e-5}, append(of(f32, 2, 6, 4, 5), numbers(f32, 6), numbers(f32, 6)), 1e-5},
		"group norm, not in four": {"group_norm", graph.Attrs{"groups": 2, "eps": 1e-5}, append(of(f32, 2, 8, 3), numbers(f32, 8), numbers(f32, 8)), 1e-5},
		"sum, parts":              {"sum", along(f32, 0), of(f32, 20000), 1e-6},
		"sum, a warp":             {"sum", along(f32, 1), of(f32, 5, 300), 1e-6},
		"sum, a block":            {"sum", along(f32, 1), of(f32, 3, 4100), 1e-6},
		"sum, not in fours":       {"sum", along(f32, 1), of(f32, 5, 1031), 1e-6},
		"mean, of halves":         {"mean", along(bf16, 1), of(bf16, 5, 2, 132), 8e-3},
		"mean, not in fours":      {"mean", along(f16, 2, 3), of(f16, 2, 3, 7, 7), 1e-3},
		"product":                 {"prod", along(f32, 1), of(f32, 3, 6), 1e-5},
		"greatest":                {"amax", along(f32, 1), of(f32, 3, 2051), 0},
		"smallest, parts":         {"amin", along(f16, 1), of(f16, 2, 9002), 0},
		"norm, of squares":        {"norm", graph.Attrs{"dims": []int{1}, "keepdim": false, "ord": 2.0, "dtype": f32}, of(f32, 2, 900), 1e-5},
		"norm, of sizes":          {"norm", graph.Attrs{"dims": []int{1}, "keepdim": false, "ord": 1.0, "dtype": f32}, of(f32, 2, 9001), 1e-5},
		"norm, parts":             {"norm", graph.Attrs{"dims": []int{1}, "keepdim": false, "ord": 3.0, "dtype": f32}, of(f32, 2, 9000), 1e-5},
		"argmax, parts":           {"argmax", along(tensor.Int64, 1), of(f32, 2, 9001), 0},
		"bytes, parts":            {"sum", along(tensor.Int64, 0), of(u8, 10000), 0},
		"bytes, greatest":         {"argmax", along(tensor.Int64, 0), of(u8, 8200, 2), 0},
		"mean, across":            {"mean", along(f32, 0), of(f32, 50, 45), 1e-6},
		"variance, across":        {"var", graph.Attrs{"dims": []int{0}, "keepdim": false, "correction": 1.0, "dtype": f32}, of(f32, 50, 45), 1e-5},
		"greatest, across":        {"amax", along(f16, 1), of(f16, 3, 9, 20), 0},
	} {
		t.Run(name, func(t *testing.T) {
			compareOp(t, dev, pool, graph.Op{Kind: c.kind, Attrs: c.attrs}, c.in, c.bound)
		})
	}
}
