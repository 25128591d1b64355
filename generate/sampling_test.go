package generate

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
)

// recordedSampling is what testdata/record_sampling.py wrote.
type recordedSampling struct {
	Cases []struct {
		Options struct {
			Temperature, TopP, MinP, Typical float64
			RepetitionPenalty                float64 `json:"repetition_penalty"`
			TopK                             int     `json:"top_k"`
			TopPShare                        float64 `json:"top_p"`
			MinPShare                        float64 `json:"min_p"`
			NoRepeatNgram                    int     `json:"no_repeat_ngram_size"`
			BadWords                         [][]int `json:"bad_words"`
			MinTokens                        int     `json:"min_tokens"`
			End, Suppress                    []int
		}
		Prompt, Written []int
		Logits          []float32
		Probs           []float64
	}
}

func samplingCases(t testing.TB) recordedSampling {
	t.Helper()
	f, err := os.Open("testdata/sampling.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var r recordedSampling
	if err := json.NewDecoder(z).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSampling: the tokens that are left to draw from, and their probabilities, are those that transformers has.
func TestSampling(t *testing.T) {
	for i, c := range samplingCases(t).Cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			o := c.Options
			r := Request{Prompt: c.Prompt, End: o.End, Sampling: Sampling{
				Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopPShare, MinP: o.MinPShare, Typical: o.Typical,
				RepetitionPenalty: o.RepetitionPenalty, NoRepeatNgram: o.NoRepeatNgram, BadWords: o.BadWords,
				MinTokens: o.MinTokens, Suppress: o.Suppress,
			}}
			if r.Sampling.Temperature == 0 {
				r.Sampling.Temperature = 1
			}
			s := newSampler(r, len(c.Logits))
			for _, id := range c.Written {
				s.seen[id] = true
				s.written[id]++
			}
			tokens := slices.Concat(c.Prompt, c.Written)
			copy(s.scores, c.Logits)
			if err := s.process(tokens); err != nil {
				t.Fatal(err)
			}
			if _, ok := s.draw(len(tokens)); !ok {
				t.Fatal("no token is left")
			}
			got := make([]float64, len(c.Logits))
			for k, p := range s.softmax() {
				got[s.order[k]] = float64(p)
			}
			for id, want := range c.Probs {
				if math.Abs(got[id]-want) > 1e-6 || (got[id] == 0) != (want == 0) && want > 1e-8 {
					t.Errorf("%+v: token %d has the probability %v, want %v", o, id, got[id], want)
				}
			}
		})
	}
}

// TestDraws: tokens are drawn as often as their probabilities say, and a place of a seed's stream has one number.
func TestDraws(t *testing.T) {
	logits := []float32{1, 0, 2, float32(math.Inf(-1)), 0.5}
	var sum float64
	for _, x := range logits {
		sum += math.Exp(float64(x))
	}
	counts := make([]int, len(logits))
	const draws = 40000
	for seed := range uint64(draws) {
		s := newSampler(Request{Prompt: []int{0}, Seed: seed, Sampling: Sampling{Temperature: 1}}, len(logits))
		first, err := s.next([]int{0}, logits)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := newSampler(s.r, len(logits)).next([]int{0}, logits)
		if again.ID != first.ID {
			t.Fatalf("seed %d gives %d and then %d", seed, first.ID, again.ID)
		}
		counts[first.ID]++
	}
	for id, x := range logits {
		p := math.Exp(float64(x)) / sum
		if deviation := math.Abs(float64(counts[id]) - draws*p); deviation > 5*math.Sqrt(draws*p*(1-p))+1e-9 {
			t.Errorf("token %d was drawn %d times, and %v are expected", id, counts[id], draws*p)
		}
	}
}

// TestGreedyTies: of equally likely tokens the first is taken.
func TestGreedyTies(t *testing.T) {
	s := newSampler(Request{Prompt: []int{0}}, 4)
	got, err := s.next([]int{0}, []float32{1, 3, 3, 2})
	if err != nil || got.ID != 1 {
		t.Errorf("took %d: %v", got.ID, err)
	}
}

// TestNoToken: where everything is ruled out, or the model gives no numbers, there is an error and no token.
func TestNoToken(t *testing.T) {
	s := newSampler(Request{Prompt: []int{0}, Sampling: Sampling{Suppress: []int{0, 1}}}, 2)
	if _, err := s.next([]int{0}, []float32{1, 2}); err != errNoToken {
		t.Errorf("all suppressed: %v", err)
	}
	nan := float32(math.NaN())
	if _, err := newSampler(Request{Prompt: []int{0}}, 2).next([]int{0}, []float32{1, nan}); err != errNoNumbers {
		t.Errorf("NaN: %v", err)
	}
}

