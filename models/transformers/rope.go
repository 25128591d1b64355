package transformers

import (
	"encoding/json"
	"maps"
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/transformers/family"
	"github.com/optimem/optimem/tensor"
)

// A rope is how a model turns heads by their positions. The zero value is Llama's.
type rope struct {
	// theta is the default of the base, 0 for 10,000; part that of the share of each head that is turned, 0 for models that turn
	// heads whole.
	theta, part float64
	// dims returns how many elements are turned, where the configuration has a number of them.
	dims func(c *family.Config) int
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
func ropeParameters(c *family.Config, r rope) (p *family.Config, theta float64) {
	theta = r.theta
	if theta == 0 {
		theta = 10000
	}
	if r.local == 0 {
		p = c.Sub("rope_scaling") // the older name, which goes before the newer
		if len(p.Fields) == 0 {
			p = c.Sub("rope_parameters")
		}
		if len(p.Fields) == 0 && r.missing != nil {
			p.Fields = r.missing
		}
		return p, c.Float("rope_theta|rotary_emb_base", theta)
	}
	all := c.Sub("rope_parameters")
	defer c.Adopt(all)
	if r.slides {
		if theta = r.local; r.localKey != "" {
			theta = c.Float(r.localKey, theta)
		}
		return all.Sub(slidingAttention), theta
	}
	p = all.Sub(fullAttention)
	if older := c.Sub("rope_scaling"); len(older.Fields) > 0 {
		p.Fields = maps.Clone(p.Fields)
		maps.Copy(p.Fields, older.Fields)
	}
	if len(p.Fields) == 0 && r.missing != nil {
		p.Fields = r.missing
	}
	return p, c.Float("rope_theta", theta)
}

// rotary returns the module that makes the cosines and sines of rotary embeddings for heads of a size: the frequencies
// of transformers' modeling_rope_utils, in float32 as there.
func rotary(c *family.Config, class string, headDim, positions int, r rope) *layers.Module {
	p, theta := ropeParameters(c, r)
	defer c.Adopt(p)
	theta = p.Float("rope_theta", theta)
	kind, dim, share := turned(c, p, headDim, r)
	if !(theta > 0) {
		c.Fail("rope_parameters", "want rotary embeddings of base %v", theta)
	}
	if c.Err != nil || p.Err != nil {
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
	if alpha := p.Float("alpha", 0); r.alpha && kind == "dynamic" && alpha > 0 && dim > 2 {
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
		factor := positive(p, c, "factor", 0)
		for i := range freq {
			freq[i] /= float32(factor)
		}
	case "proportional":
		proportional(c, p, share, freq)
	case "llama3":
		llama3(c, p, positions, freq)
	case "yarn":
		m.Attrs["attention_scaling"] = yarn(c, p, positions, theta, powers, freq)
	case "longrope":
		context := context(c, p, positions)
		if r.phi { // Phi-3's configuration always has the entry
			context = float64(c.Size(contextName, 4096))
		}
		m.Attrs["context"] = int(context)
		if m.Attrs["attention_scaling"] = longrope(c, p, positions, context); r.scaled {
			scale := p.Float("short_mscale", 1)
			if m.Attrs["attention_scaling"] = scale; p.Float("long_mscale", 1) != scale {
				c.Unsupported("rotary embeddings of another size behind the original context")
			}
			m.Attrs["context"] = 0 // transformers takes the short factors for any length
		}
		table("long_inv_freq", stretched(p, "long_factor", powers))
		freq = stretched(p, "short_factor", powers)
	case "dynamic":
		m.Attrs["context"], m.Attrs["factor"] = positions, positive(p, c, "factor", 0)
		m.Attrs["theta"], m.Attrs["dim"] = theta, dim
		if dim == 2 {
			c.Fail("rope_parameters", "of the type dynamic want more than 2 elements")
		}
		table("exponents", rotaryExponents(dim))
	default:
		c.Unsupported("rotary embeddings of the type " + kind)
	}
	table("inv_freq", freq)
	return m
}

// turned returns of which type rotary embeddings are, how many elements of a head they turn and which share of it that
// is. The type "proportional" makes them for all elements, and turns a share.
func turned(c *family.Config, p *family.Config, headDim int, r rope) (kind string, dim int, share float64) {
	if share = r.part; share == 0 {
		share = 1
	}
	share = p.Float("partial_rotary_factor", c.Float("partial_rotary_factor|rotary_pct", share))
	kind = p.Text("rope_type|type", "default")
	if dim = int(float64(headDim) * share); kind == "proportional" {
		dim = headDim
	}
	if r.dims != nil {
		dim = r.dims(c)
		share = min(float64(dim)/float64(headDim), 1)
	}
	switch {
	case share != 1 && !r.partial() && kind != "proportional":
		c.Unsupported("rotary embeddings of a part of the heads")
	case headDim > family.MaxTable:
		c.Fail("head_dim", "is %d, more than %d", headDim, family.MaxTable)
	case !(share > 0) || share > 1 || dim < 2 || dim > headDim || dim%2 != 0:
		c.Fail("rope_parameters", "want rotary embeddings of %v of %d elements", share, headDim)
	}
	return kind, dim, share
}

// positive returns a positive number of the rotary embeddings' parameters.
func positive(c *family.Config, parent *family.Config, name string, missing float64) float64 {
	x := c.Float(name, missing)
	if !(x > 0) {
		parent.Fail("rope_parameters", "have the %s %v, not a positive one", name, x)
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
func context(c *family.Config, p *family.Config, positions int) float64 {
	if n, ok := c.Integer(contextName); ok && n > 0 {
		return float64(n)
	}
	return positive(p, c, contextName, float64(positions))
}

// llama3 slows the low frequencies down.
func llama3(c *family.Config, p *family.Config, positions int, freq []float32) {
	factor, context := positive(p, c, "factor", 0), context(c, p, positions)
	low, high := positive(p, c, "low_freq_factor", 0), positive(p, c, "high_freq_factor", 0)
	if !(high > low) {
		c.Fail("rope_parameters", "have the low_freq_factor %v and the high_freq_factor %v", low, high)
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
func yarn(c *family.Config, p *family.Config, positions int, theta float64, powers, freq []float32) float64 {
	context := context(c, p, positions)
	factor := positive(p, c, "factor", float64(positions)/context)
	fast, slow := positive(p, c, "beta_fast", 32), positive(p, c, "beta_slow", 1)
	dim := float64(2 * len(freq))
	at := func(rotations float64) float64 {
		return dim * math.Log(context/(rotations*2*math.Pi)) / (2 * math.Log(theta))
	}
	low, high := at(fast), at(slow)
	if p.Flag("truncate", true) {
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
	if given := p.Float("attention_factor", 0); given != 0 {
		return given
	}
	if m, all := p.Float("mscale", 0), p.Float("mscale_all_dim", 0); m != 0 && all != 0 {
		return scale(m) / scale(all)
	}
	return scale(1)
}

// longrope returns what cosines and sines are multiplied with.
func longrope(c *family.Config, p *family.Config, positions int, context float64) float64 {
	if _, given := p.Value("attention_factor"); given != nil {
		return p.Float("attention_factor", 1)
	}
	factor := positive(p, c, "factor", float64(positions)/context)
	if factor <= 1 {
		return 1
	}
	if context <= 1 {
		c.Fail("rope_parameters", "have the %s %v, not more than 1", contextName, context)
	}
	return math.Sqrt(1 + math.Log(factor)/math.Log(context))
}

// stretched returns the frequencies of powers that are multiplied with an entry's numbers.
func stretched(c *family.Config, name string, powers []float32) []float32 {
	freq := make([]float32, len(powers))
	list, _ := c.Fields[name].([]any)
	if len(list) != len(powers) {
		c.Fail(name, "has %d numbers, not %d", len(list), len(powers))
		return freq
	}
	for i, v := range list {
		number, _ := v.(json.Number)
		x, err := number.Float64()
		if err != nil || !(x > 0) {
			c.Fail(name, "has %s, not a positive number", family.Short(v))
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
	positions := family.Optional(t, args, 0)
	scaling := m.Float("attention_scaling")
	at := t.Op("to.dtype", t.Op("unsqueeze", positions, 2), tensor.Float32)
	freq := t.Op("mul.Tensor", at, rotaryFrequencies(t, m, positions))
	both := t.Op("cat", []layers.Tensor{freq, freq}, -1)
	cos := t.Op("mul.Tensor", t.Op("cos", both), scaling)
	return []layers.Tensor{cos, t.Op("mul.Tensor", t.Op("sin", both), scaling)}
}
