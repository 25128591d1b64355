package quantize

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// A GGUF file has one tensor of all experts for their gates, one for their ups and one for their downs. Folders have each expert's, or
// one tensor of gates and ups and one of downs.

// ggufExperts is what is read of a config.json with experts.
type ggufExperts struct {
	Local      int64   `json:"num_local_experts"`
	Experts    int64   `json:"num_experts"`
	Chosen     int64   `json:"num_experts_per_tok"`
	Inner      int64   `json:"moe_intermediate_size"`
	Normalized *bool   `json:"norm_topk_prob"`
	Every      *int64  `json:"decoder_sparse_step"`
	Dense      []int64 `json:"mlp_only_layers"`
	number     int64   // 0 where there are none
}

// Types of models with experts, and llama.cpp's names of their modules.
const (
	mixtral, qwen3Moe = "mixtral", "qwen3_moe"
	ggufRouter        = "ffn_gate_inp."
	ggufDown          = "ffn_down_exps."
	// eightExperts is of how many experts llama.cpp's mixtures keep keys and values better.
	eightExperts = 8
)

// checkExperts refuses what llama.cpp would compute otherwise.
func (c *ggufExperts) checkExperts(model string) error {
	switch model {
	case mixtral:
		c.number = c.Local
	case qwen3Moe:
		c.number = max(c.Local, c.Experts)
	default:
		return nil
	}
	const most = 1 << 14
	switch {
	case c.number < 1 || c.number > most || c.Chosen < 1 || c.Chosen > c.number || c.Inner < 0 || c.Inner > 1<<31:
		return fmt.Errorf("%w: config.json: %d experts, of which %d are chosen", loader.ErrFormat, c.number, c.Chosen)
	case model == qwen3Moe && (c.Normalized == nil || !*c.Normalized):
		return fmt.Errorf("%w: a GGUF file is not written of %s whose weights of experts are not normalized", loader.ErrUnsupported, model)
	case c.Every != nil && *c.Every != 1 || len(c.Dense) > 0:
		return fmt.Errorf("%w: a GGUF file is not written of %s with layers without experts", loader.ErrUnsupported, model)
	}
	return nil
}

var (
	ofExpert  = regexp.MustCompile(`^(model\.layers\.([0-9]{1,6})\.(?:mlp|block_sparse_moe)\.experts\.)([0-9]{1,5})\.(gate_proj|up_proj|down_proj|w[123])\.weight$`)
	ofExperts = regexp.MustCompile(`^(model\.layers\.[0-9]{1,6}\.(?:mlp|block_sparse_moe)\.experts)\.(gate_up_proj|down_proj)$`)
)

// expertNames are llama.cpp's names of an expert's modules, with those of today's transformers.
var expertNames = map[string][2]string{
	"gate_proj": {"ffn_gate_exps.", "gate_proj"}, "w1": {"ffn_gate_exps.", "gate_proj"}, "up_proj": {"ffn_up_exps.", "up_proj"},
	"w3": {"ffn_up_exps.", "up_proj"}, "down_proj": {ggufDown, "down_proj"}, "w2": {ggufDown, "down_proj"},
}

// addExperts adds a tensor of an expert, or of all, to the tensors that they become, and reports whether it is one.
func (g *GGUF) addExperts(w tensor.Weight) (bool, error) {
	if g.config.number == 0 {
		return false, nil
	}
	if m := ofExperts.FindStringSubmatch(w.Name); m != nil {
		if len(w.Layout.Shape) != 3 || w.Layout.Shape[1]%2 != 0 || !w.Layout.IsContiguous() {
			return true, fmt.Errorf("%w: %s has the shape %v", loader.ErrFormat, w.Name, w.Layout.Shape)
		}
		lie := layers.New("", map[string]any{"turned": false, "interleaved": false})
		for _, s := range slicesOf(lie, m[1], layers.Param{Name: m[2], Shape: w.Layout.Shape}) {
			if err := g.addExpert(s.of(w), ofExpert.FindStringSubmatch(s.name)); err != nil {
				return true, err
			}
		}
		return true, nil
	}
	m := ofExpert.FindStringSubmatch(w.Name)
	if m == nil {
		return false, nil
	}
	return true, g.addExpert(w, m)
}

// addExpert adds an expert's tensor.
func (g *GGUF) addExpert(w tensor.Weight, m []string) error {
	block, _ := strconv.ParseInt(m[2], 10, 64)
	expert, _ := strconv.ParseInt(m[3], 10, 64)
	if w.DType != tensor.Float32 && !w.DType.IsHalf() {
		return fmt.Errorf("%w: %s is of %v", loader.ErrUnsupported, w.Name, w.DType)
	}
	within := expertNames[m[4]][0]
	name := "blk." + m[2] + "." + within + "weight"
	at := g.expertsAt[name]
	if at == 0 {
		if len(w.Layout.Shape) != 2 || w.NumElements() == 0 || block >= g.config.Layers {
			return fmt.Errorf("%w: %s has the shape %v, in block %d of %d", loader.ErrFormat, w.Name, w.Layout.Shape, block, g.config.Layers)
		}
		t := ggufTensor{from: w, experts: make([]tensor.Weight, g.config.number)}
		t.from.Name = m[1] + expertNames[m[4]][1] + ".weight"
		t.Name, t.Shape = name, tensor.Shape{int(g.config.number), w.Layout.Shape[0], w.Layout.Shape[1]}
		g.choose(&t, within, block, false)
		g.all = append(g.all, t)
		if at = len(g.all); g.expertsAt == nil {
			g.expertsAt = make(map[string]int)
		}
		g.expertsAt[name] = at
	}
	t := &g.all[at-1]
	if expert >= g.config.number || t.experts[expert].Name != "" || !w.Layout.Shape.Equal(t.Shape[1:]) || w.DType != t.from.DType {
		return fmt.Errorf("%w: %s of %v and the shape %v does not fit %d experts of %v and %v", loader.ErrFormat, w.Name, w.DType,
			w.Layout.Shape, g.config.number, t.from.DType, t.Shape[1:])
	}
	t.experts[expert] = w
	g.InBytes, g.WorkBytes = g.InBytes+w.Bytes(), g.WorkBytes+w.Bytes()
	return nil
}

// expertsAreWhole refuses a tensor that lacks an expert, and blocks that lack a tensor.
func (g *GGUF) expertsAreWhole() error {
	for i := range g.all {
		for e, w := range g.all[i].experts {
			if w.Name == "" {
				return fmt.Errorf("%w: of %s expert %d is missing", loader.ErrFormat, g.all[i].from.Name, e)
			}
		}
	}
	if want := 3 * int(g.config.Layers); g.config.number > 0 && len(g.expertsAt) != want {
		return fmt.Errorf("%w: it has %d tensors of experts, of %d", loader.ErrFormat, len(g.expertsAt), want)
	}
	return nil
}

// sources are the tensors that one is made of.
func (t *ggufTensor) sources() []tensor.Weight {
	if t.experts != nil {
		return t.experts
	}
	return []tensor.Weight{t.from}
}
