package transformers

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// minimax is the decoder of transformers/models/minimax/modeling_minimax.py: every other layer sums products of keys
// and values that fade, and what layers add up are shares of what the norms gave.
var minimax = func() *family.Family {
	x := mixture{
		block: "SparseMoeBlock", router: "TopKRouter", experts: "Experts", gate: "gate", number: 8, chosen: 2, numberKey: expertsKey,
		chosenKey: chosenKey, scores: softmaxOfAll, normalized: always,
	}
	d := decoder{
		model: "minimax", class: module("minimax", "MiniMax"), name: "MiniMax", vocabulary: 32000, hidden: 4096, inner: 14336, layers: 32,
		heads: 32, keys: 8, positions: 131072, eps: 1e-5, act: silu, actKey: hiddenAct, rope: rope{theta: 1e6}, window: everyLayer(0),
		qaPrefix: "model", renames: mixtralNames, ignored: []string{`\.(slope_rate|(query|key|diagonal)_decay)$`}, feed: x.feed,
		mixer: func(d *decoder, c *family.Config, i int, s shape) (string, *layers.Module) {
			attends := i%2 == 0
			if kinds := kinds(c, "layer_types", s.layers); kinds != nil {
				attends = kinds[i] == fullAttention
			}
			if attends {
				return "", nil
			}
			return "self_attn", d.lightning(c, i, s)
		},
		more: func(d *decoder, c *family.Config, _ int, _ shape, layer *layers.Module) {
			kind := "linear_attn"
			if layer.Text("mixer") == "" {
				kind = "full_attn"
			}
			layer.Class = d.class + "BlendedLayer"
			for i, name := range []string{kind, "mlp"} {
				part := []string{"attention", "mlp"}[i]
				layer.Attrs[part+"_kept"], layer.Attrs[part+"_added"] = c.Float(name+"_alpha_factor", 1), c.Float(name+"_beta_factor", 1)
			}
		},
	}
	f := withMixer(d.family(), d.class, lightningForward)
	x.join(f, d.class)
	f.Classes[d.class+"BlendedLayer"] = layers.Class{Forward: blendedLayerForward}
	return f
}()

// lightning is the mixer of layer i.
func (d *decoder) lightning(c *family.Config, i int, s shape) *layers.Module {
	width := s.heads * s.size
	rates := make([]float32, s.heads)
	for k := range rates {
		slope := math.Pow(1/math.Pow(2, 8/float64(s.heads)), float64(k+1))
		rates[k] = -float32(slope * (1 - float64(i)/(float64(s.layers-1)+1e-5) + 1e-5))
	}
	m := layers.New(d.class+"Mixer", map[string]any{"heads": s.heads, "size": s.size}).
		Add("act", c.Activation(c.Text(d.actKey, d.act))).
		Add("norm", layers.New(d.class+"RMSNorm", map[string]any{"eps": 1e-6, "plus_one": false}).Param("weight", width)).
		Add("qkv_proj", layers.Linear(s.hidden, 3*width, layers.NoBias)).
		Add("out_proj", layers.Linear(width, s.hidden, layers.NoBias)).
		Add("output_gate", layers.Linear(s.hidden, width, layers.NoBias))
	m.Params = append(m.Params, layers.Param{
		Name: "rates", DType: tensor.Float32, Shape: tensor.Shape{s.heads, 1}, Buffer: true, Transient: true,
		Value: tensor.Of(rates, s.heads, 1),
	})
	return m
}

// lightningForward takes the states of the tokens and what is around them. The rule is that of a scan with steps of
// one.
func lightningForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, a := args[0].(layers.Tensor), args[1].(*around)
	s, heads, size := x.Shape(), m.Int("heads"), m.Int("size")
	qkv := a.withoutPadding(t, t.Child(m, "act", t.Child(m, "qkv_proj", x)))
	made := parts(t, t.Op("view", qkv, []int{s[0], s[1], heads, 3 * size}), size, size, size)
	steps := t.Op("ones", []int{s[0], s[1], heads}, layers.Named{"dtype": tensor.Float32})
	y := t.Recur(m, "selective_scan", made[2], steps, t.Param(m, "rates"), made[1], made[0])
	y = t.Child(m, "norm", t.Op("reshape", y, []int{s[0], s[1], heads * size}))
	return t.Child(m, "out_proj", t.Op("mul.Tensor", t.Op("sigmoid", t.Child(m, "output_gate", x)), y))
}

// blendedLayerForward adds shares of what the attention and the experts make to shares of what they were made of.
func blendedLayerForward(t *layers.Trace, m *layers.Module, args ...any) any {
	x, n := args[0].(layers.Tensor), m.Attrs["decoder"].(*decoder).names
	blended := func(kept, added layers.Tensor, part string) layers.Tensor {
		return t.Op("add.Tensor", scaledBy(t, kept, m.Float(part+"_kept")), scaledBy(t, added, m.Float(part+"_added")))
	}
	x = t.Child(m, n.before[0], x)
	x = blended(x, t.ChildOf(m, n.attention, x, args[1], m.Bool("sliding")).(layers.Tensor), "attention")
	x = t.Child(m, n.before[1], x)
	return blended(x, t.Child(m, n.mlp, x), "mlp")
}
