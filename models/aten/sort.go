package aten

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// sortTargets are the ops that order elements.
var sortTargets = []atenOp{
	{"aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
		giveAlong("sort", descending)},
	{"aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False)" +
		" -> (Tensor values, Tensor indices)", giveAlong("sort", descending)},
	op("aten::argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor", argsort),
	op("aten::argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor", argsort),
	op("aten::msort(Tensor self) -> Tensor", func(c *call) (*Ref, error) {
		refs, err := c.Emit("sort", graph.Attrs{"dim": 0}, c.Read(c.tensor("self")))
		if err != nil {
			return nil, err
		}
		return refs[0], nil
	}),
	{"aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True)" +
		" -> (Tensor values, Tensor indices)", giveAlong("topk", func(c *call) graph.Attrs {
		return graph.Attrs{"k": c.int("k"), "largest": c.bool("largest")}
	})},
	{"aten::kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
		giveAlong("kthvalue", func(c *call) graph.Attrs {
			return graph.Attrs{"k": c.int("k"), "keepdim": c.bool("keepdim")}
		})},
	{"aten::median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
		giveAlong("median", keepdim(false))},
	{"aten::nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
		giveAlong("median", keepdim(true))},
	{"aten::mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
		giveAlong("mode", keepdim(false))},
	op("aten::median(Tensor self) -> Tensor", medianOfAll(false)),
	op("aten::nanmedian(Tensor self) -> Tensor", medianOfAll(true)),
}

func descending(c *call) graph.Attrs { return graph.Attrs{"descending": c.bool("descending")} }

func keepdim(ignoreNaN bool) func(c *call) graph.Attrs {
	return func(c *call) graph.Attrs {
		return graph.Attrs{"keepdim": c.bool("keepdim"), "ignore_nan": ignoreNaN}
	}
}

func argsort(c *call) (*Ref, error) {
	r := c.tensor("self")
	attrs := descending(c)
	attrs["dim"] = c.dim("dim", r.rank())
	if c.err != nil {
		return nil, c.err
	}
	refs, err := c.Emit("sort", attrs, c.Read(r))
	if err != nil {
		return nil, err
	}
	return refs[1], nil
}

func medianOfAll(ignoreNaN bool) meaning {
	return func(c *call) (*Ref, error) {
		r := c.tensor("self")
		if c.err != nil {
			return nil, c.err
		}
		flat, err := c.Reshape(r, tensor.Shape{int(NumElements(r.shape()))})
		if err != nil {
			return nil, err
		}
		refs, err := c.Emit("median", graph.Attrs{"dim": 0, "ignore_nan": ignoreNaN}, c.Read(flat))
		if err != nil {
			return nil, err
		}
		return refs[0], nil
	}
}
