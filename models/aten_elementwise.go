package models

import "github.com/optimem/optimem/layers"

// elementwiseTargets are the ops that compute each element of the result from the elements at the same place.
var elementwiseTargets = []atenOp{
	{"aten::relu(Tensor self) -> Tensor", func(c *call) error { return c.give("relu", nil, c.read(c.tensor("self"))) }},
	{"aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", func(c *call) error {
		a, b := c.tensor("self"), c.tensor("other")
		return c.give("add", layers.Attrs{"alpha": c.float("alpha")}, c.read(a), c.read(b))
	}},
}
