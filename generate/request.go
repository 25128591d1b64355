package generate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/optimem/optimem/runtime"
)

// A Request is what is to be written.
type Request struct {
	// Prompt are the tokens that come first: one at least. Of a model that reads a source they are those that the
	// decoder begins with.
	Prompt []int
	// Source is what the model reads before, of those that read something.
	Source *Source
	// MaxTokens is how many tokens are written at most; 0 is what the context has room for.
	MaxTokens int
	// End are tokens after which nothing follows; they are given as the last.
	End []int
	// Sampling says how tokens are chosen; the zero value takes the most likely one.
	Sampling Sampling
	// Seed begins the request's own stream of random numbers.
	Seed uint64
	// Logprobs is how many of the most likely tokens each token comes with.
	Logprobs int
	// Adapter is the name of the adapter that it is written with, one of [models.Model.Adapters]; "" is the model without one.
	// Requests with different ones share passes.
	Adapter string
	// Constraint bounds what may be written; nil bounds nothing.
	Constraint Constraint
	// Priority says which of the requests that wait goes first. Those that are being written are not interrupted.
	Priority runtime.Priority
	// Progress, where it is not nil, is called on the caller's goroutine as the prompt is read, before the first token: with
	// how many of its tokens are, those that were there already among them, and how many there are.
	Progress func(read, tokens int)
}

// A Constraint says which tokens may follow those that were written. One belongs to one request.
type Constraint interface {
	// Mask clears the bits of the tokens that may not follow: token i is bit i mod 64 of word i ÷ 64. All are set before.
	Mask(allowed []uint64) error
	// Accept tells which token was written. [ErrStop] says that nothing may follow it: the request is finished, without a pass
	// for a token that would say so.
	Accept(token int) error
}

// A Token is one that was written.
type Token struct {
	ID int
	// Logprob is the logarithm of the probability that the model gave it, and Top are the most likely ones, if they were
	// asked for.
	Logprob float64
	Top     []Candidate
}

// A Candidate is a token that the model held for likely.
type Candidate struct {
	ID      int
	Logprob float64
}

// A Finish says why nothing more is written.
type Finish string

// The reasons to end.
const (
	// FinishStop is a token of [Request.End], a constraint after which nothing follows, or a caller that had enough.
	FinishStop Finish = "stop"
	// FinishLength is the most tokens that were asked for, or the end of the context.
	FinishLength Finish = "length"
	// FinishCancelled is a caller that went away.
	FinishCancelled Finish = "cancelled"
)

// A Result is what was written.
type Result struct {
	// Tokens are those that were written; Likely says how likely each was, where [Request.Logprobs] asks for that.
	Tokens []int
	Likely []Token
	Finish Finish
	// PromptTokens counts the prompt, SharedTokens those of it whose keys and values were there already.
	PromptTokens, SharedTokens int
	// Passes counts the passes that had a row of the request.
	Passes int
	// Seconds is how long it took, FirstTokenSeconds how long until the first token, with what it waited for others.
	Seconds, FirstTokenSeconds float64
}

