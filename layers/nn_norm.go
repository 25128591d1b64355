package layers

import (
	"slices"

	"github.com/optimem/optimem/tensor"
)

// normClasses are the normalizations.
var normClasses = Classes{
	"torch.nn.modules.batchnorm.BatchNorm1d":           Unary(batchNormForward(2, 3)),
	"torch.nn.modules.batchnorm.BatchNorm2d":           Unary(batchNormForward(4, 4)),
	"torch.nn.modules.batchnorm.BatchNorm3d":           Unary(batchNormForward(5, 5)),
	"torch.nn.modules.batchnorm.SyncBatchNorm":         Unary(batchNormForward(2, 5)),
	"torch.nn.modules.instancenorm.InstanceNorm1d":     Unary(instanceNormForward(1)),
	"torch.nn.modules.instancenorm.InstanceNorm2d":     Unary(instanceNormForward(2)),
	"torch.nn.modules.instancenorm.InstanceNorm3d":     Unary(instanceNormForward(3)),
	"torch.nn.modules.normalization.LayerNorm":         Unary(layerNormForward),
	"torch.nn.modules.normalization.RMSNorm":           Unary(rmsNormForward),
	"torch.nn.modules.normalization.GroupNorm":         Unary(groupNormForward),
	"torch.nn.modules.normalization.CrossMapLRN2d":     Unary(crossMapNormForward),
	"torch.nn.modules.normalization.LocalResponseNorm": Unary(responseNormForward),
}

// batchNormForward is _BatchNorm's forward in evaluation, where running statistics are used if there are any, for
// inputs of the given ranks.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func batchNormForward(low, high int) func(t *Trace, m *Module, x Tensor) Tensor {
	return func(t *Trace, m *Module, x Tensor) Tensor {
		if rank := len(x.Shape()); rank < low || rank > high {
			fail("takes a tensor of rank %d to %d, not %v", low, high, x.Shape())
		}
		mean, variance := t.Param(m, "running_mean"), t.Param(m, "running_var")
		return t.Op("batch_norm", x, t.Param(m, "weight"), t.Param(m, "bias"), mean, variance,
			mean == nil && variance == nil, momentum(m), m.Float("eps"), true)
	}
}

// momentum is the module's, 0 for None: it matters to training alone.
func momentum(m *Module) float64 {
	if m.Attrs["momentum"] == nil {
		return 0
	}
	return m.Float("momentum")
}

// instanceNormForward is _InstanceNorm's forward for n spatial dimensions; the batch may be left out.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func instanceNormForward(n int) func(t *Trace, m *Module, x Tensor) Tensor {
	return func(t *Trace, m *Module, x Tensor) Tensor {
		rank := len(x.Shape())
		if rank != n+1 && rank != n+2 {
			fail("takes a tensor of rank %d or %d, not %v", n+1, n+2, x.Shape())
		}
		if rank == n+1 {
			x = t.Op("unsqueeze", x, 0)
		}
		x = t.Op("instance_norm", x, t.Param(m, "weight"), t.Param(m, "bias"), t.Param(m, "running_mean"),
			t.Param(m, "running_var"), !m.Bool("track_running_stats"), momentum(m), m.Float("eps"), true)
		if rank == n+1 {
			x = t.Op("squeeze.dim", x, 0)
		}
		return x
	}
}

func layerNormForward(t *Trace, m *Module, x Tensor) Tensor {
	return t.Op("layer_norm", x, normalizedShape(m), t.Param(m, "weight"), t.Param(m, "bias"), m.Float("eps"))
}

func rmsNormForward(t *Trace, m *Module, x Tensor) Tensor {
	var eps any // None is the dtype's own
	if m.Attrs["eps"] != nil {
		eps = m.Float("eps")
	}
	return t.Op("rms_norm", x, normalizedShape(m), t.Param(m, "weight"), eps)
}

func groupNormForward(t *Trace, m *Module, x Tensor) Tensor {
	return t.Op("group_norm", x, m.Int("num_groups"), t.Param(m, "weight"), t.Param(m, "bias"), m.Float("eps"))
}

// normalizedShape is the attribute of that name, a number or a tuple.
func normalizedShape(m *Module) []int {
	n := 1
	switch v := m.Attrs["normalized_shape"].(type) {
	case []any:
		n = len(v)
	case []int:
		n = len(v)
	}
	return m.Ints("normalized_shape", n)
}

// responseNormForward is LocalResponseNorm's forward: it divides by a power of the mean square over a window of
// channels.
func responseNormForward(t *Trace, m *Module, x Tensor) Tensor {
	size, shape := windowOfChannels(m), x.Shape()
	if len(shape) < 3 {
		fail("takes a tensor of rank 3 or more, not %v", shape)
	}
	y := t.Op("mul.Tensor", x, x)
	if len(shape) == 3 {
		y = t.Op("pad", t.Op("unsqueeze", y, 1), []int{0, 0, size / 2, (size - 1) / 2})
		y = t.Op("squeeze.dim", t.Op("avg_pool2d", y, []int{size, 1}, 1), 1)
	} else {
		y = t.Op("view", y, []int{shape[0], 1, shape[1], shape[2], -1})
		y = t.Op("pad", y, []int{0, 0, 0, 0, size / 2, (size - 1) / 2})
		y = t.Op("squeeze.dim", t.Op("avg_pool3d", y, []int{size, 1, 1}, 1), 1)
		y = t.Op("view", y, []int(shape))
	}
	y = t.Op("add.Tensor", t.Op("mul.Tensor", y, m.Float("alpha")), m.Float("k"))
	return t.Op("div.Tensor", x, t.Op("pow.Tensor_Scalar", y, m.Float("beta")))
}

