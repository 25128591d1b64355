package models

import (
	"errors"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// TestInPlaceViews: an op such as t_ changes the tensor that it is called on, for all calls that follow, and no other view of the
// memory.
func TestInPlaceViews(t *testing.T) {
	r := newRecorder(nil, graph.Standard())
	bound, err := r.bind([]Port{{Name: "x", DType: tensor.Float32, Shape: tensor.Shape{1, 2, 3}}}, map[string]tensor.Shape{"x": {1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	other, err := r.Call("aten::alias", []any{bound[0]}, nil)
	if err != nil {
		t.Fatal(err)
	}
	x := bound[0]
	for _, step := range []struct {
		op   string
		args []any
		want tensor.Shape
	}{
		{"aten::unsqueeze_", []any{-1}, tensor.Shape{1, 2, 3, 1}},
		{"aten::squeeze_", []any{0}, tensor.Shape{2, 3, 1}},
		{"aten::transpose_", []any{0, -1}, tensor.Shape{1, 3, 2}},
		{"aten::squeeze_", nil, tensor.Shape{3, 2}},
		{"aten::t_", nil, tensor.Shape{2, 3}},
	} {
		out, err := r.Call(step.op, append([]any{x}, step.args...), nil)
		if err != nil {
			t.Fatalf("%s: %v", step.op, err)
		}
		if out[0] != any(x) || !x.Shape().Equal(step.want) {
			t.Errorf("%s leaves %v and gives %v, want %v", step.op, x.Shape(), out[0].(*cells.Ref).Shape(), step.want)
		}
	}
	if shape := other[0].(*cells.Ref).Shape(); !shape.Equal(tensor.Shape{1, 2, 3}) {
		t.Errorf("another view became %v", shape)
	}
}

// TestFlagsAreNumbers: a flag that stands for a number is 0 or 1, as TorchScript has it.
func TestFlagsAreNumbers(t *testing.T) {
	r := newRecorder(nil, graph.Standard())
	bound, err := r.bind([]Port{{Name: "x", DType: tensor.Float32, Shape: tensor.Shape{2, 3}}}, map[string]tensor.Shape{"x": {2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[bool]tensor.Shape{false: {1, 2, 3}, true: {2, 1, 3}} {
		out, err := r.Call("aten::unsqueeze", []any{bound[0], flag}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := out[0].(*cells.Ref).Shape(); !got.Equal(want) {
			t.Errorf("unsqueeze(x, %t) is %v, want %v", flag, got, want)
		}
	}
	if _, err := r.Call("aten::layer_norm", []any{bound[0], []int{3}, nil, nil, true}, nil); err != nil {
		t.Fatal(err)
	}
	if op := r.Graph.Ops[len(r.Graph.Ops)-1]; op.Attrs["eps"] != 1.0 {
		t.Errorf("eps of True is %v in %s", op.Attrs["eps"], op.Kind)
	}
}

// TestCustomOfSelected: an embedder's op has no size for what a mask selects, and is not called without it.
func TestCustomOfSelected(t *testing.T) {
	ops, err := graph.Standard().With(graph.OpDef{
		Kind:      "mylib::sum",
		Shape:     func(in []graph.Spec, _ graph.Attrs) ([]graph.Spec, error) { return in[:1], nil },
		Reference: func(_, _ []*tensor.Tensor, _ graph.Attrs) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder(nil, ops)
	r.site.Selects = true
	bound, err := r.bind([]Port{{Name: "x", DType: tensor.Float32}, {Name: "mask", DType: tensor.Bool}},
		map[string]tensor.Shape{"x": {2, 3}, "mask": {2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	selected, err := r.Call("aten::index", []any{bound[0], []layers.Tensor{bound[1]}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var refused *UnsupportedError
	if _, err := r.Call("mylib::sum", []any{bound[0], selected[0]}, nil); !errors.As(err, &refused) {
		t.Errorf("by position: %v", err)
	}
	if _, err := r.Call("mylib::sum", []any{bound[0]}, map[string]any{"of": selected[0]}); !errors.As(err, &refused) {
		t.Errorf("by name: %v", err)
	}
	if _, err := r.Call("mylib::sum", []any{bound[0], bound[1]}, nil); err != nil {
		t.Error(err)
	}
}
