package transformers

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

// latents are the defaults of sizes of such an attention; queries is 0 where they have no latents.
type latents struct{ nope, value, queries int }

// latent makes the attention of DeepSeek, where keys and values come from a latent of few elements that all heads share, and
// positions are in a part of the keys that all share, too.
func latent(d *decoder, c *family.Config, _ int, s shape, attrs map[string]any) *layers.Module {
	l := d.latents
	if l == (latents{}) {
		l = latents{128, 128, 1536}
	}
	nope, turned, rank := c.Size("qk_nope_head_dim", l.nope), c.Size("qk_rope_head_dim", 64), c.Size("kv_lora_rank", 512)
	value := c.Size("v_head_dim", l.value)
	attrs["nope"], attrs["rope"], attrs["rank"], attrs["value"] = nope, turned, rank, value
	attrs["scaling"] = family.InverseSqrt(nope+turned) * latentScale(c, d.rope)
	bias := biased(c, attentionBias)
	norm := func(size int) *layers.Module { // whose epsilon no configuration says
		return layers.New(d.class+"RMSNorm", map[string]any{"eps": 1e-6, "plus_one": false}).Param("weight", size)
	}
	split := !c.Whole && c.Holds("self_attn."+keysOfLatents)
	attrs["split"] = split
	m := layers.New(d.class+"Attention", attrs)
	queries := s.heads * (nope + turned)
	if v, there := c.Fields["q_lora_rank"]; there && v == nil || !there && l.queries == 0 {
		m.Add("q_proj", layers.Linear(s.hidden, queries, layers.NoBias))
	} else {
		n := c.Size("q_lora_rank", l.queries)
		m.Add("q_a_proj", layers.Linear(s.hidden, n, bias)).Add("q_a_layernorm", norm(n)).
			Add("q_b_proj", layers.Linear(n, queries, layers.NoBias))
	}
	m.Add("kv_a_proj_with_mqa", layers.Linear(s.hidden, rank+turned, bias)).Add("kv_a_layernorm", norm(rank))
	if split {
		m.Param(keysOfLatents, s.heads, rank, nope).Param(valuesOfLatents, s.heads, value, rank)
	} else {
		m.Add("kv_b_proj", layers.Linear(rank, s.heads*(nope+value), layers.NoBias))
	}
	return m.Add("o_proj", layers.Linear(s.heads*value, s.hidden, bias))
}

// What makes keys and values of latents lies in GGUF files as two weights of all heads, of which that of keys is turned.
const (
	keysOfLatents   = "k_b_proj"
	valuesOfLatents = "v_b_proj"
)

// ofLatents returns what makes keys and values of latents, each as [1, heads, elements, rank].
func ofLatents(t *layers.Trace, m *layers.Module, heads int) (keys, values layers.Tensor) {
	if m.Bool("split") {
		keys = t.Op("transpose.int", t.Op("unsqueeze", t.Param(m, keysOfLatents), 0), 2, 3)
		return keys, t.Op("unsqueeze", t.Param(m, valuesOfLatents), 0)
	}
	nope := m.Int("nope")
	w := t.Op("view", t.Param(m.Child("kv_b_proj"), "weight"), []int{1, heads, nope + m.Int("value"), m.Int("rank")})
	return t.Op("slice.Tensor", w, 2, 0, nope), t.Op("slice.Tensor", w, 2, nope, math.MaxInt64)
}

// latentScale is what scores are multiplied with where positions are stretched.
func latentScale(c *family.Config, r rope) float64 {
	p, _ := ropeParameters(c, r)
	defer c.Adopt(p)
	all := p.Float("mscale_all_dim", 0)
	if p.Text("rope_type|type", "default") == "default" || all == 0 {
		return 1
	}
	factor := positive(p, c, "factor", 1)
	if factor <= 1 {
		return 1
	}
	scale := 0.1*all*math.Log(factor) + 1
	return scale * scale
}

