package generate

import (
	"container/list"

	"github.com/optimem/optimem/graph"
)

// blocks are the blocks of the caches: which are free, which hold what.
//
// A block that is full of a sequence's tokens is registered under them and under the block before it, so that another
// sequence that begins with the same tokens finds it. It stays so when nobody uses it any more, until its place is wanted:
// the one that was used longest ago goes first.
type blocks struct {
	of []block
	// held are the registered blocks by what they hold.
	held map[content]int
	// idle are the blocks that no sequence uses, the first to be taken in front.
	idle *list.List
	// serial is that of the block registered last.
	serial uint64
	// states are beside them, nil of a model that keeps none.
	states *states
	// windows are the blocks of caches that have others, nil where all have these.
	windows *windows
	// owed is how many blocks sequences were promised that they have not taken yet.
	owed int
	// now is how many there is memory for, the first ones, which are taken before others; 0 is all.
	now int
	// together has a sequence take all its blocks when it is admitted, in as few runs as can be: where blocks come and go, those of a
	// run do so at once.
	together bool
}

type block struct {
	// users counts the sequences that have it.
	users int
	// serial is what the block is known as to those that follow it, 0 where it is not registered; under is what it holds.
	serial uint64
	under  content
	// idle is its place among the idle ones.
	idle *list.Element
}

// A content is what a block holds: so many tokens, after the block or the source with a serial number, 0 for neither,
// as an adapter sees them.
type content struct {
	after   uint64
	adapter int64
	tokens  [graph.BlockRows]int32
}

func newBlocks(n int) *blocks {
	b := &blocks{of: make([]block, n), held: make(map[content]int), idle: list.New()}
	for i := range b.of {
		b.of[i].idle = b.idle.PushBack(i)
	}
	return b
}

// free is how many blocks can be taken beside those that were promised.
func (b *blocks) free() int { return b.idle.Len() - b.owed }

func contentOf(after uint64, adapter int64, tokens []int) content {
	c := content{after: after, adapter: adapter}
	for i := range c.tokens {
		c.tokens[i] = int32(tokens[i])
	}
	return c
}

// shared returns the registered blocks that hold the beginning of tokens under an adapter and after a source, all but
// the last of them at most: what comes after that one is yet to be computed.
func (b *blocks) shared(root uint64, adapter int64, tokens []int) []int {
	return b.known(root, adapter, tokens[:max(len(tokens)-1, 0)])
}

// known returns the registered blocks that hold the beginning of tokens under an adapter and after a source.
func (b *blocks) known(root uint64, adapter int64, tokens []int) []int {
	var table []int
	after := root
	for at := 0; at+graph.BlockRows <= len(tokens); at += graph.BlockRows {
		i, ok := b.held[contentOf(after, adapter, tokens[at:])]
		if !ok {
			break
		}
		table, after = append(table, i), b.of[i].serial
	}
	return table
}

// admit gives a sequence the blocks that it shares, and promises it new ones for the rest, which it takes as it needs them:
// see [blocks.extend]. It reports whether there were enough.
func (b *blocks) admit(s *sequence) bool {
	var table []int
	if !s.alone {
		table = b.shared(s.root, s.adapter, s.tokens)
	}
	known := table
	table = table[:b.cut(table)]
	want := graph.Blocks(s.most)
	available := b.free()
	for _, i := range table {
		if b.of[i].users == 0 { // it is among the free ones
			available--
		}
	}
	if want-len(table) > available {
		return false
	}
	s.registered, s.cached = len(table), len(table)*graph.BlockRows
	if b.windows != nil && !b.windows.promise(s, b.windows.needs(s, s.cached)) {
		return false
	}
	s.shared, s.after = s.cached, s.root
	if len(table) > 0 {
		s.after = b.of[table[len(table)-1]].serial
	}
	if b.states != nil {
		b.states.begin(b, s, table, known)
	}
	if b.windows != nil {
		b.windows.begin(b, s, table)
	}
	for _, i := range table {
		b.use(i)
	}
	s.table = append(make([]int, 0, want), table...)
	s.owed = want - len(table)
	b.owed += s.owed
	if b.together {
		b.gather(s)
	}
	return true
}

// cut returns behind how many of registered blocks that follow each other a sequence can begin: all, unless that needs
// a state that was not kept, or blocks of windows that are another's by now.
func (b *blocks) cut(table []int) int {
	if b.states == nil && b.windows == nil {
		return len(table)
	}
	n, missing := 0, -1
	for i, block := range table {
		serial, there := b.of[block].serial, true
		if b.windows != nil {
			if _, held := b.windows.held[serial]; !held {
				missing = i
			}
			there = missing < windowBegins((i+1)*graph.BlockRows, b.windows.size)
		}
		if b.states != nil && there {
			_, there = b.states.held[serial]
		}
		if there {
			n = i + 1
		}
	}
	return n
}

