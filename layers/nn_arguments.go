package layers

// The functions of this file fetch the arguments of a forward by position; those at the end may be left out or nil.

// one returns the only argument.
func one(m *Module, args []any) Tensor {
	if len(args) != 1 {
		fail("%s takes one tensor, not %d arguments", m.Class, len(args))
	}
	return argument(m, args, 0)
}

// two returns two tensors.
func two(m *Module, args []any) (a, b Tensor) {
	if len(args) != 2 {
		fail("%s takes two tensors, not %d arguments", m.Class, len(args))
	}
	return argument(m, args, 0), argument(m, args, 1)
}

// three returns a tensor and two optional ones.
func three(m *Module, args []any) (a, b, c Tensor) {
	if len(args) > 3 {
		fail("%s takes three tensors, not %d arguments", m.Class, len(args))
	}
	return argument(m, args, 0), optional(m, args, 1), optional(m, args, 2)
}

// argument returns a tensor that must be there.
func argument(m *Module, args []any, i int) Tensor {
	x := optional(m, args, i)
	if x == nil {
		fail("%s: argument %d is missing", m.Class, i+1)
	}
	return x
}

// optional returns a tensor, nil where it is None or left out.
func optional(m *Module, args []any, i int) Tensor {
	if i >= len(args) || args[i] == nil {
		return nil
	}
	x, ok := args[i].(Tensor)
	if !ok {
		fail("%s: argument %d is a %T, not a tensor", m.Class, i+1, args[i])
	}
	return x
}
