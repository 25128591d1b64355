package transformers

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

// nemotronH is the decoder of transformers/models/nemotron_h/modeling_nemotron_h.py: each layer has one norm and one of
// a mixer of Mamba 2, an attention without positions, an MLP, and experts without gates.
var nemotronH = func() *family.Family {
	x := mixture{
		block: "MoE", router: "TopkRouter", experts: "Experts", gate: "gate", number: 8, chosen: 2, inner: 7688, numberKey: expertsKey,
		chosenKey: chosenKey, innerKey: "moe_intermediate_size", scores: sigmoids, normalized: normTopK(true), plain: true,
		latentKey: "moe_latent_size", more: correctedGroups(1, 1, 1),
		shared: func(d *decoder, c *family.Config, m *layers.Module, s shape) {
			m.Add("shared_experts", d.mlp(c, s.hidden, c.Size("moe_shared_expert_intermediate_size", 7688)))
		},
	}
	d := decoder{
		model: "nemotron_h", class: module("nemotron_h", "NemotronH"), name: "NemotronH", vocabulary: 131072, hidden: 4096, inner: 21504,
		heads: 32, keys: 8, size: 128, positions: 4096, eps: 1e-5, epsKey: "layer_norm_epsilon", act: "relu2", actKey: "mlp_hidden_act",
		pad: 0, mlpBias: mlpBias, plain: true, still: true, bare: true,
		names: names{
			embed: "embeddings", norm: "norm_f", attention: "mixer", before: [2]string{"norm"},
		},
		renames: []string{"backbone.", "model."}, ignored: []string{`^mtp`},
		depth: func(c *family.Config) int { return len(nemotronKinds(c)) },
		mixer: func(d *decoder, c *family.Config, i int, s shape) (string, *layers.Module) {
			switch nemotronKinds(c)[i] {
			case fullAttention:
				return "", nil
			case "mlp":
				return "mixer", alone(d.mlp(c, s.hidden, s.inner))
			case "moe":
				return "mixer", alone(x.feed(d, c, i, s))
			}
			bias := c.Flag("use_bias", false)
			return "mixer", d.duality(c, s.hidden, dual{
				heads: c.Size("mamba_num_heads", 128), size: c.Size("mamba_head_dim", 64), groups: c.Size("mamba_n_groups|n_groups", 8),
				inner: c.Size("mamba_num_heads", 128) * c.Size("mamba_head_dim", 64), state: c.Size("ssm_state_size", 128),
				taps: c.Size("mamba_d_conv|conv_kernel", 4), bias: bias, outBias: bias, convBias: c.Flag("mamba_conv_bias|use_conv_bias", true),
				norm: "gated", least: c.Float("mamba_dt_min|time_step_min", 0.001), most: math.Inf(1), act: c.Text("mamba_hidden_act", silu),
			})
		},
	}
	f := recurrentFamily(d, dualityForward)
	x.join(f, d.class)
	return f
}()

// alone is a module in place of an attention that keeps nothing: it looks at no token but its own.
func alone(m *layers.Module) *layers.Module {
	m.Attrs["alone"] = true
	return m
}

// nemotronKinds are the kinds of the layers.
func nemotronKinds(c *family.Config) []string {
	key, v := c.Value("layers_block_type|layer_types|hybrid_override_pattern")
	known := map[string]string{
		"M": "linear_attention", "E": "moe", "*": fullAttention, "-": "mlp", "mamba": "linear_attention", "attention": fullAttention,
		"linear_attention": "linear_attention", fullAttention: fullAttention, "moe": "moe", "mlp": "mlp",
	}
	var given []any
	switch v := v.(type) {
	case nil:
		given = []any{"M", "E", "*", "-"}
	case string:
		for _, r := range v {
			given = append(given, string(r))
		}
	case []any:
		given = v
	}
	var kinds []string
	for _, v := range given {
		text, isText := v.(string)
		kind, ok := known[text]
		if !isText || !ok {
			c.Fail(key, "has %s", family.Short(v))
			return nil
		}
		kinds = append(kinds, kind)
	}
	if len(kinds) == 0 {
		c.Fail(key, "is %s", family.Short(v))
	}
	return kinds
}
