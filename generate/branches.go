package generate

import (
	"context"
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
)

// Branches: a pass may verify more than one guess of what follows. Each further one is a branch of the sequence: its
// rows lie in blocks of their own from the one on that the first guess lies in, of which the beginning is copied, and
// the row before the guesses is computed again there, so that a row of a branch finds what it would find without the
// others. The branch that the model's own choice follows furthest gives its blocks to the sequence, and takes the
// sequence's.

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
	// blocks are its own, which stand for those of the sequence from one on; again says that they begin with tokens of the
	// sequence, of which the last row is computed again.
	blocks []int
	from   int
	again  bool
}

// rows is how many rows a branch has in a pass.
func (b *branch) rows() int {
	if b.again {
		return 1 + len(b.guesses)
	}
	return len(b.guesses)
}

// branching is what an engine has for branches.
type branching struct {
	// most is how many guesses a sequence has at most in a pass, spare are the blocks of the branches of a pass.
	most  int
	spare []int
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
// anyway, as a pass has as many as a power of two, and more where the forecast says so.
func (e *Engine) branch(ctx context.Context, parts []part) error {
	b := &e.branching
	if b.most < 2 {
		return nil
	}
	rows, tokens := 0, 0.0
	for i := range parts {
		rows += 1 + len(parts[i].guesses)
	}
	tokens = tokensWith(parts, mostAhead)
	seconds, err := e.expect(ctx, bucket(rows))
	if err != nil || seconds <= 0 {
		return err
	}
	spare := b.spare
	for k := 1; k < b.most; k++ {
		for i := range parts {
			p := &parts[i]
			if len(spare) < branchBlocks || len(p.guesses) == 0 || len(p.branches) < k-1 {
				continue
			}
			if e.draft != nil {
				p.s.history.guess(p.s.tokens, 1) // it has to see the text
			}
			x := p.branch(p.s.history.others(p.s.tokens, p.begins(), branchTokens))
			// No branch has more rows than there is room for, nor tokens beyond the last.
			n := min(len(x.guesses), e.ahead.limit, e.ahead.rows-rows-1, p.s.most-len(p.s.tokens)-1)
			if e.restarts && len(p.s.tokens) <= e.stretch {
				n = min(n, e.stretch-len(p.s.tokens)) // beyond that all is read again
			}
			if n <= 0 {
				continue
			}
			x.guesses = x.guesses[:n]
			hoped := (1 - p.s.hope) * p.s.luck * chain(p.s.hope, n)
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

// chain is how many of n guesses are right of which the first is, and each that follows is as likely.
func chain(likely float64, n int) float64 {
	sum, x := 0.0, 1.0
	for range n {
		sum += x
		x *= likely
	}
	return sum
}

// begins are the first guesses that a part has.
func (p *part) begins() []int {
	list := []int{p.guesses[0]}
	for i := range p.branches {
		list = append(list, p.branches[i].guesses[0])
	}
	return list
}

// branch returns a branch of guesses, without blocks.
func (p *part) branch(guesses []int) branch {
	next := len(p.s.tokens) // where the first guess is
	return branch{guesses: guesses, from: next / graph.BlockRows, again: next%graph.BlockRows != 0}
}

// others returns up to n tokens that followed an ending of a text when it occurred before, and that begin with another
// token than those in not; nil where there are none.
func (h *history) others(tokens []int, not []int, n int) []int {
	for size := min(mostGram, len(tokens)); size >= leastGram; size-- {
		at, ok := h.last[size][gramOf(tokens[len(tokens)-size:])]
		for range branchSteps {
			if !ok {
				break
			}
			if at < len(tokens) && !slices.Contains(not, tokens[at]) {
				return tokens[at:min(at+n, len(tokens))]
			}
			at, ok = h.before[size][at]
		}
	}
	return nil
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

// addBranches adds the rows of a part's branches to a pass.
func (e *Engine) addBranches(p *part) {
	s := p.s
	for k := range p.branches {
		x := &p.branches[k]
		at := len(s.tokens)
		if x.again {
			e.pass.in.add(row{s: s, at: at - 1, id: s.tokens[at-1], length: e.lengthFor(s, at-1), branch: x}, true)
		}
		for i, id := range x.guesses {
			e.pass.in.add(row{s: s, at: at + i, id: id, length: e.lengthFor(s, at+i), branch: x}, true)
		}
	}
}

// A path is a guess that the choice may follow, with the logits behind each of its tokens.
type path struct {
	guesses []int
	logits  []float32
	branch  *branch
}

// paths returns those of a part, the first guess in front, of whose logits the first are those behind the sequence.
func (p *part) paths(logits []float32, vocabulary int) []path {
	list := make([]path, 1, 1+len(p.branches))
	n := (1 + len(p.guesses)) * vocabulary
	list[0] = path{p.guesses, logits[vocabulary:n], nil}
	for k := range p.branches {
		x := &p.branches[k]
		rows := logits[n:][:x.rows()*vocabulary]
		n += len(rows)
		list = append(list, path{x.guesses, rows[(x.rows()-len(x.guesses))*vocabulary:], x})
	}
	return list
}

// logitRows is how many rows of logits a part has.
func (p *part) logitRows() int {
	n := 1 + len(p.guesses)
	for k := range p.branches {
		n += p.branches[k].rows()
	}
	return n
}

// follow keeps the paths whose token i is id.
func follow(list []path, i, id int) []path {
	return slices.DeleteFunc(list, func(x path) bool { return i >= len(x.guesses) || x.guesses[i] != id })
}

// grow gives a sequence the blocks of a branch that was right, and the branch those of the sequence. What a draft saw
// there is of another text.
func (s *sequence) grow(x *branch) {
	for k := range x.blocks {
		if at := x.from + k; at < len(s.table) {
			s.table[at], x.blocks[k] = x.blocks[k], s.table[at]
		}
	}
	s.drafted = min(s.drafted, x.from*graph.BlockRows)
}

// guessed is how many tokens are guessed.
func (p *part) guessed() int {
	n := len(p.guesses)
	for k := range p.branches {
		n += len(p.branches[k].guesses)
	}
	return n
}

// tryLuck tells whether a branch was right where the first guess was wrong.
func (s *sequence) tryLuck(right bool) {
	x := 0.0
	if right {
		x = 1
	}
	s.luck += heed * (x - s.luck)
}
