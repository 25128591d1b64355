package layers

import "github.com/optimem/optimem/tensor"

const transformers = "torch.nn.modules.transformer."

// transformerClasses are the stacks of attention and linear layers. They compute as exported programs do. The fast path
// of TransformerEncoder in Python, taken without gradients, gives zeros where src_key_padding_mask hides; here are
// numbers that no other place depends on.
var transformerClasses = Classes{
	transformers + "TransformerEncoderLayer": {
		Forward: encoderLayerForward, Inputs: maskedPorts("src", "src_mask", "src_key_padding_mask"),
		Defaults: map[string]any{"norm_first": false, "activation": "torch.nn.functional.relu"},
	},
	transformers + "TransformerDecoderLayer": {
		Forward: decoderLayerForward, Inputs: decoderPorts,
		Defaults: map[string]any{"norm_first": false, "activation": "torch.nn.functional.relu"},
	},
	transformers + "TransformerEncoder": {
		Forward: func(t *Trace, m *Module, args ...any) any {
			x := argument(m, args, 0)
			for _, layer := range t.child(m, "layers").Children {
				x = t.tensor(t.Run(layer.Module, x, optional(m, args, 1), optional(m, args, 2)))
			}
			return finalNorm(t, m, x)
		},
		Inputs: maskedPorts("src", "mask", "src_key_padding_mask"),
	},
	transformers + "TransformerDecoder": {
		Forward: func(t *Trace, m *Module, args ...any) any {
			x := argument(m, args, 0)
			for _, layer := range t.child(m, "layers").Children {
				x = t.tensor(t.Run(layer.Module, append([]any{x}, args[1:]...)...))
			}
			return finalNorm(t, m, x)
		},
		Inputs: decoderPorts,
	},
	transformers + "Transformer": {
		Forward: func(t *Trace, m *Module, args ...any) any {
			at := func(i int) any { return optional(m, args, i) }
			memory := t.ChildOf(m, "encoder", argument(m, args, 0), at(2), at(5))
			return t.ChildOf(m, "decoder", argument(m, args, 1), memory, at(3), at(4), at(6), at(7))
		},
		Inputs: append([]Port{{Name: "src", DType: tensor.Float32}, {Name: "tgt", DType: tensor.Float32}}, masks(
			"src_mask", "tgt_mask", "memory_mask", "src_key_padding_mask", "tgt_key_padding_mask",
			"memory_key_padding_mask",
		)...),
	},
}

var decoderPorts = append([]Port{{Name: "tgt", DType: tensor.Float32}, {Name: "memory", DType: tensor.Float32}}, masks(
	"tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask",
)...)

// masks are inputs that need not be given. Those of keys are truths, others numbers to add.
func masks(names ...string) []Port {
	var ports []Port
	for _, name := range names {
		p := Port{Name: name, DType: tensor.Float32, Optional: true}
		if len(name) > 16 && name[len(name)-16:] == "key_padding_mask" {
			p.DType = tensor.Bool
		}
		ports = append(ports, p)
	}
	return ports
}

func maskedPorts(input string, names ...string) []Port {
	return append([]Port{{Name: input, DType: tensor.Float32}}, masks(names...)...)
}

func finalNorm(t *Trace, m *Module, x Tensor) any {
	if !m.Has("norm") {
		return x
	}
	return t.Child(m, "norm", x)
}

// encoderLayerForward takes src, src_mask and src_key_padding_mask.
func encoderLayerForward(t *Trace, m *Module, args ...any) any {
	return residuals(t, m, argument(m, args, 0), []block{
		looking{"self_attn", "dropout1", nil, 1, 2}.block(t, m, args), feedForward(t, m, "dropout2"),
	})
}

// decoderLayerForward takes tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask and memory_key_padding_mask.
func decoderLayerForward(t *Trace, m *Module, args ...any) any {
	return residuals(t, m, argument(m, args, 0), []block{
		looking{"self_attn", "dropout1", nil, 2, 4}.block(t, m, args),
		looking{"multihead_attn", "dropout2", argument(m, args, 1), 3, 5}.block(t, m, args),
		feedForward(t, m, "dropout3"),
	})
}

// A block is what is added to a sequence.
type block func(x Tensor) Tensor