// A sequence is a request that is being written. The loop owns it, but for what the comments say.
type sequence struct {
	Request
	// ctx is the caller's, and cancel tells the loop that the caller went away.
	ctx    context.Context
	cancel context.CancelFunc
	// out takes the tokens; there is room for all of them, so that the loop never waits. finish, passes, shared and err are
	// set before it is closed, and read after.
	out chan Token
	// read has how much of the prompt was read last, if the caller wants to know; what it did not take in time is replaced.
	read   chan int
	finish Finish
	passes int
	shared int
	// since is when it counts as having come.
	since time.Time
	// alone is set where keys depend on the length that the sequence will have: it shares none.
	alone bool
	err   error

	// tokens are the prompt and what was written; cached is how many of them are in the caches.
	tokens []int
	cached int
	// most is how many tokens there may be in all.
	most int
	// flying says that it is in a pass that is under way elsewhere.
	flying bool
	// table are the blocks of the sequence, and owed is how many more it was promised; registered is how many of them
	// others may share.
	table            []int
	owed, registered int
	// after is the serial number of the last block that is registered, or of what comes before the first.
	after uint64
	// window are the blocks of the sequence in the caches of windows, and promised is how many it has at most.
	window   view
	promised int
	// state is the place of the sequence's state, behind its cached tokens, of a model that keeps some, and marked that
	// of the one which is kept for others, behind markedAt tokens; noState is none. stops are behind how many tokens
	// others are kept.
	state, marked, markedAt int
	stops                   []int
	// source is Request.Source where it lies, and root its serial number.
	source *source
	root   uint64
	// seen says of each token of the prompt which position of the source stands in its place, -1 for none, of a model that
	// sees pictures; nil of others.
	seen []int32
	// adapter is the number of Request.Adapter.
	adapter int64
	sampler *sampler
	// history finds guesses, and hope is how often they were right lately.
	history history
	hope    float64
	// luck is how often branches were right lately where the first guess was wrong: its first token, or one behind that.
	luck [2]float64
	// deep is how often one guess of a tree went on being right lately, and hoped and right are how many guesses of one a head
	// held for right, and how many were.
	deep, hoped, right float64
	// drafter chooses for the draft, and drafted is how many tokens that has seen.
	drafter *sampler
	drafted int
	// saw is what the model saw of the tokens from drafted on, for a head, and own what that gave for the last row.
	saw, own []float32
	// draftWindow are its blocks in the caches that a draft has for windows.
	draftWindow view
}

// sequence checks a request.
func (e *Engine) sequence(ctx context.Context, r Request) (*sequence, error) {
	switch {
	case len(r.Prompt) == 0:
		return nil, &RequestError{"Prompt", "has no token"}
	case len(r.Prompt) >= e.context:
		return nil, &RequestError{"Prompt", fmt.Sprintf("has %d tokens, and a context of %d leaves no room for more", len(r.Prompt), e.context)}
	case r.MaxTokens < 0:
		return nil, &RequestError{"MaxTokens", fmt.Sprintf("is %d", r.MaxTokens)}
	case r.Logprobs < 0 || r.Logprobs > maxLogprobs:
		return nil, &RequestError{"Logprobs", fmt.Sprintf("is %d: 0 to %d are possible", r.Logprobs, maxLogprobs)}
	}
	for _, id := range slices.Concat(r.Prompt, r.End) {
		if id < 0 || id >= e.vocabulary {
			return nil, &RequestError{"Prompt", fmt.Sprintf("token %d, and the model has %d", id, e.vocabulary)}
		}
	}
	if err := e.checkSource(r.Source); err != nil {
		return nil, err
	}
	if err := r.Sampling.check(e.vocabulary); err != nil {
		return nil, err
	}
	adapter, err := e.model.AdapterNumber(r.Adapter)
	if err != nil {
		return nil, &RequestError{"Adapter", err.Error()}
	}
	most := e.context
	if r.MaxTokens > 0 {
		most = min(most, len(r.Prompt)+r.MaxTokens)
	}
	seen, err := e.seenPlaces(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var read chan int
	if r.Progress != nil {
		read = make(chan int, 1)
	}
	s := &sequence{
		Request: r, ctx: ctx, cancel: cancel, most: most, adapter: adapter,
		out: make(chan Token, most-len(r.Prompt)), read: read,
		tokens: append(make([]int, 0, most), r.Prompt...), since: r.Priority.Since(e.now()),
		seen: seen, sampler: newSampler(r, e.vocabulary), hope: hope, luck: [2]float64{luck, luck},
		deep: hope, hoped: 1, right: 1, state: noState, marked: noState,
	}
	s.sampler.most = most
	if e.draft != nil {
		s.drafter = newSampler(draftRequest(r), e.vocabulary)
	}
	return s, nil
}

// maxLogprobs bounds the candidates of a token.
const maxLogprobs = 100

// tell tells the caller how much of the prompt was read.
func (s *sequence) tell() {
	if s.read == nil || s.cached > len(s.Prompt) {
		return
	}
	select {
	case <-s.read:
	default:
	}
	s.read <- s.cached
}

// end ends a sequence.
func (s *sequence) end(finish Finish, err error) {
	s.finish, s.err = finish, err
	s.cancel()
	close(s.out)
}
