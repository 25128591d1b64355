package transformers

import (
	"encoding/json"
	"strconv"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
)

const llama4Class = "transformers.models.llama4.modeling_llama4.Llama4Text"

// llama4 is the decoder of transformers/models/llama4/modeling_llama4.py.
var llama4 = func() *family.Family {
	f := mixture{
		block: "Moe", router: "Router", experts: "Experts", gate: "router", number: 16, chosen: 1,
		numberKey: expertsKey, chosenKey: chosenKey, scores: sigmoidsOfChosen, turned: true, weighed: true,
		dense: llama4Dense, denseInner: func(c *family.Config) int { return c.Size("intermediate_size_mlp", 16384) },
		shared: func(d *decoder, c *family.Config, m *layers.Module, s shape) {
			m.Add("shared_expert", d.mlp(c, s.hidden, s.inner))
		},
	}.of(decoder{
		model: "llama4_text", class: llama4Class, name: "Llama4",
		vocabulary: 202048, hidden: 5120, inner: 8192, layers: 48, heads: 40, keys: 8, size: 128, positions: 131072, eps: 1e-5,
		act: "silu", actKey: "hidden_act", qkvBias: attentionBias, outBias: attentionBias,
		names: names{mlp: "feed_forward", act: "activation_fn"}, rope: rope{interleaved: true}, noTexts: true, noTokens: true,
		turns: func(c *family.Config) func(int, bool) bool {
			turned := llama4Turned(c)
			return func(i int, _ bool) bool { return turned(i) }
		},
		chunked: true,
		window: func(c *family.Config, layers int) (int, func(int) bool) {
			if v, there := c.Fields["attention_chunk_size"]; there && v == nil {
				return 0, func(int) bool { return false }
			}
			size := c.Size("attention_chunk_size", 8192)
			list, ok := c.Fields["layer_types"].([]any)
			if !ok {
				return size, llama4Turned(c)
			}
			if len(list) != layers {
				c.Fail("layer_types", "has %d entries for %d layers", len(list), layers)
				return size, func(int) bool { return false }
			}
			return size, func(i int) bool { return list[i] == "chunked_attention" }
		},
		attend: func(d *decoder, c *family.Config, _ int, s shape, attrs map[string]any) *layers.Module {
			attrs["normed"] = c.Flag("use_qk_norm", true) && attrs["turned"] == true
			attrs["l2_eps"] = c.Float("rms_norm_eps", 1e-5)
			attrs["tuned"] = c.Flag("attn_temperature_tuning", true) && attrs["turned"] == false
			attrs["floor_scale"], attrs["attn_scale"] = positive(c, c, "floor_scale", 8192), c.Float("attn_scale", 0.1)
			return d.attention(c, s, attrs)
		},
	})
	f.Classes[llama4Class+"Attention"] = layers.Class{Forward: llama4Attention}
	f.Heads[0].Class, f.Encodes = "Llama4TextModel", "Llama4TextModel"
	return f
}()

// llama4Turned says which layers turn heads by their positions.
func llama4Turned(c *family.Config) func(i int) bool {
	if list, ok := c.Fields["no_rope_layers"].([]any); ok && len(list) > 0 {
		return func(i int) bool { // where an entry is 1, whatever the list is called
			if i >= len(list) {
				return true
			}
			n, _ := list[i].(json.Number)
			return list[i] == true || n != "" && n != "0"
		}
	}
	every := c.Size("no_rope_layer_interval", 4)
	return func(i int) bool { return (i+1)%every != 0 }
}

// llama4Dense says which layers have no experts.
func llama4Dense(c *family.Config) func(i int) bool {
	list, ok := c.Fields["moe_layers"].([]any)
	if !ok {
		every := c.Size("interleave_moe_layer_step", 1)
		return func(i int) bool { return (i+1)%every != 0 }
	}
	mixed := make(map[string]bool)
	for _, v := range list {
		n, _ := v.(json.Number)
		mixed[n.String()] = true
	}
	return func(i int) bool { return !mixed[strconv.Itoa(i)] }
}

// llama4Attention takes the states of the tokens, what is around them, and whether the layer sees a chunk only. Layers whose
// heads are turned normalize them after that; others multiply queries by how far the text is.
func llama4Attention(t *layers.Trace, m *layers.Module, args ...any) any {
	own := m.Attrs["decoder"].(*decoder)
	x, a := args[0].(layers.Tensor), args[1].(*around)
	kind := 0
	if args[2].(bool) {
		kind = 1
	}
	q, k, v := own.headsOf(t, m, x)
	q, k, v = t.Op("transpose.int", q, 1, 2), t.Op("transpose.int", k, 1, 2), t.Op("transpose.int", v, 1, 2)
	if m.Bool("turned") {
		angles := a.angles[kind].([]layers.Tensor)
		cos, sin := t.Op("unsqueeze", angles[0], 1), t.Op("unsqueeze", angles[1], 1)
		q, k = own.rope.turn(t, q, cos, sin), own.rope.turn(t, k, cos, sin)
	}
	if m.Bool("normed") {
		norm := func(x layers.Tensor) layers.Tensor {
			mean := t.Op("mean.dim", t.Op("pow.Tensor_Scalar", x, 2), []int{-1}, true)
			return t.Op("mul.Tensor", x, t.Op("rsqrt", t.Op("add.Tensor", mean, m.Float("l2_eps"))))
		}
		q, k = norm(q), norm(k)
	}
	if m.Bool("tuned") {
		positions := a.positions
		if _, steps := t.Steps(); !steps { // whatever positions a caller gives
			positions = countedPositions(t, x.Shape()[1])
		}
		q = warm(t, q, t.Op("add.Tensor", positions, 1), m.Float("attn_scale"), m.Float("floor_scale"))
	}
	mask, _ := a.masks[kind].(layers.Tensor)
	how := family.Attention{Scaling: m.Float("scaling"), Groups: m.Int("groups"), Eager: m.Bool("eager"), Chunk: m.Int("window")}
	return t.Child(m, own.names.o, how.Run(t, m, q, k, v, mask))
}
