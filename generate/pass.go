package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// loop runs passes as long as there is something to write.
func (e *Engine) loop() {
	defer close(e.done)
	defer func() {
		for _, s := range append(e.running, e.waiting...) {
			s.end("", ErrClosed)
		}
	}()
	if e.remote != nil {
		e.loopRemote()
		return
	}
	for {
		if !e.gather() {
			return
		}
		e.admit()
		if len(e.running) == 0 {
			continue
		}
		if err := e.step(e.stopped); err != nil {
			if e.stopped.Err() != nil {
				return
			}
			// The pass belonged to all of them.
			for _, s := range e.running {
				e.release(s)
				s.end("", err)
			}
			e.running = e.running[:0]
		}
	}
}

// gather takes the requests that have come, waits for one where there is nothing to do, and drops those that were
// cancelled. It reports whether the engine goes on.
func (e *Engine) gather() bool {
	for {
		idle := len(e.running)+len(e.waiting) == 0
		if stuck := len(e.running) == 0 && e.pinned > 0; idle || stuck {
			e.count(0, 0, 0)
			var again <-chan time.Time
			if !idle { // who waits for blocks that are pinned may go away
				again = time.After(20 * time.Millisecond)
			}
			select {
			case s := <-e.requests:
				e.enter(s)
			case task := <-e.tasks:
				task()
			case <-again:
			case <-e.stopped.Done():
				return false
			}
		}
		for more := true; more; {
			select {
			case s := <-e.requests:
				e.enter(s)
			case task := <-e.tasks:
				task()
				more = idle // who writes goes on after each
			case <-e.stopped.Done():
				return false
			default:
				more = false
			}
		}
		e.waiting = e.alive(e.waiting)
		e.running = e.alive(e.running)
		if len(e.running)+len(e.waiting) > 0 {
			return true
		}
	}
}

// alive drops the sequences whose callers went away.
func (e *Engine) alive(list []*sequence) []*sequence {
	kept := list[:0]
	for _, s := range list {
		if s.ctx.Err() == nil || s.flying { // what is under way is still written to its blocks
			kept = append(kept, s)
			continue
		}
		if s.table != nil {
			e.release(s)
		}
		s.end(FinishCancelled, context.Cause(s.ctx))
	}
	clear(list[len(kept):])
	return kept
}

// enter has a request wait, behind those that came before it.
func (e *Engine) enter(s *sequence) {
	i := len(e.waiting)
	for i > 0 && s.since.Before(e.waiting[i-1].since) {
		i--
	}
	e.waiting = slices.Insert(e.waiting, i, s)
}

// admit lets waiting requests begin, in the order in which they came and by their priority, as long as there are
// blocks. A pass has a row for each.
func (e *Engine) admit() {
	n := 0
	for _, s := range e.waiting {
		s.alone = e.stretch > 0 && s.most > e.stretch
		if len(e.running) >= e.most() || !e.takeSource(s) {
			break
		}
		if !e.blocks.admit(s) {
			e.release(s)
			break
		}
		e.mu.Lock()
		e.stats.SharedTokens += int64(s.shared)
		e.mu.Unlock()
		e.running = append(e.running, s)
		s.tell()
		n++
	}
	e.waiting = append(e.waiting[:0], e.waiting[n:]...)
}

// most is how many sequences are written at once.
func (e *Engine) most() int { return min(bucket(e.opts.Sequences), e.rows) }

// bucket is how many rows a pass has that needs n: the next power of two, and where that is more than 32 the next multiple of a sixteenth of
// it, of 16 at least. So there are few graphs, and of rows that are computed for nothing no more than a third, mostly far fewer.
func bucket(n int) int {
	b := 1
	for b < n {
		b *= 2
	}
	if step := max(b/16, 16); step < b {
		b = (n + step - 1) / step * step
	}
	return b
}

// A pass is the memory of the inputs and outputs of passes, and what one of them is for.
type pass struct {
	in     stepInputs
	logits []float32
	// parts are the sequences of the pass.
	parts []part
	// rows is how many rows they have together, and err what became of a pass that runs elsewhere.
	rows int
	err  error
}

// A part is what a pass has of a sequence: so many rows of its tokens, and rows for tokens that are guessed to follow.
type part struct {
	s       *sequence
	rows    int
	guesses []int
	// branches are other guesses.
	branches []branch
	// could is how many guesses it may have in a row, and hoped how many of its tree a head holds for right: 0 without one.
	could int
	hoped float64
	// to is the place for the state behind its last row, saves are those behind others.
	to    int
	saves []saving
	// first is the first of its rows in the pass, at where that is in the sequence. kept are the rows of tokens that the sequence
	// has then, and taken is the branch that became the text: for a head.
	first, at int
	kept      []int
	taken     *branch
}

