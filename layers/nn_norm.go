package layers

import "github.com/optimem/optimem/tensor"

// normClasses are the normalizations.
var normClasses = Classes{
	"torch.nn.modules.batchnorm.BatchNorm1d": Unary(batchNormForward),
	"torch.nn.modules.batchnorm.BatchNorm2d": Unary(batchNormForward),
	"torch.nn.modules.batchnorm.BatchNorm3d": Unary(batchNormForward),
}

// batchNormForward is _BatchNorm's forward in evaluation, where running statistics are used if there are any.
func batchNormForward(t *Trace, m *Module, x Tensor) Tensor {
	mean, variance := t.Param(m, "running_mean"), t.Param(m, "running_var")
	return t.Op("batch_norm", x, t.Param(m, "weight"), t.Param(m, "bias"), mean, variance,
		mean == nil && variance == nil, m.Attrs["momentum"], m.Float("eps"), true)
}

// BatchNorm1d is torch.nn.BatchNorm1d.
func BatchNorm1d(features int, opts ...Option) *Module {
	return batchNorm("BatchNorm1d", features, opts)
}

// BatchNorm2d is torch.nn.BatchNorm2d.
func BatchNorm2d(features int, opts ...Option) *Module {
	return batchNorm("BatchNorm2d", features, opts)
}

// BatchNorm3d is torch.nn.BatchNorm3d.
func BatchNorm3d(features int, opts ...Option) *Module {
	return batchNorm("BatchNorm3d", features, opts)
}

func batchNorm(class string, n int, opts []Option) *Module {
	m := made("torch.nn.modules.batchnorm."+class, map[string]any{
		"num_features": n, "eps": 1e-5, "momentum": 0.1, "affine": true, "track_running_stats": true,
	}, opts)
	affine, tracked := m.Bool("affine"), m.Bool("track_running_stats")
	for _, name := range []string{"weight", "bias"} {
		m.Params = append(m.Params, Param{Name: name, DType: tensor.Float32, Shape: tensor.Shape{n}, None: !affine})
	}
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
