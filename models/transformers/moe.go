package transformers

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// A mixture is what decoders with experts have in place of MLPs: a router chooses a few of the experts for each token, and their
// results are summed. Experts lie in a checkpoint one by one, as MLPs in a list, or together, in tensors with all of them, two or,
// in GGUF files, three: the module is that which the checkpoint has.
type mixture struct {
	// block, router and experts are the ends of the class names; gate is the name of the router in the block.
	block, router, experts, gate string
	// number and chosen are the defaults of how many experts there are and how many a token goes through; numberKey and chosenKey the
	// entries.
	number, chosen       int
	numberKey, chosenKey string
	// inner is the default of the entry innerKey, the width of an expert; "" is that of the MLP.
	inner    int
	innerKey string
	// scores says how weights come from the router's logits.
	scores scoring
	// normalized says whether the weights of the chosen are made to sum up to one; nil is never.
	normalized func(c *family.Config) bool
	// dense says which layers have an MLP instead; nil is none. denseInner is its width, nil for the usual one.
	dense      func(c *family.Config) func(i int) bool
	denseInner func(c *family.Config) int
	// shared adds experts that every token goes through; nil is none.
	shared func(d *decoder, c *family.Config, m *layers.Module, s shape)
	// more adds to the attributes of the router, and to its parameters.
	more func(c *family.Config, router *layers.Module, number int)
	// turned is set where the weights of all experts lie in the tensors turned: [experts, in, out]; interleaved where gates and
	// ups take turns there; biased where experts have biases.
	turned, interleaved, biased bool
	// clamped is set for gpt-oss's gate.
	clamped bool
	// plain is set for experts without gates, whose activation is the square of what is above zero.
	plain bool
	// latentKey is an entry that says how many elements experts have in the place of the hidden ones, "" for none.
	latentKey string
	// outer returns the name of the block's parameter that is added to scores where experts are chosen, nil or "" for
	// none.
	outer func(c *family.Config) string
	// weighed is set where tokens are multiplied with weights before the experts.
	weighed bool
}

// mixtures are the families with experts.
var mixtures = []*family.Family{
	mixtral, minimaxM2, qwen2Moe, qwen3Moe, olmoe, graniteMoe, gptOss, glm4Moe, dots1, flexOlmo, graniteMoeShared, solarOpen, exaoneMoe, hunyuanMoe, glm4MoeLite, phiMoe, ernieMoe, deepseekV2, deepseekV3, llama4,
}

// A scoring is how weights come from the router's logits.
type scoring string

const (
	// softmaxOfAll are shares of all experts, softmaxOfChosen of those that are chosen, which the logits say.
	softmaxOfAll, softmaxOfChosen scoring = "softmax", "softmax of the chosen"
	// sigmoids are taken of each by itself.
	sigmoids scoring = "sigmoid"
	// oneByOne are shares of what is near the best, then of what is near the best of the others: Phi-3.5-MoE.
	oneByOne scoring = "one by one"
	// sigmoidsOfChosen are those of the logits of the chosen.
	sigmoidsOfChosen scoring = "sigmoid of the chosen"
)

// blocksSuffix ends the names of weights that are not turned, since they lie as blocks of codes in the checkpoint.
const blocksSuffix = "_blocks"

// correctionKey is the name of what is added to scores where experts are chosen.
const correctionKey = "e_score_correction_bias"

// maxExperts bounds the number of experts.
const maxExperts = 1 << 14

// of returns the family of decoders with a mixture.
func (x mixture) of(d decoder) *family.Family {
	d.feed = x.feed
	f := d.family()
	x.join(f, d.class)
	return f
}

// join adds the classes of a mixture to a family.
func (x mixture) join(f *family.Family, class string) {
	f.Classes[class+x.block] = layers.Unary(mixtureForward)
	f.Classes[class+x.router] = layers.Class{Forward: routerForward}
	f.Classes[class+x.experts] = layers.Class{Forward: expertsForward}
	for _, name := range []string{"Statics", "Expert", "ExpertWeight"} { // which only hold weights
		f.Classes[class+name] = layers.Class{Forward: func(t *layers.Trace, m *layers.Module, _ ...any) any {
			t.Fail("%s is computed with others of its kind", m.Class)
			return nil
		}}
	}
}

