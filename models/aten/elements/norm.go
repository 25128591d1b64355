package elements

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// normTargets are the normalisations.
var normTargets = []call.Overload{
	call.Several("aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var,"+
		" bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor", batchNorm(0)),
	call.Several("aten::_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean,"+
		" Tensor(b!) running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)", batchNorm(2)),
	call.Several("aten::_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training,"+
		" float momentum, float eps) -> (Tensor, Tensor, Tensor)", batchNorm(2)),
	call.Several("aten::_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean,"+
		" Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)", batchNorm(2)),
	call.Several("aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var,"+
		" bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)", batchNorm(2)),
	call.Several("aten::_batch_norm_no_update(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean,"+
		" Tensor? running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)", batchNorm(3)),
	call.Several("aten::cudnn_batch_norm(Tensor input, Tensor weight, Tensor? bias, Tensor? running_mean, Tensor? running_var,"+
		" bool training, float exponential_average_factor, float epsilon) -> (Tensor, Tensor, Tensor, Tensor)", batchNorm(3)),
	call.Several("aten::_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean,"+
		" Tensor running_var, bool training, float momentum, float eps)"+
		" -> (Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)", batchNormFunctional(2)),
	call.Several("aten::_batch_norm_with_update(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean,"+
		" Tensor(b!) running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
		inTraining(batchNorm(3))),
	call.Several("aten::_batch_norm_with_update_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean,"+
		" Tensor running_var, float momentum, float eps)"+
		" -> (Tensor, Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)",
		inTraining(batchNormFunctional(3))),
	call.Several("aten::_batch_norm_impl_index(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean,"+
		" Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled)"+
		" -> (Tensor, Tensor, Tensor, Tensor, int)", func(c *call.Call) error {
		if err := batchNorm(3)(c); err != nil {
			return err
		}
		c.Results = append(c.Results, 0) // the number of PyTorch's own kernel
		return nil
	}),
	call.Several("aten::instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var,"+
		" bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor", instanceNorm),
	call.Several("aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None,"+
		" float eps=1.0000000000000001e-05, bool cudnn_enable=True) -> Tensor", layerNorm(false)),
	call.Several("aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)"+
		" -> (Tensor, Tensor, Tensor)", layerNorm(true)),
	call.Several("aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
		rmsNorm(false)),
	call.Several("aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)",
		rmsNorm(true)),
	call.Several("aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None,"+
		" float eps=1.0000000000000001e-05, bool cudnn_enabled=True) -> Tensor", groupNorm),
	call.Several("aten::native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group,"+
		" float eps) -> (Tensor, Tensor, Tensor)", nativeGroupNorm),
	call.Several("aten::_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor", weightNorm(false)),
	call.Several("aten::_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> (Tensor, Tensor)", weightNorm(true)),
	call.One("aten::norm_except_dim(Tensor v, int pow=2, int dim=0) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
		return normExcept(c, c.Tensor("v"), c.Float("pow"), c.Int("dim"))
	}),
}

// statistics returns the mean and the reciprocal standard deviation of r along dims, in float32 for half precision.
func statistics(b *cells.Builder, r *cells.Ref, dims []int, eps float64) (mean, scale *cells.Ref, err error) {
	d := r.DType()
	if d.IsHalf() {
		d = tensor.Float32
	}
	if r, err = b.Cast(r, d); err != nil {
		return nil, nil, err
	}
	if mean, err = b.Fold("mean", r, dims, true, graph.Attrs{"dtype": d}); err != nil {
		return nil, nil, err
	}
	if scale, err = b.Fold("var", r, dims, true, graph.Attrs{"correction": 0.0}); err != nil {
		return nil, nil, err
	}
	if scale, err = b.Combine("add", nil, scale, eps); err != nil {
		return nil, nil, err
	}
	scale, err = b.Apply("rsqrt", nil, scale)
	return mean, scale, err
}

