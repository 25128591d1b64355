package sound

import "math"

// A WaveSpec says how the samples of a sound are prepared for a model that reads them as they are. [ParseWave] makes
// one.
type WaveSpec struct {
	// Rate is how many samples a second has.
	Rate      int
	normalize bool
}

// ParseWave reads a configuration of transformers' Wav2Vec2FeatureExtractor: preprocessor_config.json, or
// processor_config.json that has one in it. Another extractor is [ErrUnsupported].
func ParseWave(config []byte) (*WaveSpec, error) {
	type entries struct {
		Type      string `json:"feature_extractor_type"`
		Size      *int   `json:"feature_size"`
		Rate      *int   `json:"sampling_rate"`
		Normalize *bool  `json:"do_normalize"`
	}
	e, err := extractor[entries](config)
	if err != nil {
		return nil, err
	}
	s := &WaveSpec{Rate: 16000, normalize: e.Normalize == nil || *e.Normalize}
	if e.Rate != nil {
		s.Rate = *e.Rate
	}
	switch {
	case e.Type != "Wav2Vec2FeatureExtractor":
		return nil, wrong(ErrUnsupported, "features of %.40q, and the samples that Wav2Vec2FeatureExtractor gives are made", e.Type)
	case e.Size != nil && *e.Size != 1:
		return nil, wrong(ErrUnsupported, "%d numbers of a sample", *e.Size)
	case s.Rate < 2 || s.Rate > maxSamples:
		return nil, wrong(ErrFormat, "%d samples a second", s.Rate)
	}
	return s, nil
}

// Values returns the samples, where the preparation says so with the mean 0 and the variance 1: in double precision.
func (s *WaveSpec) Values(c *Clip) ([]float32, error) {
	if c.Rate != s.Rate {
		return nil, &RateError{c.Rate, s.Rate}
	}
	out := make([]float32, len(c.Samples))
	if !s.normalize {
		copy(out, c.Samples)
		return out, nil
	}
	mean, variance := 0.0, 0.0
	for _, x := range c.Samples {
		mean += float64(x)
	}
	mean /= float64(len(c.Samples))
	for _, x := range c.Samples {
		variance += (float64(x) - mean) * (float64(x) - mean)
	}
	deviation := math.Sqrt(variance/float64(len(c.Samples)) + leastVariance)
	for i, x := range c.Samples {
		out[i] = float32((float64(x) - mean) / deviation)
	}
	return out, nil
}
