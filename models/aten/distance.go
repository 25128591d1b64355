package aten

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// distanceTargets are the ops that compare vectors.
var distanceTargets = []atenOp{
	op("aten::cdist(Tensor x1, Tensor x2, float p=2., int? compute_mode=None) -> Tensor", cdist),
	op("aten::_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor", cdist),
	op("aten::_euclidean_dist(Tensor x1, Tensor x2) -> Tensor", cdist),
	op("aten::pdist(Tensor self, float p=2.) -> Tensor", pdist),
	op("aten::_pdist_forward(Tensor self, float p=2.) -> Tensor", pdist),
	op("aten::pairwise_distance(Tensor x1, Tensor x2, float p=2., float eps=9.9999999999999995e-07, bool keepdim=False)"+
		" -> Tensor", pairwiseDistance),
	op("aten::dist(Tensor self, Tensor other, Scalar p=2) -> Tensor", func(c *call) (*Ref, error) {
		d, err := c.combine("sub", nil, c.operands("self", "other")...)
		p := c.float("p")
		if err != nil || c.err != nil {
			return nil, err
		}
		return c.norm(d, p, allDims(d.rank()), false, d.dtype)
	}),
	op("aten::cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor", cosineSimilarity),
}

// distances emits "cdist" for batches of rows.
func (b *Builder) distances(x, y *Ref, p float64) (*Ref, error) {
	d, err := resultType(x, y)
	if err != nil {
		return nil, err
	}
	if x.rank() < 2 || y.rank() < 2 {
		return nil, fmt.Errorf("distances of %v and %v", x.shape(), y.shape())
	}
	n := x.rank() - 2
	batch, err := broadcast(x.shape()[:n], y.shape()[:y.rank()-2])
	if err != nil {
		return nil, err
	}
	for _, r := range []**Ref{&x, &y} {
		full := append(append(tensor.Shape{}, batch...), (*r).shape()[(*r).rank()-2:]...)
		if *r, err = b.Cast(*r, d); err != nil {
			return nil, err
		}
		if *r, err = b.expand(*r, full); err != nil {
			return nil, err
		}
	}
	return b.apply("cdist", graph.Attrs{"p": p}, x, y)
}

func cdist(c *call) (*Ref, error) {
	x, y, p := c.tensor("x1"), c.tensor("x2"), 2.0
	if c.schema.has("p") {
		p = c.float("p")
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.distances(x, y, p)
}

// pdist gives the distances of each row to those after it.
func pdist(c *call) (*Ref, error) {
	r, p := c.tensor("self"), c.float("p")
	if c.err != nil {
		return nil, c.err
	}
	if r.rank() != 2 {
		return nil, fmt.Errorf("distances within %v", r.shape())
	}
	all, err := c.distances(r, r, p)
	if err != nil {
		return nil, err
	}
	n := r.shape()[0]
	if n < 2 {
		return c.full(0.0, r.dtype, tensor.Shape{0})
	}
	// Row i of the square holds n − 1 − i distances after the diagonal.
	parts := make([]*Ref, n-1)
	for i := range parts {
		parts[i] = c.slice(c.selectAt(all, 0, i), 0, i+1, n, 1)
	}
	return c.cat(parts, 0)
}

func pairwiseDistance(c *call) (*Ref, error) {
	d, err := c.combine("sub", nil, c.operands("x1", "x2")...)
	if err != nil {
		return nil, err
	}
	if d, err = c.combine("add", nil, d, c.float("eps")); err != nil {
		return nil, err
	}
	if c.err != nil || d.rank() == 0 {
		return nil, fmt.Errorf("distance of scalars")
	}
	return c.norm(d, c.float("p"), []int{d.rank() - 1}, c.bool("keepdim"), d.dtype)
}

// cosineSimilarity: Σ (x ÷ max(|x|, eps)) × (y ÷ max(|y|, eps)).
func cosineSimilarity(c *call) (*Ref, error) {
	refs, err := c.promote(c.operands("x1", "x2")...)
	if err != nil {
		return nil, err
	}
	d, eps := c.dim("dim", refs[0].rank()), c.float("eps")
	if c.err != nil || refs[0].rank() == 0 {
		return nil, fmt.Errorf("similarity of %v", refs[0].shape())
	}
	for i, r := range refs {
		length, err := c.norm(r, 2, []int{d}, true, r.dtype)
		if err != nil {
			return nil, err
		}
		if length, err = c.apply("clamp", graph.Attrs{"min": eps, "max": math.Inf(1)}, length); err != nil {
			return nil, err
		}
		if refs[i], err = c.combine("div", nil, r, length); err != nil {
			return nil, err
		}
	}
	product, err := c.apply("mul", nil, refs...)
	if err != nil {
		return nil, err
	}
	return c.fold("sum", product, []int{d}, false, graph.Attrs{"dtype": product.dtype})
}
