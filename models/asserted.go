package models

import (
	"slices"

	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/models/aten"
)

// A dataNumber is a number of the program that depends on data, which nothing but assertions read.
type dataNumber struct{}

// dataNumbers are the ops that turn data into a number.
var dataNumbers = map[string]bool{
	"torch.ops.aten.item.default": true, "torch.ops.aten._local_scalar_dense.default": true,
}

// dependsOnData reports whether what a node gives is a number that depends on data: made of others, or how much a mask selects.
func dependsOnData(n *exported.Node, args arguments) bool {
	if slices.Contains(args.positional, any(dataNumber{})) {
		return true
	}
	if len(args.positional) == 0 {
		return false
	}
	s, ok := args.positional[0].(*aten.Selection)
	if !ok {
		return false
	}
	switch n.Target {
	case "torch.ops.aten.sym_numel.default":
		return true
	case "torch.ops.aten.sym_size.int":
		d, ok := args.positional[len(args.positional)-1].(int)
		return ok && s.OfData(d)
	}
	return false
}

// onlyAsserted returns the places of those nodes of a graph that turn data into numbers of which the program asserts
// something and that it uses for nothing else, such as torch._check of a count. Assertions are not checked, so the numbers
// need not be known.
func onlyAsserted(g *exported.Graph) map[int]bool {
	asserted := make(map[int]bool)
	used := make(map[string]bool) // by anything but assertions
	use := func(a exported.Argument) {
		a.Values(func(name string) bool {
			used[name] = true
			return true
		})
	}
	for _, out := range g.Outputs {
		use(out)
	}
	for i, n := range slices.Backward(g.Nodes) {
		_, ofNumbers := aten.OnNumbers(n.Target)
		if (ofNumbers || dataNumbers[n.Target]) && !slices.ContainsFunc(n.Outputs, func(a exported.Argument) bool {
			read := false
			a.Values(func(name string) bool {
				read = used[name]
				return !read
			})
			return read
		}) {
			if dataNumbers[n.Target] {
				asserted[i] = true
			}
			continue
		}
		for _, in := range n.Inputs {
			use(in.Arg)
		}
	}
	return asserted
}