// feed is the mixture of layer i, or its MLP.
func (x mixture) feed(d *decoder, c *family.Config, i int, s shape) *layers.Module {
	if x.dense != nil && x.dense(c)(i) {
		if x.denseInner != nil {
			s.inner = x.denseInner(c)
		}
		return d.mlp(c, s.hidden, s.inner)
	}
	number, chosen, inner := sizeOf(c, x.numberKey, x.number, i), sizeOf(c, x.chosenKey, x.chosen, i), s.inner
	if x.innerKey != "" {
		inner = c.Size(x.innerKey, x.inner)
	}
	if number > maxExperts || chosen > number {
		c.Fail(x.numberKey, "is %d, of which %d are chosen", number, chosen)
		number, chosen = 1, 1
	}
	m := layers.New(d.class+x.block, map[string]any{"router": x.gate, "correction": ""})
	if x.outer != nil {
		if name := x.outer(c); name != "" {
			m.Attrs["correction"] = name
			m.Param(name, number)
			m.Params[0].Buffer = true
		}
	}
	in := s.hidden
	if x.latentKey != "" {
		if in = c.Number(x.latentKey, 0); in > 0 {
			bias := biased(c, d.mlpBias)
			m.Add("fc1_latent_proj", layers.Linear(s.hidden, in, bias)).Add("fc2_latent_proj", layers.Linear(in, s.hidden, bias))
		} else {
			in = s.hidden
		}
	}
	router := layers.New(d.class+x.router, map[string]any{
		"chosen": chosen, "scores": string(x.scores), "normalized": x.normalized != nil && x.normalized(c),
		"epsilon": 0.0, "least": 0.0, "factor": 1.0, "groups": 1, "correction": "",
	}).Param("weight", number, s.hidden)
	if x.more != nil {
		x.more(c, router, number)
	}
	m.Add(x.gate, router).Add("experts", x.list(d, c, number, in, inner))
	if x.shared != nil {
		x.shared(d, c, m, s)
	}
	return m
}

// list is the experts as the checkpoint has them.
func (x mixture) list(d *decoder, c *family.Config, number, hidden, inner int) *layers.Module {
	m := layers.New(d.class+x.experts, map[string]any{
		"number": number, "inner": inner, "turned": false, "interleaved": x.interleaved, "biased": x.biased, "weighed": x.weighed,
		"act": "clamped", "alpha": 0.0, "limit": 0.0, "plain": x.plain,
	})
	switch act := c.Text(d.actKey, d.act); {
	case x.clamped:
		m.Attrs["alpha"], m.Attrs["limit"] = c.Float("swiglu_alpha", 1.702), c.Float("swiglu_limit", 7)
	case x.plain && act == "relu2":
		m.Attrs["act"] = "relu" // of the same product as what it is multiplied with
	case x.plain:
		c.Unsupported("experts without gates with the activation " + act)
	default:
		m.Attrs["act"] = gate(c, act)
	}
	one := separate(c)
	if x.turned = !one && (x.turned || turnedExperts(c, number, hidden, inner)); x.turned {
		m.Attrs["turned"] = true
	}
	blocks := x.turned && c.Holds("experts.gate_up_proj"+blocksSuffix) && !c.Whole
	switch {
	case blocks:
		m.Attrs["turned"], m.Attrs["suffix"] = false, blocksSuffix
		m.Param("gate_up_proj"+blocksSuffix, number, 2*inner, hidden).Param("down_proj"+blocksSuffix, number, hidden, inner)
	case c.Holds("experts.gate_proj") && !c.Whole:
		m.Attrs["apart"], m.Attrs["turned"] = true, false
		m.Param("gate_proj", number, inner, hidden).Param("up_proj", number, inner, hidden).Param("down_proj", number, hidden, inner)
		if x.biased {
			m.Param("gate_proj_bias", number, inner).Param("up_proj_bias", number, inner).Param("down_proj_bias", number, hidden)
		}
		return m
	case x.turned:
		m.Param("gate_up_proj", number, hidden, 2*inner).Param("down_proj", number, inner, hidden)
	case x.plain && !one:
		return m.Param("up_proj", number, inner, hidden).Param("down_proj", number, hidden, inner)
	case !one:
		return m.Param("gate_up_proj", number, 2*inner, hidden).Param("down_proj", number, hidden, inner)
	}
	if x.turned {
		if x.biased {
			m.Param("gate_up_proj_bias", number, 2*inner).Param("down_proj_bias", number, hidden)
		}
		return m
	}
	if number > len(c.Dict) {
		c.Fail(x.numberKey, "is %d, and the checkpoint has %d weights in all", number, len(c.Dict))
		return m
	}
	weight := func(rows, columns int) *layers.Module {
		w := layers.New(d.class+"ExpertWeight", nil).Param("weight", rows, columns)
		if x.biased {
			w.Param("bias", rows)
		}
		return w
	}
	for i := range number {
		expert := layers.New(d.class+"Expert", nil).Add("up_proj", weight(inner, hidden)).Add("down_proj", weight(hidden, inner))
		if !x.plain {
			expert.Add("gate_proj", weight(inner, hidden))
		}
		m.Add(strconv.Itoa(i), expert)
	}
	return m
}

