package aten

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// scanTargets are softmax and the ops whose results depend on all elements before.
var scanTargets = slices.Concat(
	twins("aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", scanOf("cumsum")),
	twins("aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", scanOf("cumprod")),
	[]atenOp{
		op("aten::logcumsumexp(Tensor self, int dim) -> Tensor", func(c *call) (*Ref, error) {
			r, err := c.asFloat(c.tensor("self"))
			if err != nil {
				return nil, err
			}
			return c.alongDim("logcumsumexp", r, nil)
		}),
		{"aten::cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)", giveAlong("cummax", nil)},
		{"aten::cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)", giveAlong("cummin", nil)},
		op("aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", softmax("softmax", false)),
		op("aten::special_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", softmax("softmax", false)),
		op("aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", softmax("softmax", false)),
		op("aten::_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", softmax("softmax", true)),
		op(
			"aten::log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
			softmax("log_softmax", false),
		),
		op("aten::special_log_softmax(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
			softmax("log_softmax", false)),
		op("aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", softmax("log_softmax", false)),
		op("aten::diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor", diff),
	},
)

// alongDim emits an op of one result along argument "dim".
func (c *call) alongDim(kind graph.Kind, r *Ref, attrs graph.Attrs) (*Ref, error) {
	all := graph.Attrs{"dim": c.dim("dim", r.rank())}
	for name, v := range attrs {
		all[name] = v
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.Emit1(kind, all, c.Read(r))
}

// giveAlong gives all results of an op along argument "dim" with further attributes.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func giveAlong(kind graph.Kind, more func(c *call) graph.Attrs) func(c *call) error {
	return func(c *call) error {
		r := c.tensor("self")
		attrs := graph.Attrs{}
		if more != nil {
			attrs = more(c)
		}
		if _, ok := attrs["dim"]; !ok {
			attrs["dim"] = c.dim("dim", r.rank())
		}
		return c.give(kind, attrs, c.Read(r))
	}
}

func scanOf(kind graph.Kind) meaning {
	return func(c *call) (*Ref, error) {
		r := c.tensor("self")
		r, err := c.Cast(r, c.dtype("dtype", wide(r.dtype)))
		if err != nil {
			return nil, err
		}
		return c.alongDim(kind, r, nil)
	}
}

// softmax is computed in argument "dtype", or in float32 for "half_to_float".
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func softmax(kind graph.Kind, safe bool) meaning {
	return func(c *call) (*Ref, error) {
		r := c.tensor("self")
		d := r.dtype
		if c.schema.has("half_to_float") {
			if c.bool("half_to_float") {
				d = tensor.Float32
			}
		} else {
			d = c.dtype("dtype", d)
		}
		r, err := c.Cast(r, d)
		if err != nil {
			return nil, err
		}
		return c.alongDim(kind, r, graph.Attrs{"safe": safe})
	}
}

// diff takes from each element the one before, n times.
func diff(c *call) (*Ref, error) {
	r := c.tensor("self")
	d, n := c.dim("dim", r.rank()), c.int("n")
	if c.err != nil {
		return nil, c.err
	}
	if r.rank() == 0 || n < 0 {
		return nil, fmt.Errorf("differences of %v, %d times", r.shape(), n)
	}
	parts := []*Ref{r}
	if p := c.optTensor("prepend"); p != nil {
		parts = slices.Insert(parts, 0, p)
	}
	if p := c.optTensor("append"); p != nil {
		parts = append(parts, p)
	}
	if n == 0 {
		return c.copy(r)
	}
	r, err := c.cat(parts, d)
	if err != nil {
		return nil, err
	}
	size := r.shape()[d]
	if size == 0 {
		return r, nil
	}
	kind := graph.Kind("sub")
	if r.dtype == tensor.Bool {
		kind = "ne"
	}
	for range min(n, size) {
		size = r.shape()[d]
		if r, err = c.apply(kind, nil, c.slice(r, d, 1, size, 1), c.slice(r, d, 0, size-1, 1)); err != nil {
			return nil, err
		}
	}
	return r, nil
}
