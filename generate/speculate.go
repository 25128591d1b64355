package generate

import (
	"context"
	"errors"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/runtime"
)

// Speculation: tokens that are guessed go through the pass that chooses the token before them. The model's own choice
// follows the guesses as long as it agrees with them, so the text is what it is without: a token is drawn from the same
// logits, which do not depend on other rows, with the random number of its place. Keys and values of guesses that were
// wrong lie beyond the end of the sequence and are written over.

// NoSpeculation is the [Options.Speculate] that guesses nothing, MostSpeculation the one that guesses most.
const (
	NoSpeculation   = -1
	MostSpeculation = mostAhead - 1
)

const (
	// mostAhead bounds the rows of a pass that has guesses.
	mostAhead = 32
	// leastGram and mostGram are how many tokens in a row are looked for further up.
	leastGram, mostGram = 2, 4
	// hope is how likely a guess is held for right before any was looked at, and heed what the next one counts for.
	hope, heed = 0.7, 0.15
	// patience is after how many passes without guesses others may be hoped for again.
	patience = 64
	// worth is by how much writing has to be faster with guesses.
	worth = 1.05
)

// A history finds what followed the last tokens of a sequence when they were written before.
type history struct {
	// last is where so many tokens in a row were seen last: the place behind them.
	last [mostGram + 1]map[gram]int
	// before are the places where the same tokens were seen before a place.
	before [mostGram + 1]map[int]int
	seen   int
}

type gram [mostGram]int32

func gramOf(tokens []int) (g gram) {
	for i, id := range tokens {
		g[i] = int32(id) + 1
	}
	return g
}

// guess returns up to n tokens that may follow: those that followed the last occurrence of the longest ending that occurred
// before.
func (h *history) guess(tokens []int, n int) []int {
	for n > 0 && h.seen < len(tokens) { // the ending itself is not an occurrence before it
		for size := leastGram; size <= min(mostGram, h.seen); size++ {
			if h.last[size] == nil {
				h.last[size], h.before[size] = make(map[gram]int), make(map[int]int)
			}
			g := gramOf(tokens[h.seen-size : h.seen])
			if at, known := h.last[size][g]; known {
				h.before[size][h.seen] = at
			}
			h.last[size][g] = h.seen
		}
		h.seen++
	}
	for size := min(mostGram, len(tokens)); size >= leastGram; size-- {
		if at, ok := h.last[size][gramOf(tokens[len(tokens)-size:])]; ok {
			return tokens[at:min(at+n, len(tokens))]
		}
	}
	return nil
}

// A width is what is known of passes of so many rows without prompts.
type width struct {
	// seconds is what such a pass takes: as the plan expects, then as measured. 0 is not known, less is that none fits.
	seconds float64
	runs    int
}

// ahead decides how far passes guess.
type ahead struct {
	// limit is the most tokens to guess in a row, 0 for none; auto says that it is for the clock to decide whether it is worth it.
	limit int
	auto  bool
	// rows are the most rows of a pass that guesses.
	rows   int
	widths map[int]*width
}

func newAhead(o Options, rows int) *ahead {
	a := &ahead{limit: o.Speculate, rows: min(mostAhead, rows), widths: make(map[int]*width)}
	switch {
	case o.Speculate == NoSpeculation:
		a.limit = 0
	case o.Speculate == 0:
		a.limit, a.auto = mostAhead-1, true
	}
	return a
}

