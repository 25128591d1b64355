package generate

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
)

// text returns n tokens that begin with those of another text.
func text(n int, seed uint64, begin ...int) []int {
	rng := rand.New(rand.NewPCG(seed, 1))
	list := slices.Clone(begin)
	for len(list) < n {
		list = append(list, rng.IntN(100))
	}
	return list[:n]
}

func admitted(t *testing.T, b *blocks, tokens []int, most int) *sequence {
	t.Helper()
	s := &sequence{tokens: tokens, most: most}
	if !b.admit(s) {
		t.Fatalf("no room for %d tokens in %d free blocks", most, b.free())
	}
	b.extend(s, graph.Blocks(most))
	return s
}

// computed makes all tokens of a sequence cached, as passes do.
func (s *sequence) computed(b *blocks) {
	s.cached = len(s.tokens)
	b.register(s)
}

// TestBlocksAreShared: a sequence finds the blocks of its beginning, and never that of its last token.
func TestBlocksAreShared(t *testing.T) {
	const n = graph.BlockRows
	b := newBlocks(20)
	one := admitted(t, b, text(5*n, 1), 6*n)
	one.computed(b)
	same := admitted(t, b, slices.Clone(one.tokens), 6*n)
	if same.cached != 4*n || !slices.Equal(same.table[:4], one.table[:4]) || same.table[4] == one.table[4] {
		t.Errorf("%d tokens are there, in blocks %v; the first has %v", same.cached, same.table, one.table)
	}
	other := admitted(t, b, text(5*n, 2, one.tokens[:2*n+3]...), 5*n)
	if other.cached != 2*n || !slices.Equal(other.table[:2], one.table[:2]) || slices.Contains(one.table, other.table[2]) {
		t.Errorf("%d tokens are there, in blocks %v; the first has %v", other.cached, other.table, one.table)
	}
	// The same tokens after another beginning are another block.
	moved := admitted(t, b, slices.Concat(text(n, 9), one.tokens[n:3*n]), 3*n)
	if moved.cached != 0 {
		t.Errorf("%d tokens were found after another beginning", moved.cached)
	}
}

// TestBlocksOfTwoAtOnce: of two sequences that compute the same beginning at once one's blocks are known, and what
// follows in the other is found behind them.
func TestBlocksOfTwoAtOnce(t *testing.T) {
	const n = graph.BlockRows
	b := newBlocks(20)
	one := admitted(t, b, text(2*n, 1), 3*n)
	two := admitted(t, b, text(5*n, 2, one.tokens...), 6*n)
	one.computed(b)
	two.computed(b)
	third := admitted(t, b, text(5*n+1, 3, two.tokens...), 6*n)
	if want := slices.Concat(one.table[:2], two.table[2:5]); third.cached != 5*n || !slices.Equal(third.table[:5], want) {
		t.Errorf("%d tokens are there, in blocks %v, want %v", third.cached, third.table, want)
	}
}

// TestBlocksAreKept: what nobody uses is found as long as its place was not wanted, and what was used longest ago goes first.
func TestBlocksAreKept(t *testing.T) {
	const n = graph.BlockRows
	b := newBlocks(6)
	tokens := [][]int{text(3*n, 1), text(3*n, 2)}
	for _, x := range tokens {
		s := admitted(t, b, x, 3*n)
		s.computed(b)
		b.release(s)
	}
	if b.free() != 6 {
		t.Fatalf("%d of 6 blocks are free", b.free())
	}
	third := admitted(t, b, text(2*n, 3), 2*n)
	third.computed(b)
	b.release(third)
	// The first text lost its last two blocks, the second has all.
	if got := len(b.shared(0, 0, tokens[0])); got != 1 {
		t.Errorf("%d blocks of the text that was used longest ago are there, want its beginning", got)
	}
	if got := len(b.shared(0, 0, tokens[1])); got != 2 {
		t.Errorf("%d blocks of the later text are there, want 2", got)
	}
}

