package generate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling says how a token is chosen. The steps are those of the Python package transformers, in its order; the zero value
// takes the most likely token.
type Sampling struct {
	// Bias is added to the logits of tokens before all else.
	Bias map[int]float64
	// RepetitionPenalty divides the positive logits of all tokens of the sequence, the prompt's too, and multiplies the
	// negative ones; 0 and 1 change nothing.
	RepetitionPenalty float64
	// PresencePenalty is subtracted from the logits of the tokens that were written, FrequencyPenalty as often as they were.
	PresencePenalty, FrequencyPenalty float64
	// NoRepeatNgram is how many tokens in a row are not written twice; 0 bounds nothing.
	NoRepeatNgram int
	// BadWords are sequences of tokens that are not written.
	BadWords [][]int
	// MinTokens is how many tokens are written before one of [Request.End] may be.
	MinTokens int
	// Suppress are tokens that are not written.
	Suppress []int
	// ForceFirst, where there are some, are the tokens of which one is the first. SuppressFirst are those that are not
	// the first, or the first behind one that is forced.
	ForceFirst, SuppressFirst []int
	// ForceEnd, where there are some, are the tokens of which one is the last, where nothing has ended the text before.
	ForceEnd []int
	// Temperature divides the logits before a token is drawn; 0 draws none, and takes the most likely.
	Temperature float64
	// TopK leaves the K most likely tokens, TopP the most likely ones that have the probability P together, MinP those that
	// have P times that of the most likely one, Typical those nearest to what is expected that have that probability together.
	// 0 leaves all.
	TopK                int
	TopP, MinP, Typical float64
}

// check returns a [*RequestError] for what cannot be.
func (s *Sampling) check(vocabulary int) error {
	wrong := func(field, format string, args ...any) error {
		return &RequestError{"Sampling." + field, fmt.Sprintf(format, args...)}
	}
	share := func(x float64) bool { return x >= 0 && x <= 1 }
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	switch {
	case !(s.RepetitionPenalty >= 0) || !finite(s.RepetitionPenalty):
		return wrong("RepetitionPenalty", "is %v, not a positive number", s.RepetitionPenalty)
	case !finite(s.PresencePenalty):
		return wrong("PresencePenalty", "is %v", s.PresencePenalty)
	case !finite(s.FrequencyPenalty):
		return wrong("FrequencyPenalty", "is %v", s.FrequencyPenalty)
	case !(s.Temperature >= 0) || !finite(s.Temperature):
		return wrong("Temperature", "is %v, not a positive number", s.Temperature)
	case s.TopK < 0 || s.NoRepeatNgram < 0 || s.MinTokens < 0:
		return wrong("TopK", "and the other counts are not negative: %d, %d, %d", s.TopK, s.NoRepeatNgram, s.MinTokens)
	case !share(s.TopP):
		return wrong("TopP", "is %v, not a share", s.TopP)
	case !share(s.MinP):
		return wrong("MinP", "is %v, not a share", s.MinP)
	case !share(s.Typical):
		return wrong("Typical", "is %v, not a share", s.Typical)
	}
	for id, x := range s.Bias {
		if id < 0 || id >= vocabulary || !finite(x) {
			return wrong("Bias", "has %v for token %d, and the model has %d", x, id, vocabulary)
		}
	}
	for _, id := range slices.Concat(append(s.BadWords[:len(s.BadWords):len(s.BadWords)], s.Suppress, s.ForceFirst, s.SuppressFirst, s.ForceEnd)...) {
		if id < 0 || id >= vocabulary {
			return wrong("BadWords", "have token %d, and the model has %d", id, vocabulary)
		}
	}
	return nil
}

// A sampler chooses the tokens of a request.
type sampler struct {
	r Request
	// prompt is how many tokens come before those that are written, most how many there may be in all.
	prompt, most int
	// bans has the tokens that it may not choose left out of those that are likely, and gives one that is forced for
	// certain.
	bans    bool
	scores  []float32
	allowed []uint64
	order   []int32
	probs   []float32
	written map[int]int
	seen    map[int]bool
}