// latentForward takes the states of the tokens and what is around them. All of a text has keys and values of its own for each
// head, which are made of latents. A step remembers the latents alone: its queries are brought among them, and what its heads saw
// is brought back.
func latentForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, a := args[0].(layers.Tensor), args[1].(*around)
	s := x.Shape()
	nope, rank := m.Int("nope"), m.Int("rank")
	q := x
	if m.Has("q_proj") {
		q = t.Child(m, "q_proj", x)
	} else {
		q = t.Child(m, "q_b_proj", t.Child(m, "q_a_layernorm", t.Child(m, "q_a_proj", x)))
	}
	q = t.Op("transpose.int", t.Op("view", q, []int{s[0], s[1], -1, nope + m.Int("rope")}), 1, 2)
	both := t.Child(m, "kv_a_proj_with_mqa", x)
	one := func(x layers.Tensor) layers.Tensor { return t.Op("unsqueeze", x, 1) } // a head
	low := one(t.Child(m, "kv_a_layernorm", t.Op("slice.Tensor", both, 2, 0, rank)))
	place := one(t.Op("slice.Tensor", both, 2, rank, math.MaxInt64))
	turn := func(x layers.Tensor) layers.Tensor { return x }
	if own := m.Attrs["decoder"].(*decoder); !own.still {
		how := family.Rotate
		if own.rope.interleaved {
			how = rotateInterleaved
		}
		angles := a.angles[0].([]layers.Tensor)
		cos, sin := one(angles[0]), one(angles[1])
		turn = func(x layers.Tensor) layers.Tensor { return how(t, x, cos, sin) }
	}
	place = turn(place)
	straight, turned := t.Op("slice.Tensor", q, 3, 0, nope), turn(t.Op("slice.Tensor", q, 3, nope, math.MaxInt64))
	if _, ok := t.Steps(); ok {
		return t.Child(m, "o_proj", attendLatent(t, m, straight, turned, low, place))
	}
	heads := q.Shape()[1]
	places := t.Op("expand", place, []int{s[0], heads, s[1], m.Int("rope")})
	var k, v layers.Tensor
	if m.Bool("split") {
		keys, values := ofLatents(t, m, heads)
		k, v = t.Op("matmul", low, t.Op("transpose.int", keys, 2, 3)), t.Op("matmul", low, t.Op("transpose.int", values, 2, 3))
	} else {
		expanded := t.Op("view", t.Child(m, "kv_b_proj", t.Op("squeeze.dim", low, 1)), []int{s[0], s[1], -1, nope + m.Int("value")})
		expanded = t.Op("transpose.int", expanded, 1, 2)
		k, v = t.Op("slice.Tensor", expanded, 3, 0, nope), t.Op("slice.Tensor", expanded, 3, nope, math.MaxInt64)
	}
	k = t.Op("cat", []layers.Tensor{k, places}, -1)
	mask, _ := a.masks[0].(layers.Tensor)
	how := family.Attention{Scaling: m.Float("scaling"), Groups: 1, Eager: m.Bool("eager")}
	return t.Child(m, "o_proj", how.Run(t, m, t.Op("cat", []layers.Tensor{straight, turned}, -1), k, v, mask))
}

// attendLatent attends among latents.
func attendLatent(t *layers.Trace, m *layers.Module, straight, turned, low, place layers.Tensor) layers.Tensor {
	rank, heads, rows := m.Int("rank"), straight.Shape()[1], straight.Shape()[2]
	keys, values := ofLatents(t, m, heads)
	q := t.Op("matmul", straight, keys)
	q = t.Op("cat", []layers.Tensor{q, turned}, -1)
	k := t.Op("cat", []layers.Tensor{low, place}, -1)
	seen := t.Attend(m, q, k, low, layers.Attention{Scale: m.Float("scaling")})
	seen = t.Op("transpose.int", t.Op("view", seen, []int{1, rows, heads, rank}), 1, 2)
	out := t.Op("matmul", seen, t.Op("transpose.int", values, 2, 3))
	return t.Op("reshape", t.Op("transpose.int", out, 1, 2), []int{1, rows, -1})
}

