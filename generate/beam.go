package generate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Beams say how several texts are followed at once, to find those that are the most likely as a whole: the beam search of the
// Python package transformers.
type Beams struct {
	// Width is how many texts are followed: num_beams.
	Width int
	// LengthPenalty is the power of its length by which a text's score, the sum of the logarithms of its tokens' probabilities,
	// is divided: length_penalty. 0 is 1; [NoLengthPenalty] leaves scores as they are.
	LengthPenalty float64
	// Early says when there is enough: early_stopping.
	Early Early
}

// NoLengthPenalty has texts of all lengths compared by what they are as a whole, which favours short ones.
const NoLengthPenalty = math.SmallestNonzeroFloat64

// An Early says when a beam search ends before all texts are as long as they may be.
type Early string

// The ways to end.
const (
	// EarlyLikely ends when a text of the present length cannot be better than those that have ended; it may miss a longer one.
	EarlyLikely Early = ""
	// EarlyFull ends as soon as there are as many texts as are followed.
	EarlyFull Early = "true"
	// EarlyNever ends when no text of any length can be better.
	EarlyNever Early = "never"
)

// A Found is a text that a beam search found.
type Found struct {
	Tokens []int
	// Score is the sum of the logarithms of the tokens' probabilities ÷ their number to the power of the length penalty.
	Score  float64
	Finish Finish
}

// A TextFound is a text that a beam search found, without its end.
type TextFound struct {
	Found
	Text string
}

// Beam is [Engine.Beam] for text. A request has no texts that stop it, and no schema or grammar.
func (w *Writer) Beam(ctx context.Context, r TextRequest, b Beams) ([]TextFound, error) {
	switch {
	case len(r.Stop) > 0:
		return nil, &RequestError{"Stop", "ends one text, and a beam search follows several"}
	case len(r.Schema) > 0 || r.Grammar != "":
		return nil, &RequestError{"Schema", "bounds one text, and a beam search follows several"}
	}
	if err := w.begin(ctx, &r); err != nil {
		return nil, err
	}
	r.Request.End = w.end(r)
	found, err := w.engine.Beam(ctx, r.Request, b)
	texts := make([]TextFound, len(found))
	for i, x := range found {
		stream := w.tokenizer.Stream(true)
		var text strings.Builder
		for _, id := range x.Tokens {
			if !slices.Contains(r.Request.End, id) {
				text.WriteString(stream.Write(uint32(id)))
			}
		}
		text.WriteString(stream.Flush())
		texts[i] = TextFound{x, text.String()}
	}
	return texts, err
}

// A beam is a text that is followed.
type beam struct {
	tokens []int
	score  float32 // as the original has it
	ended  bool
}

// A beamSearch is one that runs.
type beamSearch struct {
	Beams
	r    Request
	most int
	// keep is how many texts are looked at in a step: so many that enough of them go on.
	keep    int
	running []beam
	// found are those that ended, the best first; their scores have the length penalty.
	found []beam
	// improves says that there may be a better one than those found.
	improves bool
}

// Beam follows several texts at once and returns those that ended, the best first, as many as are followed at most. It
// takes of a request its prompt, its source, its adapter, its priority, how many tokens there are to be, what ends a
// text, and which tokens may not follow. Each step is a pass in which every text has the rows that do not lie in whole
// blocks yet, sixteen at most; other requests share it.
func (e *Engine) Beam(ctx context.Context, r Request, b Beams) ([]Found, error) {
	s, err := e.beamSearch(r, b)
	if err != nil {
		return nil, err
	}
	for n := len(r.Prompt); s.improves; n++ {
		next, err := e.candidates(ctx, s)
		if err != nil {
			return nil, err
		}
		s.step(next, n-len(r.Prompt)+1)
	}
	found := make([]Found, len(s.found))
	for i, x := range s.found {
		found[i] = Found{x.tokens[len(r.Prompt):], float64(x.score), FinishLength}
		if slices.Contains(r.End, x.tokens[len(x.tokens)-1]) {
			found[i].Finish = FinishStop
		}
	}
	return found, nil
}

