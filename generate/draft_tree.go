package generate

import (
	"cmp"
	"context"
	"slices"

	"github.com/optimem/optimem/graph"
)

// Trees: where a pass may verify several guesses of what follows, a draft guesses a tree, as EAGLE-2 does
// (https://arxiv.org/abs/2406.16858): of each of the best nodes of a level it says what may follow, and the best of that
// are the next level. A node is as good as it is likely that it and all nodes before it are right, by what the draft
// itself says. The best of all are verified, as far as there are rows, and ends for as many guesses as a pass may have.
//
// What the draft sees of a path lies in the blocks of the sequence or in two of those of branches, which hold nothing
// else of the draft's. Where a path parts, what is there of it is copied.

// A node is a token that a draft guesses.
type node struct {
	id int
	// parent is the number of the node before it, -1 of those behind the text, and depth how many nodes its path has.
	parent, depth int
	// likely is how likely its path is right, and drawn says that the draft itself would choose it behind its parent.
	likely float64
	drawn  bool
	// slot is where its path lies: 0 are the sequence's blocks, others are those of tree.slots. gave is the number of
	// what a head gave for its parent.
	slot, gave int
	// kept says that it is verified, and kids how many of its children are.
	kept bool
	kids int
}

// A tree is what a draft guesses of a sequence: levels of nodes, each behind the one before.
type tree struct {
	nodes, found []node
	// level is the first node of the last level.
	level int
	// slots are blocks for paths, in place of those of the sequence from one on.
	slots []branch
	from  int
	// main is the node of which the path lies in the sequence's blocks, -1 for none.
	main int
}

// A forest is what a draft has for trees.
type forest struct {
	// width is how many guesses a tree has at most, 1 where there are chains, and most how many wanted rows a pass has.
	width, most int
	// trees are those of a pass, worth and leaves are room.
	trees  []tree
	worth  []float64
	leaves []leaf
	// caches are those that a block is copied in.
	caches []keptCache
	room   []byte
}

// nodeBytes is what a node takes of the memory, about.
const nodeBytes = 72

// treeBytes is what trees of so many sequences take of the host's memory.
func (g *forest) treeBytes(sequences int) int64 {
	if g.width < 2 {
		return 0
	}
	return int64(sequences) * nodeBytes * int64((mostAhead+g.width)*g.width)
}

// findCaches finds the caches of a draft.
func (g *forest) findCaches(of *graph.Graph) {
	g.caches = g.caches[:0]
	most := 0
	for i := range of.Values {
		if v := &of.Values[i]; v.Role == graph.Cache {
			bytes := int(v.Bytes()/int64(v.Shape[0])) * graph.BlockRows
			g.caches = append(g.caches, keptCache{v.Name, bytes})
			most = max(most, bytes)
		}
	}
	g.room = make([]byte, most)
}

// behindText is the place of the row of a node without others before it, behind a text: of a head that of the last token.
func (d *draft) behindText(s *sequence) int {
	if d.head != nil {
		return len(s.tokens) - 1
	}
	return len(s.tokens)
}

// A leaf is a node of one of some trees.
type leaf struct{ tree, node int }

// trusted is by what the likelihoods of a draft are multiplied: by how many guesses were right for those that were hoped for.
func (s *sequence) trusted() float64 { return min(max(s.right/s.hoped, 0.1), 2) }

// learnDepth tells whether a guess of the tree of a part was right behind i others, and learnTrust how many were.
func (s *sequence) learnDepth(p *part, i int, right bool) {
	if p.hoped > 0 && i < p.could {
		s.deep += heed * (oneIf(right) - s.deep)
	}
}

func (s *sequence) learnTrust(p *part, right int) {
	if p.hoped > 0 {
		s.hoped, s.right = s.hoped+heed*(p.hoped-s.hoped), s.right+heed*(float64(right)-s.right)
	}
}

// trees reports whether the passes of an engine have trees of a draft.
func (e *Engine) trees() bool { return e.draft != nil && e.draft.width > 1 && e.branching.most > 1 }

