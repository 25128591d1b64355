package generate

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
)

// Branches: a pass may verify more than one guess of what follows. The first guess and the others are a tree: what two
// have in common is one row. Each further guess is a branch, whose text lies in blocks of its own from the one on that
// the first guess lies in. The beginning of that block is copied, and the rows that a branch has in common with others,
// the one before all guesses among them, are written to its blocks, too ([models.StepMirrors]), so that a row of a
// branch finds what it would find without the others. The branch that the model's own choice follows furthest gives its
// blocks to the sequence, and takes the sequence's.

// MostBranches is the largest [Options.Branches].
const MostBranches = 8

const (
	// branchTokens are the tokens of a branch at most, so that it lies in branchBlocks blocks.
	branchTokens = graph.BlockRows - 1
	branchBlocks = 2
	// luck is how likely a branch is held for right, where the guess before it is wrong, before any was looked at.
	luck = 0.3
	// branchSteps is how many occurrences of an ending are looked at.
	branchSteps = 16
)

// A branch is another guess of what follows a sequence.
type branch struct {
	guesses []int
	// The first guesses, so many as shared says, are also those of the path that it parts from: of the first guess, which
	// is number 0, or of a branch before it.
	parent, shared int
	// blocks are its own, which stand for those of the sequence from one on.
	blocks []int
	from   int
}

// rows is how many rows a branch has in a pass.
func (b *branch) rows() int { return len(b.guesses) - b.shared }

// branching is what an engine has for branches.
type branching struct {
	// most is how many guesses a sequence has at most in a pass, spare are the blocks of the branches of a pass.
	most  int
	spare []int
	// grown is how many branches became the text: that parted at the first guess, and behind it.
	grown [2]int
	// caches are those that a block is copied in.
	caches []keptCache
	room   []byte
}

// spareBlocks is how many blocks the branches of a pass have.
func (o *Options) spareBlocks() int {
	if o.Speculate == NoSpeculation {
		return 0
	}
	return max(o.Branches-1, 0) * branchBlocks * o.Sequences
}

// mirrors is how many branches a row may be shared with.
func (o *Options) mirrors() int {
	if o.spareBlocks() == 0 {
		return 0
	}
	return o.Branches - 1
}

// checkBranches refuses what cannot be.
func (o *Options) checkBranches(model *models.Model) error {
	_, recurrent := model.Keeps()
	switch {
	case o.Branches < 0 || o.Branches > MostBranches:
		return &RequestError{"Branches", fmt.Sprintf("%d: 1 to %d are possible", o.Branches, MostBranches)}
	case o.Branches < 2:
		return nil
	case recurrent:
		return &RequestError{"Branches", "are several, and the model keeps states, of which there is one behind each token"}
	case model.Window() > 0:
		return &RequestError{"Branches", "are several, and the model has layers with a window, which keep one text"}
	}
	return nil
}

// openBranches takes the blocks of branches, and finds out which caches there are.
func (e *Engine) openBranches(ctx context.Context) error {
	b := &e.branching
	if b.most = e.opts.Branches; b.most < 2 || e.ahead.limit == 0 {
		b.most = 1
		return nil
	}
	for range e.opts.spareBlocks() {
		i, _ := e.blocks.take() // there is one for each
		b.spare = append(b.spare, i)
	}
	g, err := e.model.GraphContext(ctx, e.shapes(1, 1), nil)
	if err != nil {
		return err
	}
	source := make(map[graph.ValueID]bool) // caches of sources, which no step writes to, have other blocks
	for _, written := range []bool{false, true} {
		for i := range g.Ops {
			if op := &g.Ops[i]; op.Kind == "attend" && written == (op.In[1].Value != graph.NoValue) {
				source[op.In[3].Value], source[op.In[4].Value] = !written, !written
			}
		}
	}
	most := 0
	for i := range g.Values {
		if v := &g.Values[i]; v.Role == graph.Cache && !source[graph.ValueID(i)] {
			bytes := int(v.Bytes()/int64(v.Shape[0])) * graph.BlockRows
			b.caches = append(b.caches, keptCache{v.Name, bytes})
			most = max(most, bytes)
		}
	}
	b.room = make([]byte, most)
	return nil
}

