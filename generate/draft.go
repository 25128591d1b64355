package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A draft is a smaller model with the same vocabulary that guesses what comes next. It stays in memory, within the engine's
// budget. Its caches have the blocks of the engine's, so that a sequence has one table for both; what it knows of a sequence
// may be old or wrong, which costs guesses and never changes a text.
type draft struct {
	session    *runtime.Session
	rows       int
	vocabulary int
	// windows are the blocks of its caches of layers that see a window, nil where all have the engine's.
	windows *windows
	// bytes are what it takes of the device at most, beside those of the host that a head takes, of a CPU's.
	bytes, beside int64
	// head is what a head has beside; nil of a model of its own.
	head *headed
	forest
	// ahead and plain are room for rows.
	ahead []headRow
	plain []row

	in     stepInputs
	logits []float32
	// seconds is what a step of one row for each sequence takes, as measured; 0 is not yet.
	seconds float64
	steps   int
}

// openDraft starts the session of a draft of an engine of that size.
func openDraft(ctx context.Context, target *models.Model, opts Options, n size) (*draft, error) {
	refused := func(format string, args ...any) (*draft, error) {
		return nil, &RequestError{"Draft", fmt.Sprintf(format, args...)}
	}
	model := opts.Draft
	if stretch, _ := model.Stretch(); stretch > 0 && n.context > stretch {
		return refused("a model that changes beyond %d tokens, and the context has %d", stretch, n.context)
	}
	if longest := model.Context(); longest > 0 && n.context > longest {
		return refused("a model for %d tokens, and the context has %d", longest, n.context)
	}
	if len(model.Adapters()) > 0 {
		return refused("a model with adapters")
	}
	if _, recurrent := model.Keeps(); recurrent {
		return refused("a model that keeps states, which guesses that are wrong would spoil")
	}
	if model.Source() > 0 {
		return refused("a model that reads a source")
	}
	width := graph.Blocks(n.context)
	d := &draft{rows: bucket(n.rows), in: stepInputs{width: width, drafts: true}}
	step := models.StepOptions{Blocks: width*opts.Sequences + opts.spareBlocks(), Context: n.context, DType: opts.KV}
	if model.Head() == nil { // which has the engine's blocks
		d.openWindows(model.Window(), opts.Sequences, width)
	}
	if d.windows != nil {
		step.WindowBlocks = len(d.windows.of)
	}
	steps, err := model.Steps(step)
	if err != nil {
		return nil, fmt.Errorf("the model that guesses: %w", err)
	}
	if d.width = max(opts.Branches, 1); d.windows != nil { // which have one text
		d.width = 1
	}
	d.most = min(bucket(bucket(opts.Sequences)*d.width), d.rows)
	sequences := min(bucket(opts.Sequences), n.rows)
	beside := d.treeBytes(sequences)
	if model.Head() != nil {
		if d.head, err = openHeaded(target, &opts, n.rows, &d.forest); err != nil {
			return nil, err
		}
		beside += d.head.bytes(sequences)
	}
	if device := opts.Session.Device; device == "" || device == "cpu" {
		d.beside = beside
	}
	start := runtime.Options{
		Mode: plan.Resident, Device: opts.Session.Device, CUDALibrary: opts.Session.CUDALibrary, Threads: opts.Session.Threads,
		HostMemory: opts.Session.HostMemory, Memory: 1, PlanOnly: true,
	}
	// It takes the least that it can, so that what is left is known before.
	probe, err := runtime.Start(ctx, steps, start)
	if err != nil {
		return nil, fmt.Errorf("the model that guesses: %w", err)
	}
	defer probe.Close()
	for _, shapes := range d.largest(opts.Sequences) {
		var full *runtime.CapacityError
		if _, err := probe.Plan(ctx, shapes); !errors.As(err, &full) {
			return nil, fmt.Errorf("the model that guesses: %w", cmp.Or(err, errNoLeast))
		}
		d.bytes = max(d.bytes, full.MinBytes)
	}
	start.Memory, start.PlanOnly = d.bytes, false
	if d.session, err = runtime.Start(ctx, steps, start); err != nil {
		return nil, fmt.Errorf("the model that guesses: %w", err)
	}
	for _, shapes := range d.largest(opts.Sequences) {
		p, err := d.session.Plan(ctx, shapes)
		if err != nil {
			d.session.Close()
			return nil, fmt.Errorf("the model that guesses: %w", err)
		}
		d.vocabulary = p.Lowered.Graph.Outputs[0].Operand.Layout.Shape[1]
		d.findCaches(p.Lowered.Graph)
	}
	return d, nil
}

var errNoLeast = errors.New("nothing says how much memory it takes")

// largest are the shapes of the largest passes: those that read, and those that guess.
func (d *draft) largest(sequences int) []map[string]tensor.Shape {
	rows := min(bucket(sequences), d.rows)
	if d.head != nil {
		reads, guesses := d.in.shapes(d.rows, rows), d.in.shapes(d.most, d.most)
		return []map[string]tensor.Shape{d.head.ports(reads, d.rows), d.head.ports(guesses, d.most)}
	}
	return []map[string]tensor.Shape{d.in.shapes(d.rows, 1), d.in.shapes(d.most, d.most)}
}

