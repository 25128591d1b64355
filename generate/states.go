package generate

import (
	"container/list"

	"github.com/optimem/optimem/graph"
)

// States of sequences, of models that keep some beside or in place of keys and values. A state is of all tokens up to
// one, and cannot be cut: a beginning that another sequence has, too, is of use only where the state behind it was
// kept. It is at the end of what was written last, and at the last block of a prompt, and where a second prompt parted
// from another.

// states are the places for states: who uses which, and what is kept in them.
type states struct {
	of   []place
	free []int
	// held are the places of the states that are kept, by the serial numbers of the blocks that they are behind.
	held map[uint64]int
	// idle are those that are kept and that nobody uses, the one to be taken first in front.
	idle *list.List
}

// A place holds a state. One of which behind is not 0 is kept as the state behind that block.
type place struct {
	users  int
	behind uint64
	idle   *list.Element
}

func newStates(n int) *states {
	s := &states{of: make([]place, n), held: make(map[uint64]int), idle: list.New()}
	for i := n - 1; i >= 0; i-- {
		s.free = append(s.free, i)
	}
	return s
}

// take returns a place for who writes to it, the oldest that is kept where none is free; false where all are in use.
func (s *states) take() (int, bool) {
	if len(s.free) == 0 {
		oldest := s.idle.Front()
		if oldest == nil {
			return 0, false
		}
		s.forget(s.of[oldest.Value.(int)].behind)
	}
	i := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.of[i].users = 1
	return i, true
}

func (s *states) use(i int) {
	p := &s.of[i]
	if p.users++; p.idle != nil {
		s.idle.Remove(p.idle)
		p.idle = nil
	}
}

// drop says that one fewer uses a place, none for a negative one.
func (s *states) drop(i int) {
	if i < 0 {
		return
	}
	p := &s.of[i]
	if p.users--; p.users > 0 {
		return
	}
	if p.behind == 0 {
		s.free = append(s.free, i)
	} else {
		p.idle = s.idle.PushBack(i)
	}
}

// keep makes known that a place in use has the state behind a block. It reports whether it does: there may be one
// already.
func (s *states) keep(behind uint64, i int) bool {
	if _, known := s.held[behind]; known || behind == 0 || s.of[i].behind != 0 {
		return false
	}
	s.held[behind], s.of[i].behind = i, behind
	return true
}

// forget says that nobody looks for the state behind a block any more.
func (s *states) forget(behind uint64) {
	i, known := s.held[behind]
	if !known {
		return
	}
	delete(s.held, behind)
	p := &s.of[i]
	if p.behind = 0; p.idle != nil {
		s.idle.Remove(p.idle)
		p.idle = nil
		s.free = append(s.free, i)
	}
}

// noState is the state of a sequence that has not begun.
const noState = -1

// A saving is a row of a part, counted from its first, behind which the state is written to a place. It is the part's
// to drop.
type saving struct{ row, place int }

// allot finds places for the states that a pass leaves: behind the last row of each part and behind each of its
// guesses, of which there are no more than places, and where it is hoped to be of use to others.
func (e *Engine) allot(parts []part) {
	s := e.blocks.states
	if s == nil {
		return
	}
	for k := range parts {
		p := &parts[k]
		if p.to = p.s.state; p.to < 0 || s.of[p.to].users > 1 || s.of[p.to].behind != 0 { // others need it as it is
			p.to, _ = s.take() // there are two for each sequence
		} else {
			s.use(p.to)
		}
		p.saves = p.saves[:0]
		for i := range p.guesses {
			x, ok := s.take()
			if !ok {
				p.guesses = p.guesses[:i]
				break
			}
			p.saves = append(p.saves, saving{p.rows + i, x})
		}
	}
	for k := range parts {
		p := &parts[k]
		for _, at := range p.s.stops {
			if row := at - p.s.cached - 1; row >= 0 && row < p.rows-1 { // behind the last row it is there anyway
				if x, ok := s.take(); ok {
					p.saves = append(p.saves, saving{row, x})
				}
			}
		}
	}
}