// token returns the token of a row.
func (p *part) token(i int) int {
	if i < p.rows {
		return p.s.tokens[p.s.cached+i]
	}
	return p.guesses[i-p.rows]
}

// longest is how many tokens follow in the longest guess.
func (p *part) longest() int {
	n := len(p.guesses)
	for k := range p.branches {
		n = max(n, len(p.branches[k].guesses))
	}
	return n
}

// chooses reports whether tokens follow from the part: those of the last of its rows, and of all guesses.
func (p *part) chooses() bool { return p.s.cached+p.rows == len(p.s.tokens) }

// step runs one pass and chooses the tokens that follow from it.
func (e *Engine) step(ctx context.Context) error {
	if err := e.readNext(ctx); err != nil {
		return err
	}
	p := &e.pass
	if err := e.compose(ctx, p, len(e.running)); err != nil || p.rows == 0 { // all wait for their sources
		return err
	}
	if err := e.grow(ctx); err != nil {
		e.abandon(p.parts)
		return err
	}
	begin := time.Now()
	if err := e.run(ctx, p.rows); err != nil {
		e.abandon(p.parts)
		return err
	}
	if n := len(p.in.tokens); n == len(p.in.wanted) {
		e.ahead.took(n, time.Since(begin))
	}
	if err := e.choose(p); err != nil {
		return err
	}
	return e.listen(ctx, p)
}

// compose says which rows a pass has: of most sequences at most, none of which is in a pass that is under way.
func (e *Engine) compose(ctx context.Context, p *pass, most int) error {
	p.parts = p.parts[:0]
	rows := 0
	ready := func(s *sequence) bool { return s.ready() && !s.flying && rows < e.rows && len(p.parts) < most }
	// Who writes has one row; what room is left is for prompts, the first come first.
	for _, s := range e.running {
		if ready(s) && s.cached+1 == len(s.tokens) {
			p.parts = append(p.parts, part{s: s, rows: 1})
			rows++
		}
	}
	writing := rows
	for _, s := range e.running {
		if left := len(s.tokens) - s.cached; ready(s) && left > 1 {
			n := min(left, e.rows-rows)
			p.parts = append(p.parts, part{s: s, rows: n})
			rows += n
		}
	}
	if p.rows = rows; rows == 0 {
		return nil
	}
	if rows == writing { // there are guesses in passes without prompts only, which have rows enough
		if err := e.look(ctx, p.parts); err != nil {
			return err
		}
		e.allot(p.parts)
		for k := range p.parts {
			p.rows += p.parts[k].logitRows() - 1
		}
		if err := e.copyBeginnings(ctx, p.parts); err != nil {
			return err
		}
	} else {
		e.allot(p.parts)
	}
	for k := range p.parts {
		part := &p.parts[k]
		e.blocks.extend(part.s, graph.Blocks(part.s.cached+part.rows+part.longest()))
		if w := e.blocks.windows; w != nil {
			w.slide(part.s, part.rows+len(part.guesses))
		}
	}
	return nil
}

// run runs a pass of the parts, which have so many rows together.
func (e *Engine) run(ctx context.Context, rows int) error {
	in, out := e.fill(&e.pass, rows)
	return e.session.RunInto(ctx, in, out)
}

// fill makes the inputs of a pass and the place for its output.
func (e *Engine) fill(p *pass, rows int) (in, out runtime.Values) {
	p.in.begin(rows)
	for k := range p.parts {
		part := &p.parts[k]
		s, first := part.s, p.in.rows
		part.first, part.at = first, s.cached
		for i := range part.rows + len(part.guesses) {
			at := s.cached + i
			from, to := part.place(i)
			p.in.add(row{s: s, at: at, id: part.token(i), length: e.lengthFor(s, at), from: from, to: to}, i >= part.rows-1 && part.chooses())
		}
		e.addBranches(part, first)
	}
	in = p.in.values()
	m := len(p.in.wanted)
	if cap(p.logits) < m*e.vocabulary {
		p.logits = make([]float32, m*e.vocabulary)
	}
	p.logits = p.logits[:m*e.vocabulary]
	out = runtime.Values{models.StepLogits: tensor.Of(p.logits, m, e.vocabulary)}
	if e.draft != nil && e.draft.head != nil {
		h, n := e.draft.head, len(p.in.tokens)
		out[models.StepHidden] = tensor.Of(h.saw[:n*h.Seen], n, h.Seen)
	}
	return in, out
}