// latentFamily is the family of a decoder with experts that attends so.
func latentFamily(x mixture, d decoder) *family.Family {
	d.attend, d.act, d.actKey = latent, "silu", "hidden_act"
	turned := func(c *family.Config) int { return c.Size("qk_rope_head_dim", 64) }
	d.rope.dims = turned
	interleaved := d.rope.interleaved
	d.by = func(c *family.Config, own *decoder) {
		own.size = turned(c)
		own.rope.interleaved = interleaved || c.Flag("rope_interleave", true)
	}
	f := x.of(d)
	f.Classes[d.class+"Attention"] = layers.Class{Forward: latentForward}
	return f
}

// The decoders that attend to latents: transformers/models/deepseek_v2/modeling_deepseek_v2.py and deepseek_v3.
var (
	deepseekV2 = latentFamily(mixture{
		block: "Moe", router: "TopkRouter", experts: "Experts", gate: "gate", number: 64, chosen: 6, inner: 1407,
		numberKey: expertsKey, chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: softmaxOfAll,
		dense: firstDense(0), shared: sharedExperts(1407, 2),
		more: func(c *family.Config, router *layers.Module, number int) {
			a := router.Attrs
			a["factor"] = c.Float("routed_scaling_factor", 1)
			switch method := c.Text("topk_method", "greedy"); method {
			case "greedy":
			case "group_limited_greedy":
				a["groups"], a["chosen_groups"], a["group_best"] = c.Size("n_group", 1), c.Size("topk_group", 1), 1
				a["nobody"] = 0.0
				checkGroups(c, router, number)
			default:
				c.Unsupported("topk_method " + method)
			}
		},
	}, decoder{
		model: "deepseek_v2", class: "transformers.models.deepseek_v2.modeling_deepseek_v2.DeepseekV2", name: "DeepseekV2",
		vocabulary: 102400, hidden: 4096, inner: 11008, layers: 32, heads: 32, positions: 2048, eps: 1e-6,
		mlpBias: func(c *family.Config) bool { return c.Flag("mlp_bias", false) }, rope: rope{interleaved: true}, noTokens: true,
	})

	deepseekV3 = latentFamily(mixture{
		block: "MoE", router: "TopkRouter", experts: "Experts", gate: "gate", number: 256, chosen: 8, inner: 2048,
		numberKey: expertsKey, chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: sigmoids, normalized: normTopK(true),
		dense: firstDense(3), shared: sharedExperts(2048, 1), more: correctedGroups(8, 4, 2.5),
	}, decoder{
		model: "deepseek_v3", class: "transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3", name: "DeepseekV3",
		vocabulary: 129280, hidden: 7168, inner: 18432, layers: 61, heads: 128, keys: 128, positions: 4096, eps: 1e-6,
		ignored: []string{`model\.layers\.61\.`},
	})

	glm4MoeLite = latentFamily(mixture{
		block: "MoE", router: "TopkRouter", experts: "Experts", gate: "gate", number: 64, chosen: 4, inner: 1536,
		numberKey: expertsKey, chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: sigmoids, normalized: normTopK(true),
		dense: listedDense(1), shared: sharedExperts(1536, 1), more: correctedGroups(1, 1, 1.8),
	}, decoder{
		model: "glm4_moe_lite", class: module("glm4_moe_lite", "Glm4MoeLite"), name: "Glm4MoeLite", vocabulary: 154880, hidden: 2048,
		inner: 10240, layers: 47, heads: 20, keys: 20, positions: 202752, eps: 1e-5, latents: latents{192, 256, 768},
		noTexts: true, noTokens: true, ignored: []string{`model\.layers\.47\.`},
	})
)