// turnedExperts reports whether the checkpoint has the tensors of all experts turned, as those of Qwen3-VL are.
func turnedExperts(c *family.Config, number, hidden, inner int) bool {
	if hidden == 2*inner { // which no shape tells
		return strings.HasPrefix(c.Part, "qwen3_vl_moe")
	}
	return slices.ContainsFunc(c.Dict, func(e layers.Entry) bool {
		return strings.HasSuffix(e.Name, ".experts.gate_up_proj") && e.Shape.Equal(tensor.Shape{number, hidden, 2 * inner})
	})
}

// separate reports whether the checkpoint has experts one by one.
func separate(c *family.Config) bool {
	return slices.ContainsFunc(c.Dict, func(e layers.Entry) bool { return strings.Contains(e.Name, ".experts.0.") })
}

// gate returns what the activation of a gate is called in "optimem::experts".
func gate(c *family.Config, act string) string {
	switch act {
	case "silu", "swish":
		return "silu"
	case "gelu", "relu":
		return act
	case "gelu_new", "gelu_pytorch_tanh":
		return "gelu_tanh"
	}
	c.Unsupported("experts with the activation " + act)
	return "silu"
}

// mixtureForward runs the experts that the router chooses, and those that all tokens go through.
func mixtureForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	var routed []layers.Tensor
	if name := m.Text("correction"); name != "" {
		routed = t.ChildOf(m, m.Text("router"), x, t.Param(m, name)).([]layers.Tensor)
	} else {
		routed = t.ChildOf(m, m.Text("router"), x).([]layers.Tensor)
	}
	in := x
	if m.Has("fc1_latent_proj") {
		in = t.Child(m, "fc1_latent_proj", x)
	}
	out := t.ChildOf(m, "experts", in, routed[0], routed[1]).(layers.Tensor)
	if m.Has("fc2_latent_proj") {
		out = t.Child(m, "fc2_latent_proj", out)
	}
	switch {
	case m.Has("shared_expert_gate"):
		share := t.Op("sigmoid", t.Child(m, "shared_expert_gate", x))
		out = t.Op("add.Tensor", out, t.Op("mul.Tensor", share, t.Child(m, "shared_expert", x)))
	case m.Has("shared_expert"):
		out = t.Op("add.Tensor", t.Child(m, "shared_expert", x), out)
	case m.Has("shared_mlp"):
		out = t.Op("add.Tensor", out, t.Child(m, "shared_mlp", x))
	case m.Has("shared_experts"):
		out = t.Op("add.Tensor", out, t.Child(m, "shared_experts", x))
	}
	return out
}

