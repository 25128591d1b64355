package family

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// A HeadForward computes a head's result from the base model's last hidden state and, where there is one, its pooled
// output.
type HeadForward func(t *layers.Trace, m *layers.Module, x, pooled layers.Tensor) any

// Headed returns the class of a model that runs the base model of the given name on its arguments, then the head.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func Headed(base string, forward HeadForward) layers.Class {
	return layers.Class{Forward: func(t *layers.Trace, m *layers.Module, args ...any) any {
		out := t.ChildOf(m, base, args...)
		return forward(t, m, Field(out, "last_hidden_state"), Field(out, "pooler_output"))
	}}
}

// Field returns a field of what a model gave, nil where there is none.
func Field(out any, name string) layers.Tensor {
	fields, _ := out.(layers.Fields)
	for _, f := range fields {
		if x, ok := f.Value.(layers.Tensor); ok && f.Name == name {
			return x
		}
	}
	return nil
}

// LogitsOf returns the head that runs submodules, one after the other, on the last hidden state.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func LogitsOf(names ...string) HeadForward {
	run := Through(names...)
	return func(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
		return layers.Fields{{Name: "logits", Value: run(t, m, x)}}
	}
}

// NextToken is the head of a causal language model: logits of the tokens whose successor is wanted.
func NextToken(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
	return layers.Fields{{Name: "logits", Value: t.Child(m, "lm_head", t.Wanted(x))}}
}

// LogitsOfPooled is LogitsOf for the pooled output.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func LogitsOfPooled(names ...string) HeadForward {
	run := LogitsOf(names...)
	return func(t *layers.Trace, m *layers.Module, _, pooled layers.Tensor) any { return run(t, m, pooled, nil) }
}

// SpansOf returns the head that answers questions: where the answer begins and ends.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func SpansOf(names ...string) HeadForward {
	run := Through(names...)
	return func(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
		ends := t.Tensors("split.Tensor", run(t, m, x), 1, -1)
		if len(ends) != 2 {
			t.Fail("%d logits for each token, not a start and an end", len(ends))
		}
		out := make(layers.Fields, 2)
		for i, name := range []string{"start_logits", "end_logits"} {
			out[i] = layers.Field{Name: name, Value: t.Op("contiguous", t.Op("squeeze.dim", ends[i], -1))}
		}
		return out
	}
}

// Through returns the forward that runs submodules one after the other.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func Through(names ...string) func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
		for _, name := range names {
			x = t.Child(m, name, x)
		}
		return x
	}
}

// LastToken returns the class of a model that classifies sequences by their last token that is no padding.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func LastToken(base string) layers.Class {
	return layers.Class{Forward: func(t *layers.Trace, m *layers.Module, args ...any) any {
		ids := TokenIDs(t, args)
		logits := t.Child(m, "score", Field(t.ChildOf(m, base, args...), "last_hidden_state"))
		batch, n := ids.Shape()[0], ids.Shape()[1]
		rows := func() layers.Tensor { return t.Op("arange", batch) }
		if m.Attrs["pad_token_id"] == nil {
			if batch != 1 {
				t.Fail("a batch of %d without a pad_token_id in config.json", batch)
			}
			last := t.Op("select.int", logits, 1, -1)
			return layers.Fields{{Name: "logits", Value: t.Op("index.Tensor", last, []layers.Tensor{rows()})}}
		}
		real := t.Op("to.dtype", t.Op("ne.Scalar", ids, m.Int("pad_token_id")), tensor.Int32)
		at := t.Op("mul.Tensor", t.Op("arange", n, layers.Named{"dtype": tensor.Int32}), real)
		at = t.Op("argmax", at, -1)
		return layers.Fields{{Name: "logits", Value: t.Op("index.Tensor", logits, []layers.Tensor{rows(), at})}}
	}}
}

// LayersForward runs the modules of layer, each on what the one before it gave and the mask.
func LayersForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, mask := args[0], args[1]
	for _, layer := range m.Child("layer").Children {
		x = t.Run(layer.Module, x, mask)
	}
	return x
}

// PoolerForward is the pooler of BERT, which reads the first token.
func PoolerForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	return t.Child(m, "activation", t.Child(m, "dense", t.Op("select.int", x, 1, 0)))
}