func newSampler(r Request, vocabulary int) *sampler {
	s := &sampler{r: r, prompt: len(r.Prompt), most: math.MaxInt, scores: make([]float32, vocabulary), written: make(map[int]int), seen: make(map[int]bool)}
	for _, id := range r.Prompt {
		s.seen[id] = true
	}
	if r.Constraint != nil {
		s.allowed = make([]uint64, (vocabulary+63)/64)
	}
	return s
}

var (
	errNoToken   = errors.New("no token may follow")
	errNoNumbers = errors.New("the model gave no numbers: a logit is NaN")
)

// noNumbers reports whether some are NaN.
func noNumbers(logits []float32) bool {
	return slices.ContainsFunc(logits, func(x float32) bool { return x != x })
}

// next chooses the token that follows others, which the sampler has seen all of but the last. With [ErrStop] it is the last.
func (s *sampler) next(tokens []int, logits []float32) (Token, error) {
	if noNumbers(logits) {
		return Token{}, errNoNumbers
	}
	copy(s.scores, logits)
	if err := s.process(tokens); err != nil {
		return Token{}, err
	}
	id, ok := s.draw(len(tokens))
	if !ok {
		return Token{}, errNoToken
	}
	s.seen[id] = true
	s.written[id]++
	t := Token{ID: id}
	if s.r.Logprobs > 0 {
		t.Logprob, t.Top = s.likely(id, logits)
		if s.bans && s.forced(len(tokens)) != nil {
			t.Top = []Candidate{{ID: id}}
		}
	}
	if s.r.Constraint != nil {
		return t, s.r.Constraint.Accept(id)
	}
	return t, nil
}

var lowest = float32(math.Inf(-1))

// process changes the scores by what was written.
func (s *sampler) process(tokens []int) error {
	o := &s.r.Sampling
	for id, x := range o.Bias {
		s.scores[id] += float32(x)
	}
	if p := float32(o.RepetitionPenalty); p != 0 && p != 1 {
		for id := range s.seen {
			if x := s.scores[id]; x < 0 {
				s.scores[id] = x * p
			} else {
				s.scores[id] = x / p
			}
		}
	}
	if o.PresencePenalty != 0 || o.FrequencyPenalty != 0 {
		for id, n := range s.written {
			s.scores[id] -= float32(o.PresencePenalty + float64(n)*o.FrequencyPenalty)
		}
	}
	if n := o.NoRepeatNgram; n > 0 && len(tokens)+1 >= n {
		last := tokens[len(tokens)-(n-1):]
		for i := 0; i+n <= len(tokens); i++ {
			if slices.Equal(tokens[i:i+n-1], last) {
				s.scores[tokens[i+n-1]] = lowest
			}
		}
	}
	for _, word := range o.BadWords {
		if n := len(word) - 1; n >= 0 && n <= len(tokens) && slices.Equal(tokens[len(tokens)-n:], word[:n]) {
			s.scores[word[n]] = lowest
		}
	}
	if len(tokens)-s.prompt < o.MinTokens {
		for _, id := range s.r.End {
			s.scores[id] = lowest
		}
	}
	for _, id := range o.Suppress {
		s.scores[id] = lowest
	}
	if len(tokens) == s.prompt+min(len(o.ForceFirst), 1) {
		for _, id := range o.SuppressFirst {
			s.scores[id] = lowest
		}
	}
	if forced := s.forced(len(tokens)); forced != nil {
		for id := range s.scores {
			s.scores[id] = lowest
		}
		for _, id := range forced {
			s.scores[id] = 0
		}
	}
	if s.r.Constraint == nil {
		return nil
	}
	for i := range s.allowed {
		s.allowed[i] = math.MaxUint64
	}
	if err := s.r.Constraint.Mask(s.allowed); err != nil {
		return err
	}
	for id := range s.scores {
		if s.allowed[id/64]>>(id%64)&1 == 0 {
			s.scores[id] = lowest
		}
	}
	return nil
}