// routerForward returns the ids and the weights of the experts of each token. Behind the tokens it may take what is
// added to scores where experts are chosen.
func routerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, chosen := args[0].(layers.Tensor), m.Int("chosen")
	var bias layers.Tensor
	if m.Bool("biased") {
		bias = t.Param(m, "bias")
	}
	scores := t.Op("linear", x, t.Param(m, "weight"), bias)
	if scoring(m.Text("scores")) == oneByOne {
		return chosenOneByOne(t, scores, chosen, m.Float("near"))
	}
	switch of := scoring(m.Text("scores")); of {
	case softmaxOfChosen, sigmoidsOfChosen:
		best := t.Tensors("topk", scores, chosen, -1)
		if of == sigmoidsOfChosen {
			return []layers.Tensor{best[1], t.Op("sigmoid", best[0])}
		}
		return []layers.Tensor{best[1], t.Op("softmax.int", best[0], -1)}
	case sigmoids:
		scores = t.Op("sigmoid", scores)
	default:
		scores = t.Op("softmax.int", scores, -1)
	}
	choice := scores
	switch name := m.Text("correction"); {
	case len(args) > 1:
		choice = t.Op("add.Tensor", scores, args[1].(layers.Tensor))
	case name == "":
	case m.Has(name):
		choice = t.Op("add.Tensor", scores, t.Param(m.Child(name), correctionKey))
	default:
		choice = t.Op("add.Tensor", scores, t.Param(m, name))
	}
	if m.Int("groups") > 1 {
		choice = bestGroups(t, m, choice)
	}
	ids := t.Tensors("topk", choice, chosen, -1)[1]
	weights := t.Op("gather", scores, -1, ids)
	if m.Bool("normalized") {
		sum := t.Op("sum.dim_IntList", weights, []int{-1}, true)
		if least := m.Float("least"); least != 0 {
			sum = t.Op("clamp", sum, least)
		}
		if e := m.Float("epsilon"); e != 0 {
			sum = t.Op("add.Tensor", sum, e)
		}
		weights = t.Op("div.Tensor", weights, sum)
	}
	if by := m.Float("factor"); by != 1 {
		weights = t.Op("mul.Tensor", weights, by)
	}
	return []layers.Tensor{ids, weights}
}

// chosenOneByOne returns the ids and the weights of so many experts: of each the share among those whose scores are
// near the best that is left.
func chosenOneByOne(t *layers.Trace, scores layers.Tensor, chosen int, near float64) []layers.Tensor {
	var ids, weights []layers.Tensor
	left := scores
	for range chosen {
		best := t.Tensors("topk", left, 1, -1)
		far := t.Op("div.Tensor", t.Op("sub.Tensor", best[0], scores), t.Op("maximum", t.Op("abs", scores), best[0]))
		shares := t.Op("masked_fill.Scalar", left, t.Op("gt.Scalar", far, near), math.Inf(-1))
		ids = append(ids, best[1])
		weights = append(weights, t.Op("gather", t.Op("softmax.int", shares, -1), -1, best[1]))
		left = t.Op("scatter.value", left, -1, best[1], math.Inf(-1))
	}
	return []layers.Tensor{t.Op("cat", ids, -1), t.Op("cat", weights, -1)}
}

// bestGroups makes all scores those of nobody but for the experts of the best groups. A group is as good as its best experts are
// together.
func bestGroups(t *layers.Trace, m *layers.Module, choice layers.Tensor) layers.Tensor {
	shape, groups := choice.Shape(), m.Int("groups")
	number := shape[len(shape)-1]
	if number%groups != 0 {
		t.Fail("%d experts in %d groups", number, groups)
	}
	rows := append(slices.Clone([]int(shape[:len(shape)-1])), groups)
	grouped := append(slices.Clone(rows), number/groups)
	of := t.Tensors("topk", t.Op("view", choice, grouped), m.Int("group_best"), -1)[0]
	best := t.Tensors("topk", t.Op("sum.dim_IntList", of, []int{-1}), m.Int("chosen_groups"), -1)[1]
	out := t.Op("ones", rows, layers.Named{"dtype": choice.DType()})
	out = t.Op("scatter.value", out, -1, best, 0)
	out = t.Op("expand", t.Op("unsqueeze", t.Op("ne.Scalar", out, 0), -1), grouped)
	return t.Op("masked_fill.Scalar", choice, t.Op("reshape", out, []int(shape)), m.Float("nobody"))
}

