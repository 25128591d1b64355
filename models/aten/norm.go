package aten

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// normTargets are the normalisations.
var normTargets = []atenOp{
	{"aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var," +
		" bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor", batchNorm(0)},
	{"aten::_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean," +
		" Tensor(b!) running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)", batchNorm(2)},
	{"aten::_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training," +
		" float momentum, float eps) -> (Tensor, Tensor, Tensor)", batchNorm(2)},
	{"aten::_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean," +
		" Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)", batchNorm(2)},
	{"aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var," +
		" bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)", batchNorm(2)},
	{"aten::_batch_norm_no_update(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean," +
		" Tensor? running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)", batchNorm(3)},
	{"aten::cudnn_batch_norm(Tensor input, Tensor weight, Tensor? bias, Tensor? running_mean, Tensor? running_var," +
		" bool training, float exponential_average_factor, float epsilon) -> (Tensor, Tensor, Tensor, Tensor)", batchNorm(3)},
	{"aten::_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean," +
		" Tensor running_var, bool training, float momentum, float eps)" +
		" -> (Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)", batchNormFunctional(2)},
	{"aten::_batch_norm_with_update(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean," +
		" Tensor(b!) running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
		inTraining(batchNorm(3))},
	{"aten::_batch_norm_with_update_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean," +
		" Tensor running_var, float momentum, float eps)" +
		" -> (Tensor, Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)",
		inTraining(batchNormFunctional(3))},
	{"aten::_batch_norm_impl_index(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean," +
		" Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled)" +
		" -> (Tensor, Tensor, Tensor, Tensor, int)", func(c *call) error {
		if err := batchNorm(3)(c); err != nil {
			return err
		}
		c.results = append(c.results, 0) // the number of PyTorch's own kernel
		return nil
	}},
	{"aten::instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var," +
		" bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor", instanceNorm},
	{"aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None," +
		" float eps=1.0000000000000001e-05, bool cudnn_enable=True) -> Tensor", layerNorm(false)},
	{"aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)" +
		" -> (Tensor, Tensor, Tensor)", layerNorm(true)},
	{"aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
		rmsNorm(false)},
	{"aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)",
		rmsNorm(true)},
	{"aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None," +
		" float eps=1.0000000000000001e-05, bool cudnn_enabled=True) -> Tensor", groupNorm},
	{"aten::native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group," +
		" float eps) -> (Tensor, Tensor, Tensor)", nativeGroupNorm},
	{"aten::_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor", weightNorm(false)},
	{"aten::_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> (Tensor, Tensor)", weightNorm(true)},
	op("aten::norm_except_dim(Tensor v, int pow=2, int dim=0) -> Tensor", func(c *call) (*Ref, error) {
		return c.normExcept(c.tensor("v"), c.float("pow"), c.int("dim"))
	}),
}

// statistics returns the mean and the reciprocal standard deviation of r along dims, in float32 for half precision.
func (b *Builder) statistics(r *Ref, dims []int, eps float64) (mean, scale *Ref, err error) {
	d := r.dtype
	if d.IsHalf() {
		d = tensor.Float32
	}
	if r, err = b.Cast(r, d); err != nil {
		return nil, nil, err
	}
	if mean, err = b.fold("mean", r, dims, true, graph.Attrs{"dtype": d}); err != nil {
		return nil, nil, err
	}
	if scale, err = b.fold("var", r, dims, true, graph.Attrs{"correction": 0.0}); err != nil {
		return nil, nil, err
	}
	if scale, err = b.combine("add", nil, scale, eps); err != nil {
		return nil, nil, err
	}
	scale, err = b.apply("rsqrt", nil, scale)
	return mean, scale, err
}

// batchNorm gives the result and further ones, which are empty unless the statistics are the batch's.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func batchNorm(further int) func(c *call) error {
	return func(c *call) error {
		x, w, b := c.tensor("input"), c.optTensor("weight"), c.optTensor("bias")
		mean, variance := c.optTensor("running_mean"), c.optTensor("running_var")
		eps := "eps"
		if c.schema.has("epsilon") {
			eps = "epsilon"
		}
		attrs := graph.Attrs{"eps": c.float(eps)}
		if c.err != nil {
			return c.err
		}
		if x.rank() < 2 {
			return fmt.Errorf("%v has no channels", x.shape())
		}
		if c.bool("training") || mean == nil || variance == nil {
			return c.batchNormTraining(x, further)
		}
		out, err := c.Emit1("batch_norm", attrs, c.Read(x), c.Read(w), c.Read(b), c.Read(mean), c.Read(variance))
		if err != nil {
			return err
		}
		c.set(out)
		return c.emptyResults(further, mean.dtype)
	}
}

// emptyResults gives what is left of a batch normalisation's further results: statistics that were not computed, and
// the memory that PyTorch's kernels reserve for a backward pass.
func (c *call) emptyResults(further int, d tensor.DType) error {
	for len(c.results) <= further {
		if len(c.results) == 3 {
			d = tensor.UInt8
		}
		empty, err := c.full(0, d, tensor.Shape{0})
		if err != nil {
			return err
		}
		c.results = append(c.results, empty)
	}
	return nil
}

