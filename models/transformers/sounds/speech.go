// Package sounds has models of Python's transformers that hear: encoders of waves (wav2vec 2.0 and those made like it), and
// Whisper, which writes what it hears.
//
// It knows modules and their configurations. It does not know how spectra are made, files, devices or the meaning of ops.
//
//	all = append(all, sounds.Families...)
package sounds

import (
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// A speech is a transformer over what convolutions make of a sound: wav2vec 2.0, and what consists of its parts.
type speech struct {
	// name begins the names of classes, module is the Python module that has them; model is the model_type, prefix
	// base_model_prefix.
	name, module, model, prefix string
	// gated is set where scores have a bias by distance, of which a gate takes as much as each state asks for.
	gated bool
	// stacked is set where several convolutions, one after the other, give positions, and all are followed by a norm.
	stacked bool
	// shortens is set where layers may follow the encoder that make fewer states of its own.
	shortens bool
	// bare is set where the states are all that the model gives, not also what the encoder's are made of.
	bare bool
	// heads are the names of the classes of models beside the base model.
	heads []string
}

const (
	speechCTC      = "ForCTC"
	speechSequence = "ForSequenceClassification"
	speechFrames   = "ForAudioFrameClassification"
	speechSpeaker  = "ForXVector"
)

// speechFamilies are transformers/models/wav2vec2/modeling_wav2vec2.py and the like.
var speechFamilies = []*family.Family{
	speech{
		name: "Wav2Vec2", module: "wav2vec2.modeling_wav2vec2", model: "wav2vec2", prefix: "wav2vec2", shortens: true,
		heads: []string{speechCTC, speechSequence, speechFrames, speechSpeaker},
	}.family(),
	speech{
		name: "Hubert", module: "hubert.modeling_hubert", model: "hubert", prefix: "hubert", bare: true,
		heads: []string{speechCTC, speechSequence},
	}.family(),
	speech{
		name: "WavLM", module: "wavlm.modeling_wavlm", model: "wavlm", prefix: "wavlm", gated: true, shortens: true,
		heads: []string{speechCTC, speechSequence, speechFrames, speechSpeaker},
	}.family(),
	speech{
		name: "Data2VecAudio", module: "data2vec.modeling_data2vec_audio", model: "data2vec-audio", prefix: "data2vec_audio",
		stacked: true, shortens: true, heads: []string{speechCTC, speechSequence, speechFrames, speechSpeaker},
	}.family(),
	speech{
		name: "UniSpeech", module: "unispeech.modeling_unispeech", model: "unispeech", prefix: "unispeech",
		heads: []string{speechCTC, speechSequence},
	}.family(),
	speech{
		name: "UniSpeechSat", module: "unispeech_sat.modeling_unispeech_sat", model: "unispeech-sat", prefix: "unispeech_sat",
		heads: []string{speechCTC, speechSequence, speechFrames, speechSpeaker},
	}.family(),
}

// class returns the qualified name of a class.
func (s speech) class(name string) string {
	return "transformers.models." + s.module + "." + s.name + name
}

// plain returns the qualified name of a class that is called the same in every family.
func (s speech) plain(name string) string { return "transformers.models." + s.module + "." + name }

// The modules of a convolution whose weight is a direction and a length for each place of its window.
const (
	parametrizedConv  = "torch.nn.utils.parametrize.ParametrizedConv1d"
	parametrizedValue = "torch.nn.utils.parametrize.ParametrizationList"
	weightNormClass   = "torch.nn.utils.parametrizations._WeightNorm"
)

// family is the base model and its heads.
func (s speech) family() *family.Family {
	f := &family.Family{
		Model: s.model, Prefix: s.prefix,
		// Older checkpoints have the names of the older weight_norm.
		Renames: strings.NewReplacer(
			"conv.weight_g", "conv.parametrizations.weight.original0", "conv.weight_v", "conv.parametrizations.weight.original1"),
		Ignored: []string{`(^|\.)masked_spec_embed$`, `^objective\.`, `\.num_batches_tracked$`}, // what training alone reads
		Classes: layers.Classes{
			s.class("Model"):                       {Forward: s.modelForward},
			s.class("FeatureEncoder"):              layers.Unary(speechFeaturesForward),
			s.class("ConvLayer"):                   layers.Unary(speechNormedForward),
			s.class("LayerNormConvLayer"):          layers.Unary(speechNormedForward),
			s.class("GroupNormConvLayer"):          layers.Unary(family.Through("conv", "layer_norm", "activation")),
			s.class("NoLayerNormConvLayer"):        layers.Unary(family.Through("conv", "activation")),
			s.class("FeatureProjection"):           {Forward: speechProjectionForward},
			s.class("Encoder"):                     {Forward: s.encoderForward},
			s.class("EncoderStableLayerNorm"):      {Forward: s.encoderForward},
			s.class("PositionalConvEmbedding"):     layers.Unary(s.positionsForward),
			s.class("PositionalConvLayer"):         layers.Unary(speechStackedForward),
			s.class("SamePadLayer"):                layers.Unary(speechPadForward),
			s.class("EncoderLayer"):                {Forward: speechLayerForward},
			s.class("EncoderLayerStableLayerNorm"): {Forward: speechStableLayerForward},
			s.class("AttnAdapterLayer"):            layers.Unary(family.Through("norm", "linear_1", "act_fn", "linear_2")),
			s.class("Attention"):                   {Forward: speechAttentionForward},
			s.class("FeedForward"): layers.Unary(family.Through(
				"intermediate_dense", "intermediate_act_fn", "intermediate_dropout", "output_dense", "output_dropout")),
			s.class("Adapter"):      layers.Unary(speechAdapterForward),
			s.class("AdapterLayer"): layers.Unary(speechAdapterLayerForward),
			s.plain("TDNNLayer"):    layers.Unary(speechTDNNForward),
			s.class(speechCTC):      family.Headed(s.prefix, family.LogitsOf("dropout", "lm_head")),
			s.class(speechSequence): {Forward: s.sequenceForward},
			s.class(speechFrames):   {Forward: s.framesForward},
			s.class(speechSpeaker):  {Forward: s.speakerForward},
			parametrizedConv:        layers.Unary(parametrizedConvForward),
			parametrizedValue:       {Forward: parametrizedForward},
			weightNormClass:         {Forward: weightNormForward},
		},
		Heads: []family.Head{{Class: s.name + "Model", Make: func(c *family.Config) *layers.Module { return s.base(c, false) }}},
		Inputs: func(*family.Config) []layers.Port {
			wave := layers.Port{
				Name: "input_values", DType: tensor.Float32, Shape: tensor.Shape{-1, -1}, Dims: []string{"batch", "samples"},
			}
			mask := family.Tokens("attention_mask", true)
			mask.Dims = wave.Dims
			return []layers.Port{wave, mask}
		},
	}
	if s.gated {
		f.Classes[s.class("Attention")] = layers.Class{Forward: speechGatedForward}
	}
	for _, name := range s.heads {
		f.Heads = append(f.Heads, family.Head{Class: s.name + name, Make: func(c *family.Config) *layers.Module { return s.head(c, name) }})
	}
	return f
}

// head is a model with a head.
func (s speech) head(c *family.Config, name string) *layers.Module {
	hidden, m := c.Size("hidden_size", 768), layers.New(s.class(name), nil)
	weighted := name != speechCTC && c.Flag("use_weighted_layer_sum", false)
	if weighted {
		m.Param("layer_weights", c.Size("num_hidden_layers", 12)+1)
	}
	shorter := s.shortens && c.Flag("add_adapter", false)
	if shorter && name != speechCTC {
		c.Unsupported(name + " with add_adapter")
	}
	m.Add(s.prefix, s.base(c, weighted))
	switch name {
	case speechCTC:
		if shorter {
			hidden = c.Size("output_hidden_size", hidden)
		}
		m.Add("dropout", layers.Dropout(0.1)).Add("lm_head", layers.Linear(hidden, c.Size("vocab_size", 32)))
	case speechSequence:
		inner := c.Size("classifier_proj_size", 256)
		m.Add("projector", layers.Linear(hidden, inner)).Add("classifier", layers.Linear(inner, c.Labels()))
	case speechFrames:
		m.Add("classifier", layers.Linear(hidden, c.Labels()))
	case speechSpeaker:
		s.speaker(c, m, hidden)
	}
	return m
}

// speaker adds what makes a vector of a voice.
func (s speech) speaker(c *family.Config, m *layers.Module, hidden int) {
	widths, windows := c.Sizes("tdnn_dim", 512, 512, 512, 512, 1500), c.Sizes("tdnn_kernel", 5, 3, 3, 1, 1)
	apart := c.Sizes("tdnn_dilation", 1, 2, 3, 1, 1)
	if len(widths) != len(windows) || len(widths) != len(apart) {
		c.Fail("tdnn_dim", "has %d layers, and tdnn_kernel and tdnn_dilation have %d and %d", len(widths), len(windows), len(apart))
		return
	}
	m.Attrs = map[string]any{"windows": windows}
	list, in := make([]*layers.Module, len(widths)), widths[0]
	for i, out := range widths {
		list[i] = layers.New(s.plain("TDNNLayer"), map[string]any{"window": windows[i], "dilation": apart[i]}).
			Add("kernel", layers.Linear(in*windows[i], out)).
			Add("activation", layers.ReLU())
		in = out
	}
	size := c.Size("xvector_output_dim", 512)
	m.Add("projector", layers.Linear(hidden, widths[0])).
		Add("tdnn", layers.ModuleList(list...)).
		Add("feature_extractor", layers.Linear(2*in, size)).
		Add("classifier", layers.Linear(size, size))
}

// base is the base model's constructor; states says that it gives those of all layers.
func (s speech) base(c *family.Config, states bool) *layers.Module {
	hidden := c.Size("hidden_size", 768)
	widths := c.Sizes("conv_dim", 512, 512, 512, 512, 512, 512, 512)
	windows, steps := c.Sizes("conv_kernel", 10, 3, 3, 3, 3, 2, 2), c.Sizes("conv_stride", 5, 2, 2, 2, 2, 2, 2)
	if len(widths) != len(windows) || len(widths) != len(steps) {
		c.Fail("conv_dim", "has %d layers, and conv_kernel and conv_stride have %d and %d", len(widths), len(windows), len(steps))
		return layers.Identity()
	}
	projection, last := layers.New(s.class("FeatureProjection"), nil), widths[len(widths)-1]
	if c.Flag("feat_proj_layer_norm", true) || !s.bare {
		projection.Add("layer_norm", layers.LayerNorm(last, speechEps(c)))
	}
	projection.Add("projection", layers.Linear(last, hidden)).Add("dropout", layers.Dropout(0.1))
	m := layers.New(s.class("Model"), map[string]any{"windows": windows, "steps": steps, "states": states}).
		Add("feature_extractor", s.convolutions(c, widths, windows, steps)).
		Add("feature_projection", projection).
		Add("encoder", s.encoder(c, hidden))
	if s.shortens && c.Flag("add_adapter", false) {
		m.Add("adapter", s.adapter(c, hidden))
	}
	return m
}

func speechEps(c *family.Config) layers.Option { return layers.Eps(c.Float("layer_norm_eps", 1e-5)) }

// convolutions are those that make states of a sound.
func (s speech) convolutions(c *family.Config, widths, windows, steps []int) *layers.Module {
	var bias []layers.Option
	if !c.Flag("conv_bias", false) {
		bias = append(bias, layers.NoBias)
	}
	norm := "layer"
	if !s.stacked {
		norm = c.Text("feat_extract_norm", "group")
	}
	if norm != "group" && norm != "layer" {
		c.Fail("feat_extract_norm", "is %q, neither group nor layer", norm)
	}
	list, in := make([]*layers.Module, len(widths)), 1
	for i, out := range widths {
		class := "NoLayerNormConvLayer"
		conv := layers.Conv1d(in, out, windows[i], append(bias, layers.Stride(steps[i]))...)
		m := layers.New("", nil).Add("conv", conv)
		switch {
		case norm == "layer":
			class = "LayerNormConvLayer"
			m.Add("layer_norm", layers.LayerNorm(out))
		case i == 0:
			class = "GroupNormConvLayer"
			m.Add("layer_norm", layers.GroupNorm(out, out))
		}
		if s.stacked {
			class = "ConvLayer"
		}
		m.Class = s.class(class)
		list[i], in = m.Add("activation", s.activation(c)), out
	}
	return layers.New(s.class("FeatureEncoder"), nil).Add("conv_layers", layers.ModuleList(list...))
}

func (s speech) activation(c *family.Config) *layers.Module {
	return c.Activation(c.Text("feat_extract_activation", "gelu"))
}

// positions are convolutions over states, which give what is added to them.
func (s speech) positions(c *family.Config, hidden int) *layers.Module {
	m, key := layers.New(s.class("PositionalConvEmbedding"), nil), "num_conv_pos_embeddings"
	missing := 128
	if s.stacked {
		key, missing = "conv_pos_kernel_size", 19
	}
	window, groups := c.Table(key, missing), c.Table("num_conv_pos_embedding_groups", 16)
	if hidden%groups != 0 {
		c.Fail("num_conv_pos_embedding_groups", "is %d, which does not divide the hidden size %d", groups, hidden)
		return m
	}
	conv := func() *layers.Module {
		return layers.Conv1d(hidden, hidden, window, layers.Padding(window/2), layers.Groups(groups))
	}
	pad := func() *layers.Module {
		return layers.New(s.class("SamePadLayer"), map[string]any{"remove": 1 - window%2})
	}
	switch {
	case s.stacked:
		return m.Add("layers", c.Repeat(c.Size("num_conv_pos_embeddings", 5), func(int) *layers.Module {
			return layers.New(s.class("PositionalConvLayer"), nil).
				Add("conv", conv()).
				Add("padding", pad()).
				Add("activation", s.activation(c)).
				Add("layer_norm", layers.LayerNorm(hidden, layers.Attr("elementwise_affine", false)))
		}))
	case s.bare && c.Flag("conv_pos_batch_norm", false):
		norm := layers.BatchNorm1d(hidden)
		norm.Params = norm.Params[:len(norm.Params)-1] // how many batches there were
		m.Add("conv", conv()).Add("batch_norm", norm)
	default:
		m.Add("conv", weightNormed(conv(), window))
	}
	return m.Add("padding", pad()).Add("activation", s.activation(c))
}

// weightNormed has the weight of a convolution made of lengths, one for each place of its window, and of directions.
func weightNormed(conv *layers.Module, window int) *layers.Module {
	weight, bias := conv.Params[0], conv.Params[1]
	conv.Class, conv.Params = parametrizedConv, []layers.Param{bias}
	return conv.Add("parametrizations", layers.New("torch.nn.modules.container.ModuleDict", nil).
		Add("weight", layers.New(parametrizedValue, nil).
			Param("original0", 1, 1, window).
			Param("original1", weight.Shape...).
			Add("0", layers.New(weightNormClass, nil))))
}

// encoder is the transformer.
func (s speech) encoder(c *family.Config, hidden int) *layers.Module {
	stable := !s.stacked && c.Flag("do_stable_layer_norm", false)
	inner, act := c.Size("intermediate_size", 3072), c.Text("hidden_act", "gelu")
	variant := ""
	if stable {
		variant = "StableLayerNorm"
	}
	layer := func(i int) *layers.Module {
		m := layers.New(s.class("EncoderLayer"+variant), nil).
			Add("attention", s.attention(c, hidden, i)).
			Add("dropout", layers.Dropout(0.1)).
			Add("layer_norm", layers.LayerNorm(hidden, speechEps(c))).
			Add("feed_forward", layers.New(s.class("FeedForward"), nil).
				Add("intermediate_dropout", layers.Dropout(0.1)).
				Add("intermediate_dense", layers.Linear(hidden, inner)).
				Add("intermediate_act_fn", c.Activation(act)).
				Add("output_dense", layers.Linear(inner, hidden)).
				Add("output_dropout", layers.Dropout(0.1))).
			Add("final_layer_norm", layers.LayerNorm(hidden, speechEps(c)))
		if _, adapted := c.Integer("adapter_attn_dim"); adapted && stable && !s.gated {
			size := c.Size("adapter_attn_dim", 0)
			m.Add("adapter_layer", layers.New(s.class("AttnAdapterLayer"), nil).
				Add("norm", layers.LayerNorm(hidden)).
				Add("linear_1", layers.Linear(hidden, size)).
				Add("act_fn", layers.ReLU()).
				Add("linear_2", layers.Linear(size, hidden)))
		}
		return m
	}
	return layers.New(s.class("Encoder"+variant), map[string]any{"eager": c.Eager(), "stable": stable}).
		Add("pos_conv_embed", s.positions(c, hidden)).
		Add("layer_norm", layers.LayerNorm(hidden, speechEps(c))).
		Add("dropout", layers.Dropout(0.1)).
		Add("layers", c.Repeat(c.Size("num_hidden_layers", 12), layer))
}

func (s speech) attention(c *family.Config, hidden, layer int) *layers.Module {
	heads := c.Size("num_attention_heads", 12)
	c.Heads(hidden, heads)
	m := layers.New(s.class("Attention"), map[string]any{"num_heads": heads, "head_dim": hidden / heads, "eager": c.Eager()})
	for _, name := range []string{"k_proj", "v_proj", "q_proj", "out_proj"} {
		m.Add(name, layers.Linear(hidden, hidden))
	}
	if !s.gated {
		return m
	}
	m.Param("gru_rel_pos_const", 1, heads, 1, 1).Add("gru_rel_pos_linear", layers.Linear(hidden/heads, 8))
	if layer == 0 {
		buckets, far := c.Size("num_buckets", 320), c.Size("max_bucket_distance", 800)
		if c.Err == nil && (buckets < 4 || far <= buckets/4) {
			c.Fail("num_buckets", "is %d, and distances go to %d: wanted are 4 or more, and further than a fourth", buckets, far)
		}
		m.Attrs["num_buckets"], m.Attrs["max_distance"] = buckets, far
		m.Add("rel_attn_embed", layers.Embedding(buckets, heads))
	}
	return m
}

// adapter is what makes fewer states of those of the encoder.
func (s speech) adapter(c *family.Config, hidden int) *layers.Module {
	m, size := layers.New(s.class("Adapter"), nil), c.Size("output_hidden_size", hidden)
	if size != hidden {
		m.Add("proj", layers.Linear(hidden, size)).Add("proj_layer_norm", layers.LayerNorm(size))
	}
	window, step := c.Table("adapter_kernel_size", 3), c.Table("adapter_stride", 2)
	return m.Add("layers", c.Repeat(c.Size("num_adapter_layers", 3), func(int) *layers.Module {
		return layers.New(s.class("AdapterLayer"), nil).
			Add("conv", layers.Conv1d(size, 2*size, window, layers.Stride(step), layers.Padding(1)))
	}))
}
