package sound

import (
	"encoding/json"
	"fmt"
	"math"
)

// A Spec says how a sound is prepared. [Parse] makes one.
type Spec struct {
	// Rate is how many samples a second has, Samples how many there are of what a model reads at once.
	Rate, Samples int
	// Bins is how many numbers there are of a moment: mel filters.
	Bins int
	// window is how many samples a moment is computed of, hop how many there are from one to the next.
	window, hop int
	normalize   bool
}

// The largest that a configuration may ask for.
const (
	maxSamples = 1 << 22
	maxWindow  = 1 << 12
	maxBins    = 1 << 10
	maxNumbers = 1 << 24
)

// Parse reads a configuration of transformers' WhisperFeatureExtractor: preprocessor_config.json, or
// processor_config.json that has one in it. Another extractor is [ErrUnsupported].
func Parse(config []byte) (*Spec, error) {
	type entries struct {
		Type      string  `json:"feature_extractor_type"`
		Bins      *int    `json:"feature_size"`
		Rate      *int    `json:"sampling_rate"`
		Hop       *int    `json:"hop_length"`
		Seconds   *int    `json:"chunk_length"`
		Window    *int    `json:"n_fft"`
		Dither    float64 `json:"dither"`
		Padding   float64 `json:"padding_value"`
		Normalize bool    `json:"do_normalize"`
	}
	e, err := extractor[entries](config)
	if err != nil {
		return nil, err
	}
	number := func(x *int, otherwise int) int {
		if x == nil {
			return otherwise
		}
		return *x
	}
	s := &Spec{
		Rate: number(e.Rate, 16000), Bins: number(e.Bins, 80), window: number(e.Window, 400), hop: number(e.Hop, 160),
		normalize: e.Normalize,
	}
	seconds := number(e.Seconds, 30)
	switch {
	case e.Type != "WhisperFeatureExtractor":
		return nil, wrong(ErrUnsupported, "features of %.40q, and those of WhisperFeatureExtractor are computed", e.Type)
	case e.Dither != 0 || e.Padding != 0:
		return nil, wrong(ErrUnsupported, "dither %v and padding_value %v", e.Dither, e.Padding)
	case s.Rate < 2 || s.Rate > maxSamples || seconds < 1 || seconds > maxSamples/s.Rate || s.window < 2 ||
		s.window > maxWindow || s.window%2 != 0 ||
		s.hop < 1 || s.Bins < 1 || s.Bins > maxBins:
		return nil, wrong(ErrFormat, "features of %d bins, %d seconds of %d samples, windows of %d every %d", s.Bins,
			seconds, s.Rate, s.window, s.hop)
	}
	if s.Samples = seconds * s.Rate; s.Samples <= s.window/2 || s.hop > s.Samples || s.Frames() > maxNumbers/s.Bins {
		return nil, wrong(ErrFormat, "features of %d × %d numbers", s.Bins, s.Frames())
	}
	return s, nil
}

// extractor reads the entries of preprocessor_config.json, or those that processor_config.json has in it.
func extractor[T any](config []byte) (T, error) {
	var entries T
	var outer struct {
		Inner *T `json:"feature_extractor"`
	}
	for _, into := range []any{&entries, &outer} {
		if err := json.Unmarshal(config, into); err != nil {
			return entries, wrong(ErrFormat, "no configuration in JSON: %v", err)
		}
	}
	if outer.Inner != nil {
		return *outer.Inner, nil
	}
	return entries, nil
}

// Frames is how many moments there are.
func (s *Spec) Frames() int { return s.Samples / s.hop }

// A RateError says that a sound has another rate than a preparation takes.
type RateError struct{ Rate, Want int }

// Error says it.
func (e *RateError) Error() string {
	return fmt.Sprintf("a sound of %d samples a second, and the model takes %d", e.Rate, e.Want)
}

// leastVariance is added to that of a sound, which may be silent.
const leastVariance = 1e-7

// The least that is heard, and how much less than the loudest.
const (
	melFloor = 1e-10
	melRange = 8
)

// Features returns the logarithms of how loud a sound is in each filter at each moment: [Bins, Frames]. A sound that is
// shorter than what a model reads goes on silently, and one that is longer is cut. It computes in double precision, as
// transformers does without PyTorch.
func (s *Spec) Features(c *Clip) ([]float32, error) {
	if c.Rate != s.Rate {
		return nil, &RateError{c.Rate, s.Rate}
	}
	wave := s.padded(c.Samples)
	filters := s.filters()
	frames, bins := s.Frames(), s.window/2+1
	t := newTransform(s.window)
	power, all := make([]float64, bins), make([]float64, s.Bins*frames)
	top := math.Inf(-1)
	for at := range frames {
		t.power(wave[at*s.hop:][:s.window], power)
		for b, f := range filters {
			sum := 0.0
			for k, w := range f.weights {
				sum += w * power[f.first+k]
			}
			x := math.Log10(max(sum, melFloor))
			all[b*frames+at] = x
			top = max(top, x)
		}
	}
	out := make([]float32, len(all))
	for i, x := range all {
		out[i] = (max(float32(x), float32(top)-melRange) + 4) / 4
	}
	return out, nil
}