// windowOfChannels is the size of a response normalization's window.
func windowOfChannels(m *Module) int {
	size := m.Int("size")
	if size < 1 || size > 1<<16 {
		fail("a window of %d channels", size)
	}
	return size
}

// crossMapNormForward is the older form of the response normalization. Its window reaches equally far before and after,
// and PyTorch never takes the first channel out of its running sum.
func crossMapNormForward(t *Trace, m *Module, x Tensor) Tensor {
	size, shape := windowOfChannels(m), x.Shape()
	if len(shape) != 4 || shape[1] < 1 {
		fail("takes a tensor of rank 4, not %v", shape)
	}
	squares := t.Op("mul.Tensor", x, x)
	reach := (size - 1) / 2
	window := 2*reach + 1
	y := t.Op("pad", t.Op("unsqueeze", squares, 1), []int{0, 0, 0, 0, reach, reach})
	y = t.Op("squeeze.dim", t.Op("avg_pool3d", y, []int{window, 1, 1}, 1), 1)
	y = t.Op("mul.Tensor", y, window)
	if from, channels := reach+1, shape[1]; from < channels {
		kept := t.Op("narrow", squares, 1, 0, 1)
		after := t.Op("add.Tensor", t.Op("narrow", y, 1, from, channels-from), kept)
		y = t.Op("cat", []Tensor{t.Op("narrow", y, 1, 0, from), after}, 1)
	}
	y = t.Op("add.Tensor", t.Op("mul.Tensor", y, m.Float("alpha")/float64(size)), m.Float("k"))
	return t.Op("mul.Tensor", t.Op("pow.Tensor_Scalar", y, -m.Float("beta")), x)
}

// BatchNorm1d is torch.nn.BatchNorm1d.
func BatchNorm1d(features int, opts ...Option) *Module {
	return featureNorm("batchnorm.BatchNorm1d", features, true, opts)
}

// BatchNorm2d is torch.nn.BatchNorm2d.
//
//go:noinline
func BatchNorm2d(features int, opts ...Option) *Module {
	return featureNorm("batchnorm.BatchNorm2d", features, true, opts)
}

// BatchNorm3d is torch.nn.BatchNorm3d.
func BatchNorm3d(features int, opts ...Option) *Module {
	return featureNorm("batchnorm.BatchNorm3d", features, true, opts)
}

// InstanceNorm1d is torch.nn.InstanceNorm1d.
func InstanceNorm1d(features int, opts ...Option) *Module {
	return featureNorm("instancenorm.InstanceNorm1d", features, false, opts)
}

// InstanceNorm2d is torch.nn.InstanceNorm2d.
func InstanceNorm2d(features int, opts ...Option) *Module {
	return featureNorm("instancenorm.InstanceNorm2d", features, false, opts)
}

// InstanceNorm3d is torch.nn.InstanceNorm3d.
func InstanceNorm3d(features int, opts ...Option) *Module {
	return featureNorm("instancenorm.InstanceNorm3d", features, false, opts)
}

// featureNorm is _NormBase, which learns and keeps statistics unless options say otherwise: the classes differ in
// whether they do without options.
func featureNorm(class string, n int, learns bool, opts []Option) *Module {
	m := made("torch.nn.modules."+class, map[string]any{
		"num_features": n, "eps": 1e-5, "momentum": 0.1, "affine": learns, "track_running_stats": learns,
	}, opts)
	affine, tracked := m.Bool("affine"), m.Bool("track_running_stats")
	m.affine(affine, n)
	for _, name := range []string{"running_mean", "running_var"} {
		m.Params = append(m.Params, Param{
			Name: name, DType: tensor.Float32, Shape: tensor.Shape{n}, None: !tracked, Buffer: true,
		})
	}
	m.Params = append(m.Params, Param{
		Name: "num_batches_tracked", DType: tensor.Int64, Shape: tensor.Shape{}, None: !tracked, Buffer: true,
	})
	return m
}

// affine appends the parameters "weight" and "bias", None where the module does not learn them.
func (m *Module) affine(learns bool, shape ...int) *Module {
	m.Param("weight", shape...).bias(shape...)
	for i := range m.Params {
		m.Params[i].None = m.Params[i].None || !learns
	}
	return m
}

// LayerNorm is torch.nn.LayerNorm over the last dimension.
//
//go:noinline
func LayerNorm(size int, opts ...Option) *Module { return LayerNormOver([]int{size}, opts...) }

// LayerNormOver is torch.nn.LayerNorm over several dimensions.
func LayerNormOver(shape []int, opts ...Option) *Module {
	m := made("torch.nn.modules.normalization.LayerNorm", map[string]any{
		"normalized_shape": slices.Clone(shape), "eps": 1e-5, "elementwise_affine": true,
	}, opts)
	return m.affine(m.Bool("elementwise_affine"), shape...)
}

// RMSNorm is torch.nn.RMSNorm over the last dimension.
func RMSNorm(size int, opts ...Option) *Module {
	m := made("torch.nn.modules.normalization.RMSNorm", map[string]any{
		"normalized_shape": []int{size}, "eps": nil, "elementwise_affine": true,
	}, opts)
	m.Param("weight", size)
	m.Params[0].None = !m.Bool("elementwise_affine")
	return m
}

// GroupNorm is torch.nn.GroupNorm.
func GroupNorm(groups, channels int, opts ...Option) *Module {
	m := made("torch.nn.modules.normalization.GroupNorm", map[string]any{
		"num_groups": groups, "num_channels": channels, "eps": 1e-5, "affine": true,
	}, opts)
	return m.affine(m.Bool("affine"), channels)
}
