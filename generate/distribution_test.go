package generate_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/optimem/optimem/generate"
)

// TestDistribution: over thousands of draws, texts that are written with guesses come as often as the model itself says that they
// do, and exactly as often as without guesses: with those of the text, of another model, of heads, and with branches. The seeds
// are fixed, so that nothing here is left to luck. The test is exact: the chance of a count as unlikely as each is summed up from
// the binomial distribution.
func TestDistribution(t *testing.T) {
	draws := 3000
	if testing.Short() {
		draws = 300
	}
	const written, kinds = 3, 8
	model := tinyModel(t)
	ask := func(seed int) generate.Request {
		r := generate.Request{Seed: uint64(seed), MaxTokens: written, Logprobs: kinds}
		for range 3 {
			r.Prompt = append(r.Prompt, 5, 6, 7, 5, 6, 9)
		}
		r.Sampling = generate.Sampling{Temperature: 0.9, TopK: kinds}
		return r
	}
	counts := make(map[string]map[string]int)
	chance := make(map[string]float64)
	for name, o := range map[string]generate.Options{
		"plain": {Speculate: generate.NoSpeculation}, "n-grams": {Speculate: 3},
		"a model":  {Speculate: 3, Draft: otherModel(t, 501)},
		"EAGLE":    {Speculate: 3, Draft: headOn(t, model, 16, 32)},
		"EAGLE-3":  {Speculate: 3, Draft: headOn(t, model, 16, 32, 0, 1, 1)},
		"branches": {Speculate: 3, Branches: 3},
	} {
		e, err := generate.New(t.Context(), model, o)
		if err != nil {
			t.Fatal(err)
		}
		counts[name] = make(map[string]int)
		for seed := range draws {
			got, err := e.Generate(t.Context(), ask(seed), nil)
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprint(got.Tokens)
			counts[name][text]++
			if _, known := chance[text]; known {
				continue
			}
			chance[text] = 1 // of each token among those that were the most likely ones
			for _, x := range got.Likely {
				all, own := 0.0, 0.0
				for _, c := range x.Top {
					p := math.Exp(c.Logprob / 0.9)
					if all += p; c.ID == x.ID {
						own = p
					}
				}
				chance[text] *= own / all
			}
		}
		if s := e.Stats(); name != "plain" && (s.Accepted == 0 || s.Accepted >= s.Guessed) {
			t.Errorf("%s: %d of %d guesses were right", name, s.Accepted, s.Guessed)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	sum := 0.0
	for _, p := range chance {
		sum += p
	}
	if sum > 1+1e-6 || sum < 0.8 && !testing.Short() {
		t.Errorf("the texts that were written have a chance of %v", sum)
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if !maps.Equal(counts[name], counts["plain"]) {
			t.Errorf("%s: %v, without guesses %v", name, counts[name], counts["plain"])
		}
		for _, text := range slices.Sorted(maps.Keys(chance)) {
			// As many texts are looked at: with a level of 1 % for all, each has its part of it.
			if k := counts[name][text]; binomialTail(draws, k, chance[text]) < 0.01/float64(len(chance)) {
				t.Errorf("%s: %s came %d times of %d, and its chance is %.4f", name, text, k, draws, chance[text])
			}
		}
	}
}

// binomialTail is how likely a count is that is no likelier than k of n, where each has the chance p.
func binomialTail(n, k int, p float64) float64 {
	at := func(k int) float64 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		return math.Exp(a - b - c + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
	}
	most, sum := at(k)*(1+1e-9), 0.0
	for i := range n + 1 {
		if x := at(i); x <= most {
			sum += x
		}
	}
	return sum
}
