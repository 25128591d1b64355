package sound

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// recordedWave is what it makes of the first sound.
var recordedWave = []float32{0.6266282200813293, -0.4791862666606903, 0.07372096180915833, 1.3638379573822021, -1.5850008726119995}

// TestWave: samples are those that transformers' Wav2Vec2FeatureExtractor gives, normalised unless the configuration
// says otherwise, of sounds of the model's rate.
func TestWave(t *testing.T) {
	const kind = `"feature_extractor_type": "Wav2Vec2FeatureExtractor"`
	for _, c := range []struct {
		config     string
		rate       int
		give, want []float32
	}{
		{`{` + kind + `}`, 16000, []float32{0.5, -0.25, 0.125, 1, -1}, nil},
		{`{` + kind + `, "do_normalize": true, "feature_size": 1}`, 16000, []float32{0, 0, 0}, []float32{0, 0, 0}},
		{`{` + kind + `, "do_normalize": false, "sampling_rate": 8000}`, 8000, []float32{0.5, -0.25}, []float32{0.5, -0.25}},
		{`{"feature_extractor": {` + kind + `, "do_normalize": false}}`, 16000, []float32{0.5}, []float32{0.5}},
	} {
		s, err := ParseWave([]byte(c.config))
		if err != nil || s.Rate != c.rate {
			t.Fatalf("%s: %v, %v", c.config, s, err)
		}
		if c.want == nil {
			c.want = recordedWave
		}
		given := slices.Clone(c.give)
		got, err := s.Values(&Clip{Rate: c.rate, Samples: given, Total: int64(len(given))})
		if err != nil || len(got) != len(c.want) || !slices.Equal(given, c.give) {
			t.Fatalf("%s: %v, %v", c.config, got, err)
		}
		for i, x := range got {
			if !(math.Abs(float64(x-c.want[i])) <= 3e-7) {
				t.Errorf("%s: sample %d is %v, want %v", c.config, i, x, c.want[i])
			}
		}
		var rate *RateError
		if _, err := s.Values(&Clip{Rate: 44100, Samples: given}); !errors.As(err, &rate) || rate.Want != c.rate {
			t.Errorf("%s: another rate: %v", c.config, err)
		}
	}
	for config, want := range map[string]error{
		`{"feature_extractor_type": "WhisperFeatureExtractor"}`: ErrUnsupported,
		`{` + kind + `, "feature_size": 80}`:                    ErrUnsupported,
		`{` + kind + `, "sampling_rate": 1}`:                    ErrFormat,
		`{` + kind + `, "sampling_rate": 99999999}`:             ErrFormat,
		`[]`:                                ErrFormat,
		`{` + kind + `, "do_normalize": 1}`: ErrFormat,
	} {
		if _, err := ParseWave([]byte(config)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", config, err, want)
		}
	}
}
