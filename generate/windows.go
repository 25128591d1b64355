package generate

import (
	"slices"

	"github.com/optimem/optimem/graph"
)

// Modules that see no more than a window of positions have caches of their own, in which a sequence has no more blocks
// than its next rows see and lie in: those that it has left behind are given back as it goes on. How many that are at
// most is promised to it before it begins, so that there is always one to take.
//
// A block that is full stays known as long as nobody else's place it becomes. A sequence may begin behind the blocks
// of others as far as those that its first row sees are still there.

// windows are the blocks of those caches. They are held and given away as the places for states are: each is known by
// the serial number of the block that has the same tokens.
type windows struct {
	*states
	// size is how many positions a row sees.
	size int
	// most is how many blocks a sequence has at most, promised how many the sequences may take that there are.
	most, promised int
}

// newWindows returns blocks for so many sequences, whose rows see size positions, and of which a pass has so many rows
// at most. Sequences have no more than perSequence blocks.
func newWindows(size, rows, sequences, perSequence int) *windows {
	most := min(graph.Blocks(size+rows-2)+1, perSequence) // wherever the first position is in its block
	return &windows{states: newStates(most * sequences), size: size, most: most}
}

// windowBegins returns the first block that is seen behind so many tokens with a window of a size.
func windowBegins(tokens, size int) int { return max(0, tokens-size+1) / graph.BlockRows }

// promise has a sequence take so many blocks at most from now on, and reports whether there are enough.
func (w *windows) promise(s *sequence, blocks int) bool {
	if w.promised+blocks > len(w.of) {
		return false
	}
	w.promised += blocks
	s.promised = blocks
	return true
}

// needs is how many blocks a sequence needs at once that begins behind so many tokens.
func (w *windows) needs(s *sequence, tokens int) int {
	return min(w.most, graph.Blocks(s.most)-windowBegins(tokens, w.size))
}

// A view is the blocks that a sequence has in caches of windows: those from one on.
type view struct {
	blocks []int
	from   int
}

// begin gives a sequence the blocks that are seen behind those in table, which are there.
func (w *windows) begin(b *blocks, s *sequence, table []int) {
	v := &s.window
	v.from = windowBegins(len(table)*graph.BlockRows, w.size)
	for _, i := range table[v.from:] {
		place := w.held[b.of[i].serial]
		w.use(place)
		v.blocks = append(v.blocks, place)
	}
}

// slide gives back the blocks that a sequence has left behind, and gives it those that so many rows more lie in.
func (w *windows) slide(s *sequence, rows int) {
	w.move(&s.window, windowBegins(s.cached, w.size), graph.Blocks(s.cached+rows))
}

// extend gives a sequence new blocks up to one.
func (w *windows) extend(s *sequence, end int) { w.move(&s.window, s.window.from, end) }

// move has a view go from one block to before another: those before are given back, and new ones taken.
func (w *windows) move(v *view, first, end int) {
	behind := min(first-v.from, len(v.blocks))
	for _, place := range v.blocks[:behind] {
		w.drop(place)
	}
	v.blocks = append(v.blocks[:0], v.blocks[behind:]...)
	for v.from += behind; v.from+len(v.blocks) < end; {
		place, ok := w.take()
		if !ok {
			panic("BUG: a sequence takes more blocks than there are for windows")
		}
		v.blocks = append(v.blocks, place)
	}
}

// remember makes a sequence's block known as that with the tokens of the block with a serial number.
func (w *windows) remember(s *sequence, block int, serial uint64) {
	if at := block - s.window.from; at >= 0 && at < len(s.window.blocks) {
		w.keep(serial, s.window.blocks[at])
	}
}

// rewind has a sequence begin again.
func (w *windows) rewind(s *sequence) { w.leave(&s.window) }

// leave gives back all blocks of a view.
func (w *windows) leave(v *view) {
	for _, place := range slices.Backward(v.blocks) {
		w.drop(place)
	}
	v.blocks, v.from = v.blocks[:0], 0
}

// end takes everything from a sequence.
func (w *windows) end(s *sequence) {
	w.rewind(s)
	w.promised -= s.promised
	s.promised = 0
}
