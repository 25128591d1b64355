package generate

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// Heads: a draft may be a head on the model itself ([models.BuildHead]), which sees what layers of the model saw of each token.
// A pass gives that for all of its rows. What is not needed at once is kept for a few tokens of each sequence, and read by the
// head before it guesses, or when there is no more room; what a prompt's passes give is read behind each of them. What the head
// knows of a sequence may be old or wrong, as with any draft.

// mostPending is of how many tokens of a sequence what was seen is kept for the head: of those that a pass writes at most.
const mostPending = mostAhead

// A headed is what a draft has that is a head.
type headed struct {
	*models.Head
	// saw is what the passes of the model gave, and seen, own and guessed are inputs.
	saw, seen, own []float32
	guessed        []int64
	// hidden is what it gave for the rows that were wanted, and all the logits of all tokens.
	hidden, all []float32
	rows        []headRow
	// spare is room for what the model saw, of sequences that are done.
	spare [][]float32
	// gave is what it gave for the nodes of the last level of trees, and of the one before.
	gave [2][]float32
}

// A headRow is a row of a pass of a head: one of seen and own is what it sees.
type headRow struct {
	row
	seen, own []float32
	wanted    bool
}

// seen are the layers that a head sees, none without one.
func (o *Options) seen() []int {
	if o.Draft == nil || o.Draft.Head() == nil || o.Speculate == NoSpeculation {
		return nil
	}
	return o.Draft.Head().Layers
}

// openHeaded prepares for a head on a model in an engine of so many rows, for trees like these.
func openHeaded(model *models.Model, opts *Options, rows int, trees *forest) (*headed, error) {
	head := opts.Draft.Head()
	if !head.For(model) {
		return nil, &RequestError{"Draft", "a head for another model"}
	}
	all := head.Vocabulary
	h := &headed{Head: head, all: make([]float32, all)}
	n := bucket(rows)
	h.saw, h.seen = make([]float32, n*h.Seen), make([]float32, n*h.Seen)
	if h.Own {
		h.own, h.guessed = make([]float32, n*h.Size), make([]int64, n)
	}
	h.hidden = make([]float32, trees.most*h.Size)
	if trees.width > 1 {
		for i := range h.gave {
			h.gave[i] = make([]float32, min(bucket(opts.Sequences), n)*trees.width*h.Size)
		}
	}
	return h, nil
}

// bytes is what it takes of the host's memory, where so many sequences are written at once.
func (h *headed) bytes(sequences int) int64 {
	each := mostPending*h.Seen + h.Size
	known := h.Vocabulary
	if h.Tokens != nil {
		known = len(h.Tokens)
	}
	own := len(h.saw) + len(h.seen) + len(h.own) + 2*len(h.guessed) + len(h.hidden) + len(h.all) + 2*len(h.gave[0])
	return 4 * int64(own+len(h.hidden)/h.Size*known+sequences*each)
}

// ports adds the inputs of a head's pass to those of others.
func (h *headed) ports(shapes map[string]tensor.Shape, rows int) map[string]tensor.Shape {
	shapes[models.StepSeen] = tensor.Shape{rows, h.Seen}
	if h.Own {
		shapes[models.StepOwn], shapes[models.StepGuessed] = tensor.Shape{rows, h.Size}, tensor.Shape{rows}
	}
	return shapes
}

// headPass computes rows of a head, and the logits of those that are wanted.
func (d *draft) headPass(ctx context.Context, rows []headRow) ([]float32, error) {
	h := d.head
	d.in.begin(len(rows))
	n := len(d.in.tokens)
	clear(h.seen[:n*h.Seen])
	clear(h.own[:min(n*h.Size, len(h.own))])
	clear(h.guessed[:min(n, len(h.guessed))])
	for i, r := range rows {
		d.in.add(r.row, r.wanted)
		switch {
		case r.own == nil:
			copy(h.seen[i*h.Seen:][:h.Seen], r.seen)
		case h.Own:
			copy(h.own[i*h.Size:][:h.Size], r.own)
			h.guessed[i] = 1
		default:
			copy(h.seen[i*h.Seen:][:h.Seen], r.own)
		}
	}
	in := d.in.values()
	in[models.StepSeen] = tensor.Of(h.seen[:n*h.Seen], n, h.Seen)
	if h.Own {
		in[models.StepOwn], in[models.StepGuessed] = tensor.Of(h.own[:n*h.Size], n, h.Size), tensor.Of(h.guessed[:n], n)
	}
	m := len(d.in.wanted)
	if cap(d.logits) < m*d.vocabulary {
		d.logits = make([]float32, m*d.vocabulary)
	}
	logits := d.logits[:m*d.vocabulary]
	err := d.session.RunInto(ctx, in, runtime.Values{
		models.StepLogits: tensor.Of(logits, m, d.vocabulary),
		models.StepHidden: tensor.Of(h.hidden[:m*h.Size], m, h.Size),
	})
	if err != nil {
		return nil, fmt.Errorf("the head that guesses: %w", err)
	}
	return logits, nil
}