// forced are the tokens of which one has to be behind so many, nil where others may be.
func (s *sampler) forced(tokens int) []int {
	switch o := &s.r.Sampling; {
	case tokens == s.most-1 && len(o.ForceEnd) > 0:
		return o.ForceEnd
	case tokens == s.prompt && len(o.ForceFirst) > 0:
		return o.ForceFirst
	}
	return nil
}

// draw chooses by the scores; the number of tokens before it says which random number of the request's it has.
func (s *sampler) draw(at int) (int, bool) {
	o := &s.r.Sampling
	best := 0
	for id, x := range s.scores {
		if x > s.scores[best] {
			best = id
		}
	}
	if s.scores[best] == lowest {
		return 0, false
	}
	if o.Temperature == 0 {
		return best, true
	}
	top := s.scores[best]
	for id := range s.scores {
		s.scores[id] = float32(float64(s.scores[id]) / o.Temperature)
	}
	top = float32(float64(top) / o.Temperature)
	// The tokens that are left, the most likely first, equal ones by their number.
	s.order = s.order[:0]
	for id, x := range s.scores {
		if x != lowest && !math.IsInf(float64(top-x), 1) {
			s.order = append(s.order, int32(id))
		}
	}
	if o.TopK > 0 || o.TopP > 0 && o.TopP < 1 || o.MinP > 0 || o.Typical > 0 && o.Typical < 1 {
		slices.SortFunc(s.order, func(a, b int32) int {
			return cmp.Or(cmp.Compare(s.scores[b], s.scores[a]), cmp.Compare(a, b))
		})
		s.keepTopK(o.TopK)
		s.keepTopP(o.TopP)
		s.keepMinP(o.MinP)
		s.keepTypical(o.Typical)
		slices.Sort(s.order)
	}
	probs := s.softmax()
	var sum float64
	for _, p := range probs {
		sum += float64(p)
	}
	random := rand.New(rand.NewPCG(s.r.Seed, uint64(at))) // a stream by the place, whatever was drawn before
	x := random.Float64() * sum
	for i, p := range probs {
		if x -= float64(p); x < 0 {
			return int(s.order[i]), true
		}
	}
	return int(s.order[len(s.order)-1]), true
}

// A guess is a token that may be chosen, how likely, and whether it would be.
type guess struct {
	id    int
	p     float64
	drawn bool
}

// likeliest returns the n tokens that are likeliest to be chosen at a place by who draws with the same random number from other
// logits: as often as agree says both draw the same, and else the other one draws as it likes. Without a temperature, what is
// likely is what these logits say.
func (s *sampler) likeliest(at int, logits []float32, n int, agree float64) ([]guess, error) {
	if noNumbers(logits) {
		return nil, errNoNumbers
	}
	copy(s.scores, logits)
	drawn, ok := s.draw(at)
	if !ok {
		return nil, errNoToken
	}
	probs := s.probs[:min(len(s.order), len(s.probs))]
	if s.r.Sampling.Temperature == 0 {
		agree, s.order = 0, s.order[:0]
		for id, x := range s.scores {
			if x != lowest {
				s.order = append(s.order, int32(id))
			}
		}
		probs = s.softmax()
	}
	list := make([]guess, 0, n+1)
	for i, p := range probs {
		g := guess{id: int(s.order[i]), p: float64(p) * (1 - agree)}
		if g.drawn = g.id == drawn; g.drawn {
			g.p += agree
		}
		if len(list) == n && g.p <= list[n-1].p {
			continue
		}
		k := len(list)
		for k > 0 && list[k-1].p < g.p {
			k--
		}
		list = slices.Insert(list, k, g)
		list = list[:min(len(list), n)]
	}
	return list, nil
}