// besides says of a budget that is too small what it has to be with what is beside the session in it.
func besides(err error, bytes, budget int64) error {
	var full *runtime.CapacityError
	if !errors.As(err, &full) || full.Host {
		return err
	}
	all := *full
	all.NeedBytes, all.HaveBytes, all.MinBytes = full.NeedBytes+bytes, min(full.HaveBytes+bytes, budget), full.MinBytes+bytes
	return &all
}

// pass computes rows, and the logits of the last of them, wanted in number.
func (d *draft) pass(ctx context.Context, rows []row, wanted int) ([]float32, error) {
	d.in.begin(len(rows))
	for i, r := range rows {
		d.in.add(r, i >= len(rows)-wanted)
	}
	in := d.in.values()
	m := len(d.in.wanted)
	if cap(d.logits) < m*d.vocabulary {
		d.logits = make([]float32, m*d.vocabulary)
	}
	logits := d.logits[:m*d.vocabulary]
	err := d.session.RunInto(ctx, in, runtime.Values{models.StepLogits: tensor.Of(logits, m, d.vocabulary)})
	return logits, err
}

// read lets the draft see what it has not seen of a sequence, but for its last token.
func (d *draft) read(ctx context.Context, s *sequence) error {
	d.rewind(s)
	for s.drafted < len(s.tokens)-1 {
		n := min(d.rows, len(s.tokens)-1-s.drafted)
		d.slide(s, n)
		rows := make([]row, n)
		for i := range rows {
			rows[i] = row{s: s, at: s.drafted + i, id: s.tokens[s.drafted+i]}
		}
		if _, err := d.pass(ctx, rows, 1); err != nil {
			return err
		}
		s.drafted += n
	}
	return nil
}

// seeTexts lets a draft see the texts of parts that could have guesses, and tells of each, by its number, what may follow.
func (d *draft) seeTexts(ctx context.Context, parts []part, found func(i int, hidden, logits []float32)) error {
	rows, of := d.ahead[:0], make([]int, 0, len(parts))
	for i := range parts {
		if s := parts[i].s; parts[i].could > 0 {
			if err := d.read(ctx, s); err != nil {
				return err
			}
			at := len(s.tokens) - 1
			rows, of = append(rows, headRow{row: row{s: s, at: at, id: s.tokens[at]}, wanted: true}), append(of, i)
			s.drafted = len(s.tokens)
		}
	}
	if d.ahead = rows[:0]; len(rows) == 0 {
		return nil
	}
	return d.gives(ctx, rows, func(i int, hidden, logits []float32) { found(of[i], hidden, logits) })
}

// guess writes tokens that may follow each of the sequences, as many as it could have.
func (d *draft) guess(ctx context.Context, parts []part) error {
	if d.head != nil {
		return d.guessSeen(ctx, parts)
	}
	for i := range parts {
		if parts[i].could > 0 {
			if err := d.read(ctx, parts[i].s); err != nil {
				return err
			}
			d.slide(parts[i].s, parts[i].could)
		}
	}
	rows, of := make([]row, 0, len(parts)), make([]*part, 0, len(parts))
	for ahead := 0; ; ahead++ {
		rows, of = rows[:0], of[:0]
		for i := range parts {
			p := &parts[i]
			if ahead >= p.could || len(p.guesses) < ahead {
				continue
			}
			id := p.s.tokens[len(p.s.tokens)-1]
			if ahead > 0 {
				id = p.guesses[ahead-1]
			}
			rows, of = append(rows, row{s: p.s, at: len(p.s.tokens) - 1 + ahead, id: id}), append(of, p)
		}
		if len(rows) == 0 {
			return nil
		}
		begin := time.Now()
		logits, err := d.pass(ctx, rows, len(rows))
		if err != nil {
			return err
		}
		d.took(time.Since(begin))
		for i, p := range of {
			p.s.drafted = len(p.s.tokens) + ahead
			text := append(p.s.tokens[:len(p.s.tokens):len(p.s.tokens)], p.guesses...)
			t, err := p.s.drafter.next(text, logits[i*d.vocabulary:(i+1)*d.vocabulary])
			if err != nil { // numbers that are none: nothing to guess from
				continue
			}
			p.guesses = append(p.guesses, t.ID)
		}
	}
}

// took tells how long a step took.
func (d *draft) took(t time.Duration) {
	switch d.steps++; {
	case d.steps <= 2:
		d.seconds = t.Seconds()
	default:
		d.seconds += (t.Seconds() - d.seconds) / 8
	}
}

// draftRequest is a request as the draft sees it: it draws from what is left to draw from with the random numbers of the text, so
// that it chooses what the model would where both think alike.
func draftRequest(r Request) Request {
	s := r.Sampling
	return Request{Seed: r.Seed, Sampling: Sampling{Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, Typical: s.Typical}}
}