// ofAll returns logits of all tokens for those of the tokens that a head chooses from.
func (h *headed) ofAll(logits []float32) []float32 {
	if h.Tokens == nil {
		return logits
	}
	for i := range h.all {
		h.all[i] = float32(math.Inf(-1))
	}
	for i, id := range h.Tokens {
		h.all[id] = max(h.all[id], logits[i])
	}
	return h.all
}

// pending is of how many tokens of a sequence something waits for the head.
func (h *headed) pending(s *sequence) int { return len(s.saw) / h.Seen }

// ready reports whether the head may guess what follows a sequence: it has what the model saw of the last token but one.
func (h *headed) ready(s *sequence) bool {
	return len(s.saw) > 0 && s.drafted+h.pending(s) == len(s.tokens)-1
}

// row is the row of what waits, number i.
func (h *headed) row(s *sequence, i int) headRow {
	at := s.drafted + i
	return headRow{row: row{s: s, at: at, id: s.tokens[at+1]}, seen: s.saw[i*h.Seen:][:h.Seen]}
}

// listen takes what a pass of the model saw of the tokens that sequences have now.
func (e *Engine) listen(ctx context.Context, p *pass) error {
	if e.draft == nil || e.draft.head == nil || e.ahead.limit == 0 {
		return nil
	}
	for k := range p.parts {
		if err := e.draft.listen(ctx, &p.parts[k]); err != nil {
			return err
		}
	}
	return nil
}