// softmax returns the probabilities of the tokens that are left, in their order.
func (s *sampler) softmax() []float32 {
	if cap(s.probs) < len(s.order) {
		s.probs = make([]float32, len(s.scores))
	}
	probs := s.probs[:len(s.order)]
	top := lowest
	for _, id := range s.order {
		top = max(top, s.scores[id])
	}
	var sum float64
	for i, id := range s.order {
		probs[i] = float32(math.Exp(float64(s.scores[id] - top)))
		sum += float64(probs[i])
	}
	for i := range probs {
		probs[i] = float32(float64(probs[i]) / sum)
	}
	return probs
}

// keepTopK leaves the k most likely of tokens in order, and those that are as likely as the last of them.
func (s *sampler) keepTopK(k int) {
	if k == 0 || k >= len(s.order) {
		return
	}
	last := s.scores[s.order[k-1]]
	for k < len(s.order) && s.scores[s.order[k]] == last {
		k++
	}
	s.order = s.order[:k]
}

// keepTopP leaves the most likely tokens, as many as have the probability p, with the one that makes it so. As in the
// original, they are counted from the least likely one.
func (s *sampler) keepTopP(p float64) {
	if p == 0 || p >= 1 {
		return
	}
	probs, sum := s.softmax(), 0.0
	n := len(probs)
	for n > 1 {
		if sum += float64(probs[n-1]); float32(sum) > float32(1-p) {
			break
		}
		n--
	}
	s.order = s.order[:n]
}

// keepMinP leaves the tokens that have p times the probability of the most likely one.
func (s *sampler) keepMinP(p float64) {
	if p == 0 {
		return
	}
	probs := s.softmax()
	least := float32(p) * probs[0]
	n := 1
	for n < len(probs) && probs[n] >= least {
		n++
	}
	s.order = s.order[:n]
}

// keepTypical leaves the tokens whose information is nearest to the expected one, as many as have the probability mass.
func (s *sampler) keepTypical(mass float64) {
	if mass == 0 || mass >= 1 {
		return
	}
	probs := s.softmax()
	var entropy float64
	for _, p := range probs {
		if p > 0 {
			entropy -= float64(p) * math.Log(float64(p))
		}
	}
	type near struct {
		id       int32
		p        float32
		distance float64
	}
	list := make([]near, len(probs))
	for i, p := range probs {
		list[i] = near{s.order[i], p, math.Abs(-math.Log(float64(p)) - entropy)}
	}
	slices.SortStableFunc(list, func(a, b near) int { return cmp.Compare(a.distance, b.distance) })
	var sum float64
	last := 0
	for _, x := range list {
		if sum += float64(x.p); float32(sum) >= float32(mass) {
			break
		}
		last++
	}
	last = min(last, len(list)-1)
	kept := s.order[:0]
	for _, x := range list {
		if x.distance <= list[last].distance {
			kept = append(kept, x.id)
		}
	}
	s.order = kept
	slices.SortFunc(s.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(s.scores[b], s.scores[a]), cmp.Compare(a, b))
	})
}

// likely returns the logarithm of a token's probability and the most likely tokens, by the logits of the model.
func (s *sampler) likely(id int, logits []float32) (float64, []Candidate) {
	top := float64(slices.Max(logits))
	var sum float64
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	norm := top + math.Log(sum)
	n := min(s.r.Logprobs, len(logits))
	list := make([]Candidate, 0, n+1)
	for i, x := range logits {
		c := Candidate{i, float64(x) - norm}
		if s.bans && s.scores[i] == lowest {
			continue
		}
		if len(list) == n && c.Logprob <= list[n-1].Logprob {
			continue
		}
		at, _ := slices.BinarySearchFunc(list, c, func(a, b Candidate) int {
			return cmp.Or(cmp.Compare(b.Logprob, a.Logprob), cmp.Compare(a.ID, b.ID))
		})
		list = slices.Insert(list, at, c)
		list = list[:min(len(list), n)]
	}
	return float64(logits[id]) - norm, list
}
