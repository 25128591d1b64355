package models

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/models/aten/cells"
)

// A dataNumber is a number of the program that depends on data, which nothing but assertions read.
type dataNumber struct{}

// dataNumbers are the ops that turn data into a number.
var dataNumbers = map[string]bool{
	"torch.ops.aten.item.default": true, "torch.ops.aten._local_scalar_dense.default": true,
	"torch.ops.aten.sym_storage_offset.default": true,
}

// dataNumber returns what a node gives that is a number that depends on data: how much there is of a tensor, what is made of such
// numbers, or an element.
func (b *programBuilder) dataNumber(n *exported.Node, args arguments) (v any, is bool, err error) {
	if dataNumbers[n.Target] {
		return dataNumber{}, true, nil
	}
	if len(args.positional) == 0 {
		return nil, false, nil
	}
	dim := -1
	if d, ok := args.positional[len(args.positional)-1].(int); ok {
		dim = d
	}
	switch n.Target {
	case "torch.ops.aten.sym_size.int", "torch.ops.aten.size.int":
		switch t := args.positional[0].(type) {
		case *cells.Ref:
			v, is = t.Counted(dim)
			return v, is, nil
		case *cells.Selection:
			if t.OfData(dim) {
				v, err = t.Count(b.Builder)
				return v, true, err
			}
			v, err = b.shapeOf(t, dim)
			return v, true, err
		}
	case "torch.ops.aten.sym_numel.default":
		t, ok := args.positional[0].(*cells.Ref)
		if s, selected := args.positional[0].(*cells.Selection); selected {
			if t, err = s.Made(b.Builder); err != nil {
				return nil, true, err
			}
			ok = true
		}
		if ok && t.IsCounted() {
			v, err = b.Elements(t)
			return v, true, err
		}
	}
	if count, ok, err := b.CountOf(n.Target, args.positional); ok || err != nil {
		return count, true, err
	}
	for _, a := range args.positional {
		switch a.(type) {
		case *cells.Count, dataNumber:
			if _, onNumbers := aten.OnNumbers(n.Target); onNumbers || a == any(dataNumber{}) {
				return dataNumber{}, true, nil
			}
		}
	}
	return nil, false, nil
}

// shapeOf returns a size of a selection that the mask does not say.
func (b *programBuilder) shapeOf(s *cells.Selection, dim int) (int, error) {
	sizes := s.Shape()
	if dim < 0 {
		dim += len(sizes)
	}
	if dim < 0 || dim >= len(sizes) {
		return 0, fmt.Errorf("dimension %d of %v", dim, sizes)
	}
	return sizes[dim], nil
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