// TestBlocksOfUsers: blocks that a sequence uses are nobody else's to take, and one that finds its beginning in free blocks
// does not count those as room.
func TestBlocksOfUsers(t *testing.T) {
	const n = graph.BlockRows
	b := newBlocks(4)
	first := admitted(t, b, text(3*n, 1), 3*n)
	first.computed(b)
	if b.admit(&sequence{tokens: text(2*n, 2), most: 2 * n}) {
		t.Error("two blocks were found where one is free")
	}
	b.release(first)
	if b.admit(&sequence{tokens: first.tokens, most: 5 * n}) {
		t.Error("five blocks were found of four")
	}
	if s := admitted(t, b, first.tokens, 4*n); s.cached != 2*n || b.free() != 0 {
		t.Errorf("%d tokens are there, and %d blocks are free", s.cached, b.free())
	}
}

// TestRandomBlocks: whatever comes and goes, no two sequences write to one block, and a shared block holds what its sharers
// have there.
func TestRandomBlocks(t *testing.T) {
	const n = graph.BlockRows
	rng := rand.New(rand.NewPCG(5, 5))
	b := newBlocks(24)
	holds := make([][]int, 24) // the tokens up to the end of each block, as they were computed
	var running []*sequence
	for range 3000 {
		if len(running) > 0 && rng.IntN(2) == 0 {
			i := rng.IntN(len(running))
			b.release(running[i])
			running = slices.Delete(running, i, i+1)
			continue
		}
		tokens := text(1+rng.IntN(6*n), uint64(rng.IntN(3)), text(rng.IntN(3)*n, 7)...)
		s := &sequence{tokens: tokens, most: len(tokens) + rng.IntN(n)}
		if !b.admit(s) {
			continue
		}
		b.extend(s, graph.Blocks(s.most))
		for k := range s.cached / n {
			if !slices.Equal(holds[s.table[k]], tokens[:(k+1)*n]) {
				t.Fatalf("block %d of a sequence holds other tokens", k)
			}
		}
		for k := s.cached / n; k < len(s.table); k++ {
			for _, other := range running {
				if slices.Contains(other.table, s.table[k]) {
					t.Fatalf("a block that is written to is another sequence's")
				}
			}
			holds[s.table[k]] = slices.Clone(tokens[:min((k+1)*n, len(tokens))])
		}
		s.computed(b)
		running = append(running, s)
	}
}

// TestBlocksOfNobody: a block that nobody can find is taken before one that another text may begin with.
func TestBlocksOfNobody(t *testing.T) {
	const n = graph.BlockRows
	b := newBlocks(3)
	s, half := admitted(t, b, text(2*n+1, 1), 2*n), admitted(t, b, text(3, 3), 3)
	s.computed(b)
	half.computed(b)
	b.release(s)
	b.release(half)
	if other := admitted(t, b, text(3, 2), 3); other.table[0] != 2 || len(b.shared(0, 0, s.tokens)) != 2 {
		t.Errorf("took block %d; %d blocks of the text before are left", other.table[0], len(b.shared(0, 0, s.tokens)))
	}
}

// TestBlocksHalfComputed: what is not in the caches yet is shared with nobody.
func TestBlocksHalfComputed(t *testing.T) {
	const n = graph.BlockRows
	b := newBlocks(6)
	s := admitted(t, b, text(3*n, 1), 3*n)
	s.cached = n + 3
	b.register(s)
	if got := len(b.shared(0, 0, s.tokens)); got != 1 {
		t.Errorf("%d blocks can be shared where one is computed", got)
	}
}