// extend gives a sequence the blocks up to so many of those that it was promised.
func (b *blocks) extend(s *sequence, end int) {
	for len(s.table) < end && s.owed > 0 {
		s.table = append(s.table, b.next())
		s.owed--
		b.owed--
	}
}

// take returns the block that nobody used for longest, for who writes to it; false where all are in use, or promised.
func (b *blocks) take() (int, bool) {
	if b.free() <= 0 {
		return 0, false
	}
	return b.next(), true
}

// next is take where there is one: among those that there is memory for, else the one that takes the least more.
func (b *blocks) next() int {
	at := b.idle.Front()
	for x := at; b.now > 0 && x != nil; x = x.Next() {
		if i := x.Value.(int); i < b.now {
			at = x
			break
		} else if i < at.Value.(int) {
			at = x
		}
	}
	return b.claim(at.Value.(int))
}

// claim takes an idle block, for who writes to it.
func (b *blocks) claim(i int) int {
	b.use(i)
	b.forget(i)
	return i
}

// gather gives a sequence all blocks that it was promised: those of the shortest run of idle ones that has as many, or else of the
// longest ones.
func (b *blocks) gather(s *sequence) {
	for s.owed > 0 {
		first, length := 0, 0
		for i := 0; i < len(b.of); i++ {
			end := i
			for end < len(b.of) && b.of[end].idle != nil {
				end++
			}
			if n := end - i; length < s.owed && n > length || n >= s.owed && n < length {
				first, length = i, n
			}
			i = end
		}
		for i := range min(length, s.owed) {
			s.table = append(s.table, b.claim(first+i))
			s.owed--
			b.owed--
		}
	}
}

// highest is behind the last block that somebody uses.
func (b *blocks) highest() int {
	for i := len(b.of); i > 0; i-- {
		if b.of[i-1].users > 0 {
			return i
		}
	}
	return 0
}

// within has only so many blocks have memory, the first ones: those that nobody uses behind them are not known any more.
func (b *blocks) within(now int) {
	for i := now; i < len(b.of); i++ {
		b.forget(i)
	}
	b.now = now
}

// unpromised is how many of some blocks that follow each other can be used, from the first on, without one that was promised.
func (b *blocks) unpromised(table []int) int {
	left := b.free()
	for n, i := range table {
		if b.of[i].users > 0 {
			continue
		}
		if left--; left < 0 {
			return n
		}
	}
	return len(table)
}

func (b *blocks) use(i int) {
	x := &b.of[i]
	if x.users++; x.idle != nil {
		b.idle.Remove(x.idle)
		x.idle = nil
	}
}

// forget takes a block from the registered ones. Those that follow it cannot be found any more, and go when they are the
// oldest.
func (b *blocks) forget(i int) {
	if x := &b.of[i]; x.serial != 0 {
		delete(b.held, x.under)
		if b.states != nil {
			b.states.forget(x.serial)
		}
		if b.windows != nil {
			b.windows.forget(x.serial)
		}
		x.serial = 0
	}
}

// register makes the blocks of a sequence known that have become full. Where another sequence was there first, its
// block is the one that is known, also of those that follow.
func (b *blocks) register(s *sequence) {
	if s.alone {
		return
	}
	for ; (s.registered+1)*graph.BlockRows <= s.cached; s.registered++ {
		at := s.registered
		c := contentOf(s.after, s.adapter, s.tokens[at*graph.BlockRows:])
		i, taken := b.held[c]
		if !taken {
			i = s.table[at]
			b.serial++
			b.of[i].serial, b.of[i].under = b.serial, c
			b.held[c] = i
		}
		s.after = b.of[i].serial
		if b.windows != nil {
			b.windows.remember(s, at, s.after)
		}
	}
}

// release gives the blocks of a sequence back. The last ones are taken first: a beginning is what is shared.
func (b *blocks) release(s *sequence) {
	for k := len(s.table) - 1; k >= 0; k-- {
		i := s.table[k]
		x := &b.of[i]
		if x.users--; x.users > 0 {
			continue
		}
		if x.serial == 0 {
			x.idle = b.idle.PushFront(i)
		} else {
			x.idle = b.idle.PushBack(i)
		}
	}
	if b.states != nil {
		b.states.end(s)
	}
	if b.windows != nil {
		b.windows.end(s)
	}
	b.owed -= s.owed
	s.table, s.owed = nil, 0
}