// lengthFor is how long a sequence is for one of its tokens, as transformers' generate has it: a model that restarts sees the
// whole of it, others what was there in the pass that brought the token, of which the first had the whole prompt. A token that is
// guessed is the last one that there is.
func (e *Engine) lengthFor(s *sequence, position int) int {
	if e.restarts {
		return max(position+1, len(s.tokens))
	}
	return max(position+1, len(s.Prompt))
}

// choose chooses tokens for each sequence whose logits there are.
func (e *Engine) choose(p *pass) error {
	e.count(1, p.rows, 0)
	written := 0
	logits := p.logits
	for k := range p.parts {
		part := &p.parts[k]
		s := part.s
		s.passes++
		e.keep(part, part.rows)
		if !part.chooses() {
			s.cached += part.rows
			e.blocks.register(s)
			e.settle(part, 0)
			s.tell()
			continue
		}
		n := part.logitRows() * e.vocabulary
		written += e.follow(part, logits[:n])
		logits = logits[n:]
	}
	kept := e.running[:0]
	for _, s := range e.running {
		if s.table != nil {
			kept = append(kept, s)
		}
	}
	clear(e.running[len(kept):])
	e.running = kept
	e.count(0, 0, written)
	for _, s := range e.finished { // who hears of it finds it done
		s.end(s.finish, s.err)
	}
	e.finished = e.finished[:0]
	return nil
}

// follow chooses the token behind the last row of a part, and those behind its guesses as long as these are what was chosen.
// It returns how many tokens were written.
func (e *Engine) follow(p *part, logits []float32) int {
	s := p.s
	written, right := 0, 0
	finish, done, again := Finish(""), false, false
	var err error
	s.cached += p.rows
	s.tell()
	paths, row := p.paths(), logits[:e.vocabulary]
	var taken *branch
	for i := 0; ; i++ {
		var t Token
		t, err = s.sampler.next(s.tokens, row)
		last := errors.Is(err, ErrStop)
		if err != nil && !last {
			err = fmt.Errorf("choosing token %d: %w", len(s.tokens)-len(s.Prompt), err)
			break
		}
		err = nil
		s.tokens = append(s.tokens, t.ID)
		s.out <- t
		written++
		switch {
		case last || slices.Contains(s.End, t.ID):
			finish, done = FinishStop, true
		case len(s.tokens) >= s.most:
			finish, done = FinishLength, true
		}
		if again = e.restarts && len(s.tokens) == e.stretch+1; again {
			break
		}
		if done {
			break
		}
		if paths[0].branch == nil && i < len(p.guesses) {
			s.learn(t.ID == p.guesses[i])
		}
		lost := paths[0].branch == nil && i < len(p.guesses) && t.ID != p.guesses[i]
		if paths = follow(paths, i, t.ID); lost {
			s.tryLuck(p, i, len(paths) > 0)
		}
		s.learnDepth(p, i, len(paths) > 0)
		if len(paths) == 0 {
			break
		}
		row, taken = logits[paths[0].rows[i]*e.vocabulary:][:e.vocabulary], paths[0].branch
		right++
		s.cached++
		if p.kept != nil {
			p.kept = append(p.kept, p.first+p.rows-1+paths[0].rows[i])
		}
	}
	if taken != nil {
		p.taken = taken
		s.grow(taken, p.kept != nil)
		e.branching.grown[taken.inner()]++
	}
	s.learnTrust(p, right)
	e.blocks.register(s)
	e.settle(p, right)
	if again { // all that was kept is of a shorter sequence
		s.cached = 0
		if e.blocks.states != nil {
			e.blocks.states.end(s)
		}
		if e.blocks.windows != nil {
			e.blocks.windows.rewind(s)
		}
	}
	s.drafted = min(s.drafted, s.cached)
	e.mu.Lock()
	e.stats.Guessed += int64(p.guessed())
	e.stats.Accepted += int64(right)
	e.mu.Unlock()
	if done || err != nil {
		e.finish(s, finish, err)
	}
	return written
}

// finish ends a sequence that is written, once the pass is done with.
func (e *Engine) finish(s *sequence, finish Finish, err error) {
	e.release(s)
	s.finish, s.err = finish, err
	e.finished = append(e.finished, s)
}

func (e *Engine) count(passes, rows, tokens int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.stats
	s.Passes, s.Rows, s.Tokens = s.Passes+int64(passes), s.Rows+int64(rows), s.Tokens+int64(tokens)
	s.Running, s.Waiting = len(e.running), len(e.waiting)
}
