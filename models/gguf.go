package models

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/transformers"
	"github.com/optimem/optimem/tensor"
)

// A ggufFamily is what a GGUF file's architecture is called here, and how its tensors are.
type ggufFamily struct {
	// arch is general.architecture, class the model of transformers.
	arch, class string
	// model is what transformers calls the type, "" for arch; experts is set where it has experts, which say more than one arch does.
	model   string
	experts bool
	// anyExperts is set where experts or none make no other family; own reads all that the file says, in place of what
	// decoders have.
	anyExperts bool
	own        func(g *ggufModel)
	// part is set where a part of each head may be turned.
	part bool
	// strict is set where a key that nothing reads is refused.
	strict bool
	// layerNorm is the entry of the norms' epsilon where they are not by the root of the mean.
	layerNorm string
	// outside and inside are names of modules, as pairs: of those that are there once, and of those of a block, which is at
	// blocks in the model.
	outside, inside *strings.Replacer
	blocks          string
	// transposed are modules of a block whose weights lie the other way round in the file.
	transposed []string
	// config adds what is the family's own.
	config func(g *ggufModel)
}

// The names of llama's modules, with what Gemma and Phi-3 have beside them, and those of a block with experts, whose tensors have
// all experts each. The longer ones come first, since replacers take the first that fits.
var (
	llamaOutside = strings.NewReplacer(transformers.GGUFOutside()...)
	llamaBlock   = transformers.GGUFInside()
	llamaInside  = strings.NewReplacer(append([]string{
		"post_attention_norm.", "post_attention_layernorm.", "attn_qkv.", "self_attn.qkv_proj.",
	}, llamaBlock...)...)
	mixtureInside = strings.NewReplacer(append([]string{
		"ffn_gate_inp.", "mlp.gate.", "ffn_gate_exps.weight", "mlp.experts.gate_proj", "ffn_up_exps.weight", "mlp.experts.up_proj",
		"ffn_down_exps.weight", "mlp.experts.down_proj",
	}, llamaBlock...)...)
)

// sandwichedInside are those of a block with norms after the attention and the MLP, and perhaps before them.
var sandwichedInside = strings.NewReplacer(
	"attn_q_norm.", "self_attn.q_norm.", "attn_k_norm.", "self_attn.k_norm.",
	"attn_norm.", "input_layernorm.", "post_attention_norm.", "post_attention_layernorm.",
	"ffn_norm.", "pre_feedforward_layernorm.", "post_ffw_norm.", "post_feedforward_layernorm.",
	"attn_q.", "self_attn.q_proj.", "attn_k.", "self_attn.k_proj.", "attn_v.", "self_attn.v_proj.",
	"attn_output.", "self_attn.o_proj.",
	"ffn_gate.", "mlp.gate_proj.", "ffn_up.", "mlp.up_proj.", "ffn_down.", "mlp.down_proj.",
)

var ggufFamilies = slices.Concat(decoderFiles, moreDecoders, expertFiles, hybrids)

