package generate

import (
	"context"
	"time"
)

// SetClock has requests come by another clock, and none begin until the function that it returns is called.
func (e *Engine) SetClock(ctx context.Context, now func() time.Time) (begin func() error, err error) {
	rows := e.rows
	err = e.between(ctx, func() error {
		e.now, e.rows = now, 0
		return nil
	})
	return func() error { return e.between(ctx, func() error { e.rows = rows; return nil }) }, err
}

// WaitFor returns once so many requests wait.
func (e *Engine) WaitFor(ctx context.Context, requests int) error {
	for {
		n := 0
		if err := e.between(ctx, func() error { n = len(e.waiting); return nil }); err != nil || n == requests {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// Grown returns how often a branch was right that parts at the first guess, and one that parts behind it.
func (e *Engine) Grown(ctx context.Context) (flat, inner int) {
	e.between(ctx, func() error { flat, inner = e.branching.grown[0], e.branching.grown[1]; return nil })
	return flat, inner
}

// A Tree is a part's first guess, and those others that a pass would verify, each with the rows of its tokens.
type Tree struct {
	Guesses [][]int
	Rows    [][]int
}

// TreeOf returns the tree of a text whose guesses are held for right that often, as often as luck says where others are
// wrong: of so many guesses of n tokens each, in a pass with room for so many rows.
func TreeOf(tokens []int, hope float64, luck [2]float64, guesses, n, rows int) Tree {
	s := &sequence{tokens: tokens, hope: hope, luck: luck, most: 1 << 20}
	p := part{s: s, rows: 1, guesses: s.history.guess(tokens, n)}
	e := &Engine{ahead: &ahead{limit: n, rows: rows}}
	for len(p.guesses) > 0 && len(p.branches) < guesses-1 {
		x, _ := e.other(&p, 1+p.guessed())
		if x.rows() == 0 {
			break
		}
		p.branches = append(p.branches, x)
	}
	var tree Tree
	for _, path := range p.paths() {
		tree.Guesses, tree.Rows = append(tree.Guesses, path.guesses), append(tree.Rows, path.rows)
	}
	return tree
}

// Share returns how many guesses each of some sequences has that could have so many, with room for so many in all.
func Share(could []int, room int) []int {
	parts := make([]part, len(could))
	for i, n := range could {
		parts[i].could = n
	}
	share(parts, room)
	got := make([]int, len(could))
	for i := range parts {
		got[i] = parts[i].could
	}
	return got
}

// Expect has passes of one row be held for as long as one says, and those of more for as long as more says.
func (e *Engine) Expect(ctx context.Context, one, more float64) error {
	return e.between(ctx, func() error {
		for rows := 1; rows <= mostAhead; rows *= 2 {
			e.ahead.widths[rows] = &width{seconds: more}
		}
		e.ahead.widths[1].seconds = one
		return nil
	})
}