// padded returns as many samples as a model reads, with half a window more on each side that mirrors them.
func (s *Spec) padded(samples []float32) []float64 {
	half := s.window / 2
	wave := make([]float64, s.Samples+2*half)
	inner := wave[half:][:s.Samples]
	n := min(len(samples), len(inner))
	for i, x := range samples[:n] {
		inner[i] = float64(x)
	}
	if s.normalize && n > 0 {
		mean, variance := 0.0, 0.0
		for _, x := range inner[:n] {
			mean += x
		}
		mean /= float64(n)
		for _, x := range inner[:n] {
			variance += (x - mean) * (x - mean)
		}
		deviation := math.Sqrt(variance/float64(n) + leastVariance)
		for i, x := range inner[:n] {
			inner[i] = (x - mean) / deviation
		}
	}
	for i := range half {
		wave[half-1-i] = inner[i+1]
		wave[half+s.Samples+i] = inner[s.Samples-2-i]
	}
	return wave
}

// A filter is what the frequencies from first on weigh in a bin.
type filter struct {
	first   int
	weights []float64
}

// filters are mel_filter_bank's up to 8 kHz, on Slaney's scale and with his norm.
func (s *Spec) filters() []filter {
	const highest = 8000
	edges := make([]float64, s.Bins+2)
	for i := range edges {
		edges[i] = hertz(mel(highest) * float64(i) / float64(s.Bins+1))
	}
	list := make([]filter, s.Bins)
	bins := s.window/2 + 1
	for b := range list {
		low, middle, high := edges[b], edges[b+1], edges[b+2]
		for k := range bins {
			f := float64(k) * float64(s.Rate/2) / float64(bins-1)
			w := min((f-low)/(middle-low), (high-f)/(high-middle))
			if w <= 0 {
				continue
			}
			if len(list[b].weights) == 0 {
				list[b].first = k
			}
			list[b].weights = append(list[b].weights, w*2/(high-low))
		}
	}
	return list
}

// Slaney's scale is even up to 1 kHz, and logarithmic beyond.
const (
	logBeginsHertz = 1000
	logBeginsMel   = 15
)

var logStep = 27 / math.Log(6.4)

func mel(hertz float64) float64 {
	if hertz < logBeginsHertz {
		return 3 * hertz / 200
	}
	return logBeginsMel + math.Log(hertz/logBeginsHertz)*logStep
}

func hertz(mel float64) float64 {
	if mel < logBeginsMel {
		return 200 * mel / 3
	}
	return logBeginsHertz * math.Exp((mel-logBeginsMel)/logStep)
}

// A transform computes the power of each frequency of a window.
type transform struct {
	hann, cos, sin []float64
	// even and odd are the halves of a window folded upon each other, which meet in cosines and sines.
	even, odd []float64
}

func newTransform(n int) *transform {
	t := &transform{
		hann: make([]float64, n), cos: make([]float64, n), sin: make([]float64, n), even: make([]float64, n/2+1),
		odd: make([]float64, n/2+1),
	}
	for i := range n {
		t.sin[i], t.cos[i] = math.Sincos(2 * math.Pi * float64(i) / float64(n))
		t.hann[i] = 0.5 - 0.5*t.cos[i]
	}
	return t
}

// power is the discrete Fourier transform of a window, n terms for each frequency: as n is small and no power of two.
func (t *transform) power(wave, power []float64) {
	n, silent := len(wave), true
	for i, x := range wave {
		silent = silent && x == 0
		if x *= t.hann[i]; i <= n/2 {
			t.even[i], t.odd[i] = x, x
			continue
		}
		t.even[n-i] += x
		t.odd[n-i] -= x
	}
	if silent {
		clear(power)
		return
	}
	t.odd[0], t.odd[n/2] = 0, 0
	for k := range power {
		re, im := 0.0, 0.0
		for j, at := 0, 0; j <= n/2; j++ {
			re += t.even[j] * t.cos[at]
			im += t.odd[j] * t.sin[at]
			if at += k; at >= n {
				at -= n
			}
		}
		power[k] = re*re + im*im
	}
}
