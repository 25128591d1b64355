package transformers

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// rotary returns the module that makes the cosines and sines of rotary embeddings for heads of a size: the frequencies
// of transformers' modeling_rope_utils, in float32 as there. Partial ones may turn a part of each head only.
func (c *config) rotary(class string, headDim, positions int, partial bool) *layers.Module {
	p := c.sub("rope_scaling") // the older name, which goes before the newer
	if len(p.fields) == 0 {
		p = c.sub("rope_parameters")
	}
	defer c.adopt(p)
	theta := p.float("rope_theta", c.float("rope_theta", 10000))
	share := p.float("partial_rotary_factor", c.float("partial_rotary_factor", 1))
	kind := p.text("rope_type|type", "default")
	dim := int(float64(headDim) * share)
	switch {
	case share != 1 && !partial:
		c.unsupported("rotary embeddings of a part of the heads")
	case headDim > maxTable:
		c.fail("head_dim", "is %d, more than %d", headDim, maxTable)
	case !(theta > 0) || share <= 0 || share > 1 || dim < 2 || dim%2 != 0:
		c.fail("rope_parameters", "want rotary embeddings of base %v of %v of %d elements", theta, share, headDim)
	}
	if c.err != nil || p.err != nil {
		return layers.Identity()
	}
	powers, scaling := rotaryPowers(theta, dim), 1.0
	freq := make([]float32, len(powers))
	for i, x := range powers {
		freq[i] = 1 / x
	}
	switch kind {
	case "default":
	case "linear":
		factor := p.positive(c, "factor", 0)
		for i := range freq {
			freq[i] /= float32(factor)
		}
	case "llama3":
		c.llama3(p, positions, freq)
	case "yarn":
		scaling = c.yarn(p, positions, theta, powers, freq)
	default:
		c.unsupported("rotary embeddings of the type " + kind)
	}
	m := layers.New(class, map[string]any{"attention_scaling": scaling})
	m.Params = []layers.Param{{
		Name: "inv_freq", DType: tensor.Float32, Shape: tensor.Shape{dim / 2}, Buffer: true, Transient: true,
		Value: tensor.Of(freq, dim/2),
	}}
	return m
}

// positive returns a positive number of the rotary embeddings' parameters.
func (c *config) positive(parent *config, name string, missing float64) float64 {
	x := c.float(name, missing)
	if !(x > 0) {
		parent.fail("rope_parameters", "have the %s %v, not a positive one", name, x)
		return 1
	}
	return x
}

// rotaryPowers are θ^(2i/dim).
func rotaryPowers(theta float64, dim int) []float32 {
	powers := make([]float32, dim/2)
	for i := range powers {
		exponent := float32(2*i) / float32(dim)
		powers[i] = float32(math.Pow(float64(float32(theta)), float64(exponent)))
	}
	return powers
}

// context returns original_max_position_embeddings, where an entry beside the parameters comes before one in them.
func (c *config) context(p *config, positions int) float64 {
	const name = "original_max_position_embeddings"
	if n, ok := c.integer(name); ok && n > 0 {
		return float64(n)
	}
	return p.positive(c, name, float64(positions))
}

// llama3 slows the low frequencies down.
func (c *config) llama3(p *config, positions int, freq []float32) {
	factor, context := p.positive(c, "factor", 0), c.context(p, positions)
	low, high := p.positive(c, "low_freq_factor", 0), p.positive(c, "high_freq_factor", 0)
	if !(high > low) {
		c.fail("rope_parameters", "have the low_freq_factor %v and the high_freq_factor %v", low, high)
	}
	for i, f := range freq {
		wave := float32(2*math.Pi) / f
		switch {
		case wave > float32(context/low):
			freq[i] = f / float32(factor)
		case !(wave < float32(context/high)):
			smooth := (float32(context)/wave - float32(low)) / float32(high-low)
			freq[i] = float32((1-smooth)*f/float32(factor)) + float32(smooth*f)
		}
	}
}

// yarn mixes frequencies that are slowed down with those that are not. It returns what cosines and sines are multiplied
// with.
func (c *config) yarn(p *config, positions int, theta float64, powers, freq []float32) float64 {
	context := c.context(p, positions)
	factor := p.positive(c, "factor", float64(positions)/context)
	fast, slow := p.positive(c, "beta_fast", 32), p.positive(c, "beta_slow", 1)
	dim := float64(2 * len(freq))
	at := func(rotations float64) float64 {
		return dim * math.Log(context/(rotations*2*math.Pi)) / (2 * math.Log(theta))
	}
	low, high := at(fast), at(slow)
	if p.flag("truncate", true) {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, dim-1)
	if low == high {
		high += 0.001
	}
	for i, f := range freq {
		kept := 1 - min(max((float32(i)-float32(low))/float32(high-low), 0), 1)
		slowed := 1 / (float32(factor) * powers[i])
		freq[i] = float32(slowed*(1-kept)) + float32(f*kept)
	}
	scale := func(m float64) float64 {
		if factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(factor) + 1
	}
	if given := p.float("attention_factor", 0); given != 0 {
		return given
	}
	if m, all := p.float("mscale", 0), p.float("mscale_all_dim", 0); m != 0 && all != 0 {
		return scale(m) / scale(all)
	}
	return scale(1)
}

// rotaryForward returns the cosines and sines for positions of [rows, tokens].
func rotaryForward(t *layers.Trace, m *layers.Module, args ...any) any {
	positions := optional(t, args, 0)
	scaling := m.Float("attention_scaling")
	at := t.Op("to.dtype", t.Op("unsqueeze", positions, 2), tensor.Float32)
	freq := t.Op("mul.Tensor", at, t.Param(m, "inv_freq"))
	both := t.Op("cat", []layers.Tensor{freq, freq}, -1)
	cos := t.Op("mul.Tensor", t.Op("cos", both), scaling)
	return []layers.Tensor{cos, t.Op("mul.Tensor", t.Op("sin", both), scaling)}
}

// rotate turns pairs of elements of heads by the angles of their positions.
func rotate(t *layers.Trace, x, cos, sin layers.Tensor) layers.Tensor {
	half := x.Shape()[3] / 2
	straight := t.Op("mul.Tensor", x, cos)
	first := t.Op("slice.Tensor", x, 3, 0, half)
	second := t.Op("neg", t.Op("slice.Tensor", x, 3, half, math.MaxInt64))
	crossed := t.Op("mul.Tensor", t.Op("cat", []layers.Tensor{second, first}, -1), sin)
	return t.Op("add.Tensor", straight, crossed)
}
