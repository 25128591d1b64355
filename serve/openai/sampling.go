package openai

import (
	"encoding/json"
	"strconv"

	"github.com/optimem/optimem/generate"
)

// A common is what requests to write say in the same words, whatever they go on with.
type common struct {
	model  string
	n      int
	stream bool
	// usage tells that a stream ends with the usage.
	usage bool
	stop  []string
	// most is how many tokens are written at most, −1 where the request does not say.
	most int
	seed *int64
	// set are changes of the sampling that the model's folder says.
	set []func(*generate.Sampling)
}

// The bounds that OpenAI documents.
const (
	maxStops       = 4
	maxTemperature = 2
	maxPenalty     = 2
	maxBias        = 100
	maxTop         = 20
)

// common takes what chats and completions have in common.
func (h *Handler) common(p *params) common {
	c := common{model: p.text("model"), n: 1, most: -1}
	if c.model == "" {
		p.fail(invalid("model", "you must provide a model parameter"))
	}
	if n, ok := p.integer("n", 1, int64(h.opts.MaxChoices)); ok {
		c.n = int(n)
	}
	c.stream = p.boolean("stream")
	c.streamOptions(p)
	c.stops(p)
	c.sampling(p)
	if x, ok := p.integer("seed", -1<<63, 1<<63-1); ok {
		c.seed = &x
	}
	p.drop("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options")
	p.only("service_tier", "auto", "default")
	if p.boolean("store") {
		p.fail(unsupported("store", "store is not supported here: nothing is kept"))
	}
	return c
}

// streamOptions takes stream_options.
func (c *common) streamOptions(p *params) {
	raw, ok := p.take("stream_options")
	if !ok {
		return
	}
	all, err := members(raw)
	switch {
	case err != nil:
		p.fail(invalid("stream_options", "stream_options %v", err))
		return
	case !c.stream:
		p.fail(invalid("stream_options", "stream_options is only for streams"))
		return
	}
	options := &params{members: all}
	c.usage = options.boolean("include_usage")
	options.drop("include_obfuscation") // bytes that hide lengths from who reads the line: none are sent
	if options.done() != nil {
		p.fail(invalid("stream_options", "stream_options: %v", options.done()))
	}
}

// stops takes the texts that end an answer.
func (c *common) stops(p *params) {
	raw, ok := p.take("stop")
	if !ok {
		return
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		c.stop = []string{one}
	} else if json.Unmarshal(raw, &c.stop) != nil {
		p.fail(invalid("stop", "stop must be a string or a list of strings"))
	}
	if len(c.stop) > maxStops {
		p.fail(invalid("stop", "stop has %d texts: %d are possible", len(c.stop), maxStops))
	}
	for _, s := range c.stop {
		if s == "" {
			p.fail(invalid("stop", "stop has an empty text"))
		}
	}
}

// sampling takes how tokens are chosen.
func (c *common) sampling(p *params) {
	change := func(f func(*generate.Sampling)) { c.set = append(c.set, f) }
	if x, ok := p.number("temperature", 0, maxTemperature); ok {
		change(func(s *generate.Sampling) { s.Temperature = x })
	}
	if x, ok := p.number("top_p", 0, 1); ok {
		change(func(s *generate.Sampling) {
			if s.TopP = x; x == 0 { // nothing but the most likely one
				s.TopK = 1
			}
		})
	}
	if x, ok := p.number("presence_penalty", -maxPenalty, maxPenalty); ok {
		change(func(s *generate.Sampling) { s.PresencePenalty = x })
	}
	if x, ok := p.number("frequency_penalty", -maxPenalty, maxPenalty); ok {
		change(func(s *generate.Sampling) { s.FrequencyPenalty = x })
	}
	// These are not OpenAI's, but what servers of open models take.
	if x, ok := p.integer("top_k", -1, maxInteger); ok {
		change(func(s *generate.Sampling) { s.TopK = max(int(x), 0) })
	}
	if x, ok := p.number("min_p", 0, 1); ok {
		change(func(s *generate.Sampling) { s.MinP = x })
	}
	if x, ok := p.number("repetition_penalty", 0.01, 100); ok {
		change(func(s *generate.Sampling) { s.RepetitionPenalty = x })
	}
	if bias := takeBias(p); len(bias) > 0 {
		change(func(s *generate.Sampling) { s.Bias = bias })
	}
}

// takeBias takes what is added to the logits of tokens.
func takeBias(p *params) map[int]float64 {
	var given map[string]float64
	if !p.decode("logit_bias", "an object of numbers", &given) {
		return nil
	}
	bias := make(map[int]float64, len(given))
	for token, x := range given {
		id, err := strconv.ParseUint(token, 10, 31)
		if err != nil || x < -maxBias || x > maxBias {
			p.fail(invalid("logit_bias", "logit_bias has %v for %q: numbers of tokens have −100 to 100", x, token))
			return nil
		}
		bias[int(id)] = x
	}
	return bias
}

// request returns what a model is asked to write, without a prompt.
func (c *common) request(lease *WriterLease) generate.TextRequest {
	d := *lease.Defaults
	r := generate.TextRequest{Stop: c.stop, Schema: lease.Schema, Grammar: lease.Grammar}
	if c.stop == nil {
		r.Stop = lease.Stop
	}
	r.Request.Sampling = d.Sampling
	for _, change := range c.set {
		change(&r.Request.Sampling)
	}
	r.Request.End = d.End
	if r.Request.MaxTokens = d.MaxTokens; c.most >= 0 {
		r.Request.MaxTokens = c.most
	}
	return r
}

// seeds returns the seeds of all answers. The first is the one that was asked for, so that one answer of many is the one that
// comes alone.
func (h *Handler) seeds(c *common, n int) []uint64 {
	first := uint64(0)
	if c.seed != nil {
		first = uint64(*c.seed)
	} else {
		first = h.opts.Seed()
	}
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = first
		if i > 0 {
			seeds[i] = mix(first + uint64(i)*0x9e3779b97f4a7c15)
		}
	}
	return seeds
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