// batchNorm gives the result and further ones, which are empty unless the statistics are the batch's.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func batchNorm(further int) func(c *call.Call) error {
	return func(c *call.Call) error {
		x, w, b := c.Tensor("input"), c.OptTensor("weight"), c.OptTensor("bias")
		mean, variance := c.OptTensor("running_mean"), c.OptTensor("running_var")
		eps := "eps"
		if c.Schema.Has("epsilon") {
			eps = "epsilon"
		}
		attrs := graph.Attrs{"eps": c.Float(eps)}
		if c.Err != nil {
			return c.Err
		}
		if x.Rank() < 2 {
			return fmt.Errorf("%v has no channels", x.Shape())
		}
		if c.Bool("training") || mean == nil || variance == nil {
			return batchNormTraining(c, x, further)
		}
		out, err := c.Emit1("batch_norm", attrs, c.Read(x), c.Read(w), c.Read(b), c.Read(mean), c.Read(variance))
		if err != nil {
			return err
		}
		c.Set(out)
		return emptyResults(c, further, mean.DType())
	}
}

// emptyResults gives what is left of a batch normalisation's further results: statistics that were not computed, and
// the memory that PyTorch's kernels reserve for a backward pass.
func emptyResults(c *call.Call, further int, d tensor.DType) error {
	for len(c.Results) <= further {
		if len(c.Results) == 3 {
			d = tensor.UInt8
		}
		empty, err := c.Full(0, d, tensor.Shape{0})
		if err != nil {
			return err
		}
		c.Results = append(c.Results, empty)
	}
	return nil
}

// batchNormFunctional is batchNorm that leaves the running statistics as they are and gives them, moved, as results.
func batchNormFunctional(further int) func(c *call.Call) error {
	return func(c *call.Call) error {
		for _, name := range []string{"running_mean", "running_var"} {
			r, err := c.Copy(c.Tensor(name))
			if err != nil {
				return err
			}
			c.Args[name] = r
		}
		if err := batchNorm(further)(c); err != nil {
			return err
		}
		c.Results = append(c.Results, c.Args["running_mean"], c.Args["running_var"])
		return nil
	}
}

// inTraining is a normalisation that always uses the batch's statistics.
func inTraining(build func(c *call.Call) error) func(c *call.Call) error {
	return func(c *call.Call) error {
		c.Args["training"] = true
		return build(c)
	}
}

// batchNormTraining normalises by the batch's own mean and variance and moves the running ones towards them.
func batchNormTraining(c *call.Call, x *cells.Ref, further int) error {
	eps, momentum := "eps", "momentum"
	if c.Schema.Has("epsilon") {
		eps, momentum = "epsilon", "exponential_average_factor"
	}
	dims := append([]int{0}, cells.AllDims(x.Rank())[2:]...)
	d := x.DType()
	if d.IsHalf() {
		d = tensor.Float32
	}
	wide, err := c.Cast(x, d)
	if err != nil {
		return err
	}
	mean, err := c.Fold("mean", wide, dims, false, graph.Attrs{"dtype": d})
	if err != nil {
		return err
	}
	variance, err := c.Fold("var", wide, dims, false, graph.Attrs{"correction": 0.0})
	if err != nil {
		return err
	}
	out, err := c.Emit1("batch_norm", graph.Attrs{"eps": c.Float(eps)},
		c.Read(x), c.Read(c.OptTensor("weight")), c.Read(c.OptTensor("bias")), c.Read(mean), c.Read(variance))
	if err != nil {
		return err
	}
	c.Set(out)
	if further > 0 {
		scale, err := c.Combine("add", nil, variance, c.Float(eps))
		if err != nil {
			return err
		}
		if scale, err = c.Apply("rsqrt", nil, scale); err != nil {
			return err
		}
		c.Set(out, mean, scale)
	}
	if err := emptyResults(c, further, d); err != nil {
		return err
	}
	if !c.Bool("training") {
		return c.Err
	}
	n := float64(cells.NumElements(x.Shape())) / max(1, float64(x.Shape()[1]))
	unbiased, err := c.Combine("mul", nil, variance, n/(n-1))
	if err != nil {
		return err
	}
	for _, running := range []struct{ old, now *cells.Ref }{
		{c.OptTensor("running_mean"), mean}, {c.OptTensor("running_var"), unbiased},
	} {
		if running.old == nil {
			continue
		}
		if err := moveTowards(c.Builder, running.old, running.now, c.Float(momentum)); err != nil {
			return err
		}
	}
	return c.Err
}

