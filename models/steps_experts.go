package models

import (
	"slices"

	"github.com/optimem/optimem/layers"
)

// Call implements layers.Recorder. Rows that are no token are given no experts, which then need not be looked at for them.
func (r *stepRecorder) Call(op string, args []any, named layers.Named) ([]any, error) {
	if op == "optimem::experts" && len(args) > 1 {
		if r.none == nil {
			none, err := r.recorder.Call("aten::lt.Scalar", []any{r.positions, 0}, nil)
			if err == nil {
				none, err = r.recorder.Call("aten::unsqueeze", []any{none[0], 1}, nil)
			}
			if err != nil {
				return nil, err
			}
			r.none = none[0].(layers.Tensor)
		}
		ids, err := r.recorder.Call("aten::masked_fill.Scalar", []any{args[1], r.none, -1}, nil)
		if err != nil {
			return nil, err
		}
		args = slices.Clone(args)
		args[1] = ids[0]
	}
	return r.recorder.Call(op, args, named)
}
