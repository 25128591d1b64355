package quantize

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/transformers"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
	"github.com/optimem/optimem/text/tokenizer"
)

// GGUFKinds are what the weights of a GGUF file can become.
var GGUFKinds = []string{"q8_0", "q6_k", "q4_k", "q4_1", "q4_0"}

// A ggufKind is a mixture of encodings, as llama.cpp's files of that name have it.
type ggufKind struct {
	// base is what matrices become, last the last layer, or the embedding where that is the last layer too.
	base, last string
	// better has more bits for some of the layers that are the most sensitive.
	better string
	// file is llama.cpp's number of the mixture.
	file uint32
}

var ggufKinds = map[string]ggufKind{
	"q8_0": {base: "Q8_0", last: "Q8_0", file: 7},
	"q6_k": {base: "Q6_K", last: "Q6_K", file: 18},
	"q4_k": {base: "Q4_K", last: "Q6_K", better: "Q6_K", file: 15},
	"q4_1": {base: "Q4_1", last: "Q6_K", file: 3},
	"q4_0": {base: "Q4_0", last: "Q6_K", file: 2},
}

// GGUFOptions say how a GGUF file is made.
type GGUFOptions struct {
	// Kind is one of [GGUFKinds].
	Kind string
	// Keep, MemoryBytes and Loader are those of [Options]: modules that match keep the dtype that they have.
	Keep        []string
	MemoryBytes int64
	Loader      loader.Options
}

// A GGUF is a Hugging Face folder that can be written as a GGUF file: what becomes of each tensor is decided, nothing
// of them is read.
type GGUF struct {
	folder *Folder
	opts   GGUFOptions
	kind   ggufKind
	config ggufConfig
	keys   []loader.GGUFKey
	all    []ggufTensor
	kept   []Kept
	// expertsAt are where in all tensors of experts are, one more than that.
	expertsAt map[string]int
	// InBytes, OutBytes and WorkBytes are as [Folder] has them; OutBytes is all of the file.
	InBytes, OutBytes, WorkBytes int64
	// BeforeNamed is as [Folder] has it: what it is given is the file.
	BeforeNamed func(ctx context.Context, written string) error
	head        []byte
	offsets     []int64
}

// A ggufTensor is a tensor of the file.
type ggufTensor struct {
	loader.GGUFTensor
	// from is the tensor of the folder that it is made of; numbers are its own where there is none.
	from    tensor.Weight
	numbers []float32
	// heads is how many heads its rows are of, whose halves are to be interleaved; 0 is none.
	heads int64
	// experts are the tensors that it is made of instead, one of each expert, in order.
	experts []tensor.Weight
	// module is what was quantised, "" where the tensor stays as it is.
	module string
}

// A ggufConfig is what is read of a config.json.
type ggufConfig struct {
	ModelType    string          `json:"model_type"`
	Name         string          `json:"_name_or_path"`
	Quantization json.RawMessage `json:"quantization_config"`
	Vocabulary   int64           `json:"vocab_size"`
	Hidden       int64           `json:"hidden_size"`
	Intermediate int64           `json:"intermediate_size"`
	Layers       int64           `json:"num_hidden_layers"`
	Heads        int64           `json:"num_attention_heads"`
	KeyHeads     int64           `json:"num_key_value_heads"`
	HeadDim      int64           `json:"head_dim"`
	Positions    int64           `json:"max_position_embeddings"`
	Epsilon      float64         `json:"rms_norm_eps"`
	Activation   string          `json:"hidden_act"`
	Theta        float64         `json:"rope_theta"`
	Scaling      *ropeScaling    `json:"rope_scaling"`
	Rope         *ropeScaling    `json:"rope_parameters"`
	Window       *int64          `json:"sliding_window"`
	UseWindow    *bool           `json:"use_sliding_window"`
	Begin        json.RawMessage `json:"bos_token_id"`
	End          json.RawMessage `json:"eos_token_id"`
	Pad          json.RawMessage `json:"pad_token_id"`
	Tie          bool            `json:"tie_word_embeddings"`
	ggufExperts
}