// branch adds branches to the parts of a pass, in turn, as many as are worth it: those of which the rows are there
// anyway, as a pass has as many as [bucket] says, and more where the forecast says so. Each lies in two of the blocks.
func (e *Engine) branch(ctx context.Context, parts []part, spare []int) error {
	b := &e.branching
	if b.most < 2 {
		return nil
	}
	rows, tokens := 0, tokensWith(parts, mostAhead, e.trees())
	for i := range parts {
		rows += parts[i].logitRows()
	}
	seconds, err := e.expect(ctx, bucket(rows))
	if err != nil || seconds <= 0 {
		return err
	}
	for k := 1; k < b.most; k++ {
		for i := range parts {
			p := &parts[i]
			if len(spare) < branchBlocks || len(p.guesses) == 0 || len(p.branches) != k-1 {
				continue
			}
			x, hoped := e.other(p, rows)
			if x.rows() == 0 {
				continue
			}
			longer, err := e.expect(ctx, bucket(rows+x.rows()))
			if err != nil {
				return err
			}
			if longer < 0 || e.ahead.auto && (tokens+hoped)/longer < tokens/seconds {
				continue
			}
			x.blocks, spare = spare[:branchBlocks:branchBlocks], spare[branchBlocks:]
			p.branches = append(p.branches, x)
			rows, tokens, seconds = rows+x.rows(), tokens+hoped, longer
		}
	}
	return nil
}

// other returns the branch of which most tokens are hoped for that a part does not have, and how many those are; one
// without rows where there is none. The pass has so many rows already.
func (e *Engine) other(p *part, rows int) (best branch, hoped float64) {
	s := p.s
	if e.draft != nil {
		s.history.guess(s.tokens, 1) // it has to see the text
	}
	// No branch has tokens beyond the last.
	most := min(branchTokens, e.ahead.limit, s.most-len(s.tokens)-1)
	if e.restarts && len(s.tokens) <= e.stretch {
		most = min(most, e.stretch-len(s.tokens)) // beyond that all is read again
	}
	most = max(most, 0)
	for tokens := range s.history.occurrences(s.tokens) {
		x := p.branch(tokens[:min(most, len(tokens))])
		// Nor has it more rows than there is room for.
		if n := min(x.rows(), e.ahead.rows-rows); n > 0 {
			x.guesses = x.guesses[:x.shared+n]
			if likely := p.reached(x.parent, x.shared) * (1 - s.hope) * s.luck[x.inner()] * chain(s.hope, n); likely > hoped {
				best, hoped = x, likely
			}
		}
	}
	return best, hoped
}

// chain is how many of n guesses are right of which the first is, and each that follows is as likely.
func chain(likely float64, n int) float64 {
	sum, x := 0.0, 1.0
	for range n {
		sum += x
		x *= likely
	}
	return sum
}

// inner is 0 of a branch that parts at the first guess, and 1 of others: how often they are right differs.
func (b *branch) inner() int { return min(b.shared, 1) }

// path returns the guesses of a path: of the first, which is number 0, or of a branch.
func (p *part) path(number int) []int {
	if number == 0 {
		return p.guesses
	}
	return p.branches[number-1].guesses
}

// reached is how likely the first n guesses of a path are held for right.
func (p *part) reached(number, n int) float64 {
	if number == 0 {
		return math.Pow(p.s.hope, float64(n))
	}
	x := &p.branches[number-1]
	if n <= x.shared {
		return p.reached(x.parent, n)
	}
	return p.reached(x.parent, x.shared) * (1 - p.s.hope) * p.s.luck[x.inner()] * math.Pow(p.s.hope, float64(n-x.shared-1))
}

// branch returns a branch of guesses, without blocks: its parent is the path that it has most in common with. It has no
// rows where it is the beginning of a path, or goes on where one ends.
func (p *part) branch(guesses []int) branch {
	x := branch{guesses: guesses, from: len(p.s.tokens) / graph.BlockRows}
	for k := range 1 + len(p.branches) {
		path := p.path(k)
		n := 0
		for n < min(len(path), len(guesses)) && path[n] == guesses[n] {
			n++
		}
		if n == min(len(path), len(guesses)) {
			return branch{}
		}
		if n > x.shared {
			x.parent, x.shared = k, n
		}
	}
	return x
}

