package models

import "fmt"

// scalarTargets are Python's operators on numbers, which shapes are computed with. Shapes are concrete when a graph is
// built, so they are computed here and leave no op.
var scalarTargets = map[string]func(args arguments) (any, error){
	"torch.ops.aten.sym_size.int": func(a arguments) (any, error) {
		v, err := a.at(0)
		r, ok := v.(*ref)
		if err != nil || !ok {
			return nil, fmt.Errorf("sym_size of what is not a tensor")
		}
		d, err := a.at(1)
		i, ok := d.(int)
		if err != nil || !ok || i < -r.rank() || i >= r.rank() {
			return nil, fmt.Errorf("dimension of a tensor of rank %d", r.rank())
		}
		if i < 0 {
			i += r.rank()
		}
		return r.shape()[i], nil
	},
}