// beamSearch checks a request.
func (e *Engine) beamSearch(r Request, b Beams) (*beamSearch, error) {
	if b.LengthPenalty == 0 {
		b.LengthPenalty = 1
	}
	s := &beamSearch{Beams: b, r: r, keep: max(2, 1+len(r.End)) * b.Width, improves: true}
	field, msg := "", ""
	switch {
	case b.Width < 1 || s.keep > min(maxLogprobs, e.vocabulary):
		field, msg = "Width", fmt.Sprintf("is %d: 1 to %d are possible", b.Width, min(maxLogprobs, e.vocabulary)/max(2, 1+len(r.End)))
	case math.IsNaN(b.LengthPenalty) || math.Abs(b.LengthPenalty) > 100:
		field, msg = "LengthPenalty", fmt.Sprintf("is %v: −100 to 100 are possible", b.LengthPenalty)
	case b.Early != EarlyLikely && b.Early != EarlyFull && b.Early != EarlyNever:
		field, msg = "Early", fmt.Sprintf("is %.20q", string(b.Early))
	case r.Constraint != nil:
		field, msg = "Constraint", "bounds one text, and several are followed"
	case !r.Sampling.plain():
		field, msg = "Sampling", "is of tokens one by one, and here whole texts are looked for"
	}
	if field != "" {
		return nil, &RequestError{"Beams." + field, msg}
	}
	first, err := e.sequence(context.Background(), r)
	if err != nil {
		return nil, err
	}
	first.cancel()
	if s.most = first.most; e.stretch > 0 && s.most > e.stretch {
		return nil, &RequestError{"Beams.Width", fmt.Sprintf("is for texts of %d tokens at most: what the model keeps of longer ones depends on their length", e.stretch)}
	}
	s.running = []beam{{tokens: r.Prompt}}
	return s, nil
}

// plain reports whether the most likely token is taken, as the model gives it, of those that may follow.
func (s *Sampling) plain() bool {
	return (s.RepetitionPenalty == 0 || s.RepetitionPenalty == 1) && s.PresencePenalty == 0 && s.FrequencyPenalty == 0 &&
		len(s.Bias) == 0 && s.Temperature == 0
}

// candidates returns the most likely texts that are a token longer, the best first.
func (e *Engine) candidates(ctx context.Context, s *beamSearch) ([]beam, error) {
	list := make([]*sequence, 0, len(s.running))
	defer func() {
		for _, x := range list {
			x.cancel()
		}
	}()
	for _, x := range s.running {
		q, err := e.sequence(ctx, Request{
			Prompt: x.tokens, Source: s.r.Source, MaxTokens: 1, Logprobs: s.keep, Adapter: s.r.Adapter, End: s.r.End, Sampling: s.r.Sampling,
			Priority: s.r.Priority,
		})
		if err != nil {
			return nil, err
		}
		q.sampler.prompt, q.sampler.most, q.sampler.bans = len(s.r.Prompt), s.most, true
		list = append(list, q)
	}
	// They come together, so that one pass has them all.
	if err := e.between(ctx, func() error {
		for _, q := range list {
			e.enter(q)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	type longer struct {
		from, id int
		score    float32
	}
	var all []longer
	for i, q := range list {
		var t Token
		select {
		case first, more := <-q.out:
			if !more {
				return nil, cmp.Or(q.err, ErrClosed)
			}
			t = first
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		for _, c := range t.Top {
			all = append(all, longer{i, c.ID, float32(c.Logprob) + s.running[i].score})
		}
	}
	slices.SortStableFunc(all, func(a, b longer) int { return cmp.Compare(b.score, a.score) })
	best := make([]beam, min(len(all), s.keep))
	for i, x := range all[:len(best)] {
		before := s.running[x.from].tokens
		tokens := append(before[:len(before):len(before)], x.id)
		best[i] = beam{tokens, x.score, slices.Contains(s.r.End, x.id) || len(tokens) >= s.most}
	}
	return best, nil
}

// step goes on with the best of candidates, which have so many tokens behind the prompt, and keeps those that ended.
func (s *beamSearch) step(next []beam, length int) {
	full := len(s.found) == s.Width
	s.running = s.running[:0]
	for i, x := range next {
		switch {
		case !x.ended && len(s.running) < s.Width:
			s.running = append(s.running, x)
		case x.ended && i < s.Width && !(full && s.Early == EarlyFull):
			x.score /= float32(math.Pow(float64(length), s.LengthPenalty))
			s.found = append(s.found, x)
		}
	}
	slices.SortStableFunc(s.found, func(a, b beam) int { return cmp.Compare(b.score, a.score) })
	s.found = s.found[:min(len(s.found), s.Width)]
	full = len(s.found) == s.Width
	if len(s.running) == 0 || full && s.Early == EarlyFull {
		s.improves = false
		return
	}
	if !full {
		return
	}
	longest := length
	if s.Early == EarlyNever && s.LengthPenalty > 0 {
		longest = s.most - len(s.r.Prompt)
	}
	best := s.running[0].score / float32(math.Pow(float64(longest), s.LengthPenalty))
	s.improves = best > s.found[len(s.found)-1].score
}
