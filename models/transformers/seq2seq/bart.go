package seq2seq

import (
	"math"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

const bartClass = "transformers.models.bart.modeling_bart.Bart"

// bart is transformers/models/bart/modeling_bart.py.
var bart = &family.Family{
	Model: "bart", Prefix: "model",
	Ignored: []string{`(^|\.)(encoder|decoder)\.version$`},
	Classes: layers.Classes{
		bartClass + "Model":                      {Forward: bartModelForward},
		bartClass + "Encoder":                    {Forward: bartEncoderForward},
		bartClass + "Decoder":                    {Forward: bartDecoderForward},
		bartClass + "EncoderLayer":               {Forward: bartLayerForward},
		bartClass + "DecoderLayer":               {Forward: bartLayerForward},
		bartClass + "Attention":                  {Forward: bartAttentionForward},
		bartClass + "ScaledWordEmbedding":        layers.Unary(bartEmbeddingForward),
		bartClass + "LearnedPositionalEmbedding": {Forward: bartPositionsForward},
		bartClass + "ClassificationHead":         layers.Unary(bartClassificationHeadForward),
		bartClass + "ForConditionalGeneration":   {Forward: bartForConditionalGenerationForward},
		bartClass + "ForSequenceClassification":  {Forward: bartForSequenceClassificationForward},
		bartClass + "ForQuestionAnswering":       {Forward: bartForQuestionAnsweringForward},
	},
	Heads: []family.Head{
		{Class: "BartModel", Make: bartForm.model},
		bartForm.writer("BartForConditionalGeneration"),
		{Class: "BartForSequenceClassification", Make: func(c *family.Config) *layers.Module {
			hidden := c.Size("d_model", 1024)
			return layers.New(bartClass+"ForSequenceClassification", map[string]any{"eos_token_id": c.Number("eos_token_id", 2)}).
				Add("model", bartForm.model(c)).
				Add("classification_head", layers.New(bartClass+"ClassificationHead", nil).
					Add("dense", layers.Linear(hidden, hidden)).
					Add("dropout", layers.Dropout(0)).
					Add("out_proj", layers.Linear(hidden, bartLabels(c))))
		}},
		{Class: "BartForQuestionAnswering", Make: func(c *family.Config) *layers.Module {
			return layers.New(bartClass+"ForQuestionAnswering", nil).
				Add("model", bartForm.model(c)).
				Add("qa_outputs", layers.Linear(c.Size("d_model", 1024), 2))
		}},
	},
	Inputs: func(c *family.Config) []layers.Port {
		ports := seq2seqInputs(c)
		ports[2].Optional = true
		return ports
	},
	Tied: [][2]string{
		{"shared.weight", "encoder.embed_tokens.weight"},
		{"decoder.embed_tokens.weight", "shared.weight"},
		{"encoder.embed_tokens.weight", "shared.weight"},
		{"model.shared.weight", "model.encoder.embed_tokens.weight"},
		{"model.shared.weight", "lm_head.weight"},
		{"model.decoder.embed_tokens.weight", "model.shared.weight"},
		{"model.encoder.embed_tokens.weight", "model.shared.weight"},
	},
	Ties: true,
}

// bartLabels is labels with the default of BART, which was trained to tell entailment.
func bartLabels(c *family.Config) int {
	if c.Fields["id2label"] == nil && c.Fields["num_labels"] == nil {
		return 3
	}
	return c.Labels()
}

// A seq2seqForm is how a family differs from BART that has its parts.
type seq2seqForm struct {
	// class begins the names of its classes; words and start are the defaults of vocab_size and decoder_start_token_id.
	class        string
	words, start int
	// scaled is set where embeddings scale what they give, by a class of their own; otherwise the stacks do.
	scaled bool
	// sinusoids are positions that are not learned and begin with 0.
	sinusoids bool
	// normedEmbedding and normedEnd say that what layers get, and what they give, is normed.
	normedEmbedding, normedEnd bool
	// parted is set where the decoder may have other tokens than the encoder.
	parted bool
}

var bartForm = seq2seqForm{class: bartClass, words: 50265, start: 2, scaled: true, normedEmbedding: true}

// positions is how many positions texts may have.
func (f *seq2seqForm) positions(c *family.Config) int {
	return c.Table("max_position_embeddings", 1024)
}

// shares reports whether encoder and decoder have one table of tokens.
func (f *seq2seqForm) shares(c *family.Config) bool {
	return !f.parted || c.Flag("share_encoder_decoder_embeddings", true)
}

// tokens is how many tokens a side knows.
func (f *seq2seqForm) tokens(c *family.Config, side string) int {
	words := c.Table("vocab_size", f.words)
	if side == "decoder" && !f.shares(c) {
		words = c.Table("decoder_vocab_size", words)
	}
	return words
}

// writer is the model that writes.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func (f *seq2seqForm) writer(class string) family.Head {
	return family.Transducing(f.positions, f.positions, family.Head{Class: class, Make: func(c *family.Config) *layers.Module {
		hidden, words := c.Size("d_model", 1024), f.tokens(c, "decoder")
		bias := layers.Param{
			Name: "final_logits_bias", DType: tensor.Float32, Shape: tensor.Shape{1, words}, Buffer: true,
		}
		if !c.Holds(bias.Name) { // it may be missing, and is zero then
			bias.Transient, bias.Value = true, tensor.Of(make([]float32, words), 1, words)
		}
		m := layers.New(f.class+strings.TrimPrefix(class, f.class[strings.LastIndex(f.class, ".")+1:]), nil)
		m.Params = append(m.Params, bias)
		return m.Add("model", f.model(c)).Add("lm_head", layers.Linear(hidden, words, layers.NoBias))
	}})
}

