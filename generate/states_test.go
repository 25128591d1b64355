package generate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
)

// stateWalk is passes over sequences of a model that keeps states, with the text that each place's state is of.
type stateWalk struct {
	*testing.T
	e        *Engine
	r        *rand.Rand
	in       []string
	known    map[uint64]string // the text behind each block that was registered
	active   []*sequence
	prompts  [][]int
	restored int
	// of so many places where prompts part, or end, states were kept behind some.
	stops, kept int
}

func textOf(tokens []int) string { return fmt.Sprint(tokens) }

// begins admits a sequence, whose state, if it has one, is of the tokens that it need not read.
func (w *stateWalk) begins() {
	prompt := slices.Clone(w.prompts[w.r.IntN(len(w.prompts))])
	if w.r.IntN(2) == 0 { // as another one, up to somewhere
		prompt = text(len(prompt), w.r.Uint64(), prompt[:w.r.IntN(len(prompt))]...)
	}
	w.prompts[w.r.IntN(len(w.prompts))] = prompt
	s := &sequence{Request: Request{Prompt: prompt}, tokens: slices.Clone(prompt), most: len(prompt) + 60}
	s.alone = w.r.IntN(9) == 0
	if !w.e.blocks.admit(s) {
		w.Fatal("no room for a sequence")
	}
	w.e.blocks.extend(s, graph.Blocks(s.most))
	switch {
	case s.state == noState && s.cached > 0:
		w.Fatalf("%d tokens are cached without a state", s.cached)
	case s.state != noState && w.in[s.state] != textOf(s.tokens[:s.cached]):
		w.Fatal("a sequence begins with the state of another text")
	case s.state != noState:
		w.restored++
	}
	w.active = append(w.active, s)
}

// pass is one over some rows of every sequence, with guesses where all of its tokens have been read. It may fail.
func (w *stateWalk) pass() {
	var parts []part
	for _, s := range w.active {
		p := part{s: s, rows: 1 + w.r.IntN(min(len(s.tokens)-s.cached, 40))}
		if p.chooses() {
			p.guesses = text(w.r.IntN(4), w.r.Uint64())
		}
		parts = append(parts, p)
	}
	w.e.allot(parts)
	for k := range parts {
		p, now := &parts[k], ""
		for i := range p.rows + len(p.guesses) {
			seen := slices.Concat(p.s.tokens[:p.s.cached+min(i, p.rows)], p.guesses[:max(i-p.rows, 0)])
			from, to := p.place(i)
			switch {
			case from >= 0:
				now = w.in[from]
			case from == graph.StateNone:
				now = textOf(nil)
			}
			if now != textOf(seen) {
				w.Fatalf("row %d of %d finds a state of another text", i, p.rows)
			}
			if now = textOf(append(seen, p.token(i))); to >= 0 {
				w.in[to] = now
			}
		}
	}
	if w.r.IntN(20) == 0 {
		w.e.abandon(parts)
		for len(w.active) > 0 {
			w.ends(0)
		}
		return
	}
	for k := range parts {
		p := &parts[k]
		s, right, before := p.s, w.r.IntN(len(p.guesses)+1), p.s.cached
		if p.chooses() {
			s.tokens = append(append(s.tokens, p.guesses[:right]...), 100)
		}
		s.cached += p.rows + right
		w.e.blocks.register(s)
		for at := range s.registered {
			w.known[w.e.blocks.of[s.table[at]].serial] = textOf(s.tokens[:(at+1)*graph.BlockRows])
		}
		w.e.settle(p, right)
		if s.alone && s.marked != noState {
			w.Fatal("a sequence that shares nothing keeps a state for others")
		}
		for _, at := range s.stops {
			if behind := w.e.blocks.behind(s, at); before < at && at <= before+p.rows && behind != 0 {
				w.stops++
				if _, is := w.e.blocks.states.held[behind]; is {
					w.kept++
				}
			}
		}
		if w.in[s.state] != textOf(s.tokens[:s.cached]) {
			w.Fatalf("with %d guesses right of %d, a sequence goes on with another state", right, len(p.guesses))
		}
	}
}

func (w *stateWalk) ends(k int) {
	w.e.blocks.release(w.active[k])
	w.active = slices.Delete(w.active, k, k+1)
}

// check looks at every place: those who use it are the sequences, it is free or kept where there are none, and what is
// kept behind a block is of the text up to there.
func (w *stateWalk) check() {
	s := w.e.blocks.states
	users := make([]int, len(s.of))
	for _, q := range w.active {
		for _, i := range []int{q.state, q.marked} {
			if i != noState {
				users[i]++
			}
		}
	}
	idle := make(map[int]bool)
	for e := s.idle.Front(); e != nil; e = e.Next() {
		idle[e.Value.(int)] = true
	}
	for i, p := range s.of {
		if p.users != users[i] {
			w.Fatalf("place %d has %d users, not %d", i, p.users, users[i])
		}
		if free := slices.Contains(s.free, i); free != (users[i] == 0 && p.behind == 0) || idle[i] != (users[i] == 0 && p.behind != 0) {
			w.Fatalf("place %d with %d users, kept behind %d: free %v, idle %v", i, users[i], p.behind, free, idle[i])
		}
	}
	for behind, i := range s.held {
		if s.of[i].behind != behind || w.in[i] != w.known[behind] {
			w.Fatalf("behind block %d another state is kept", behind)
		}
	}
	if len(s.free)+s.idle.Len() > len(s.of) {
		w.Fatal("a place is free twice")
	}
}

// TestStatesAreOfTheirText: whatever sequences come, share a beginning, guess, fail and go, each row finds the state
// behind the row before it, each sequence begins behind tokens whose state was kept, and no place is lost.
func TestStatesAreOfTheirText(t *testing.T) {
	const most, blocks, rows = 3, 60, 64
	restored, stops, kept, seeds := 0, 0, 0, 40
	if testing.Short() {
		seeds = 8
	}
	for seed := range uint64(seeds) {
		o := Options{Sequences: most, Speculate: 3}
		w := &stateWalk{T: t, e: &Engine{blocks: newBlocks(blocks)}, r: rand.New(rand.NewPCG(seed, 2)), known: make(map[uint64]string)}
		w.in = make([]string, o.statePlaces(rows))
		w.e.blocks.states = newStates(len(w.in))
		for k := range 4 {
			w.prompts = append(w.prompts, text(20+30*k, seed))
		}
		for range 120 {
			if len(w.active) < most && w.r.IntN(3) == 0 {
				w.begins()
				w.check()
			}
			w.pass()
			w.check()
			for k := len(w.active) - 1; k >= 0; k-- {
				if s := w.active[k]; len(s.tokens)+5 > s.most || w.r.IntN(25) == 0 {
					w.ends(k)
				}
			}
			w.check()
		}
		restored, stops, kept = restored+w.restored, stops+w.stops, kept+w.kept
	}
	if kept*10 < stops*9 || stops < 2*seeds {
		t.Errorf("of %d places where prompts part states are kept behind %d", stops, kept)
	}
	if restored < 2*seeds {
		t.Errorf("%d sequences began with a state", restored)
	}
}