// guessTrees makes a tree for each part that could have guesses, of which no more than room are wanted.
func (d *draft) guessTrees(ctx context.Context, parts []part, spare []int, room int) error {
	for len(d.trees) < len(parts) {
		d.trees = append(d.trees, tree{})
	}
	for i := range parts {
		t := &d.trees[i]
		t.nodes, t.found, t.level, t.slots, t.main = t.nodes[:0], t.found[:0], 0, t.slots[:0], -1
		t.from = d.behindText(parts[i].s) / graph.BlockRows
		for len(t.slots) < d.width-1 && len(spare) >= branchBlocks {
			t.slots = append(t.slots, branch{blocks: spare[:branchBlocks:branchBlocks], from: t.from})
			spare = spare[branchBlocks:]
		}
	}
	given := 0
	next := func(x leaf, hidden, logits []float32) {
		p, t := &parts[x.tree], &d.trees[x.tree]
		likely, depth := 1.0, 1
		if x.node >= 0 {
			likely, depth = t.nodes[x.node].likely, t.nodes[x.node].depth+1
		}
		if h := d.head; h != nil {
			copy(h.gave[1][given*h.Size:], hidden)
		}
		of, err := p.s.drafter.likeliest(len(p.s.tokens)+depth-1, logits, 1+len(t.slots), p.s.hope)
		if err == nil { // where there are no numbers there is nothing to guess from
			for _, c := range of {
				t.found = append(t.found, node{
					id: c.id, parent: x.node, depth: depth, likely: likely * c.p, drawn: c.drawn, gave: given,
				})
			}
		}
		given++
	}
	if err := d.see(ctx, parts, func(i int, hidden, logits []float32) { next(leaf{i, -1}, hidden, logits) }); err != nil {
		return err
	}
	for {
		for i := range parts {
			d.trees[i].settle()
		}
		if h := d.head; h != nil {
			h.gave[0], h.gave[1] = h.gave[1], h.gave[0]
		}
		given = 0
		level := d.expandable(parts, room)
		if len(level) == 0 {
			return nil
		}
		if err := d.place(ctx, parts, level); err != nil {
			return err
		}
		for len(level) > 0 {
			n := min(len(level), d.most)
			rows := d.ahead[:0]
			for _, x := range level[:n] {
				s, t := parts[x.tree].s, &d.trees[x.tree]
				y := &t.nodes[x.node]
				r := headRow{row: row{s: s, at: d.behindText(s) - 1 + y.depth, id: y.id}, wanted: true}
				if y.slot > 0 {
					r.branch = &t.slots[y.slot-1]
				} else {
					t.main = x.node
				}
				if h := d.head; h != nil {
					r.own = h.gave[0][y.gave*h.Size:][:h.Size]
				}
				rows = append(rows, r)
			}
			d.ahead = rows[:0]
			if err := d.gives(ctx, rows, func(i int, hidden, logits []float32) { next(level[i], hidden, logits) }); err != nil {
				return err
			}
			level = level[n:]
		}
	}
}

// settle makes the best of what was found the next level: as many as there are blocks for.
func (t *tree) settle() {
	slices.SortStableFunc(t.found, func(a, b node) int { return cmp.Compare(b.likely, a.likely) })
	most := 1 + len(t.slots)
	if len(t.found) > 0 && t.found[0].depth > branchTokens { // the first guess alone may be longer than a branch
		most = 1
	}
	t.level = len(t.nodes)
	t.nodes = append(t.nodes, t.found[:min(most, len(t.found))]...)
	t.found = t.found[:0]
}

// expandable are the nodes of the last levels behind which something may be that is among the best so many of all.
func (g *forest) expandable(parts []part, room int) []leaf {
	g.worth = g.worth[:0]
	for i := range parts {
		for k := range g.trees[i].nodes {
			g.worth = append(g.worth, g.trees[i].nodes[k].likely*parts[i].s.trusted())
		}
	}
	least := 0.0
	if len(g.worth) > room {
		slices.Sort(g.worth)
		least = g.worth[len(g.worth)-room]
	}
	level := g.leaves[:0]
	for i := range parts {
		t := &g.trees[i]
		for k := t.level; k < len(t.nodes); k++ {
			x := &t.nodes[k]
			if x.depth >= parts[i].could || x.likely*parts[i].s.trusted() <= least {
				continue
			}
			// Only the path in the sequence's own blocks may be longer than a branch.
			if x.depth < branchTokens || t.behind(x) == 0 && (len(level) == 0 || level[len(level)-1].tree != i) {
				level = append(level, leaf{i, k})
			}
		}
	}
	g.leaves = level
	return level
}