var decoderFiles = []ggufFamily{
	{arch: "llama", class: "LlamaForCausalLM", outside: llamaOutside, inside: llamaInside, config: (*ggufModel).biases},
	{arch: "qwen2", class: "Qwen2ForCausalLM", outside: llamaOutside, inside: llamaInside},
	{arch: "qwen3", class: "Qwen3ForCausalLM", outside: llamaOutside, inside: llamaInside},
	{arch: "gemma", class: "GemmaForCausalLM", outside: llamaOutside, inside: llamaInside},
	{arch: "smollm3", class: "SmolLM3ForCausalLM", outside: llamaOutside, inside: llamaInside, config: (*ggufModel).biases},
	{arch: "arcee", class: "ArceeForCausalLM", outside: llamaOutside, inside: llamaInside, config: (*ggufModel).biases},
	{arch: "granite", class: "GraniteForCausalLM", outside: llamaOutside, inside: llamaInside, config: (*ggufModel).granite},
	{
		arch: "seed_oss", class: "SeedOssForCausalLM", outside: llamaOutside, inside: llamaInside, config: func(g *ggufModel) {
			g.biases()
			g.set("attention_out_bias", g.has("blk.0.attn_output.bias"))
		},
	},
	{
		arch: "starcoder2", class: "Starcoder2ForCausalLM", outside: llamaOutside, layerNorm: "norm_epsilon",
		inside: strings.NewReplacer(
			"attn_norm.", "input_layernorm.", "ffn_norm.", "post_attention_layernorm.", "attn_q.", "self_attn.q_proj.",
			"attn_k.", "self_attn.k_proj.", "attn_v.", "self_attn.v_proj.", "attn_output.", "self_attn.o_proj.",
			"ffn_up.", "mlp.c_fc.", "ffn_down.", "mlp.c_proj.",
		),
		config: func(g *ggufModel) {
			g.set("use_bias", g.has("blk.0.attn_q.bias"))
			g.window()
		},
	},
	{
		arch: "olmo2", class: "Olmo2ForCausalLM", outside: llamaOutside, inside: sandwichedInside, config: func(g *ggufModel) {
			g.biases()
			g.olmo3()
		},
	},
	{
		arch: "gemma3", class: "Gemma3ForCausalLM", model: "gemma3_text", outside: llamaOutside, inside: sandwichedInside,
		config: (*ggufModel).gemma3,
	},
	{
		arch: "gemma2", class: "Gemma2ForCausalLM", outside: llamaOutside, inside: sandwichedInside,
		config: (*ggufModel).gemma2,
	},
	{
		arch: "phi3", class: "Phi3ForCausalLM", outside: llamaOutside,
		inside: strings.NewReplacer(
			"attn_norm.", "input_layernorm.", "ffn_norm.", "post_attention_layernorm.", "attn_qkv.", "self_attn.qkv_proj.",
			"attn_output.", "self_attn.o_proj.", "ffn_up.", "mlp.gate_up_proj.", "ffn_down.", "mlp.down_proj.",
		),
		part: true, config: (*ggufModel).phi3,
	},
	{
		arch: "gpt2", class: "GPT2LMHeadModel", blocks: "transformer.h.",
		outside: strings.NewReplacer(
			"token_embd.", "transformer.wte.", "position_embd.", "transformer.wpe.", "output_norm.", "transformer.ln_f.",
			"output.", "lm_head.",
		),
		inside: strings.NewReplacer(
			"attn_norm.", "ln_1.", "attn_qkv.", "attn.c_attn.", "attn_output.", "attn.c_proj.", "ffn_norm.", "ln_2.",
			"ffn_up.", "mlp.c_fc.", "ffn_down.", "mlp.c_proj.",
		),
		transposed: []string{"attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight"},
	},
	{
		arch: "llama", class: "MixtralForCausalLM", model: "mixtral", experts: true, outside: llamaOutside, inside: mixtureInside,
		config: func(g *ggufModel) {
			g.sizes("num_local_experts", "expert_count", "num_experts_per_tok", "expert_used_count")
		},
	},
	{
		arch: "qwen3moe", class: "Qwen3MoeForCausalLM", model: "qwen3_moe", experts: true, outside: llamaOutside, inside: mixtureInside,
		config: func(g *ggufModel) {
			g.sizes("num_experts", "expert_count", "num_experts_per_tok", "expert_used_count",
				"moe_intermediate_size", "expert_feed_forward_length")
			g.set("norm_topk_prob", true) // as every file of the architecture means
		},
	},
}