// look adds guesses to the parts of a pass, each of which has one row of a sequence that is written.
func (e *Engine) look(ctx context.Context, parts []part) error {
	a := e.ahead
	room := a.rows - len(parts)
	if a.limit == 0 || room <= 0 {
		return nil
	}
	any := false
	for i := range parts {
		p := &parts[i]
		// The last row of the pass gives a token, too, and there is no use in one behind the last.
		p.could = max(0, min(a.limit, p.s.most-len(p.s.tokens)-1))
		if e.restarts && len(p.s.tokens) <= e.stretch {
			p.could = min(p.could, e.stretch-len(p.s.tokens)) // beyond that all is read again
		}
		if e.draft != nil && e.draft.head != nil && !e.draft.head.ready(p.s) {
			p.could = 0
		}
		if e.draft == nil {
			p.guesses = p.s.history.guess(p.s.tokens, p.could)
			p.could = len(p.guesses)
		}
		any = any || p.could > 0
	}
	share(parts, room)
	if !any {
		return nil
	}
	spare := e.branching.spare
	best, err := e.widest(ctx, parts)
	if err != nil {
		return err
	}
	if best == 0 {
		e.mu.Lock()
		e.stats.Declined++
		e.mu.Unlock()
	}
	for i := range parts {
		p := &parts[i]
		if p.could = min(p.could, best); p.could == 0 {
			p.s.hope += (hope - p.s.hope) / patience
			p.s.deep += (hope - p.s.deep) / patience
		}
		p.guesses = p.guesses[:min(len(p.guesses), p.could)]
	}
	if e.draft != nil && best > 0 {
		for i := range parts { // it sees what it guesses in the same blocks
			e.blocks.extend(parts[i].s, graph.Blocks(len(parts[i].s.tokens)+parts[i].could))
		}
		if !e.trees() {
			err = e.draft.guess(ctx, parts)
		} else if err = e.draft.guessTrees(ctx, parts, spare, room); err == nil {
			spare, err = e.plant(ctx, parts, room)
		}
		if err != nil {
			return err
		}
	}
	return e.branch(ctx, parts, spare)
}

// share divides the room for guesses: all sequences have equally many, but for those that can use fewer, whose room the others
// have. What is left over goes to the first ones.
func share(parts []part, room int) {
	level, most := 0, 0
	for i := range parts {
		most = max(most, parts[i].could)
	}
	for level < most {
		more := 0
		for i := range parts {
			if parts[i].could > level {
				more++
			}
		}
		if more > room {
			break
		}
		room -= more
		level++
	}
	for i := range parts {
		if p := &parts[i]; p.could > level {
			if p.could = level; room > 0 {
				p.could++
				room--
			}
		}
	}
}

// widest is how many guesses for each sequence are worth it.
func (e *Engine) widest(ctx context.Context, parts []part) (int, error) {
	a := e.ahead
	best, gain := 0, 0.0
	for n := 0; ; n = min(2*n+1, a.limit) {
		seconds, err := e.expect(ctx, bucket(rowsWith(parts, n)))
		if err != nil {
			return 0, err
		}
		if seconds < 0 {
			break // it does not fit, and neither does a wider one
		}
		if e.draft != nil {
			seconds += float64(n) * e.draft.seconds
		}
		if g := tokensWith(parts, n, e.trees()) / seconds; !a.auto || n == 0 || g > worth*gain {
			best, gain = n, g
		}
		if n == a.limit {
			break
		}
	}
	return best, nil
}

// rowsWith is how many rows a pass has where each sequence has n guesses of those that it could have.
func rowsWith(parts []part, n int) int {
	rows := 0
	for _, p := range parts {
		rows += 1 + min(n, p.could)
	}
	return rows
}

// tokensWith is how many tokens such a pass is expected to write, with one guess of each sequence or a tree of a draft.
func tokensWith(parts []part, n int, trees bool) float64 {
	var tokens float64
	for _, p := range parts {
		likely, hope := 1.0, p.s.hope
		if trees {
			hope = p.s.deep
		}
		for range 1 + min(n, p.could) {
			tokens += likely
			likely *= hope
		}
	}
	return tokens
}

// expect returns how long a pass of so many rows takes, less than 0 where the budget admits none.
func (e *Engine) expect(ctx context.Context, rows int) (float64, error) {
	w := e.ahead.widths[rows]
	if w == nil {
		w = &width{}
		e.ahead.widths[rows] = w
		p, err := e.session.Plan(ctx, e.shapes(rows, rows))
		var full *runtime.CapacityError
		switch {
		case errors.As(err, &full):
			w.seconds = -1
		case err != nil:
			delete(e.ahead.widths, rows)
			return 0, err
		default:
			w.seconds = p.Forecast.Seconds
		}
	}
	return w.seconds, nil
}

// took tells how long a pass of so many rows took. The first one of a kind warms up what others find warm.
func (a *ahead) took(rows int, d time.Duration) {
	w := a.widths[rows]
	if w == nil || w.seconds < 0 {
		return
	}
	switch w.runs++; {
	case w.runs == 1:
	case w.runs == 2:
		w.seconds = d.Seconds()
	default:
		w.seconds += (d.Seconds() - w.seconds) / 8
	}
}

// learn tells whether a guess was right.
func (s *sequence) learn(right bool) {
	s.hope += heed * (oneIf(right) - s.hope)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