// place finds blocks for the paths of nodes: those of the node before it for one of them, others for others, with a copy.
func (d *draft) place(ctx context.Context, parts []part, level []leaf) error {
	for begin := 0; begin < len(level); {
		i := level[begin].tree
		s, t := parts[i].s, &d.trees[i]
		end := begin
		var taken [MostBranches]bool
		for ; end < len(level) && level[end].tree == i; end++ {
			x := &t.nodes[level[end].node]
			if x.slot = t.behind(x); taken[x.slot] {
				x.slot = -1
			} else {
				taken[x.slot] = true
			}
		}
		for ; begin < end; begin++ {
			x := &t.nodes[level[begin].node]
			if x.slot >= 0 {
				continue
			}
			x.slot = slices.Index(taken[:], false)
			taken[x.slot] = true
			// What is there of the path: up to the node before it.
			for b := t.from; b <= (d.behindText(s)-2+x.depth)/graph.BlockRows; b++ {
				if err := d.copyBlock(ctx, t.block(s, t.behind(x), b), t.block(s, x.slot, b)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// behind is the slot of what a node is behind.
func (t *tree) behind(x *node) int {
	if x.parent < 0 {
		return 0
	}
	return t.nodes[x.parent].slot
}

// block is where block number b of a path lies.
func (t *tree) block(s *sequence, slot, b int) int {
	if slot == 0 {
		return s.table[b]
	}
	return t.slots[slot-1].blocks[b-t.from]
}

// copyBlock copies a block of what a draft has seen.
func (d *draft) copyBlock(ctx context.Context, from, to int) error {
	for _, c := range d.caches {
		room := d.room[:c.bytes]
		if err := d.session.ReadCache(ctx, c.name, room, int64(from)*int64(c.bytes)); err != nil {
			return err
		}
		if err := d.session.WriteCache(ctx, c.name, room, int64(to)*int64(c.bytes)); err != nil {
			return err
		}
	}
	return nil
}

// plant gives the parts of a pass the best nodes of their trees: as many as there is room for, or, where the clock
// decides, as are fastest. It returns the blocks that are left for other branches.
func (e *Engine) plant(ctx context.Context, parts []part, room int) (spare []int, err error) {
	d := e.draft
	spare = e.branching.spare
	best := d.best(parts, room)
	tokens := float64(len(parts))
	n, gain := 0, 0.0
	for k := range len(best) + 1 {
		if k > 0 {
			x := best[k-1]
			tokens += d.trees[x.tree].nodes[x.node].likely * parts[x.tree].s.trusted()
		}
		rows := len(parts) + k
		if k < len(best) && bucket(rows) == bucket(rows+1) { // one more costs nothing
			continue
		}
		seconds, err := e.expect(ctx, bucket(rows))
		if err != nil {
			return nil, err
		}
		if seconds < 0 {
			break
		}
		if g := tokens / seconds; !e.ahead.auto || k == 0 || g > gain {
			n, gain = k, g
		}
	}
	for _, x := range best[n:] {
		d.trees[x.tree].nodes[x.node].kept = false
	}
	for i := range parts {
		p := &parts[i]
		if spare = p.grow(&d.trees[i], spare); d.head == nil && p.could > 0 { // it knows the beginning of the first guess
			p.s.drafted += alike(p.guesses, d.trees[i].path(d.trees[i].main))
		}
		if p.could == 0 && len(d.trees[i].nodes) > 0 { // in vain
			p.s.deep -= heed * p.s.deep
		}
	}
	return spare, nil
}

// best are the best nodes of some trees, no more than room, each behind its parent, and none that would be one guess more
// than a tree may have.
func (g *forest) best(parts []part, room int) []leaf {
	all := g.leaves[:0]
	for i := range parts {
		for k := range g.trees[i].nodes {
			all = append(all, leaf{i, k})
		}
	}
	g.leaves = all
	worth := func(x leaf) float64 { return g.trees[x.tree].nodes[x.node].likely * parts[x.tree].s.trusted() }
	slices.SortStableFunc(all, func(a, b leaf) int { return cmp.Compare(worth(b), worth(a)) })
	best := all[:0]
	var roots, ends [mostAhead]int
	for _, x := range all {
		t := &g.trees[x.tree]
		y, kids := &t.nodes[x.node], &roots[x.tree]
		if y.parent >= 0 {
			if !t.nodes[y.parent].kept {
				continue
			}
			kids = &t.nodes[y.parent].kids
		}
		if more := y.parent < 0 || *kids > 0; more && ends[x.tree] > len(t.slots) {
			continue
		} else if more {
			ends[x.tree]++
		}
		*kids++
		y.kept = true
		if best = append(best, x); len(best) == room {
			break
		}
	}
	return best
}

// grow makes guesses of the nodes that are kept of a part's tree. It returns the blocks that are left.
func (p *part) grow(t *tree, spare []int) []int {
	for k := range t.nodes {
		t.nodes[k].kids = 0
	}
	for k := range t.nodes {
		if x := &t.nodes[k]; x.kept {
			if p.hoped += x.likely; x.parent >= 0 {
				t.nodes[x.parent].kids++
			}
		}
	}
	first := t.first()
	p.guesses = t.path(first)
	for k := range t.nodes {
		if x := &t.nodes[k]; x.kept && x.kids == 0 && k != first {
			b := p.branch(t.path(k))
			b.blocks, spare = spare[:branchBlocks:branchBlocks], spare[branchBlocks:]
			p.branches = append(p.branches, b)
		}
	}
	p.could = p.longest()
	return spare
}

// first is the end of the first guess: what the draft itself would choose, or the likeliest; or the longest, where that is too
// long for a branch. It is -1 where nothing is kept.
func (t *tree) first() int {
	end := -1
	for more := true; more; {
		more = false
		before := end
		for k := range t.nodes {
			if x := &t.nodes[k]; x.kept && x.parent == before && (!more || x.drawn) {
				end, more = k, true
			}
		}
	}
	for k := range t.nodes {
		if x := &t.nodes[k]; x.kept && x.depth > branchTokens && x.depth > t.nodes[end].depth {
			end = k
		}
	}
	return end
}

// alike is how many tokens two lists begin with that are the same.
func alike(a, b []int) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// path are the tokens up to a node.
func (t *tree) path(end int) []int {
	if end < 0 {
		return nil
	}
	path := make([]int, t.nodes[end].depth)
	for ; end >= 0; end = t.nodes[end].parent {
		path[t.nodes[end].depth-1] = t.nodes[end].id
	}
	return path
}