// residuals adds blocks, each with a norm of its own: before the block, or after the sum.
func residuals(t *Trace, m *Module, x Tensor, blocks []block) Tensor {
	for i, b := range blocks {
		norm := "norm" + string(rune('1'+i))
		if m.Bool("norm_first") {
			x = t.Op("add.Tensor", x, b(t.Child(m, norm, x)))
		} else {
			x = t.Child(m, norm, t.Op("add.Tensor", x, b(x)))
		}
	}
	return x
}

// looking is attention of the sequence to memory, or to itself where that is nil, by the child of a name, with dropout
// after it. The masks are the arguments at the given places.
type looking struct {
	name, dropout string
	memory        Tensor
	mask, padding int
}

func (l looking) block(t *Trace, m *Module, args []any) block {
	return func(x Tensor) Tensor {
		seen := l.memory
		if seen == nil {
			seen = x
		}
		out := t.ChildOf(m, l.name, x, seen, seen, optional(m, args, l.padding), optional(m, args, l.mask),
			Named{"need_weights": false})
		if pair, ok := out.([]any); ok && len(pair) > 0 {
			out = pair[0]
		}
		return t.Child(m, l.dropout, t.tensor(out))
	}
}

func feedForward(t *Trace, m *Module, dropout string) block {
	return func(x Tensor) Tensor {
		x = activate(t, m, t.Child(m, "linear1", x))
		return t.Child(m, dropout, t.Child(m, "linear2", t.Child(m, "dropout", x)))
	}
}

// activate calls the layer's activation: a module, or a function by its name.
func activate(t *Trace, m *Module, x Tensor) Tensor {
	if m.Has("activation") {
		return t.Child(m, "activation", x)
	}
	name := m.Text("activation")
	op, ok := activationFunctions[name]
	if !ok {
		fail("activation %q", name)
	}
	return t.Op(op, x)
}

// activationFunctions are the functions by the names under which they are pickled.
var activationFunctions = map[string]string{
	"torch.nn.functional.relu": "relu", "torch.nn.functional.gelu": "gelu", "torch._C._nn.gelu": "gelu",
	"torch.nn.functional.silu": "silu", "torch.nn.functional.mish": "mish", "torch.nn.functional.elu": "elu",
	"torch.nn.functional.selu": "selu", "torch.nn.functional.leaky_relu": "leaky_relu",
	"torch.nn.functional.hardswish": "hardswish", "torch.nn.functional.tanh": "tanh",
	"torch.nn.functional.sigmoid": "sigmoid",
}

// TransformerEncoderLayer is torch.nn.TransformerEncoderLayer with a ReLU; norm_first and batch_first are options.
func TransformerEncoderLayer(width, heads, inner int, opts ...Option) *Module {
	return transformerLayer("TransformerEncoderLayer", []string{"self_attn"}, width, heads, inner, opts)
}

// TransformerDecoderLayer is torch.nn.TransformerDecoderLayer with a ReLU; norm_first and batch_first are options.
func TransformerDecoderLayer(width, heads, inner int, opts ...Option) *Module {
	return transformerLayer("TransformerDecoderLayer", []string{"self_attn", "multihead_attn"}, width,
		heads, inner, opts)
}

func transformerLayer(class string, attention []string, width, heads, inner int, opts []Option) *Module {
	m := made(transformers+class, map[string]any{
		"norm_first": false, "batch_first": false, "bias": true, "activation": "torch.nn.functional.relu",
		"layer_norm_eps": 1e-5,
	}, opts)
	first, bias := Attr("batch_first", m.Attrs["batch_first"]), Attr("bias", m.Attrs["bias"])
	eps := Eps(m.Float("layer_norm_eps"))
	for _, name := range []string{"batch_first", "bias", "layer_norm_eps"} {
		delete(m.Attrs, name)
	}
	for _, name := range attention {
		m.Add(name, MultiheadAttention(width, heads, first, bias, Attr("dropout", 0.1)))
	}
	m.Add("linear1", Linear(width, inner, bias)).Add("dropout", Dropout(0.1)).Add("linear2", Linear(inner, width, bias))
	for i := range len(attention) + 1 {
		m.Add("norm"+string(rune('1'+i)), LayerNorm(width, eps, bias))
	}
	for i := range len(attention) + 1 {
		m.Add("dropout"+string(rune('1'+i)), Dropout(0.1))
	}
	return m
}
