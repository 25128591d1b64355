package generate_test

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/runtime"
)

// TestProgress: a caller hears how much of the prompt was read, before the first token, up to all of it; what was there already
// counts.
func TestProgress(t *testing.T) {
	e := engine(t, generate.Options{Rows: 4})
	prompt := make([]int, 22)
	for i := range prompt {
		prompt[i] = (3 * i) % 32
	}
	for _, first := range []int{0, 16} {
		var read []int
		r := generate.Request{Prompt: prompt, MaxTokens: 3, Progress: func(n, of int) {
			if of != len(prompt) {
				t.Errorf("a prompt of %d tokens", of)
			}
			read = append(read, n)
		}}
		tokens := 0
		if _, err := e.Generate(t.Context(), r, func(generate.Token) error {
			if tokens++; len(read) == 0 || read[len(read)-1] != len(prompt) {
				t.Errorf("token %d comes after %v were read", tokens, read)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(read) || len(read) > 8 || read[0] < first {
			t.Errorf("read %v", read)
		}
	}
}

// TestForecastPass: passes are planned for as many tokens as the engine takes, and the largest is what it takes; no pass that
// runs takes more, but for the constants of the others.
func TestForecastPass(t *testing.T) {
	e := engine(t, generate.Options{Rows: 12, Sequences: 4, Session: runtime.Options{Memory: 200 << 10}})
	last, constants := int64(0), int64(0)
	for _, tokens := range []int{1, 4, 12} {
		p, err := e.ForecastPass(t.Context(), tokens, min(tokens, 4))
		if err != nil {
			t.Fatal(err)
		}
		if p.PeakBytes() < last || p.CacheBytes == 0 || p.Forecast.Seconds <= 0 {
			t.Errorf("%d tokens: %d bytes, %d of caches, %v s", tokens, p.PeakBytes(), p.CacheBytes, p.Forecast.Seconds)
		}
		last, constants = p.PeakBytes(), p.ConstBytes
	}
	for i := range 6 {
		if _, err := e.Generate(t.Context(), request(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if peak := e.Session().Metrics().PeakBytes; peak < last || peak > last+6*constants {
		t.Errorf("took %d bytes, planned %d", peak, last)
	}
	for _, bad := range [][2]int{{0, 0}, {13, 1}, {4, 5}, {1, 0}} {
		if _, err := e.ForecastPass(t.Context(), bad[0], bad[1]); err == nil {
			t.Errorf("a pass of %d tokens, %d wanted", bad[0], bad[1])
		}
	}
}