// batchNormFunctional is batchNorm that leaves the running statistics as they are and gives them, moved, as results.
func batchNormFunctional(further int) func(c *call) error {
	return func(c *call) error {
		for _, name := range []string{"running_mean", "running_var"} {
			r, err := c.copy(c.tensor(name))
			if err != nil {
				return err
			}
			c.args[name] = r
		}
		if err := batchNorm(further)(c); err != nil {
			return err
		}
		c.results = append(c.results, c.args["running_mean"], c.args["running_var"])
		return nil
	}
}

// inTraining is a normalisation that always uses the batch's statistics.
func inTraining(build func(c *call) error) func(c *call) error {
	return func(c *call) error {
		c.args["training"] = true
		return build(c)
	}
}

// batchNormTraining normalises by the batch's own mean and variance and moves the running ones towards them.
func (c *call) batchNormTraining(x *Ref, further int) error {
	eps, momentum := "eps", "momentum"
	if c.schema.has("epsilon") {
		eps, momentum = "epsilon", "exponential_average_factor"
	}
	dims := append([]int{0}, allDims(x.rank())[2:]...)
	d := x.dtype
	if d.IsHalf() {
		d = tensor.Float32
	}
	wide, err := c.Cast(x, d)
	if err != nil {
		return err
	}
	mean, err := c.fold("mean", wide, dims, false, graph.Attrs{"dtype": d})
	if err != nil {
		return err
	}
	variance, err := c.fold("var", wide, dims, false, graph.Attrs{"correction": 0.0})
	if err != nil {
		return err
	}
	out, err := c.Emit1("batch_norm", graph.Attrs{"eps": c.float(eps)},
		c.Read(x), c.Read(c.optTensor("weight")), c.Read(c.optTensor("bias")), c.Read(mean), c.Read(variance))
	if err != nil {
		return err
	}
	c.set(out)
	if further > 0 {
		scale, err := c.combine("add", nil, variance, c.float(eps))
		if err != nil {
			return err
		}
		if scale, err = c.apply("rsqrt", nil, scale); err != nil {
			return err
		}
		c.set(out, mean, scale)
	}
	if err := c.emptyResults(further, d); err != nil {
		return err
	}
	if !c.bool("training") {
		return c.err
	}
	n := float64(NumElements(x.shape())) / max(1, float64(x.shape()[1]))
	unbiased, err := c.combine("mul", nil, variance, n/(n-1))
	if err != nil {
		return err
	}
	for _, running := range []struct{ old, now *Ref }{
		{c.optTensor("running_mean"), mean}, {c.optTensor("running_var"), unbiased},
	} {
		if running.old == nil {
			continue
		}
		if err := c.moveTowards(running.old, running.now, c.float(momentum)); err != nil {
			return err
		}
	}
	return c.err
}

// moveTowards: old = (1 − by) × old + by × now, in place.
func (b *Builder) moveTowards(old, now *Ref, by float64) error {
	kept, err := b.combine("mul", nil, old, 1-by)
	if err != nil {
		return err
	}
	now, err = b.combine("mul", nil, now, by)
	if err != nil {
		return err
	}
	sum, err := b.combine("add", nil, kept, now)
	if err != nil {
		return err
	}
	return b.Write(old, sum)
}

func instanceNorm(c *call) error {
	x := c.tensor("input")
	if c.err != nil {
		return c.err
	}
	if x.rank() < 2 {
		return fmt.Errorf("%v has no channels", x.shape())
	}
	operands := []graph.Operand{c.Read(x), c.Read(c.optTensor("weight")), c.Read(c.optTensor("bias"))}
	if !c.bool("use_input_stats") {
		mean, variance := c.tensor("running_mean"), c.tensor("running_var")
		return c.give(
			"batch_norm", graph.Attrs{"eps": c.float("eps")}, append(operands, c.Read(mean), c.Read(variance))...,
		)
	}
	if c.has("running_mean") {
		return &UnsupportedError{What: "instance_norm that changes its running statistics; export after model.eval()"}
	}
	return c.give("group_norm", graph.Attrs{"groups": x.shape()[1], "eps": c.float("eps")}, operands...)
}

// lastDims checks the normalised shape and returns how many dimensions it has.
func (c *call) lastDims(x *Ref) (int, error) {
	shape := c.ints("normalized_shape")
	at := x.rank() - len(shape)
	if len(shape) == 0 || at < 0 || !x.shape()[at:].Equal(shape) {
		return 0, fmt.Errorf("%v does not end in %v", x.shape(), shape)
	}
	return len(shape), c.err
}

