package generate_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/generate"
)

// TestShare: room that one sequence cannot use is the others'; nobody has more than it can use, all room is used that can be,
// and who has less than another can use no more.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		could []int
		room  int
		want  []int
	}{
		{[]int{7, 7}, 30, []int{7, 7}},
		{[]int{31, 31}, 30, []int{15, 15}},
		{[]int{31, 2}, 30, []int{28, 2}},
		{[]int{0, 31, 0, 31}, 28, []int{0, 14, 0, 14}},
		{[]int{5, 5, 5}, 10, []int{4, 3, 3}},
		{[]int{3, 9, 1}, 0, []int{0, 0, 0}},
	} {
		if got := generate.Share(c.could, c.room); !slices.Equal(got, c.want) {
			t.Errorf("%v in room for %d: %v, want %v", c.could, c.room, got, c.want)
		}
	}
	rng := rand.New(rand.NewPCG(1, 9))
	for range 2000 {
		could, all := make([]int, 1+rng.IntN(12)), 0
		for i := range could {
			could[i] = rng.IntN(32)
			all += could[i]
		}
		room := rng.IntN(33)
		got, used := generate.Share(could, room), 0
		for i, n := range got {
			used += n
			if n > could[i] || n < could[i] && n+1 < slices.Max(got) {
				t.Fatalf("%v in room for %d: %v", could, room, got)
			}
		}
		if used != min(all, room) {
			t.Fatalf("%v in room for %d: %v, %d used", could, room, got, used)
		}
	}
}

// rounds has the same tokens come again and again.
type rounds struct {
	tokens []int
	at     int
}

// Mask implements [generate.Constraint].
func (r *rounds) Mask(allowed []uint64) error {
	clear(allowed)
	id := r.tokens[r.at%len(r.tokens)]
	allowed[id/64] |= 1 << (id % 64)
	return nil
}

// Accept implements [generate.Constraint].
func (r *rounds) Accept(int) error { r.at++; return nil }

// TestShareText: a text that can be guessed, beside seven that cannot, has the room of all, and so takes as many passes as alone
// with that many guesses; its tokens are the same.
func TestShareText(t *testing.T) {
	round := []int{5, 6, 7, 8, 9, 10, 11}
	ask := func() generate.Request {
		return generate.Request{Prompt: slices.Repeat(round, 12), MaxTokens: 120, Constraint: &rounds{tokens: round}}
	}
	alone := longEngine(t, chatFolder, generate.Options{Context: 240, Speculate: 24})
	want, err := alone.Generate(t.Context(), ask(), nil)
	if err != nil {
		t.Fatal(err)
	}
	three := longEngine(t, chatFolder, generate.Options{Context: 240, Speculate: 3})
	part, err := three.Generate(t.Context(), ask(), nil)
	if err != nil {
		t.Fatal(err)
	}
	e := longEngine(t, chatFolder, generate.Options{Context: 240, Sequences: 8, Speculate: generate.MostSpeculation})
	begin, err := e.SetClock(t.Context(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var got *generate.Result
	var failed error
	for i := range 7 { // no two tokens in a row come twice, so that there is nothing to guess from
		group.Go(func() {
			r := generate.Request{Prompt: []int{20 + i}, MaxTokens: 120, Seed: uint64(i)}
			r.Sampling.Temperature, r.Sampling.NoRepeatNgram = 3, 2
			if _, err := e.Generate(t.Context(), r, nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Go(func() { got, failed = e.Generate(t.Context(), ask(), nil) })
	if err := errors.Join(e.WaitFor(t.Context(), 8), begin()); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if failed != nil || !slices.Equal(got.Tokens, want.Tokens) {
		t.Fatalf("%v, want %v: %v", got, want.Tokens, failed)
	}
	if got.Passes != want.Passes || part.Passes <= want.Passes {
		t.Errorf("%d passes beside others, %d alone, %d with an equal part", got.Passes, want.Passes, part.Passes)
	}
}

// TestDeclined: where wider passes are expected to take far longer nothing is guessed, and it is counted that something
// could have been; where they take no longer, it is guessed.
func TestDeclined(t *testing.T) {
	round := []int{5, 6, 7, 8, 9, 10, 11}
	for _, slow := range []bool{true, false} {
		e := longEngine(t, chatFolder, generate.Options{Context: 240})
		one, more := 1.0, 1e12
		if !slow {
			one, more = more, one
		}
		if err := e.Expect(t.Context(), one, more); err != nil {
			t.Fatal(err)
		}
		r := generate.Request{Prompt: slices.Repeat(round, 4), MaxTokens: 40, Constraint: &rounds{tokens: round}}
		if _, err := e.Generate(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
		if s := e.Stats(); !e.Guesses() || (s.Guessed == 0) != slow || (s.Declined == 38) != slow || (s.Declined == 0) == slow {
			t.Errorf("wider passes are slow is %v: %d guessed, %d passes declined", slow, s.Guessed, s.Declined)
		}
	}
	off := longEngine(t, chatFolder, generate.Options{Context: 240, Speculate: generate.NoSpeculation})
	if off.Guesses() {
		t.Error("guesses where nothing is to be guessed")
	}
}