func (f *seq2seqForm) model(c *family.Config) *layers.Module {
	m := layers.New(f.class+"Model", map[string]any{"decoder_start_token_id": c.Number("decoder_start_token_id", f.start)})
	if f.shares(c) {
		m.Add("shared", f.embedding(c, "encoder"))
	}
	return m.Add("encoder", f.stack(c, "Encoder", "encoder")).Add("decoder", f.stack(c, "Decoder", "decoder"))
}

func (f *seq2seqForm) embedding(c *family.Config, side string) *layers.Module {
	hidden, words := c.Size("d_model", 1024), f.tokens(c, side)
	if !f.scaled {
		return layers.Embedding(words, hidden)
	}
	return layers.New(f.class+"ScaledWordEmbedding", map[string]any{"embed_scale": embedScale(c, hidden)}).
		Param("weight", words, hidden)
}

// embedScale is what embeddings are multiplied with.
func embedScale(c *family.Config, hidden int) float64 {
	if c.Flag("scale_embedding", false) {
		return math.Sqrt(float64(hidden))
	}
	return 1
}

// bartOffset is where the numbers of positions begin, for the sake of checkpoints.
const bartOffset = 2

func (f *seq2seqForm) stack(c *family.Config, class, side string) *layers.Module {
	hidden, positions := c.Size("d_model", 1024), f.positions(c)
	layer := func(int) *layers.Module { return BartLayer(c, f.class, side, bartAttention(c, f.class, side)) }
	m := layers.New(f.class+class, map[string]any{"eager": c.Eager()}).Add("embed_tokens", f.embedding(c, side))
	if !f.scaled {
		m.Attrs["embed_scale"] = embedScale(c, hidden)
	}
	if f.sinusoids {
		m.Add("embed_positions", f.sines(c, side, positions, hidden))
	} else {
		m.Add("embed_positions", layers.New(f.class+"LearnedPositionalEmbedding", nil).Param("weight", positions+bartOffset, hidden))
	}
	m.Add("layers", c.Repeat(c.Size(side+"_layers", 12), layer))
	if f.normedEmbedding {
		m.Add("layernorm_embedding", layers.LayerNorm(hidden))
	}
	if f.normedEnd {
		m.Add("layer_norm", layers.LayerNorm(hidden))
	}
	return m
}

