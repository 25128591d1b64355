package transformers

import (
	"math"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// TestModernBertBases: each type of layers has a base of its own for its frequencies, under the older names or the newer.
func TestModernBertBases(t *testing.T) {
	for _, c := range []struct {
		config        string
		full, sliding float64
	}{
		{`{}`, 160000, 10000},
		{`{"global_rope_theta": 500.0, "local_rope_theta": 90.0}`, 500, 90},
		{`{"rope_parameters": {"full_attention": {"rope_theta": 700.0}, "sliding_attention": null}}`, 700, 10000},
		{`{"local_rope_theta": 80, "rope_parameters": {"full_attention": {"rope_type": "default"}}}`, 160000, 80},
	} {
		config, err := parseConfig([]byte(c.config), nil)
		if err != nil {
			t.Fatal(err)
		}
		for kind, base := range map[string]float64{fullAttention: c.full, slidingAttention: c.sliding} {
			const size = 8
			m := rotaryOf(config, kind, size, 64)
			if config.Err != nil {
				t.Fatalf("%s: %v", c.config, config.Err)
			}
			freq, err := tensor.Slice[float32](m.Params[0].Value)
			if err != nil || len(freq) != size/2 {
				t.Fatalf("%s: %v, %v", c.config, freq, err)
			}
			for i, got := range freq {
				if want := math.Pow(base, -2*float64(i)/size); math.Abs(float64(got)-want) > 1e-6*want {
					t.Errorf("%s: %s: frequency %d is %v, want %v", c.config, kind, i, got, want)
				}
			}
		}
	}
}