// moveTowards: old = (1 − by) × old + by × now, in place.
func moveTowards(b *cells.Builder, old, now *cells.Ref, by float64) error {
	kept, err := b.Combine("mul", nil, old, 1-by)
	if err != nil {
		return err
	}
	now, err = b.Combine("mul", nil, now, by)
	if err != nil {
		return err
	}
	sum, err := b.Combine("add", nil, kept, now)
	if err != nil {
		return err
	}
	return b.Write(old, sum)
}

func instanceNorm(c *call.Call) error {
	x := c.Tensor("input")
	if c.Err != nil {
		return c.Err
	}
	if x.Rank() < 2 {
		return fmt.Errorf("%v has no channels", x.Shape())
	}
	operands := []graph.Operand{c.Read(x), c.Read(c.OptTensor("weight")), c.Read(c.OptTensor("bias"))}
	if !c.Bool("use_input_stats") {
		mean, variance := c.Tensor("running_mean"), c.Tensor("running_var")
		return c.Give(
			"batch_norm", graph.Attrs{"eps": c.Float("eps")}, append(operands, c.Read(mean), c.Read(variance))...,
		)
	}
	if c.Has("running_mean") {
		return &cells.UnsupportedError{What: "instance_norm that changes its running statistics; export after model.eval()"}
	}
	return c.Give("group_norm", graph.Attrs{"groups": x.Shape()[1], "eps": c.Float("eps")}, operands...)
}

// lastDims checks the normalised shape and returns how many dimensions it has.
func lastDims(c *call.Call, x *cells.Ref) (int, error) {
	shape := c.Ints("normalized_shape")
	at := x.Rank() - len(shape)
	if len(shape) == 0 || at < 0 || !x.Shape()[at:].Equal(shape) {
		return 0, fmt.Errorf("%v does not end in %v", x.Shape(), shape)
	}
	return len(shape), c.Err
}

// layerNorm gives the mean and scale of each row too, where the schema has them.
func layerNorm(further bool) func(c *call.Call) error {
	return func(c *call.Call) error {
		x := c.Tensor("input")
		n, err := lastDims(c, x)
		if err != nil {
			return err
		}
		eps := c.Float("eps")
		w := c.OptTensor("weight")
		err = c.Give(
			"layer_norm", graph.Attrs{"dims": n, "eps": eps}, c.Read(x), c.Read(w), c.Read(c.OptTensor("bias")),
		)
		if err != nil || !further {
			return err
		}
		return giveStatistics(c, x, cells.AllDims(x.Rank())[x.Rank()-n:], eps, w)
	}
}

// giveStatistics adds the mean and scale to the results, in the dtype of the parameters.
func giveStatistics(c *call.Call, x *cells.Ref, dims []int, eps float64, parameter *cells.Ref) error {
	mean, scale, err := statistics(c.Builder, x, dims, eps)
	if err != nil {
		return err
	}
	d := x.DType()
	if parameter != nil {
		d = parameter.DType()
	}
	for _, r := range []*cells.Ref{mean, scale} {
		if r, err = c.Cast(r, d); err != nil {
			return err
		}
		c.Results = append(c.Results, r)
	}
	return nil
}

// epsilon returns the distance from one to the next number of the dtype that d is computed in.
func epsilon(d tensor.DType) float64 {
	if d == tensor.Float64 {
		return math.Ldexp(1, -52)
	}
	return math.Ldexp(1, -23)
}