// A ropeScaling is how rotary embeddings are stretched, under the names of transformers 4 and 5.
type ropeScaling struct {
	Type     string  `json:"rope_type"`
	Older    string  `json:"type"`
	Theta    float64 `json:"rope_theta"`
	Factor   float64 `json:"factor"`
	Original int64   `json:"original_max_position_embeddings"`
	Low      float64 `json:"low_freq_factor"`
	High     float64 `json:"high_freq_factor"`
}

// ggufArchitectures are llama.cpp's names of the models of transformers that can be written; those of llama have the
// halves of heads interleaved.
var ggufArchitectures = map[string]string{
	"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe",
}

// OpenGGUF looks at a folder. The caller closes it.
func OpenGGUF(ctx context.Context, folder string, opts GGUFOptions) (g *GGUF, err error) {
	kind, ok := ggufKinds[opts.Kind]
	if !ok {
		return nil, fmt.Errorf("%w: %.40q; GGUF files have %s", ErrScheme, opts.Kind, strings.Join(GGUFKinds, ", "))
	}
	for _, pattern := range opts.Keep {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%w: the pattern %q", err, pattern)
		}
	}
	opts.MemoryBytes = cmp.Or(opts.MemoryBytes, DefaultMemoryBytes)
	whole, err := loader.OpenWith(ctx, folder, opts.Loader)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, whole.Close()) }()
	if whole.Format != loader.FormatHuggingFace || whole.Config == nil {
		return nil, fmt.Errorf("%s: %w: no Hugging Face folder with a config.json", folder, loader.ErrUnsupported)
	}
	f := &Folder{path: folder, opts: Options{Keep: opts.Keep, MemoryBytes: opts.MemoryBytes, Loader: opts.Loader}, config: whole.Config}
	g = &GGUF{folder: f, opts: opts, kind: kind}
	if err := g.look(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", folder, err), g.Close())
	}
	return g, nil
}

// Close closes the folder's files.
func (g *GGUF) Close() error { return g.folder.Close() }

// look decides what the file has.
func (g *GGUF) look(ctx context.Context) error {
	c := &g.config
	if err := json.Unmarshal(g.folder.config, c); err != nil {
		return fmt.Errorf("%w: config.json: %w", loader.ErrFormat, err)
	}
	if err := c.check(); err != nil {
		return err
	}
	if err := g.folder.openShards(ctx); err != nil {
		return err
	}
	if err := g.tensors(); err != nil {
		return err
	}
	if err := g.describe(); err != nil {
		return err
	}
	list := make([]loader.GGUFTensor, len(g.all))
	for i := range g.all {
		list[i] = g.all[i].GGUFTensor
	}
	var err error
	g.head, g.offsets, g.OutBytes, err = loader.LayOutGGUF(g.keys, list)
	return err
}

// check refuses what the file would not say, or llama.cpp would compute otherwise.
func (c *ggufConfig) check() error {
	lacks := func(format string, args ...any) error {
		return fmt.Errorf("%w: a GGUF file is not written of %s", loader.ErrUnsupported, fmt.Sprintf(format, args...))
	}
	c.HeadDim, c.KeyHeads = cmp.Or(c.HeadDim, c.Hidden/max(c.Heads, 1)), cmp.Or(c.KeyHeads, c.Heads)
	if c.Rope == nil {
		c.Rope = cmp.Or(c.Scaling, &ropeScaling{})
	}
	c.Rope.Type = cmp.Or(c.Rope.Type, c.Rope.Older, "default")
	c.Theta = cmp.Or(c.Rope.Theta, c.Theta, 10000)
	most := int64(1) << 31
	switch {
	case len(c.Quantization) > 0 && string(c.Quantization) != "null":
		return fmt.Errorf("%w: its weights are quantised already", loader.ErrUnsupported)
	case ggufArchitectures[c.ModelType] == "":
		return lacks("models of the type %.40q: of llama, mistral, mixtral, qwen2, qwen3 and qwen3_moe it is", c.ModelType)
	case c.Activation != "" && c.Activation != "silu":
		return lacks("a model with the activation %.40q", c.Activation)
	case c.Window != nil && (c.UseWindow == nil || *c.UseWindow):
		return lacks("a model with a sliding window")
	case !slices.Contains([]string{"default", "linear", "yarn", "llama3"}, c.Rope.Type):
		return lacks("a model with rotary embeddings of the type %.40q", c.Rope.Type)
	case c.Rope.Type == "llama3" && (c.Rope.Factor <= 0 || c.Rope.High <= c.Rope.Low || c.Rope.Original < 1):
		return fmt.Errorf("%w: config.json: rotary embeddings as Llama 3's with %+v", loader.ErrFormat, *c.Rope)
	case c.Layers < 1 || c.Heads < 1 || c.KeyHeads < 1 || c.HeadDim < 2 || c.HeadDim%2 != 0 || c.Vocabulary < 1 || c.Hidden < 1 ||
		max(c.Layers, c.Heads, c.KeyHeads, c.HeadDim, c.Vocabulary, c.Hidden, c.Intermediate, c.Positions) > most:
		return fmt.Errorf("%w: config.json: sizes that no model has", loader.ErrFormat)
	}
	return c.checkExperts(c.ModelType)
}