// BartLayer is BartEncoderLayer or BartDecoderLayer, of the attention that create makes; Whisper has the same parts.
func BartLayer(c *family.Config, class, side string, create func() *layers.Module) *layers.Module {
	hidden, inner := c.Size("d_model", 1024), c.Size(side+"_ffn_dim", 4096)
	name := map[string]string{"encoder": "EncoderLayer", "decoder": "DecoderLayer"}[side]
	attend := func(of string) *layers.Module {
		m := create()
		if side == "decoder" {
			m.Attrs[family.Keeps] = of
		}
		return m
	}
	m := layers.New(class+name, nil).
		Add("self_attn", attend(family.OfWritten)).
		Add("self_attn_layer_norm", layers.LayerNorm(hidden)).
		Add("activation_fn", c.Activation(c.Text("activation_function", "gelu")))
	if side == "decoder" {
		m.Add("encoder_attn", attend(family.OfTheSource)).Add("encoder_attn_layer_norm", layers.LayerNorm(hidden))
	}
	return m.Add("fc1", layers.Linear(hidden, inner)).
		Add("fc2", layers.Linear(inner, hidden)).
		Add("final_layer_norm", layers.LayerNorm(hidden))
}

func bartAttention(c *family.Config, class, side string) func() *layers.Module {
	hidden, heads := c.Size("d_model", 1024), c.Size(side+"_attention_heads", 16)
	c.Heads(hidden, heads)
	return func() *layers.Module {
		m := layers.New(class+"Attention", map[string]any{"num_heads": heads, "head_dim": hidden / heads, "eager": c.Eager()})
		for _, name := range []string{"k_proj", "v_proj", "q_proj", "out_proj"} {
			m.Add(name, layers.Linear(hidden, hidden))
		}
		return m
	}
}

func bartEmbeddingForward(t *layers.Trace, m *layers.Module, ids layers.Tensor) layers.Tensor {
	return t.Op("mul.Tensor", t.Op("embedding", t.Param(m, "weight"), ids), m.Float("embed_scale"))
}

// bartPositionsForward takes tokens, and their positions if they are known.
func bartPositionsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	weight, s := t.Param(m, "weight"), family.TokenIDs(t, args).Shape()
	if longest := weight.Shape()[0] - bartOffset; s[1] > longest && !IsStep(t) {
		t.Fail("%d tokens, and the model has %d positions", s[1], longest)
	}
	positions := family.Optional(t, args, 1)
	if positions == nil {
		positions = t.Op("arange.start", 0, s[1], layers.Named{"dtype": tensor.Int64})
		positions = t.Op("expand", positions, []int{s[0], -1})
	} else {
		positions = t.Op("unsqueeze", positions, 0)
	}
	return t.Op("embedding", weight, t.Op("add.Tensor", positions, bartOffset))
}

// bartModelForward takes input_ids, attention_mask, decoder_input_ids and decoder_attention_mask.
func bartModelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	all := make([]any, 4)
	copy(all, args)
	if _, step := t.Steps(); step {
		_, decoded := encodeDecode(t, m, all)
		return layers.Fields{{Name: "last_hidden_state", Value: decoded}}
	}
	if t.Reads() {
		encoded, _ := encodeDecode(t, m, all)
		return SourceOnly(encoded)
	}
	ids := family.TokenIDs(t, args)
	if family.Optional(t, args, 2) == nil { // the text itself, one token later
		first := t.Op("full", []int{ids.Shape()[0], 1}, m.Int("decoder_start_token_id"), layers.Named{"dtype": tensor.Int64})
		all[2] = t.Op("cat", []layers.Tensor{first, t.Op("slice.Tensor", ids, 1, 0, -1)}, 1)
	}
	encoded, decoded := encodeDecode(t, m, all)
	return layers.Fields{
		{Name: "last_hidden_state", Value: decoded},
		{Name: "encoder_last_hidden_state", Value: encoded},
	}
}

func bartEncoderForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids := family.TokenIDs(t, args)
	s := ids.Shape()
	x := embedTokens(t, m, ids)
	x = t.Op("add.Tensor", x, t.Child(m, "embed_positions", ids))
	x = ifThere(t, m, "layernorm_embedding", x)
	mask := family.Masking{
		Batch: s[0], Queries: s[1], Keys: s[1], Padding: family.Optional(t, args, 1), Additive: m.Bool("eager"),
	}.Create(t)
	for _, layer := range m.Child("layers").Children {
		x = t.Run(layer.Module, x, mask).(layers.Tensor)
	}
	return ifThere(t, m, "layer_norm", x)
}

// embedTokens gives tokens their vectors, in the scale of the stack where it has one.
func embedTokens(t *layers.Trace, m *layers.Module, ids layers.Tensor) layers.Tensor {
	x := t.Child(m, "embed_tokens", ids)
	if _, scaled := m.Attrs["embed_scale"]; scaled {
		x = t.Op("mul.Tensor", x, m.Float("embed_scale"))
	}
	return x
}

// ifThere runs a submodule that a stack may have.
func ifThere(t *layers.Trace, m *layers.Module, name string, x layers.Tensor) layers.Tensor {
	if m.Child(name) == nil {
		return x
	}
	return t.Child(m, name, x)
}

// IsStep reports whether a step is recorded, whose tokens may be of several texts.
func IsStep(t *layers.Trace) bool {
	_, step := t.Steps()
	return step
}

// bartDecoderForward takes input_ids, attention_mask, the encoder's output and the mask for it.
func bartDecoderForward(t *layers.Trace, m *layers.Module, args ...any) any {
	ids, encoded := family.TokenIDs(t, args), family.Optional(t, args, 2)
	s := ids.Shape()
	x := embedTokens(t, m, ids)
	var positions, mask, encodedMask layers.Tensor
	if IsStep(t) {
		positions = t.Positions()
	} else {
		positions = t.Op("add.Tensor", t.Op("arange", s[1]), 0)
		mask = family.Masking{
			Batch: s[0], Queries: s[1], Keys: s[1], Causal: true, Padding: family.Optional(t, args, 1), Additive: m.Bool("eager"),
		}.Create(t)
		encodedMask = crossMask(t, ids, encoded, family.Optional(t, args, 3), m.Bool("eager"))
	}
	x = t.Op("add.Tensor", x, t.ChildOf(m, "embed_positions", ids, positions))
	x = ifThere(t, m, "layernorm_embedding", x)
	for _, layer := range m.Child("layers").Children {
		x = t.Run(layer.Module, x, mask, encoded, encodedMask).(layers.Tensor)
	}
	return ifThere(t, m, "layer_norm", x)
}

// NormedFirstLayerForward is bartLayerForward where what the parts of a layer get is normed, and not what they give.
func NormedFirstLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := family.Optional(t, args, 0)
	y := t.Child(m, "self_attn_layer_norm", x)
	x = t.Op("add.Tensor", x, t.ChildOf(m, "self_attn", y, nil, args[1]))
	if m.Has("encoder_attn") {
		y = t.Child(m, "encoder_attn_layer_norm", x)
		x = t.Op("add.Tensor", x, t.ChildOf(m, "encoder_attn", y, args[2], family.Optional(t, args, 3)))
	}
	y = family.Through("final_layer_norm", "fc1", "activation_fn", "fc2")(t, m, x)
	return t.Op("add.Tensor", x, y)
}

// bartLayerForward takes x and its mask, and in the decoder the encoder's output and the mask for it.
func bartLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x := family.Optional(t, args, 0)
	x = t.Op("add.Tensor", x, t.ChildOf(m, "self_attn", x, nil, args[1]))
	x = t.Child(m, "self_attn_layer_norm", x)
	if m.Has("encoder_attn") {
		x = t.Op("add.Tensor", x, t.ChildOf(m, "encoder_attn", x, args[2], args[3]))
		x = t.Child(m, "encoder_attn_layer_norm", x)
	}
	x = t.Op("add.Tensor", x, family.Through("fc1", "activation_fn", "fc2")(t, m, x))
	return t.Child(m, "final_layer_norm", x)
}

