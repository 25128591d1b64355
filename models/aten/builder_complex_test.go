package aten_test

import (
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/tensor"
)

// TestComplexRefused: an op that is not computed of complex numbers says so, and does not take their parts for numbers.
func TestComplexRefused(t *testing.T) {
	given := func(name string, d tensor.DType) aten.Given {
		return aten.Given{Name: name, DType: d, Layout: tensor.Contiguous(2, 3), Elements: 6}
	}
	x, y := given("x", tensor.Complex64), given("y", tensor.Float32)
	index := given("i", tensor.Int64)
	for target, args := range map[string]map[string]any{
		"torch.ops.aten.tanh.default":        {"self": x},
		"torch.ops.aten.prod.default":        {"self": x},
		"torch.ops.aten.as_strided.default":  {"self": x, "size": []int{2}, "stride": []int{1}},
		"torch.ops.aten.lerp.Tensor":         {"self": y, "end": y, "weight": x},
		"torch.ops.aten.add.Tensor":          {"self": y, "other": y, "alpha": 1i},
		"torch.ops.aten.pow.Tensor_Scalar":   {"self": x, "exponent": 3},
		"torch.ops.aten.scatter.reduce":      {"self": x, "dim": 0, "index": index, "src": x, "reduce": "multiply"},
		"torch.ops.aten.div.Tensor_mode":     {"self": x, "other": y, "rounding_mode": "floor"},
		"torch.ops.aten.stft.default":        {"self": x, "n_fft": 2},
		"torch.ops.aten.conv1d.default":      {"input": x, "weight": x},
		"torch.ops.aten.layer_norm.default":  {"input": x, "normalized_shape": []int{3}},
		"torch.ops.aten.add_.Tensor":         {"self": y, "other": x},
		"torch.ops.aten.masked_fill_.Scalar": {"self": y, "mask": given("m", tensor.Bool), "value": 1i},
	} {
		if _, err := aten.BuildCall(graph.Standard(), target, args); err == nil {
			t.Errorf("%s is computed", target)
		}
	}
}