func rmsNorm(further bool) func(c *call.Call) error {
	return func(c *call.Call) error {
		x := c.Tensor("input")
		n, err := lastDims(c, x)
		if err != nil {
			return err
		}
		eps := c.OptFloat("eps", epsilon(x.DType()))
		err = c.Give("rms_norm", graph.Attrs{"dims": n, "eps": eps}, c.Read(x), c.Read(c.OptTensor("weight")))
		if err != nil || !further {
			return err
		}
		wide, err := c.Converted(x, tensor.Float32)
		if err != nil {
			return err
		}
		squares, err := c.Apply("square", nil, wide)
		if err != nil {
			return err
		}
		scale, err := c.Fold("mean", squares, cells.AllDims(x.Rank())[x.Rank()-n:], true,
			graph.Attrs{"dtype": wide.DType()})
		if err != nil {
			return err
		}
		if scale, err = c.Combine("add", nil, scale, eps); err != nil {
			return err
		}
		if scale, err = c.Apply("rsqrt", nil, scale); err != nil {
			return err
		}
		c.Results = append(c.Results, scale)
		return nil
	}
}

func groupNorm(c *call.Call) error {
	return c.Give("group_norm", graph.Attrs{"groups": c.Int("num_groups"), "eps": c.Float("eps")},
		c.Read(c.Tensor("input")), c.Read(c.OptTensor("weight")), c.Read(c.OptTensor("bias")))
}

// nativeGroupNorm has the sizes as arguments: the input counts as [N C HxW].
func nativeGroupNorm(c *call.Call) error {
	x, groups, eps := c.Tensor("input"), c.Int("group"), c.Float("eps")
	n, channels, pixels := c.Int("N"), c.Int("C"), c.Int("HxW")
	w := c.OptTensor("weight")
	if c.Err != nil {
		return c.Err
	}
	if _, err := (tensor.Shape{n, channels, pixels}).NumElements(); err != nil || groups < 1 || channels%groups != 0 {
		return fmt.Errorf("%d groups of %d channels of %d × %d", groups, channels, n, pixels)
	}
	whole := x
	if x.Rank() < 2 || x.Shape()[0] != n || x.Shape()[1] != channels {
		var err error
		if whole, err = c.Reshape(x, tensor.Shape{n, channels, pixels}); err != nil {
			return err
		}
	}
	out, err := c.Emit1("group_norm", graph.Attrs{"groups": groups, "eps": eps},
		c.Read(whole), c.Read(w), c.Read(c.OptTensor("bias")))
	if err != nil {
		return err
	}
	if out, err = c.Reshape(out, x.Shape()); err != nil {
		return err
	}
	c.Set(out)
	rows, err := c.Reshape(x, tensor.Shape{n, groups, channels / groups * pixels})
	if err != nil {
		return err
	}
	if err := giveStatistics(c, rows, []int{2}, eps, w); err != nil {
		return err
	}
	for i, r := range c.Results[1:] {
		c.Results[i+1] = c.Squeeze(r.(*cells.Ref), func(d int) bool { return d == 2 })
	}
	return nil
}

// normExcept returns the norms of v over all dimensions but one, which is kept; over all for −1.
func normExcept(c *call.Call, v *cells.Ref, ord float64, dim int) (*cells.Ref, error) {
	if dim == -1 {
		return norm(c.Builder, v, ord, cells.AllDims(v.Rank()), false, v.DType())
	}
	d := c.WrapDim(dim, v.Rank())
	if c.Err != nil {
		return nil, c.Err
	}
	return norm(c.Builder, v, ord, slices.DeleteFunc(cells.AllDims(v.Rank()), func(i int) bool { return i == d }),
		true, v.DType())
}

// weightNorm: v × (g ÷ |v|).
func weightNorm(further bool) func(c *call.Call) error {
	return func(c *call.Call) error {
		v, g := c.Tensor("v"), c.Tensor("g")
		length, err := normExcept(c, v, 2, c.Int("dim"))
		if err != nil {
			return err
		}
		if c.Err != nil {
			return c.Err
		}
		scale, err := c.Combine("div", nil, g, length)
		if err != nil {
			return err
		}
		w, err := c.Combine("mul", nil, v, scale)
		if err != nil {
			return err
		}
		c.Set(w)
		if further {
			c.Set(w, length)
		}
		return nil
	}
}