// place says where a row of a part finds the state, and where it leaves it.
func (p *part) place(i int) (from, to int64) {
	from, to = graph.StateBefore, graph.StateNone
	if i == 0 {
		if from = int64(p.s.state); p.s.state == noState {
			from = graph.StateNone
		}
	}
	if i == p.rows-1 {
		return from, int64(p.to)
	}
	for _, x := range p.saves {
		if x.row == i {
			to = int64(x.place)
		}
	}
	return from, to
}

// settle takes the states that a pass left of a part, of whose guesses so many were right, once all of its blocks are
// registered.
func (e *Engine) settle(p *part, right int) {
	s := e.blocks.states
	if s == nil {
		return
	}
	q := p.s
	begin := q.cached - right - p.rows
	s.drop(q.state)
	q.state = p.to
	e.mark(q, begin+p.rows, q.state)
	for _, x := range p.saves {
		end := begin + x.row + 1
		switch {
		case x.row < p.rows: // a stop
			s.keep(e.blocks.behind(q, end), x.place)
		case x.row < p.rows+right:
			s.use(x.place)
			s.drop(q.state)
			q.state = x.place
			e.mark(q, end, q.state)
		}
		s.drop(x.place)
	}
	p.saves = p.saves[:0]
}

// abandon gives back the places of a pass that failed.
func (e *Engine) abandon(parts []part) {
	s := e.blocks.states
	if s == nil {
		return
	}
	for k := range parts {
		p := &parts[k]
		s.drop(p.to)
		for _, x := range p.saves {
			s.drop(x.place)
		}
		p.saves = p.saves[:0]
	}
}

// mark keeps the state behind a token of a sequence, if that is the last one of a block, in place of the one marked
// before.
func (e *Engine) mark(q *sequence, end, state int) {
	s := e.blocks.states
	if end%graph.BlockRows != 0 || !s.keep(e.blocks.behind(q, end), state) {
		return
	}
	s.use(state)
	if q.marked >= 0 {
		if at := q.markedAt; !q.stopsAt(at) {
			s.forget(s.of[q.marked].behind)
		}
		s.drop(q.marked)
	}
	q.marked, q.markedAt = state, end
}

// stopsAt reports whether the state behind so many tokens is wanted whatever comes.
func (q *sequence) stopsAt(end int) bool {
	for _, at := range q.stops {
		if at == end {
			return true
		}
	}
	return false
}

// behind returns the serial number of the block that ends with a sequence's token, 0 where it is not known to others.
func (b *blocks) behind(q *sequence, end int) uint64 {
	if q.alone || end == 0 || end%graph.BlockRows != 0 {
		return 0
	}
	table := b.known(q.root, q.adapter, q.tokens[:end])
	if len(table) < end/graph.BlockRows {
		return 0
	}
	return b.of[table[len(table)-1]].serial
}

// begin has a sequence begin behind the blocks in table, with the state that is behind them. Others have the blocks in
// known, too, which it may be worth while to keep one behind.
func (s *states) begin(b *blocks, q *sequence, table, known []int) {
	n := len(table)
	if q.state, q.marked, q.stops = noState, noState, q.stops[:0]; n > 0 {
		q.state = s.held[b.of[table[n-1]].serial]
		s.use(q.state)
	}
	if len(known) > n {
		q.stops = append(q.stops, len(known)*graph.BlockRows)
	}
	if last := (len(q.Prompt) - 1) / graph.BlockRows; last > max(n, len(known)) && !q.alone {
		q.stops = append(q.stops, last*graph.BlockRows)
	}
}

// end has a sequence use no state any more.
func (s *states) end(q *sequence) {
	s.drop(q.state)
	s.drop(q.marked)
	q.state, q.marked = noState, noState
}

// room is for how many states there are places: two for each of the sequences that are written at once, one for each
// guess of a pass, one that is saved or restored, and one more for each sequence that is kept.
func (o *Options) statePlaces(rows int) int {
	most := min(bucket(o.Sequences), rows)
	guesses := 0
	if o.Speculate > 0 {
		guesses = min(o.Speculate*most, mostAhead, rows)
	}
	return 3*most + guesses + 1
}

// statesSpeculation is how many tokens a draft guesses where nothing else is said, of a model whose states are kept for
// each.
const statesSpeculation = 4
