package generate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
)

// windowWalk is passes over sequences of a model with a window, with the text that each place of the caches is of.
type windowWalk struct {
	*testing.T
	e       *Engine
	r       *rand.Rand
	in      [][graph.BlockRows]string
	active  []*sequence
	prompts [][]int
	// begun counts the sequences that began behind what others had written, waited those that found no room.
	begun, waited int
}

// begins admits a sequence, if there is room.
func (w *windowWalk) begins() {
	prompt := slices.Clone(w.prompts[w.r.IntN(len(w.prompts))])
	if w.r.IntN(2) == 0 { // as another one, up to somewhere
		prompt = text(len(prompt), w.r.Uint64(), prompt[:w.r.IntN(len(prompt))]...)
	}
	w.prompts[w.r.IntN(len(w.prompts))] = prompt
	s := &sequence{Request: Request{Prompt: prompt}, tokens: slices.Clone(prompt), most: len(prompt) + 1 + w.r.IntN(60)}
	s.alone = w.r.IntN(9) == 0
	if !w.e.blocks.admit(s) {
		if w.waited++; s.promised > 0 || len(s.window.blocks) > 0 || len(w.active) == 0 {
			w.Fatalf("who waits has %d blocks, and %d were promised, beside %d sequences", len(s.window.blocks), s.promised, len(w.active))
		}
		return
	}
	w.e.blocks.extend(s, graph.Blocks(s.most))
	if s.cached > 0 {
		w.begun++
	}
	w.active = append(w.active, s)
}

// pass is one over some rows of sequences, with guesses where all tokens have been read. Every row finds what its
// window sees.
func (w *windowWalk) pass(rows int) {
	windows := w.e.blocks.windows
	for _, s := range w.active {
		n, guesses := 1+w.r.IntN(min(len(s.tokens)-s.cached, rows)), []int(nil)
		if s.cached+n == len(s.tokens) {
			guesses = text(w.r.IntN(min(4, rows-n+1, s.most-len(s.tokens)+1)), w.r.Uint64())
		}
		all := slices.Concat(s.tokens[:s.cached+n], guesses)
		windows.slide(s, n+len(guesses))
		if len(s.window.blocks) > s.promised {
			w.Fatalf("a sequence has %d blocks, and %d were promised", len(s.window.blocks), s.promised)
		}
		place := func(at int) *string {
			return &w.in[s.window.blocks[at/graph.BlockRows-s.window.from]][at%graph.BlockRows]
		}
		for at := s.cached; at < len(all); at++ {
			if seen := *place(at); seen != "" && windows.of[s.window.blocks[at/graph.BlockRows-s.window.from]].behind != 0 {
				w.Fatal("a sequence writes to a block that is known")
			}
			*place(at) = fmt.Sprint(all[:at+1])
		}
		for at := max(0, s.cached-windows.size+1); at < len(all); at++ {
			if *place(at) != fmt.Sprint(all[:at+1]) {
				w.Fatalf("at %d of %d tokens there is another text", at, len(all))
			}
		}
		right := w.r.IntN(len(guesses) + 1)
		if s.cached+n == len(s.tokens) {
			s.tokens = append(append(s.tokens, guesses[:right]...), 100)
		}
		s.cached += n + right
		w.e.blocks.register(s)
		if w.r.IntN(30) == 0 && s.alone {
			s.cached = 0
			windows.rewind(s)
		}
	}
}

func (w *windowWalk) ends(k int) {
	w.e.blocks.release(w.active[k])
	w.active = slices.Delete(w.active, k, k+1)
}

// check looks at every place: those who use it are the sequences, and no more are promised than there are.
func (w *windowWalk) check() {
	windows := w.e.blocks.windows
	users, promised := make([]int, len(windows.of)), 0
	for _, q := range w.active {
		promised += q.promised
		for _, i := range q.window.blocks {
			users[i]++
		}
	}
	if promised != windows.promised || promised > len(windows.of) {
		w.Fatalf("%d blocks of %d are promised, and %d to sequences", windows.promised, len(windows.of), promised)
	}
	idle := 0
	for i, p := range windows.of {
		if p.users != users[i] {
			w.Fatalf("place %d has %d users, not %d", i, p.users, users[i])
		}
		if p.users == 0 {
			idle++
		}
	}
	if idle != len(windows.free)+windows.idle.Len() {
		w.Fatalf("%d places are used by nobody, and %d can be taken", idle, len(windows.free)+windows.idle.Len())
	}
	for serial, i := range windows.held {
		if windows.of[i].behind != serial {
			w.Fatalf("place %d is known as another block", i)
		}
	}
}

// TestWindowsAreOfTheirText: whatever sequences come, share a beginning, guess, begin again and go, each row finds what
// its window sees, a sequence has no more blocks than it was promised, and none is lost.
func TestWindowsAreOfTheirText(t *testing.T) {
	begun, waited := 0, 0
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 5))
		size, rows, sequences := 1+r.IntN(70), 1+r.IntN(40), 1+r.IntN(4)
		const blocks = 20
		w := &windowWalk{T: t, e: &Engine{blocks: newBlocks(blocks * sequences)}, r: r}
		w.e.blocks.windows = newWindows(size, rows, sequences, blocks)
		w.in = make([][graph.BlockRows]string, len(w.e.blocks.windows.of))
		for k := range 4 {
			w.prompts = append(w.prompts, text(20+30*k, seed))
		}
		for range 120 {
			if w.r.IntN(3) == 0 {
				w.begins()
				w.check()
			}
			w.pass(rows)
			w.check()
			for k := len(w.active) - 1; k >= 0; k-- {
				if s := w.active[k]; len(s.tokens) >= s.most || w.r.IntN(25) == 0 {
					w.ends(k)
				}
			}
			w.check()
		}
		begun, waited = begun+w.begun, waited+w.waited
	}
	if begun < 50 || waited < 50 {
		t.Errorf("%d sequences began behind others, and %d waited", begun, waited)
	}
}