// useGGUF makes m the model of a GGUF file: the configuration that Hugging Face's folder would have, and the tensors under
// the names that they have there.
func (m *Model) useGGUF(ckpt *loader.Checkpoint, opts Options) error {
	g := &ggufModel{ckpt: ckpt, config: make(map[string]any), looked: make(map[string]bool)}
	if err := g.read(); err != nil {
		return err
	}
	text, err := json.Marshal(g.config)
	if err != nil {
		return fmt.Errorf("%w: its sizes are no JSON: %w", loader.ErrFormat, err)
	}
	weights := g.weights()
	renamed, err := loader.NewCheckpoint(ckpt.Path, weights, nil)
	if err != nil {
		return err
	}
	dict := make(layers.StateDict, len(weights))
	for i, w := range weights {
		dict[i] = layers.Entry{Name: w.Name, DType: w.DType, Shape: w.Layout.Shape}
	}
	a, err := transformers.Named(opts.Arch, text, dict)
	if err != nil {
		return configError(ckpt, err)
	}
	renamed.Format, m.weights = ckpt.Format, renamed.Weights
	return m.useArchitecture(renamed, a, opts, nil)
}

// A ggufModel is a file whose configuration is being made. The first error is kept.
type ggufModel struct {
	ckpt   *loader.Checkpoint
	family *ggufFamily
	config map[string]any
	// looked are the keys that were.
	looked map[string]bool
	// blocks is how many blocks are the model's, 0 for all: those behind guess tokens ahead.
	blocks int
	err    error
}

func (g *ggufModel) read() error {
	arch, _ := g.ckpt.Metadata["general.architecture"].(string)
	experts, _ := loader.GGUFInteger(g.ckpt.Metadata, arch+".expert_count")
	of := func(f ggufFamily) bool { return f.arch == arch }
	i := slices.IndexFunc(ggufFamilies, func(f ggufFamily) bool { return of(f) && (f.anyExperts || f.experts == (experts > 0)) })
	if i < 0 && slices.ContainsFunc(ggufFamilies, of) {
		return &UnsupportedError{What: fmt.Sprintf("a GGUF file of the architecture %.60q with %d experts", arch, experts)}
	}
	if i < 0 {
		var known []string
		for _, f := range ggufFamilies {
			if !slices.Contains(known, f.arch) {
				known = append(known, f.arch)
			}
		}
		return &UnsupportedError{What: fmt.Sprintf("a GGUF file of the architecture %.60q; those that run are %s",
			arch, strings.Join(known, ", "))}
	}
	g.family = &ggufFamilies[i]
	if len(g.ckpt.Unreadable) > 0 {
		e := g.ckpt.Unreadable[0]
		return &UnsupportedError{What: fmt.Sprintf("%s: %v", e.Record, e.Err)}
	}
	g.set("architectures", []string{g.family.class})
	g.set("model_type", cmp.Or(g.family.model, arch))
	if w, ok := g.ckpt.Weight("token_embd.weight"); ok && len(w.Layout.Shape) == 2 {
		g.set("vocab_size", w.Layout.Shape[0])
	}
	g.set("tie_word_embeddings", !g.has("output.weight"))
	if arch == "gpt2" {
		g.sizes("n_embd", "embedding_length", "n_layer", "block_count", "n_head", "attention.head_count",
			"n_positions", "context_length", "n_inner", "feed_forward_length")
		g.number("layer_norm_epsilon", "attention.layer_norm_epsilon")
		return g.err
	}
	if g.family.own != nil {
		g.family.own(g)
	} else {
		g.decoder()
	}
	if g.family.config != nil && g.err == nil {
		g.family.config(g)
	}
	if g.family.strict {
		g.unread()
	}
	return g.err
}