// bartAttentionForward takes x, what is attended to where that is not x, and the mask.
func bartAttentionForward(t *layers.Trace, m *layers.Module, args ...any) any {
	size := m.Int("head_dim")
	if t.Reads() && m.Attrs[family.Keeps] != nil {
		return family.Keep(t, m, args[0], "k_proj", "v_proj", m.Int("num_heads"), size)
	}
	x, of := family.Optional(t, args, 0), family.Optional(t, args, 1)
	if of == nil {
		of = x
	}
	q := family.SplitHeads(t, m, "q_proj", x, size)
	if family.Recalls(t, m) {
		return t.Child(m, "out_proj", family.Attention{}.Recall(t, m, q))
	}
	k, v := t.Child(m, "k_proj", of), t.Child(m, "v_proj", of)
	shape := []int{of.Shape()[0], of.Shape()[1], -1, size}
	k = t.Op("transpose.int", t.Op("view", k, shape), 1, 2)
	v = t.Op("transpose.int", t.Op("view", v, shape), 1, 2)
	return t.Child(m, "out_proj", family.Attention{Eager: m.Bool("eager")}.Run(t, m, q, k, v, family.Optional(t, args, 2)))
}

// OfBoth runs the model within a head and returns the decoder's and the encoder's last hidden states: in a step that of
// the decoder alone, and where a source is read that of the encoder.
func OfBoth(t *layers.Trace, m *layers.Module, args []any) (decoded, encoded layers.Tensor) {
	out, _ := t.ChildOf(m, "model", args...).(layers.Fields)
	for _, f := range out {
		switch x := f.Value.(layers.Tensor); f.Name {
		case "last_hidden_state":
			decoded = x
		case "encoder_last_hidden_state":
			encoded = x
		}
	}
	if encoded == nil && decoded == nil {
		t.Fail("%s gives %d results", m.Class, len(out))
	}
	return decoded, encoded
}

func bartForConditionalGenerationForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, encoded := OfBoth(t, m, args)
	if x == nil {
		return SourceOnly(encoded)
	}
	logits := t.Op("add.Tensor", t.Child(m, "lm_head", t.Wanted(x)), t.Param(m, "final_logits_bias"))
	return WithSource(layers.Field{Name: "logits", Value: logits}, encoded)
}

// bartForSequenceClassificationForward classifies by the last end of text in a row. PyTorch refuses rows without one;
// here the first token stands for it.
func bartForSequenceClassificationForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, encoded := OfBoth(t, m, args)
	ids := family.TokenIDs(t, args)
	s := ids.Shape()
	if s[1] != x.Shape()[1] {
		t.Fail("decoder_input_ids has %d tokens, and input_ids %d", x.Shape()[1], s[1])
	}
	ends := t.Op("to.dtype", t.Op("eq.Scalar", ids, m.Int("eos_token_id")), tensor.Int64)
	last := t.Op("argmax", t.Op("mul.Tensor", ends, t.Op("arange", s[1])), -1)
	x = t.Op("index.Tensor", x, []layers.Tensor{t.Op("arange", s[0]), last})
	return layers.Fields{
		{Name: "logits", Value: t.Child(m, "classification_head", x)},
		{Name: "encoder_last_hidden_state", Value: encoded},
	}
}

func bartClassificationHeadForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Op("tanh", t.Child(m, "dense", t.Child(m, "dropout", x)))
	return t.Child(m, "out_proj", t.Child(m, "dropout", x))
}

func bartForQuestionAnsweringForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, encoded := OfBoth(t, m, args)
	out := family.SpansOf("qa_outputs")(t, m, x, nil).(layers.Fields)
	return append(out, layers.Field{Name: "encoder_last_hidden_state", Value: encoded})
}