var (
	ggufOutside = byTransformers(transformers.GGUFOutside())
	ggufInside  = byTransformers(transformers.GGUFInside())
	inBlock     = regexp.MustCompile(`^model\.layers\.([0-9]{1,6})\.(.*\.)(weight|bias)$`)
	ofTop       = regexp.MustCompile(`^(.*\.)(weight|bias)$`)
)

// byTransformers are llama.cpp's names by transformers', of a list of both.
func byTransformers(names []string) map[string]string {
	named := make(map[string]string)
	for pair := range slices.Chunk(names, 2) {
		named[pair[1]] = pair[0]
	}
	return named
}

// nameOf returns llama.cpp's name of a tensor, with its block; false where it has none.
func (g *GGUF) nameOf(name string) (named, within string, block int64, ok bool) {
	if m := inBlock.FindStringSubmatch(name); m != nil {
		if within, ok = ggufInside[m[2]]; g.config.number > 0 && (m[2] == "mlp.gate." || m[2] == "block_sparse_moe.gate.") {
			within, ok = ggufRouter, true
		}
		if ok {
			_, err := fmt.Sscan(m[1], &block)
			return "blk." + m[1] + "." + within + m[3], within, block, err == nil
		}
		return "", "", 0, false
	}
	m := ofTop.FindStringSubmatch(name)
	if m == nil {
		return "", "", 0, false
	}
	within, ok = ggufOutside[m[1]]
	return within + m[2], within, -1, ok
}

// tensors decides what becomes of the folder's.
func (g *GGUF) tensors() error {
	tied := !slices.ContainsFunc(g.folder.shards, func(s *shard) bool {
		w, ok := s.ckpt.Weight("lm_head.weight")
		return ok && !g.isTied(&w)
	})
	seen := make(map[string]bool)
	for _, s := range g.folder.shards {
		for _, w := range s.ckpt.Weights {
			if strings.HasSuffix(w.Name, "rotary_emb.inv_freq") { // of old folders, which is computed
				continue
			}
			if is, err := g.addExperts(w); err != nil {
				return err
			} else if is {
				continue
			}
			named, within, block, ok := g.nameOf(w.Name)
			switch {
			case !ok:
				return fmt.Errorf("%w: a GGUF file has no place for the tensor %.100q", loader.ErrUnsupported, w.Name)
			case w.DType != tensor.Float32 && !w.DType.IsHalf():
				return fmt.Errorf("%w: %s is of %v", loader.ErrUnsupported, w.Name, w.DType)
			case len(w.Layout.Shape) < 1 || len(w.Layout.Shape) > 2 || w.NumElements() == 0 || block >= g.config.Layers:
				return fmt.Errorf("%w: %s has the shape %v, in block %d of %d", loader.ErrFormat, w.Name, w.Layout.Shape, block, g.config.Layers)
			case within == "output." && g.isTied(&w):
				continue
			}
			seen[within] = true
			t := ggufTensor{from: w}
			t.Name, t.Shape = named, w.Layout.Shape
			if err := g.arrange(&t, within); err != nil {
				return err
			}
			g.choose(&t, within, block, tied)
			g.InBytes, g.WorkBytes = g.InBytes+w.Bytes(), g.WorkBytes+w.Bytes()
			g.all = append(g.all, t)
		}
	}
	if !seen["token_embd."] || !seen["attn_q."] || !seen["ffn_down."] && !seen[ggufRouter] {
		return fmt.Errorf("%w: it lacks tensors of a language model", loader.ErrFormat)
	}
	return g.expertsAreWhole()
}

