package aten

import (
	"errors"
	"maps"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// selecting returns a builder, a tensor of shape [2 3 4] in it, a mask [3] of its second dimension, and what that selects.
func selecting(t *testing.T) (b *cells.Builder, x, mask *cells.Ref, s *cells.Selection) {
	t.Helper()
	b = &cells.Builder{Graph: &graph.Graph{}, Ops: graph.Standard()}
	x = b.Own(b.Graph.AddInput("x", tensor.Float32, tensor.Shape{2, 3, 4}))
	mask = b.Own(b.Graph.AddInput("mask", tensor.Bool, tensor.Shape{3}))
	out, err := callOn(b, "torch.ops.aten.index.Tensor", map[string]any{"self": x, "indices": []*cells.Ref{nil, mask}})
	if err != nil {
		t.Fatal(err)
	}
	return b, x, mask, out[0].(*cells.Selection)
}

// callOn calls an op as an exported program does.
func callOn(b *cells.Builder, name string, args map[string]any) ([]any, error) {
	op := targets[name]
	bound := make(map[string]any)
	for _, p := range op.schema.Params {
		bound[p.Name] = p.Value
	}
	maps.Copy(bound, args)
	return op.Call(b, call.Site{Selects: true}, bound)
}

// TestSelectionsAreRefused: what needs to know how many elements a mask selects, or would compute with those that it leaves out,
// is refused and not computed of all.
func TestSelectionsAreRefused(t *testing.T) {
	for name, call := range map[string]func(b *cells.Builder, x, mask *cells.Ref, s *cells.Selection) ([]any, error){
		"a variance": func(b *cells.Builder, _, _ *cells.Ref, s *cells.Selection) ([]any, error) {
			return callOn(b, "torch.ops.aten.var.default", map[string]any{"self": s})
		},
		"channels": func(b *cells.Builder, _, _ *cells.Ref, s *cells.Selection) ([]any, error) {
			weight := b.Own(b.Graph.AddInput("w", tensor.Float32, tensor.Shape{1}))
			return callOn(b, "torch.ops.aten.prelu.default", map[string]any{"self": s, "weight": weight})
		},
		"a tensor of as many rows": func(b *cells.Builder, _, _ *cells.Ref, s *cells.Selection) ([]any, error) {
			y := b.Own(b.Graph.AddInput("y", tensor.Float32, tensor.Shape{2, 3, 4}))
			return callOn(b, "torch.ops.aten.add.Tensor", map[string]any{"self": s, "other": y})
		},
		"another mask": func(b *cells.Builder, x, _ *cells.Ref, s *cells.Selection) ([]any, error) {
			mask := b.Own(b.Graph.AddInput("other", tensor.Bool, tensor.Shape{3}))
			return callOn(b, "torch.ops.aten.index_put.default", map[string]any{"self": x, "indices": []*cells.Ref{nil, mask}, "values": s})
		},
		"a mask that was changed": func(b *cells.Builder, x, mask *cells.Ref, s *cells.Selection) ([]any, error) {
			yes := b.Own(b.Graph.AddInput("yes", tensor.Bool, tensor.Shape{}))
			if _, err := callOn(b, "torch.ops.aten.copy_.default", map[string]any{"self": mask, "src": yes}); err != nil {
				return nil, err
			}
			return callOn(b, "torch.ops.aten.index_put.default", map[string]any{"self": x, "indices": []*cells.Ref{nil, mask}, "values": s})
		},
		"written into a tensor": func(b *cells.Builder, x, _ *cells.Ref, s *cells.Selection) ([]any, error) {
			return callOn(b, "torch.ops.aten.add_.Tensor", map[string]any{"self": x, "other": s})
		},
		"integers divided": func(b *cells.Builder, _, _ *cells.Ref, s *cells.Selection) ([]any, error) {
			whole, err := callOn(b, "torch.ops.aten.to.dtype", map[string]any{"self": s, "dtype": tensor.Int64})
			if err != nil {
				return nil, err
			}
			return callOn(b, "torch.ops.aten.floor_divide.default", map[string]any{"self": whole[0], "other": whole[0]})
		},
	} {
		b, x, mask, s := selecting(t)
		out, err := call(b, x, mask, s)
		var refused *cells.UnsupportedError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	b, x, mask, s := selecting(t)
	if _, err := callOn(b, "torch.ops.aten.index_put.default",
		map[string]any{"self": x, "indices": []*cells.Ref{nil, mask}, "values": s}); err != nil {
		t.Errorf("the same mask: %v", err)
	}
}

// TestSelectionsBecomeRows: where an op needs x[mask] as a tensor, it gets one with a count of its rows, and so do all ops after
// it; where none does, there is none.
func TestSelectionsBecomeRows(t *testing.T) {
	b, x, mask, s := selecting(t)
	doubled, err := callOn(b, "torch.ops.aten.mul.Tensor", map[string]any{"self": s, "other": 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, is := doubled[0].(*cells.Selection); !is || s.IsMade() {
		t.Errorf("of what stands beside x, %T", doubled[0])
	}
	first := b.Own(b.Graph.AddInput("first", tensor.Float32, tensor.Shape{3}))
	out, err := callOn(b, "torch.ops.aten.index.Tensor", map[string]any{"self": first, "indices": []*cells.Ref{mask}})
	if err != nil {
		t.Fatal(err)
	}
	turned, err := callOn(b, "torch.ops.aten.transpose.int", map[string]any{"self": doubled[0], "dim0": 1, "dim1": 2})
	if err != nil {
		t.Fatal(err)
	}
	sum, err := callOn(b, "torch.ops.aten.add.Tensor", map[string]any{"self": turned[0], "other": out[0]})
	if err != nil {
		t.Fatal(err)
	}
	if r, is := sum[0].(*cells.Ref); !is || r.RowDim() != 2 || !r.Shape().Equal(tensor.Shape{2, 4, 3}) {
		t.Errorf("rows of the same mask in another place: %v", sum[0])
	}
	y := b.Own(b.Graph.AddInput("y", tensor.Float32, tensor.Shape{7, 2, 1, 4}))
	if out, err = callOn(b, "torch.ops.aten.add.Tensor", map[string]any{"self": s, "other": y}); err != nil {
		t.Fatal(err)
	}
	if r, is := out[0].(*cells.Ref); !is || r.RowDim() != 2 || !r.Shape().Equal(tensor.Shape{7, 2, 3, 4}) {
		t.Errorf("with more dimensions: %v", out[0])
	}
	if out, err = callOn(b, "torch.ops.aten.relu_.default", map[string]any{"self": s}); err != nil {
		t.Fatal(err)
	}
	if r, is := out[0].(*cells.Ref); !is || r.Memory() != madeOf(t, s).Memory() {
		t.Errorf("what became rows, written to: %v", out[0])
	}
	whole, err := callOn(b, "torch.ops.aten.to.dtype", map[string]any{"self": x, "dtype": tensor.Int64})
	if err != nil {
		t.Fatal(err)
	}
	if out, err = callOn(b, "torch.ops.aten.index.Tensor",
		map[string]any{"self": whole[0], "indices": []*cells.Ref{nil, mask}}); err != nil {
		t.Fatal(err)
	}
	two := b.Own(b.Graph.AddInput("two", tensor.Int64, tensor.Shape{}))
	if out, err = callOn(b, "torch.ops.aten.floor_divide.default", map[string]any{"self": out[0], "other": two}); err != nil {
		t.Fatal(err)
	}
	if !cells.IsSelection(out[0]) {
		t.Errorf("integers divided by the same: %T", out[0])
	}
}

// madeOf returns the tensor that a selection has become.
func madeOf(t *testing.T, s *cells.Selection) *cells.Ref {
	t.Helper()
	r, err := s.Made(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
