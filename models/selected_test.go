package models

import (
	"errors"
	"maps"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// selecting returns a builder, a tensor of shape [2 3 4] in it, a mask [3] of its second dimension, and what that selects.
func selecting(t *testing.T) (b *builder, x, mask *ref, s *selection) {
	t.Helper()
	b = &builder{graph: &graph.Graph{}, ops: graph.Standard()}
	x = b.own(b.graph.AddInput("x", tensor.Float32, tensor.Shape{2, 3, 4}))
	mask = b.own(b.graph.AddInput("mask", tensor.Bool, tensor.Shape{3}))
	out, err := callOn(b, "torch.ops.aten.index.Tensor", map[string]any{"self": x, "indices": []*ref{nil, mask}})
	if err != nil {
		t.Fatal(err)
	}
	return b, x, mask, out[0].(*selection)
}

// callOn calls an op as an exported program does.
func callOn(b *builder, name string, args map[string]any) ([]any, error) {
	op := targets[name]
	bound := make(map[string]any)
	for _, p := range op.schema.params {
		bound[p.name] = p.value
	}
	maps.Copy(bound, args)
	return op.call(b, Site{Selects: true}, bound)
}

// TestSelectionsAreRefused: what needs to know how many elements a mask selects, or would compute with those that it leaves out,
// is refused and not computed of all.
func TestSelectionsAreRefused(t *testing.T) {
	for name, call := range map[string]func(b *builder, x, mask *ref, s *selection) ([]any, error){
		"a sum": func(b *builder, _, _ *ref, s *selection) ([]any, error) {
			return callOn(b, "torch.ops.aten.sum.default", map[string]any{"self": s})
		},
		"channels": func(b *builder, _, _ *ref, s *selection) ([]any, error) {
			weight := b.own(b.graph.AddInput("w", tensor.Float32, tensor.Shape{1}))
			return callOn(b, "torch.ops.aten.prelu.default", map[string]any{"self": s, "weight": weight})
		},
		"a tensor of as many rows": func(b *builder, _, _ *ref, s *selection) ([]any, error) {
			y := b.own(b.graph.AddInput("y", tensor.Float32, tensor.Shape{2, 3, 4}))
			return callOn(b, "torch.ops.aten.add.Tensor", map[string]any{"self": s, "other": y})
		},
		"more dimensions": func(b *builder, _, _ *ref, s *selection) ([]any, error) {
			y := b.own(b.graph.AddInput("y", tensor.Float32, tensor.Shape{7, 2, 1, 4}))
			return callOn(b, "torch.ops.aten.add.Tensor", map[string]any{"self": s, "other": y})
		},
		"another mask": func(b *builder, x, _ *ref, s *selection) ([]any, error) {
			mask := b.own(b.graph.AddInput("other", tensor.Bool, tensor.Shape{3}))
			return callOn(b, "torch.ops.aten.index_put.default", map[string]any{"self": x, "indices": []*ref{nil, mask}, "values": s})
		},
		"a mask that was changed": func(b *builder, x, mask *ref, s *selection) ([]any, error) {
			yes := b.own(b.graph.AddInput("yes", tensor.Bool, tensor.Shape{}))
			if _, err := callOn(b, "torch.ops.aten.copy_.default", map[string]any{"self": mask, "src": yes}); err != nil {
				return nil, err
			}
			return callOn(b, "torch.ops.aten.index_put.default", map[string]any{"self": x, "indices": []*ref{nil, mask}, "values": s})
		},
		"written into a tensor": func(b *builder, x, _ *ref, s *selection) ([]any, error) {
			return callOn(b, "torch.ops.aten.add_.Tensor", map[string]any{"self": x, "other": s})
		},
		"integers divided": func(b *builder, _, _ *ref, s *selection) ([]any, error) {
			whole, err := callOn(b, "torch.ops.aten.to.dtype", map[string]any{"self": s, "dtype": tensor.Int64})
			if err != nil {
				return nil, err
			}
			return callOn(b, "torch.ops.aten.floor_divide.default", map[string]any{"self": whole[0], "other": whole[0]})
		},
	} {
		b, x, mask, s := selecting(t)
		out, err := call(b, x, mask, s)
		var refused *UnsupportedError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	b, x, mask, s := selecting(t)
	if _, err := callOn(b, "torch.ops.aten.index_put.default",
		map[string]any{"self": x, "indices": []*ref{nil, mask}, "values": s}); err != nil {
		t.Errorf("the same mask: %v", err)
	}
}
