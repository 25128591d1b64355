package layers

import "github.com/optimem/optimem/tensor"

// embeddingClasses look rows up.
var embeddingClasses = Classes{
	"torch.nn.modules.sparse.Embedding": {
		Forward: func(t *Trace, m *Module, args ...any) any {
			return t.Op("embedding", rows(t, m), one(m, args))
		},
		Inputs: []Port{{Name: "input", DType: tensor.Int64}},
	},
	"torch.nn.modules.sparse.EmbeddingBag": {
		Forward: embeddingBagForward,
		Inputs: []Port{
			{Name: "input", DType: tensor.Int64},
			{Name: "offsets", DType: tensor.Int64, Optional: true},
			{Name: "per_sample_weights", DType: tensor.Float32, Optional: true},
		},
	},
}

// rows is the table, its rows shortened where the module bounds their norm. PyTorch shortens the rows that are looked
// up, in place; those that are not make no difference.
func rows(t *Trace, m *Module) Tensor {
	w := t.Param(m, "weight")
	if m.Attrs["max_norm"] == nil {
		return w
	}
	return t.Op("renorm", w, m.Float("norm_type"), 0, m.Float("max_norm"))
}

func embeddingBagForward(t *Trace, m *Module, args ...any) any {
	x, offsets, weights := three(m, args)
	shape := x.Shape()
	switch len(shape) {
	case 1:
		if offsets == nil {
			fail("offsets are needed where the input has one dimension")
		}
	case 2:
		if offsets != nil {
			fail("the rows of an input %v are the bags: offsets are not needed", shape)
		}
		if shape[1] < 1 {
			fail("bags of no elements: %v", shape)
		}
		offsets = t.Op("arange.start_step", 0, shape[0]*shape[1], shape[1], Named{"dtype": x.DType()})
		x = t.Op("reshape", x, []int{-1})
		if weights != nil {
			weights = t.Op("reshape", weights, []int{-1})
		}
	default:
		fail("takes a tensor of rank 1 or 2, not %v", shape)
	}
	mode, ok := map[string]int{"sum": 0, "mean": 1, "max": 2}[m.Text("mode")]
	if !ok {
		m.lacks("mode", "sum, mean or max")
	}
	padding := -1
	if m.Attrs["padding_idx"] != nil {
		padding = m.Int("padding_idx")
	}
	call := []any{rows(t, m), x, offsets, false, mode, false, weights, m.Bool("include_last_offset")}
	if padding >= 0 {
		return t.Op("embedding_bag.padding_idx", append(call, padding)...)
	}
	return t.Op("embedding_bag", call...)
}

// Embedding is torch.nn.Embedding.
func Embedding(n, size int, opts ...Option) *Module {
	return made("torch.nn.modules.sparse.Embedding", map[string]any{
		"num_embeddings": n, "embedding_dim": size, "padding_idx": nil, "max_norm": nil, "norm_type": 2.0,
	}, opts).Param("weight", n, size)
}

// EmbeddingBag is torch.nn.EmbeddingBag; mode is "sum", "mean" or "max".
func EmbeddingBag(n, size int, mode string, opts ...Option) *Module {
	return made("torch.nn.modules.sparse.EmbeddingBag", map[string]any{
		"num_embeddings": n, "embedding_dim": size, "padding_idx": nil, "max_norm": nil, "norm_type": 2.0, "mode": mode,
		"include_last_offset": false,
	}, opts).Param("weight", n, size)
}