// TestBlocksArePromised: a sequence takes its blocks as it needs them, those that were promised are nobody else's, and all are
// there in the end, whoever keeps which.
func TestBlocksArePromised(t *testing.T) {
	const n = graph.BlockRows
	b := newBlocks(8)
	held := admitted(t, b, text(2*n, 1), 2*n)
	held.computed(b)
	b.release(held)
	s := &sequence{tokens: text(n, 2), most: 7 * n}
	if !b.admit(s) || len(s.table) != 0 || s.table == nil || b.free() != 1 {
		t.Fatalf("a sequence has blocks %v at first, and %d are free", s.table, b.free())
	}
	if other := (&sequence{tokens: text(n, 3), most: 2 * n}); b.admit(other) {
		t.Error("two blocks were found where one is free")
	}
	known := b.known(0, 0, held.tokens)
	if got := b.unpromised(known); len(known) != 2 || got != 1 {
		t.Errorf("%d of %d blocks that nobody uses can be kept, where one is free", got, len(known))
	}
	b.use(known[0])
	if _, ok := b.take(); ok {
		t.Error("a block was taken that was promised")
	}
	for k := 1; k <= 7; k++ {
		if b.extend(s, k); len(s.table) != k || slices.Contains(s.table, known[0]) {
			t.Fatalf("a sequence has blocks %v where it needs %d, and block %d is another's", s.table, k, known[0])
		}
	}
	b.extend(s, 9)
	if b.release(s); b.free() != 7 || b.owed != 0 || len(s.table) != 0 {
		t.Errorf("%d blocks are free in the end, %d owed", b.free(), b.owed)
	}
}

// TestBlocksWithin: blocks that there is memory for are taken first, also where others may begin with them, and then as few
// others as can be; what has no memory is not found.
func TestBlocksWithin(t *testing.T) {
	const n = graph.BlockRows
	b := newBlocks(12)
	b.within(4)
	one := admitted(t, b, text(3*n, 1), 3*n)
	one.computed(b)
	b.release(one)
	two := admitted(t, b, text(4*n, 2), 4*n)
	if top := b.highest(); top != 4 || len(b.known(0, 0, one.tokens)) > 0 {
		t.Errorf("four blocks lie up to %d", top)
	}
	three := admitted(t, b, text(2*n, 3), 2*n)
	if !slices.Equal(three.table, []int{4, 5}) || b.highest() != 6 {
		t.Errorf("two more are %v", three.table)
	}
	b.within(6)
	three.computed(b)
	b.release(two)
	b.release(three)
	if len(b.known(0, 0, three.tokens)) != 2 {
		t.Error("blocks that have memory are not known")
	}
	if b.within(5); len(b.known(0, 0, three.tokens)) != 1 || b.highest() != 0 {
		t.Errorf("%d blocks are known of which one has memory", len(b.known(0, 0, three.tokens)))
	}
}

// TestBlocksLieTogether: where blocks come and go sequences have theirs in as few runs as can be when they are admitted, also once
// others have ended; longer runs are left to longer sequences, and every block can be used.
func TestBlocksLieTogether(t *testing.T) {
	const n = graph.BlockRows
	b := newBlocks(24)
	b.together = true
	begin := func(seed uint64, blocks int) *sequence {
		s := &sequence{tokens: text(n, seed), most: blocks * n}
		if !b.admit(s) {
			t.Fatalf("no room for %d blocks in %d", blocks, b.free())
		}
		return s
	}
	check := func(s *sequence, want ...int) {
		t.Helper()
		if !slices.Equal(s.table, want) || s.owed != 0 || b.owed != 0 {
			t.Errorf("a sequence has blocks %v of %v, and %d are owed", s.table, want, b.owed)
		}
	}
	var list []*sequence
	for i, blocks := range []int{6, 2, 6, 4, 6} {
		list = append(list, begin(uint64(i), blocks))
	}
	check(list[2], 8, 9, 10, 11, 12, 13)
	b.release(list[0])
	b.release(list[3])
	if free := b.free(); free != 10 {
		t.Errorf("%d blocks are free", free)
	}
	check(begin(7, 3), 14, 15, 16)
	check(begin(8, 5), 0, 1, 2, 3, 4)
	check(begin(9, 2), 5, 17)
	if b.free() != 0 || b.admit(&sequence{tokens: text(n, 10), most: n}) {
		t.Errorf("%d blocks are free", b.free())
	}
	// A beginning that is known is shared, and the rest lies together.
	long := list[4]
	long.tokens = text(6*n, 4)
	long.computed(b)
	b.release(list[2])
	same := &sequence{tokens: slices.Clone(long.tokens), most: 8 * n}
	if !b.admit(same) {
		t.Fatal("no room")
	}
	check(same, 18, 19, 20, 21, 22, 8, 9, 10)
}
