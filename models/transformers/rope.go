package transformers

import (
	"encoding/json"
	"maps"
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// A rope is how a model turns heads by their positions. The zero value is Llama's.
type rope struct {
	// theta is the default of the base, 0 for 10,000; part that of the share of each head that is turned, 0 for models that turn
	// heads whole.
	theta, part float64
	// dims returns how many elements are turned, where the configuration has a number of them.
	dims func(c *config) int
	// interleaved is set where the pairs that are turned are neighbours, not halves.
	interleaved bool
	// phi is set for Phi-3, whose first files have names of their own.
	phi bool
	// local is the default of the base in the layers that slide, where they have parameters of their own; 0 where they do not.
	// localKey is the older name of it, slides is set for those layers.
	local    float64
	localKey string
	slides   bool
	// alpha is set where the type dynamic with an alpha has a larger base and no more.
	alpha bool
	// scaled is set where parameters of the type longrope say what cosines and sines are multiplied with: Phi-3.5-MoE.
	scaled bool
	// missing are the parameters of files that have none.
	missing map[string]any
}

// sliding returns the rope of the layers that slide.
func (r rope) sliding() rope {
	r.slides = true
	return r
}

// partial says whether a part of each head may be turned.
func (r rope) partial() bool { return r.part > 0 || r.phi || r.dims != nil }

// ropeParameters returns the parameters, whatever the file calls them, and the default of the base.
func (c *config) ropeParameters(r rope) (p *config, theta float64) {
	theta = r.theta
	if theta == 0 {
		theta = 10000
	}
	if r.local == 0 {
		p = c.sub("rope_scaling") // the older name, which goes before the newer
		if len(p.fields) == 0 {
			p = c.sub("rope_parameters")
		}
		if len(p.fields) == 0 && r.missing != nil {
			p.fields = r.missing
		}
		return p, c.float("rope_theta|rotary_emb_base", theta)
	}
	all := c.sub("rope_parameters")
	defer c.adopt(all)
	if r.slides {
		if theta = r.local; r.localKey != "" {
			theta = c.float(r.localKey, theta)
		}
		return all.sub(slidingAttention), theta
	}
	p = all.sub(fullAttention)
	if older := c.sub("rope_scaling"); len(older.fields) > 0 {
		p.fields = maps.Clone(p.fields)
		maps.Copy(p.fields, older.fields)
	}
	if len(p.fields) == 0 && r.missing != nil {
		p.fields = r.missing
	}
	return p, c.float("rope_theta", theta)
}

// rotary returns the module that makes the cosines and sines of rotary embeddings for heads of a size: the frequencies
// of transformers' modeling_rope_utils, in float32 as there.
func (c *config) rotary(class string, headDim, positions int, r rope) *layers.Module {
	p, theta := c.ropeParameters(r)
	defer c.adopt(p)
	theta = p.float("rope_theta", theta)
	kind, dim, share := c.turned(p, headDim, r)
	if !(theta > 0) {
		c.fail("rope_parameters", "want rotary embeddings of base %v", theta)
	}
	if c.err != nil || p.err != nil {
		return layers.Identity()
	}
	if r.phi && (kind == "su" || kind == "yarn") {
		kind = "longrope" // as the first files of Phi-3 call it
	}
	m := layers.New(class, map[string]any{"attention_scaling": 1.0, "context": 0, "factor": 0.0})
	table := func(name string, values []float32) {
		m.Params = append(m.Params, layers.Param{
			Name: name, DType: tensor.Float32, Shape: tensor.Shape{len(values)}, Buffer: true, Transient: true,
			Value: tensor.Of(values, len(values)),
		})
	}
	if alpha := p.float("alpha", 0); r.alpha && kind == "dynamic" && alpha > 0 && dim > 2 {
		kind, theta = "default", theta*math.Pow(alpha, float64(dim)/float64(dim-2))
	}
	powers := rotaryPowers(theta, dim)
	freq := make([]float32, len(powers))
	for i, x := range powers {
		freq[i] = 1 / x
	}
	switch kind {
	case "default", "mrope": // for texts, whose positions are the same in all dimensions
	case "linear":
		factor := p.positive(c, "factor", 0)
		for i := range freq {
			freq[i] /= float32(factor)
		}
	case "proportional":
		c.proportional(p, share, freq)
	case "llama3":
		c.llama3(p, positions, freq)
	case "yarn":
		m.Attrs["attention_scaling"] = c.yarn(p, positions, theta, powers, freq)
	case "longrope":
		context := c.context(p, positions)
		if r.phi { // Phi-3's configuration always has the entry
			context = float64(c.size(contextName, 4096))
		}
		m.Attrs["context"] = int(context)
		if m.Attrs["attention_scaling"] = c.longrope(p, positions, context); r.scaled {
			scale := p.float("short_mscale", 1)
			if m.Attrs["attention_scaling"] = scale; p.float("long_mscale", 1) != scale {
				c.unsupported("rotary embeddings of another size behind the original context")
			}
			m.Attrs["context"] = 0 // transformers takes the short factors for any length
		}
		table("long_inv_freq", p.stretched("long_factor", powers))
		freq = p.stretched("short_factor", powers)
	case "dynamic":
		m.Attrs["context"], m.Attrs["factor"] = positions, p.positive(c, "factor", 0)
		m.Attrs["theta"], m.Attrs["dim"] = theta, dim
		if dim == 2 {
			c.fail("rope_parameters", "of the type dynamic want more than 2 elements")
		}
		table("exponents", rotaryExponents(dim))
	default:
		c.unsupported("rotary embeddings of the type " + kind)
	}
	table("inv_freq", freq)
	return m
}

// turned returns of which type rotary embeddings are, how many elements of a head they turn and which share of it that
// is. The type "proportional" makes them for all elements, and turns a share.
func (c *config) turned(p *config, headDim int, r rope) (kind string, dim int, share float64) {
	if share = r.part; share == 0 {
		share = 1
	}
	share = p.float("partial_rotary_factor", c.float("partial_rotary_factor|rotary_pct", share))
	kind = p.text("rope_type|type", "default")
	if dim = int(float64(headDim) * share); kind == "proportional" {
		dim = headDim
	}
	if r.dims != nil {
		dim = r.dims(c)
		share = min(float64(dim)/float64(headDim), 1)
	}
	switch {
	case share != 1 && !r.partial() && kind != "proportional":
		c.unsupported("rotary embeddings of a part of the heads")
	case headDim > maxTable:
		c.fail("head_dim", "is %d, more than %d", headDim, maxTable)
	case !(share > 0) || share > 1 || dim < 2 || dim > headDim || dim%2 != 0:
		c.fail("rope_parameters", "want rotary embeddings of %v of %d elements", share, headDim)
	}
	return kind, dim, share
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

// rotaryExponents are 2i/dim.
func rotaryExponents(dim int) []float32 {
	exponents := make([]float32, dim/2)
	for i := range exponents {
		exponents[i] = float32(2*i) / float32(dim)
	}
	return exponents
}

// rotaryPowers are θ^(2i/dim).
func rotaryPowers(theta float64, dim int) []float32 {
	powers := rotaryExponents(dim)
	for i, exponent := range powers {
		powers[i] = float32(math.Pow(float64(float32(theta)), float64(exponent)))
	}
	return powers
}

const contextName = "original_max_position_embeddings"

// context returns original_max_position_embeddings, where an entry beside the parameters comes before one in them.
func (c *config) context(p *config, positions int) float64 {
	if n, ok := c.integer(contextName); ok && n > 0 {
		return float64(n)
	}
	return p.positive(c, contextName, float64(positions))
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

// longrope returns what cosines and sines are multiplied with.
func (c *config) longrope(p *config, positions int, context float64) float64 {
	if _, given := p.value("attention_factor"); given != nil {
		return p.float("attention_factor", 1)
	}
	factor := p.positive(c, "factor", float64(positions)/context)
	if factor <= 1 {
		return 1
	}
	if context <= 1 {
		c.fail("rope_parameters", "have the %s %v, not more than 1", contextName, context)
	}
	return math.Sqrt(1 + math.Log(factor)/math.Log(context))
}

// stretched returns the frequencies of powers that are multiplied with an entry's numbers.
func (c *config) stretched(name string, powers []float32) []float32 {
	freq := make([]float32, len(powers))
	list, _ := c.fields[name].([]any)
	if len(list) != len(powers) {
		c.fail(name, "has %d numbers, not %d", len(list), len(powers))
		return freq
	}
	for i, v := range list {
		number, _ := v.(json.Number)
		x, err := number.Float64()
		if err != nil || !(x > 0) {
			c.fail(name, "has %s, not a positive number", short(v))
		}
		freq[i] = 1 / (float32(x) * powers[i])
	}
	return freq
}

// rotaryFrequencies returns the frequencies for positions. Some types have others if a position lies beyond a context.
func rotaryFrequencies(t *layers.Trace, m *layers.Module, positions layers.Tensor) layers.Tensor {
	near, context := t.Param(m, "inv_freq"), m.Int("context")
	if context == 0 {
		return near
	}
	var length layers.Tensor
	if longest, steps := t.Steps(); !steps {
		length = t.Op("add.Tensor", t.Op("max", positions), 1)
	} else if longest <= context {
		return near
	} else {
		length = t.Op("unsqueeze", t.Lengths(), 2) // each row has its own
	}
	var far layers.Tensor
	if factor := m.Float("factor"); factor == 0 {
		far = t.Param(m, "long_inv_freq")
	} else {
		// A larger base for the length of this very pass; what came before is not remembered.
		dim := float64(m.Int("dim"))
		grown := t.Op("div.Tensor", t.Op("mul.Tensor", length, factor), context)
		grown = t.Op("pow.Tensor_Scalar", t.Op("sub.Tensor", grown, factor-1), dim/(dim-2))
		base := t.Op("mul.Tensor", grown, m.Float("theta"))
		far = t.Op("reciprocal", t.Op("pow.Tensor_Tensor", base, t.Param(m, "exponents")))
	}
	return t.Op("where.self", t.Op("gt.Scalar", length, context), far, near)
}

// rotaryForward returns the cosines and sines for positions of [rows, tokens].
func rotaryForward(t *layers.Trace, m *layers.Module, args ...any) any {
	positions := optional(t, args, 0)
	scaling := m.Float("attention_scaling")
	at := t.Op("to.dtype", t.Op("unsqueeze", positions, 2), tensor.Float32)
	freq := t.Op("mul.Tensor", at, rotaryFrequencies(t, m, positions))
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
