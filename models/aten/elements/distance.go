package elements

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// distanceTargets are the ops that compare vectors.
var distanceTargets = []call.Overload{
	call.One("aten::cdist(Tensor x1, Tensor x2, float p=2., int? compute_mode=None) -> Tensor", cdist),
	call.One("aten::_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor", cdist),
	call.One("aten::_euclidean_dist(Tensor x1, Tensor x2) -> Tensor", cdist),
	call.One("aten::pdist(Tensor self, float p=2.) -> Tensor", pdist),
	call.One("aten::_pdist_forward(Tensor self, float p=2.) -> Tensor", pdist),
	call.One("aten::pairwise_distance(Tensor x1, Tensor x2, float p=2., float eps=9.9999999999999995e-07, bool keepdim=False)"+
		" -> Tensor", pairwiseDistance),
	call.One("aten::dist(Tensor self, Tensor other, Scalar p=2) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
		d, err := c.Combine("sub", nil, c.Operands("self", "other")...)
		p := c.Float("p")
		if err != nil || c.Err != nil {
			return nil, err
		}
		return norm(c.Builder, d, p, cells.AllDims(d.Rank()), false, d.DType())
	}),
	call.One("aten::cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor", cosineSimilarity),
}

// distances emits "cdist" for batches of rows.
func distances(b *cells.Builder, x, y *cells.Ref, p float64) (*cells.Ref, error) {
	d, err := cells.ResultType(x, y)
	if err != nil {
		return nil, err
	}
	if x.Rank() < 2 || y.Rank() < 2 {
		return nil, fmt.Errorf("distances of %v and %v", x.Shape(), y.Shape())
	}
	n := x.Rank() - 2
	batch, err := cells.Broadcast(x.Shape()[:n], y.Shape()[:y.Rank()-2])
	if err != nil {
		return nil, err
	}
	for _, r := range []**cells.Ref{&x, &y} {
		full := append(append(tensor.Shape{}, batch...), (*r).Shape()[(*r).Rank()-2:]...)
		if *r, err = b.Cast(*r, d); err != nil {
			return nil, err
		}
		if *r, err = b.Expand(*r, full); err != nil {
			return nil, err
		}
	}
	return b.Apply("cdist", graph.Attrs{"p": p}, x, y)
}

func cdist(c *call.Call) (*cells.Ref, error) {
	x, y, p := c.Tensor("x1"), c.Tensor("x2"), 2.0
	if c.Schema.Has("p") {
		p = c.Float("p")
	}
	if c.Err != nil {
		return nil, c.Err
	}
	return distances(c.Builder, x, y, p)
}

// pdist gives the distances of each row to those after it.
func pdist(c *call.Call) (*cells.Ref, error) {
	r, p := c.Tensor("self"), c.Float("p")
	if c.Err != nil {
		return nil, c.Err
	}
	if r.Rank() != 2 {
		return nil, fmt.Errorf("distances within %v", r.Shape())
	}
	all, err := distances(c.Builder, r, r, p)
	if err != nil {
		return nil, err
	}
	n := r.Shape()[0]
	if n < 2 {
		return c.Full(0.0, r.DType(), tensor.Shape{0})
	}
	// Row i of the square holds n − 1 − i distances after the diagonal.
	parts := make([]*cells.Ref, n-1)
	for i := range parts {
		parts[i] = c.Slice(c.SelectAt(all, 0, i), 0, i+1, n, 1)
	}
	return c.Cat(parts, 0)
}

func pairwiseDistance(c *call.Call) (*cells.Ref, error) {
	d, err := c.Combine("sub", nil, c.Operands("x1", "x2")...)
	if err != nil {
		return nil, err
	}
	if d, err = c.Combine("add", nil, d, c.Float("eps")); err != nil {
		return nil, err
	}
	if c.Err != nil || d.Rank() == 0 {
		return nil, fmt.Errorf("distance of scalars")
	}
	return norm(c.Builder, d, c.Float("p"), []int{d.Rank() - 1}, c.Bool("keepdim"), d.DType())
}

// cosineSimilarity: Σ (x ÷ max(|x|, eps)) × (y ÷ max(|y|, eps)).
func cosineSimilarity(c *call.Call) (*cells.Ref, error) {
	refs, err := c.Promote(c.Operands("x1", "x2")...)
	if err != nil {
		return nil, err
	}
	d, eps := c.Dim("dim", refs[0].Rank()), c.Float("eps")
	if c.Err != nil || refs[0].Rank() == 0 {
		return nil, fmt.Errorf("similarity of %v", refs[0].Shape())
	}
	for i, r := range refs {
		length, err := norm(c.Builder, r, 2, []int{d}, true, r.DType())
		if err != nil {
			return nil, err
		}
		if length, err = c.Apply("clamp", graph.Attrs{"min": eps, "max": math.Inf(1)}, length); err != nil {
			return nil, err
		}
		if refs[i], err = c.Combine("div", nil, r, length); err != nil {
			return nil, err
		}
	}
	product, err := c.Apply("mul", nil, refs...)
	if err != nil {
		return nil, err
	}
	return c.Fold("sum", product, []int{d}, false, graph.Attrs{"dtype": product.DType()})
}
