package moments_test

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/perplexity"
	"github.com/optimem/optimem/quantize"
	"github.com/optimem/optimem/quantize/moments"
)

// scaled quantises the chat model with scales of channels.
func scaled(t *testing.T, scheme quantize.Scheme, opts quantize.Options, calibration quantize.Calibration) (string, *quantize.Report, error) {
	t.Helper()
	opts.Scheme, opts.Calibration, opts.Channels = scheme, calibration, true
	f, err := quantize.Open(t.Context(), chat, opts)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	to := filepath.Join(t.TempDir(), "out")
	report, err := f.Write(t.Context(), to, nil)
	return to, report, err
}

// TestChannels: with scales of channels the model foresees a text of its kind better than without, where codes have few
// bits, and no worse where they have many: scales and their inverses cancel out. What layers are off by is told, the
// files are the same whatever the memory, and norms change.
func TestChannels(t *testing.T) {
	calibration := of(t, said(t, lands[:5]...), moments.Options{})
	measure := func(folder string) float64 {
		model, sum, tokens := build(t, folder), 0.0, 0
		for _, land := range lands[5:] {
			r, err := perplexity.Of(t.Context(), model, said(t, land), perplexity.Options{})
			if err != nil {
				t.Fatal(err)
			}
			sum, tokens = sum+float64(r.Tokens)*math.Log(r.Perplexity), tokens+r.Tokens
		}
		return math.Exp(sum / float64(tokens))
	}
	before := measure(chat)
	for _, c := range []struct {
		scheme quantize.Scheme
		most   float64 // of the perplexity without scales: three sentences are few, so it jumps; see quantize.TestChannelsOfRealLayer
	}{
		{quantize.Scheme{Kind: "int4", Group: 32}, 1}, {quantize.Scheme{Kind: "int4", Group: 32, Minimum: true}, 1.03},
		{quantize.Scheme{Kind: "int8"}, 1.01},
	} {
		to, report, err := scaled(t, c.scheme, quantize.Options{}, calibration)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := quantize.Open(t.Context(), chat, quantize.Options{Scheme: c.scheme})
		if err != nil {
			t.Fatal(err)
		}
		without := filepath.Join(t.TempDir(), "plain")
		if _, err := plain.Write(t.Context(), without, nil); err != nil {
			t.Fatal(err)
		}
		if err := plain.Close(); err != nil {
			t.Fatal(err)
		}
		with, other := measure(to), measure(without)
		t.Logf("%+v: perplexity %.3f, %.3f without scales, %.3f with them; outputs are off by %.4f", c.scheme, before, other, with, report.OutputError)
		if with > c.most*other {
			t.Errorf("%+v: perplexity %v, without scales %v, before %v", c.scheme, with, other, before)
		}
		calibrated := 0
		for _, l := range report.Layers {
			if l.Calibrated {
				calibrated++
			}
			if l.Calibrated != (l.OutputError > 0) || l.OutputError > 0.2 {
				t.Errorf("%s is calibrated %v, and its outputs off by %v", l.Module, l.Calibrated, l.OutputError)
			}
		}
		if calibrated != 12 { // all but two output projections, whose inputs heads share
			t.Errorf("%d layers are calibrated", calibrated)
		}
		again, _, err := scaled(t, c.scheme, quantize.Options{MemoryBytes: 64 << 10}, calibration)
		if err != nil {
			t.Fatal(err)
		}
		if !sameWeights(t, to, again) && c.scheme.Kind == "int4" {
			t.Errorf("%+v: other files with little memory", c.scheme)
		}
		norm := "model.layers.0.input_layernorm.weight"
		if sameWeight(t, to, chat, norm) || !sameWeight(t, to, chat, "model.norm.weight") {
			t.Errorf("%+v: norms are not those of scaled channels", c.scheme)
		}
	}
}

func sameWeight(t *testing.T, a, b, name string) bool {
	t.Helper()
	x, y := build(t, a), build(t, b)
	for _, w := range x.Weights() {
		for _, v := range y.Weights() {
			if w.Name == name && v.Name == name {
				p, err := w.Contents(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				q, err := v.Contents(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return string(p.Data) == string(q.Data)
			}
		}
	}
	t.Fatalf("no weight is %s", name)
	return false
}

func sameWeights(t *testing.T, a, b string) bool {
	t.Helper()
	for _, w := range build(t, a).Weights() {
		if strings.HasPrefix(w.Name, "model.layers.") && !sameWeight(t, a, b, w.Name) {
			return false
		}
	}
	return true
}

// noSums is a calibration that knows nothing.
type noSums struct{}

func (noSums) Routed(string) (int64, bool) { return 0, false }

func (noSums) Input(string) string { return "" }
func (noSums) Sums(context.Context, []string, int64) ([][]float64, error) {
	return nil, errors.New("asked")
}

// TestChannelsRefused: channels are not scaled without a calibration, or where nothing is known of any layer's input; a
// layer that stays keeps the others that are given the same from being scaled.
func TestChannelsRefused(t *testing.T) {
	scheme := quantize.Scheme{Kind: "int4", Group: 32}
	if _, _, err := scaled(t, scheme, quantize.Options{}, nil); !errors.Is(err, quantize.ErrCalibration) {
		t.Errorf("no calibration: %v", err)
	}
	if _, _, err := scaled(t, scheme, quantize.Options{}, noSums{}); !errors.Is(err, loader.ErrUnsupported) {
		t.Errorf("nothing known: %v", err)
	}
	calibration := of(t, said(t, lands[:2]...), moments.Options{})
	to, report, err := scaled(t, scheme, quantize.Options{Keep: []string{"*.k_proj"}}, calibration)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range report.Layers {
		if l.Calibrated && strings.Contains(l.Module, "self_attn") {
			t.Errorf("%s is scaled, beside a layer that stays", l.Module)
		}
	}
	if !sameWeight(t, to, chat, "model.layers.1.input_layernorm.weight") {
		t.Error("a norm changed whose layers stay")
	}
}