// decoder reads what llama and its relatives have.
func (g *ggufModel) decoder() {
	g.sizes("hidden_size", "embedding_length", "num_hidden_layers", "block_count", "num_attention_heads", "attention.head_count",
		"max_position_embeddings", "context_length")
	inner, ok := g.largest("feed_forward_length")
	if !ok {
		g.fail("it does not say %s.feed_forward_length", g.family.arch)
	}
	g.set("intermediate_size", inner)
	if g.family.layerNorm != "" {
		g.number(g.family.layerNorm, "attention.layer_norm_epsilon")
	} else {
		g.number("rms_norm_eps", "attention.layer_norm_rms_epsilon")
	}
	heads, _ := g.integer("attention.head_count")
	hidden, _ := g.integer("embedding_length")
	if heads < 1 {
		g.fail("attention.head_count is %d", heads)
		return
	}
	keys, ok := g.largest("attention.head_count_kv")
	if !ok {
		keys = heads
	}
	g.set("num_key_value_heads", keys)
	size, ok := g.integer("attention.key_length")
	if !ok {
		size = hidden / heads
	}
	if values, ok := g.integer("attention.value_length"); ok && values != size {
		g.lacks("values of %d elements where keys have %d", values, size)
	}
	g.set("head_dim", size)
	turned, ok := g.integer("rope.dimension_count")
	if ok && turned != size && !g.family.part {
		g.lacks("rotary embeddings of %d of %d elements", turned, size)
	}
	if ok && g.family.part {
		g.set("partial_rotary_factor", shareOf(turned, size))
		size = turned
	}
	if g.key("rope.freq_base") != nil {
		g.number("rope_theta", "rope.freq_base")
	}
	g.rope(max(size, 0))
}

// shareOf returns a share of a size that is the part again where it is rounded down.
func shareOf(part, size int64) float64 {
	share := float64(part) / float64(max(size, 1))
	for part > 0 && part < size && int64(float64(size)*share) < part {
		share = math.Nextafter(share, 1)
	}
	return share
}

// rope reads how rotary embeddings are stretched. Llama 3's frequencies, which the file has as factors, are those of longrope
// with one list.
func (g *ggufModel) rope(size int64) {
	if factors := g.factors("rope_freqs.weight", size); factors != nil {
		positions, _ := g.integer("context_length")
		g.set("rope_scaling", map[string]any{
			"rope_type": "longrope", "short_factor": factors, "long_factor": factors, "attention_factor": 1.0,
			"original_max_position_embeddings": positions,
		})
		return
	}
	kind, _ := g.key("rope.scaling.type").(string)
	factor, _ := g.float("rope.scaling.factor")
	switch {
	case kind == "linear":
	case kind == "" || kind == "none":
		if factor, _ = g.float("rope.scale_linear"); factor == 0 || factor == 1 {
			return
		}
		kind = "linear"
	case kind == "yarn":
		scaling := map[string]any{"rope_type": "yarn", "factor": factor}
		if n, ok := g.integer("rope.scaling.original_context_length"); ok {
			scaling["original_max_position_embeddings"] = n
		}
		for entry, name := range map[string]string{"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"} {
			if x, ok := g.float("rope.scaling." + name); ok {
				scaling[entry] = x
			}
		}
		g.set("rope_scaling", scaling)
		g.yarnAsUsual(factor)
		return
	case kind == "longrope" && g.family.arch == "phi3":
		return
	default:
		g.lacks("rotary embeddings of the type %.40q", kind)
		return
	}
	g.set("rope_scaling", map[string]any{"rope_type": kind, "factor": factor})
}

// yarnAsUsual refuses a factor of cosines and sines that is not the one which follows from how far positions are stretched.
func (g *ggufModel) yarnAsUsual(factor float64) {
	usual := 0.1*math.Log(max(factor, 1)) + 1
	if x, ok := g.float("rope.scaling.yarn_attn_factor"); ok && math.Abs(x-usual) > 1e-4 {
		g.lacks("rope.scaling.yarn_attn_factor of %v", x)
	}
	if x, ok := g.float("rope.scaling.yarn_ext_factor"); ok && x != 1 {
		g.lacks("rope.scaling.yarn_ext_factor of %v", x)
	}
}

// gemma2 has what its file does not say by its sizes, as llama.cpp has it: only the largest divides scores by other than the
// size of heads.
func (g *ggufModel) gemma2() {
	g.number("attn_logit_softcapping", "attn_logit_softcapping")
	g.number("final_logit_softcapping", "final_logit_softcapping")
	g.sizes("sliding_window", "attention.sliding_window")
	g.preAttention(46)
}

