package elements

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// sortTargets are the ops that order elements.
var sortTargets = []call.Overload{
	call.Several("aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
		giveAlong("sort", descending)),
	call.Several("aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False)"+
		" -> (Tensor values, Tensor indices)", giveAlong("sort", descending)),
	call.One("aten::argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor", argsort),
	call.One("aten::argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor", argsort),
	call.One("aten::msort(Tensor self) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
		refs, err := c.Emit("sort", graph.Attrs{"dim": 0}, c.Read(c.Tensor("self")))
		if err != nil {
			return nil, err
		}
		return refs[0], nil
	}),
	call.Several("aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True)"+
		" -> (Tensor values, Tensor indices)", giveAlong("topk", func(c *call.Call) graph.Attrs {
		return graph.Attrs{"k": c.Int("k"), "largest": c.Bool("largest")}
	})),
	call.Several("aten::kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
		giveAlong("kthvalue", func(c *call.Call) graph.Attrs {
			return graph.Attrs{"k": c.Int("k"), "keepdim": c.Bool("keepdim")}
		})),
	call.Several("aten::median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
		giveAlong("median", keepdim(false))),
	call.Several("aten::nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
		giveAlong("median", keepdim(true))),
	call.Several("aten::mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
		giveAlong("mode", keepdim(false))),
	call.One("aten::median(Tensor self) -> Tensor", medianOfAll(false)),
	call.One("aten::nanmedian(Tensor self) -> Tensor", medianOfAll(true)),
}

func descending(c *call.Call) graph.Attrs { return graph.Attrs{"descending": c.Bool("descending")} }

func keepdim(ignoreNaN bool) func(c *call.Call) graph.Attrs {
	return func(c *call.Call) graph.Attrs {
		return graph.Attrs{"keepdim": c.Bool("keepdim"), "ignore_nan": ignoreNaN}
	}
}

func argsort(c *call.Call) (*cells.Ref, error) {
	r := c.Tensor("self")
	attrs := descending(c)
	attrs["dim"] = c.Dim("dim", r.Rank())
	if c.Err != nil {
		return nil, c.Err
	}
	refs, err := c.Emit("sort", attrs, c.Read(r))
	if err != nil {
		return nil, err
	}
	return refs[1], nil
}

func medianOfAll(ignoreNaN bool) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		r := c.Tensor("self")
		if c.Err != nil {
			return nil, c.Err
		}
		flat, err := c.Reshape(r, tensor.Shape{int(cells.NumElements(r.Shape()))})
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