// TestPenalties: presence and frequency penalties count what was written, and not the prompt.
func TestPenalties(t *testing.T) {
	r := Request{Prompt: []int{0}, Sampling: Sampling{PresencePenalty: 1, FrequencyPenalty: 0.5}}
	s := newSampler(r, 3)
	s.written[1], s.written[2] = 1, 3
	copy(s.scores, []float32{4, 4, 4})
	if err := s.process([]int{0, 1, 2, 2, 2}); err != nil {
		t.Fatal(err)
	}
	if want := []float32{4, 2.5, 1.5}; !slices.Equal(s.scores, want) {
		t.Errorf("scores %v, want %v", s.scores, want)
	}
}

// TestLogprobs: candidates come in order, with the model's own probabilities, whatever was done to the scores.
func TestLogprobs(t *testing.T) {
	r := Request{Prompt: []int{0}, Logprobs: 2, Sampling: Sampling{Suppress: []int{2}}}
	got, err := newSampler(r, 4).next([]int{0}, []float32{0, 1, 3, 1})
	if err != nil {
		t.Fatal(err)
	}
	norm := math.Log(1 + 2*math.E + math.Exp(3))
	if got.ID != 1 || math.Abs(got.Logprob-(1-norm)) > 1e-9 || len(got.Top) != 2 || got.Top[0].ID != 2 ||
		math.Abs(got.Top[0].Logprob-(3-norm)) > 1e-9 || got.Top[1].ID != 1 {
		t.Errorf("got %+v", got)
	}
}

// masked allows a list of tokens at each place.
type masked struct{ places [][]int }

func (m *masked) Mask(allowed []uint64) error {
	clear(allowed)
	for _, id := range m.places[0] {
		allowed[id/64] |= 1 << (id % 64)
	}
	return nil
}

func (m *masked) Accept(int) error { m.places = m.places[1:]; return nil }

// TestConstraint: a token that may not follow is not taken, however likely it is.
func TestConstraint(t *testing.T) {
	logits := make([]float32, 130)
	logits[129], logits[64], logits[3] = 3, 2, 1
	s := newSampler(Request{Prompt: []int{0}, Constraint: &masked{[][]int{{3, 64}, {3}}}}, len(logits))
	for _, want := range []int{64, 3} {
		got, err := s.next([]int{0}, logits)
		if err != nil || got.ID != want {
			t.Errorf("took %d, want %d: %v", got.ID, want, err)
		}
	}
}

// TestPlacesDraw: each place of a text has a random number of its own.
func TestPlacesDraw(t *testing.T) {
	s := newSampler(Request{Prompt: []int{0}, Seed: 3, Sampling: Sampling{Temperature: 1}}, 50)
	tokens, seen := []int{0}, make(map[int]bool)
	for range 20 {
		got, err := s.next(tokens, make([]float32, 50))
		if err != nil {
			t.Fatal(err)
		}
		tokens, seen[got.ID] = append(tokens, got.ID), true
	}
	if len(seen) < 10 {
		t.Errorf("20 places have %d different tokens of 50", len(seen))
	}
}

// TestTopKTies: tokens that are as likely as the last of the K are left, too, as transformers leaves them.
func TestTopKTies(t *testing.T) {
	s := newSampler(Request{Prompt: []int{0}, Sampling: Sampling{Temperature: 1, TopK: 2}}, 5)
	copy(s.scores, []float32{1, 3, 2, 2, 2})
	if _, ok := s.draw(1); !ok || !slices.Equal(s.order, []int32{1, 2, 3, 4}) {
		t.Errorf("left are %v", s.order)
	}
}

// TestBias: it is added to the logits, and what is far below all others is not written.
func TestBias(t *testing.T) {
	s := newSampler(Request{Sampling: Sampling{Bias: map[int]float64{0: -100, 2: 0.5}, RepetitionPenalty: 2}, Prompt: []int{2}}, 3)
	token, err := s.next([]int{2}, []float32{9, 1, 1})
	if err != nil || token.ID != 1 || s.scores[0] != -91 || s.scores[2] != 0.75 {
		t.Errorf("token %d of %v, %v", token.ID, s.scores, err)
	}
	for _, bias := range []map[int]float64{{3: 1}, {-1: 1}, {0: math.NaN()}, {0: math.Inf(1)}} {
		if err := (&Sampling{Bias: bias}).check(3); err == nil {
			t.Errorf("%v is taken", bias)
		}
	}
}