// preAttention sets what scores are divided by the root of: the size of heads, but for the model of the most layers.
func (g *ggufModel) preAttention(largest int64) {
	scalar := g.config["head_dim"]
	hidden, _ := g.integer("embedding_length")
	heads, _ := g.integer("attention.head_count")
	if n, _ := g.integer("block_count"); n == largest {
		scalar = hidden / heads
	}
	g.set("query_pre_attn_scalar", scalar)
}

// window sets the sliding window if there is one.
func (g *ggufModel) window() {
	if n, ok := g.integer("attention.sliding_window"); ok {
		g.set("sliding_window", n)
	}
}

// gemma3 has the base of the layers that slide and how many of them there are by llama.cpp's constants, as files say neither; the
// scaling of scores by the number of layers, as Gemma 2.
func (g *ggufModel) gemma3() {
	g.preAttention(62)
	g.optional("final_logit_softcapping", "final_logit_softcapping")
	if g.optional("rope_local_base_freq", "rope.freq_base_swa"); g.key("rope.freq_base") == nil {
		g.set("rope_theta", 1e6)
	}
	g.set("sliding_window", nil)
	g.window()
	if n, ok := g.integer("attention.sliding_window_pattern"); ok {
		g.set("sliding_window_pattern", n)
	}
}

// granite multiplies with what the file calls scales.
func (g *ggufModel) granite() {
	g.biases()
	size, _ := g.config["head_dim"].(int64)
	g.set("attention_multiplier", 1/math.Sqrt(float64(max(size, 1))))
	g.optional("attention_multiplier", "attention.scale")
	g.optional("embedding_multiplier", "embedding_scale")
	g.optional("residual_multiplier", "residual_scale")
	g.optional("logits_scaling", "logit_scale")
}

// biases says which projections have one, by their tensors.
func (g *ggufModel) biases() {
	g.set("attention_bias", g.has("blk.0.attn_q.bias"))
	g.set("mlp_bias", g.has("blk.0.ffn_up.bias"))
}

// optional sets an entry to a number if it is there.
func (g *ggufModel) optional(entry, name string) {
	if x, ok := g.float(name); ok {
		g.set(entry, x)
	}
}

func (g *ggufModel) phi3() {
	if n, ok := g.integer("attention.sliding_window"); ok && n > 0 {
		g.set("sliding_window", n)
	}
	original, ok := g.integer("rope.scaling.original_context_length")
	if ok {
		g.set("original_max_position_embeddings", original)
	}
	turned, ok := g.integer("rope.dimension_count")
	if !ok {
		turned, _ = g.config["head_dim"].(int64)
	}
	long, short := g.factors("rope_factors_long.weight", turned), g.factors("rope_factors_short.weight", turned)
	if long != nil && short != nil {
		g.set("rope_scaling", map[string]any{"rope_type": "longrope", "short_factor": short, "long_factor": long})
	}
}

