package elements

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// scanTargets are softmax and the ops whose results depend on all elements before.
var scanTargets = slices.Concat(
	call.Twins("aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", scanOf("cumsum")),
	call.Twins("aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", scanOf("cumprod")),
	[]call.Overload{
		call.One("aten::logcumsumexp(Tensor self, int dim) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
			r, err := asFloat(c.Builder, c.Tensor("self"))
			if err != nil {
				return nil, err
			}
			return alongDim(c, "logcumsumexp", r, nil)
		}),
		call.Several("aten::cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)", giveAlong("cummax", nil)),
		call.Several("aten::cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)", giveAlong("cummin", nil)),
		call.One("aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
			softmax("softmax", false)),
		call.One("aten::special_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
			softmax("softmax", false)),
		call.One("aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", softmax("softmax", false)),
		call.One("aten::_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
			softmax("softmax", true)),
		call.One(
			"aten::log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
			softmax("log_softmax", false),
		),
		call.One("aten::special_log_softmax(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
			softmax("log_softmax", false)),
		call.One("aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor",
			softmax("log_softmax", false)),
		call.One("aten::diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor", diff),
	},
)

// alongDim emits an op of one result along argument "dim".
func alongDim(c *call.Call, kind graph.Kind, r *cells.Ref, attrs graph.Attrs) (*cells.Ref, error) {
	all := graph.Attrs{"dim": c.Dim("dim", r.Rank())}
	for name, v := range attrs {
		all[name] = v
	}
	if c.Err != nil {
		return nil, c.Err
	}
	return c.Emit1(kind, all, c.Read(r))
}

// giveAlong gives all results of an op along argument "dim" with further attributes.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func giveAlong(kind graph.Kind, more func(c *call.Call) graph.Attrs) func(c *call.Call) error {
	return func(c *call.Call) error {
		r := c.Tensor("self")
		attrs := graph.Attrs{}
		if more != nil {
			attrs = more(c)
		}
		if _, ok := attrs["dim"]; !ok {
			attrs["dim"] = c.Dim("dim", r.Rank())
		}
		return c.Give(kind, attrs, c.Read(r))
	}
}

func scanOf(kind graph.Kind) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		r := c.Tensor("self")
		r, err := c.Cast(r, c.DType("dtype", cells.SumDType(r.DType())))
		if err != nil {
			return nil, err
		}
		return alongDim(c, kind, r, nil)
	}
}

// softmax is computed in argument "dtype", or in float32 for "half_to_float".
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func softmax(kind graph.Kind, safe bool) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		r := c.Tensor("self")
		d := r.DType()
		if c.Schema.Has("half_to_float") {
			if c.Bool("half_to_float") {
				d = tensor.Float32
			}
		} else {
			d = c.DType("dtype", d)
		}
		r, err := c.Cast(r, d)
		if err != nil {
			return nil, err
		}
		return alongDim(c, kind, r, graph.Attrs{"safe": safe})
	}
}

// diff takes from each element the one before, n times.
func diff(c *call.Call) (*cells.Ref, error) {
	r := c.Tensor("self")
	d, n := c.Dim("dim", r.Rank()), c.Int("n")
	if c.Err != nil {
		return nil, c.Err
	}
	if r.Rank() == 0 || n < 0 {
		return nil, fmt.Errorf("differences of %v, %d times", r.Shape(), n)
	}
	parts := []*cells.Ref{r}
	if p := c.OptTensor("prepend"); p != nil {
		parts = slices.Insert(parts, 0, p)
	}
	if p := c.OptTensor("append"); p != nil {
		parts = append(parts, p)
	}
	if n == 0 {
		return c.Copy(r)
	}
	r, err := c.Cat(parts, d)
	if err != nil {
		return nil, err
	}
	size := r.Shape()[d]
	if size == 0 {
		return r, nil
	}
	kind := graph.Kind("sub")
	if r.DType() == tensor.Bool {
		kind = "ne"
	}
	for range min(n, size) {
		size = r.Shape()[d]
		if r, err = c.Apply(kind, nil, c.Slice(r, d, 1, size, 1), c.Slice(r, d, 0, size-1, 1)); err != nil {
			return nil, err
		}
	}
	return r, nil
}