// expertsForward takes tokens, ids and weights.
func expertsForward(t *layers.Trace, m *layers.Module, args ...any) any {
	number := m.Int("number")
	gate, up, down := make([]layers.Tensor, number), make([]layers.Tensor, number), make([]layers.Tensor, number)
	switch {
	case m.Bool("plain") && len(m.Children) == 0: // two stacks
		ups, downs := t.Param(m, "up_proj"), t.Param(m, "down_proj")
		for i := range number {
			up[i], down[i] = t.Op("select.int", ups, 0, i), t.Op("select.int", downs, 0, i)
			gate[i] = up[i]
		}
	case m.Bool("apart"): // three stacks
		for k, to := range [][]layers.Tensor{gate, up, down} {
			all := t.Param(m, []string{"gate_proj", "up_proj", "down_proj"}[k])
			for i := range number {
				to[i] = t.Op("select.int", all, 0, i)
			}
		}
	case len(m.Children) > 0:
		for i, c := range m.Children {
			up[i], down[i] = t.Param(c.Module.Child("up_proj"), "weight"), t.Param(c.Module.Child("down_proj"), "weight")
			if gate[i] = up[i]; !m.Bool("plain") {
				gate[i] = t.Param(c.Module.Child("gate_proj"), "weight")
			}
		}
	default:
		suffix := m.Text("suffix")
		both, all := t.Param(m, "gate_up_proj"+suffix), t.Param(m, "down_proj"+suffix)
		if m.Bool("turned") {
			both, all = t.Op("transpose.int", both, 1, 2), t.Op("transpose.int", all, 1, 2)
		}
		for i := range number {
			gate[i], up[i] = halvesOf(t, m, t.Op("select.int", both, 0, i))
			down[i] = t.Op("select.int", all, 0, i)
		}
	}
	var biases []layers.Tensor
	switch {
	case m.Bool("biased") && len(m.Children) > 0:
		for _, c := range m.Children {
			for _, name := range []string{"gate_proj", "up_proj", "down_proj"} {
				biases = append(biases, t.Param(c.Module.Child(name), "bias"))
			}
		}
	case m.Bool("biased") && m.Bool("apart"):
		for i := range number {
			for _, name := range []string{"gate_proj_bias", "up_proj_bias", "down_proj_bias"} {
				biases = append(biases, t.Op("select.int", t.Param(m, name), 0, i))
			}
		}
	case m.Bool("biased"):
		both, all := t.Param(m, "gate_up_proj_bias"), t.Param(m, "down_proj_bias")
		for i := range number {
			gateBias, upBias := halvesOf(t, m, t.Op("select.int", both, 0, i))
			biases = append(biases, gateBias, upBias, t.Op("select.int", all, 0, i))
		}
	}
	how := layers.Named{"act": m.Text("act"), "alpha": m.Float("alpha"), "limit": m.Float("limit"), "weigh_input": m.Bool("weighed")}
	if biases == nil {
		return t.Op("optimem::experts", args[0], args[1], args[2], gate, up, down, how)
	}
	return t.Op("optimem::experts", args[0], args[1], args[2], gate, up, down, biases, how)
}

// halvesOf returns what of an expert's rows is its gate and what makes what that is multiplied with.
func halvesOf(t *layers.Trace, m *layers.Module, both layers.Tensor) (gate, up layers.Tensor) {
	if inner := m.Int("inner"); !m.Bool("interleaved") {
		return t.Op("slice.Tensor", both, 0, 0, inner), t.Op("slice.Tensor", both, 0, inner, math.MaxInt64)
	}
	return t.Op("slice.Tensor", both, 0, 0, math.MaxInt64, 2), t.Op("slice.Tensor", both, 0, 1, math.MaxInt64, 2)
}