// factors reads the factors of rotary embeddings of a size, nil where the file has none: a number for each angle.
func (g *ggufModel) factors(name string, size int64) []float64 {
	w, ok := g.ckpt.Weight(name)
	if !ok || g.err != nil {
		return nil
	}
	const most = 1 << 16
	n := w.NumElements()
	if w.DType != tensor.Float32 || n > most || n != size/2 {
		g.fail("%s has %d numbers of %v, where %d of float32 are wanted", name, n, w.DType, size/2)
		return nil
	}
	raw := make([]byte, 4*n)
	if err := w.Extent.ReadAt(context.Background(), raw, 0); err != nil {
		g.err = err
		return nil
	}
	factors := make([]float64, n)
	for i := range factors {
		factors[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		if !(factors[i] > 0 && factors[i] <= math.MaxFloat32) {
			g.fail("%s has %v", name, factors[i])
		}
	}
	return factors
}

// fail keeps what is wrong with the file.
func (g *ggufModel) fail(format string, args ...any) {
	if g.err == nil {
		g.err = fmt.Errorf("%w: %s", loader.ErrFormat, fmt.Sprintf(format, args...))
	}
}

// lacks keeps what is not known here.
func (g *ggufModel) lacks(format string, args ...any) {
	if g.err == nil {
		g.err = &UnsupportedError{What: "a GGUF file with " + fmt.Sprintf(format, args...)}
	}
}

func (g *ggufModel) set(key string, v any) { g.config[key] = v }

func (g *ggufModel) has(name string) bool {
	_, ok := g.ckpt.Weight(name)
	return ok
}

// key returns a value of the architecture.
func (g *ggufModel) key(name string) any {
	g.looked[name] = true
	return g.ckpt.Metadata[g.family.arch+"."+name]
}

// integer returns an integer of the architecture. A list, one number for each layer, is not known here.
func (g *ggufModel) integer(name string) (int64, bool) {
	n, ok := loader.GGUFInteger(g.ckpt.Metadata, g.family.arch+"."+name)
	if v := g.key(name); !ok && v != nil {
		g.lacks("a %T as %s", v, name)
	}
	return n, ok
}

// float returns a number of the architecture.
func (g *ggufModel) float(name string) (float64, bool) {
	x, ok := 0.0, true
	switch v := g.key(name).(type) {
	case nil:
		return 0, false
	case float32:
		x = float64(v)
	case float64:
		x = v
	default:
		n, isInteger := g.integer(name)
		x, ok = float64(n), isInteger
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		g.fail("%s is %v", name, x)
		return 0, false
	}
	return x, ok
}

// sizes sets entries to integers that must be there, by pairs of names.
func (g *ggufModel) sizes(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		n, ok := g.integer(pairs[i+1])
		if !ok {
			g.fail("it does not say %s.%s", g.family.arch, pairs[i+1])
		}
		g.set(pairs[i], n)
	}
}

// number sets an entry to a number that must be there.
func (g *ggufModel) number(entry, name string) {
	x, ok := g.float(name)
	if !ok {
		g.fail("it does not say %s.%s", g.family.arch, name)
	}
	g.set(entry, x)
}

// ggufBlock matches the tensors of a block.
var ggufBlock = regexp.MustCompile(`^blk\.([0-9]+)\.(.*)$`)

// ggufHeadNorms matches norms of queries and of keys, which may have a row for each head.
var ggufHeadNorms = regexp.MustCompile(`^attn_([qk])_norm\.weight$`)

// ggufTables are tensors that only the configuration is made of.
var ggufTables = []string{"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}

// weights returns the tensors under the names of the model.
func (g *ggufModel) weights() []tensor.Weight {
	var all []tensor.Weight
	for _, w := range g.ckpt.Weights {
		if slices.Contains(ggufTables, w.Name) {
			continue
		}
		if m := ggufBlock.FindStringSubmatch(w.Name); m != nil {
			if i, err := strconv.Atoi(m[1]); g.blocks > 0 && (err != nil || i >= g.blocks) {
				continue
			}
			if heads := ggufHeadNorms.FindStringSubmatch(m[2]); heads != nil && g.family.arch == "stablelm" {
				name := "model.layers." + m[1] + ".self_attn." + heads[1] + "_layernorm.norms."
				all = append(all, rowsApart(w, name)...)
				continue
			}
			w = arranged(w, m[2])
			w.Name = cmp.Or(g.family.blocks, "model.layers.") + m[1] + "." + g.family.inside.Replace(m[2])
			if shape := w.Layout.Shape; slices.Contains(g.family.transposed, m[2]) && len(shape) == 2 {
				w.Layout = tensor.Layout{Shape: tensor.Shape{shape[1], shape[0]}, Strides: []int{1, shape[1]}}
			}
		} else {
			name := g.family.outside.Replace(w.Name)
			if g.family.arch == "gemma3n" && len(w.Layout.Shape) == 3 {
				all = append(all, apart(w, name)...)
				continue
			}
			w.Name = name
		}
		all = append(all, w)
	}
	return all
}