// layerNorm gives the mean and scale of each row too, where the schema has them.
func layerNorm(further bool) func(c *call) error {
	return func(c *call) error {
		x := c.tensor("input")
		n, err := c.lastDims(x)
		if err != nil {
			return err
		}
		eps := c.float("eps")
		w := c.optTensor("weight")
		err = c.give(
			"layer_norm", graph.Attrs{"dims": n, "eps": eps}, c.Read(x), c.Read(w), c.Read(c.optTensor("bias")),
		)
		if err != nil || !further {
			return err
		}
		return c.giveStatistics(x, allDims(x.rank())[x.rank()-n:], eps, w)
	}
}

// giveStatistics adds the mean and scale to the results, in the dtype of the parameters.
func (c *call) giveStatistics(x *Ref, dims []int, eps float64, parameter *Ref) error {
	mean, scale, err := c.statistics(x, dims, eps)
	if err != nil {
		return err
	}
	d := x.dtype
	if parameter != nil {
		d = parameter.dtype
	}
	for _, r := range []*Ref{mean, scale} {
		if r, err = c.Cast(r, d); err != nil {
			return err
		}
		c.results = append(c.results, r)
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

func rmsNorm(further bool) func(c *call) error {
	return func(c *call) error {
		x := c.tensor("input")
		n, err := c.lastDims(x)
		if err != nil {
			return err
		}
		eps := c.optFloat("eps", epsilon(x.dtype))
		err = c.give("rms_norm", graph.Attrs{"dims": n, "eps": eps}, c.Read(x), c.Read(c.optTensor("weight")))
		if err != nil || !further {
			return err
		}
		wide, err := c.converted(x, tensor.Float32)
		if err != nil {
			return err
		}
		squares, err := c.apply("square", nil, wide)
		if err != nil {
			return err
		}
		scale, err := c.fold("mean", squares, allDims(x.rank())[x.rank()-n:], true, graph.Attrs{"dtype": wide.dtype})
		if err != nil {
			return err
		}
		if scale, err = c.combine("add", nil, scale, eps); err != nil {
			return err
		}
		if scale, err = c.apply("rsqrt", nil, scale); err != nil {
			return err
		}
		c.results = append(c.results, scale)
		return nil
	}
}

func groupNorm(c *call) error {
	return c.give("group_norm", graph.Attrs{"groups": c.int("num_groups"), "eps": c.float("eps")},
		c.Read(c.tensor("input")), c.Read(c.optTensor("weight")), c.Read(c.optTensor("bias")))
}

// nativeGroupNorm has the sizes as arguments: the input counts as [N C HxW].
func nativeGroupNorm(c *call) error {
	x, groups, eps := c.tensor("input"), c.int("group"), c.float("eps")
	n, channels, pixels := c.int("N"), c.int("C"), c.int("HxW")
	w := c.optTensor("weight")
	if c.err != nil {
		return c.err
	}
	if _, err := (tensor.Shape{n, channels, pixels}).NumElements(); err != nil || groups < 1 || channels%groups != 0 {
		return fmt.Errorf("%d groups of %d channels of %d × %d", groups, channels, n, pixels)
	}
	whole := x
	if x.rank() < 2 || x.shape()[0] != n || x.shape()[1] != channels {
		var err error
		if whole, err = c.Reshape(x, tensor.Shape{n, channels, pixels}); err != nil {
			return err
		}
	}
	out, err := c.Emit1("group_norm", graph.Attrs{"groups": groups, "eps": eps},
		c.Read(whole), c.Read(w), c.Read(c.optTensor("bias")))
	if err != nil {
		return err
	}
	if out, err = c.Reshape(out, x.shape()); err != nil {
		return err
	}
	c.set(out)
	rows, err := c.Reshape(x, tensor.Shape{n, groups, channels / groups * pixels})
	if err != nil {
		return err
	}
	if err := c.giveStatistics(rows, []int{2}, eps, w); err != nil {
		return err
	}
	for i, r := range c.results[1:] {
		c.results[i+1] = c.squeeze(r.(*Ref), func(d int) bool { return d == 2 })
	}
	return nil
}

// normExcept returns the norms of v over all dimensions but one, which is kept; over all for −1.
func (c *call) normExcept(v *Ref, ord float64, dim int) (*Ref, error) {
	if dim == -1 {
		return c.norm(v, ord, allDims(v.rank()), false, v.dtype)
	}
	d := c.wrapDim(dim, v.rank())
	if c.err != nil {
		return nil, c.err
	}
	return c.norm(v, ord, slices.DeleteFunc(allDims(v.rank()), func(i int) bool { return i == d }), true, v.dtype)
}

// weightNorm: v × (g ÷ |v|).
func weightNorm(further bool) func(c *call) error {
	return func(c *call) error {
		v, g := c.tensor("v"), c.tensor("g")
		length, err := c.normExcept(v, 2, c.int("dim"))
		if err != nil {
			return err
		}
		if c.err != nil {
			return c.err
		}
		scale, err := c.combine("div", nil, g, length)
		if err != nil {
			return err
		}
		w, err := c.combine("mul", nil, v, scale)
		if err != nil {
			return err
		}
		c.set(w)
		if further {
			c.set(w, length)
		}
		return nil
	}
}
