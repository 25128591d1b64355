package generate

import "github.com/optimem/optimem/graph"

// Of the layers of a draft that see a window, too, a sequence has no more blocks than its next rows see and lie in. They are
// its own: what a draft knows of a sequence it has read itself. What it has seen of guesses that were wrong, or that a branch
// took the place of, is forgotten back to the beginning of a block at most, so that this is where its window is.

// openWindows gives a draft blocks for windows, if its model has some that are shorter than sequences of so many blocks.
func (d *draft) openWindows(size, sequences, perSequence int) {
	if size > 0 && size < perSequence*graph.BlockRows {
		rows := max(d.rows, MostSpeculation) + graph.BlockRows - 1
		d.windows = newWindows(size, rows, bucket(sequences), perSequence)
		d.in.windowed = true
	}
}

// windowBegins returns the first block that a draft needs of a sequence.
func (d *draft) windowBegins(s *sequence) int {
	return windowBegins(s.drafted/graph.BlockRows*graph.BlockRows, d.windows.size)
}

// slide gives back the blocks that a sequence has left behind, and gives it those that so many rows more lie in.
func (d *draft) slide(s *sequence, rows int) {
	if d.windows != nil {
		d.windows.move(&s.draftWindow, d.windowBegins(s), min(graph.Blocks(s.drafted+rows), d.in.width))
	}
}

// rewind has a draft begin again with a sequence if what it needs of it is no longer there.
func (d *draft) rewind(s *sequence) {
	if d.windows != nil && d.windowBegins(s) < s.draftWindow.from {
		d.forget(s)
		s.drafted = 0
	}
}

// forget takes all blocks for windows from a sequence.
func (d *draft) forget(s *sequence) {
	if d.windows != nil {
		d.windows.leave(&s.draftWindow)
	}
}