// isTied reports whether the last layer's weight is the embedding, under another name.
func (g *GGUF) isTied(w *tensor.Weight) bool {
	return g.config.Tie || slices.ContainsFunc(g.folder.shards, func(s *shard) bool {
		e, ok := s.ckpt.Weight("model.embed_tokens.weight")
		return ok && e.Extent == w.Extent
	})
}

// arrange says that heads are to be interleaved.
func (g *GGUF) arrange(t *ggufTensor, within string) error {
	c := &g.config
	heads := map[string]int64{"attn_q.": c.Heads, "attn_k.": c.KeyHeads}[within]
	if heads == 0 || ggufArchitectures[c.ModelType] != "llama" {
		return nil
	}
	if rows := int64(t.Shape[0]); rows != heads*c.HeadDim {
		return fmt.Errorf("%w: %s has %d rows for %d heads of %d", loader.ErrFormat, t.from.Name, rows, heads, c.HeadDim)
	}
	t.heads = heads
	return nil
}

// choose decides the encoding of a tensor.
func (g *GGUF) choose(t *ggufTensor, within string, block int64, tied bool) {
	name := "F32"
	if len(t.Shape) > 1 && within != ggufRouter {
		module := strings.TrimSuffix(t.from.Name, ".weight")
		columns := int64(t.Shape[len(t.Shape)-1])
		name = g.kind.encoding(within, block, g.config.Layers, tied, columns)
		if g.config.number == eightExperts && (within == "attn_v." || within == "attn_k.") && name != "" {
			name = "Q8_0"
		}
		why := ""
		for _, pattern := range g.opts.Keep {
			if ok, _ := path.Match(pattern, module); ok {
				why = "--keep " + pattern
			}
		}
		if name == "" {
			why = fmt.Sprintf("%d columns are no multiple of 32", columns)
		}
		if t.module = module; why != "" {
			g.kept, t.module = append(g.kept, Kept{module, why}), ""
			name = map[tensor.DType]string{tensor.Float16: "F16", tensor.BFloat16: "BF16"}[t.from.DType]
		}
	}
	t.Encoding, _ = encoded.ByName(cmp.Or(name, "F32"))
}

// encoding is what a matrix becomes, as in llama.cpp's files of the kind; "" where no block fits.
func (k *ggufKind) encoding(within string, block, blocks int64, tied bool, columns int64) string {
	name := k.base
	switch within {
	case "output.":
		name = k.last
	case "token_embd.":
		if tied {
			name = k.last
		}
	case "attn_v.", "ffn_down.", ggufDown:
		// The first and the last eighth, and each third of what is between.
		if k.better != "" && (block < blocks/8 || block >= 7*blocks/8 || (block-blocks/8)%3 == 2) {
			name = k.better
		}
	}
	const group, whole = 32, 256
	switch {
	case columns%group != 0:
		return ""
	case columns%whole == 0:
	case name == "Q4_K":
		return "Q5_0"
	case name == "Q6_K":
		return "Q8_0"
	}
	return name
}

// describe lists what the file says of itself.
func (g *GGUF) describe() error {
	c, arch := &g.config, ggufArchitectures[g.config.ModelType]
	add := func(name string, value any) { g.keys = append(g.keys, loader.GGUFKey{Name: name, Value: value}) }
	size := func(name string, n int64) { add(arch+"."+name, uint32(n)) }
	add("general.architecture", arch)
	add("general.type", "model")
	if name := filepath.Base(cmp.Or(c.Name, g.folder.path)); name != "." {
		add("general.name", name)
	}
	add("general.file_type", g.kind.file)
	add("general.quantization_version", uint32(2))
	size("context_length", cmp.Or(c.Positions, 2048))
	size("embedding_length", c.Hidden)
	size("block_count", c.Layers)
	size("feed_forward_length", c.Intermediate)
	size("attention.head_count", c.Heads)
	size("attention.head_count_kv", c.KeyHeads)
	size("attention.key_length", c.HeadDim)
	size("attention.value_length", c.HeadDim)
	size("rope.dimension_count", c.HeadDim)
	size("vocab_size", c.Vocabulary)
	if c.number > 0 {
		size("expert_count", c.number)
		size("expert_used_count", c.Chosen)
		if c.ModelType == qwen3Moe {
			size("expert_feed_forward_length", c.Inner)
		}
	}
	add(arch+".attention.layer_norm_rms_epsilon", float32(cmp.Or(c.Epsilon, 1e-6)))
	add(arch+".rope.freq_base", float32(c.Theta))
	switch r := c.Rope; r.Type {
	case "linear", "yarn":
		add(arch+".rope.scaling.type", r.Type)
		add(arch+".rope.scaling.factor", float32(r.Factor))
		if r.Original > 0 {
			size("rope.scaling.original_context_length", r.Original)
		}
	case "llama3":
		t := ggufTensor{numbers: c.factors()}
		t.Name, t.Shape = "rope_freqs.weight", tensor.Shape{len(t.numbers)}
		t.Encoding, _ = encoded.ByName("F32")
		g.all = append(g.all, t)
	}
	return g.text(add)
}