func (d *draft) listen(ctx context.Context, p *part) error {
	h, s := d.head, p.s
	if s.table == nil || len(p.kept) == 0 { // it is done
		return nil
	}
	if s.drafted+h.pending(s) != p.at || s.cached != p.at+len(p.kept) {
		s.saw, s.drafted = s.saw[:0], p.at
		if s.cached != p.at+len(p.kept) { // it begins again
			return nil
		}
	}
	if x := p.taken; x != nil {
		if err := d.follow(ctx, s, x); err != nil {
			return err
		}
	}
	of := func(row int) []float32 { return h.saw[row*h.Seen:][:h.Seen] }
	if s.saw == nil {
		s.saw = h.take()
	}
	if h.pending(s)+len(p.kept) <= mostPending {
		for _, row := range p.kept {
			s.saw = append(s.saw, of(row)...)
		}
		return nil
	}
	rows := h.rows[:0]
	for i := range h.pending(s) {
		rows = append(rows, h.row(s, i))
	}
	last := len(p.kept) - 1
	for i, row := range p.kept[:last] {
		at := p.at + i
		rows = append(rows, headRow{row: s.rowAt(at), seen: of(row)})
	}
	h.rows = rows[:0]
	for len(rows) > 0 {
		n := min(len(rows), d.rows)
		if _, err := d.headPass(ctx, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	s.saw, s.drafted = append(s.saw[:0], of(p.kept[last])...), s.cached-1
	return nil
}

// take returns room for what the model saw of a sequence, give takes that of one which is done.
func (h *headed) take() []float32 {
	if n := len(h.spare); n > 0 {
		room := h.spare[n-1]
		h.spare = h.spare[:n-1]
		return room
	}
	return make([]float32, 0, mostPending*h.Seen)
}

func (h *headed) give(s *sequence) {
	if s.saw != nil {
		h.spare = append(h.spare, s.saw[:0])
		s.saw = nil
	}
}

// rowAt is the row of a head for a token, with the one behind it.
func (s *sequence) rowAt(at int) row { return row{s: s, at: at, id: s.tokens[at+1]} }

// follow copies what the head knows of the block in which a branch begins that became the text.
func (d *draft) follow(ctx context.Context, s *sequence, x *branch) error {
	if s.drafted <= x.from*graph.BlockRows {
		return nil
	}
	return d.copyBlock(ctx, x.blocks[0], s.table[x.from])
}

// gives runs rows of a head, of which some are wanted, and tells what it gives for each of those: logits of all tokens, too. Of
// another draft all are wanted, and there are logits only.
func (d *draft) gives(ctx context.Context, rows []headRow, found func(i int, hidden, logits []float32)) error {
	begin := time.Now()
	if d.head == nil {
		d.plain = d.plain[:0]
		for _, r := range rows {
			d.plain = append(d.plain, r.row)
		}
		logits, err := d.pass(ctx, d.plain, len(rows))
		if err != nil {
			return err
		}
		d.took(time.Since(begin))
		for i := range rows {
			found(i, nil, logits[i*d.vocabulary:][:d.vocabulary])
		}
		return nil
	}
	logits, err := d.headPass(ctx, rows)
	if err != nil {
		return err
	}
	d.took(time.Since(begin))
	i, h := 0, d.head
	for k := range rows {
		if rows[k].wanted {
			found(i, h.hidden[i*h.Size:][:h.Size], h.ofAll(logits[i*d.vocabulary:][:d.vocabulary]))
			i++
		}
	}
	return nil
}

// see has a head read what the model saw of the parts that could have guesses, and tells of each, by its number, what it gives
// for the last row of that. Another draft reads the texts themselves.
func (d *draft) see(ctx context.Context, parts []part, found func(i int, hidden, logits []float32)) error {
	if d.head == nil {
		return d.seeTexts(ctx, parts, found)
	}
	h := d.head
	var of []int
	rows := h.rows[:0]
	run := func() error {
		if len(rows) == 0 {
			return nil
		}
		err := d.gives(ctx, rows, func(i int, hidden, logits []float32) { found(of[i], hidden, logits) })
		h.rows, rows, of = rows[:0], rows[:0], of[:0]
		return err
	}
	for i := range parts {
		p := &parts[i]
		if p.could == 0 {
			continue
		}
		n := h.pending(p.s)
		if len(rows)+n > d.rows {
			if err := run(); err != nil {
				return err
			}
		}
		for k := range n {
			rows = append(rows, h.row(p.s, k))
			if len(rows) == d.rows && k < n-1 { // a pass has no room for all of them
				if _, err := d.headPass(ctx, rows); err != nil {
					return err
				}
				rows = rows[:0]
			}
		}
		rows[len(rows)-1].wanted = true
		of = append(of, i)
	}
	if err := run(); err != nil {
		return err
	}
	for i := range parts {
		if p := &parts[i]; p.could > 0 {
			p.s.saw, p.s.drafted = p.s.saw[:0], len(p.s.tokens)-1
		}
	}
	return nil
}

// guessSeen writes tokens that may follow each of the sequences, as a head guesses them.
func (d *draft) guessSeen(ctx context.Context, parts []part) error {
	h := d.head
	next := func(i int, hidden, logits []float32) {
		p := &parts[i]
		p.s.own = append(p.s.own[:0], hidden...)
		text := append(p.s.tokens[:len(p.s.tokens):len(p.s.tokens)], p.guesses...)
		if t, err := p.s.drafter.next(text, logits); err == nil { // numbers that are none: nothing to guess from
			p.guesses = append(p.guesses, t.ID)
		}
	}
	if err := d.see(ctx, parts, next); err != nil {
		return err
	}
	var of []int
	for ahead := 1; ; ahead++ { // what it saw itself
		rows := h.rows[:0]
		of = of[:0]
		for i := range parts {
			p := &parts[i]
			if ahead >= p.could || len(p.guesses) < ahead {
				continue
			}
			r := row{s: p.s, at: len(p.s.tokens) - 2 + ahead, id: p.guesses[ahead-1]}
			rows, of = append(rows, headRow{row: r, own: p.s.own, wanted: true}), append(of, i)
		}
		if h.rows = rows[:0]; len(rows) == 0 {
			return nil
		}
		if err := d.gives(ctx, rows, func(i int, hidden, logits []float32) { next(of[i], hidden, logits) }); err != nil {
			return err
		}
	}
}

// keep notes which of the pass's rows are of tokens that a part's sequence has: the first so many of its own.
func (e *Engine) keep(p *part, rows int) {
	if e.draft == nil || e.draft.head == nil {
		return
	}
	p.kept = make([]int, rows, rows+len(p.guesses))
	for i := range p.kept {
		p.kept[i] = p.first + i
	}
}

// takes is what a draft takes of the budget.
func (d *draft) takes() int64 { return d.bytes + d.beside }

// words is how many tokens a draft knows.
func (d *draft) words() int {
	if d.head != nil {
		return d.head.Vocabulary
	}
	return d.vocabulary
}