// occurrences are what followed the endings of a text when they occurred before, the longest and the last ones first.
func (h *history) occurrences(tokens []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for size := min(mostGram, len(tokens)); size >= leastGram; size-- {
			at, ok := h.last[size][gramOf(tokens[len(tokens)-size:])]
			for n := 0; ok && n < branchSteps; n++ {
				if at < len(tokens) && !yield(tokens[at:]) {
					return
				}
				at, ok = h.before[size][at]
			}
		}
	}
}

// copyBeginnings copies the beginnings of branches, which lie in the sequence's blocks.
func (e *Engine) copyBeginnings(ctx context.Context, parts []part) error {
	for i := range parts {
		s := parts[i].s
		for k := range parts[i].branches {
			x := &parts[i].branches[k]
			if s.cached <= x.from*graph.BlockRows { // it begins with what is computed again, or not at all
				continue
			}
			for _, c := range e.branching.caches {
				room := e.branching.room[:c.bytes]
				if err := e.session.ReadCache(ctx, c.name, room, int64(s.table[x.from])*int64(c.bytes)); err != nil {
					return err
				}
				if err := e.session.WriteCache(ctx, c.name, room, int64(x.blocks[0])*int64(c.bytes)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// addBranches adds the rows of a part's branches to a pass, of which its other rows are there, the first as so many
// were there before; and has the rows that branches share written to their blocks.
func (e *Engine) addBranches(p *part, first int) {
	s, in := p.s, &e.pass.in
	next := len(s.tokens) // where the first guess is
	for k := range p.branches {
		x := &p.branches[k]
		if next%graph.BlockRows != 0 {
			in.mirror(first, x.blocks[0])
		}
		for i, shared := range p.rowsOf(k + 1) {
			if i < x.shared {
				in.mirror(first+shared, x.blocks[(next+i)/graph.BlockRows-x.from])
				continue
			}
			in.add(row{s: s, at: next + i, id: x.guesses[i], length: e.lengthFor(s, next+i), branch: x}, true)
		}
	}
}

// rowsOf returns which rows of a part the guesses of a path are: row 0 is the one before all guesses.
func (p *part) rowsOf(number int) []int {
	rows := make([]int, len(p.path(number)))
	shared, begin := 0, 1
	if number > 0 {
		x := &p.branches[number-1]
		shared = copy(rows[:x.shared], p.rowsOf(x.parent))
		begin += len(p.guesses)
		for k := range number - 1 {
			begin += p.branches[k].rows()
		}
	}
	for i := shared; i < len(rows); i++ {
		rows[i] = begin + i - shared
	}
	return rows
}

// A path is a guess that the choice may follow, with the rows of its tokens in the part.
type path struct {
	guesses, rows []int
	branch        *branch
}

// paths returns those of a part, the first guess in front.
func (p *part) paths() []path {
	list := []path{{p.guesses, p.rowsOf(0), nil}}
	for k := range p.branches {
		list = append(list, path{p.branches[k].guesses, p.rowsOf(k + 1), &p.branches[k]})
	}
	return list
}

// logitRows is how many rows of logits a part has.
func (p *part) logitRows() int { return 1 + p.guessed() }

// follow keeps the paths whose token i is id.
func follow(list []path, i, id int) []path {
	return slices.DeleteFunc(list, func(x path) bool { return i >= len(x.guesses) || x.guesses[i] != id })
}

// grow gives a sequence the blocks of a branch that was right, and the branch those of the sequence. What a draft saw
// there is of another text, unless that is copied.
func (s *sequence) grow(x *branch, copied bool) {
	for k := range x.blocks {
		if at := x.from + k; at < len(s.table) {
			s.table[at], x.blocks[k] = x.blocks[k], s.table[at]
		}
	}
	if !copied {
		s.drafted = min(s.drafted, x.from*graph.BlockRows)
	}
}

// guessed is how many tokens are guessed, those that branches share once.
func (p *part) guessed() int {
	n := len(p.guesses)
	for k := range p.branches {
		n += p.branches[k].rows()
	}
	return n
}

// tryLuck tells what became of the branches that part from the first guess at number i of it, where that is wrong:
// right says that one of them goes on.
func (s *sequence) tryLuck(p *part, i int, right bool) {
	for k := range p.branches {
		if x := &p.branches[k]; x.shared != i || x.parent != 0 {
			continue
		}
		luck := &s.luck[min(i, 1)]
		*luck += heed * (oneIf(right) - *luck)
		return
	}
}