// factors are what each angle of Llama 3's rotary embeddings is divided by.
func (c *ggufConfig) factors() []float32 {
	r := c.Rope
	list := make([]float32, c.HeadDim/2)
	for i := range list {
		wave := 2 * math.Pi * math.Pow(c.Theta, float64(2*i)/float64(c.HeadDim))
		turns := float64(r.Original) / wave
		switch {
		case turns > r.High:
			list[i] = 1
		case turns < r.Low:
			list[i] = float32(r.Factor)
		default:
			smooth := (turns - r.Low) / (r.High - r.Low)
			list[i] = float32(1 / ((1-smooth)/r.Factor + smooth))
		}
	}
	return list
}

// mostText bounds files of tokens and templates.
const mostText = 256 << 20

// text adds tokens and templates.
func (g *GGUF) text(add func(string, any)) error {
	read := func(name string) ([]byte, error) {
		full := filepath.Join(g.folder.path, name)
		if err := loader.CheckInFolder(g.folder.path, full); err != nil {
			return nil, err
		}
		return readSmall(full, mostText)
	}
	words, err := read("tokenizer.json")
	if err != nil {
		return fmt.Errorf("%w: a GGUF file has a tokenizer: %w", loader.ErrUnsupported, err)
	}
	keys, err := tokenizer.ToGGUF(words, int(g.config.Vocabulary))
	if err != nil {
		return fmt.Errorf("%w: %w", loader.ErrUnsupported, err)
	}
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		add(name, keys[name])
	}
	tokens, _ := keys["tokenizer.ggml.tokens"].([]string)
	var settings map[string]json.RawMessage
	if raw, err := read("tokenizer_config.json"); err == nil {
		if err := json.Unmarshal(raw, &settings); err != nil {
			return fmt.Errorf("%w: tokenizer_config.json: %w", loader.ErrFormat, err)
		}
	}
	for _, t := range []struct {
		key, setting string
		id           json.RawMessage
	}{
		{"bos_token_id", "bos_token", g.config.Begin}, {"eos_token_id", "eos_token", g.config.End},
		{"padding_token_id", "pad_token", g.config.Pad}, {"unknown_token_id", "unk_token", nil},
	} {
		if id, ok := tokenOf(settings[t.setting], t.id, tokens); ok {
			add("tokenizer.ggml."+t.key, uint32(id))
		}
	}
	var template string
	if raw, err := read("chat_template.jinja"); err == nil {
		template = string(raw)
	} else if json.Unmarshal(settings["chat_template"], &template) != nil {
		template = ""
	}
	if template != "" {
		add("tokenizer.chat_template", template)
	}
	return nil
}

// tokenOf returns the number of a special token: that which the tokenizer's settings name, or the model's first.
func tokenOf(setting, id json.RawMessage, tokens []string) (int, bool) {
	var text string
	var object struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(setting, &text) != nil && json.Unmarshal(setting, &object) == nil {
		text = object.Content
	}
	if n := slices.Index(tokens, text); text != "" && n >= 0 {
		return n, true
	}
	var n int
	var list []int
	if json.Unmarshal(id, &list) == nil && len(list) > 0 {
		n = list[0]
	} else if len(id) == 0 || string(id) == "null" || json.Unmarshal(id, &n) != nil {
		return 0, false
	}
	return n, n >= 0 && n < len(tokens)
}
