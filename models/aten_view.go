package models

// viewTargets are the ops that move no element: they give another view of the same memory.
var viewTargets = []atenOp{
	{"aten::alias(Tensor(a) self) -> Tensor(a)", func(c *call) error { return c.giveRef(c.tensor("self"), nil) }},
}
