package main

import (
	"encoding/json"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
)

// words is how many tokens texts are of.
const words = 1000

// followers is how many tokens often follow one, and often how often one of these does.
const (
	followers = 8
	often     = 0.6
)

// walk returns as many tokens as a text has whose words are as frequent as words are (Zipf), and of which each is often
// followed by one of a few (Markov). All programs that are compared take the same, so that routers of the same
// weights send them to the same experts.
func walk(n int) []int64 {
	rng := rand.New(rand.NewPCG(1, 2))
	var total float64
	sums := make([]float64, words)
	for i := range sums {
		total += 1 / float64(i+2)
		sums[i] = total
	}
	word := func(x float64) int64 {
		for i, s := range sums {
			if x*total < s {
				return int64(i)
			}
		}
		return words - 1
	}
	tokens := make([]int64, n)
	for i := range tokens {
		if i > 0 && rng.Float64() < often {
			// Which tokens follow one is a matter of its number alone.
			x := math.Sin(float64(tokens[i-1]*followers+rng.Int64N(followers)+1)) * 1e4
			tokens[i] = word(x - math.Floor(x))
			continue
		}
		tokens[i] = word(rng.Float64())
	}
	return tokens
}

// writeTokens writes a text for other programs: an array of JSON.
func writeTokens(args []string) error {
	flags := flag.NewFlagSet("tokens", flag.ContinueOnError)
	count := flags.Int("count", 512, "tokens")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 0 || *count < 1 {
		return errors.New("tokens: some tokens, and nothing else")
	}
	return json.NewEncoder(os.Stdout).Encode(walk(*count))
}
