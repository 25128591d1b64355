package transformers

import (
	"maps"
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// A decoder describes a model that predicts tokens one after the other: what of it is not as in Llama. The zero value of
// every field is Llama's. The sizes are the defaults of the configuration's class.
//
// docs/families.md says how to describe another one.
type decoder struct {
	// model is the model_type; class the module and the beginning of the class names in Python, name that of the latter.
	model, class, name                   string
	vocabulary, hidden, inner            int // inner 0: four times hidden
	layers, heads, keys, size, positions int // keys and size 0: as many as heads, hidden / heads
	// keysKey is noKeys where the configuration does not say how many keys there are.
	keysKey string
	// eps is the default of the norms' entry, which is called epsKey; "" is rms_norm_eps.
	eps         float64
	epsKey      string
	act, actKey string
	// pad is the default of pad_token_id, nil for none; ties that of tie_word_embeddings.
	pad  any
	ties bool
	// qaPrefix is the name of the base model in the one that answers questions, "" where there is none. noTokens is set where
	// there is no model that classifies tokens, or one that is not as others are; noTexts where none classifies texts.
	qaPrefix          string
	noTokens, noTexts bool
	// names are those of the modules where they are not Llama's.
	names names
	// by changes the description as a configuration wants it.
	by func(c *family.Config, d *decoder)

	// qkvBias, outBias, mlpBias and headBias say whether projections have a bias: those of the attention into heads and out of
	// them, of the MLP, into the vocabulary.
	qkvBias, outBias, mlpBias, headBias func(c *family.Config) bool
	// norm is the kind of the norms.
	norm normKind
	// parallel is set where the MLP sees what the attention sees, and both are added at once.
	parallel bool
	// normed is set where norms' results, not what they were made of, go on beside the attention and the MLP.
	normed bool
	// scaled multiplies embeddings with √hidden: Gemma.
	scaled bool
	// fused says how one projection makes queries, keys and values.
	fused fusedKind
	// plain is an MLP without a gate; gateFused one whose projection makes gate and values at once.
	plain, gateFused bool
	// headNorm is how queries and keys are normalized.
	headNorm headNorm
	// rope is how heads are turned by their positions; turns says in which layers they are, nil for all.
	rope  rope
	turns func(c *family.Config) func(i int, sliding bool) bool
	// alibi returns the slopes of the heads where positions are added to scores instead.
	alibi func(c *family.Config, heads int) *alibi
	// scaling of the scores, nil for 1/√size.
	scaling func(c *family.Config, size int) float64
	// capped bounds scores and logits: Gemma 2. logitCap bounds the logits only, where the configuration says so;
	// logitBound is the default.
	capped, logitCap bool
	logitBound       float64
	// embedding, residual and logits return what those are multiplied with, nil for 1.
	embedding, residual, logits func(c *family.Config) float64
	// clip returns the bound of what the projections into heads give, 0 for none.
	clip func(c *family.Config) float64
	// warmed multiplies queries by the logarithm of how often the original context passed: Llama 4's, Ministral 3's.
	warmed bool
	// window returns the layers' sliding window, 0 for none, and which layers have it; chunked says that it is the size of chunks
	// that do not slide.
	window  func(c *family.Config, layers int) (size int, slides func(i int) bool)
	chunked bool
	// feed makes what stands in place of the MLP of layer i, attend what stands in place of the attention; nil are those.
	feed   func(d *decoder, c *family.Config, i int, s shape) *layers.Module
	attend func(d *decoder, c *family.Config, i int, s shape, attrs map[string]any) *layers.Module
	// mixer makes what stands in layer i in place of the attention and keeps a state, and says under which name; nil is
	// the attention.
	mixer func(d *decoder, c *family.Config, i int, s shape) (name string, m *layers.Module)
	// more adds to layer i what only its own forward knows, top to the model what only begin and end know.
	more func(d *decoder, c *family.Config, i int, s shape, layer *layers.Module)
	top  func(d *decoder, c *family.Config, s shape, m *layers.Module)
	// begin makes what the first layer sees of the embeddings of tokens, end what the norm sees of what the last layer
	// gives; nil where that is the same.
	begin func(t *layers.Trace, m *layers.Module, ids, x layers.Tensor, a *around) layers.Tensor
	end   func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor
	// full returns the sizes of the attention in layers that do not slide, nil where those are the same.
	full func(c *family.Config, s shape) shape
	// latents are the defaults of sizes where keys and values come from latents.
	latents latents
	// depth is how many layers there are, nil for what the entry says.
	depth func(c *family.Config) int
	// beside is the name of a module that more adds, which sees what the MLP sees and whose result is added to the
	// MLP's.
	beside string
	// keyFactor returns what keys are multiplied with, nil for 1.
	keyFactor func(c *family.Config) float64
	// still is set where nothing is turned, bare where layers have no MLP, recurrent where all layers keep a state.
	still, bare, recurrent bool
	// sinks is set where each head has a score more, whose value is nothing: gpt-oss.
	sinks bool
	// ignored matches keys of checkpoints that nothing reads; renames are pairs of old and new parts of them.
	ignored []string
	renames []string
}

// names are those of a decoder's modules: of the base model in those with a head, of what is in it and of what is in its
// layers. A norm without a name is not there.
type names struct {
	base, embed, embedNorm, layers, norm string
	attention, mlp                       string
	// before and after are the norms of the attention, 0, and of the MLP, 1.
	before, after   [2]string
	q, k, v, qkv, o string
	// gate and up come before the activation, down after it; gateUp is both in one.
	gate, up, down, gateUp, act string
	qNorm, kNorm                string
}

// llamaNames are what names that are not given are.
var llamaNames = names{
	base: "model", embed: "embed_tokens", layers: "layers", norm: "norm", attention: "self_attn", mlp: "mlp",
	before: [2]string{"input_layernorm", "post_attention_layernorm"},
	q:      "q_proj", k: "k_proj", v: "v_proj", qkv: "qkv_proj", o: "o_proj",
	gate: "gate_proj", up: "up_proj", down: "down_proj", gateUp: "gate_up_proj", act: "act_fn",
	qNorm: "q_norm", kNorm: "k_norm",
}

// filled returns the names with Llama's for those that are not given.
func (n names) filled() names {
	for _, p := range []struct{ have, want *string }{
		{&n.base, &llamaNames.base}, {&n.embed, &llamaNames.embed}, {&n.layers, &llamaNames.layers},
		{&n.norm, &llamaNames.norm}, {&n.attention, &llamaNames.attention}, {&n.mlp, &llamaNames.mlp},
		{&n.q, &llamaNames.q}, {&n.k, &llamaNames.k}, {&n.v, &llamaNames.v}, {&n.qkv, &llamaNames.qkv},
		{&n.o, &llamaNames.o}, {&n.gate, &llamaNames.gate}, {&n.up, &llamaNames.up}, {&n.down, &llamaNames.down},
		{&n.gateUp, &llamaNames.gateUp}, {&n.act, &llamaNames.act}, {&n.qNorm, &llamaNames.qNorm},
		{&n.kNorm, &llamaNames.kNorm},
	} {
		if *p.have == "" {
			*p.have = *p.want
		}
	}
	if n.before == [2]string{} && n.after == [2]string{} {
		n.before = llamaNames.before
	}
	return n
}

// family is the decoder with its heads.
func (d decoder) family() *family.Family {
	d.names = d.names.filled()
	base := d.names.base
	f := &family.Family{
		Model: d.model, Prefix: base, Encodes: d.name + "Model", Positions: d.positions,
		Classes: layers.Classes{
			d.class + "Model":           {Forward: d.modelForward},
			d.class + "DecoderLayer":    {Forward: d.layerForward},
			d.class + "Attention":       {Forward: d.attentionForward},
			d.class + "MLP":             layers.Unary(d.mlpForward),
			d.class + "RMSNorm":         layers.Unary(d.normForward),
			d.class + "PerHead":         layers.Unary(perHeadForward),
			d.class + "LayerNorm":       layers.Unary(layerNormForward),
			d.class + "RotaryEmbedding": {Forward: rotaryForward},
			d.class + "ForCausalLM":     family.Headed(base, causalLM),
		},
		Heads: []family.Head{
			{Class: d.name + "Model", Make: d.base},
			family.Generating(d.context, d.head("ForCausalLM", base, func(own *decoder, c *family.Config, m *layers.Module, hidden int) {
				m.Attrs = map[string]any{"final_logit_softcapping": 0.0, "logit_scale": 1.0}
				if d.capped {
					m.Attrs["final_logit_softcapping"] = softcap(c, "final_logit_softcapping", 30)
				} else if d.logitCap {
					m.Attrs["final_logit_softcapping"] = softcap(c, "final_logit_softcapping", d.logitBound)
				}
				if d.logits != nil {
					m.Attrs["logit_scale"] = d.logits(c)
				}
				m.Add("lm_head", layers.Linear(hidden, c.Size("vocab_size", d.vocabulary), biased(c, d.headBias)))
			})),
		},
		Inputs: family.TokenInputs("attention_mask", "position_ids"),
		Tied:   [][2]string{{"lm_head.weight", base + "." + d.names.embed + ".weight"}},
		Ties:   d.ties, Ignored: d.ignored, Renames: replacer(d.renames),
	}
	if d.scaled {
		f.Classes[d.class+"TextScaledWordEmbedding"] = layers.Unary(scaledEmbeddingForward)
	}
	d.classifiers(f)
	return f
}

// classifiers adds the models that classify texts and tokens, and that answer questions.
func (d decoder) classifiers(f *family.Family) {
	base := d.names.base
	if !d.noTexts {
		f.Classes[d.class+"ForSequenceClassification"] = family.LastToken(base)
		f.Heads = append(f.Heads, d.head("ForSequenceClassification", base, func(_ *decoder, c *family.Config, m *layers.Module, hidden int) {
			m.Attrs = map[string]any{"pad_token_id": padding(c, d.pad)}
			m.Add("score", layers.Linear(hidden, c.Labels(), layers.NoBias))
		}))
	}
	if !d.noTokens {
		f.Classes[d.class+"ForTokenClassification"] = family.Headed(base, family.LogitsOf("dropout", "score"))
		f.Heads = append(f.Heads, d.head("ForTokenClassification", base, func(_ *decoder, c *family.Config, m *layers.Module, hidden int) {
			var bias []layers.Option
			if !c.Flag("token_classification_bias", true) {
				bias = append(bias, layers.NoBias)
			}
			m.Add("dropout", layers.Dropout(0.1)).Add("score", layers.Linear(hidden, c.Labels(), bias...))
		}))
	}
	if d.qaPrefix != "" {
		f.Classes[d.class+"ForQuestionAnswering"] = family.Headed(d.qaPrefix, family.SpansOf("qa_outputs"))
		f.Heads = append(f.Heads, d.head("ForQuestionAnswering", d.qaPrefix, func(_ *decoder, _ *family.Config, m *layers.Module, hidden int) {
			m.Add("qa_outputs", layers.Linear(hidden, 2))
		}))
	}
}

// biased says whether a projection has a bias.
func biased(c *family.Config, has func(*family.Config) bool) layers.Option {
	return layers.Attr("bias", has != nil && has(c))
}

// head returns a model with a head that add puts on it.
func (d decoder) head(name, prefix string, add func(d *decoder, c *family.Config, m *layers.Module, hidden int)) family.Head {
	return family.Head{Class: d.name + name, Prefix: prefix, Make: func(c *family.Config) *layers.Module {
		m := layers.New(d.class+name, nil).Add(prefix, d.base(c))
		add(&d, c, m, c.Size(hiddenKey, d.hidden))
		return m
	}}
}

// The names that sizes have in one configuration or another.
const (
	hiddenKey    = "hidden_size|n_embd|n_embed|d_model"
	innerKey     = "intermediate_size|n_inner|ffn_hidden_size"
	layersKey    = "num_hidden_layers|n_layer|n_layers|num_layers"
	headsKey     = "num_attention_heads|n_head|n_heads"
	keysKey      = "num_key_value_heads|num_kv_heads|n_head_kv"
	positionsKey = "max_position_embeddings|n_positions|max_seq_len|seq_length|model_max_length"
)

// noKeys is a keysKey.
const noKeys = "-"

// context is how many positions a sequence may have.
func (d decoder) context(c *family.Config) int {
	n := c.Size(positionsKey, d.positions)
	p, _ := ropeParameters(c, d.rope)
	defer c.Adopt(p)
	stretched := p.Text("rope_type|type", "") == "dynamic" && !(d.rope.alpha && p.Float("alpha", 0) > 0)
	if factor := p.Float("factor", 1); stretched && factor > 1 {
		n = int(min(float64(n)*factor, family.MaxSize))
	}
	return n
}

// configured returns the description as the configuration wants it.
func (d decoder) configured(c *family.Config) *decoder {
	if d.by != nil {
		d.by(c, &d)
	}
	return &d
}

// of returns the description that a module was made of.
func (d decoder) of(m *layers.Module) *decoder {
	if own, ok := m.Attrs["decoder"].(*decoder); ok {
		return own
	}
	return &d
}

// A shape has a decoder's sizes.
type shape struct{ hidden, inner, heads, keys, size, positions, layers int }

// shape reads the sizes.
func (d *decoder) shape(c *family.Config) shape {
	s := shape{
		hidden: c.Size(hiddenKey, d.hidden), heads: c.Size(headsKey, d.heads), positions: c.Size(positionsKey, d.positions),
		layers: c.Size(layersKey, d.layers),
	}
	if d.depth != nil {
		s.layers = d.depth(c)
	}
	inner := d.inner
	if inner == 0 {
		inner = 4 * s.hidden
	}
	s.inner = sizeOf(c, innerKey, inner, 0)
	keys := d.keys
	if keys == 0 {
		keys = s.heads
	}
	if s.keys = keys; d.keysKey != noKeys {
		s.keys = c.Size(keysKey, keys)
	}
	size := d.size
	if size == 0 {
		size = max(s.hidden/s.heads, 1)
	}
	s.size = c.Size("head_dim", size)
	return s.checked(c)
}

// checked returns the sizes, which it holds against each other.
func (s shape) checked(c *family.Config) shape {
	if s.heads%s.keys != 0 {
		c.Fail("num_key_value_heads", "is %d, and does not divide the %d heads", s.keys, s.heads)
	}
	return s
}

// base is the constructor of the base model.
func (d decoder) base(c *family.Config) *layers.Module {
	own := d.configured(c)
	s := own.shape(c)
	c.Looked("use_bidirectional_attention")
	switch v := c.Fields["use_bidirectional_attention"]; v {
	case nil, false, "vision": // which is between the parts of a picture
	default:
		c.Unsupported("use_bidirectional_attention")
	}
	window, slides := 0, func(int) bool { return false }
	if own.window != nil {
		window, slides = own.window(c, s.layers)
	}
	turns := func(int, bool) bool { return own.alibi == nil && !own.still }
	if own.turns != nil {
		turns = own.turns(c)
	}
	full := s
	if own.full != nil {
		full = own.full(c, s).checked(c)
	}
	all := own.attentionAttrs(c, full)
	near := all
	if own.full != nil {
		near = own.attentionAttrs(c, s)
	}
	layer := func(i int) *layers.Module {
		sliding := window > 0 && slides(i)
		attrs, s := maps.Clone(near), s
		if !sliding {
			attrs, s = maps.Clone(all), full
		}
		attrs["turned"] = turns(i, sliding)
		if attrs["window"] = 0; sliding {
			attrs["window"] = window
		}
		return own.layer(c, i, s, attrs, sliding)
	}
	m := layers.New(d.class+"Model", map[string]any{
		"decoder": own, "eager": all["eager"], "window": window, "embedding_multiplier": times(c, own.embedding),
	}).Add(own.names.embed, own.words(c, s.hidden))
	if own.names.embedNorm != "" {
		m.Add(own.names.embedNorm, own.normModule(c, s.hidden))
	}
	m.Add(own.names.layers, c.Repeat(s.layers, layer)).Add(own.names.norm, own.normModule(c, s.hidden))
	if own.top != nil {
		own.top(own, c, s, m)
	}
	m.Attrs["recurrent"], m.Attrs["keyless"] = own.keeps(m)
	if own.still {
		return m
	}
	if own.alibi != nil {
		m.Attrs["alibi"] = own.alibi(c, s.heads)
		return m
	}
	m.Add("rotary_emb", rotary(c, d.class+"RotaryEmbedding", full.size, s.positions, own.rope))
	if own.rope.local > 0 && window > 0 {
		m.Add("rotary_emb_local", rotary(c, d.class+"RotaryEmbedding", s.size, s.positions, own.rope.sliding()))
	}
	return m
}

// keeps says whether layers of a model keep states, and whether none keeps keys and values.
func (d *decoder) keeps(m *layers.Module) (recurrent, keyless bool) {
	recurrent, keyless = d.recurrent, true
	for _, block := range m.Child(d.names.layers).Children {
		switch {
		case block.Module == nil: // of a configuration that is refused
		case block.Module.Text("mixer") == "":
			keyless = false
		case block.Module.Bool("alone"):
		default:
			recurrent = true
		}
	}
	return recurrent, keyless && recurrent
}

// times returns a factor, 1 where there is none.
func times(c *family.Config, factor func(*family.Config) float64) float64 {
	if factor == nil {
		return 1
	}
	return factor(c)
}

// words is the table of embeddings.
func (d *decoder) words(c *family.Config, hidden int) *layers.Module {
	vocabulary := c.Size("vocab_size", d.vocabulary)
	if !d.scaled {
		return layers.Embedding(vocabulary, hidden)
	}
	return d.scaledWords(vocabulary, hidden, hidden)
}

// scaledWords is a table whose rows are multiplied with √size.
func (d *decoder) scaledWords(words, width, size int) *layers.Module {
	m := layers.New(d.class+"TextScaledWordEmbedding", nil).Param("weight", words, width)
	m.Params = append(m.Params, layers.Param{
		Name: "embed_scale", DType: tensor.Float32, Shape: tensor.Shape{}, Buffer: true, Transient: true,
		Value: tensor.Of([]float32{float32(math.Sqrt(float64(size)))}),
	})
	return m
}

// softcap returns an entry that bounds scores; null in the file is none.
func softcap(c *family.Config, name string, missing float64) float64 {
	if v, there := c.Fields[name]; there && v == nil {
		return 0
	}
	return c.Float(name, missing)
}

// padding returns pad_token_id; null in the file is none.
func padding(c *family.Config, missing any) any {
	if _, there := c.Fields["pad_token_id"]; !there {
		return missing
	}
	return c.Optional("pad_token_id")
}

// around is what a pass has beside the states of its tokens: masks and angles for layers that see all and for those that
// slide, and what layers make of positions.
type around struct {
	masks, angles [2]any
	positions     layers.Tensor
	// padding is the mask of the tokens that are none, [batch, tokens], nil where all are some.
	padding layers.Tensor
	alibi   *alibiPass
	// perLayer is what layers have of their own of each token, [batch, tokens, layers, size], shared the keys and
	// values of the last layer of each kind that had some.
	perLayer layers.Tensor
	shared   [2]remembered
}

// modelForward takes input_ids, attention_mask, position_ids and, in a model that sees, what stands in the places of
// pictures.
func (d decoder) modelForward(t *layers.Trace, m *layers.Module, args ...any) any {
	own := d.of(m)
	ids, positions := family.TokenIDs(t, args), family.Optional(t, args, 2)
	s := ids.Shape()
	x := t.Child(m, own.names.embed, ids)
	if len(args) > 3 {
		x = args[3].(*family.Pictured).Place(t, ids, x)
	}
	if own.names.embedNorm != "" {
		x = t.Child(m, own.names.embedNorm, x)
	}
	if factor := m.Float("embedding_multiplier"); factor != 1 {
		x = t.Op("mul.Tensor", x, factor)
	}
	if positions == nil {
		positions = countedPositions(t, s[1])
	}
	blocks := m.Child(own.names.layers).Children
	a := &around{positions: positions}
	if _, steps := t.Steps(); !steps {
		a.padding = family.Optional(t, args, 1)
	}
	d.masks(t, m, args, a, blocks)
	if own.alibi == nil {
		d.turnedAngles(t, m, a, blocks)
	} else {
		a.alibi = m.Attrs["alibi"].(*alibi).pass(t, s, family.Optional(t, args, 1), family.Optional(t, args, 2))
	}
	if own.begin != nil {
		x = own.begin(t, m, ids, x, a)
	}
	for i, block := range blocks {
		t.Hidden(i, x)
		x = t.Run(block.Module, x, a).(layers.Tensor)
	}
	t.Hidden(len(blocks), x)
	if own.end != nil {
		x = own.end(t, m, x)
	}
	x = t.Child(m, own.names.norm, x)
	t.Hidden(layers.LastHidden, x)
	return layers.Fields{{Name: "last_hidden_state", Value: x}}
}

// masks makes the masks that layers need; a step has none.
func (d decoder) masks(t *layers.Trace, m *layers.Module, args []any, a *around, blocks []layers.Child) {
	if _, steps := t.Steps(); steps {
		return
	}
	s := family.TokenIDs(t, args).Shape()
	full := family.Masking{
		Batch: s[0], Queries: s[1], Keys: s[1], Causal: true, Padding: family.Optional(t, args, 1), Positions: a.positions,
		Additive: m.Bool("eager"),
	}
	sliding := full
	if sliding.Window = m.Int("window"); d.of(m).chunked {
		sliding.Window, sliding.Chunk = 0, sliding.Window
	}
	for i, k := range []family.Masking{full, sliding} {
		for _, block := range blocks {
			if block.Module.Bool("sliding") == (i == 1) && block.Module.Text("mixer") == "" {
				a.masks[i] = k.Create(t)
				break
			}
		}
	}
}

// turnedAngles makes the cosines and sines that layers need.
func (d decoder) turnedAngles(t *layers.Trace, m *layers.Module, a *around, blocks []layers.Child) {
	local := m.Has("rotary_emb_local")
	for _, block := range blocks {
		i := 0
		if local && block.Module.Bool("sliding") {
			i = 1
		}
		if a.angles[i] == nil && block.Module.Bool("turned") {
			a.angles[i] = t.ChildOf(m, []string{"rotary_emb", "rotary_emb_local"}[i], a.positions)
		}
	}
	if !local {
		a.angles[1] = a.angles[0]
	}
}

func scaledEmbeddingForward(t *layers.Trace, m *layers.Module, ids layers.Tensor) layers.Tensor {
	return t.Op("mul.Tensor", t.Op("embedding", t.Param(m, "weight"), ids), t.Param(m, "embed_scale"))
}

// causalLM predicts the next token.
func causalLM(t *layers.Trace, m *layers.Module, x, _ layers.Tensor) any {
	logits := t.Child(m, "lm_head", t.Wanted(x))
	if scale := m.Float("logit_scale"); scale != 1 {
		logits = t.Op("mul.Tensor", logits, scale)
	}
	if bound := m.Float("final_logit_softcapping"); bound != 0 {
		logits = t.Op("mul.Tensor", t.Op("tanh", t.Op("div.Tensor", logits, bound)), bound)
	}
	return layers.Fields{{Name: "logits", Value: logits}}
}
